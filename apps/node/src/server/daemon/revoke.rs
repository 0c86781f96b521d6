//! Revocation: applies delivered lists, writes the revocations to disk, and closes sessions whose owner's right has ended.

use super::{Daemon, DaemonError, now};
use crate::control::authority::{RequestRefusal, Requester};
use crate::control::protocol::{DelegatedStatus, RevocationCounts, RevocationsStatus};
use crate::log::{self, info, warn};
use crate::server::revocation_files;
use crate::server::trust::Trust;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use weir_ledger::{CloseReason, LedgerEvent, LedgerText, UnloadReason};
use weir_trust::credential::{DelegationId, VerifiedCredential};
use weir_trust::gate::{RateLimit, RateLimiter};
use weir_trust::grant::UnixSecond;
use weir_trust::key::PublicKey;
use weir_trust::revocation::{
    ListHeader, ListReception, ListUse, RevocationError, RevocationList, Revocations, RevokedSet,
};
use weir_units::Nanos;

/// The rate limit for lists that a delegator has signed, for each credential that delivers them. It bounds the writes to
/// disk that these lists cause.
const DELEGATED_RATE: RateLimit = RateLimit { every: Nanos(10 * Nanos::SECOND.0), burst: 8 };
/// The maximum number of credentials whose rates are tracked.
const TRACKED_MAX: usize = 4096;

/// The reason why a list was not applied, or only in part.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListRefusal {
    /// The node has no roots of trust.
    #[error("this node has no remote access, and so no roots of trust")]
    NoRemoteAccess,
    /// Lists that delegators have signed come too often. Contains the seconds until the next one is admitted.
    #[error("revocation lists under this grant come too often: try again in {0} s")]
    TooOften(u64),
    /// The list was applied, but the revocations of its root cannot be written.
    #[error(
        "the revocations of this root are in effect, but cannot be written, so they are lost when the node ends: {0}; deliver the list again when the node's operator has made room in its state folder"
    )]
    NotWritten(String),
    /// The list is invalid, or not accepted.
    #[error(transparent)]
    List(#[from] RevocationError),
}

impl ListRefusal {
    fn counter(&self) -> &'static str {
        match self {
            Self::NoRemoteAccess => "no-remote-access",
            Self::TooOften(_) => "rate-limited",
            Self::NotWritten(_) => "not-stored",
            Self::List(error) => error.counter(),
        }
    }
}

/// Limits the rate of lists that delegators have signed.
#[derive(Debug)]
pub(super) struct DelegatedRateLimiter {
    started: Instant,
    rates: RateLimiter<DelegationId>,
}

impl Default for DelegatedRateLimiter {
    fn default() -> Self {
        Self { started: Instant::now(), rates: RateLimiter::new(DELEGATED_RATE, TRACKED_MAX) }
    }
}

impl DelegatedRateLimiter {
    /// Admits a list that a credential delivers, or returns the seconds until the next one is admitted.
    fn admit(&mut self, credential: DelegationId) -> Result<(), ListRefusal> {
        let now = Nanos::from(self.started.elapsed());
        let wait = self.rates.wait(&credential, now);
        if wait > Nanos(0) {
            return Err(ListRefusal::TooOften(wait.0.div_ceil(Nanos::SECOND.0)));
        }
        self.rates.charge(credential, now);
        Ok(())
    }
}

/// Adds the revocations that the node has stored in its state folder to the roots of trust of a configuration.
pub(super) fn with_stored_revocations(
    trust: Option<Arc<Trust>>,
    state: &std::path::Path,
) -> Result<Option<Arc<Trust>>, DaemonError> {
    let Some(trust) = trust else { return Ok(None) };
    let stored = revocation_files::read_all(state)?;
    let (trust, _) = trust.with_revocations([&stored], UnixSecond::containing(now()));
    Ok(Some(Arc::new(trust)))
}

