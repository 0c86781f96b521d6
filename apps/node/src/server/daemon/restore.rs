//! Restores saved sessions when a node starts.
//!
//! Each session is created again as by a new request: its credential is verified against the present time, roots and
//! revocations, and the present admission decides. First all sessions are created in the order of their creation,
//! before the node accepts a request, so that no new session takes their resources. Then one thread loads their
//! modules. Modules of the operator come first, then those of the party that has used the least processor time. A
//! party is all holders with the same first identifier in their [delegation chains](delegation_chain).

use super::load::Placement;
use super::{Daemon, now};
use crate::control::audit::PendingDecision;
use crate::control::authority::{RequestRefusal, Requester, SessionOwner, delegation_chain};
use crate::control::protocol::ControlRequest;
use crate::control::spec::SessionSpec;
use crate::log::{self, info, warn};
use crate::server::compile_queue;
use crate::server::session_store::{NotedSurvival, StoreError};
use crate::sessions::error::NodeError;
use crate::sessions::saved::{SavedModule, SavedSession, SessionOrigin};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use weir_admission::Name;
use weir_ledger::{CloseReason, UnloadReason};
use weir_trust::credential::{Credential, CredentialRefusal, DelegationId};
use weir_trust::grant::UnixSecond;
use weir_units::Nanos;

/// The reason why a saved session or module is not restored.
#[derive(Debug, thiserror::Error)]
enum RestoreError {
    #[error(transparent)]
    Refused(#[from] RequestRefusal),
    #[error(transparent)]
    Node(#[from] NodeError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<CredentialRefusal> for RestoreError {
    fn from(refusal: CredentialRefusal) -> Self {
        Self::Refused(refusal.into())
    }
}

impl RestoreError {
    /// Returns true if the right to the session or module is gone. After any other error, such as a lack of memory, the
    /// session or module stays saved.
    fn is_final(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Node(NodeError::NotPermitted(_)))
    }

    /// Returns the end of a message about the error.
    fn consequence(&self) -> &'static str {
        if self.is_final() { "" } else { "; it stays saved, and the next start tries again" }
    }
}

/// A module that is still to be restored.
struct ModuleJob {
    session: Name,
    /// The session's number.
    id: u64,
    module: SavedModule,
}

/// Logs why the file of a saved session cannot be read.
fn log_unread(error: &StoreError) {
    let consequence =
        if error.is_transient() { "; its file stays for the next start" } else { "; its file is removed" };
    warn(&format_args!("a saved session is not restored: {error}{consequence}"));
}

impl Daemon {
    /// Restores all saved sessions without their modules. A session that cannot be restored is logged, and the start goes
    /// on.
    pub(super) fn restore_sessions(&self) {
        let Some(mut store) = self.open_store() else { return };
        let (found, unreadable) = match store.find() {
            Ok(found) => found,
            Err(error) => return warn(&format_args!("sessions are neither saved nor restored: {error}")),
        };
        unreadable.iter().for_each(log_unread);
        if !self.with_node(|node| node.config.node.restore) {
            let count = store.remove_all(&found);
            if count > 0 {
                info(&format!("{count} saved sessions are removed, as `restore` is false"));
            }
            return;
        }
        // All sessions are read before the first one is restored, so that all module files in use are known.
        let mut readable = Vec::new();
        for found in found {
            match store.read(&found) {
                Ok(_) => readable.push(found),
                Err(error) => log_unread(&error),
            }
        }
        store.remove_all_unused_modules();
        let guard = (!readable.is_empty()).then(|| store.guard().begin());
        *self.store.lock() = Some(store);
        let Some((earlier_starts, counted)) = guard else { return };
        if let Err(error) = counted {
            warn(&format_args!("starts that end in a crash are not counted: {error}"));
        }
        let (mut kept, mut restored, mut waiting) = (0_usize, Vec::new(), BTreeSet::new());
        for found in &readable {
            let Some(Ok(saved)) = self.store.lock().as_mut().map(|store| store.read(found)) else { continue };
            let is_waiting = if earlier_starts.restores(saved.owner.is_some()) {
                self.restore_session(&saved)
            } else {
                kept += 1;
                self.record_unrestored(&saved, "earlier starts with saved sessions have crashed the node");
                true
            };
            if is_waiting {
                waiting.extend(saved.claimed_chain().last());
            } else {
                restored.push(saved);
            }
        }
        self.close_restored_orphans(&restored, &waiting);
        if kept > 0 {
            warn(&format_args!(
                "the node has crashed soon after each of its last starts, so {kept} saved sessions are not restored now; a start after a stop in order, or after an hour, tries again, and `restore = false` under [node] removes them"
            ));
        }
    }

