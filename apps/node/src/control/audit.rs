//! Decisions on requests, for the ledger. A decision consists of requester, credential, request and outcome.
//!
//! A completed change, and the refusal of a module, has an entry of its own at once, up to a number per minute. All
//! other decisions (queries, refusals, and changes beyond that number) have one entry per kind and minute, with a
//! count. Decisions are of one kind if requester, credential, request, outcome and reason are equal. The number of
//! kinds per minute is limited for each party of holders, and for all strangers together. Decisions of further kinds
//! are only counted, in one entry ([`LedgerEvent::Unlisted`]). So a flood of refusals does not fill the disk. A
//! *stranger* is a peer without a valid credential.

use crate::control::authority::{Requester, SessionOwner, delegation_chain, in_ledger};
use crate::control::protocol::{ControlRequest, Reply};
use std::collections::BTreeMap;
use weir_admission::Name;
use weir_ledger::{Decision, DecisionOutcome, LedgerEvent, LedgerText};
use weir_trust::credential::{Credential, DatedId, DelegationId, VerifiedCredential};
use weir_trust::key::PublicKey;
use weir_units::{Nanos, Timestamp};

/// The time for which repeated decisions share an entry.
const MINUTE: Nanos = Nanos(60 * Nanos::SECOND.0);
/// Maximum number of kinds of decisions with entries in a minute, for one party: the operator, or all holders whose
/// [delegation chains](delegation_chain) have the same first identifier.
const PARTY_KINDS_MAX: usize = 32;
/// Maximum number of changes of one party with entries of their own in a minute.
const CHANGES_MAX: usize = 128;
/// Maximum number of kinds of decisions with entries in a minute, for all strangers together.
const STRANGER_KINDS_MAX: usize = 8;
/// Maximum number of kinds of decisions with entries in a minute, for all parties together.
const KINDS_MAX: usize = 512;
/// Maximum number of halvings of the limits on entries. Each holder has half the limits of its delegator, so a flood
/// of a delegate's requests leaves entries for the delegator.
const DEPTH_MAX: usize = 3;

/// A requester or group of requesters with a common limit on ledger entries.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Party {
    Operator,
    /// All holders with this first identifier of the [delegation chain](delegation_chain).
    Holder(DelegationId),
    Stranger,
}

/// The kind of a decision. Decisions of one kind share an entry of the ledger, with a count.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    party: Party,
    key: Option<LedgerText>,
    credentials: Vec<LedgerText>,
    claims: Vec<LedgerText>,
    request: LedgerText,
    session: Option<LedgerText>,
    called: Option<LedgerText>,
    outcome: DecisionOutcome,
    reason: Option<LedgerText>,
}

/// The decisions of one kind in the present minute.
#[derive(Clone, Copy, Debug)]
struct KindCounter {
    /// Time of the first decision that no entry includes yet.
    first: Timestamp,
    /// Number of decisions that no entry includes yet.
    count: u64,
    /// True if the ledger has an entry of this kind from this minute.
    is_entered: bool,
}

/// A decision on a request, before its outcome is known.
#[derive(Clone, Debug)]
pub(crate) struct PendingDecision {
    party: Party,
    decision: Decision,
    is_change: bool,
}

impl PendingDecision {
    /// Begins the decision on a request. `session` is the node's name for the session that the request is about.
    pub(crate) fn for_request(
        requester: &Requester,
        request: &ControlRequest,
        session: Option<&Name>,
    ) -> Self {
        let (name, is_change) = described(request);
        let mut decision = Decision::new(name, DecisionOutcome::Allowed);
        decision.session = session.map(|session| LedgerText::new(session.as_str()));
        let called = request.session().filter(|called| Some(*called) != session);
        decision.called = called.map(|called| LedgerText::new(called.as_str()));
        let party = match requester {
            Requester::Operator(key) => {
                decision.key = key.as_ref().map(|key| LedgerText::new(&key.to_string()));
                Party::Operator
            }
            Requester::Holder(credential) => enter_requester(&mut decision, credential),
        };
        Self { party, decision, is_change }
    }

    /// Begins the decision on a request that is refused before it is read.
    pub(crate) fn unread(requester: &Requester) -> Self {
        Self::for_request(requester, &ControlRequest::Show, None).called("(not read)")
    }

    fn called(mut self, request: &str) -> Self {
        self.decision.request = LedgerText::new(request);
        self
    }

