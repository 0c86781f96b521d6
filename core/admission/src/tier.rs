//! Tiers: the ways of keeping a module within its limits.

use crate::{Calibration, Profile};
use std::fmt;
use weir_abi::entry::WorkLimit;
use weir_bounds::{EntryPoint, Linear};

/// The way of keeping a module within its limits (P. Patel, J. Lepreau, "Hybrid resource control of active extensions",
/// OPENARCH 2003, section III). The first three tiers are ordered by the cost of their checks at run time. `Unmetered` comes
/// last, because no profile allows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// The bounds are within the limits, so no limit is checked at run time.
    Proved,
    /// A bound exceeds its limit by at most a factor, which allows for a pessimistic analysis. The actual use is checked
    /// regularly. A module that keeps exceeding its limits is unloaded between two packets.
    Supervised,
    /// The fuel of every charge is checked at run time. A call that uses up its fuel is aborted.
    Metered,
    /// A bound exceeds its limit or is missing, and no limit is checked at run time. The session has
    /// [the right](crate::Admitted::without_meter) to run the module so, which no profile gives. The module runs in verified
    /// machine code, in a process of its own. The node pauses this process at the end of each slice, and kills it if a call
    /// takes too long.
    Unmetered,
}

impl Tier {
    /// The tiers that profiles allow, the cheapest first.
    pub const ALL: &'static [Tier] = &[Self::Proved, Self::Supervised, Self::Metered];

    /// Returns the name that profiles use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Proved => "proved",
            Self::Supervised => "supervised",
            Self::Metered => "metered",
            Self::Unmetered => "unmetered",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The limits of one call of a module, in fuel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FuelLimits {
    /// The limit for a packet: a constant, and a part for each captured byte. The limit for a batch is the sum over its
    /// packets. The limit for a call about a lost packet, whose bytes the call does not get, is the constant.
    pub packet: Linear,
    /// The limit for a tick, and for other calls between packets.
    pub tick: u64,
    /// The limit for each call before the first packet: the start function, `_initialize`, `weir_start`.
    pub start: u64,
    /// The limit for `weir_stop`.
    pub stop: u64,
    /// The most fuel between two checks of a supervised module's use.
    pub check_interval: u64,
    /// The number of strikes at which a module ends. A strike is a call that was aborted because of a limit. The number also
    /// determines when a supervised module is unloaded: [`Profile::strikes`].
    pub strikes: u32,
}

impl FuelLimits {
    /// Returns the limit for a call of an entry point, in fuel. For an entry point that gets several packets, the limit is for a
    /// call with the most packets, and its variable is the captured length of a packet, the same for all of them.
    pub fn for_entry(&self, entry: EntryPoint) -> Linear {
        match entry.definition().work_limit {
            WorkLimit::Start => Linear::constant(self.start),
            WorkLimit::Packet => {
                let packets = u64::from(entry.packets());
                Linear {
                    constant: self.packet.constant.saturating_mul(packets),
                    per_kib: self.packet.per_kib.saturating_mul(packets),
                }
            }
            WorkLimit::LostPacket => Linear::constant(self.packet.constant),
            WorkLimit::Tick => Linear::constant(self.tick),
            WorkLimit::Stop => Linear::constant(self.stop),
        }
    }
}

impl Default for FuelLimits {
    /// Returns the limits of the default profile on a node that is not calibrated.
    fn default() -> Self {
        Profile::default().limits(&Calibration::default())
    }
}
