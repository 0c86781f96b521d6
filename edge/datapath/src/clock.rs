//! The wall clock, which can be set, and the monotonic clock.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use weir_units::{Nanos, Timestamp};

/// A reading of both clocks at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// The wall clock, which time stamps of packets follow.
    pub wall: Timestamp,
    /// The monotonic clock. Its zero is arbitrary, and the same for all threads of this process.
    pub monotonic: Nanos,
}

impl ClockReading {
    /// Reads both clocks.
    pub fn now() -> Self {
        Self { wall: wall_clock(), monotonic: monotonic_clock() }
    }
}

/// Reads the monotonic clock. All threads of the process share its zero, because modules move between threads.
pub fn monotonic_clock() -> Nanos {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    let elapsed = BEGIN.get_or_init(Instant::now).elapsed();
    Nanos::from(elapsed)
}

/// Reads the wall clock.
pub fn wall_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