    /// Begins the decision on the connection of a peer that has no valid credential, or exceeds the limit of peers.
    pub(crate) fn of_stranger(key: &PublicKey, request: &str) -> Self {
        let decision = Decision {
            key: Some(LedgerText::new(&key.to_string())),
            ..Decision::new(request, DecisionOutcome::Refused)
        };
        Self { party: Party::Stranger, decision, is_change: false }
    }

    /// Begins the decision on the connection of a remote operator.
    pub(crate) fn of_operator(key: &PublicKey) -> Self {
        let key = Some(LedgerText::new(&key.to_string()));
        let decision = Decision { key, ..Decision::new("connect", DecisionOutcome::Allowed) };
        Self { party: Party::Operator, decision, is_change: false }
    }

    /// Begins the decision on the connection of a peer with a valid credential.
    pub(crate) fn of_peer(credential: &VerifiedCredential) -> Self {
        let mut decision = Decision::new("connect", DecisionOutcome::Allowed);
        let party = enter_requester(&mut decision, credential);
        Self { party, decision, is_change: false }
    }

    /// Begins the decision to restore a saved session when the node starts. `owner` is `None` for the operator's
    /// sessions.
    pub(crate) fn for_restore(session: &Name, owner: Option<&SessionOwner>) -> Self {
        let mut decision = Decision::new("restore", DecisionOutcome::Allowed);
        decision.session = Some(LedgerText::new(session.as_str()));
        decision.called = owner.map(|owner| LedgerText::new(owner.session_name.as_str()));
        let party = owner.map_or(Party::Operator, |owner| enter_requester(&mut decision, &owner.credential));
        Self { party, decision, is_change: true }
    }

    /// Begins the decision not to restore a saved session, whose credential is not valid or was not verified.
    pub(crate) fn for_restore_claim(
        session: &Name,
        called: Option<&Name>,
        claimed: Option<&Credential>,
    ) -> Self {
        let restore = Self::for_restore(session, None);
        let Some(claimed) = claimed else { return restore };
        let first = claimed.claimed_blocks().first().map(|block| block.id);
        let party = first.map_or(Party::Stranger, Party::Holder);
        let mut claiming = Self { party, ..restore }.claiming(claimed);
        claiming.decision.key = Some(LedgerText::new(&claimed.claimed_holder().to_string()));
        claiming.decision.called = called.map(|called| LedgerText::new(called.as_str()));
        claiming
    }

    /// Adds the identifiers that an invalid credential claims.
    #[must_use]
    pub(crate) fn claiming(mut self, credential: &Credential) -> Self {
        let ids = DatedId::of_chain(credential.claimed_blocks()).map(|id| LedgerText::new(&id.to_string()));
        self.decision.claims = ids.collect();
        self
    }

    /// Completes the decision as a refusal.
    pub(crate) fn refused(self, why: &str) -> Self {
        self.with_outcome(DecisionOutcome::Refused, Some(why))
    }

    /// Completes the decision by the reply to the request. `is_refusal` says how a [`Reply::Refused`] counts: true for
    /// a lack of rights, false for a failure.
    pub(crate) fn answered(self, reply: &Reply, is_refusal: bool) -> Self {
        match reply {
            Reply::Refused { why } if is_refusal => self.refused(why),
            Reply::Refused { why } => self.with_outcome(DecisionOutcome::Failed, Some(why)),
            _ => self.with_outcome(DecisionOutcome::Allowed, None),
        }
    }

    fn with_outcome(mut self, outcome: DecisionOutcome, reason: Option<&str>) -> Self {
        self.decision.outcome = outcome;
        self.decision.reason = reason.map(LedgerText::new);
        self
    }
}

/// Writes the requester's key and delegation chain into a decision. Returns the requester's party.
fn enter_requester(decision: &mut Decision, credential: &VerifiedCredential) -> Party {
    let (key, credentials) = in_ledger(credential);
    (decision.key, decision.credentials) = (Some(key), credentials);
    party_of(credential)
}

fn party_of(credential: &VerifiedCredential) -> Party {
    delegation_chain(credential).next().map_or(Party::Stranger, |(first, _)| Party::Holder(first))
}

/// Returns the number of halvings of the limits for a holder with this length of the delegation chain.
fn depth_of(chain_len: usize) -> usize {
    chain_len.saturating_sub(1).min(DEPTH_MAX)
}

