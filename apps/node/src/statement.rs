//! What of the ledger is for whoever asks for it.
//!
//! The operator is told all of it. The holder of a credential is told of his own sessions, and of those of whoever got the right from him: what they used, what became of them, and
//! what was decided on requests of his, of theirs, and of those from whom he has his right where they were about his. Nothing in it tells of others: entries and sessions have numbers
//! of their own, as the ledger's count what others did. His own sessions are called as he calls them.

use crate::protocol::{LedgerAsk, LedgerPart};
use std::collections::BTreeMap;
use weir_ledger::Filter;
use weir_session::Name;
use weir_session::ledger::{Decision, Entry, Event, Holder, Session, Summary, Text, is_decision};
use weir_trust::credential::Verified;
use weir_units::Timestamp;

/// Sessions of one statement: those of a holder that are there at a time, and those that it has the bill of.
const SESSIONS_MAX: usize = 4096;
/// Names of a holder's sessions that are no more, which are remembered for what was decided about them.
const NAMES_MAX: usize = 4096;

/// It would be too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there are more than {SESSIONS_MAX} sessions in this time: ask for less of it with --since and --until, or for one session with --session"
)]
pub(crate) struct TooMany;

/// What somebody is told of a ledger, whose entries it takes in their order, from the first on.
#[derive(Debug)]
pub(crate) struct Statement {
    concern: Option<Concern>,
    part: LedgerPart,
    filter: Filter,
    bill: Summary,
}

impl Statement {
    /// For the holder of a credential; for the operator where there is none.
    pub(crate) fn new(holder: Option<&Verified>, ask: LedgerAsk) -> Self {
        let (since, until) =
            (Timestamp(ask.since_ns.unwrap_or(0)), Timestamp(ask.until_ns.unwrap_or(u64::MAX)));
        Self {
            concern: holder.map(Concern::of),
            part: ask.part,
            filter: Filter { session: ask.session, since, until },
            bill: Summary::new(since, until),
        }
    }

    /// Takes an entry, and says what is told of it now.
    pub(crate) fn take(&mut self, entry: Entry) -> Result<Option<Entry>, TooMany> {
        let told = match &mut self.concern {
            Some(concern) => concern.told(entry)?,
            None => Some(entry),
        };
        let Some(mut entry) = told.and_then(|entry| self.filter.pick(entry)) else { return Ok(None) };
        let is_wanted = match self.part {
            LedgerPart::Entries => true,
            LedgerPart::Decisions => is_decision(&entry.event),
            LedgerPart::Bill => {
                self.bill.add(&entry);
                if self.bill.count() > SESSIONS_MAX {
                    return Err(TooMany);
                }
                false
            }
        };
        if !is_wanted {
            return Ok(None);
        }
        if let Some(concern) = &mut self.concern {
            concern.entries += 1;
            entry.sequence = concern.entries;
        }
        Ok(Some(entry))
    }

    /// What is told when there are no more entries.
    pub(crate) fn finish(self, node: &Name) -> Vec<Entry> {
        let entry =
            |(sequence, (session, row)): (u64, (Option<&Session>, &weir_session::ledger::SummaryRow))| {
                let usage = Box::new(row.usage.clone());
                let event = match session {
                    Some(session) => {
                        Event::Usage { session: session.clone(), intervals: row.intervals, usage }
                    }
                    None => Event::Backlog { merged: 0, lost: 0, others: usage },
                };
                Entry { sequence, node: node.clone(), begin: row.begin, end: row.end, event }
            };
        (1..).zip(self.bill.rows()).map(entry).collect()
    }
}

/// What concerns the holder of a credential.
#[derive(Debug)]
struct Concern {
    /// The prefixes of his chain, the last of which is his own.
    chain: Vec<Text>,
    /// Sessions that are there, by what the ledger calls them, as he is told of them.
    sessions: BTreeMap<Session, Session>,
    /// What he calls sessions, by what the ledger calls them.
    names: BTreeMap<Name, Name>,
    /// How many sessions there were so far,
    count: u64,
    /// and of how many entries he was told.
    entries: u64,
}

impl Concern {
    fn of(credential: &Verified) -> Self {
        Self {
            chain: crate::authority::in_ledger(credential).1,
            sessions: BTreeMap::new(),
            names: BTreeMap::new(),
            count: 0,
            entries: 0,
        }
    }

    /// What he calls it, or whoever got his right from him makes under it; nothing where it is somebody else's.
    fn called(&self, session: &Session, holder: &Holder) -> Option<Name> {
        let his = self.chain.last()?;
        if !holder.credentials.contains(his) {
            return None;
        }
        let is_own = holder.credentials.last() == Some(his);
        Some(if is_own { holder.called.clone() } else { session.name.clone() })
    }

