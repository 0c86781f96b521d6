//! Every decision on a request, for the ledger: who asked, by what right, for what, and what came of it.
//!
//! A change that was made has an entry of its own, at once, as has a module that was refused: so many in a minute. Everything else (who looked, who was refused, whoever changes the same again
//! and again) has one for each kind in each minute, with a count: who asks, by which right, for what, and with which outcome tell kinds apart. Of that there is a bounded number in a minute for all who have their right from one grant of a root, and for all
//! strangers together; the rest is counted in one entry ([`LedgerEvent::Unlisted`]). So nobody fills a disk by being refused.

use crate::control::authority::{Asker, SessionOwner, in_ledger, line};
use crate::control::protocol::{ControlRequest, Reply};
use std::collections::BTreeMap;
use weir_admission::Name;
use weir_ledger::{Decision, DecisionOutcome, LedgerEvent, LedgerText};
use weir_trust::credential::{Credential, DatedId, PrefixId, VerifiedCredential};
use weir_trust::key::PublicKey;
use weir_units::{Nanos, Timestamp};

/// For so long repeated decisions are one entry.
const WHILE: Nanos = Nanos(60 * Nanos::SECOND.0);
/// Kinds of decisions in that time that have entries of their own: of all who have their right from one grant of a root, and of the operator,
const OF_ONE_MAX: usize = 32;
/// and changes of one in that time that have an entry of their own each, at once;
const CHANGES_MAX: usize = 128;
/// of all strangers together,
const OF_STRANGERS_MAX: usize = 8;
/// and of all together.
const OF_ALL_MAX: usize = 512;
/// The depth of a chain up to which each holder has half of its delegator's room, so that a delegate's flood leaves room for its delegator.
const DEPTH_MAX: usize = 3;

/// Who asks, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Party {
    Operator,
    /// By the first of the [line]: those who delegate to themselves are still one.
    Holder(PrefixId),
    Stranger,
}

/// What tells one kind of decision from another.
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

#[derive(Clone, Copy, Debug)]
struct Tally {
    first: Timestamp,
    /// Those that stand in no entry yet.
    count: u64,
    /// Whether there is an entry of this kind.
    is_entered: bool,
}

/// A decision that is about to be made.
#[derive(Clone, Debug)]
pub(crate) struct PendingDecision {
    party: Party,
    decision: Decision,
    is_change: bool,
}

impl PendingDecision {
    /// Of a request, before anything was decided.
    /// `session` is what the node calls the one that it is about.
    pub(crate) fn of(asker: &Asker, ask: &ControlRequest, session: Option<&Name>) -> Self {
        let (request, is_change) = described(ask);
        let mut decision = Decision::new(request, DecisionOutcome::Allowed);
        decision.session = session.map(|session| LedgerText::new(session.as_str()));
        let called = ask.session().filter(|called| Some(*called) != session);
        decision.called = called.map(|called| LedgerText::new(called.as_str()));
        let party = match asker {
            Asker::Operator(key) => {
                decision.key = key.as_ref().map(|key| LedgerText::new(&key.to_string()));
                Party::Operator
            }
            Asker::Holder(credential) => by(&mut decision, credential),
        };
        Self { party, decision, is_change }
    }

    /// The record of a request that was not read.
    pub(crate) fn unread(asker: &Asker) -> Self {
        Self::of(asker, &ControlRequest::Show, None).called("(not read)")
    }

    fn called(mut self, request: &str) -> Self {
        self.decision.request = LedgerText::new(request);
        self
    }

    /// Of somebody who has shown a credential that is worth nothing, or too many others.
    pub(crate) fn of_stranger(key: &PublicKey, request: &str) -> Self {
        let decision = Decision {
            key: Some(LedgerText::new(&key.to_string())),
            ..Decision::new(request, DecisionOutcome::Refused)
        };
        Self { party: Party::Stranger, decision, is_change: false }
    }

    /// Of an operator who has come from elsewhere.
    pub(crate) fn of_operator(key: &PublicKey) -> Self {
        let key = Some(LedgerText::new(&key.to_string()));
        let decision = Decision { key, ..Decision::new("connect", DecisionOutcome::Allowed) };
        Self { party: Party::Operator, decision, is_change: false }
    }

    /// Of somebody who has come with a credential that is worth something.
    pub(crate) fn of_guest(credential: &VerifiedCredential) -> Self {
        let mut decision = Decision::new("connect", DecisionOutcome::Allowed);
        let party = by(&mut decision, credential);
        Self { party, decision, is_change: false }
    }

