//! Entries that are not written yet, within a bound.

use std::collections::{HashMap, VecDeque};
use weir_session::ledger::{Event, Session, Usage};
use weir_units::Timestamp;

/// An entry without its place in the chain, which it gets when it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) begin: Timestamp,
    pub(crate) end: Timestamp,
    pub(crate) event: Event,
}

/// Entries in the order in which they will be written. When there are too many, usage of the same session is added up.
#[derive(Debug)]
pub(crate) struct Backlog {
    entries: VecDeque<Waiting>,
    most: usize,
    /// Usage entries that were added to others.
    pub(crate) merged: u64,
    /// Other entries for which there was no room.
    pub(crate) lost: u64,
    /// Usage of sessions for which there was no room, and when it began.
    others: Usage,
    others_begin: Option<Timestamp>,
}

impl Backlog {
    /// Holds at most so many entries (at least 8).
    pub(crate) fn new(most: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            most: most.max(8),
            merged: 0,
            lost: 0,
            others: Usage::default(),
            others_begin: None,
        }
    }

    pub(crate) fn push(&mut self, waiting: Waiting) {
        if self.entries.len() >= self.most {
            self.compact();
        }
        self.entries.push_back(waiting);
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
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
            event: Event::Backlog {
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
        let mut sums: HashMap<Session, Waiting> = HashMap::new();
        let (mut events, mut kept) = (0, VecDeque::new());
        // From the latest to the earliest, so that each sum stands where the session's last entry stood, and ends stay in order.
        for waiting in std::mem::take(&mut self.entries).into_iter().rev() {
            let Waiting { begin, end, event } = waiting;
            match event {
                Event::Usage { session, intervals, usage } => {
                    if let Some(sum) = sums.get_mut(&session) {
                        sum.add(begin, intervals, &usage);
                        self.merged = self.merged.saturating_add(1);
                    } else if sums.len() < quarter {
                        kept.push_front(Kept::SumOf(session.clone()));
                        let event = Event::Usage { session: session.clone(), intervals, usage };
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
    }
}

enum Kept {
    SumOf(Session),
    Other(Waiting),
}

impl Waiting {
    fn add(&mut self, from: Timestamp, more: u64, other: &Usage) {
        self.begin = self.begin.min(from);
        if let Event::Usage { intervals, usage, .. } = &mut self.event {
            *intervals = intervals.saturating_add(more);
            usage.merge(other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_session::Name;

    fn usage(id: u64, at: u64) -> Waiting {
        let session = Session { name: Name::new("s").unwrap(), id };
        let usage = Box::new(Usage { packets_in: 1, ..Usage::default() });
        Waiting {
            begin: Timestamp(at),
            end: Timestamp(at + 1),
            event: Event::Usage { session, intervals: 1, usage },
        }
    }

    fn packets(backlog: &Backlog) -> u64 {
        let of = |waiting: &Waiting| match &waiting.event {
            Event::Usage { usage, .. } => usage.packets_in,
            _ => 0,
        };
        backlog.iter().map(of).sum::<u64>() + backlog.others.packets_in
    }

    #[test]
    fn usage_adds_up_however_long_it_waits_and_whoever_comes() {
        for sessions in [1, 3, 7, 1_000] {
            let mut backlog = Backlog::new(32);
            for at in 0..5_000 {
                backlog.push(usage(at % sessions, at));
                assert!(backlog.len() <= 32);
            }
            assert_eq!(packets(&backlog), 5_000, "{sessions} sessions");
            assert!(backlog.iter().zip(backlog.iter().skip(1)).all(|(a, b)| a.end <= b.end));
            let intervals: u64 = backlog
                .iter()
                .map(|waiting| if let Event::Usage { intervals, .. } = waiting.event { intervals } else { 0 })
                .sum();
            assert_eq!(backlog.others.is_empty(), sessions < 8);
            assert!(sessions == 1_000 || intervals == 5_000);
            let Some(Waiting { event: Event::Backlog { merged, lost: 0, others }, end, .. }) =
                backlog.confession()
            else {
                panic!("nothing was confessed")
            };
            assert_eq!((end, *others == backlog.others), (Timestamp(5_000), true));
            assert_eq!(merged + backlog.len() as u64, 5_000);
        }
    }

    #[test]
    fn the_latest_events_stay_and_the_others_are_counted() {
        let mut backlog = Backlog::new(32);
        for at in 0..1_000 {
            backlog.push(Waiting {
                begin: Timestamp(at),
                end: Timestamp(at),
                event: Event::ClockSet { before: Timestamp(at) },
            });
        }
        assert_eq!(backlog.lost + backlog.len() as u64, 1_000);
        let first = backlog.iter().next().unwrap().end.0;
        assert_eq!(first + backlog.len() as u64, 1_000);
        backlog.clear();
        assert_eq!((backlog.len(), backlog.confession()), (0, None));
    }
}
