//! How a module is kept within its limits, and what these are.

use crate::{Calibration, Profile};
use std::fmt;
use weir_abi::entry::WorkLimit;
use weir_bounds::{EntryPoint, Linear};

/// How a module is kept within its limits (P. Patel, J. Lepreau, "Hybrid resource control of active extensions", OPENARCH 2003, section III).
/// In the order of what it costs at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Its bounds are within the limits, so nothing is checked while it runs.
    Proved,
    /// Its bounds are over the limits, but within a factor that allows for a pessimistic analysis. What it really uses is looked at between pieces
    /// of work; where it keeps exceeding, it is unloaded when idle.
    Supervised,
    /// It is charged while it runs, and a call that uses up its allowance is abandoned.
    Metered,
}

impl Tier {
    /// All tiers, the cheapest first.
    pub const ALL: &'static [Tier] = &[Self::Proved, Self::Supervised, Self::Metered];

    /// As a profile names it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Proved => "proved",
            Self::Supervised => "supervised",
            Self::Metered => "metered",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What one call of a module may use, in fuel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FuelLimits {
    /// One packet: a constant, and so much for each captured byte. A batch may use it once for each of its packets.
    pub packet: Linear,
    /// A tick, or another call between packets.
    pub tick: u64,
    /// Each call before the first packet: the start function, `_initialize`, `weir_start`.
    pub start: u64,
    /// The stop.
    pub stop: u64,
    /// The longest piece of work between two points at which what was used is looked at.
    pub piece: u64,
    /// Calls over their limit after which a module is unloaded.
    pub strikes: u32,
}

impl FuelLimits {
    /// The most that one call of an entry point may use, by the captured length of each packet that it is called for.
    pub fn of(&self, entry: EntryPoint) -> Linear {
        match entry.definition().allowance {
            WorkLimit::Start => Linear::constant(self.start),
            WorkLimit::Packet => {
                let packets = u64::from(entry.packets());
                Linear {
                    constant: self.packet.constant.saturating_mul(packets),
                    per_kib: self.packet.per_kib.saturating_mul(packets),
                }
            }
            WorkLimit::EmptyPacket => Linear::constant(self.packet.constant),
            WorkLimit::Tick => Linear::constant(self.tick),
            WorkLimit::Stop => Linear::constant(self.stop),
        }
    }
}

impl Default for FuelLimits {
    /// Those of the default profile on a node that is not calibrated.
    fn default() -> Self {
        Profile::default().limits(&Calibration::default())
    }
}