    /// With what a credential that is worth nothing says of itself.
    #[must_use]
    pub(crate) fn claiming(mut self, credential: &Credential) -> Self {
        let ids = DatedId::of_chain(credential.claimed_links()).map(|id| LedgerText::new(&id.to_string()));
        self.decision.claims = ids.collect();
        self
    }

    /// It was not permitted.
    pub(crate) fn refused(self, why: &str) -> Self {
        self.came_to(DecisionOutcome::Refused, Some(why))
    }

    /// It was looked at: what came of it is in the reply, and whether it was a matter of what whoever asks may do.
    pub(crate) fn answered(self, reply: &Reply, is_refusal: bool) -> Self {
        match reply {
            Reply::Refused { why } if is_refusal => self.refused(why),
            Reply::Refused { why } => self.came_to(DecisionOutcome::Failed, Some(why)),
            _ => self.came_to(DecisionOutcome::Allowed, None),
        }
    }

    fn came_to(mut self, outcome: DecisionOutcome, reason: Option<&str>) -> Self {
        self.decision.outcome = outcome;
        self.decision.reason = reason.map(LedgerText::new);
        self
    }
}

/// Enters who asks, and by what right.
fn by(decision: &mut Decision, credential: &VerifiedCredential) -> Party {
    let (key, credentials) = in_ledger(credential);
    (decision.key, decision.credentials) = (Some(key), credentials);
    party_of(credential)
}

fn party_of(credential: &VerifiedCredential) -> Party {
    line(credential).next().map_or(Party::Stranger, |(first, _)| Party::Holder(first))
}

/// The depth of a holder whose chain has so many links.
fn depth_of(links: usize) -> usize {
    links.saturating_sub(1).min(DEPTH_MAX)
}

/// What a request is in a word, and whether it changes anything.
fn described(ask: &ControlRequest) -> (&'static str, bool) {
    match ask {
        ControlRequest::Show => ("show", false),
        ControlRequest::Watch { .. } => ("watch", false),
        ControlRequest::Create(_) => ("create", true),
        ControlRequest::Change(_) => ("change", true),
        ControlRequest::Close { .. } => ("close", true),
        ControlRequest::Load { .. } => ("load", true),
        ControlRequest::Unload { .. } => ("unload", true),
        ControlRequest::Upload(_) => ("upload", false),
        ControlRequest::Follow { .. } => ("follow", false),
        ControlRequest::PutTable { .. } => ("put-table", true),
        ControlRequest::RemoveTable { .. } => ("remove-table", true),
        ControlRequest::Rate(_) => ("change-link", true),
        ControlRequest::Explain(_) => ("explain", false),
        ControlRequest::Ledger(_) => ("ledger", false),
        ControlRequest::Revoke => ("revoke", false),
        ControlRequest::Revocations => ("revocations", false),
        ControlRequest::Reload => ("reload", true),
    }
}

/// An entry that is due: from when, until now, what.
pub(crate) type Due = (Timestamp, Timestamp, LedgerEvent);

/// Decisions of the present minute.
#[derive(Debug)]
pub(crate) struct Decisions {
    began: Timestamp,
    kinds: BTreeMap<Kind, Tally>,
    of: BTreeMap<Party, usize>,
    changes: BTreeMap<Party, usize>,
    allowed: u64,
    refused: u64,
    handshakes: u64,
}

impl Decisions {
    /// None yet, in a minute that begins now.
    pub(crate) fn since(began: Timestamp) -> Self {
        let (kinds, of, changes) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { began, kinds, of, changes, allowed: 0, refused: 0, handshakes: 0 }
    }

    /// Takes a decision. Gives it back where it has an entry of its own, at once.
    pub(crate) fn note(&mut self, at: Timestamp, asked: PendingDecision) -> Option<LedgerEvent> {
        let PendingDecision { party, decision, is_change } = asked;
        let depth = depth_of(decision.credentials.len());
        if is_change && decision.outcome == DecisionOutcome::Allowed && self.has_room(&party, depth) {
            return Some(LedgerEvent::Decision(Box::new(decision)));
        }
        let Decision { key, credentials, claims, request, session, called, outcome, reason, .. } = decision;
        let most = if party == Party::Stranger { OF_STRANGERS_MAX } else { OF_ONE_MAX >> depth };
        let kind = Kind { party, key, credentials, claims, request, session, called, outcome, reason };
        if let Some(tally) = self.kinds.get_mut(&kind) {
            tally.count = tally.count.saturating_add(1);
            return None;
        }
        let there = self.of.get(&kind.party).copied().unwrap_or(0);
        if there >= most || self.kinds.len() >= OF_ALL_MAX {
            let unlisted =
                if outcome == DecisionOutcome::Allowed { &mut self.allowed } else { &mut self.refused };
            *unlisted = unlisted.saturating_add(1);
            return None;
        }
        self.of.insert(kind.party.clone(), there + 1);
        self.kinds.insert(kind, Tally { first: at, count: 1, is_entered: false });
        None
    }

