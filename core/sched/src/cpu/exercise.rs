//! A core under a fixed load, for whoever measures what a decision costs.

use super::{Config, Core, Decision, Outcome, Ppm, Refusal, Reservation, Share, Terms, Weight};
use weir_units::Nanos;

const PERIOD: Nanos = Nanos(10_000_000);

/// A core whose virtual processors all have a reservation, all that there is to reserve together; every other one takes spare time.
#[derive(Clone, Debug)]
pub struct Exercise {
    core: Core,
    now: Nanos,
}

impl Exercise {
    /// A core with `busy` virtual processors that always have work and `idle` ones that never have any.
    ///
    /// # Errors
    ///
    /// The core has no room for so many.
    pub fn new(busy: u32, idle: u32) -> Result<Exercise, Refusal> {
        let mut core = Core::new(Config { cap: Ppm(950_000), ..Config::default() });
        let total = u64::from(busy.saturating_add(idle)).max(1);
        for number in 0..busy.saturating_add(idle) {
            // Periods from one to almost two times the shortest, so that they do not begin together.
            let period = Nanos(PERIOD.0 + u64::from(number) * 7919 % PERIOD.0);
            let slice = Nanos(PERIOD.0 / total * 9 / 10);
            let spare = Weight::new(100).filter(|_| number % 2 == 0);
            let share = Share::Reserved(Reservation { period, slice, spare });
            let vp = core.create(Terms { share, overrun: Nanos(0) }, Nanos(0))?;
            if number < busy {
                core.wake(vp, Nanos(u64::from(number)))?;
            }
        }
        Ok(Exercise { core, now: Nanos(0) })
    }

    /// One decision, and the charge for the run that it leads to: the whole budget, but at most `run`. Gives back what was decided.
    pub fn step(&mut self, run: Nanos) -> Decision {
        let decision = self.core.next(self.now);
        match decision {
            Decision::Run { budget, .. } => {
                let used = budget.min(run);
                self.now.0 += used.0;
                // Something runs: it has just been decided.
                let _charged = self.core.charge(used, self.now, Outcome::Ready);
            }
            Decision::Idle { until } => self.now = until.unwrap_or(self.now),
        }
        decision
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_with_work_use_the_core_up_and_those_without_never_run() {
        let mut exercise = Exercise::new(10, 1000).unwrap();
        for _ in 0..20_000 {
            exercise.step(Nanos(100_000));
        }
        let totals = exercise.core.totals();
        assert_eq!((totals.used(), totals.periods_missed), (exercise.now, 0));
        let ran =
            |number| exercise.core.stats(super::super::VpId { index: number, generation: 0 }).unwrap().runs;
        assert!((0..10).all(|number| ran(number) > 0) && (10..1010).all(|number| ran(number) == 0));
    }
}