    /// Restores a session without its modules. If the owner's right is gone, the session's file is removed. Returns true if
    /// the session is not restored and its file stays.
    fn restore_session(&self, saved: &SavedSession) -> bool {
        let (name, modules) = (saved.session.name.clone(), saved.modules.len());
        match self.create_saved(saved) {
            Ok(owner) => {
                log::session(&name)
                    .info(&format_args!("session {name} is restored, with {modules} modules to load"));
                self.record_decision(PendingDecision::for_restore(&name, owner.as_ref()));
            }
            Err(error) => {
                let consequence = error.consequence();
                log::session(&name)
                    .warn(&format_args!("session {name} is not restored: {error}{consequence}"));
                self.record_unrestored(saved, &error.to_string());
                if !error.is_final() {
                    return true;
                }
            }
        }
        self.save(&name);
        false
    }

    /// Closes each restored session whose owner's delegators have no session any more, as the close of their last session
    /// would have done. `waiting` has the owners of sessions that stay saved and are not restored now; such a session counts.
    fn close_restored_orphans(&self, restored: &[SavedSession], waiting: &BTreeSet<DelegationId>) {
        let orphans: Vec<(Name, u64)> = self.with_node(|node| {
            let owners = node.sessions.values().filter_map(|state| state.owner.as_ref());
            let owners: BTreeSet<DelegationId> = owners.map(|owner| owner.credential.id()).collect();
            let has_session = |id: &DelegationId| owners.contains(id) || waiting.contains(id);
            let orphans = restored.iter().filter(|saved| {
                let parents = saved.owner.iter().flat_map(|owner| &owner.parents);
                let mut parents = parents.filter_map(|id| id.parse().ok()).peekable();
                parents.peek().is_some() && !parents.any(|id| has_session(&id))
            });
            let named = |saved: &SavedSession| {
                let state = node.sessions.get(&saved.session.name)?;
                Some((saved.session.name.clone(), state.id))
            };
            orphans.filter_map(named).collect()
        });
        for (name, id) in orphans {
            log::session(&name).info(&format_args!(
                "session {name} is closed, as no session of its owner's delegators was restored"
            ));
            if let Err(error) = self.close_by_id(&name, id, CloseReason::Parent, UnloadReason::SessionClosed)
            {
                log::session(&name).warn(&format_args!("session {name}: {error}"));
            }
        }
    }

    /// Records in the ledger that a saved session is not restored.
    fn record_unrestored(&self, saved: &SavedSession, why: &str) {
        let claimed = saved.owner.as_ref().and_then(|owner| owner.credential.parse::<Credential>().ok());
        let called = saved.owner.as_ref().map(|owner| &owner.called);
        let decision = PendingDecision::for_restore_claim(&saved.session.name, called, claimed.as_ref());
        self.record_decision(decision.refused(why));
    }

    /// Creates a saved session as by a request of its owner now. Returns the owner.
    fn create_saved(&self, saved: &SavedSession) -> Result<Option<SessionOwner>, RestoreError> {
        let (requester, given) = match &saved.owner {
            None => (Requester::Operator(None), saved.session.name.clone()),
            Some(owner) => {
                let credential: Credential = owner.credential.parse()?;
                let Some(trust) = self.trust() else {
                    return Err(CredentialRefusal::UnknownRoot(*credential.claimed_root()).into());
                };
                // The holder has proven the possession of the key when the session was created.
                let verified =
                    trust.verify(&credential, credential.claimed_holder(), UnixSecond::containing(now()))?;
                (Requester::Holder(Arc::new(verified)), owner.called.clone())
            }
        };
        let spec = SessionSpec { name: given, ..saved.session.clone() };
        let permitted = self.permit(&requester, ControlRequest::Create(spec), None)?;
        let ControlRequest::Create(spec) = permitted.request else { return Ok(None) };
        let owner = permitted.owner;
        let parents = saved.owner.iter().flat_map(|owner| &owner.parents).filter_map(|id| id.parse().ok());
        let origin = SessionOrigin::Saved(saved.number, saved.modules.clone(), parents.collect());
        let mut budget = compile_queue::budget_for_restore(owner.as_ref());
        let created = self.create_saved_session(spec, owner.clone(), origin, &mut budget);
        self.charge_restore(owner.as_ref(), budget.used());
        created?;
        Ok(owner)
    }

    /// Charges a holder for work that did not wait in the compile queue.
    fn charge_restore(&self, owner: Option<&SessionOwner>, used: Nanos) {
        if let Some(owner) = owner {
            self.compile_queue.charge_outside(&owner.credential, used);
        }
    }

