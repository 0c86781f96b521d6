//! Unloads modules and closes sessions, at a request or because of their behaviour.

use super::Daemon;
use crate::log::{self, warn};
use crate::sessions::close::{self, StoppingModule};
use crate::sessions::error::NodeError;
use crate::sessions::shares::PermittedBy;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_admission::Name;
use weir_datapath::clock::ClockReading;
use weir_datapath::event::ObservedEvent;
use weir_ledger::{CloseReason, LedgerEvent, SessionId as LedgerSessionId, UnloadReason};

/// A session that is being closed. Its modules run nothing any more but their stop functions.
struct ClosingSession {
    name: Name,
    id: u64,
    reason: CloseReason,
    unload_reason: UnloadReason,
    session_id: Option<LedgerSessionId>,
    stopping: Vec<StoppingModule>,
}

/// The maximum time for which the close of a session waits for modules that another request unloads.
const UNLOAD_WAIT_MAX: Duration = Duration::from_secs(20);

impl Daemon {
    /// Runs long work on a thread of its own, so that the event loop is not delayed. If no thread can be started, the work
    /// runs on the calling thread.
    pub(super) fn run_in_background(self: &Arc<Self>, work: impl Fn(&Self) + Send + Sync + 'static) {
        let (daemon, work) = (Arc::clone(self), Arc::new(work));
        let in_thread = Arc::clone(&work);
        let thread = std::thread::Builder::new().name("weir-close".to_owned());
        if thread.spawn(move || in_thread(&daemon)).is_err() {
            work(self);
        }
    }

    pub(super) fn handle_event(self: &Arc<Self>, event: ObservedEvent) {
        match event {
            ObservedEvent::Interface { interface, what } => log::interface(&interface).info(&what),
            ObservedEvent::Failed { interface, what } => log::interface(&interface).warn(&what),
            ObservedEvent::Lagging { owner: id, channel } => {
                // The session may have been closed or changed since, or another module of the channel may have reported the
                // same.
                let session = self.node.lock().session_with_channel(id, channel).cloned();
                let Some(session) = session.filter(|_| self.closing.with(|closing| closing.insert(id)))
                else {
                    return;
                };
                let what = format_args!("session {session} lags further behind than allowed, and is closed");
                log::session(&session).warn(&what);
                self.run_in_background(move |daemon| {
                    _ = daemon.close_by_id(&session, id, CloseReason::Misbehaved, UnloadReason::Lagged);
                    daemon.closing.with(|closing| closing.remove(&id));
                });
            }
        }
    }

    /// Unloads the modules that have failed, and so get no more packets.
    pub(super) fn unload_failed(self: &Arc<Self>) {
        let failed = self.node.lock().ended_modules();
        for (session, module, module_number, why) in failed {
            self.run_in_background(move |daemon| {
                match daemon.unload_for(&session, &module, module_number, why) {
                    Ok(()) => {
                        let why = match why {
                            UnloadReason::ProcessEnded => "its process has ended",
                            UnloadReason::CodeWithdrawn => "its machine code was withdrawn",
                            _ => "it has exceeded its limits too often",
                        };
                        let what =
                            format_args!("session {session}, module {module}: {why}, so it is unloaded");
                        log::session(&session).module(&module).warn(&what);
                    }
                    // A request has unloaded the module, or closed its session, meanwhile.
                    Err(NodeError::NoModule { .. } | NodeError::NoSession(_)) => {}
                    Err(error) => log::session(&session).module(&module).warn(&error),
                }
            });
        }
    }

