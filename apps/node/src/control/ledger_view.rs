//! The part of the ledger that a reader may see.
//!
//! The operator reads the whole ledger. The holder of a credential reads
//!
//! - usage and events of their own sessions, and decisions on their own requests;
//! - decisions on requests about their sessions by earlier holders of their chain;
//! - of a delegate's session: the usage, the reservations, the begin and the end, and decisions on requests about the
//!   session by the holder or earlier holders of the chain, but neither its modules nor its owner's requests.
//!
//! Nothing reveals other holders: entries and sessions are renumbered for each reader, since the ledger's numbers
//! count the activity of all holders. Readers see their own sessions under the names that they gave them.

use crate::control::protocol::{LedgerPart, LedgerRequest};
use std::collections::{BTreeMap, BTreeSet};
use weir_admission::Name;
use weir_ledger::{
    CredentialHolder, Decision, LedgerEntry, LedgerEvent, LedgerText, RequestsRow, SessionId, SummaryRow,
    Usage, UsageSummary, is_decision,
};
use weir_ledger_files::EntryFilter;
use weir_trust::credential::VerifiedCredential;
use weir_units::Timestamp;

/// Maximum number of sessions that a view follows at a time. A node has fewer sessions at a time, but a view also
/// follows closed sessions whose last entry could not be written.
const SESSIONS_MAX: usize = 16_384;
/// Maximum number of remembered names of a holder's sessions. Names of closed sessions are remembered because
/// decisions about these sessions can follow.
const NAMES_MAX: usize = 4096;

/// A view of a ledger would follow more than [`SESSIONS_MAX`] sessions at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there are more than {SESSIONS_MAX} sessions at a time in this ledger: select one of them with --session"
)]
pub(crate) struct TooManySessions;

/// A reader's view of a ledger: converts all entries of the ledger, in order, to the entries for the reader.
#[derive(Debug)]
pub(crate) struct LedgerView {
    holder_view: Option<HolderView>,
    part: LedgerPart,
    filter: EntryFilter,
    usage: UsageSummary,
}

impl LedgerView {
    /// Creates the view of a credential's holder, or of the operator if `holder` is `None`. `present` are the present
    /// sessions of the node with their owners.
    pub(crate) fn new(
        holder: Option<&VerifiedCredential>,
        request: &LedgerRequest,
        present: impl IntoIterator<Item = (SessionId, CredentialHolder)>,
    ) -> Self {
        let holder_view = holder.map(|holder| HolderView::for_holder(holder, present));
        let (since, until) =
            (Timestamp(request.since_ns.unwrap_or(0)), Timestamp(request.until_ns.unwrap_or(u64::MAX)));
        let filter = EntryFilter { session: request.session.clone(), since, until };
        Self { holder_view, part: request.part, filter, usage: UsageSummary::new(since, until) }
    }

    /// Processes the next entry of the ledger, and adds to `out` the entries for the reader.
    pub(crate) fn add(
        &mut self,
        entry: LedgerEntry,
        out: &mut Vec<LedgerEntry>,
    ) -> Result<(), TooManySessions> {
        // No session survives a restart of the node.
        if matches!(entry.event, LedgerEvent::NodeStart { .. }) {
            let rows = self.usage.take_all().map(|(session, row)| usage_entry(&entry.node, session, row));
            out.extend(rows);
        }
        let entry = match &mut self.holder_view {
            Some(holder_view) => holder_view.entry_for_reader(entry)?,
            None => Some(entry),
        };
        let Some(entry) = entry else { return Ok(()) };
        if self.part == LedgerPart::Usage {
            return self.add_usage(entry, out);
        }
        let entry = self.filter.pick(entry);
        let is_wanted = |entry: &LedgerEntry| self.part == LedgerPart::Entries || is_decision(&entry.event);
        if let Some(mut entry) = entry.filter(is_wanted) {
            if let Some(holder_view) = &mut self.holder_view {
                holder_view.entries += 1;
                entry.sequence = holder_view.entries;
            }
            out.push(entry);
        }
        Ok(())
    }

