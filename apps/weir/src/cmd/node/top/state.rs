//! What `weir top` shows and how it is looked at. Pure: snapshots and keys go in.

use super::rates::{Rate, SessionRates, SnapshotRates};
use weir_node::control::protocol::{SessionStatus, Snapshot};

/// By what sessions are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Their share of CPU, the greatest first.
    #[default]
    Cpu,
    /// Packets a second.
    Packets,
    /// Packets lost a second.
    Drops,
    /// Memory in use.
    Memory,
    /// Records a second.
    Records,
    /// Their names.
    Name,
}

impl Sort {
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

/// What somebody pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPress {
    /// A letter or a sign.
    Char(char),
    /// An arrow.
    Up,
    /// The other one.
    Down,
    /// The first session.
    First,
    /// The last session.
    Last,
    /// One session whole.
    Enter,
    /// Back.
    Escape,
}

/// What is shown.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// How things are.
    pub now: Option<Snapshot>,
    /// How they go.
    pub rates: SnapshotRates,
    /// Why there is nothing newer.
    pub trouble: Option<String>,
    /// Whether newer snapshots are left alone.
    pub paused: bool,
    /// The order of the sessions.
    pub sort: Sort,
    /// The session that is looked at, by its name: it may move.
    pub selected: Option<String>,
    /// Whether only that session is shown.
    pub alone: bool,
    /// Whether the keys are explained.
    pub help: bool,
}

impl Model {
    /// Takes a newer snapshot.
    pub fn take(&mut self, now: Snapshot) {
        self.trouble = None;
        if self.paused {
            return;
        }
        self.rates = SnapshotRates::of(self.now.as_ref(), &now);
        self.now = Some(now);
        let order = self.order();
        let is_there = |name: &String| order.iter().any(|(session, _)| session.name == *name);
        if !self.selected.as_ref().is_some_and(is_there) {
            self.selected = order.first().map(|(session, _)| session.name.clone());
            // What one looked at is gone: the others are shown rather than another in its place.
            self.alone = false;
        }
    }

    /// Takes notice that the node cannot be asked.
    pub fn lose(&mut self, why: String) {
        self.trouble = Some(why);
    }

    /// The sessions in their order.
    pub fn order(&self) -> Vec<(&SessionStatus, &SessionRates)> {
        let Some(now) = &self.now else { return Vec::new() };
        let mut sessions: Vec<_> = now.sessions.iter().zip(&self.rates.sessions).collect();
        let falling = |a: Rate, b: Rate| b.unwrap_or(0.0).total_cmp(&a.unwrap_or(0.0));
        sessions.sort_by(|(a, of_a), (b, of_b)| {
            let order = match self.sort {
                Sort::Cpu => falling(of_a.cpu, of_b.cpu),
                Sort::Packets => falling(of_a.packets, of_b.packets),
                Sort::Drops => falling(of_a.drops, of_b.drops),
                Sort::Memory => b.memory_used.cmp(&a.memory_used),
                Sort::Records => falling(of_a.records, of_b.records),
                Sort::Name => std::cmp::Ordering::Equal,
            };
            order.then_with(|| a.name.cmp(&b.name))
        });
        sessions
    }

    /// The place of the selected session in the order.
    pub fn place(&self) -> Option<usize> {
        let name = self.selected.as_ref()?;
        self.order().iter().position(|(session, _)| session.name == *name)
    }

    /// Does what a key says; whether that is to end.
    pub fn press(&mut self, press: KeyPress) -> bool {
        let was_help = std::mem::take(&mut self.help);
        match press {
            KeyPress::Char('q') => return true,
            KeyPress::Escape if was_help => {}
            KeyPress::Escape if self.alone => self.alone = false,
            KeyPress::Escape => return true,
            KeyPress::Char('p' | ' ') => self.paused = !self.paused,
            KeyPress::Char('s') => self.sort = self.sort.next(),
            KeyPress::Char('?' | 'h') => self.help = !was_help,
            KeyPress::Enter => self.alone = !self.alone && self.selected.is_some(),
            KeyPress::Up | KeyPress::Char('k') => self.go(|place, _| place.saturating_sub(1)),
            KeyPress::Down | KeyPress::Char('j') => self.go(|place, last| last.min(place + 1)),
            KeyPress::First => self.go(|_, _| 0),
            KeyPress::Last => self.go(|_, last| last),
            KeyPress::Char(_) => {}
        }
        false
    }

