//! Virtual CPUs: shares of a core, each with either a guaranteed slice in each period or a weight.
//!
//! One [`CoreScheduler`] schedules one pinned core, as RCANE does ("The price of safety in an active network", section
//! IV.C). A virtual CPU has either a [`CpuReservation`] or a weight. The core's thread asks [`CoreScheduler::next`]
//! which virtual CPU runs and with which budget, runs it, and reports the CPU time used to [`CoreScheduler::charge`].
//! The scheduler reads no clock, so equal inputs give equal decisions ([`trace`]).
//!
//! # The guarantee
//!
//! In what follows, `excess` is the time by which a virtual CPU exceeded its slice in the period before, and `overrun` is
//! [`CpuTerms::overrun`], the most time by which one of its runs may exceed its budget.
//!
//! A virtual CPU that wakes up without having used more so far than its reservation allows, and then always has work,
//! gets at least `n * slice` in its first `n` periods, for every `n`. In each of these periods it gets at least
//! `slice - excess`. From any other instant on it gets at least `(n - 1) * slice - excess` in `n` periods while it
//! has work. Without spare time it never gets more than `slice + overrun` in one of its periods. Time that is not
//! reserved, or reserved and not used, is shared by weight among best-effort virtual CPUs and those that take spare
//! time.
//!
//! Time spent for a virtual CPU on other threads ([`CoreScheduler::debit`]) counts as received. If the virtual CPU did
//! not request that work ([`DebitKind::Unrequested`]), the debit is limited to the present and the next period. If it
//! requested the work ([`DebitKind::Requested`]), the debit extends over all periods that are needed to pay it.
//!
//! The guarantee has three conditions. A run exceeds its budget by no more than the `overrun` of its virtual CPU. No
//! run and no wake-up from idling takes longer than [`CoreConfig::blocking_max`]. Time in which the core neither runs
//! a virtual CPU nor idles (scheduling, stolen time) is at most the part of the core beside [`CoreConfig::cap`], in
//! any interval as long as the shortest period or longer.
//!
//! If more time is stolen, slices come late, which is counted ([`Stats::periods_missed`]). All of them are provided in
//! the end, as long as they are late by no more than [`CoreConfig::lateness_max`]. Beyond that, all virtual CPUs
//! forfeit time in proportion to their reservations ([`Stats::forfeited`]). Time stolen during a run never counts as
//! use of the virtual CPU that was running.
//!
//! # Files
//!
//! | file | contents |
//! |---|---|
//! | `server` | budgets and deadlines of reservations: a hard constant-bandwidth server |
//! | `fair` | unreserved time: start-time fair queueing |
//! | `admission` | the admission test |
//! | `core` | earliest deadline first; creation, change and end of virtual CPUs |
//! | `overload` | load shedding by priority |
//! | `pools` | the pools of a virtual CPU's events (batches, ticks, timers, service calls), and the order in which these run |
//! | `reservation` | reservations, weights, the configuration of a core, and refusals |
//! | `stats` | counters |
//! | `trace` | recording and replay of decisions |

mod admission;
mod core;
mod fair;
mod overload;
mod pools;
mod reservation;
mod server;
mod stats;
pub mod trace;

pub use self::core::{CoreScheduler, CpuDecision, NotRunning, Period, RunAccount, RunOutcome};
pub use overload::{LoadShedder, QueueLoad};
pub use pools::{EventRefused, POOLS_MAX, PoolDepth, PoolId, Pools, ThreadId, VcpuWork};
pub use reservation::{
    CoreConfig, CpuAllocation, CpuReservation, CpuTerms, DebitKind, PERIOD_MAX, Ppm, ReservationRefusal,
    VCPUS_MAX, VcpuId, WEIGHT_MAX, Weight,
};
pub use stats::Stats;
