//! Reservations of virtual CPUs, and the configuration of a core.

use std::fmt;
use weir_units::{Nanos, display_among};

/// The longest period that can be reserved.
pub const PERIOD_MAX: Nanos = Nanos(60_000_000_000);
/// The most virtual CPUs on a core.
pub const VCPUS_MAX: usize = 16_384;
/// The largest weight.
pub const WEIGHT_MAX: u32 = 10_000;

/// A weight for sharing unreserved time, from 1 to [`WEIGHT_MAX`]. Twice the weight gets twice the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(u32);

impl Weight {
    /// The default weight.
    pub const USUAL: Weight = Weight(100);

    /// Creates a weight; `None` if it is not from 1 to [`WEIGHT_MAX`].
    pub fn new(weight: u32) -> Option<Weight> {
        (1..=WEIGHT_MAX).contains(&weight).then_some(Weight(weight))
    }

    /// The weight as a number.
    pub fn get(self) -> u32 {
        self.0
    }
}

/// A share of a CPU in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ppm(pub u32);

impl Ppm {
    /// The whole CPU.
    pub const ONE: Ppm = Ppm(1_000_000);
}

impl fmt::Display for Ppm {
    /// Writes the share in percent, exactly.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:04}", self.0 / 10_000, self.0 % 10_000);
        write!(f, "{} %", text.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// A periodic guaranteed allocation of a core's time (RCANE's virtual CPU with a guarantee).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuReservation {
    /// The period in wall time.
    pub period: Nanos,
    /// The CPU time guaranteed in each period.
    pub slice: Nanos,
    /// The weight with which the virtual CPU shares unreserved time once its slice is used up; `None` if it never runs
    /// beyond its slice.
    pub spare: Option<Weight>,
}

/// A virtual CPU's share of a core: reserved, or best effort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuAllocation {
    /// A guaranteed slice in each period.
    Reserved(CpuReservation),
    /// Unreserved time, by weight.
    BestEffort(Weight),
}

/// The terms of a virtual CPU: its share of the core, and the longest overrun of its runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTerms {
    /// The share of the core.
    pub share: CpuAllocation,
    /// The longest CPU time by which a run may exceed its budget. For a module whose calls are not metered, it is the
    /// bound of the time for one packet. For a metered module, it is the time between two checks of the meter.
    /// Admission takes overruns into account.
    pub overrun: Nanos,
}

/// The kind of a debit for time spent on other threads, which limits the debt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DebitKind {
    /// The virtual CPU did not request the work. For example, threads receive packets for it. With a reservation, the
    /// debt is at most one slice. For best effort, it is at most [`CoreConfig::lateness_max`] of unreserved time, for
    /// which the virtual CPU has to wait for others. So a flood of packets stops the module from working only while the
    /// flood lasts.
    Unrequested,
    /// The virtual CPU has requested the work and agreed to pay. The debt is unlimited, and takes all slices that are
    /// needed to pay it. With a limit, a session could have other threads work for it beyond its reservation.
    Requested,
}

/// The configuration of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreConfig {
    /// The longest time for which the core can be out of the scheduler's control: the longest run, and at least the
    /// wake-up latency from idling.
    pub blocking_max: Nanos,
    /// The part of the core that reservations can take, blocking and overruns included. The rest is for scheduling,
    /// for time stolen by the hypervisor, and for best effort.
    pub cap: Ppm,
    /// The greatest lateness of a guaranteed slice: how late a slice can be made up after time was stolen. If slices
    /// are later, all virtual CPUs forfeit the rest in proportion to their reservations. While a slice is late,
    /// unreserved time is not shared. It also limits the debt of a best-effort virtual CPU
    /// ([`DebitKind::Unrequested`]).
    pub lateness_max: Nanos,
}

impl Default for CoreConfig {
    fn default() -> Self {
        CoreConfig { blocking_max: Nanos(100_000), cap: Ppm(900_000), lateness_max: Nanos(10_000_000) }
    }
}

/// The identifier of a virtual CPU on its core. The identifier of a closed virtual CPU is not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VcpuId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl fmt::Display for VcpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

/// The reason why terms are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReservationRefusal {
    /// The terms do not fit beside the reservations made before.
    #[error(
        "{slice} in each {period} is more than this core has left; the largest slice in that period is {largest}",
        slice = display_among(*slice, &[*largest]), largest = display_among(*largest, &[*slice])
    )]
    NoRoom {
        /// The requested period.
        period: Nanos,
        /// The requested slice.
        slice: Nanos,
        /// The largest slice that would be admitted with that period; zero if none would.
        largest: Nanos,
    },
    /// The period is zero or longer than [`PERIOD_MAX`].
    #[error("a period of {0} cannot be reserved; a period is longer than 0 ns and at most {PERIOD_MAX}")]
    Period(Nanos),
    /// The slice is zero or longer than its period.
    #[error("a slice of {slice} does not fit into a period of {period}", slice = display_among(*slice, &[*period]), period = display_among(*period, &[*slice]))]
    Slice {
        /// The requested slice.
        slice: Nanos,
        /// The requested period.
        period: Nanos,
    },
    /// The overrun is not shorter than the blocking time, so no budget would be left.
    #[error(
        "an overrun of {overrun} does not fit into the blocking time of {blocking_max}",
        overrun = display_among(*overrun, &[*blocking_max]), blocking_max = display_among(*blocking_max, &[*overrun])
    )]
    Overrun {
        /// The requested overrun.
        overrun: Nanos,
        /// [`CoreConfig::blocking_max`].
        blocking_max: Nanos,
    },
    /// The core has [`VCPUS_MAX`] virtual CPUs.
    #[error("this core already has {VCPUS_MAX} virtual CPUs, the maximum")]
    TooMany,
    /// There is no virtual CPU of this identifier, or it has been closed.
    #[error("there is no virtual CPU {0} on this core")]
    Unknown(VcpuId),
    /// The virtual CPU is running, so it cannot be closed before its run is charged.
    #[error("virtual CPU {0} is running; its run has to be charged first")]
    Running(VcpuId),
}

impl CpuTerms {
    /// Checks that these terms could be admitted on an empty core.
    pub(super) fn check(&self, config: &CoreConfig) -> Result<(), ReservationRefusal> {
        if let CpuAllocation::Reserved(CpuReservation { period, slice, .. }) = self.share {
            if period.0 == 0 || period > PERIOD_MAX {
                return Err(ReservationRefusal::Period(period));
            }
            if slice.0 == 0 || slice > period {
                return Err(ReservationRefusal::Slice { slice, period });
            }
        }
        if self.overrun >= config.blocking_max {
            return Err(ReservationRefusal::Overrun {
                overrun: self.overrun,
                blocking_max: config.blocking_max,
            });
        }
        Ok(())
    }

    /// The weight with which the virtual CPU shares unreserved time; `None` if it does not share unreserved time.
    pub(super) fn weight(&self) -> Option<Weight> {
        match self.share {
            CpuAllocation::Reserved(reservation) => reservation.spare,
            CpuAllocation::BestEffort(weight) => Some(weight),
        }
    }
}
