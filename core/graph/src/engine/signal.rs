//! Signals between elements: a queue that is empty, or full, lets the tasks that wait for it sleep.

use super::schedule::Schedule;

/// The number of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SignalId(u32);

#[derive(Debug, Default)]
struct State {
    is_active: bool,
    /// The elements whose tasks are scheduled when the signal becomes active.
    waiting: Vec<usize>,
}

/// All signals of a graph.
#[derive(Debug, Default)]
pub struct SignalTable {
    all: Vec<State>,
}

/// The signals for which a task waits. It may find work while one of them is active.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum WaitsFor {
    /// For none: the elements that it depends on have no signal, so it has to try.
    #[default]
    Nothing,
    /// For one of these.
    Signals(Vec<SignalId>),
}

impl SignalTable {
    /// Returns a new signal.
    pub fn create(&mut self, is_active: bool) -> SignalId {
        self.all.push(State { is_active, waiting: Vec::new() });
        SignalId(u32::try_from(self.all.len() - 1).unwrap_or(u32::MAX))
    }

    /// Returns the number of signals.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Removes the latest signals, of an element that does not become a part of the graph.
    pub(super) fn truncate(&mut self, signals: usize) {
        self.all.truncate(signals);
    }

    /// Has the task of an element scheduled whenever one of the signals becomes active.
    pub fn wait(&mut self, element: usize, waits_for: &WaitsFor) {
        if let WaitsFor::Signals(signals) = waits_for {
            for signal in signals {
                let waiting = &mut self.all[signal.0 as usize].waiting;
                if !waiting.contains(&element) {
                    waiting.push(element);
                }
            }
        }
    }

    /// Returns true if a task that waits for these may find work.
    pub fn is_active(&self, waits_for: &WaitsFor) -> bool {
        match waits_for {
            WaitsFor::Nothing => true,
            WaitsFor::Signals(signals) => signals.iter().any(|signal| self.all[signal.0 as usize].is_active),
        }
    }

    /// Makes a signal active, and schedules the tasks that wait for it.
    #[inline]
    pub fn wake(&mut self, signal: SignalId, schedule: &mut Schedule) {
        let state = &mut self.all[signal.0 as usize];
        if !state.is_active {
            state.is_active = true;
            for element in &state.waiting {
                schedule.wake(*element);
            }
        }
    }

    /// Makes a signal inactive.
    pub fn sleep(&mut self, signal: SignalId) {
        self.all[signal.0 as usize].is_active = false;
    }
}
