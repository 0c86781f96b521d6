//! The entries of a ledger that wait in memory to be written, with a limit on their number.

use std::collections::{HashMap, VecDeque};
use weir_ledger::{LedgerEvent, SessionId, Usage};
use weir_units::Timestamp;

/// An entry that waits to be written. Its sequence number and hash are computed when it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PendingEntry {
    pub(crate) begin: Timestamp,
    pub(crate) end: Timestamp,
    pub(crate) event: LedgerEvent,
}

/// Entries in the order in which they will be written. If there are too many, entries with usage of the same session are
/// merged into their sum.
#[derive(Debug)]
pub(crate) struct Backlog {
    entries: VecDeque<PendingEntry>,
    /// The number of entries; an entry about several idle sessions counts once for each.
    weight: usize,
    /// The highest weight.
    weight_max: usize,
    /// Entries with an interval's usage that were merged into other entries.
    pub(crate) merged: u64,
    /// Other entries that were lost, because there were too many.
    pub(crate) lost: u64,
    /// The summed usage of sessions for which the limit leaves no entry of their own.
    others: Usage,
    /// The beginning of the earliest interval in `others`.
    others_begin: Option<Timestamp>,
}

impl Backlog {
    /// Creates an empty backlog for a weight of at most `weight_max`, or 8 if `weight_max` is less.
    pub(crate) fn new(weight_max: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            weight: 0,
            weight_max: weight_max.max(8),
            merged: 0,
            lost: 0,
            others: Usage::default(),
            others_begin: None,
        }
    }

    pub(crate) fn push(&mut self, entry: PendingEntry) {
        self.weight += entry.weight();
        self.entries.push_back(entry);
        if self.weight > self.weight_max {
            self.compact();
        }
    }

    /// Returns the number of entries; an entry about several idle sessions counts once for each.
    pub(crate) fn weight(&self) -> usize {
        self.weight
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &PendingEntry> {
        self.entries.iter()
    }

    /// Returns an entry that records the numbers of merged and lost entries; `None` if no entry was merged or lost.
    pub(crate) fn loss_entry(&self) -> Option<PendingEntry> {
        let last = self.entries.back()?;
        let is_unchanged = self.merged == 0 && self.lost == 0 && self.others.is_empty();
        (!is_unchanged).then(|| PendingEntry {
            begin: self.others_begin.unwrap_or(last.end).min(last.end),
            end: last.end,
            event: LedgerEvent::Backlog {
                merged: self.merged,
                lost: self.lost,
                others: Box::new(self.others.clone()),
            },
        })
    }

    /// Clears the backlog when all entries have been written.
    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.weight_max);
    }

    /// Shrinks the backlog to at most half of its limit: a quarter for sums of sessions' usage, a quarter for other
    /// entries. The latest sessions and entries are kept.
    fn compact(&mut self) {
        let quarter = self.weight_max / 4;
        let mut sums: HashMap<SessionId, PendingEntry> = HashMap::new();
        let (mut events, mut kept) = (0, VecDeque::new());
        // The loop goes from the latest entry to the earliest. So a sum takes the place of the session's last entry, and
        // the end times of all entries stay in order.
        let latest_first = std::mem::take(&mut self.entries).into_iter().rev();
        for PendingEntry { begin, end, event } in latest_first.flat_map(PendingEntry::split_idle) {
            match event {
                LedgerEvent::Usage { session, intervals, usage } => {
                    if let Some(sum) = sums.get_mut(&session) {
                        sum.add(begin, intervals, &usage);
                        self.merged = self.merged.saturating_add(1);
                    } else if sums.len() < quarter {
                        kept.push_front(KeptSlot::SumOf(session.clone()));
                        let event = LedgerEvent::Usage { session: session.clone(), intervals, usage };
                        sums.insert(session, PendingEntry { begin, end, event });
                    } else {
                        self.others.merge(&usage);
                        self.others_begin = Some(self.others_begin.map_or(begin, |first| first.min(begin)));
                        self.merged = self.merged.saturating_add(1);
                    }
                }
                event if events < quarter => {
                    events += 1;
                    kept.push_front(KeptSlot::Other(PendingEntry { begin, end, event }));
                }
                _ => self.lost = self.lost.saturating_add(1),
            }
        }
        self.entries = kept
            .into_iter()
            .filter_map(|kept| match kept {
                KeptSlot::SumOf(session) => sums.remove(&session),
                KeptSlot::Other(entry) => Some(entry),
            })
            .collect();
        self.weight = self.entries.iter().map(PendingEntry::weight).sum();
    }
}

/// An entry of the compacted backlog: the sum of a session's usage, which is still growing, or another entry.
enum KeptSlot {
    SumOf(SessionId),
    Other(PendingEntry),
}

impl PendingEntry {
    /// Returns the number of entries as which this entry counts.
    fn weight(&self) -> usize {
        if let LedgerEvent::Idle { idle } = &self.event { idle.count() } else { 1 }
    }