    fn told(&mut self, mut entry: Entry) -> Result<Option<Entry>, TooMany> {
        match &mut entry.event {
            // None of an earlier life of the node is left.
            Event::NodeStart { .. } => {
                self.sessions.clear();
                return Ok(None);
            }
            Event::Idle { idle } => {
                let told = idle.clone().told(|session| self.sessions.get(&session).cloned());
                return Ok(told.map(|idle| Entry { event: Event::Idle { idle }, ..entry }));
            }
            Event::Decision(decision) => return Ok(self.is_told(decision).then_some(entry)),
            Event::SessionCreated { session, holder: Some(holder), .. } => {
                let Some(name) = self.called(session, holder) else { return Ok(None) };
                self.count += 1;
                if self.sessions.len() >= SESSIONS_MAX {
                    return Err(TooMany);
                }
                self.remember(&session.name, &name);
                self.sessions.insert(session.clone(), Session { name, id: self.count });
            }
            _ => {}
        }
        let is_end = matches!(entry.event, Event::SessionClosed { .. });
        let Some(session) = entry.event.session_mut() else { return Ok(None) };
        let Some(told) = self.sessions.get(session).cloned() else { return Ok(None) };
        if is_end {
            self.sessions.remove(session);
        }
        *session = told;
        Ok(Some(entry))
    }

    fn remember(&mut self, name: &Name, called: &Name) {
        if self.names.len() >= NAMES_MAX && !self.names.contains_key(name) {
            let there = &self.sessions;
            self.names.retain(|name, _| there.keys().any(|session| session.name == *name));
        }
        self.names.insert(name.clone(), called.clone());
    }