/// Returns the ledger's word for a request, and true if a permitted request changes the node.
fn described(request: &ControlRequest) -> (&'static str, bool) {
    match request {
        ControlRequest::Show => ("show", false),
        ControlRequest::Watch { .. } => ("watch", false),
        ControlRequest::Create(_) => ("create", true),
        ControlRequest::Change(_) => ("change", true),
        ControlRequest::Close { .. } => ("close", true),
        ControlRequest::Load { .. } => ("load", true),
        ControlRequest::Unload { .. } => ("unload", true),
        ControlRequest::Upload(_) => ("upload", false),
        ControlRequest::Follow { .. } => ("follow", false),
        ControlRequest::Records(_) => ("records", false),
        ControlRequest::FetchRecords(_) => ("fetch-records", false),
        ControlRequest::PutTable { .. } => ("put-table", true),
        ControlRequest::RemoveTable { .. } => ("remove-table", true),
        ControlRequest::Rate(_) => ("change-link", true),
        ControlRequest::Explain(_) => ("explain", false),
        ControlRequest::Ledger(_) => ("ledger", false),
        ControlRequest::Revoke => ("revoke", false),
        ControlRequest::Revocations => ("revocations", false),
        ControlRequest::Credentials => ("credentials", false),
        ControlRequest::Reload => ("reload", true),
    }
}

/// An entry to write now: the begin and the end of its interval, and the event.
pub(crate) type Due = (Timestamp, Timestamp, LedgerEvent);

/// The decisions of the present minute.
#[derive(Debug)]
pub(crate) struct Decisions {
    began: Timestamp,
    kinds: BTreeMap<Kind, KindCounter>,
    /// The number of kinds of each party.
    kinds_of_party: BTreeMap<Party, usize>,
    /// The number of changes of each party that have entries of their own.
    changes: BTreeMap<Party, usize>,
    /// The number of allowed decisions without an entry.
    allowed: u64,
    /// The number of refused decisions without an entry.
    refused: u64,
    /// The number of failed handshakes.
    handshakes: u64,
}

impl Decisions {
    /// Creates the decisions of a minute that begins at this time.
    pub(crate) fn since(began: Timestamp) -> Self {
        let (kinds, kinds_of_party, changes) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { began, kinds, kinds_of_party, changes, allowed: 0, refused: 0, handshakes: 0 }
    }

    /// Adds a decision. Returns its event if it gets an entry of its own at once.
    pub(crate) fn add(&mut self, at: Timestamp, pending: PendingDecision) -> Option<LedgerEvent> {
        let PendingDecision { party, decision, is_change } = pending;
        let depth = depth_of(decision.credentials.len());
        if is_change && decision.outcome == DecisionOutcome::Allowed && self.take_change(&party, depth) {
            return Some(LedgerEvent::Decision(Box::new(decision)));
        }
        let Decision { key, credentials, claims, request, session, called, outcome, reason, .. } = decision;
        let kinds_max = if party == Party::Stranger { STRANGER_KINDS_MAX } else { PARTY_KINDS_MAX >> depth };
        let kind = Kind { party, key, credentials, claims, request, session, called, outcome, reason };
        if let Some(counter) = self.kinds.get_mut(&kind) {
            counter.count = counter.count.saturating_add(1);
            return None;
        }
        let kind_count = self.kinds_of_party.get(&kind.party).copied().unwrap_or(0);
        if kind_count >= kinds_max || self.kinds.len() >= KINDS_MAX {
            let unlisted =
                if outcome == DecisionOutcome::Allowed { &mut self.allowed } else { &mut self.refused };
            *unlisted = unlisted.saturating_add(1);
            return None;
        }
        self.kinds_of_party.insert(kind.party.clone(), kind_count + 1);
        self.kinds.insert(kind, KindCounter { first: at, count: 1, is_entered: false });
        None
    }

    /// Counts a change of a party. Returns true if the change gets an entry of its own. The operator has no limit.
    fn take_change(&mut self, party: &Party, depth: usize) -> bool {
        if *party == Party::Operator {
            return true;
        }
        let listed_changes = self.changes.entry(party.clone()).or_default();
        let is_listed = *listed_changes < CHANGES_MAX >> depth;
        // A change without an entry does not use up the limit.
        *listed_changes += usize::from(is_listed);
        is_listed
    }

    /// Returns true if the outcome of a change gets an entry, in addition to the entry of the decision on the change. An
    /// outcome without an entry is counted.
    pub(crate) fn lists_outcome(&mut self, owner: Option<&SessionOwner>, is_done: bool) -> bool {
        let party = owner.map_or(Party::Operator, |owner| party_of(&owner.credential));
        let depth = depth_of(owner.map_or(0, |owner| owner.credential.chain().len()));
        let is_listed = self.take_change(&party, depth);
        if !is_listed {
            let unlisted = if is_done { &mut self.allowed } else { &mut self.refused };
            *unlisted = unlisted.saturating_add(1);
        }
        is_listed
    }