    /// Whether one more entry of what somebody has changed is made at once. The operator is not held to a number.
    fn has_room(&mut self, party: &Party, depth: usize) -> bool {
        if *party == Party::Operator {
            return true;
        }
        let there = self.changes.entry(party.clone()).or_default();
        let has_room = *there < CHANGES_MAX >> depth;
        // A change without room takes no room from later ones.
        *there += usize::from(has_room);
        has_room
    }

    /// Whether what came of a change is to be entered beside the decision on it. What is not is counted.
    pub(crate) fn takes(&mut self, owner: Option<&SessionOwner>, is_done: bool) -> bool {
        let party = owner.map_or(Party::Operator, |owner| party_of(&owner.credential));
        let depth = depth_of(owner.map_or(0, |owner| owner.credential.chain().len()));
        let takes = self.has_room(&party, depth);
        if !takes {
            let unlisted = if is_done { &mut self.allowed } else { &mut self.refused };
            *unlisted = unlisted.saturating_add(1);
        }
        takes
    }

    /// Counts handshakes that came to nothing.
    pub(crate) fn handshakes_failed(&mut self, count: u64) {
        self.handshakes = self.handshakes.saturating_add(count);
    }

    /// What is due now: each kind when it has come up first, and once more at the end of the minute where it was repeated. With `is_last` the minute ends now.
    pub(crate) fn due(&mut self, now: Timestamp, is_last: bool) -> Vec<Due> {
        let is_over = is_last || now.since(self.began) >= WHILE || now < self.began;
        let mut due = Vec::new();
        for (kind, tally) in &mut self.kinds {
            if tally.count > 0 && (is_over || !tally.is_entered) {
                let Kind { key, credentials, claims, request, session, called, outcome, reason, .. } =
                    kind.clone();
                let count = std::mem::take(&mut tally.count);
                let decision =
                    Decision { key, credentials, claims, request, session, called, outcome, reason, count };
                due.push((tally.first.min(now), now, LedgerEvent::Decision(Box::new(decision))));
                (tally.first, tally.is_entered) = (now, true);
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
        // Nor does a last one that is short have an earlier beginning.
        decisions.handshakes_failed(3);
        assert_eq!(decisions.due(at(61), true), [(at(60), at(61), unlisted)]);
    }

    #[test]
    fn a_change_is_entered_at_once_and_what_is_repeated_has_a_count() {
        let mut decisions = decisions();
        let session = Name::new("s").unwrap();
        let close = ControlRequest::Close { session: session.clone() };
        let done = Reply::Done { notes: Vec::new() };
        let asked = || PendingDecision::of(&Asker::Operator(None), &close, Some(&session));
        let entered = decisions.note(at(1), asked().answered(&done, false));
        let Some(LedgerEvent::Decision(decision)) = entered else { panic!("{entered:?}") };
        assert_eq!((decision.request.as_str(), decision.outcome), ("close", DecisionOutcome::Allowed));
        assert_eq!(decision.session, Some(LedgerText::new("s")));
        for second in 1..=30 {
            assert_eq!(decisions.note(at(second), asked().refused("no")), None);
        }
        // The first is seen soon, the others with the minute's end.
        assert_eq!(listed(&decisions.due(at(30), false)), [("no".to_owned(), 30)]);
        for second in 31..=40 {
            decisions.note(at(second), asked().refused("no"));
        }
        assert_eq!(decisions.due(at(40), false), []);
        let due = decisions.due(at(60), false);
        assert_eq!(listed(&due), [("no".to_owned(), 10)]);
        assert!(due.iter().all(|(begin, end, _)| begin <= end));
        assert_eq!(decisions.due(at(120), false), []);
    }

    #[test]
    fn whoever_changes_the_same_again_and_again_fills_no_ledger_and_is_counted() {
        let mut decisions = decisions();
        let session = Name::new("s").unwrap();
        let close = ControlRequest::Close { session: session.clone() };
        let done = Reply::Done { notes: Vec::new() };
        let by = |party: Party| {
            let asked = PendingDecision {
                party,
                ..PendingDecision::of(&Asker::Operator(None), &close, Some(&session))
            };
            asked.answered(&done, false)
        };
        let holder = || Party::Holder(PrefixId::of_root(&key(1)));
        let entered = |decisions: &mut Decisions, party: &dyn Fn() -> Party| {
            (0..1000).filter(|_| decisions.note(at(1), by(party())).is_some()).count()
        };
        assert_eq!(entered(&mut decisions, &holder), CHANGES_MAX);
        assert_eq!(entered(&mut decisions, &|| Party::Operator), 1000);
        let due = decisions.due(at(2), false);
        assert_eq!(listed(&due), [(String::new(), 1000 - CHANGES_MAX as u64)]);
        // In the next minute there is room again.
        decisions.due(at(60), false);
        assert_eq!(entered(&mut decisions, &holder), CHANGES_MAX);
    }

    #[test]
    fn a_delegates_flood_leaves_room_for_what_its_delegator_does() {
        let mut decisions = decisions();
        let session = Name::new("s").unwrap();
        let close = ControlRequest::Close { session: session.clone() };
        let party = || Party::Holder(PrefixId::of_root(&key(1)));
        let by = |links: usize| {
            let mut asked = PendingDecision {
                party: party(),
                ..PendingDecision::of(&Asker::Operator(None), &close, Some(&session))
            };
            asked.decision.credentials =
                (0..links).map(|link| LedgerText::new(&format!("weir-id:{link}"))).collect();
            asked
        };
        let done = Reply::Done { notes: Vec::new() };
        for number in 0..1000 {
            decisions.note(at(1), by(2).refused(&number.to_string()));
            decisions.note(at(1), by(2).answered(&done, false));
        }
        let own = (0..1000).filter(|_| decisions.note(at(1), by(1).answered(&done, false)).is_some()).count();
        assert_eq!(own, CHANGES_MAX / 2);
        (0..8).for_each(|number| drop(decisions.note(at(1), by(1).refused(&format!("own {number}")))));
        let due = decisions.due(at(2), false);
        assert_eq!(listed(&due).iter().filter(|(reason, _)| reason.starts_with("own")).count(), 8);
    }

    #[test]
    fn a_flood_of_strangers_is_counted_and_takes_no_room_from_others() {
        let mut decisions = decisions();
        let mut entries = 0;
        for second in 0..3600_u64 {
            for n in 0..50_u64 {
                let reason = format!("{second} {n}");
                let asked =
                    PendingDecision::of_stranger(&key(u8::try_from(n).unwrap()), "connect").refused(&reason);
                assert_eq!(decisions.note(at(second), asked), None);
                decisions.handshakes_failed(1);
            }
            let operator = PendingDecision::of(&Asker::Operator(None), &ControlRequest::Reload, None);
            decisions.note(at(second), operator.refused(&format!("{}", second / 60)));
            entries += decisions.due(at(second), false).len();
        }
        let last = decisions.due(at(3600), true);
        entries += last.len();
        // In each of 60 minutes, and what begins the next, eight and one for the rest; and of the operator's one at its beginning, how often that was repeated, and the next
        // minute's, which begins a second early.
        assert!(entries <= 61 * (OF_STRANGERS_MAX + 4), "{entries}");
        let Some((_, _, LedgerEvent::Unlisted { refused, handshakes, .. })) = last.last() else {
            panic!("{last:?}")
        };
        assert!(*refused > 0 && *handshakes > *refused);
    }

    #[test]
    fn nothing_is_left_out_of_the_counts() {
        let mut decisions = decisions();
        for n in 0..1000 {
            decisions.note(
                at(1),
                PendingDecision::of(&Asker::Operator(None), &ControlRequest::Show, None)
                    .refused(&n.to_string()),
            );
            decisions.note(at(1), PendingDecision::of(&Asker::Operator(None), &ControlRequest::Show, None));
        }
        let due = decisions.due(at(2), true);
        let counted: u64 = listed(&due).iter().map(|(_, count)| count).sum();
        let unlisted = due.iter().find_map(|(_, _, event)| match event {
            LedgerEvent::Unlisted { allowed, refused, .. } => Some(allowed + refused),
            _ => None,
        });
        assert_eq!(counted + unlisted.unwrap(), 2000);
        assert_eq!(due.len(), OF_ONE_MAX + 1);
    }
}
