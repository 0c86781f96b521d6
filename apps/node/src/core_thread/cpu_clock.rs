//! Processor time of a core's thread, run by run, and the time that others took of its core.

use weir_datapath::delay::RunDelay;
use weir_sandbox::thread_time;
use weir_sched::cpu::VpId;
use weir_units::Nanos;

/// The thread's clock is asked when so much time has passed since, or when a run took longer than it was given.
const LAP: Nanos = Nanos(1_000_000);

/// How much of the time that passes is processor time. The thread's own clock is a system call; so it is asked once in a while, and when a run was
/// longer than it may be, which is either the run's own doing or time that others took.
#[derive(Debug)]
pub(crate) struct CpuClock {
    /// The thread's clock when it was last asked.
    cpu: Nanos,
    /// When that was, with the time since that was spent waiting added.
    wall: Nanos,
    delay: RunDelay,
    /// The kernel's count when it was last read, and when that was.
    delayed: Nanos,
    read: Nanos,
    /// Time that was stolen from the thread while it was awake, since then.
    awake: Nanos,
    /// Time that was stolen from the thread.
    stolen: Nanos,
    /// Of that, what was stolen between two runs, since this was asked last.
    between: Nanos,
}

impl CpuClock {
    /// From now on, on this thread.
    pub(crate) fn begin() -> Self {
        Self::by(RunDelay::of_this_thread())
    }

    fn by(delay: RunDelay) -> Self {
        let delayed = delay.total().unwrap_or_default();
        let (wall, read, awake, stolen, between) = Default::default();
        Self { cpu: thread_time(), wall, delay, delayed, read, awake, stolen, between }
    }

    /// So long was waited.
    pub(crate) fn skip(&mut self, from: Nanos, to: Nanos) {
        self.wall.0 = self.wall.0.saturating_add(to.0.saturating_sub(from.0));
    }

    /// The thread has slept. Returns how long it was ready to run before it did, or before it slept: others had its core.
    pub(crate) fn slept(&mut self, from: Nanos, to: Nanos) -> Nanos {
        self.skip(from, to);
        // What took less is found the next time.
        if to.0.saturating_sub(self.read.0) < LAP.0 { Nanos(0) } else { self.look(to) }
    }

    /// The processor time of a run.
    pub(crate) fn used(&mut self, begin: Nanos, end: Nanos, budget: Nanos) -> Nanos {
        let took = end.0.saturating_sub(begin.0);
        if took <= budget.0 && end.0.saturating_sub(self.wall.0) < LAP.0 {
            return Nanos(took);
        }
        let stolen = self.lap(end);
        self.between.0 = self.between.0.saturating_add(stolen.0.saturating_sub(took));
        Nanos(took.saturating_sub(stolen.0))
    }

    /// The time that others took of the core before the last run, which was ready meanwhile, since this was asked last.
    pub(crate) fn take_between(&mut self) -> Nanos {
        std::mem::take(&mut self.between)
    }

    /// The time that others took of the core while the thread was ready to run.
    pub(crate) fn stolen(&mut self, now: Nanos) -> Nanos {
        // The next run is told, as the one that waited.
        let waited = self.look(now);
        self.between.0 = self.between.0.saturating_add(waited.0);
        self.stolen
    }

    /// Asks the thread's clock: how much of the time since then, without waiting, the thread did not have.
    fn lap(&mut self, now: Nanos) -> Nanos {
        let cpu = thread_time();
        let passed = now.0.saturating_sub(self.wall.0);
        let stolen = passed.saturating_sub(cpu.0.saturating_sub(self.cpu.0));
        (self.cpu, self.wall) = (cpu, now);
        self.awake.0 = self.awake.0.saturating_add(stolen);
        self.stolen.0 = self.stolen.0.saturating_add(stolen);
        Nanos(stolen)
    }

    /// Asks the kernel. Its count has in it what was stolen while the thread was awake; the rest is from between being woken and running.
    fn look(&mut self, now: Nanos) -> Nanos {
        let between = self.lap(now);
        self.read = now;
        let awake = std::mem::take(&mut self.awake);
        let Some(delayed) = self.delay.total() else { return between };
        let before = std::mem::replace(&mut self.delayed, delayed);
        let late = delayed.0.saturating_sub(before.0).saturating_sub(awake.0);
        self.stolen.0 = self.stolen.0.saturating_add(late);
        Nanos(late.saturating_add(between.0))
    }
}