    /// Loads the modules of all restored sessions, until the node stops. The next start restores the others.
    pub(super) fn restore_modules(&self, is_ending: &AtomicBool) {
        self.bind_to_other_cores();
        let mut parties = self.module_jobs();
        let (mut loaded, mut all) = (0_usize, 0_usize);
        while !is_ending.load(Ordering::Acquire) {
            // The modules of the operator, whose party is `None`, come first.
            let next = parties.iter().filter(|(_, (_, jobs))| !jobs.is_empty());
            let next =
                next.min_by_key(|(party, (used, _))| (party.is_some(), *used)).map(|(party, _)| *party);
            let Some((used, jobs)) = next.and_then(|party| parties.get_mut(&party)) else { break };
            let Some(job) = jobs.pop_front() else { break };
            let (is_loaded, spent) = self.restore_module(&job);
            used.0 = used.0.saturating_add(spent.0);
            (loaded, all) = (loaded + usize::from(is_loaded), all + 1);
        }
        if all > 0 {
            info(&format!("{loaded} of {all} modules of restored sessions run"));
        }
    }

    /// Returns the modules that are to be restored, and the used processor time, for each party. The modules are in the order
    /// in which their sessions were created.
    fn module_jobs(&self) -> BTreeMap<Option<DelegationId>, (Nanos, VecDeque<ModuleJob>)> {
        let node = self.node.lock();
        let mut sessions: Vec<_> =
            node.sessions.values().filter(|state| !state.unrestored.is_empty()).collect();
        sessions.sort_by_key(|state| state.id);
        let mut parties: BTreeMap<_, (Nanos, VecDeque<ModuleJob>)> = BTreeMap::new();
        for state in sessions {
            let first = |owner: &SessionOwner| delegation_chain(&owner.credential).next().map(|(id, _)| id);
            let (_, jobs) = parties.entry(state.owner.as_ref().and_then(first)).or_default();
            let job = |module: &SavedModule| ModuleJob {
                session: state.spec.name.clone(),
                id: state.id,
                module: module.clone(),
            };
            jobs.extend(state.unrestored.iter().map(job));
        }
        parties
    }

    /// Loads a module of a restored session. Returns true if it runs, and the used processor time.
    fn restore_module(&self, job: &ModuleJob) -> (bool, Nanos) {
        let ModuleJob { session, id, module } = job;
        let Some(name) = &module.module.name else { return (false, Nanos(0)) };
        // A request may have closed the session, or unloaded the module.
        if self.with_node(|node| node.check_unrestored(session, *id, name)).is_err() {
            return (false, Nanos(0));
        }
        let (loaded, used) = self.load_saved(session, *id, module);
        let Err(error) = loaded else { return (true, used) };
        // A request has unloaded the module, or closed its session, while it was being restored.
        if self.with_node(|node| node.check_unrestored(session, *id, name)).is_err() {
            return (false, used);
        }
        log::session(session).module(name).warn(&format_args!(
            "session {session}: module {name} is not restored: {error}{}",
            error.consequence()
        ));
        // After any other error the module stays in the session's file, until a request unloads it.
        if error.is_final() && self.node.lock().forget_unrestored(session, *id, name) {
            self.save(session);
        }
        (false, used)
    }

    fn load_saved(
        &self,
        session: &Name,
        id: u64,
        module: &SavedModule,
    ) -> (Result<Name, RestoreError>, Nanos) {
        let owner = self.owner_of(session);
        let mut budget = compile_queue::budget_for_restore(owner.as_ref());
        let loaded = (|| {
            let file = match &module.file {
                Some(hash) => self.store.lock().as_ref().map(|store| store.read_module(hash)).transpose()?,
                None => None,
            };
            let (requester, called) = match &owner {
                Some(owner) => (Requester::Holder(Arc::clone(&owner.credential)), owner.session_name.clone()),
                None => (Requester::Operator(None), session.clone()),
            };
            let signatures = module.signatures.clone();
            let request = ControlRequest::Load {
                session: called,
                module: module.module.clone(),
                signatures,
                replace: None,
            };
            self.permit(&requester, request, file.as_deref())?;
            let by = (owner.clone(), None);
            let file = (file, module.signatures.as_slice());
            Ok(self.load_into(session, Placement::Restored(id), by, &module.module, file, &mut budget)?.name)
        })();
        self.charge_restore(owner.as_ref(), budget.used());
        (loaded, budget.used())
    }

