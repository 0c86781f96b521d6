//! CPU time of a core thread, run by run, and the time that other programs took of its core.

use weir_datapath::delay::RunDelay;
use weir_sandbox::thread_time;
use weir_sched::cpu::VcpuId;
use weir_units::Nanos;

/// Longest time between two readings of the thread's clock. The clock is also read after each run that exceeds its budget.
const READING_INTERVAL: Nanos = Nanos(1_000_000);

/// Splits elapsed time into CPU time of the thread and stolen time. The thread's clock is a system call, so it is read
/// at most once per [`READING_INTERVAL`], and when a run exceeds its budget: the excess is either time of the run or stolen.
#[derive(Debug)]
pub(crate) struct CpuClock {
    /// Value of the thread's clock at its last reading.
    cpu: Nanos,
    /// Monotonic time of the last reading of the thread's clock, plus the time that the thread has waited since.
    wall: Nanos,
    delay: RunDelay,
    /// The kernel's run delay at its last reading.
    delayed: Nanos,
    /// Time of the last reading of the run delay.
    delay_read: Nanos,
    /// Time stolen from the running thread since the last reading of the run delay.
    stolen_while_running: Nanos,
    /// Total stolen time.
    stolen_total: Nanos,
    /// Time stolen between two runs, since the last [`take_stolen_between_runs`](Self::take_stolen_between_runs).
    stolen_between_runs: Nanos,
}

impl CpuClock {
    /// Begins on the calling thread.
    pub(crate) fn start() -> Self {
        Self::with_delay(RunDelay::of_this_thread())
    }

    fn with_delay(delay: RunDelay) -> Self {
        let delayed = delay.total().unwrap_or_default();
        let (wall, delay_read) = Default::default();
        let (stolen_while_running, stolen_total, stolen_between_runs) = Default::default();
        Self {
            cpu: thread_time(),
            wall,
            delay,
            delayed,
            delay_read,
            stolen_while_running,
            stolen_total,
            stolen_between_runs,
        }
    }

    /// Excludes a time in which the thread waited from the elapsed time.
    pub(crate) fn skip(&mut self, from: Nanos, to: Nanos) {
        self.wall.0 = self.wall.0.saturating_add(to.0.saturating_sub(from.0));
    }

    /// Accounts for a sleep of the thread. Returns the time for which the thread was ready to run, before the sleep or
    /// after it, while other programs had its core.
    pub(crate) fn record_sleep(&mut self, from: Nanos, to: Nanos) -> Nanos {
        self.skip(from, to);
        // After a short time, the next reading finds the run delay.
        if to.0.saturating_sub(self.delay_read.0) < READING_INTERVAL.0 {
            Nanos(0)
        } else {
            self.read_delay(to)
        }
    }

    /// Returns the CPU time of a run with this beginning, end and budget.
    pub(crate) fn cpu_time(&mut self, begin: Nanos, end: Nanos, budget: Nanos) -> Nanos {
        let took = end.0.saturating_sub(begin.0);
        if took <= budget.0 && end.0.saturating_sub(self.wall.0) < READING_INTERVAL.0 {
            return Nanos(took);
        }
        let stolen = self.read_clock(end);
        self.stolen_between_runs.0 = self.stolen_between_runs.0.saturating_add(stolen.0.saturating_sub(took));
        Nanos(took.saturating_sub(stolen.0))
    }

    /// Returns the time stolen between runs since the last call of this function.
    pub(crate) fn take_stolen_between_runs(&mut self) -> Nanos {
        std::mem::take(&mut self.stolen_between_runs)
    }

    /// Returns the total time for which other programs had the core while the thread was ready to run.
    pub(crate) fn stolen_total(&mut self, now: Nanos) -> Nanos {
        // The delay is time before the next run, which waited for the core.
        let waited = self.read_delay(now);
        self.stolen_between_runs.0 = self.stolen_between_runs.0.saturating_add(waited.0);
        self.stolen_total
    }

    /// Reads the thread's clock. Returns the stolen part of the time since the last reading. Waits of the
    /// thread are not part of that time.
    fn read_clock(&mut self, now: Nanos) -> Nanos {
        let cpu = thread_time();
        let passed = now.0.saturating_sub(self.wall.0);
        let stolen = passed.saturating_sub(cpu.0.saturating_sub(self.cpu.0));
        (self.cpu, self.wall) = (cpu, now);
        self.stolen_while_running.0 = self.stolen_while_running.0.saturating_add(stolen);
        self.stolen_total.0 = self.stolen_total.0.saturating_add(stolen);
        Nanos(stolen)
    }

