//! The processor time of the receive thread, divided into receiving and distributing packets.

use std::cell::Cell;
use std::time::Instant;
use weir_sandbox::{Cycles, thread_time};
use weir_units::Nanos;

/// Measures the thread's work that has not been charged to channels yet.
pub(super) struct ThreadMeter {
    begin: Instant,
    begin_cycles: Cycles,
    /// The time and the thread's clock at the last charge.
    pub(super) charged: Instant,
    thread: Nanos,
    /// Cycles of polls that returned a block. They are used only by a thread that polls without waiting.
    pub(super) polling: u64,
    /// Cycles of matching and distributing blocks.
    pub(super) distributing: u64,
    /// Time in ns that was charged to some readers only.
    excluded: Cell<u64>,
}

impl ThreadMeter {
    pub(super) fn new() -> Self {
        let begin = Instant::now();
        let (begin_cycles, charged, thread) = (Cycles::now(), begin, thread_time());
        Self { begin, begin_cycles, charged, thread, polling: 0, distributing: 0, excluded: Cell::new(0) }
    }

    /// The time of some cycles, by the rate of the counter since the thread's start.
    fn time_of(&self, cycles: u64, now: Instant) -> Nanos {
        let elapsed = now.saturating_duration_since(self.begin).as_nanos();
        let all = u128::from(Cycles::now().since(self.begin_cycles).0.max(1));
        Nanos(u64::try_from(u128::from(cycles) * elapsed / all).unwrap_or(u64::MAX))
    }

    /// Excludes time from that of receiving, because it was charged already.
    pub(super) fn exclude(&self, time: Nanos) {
        self.excluded.set(self.excluded.get().saturating_add(time.0));
    }

    /// Returns the time of receiving, and the time and cycles of distributing since the last call.
    pub(super) fn take(&mut self, polls: bool, now: Instant) -> (Nanos, Nanos, u64) {
        let thread = thread_time();
        let all = thread.0.saturating_sub(self.thread.0);
        let (polling, cycles) = (std::mem::take(&mut self.polling), std::mem::take(&mut self.distributing));
        // The thread may have waited for a core meanwhile, which takes cycles but none of its time.
        let distributing = self.time_of(cycles, now).0.min(all);
        let receiving = (all - distributing).saturating_sub(self.excluded.take());
        // A thread that polls uses time also while no packet arrives.
        let receiving = if polls { receiving.min(self.time_of(polling, now).0) } else { receiving };
        (self.charged, self.thread) = (now, thread);
        (Nanos(receiving), Nanos(distributing), cycles)
    }
}