    /// Adds an entry to the sums of usage. The sum of a session is reported when the session ends, so the number of
    /// sums is bounded by the number of sessions at a time.
    fn add_usage(&mut self, entry: LedgerEntry, out: &mut Vec<LedgerEntry>) -> Result<(), TooManySessions> {
        if let LedgerEvent::SessionClosed { session, .. } = &entry.event {
            let row = self.usage.take(session);
            out.extend(row.map(|row| usage_entry(&entry.node, session.clone(), row)));
            return Ok(());
        }
        match self.filter.pick(entry) {
            // A backlog entry has the usage of several sessions.
            Some(entry) if matches!(entry.event, LedgerEvent::Backlog { .. }) => out.push(entry),
            Some(entry) => self.usage.add(&entry),
            None => {}
        }
        if self.usage.count() > SESSIONS_MAX { Err(TooManySessions) } else { Ok(()) }
    }

    /// Returns the remaining entries, and notes for the reader.
    pub(crate) fn finish(mut self, node: &Name) -> (Vec<LedgerEntry>, Vec<String>) {
        let requests = self.usage.take_requests().map(|(key, requests)| {
            let RequestsRow { credentials, count, row: SummaryRow { begin, end, usage, .. } } = requests;
            let event =
                LedgerEvent::Requests { key, credentials, count, refused: usage.refusals, cpu: usage.cpu };
            LedgerEntry { sequence: 0, node: node.clone(), begin, end, event }
        });
        let requests: Vec<LedgerEntry> = requests.collect();
        let rows = self.usage.take_all().map(|(session, row)| usage_entry(node, session, row));
        let rows = rows.chain(requests).collect();
        let gap = "the node's ledger could not be written for a while: entries may be missing here";
        let has_gaps = self.holder_view.is_some_and(|holder_view| holder_view.has_gaps);
        (rows, has_gaps.then(|| gap.to_owned()).into_iter().collect())
    }
}

/// Returns the entry for a session's usage in several intervals.
fn usage_entry(node: &Name, session: SessionId, row: SummaryRow) -> LedgerEntry {
    let SummaryRow { begin, end, intervals, usage } = row;
    let event = LedgerEvent::Usage { session, intervals, usage: Box::new(usage) };
    LedgerEntry { sequence: 0, node: node.clone(), begin, end, event }
}

/// The sessions and decisions that concern a holder.
#[derive(Debug)]
struct HolderView {
    /// Identifiers of the reader's delegation chain; the last one is that of the reader's credential.
    chain: Vec<LedgerText>,
    /// Sessions that are on the node now, with the reader's names. They are needed if a session's entry of creation is
    /// missing.
    present: BTreeMap<SessionId, Name>,
    /// Sessions that existed at the time of the latest entry: the ledger's id, and the reader's id.
    sessions: BTreeMap<SessionId, SessionId>,
    /// Sessions of delegates that are on the node now.
    delegates_present: BTreeSet<SessionId>,
    /// Sessions of delegates that existed at the time of the latest entry.
    delegates: BTreeSet<SessionId>,
    /// The reader's name of each session, by the ledger's name.
    names: BTreeMap<Name, Name>,
    /// Number of sessions so far, from which the reader's ids are assigned.
    session_count: u64,
    /// Number of entries for the reader so far, from which their sequence numbers are assigned.
    entries: u64,
    /// True if entries are missing because the ledger could not be written.
    has_gaps: bool,
}

impl HolderView {
    fn for_holder(
        credential: &VerifiedCredential,
        present: impl IntoIterator<Item = (SessionId, CredentialHolder)>,
    ) -> Self {
        let mut holder_view = Self::with_chain(crate::control::authority::in_ledger(credential).1);
        for (session, holder) in present {
            let Some(called) = holder_view.reader_name(&session, &holder) else { continue };
            if !holder_view.is_own(&holder) {
                holder_view.delegates_present.insert(session.clone());
            }
            holder_view.present.insert(session, called);
        }
        holder_view
    }

    fn with_chain(chain: Vec<LedgerText>) -> Self {
        Self {
            chain,
            present: BTreeMap::new(),
            sessions: BTreeMap::new(),
            delegates_present: BTreeSet::new(),
            delegates: BTreeSet::new(),
            names: BTreeMap::new(),
            session_count: 0,
            entries: 0,
            has_gaps: false,
        }
    }

    /// Returns the reader's name of a session; `None` if the session belongs neither to the reader nor to a delegate.
    fn reader_name(&self, session: &SessionId, holder: &CredentialHolder) -> Option<Name> {
        let own_id = self.chain.last()?;
        if !holder.credentials.iter().any(|id| is_same_id(id, own_id)) {
            return None;
        }
        let is_own = holder.credentials.last().is_some_and(|id| is_same_id(id, own_id));
        Some(if is_own { holder.called.clone() } else { session.name.clone() })
    }