    /// Splits an entry about several idle sessions into one for each, the last session first. Returns any other entry
    /// unchanged.
    fn split_idle(self) -> impl Iterator<Item = PendingEntry> {
        let PendingEntry { begin, end, event } = self;
        let (idle, other) = match event {
            LedgerEvent::Idle { idle } => (Some(idle), None),
            event => (None, Some(event)),
        };
        let sessions = idle.into_iter().flat_map(|idle| idle.into_sessions().rev());
        let usages = sessions.map(|(session, memory)| {
            let usage = Box::new(Usage { memory, ..Usage::default() });
            LedgerEvent::Usage { session, intervals: 1, usage }
        });
        other.into_iter().chain(usages).map(move |event| PendingEntry { begin, end, event })
    }

    /// Adds the usage of `added` further intervals, the earliest of which begins at `begin`.
    fn add(&mut self, begin: Timestamp, added: u64, other: &Usage) {
        self.begin = self.begin.min(begin);
        if let LedgerEvent::Usage { intervals, usage, .. } = &mut self.event {
            *intervals = intervals.saturating_add(added);
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
        ByteSeconds::held_for(Bytes(bytes), Nanos(7))
    }

    fn waiting(at: u64, event: LedgerEvent) -> PendingEntry {
        PendingEntry { begin: Timestamp(at), end: Timestamp(at + 1), event }
    }

    fn usage(id: u64, at: u64) -> PendingEntry {
        let usage = Box::new(Usage { packets_in: 1, memory: memory(id), ..Usage::default() });
        waiting(at, LedgerEvent::Usage { session: session(id), intervals: 1, usage })
    }

    /// Entries about idle sessions with these numbers.
    fn idle(sessions: std::ops::Range<u64>, at: u64) -> Vec<PendingEntry> {
        let entries = Idle::entries(sessions.map(|id| (session(id), memory(id))));
        entries.into_iter().map(|idle| waiting(at, LedgerEvent::Idle { idle })).collect()
    }

    /// The number of intervals of each session, and its usage in them.
    type Billed = BTreeMap<SessionId, (u64, Usage)>;

    fn add(billed: &mut Billed, of: &SessionId, intervals: u64, usage: &Usage) {
        let (sum, used) = billed.entry(of.clone()).or_default();
        *sum += intervals;
        used.merge(usage);
    }

    /// The usage that entries state for each session.
    fn billed<'a>(entries: impl Iterator<Item = &'a PendingEntry>) -> Billed {
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
    fn usage_adds_up_however_long_it_waits() {
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
            let Some(PendingEntry { event: LedgerEvent::Backlog { merged, lost: 0, others }, end, .. }) =
                backlog.loss_entry()
            else {
                panic!("merged entries are not recorded")
            };
            assert_eq!((end, *others == backlog.others), (Timestamp(5_000), true));
            assert_eq!(merged + backlog.weight() as u64, 5_000);
        }
    }

    #[test]
    fn idle_sessions_count_once_each() {
        let (sessions, most) = (3 * IDLE_MAX as u64, 20 * IDLE_MAX);
        let mut backlog = Backlog::new(most);
        for at in 0..6 {
            idle(0..sessions, at).into_iter().for_each(|waiting| backlog.push(waiting));
        }
        // Unchanged as long as there is room for all.
        assert_eq!((backlog.weight(), backlog.iter().count(), backlog.merged), (18 * IDLE_MAX, 18, 0));
        for at in 6..1_000 {
            idle(0..sessions, at).into_iter().for_each(|waiting| backlog.push(waiting));
            assert!(backlog.weight() <= most);
        }
        let all = billed(backlog.iter());
        assert!(backlog.others.is_empty() && all.len() as u64 == sessions);
        for (session, (intervals, used)) in &all {
            let held = ByteSeconds::held_for(Bytes(session.id), Nanos(7 * 1_000));
            assert_eq!((*intervals, used), (1_000, &Usage { memory: held, ..Usage::default() }));
        }
        // A single entry beyond the limit leaves sums of the sessions for which there is room.
        let mut small = Backlog::new(32);
        idle(0..100, 0).into_iter().for_each(|waiting| small.push(waiting));
        assert_eq!((small.weight(), small.merged), (8, 92));
        let kept = total(&billed(small.iter())).memory;
        assert_eq!(kept.saturating_add(small.others.memory), memory((0..100).sum()));
    }

    proptest! {
        #[test]
        fn sums_of_all_sessions_are_exact_at_any_limit(
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
                prop_assert_eq!(backlog.iter().map(PendingEntry::weight).sum::<usize>(), backlog.weight());
            }
            let found = billed(backlog.iter());
            let mut sum = total(&found);
            sum.merge(&backlog.others);
            prop_assert_eq!(sum, total(&expected));
            // The sums of single sessions are exact if no usage was merged into `others`. `others_begin` tells that: `others`
            // itself can stay empty, because session 0 has no memory, and so no usage while it is idle.
            if backlog.others_begin.is_none() {
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
            backlog.push(PendingEntry {
                begin: Timestamp(at),
                end: Timestamp(at),
                event: LedgerEvent::ClockSet { before: Timestamp(at) },
            });
        }
        assert_eq!(backlog.lost + backlog.weight() as u64, 1_000);
        let first = backlog.iter().next().unwrap().end.0;
        assert_eq!(first + backlog.weight() as u64, 1_000);
        backlog.clear();
        assert_eq!((backlog.weight(), backlog.loss_entry()), (0, None));
    }
}
