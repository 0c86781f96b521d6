//! Virtual processors: each is guaranteed a slice of a core in each period.
//!
//! One [`Core`] schedules what runs on one pinned core, as RCANE does ("The price of safety in an active network", section IV.C): a virtual
//! processor has either a [`CpuReservation`] or a weight. The thread of the core asks [`Core::next`] who runs and with what budget, runs it,
//! and tells [`Core::charge`] what it used. Nothing in here reads a clock, so the same inputs give the same decisions ([`trace`]).
//!
//! # What is guaranteed
//!
//! A virtual processor that wakes up with its earlier use paid for, and from then on has work, gets at least `n * slice` in its first `n`
//! periods, for every `n`; each of them at least `slice - overrun`, where the overrun is its own, from the period before. From any other
//! moment on it gets at least `(n - 1) * slice - overrun` in `n` periods of time while it has work. Without spare time it never gets more
//! than `slice + overrun` in a period of its own. What nobody has reserved, or leaves unused, is shared by weight among best effort and
//! those who take spare time.
//!
//! What was spent for a virtual processor elsewhere ([`Core::debit`]) counts as what it got: at once or in the next period where it was not asked
//! ([`Debt::Imposed`]), in as many periods as it takes where it has agreed to pay ([`Debt::Agreed`]).
//!
//! This holds as long as runs keep to their budgets and overruns, no run and no wake-up from idling takes longer than [`CoreConfig::blocking`],
//! and what neither a virtual processor nor idling used (deciding, stolen time) is at most `1 - cap` of any interval that is as long as the
//! shortest period or longer. When more is stolen, slices come late, which is counted ([`Stats::periods_missed`]), and as long as they are
//! not later than [`CoreConfig::arrears`] all of them are given in the end. What is later than that is forfeited by all in proportion to their
//! reservations ([`Stats::forfeited`]). What was stolen during a run is never billed to who was running.
//!
//! # Where things are
//!
//! | file | what it decides |
//! |---|---|
//! | `server` | budgets and deadlines of reservations: a hard constant-bandwidth server |
//! | `fair` | who gets what is left: start-time fair queueing |
//! | `admission` | what can be promised |
//! | `core` | the earliest deadline first, and what happens when |
//! | `overload` | who makes way when there is more to do than time |
//! | `pools` | which event of a virtual processor runs |
//! | `trace` | what was decided, to be replayed |

mod admission;
mod core;
mod fair;
mod overload;
mod pools;
mod server;
mod stats;
mod terms;
pub mod trace;

pub use self::core::{Charged, Core, CpuDecision, NotRunning, Period, RunOutcome};
pub use overload::{Overload, QueueLoad};
pub use pools::{Depth, EventRefused, POOLS_MAX, PoolId, Pools, ThreadId, VcpuWork};
pub use stats::Stats;
pub use terms::{
    CoreConfig, CpuReservation, CpuTerms, Debt, PERIOD_MAX, Placement, Ppm, ReservationRefusal, VPS_MAX,
    VpId, WEIGHT_MAX, Weight,
};
