//! The clock of the system.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weir_graph::engine::GraphClock;
use weir_units::Timestamp;

/// The time of day. Waiting ends early when a signal asks the program to end.
#[derive(Debug, Default)]
pub struct SystemClock {
    is_interrupted: Arc<AtomicBool>,
    latest: Timestamp,
}

/// The longest wait without a look at the signal.
const WAIT_MAX: Duration = Duration::from_millis(50);

impl SystemClock {
    /// Returns a clock whose waiting ends when the flag is set.
    pub fn new(is_interrupted: Arc<AtomicBool>) -> Self {
        let mut clock = Self { is_interrupted, latest: Timestamp(0) };
        // An element that waits for a time looks at the latest one first.
        clock.now();
        clock
    }
}

impl GraphClock for SystemClock {
    fn now(&mut self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.latest = Timestamp(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
        self.latest
    }

    fn latest(&self) -> Timestamp {
        self.latest
    }

    fn wait(&mut self, until: Option<Timestamp>) {
        let now = self.now();
        let left = until.map_or(WAIT_MAX, |until| Duration::from_nanos(until.since(now).0));
        if !self.is_interrupted.load(Ordering::Relaxed) {
            // A control socket ends the wait.
            std::thread::park_timeout(left.min(WAIT_MAX));
        }
    }
}