    /// Notes on disk that the node has run for some time since its start. `since` is the time at which all modules were
    /// restored, as a module that is loaded late may crash the node late.
    pub(super) fn note_survival(&self, since: Option<&Instant>, noted: &mut NotedSurvival) {
        let now = since.map_or(NotedSurvival::Nothing, |since| NotedSurvival::after(since.elapsed()));
        if now > *noted {
            *noted = now;
            if let Some(store) = self.store.lock().as_ref() {
                store.guard().note(now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::close::tests::daemon;
    use super::*;
    use crate::control::authority::tests::{chain, name};
    use crate::sessions::filters::CompiledFilters;
    use weir_trust::grant::Grant;

    /// Creates a session that is saved. Returns its saved form.
    fn create(daemon: &Daemon, owner: Option<SessionOwner>) -> SavedSession {
        let mut node = daemon.node.lock();
        let spec = toml::from_str("name = \"s\"").unwrap();
        node.create(spec, owner, &CompiledFilters::default()).unwrap();
        node.sessions.get_mut(&name("s")).unwrap().set_origin(SessionOrigin::Request);
        node.saved_session(&name("s")).unwrap()
    }

    #[test]
    fn only_a_right_that_is_gone_removes_a_file() {
        let refusal = || RequestRefusal::NoSession(name("s"));
        assert!(RestoreError::from(refusal()).is_final());
        assert!(RestoreError::from(NodeError::NotPermitted(Box::new(refusal()))).is_final());
        for passing in
            [NodeError::Descriptors { limit: 1 }, NodeError::TooMany(1), NodeError::VirtualCpuFull(name("c"))]
        {
            assert!(!RestoreError::from(passing).is_final());
        }
        assert!(!RestoreError::from(StoreError::Damaged(String::new())).is_final());
    }

    #[test]
    fn a_restored_session_without_any_of_its_parents_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let daemon = daemon(folder.path());
        let credential = chain(&vec![Grant::default(); 2]);
        let own = credential.id();
        let mut saved = create(&daemon, Some(SessionOwner { credential, session_name: name("s") }));
        let is_open = || daemon.node.lock().sessions.contains_key(&name("s"));
        let parent: DelegationId = format!("weir-id:{}", "a".repeat(32)).parse().unwrap();
        let with = |saved: &mut SavedSession, parents: &[DelegationId]| {
            saved.owner.as_mut().unwrap().parents = parents.iter().map(DelegationId::to_string).collect();
        };
        let close = |saved: &SavedSession, waiting: BTreeSet<DelegationId>| {
            daemon.close_restored_orphans(std::slice::from_ref(saved), &waiting);
        };
        close(&saved, BTreeSet::new());
        // A parent whose session waits for the next start, and one that has a session.
        with(&mut saved, &[parent]);
        close(&saved, [parent].into());
        with(&mut saved, &[parent, own]);
        close(&saved, BTreeSet::new());
        assert!(is_open());
        with(&mut saved, &[parent]);
        close(&saved, BTreeSet::new());
        assert!(!is_open());
    }

    #[test]
    fn a_module_is_restored_only_into_the_session_that_still_lacks_it() {
        let folder = tempfile::tempdir().unwrap();
        let daemon = daemon(folder.path());
        create(&daemon, None);
        let module: SavedModule =
            serde_json::from_value(serde_json::json!({"module": {"name": "m", "module": "m"}})).unwrap();
        let id = {
            let mut node = daemon.node.lock();
            let state = node.sessions.get_mut(&name("s")).unwrap();
            state.unrestored.push(module.clone());
            state.id
        };
        let check = |id| daemon.with_node(|node| node.check_unrestored(&name("s"), id, &name("m")).is_ok());
        assert!(check(id) && !check(id + 1));
        // This node ships no module `m`. After an upgrade, the next start may have one.
        let job = |id| ModuleJob { session: name("s"), id, module: module.clone() };
        assert!(!daemon.restore_module(&job(id)).0 && check(id));
        let saved = || daemon.with_node(|node| node.saved_session(&name("s")).unwrap().modules);
        assert_eq!(saved(), std::slice::from_ref(&module));
        daemon.unload(&name("s"), &name("m"), &(None, None)).unwrap();
        assert!(!check(id) && saved().is_empty());
        assert!(!daemon.restore_module(&job(id)).0);
    }

    #[test]
    fn a_reservation_that_modules_have_changed_is_saved() {
        let folder = tempfile::tempdir().unwrap();
        let daemon = daemon(folder.path());
        create(&daemon, None);
        let changed = weir_units::Bytes(1);
        // The reservation differs from the description, as after a change by a module.
        daemon.node.lock().sessions.get_mut(&name("s")).unwrap().spec.memory = changed;
        daemon.end_interval();
        let mut store = daemon.open_store().unwrap();
        assert!(store.find().unwrap().0.is_empty());
        *daemon.store.lock() = Some(store);
        daemon.end_saving(true);
        let (found, wrong) = daemon.open_store().unwrap().find().unwrap();
        assert!(found.len() == 1 && wrong.is_empty());
    }
}