    fn go(&mut self, to: impl Fn(usize, usize) -> usize) {
        let place = self.place().unwrap_or(0);
        let order = self.order();
        let name =
            order.get(to(place, order.len().saturating_sub(1))).map(|(session, _)| session.name.clone());
        self.selected = name;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> Model {
        let mut model = Model::default();
        let first: Snapshot =
            serde_json::from_str(include_str!("../../../../../node/tests/snapshot.json")).unwrap();
        let mut second = first.clone();
        second.uptime_ns += 1_000_000_000;
        second.sessions[0].cpu[0].used_ns += 700_000_000;
        second.sessions[1].cpu[0].used_ns += 200_000_000;
        second.sessions[1].channels[0].packets += 10;
        model.take(first);
        model.take(second);
        model
    }

    fn names(model: &Model) -> Vec<&str> {
        model.order().iter().map(|(session, _)| session.name.as_str()).collect()
    }

    #[test]
    fn sessions_stand_in_the_order_that_is_asked_for() {
        let mut model = model();
        let mut seen = Vec::new();
        for _ in 0..6 {
            seen.push((model.sort, names(&model)[0].to_owned()));
            assert!(!model.press(KeyPress::Char('s')));
        }
        let firsts: Vec<&str> = seen.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(firsts, ["greedy", "modest", "greedy", "modest", "greedy", "greedy"]);
        assert_eq!(model.sort, Sort::Cpu);
    }

    #[test]
    fn the_selection_stays_with_its_session() {
        let mut model = model();
        assert_eq!(model.selected.as_deref(), Some("greedy"));
        model.press(KeyPress::Down);
        model.press(KeyPress::Down);
        assert_eq!((model.selected.as_deref(), model.place()), (Some("modest"), Some(1)));
        model.press(KeyPress::Char('s'));
        assert_eq!(model.place(), Some(0));
        model.press(KeyPress::Enter);
        let mut without = model.now.clone().unwrap();
        without.sessions.remove(1);
        assert!(model.alone);
        model.take(without.clone());
        assert_eq!((model.selected.as_deref(), model.alone), (Some("greedy"), false));
        without.sessions.clear();
        model.take(without);
        model.press(KeyPress::Up);
        model.press(KeyPress::Enter);
        assert_eq!((model.selected.as_deref(), model.alone, model.place()), (None, false, None));
    }

    #[test]
    fn a_pause_holds_what_is_shown_and_a_lost_node_stays_in_sight() {
        let mut model = model();
        model.press(KeyPress::Char('p'));
        let mut later = model.now.clone().unwrap();
        later.uptime_ns += 1;
        model.take(later.clone());
        assert_ne!(model.now.as_ref(), Some(&later));
        model.press(KeyPress::Char('p'));
        model.take(later.clone());
        assert_eq!(model.now.as_ref(), Some(&later));
        model.lose("gone".to_owned());
        assert_eq!((model.now.is_some(), model.trouble.as_deref()), (true, Some("gone")));
        model.take(later);
        assert_eq!(model.trouble, None);
    }

    #[test]
    fn escape_leads_back_step_by_step() {
        let mut model = model();
        model.press(KeyPress::Enter);
        model.press(KeyPress::Char('?'));
        assert!(model.help && model.alone);
        assert!(!model.press(KeyPress::Escape) && !model.help && model.alone);
        assert!(!model.press(KeyPress::Escape) && !model.alone);
        assert!(model.press(KeyPress::Escape));
        assert!(model.press(KeyPress::Char('q')));
    }
}
