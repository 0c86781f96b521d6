//! The state of the screen of `weir top`. Snapshots and keys change the state; this file does no I/O.

use weir_node::client::rates::{Rate, SessionRates, SnapshotRates};
use weir_node::control::protocol::{SessionStatus, Snapshot};

/// The sort order of sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// CPU share, largest first.
    #[default]
    Cpu,
    /// Packets per second, largest first.
    Packets,
    /// Lost packets per second, largest first.
    Drops,
    /// Memory in use, largest first.
    Memory,
    /// Records per second, largest first.
    Records,
    /// Name, in alphabetical order.
    Name,
}

impl Sort {
    /// Returns the next sort order in the cycle.
    fn next(self) -> Self {
        match self {
            Self::Cpu => Self::Packets,
            Self::Packets => Self::Drops,
            Self::Drops => Self::Memory,
            Self::Memory => Self::Records,
            Self::Records => Self::Name,
            Self::Name => Self::Cpu,
        }
    }
}

/// A pressed key: a character, or the effect of a special key. Special keys with the same effect, such as Home and Page Up,
/// have one variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPress {
    /// A character.
    Char(char),
    /// Selects the session above.
    Up,
    /// Selects the session below.
    Down,
    /// Selects the first session.
    First,
    /// Selects the last session.
    Last,
    /// Switches between one session and all.
    Enter,
    /// Closes the help or the view of one session; quits from the main screen.
    Escape,
}

/// The state of the screen.
#[derive(Clone, Debug, Default)]
pub struct ScreenState {
    /// The latest snapshot.
    pub now: Option<Snapshot>,
    /// Rates between the latest snapshot and the previous one.
    pub rates: SnapshotRates,
    /// The error of the last query, if it failed.
    pub error: Option<String>,
    /// True while newer snapshots are ignored.
    pub is_paused: bool,
    /// The sort order of the sessions.
    pub sort: Sort,
    /// The name of the selected session.
    pub selected: Option<String>,
    /// True if only the selected session is shown.
    pub is_single: bool,
    /// True if the help on keys is shown.
    pub shows_help: bool,
}

impl ScreenState {
    /// Replaces the snapshot with a newer one, unless paused.
    pub fn update(&mut self, now: Snapshot) {
        self.error = None;
        if self.is_paused {
            return;
        }
        self.rates = SnapshotRates::between(self.now.as_ref(), &now);
        self.now = Some(now);
        let order = self.order();
        let has_session = |name: &String| order.iter().any(|(session, _)| session.name == *name);
        if !self.selected.as_ref().is_some_and(has_session) {
            self.selected = order.first().map(|(session, _)| session.name.clone());
            // The selected session has ended. The screen returns to all sessions instead of showing another session
            // alone.
            self.is_single = false;
        }
    }

    /// Sets the error of a query that failed.
    pub fn set_error(&mut self, error: String) {
        self.error = Some(error);
    }

    /// Returns the sessions with their rates, in the sort order.
    pub fn order(&self) -> Vec<(&SessionStatus, &SessionRates)> {
        let Some(now) = &self.now else { return Vec::new() };
        let mut sessions: Vec<_> = now.sessions.iter().zip(&self.rates.sessions).collect();
        let descending = |a: Rate, b: Rate| b.unwrap_or(0.0).total_cmp(&a.unwrap_or(0.0));
        sessions.sort_by(|(a, rates_a), (b, rates_b)| {
            let order = match self.sort {
                Sort::Cpu => descending(rates_a.cpu, rates_b.cpu),
                Sort::Packets => descending(rates_a.packets, rates_b.packets),
                Sort::Drops => descending(rates_a.drops, rates_b.drops),
                Sort::Memory => b.memory_used.cmp(&a.memory_used),
                Sort::Records => descending(rates_a.records, rates_b.records),
                Sort::Name => std::cmp::Ordering::Equal,
            };
            order.then_with(|| a.name.cmp(&b.name))
        });
        sessions
    }

    /// Returns the index of the selected session in the sort order.
    pub fn selected_index(&self) -> Option<usize> {
        let name = self.selected.as_ref()?;
        self.order().iter().position(|(session, _)| session.name == *name)
    }

