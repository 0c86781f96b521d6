//! The processor time of a worker thread, divided among the instances that the thread ran.

use weir_sandbox::{Cycles, thread_time};
use weir_units::Nanos;

/// Measures calls by the processor's counter. The thread's own clock, which stands still while the thread does not run,
/// gives the time of a cycle. Reading that clock is a system call, so it is read once for successive calls.
#[derive(Debug)]
pub struct InstanceTimes {
    /// The counter and the thread's clock at the first of successive calls; `None` while the thread makes none. It may wait
    /// then: for packets, for a disk or for other threads.
    begin: Option<(Cycles, Nanos)>,
    /// Cycles of each instance since `begin`.
    cycles: Vec<u64>,
    /// Time of each instance up to `begin`.
    times: Vec<Nanos>,
}

impl InstanceTimes {
    /// Creates the times of a number of instances.
    pub fn new(instances: usize) -> Self {
        Self { begin: None, cycles: vec![0; instances], times: vec![Nanos(0); instances] }
    }

    /// Starts measuring, before a call. Does nothing after another call.
    pub fn begin(&mut self) {
        self.begin.get_or_insert_with(|| (Cycles::now(), thread_time()));
    }

    /// Adds a call of an instance.
    pub fn add(&mut self, instance: usize, cycles: Cycles) {
        if let Some(sum) = self.cycles.get_mut(instance) {
            *sum += cycles.0;
        }
    }

    /// Stops measuring, before the thread does anything but another call.
    pub fn end(&mut self) {
        let Some((cycles, thread)) = self.begin.take() else { return };
        let used = thread_time().0.saturating_sub(thread.0);
        let elapsed = Cycles::now().since(cycles).0.max(1);
        for (time, cycles) in self.times.iter_mut().zip(&mut self.cycles) {
            let part = u128::from(used) * u128::from(std::mem::take(cycles)) / u128::from(elapsed);
            time.0 += u64::try_from(part).unwrap_or(u64::MAX);
        }
    }

    /// Returns the time of each instance.
    pub fn finish(mut self) -> Vec<Nanos> {
        self.end();
        self.times
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Uses 5 ms of processor time, and returns the cycles until then.
    fn work() -> Cycles {
        let (begin, thread) = (Cycles::now(), thread_time());
        while thread_time().0 - thread.0 < 5 * Nanos::MILLISECOND.0 {}
        Cycles::now().since(begin)
    }

    #[test]
    fn the_time_of_calls_is_divided_by_instance_and_waits_do_not_count() {
        let mut times = InstanceTimes::new(3);
        for instance in [0, 1, 1] {
            times.begin();
            times.add(instance, work());
            times.end();
            // The thread waits for packets. If that counted, a cycle would have a thirtieth of its time.
            std::thread::sleep(Duration::from_millis(300));
        }
        times.begin();
        times.add(0, work());
        times.add(1, work());
        let times = times.finish();
        for (time, expected) in times.iter().zip([10, 15]) {
            let expected = expected * Nanos::MILLISECOND.0;
            assert!((expected / 10..expected * 10).contains(&time.0), "{times:?}");
        }
        assert_eq!(times[2], Nanos(0));
    }
}