impl Daemon {
    /// Decides by a list's header whether the node wants the rest of the list. Counts a list that the node does not want. A
    /// known list is refused while the revocations of its root cannot be written.
    pub(crate) fn check_offer(
        &self,
        header: &ListHeader,
        credential: Option<&VerifiedCredential>,
    ) -> Result<ListUse, ListRefusal> {
        let offered = self.trust().ok_or(ListRefusal::NoRemoteAccess).and_then(|trust| {
            let reception =
                ListReception { roots: trust.roots(), credential, now: UnixSecond::containing(now()) };
            let offered = trust.revocations().check_header(header, &reception)?;
            if offered == ListUse::Known {
                self.retry_write_for(header.issuer().affected_root())?;
            }
            Ok(offered)
        });
        if offered.as_ref().is_ok_and(|offered| *offered == ListUse::Known) {
            self.deliveries.accepted("known");
        }
        offered.inspect_err(|why| self.count_refused_list(why.counter()))
    }

    /// Counts a refused list, and logs the refusals since the last log line, at most once a minute.
    pub(crate) fn count_refused_list(&self, reason: &'static str) {
        if let Some(line) = self.deliveries.refused(reason, Instant::now()) {
            warn(&line);
        }
    }

    /// Applies a list, by the right of its signer and of the deliverer's credential, if any. The list takes effect at once,
    /// also for connected peers and running sessions. Returns a description of the change.
    pub(crate) fn revoke(
        &self,
        text: &str,
        credential: Option<&VerifiedCredential>,
    ) -> Result<String, ListRefusal> {
        let applied =
            text.parse().map_err(ListRefusal::List).and_then(|list| self.apply_list(&list, credential));
        match &applied {
            Ok((is_new, _)) => self.deliveries.accepted(if *is_new { "accepted" } else { "known" }),
            Err(why) => self.count_refused_list(why.counter()),
        }
        applied.map(|(_, description)| description)
    }

    fn apply_list(
        &self,
        list: &RevocationList,
        credential: Option<&VerifiedCredential>,
    ) -> Result<(bool, String), ListRefusal> {
        let revoking = self.revocation_lock.lock();
        let trust = self.trust().ok_or(ListRefusal::NoRemoteAccess)?;
        if let (Some(_), Some(credential)) = (list.issuer().own_block(), credential)
            // The rate is that of the deliverer's own credential, so a delegate cannot use up the rate of the delegator who
            // revokes its credential.
            && let Some(own) = credential.chain().last()
        {
            self.delegated_rate.with(|rate| rate.admit(own.id))?;
        }
        let (trust, accepted) = trust.with_list(list, credential, UnixSecond::containing(now()))?;
        let root = list.issuer().affected_root();
        let trust = Arc::new(trust);
        // The trust is replaced even if the list revokes nothing new, since the list's header is known from now on.
        self.trust.set(Some(Arc::clone(&trust)));
        if !accepted.has_changed {
            self.retry_due_writes();
            self.check_written(root)?;
            return accepted
                .left_out
                .map_or_else(|| Ok((false, "this list is known already".to_owned())), |why| Err(why.into()));
        }
        let live = trust.revocations().by_root(root).map_or(0, |root| root.entry_count());
        let description = format!(
            "revocation list {} of {} is in effect; its root has {live} revocations in all",
            list.sequence(),
            list.issuer().signer(),
        );
        info(&description);
        let signer = LedgerText::new(&list.issuer().signer().to_string());
        let ids = list.revoked().len() as u64;
        self.ledger.lock_after(&revoking).append(LedgerEvent::Revoked {
            root: signer,
            list: list.sequence(),
            ids,
        });
        self.write(&trust, root);
        self.retry_due_writes();
        self.check_written(root)?;
        accepted.left_out.map_or_else(|| Ok((true, description)), |why| Err(why.into()))
    }

    /// Writes the revocations of a root. After an error the write is tried again later.
    fn write(&self, trust: &Trust, root: &PublicKey) {
        let folder = self.with_node(|node| node.config.node.state.clone());
        // A root that is not trusted any more has no revocations in `trust`, so nothing is written for it.
        let written = trust
            .revocations()
            .by_root(root)
            .map_or(Ok(()), |revoked| revocation_files::write(&folder, root, revoked));
        let line =
            self.unwritten_revocations.with(|unwritten| unwritten.note(root, &written, Instant::now()));
        line.iter().for_each(|line| warn(line));
    }

