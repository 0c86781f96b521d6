//! Revocation: lists that come, the state that is kept, and the sessions that end.

use super::{Daemon, DaemonError, lock, now};
use crate::control::authority::{Asker, RequestRefusal};
use crate::control::protocol::{DelegatedStatus, RevocationCounts, RevocationsStatus};
use crate::server::log::{self, say, warn};
use crate::server::revoked;
use crate::server::trust::Trust;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use weir_ledger::{CloseReason, LedgerEvent, LedgerText, Unloaded};
use weir_trust::credential::{PrefixId, VerifiedCredential};
use weir_trust::gate::{RateLimit, RateLimiter};
use weir_trust::grant::Second;
use weir_trust::key::PublicKey;
use weir_trust::revocation::{
    ListHeader, Offered, Reception, RevocationError, RevocationList, Revocations, RevokedSet,
};
use weir_units::Nanos;

/// The rate of delegators' lists for each credential that delivers: each list changes the state, which is written anew.
const DELEGATED_RATE: RateLimit = RateLimit { every: Nanos(10 * Nanos::SECOND.0), burst: 8 };
/// Grants of which it is remembered how often lists came.
const REMEMBERED: usize = 4096;

/// The reason why a list was not taken, or not all of it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotTaken {
    /// The node has no roots of trust.
    #[error("this node is not reached from elsewhere: it has no roots of trust")]
    Alone,
    /// Lists of delegators come too often.
    #[error("revocation lists of those who share this grant come too often: try again in {0} s")]
    TooOften(u64),
    /// The state of the list's root cannot be written.
    #[error(
        "the revocations of this root hold, and are forgotten when the node ends, as they cannot be kept: {0}; deliver the list again when the node's operator has made room in the folder of its state"
    )]
    NotKept(String),
    /// The list.
    #[error(transparent)]
    List(#[from] RevocationError),
}

impl NotTaken {
    fn counter(&self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::TooOften(_) => "too-often",
            Self::NotKept(_) => "not-kept",
            Self::List(error) => error.counter(),
        }
    }
}

/// The rate of delegators' lists.
#[derive(Debug)]
pub(super) struct DelegatedRateLimiter {
    begun: Instant,
    rates: RateLimiter<PrefixId>,
}

impl Default for DelegatedRateLimiter {
    fn default() -> Self {
        Self { begun: Instant::now(), rates: RateLimiter::new(DELEGATED_RATE, REMEMBERED) }
    }
}

impl DelegatedRateLimiter {
    /// Takes a turn of a credential, or returns the seconds until there is one.
    fn take(&mut self, credential: PrefixId) -> Result<(), NotTaken> {
        let now = Nanos(u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
        let wait = self.rates.wait(&credential, now);
        if wait > Nanos(0) {
            return Err(NotTaken::TooOften(wait.0.div_ceil(Nanos::SECOND.0)));
        }
        self.rates.take(credential, now);
        Ok(())
    }
}

impl Daemon {
    /// Tells by the header of a list if the rest is of use. What is of none is counted. A known list is refused while the state of its root cannot be written.
    pub(crate) fn offered(
        &self,
        header: &ListHeader,
        shown: Option<&VerifiedCredential>,
    ) -> Result<Offered, NotTaken> {
        let offered = self.trust().ok_or(NotTaken::Alone).and_then(|trust| {
            let reception = Reception { roots: trust.roots(), shown, now: Second::of(now()) };
            let offered = trust.revocations().offered(header, &reception)?;
            if offered == Offered::Known {
                self.kept_again(header.issuer().of())?;
            }
            Ok(offered)
        });
        if offered.as_ref().is_ok_and(|offered| *offered == Offered::Known) {
            self.deliveries.accepted("known");
        }
        offered.inspect_err(|why| self.list_refused(why.counter()))
    }

    /// Counts a list that is refused, and logs floods of them.
    pub(crate) fn list_refused(&self, reason: &'static str) {
        if let Some(line) = self.deliveries.refused(reason, Instant::now()) {
            warn(&line);
        }
    }

    /// Takes a list, by the right of its signer and whatever credential its deliverer has shown. It holds at once, for peers that are connected and for sessions that run. Returns
    /// what has changed, in words.
    pub(crate) fn revoke(&self, text: &str, shown: Option<&VerifiedCredential>) -> Result<String, NotTaken> {
        let taken = text.parse().map_err(NotTaken::List).and_then(|list| self.take_list(&list, shown));
        match &taken {
            Ok((is_new, _)) => self.deliveries.accepted(if *is_new { "taken" } else { "known" }),
            Err(why) => self.list_refused(why.counter()),
        }
        taken.map(|(_, said)| said)
    }

