//! The choice between different bytes at the same place of a stream.

use std::fmt;
use std::str::FromStr;

/// The rule by which a receiver chooses between overlapping segments that wait for earlier bytes (J. Novak,
/// S. Sturges, "Target-Based TCP Stream Reassembly", Sourcefire 2007). Bytes that an application has received already
/// do not change under any rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverlapPolicy {
    /// The earlier segment.
    First,
    /// The later segment.
    Last,
    /// The earlier segment, unless the later one begins before it: FreeBSD, NetBSD, OpenBSD, macOS.
    Bsd,
    /// As [`Bsd`](Self::Bsd), and the later segment also where both begin at the same place and the later one is
    /// longer: Linux from 2.4 on.
    #[default]
    Linux,
    /// As [`Bsd`](Self::Bsd): Windows up to XP and 2003.
    Windows,
}

impl OverlapPolicy {
    /// All rules.
    pub const ALL: [Self; 5] = [Self::First, Self::Last, Self::Bsd, Self::Linux, Self::Windows];

    /// Returns the name in a manifest.
    pub const fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Last => "last",
            Self::Bsd => "bsd",
            Self::Linux => "linux",
            Self::Windows => "windows",
        }
    }

    /// Returns true if the later segment, from `later.0` to `later.1`, replaces bytes of an earlier one.
    pub(super) const fn replaces(self, later: (u64, u64), earlier: (u64, u64)) -> bool {
        match self {
            Self::First => false,
            Self::Last => true,
            Self::Bsd | Self::Windows => later.0 < earlier.0,
            Self::Linux => later.0 < earlier.0 || (later.0 == earlier.0 && later.1 > earlier.1),
        }
    }
}

impl fmt::Display for OverlapPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error for a name of no rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no such overlap policy; there is first, last, bsd, linux, windows")]
pub struct UnknownOverlapPolicy;

impl FromStr for OverlapPolicy {
    type Err = UnknownOverlapPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownOverlapPolicy> {
        Self::ALL.into_iter().find(|policy| policy.name() == text).ok_or(UnknownOverlapPolicy)
    }
}