    /// Counts failed handshakes.
    pub(crate) fn handshakes_failed(&mut self, count: u64) {
        self.handshakes = self.handshakes.saturating_add(count);
    }

    /// Returns the entries to write now: each new kind, and at the end of the minute each kind that was repeated, with
    /// the number of repetitions. `is_last` ends the minute now.
    pub(crate) fn due(&mut self, now: Timestamp, is_last: bool) -> Vec<Due> {
        let is_over = is_last || now.since(self.began) >= MINUTE || now < self.began;
        let mut due = Vec::new();
        for (kind, counter) in &mut self.kinds {
            if counter.count > 0 && (is_over || !counter.is_entered) {
                let Kind { key, credentials, claims, request, session, called, outcome, reason, .. } =
                    kind.clone();
                let count = std::mem::take(&mut counter.count);
                let decision =
                    Decision { key, credentials, claims, request, session, called, outcome, reason, count };
                due.push((counter.first.min(now), now, LedgerEvent::Decision(Box::new(decision))));
                (counter.first, counter.is_entered) = (now, true);
            }
        }
        if is_over {
            let Self { began, allowed, refused, handshakes, .. } = std::mem::replace(self, Self::since(now));
            if allowed > 0 || refused > 0 || handshakes > 0 {
                due.push((began.min(now), now, LedgerEvent::Unlisted { allowed, refused, handshakes }));
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp(1_000 * Nanos::SECOND.0 + seconds * Nanos::SECOND.0)
    }

    fn key(number: u8) -> PublicKey {
        weir_trust::key::Identity::from_seed(&[number; 32]).public()
    }

    fn decisions() -> Decisions {
        Decisions::since(at(0))
    }

    fn listed(due: &[Due]) -> Vec<(String, u64)> {
        let of = |due: &Due| match &due.2 {
            LedgerEvent::Decision(decision) => Some((
                decision.reason.as_ref().map(LedgerText::to_string).unwrap_or_default(),
                decision.count,
            )),
            _ => None,
        };
        due.iter().filter_map(of).collect()
    }

    #[test]
    fn the_first_minute_begins_when_the_node_does() {
        let mut decisions = decisions();
        decisions.handshakes_failed(3);
        assert_eq!(decisions.due(at(59), false), []);
        let unlisted = LedgerEvent::Unlisted { allowed: 0, refused: 0, handshakes: 3 };
        assert_eq!(decisions.due(at(60), false), [(at(0), at(60), unlisted.clone())]);
        // A short last minute begins at the end of the previous one.
        decisions.handshakes_failed(3);
        assert_eq!(decisions.due(at(61), true), [(at(60), at(61), unlisted)]);
    }

    #[test]
    fn a_change_is_entered_at_once_and_repeated_decisions_are_counted() {
        let mut decisions = decisions();
        let session = Name::new("s").unwrap();
        let close = ControlRequest::Close { session: session.clone() };
        let done = Reply::Done { notes: Vec::new() };
        let pending = || PendingDecision::for_request(&Requester::Operator(None), &close, Some(&session));
        let entered = decisions.add(at(1), pending().answered(&done, false));
        let Some(LedgerEvent::Decision(decision)) = entered else { panic!("{entered:?}") };
        assert_eq!((decision.request.as_str(), decision.outcome), ("close", DecisionOutcome::Allowed));
        assert_eq!(decision.session, Some(LedgerText::new("s")));
        for second in 1..=30 {
            assert_eq!(decisions.add(at(second), pending().refused("no")), None);
        }
        // The first is entered soon, the others at the end of the minute.
        assert_eq!(listed(&decisions.due(at(30), false)), [("no".to_owned(), 30)]);
        for second in 31..=40 {
            decisions.add(at(second), pending().refused("no"));
        }
        assert_eq!(decisions.due(at(40), false), []);
        let due = decisions.due(at(60), false);
        assert_eq!(listed(&due), [("no".to_owned(), 10)]);
        assert!(due.iter().all(|(begin, end, _)| begin <= end));
        assert_eq!(decisions.due(at(120), false), []);
    }

    #[test]
    fn repeated_changes_of_one_holder_do_not_fill_the_ledger_and_are_counted() {
        let mut decisions = decisions();
        let session = Name::new("s").unwrap();
        let close = ControlRequest::Close { session: session.clone() };
        let done = Reply::Done { notes: Vec::new() };
        let by = |party: Party| {
            let pending = PendingDecision {
                party,
                ..PendingDecision::for_request(&Requester::Operator(None), &close, Some(&session))
            };
            pending.answered(&done, false)
        };
        let holder = || Party::Holder(DelegationId::of_root(&key(1)));
        let entered = |decisions: &mut Decisions, party: &dyn Fn() -> Party| {
            (0..1000).filter(|_| decisions.add(at(1), by(party())).is_some()).count()
        };
        assert_eq!(entered(&mut decisions, &holder), CHANGES_MAX);
        assert_eq!(entered(&mut decisions, &|| Party::Operator), 1000);
        let due = decisions.due(at(2), false);
        assert_eq!(listed(&due), [(String::new(), 1000 - CHANGES_MAX as u64)]);
        // The next minute has new entries.
        decisions.due(at(60), false);
        assert_eq!(entered(&mut decisions, &holder), CHANGES_MAX);
    }

    #[test]
    fn a_delegates_flood_leaves_entries_for_its_delegator() {
        let mut decisions = decisions();
        let session = Name::new("s").unwrap();
        let close = ControlRequest::Close { session: session.clone() };
        let party = || Party::Holder(DelegationId::of_root(&key(1)));
        let by = |links: usize| {
            let mut pending = PendingDecision {
                party: party(),
                ..PendingDecision::for_request(&Requester::Operator(None), &close, Some(&session))
            };
            pending.decision.credentials =
                (0..links).map(|link| LedgerText::new(&format!("weir-id:{link}"))).collect();
            pending
        };
        let done = Reply::Done { notes: Vec::new() };
        for number in 0..1000 {
            decisions.add(at(1), by(2).refused(&number.to_string()));
            decisions.add(at(1), by(2).answered(&done, false));
        }
        let own = (0..1000).filter(|_| decisions.add(at(1), by(1).answered(&done, false)).is_some()).count();
        assert_eq!(own, CHANGES_MAX / 2);
        (0..8).for_each(|number| drop(decisions.add(at(1), by(1).refused(&format!("own {number}")))));
        let due = decisions.due(at(2), false);
        assert_eq!(listed(&due).iter().filter(|(reason, _)| reason.starts_with("own")).count(), 8);
    }

    #[test]
    fn a_flood_of_strangers_is_counted_and_takes_no_entries_from_others() {
        let mut decisions = decisions();
        let mut entries = 0;
        for second in 0..3600_u64 {
            for n in 0..50_u64 {
                let reason = format!("{second} {n}");
                let pending =
                    PendingDecision::of_stranger(&key(u8::try_from(n).unwrap()), "connect").refused(&reason);
                assert_eq!(decisions.add(at(second), pending), None);
                decisions.handshakes_failed(1);
            }
            let operator =
                PendingDecision::for_request(&Requester::Operator(None), &ControlRequest::Reload, None);
            decisions.add(at(second), operator.refused(&format!("{}", second / 60)));
            entries += decisions.due(at(second), false).len();
        }
        let last = decisions.due(at(3600), true);
        entries += last.len();
        // In each of 60 minutes, and at the begin of the next: eight of strangers and one for the rest; and one of the
        // operator, its repetitions, and that of the next minute, which begins a second early.
        assert!(entries <= 61 * (STRANGER_KINDS_MAX + 4), "{entries}");
        let Some((_, _, LedgerEvent::Unlisted { refused, handshakes, .. })) = last.last() else {
            panic!("{last:?}")
        };
        assert!(*refused > 0 && *handshakes > *refused);
    }

    #[test]
    fn every_decision_is_counted() {
        let mut decisions = decisions();
        for n in 0..1000 {
            decisions.add(
                at(1),
                PendingDecision::for_request(&Requester::Operator(None), &ControlRequest::Show, None)
                    .refused(&n.to_string()),
            );
            decisions.add(
                at(1),
                PendingDecision::for_request(&Requester::Operator(None), &ControlRequest::Show, None),
            );
        }
        let due = decisions.due(at(2), true);
        let counted: u64 = listed(&due).iter().map(|(_, count)| count).sum();
        let unlisted = due.iter().find_map(|(_, _, event)| match event {
            LedgerEvent::Unlisted { allowed, refused, .. } => Some(allowed + refused),
            _ => None,
        });
        assert_eq!(counted + unlisted.unwrap(), 2000);
        assert_eq!(due.len(), PARTY_KINDS_MAX + 1);
    }
}
