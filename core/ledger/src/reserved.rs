//! The reservations of a session, as the ledger records them.

use super::{LedgerText, wire};
use serde::{Deserialize, Deserializer, Serialize};
use weir_admission::Name;
use weir_units::{Bytes, Nanos};

/// The most virtual CPUs and the most shares of links of one session in the ledger, so that an entry fits into a
/// line.
pub const RESERVED_MAX: usize = 64;

/// The reservations of a session: virtual CPUs, memory and shares of links.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reserved {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    processors: Vec<ReservedProcessor>,
    #[serde(rename = "memory_bytes", with = "wire::bytes")]
    memory: Bytes,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    links: Vec<ReservedLink>,
}

/// A virtual CPU: a slice in every period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservedProcessor {
    /// The core on which the virtual CPU runs.
    pub core: u32,
    /// The period.
    #[serde(rename = "period_ns", with = "wire::nanos")]
    pub period: Nanos,
    /// The guaranteed processor time in each period.
    #[serde(rename = "slice_ns", with = "wire::nanos")]
    pub slice: Nanos,
    /// True if the session may also use spare time of the core.
    pub spare: bool,
}

/// A share of a link: a number of bytes in every period (virtual clock).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservedLink {
    /// The output channel.
    #[serde(with = "wire::name")]
    pub channel: Name,
    /// The interface of the link.
    pub interface: LedgerText,
    /// The period.
    #[serde(rename = "period_ns", with = "wire::nanos")]
    pub period: Nanos,
    /// The guaranteed bytes in each period.
    #[serde(rename = "limit_bytes", with = "wire::bytes")]
    pub limit: Bytes,
    /// True if the limit is also a cap: then the channel gets no spare bandwidth.
    pub capped: bool,
}

/// The error for more reservations than the ledger records for one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a session has at most {RESERVED_MAX} virtual CPUs and {RESERVED_MAX} links")]
pub struct TooManyReserved;

impl Reserved {
    /// Checks the reservations of a session.
    ///
    /// # Errors
    /// Fails for more than [`RESERVED_MAX`] processors or links.
    pub fn new(
        processors: Vec<ReservedProcessor>,
        memory: Bytes,
        links: Vec<ReservedLink>,
    ) -> Result<Self, TooManyReserved> {
        if processors.len() > RESERVED_MAX || links.len() > RESERVED_MAX {
            return Err(TooManyReserved);
        }
        Ok(Self { processors, memory, links })
    }

    /// Returns the virtual CPUs.
    pub fn processors(&self) -> &[ReservedProcessor] {
        &self.processors
    }

    /// Returns the reserved memory.
    pub fn memory(&self) -> Bytes {
        self.memory
    }

    /// Returns the shares of links.
    pub fn links(&self) -> &[ReservedLink] {
        &self.links
    }
}

impl<'de> Deserialize<'de> for Reserved {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Raw {
            #[serde(default)]
            processors: Vec<ReservedProcessor>,
            #[serde(rename = "memory_bytes", with = "wire::bytes")]
            memory: Bytes,
            #[serde(default)]
            links: Vec<ReservedLink>,
        }
        let raw = Raw::deserialize(deserializer)?;
        Self::new(raw.processors, raw.memory, raw.links).map_err(serde::de::Error::custom)
    }
}
