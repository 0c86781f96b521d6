//! Processor time of a core's thread, run by run.

use weir_sandbox::thread_time;
use weir_units::Nanos;

/// The thread's clock is asked when so much time has passed since, or when a run took longer than it was given.
const LAP: Nanos = Nanos(1_000_000);

/// How much of the time that passes is processor time. The thread's own clock is a system call; so it is asked once in a while, and when a run was
/// longer than it may be, which is either the run's own doing or time that the hypervisor took.
#[derive(Debug)]
pub(crate) struct Laps {
    /// The thread's clock when it was last asked.
    cpu: Nanos,
    /// When that was, with the time since that was spent waiting added.
    wall: Nanos,
}

impl Laps {
    /// From now on, on this thread.
    pub(crate) fn begin() -> Self {
        Self { cpu: thread_time(), wall: Nanos(0) }
    }

    /// So long was waited.
    pub(crate) fn skip(&mut self, from: Nanos, to: Nanos) {
        self.wall.0 = self.wall.0.saturating_add(to.0.saturating_sub(from.0));
    }

    /// The processor time of a run.
    pub(crate) fn used(&mut self, begin: Nanos, end: Nanos, budget: Nanos) -> Nanos {
        let took = end.0.saturating_sub(begin.0);
        if took <= budget.0 && end.0.saturating_sub(self.wall.0) < LAP.0 {
            return Nanos(took);
        }
        let cpu = thread_time();
        let passed = end.0.saturating_sub(self.wall.0);
        let stolen = passed.saturating_sub(cpu.0.saturating_sub(self.cpu.0));
        (self.cpu, self.wall) = (cpu, end);
        Nanos(took.saturating_sub(stolen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_was_stolen_in_a_run_is_not_billed() {
        let mut laps = Laps::begin();
        // Short and within its budget: taken as it is.
        assert_eq!(laps.used(Nanos(100), Nanos(600), Nanos(1000)), Nanos(500));
        // Ten seconds, of which this thread had next to nothing.
        let used = laps.used(Nanos(1000), Nanos(10_000_001_000), Nanos(1000));
        assert!(used < Nanos::SECOND, "{used}");
    }
}
