//! Moments by two clocks, of which one can be set.

use crate::runner::{steady_clock, wall_clock};
use weir_units::{Nanos, Timestamp};

/// A moment by two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// By the wall clock, which gives packets their time stamps, and which can be set.
    pub wall: Timestamp,
    /// By the monotonic clock, since any one time; the same for all threads of this process.
    pub steady: Nanos,
}

impl Moment {
    /// The present one.
    pub fn now() -> Self {
        Self { wall: wall_clock(), steady: steady_clock() }
    }
}