    /// Handles a key; returns true to quit.
    pub fn press(&mut self, press: KeyPress) -> bool {
        let showed_help = std::mem::take(&mut self.shows_help);
        match press {
            KeyPress::Char('q') => return true,
            KeyPress::Escape if showed_help => {}
            KeyPress::Escape if self.is_single => self.is_single = false,
            KeyPress::Escape => return true,
            KeyPress::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyPress::Char('s') => self.sort = self.sort.next(),
            KeyPress::Char('?' | 'h') => self.shows_help = !showed_help,
            KeyPress::Enter => self.is_single = !self.is_single && self.selected.is_some(),
            KeyPress::Up | KeyPress::Char('k') => self.move_selection(|index, _| index.saturating_sub(1)),
            KeyPress::Down | KeyPress::Char('j') => self.move_selection(|index, last| last.min(index + 1)),
            KeyPress::First => self.move_selection(|_, _| 0),
            KeyPress::Last => self.move_selection(|_, last| last),
            KeyPress::Char(_) => {}
        }
        false
    }

    /// Selects the session at the index that `target` returns for the present and the last index.
    fn move_selection(&mut self, target: impl Fn(usize, usize) -> usize) {
        let index = self.selected_index().unwrap_or(0);
        let order = self.order();
        let name =
            order.get(target(index, order.len().saturating_sub(1))).map(|(session, _)| session.name.clone());
        self.selected = name;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> ScreenState {
        let mut state = ScreenState::default();
        let first: Snapshot =
            serde_json::from_str(include_str!("../../../../../node/tests/snapshot.json")).unwrap();
        let mut second = first.clone();
        second.uptime_ns += 1_000_000_000;
        second.sessions[0].cpu[0].used_ns += 700_000_000;
        second.sessions[1].cpu[0].used_ns += 200_000_000;
        second.sessions[1].channels[0].packets += 10;
        state.update(first);
        state.update(second);
        state
    }

    fn names(state: &ScreenState) -> Vec<&str> {
        state.order().iter().map(|(session, _)| session.name.as_str()).collect()
    }

    #[test]
    fn the_sort_key_cycles_through_all_orders() {
        let mut state = state();
        let mut seen = Vec::new();
        for _ in 0..6 {
            seen.push((state.sort, names(&state)[0].to_owned()));
            assert!(!state.press(KeyPress::Char('s')));
        }
        let firsts: Vec<&str> = seen.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(firsts, ["greedy", "modest", "greedy", "modest", "greedy", "greedy"]);
        assert_eq!(state.sort, Sort::Cpu);
    }

    #[test]
    fn the_selection_stays_with_its_session() {
        let mut state = state();
        assert_eq!(state.selected.as_deref(), Some("greedy"));
        state.press(KeyPress::Down);
        state.press(KeyPress::Down);
        assert_eq!((state.selected.as_deref(), state.selected_index()), (Some("modest"), Some(1)));
        state.press(KeyPress::Char('s'));
        assert_eq!(state.selected_index(), Some(0));
        state.press(KeyPress::Enter);
        let mut without = state.now.clone().unwrap();
        without.sessions.remove(1);
        assert!(state.is_single);
        state.update(without.clone());
        assert_eq!((state.selected.as_deref(), state.is_single), (Some("greedy"), false));
        without.sessions.clear();
        state.update(without);
        state.press(KeyPress::Up);
        state.press(KeyPress::Enter);
        assert_eq!((state.selected.as_deref(), state.is_single, state.selected_index()), (None, false, None));
    }

    #[test]
    fn a_pause_keeps_the_snapshot_and_an_error_keeps_the_last_one() {
        let mut state = state();
        state.press(KeyPress::Char('p'));
        let mut later = state.now.clone().unwrap();
        later.uptime_ns += 1;
        state.update(later.clone());
        assert_ne!(state.now.as_ref(), Some(&later));
        state.press(KeyPress::Char('p'));
        state.update(later.clone());
        assert_eq!(state.now.as_ref(), Some(&later));
        state.set_error("gone".to_owned());
        assert_eq!((state.now.is_some(), state.error.as_deref()), (true, Some("gone")));
        state.update(later);
        assert_eq!(state.error, None);
    }

    #[test]
    fn escape_goes_back_one_step_at_a_time() {
        let mut state = state();
        state.press(KeyPress::Enter);
        state.press(KeyPress::Char('?'));
        assert!(state.shows_help && state.is_single);
        assert!(!state.press(KeyPress::Escape) && !state.shows_help && state.is_single);
        assert!(!state.press(KeyPress::Escape) && !state.is_single);
        assert!(state.press(KeyPress::Escape));
        assert!(state.press(KeyPress::Char('q')));
    }
}
