//! The schedule of tasks and timers.
//!
//! Tasks share the processor by stride scheduling, as in Click: a task with twice the tickets runs twice as often.
//!
//! - C. A. Waldspurger, W. E. Weihl: "Stride Scheduling: Deterministic Proportional-Share Resource Management",
//!   MIT/LCS/TM-528, 1995.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use weir_units::Timestamp;

/// The tickets of a task without a configured number.
pub const TICKETS_DEFAULT: u32 = 1 << 10;

/// The most tickets of a task.
pub const TICKETS_MAX: u32 = 1 << 15;

/// The stride of a task with one ticket.
const STRIDE_ONE: u64 = 1 << 16;

#[derive(Debug)]
struct Task {
    tickets: u32,
    pass: u64,
    is_scheduled: bool,
}

/// The tasks, one for each element at most, and the timers.
#[derive(Debug, Default)]
pub struct Schedule {
    tasks: Vec<Option<Task>>,
    /// The scheduled tasks by pass, then by the order in which they were scheduled.
    ready: BinaryHeap<Reverse<(u64, u64, usize)>>,
    /// The pass of the latest task that ran.
    pass: u64,
    scheduled: u64,
    /// The timers by time, then by the order in which they were set.
    timers: BTreeMap<(Timestamp, u64), (usize, u32)>,
    /// The place of each timer, by its element and key.
    places: BTreeMap<(usize, u32), (Timestamp, u64)>,
}

impl Schedule {
    /// Makes room for the tasks of this number of elements.
    pub fn resize(&mut self, elements: usize) {
        self.tasks.resize_with(elements, || None);
    }

    /// Gives an element a task, and schedules it if asked to.
    pub fn add_task(&mut self, element: usize, tickets: u32, is_scheduled: bool) {
        self.tasks[element] =
            Some(Task { tickets: tickets.clamp(1, TICKETS_MAX), pass: self.pass, is_scheduled: false });
        if is_scheduled {
            self.wake(element);
        }
    }

    /// Schedules the task of an element; without an effect if it is scheduled, or has no task.
    pub fn wake(&mut self, element: usize) {
        let Some(Some(task)) = self.tasks.get_mut(element) else { return };
        if !task.is_scheduled {
            task.is_scheduled = true;
            // A task that has slept gets no share of the past.
            task.pass = task.pass.max(self.pass);
            self.scheduled += 1;
            self.ready.push(Reverse((task.pass, self.scheduled, element)));
        }
    }

    /// Removes the task of an element from the schedule.
    pub fn sleep(&mut self, element: usize) {
        if let Some(Some(task)) = self.tasks.get_mut(element) {
            // Its place in the heap is skipped.
            task.is_scheduled = false;
        }
    }

    /// Returns true if the task of an element is scheduled.
    pub fn is_scheduled(&self, element: usize) -> bool {
        self.tasks.get(element).and_then(Option::as_ref).is_some_and(|task| task.is_scheduled)
    }

    /// Returns the tickets of an element's task; `None` without a task.
    pub fn tickets(&self, element: usize) -> Option<u32> {
        Some(self.tasks.get(element)?.as_ref()?.tickets)
    }

    /// Returns true if an element has a task, or has set a timer.
    pub fn is_active(&self, element: usize) -> bool {
        self.tickets(element).is_some()
            || self.places.range((element, 0)..=(element, u32::MAX)).next().is_some()
    }

    /// Sets the tickets of an element's task.
    pub fn set_tickets(&mut self, element: usize, tickets: u32) {
        if let Some(Some(task)) = self.tasks.get_mut(element) {
            task.tickets = tickets.clamp(1, TICKETS_MAX);
        }
    }

    /// Removes the next task from the schedule and returns its element; `None` if no task is scheduled.
    pub fn next_task(&mut self) -> Option<usize> {
        loop {
            let Reverse((pass, _, element)) = self.ready.pop()?;
            let task = self.tasks[element].as_mut()?;
            // A task that was removed and scheduled again has another place.
            if task.is_scheduled && task.pass == pass {
                task.is_scheduled = false;
                self.pass = pass;
                task.pass = pass + STRIDE_ONE / u64::from(task.tickets);
                return Some(element);
            }
        }
    }