    /// Returns true if a session with this owner belongs to the reader.
    fn is_own(&self, holder: &CredentialHolder) -> bool {
        self.chain.last().zip(holder.credentials.last()).is_some_and(|(own_id, id)| is_same_id(id, own_id))
    }

    /// Returns the reader's id of a session; `None` if the session does not concern the reader.
    fn reader_id(&mut self, session: &SessionId) -> Result<Option<SessionId>, TooManySessions> {
        if let Some(id) = self.sessions.get(session) {
            return Ok(Some(id.clone()));
        }
        let Some(name) = self.present.get(session).cloned() else { return Ok(None) };
        if self.delegates_present.contains(session) {
            self.delegates.insert(session.clone());
        }
        self.begin(session, name).map(Some)
    }

    fn begin(&mut self, session: &SessionId, name: Name) -> Result<SessionId, TooManySessions> {
        if self.sessions.len() >= SESSIONS_MAX {
            return Err(TooManySessions);
        }
        self.session_count += 1;
        self.remember(&session.name, &name);
        let id = SessionId { name, id: self.session_count };
        self.sessions.insert(session.clone(), id.clone());
        Ok(id)
    }

    fn entry_for_reader(&mut self, mut entry: LedgerEntry) -> Result<Option<LedgerEntry>, TooManySessions> {
        match &mut entry.event {
            // No session survives a restart of the node.
            LedgerEvent::NodeStart { .. } => {
                self.sessions.clear();
                self.delegates.clear();
                return Ok(None);
            }
            LedgerEvent::Backlog { lost, others, .. } => {
                self.has_gaps |= *lost > 0 || **others != Usage::default();
                return Ok(None);
            }
            LedgerEvent::Idle { idle } => {
                for (session, _) in idle.iter() {
                    self.reader_id(session)?;
                }
                let shown = idle.clone().map_sessions(|session| self.sessions.get(&session).cloned());
                return Ok(shown.map(|idle| LedgerEntry { event: LedgerEvent::Idle { idle }, ..entry }));
            }
            LedgerEvent::Decision(decision) => return Ok(self.convert_decision(decision).then_some(entry)),
            // The reader gets the cost of their own requests and of their delegates' requests.
            LedgerEvent::Requests { credentials, .. } => {
                let own = self.chain.last();
                let is_below = own.is_some_and(|own| credentials.iter().any(|id| is_same_id(id, own)));
                return Ok(is_below.then_some(entry));
            }
            LedgerEvent::SessionCreated { session, holder: Some(holder), .. } => {
                if let Some(name) =
                    self.reader_name(session, holder).filter(|_| !self.sessions.contains_key(session))
                {
                    if !self.is_own(holder) {
                        self.delegates.insert(session.clone());
                    }
                    self.begin(session, name)?;
                }
            }
            _ => {}
        }
        let is_end = matches!(entry.event, LedgerEvent::SessionClosed { .. });
        // Only the owner of a session reads about its modules.
        let is_about_module = matches!(
            entry.event,
            LedgerEvent::ModuleLoaded { .. }
                | LedgerEvent::CodeWithdrawn { .. }
                | LedgerEvent::ModuleUnloaded { .. }
                | LedgerEvent::ModuleRefused { .. }
        );
        let Some(session) = entry.event.session_mut() else { return Ok(None) };
        let Some(id) = self.reader_id(session)? else { return Ok(None) };
        if is_about_module && self.delegates.contains(session) {
            return Ok(None);
        }
        if is_end {
            self.sessions.remove(session);
            self.delegates.remove(session);
        }
        *session = id;
        Ok(Some(entry))
    }

    fn remember(&mut self, name: &Name, called: &Name) {
        if self.names.len() >= NAMES_MAX && !self.names.contains_key(name) {
            let sessions = &self.sessions;
            self.names.retain(|name, _| sessions.keys().any(|session| session.name == *name));
        }
        self.names.insert(name.clone(), called.clone());
    }

