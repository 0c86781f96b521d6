//! Entries that are not written yet, within a bound.

use std::collections::{HashMap, VecDeque};
use weir_ledger::{LedgerEvent, SessionId, Usage};
use weir_units::Timestamp;

/// An entry without its place in the chain, which it gets when it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) begin: Timestamp,
    pub(crate) end: Timestamp,
    pub(crate) event: LedgerEvent,
}

/// Entries in the order in which they will be written. When there are too many, usage of the same session is added up.
#[derive(Debug)]
pub(crate) struct Backlog {
    entries: VecDeque<Waiting>,
    /// How many these count for: one about several idle sessions counts once for each.
    weight: usize,
    most: usize,
    /// Intervals' usages of sessions that were added to others.
    pub(crate) merged: u64,
    /// Other entries for which there was no room.
    pub(crate) lost: u64,
    /// Usage of sessions for which there was no room, and when it began.
    others: Usage,
    others_begin: Option<Timestamp>,
}

impl Backlog {
    /// Holds entries that count for at most so many (at least 8).
    pub(crate) fn new(most: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            weight: 0,
            most: most.max(8),
            merged: 0,
            lost: 0,
            others: Usage::default(),
            others_begin: None,
        }
    }

    pub(crate) fn push(&mut self, waiting: Waiting) {
        self.weight += waiting.weight();
        self.entries.push_back(waiting);
        if self.weight > self.most {
            self.compact();
        }
    }

    /// How many entries there are; one about several idle sessions counts once for each.
    pub(crate) fn weight(&self) -> usize {
        self.weight
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Waiting> {
        self.entries.iter()
    }

    /// What has to be said of entries that are not as they were pushed; nothing where all are.
    pub(crate) fn confession(&self) -> Option<Waiting> {
        let last = self.entries.back()?;
        let is_whole = self.merged == 0 && self.lost == 0 && self.others.is_empty();
        (!is_whole).then(|| Waiting {
            begin: self.others_begin.unwrap_or(last.end).min(last.end),
            end: last.end,
            event: LedgerEvent::Backlog {
                merged: self.merged,
                lost: self.lost,
                others: Box::new(self.others.clone()),
            },
        })
    }

    /// All is written.
    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.most);
    }

    /// Makes room for half of what may be held: a quarter is left for sums of sessions, a quarter for other entries. The latest stay.
    fn compact(&mut self) {
        let quarter = self.most / 4;
        let mut sums: HashMap<SessionId, Waiting> = HashMap::new();
        let (mut events, mut kept) = (0, VecDeque::new());
        // From the latest to the earliest, so that each sum stands where the session's last entry stood, and ends stay in order.
        let latest_first = std::mem::take(&mut self.entries).into_iter().rev();
        for Waiting { begin, end, event } in latest_first.flat_map(Waiting::apart) {
            match event {
                LedgerEvent::Usage { session, intervals, usage } => {
                    if let Some(sum) = sums.get_mut(&session) {
                        sum.add(begin, intervals, &usage);
                        self.merged = self.merged.saturating_add(1);
                    } else if sums.len() < quarter {
                        kept.push_front(Kept::SumOf(session.clone()));
                        let event = LedgerEvent::Usage { session: session.clone(), intervals, usage };
                        sums.insert(session, Waiting { begin, end, event });
                    } else {
                        self.others.merge(&usage);
                        self.others_begin = Some(self.others_begin.map_or(begin, |first| first.min(begin)));
                        self.merged = self.merged.saturating_add(1);
                    }
                }
                event if events < quarter => {
                    events += 1;
                    kept.push_front(Kept::Other(Waiting { begin, end, event }));
                }
                _ => self.lost = self.lost.saturating_add(1),
            }
        }
        self.entries = kept
            .into_iter()
            .filter_map(|kept| match kept {
                Kept::SumOf(session) => sums.remove(&session),
                Kept::Other(waiting) => Some(waiting),
            })
            .collect();
        self.weight = self.entries.iter().map(Waiting::weight).sum();
    }
}

enum Kept {
    SumOf(SessionId),
    Other(Waiting),
}

impl Waiting {
    /// How many entries it counts for.
    fn weight(&self) -> usize {
        if let LedgerEvent::Idle { idle } = &self.event { idle.count() } else { 1 }
    }