    /// Retries the failed writes that are due. The caller has locked `revocation_lock`.
    fn retry_due_writes(&self) {
        let due = self.unwritten_revocations.with(|unwritten| unwritten.due(Instant::now()));
        self.write_all(&due);
    }

    fn write_all(&self, roots: &[PublicKey]) {
        if let Some(trust) = self.trust().filter(|_| !roots.is_empty()) {
            roots.iter().for_each(|root| self.write(&trust, root));
        }
    }

    /// Retries all failed writes a last time, before the node ends.
    pub(super) fn write_revocations_at_stop(&self) {
        let _revocation_lock = self.revocation_lock.lock();
        let roots = self.unwritten_revocations.with(|unwritten| unwritten.roots());
        self.write_all(&roots);
        for root in self.unwritten_revocations.with(|unwritten| unwritten.roots()) {
            warn(&format_args!(
                "the revocations of {root} are lost, as they could not be written: deliver its lists again"
            ));
        }
    }

    /// Returns an error if the revocations of a root could not be written.
    fn check_written(&self, root: &PublicKey) -> Result<(), ListRefusal> {
        let why = self.unwritten_revocations.with(|unwritten| unwritten.error_of(root).map(str::to_owned));
        why.map_or(Ok(()), |why| Err(ListRefusal::NotWritten(why)))
    }

    /// Retries failed writes. Returns an error if the revocations of this root still could not be written.
    fn retry_write_for(&self, root: &PublicKey) -> Result<(), ListRefusal> {
        self.retry_revocation_writes();
        self.check_written(root)
    }

    /// Retries the failed writes that are due.
    pub(super) fn retry_revocation_writes(&self) {
        if !self.unwritten_revocations.with(|unwritten| unwritten.is_empty()) {
            let _revocation_lock = self.revocation_lock.lock();
            self.retry_due_writes();
        }
    }

    /// Adds the stored revocations and the revocations in effect to a new configuration's roots of trust.
    pub(super) fn with_known_revocations(
        &self,
        trust: Option<Arc<Trust>>,
    ) -> Result<Option<Arc<Trust>>, DaemonError> {
        let Some(trust) = trust else { return Ok(None) };
        let state = self.with_node(|node| node.config.node.state.clone());
        let stored = revocation_files::read_all(&state)?;
        let now = UnixSecond::containing(now());
        Ok(Some(self.with_merged_revocations(&trust, &stored, now)))
    }

    /// Returns a copy of `trust` with the stored revocations and the revocations in effect.
    fn with_merged_revocations(&self, trust: &Trust, stored: &Revocations, now: UnixSecond) -> Arc<Trust> {
        // If there are too many entries, those of the configuration's files are left out, since they can be read again.
        let in_effect = self.trust().map(|trust| trust.revocations().clone()).unwrap_or_default();
        let (trust, left_out) = trust.with_revocations([stored, &in_effect], now);
        if left_out > 0 {
            warn(&RevocationError::Full { left_out });
        }
        Arc::new(trust)
    }

    /// Puts new roots of trust into effect, with the revocations that were delivered since they were read.
    pub(super) fn replace_trust(&self, trust: Option<Arc<Trust>>) -> Option<Arc<Trust>> {
        let _revocation_lock = self.revocation_lock.lock();
        let trust = trust.map(|trust| {
            self.with_merged_revocations(&trust, &Revocations::default(), UnixSecond::containing(now()))
        });
        self.trust.set(trust.clone());
        self.write_changed_revocations();
        trust
    }

    /// Reads the stored revocations at the start.
    pub(super) fn load_revocations(&self) -> Result<(), DaemonError> {
        let trust = self.with_known_revocations(self.trust())?;
        self.trust.set(trust);
        self.write_changed_revocations();
        Ok(())
    }

