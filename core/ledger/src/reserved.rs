//! What a session is promised, as the ledger keeps it.

use super::{LedgerText, wire};
use serde::{Deserialize, Deserializer, Serialize};
use weir_admission::Name;
use weir_units::{Bytes, Nanos};

/// The most virtual processors, and the most links, of one session in the ledger: an entry has to stay a line.
pub const RESERVED_MAX: usize = 64;

/// What a session is promised.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reserved {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    processors: Vec<ReservedProcessor>,
    #[serde(rename = "memory_bytes", with = "wire::bytes")]
    memory: Bytes,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    links: Vec<ReservedLink>,
}

/// A virtual processor: a slice in every period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservedProcessor {
    /// The core that it is placed on.
    pub core: u32,
    /// How often.
    #[serde(rename = "period_ns", with = "wire::nanos")]
    pub period: Nanos,
    /// How much of each period.
    #[serde(rename = "slice_ns", with = "wire::nanos")]
    pub slice: Nanos,
    /// Whether it takes spare time as well.
    pub spare: bool,
}

/// A share of a link: so much in every period (virtual clock).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservedLink {
    /// The channel that sends.
    #[serde(with = "wire::name")]
    pub channel: Name,
    /// The interface that it sends on.
    pub interface: LedgerText,
    /// How often.
    #[serde(rename = "period_ns", with = "wire::nanos")]
    pub period: Nanos,
    /// How much in each period.
    #[serde(rename = "limit_bytes", with = "wire::bytes")]
    pub limit: Bytes,
    /// Whether the limit is also a cap, so that the channel does not take what others leave.
    pub capped: bool,
}

/// More than the ledger keeps of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a session has at most {RESERVED_MAX} virtual processors and {RESERVED_MAX} links")]
pub struct TooManyReserved;

impl Reserved {
    /// A promise.
    ///
    /// # Errors
    /// More than [`RESERVED_MAX`] processors or links.
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

    /// Its virtual processors.
    pub fn processors(&self) -> &[ReservedProcessor] {
        &self.processors
    }

    /// Its memory.
    pub fn memory(&self) -> Bytes {
        self.memory
    }

    /// Its shares of links.
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
