//! The time of a graph.

use weir_units::{Nanos, Timestamp};

/// A clock, and the way to wait.
pub trait GraphClock {
    /// Returns the time.
    fn now(&mut self) -> Timestamp;

    /// Returns the time of the latest look, or a later one. Unlike a look it takes no time in a simulation.
    fn latest(&self) -> Timestamp;

    /// Waits until this time, or, if there is none, for an event. May return earlier.
    fn wait(&mut self, until: Option<Timestamp>);

    /// Returns true if time passes only by [`GraphClock::now`] and [`GraphClock::wait`].
    fn is_simulated(&self) -> bool {
        false
    }
}

/// The simulated clock of `--simtime`: each look takes a nanosecond, and waiting takes no time at all.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedClock(Timestamp);

impl SimulatedClock {
    /// The time at which simulations begin.
    pub const START: Timestamp = Timestamp(1_000_000_000 * Nanos::SECOND.0);
}

impl Default for SimulatedClock {
    fn default() -> Self {
        Self(Self::START)
    }
}

impl GraphClock for SimulatedClock {
    fn now(&mut self) -> Timestamp {
        self.0.0 = self.0.0.saturating_add(1);
        self.0
    }

    fn latest(&self) -> Timestamp {
        self.0
    }

    fn wait(&mut self, until: Option<Timestamp>) {
        if let Some(until) = until {
            self.0 = self.0.max(until);
        }
    }

    fn is_simulated(&self) -> bool {
        true
    }
}