    /// Returns true if the reader may read a decision. Replaces the session's name in the decision by the reader's name.
    fn convert_decision(&self, decision: &mut Decision) -> bool {
        let own_id = self.chain.last();
        let known = decision.session.as_ref().and_then(|name| {
            let name = Name::new(name.as_str()).ok()?;
            self.names.get(&name).map(|called| LedgerText::new(called.as_str()))
        });
        // A reader gets the decisions on their own requests, but not those on their delegates' requests.
        let is_own =
            own_id.zip(decision.credentials.last()).is_some_and(|(own_id, id)| is_same_id(id, own_id));
        // A decision that names a session but no credential is on a request of the operator: strangers' requests are
        // refused before their session is known.
        let is_by_delegator = known.is_some()
            && decision.credentials.len() <= self.chain.len()
            && decision.credentials.iter().zip(&self.chain).all(|(id, own_id)| is_same_id(id, own_id));
        if !is_own && !is_by_delegator {
            return false;
        }
        if decision.credentials.is_empty() {
            // Holders do not get the operator's key.
            decision.key = None;
        }
        let called = decision.called.take().filter(|_| is_own).or(known);
        if let Some(called) = called {
            decision.session = Some(called);
        }
        true
    }
}

/// Compares identifiers without the times at which they expire, because entries of earlier versions lack these times.
fn is_same_id(one: &LedgerText, other: &LedgerText) -> bool {
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

    const OWN: &str = "weir-id:mine";
    const NODE: &str = "node";

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn session(text: &str, id: u64) -> SessionId {
        SessionId { name: name(text), id }
    }

    /// Creates the view of a delegate.
    fn view(part: LedgerPart) -> LedgerView {
        let holder_view = HolderView::with_chain(MINE.iter().map(|id| LedgerText::new(id)).collect());
        let request = LedgerRequest { part, ..LedgerRequest::default() };
        LedgerView { holder_view: Some(holder_view), ..LedgerView::new(None, &request, []) }
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

    fn add_one(view: &mut LedgerView, event: LedgerEvent) -> Option<LedgerEvent> {
        let mut shown = Vec::new();
        view.add(entry(event), &mut shown).unwrap();
        assert!(shown.len() <= 1, "{shown:?}");
        shown.pop().map(|entry| entry.event)
    }

    const MINE: &[&str] = &["weir-id:first", OWN];

    #[test]
    fn a_holder_reads_about_their_own_idle_sessions() {
        let mut view = view(LedgerPart::Entries);
        let memory = ByteSeconds::held_for(Bytes(1 << 20), Nanos::SECOND);
        let idle = |sessions: &[SessionId]| {
            Idle::entries(sessions.iter().map(|session| (session.clone(), memory)))
                .pop()
                .map(|idle| LedgerEvent::Idle { idle })
        };
        let (mine, others) = (session("s-mine", 7), session("s-others", 8));
        add_one(&mut view, created(&others, &["weir-id:other"]));
        // Neither those of the reader's delegator.
        add_one(&mut view, created(&session("s-first", 6), &MINE[..1]));
        assert_eq!(add_one(&mut view, idle(&[mine.clone(), others.clone()]).unwrap()), None);
        add_one(&mut view, created(&mine, MINE));
        let both = || idle(&[mine.clone(), others.clone(), session("s-first", 6)]).unwrap();
        assert_eq!(add_one(&mut view, both()), idle(&[session("s", 1)]));
        // After a restart the same numbers belong to others.
        let start =
            LedgerEvent::NodeStart { version: LedgerText::new(""), configuration: weir_ledger::Digest::NONE };
        assert_eq!(add_one(&mut view, start), None);
        assert_eq!(add_one(&mut view, both()), None);
    }

    #[test]
    fn identifiers_of_an_earlier_version_without_times_mean_the_same_holders() {
        let with_times: Vec<String> = MINE.iter().map(|id| format!("{id}@2027-01-01T00:00:00Z")).collect();
        let with_times: Vec<&str> = with_times.iter().map(String::as_str).collect();
        for (mine, entered) in [(MINE, &with_times[..]), (&with_times[..], MINE)] {
            let mut view = view(LedgerPart::Decisions);
            view.holder_view =
                Some(HolderView::with_chain(mine.iter().map(|id| LedgerText::new(id)).collect()));
            assert!(add_one(&mut view, created(&session("s-mine", 7), entered)).is_none());
            let decided = |chain: &[&str]| Decision {
                credentials: chain.iter().map(|id| LedgerText::new(id)).collect(),
                session: Some(LedgerText::new("s-mine")),
                ..Decision::new("close", DecisionOutcome::Refused)
            };
            for chain in [entered, &entered[..1]] {
                let shown = add_one(&mut view, LedgerEvent::Decision(Box::new(decided(chain))));
                assert!(
                    matches!(shown, Some(LedgerEvent::Decision(it)) if it.session == Some(LedgerText::new("s")))
                );
            }
            let beside = ["weir-id:first", "weir-id:hi@2027-01-01T00:00:00Z"];
            assert_eq!(add_one(&mut view, LedgerEvent::Decision(Box::new(decided(&beside)))), None);
        }
    }

    #[test]
    fn a_holder_reads_their_requests_and_those_of_delegates_also_in_sums() {
        const FIRST: &str = "weir-id:first@2027-01-01T00:00:00Z";
        let mut view = view(LedgerPart::Entries);
        view.holder_view = Some(HolderView::with_chain(vec![LedgerText::new(FIRST)]));
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
            assert!(add_one(&mut view, requests(key, chain)).is_some(), "{chain:?}");
        }
        for chain in [&["weir-id:other"][..], &["weir-id:other", "weir-id:below"], &[]] {
            assert_eq!(add_one(&mut view, requests(None, chain)), None, "{chain:?}");
        }
    }

    #[test]
    fn a_holder_reads_their_own_decisions_and_those_of_others_about_their_sessions() {
        let mut view = view(LedgerPart::Decisions);
        let mine = session("s-mine", 7);
        add_one(&mut view, created(&mine, MINE));
        let mut decided = |key: Option<&str>, chain: &[&str], session: Option<&str>| {
            let decision = Decision {
                key: key.map(LedgerText::new),
                credentials: chain.iter().map(|id| LedgerText::new(id)).collect(),
                session: session.map(LedgerText::new),
                ..Decision::new("close", DecisionOutcome::Refused)
            };
            add_one(&mut view, LedgerEvent::Decision(Box::new(decision))).map(|event| match event {
                LedgerEvent::Decision(decision) => decision.session.map(|session| session.to_string()),
                other => panic!("{other:?}"),
            })
        };
        let s = Some(Some("s".to_owned()));
        assert_eq!(decided(Some("k"), MINE, None), Some(None));
        assert_eq!(decided(Some("k"), MINE, Some("s-mine")), s);
        // Only a delegate reads the delegate's requests.
        assert_eq!(decided(Some("k"), &["weir-id:first", OWN, "weir-id:below"], Some("other")), None);
        assert_eq!(decided(Some("k"), &["weir-id:first", OWN, "weir-id:below"], None), None);
        assert_eq!(decided(Some("k"), &MINE[..1], Some("s-mine")), s);
        assert_eq!(decided(Some("k"), &MINE[..1], Some("s-first")), None);
        assert_eq!(decided(None, &[], Some("s-mine")), s);
        // A remote operator.
        assert_eq!(decided(Some("k"), &[], Some("s-mine")), s);
        assert_eq!(decided(None, &[], Some("operators")), None);
        assert_eq!(decided(None, &[], None), None);
        // A peer with an invalid credential, whose request is never examined, and an unrelated holder.
        assert_eq!(decided(Some("k"), &[], None), None);
        assert_eq!(decided(Some("k"), &["weir-id:first", "weir-id:beside"], Some("s-mine")), None);
        // After the close come decisions about the session.
        let closed = LedgerEvent::SessionClosed { session: mine, reason: CloseReason::Requested };
        assert_eq!(add_one(&mut view, closed), None);
        let requested = Decision {
            session: Some(LedgerText::new("s-mine")),
            ..Decision::new("close", DecisionOutcome::Allowed)
        };
        assert!(add_one(&mut view, LedgerEvent::Decision(Box::new(requested))).is_some());
    }

    #[test]
    fn a_delegator_reads_usage_begin_and_end_of_a_delegates_session_but_not_its_modules() {
        let below: &[&str] = &[MINE[0], MINE[1], "weir-id:below"];
        let (own, delegates) = (session("s-mine", 7), session("s-below", 8));
        let of = |session: &SessionId| {
            let (session, module) = (session.clone(), name("rtt"));
            let unloaded = weir_ledger::UnloadReason::Requested;
            let usage = Box::new(Usage { packets_in: 1, ..Usage::default() });
            let run = LedgerEvent::ModuleUnloaded { session: session.clone(), module, reason: unloaded };
            (run, LedgerEvent::Usage { session, intervals: 1, usage })
        };
        let mut view = view(LedgerPart::Entries);
        assert!(add_one(&mut view, created(&own, MINE)).is_some());
        assert!(add_one(&mut view, created(&delegates, below)).is_some());
        for (session, shows_run) in [(&own, true), (&delegates, false)] {
            let (run, usage) = of(session);
            assert_eq!(add_one(&mut view, run).is_some(), shows_run);
            assert!(add_one(&mut view, usage).is_some());
        }
        let closed =
            LedgerEvent::SessionClosed { session: delegates.clone(), reason: CloseReason::Requested };
        assert!(add_one(&mut view, closed).is_some());
        assert!(view.holder_view.as_ref().is_some_and(|holder_view| holder_view.delegates.is_empty()));
        // The same if the entry of the session's begin is missing.
        let holder_view = view.holder_view.as_mut().unwrap();
        holder_view.present.insert(delegates.clone(), delegates.name.clone());
        holder_view.delegates_present.insert(delegates.clone());
        let (run, usage) = of(&delegates);
        assert_eq!(add_one(&mut view, run), None);
        assert!(add_one(&mut view, usage).is_some());
    }

    #[test]
    fn a_refused_session_has_the_name_that_its_requester_gave_it() {
        let mut view = view(LedgerPart::Entries);
        view.filter.session = Some(name("more"));
        let refused = |chain: &[&str]| {
            let credentials = chain.iter().map(|id| LedgerText::new(id)).collect();
            let (session, called) = (Some(LedgerText::new("more-hash")), Some(LedgerText::new("more")));
            let of = Decision::new("create", DecisionOutcome::Refused);
            LedgerEvent::Decision(Box::new(Decision { credentials, session, called, ..of }))
        };
        let Some(LedgerEvent::Decision(decision)) = add_one(&mut view, refused(MINE)) else {
            panic!("not shown")
        };
        assert_eq!((decision.session, decision.called), (Some(LedgerText::new("more")), None));
        // A delegate's session of that name is another one.
        assert_eq!(add_one(&mut view, refused(&[MINE[0], MINE[1], "weir-id:below"])), None);
    }

    #[test]
    fn the_memory_of_a_ledger_view_is_bounded_and_every_session_is_reported() {
        let mut view = view(LedgerPart::Usage);
        let mut sum = UsageSummary::default();
        let mut shown = Vec::new();
        for id in 0..10_000 {
            let session = session(&format!("s-{id}"), id);
            let usage = Box::new(Usage { packets_in: 1, ..Usage::default() });
            for event in [
                created(&session, MINE),
                LedgerEvent::Usage { session: session.clone(), intervals: 1, usage: usage.clone() },
                LedgerEvent::Usage { session: session.clone(), intervals: 1, usage },
                LedgerEvent::SessionClosed { session, reason: CloseReason::Requested },
            ] {
                view.add(entry(event), &mut shown).unwrap();
            }
            assert!(shown.len() <= 1 && view.usage.count() == 0);
            shown.drain(..).for_each(|entry| sum.add(&entry));
        }
        let holder_view = view.holder_view.as_ref().unwrap();
        assert!(
            holder_view.sessions.is_empty() && holder_view.names.len() <= NAMES_MAX,
            "{}",
            holder_view.names.len()
        );
        assert_eq!((sum.count(), sum.total().packets_in), (10_000, 20_000));
        assert!(sum.rows().all(|(_, row)| row.intervals == 2));
        // Ends that are missing, because they were lost.
        let begin = |view: &mut LedgerView, id| {
            view.add(entry(created(&session("s-more", id), MINE)), &mut Vec::new())
        };
        for id in 0..SESSIONS_MAX as u64 {
            assert_eq!(begin(&mut view, id), Ok(()));
        }
        assert_eq!(begin(&mut view, SESSIONS_MAX as u64), Err(TooManySessions));
    }

    #[test]
    fn a_ledger_with_gaps_reports_present_sessions_and_the_gaps() {
        let mine = session("s-mine", 7);
        let mut view = view(LedgerPart::Usage);
        let holder_view = view.holder_view.as_mut().unwrap();
        holder_view.present.insert(mine.clone(), name("s"));
        let lost = LedgerEvent::Backlog { merged: 0, lost: 1, others: Box::default() };
        assert_eq!(add_one(&mut view, lost), None);
        let usage = Box::new(Usage { packets_in: 1, ..Usage::default() });
        for session in [mine, session("s-others", 8)] {
            let used = LedgerEvent::Usage { session, intervals: 1, usage: usage.clone() };
            assert_eq!(add_one(&mut view, used), None);
        }
        let (rows, notes) = view.finish(&name(NODE));
        let rows: Vec<_> = rows.into_iter().map(|row| row.event).collect();
        assert_eq!(rows, [LedgerEvent::Usage { session: session("s", 1), intervals: 1, usage }]);
        assert_eq!(notes.len(), 1);
    }
}
