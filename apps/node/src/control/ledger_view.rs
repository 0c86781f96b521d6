//! The part of the ledger that a reader may see.
//!
//! The operator reads all of it. The holder of a credential reads about their own sessions: usage, events, and decisions on their own requests. They also read decisions on requests of earlier
//! holders of their chain about these sessions. Of a delegate's session they read the bill, the reservations, the beginning and the end, and requests of others than its owner about it. They do not
//! read which modules it runs, nor its owner's requests. Nothing tells of other holders: entries and sessions are renumbered for each reader, as the ledger's numbers count what others
//! did. Readers see their own sessions under the names that they gave them.

use crate::control::protocol::{LedgerAsk, LedgerPart};
use std::collections::{BTreeMap, BTreeSet};
use weir_admission::Name;
use weir_ledger::{
    CredentialHolder, Decision, LedgerEntry, LedgerEvent, LedgerText, RequestsRow, SessionId, SummaryRow,
    Usage, UsageSummary, is_decision,
};
use weir_ledger_files::EntryFilter;
use weir_trust::credential::VerifiedCredential;
use weir_units::Timestamp;

/// Sessions that are there at a time. A node has fewer; the end of one may be missing where the ledger could not be written.
const SESSIONS_MAX: usize = 16_384;
/// Names of a holder's sessions that are no more, which are remembered for what was decided about them.
const NAMES_MAX: usize = 4096;

/// It would be too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are more than {SESSIONS_MAX} sessions at a time in this ledger: ask for one with --session")]
pub(crate) struct TooMany;

/// What somebody is told of a ledger, whose entries it takes in their order, from the first on.
#[derive(Debug)]
pub(crate) struct LedgerView {
    concern: Option<Concern>,
    part: LedgerPart,
    filter: EntryFilter,
    bill: UsageSummary,
}

impl LedgerView {
    /// For the holder of a credential; for the operator where there is none. `there` are the sessions of the node at present, with whose they are.
    pub(crate) fn new(
        holder: Option<&VerifiedCredential>,
        ask: &LedgerAsk,
        there: impl IntoIterator<Item = (SessionId, CredentialHolder)>,
    ) -> Self {
        let concern = holder.map(|holder| Concern::of(holder, there));
        let (since, until) =
            (Timestamp(ask.since_ns.unwrap_or(0)), Timestamp(ask.until_ns.unwrap_or(u64::MAX)));
        let filter = EntryFilter { session: ask.session.clone(), since, until };
        Self { concern, part: ask.part, filter, bill: UsageSummary::new(since, until) }
    }

    /// Takes an entry, and adds what is told now.
    pub(crate) fn take(&mut self, entry: LedgerEntry, told: &mut Vec<LedgerEntry>) -> Result<(), TooMany> {
        // None of an earlier life of the node is left.
        if matches!(entry.event, LedgerEvent::NodeStart { .. }) {
            let rows = self.bill.take_all().map(|(session, row)| billed(&entry.node, session, row));
            told.extend(rows);
        }
        let entry = match &mut self.concern {
            Some(concern) => concern.told(entry)?,
            None => Some(entry),
        };
        let Some(entry) = entry else { return Ok(()) };
        if self.part == LedgerPart::Bill {
            return self.bill(entry, told);
        }
        let entry = self.filter.pick(entry);
        let is_wanted = |entry: &LedgerEntry| self.part == LedgerPart::Entries || is_decision(&entry.event);
        if let Some(mut entry) = entry.filter(is_wanted) {
            if let Some(concern) = &mut self.concern {
                concern.entries += 1;
                entry.sequence = concern.entries;
            }
            told.push(entry);
        }
        Ok(())
    }

    /// Of a bill a session is told when it has ended, so that there are never more of them to remember than the node had at a time.
    fn bill(&mut self, entry: LedgerEntry, told: &mut Vec<LedgerEntry>) -> Result<(), TooMany> {
        if let LedgerEvent::SessionClosed { session, .. } = &entry.event {
            let row = self.bill.take(session);
            told.extend(row.map(|row| billed(&entry.node, session.clone(), row)));
            return Ok(());
        }
        match self.filter.pick(entry) {
            // What could not be told apart is nobody's.
            Some(entry) if matches!(entry.event, LedgerEvent::Backlog { .. }) => told.push(entry),
            Some(entry) => self.bill.add(&entry),
            None => {}
        }
        if self.bill.count() > SESSIONS_MAX { Err(TooMany) } else { Ok(()) }
    }