    fn take_list(
        &self,
        list: &RevocationList,
        shown: Option<&VerifiedCredential>,
    ) -> Result<(bool, String), NotTaken> {
        let _revoking = lock(&self.revoking);
        let trust = self.trust().ok_or(NotTaken::Alone)?;
        if let (Some(_), Some(shown)) = (list.issuer().under(), shown)
            // Of the deliverer's own credential: a delegate takes no turn from the delegator that revokes it.
            && let Some(own) = shown.chain().last()
        {
            lock(&self.delegated_pace).take(own.id)?;
        }
        let (trust, accepted) = trust.with_list(list, shown, Second::of(now()))?;
        let root = list.issuer().of();
        let trust = Arc::new(trust);
        // Also where nothing is revoked that was not: the list is known by its header from now on.
        *lock(&self.trust) = Some(Arc::clone(&trust));
        if !accepted.has_changed {
            self.write_again();
            self.is_kept(root)?;
            return accepted
                .left_out
                .map_or_else(|| Ok((false, "this list is known already".to_owned())), |why| Err(why.into()));
        }
        let live = trust.revocations().of(root).map_or(0, |root| root.live());
        let said = format!(
            "revocation list {} of {} holds, with {live} taken back in all of its root",
            list.sequence(),
            list.issuer().signer(),
        );
        say(&said);
        let signer = LedgerText::new(&list.issuer().signer().to_string());
        let ids = list.revoked().len() as u64;
        lock(&self.books).enter(LedgerEvent::Revoked { root: signer, list: list.sequence(), ids });
        self.write(&trust, root);
        self.write_again();
        self.is_kept(root)?;
        accepted.left_out.map_or_else(|| Ok((true, said)), |why| Err(why.into()))
    }

    /// Writes the state of a root. A failure is remembered, so that it is tried again.
    fn write(&self, trust: &Trust, root: &PublicKey) {
        let folder = self.with_node(|node| node.config.node.state.clone());
        // A root that is not trusted any more has nothing to write.
        let written =
            trust.revocations().of(root).map_or(Ok(()), |revoked| revoked::keep(&folder, root, revoked));
        let line = lock(&self.unkept).note(root, &written, Instant::now());
        line.iter().for_each(|line| warn(line));
    }

    /// Writes all states again that could not be written, if the last try was not a moment ago. `revoking` is held.
    fn write_again(&self) {
        let due = lock(&self.unkept).due(Instant::now());
        self.write_all(&due);
    }

    fn write_all(&self, roots: &[PublicKey]) {
        if let Some(trust) = self.trust().filter(|_| !roots.is_empty()) {
            roots.iter().for_each(|root| self.write(&trust, root));
        }
    }

    /// Writes all states that could not be written a last time, as the node ends.
    pub(super) fn keep_at_end(&self) {
        let _revoking = lock(&self.revoking);
        let roots = lock(&self.unkept).roots();
        self.write_all(&roots);
        for root in lock(&self.unkept).roots() {
            warn(&format_args!(
                "the revocations of {root} are forgotten, as they could not be kept: deliver its lists again"
            ));
        }
    }

    fn is_kept(&self, root: &PublicKey) -> Result<(), NotTaken> {
        let why = lock(&self.unkept).why(root).map(str::to_owned);
        why.map_or(Ok(()), |why| Err(NotTaken::NotKept(why)))
    }

    /// Writes all states again that could not be written. Returns an error if that of this root still is not.
    fn kept_again(&self, root: &PublicKey) -> Result<(), NotTaken> {
        self.keep_again();
        self.is_kept(root)
    }

    /// Writes all states again that could not be written.
    pub(super) fn keep_again(&self) {
        if !lock(&self.unkept).is_empty() {
            let _revoking = lock(&self.revoking);
            self.write_again();
        }
    }

    /// A trust that forgets nothing: with all that holds now, and all that was kept.
    pub(super) fn remembered(&self, trust: Option<Arc<Trust>>) -> Result<Option<Arc<Trust>>, DaemonError> {
        let Some(trust) = trust else { return Ok(None) };
        let state = self.with_node(|node| node.config.node.state.clone());
        let kept = revoked::kept(&state)?;
        let now = Second::of(now());
        Ok(Some(self.joined(&trust, &kept, now)))
    }

    /// A trust with what was kept, and with all that holds now.
    fn joined(&self, trust: &Trust, kept: &Revocations, now: Second) -> Arc<Trust> {
        // What has no room is in a file: what holds already comes first.
        let before = self.trust().map(|before| before.revocations().clone()).unwrap_or_default();
        let (trust, left_out) = trust.remembering([kept, &before], now);
        if left_out > 0 {
            warn(&RevocationError::Full { left_out });
        }
        Arc::new(trust)
    }

    /// Has a new trust count, without forgetting a list that has come since it was made.
    pub(super) fn trust_anew(&self, trust: Option<Arc<Trust>>) -> Option<Arc<Trust>> {
        let _revoking = lock(&self.revoking);
        let trust = trust.map(|trust| self.joined(&trust, &Revocations::default(), Second::of(now())));
        (*lock(&self.trust)).clone_from(&trust);
        self.keep_lists();
        trust
    }