    /// Writes the revocations that differ from the stored ones, so that they survive a change of the operator's files.
    /// If the stored revocations cannot be read, nothing is written, since they may contain more entries.
    pub(super) fn write_changed_revocations(&self) {
        let Some(trust) = self.trust() else { return };
        let state = self.with_node(|node| node.config.node.state.clone());
        let stored = match revocation_files::read_all(&state) {
            Ok(stored) => stored,
            Err(error) => return warn(&format_args!("revocations are not written: {error}")),
        };
        let roots =
            trust.revocations().roots().filter(|(root, revoked)| stored.by_root(root) != Some(*revoked));
        roots.for_each(|(root, _)| self.write(&trust, root));
    }

    /// Returns the counters of delivered lists, and the number of entries of each root; `None` if the node has no remote
    /// access.
    pub(super) fn revocation_counts(&self) -> Option<RevocationCounts> {
        let trust = self.trust()?;
        let entries = trust
            .revocations()
            .roots()
            .map(|(root, revoked)| (root.to_string(), revoked.entry_count() as u64))
            .collect();
        Some(RevocationCounts { deliveries: self.deliveries.snapshot(), entries })
    }

    /// Returns the revocations that a client may see: those of its credential's root, or those of all roots for an operator.
    pub(crate) fn revocations_for(&self, requester: &Requester) -> Vec<RevocationsStatus> {
        match requester {
            Requester::Operator(_) => self.revocations_of(None),
            Requester::Holder(credential) => self.revocations_of(Some(credential.root())),
        }
    }

    /// Returns the revocations of one root, or of all roots.
    pub(crate) fn revocations_of(&self, root: Option<&PublicKey>) -> Vec<RevocationsStatus> {
        let Some(trust) = self.trust() else { return Vec::new() };
        let tokens = |set: &RevokedSet| set.iter().map(|entry| entry.to_string()).collect();
        let time = |set: &RevokedSet| set.all_before().map(|time| time.to_string());
        let status =
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
        let wanted = |(key, _): &(&PublicKey, _)| root.is_none_or(|root| root == *key);
        trust.revocations().roots().filter(wanted).map(status).collect()
    }

    /// Closes sessions that exceed the limit of their root, if the limits of roots have changed.
    pub(super) fn close_over_limit(self: &Arc<Self>) {
        if !self.root_limits_changed.swap(false, Ordering::AcqRel) {
            return;
        }
        let Some(trust) = self.trust() else { return };
        let now = UnixSecond::containing(now());
        let over_limit = self.node.lock().apply_new_grants(|credential| trust.current(credential, now).ok());
        for (session, id, refusal) in over_limit {
            self.close_in_background(session, id, CloseReason::Expired, &refusal.to_string());
        }
    }

    /// Closes sessions whose owner's credential has expired or was revoked.
    pub(crate) fn close_expired(self: &Arc<Self>) {
        self.close_over_limit();
        let owned_sessions: Vec<_> = {
            let node = self.node.lock();
            let owned_sessions = node
                .sessions
                .iter()
                .filter_map(|(name, session)| Some((name, session.id, session.owner.as_ref()?)));
            owned_sessions
                .map(|(name, id, owner)| (name.clone(), id, Requester::Holder(Arc::clone(&owner.credential))))
                .collect()
        };
        for (session, id, requester) in owned_sessions {
            if let Err(why) = self.check_right(&requester) {
                let is_revoked =
                    matches!(&why, RequestRefusal::InvalidCredential(why) if why.is_revocation());
                let reason = if is_revoked { CloseReason::Revoked } else { CloseReason::Expired };
                self.close_in_background(session, id, reason, &why.to_string());
            }
        }
    }

    /// Closes a session whose right has ended, in a background thread.
    fn close_in_background(
        self: &Arc<Self>,
        session: weir_admission::Name,
        id: u64,
        reason: CloseReason,
        why: &str,
    ) {
        if !self.closing.with(|closing| closing.insert(id)) {
            return;
        }
        log::session(&session).info(&format_args!("session {session} is closed: {why}"));
        self.run_in_background(move |daemon| {
            _ = daemon.close_by_id(&session, id, reason, UnloadReason::SessionClosed);
            daemon.closing.with(|closing| closing.remove(&id));
        });
    }
}
