//! Who makes way when a core cannot do everything: FLAME, section 3.5, where modules are shed in the order of their priority.
//!
//! Nobody is asked to give up what is reserved for him. Of those who share the rest, the ones with the lowest priority are shed first, and one
//! more priority whenever that was not enough: whoever has a higher one then has all of the time that is shared.

/// Half of a queue, seven eighths, an eighth, and a sixteenth of it: in thousandths.
const PRESSED: u32 = 500;
const ALMOST_FULL: u32 = 875;
const RELIEVED: u32 = 125;
const STEP: u32 = 62;

/// Somebody with a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLoad {
    /// The higher, the later shed.
    pub priority: u8,
    /// How full the queue is, in thousandths.
    pub filled: u32,
    /// Takes part in what is shared, so more of that would help.
    pub shares: bool,
    /// Has nothing reserved, and can be shed.
    pub is_best_effort: bool,
}

/// Below which priority nobody who has nothing reserved is served.
#[derive(Clone, Copy, Debug, Default)]
pub struct Overload {
    below: u8,
    /// For whom somebody was shed last, by priority, and how full the queue was then.
    last: Option<(u8, u32)>,
}

impl Overload {
    /// Whether somebody is shed: then it is to be looked again.
    pub fn is_on(&self) -> bool {
        self.below > 0
    }

    /// Whether one with this priority is shed.
    pub fn sheds(&self, load: &QueueLoad) -> bool {
        load.is_best_effort && load.priority < self.below
    }

    /// Looks at all who are on a core. Whose queue is half full has those with the lowest priority shed, and those with the next whenever it has
    /// become longer by a sixteenth all the same, or is almost full; when nobody's queue is more than an eighth full, all are served again.
    pub fn look(&mut self, loads: &[QueueLoad]) {
        let served = || loads.iter().filter(|load| !self.sheds(load));
        let pressed = served().filter(|load| load.shares && load.filled >= PRESSED);
        match pressed.max_by_key(|load| (load.priority, load.filled)) {
            Some(pressed) => {
                let lower = served().filter(|load| load.is_best_effort && load.priority < pressed.priority);
                let next = lower.map(|load| load.priority).min();
                let (priority, filled) = (pressed.priority, pressed.filled);
                let enough = |(of, last): (u8, u32)| {
                    of == priority && filled < (last + STEP).min(ALMOST_FULL.max(last))
                };
                if let Some(next) = next.filter(|_| !self.last.is_some_and(enough)) {
                    self.below = next.saturating_add(1);
                    self.last = Some((priority, filled));
                }
            }
            None if served().all(|load| load.filled <= RELIEVED) => *self = Self::default(),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(priority: u8, filled: u32) -> QueueLoad {
        QueueLoad { priority, filled, shares: true, is_best_effort: true }
    }

    #[test]
    fn the_lowest_go_first_and_one_more_while_that_is_not_enough() {
        let mut overload = Overload::default();
        let mut loads = [load(3, 400), load(1, 900), load(7, 0), load(1, 100)];
        // Who is pressed sheds those below, and not himself.
        overload.look(&loads);
        assert!(!overload.is_on());
        loads[0].filled = 600;
        overload.look(&loads);
        assert_eq!(loads.map(|load| overload.sheds(&load)), [false, true, false, true]);
        // It helps.
        loads[0].filled = 550;
        overload.look(&loads);
        assert_eq!(loads.map(|load| overload.sheds(&load)), [false, true, false, true]);
        // It does not.
        loads[0].filled = 662;
        overload.look(&loads);
        assert_eq!(loads.map(|load| overload.sheds(&load)), [false, true, false, true]);
        // Who has the highest priority has all others make way.
        loads[2].filled = 600;
        overload.look(&loads);
        assert_eq!(loads.map(|load| overload.sheds(&load)), [true, true, false, true]);
        // All are served again when nothing much waits for those who were served.
        loads[2].filled = 126;
        overload.look(&loads);
        assert!(overload.is_on());
        loads[2].filled = 125;
        overload.look(&loads);
        assert!(!overload.is_on());
    }

    #[test]
    fn what_is_reserved_is_not_shed_and_who_takes_no_spare_time_sheds_nobody() {
        let mut overload = Overload::default();
        let reserved = QueueLoad { is_best_effort: false, ..load(0, 100) };
        let alone = QueueLoad { shares: false, is_best_effort: false, ..load(9, 1000) };
        overload.look(&[reserved, alone, load(1, 0)]);
        assert!(!overload.is_on());
        overload.look(&[reserved, alone, load(1, 0), load(2, 500)]);
        assert!(overload.sheds(&load(1, 0)) && !overload.sheds(&reserved));
    }
}