/// A thread that has woken up late, as others had its core.
#[derive(Debug, Default)]
pub(crate) struct LateWakeup {
    /// By how much.
    pub(crate) by: Nanos,
    /// Virtual processors that have it on their accounts.
    told: Vec<VpId>,
}

impl LateWakeup {
    pub(crate) fn by(by: Nanos) -> Self {
        Self { by, told: Vec::new() }
    }

    /// True the first time that it is asked for this virtual processor.
    pub(crate) fn is_news_to(&mut self, vp: VpId) -> bool {
        let is_news = !self.told.contains(&vp);
        if is_news {
            self.told.push(vp);
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_was_stolen_in_a_run_is_not_billed() {
        let mut laps = CpuClock::by(RunDelay::of(None));
        // Short and within its budget: taken as it is.
        assert_eq!(laps.used(Nanos(100), Nanos(600), Nanos(1000)), Nanos(500));
        // Ten seconds, of which this thread had next to nothing.
        let used = laps.used(Nanos(1000), Nanos(10_000_001_000), Nanos(1000));
        assert!(used < Nanos::SECOND, "{used}");
        let stolen = laps.stolen(Nanos(10_000_001_000));
        assert!(stolen > Nanos(9 * Nanos::SECOND.0), "{stolen}");
        // What was stolen before a run began is no part of it, and is known as well.
        assert!(laps.take_between() <= Nanos(1000), "the run began 1000 ns after the last look");
        let used = laps.used(Nanos(20_000_001_000), Nanos(20_000_001_500), Nanos(1000));
        assert!(used <= Nanos(500) && laps.take_between() > Nanos(9 * Nanos::SECOND.0), "{used}");
    }

    #[test]
    fn time_that_was_stolen_before_a_run_is_told_though_it_was_asked_for_meanwhile() {
        let mut laps = CpuClock::by(RunDelay::of(None));
        _ = laps.used(Nanos(1000), Nanos(2000), Nanos(1000));
        let second = Nanos::SECOND.0;
        assert!(laps.stolen(Nanos(10 * second)) > Nanos(9 * second));
        _ = laps.used(Nanos(10 * second), Nanos(10 * second + 500), Nanos(1000));
        assert!(laps.take_between() > Nanos(9 * second));
    }

    #[test]
    fn time_between_being_woken_and_running_is_stolen_and_counted_once() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let say = |delay: u64| std::fs::write(file.path(), format!("5 {delay} 7\n")).unwrap();
        say(1000);
        let mut laps = CpuClock::by(RunDelay::of(Some(std::fs::File::open(file.path()).unwrap())));
        let second = Nanos::SECOND.0;
        // Ten seconds of sleep, of which the thread was ready for eight.
        say(1000 + 8 * second);
        assert_eq!(laps.slept(Nanos(0), Nanos(10 * second)), Nanos(8 * second));
        // A run of five seconds, in which the thread had next to nothing: the kernel counts that, too.
        say(1000 + 13 * second);
        let used = laps.used(Nanos(10 * second), Nanos(15 * second), Nanos(1));
        let late = laps.slept(Nanos(15 * second), Nanos(16 * second));
        assert!(used < Nanos::SECOND && late < Nanos::SECOND, "{used} {late}");
        let stolen = laps.stolen(Nanos(16 * second)).0;
        assert!(stolen > 12 * second && stolen < 14 * second, "{stolen}");
        assert_eq!(laps.take_between(), Nanos(0));
        // A short sleep is looked at with the next one.
        say(1000 + 13 * second + 100);
        assert_eq!(laps.slept(Nanos(16 * second), Nanos(16 * second + 10)), Nanos(0));
    }

    #[test]
    fn the_kernel_counts_the_time_that_a_thread_waits_for_a_processor() {
        let delay = RunDelay::of_this_thread();
        let Some(before) = delay.total() else { return };
        assert!(delay.total().unwrap() >= before);
    }
}