    /// One about several idle sessions as one for each of them, the last one first; any other as it is.
    fn apart(self) -> impl Iterator<Item = Waiting> {
        let Waiting { begin, end, event } = self;
        let (idle, other) = match event {
            LedgerEvent::Idle { idle } => (Some(idle), None),
            event => (None, Some(event)),
        };
        let sessions = idle.into_iter().flat_map(|idle| idle.into_sessions().rev());
        let usages = sessions.map(|(session, memory)| {
            let usage = Box::new(Usage { memory, ..Usage::default() });
            LedgerEvent::Usage { session, intervals: 1, usage }
        });
        other.into_iter().chain(usages).map(move |event| Waiting { begin, end, event })
    }

    fn add(&mut self, from: Timestamp, more: u64, other: &Usage) {
        self.begin = self.begin.min(from);
        if let LedgerEvent::Usage { intervals, usage, .. } = &mut self.event {
            *intervals = intervals.saturating_add(more);
            usage.merge(other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use weir_admission::Name;
    use weir_ledger::{ByteSeconds, IDLE_MAX, Idle};
    use weir_units::{Bytes, Nanos};

    fn session(id: u64) -> SessionId {
        SessionId { name: Name::new("s").unwrap(), id }
    }

    fn memory(bytes: u64) -> ByteSeconds {
        ByteSeconds::of(Bytes(bytes), Nanos(7))
    }

    fn waiting(at: u64, event: LedgerEvent) -> Waiting {
        Waiting { begin: Timestamp(at), end: Timestamp(at + 1), event }
    }

    fn usage(id: u64, at: u64) -> Waiting {
        let usage = Box::new(Usage { packets_in: 1, memory: memory(id), ..Usage::default() });
        waiting(at, LedgerEvent::Usage { session: session(id), intervals: 1, usage })
    }

    /// Sessions that were idle, from the first to before the last.
    fn idle(sessions: std::ops::Range<u64>, at: u64) -> Vec<Waiting> {
        let entries = Idle::of(sessions.map(|id| (session(id), memory(id))));
        entries.into_iter().map(|idle| waiting(at, LedgerEvent::Idle { idle })).collect()
    }

    /// How many intervals a session has, and what it used in them.
    type Billed = BTreeMap<SessionId, (u64, Usage)>;

    fn add(billed: &mut Billed, of: &SessionId, intervals: u64, usage: &Usage) {
        let (sum, used) = billed.entry(of.clone()).or_default();
        *sum += intervals;
        used.merge(usage);
    }

    /// What entries say of each session.
    fn billed<'a>(entries: impl Iterator<Item = &'a Waiting>) -> Billed {
        let mut billed = Billed::new();
        for waiting in entries {
            match &waiting.event {
                LedgerEvent::Usage { session, intervals, usage } => {
                    add(&mut billed, session, *intervals, usage)
                }
                LedgerEvent::Idle { idle } => {
                    for (session, memory) in idle.iter() {
                        add(&mut billed, session, 1, &Usage { memory, ..Usage::default() });
                    }
                }
                _ => {}
            }
        }
        billed
    }

    fn total(billed: &Billed) -> Usage {
        billed.values().map(|(_, usage)| usage).sum()
    }

    fn packets(backlog: &Backlog) -> u64 {
        total(&billed(backlog.iter())).packets_in + backlog.others.packets_in
    }

    #[test]
    fn usage_adds_up_however_long_it_waits_and_whoever_comes() {
        for sessions in [1, 3, 7, 1_000] {
            let mut backlog = Backlog::new(32);
            for at in 0..5_000 {
                backlog.push(usage(at % sessions, at));
                assert!(backlog.weight() <= 32);
            }
            assert_eq!(packets(&backlog), 5_000, "{sessions} sessions");
            assert!(backlog.iter().zip(backlog.iter().skip(1)).all(|(a, b)| a.end <= b.end));
            let intervals: u64 = billed(backlog.iter()).values().map(|(intervals, _)| intervals).sum();
            assert_eq!(backlog.others.is_empty(), sessions < 8);
            assert!(sessions == 1_000 || intervals == 5_000);
            let Some(Waiting { event: LedgerEvent::Backlog { merged, lost: 0, others }, end, .. }) =
                backlog.confession()
            else {
                panic!("nothing was confessed")
            };
            assert_eq!((end, *others == backlog.others), (Timestamp(5_000), true));
            assert_eq!(merged + backlog.weight() as u64, 5_000);
        }
    }

    #[test]
    fn idle_sessions_count_for_as_many_as_they_are() {
        let (sessions, most) = (3 * IDLE_MAX as u64, 20 * IDLE_MAX);
        let mut backlog = Backlog::new(most);
        for at in 0..6 {
            idle(0..sessions, at).into_iter().for_each(|waiting| backlog.push(waiting));
        }
        // As they came, as long as there is room for all.
        assert_eq!((backlog.weight(), backlog.iter().count(), backlog.merged), (18 * IDLE_MAX, 18, 0));
        for at in 6..1_000 {
            idle(0..sessions, at).into_iter().for_each(|waiting| backlog.push(waiting));
            assert!(backlog.weight() <= most);
        }
        let all = billed(backlog.iter());
        assert!(backlog.others.is_empty() && all.len() as u64 == sessions);
        for (session, (intervals, used)) in &all {
            let held = ByteSeconds::of(Bytes(session.id), Nanos(7 * 1_000));
            assert_eq!((*intervals, used), (1_000, &Usage { memory: held, ..Usage::default() }));
        }
        // One that is too large for itself alone leaves sums of those for which there is room.
        let mut small = Backlog::new(32);
        idle(0..100, 0).into_iter().for_each(|waiting| small.push(waiting));
        assert_eq!((small.weight(), small.merged), (8, 92));
        let kept = total(&billed(small.iter())).memory;
        assert_eq!(kept.saturating_add(small.others.memory), memory((0..100).sum()));
    }

    proptest! {
        #[test]
        fn sums_of_all_sessions_are_exact_however_little_room_there_is(
            pushed in proptest::collection::vec((0..3u8, 0..40u64, 0..30u64), 0..200),
            most in 0..200usize,
        ) {
            let (mut backlog, mut expected, mut events) = (Backlog::new(most), Billed::new(), 0);
            for (at, (kind, first, count)) in (0..).zip(pushed) {
                let come = match kind {
                    0 => vec![usage(first, at)],
                    1 => idle(first..first + count, at),
                    _ => vec![waiting(at, LedgerEvent::NodeStop)],
                };
                events += u64::from(kind == 2);
                for (session, (intervals, usage)) in billed(come.iter()) {
                    add(&mut expected, &session, intervals, &usage);
                }
                come.into_iter().for_each(|waiting| backlog.push(waiting));
                prop_assert!(backlog.weight() <= most.max(8));
                prop_assert_eq!(backlog.iter().map(Waiting::weight).sum::<usize>(), backlog.weight());
            }
            let found = billed(backlog.iter());
            let mut sum = total(&found);
            sum.merge(&backlog.others);
            prop_assert_eq!(sum, total(&expected));
            if backlog.others.is_empty() {
                prop_assert_eq!(&found, &expected);
            }
            prop_assert!(backlog.iter().zip(backlog.iter().skip(1)).all(|(a, b)| a.end <= b.end));
            let kept = backlog.iter().filter(|waiting| waiting.event == LedgerEvent::NodeStop).count() as u64;
            prop_assert_eq!(kept + backlog.lost, events);
            let intervals = |billed: &Billed| billed.values().map(|(intervals, _)| intervals).sum::<u64>();
            let written = backlog.weight() as u64 - kept;
            prop_assert_eq!(written + backlog.merged, intervals(&expected));
        }
    }

    #[test]
    fn the_latest_events_stay_and_the_others_are_counted() {
        let mut backlog = Backlog::new(32);
        for at in 0..1_000 {
            backlog.push(Waiting {
                begin: Timestamp(at),
                end: Timestamp(at),
                event: LedgerEvent::ClockSet { before: Timestamp(at) },
            });
        }
        assert_eq!(backlog.lost + backlog.weight() as u64, 1_000);
        let first = backlog.iter().next().unwrap().end.0;
        assert_eq!(first + backlog.weight() as u64, 1_000);
        backlog.clear();
        assert_eq!((backlog.weight(), backlog.confession()), (0, None));
    }
}