    /// Reads the kernel's run delay: time stolen from the running thread, and delay between waking and running. Returns
    /// the stolen time since the last reading of the thread's clock, with the delay that is not counted yet.
    fn read_delay(&mut self, now: Nanos) -> Nanos {
        let between = self.read_clock(now);
        self.delay_read = now;
        let counted = std::mem::take(&mut self.stolen_while_running);
        let Some(delayed) = self.delay.total() else { return between };
        let before = std::mem::replace(&mut self.delayed, delayed);
        let late = delayed.0.saturating_sub(before.0).saturating_sub(counted.0);
        self.stolen_total.0 = self.stolen_total.0.saturating_add(late);
        Nanos(late.saturating_add(between.0))
    }
}

/// Delay of a thread between waking and running, while other programs had its core.
#[derive(Debug, Default)]
pub(crate) struct LateWakeup {
    pub(crate) delay: Nanos,
    /// Virtual CPUs that have been credited with the delay.
    credited: Vec<VcpuId>,
}

impl LateWakeup {
    pub(crate) fn new(delay: Nanos) -> Self {
        Self { delay, credited: Vec::new() }
    }

    /// Returns true at the first call for this virtual CPU, which is then credited.
    pub(crate) fn is_first_for(&mut self, id: VcpuId) -> bool {
        let is_first = !self.credited.contains(&id);
        if is_first {
            self.credited.push(id);
        }
        is_first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_in_a_run_is_not_charged() {
        let mut clock = CpuClock::with_delay(RunDelay::from_schedstat(None));
        // Short and within its budget: the wall time counts.
        assert_eq!(clock.cpu_time(Nanos(100), Nanos(600), Nanos(1000)), Nanos(500));
        // Ten seconds, of which the thread had next to nothing.
        let used = clock.cpu_time(Nanos(1000), Nanos(10_000_001_000), Nanos(1000));
        assert!(used < Nanos::SECOND, "{used}");
        let stolen = clock.stolen_total(Nanos(10_000_001_000));
        assert!(stolen > Nanos(9 * Nanos::SECOND.0), "{stolen}");
        // Time stolen before a run is no part of the run, and is counted as well.
        assert!(
            clock.take_stolen_between_runs() <= Nanos(1000),
            "the run began 1000 ns after the last reading"
        );
        let used = clock.cpu_time(Nanos(20_000_001_000), Nanos(20_000_001_500), Nanos(1000));
        assert!(
            used <= Nanos(500) && clock.take_stolen_between_runs() > Nanos(9 * Nanos::SECOND.0),
            "{used}"
        );
    }

    #[test]
    fn time_stolen_before_a_run_is_reported_for_that_run_even_if_the_total_was_read_meanwhile() {
        let mut clock = CpuClock::with_delay(RunDelay::from_schedstat(None));
        _ = clock.cpu_time(Nanos(1000), Nanos(2000), Nanos(1000));
        let second = Nanos::SECOND.0;
        assert!(clock.stolen_total(Nanos(10 * second)) > Nanos(9 * second));
        _ = clock.cpu_time(Nanos(10 * second), Nanos(10 * second + 500), Nanos(1000));
        assert!(clock.take_stolen_between_runs() > Nanos(9 * second));
    }

    #[test]
    fn time_between_being_woken_and_running_is_stolen_and_counted_once() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let say = |delay: u64| std::fs::write(file.path(), format!("5 {delay} 7\n")).unwrap();
        say(1000);
        let mut clock =
            CpuClock::with_delay(RunDelay::from_schedstat(Some(std::fs::File::open(file.path()).unwrap())));
        let second = Nanos::SECOND.0;
        // Ten seconds of sleep, for eight of which the thread was ready.
        say(1000 + 8 * second);
        assert_eq!(clock.record_sleep(Nanos(0), Nanos(10 * second)), Nanos(8 * second));
        // A run of five seconds, of which the thread had next to nothing. The kernel counts that as well.
        say(1000 + 13 * second);
        let used = clock.cpu_time(Nanos(10 * second), Nanos(15 * second), Nanos(1));
        let late = clock.record_sleep(Nanos(15 * second), Nanos(16 * second));
        assert!(used < Nanos::SECOND && late < Nanos::SECOND, "{used} {late}");
        let stolen = clock.stolen_total(Nanos(16 * second)).0;
        assert!(stolen > 12 * second && stolen < 14 * second, "{stolen}");
        assert_eq!(clock.take_stolen_between_runs(), Nanos(0));
        // A short sleep is counted at the next reading.
        say(1000 + 13 * second + 100);
        assert_eq!(clock.record_sleep(Nanos(16 * second), Nanos(16 * second + 10)), Nanos(0));
    }

    #[test]
    fn the_kernel_counts_the_time_that_a_thread_waits_for_a_processor() {
        let delay = RunDelay::of_this_thread();
        let Some(before) = delay.total() else { return };
        assert!(delay.total().unwrap() >= before);
    }
}
