//! Moments by the wall clock, which can be set, and by the monotonic clock.

use crate::runner::{steady_clock, wall_clock};
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
