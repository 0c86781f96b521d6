//! Load shedding on an overloaded core, as in section 3.5 of FLAME, which sheds modules in the order of their priority.
//!
//! Reserved time is never taken away. Among virtual CPUs that share unreserved time, the ones with the lowest priority
//! are shed first, then one more priority at a time until the load is low enough. The higher priorities then have all
//! of the unreserved time.

/// The fill level from which a queue sheds lower priorities: half of the queue, in thousandths.
const HALF_FULL: u32 = 500;
/// The fill level from which a queue that does not shrink sheds one more priority at each update: seven eighths of the
/// queue, in thousandths.
const ALMOST_FULL: u32 = 875;
/// The fill level up to which a queue counts as drained: an eighth of the queue, in thousandths.
const DRAINED: u32 = 125;
/// The growth of a queue after which it sheds one more priority: a sixteenth of the queue, in thousandths.
const STEP: u32 = 62;

/// A queue and the virtual CPU that serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLoad {
    /// The shed priority: the lowest is shed first.
    pub priority: u8,
    /// The fill level of the queue in thousandths.
    pub filled: u32,
    /// True if the virtual CPU takes unreserved time. It then gets more time when other virtual CPUs are shed.
    pub takes_unreserved: bool,
    /// True if the virtual CPU has no reservation, so it can be shed.
    pub is_best_effort: bool,
}

/// A load shedder, which decides the priority below which best-effort virtual CPUs are not served.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadShedder {
    /// The priority below which best-effort virtual CPUs are shed; 0 if none is shed.
    shed_below: u8,
    /// The priority of the queue for which load was shed last, and the queue's fill level at that time.
    last: Option<(u8, u32)>,
}

impl LoadShedder {
    /// Returns true while load is shed. The caller then has to call [`Self::update`] again.
    pub fn is_shedding(&self) -> bool {
        self.shed_below > 0
    }

    /// Returns true if this virtual CPU is shed.
    pub fn sheds(&self, load: &QueueLoad) -> bool {
        load.is_best_effort && load.priority < self.shed_below
    }

    /// Adapts the priority below which load is shed to the queues of a core.
    ///
    /// When a served queue is half full, the lowest priority is shed, if it is below the priority of the queue. The
    /// next priority is shed when the queue has grown by a further sixteenth, and at each call while the queue is
    /// almost full and does not shrink. When all served queues are at most an eighth full, all priorities are served
    /// again.
    pub fn update(&mut self, loads: &[QueueLoad]) {
        let served = || loads.iter().filter(|load| !self.sheds(load));
        let pressed = served().filter(|load| load.takes_unreserved && load.filled >= HALF_FULL);
        match pressed.max_by_key(|load| (load.priority, load.filled)) {
            Some(pressed) => {
                let lower = served().filter(|load| load.is_best_effort && load.priority < pressed.priority);
                let next = lower.map(|load| load.priority).min();
                let (priority, filled) = (pressed.priority, pressed.filled);
                let has_sufficed = |(last_priority, last_filled): (u8, u32)| {
                    last_priority == priority
                        && filled < (last_filled + STEP).min(ALMOST_FULL.max(last_filled))
                };
                if let Some(next) = next.filter(|_| !self.last.is_some_and(has_sufficed)) {
                    self.shed_below = next.saturating_add(1);
                    self.last = Some((priority, filled));
                }
            }
            None if served().all(|load| load.filled <= DRAINED) => *self = Self::default(),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(priority: u8, filled: u32) -> QueueLoad {
        QueueLoad { priority, filled, takes_unreserved: true, is_best_effort: true }
    }

    #[test]
    fn the_lowest_priority_is_shed_first_and_one_more_whenever_the_queue_still_grows() {
        let mut overload = LoadShedder::default();
        let mut loads = [load(3, 400), load(1, 900), load(7, 0), load(1, 100)];
        // A half-full queue sheds lower priorities, never its own.
        overload.update(&loads);
        assert!(!overload.is_shedding());
        loads[0].filled = 600;
        overload.update(&loads);
        assert_eq!(loads.map(|load| overload.sheds(&load)), [false, true, false, true]);
        // The queue shrinks, so no more is shed.
        loads[0].filled = 550;
        overload.update(&loads);
        assert_eq!(loads.map(|load| overload.sheds(&load)), [false, true, false, true]);
        // The queue grows by less than a sixteenth.
        loads[0].filled = 662;
        overload.update(&loads);
        assert_eq!(loads.map(|load| overload.sheds(&load)), [false, true, false, true]);
        // The highest priority sheds all others.
        loads[2].filled = 600;
        overload.update(&loads);
        assert_eq!(loads.map(|load| overload.sheds(&load)), [true, true, false, true]);
        // All are served again once the served queues are nearly empty.
        loads[2].filled = 126;
        overload.update(&loads);
        assert!(overload.is_shedding());
        loads[2].filled = 125;
        overload.update(&loads);
        assert!(!overload.is_shedding());
    }

    #[test]
    fn reservations_are_not_shed_and_a_queue_that_takes_no_spare_time_sheds_nothing() {
        let mut overload = LoadShedder::default();
        let reserved = QueueLoad { is_best_effort: false, ..load(0, 100) };
        let alone = QueueLoad { takes_unreserved: false, is_best_effort: false, ..load(9, 1000) };
        overload.update(&[reserved, alone, load(1, 0)]);
        assert!(!overload.is_shedding());
        overload.update(&[reserved, alone, load(1, 0), load(2, 500)]);
        assert!(overload.sheds(&load(1, 0)) && !overload.sheds(&reserved));
    }
}
