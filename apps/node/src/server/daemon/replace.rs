//! Replaces a module by a newer version, and watches the newer version while it is on trial.

use super::Daemon;
use super::load::{LoadOutcome, Placement};
use crate::control::spec::ModuleSpec;
use crate::core_thread::task::ModuleTask;
use crate::log;
use crate::server::compile_queue::RequestBudget;
use crate::sessions::compiler_trust::VouchedModule;
use crate::sessions::error::NodeError;
use crate::sessions::replace::{OlderVersion, PreparedReplacement, TrialEnd};
use crate::sessions::shares::PermittedBy;
use std::sync::Arc;
use std::sync::mpsc::channel;
use weir_admission::Name;
use weir_ledger::{Digest, LedgerEvent, UnloadReason};
use weir_trust::grant::ModuleHash;
use weir_units::Nanos;

/// The longest trial of a newer version. The older version keeps its memory for as long.
const TRIAL_MAX: Nanos = Nanos(3600 * Nanos::SECOND.0);

/// A file by which a module is saved: its hash, and its bytes.
pub(super) type SavedFile = (ModuleHash, Vec<u8>);

impl Daemon {
    /// Replaces the module of the same name, if the newer version is admitted and started. At a fault within `trial` the older
    /// version returns. `permitted` is the right by which the request was permitted. Returns a note for the requester.
    ///
    /// # Errors
    /// The errors of a load, or the session has no module of this name. The older version goes on.
    pub(crate) fn replace(
        self: &Arc<Self>,
        session: &Name,
        permitted: PermittedBy,
        module: &ModuleSpec,
        (file, signatures): (Option<Vec<u8>>, &[String]),
        trial: Nanos,
        budget: &mut RequestBudget,
    ) -> Result<String, NodeError> {
        if trial > TRIAL_MAX {
            return Err(NodeError::TrialTooLong { given: trial, most: TRIAL_MAX });
        }
        // The thread that watches the trial is there before anything changes, because a trial that nothing watches has no end.
        let (sender, receiver) = channel::<(Box<OlderVersion>, Option<SavedFile>)>();
        let (daemon, thread) = (Arc::clone(self), std::thread::Builder::new().name("weir-trial".to_owned()));
        let watch = move || receiver.into_iter().for_each(|(older, file)| daemon.watch_trial(*older, file));
        thread.spawn(watch).map_err(NodeError::TrialThread)?;
        let placement = Placement::Replacing(trial);
        let LoadOutcome { name, older } =
            self.load_into(session, placement, permitted, module, (file, signatures), budget)?;
        let state = match &older {
            Some((older, _)) if older.is_state_taken => "with the state of the version before",
            _ => "from an empty state, as both versions do not declare the same state",
        };
        // The thread waits for this, so the receiver is there.
        _ = older.map(|older| sender.send(older));
        Ok(format!(
            "module {name} runs in session {session}, {state}; the version before returns at a fault within {trial}"
        ))
    }

    /// Prepares a started module to replace the present one, and waits until the present one has left its core. Returns its task.
    pub(super) fn release_present(
        &self,
        mut replacement: PreparedReplacement,
    ) -> Result<(PreparedReplacement, ModuleTask), NodeError> {
        let (error, present) = match replacement.wait() {
            Ok(mut present) => match replacement.take_state(&mut present) {
                Ok(()) => return Ok((replacement, present)),
                Err(error) => (error, Some(present)),
            },
            Err(error) => (error, None),
        };
        let mut node = self.node.lock();
        let ended = match present.or_else(|| node.cancel_release(&replacement)) {
            Some(present) => node.undo_replacement(replacement, present),
            None => {
                replacement.discard();
                None
            }
        };
        drop(node);
        ended.into_iter().for_each(|version| self.drop_version(*version));
        Err(error)
    }

    /// Waits for the end of a trial, and acts on it.
    fn watch_trial(&self, older: OlderVersion, file: Option<SavedFile>) {
        match older.wait() {
            TrialEnd::Failed(newer) => self.return_to(older, *newer),
            TrialEnd::Passed => self.end_trial(older, file),
            TrialEnd::Gone => self.drop_version(older),
        }
    }

    /// Keeps the newer version for good.
    fn end_trial(&self, older: OlderVersion, file: Option<SavedFile>) {
        let failed = self.node.lock().pass_trial(&older);
        if let Some(newer) = failed {
            return self.return_to(older, *newer);
        }
        let (session, module) = older.place();
        let (session, module) = (session.name.clone(), module.clone());
        self.drop_version(older);
        if let Some((hash, bytes)) = file {
            self.save_module(&session, hash, &bytes);
        }
        self.save_now(&session);
        let what = format_args!("session {session}, module {module}: the newer version has passed its trial");
        log::session(&session).module(&module).info(&what);
    }

    /// Gives the older version its place again.
    fn return_to(&self, mut older: OlderVersion, newer: ModuleTask) {
        let (session, module) = older.place();
        let (session, module) = (session.clone(), module.clone());
        let (returned, loaded) = {
            let mut node = self.node.lock();
            let verified = self.reverify_owner(&mut node, &session.name);
            let returned = verified.and_then(|()| node.return_to_older(&mut older));
            let tier = returned.is_ok().then(|| node.tier(&session.name, &module)).flatten();
            let digest = node.sessions.get(&session.name).and_then(|state| state.modules.get(&module));
            let loaded = tier.zip(digest.map(|module| module.digest)).map(|(tier, digest)| {
                LedgerEvent::ModuleLoaded {
                    session: session.clone(),
                    module: module.clone(),
                    code: Digest(digest.0),
                    tier,
                    compiled: node.vouched(&session.name, &module).map(VouchedModule::in_ledger),
                }
            });
            (returned, loaded)
        };
        {
            let (session, module, reason) = (session.clone(), module.clone(), UnloadReason::TrialFailed);
            let mut ledger = self.ledger.lock();
            ledger.append(LedgerEvent::ModuleUnloaded { session, module, reason });
            loaded.into_iter().for_each(|event| ledger.append(event));
        }
        let stop = older.finish_newer(newer);
        _ = self.node.lock().end_unload(stop);
        let line = log::session(&session.name);
        let line = line.module(&module);
        let name = &session.name;
        match returned {
            Ok(()) => line.warn(&format_args!(
                "session {name}, module {module}: the newer version had a fault in its trial, so the version before runs again"
            )),
            Err(error) => {
                line.warn(&format_args!(
                    "session {name}, module {module}: the newer version had a fault in its trial, and the version before cannot run: {error}"
                ));
                self.drop_version(older);
            }
        }
        self.save_now(&session.name);
    }

    /// Ends an older version for good. If the newer one has its state, the older one has nothing left to do; otherwise its stop
    /// function is called.
    pub(super) fn drop_version(&self, older: OlderVersion) {
        if older.is_state_taken {
            let stop = older.finish();
            _ = self.node.lock().end_unload(stop);
        } else {
            let stopping = self.node.lock().stop_version(older);
            // The ledger has had its entry since the switch.
            _ = self.wait_for_unload(None, vec![stopping], UnloadReason::Replaced);
        }
    }
}