    /// Whether he is told of a decision, which has the session's name that he knows then.
    fn is_told(&self, decision: &mut Decision) -> bool {
        let called = decision.session.as_ref().and_then(|name| {
            let name = Name::new(name.as_str()).ok()?;
            self.names.get(&name).map(|called| Text::new(called.as_str()))
        });
        let is_below = self.chain.last().is_some_and(|his| decision.credentials.contains(his));
        // The operator has no credential, and strangers have none that is worth anything.
        let is_above = match &decision.key {
            None => decision.credentials.is_empty(),
            Some(_) => !decision.credentials.is_empty() && self.chain.starts_with(&decision.credentials),
        };
        let is_told = is_below || (is_above && called.is_some());
        if let (true, Some(called)) = (is_told, called) {
            decision.session = Some(called);
        }
        is_told
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_session::ledger::{ByteSeconds, Closed, Idle, Outcome, Reserved, Usage};
    use weir_units::{Bytes, Nanos};

    const HIS: &str = "weir-id:his";
    const NODE: &str = "node";

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn session(text: &str, id: u64) -> Session {
        Session { name: name(text), id }
    }

    /// For somebody who has his right by way of somebody else.
    fn statement(part: LedgerPart) -> Statement {
        let concern = Concern {
            chain: ["weir-id:first", HIS].map(Text::new).into(),
            sessions: BTreeMap::new(),
            names: BTreeMap::new(),
            count: 0,
            entries: 0,
        };
        Statement {
            concern: Some(concern),
            ..Statement::new(None, LedgerAsk { part, ..LedgerAsk::default() })
        }
    }

    fn entry(event: Event) -> Entry {
        let (begin, end) = (Timestamp(Nanos::SECOND.0), Timestamp(2 * Nanos::SECOND.0));
        Entry { sequence: 1000, node: name(NODE), begin, end, event }
    }

    fn created(session: &Session, chain: &[&str]) -> Event {
        let credentials: Vec<Text> = chain.iter().map(|id| Text::new(id)).collect();
        let holder = Holder { called: name("s"), key: Text::new("weir-key:k"), credentials };
        Event::SessionCreated {
            session: session.clone(),
            reserved: Reserved::default(),
            holder: Some(Box::new(holder)),
        }
    }

    fn told(statement: &mut Statement, event: Event) -> Option<Event> {
        statement.take(entry(event)).unwrap().map(|entry| entry.event)
    }

    const MINE: &[&str] = &["weir-id:first", HIS];

    #[test]
    fn of_sessions_that_did_nothing_his_own_are_told() {
        let mut statement = statement(LedgerPart::Entries);
        let memory = ByteSeconds::of(Bytes(1 << 20), Nanos::SECOND);
        let idle = |sessions: &[Session]| {
            Idle::of(sessions.iter().map(|session| (session.clone(), memory)))
                .pop()
                .map(|idle| Event::Idle { idle })
        };
        let (mine, others) = (session("s-mine", 7), session("s-others", 8));
        told(&mut statement, created(&others, &["weir-id:other"]));
        // Nor those of whoever passed it on to him.
        told(&mut statement, created(&session("s-first", 6), &MINE[..1]));
        assert_eq!(told(&mut statement, idle(&[mine.clone(), others.clone()]).unwrap()), None);
        told(&mut statement, created(&mine, MINE));
        let both = || idle(&[mine.clone(), others.clone(), session("s-first", 6)]).unwrap();
        assert_eq!(told(&mut statement, both()), idle(&[session("s", 1)]));
        // In another life of the node the same numbers are others'.
        let start =
            Event::NodeStart { version: Text::new(""), configuration: weir_session::ledger::Digest::NONE };
        assert_eq!(told(&mut statement, start), None);
        assert_eq!(told(&mut statement, both()), None);
    }

    #[test]
    fn decisions_of_those_above_and_below_are_told_and_of_those_beside_are_not() {
        let mut statement = statement(LedgerPart::Decisions);
        let mine = session("s-mine", 7);
        told(&mut statement, created(&mine, MINE));
        let mut decided = |key: Option<&str>, chain: &[&str], session: Option<&str>| {
            let decision = Decision {
                key: key.map(Text::new),
                credentials: chain.iter().map(|id| Text::new(id)).collect(),
                session: session.map(Text::new),
                ..Decision::new("close", Outcome::Refused)
            };
            told(&mut statement, Event::Decision(Box::new(decision))).map(|event| match event {
                Event::Decision(decision) => decision.session.map(|session| session.to_string()),
                other => panic!("{other:?}"),
            })
        };
        let s = Some(Some("s".to_owned()));
        assert_eq!(decided(Some("k"), MINE, None), Some(None));
        assert_eq!(decided(Some("k"), MINE, Some("s-mine")), s);
        assert_eq!(
            decided(Some("k"), &["weir-id:first", HIS, "weir-id:below"], Some("other")),
            Some(Some("other".to_owned()))
        );
        assert_eq!(decided(Some("k"), &MINE[..1], Some("s-mine")), s);
        assert_eq!(decided(Some("k"), &MINE[..1], Some("s-first")), None);
        assert_eq!(decided(None, &[], Some("s-mine")), s);
        assert_eq!(decided(None, &[], Some("operators")), None);
        assert_eq!(decided(None, &[], None), None);
        // Somebody whose credential is worth nothing, and somebody beside him.
        assert_eq!(decided(Some("k"), &[], Some("s-mine")), None);
        assert_eq!(decided(Some("k"), &["weir-id:first", "weir-id:beside"], Some("s-mine")), None);
        // When it is closed, what was decided about that comes behind it.
        let closed = Event::SessionClosed { session: mine, reason: Closed::Asked };
        assert_eq!(told(&mut statement, closed), None);
        let asked =
            Decision { session: Some(Text::new("s-mine")), ..Decision::new("close", Outcome::Allowed) };
        assert!(told(&mut statement, Event::Decision(Box::new(asked))).is_some());
    }

    #[test]
    fn what_is_remembered_is_bounded_whatever_somebody_does() {
        let mut statement = statement(LedgerPart::Bill);
        for id in 0..10_000 {
            let session = session(&format!("s-{id}"), id);
            told(&mut statement, created(&session, MINE));
            told(&mut statement, Event::SessionClosed { session, reason: Closed::Asked });
        }
        let concern = statement.concern.as_ref().unwrap();
        assert!(concern.sessions.is_empty() && concern.names.len() <= NAMES_MAX, "{}", concern.names.len());
        let used = |statement: &mut Statement, id| {
            let session = session("s-more", id);
            statement.take(entry(created(&session, MINE))).unwrap();
            let usage = Box::new(Usage { packets_in: 1, ..Usage::default() });
            let used = statement.take(entry(Event::Usage { session: session.clone(), intervals: 1, usage }));
            _ = statement.take(entry(Event::SessionClosed { session, reason: Closed::Asked }));
            used
        };
        for id in 0..SESSIONS_MAX as u64 {
            assert_eq!(used(&mut statement, id), Ok(None));
        }
        assert_eq!(statement.bill.count(), SESSIONS_MAX);
        assert_eq!(used(&mut statement, SESSIONS_MAX as u64), Err(TooMany));
    }
}