    /// What is told when there are no more entries, and lines for people.
    pub(crate) fn finish(mut self, node: &Name) -> (Vec<LedgerEntry>, Vec<String>) {
        let requests = self.bill.take_requests().map(|(key, requests)| {
            let RequestsRow { credentials, count, row: SummaryRow { begin, end, usage, .. } } = requests;
            let event =
                LedgerEvent::Requests { key, credentials, count, refused: usage.refusals, cpu: usage.cpu };
            LedgerEntry { sequence: 0, node: node.clone(), begin, end, event }
        });
        let requests: Vec<LedgerEntry> = requests.collect();
        let rows = self.bill.take_all().map(|(session, row)| billed(node, session, row));
        let rows = rows.chain(requests).collect();
        let gap = "the node's ledger could not be written for a while, and is not complete: sessions or what became of them may be missing here";
        let has_gaps = self.concern.is_some_and(|concern| concern.has_gaps);
        (rows, has_gaps.then(|| gap.to_owned()).into_iter().collect())
    }
}

/// What a session used in several intervals, as one entry.
fn billed(node: &Name, session: SessionId, row: SummaryRow) -> LedgerEntry {
    let SummaryRow { begin, end, intervals, usage } = row;
    let event = LedgerEvent::Usage { session, intervals, usage: Box::new(usage) };
    LedgerEntry { sequence: 0, node: node.clone(), begin, end, event }
}

/// What concerns the holder of a credential.
#[derive(Debug)]
struct Concern {
    /// The prefixes of his chain, the last of which is his own.
    chain: Vec<LedgerText>,
    /// Sessions that are on the node now, as he is told of them: the line in which one began may be missing.
    there: BTreeMap<SessionId, Name>,
    /// Sessions that are there where the ledger is now, by what it calls them, as he is told of them.
    sessions: BTreeMap<SessionId, SessionId>,
    /// The sessions of delegates that are on the node now.
    there_below: BTreeSet<SessionId>,
    /// The sessions of delegates that exist at the ledger's present entry.
    below: BTreeSet<SessionId>,
    /// What he calls sessions, by what the ledger calls them.
    names: BTreeMap<Name, Name>,
    /// How many sessions there were so far,
    count: u64,
    /// and of how many entries he was told.
    entries: u64,
    /// Something was lost while the ledger could not be written.
    has_gaps: bool,
}

impl Concern {
    fn of(
        credential: &VerifiedCredential,
        there: impl IntoIterator<Item = (SessionId, CredentialHolder)>,
    ) -> Self {
        let mut concern = Self::by(crate::control::authority::in_ledger(credential).1);
        for (session, holder) in there {
            let Some(called) = concern.called(&session, &holder) else { continue };
            if !concern.is_own(&holder) {
                concern.there_below.insert(session.clone());
            }
            concern.there.insert(session, called);
        }
        concern
    }

    fn by(chain: Vec<LedgerText>) -> Self {
        Self {
            chain,
            there: BTreeMap::new(),
            sessions: BTreeMap::new(),
            there_below: BTreeSet::new(),
            below: BTreeSet::new(),
            names: BTreeMap::new(),
            count: 0,
            entries: 0,
            has_gaps: false,
        }
    }

    /// What he calls it, or whoever got his right from him makes under it; nothing where it is somebody else's.
    fn called(&self, session: &SessionId, holder: &CredentialHolder) -> Option<Name> {
        let his = self.chain.last()?;
        if !holder.credentials.iter().any(|id| is_same(id, his)) {
            return None;
        }
        let is_own = holder.credentials.last().is_some_and(|id| is_same(id, his));
        Some(if is_own { holder.called.clone() } else { session.name.clone() })
    }

    /// Returns true if a session of this holder is the reader's own.
    fn is_own(&self, holder: &CredentialHolder) -> bool {
        self.chain.last().zip(holder.credentials.last()).is_some_and(|(his, id)| is_same(id, his))
    }

    /// As he is told of a session; nothing where it is none of his.
    fn known(&mut self, session: &SessionId) -> Result<Option<SessionId>, TooMany> {
        if let Some(told) = self.sessions.get(session) {
            return Ok(Some(told.clone()));
        }
        let Some(name) = self.there.get(session).cloned() else { return Ok(None) };
        if self.there_below.contains(session) {
            self.below.insert(session.clone());
        }
        self.begin(session, name).map(Some)
    }

