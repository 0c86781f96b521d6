//! Moments by the wall clock, which can be set, and by the monotonic clock.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use weir_units::{Nanos, Timestamp};

/// A moment by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The wall clock, which gives packets their time stamps.
    pub wall: Timestamp,
    /// The monotonic clock, from an arbitrary time on; the same for all threads of this process.
    pub steady: Nanos,
}

impl Moment {
    /// The present moment.
    pub fn now() -> Self {
        Self { wall: wall_clock(), steady: steady_clock() }
    }
}

/// The monotonic clock: the same for all threads of this process, as modules move between them.
pub fn steady_clock() -> Nanos {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    let elapsed = BEGIN.get_or_init(Instant::now).elapsed();
    Nanos(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
}

/// The wall clock.
pub fn wall_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