    /// Returns true if a task is scheduled.
    pub fn has_task(&self) -> bool {
        self.ready.iter().any(|Reverse((pass, _, element))| {
            self.tasks[*element].as_ref().is_some_and(|task| task.is_scheduled && task.pass == *pass)
        })
    }

    /// Sets a timer of an element, by a key of the element's. A timer with this key that was set before is replaced.
    pub fn set_timer(&mut self, at: Timestamp, element: usize, key: u32) {
        self.cancel_timer(element, key);
        self.scheduled += 1;
        let place = (at, self.scheduled);
        self.timers.insert(place, (element, key));
        self.places.insert((element, key), place);
    }

    /// Removes a timer, if it is set.
    pub fn cancel_timer(&mut self, element: usize, key: u32) {
        if let Some(place) = self.places.remove(&(element, key)) {
            self.timers.remove(&place);
        }
    }

    /// Returns the time for which a timer is set.
    pub fn timer(&self, element: usize, key: u32) -> Option<Timestamp> {
        self.places.get(&(element, key)).map(|(at, _)| *at)
    }

    /// Returns the time of the next timer.
    pub fn next_timer(&self) -> Option<Timestamp> {
        self.timers.first_key_value().map(|((at, _), _)| *at)
    }

    /// Removes the next timer that has expired, and returns its element and key.
    pub fn expired_timer(&mut self, now: Timestamp) -> Option<(usize, u32)> {
        if self.next_timer()? > now {
            return None;
        }
        let (_, owner) = self.timers.pop_first()?;
        self.places.remove(&owner);
        Some(owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_with_twice_the_tickets_runs_twice_as_often() {
        let mut schedule = Schedule::default();
        schedule.resize(2);
        schedule.add_task(0, 1024, true);
        schedule.add_task(1, 2048, true);
        let mut runs = [0; 2];
        for _ in 0..3000 {
            let element = schedule.next_task().unwrap();
            runs[element] += 1;
            schedule.wake(element);
        }
        assert_eq!(runs, [1000, 2000]);
    }

    #[test]
    fn a_task_that_slept_gets_no_share_of_the_past() {
        let mut schedule = Schedule::default();
        schedule.resize(2);
        schedule.add_task(0, 1024, true);
        schedule.add_task(1, 1024, true);
        schedule.sleep(1);
        for _ in 0..100 {
            assert_eq!(schedule.next_task(), Some(0));
            schedule.wake(0);
        }
        schedule.wake(1);
        let mut runs = [0; 2];
        for _ in 0..10 {
            let element = schedule.next_task().unwrap();
            runs[element] += 1;
            schedule.wake(element);
        }
        assert_eq!(runs, [5, 5]);
        schedule.sleep(0);
        schedule.sleep(1);
        assert!(!schedule.has_task());
        assert_eq!(schedule.next_task(), None);
    }

    #[test]
    fn timers_expire_in_order() {
        let mut schedule = Schedule::default();
        schedule.set_timer(Timestamp(5), 1, 0);
        schedule.set_timer(Timestamp(3), 2, 7);
        schedule.set_timer(Timestamp(1), 3, 0);
        schedule.set_timer(Timestamp(5), 3, 0);
        schedule.set_timer(Timestamp(4), 4, 1);
        schedule.cancel_timer(4, 1);
        assert_eq!(schedule.expired_timer(Timestamp(2)), None);
        assert_eq!(schedule.next_timer(), Some(Timestamp(3)));
        let mut all = Vec::new();
        while let Some(expired) = schedule.expired_timer(Timestamp(5)) {
            all.push(expired);
        }
        assert_eq!(all, [(2, 7), (1, 0), (3, 0)]);
    }
}