    fn begin(&mut self, session: &SessionId, name: Name) -> Result<SessionId, TooMany> {
        if self.sessions.len() >= SESSIONS_MAX {
            return Err(TooMany);
        }
        self.count += 1;
        self.remember(&session.name, &name);
        let told = SessionId { name, id: self.count };
        self.sessions.insert(session.clone(), told.clone());
        Ok(told)
    }

    fn told(&mut self, mut entry: LedgerEntry) -> Result<Option<LedgerEntry>, TooMany> {
        match &mut entry.event {
            // None of an earlier life of the node is left.
            LedgerEvent::NodeStart { .. } => {
                self.sessions.clear();
                self.below.clear();
                return Ok(None);
            }
            LedgerEvent::Backlog { lost, others, .. } => {
                self.has_gaps |= *lost > 0 || **others != Usage::default();
                return Ok(None);
            }
            LedgerEvent::Idle { idle } => {
                for (session, _) in idle.iter() {
                    self.known(session)?;
                }
                let told = idle.clone().told(|session| self.sessions.get(&session).cloned());
                return Ok(told.map(|idle| LedgerEntry { event: LedgerEvent::Idle { idle }, ..entry }));
            }
            LedgerEvent::Decision(decision) => return Ok(self.is_told(decision).then_some(entry)),
            // The reader's own, and those of their delegates.
            LedgerEvent::Requests { credentials, .. } => {
                let own = self.chain.last();
                let is_below = own.is_some_and(|own| credentials.iter().any(|id| is_same(id, own)));
                return Ok(is_below.then_some(entry));
            }
            LedgerEvent::SessionCreated { session, holder: Some(holder), .. } => {
                if let Some(name) =
                    self.called(session, holder).filter(|_| !self.sessions.contains_key(session))
                {
                    if !self.is_own(holder) {
                        self.below.insert(session.clone());
                    }
                    self.begin(session, name)?;
                }
            }
            _ => {}
        }
        let is_end = matches!(entry.event, LedgerEvent::SessionClosed { .. });
        // The modules of a session are its owner's business.
        let is_run = matches!(
            entry.event,
            LedgerEvent::ModuleLoaded { .. }
                | LedgerEvent::ModuleUnloaded { .. }
                | LedgerEvent::ModuleRefused { .. }
        );
        let Some(session) = entry.event.session_mut() else { return Ok(None) };
        let Some(told) = self.known(session)? else { return Ok(None) };
        if is_run && self.below.contains(session) {
            return Ok(None);
        }
        if is_end {
            self.sessions.remove(session);
            self.below.remove(session);
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
        let his = self.chain.last();
        let known = decision.session.as_ref().and_then(|name| {
            let name = Name::new(name.as_str()).ok()?;
            self.names.get(&name).map(|called| LedgerText::new(called.as_str()))
        });
        // The reader's own requests; delegates read their own.
        let is_own = his.zip(decision.credentials.last()).is_some_and(|(his, id)| is_same(id, his));
        // Nobody but the operator has no credential where it is about a session: strangers are asked for nothing about any.
        let is_above = known.is_some()
            && decision.credentials.len() <= self.chain.len()
            && decision.credentials.iter().zip(&self.chain).all(|(id, his)| is_same(id, his));
        if !is_own && !is_above {
            return false;
        }
        if decision.credentials.is_empty() {
            // Which of the operators it was is not for him.
            decision.key = None;
        }
        let called = decision.called.take().filter(|_| is_own).or(known);
        if let Some(called) = called {
            decision.session = Some(called);
        }
        true
    }
}

/// Compares identifiers without the times behind them: entries of earlier versions have none.
fn is_same(one: &LedgerText, other: &LedgerText) -> bool {
    fn id(text: &LedgerText) -> &str {
        text.as_str().split_once('@').map_or(text.as_str(), |(id, _)| id)
    }
    id(one) == id(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_ledger::{ByteSeconds, CloseReason, DecisionOutcome, Idle, Reserved};
    use weir_units::{Bytes, Nanos};

    const HIS: &str = "weir-id:his";
    const NODE: &str = "node";

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn session(text: &str, id: u64) -> SessionId {
        SessionId { name: name(text), id }
    }

    /// For somebody who has his right by way of somebody else.
    fn statement(part: LedgerPart) -> LedgerView {
        let concern = Concern::by(MINE.iter().map(|id| LedgerText::new(id)).collect());
        let ask = LedgerAsk { part, ..LedgerAsk::default() };
        LedgerView { concern: Some(concern), ..LedgerView::new(None, &ask, []) }
    }

    fn entry(event: LedgerEvent) -> LedgerEntry {
        let (begin, end) = (Timestamp(Nanos::SECOND.0), Timestamp(2 * Nanos::SECOND.0));
        LedgerEntry { sequence: 1000, node: name(NODE), begin, end, event }
    }

    fn created(session: &SessionId, chain: &[&str]) -> LedgerEvent {
        let credentials: Vec<LedgerText> = chain.iter().map(|id| LedgerText::new(id)).collect();
        let holder = CredentialHolder { called: name("s"), key: LedgerText::new("weir-key:k"), credentials };
        LedgerEvent::SessionCreated {
            session: session.clone(),
            reserved: Reserved::default(),
            holder: Some(Box::new(holder)),
        }
    }

    fn told(statement: &mut LedgerView, event: LedgerEvent) -> Option<LedgerEvent> {
        let mut told = Vec::new();
        statement.take(entry(event), &mut told).unwrap();
        assert!(told.len() <= 1, "{told:?}");
        told.pop().map(|entry| entry.event)
    }

    const MINE: &[&str] = &["weir-id:first", HIS];

    #[test]
    fn of_sessions_that_did_nothing_his_own_are_told() {
        let mut statement = statement(LedgerPart::Entries);
        let memory = ByteSeconds::of(Bytes(1 << 20), Nanos::SECOND);
        let idle = |sessions: &[SessionId]| {
            Idle::of(sessions.iter().map(|session| (session.clone(), memory)))
                .pop()
                .map(|idle| LedgerEvent::Idle { idle })
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
            LedgerEvent::NodeStart { version: LedgerText::new(""), configuration: weir_ledger::Digest::NONE };
        assert_eq!(told(&mut statement, start), None);
        assert_eq!(told(&mut statement, both()), None);
    }

    #[test]
    fn entries_of_an_earlier_version_which_have_no_times_are_the_same_holders() {
        let with_times: Vec<String> = MINE.iter().map(|id| format!("{id}@2027-01-01T00:00:00Z")).collect();
        let with_times: Vec<&str> = with_times.iter().map(String::as_str).collect();
        for (mine, entered) in [(MINE, &with_times[..]), (&with_times[..], MINE)] {
            let mut statement = statement(LedgerPart::Decisions);
            statement.concern = Some(Concern::by(mine.iter().map(|id| LedgerText::new(id)).collect()));
            assert!(told(&mut statement, created(&session("s-mine", 7), entered)).is_none());
            let decided = |chain: &[&str]| Decision {
                credentials: chain.iter().map(|id| LedgerText::new(id)).collect(),
                session: Some(LedgerText::new("s-mine")),
                ..Decision::new("close", DecisionOutcome::Refused)
            };
            for chain in [entered, &entered[..1]] {
                let told = told(&mut statement, LedgerEvent::Decision(Box::new(decided(chain))));
                assert!(
                    matches!(told, Some(LedgerEvent::Decision(it)) if it.session == Some(LedgerText::new("s")))
                );
            }
            let beside = ["weir-id:first", "weir-id:hi@2027-01-01T00:00:00Z"];
            assert_eq!(told(&mut statement, LedgerEvent::Decision(Box::new(decided(&beside)))), None);
        }
    }

    #[test]
    fn requests_are_told_with_those_of_delegates_also_where_several_holders_are_added_up() {
        const FIRST: &str = "weir-id:first@2027-01-01T00:00:00Z";
        let mut statement = statement(LedgerPart::Entries);
        statement.concern = Some(Concern::by(vec![LedgerText::new(FIRST)]));
        let requests = |key: Option<&str>, credentials: &[&str]| LedgerEvent::Requests {
            key: key.map(LedgerText::new),
            credentials: credentials.iter().map(|id| LedgerText::new(id)).collect(),
            count: 1,
            refused: 0,
            cpu: Nanos(1),
        };
        // A holder's own, a delegate's, and those of further delegates: their sum has the first link, without a time.
        for (key, chain) in
            [(Some("k"), &[FIRST][..]), (Some("d"), &[FIRST, "weir-id:below"]), (None, &["weir-id:first"])]
        {
            assert!(told(&mut statement, requests(key, chain)).is_some(), "{chain:?}");
        }
        for chain in [&["weir-id:other"][..], &["weir-id:other", "weir-id:below"], &[]] {
            assert_eq!(told(&mut statement, requests(None, chain)), None, "{chain:?}");
        }
    }

    #[test]
    fn own_decisions_are_told_and_those_of_others_where_they_are_about_own_sessions() {
        let mut statement = statement(LedgerPart::Decisions);
        let mine = session("s-mine", 7);
        told(&mut statement, created(&mine, MINE));
        let mut decided = |key: Option<&str>, chain: &[&str], session: Option<&str>| {
            let decision = Decision {
                key: key.map(LedgerText::new),
                credentials: chain.iter().map(|id| LedgerText::new(id)).collect(),
                session: session.map(LedgerText::new),
                ..Decision::new("close", DecisionOutcome::Refused)
            };
            told(&mut statement, LedgerEvent::Decision(Box::new(decision))).map(|event| match event {
                LedgerEvent::Decision(decision) => decision.session.map(|session| session.to_string()),
                other => panic!("{other:?}"),
            })
        };
        let s = Some(Some("s".to_owned()));
        assert_eq!(decided(Some("k"), MINE, None), Some(None));
        assert_eq!(decided(Some("k"), MINE, Some("s-mine")), s);
        // A delegate's requests are the delegate's.
        assert_eq!(decided(Some("k"), &["weir-id:first", HIS, "weir-id:below"], Some("other")), None);
        assert_eq!(decided(Some("k"), &["weir-id:first", HIS, "weir-id:below"], None), None);
        assert_eq!(decided(Some("k"), &MINE[..1], Some("s-mine")), s);
        assert_eq!(decided(Some("k"), &MINE[..1], Some("s-first")), None);
        assert_eq!(decided(None, &[], Some("s-mine")), s);
        // The operator from elsewhere.
        assert_eq!(decided(Some("k"), &[], Some("s-mine")), s);
        assert_eq!(decided(None, &[], Some("operators")), None);
        assert_eq!(decided(None, &[], None), None);
        // Somebody whose credential is worth nothing, who is never asked for a session, and somebody beside him.
        assert_eq!(decided(Some("k"), &[], None), None);
        assert_eq!(decided(Some("k"), &["weir-id:first", "weir-id:beside"], Some("s-mine")), None);
        // When it is closed, what was decided about that comes behind it.
        let closed = LedgerEvent::SessionClosed { session: mine, reason: CloseReason::Asked };
        assert_eq!(told(&mut statement, closed), None);
        let asked = Decision {
            session: Some(LedgerText::new("s-mine")),
            ..Decision::new("close", DecisionOutcome::Allowed)
        };
        assert!(told(&mut statement, LedgerEvent::Decision(Box::new(asked))).is_some());
    }

    #[test]
    fn of_a_delegates_session_the_bill_the_beginning_and_the_end_are_told_and_not_what_it_runs() {
        let below: &[&str] = &[MINE[0], MINE[1], "weir-id:below"];
        let (own, delegates) = (session("s-mine", 7), session("s-below", 8));
        let of = |session: &SessionId| {
            let (session, module) = (session.clone(), name("rtt"));
            let unloaded = weir_ledger::Unloaded::Asked;
            let usage = Box::new(Usage { packets_in: 1, ..Usage::default() });
            let run = LedgerEvent::ModuleUnloaded { session: session.clone(), module, reason: unloaded };
            (run, LedgerEvent::Usage { session, intervals: 1, usage })
        };
        let mut statement = statement(LedgerPart::Entries);
        assert!(told(&mut statement, created(&own, MINE)).is_some());
        assert!(told(&mut statement, created(&delegates, below)).is_some());
        for (session, is_run_told) in [(&own, true), (&delegates, false)] {
            let (run, usage) = of(session);
            assert_eq!(told(&mut statement, run).is_some(), is_run_told);
            assert!(told(&mut statement, usage).is_some());
        }
        let closed = LedgerEvent::SessionClosed { session: delegates.clone(), reason: CloseReason::Asked };
        assert!(told(&mut statement, closed).is_some());
        assert!(statement.concern.as_ref().is_some_and(|concern| concern.below.is_empty()));
        // The same where the line in which the session began is missing.
        let concern = statement.concern.as_mut().unwrap();
        concern.there.insert(delegates.clone(), delegates.name.clone());
        concern.there_below.insert(delegates.clone());
        let (run, usage) = of(&delegates);
        assert_eq!(told(&mut statement, run), None);
        assert!(told(&mut statement, usage).is_some());
    }

    #[test]
    fn a_session_that_never_was_has_the_name_that_he_gave_it() {
        let mut statement = statement(LedgerPart::Entries);
        statement.filter.session = Some(name("more"));
        let refused = |chain: &[&str]| {
            let credentials = chain.iter().map(|id| LedgerText::new(id)).collect();
            let (session, called) = (Some(LedgerText::new("more-hash")), Some(LedgerText::new("more")));
            let of = Decision::new("create", DecisionOutcome::Refused);
            LedgerEvent::Decision(Box::new(Decision { credentials, session, called, ..of }))
        };
        let Some(LedgerEvent::Decision(decision)) = told(&mut statement, refused(MINE)) else {
            panic!("not told")
        };
        assert_eq!((decision.session, decision.called), (Some(LedgerText::new("more")), None));
        // What a delegate of his calls so is another one.
        assert_eq!(told(&mut statement, refused(&[MINE[0], MINE[1], "weir-id:below"])), None);
    }

    #[test]
    fn what_is_remembered_is_bounded_whatever_somebody_does_and_every_session_is_told() {
        let mut statement = statement(LedgerPart::Bill);
        let mut sum = UsageSummary::default();
        let mut told = Vec::new();
        for id in 0..10_000 {
            let session = session(&format!("s-{id}"), id);
            let usage = Box::new(Usage { packets_in: 1, ..Usage::default() });
            for event in [
                created(&session, MINE),
                LedgerEvent::Usage { session: session.clone(), intervals: 1, usage: usage.clone() },
                LedgerEvent::Usage { session: session.clone(), intervals: 1, usage },
                LedgerEvent::SessionClosed { session, reason: CloseReason::Asked },
            ] {
                statement.take(entry(event), &mut told).unwrap();
            }
            assert!(told.len() <= 1 && statement.bill.count() == 0);
            told.drain(..).for_each(|entry| sum.add(&entry));
        }
        let concern = statement.concern.as_ref().unwrap();
        assert!(concern.sessions.is_empty() && concern.names.len() <= NAMES_MAX, "{}", concern.names.len());
        assert_eq!((sum.count(), sum.total().packets_in), (10_000, 20_000));
        assert!(sum.rows().all(|(_, row)| row.intervals == 2));
        // Ends that are missing, because they were lost.
        let begin = |statement: &mut LedgerView, id| {
            statement.take(entry(created(&session("s-more", id), MINE)), &mut Vec::new())
        };
        for id in 0..SESSIONS_MAX as u64 {
            assert_eq!(begin(&mut statement, id), Ok(()));
        }
        assert_eq!(begin(&mut statement, SESSIONS_MAX as u64), Err(TooMany));
    }

    #[test]
    fn where_the_ledger_has_gaps_sessions_that_are_there_are_told_and_that_it_has() {
        let mine = session("s-mine", 7);
        let mut statement = statement(LedgerPart::Bill);
        let concern = statement.concern.as_mut().unwrap();
        concern.there.insert(mine.clone(), name("s"));
        let lost = LedgerEvent::Backlog { merged: 0, lost: 1, others: Box::default() };
        assert_eq!(told(&mut statement, lost), None);
        let usage = Box::new(Usage { packets_in: 1, ..Usage::default() });
        for session in [mine, session("s-others", 8)] {
            let used = LedgerEvent::Usage { session, intervals: 1, usage: usage.clone() };
            assert_eq!(told(&mut statement, used), None);
        }
        let (rows, notes) = statement.finish(&name(NODE));
        let rows: Vec<_> = rows.into_iter().map(|row| row.event).collect();
        assert_eq!(rows, [LedgerEvent::Usage { session: session("s", 1), intervals: 1, usage }]);
        assert_eq!(notes.len(), 1);
    }
}