    /// Takes over what was kept, at the start.
    pub(super) fn remember(&self) -> Result<(), DaemonError> {
        let trust = self.remembered(self.trust())?;
        *lock(&self.trust) = trust;
        self.keep_lists();
        Ok(())
    }

    /// Keeps the state that holds, so that it does not depend on the operator's files. A folder that cannot be read is left as it is: it may have more than holds now.
    pub(super) fn keep_lists(&self) {
        let Some(trust) = self.trust() else { return };
        let state = self.with_node(|node| node.config.node.state.clone());
        let kept = match revoked::kept(&state) {
            Ok(kept) => kept,
            Err(error) => return warn(&format_args!("revocations are not written again: {error}")),
        };
        let roots = trust.revocations().roots().filter(|(root, it)| kept.of(root) != Some(*it));
        roots.for_each(|(root, _)| self.write(&trust, root));
    }

    /// Counters of delivered lists, and of the entries that each root has; nothing where no credentials count.
    pub(super) fn revocations_shot(&self) -> Option<RevocationCounts> {
        let trust = self.trust()?;
        let entries = trust
            .revocations()
            .roots()
            .map(|(root, revoked)| (root.to_string(), revoked.live() as u64))
            .collect();
        Some(RevocationCounts { deliveries: self.deliveries.shot(), entries })
    }

    /// All that is revoked: of the root of the asker's credential, or of all roots for an operator.
    pub(crate) fn revocations_for(&self, asker: &Asker) -> Vec<RevocationsStatus> {
        match asker {
            Asker::Operator(_) => self.revocations_of(None),
            Asker::Holder(credential) => self.revocations_of(Some(credential.root())),
        }
    }

    /// All that is revoked, of one root or of all.
    pub(crate) fn revocations_of(&self, root: Option<&PublicKey>) -> Vec<RevocationsStatus> {
        let Some(trust) = self.trust() else { return Vec::new() };
        let tokens = |set: &RevokedSet| set.iter().map(|entry| entry.to_string()).collect();
        let time = |set: &RevokedSet| set.all_before().map(|time| time.to_string());
        let shot =
            |(root, revoked): (&PublicKey, &weir_trust::revocation::RootRevocations)| RevocationsStatus {
                root: root.to_string(),
                sequence: revoked.sequence(),
                all_before: time(revoked.own()),
                entries: tokens(revoked.own()),
                delegated: revoked
                    .delegators()
                    .map(|(holder, under, set)| DelegatedStatus {
                        holder: holder.to_string(),
                        under: under.to_string(),
                        all_before: time(set),
                        entries: tokens(set),
                    })
                    .collect(),
            };
        let wanted = |(of, _): &(&PublicKey, _)| root.is_none_or(|root| root == *of);
        trust.revocations().roots().filter(wanted).map(shot).collect()
    }

    /// Ends sessions that have more than their root may grant, after that has changed.
    pub(super) fn close_what_is_beyond(self: &Arc<Self>) {
        if !self.is_limited_anew.swap(false, Ordering::AcqRel) {
            return;
        }
        let Some(trust) = self.trust() else { return };
        let now = Second::of(now());
        let beyond = lock(&self.node).hold_again(|credential| trust.current(credential, now).ok());
        for (session, id, refusal) in beyond {
            self.end_aside(session, id, CloseReason::Expired, &refusal.to_string());
        }
    }

    /// Sessions whose right has ended, by its time or because it was revoked.
    pub(crate) fn close_expired(self: &Arc<Self>) {
        self.close_what_is_beyond();
        let owned: Vec<_> = {
            let node = lock(&self.node);
            let owned = node
                .sessions
                .iter()
                .filter_map(|(name, session)| Some((name, session.id, session.owner.as_ref()?)));
            owned
                .map(|(name, id, owner)| (name.clone(), id, Asker::Holder(Arc::clone(&owner.credential))))
                .collect()
        };
        for (session, id, asker) in owned {
            if let Err(why) = self.still(&asker) {
                let is_revoked = matches!(&why, RequestRefusal::Worthless(why) if why.is_revocation());
                let reason = if is_revoked { CloseReason::Revoked } else { CloseReason::Expired };
                self.end_aside(session, id, reason, &why.to_string());
            }
        }
    }

    /// Ends a session whose right has ended. Nobody waits for that.
    fn end_aside(self: &Arc<Self>, session: weir_admission::Name, id: u64, reason: CloseReason, why: &str) {
        if !lock(&self.ending).insert(id) {
            return;
        }
        log::session(&session).say(&format_args!("session {session} is closed: {why}"));
        self.aside(move |daemon| {
            _ = daemon.close_for(&session, id, reason, Unloaded::SessionClosed);
            lock(&daemon.ending).remove(&id);
        });
    }
}