    /// Unloads a module at a request. `by` is the right by which the request was permitted.
    pub(crate) fn unload(&self, session: &Name, module: &Name, by: &PermittedBy) -> Result<(), NodeError> {
        let (session_id, stopping) = {
            let mut node = self.node.lock();
            let id = node.permitted_session(session, by)?.id;
            let is_cancelled = node.forget_unrestored(session, id, module);
            if node.forget_stopped(session, module) {
                return Ok(());
            }
            match node.begin_unload(session, module, None, UnloadReason::Requested) {
                Ok(stopping) => (node.session_id(session), stopping),
                // The module was still to be restored, and is not restored any more.
                Err(_) if is_cancelled => {
                    drop(node);
                    self.save_now(session);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        };
        self.save_now(session);
        self.wait_for_unload(session_id, vec![stopping], UnloadReason::Requested)
    }

    /// Unloads the module with the number `module_number`. A newer module of the same name is not affected.
    fn unload_for(
        &self,
        session: &Name,
        module: &Name,
        module_number: u64,
        reason: UnloadReason,
    ) -> Result<(), NodeError> {
        let (session_id, stopping) = {
            let mut node = self.node.lock();
            (node.session_id(session), node.begin_unload(session, module, Some(module_number), reason)?)
        };
        self.save_now(session);
        self.wait_for_unload(session_id, vec![stopping], reason)
    }

    /// Waits for modules that are being unloaded, records their end, and removes them. The wait can be long, so it holds no
    /// lock, and only the requester waits.
    pub(super) fn wait_for_unload(
        &self,
        session: Option<LedgerSessionId>,
        stopping: Vec<StoppingModule>,
        reason: UnloadReason,
    ) -> Result<(), NodeError> {
        let mut result = Ok(());
        close::wait_for(stopping, |stop| {
            // The entry is appended before the module leaves its session. The close of a session waits until its modules
            // have left, so the entry of the close comes later.
            if let Some(session) = session.clone() {
                let module = stop.module.clone();
                self.ledger.lock().append(LedgerEvent::ModuleUnloaded { session, module, reason });
            }
            let ended = self.node.lock().end_unload(stop);
            if result.is_ok() {
                result = ended;
            }
        });
        result
    }

    /// Closes a session at a request. `by` is the right by which the request was permitted.
    pub(crate) fn close(&self, session: &Name, by: &PermittedBy) -> Result<(), NodeError> {
        // The number identifies this session: a newer one of this name may have another owner.
        let id = self.node.lock().permitted_session(session, by)?.id;
        self.close_by_id(session, id, CloseReason::Requested, UnloadReason::SessionClosed)
    }

    /// Closes the session that has this name now.
    pub(super) fn close_by_name(
        &self,
        name: &Name,
        reason: CloseReason,
        unload_reason: UnloadReason,
    ) -> Result<(), NodeError> {
        let session = self.node.lock().session_id(name).ok_or_else(|| NodeError::NoSession(name.clone()))?;
        self.close_by_id(name, session.id, reason, unload_reason)
    }

    /// Closes the session with this number. A newer session of the same name is not affected.
    pub(super) fn close_by_id(
        &self,
        name: &Name,
        id: u64,
        reason: CloseReason,
        unload_reason: UnloadReason,
    ) -> Result<(), NodeError> {
        let closing = self.begin_close(name, id, reason, unload_reason)?;
        self.finish_close(closing)
    }

    /// Stops all activity of a session at once, apart from the stop functions of its modules.
    fn begin_close(
        &self,
        name: &Name,
        id: u64,
        reason: CloseReason,
        unload_reason: UnloadReason,
    ) -> Result<ClosingSession, NodeError> {
        let mut node = self.node.lock();
        let (session_id, stopping) = (node.session_id(name), node.begin_close(name, id, reason)?);
        Ok(ClosingSession { name: name.clone(), id, reason, unload_reason, session_id, stopping })
    }

    /// Closes a session whose modules have been stopped. Returns an error with the session's name.
    pub(super) fn close_stopped(
        &self,
        session: LedgerSessionId,
        stopping: Vec<StoppingModule>,
        reason: CloseReason,
        unload_reason: UnloadReason,
    ) -> Result<(), (Name, NodeError)> {
        let (name, id, session_id) = (session.name.clone(), session.id, Some(session));
        match self.finish_close(ClosingSession {
            name: name.clone(),
            id,
            reason,
            unload_reason,
            session_id,
            stopping,
        }) {
            // A request has closed the session meanwhile.
            Ok(()) | Err(NodeError::NoSession(_)) => Ok(()),
            Err(error) => Err((name, error)),
        }
    }

    /// Waits until a session's modules have stopped. Then closes the session, and with the owner's last session also the
    /// sessions of the owner's delegates.
    fn finish_close(&self, closing: ClosingSession) -> Result<(), NodeError> {
        let ClosingSession { name, id, reason, unload_reason, session_id, stopping } = closing;
        let name = &name;
        let begin = Instant::now();
        self.wait_for_unload(session_id, stopping, unload_reason)?;
        while self.node.lock().has_stopping_modules(name, id) && begin.elapsed() < UNLOAD_WAIT_MAX {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut ledger = self.ledger.lock();
        let mut node = self.node.lock_after(&ledger);
        node.session_with_id(name, id)?;
        if let Err(error) = node.stop_outputs(name) {
            warn(&error);
        }
        let (begin, end, length) = ledger.interval.until(ClockReading::now());
        let last = node
            .sessions
            .get(name)
            .map(|session| ledger.usage.usage_of_session(&node, name, session, length));
        let closed = node.session_id(name);
        let owner = node.sessions.get(name).and_then(|session| session.owner.clone());
        node.close(name)?;
        if let (Some(used), Some(session)) = (last, closed) {
            ledger.usage.forget(session.id);
            used.events().for_each(|event| ledger.writer.push(begin, end, event));
            ledger.append(LedgerEvent::SessionClosed { session, reason });
        }
        // Sessions under credentials that the owner has delegated are closed with the owner's last session. When the node
        // stops, all sessions are closed anyway, each with its own reason.
        let orphans = match &owner {
            Some(owner) if reason != CloseReason::Node => node.orphans_of(&owner.credential),
            _ => Vec::new(),
        };
        drop((node, ledger));
        self.save_now(name);
        // All orphaned sessions are stopped before the first one is waited for. A session that was closed meanwhile is
        // skipped.
        let begin = |(orphan, id): (Name, u64)| {
            log::session(&orphan).info(&format_args!(
                "session {orphan} is closed, as the last session of its owner's delegator was closed"
            ));
            self.begin_close(&orphan, id, CloseReason::Parent, UnloadReason::SessionClosed).ok()
        };
        let orphans: Vec<ClosingSession> = orphans.into_iter().filter_map(begin).collect();
        for orphan in orphans {
            _ = self.finish_close(orphan);
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use crate::control::authority::SessionOwner;
    use crate::control::authority::tests::{chain, name};
    use crate::control::share::{ShareGrant, ShareableRight};
    use crate::server::daemon::{Daemon, Setup, load_config};
    use crate::sessions::error::NodeError;
    use crate::sessions::filters::CompiledFilters;
    use crate::sessions::shares::PermittedBy;
    use std::path::Path;
    use std::sync::Arc;
    use weir_admission::Calibration;
    use weir_os::private::PrivateFolder;
    use weir_trust::grant::Grant;
    use weir_trust::key::Identity;

    /// A daemon without interfaces, with its state in this folder.
    pub(in crate::server::daemon) fn daemon(folder: &Path) -> Daemon {
        let (config, state) = (folder.join("node.toml"), folder.join("state"));
        PrivateFolder::make(&state).unwrap();
        let text = format!("[node]\nsocket = \"{0}/socket\"\nstate = \"{0}/state\"\n", folder.display());
        std::fs::write(&config, text).unwrap();
        let setup = Setup { config, calibration: Calibration::default(), shipped: |_| None };
        let loaded = load_config(&setup.config, &setup.calibration, setup.shipped).unwrap();
        let ledger = weir_ledger_files::LedgerFolder::open(&state.join(super::super::LEDGER)).unwrap();
        Daemon::start(setup, loaded, ledger, None).unwrap().0
    }

    #[test]
    fn a_permitted_request_is_executed_only_while_its_right_still_holds() {
        let folder = tempfile::tempdir().unwrap();
        let daemon = daemon(folder.path());
        let (session, module) = (name("s"), name("m"));
        let share = ShareGrant { right: ShareableRight::Manage, key: Identity::from_seed(&[1; 32]).public() };
        let owner = |holders: usize| {
            let credential = chain(&vec![Grant::default(); holders]);
            SessionOwner { credential, session_name: name("s") }
        };
        let (owner, other) = (owner(2), owner(3));
        let create = |owner: &SessionOwner| {
            let spec = toml::from_str(&format!("name = \"s\"\nshare = [\"{share}\"]")).unwrap();
            daemon.node.lock().create(spec, Some(owner.clone()), &CompiledFilters::default()).unwrap();
        };
        create(&owner);
        let shared = (Some(owner.clone()), Some(share));
        // The request is permitted, but there is no such module.
        let unload = |by: &PermittedBy| daemon.unload(&session, &module, by);
        assert!(matches!(unload(&shared), Err(NodeError::NoModule { .. })));
        // The share is removed between the decision and the execution.
        daemon.node.lock().sessions.get_mut(&session).unwrap().spec.share.clear();
        assert!(matches!(unload(&shared), Err(NodeError::NotPermitted(_))));
        assert!(matches!(unload(&(Some(owner.clone()), None)), Err(NodeError::NoModule { .. })));

        // The session is replaced by another owner's between the decision and the execution.
        daemon.node.lock().close(&session).unwrap();
        create(&other);
        let before = (Some(owner.clone()), None);
        assert!(matches!(unload(&before), Err(NodeError::NoSession(_))));
        assert!(matches!(daemon.close(&session, &before), Err(NodeError::NoSession(_))));
        assert!(
            daemon.node.lock().sessions.contains_key(&session),
            "the other owner's session is still open"
        );
        assert!(Arc::ptr_eq(
            &daemon.node.lock().sessions[&session].owner.as_ref().unwrap().credential,
            &other.credential
        ));
        daemon.close(&session, &(Some(other.clone()), None)).unwrap();
        assert!(!daemon.node.lock().sessions.contains_key(&session));
        create(&other);
        daemon.close(&session, &(None, None)).unwrap();
        assert!(matches!(daemon.close(&session, &(None, None)), Err(NodeError::NoSession(_))));
    }
}
