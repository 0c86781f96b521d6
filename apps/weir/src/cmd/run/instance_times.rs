//! The processor time of a worker thread, divided among the instances that the thread ran.

use weir_sandbox::{Cycles, thread_time};
use weir_units::Nanos;

/// The number of calls after which the thread's clock is read. Reading it takes half a microsecond, and a call some
/// microseconds.
const CALLS_MAX: u32 = 256;

/// Measures calls by the processor's counter. The thread's own clock, which stands still while the thread does not run,
/// gives the time of a cycle.
#[derive(Debug)]
pub struct InstanceTimes {
    begin: Cycles,
    thread: Nanos,
    /// Cycles of each instance since `begin`.
    cycles: Vec<u64>,
    calls: u32,
    /// Time of each instance up to `begin`.
    times: Vec<Nanos>,
}

impl InstanceTimes {
    /// Creates a meter for a number of instances.
    pub fn new(instances: usize) -> Self {
        Self {
            begin: Cycles::now(),
            thread: thread_time(),
            cycles: vec![0; instances],
            calls: 0,
            times: vec![Nanos(0); instances],
        }
    }

    /// Adds a call of an instance.
    pub fn add(&mut self, instance: usize, cycles: Cycles) {
        if let Some(sum) = self.cycles.get_mut(instance) {
            *sum += cycles.0;
        }
        self.calls += 1;
        if self.calls == CALLS_MAX {
            self.pause();
            self.resume();
        }
    }

    /// Divides the time so far, before the thread waits.
    pub fn pause(&mut self) {
        let used = thread_time().0.saturating_sub(self.thread.0);
        let elapsed = Cycles::now().since(self.begin).0.max(1);
        for (time, cycles) in self.times.iter_mut().zip(&mut self.cycles) {
            let part = u128::from(used) * u128::from(std::mem::take(cycles)) / u128::from(elapsed);
            time.0 += u64::try_from(part).unwrap_or(u64::MAX);
        }
    }

    /// Starts again after the thread has waited.
    pub fn resume(&mut self) {
        (self.begin, self.thread, self.calls) = (Cycles::now(), thread_time(), 0);
    }

    /// Returns the time of each instance.
    pub fn finish(mut self) -> Vec<Nanos> {
        self.pause();
        self.times
    }
}
