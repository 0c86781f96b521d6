//! What a virtual processor is promised, and what a core is told about itself.

use std::fmt;
use weir_units::{Nanos, beside};

/// The longest period that can be reserved.
pub const PERIOD_MAX: Nanos = Nanos(60_000_000_000);
/// The most virtual processors on a core.
pub const VPS_MAX: usize = 16_384;
/// The largest weight.
pub const WEIGHT_MAX: u32 = 10_000;

/// How time that nobody has reserved is shared: who has twice the weight gets twice the time. From 1 to [`WEIGHT_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(u32);

impl Weight {
    /// The weight of whoever has been given no other.
    pub const USUAL: Weight = Weight(100);

    /// `None` where it is not from 1 to [`WEIGHT_MAX`].
    pub fn new(weight: u32) -> Option<Weight> {
        (1..=WEIGHT_MAX).contains(&weight).then_some(Weight(weight))
    }

    /// As a number.
    pub fn get(self) -> u32 {
        self.0
    }
}

/// A share of a processor in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ppm(pub u32);

impl Ppm {
    /// All of it.
    pub const ONE: Ppm = Ppm(1_000_000);
}

impl fmt::Display for Ppm {
    /// In percent, as exact as it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:04}", self.0 / 10_000, self.0 % 10_000);
        write!(f, "{} %", text.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// A regular guaranteed allocation of a core's time (RCANE's virtual processor with a guarantee).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuReservation {
    /// How often the slice is given, in wall time.
    pub period: Nanos,
    /// CPU time that is guaranteed in each period.
    pub slice: Nanos,
    /// With what weight it shares in time that nobody has reserved, once its slice is used up; `None`: it never runs beyond its slice.
    pub spare: Option<Weight>,
}

/// On what a virtual processor runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// A guaranteed slice in each period.
    Reserved(CpuReservation),
    /// Whatever is left, by weight.
    BestEffort(Weight),
}

/// What a virtual processor is promised, and what it promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTerms {
    /// On what it runs.
    pub share: Placement,
    /// By how much CPU time a run may exceed the budget that it is given, at most: the bound of a packet where batches are sized to the
    /// budget by their bounds, the time between two checks where calls are metered. Reservations are admitted with it.
    pub overrun: Nanos,
}

/// Why a virtual processor is to pay for what was spent for it elsewhere, and so how much it can come to owe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Debt {
    /// Nobody asked it, as where threads receive what is meant for it: it never comes to owe more than a slice, nor more than [`CoreConfig::arrears`] of what
    /// is left. A flood that is meant for somebody keeps him from working while it lasts, and not for longer.
    Imposed,
    /// It has had it done, and has agreed to pay for it: it owes all of it, however many slices that takes. Who could have others work for nothing would
    /// have more than it was promised.
    Agreed,
}

/// What a core is told about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreConfig {
    /// How long the core may at most be out of the scheduler's hands: the longest run, and no less than how late the core wakes up from
    /// idling.
    pub blocking: Nanos,
    /// How much of the core reservations may take, blocking and overruns included. What is above it is for deciding, for time that the
    /// hypervisor takes, and for best effort.
    pub cap: Ppm,
    /// How late a guaranteed slice may be given when time was stolen; what is later is forfeited, by all in proportion. As long as there
    /// are arrears, those who share the rest get nothing.
    pub arrears: Nanos,
}

impl Default for CoreConfig {
    fn default() -> Self {
        CoreConfig { blocking: Nanos(100_000), cap: Ppm(900_000), arrears: Nanos(10_000_000) }
    }
}

/// A virtual processor on its core. One that has been closed is never mistaken for a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VpId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl fmt::Display for VpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

/// Why terms are refused. To blame is whoever asked, except that what there is room for depends on who came before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReservationRefusal {
    /// The guarantees that were given before could not be kept.
    #[error(
        "{slice} in each {period} is more than this core has left; the largest slice in that period is {largest}",
        slice = beside(*slice, &[*largest]), largest = beside(*largest, &[*slice])
    )]
    NoRoom {
        /// The period that was asked for.
        period: Nanos,
        /// The slice that was asked for.
        slice: Nanos,
        /// The largest slice that would be admitted with that period; none at all where it is zero.
        largest: Nanos,
    },
    /// Zero or longer than [`PERIOD_MAX`].
    #[error("a period of {0} cannot be kept; it is longer than 0 ns and at most {PERIOD_MAX}")]
    Period(Nanos),
    /// Zero or longer than its period.
    #[error("a slice of {slice} does not fit into a period of {period}", slice = beside(*slice, &[*period]), period = beside(*period, &[*slice]))]
    Slice {
        /// The slice that was asked for.
        slice: Nanos,
        /// The period that was asked for.
        period: Nanos,
    },
    /// A run could not be stopped in time.
    #[error(
        "a run that may take {overrun} more than it is given does not fit into the blocking time of {blocking}",
        overrun = beside(*overrun, &[*blocking]), blocking = beside(*blocking, &[*overrun])
    )]
    Overrun {
        /// What was asked for.
        overrun: Nanos,
        /// [`CoreConfig::blocking`].
        blocking: Nanos,
    },
    /// [`VPS_MAX`] are there.
    #[error("this core has {VPS_MAX} virtual processors; that is the most")]
    TooMany,
    /// There is none of this name, or it has been closed.
    #[error("there is no virtual processor {0} on this core")]
    Unknown(VpId),
    /// It cannot be closed before what it does has been charged.
    #[error("the virtual processor {0} is running; what it does has to be charged first")]
    Running(VpId),
}

impl CpuTerms {
    /// Whether these terms can be kept at all, on an empty core.
    pub(super) fn check(&self, config: &CoreConfig) -> Result<(), ReservationRefusal> {
        if let Placement::Reserved(CpuReservation { period, slice, .. }) = self.share {
            if period.0 == 0 || period > PERIOD_MAX {
                return Err(ReservationRefusal::Period(period));
            }
            if slice.0 == 0 || slice > period {
                return Err(ReservationRefusal::Slice { slice, period });
            }
        }
        if self.overrun >= config.blocking {
            return Err(ReservationRefusal::Overrun { overrun: self.overrun, blocking: config.blocking });
        }
        Ok(())
    }

    /// The weight with which it shares in what nobody has reserved.
    pub(super) fn weight(&self) -> Option<Weight> {
        match self.share {
            Placement::Reserved(reservation) => reservation.spare,
            Placement::BestEffort(weight) => Some(weight),
        }
    }
}
