//! Replacement of a module by a newer version of it, without losing a packet.
//!
//! The newer version is admitted, compiled and started beside the present one. Then the present one leaves its core between two
//! batches, the newer one takes over its blocks of state, its queue and its place, and is on trial for some time. At its first
//! fault in that time the older version returns, with the state that it had. Packets wait in the queue meanwhile.
//!
//! The server drives these steps, because two of them wait without the node's lock.

use crate::control::authority::HashAndSigners;
use crate::control::spec::ModuleSpec;
use crate::core_thread::runner::ModuleTrial;
use crate::core_thread::task::{BatchOutput, ModuleTask};
use crate::sessions::change::queues_for_outputs;
use crate::sessions::close::{StopResult, StoppingModule};
use crate::sessions::error::NodeError;
use crate::sessions::install::PreparedModule;
use crate::sessions::module_loader::StartedModule;
use crate::sessions::node::{Node, SessionModule, SessionState, Vp};
use crate::sessions::saved::ModuleOrigin;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use weir_admission::{DeclaredState, Name};
use weir_ledger::SessionId;
use weir_units::Nanos;

/// Longest time in which the present version has to come to the end of its call.
const RELEASE_MAX: Duration = Duration::from_secs(10);

/// A newer version of a module, which is ready to run, and waits for the place of the present version.
pub(crate) struct PreparedReplacement {
    session: SessionId,
    name: Name,
    /// Number of the present version.
    present: u64,
    module: SessionModule,
    ready: PreparedModule,
    /// For each block of state, its place in the present version; `None` unless the newer version takes over the state.
    places: Option<Vec<usize>>,
    released: Receiver<ModuleTask>,
}

/// The older version of a module, whose task waits for the end of the trial of the newer version.
pub(crate) struct OlderVersion {
    session: SessionId,
    name: Name,
    number: u64,
    newer: u64,
    /// `None` once the older version runs again.
    task: Option<ModuleTask>,
    vp: Vp,
    /// True if the newer version has taken over the state.
    pub(crate) is_state_taken: bool,
    /// Gets the task of the newer version if it fails in time.
    failed: Receiver<ModuleTask>,
    until: Instant,
    outputs: Option<Sender<BatchOutput>>,
}

/// The end of a trial.
pub(crate) enum TrialEnd {
    /// The newer version had a fault, and left its core.
    Failed(Box<ModuleTask>),
    /// The newer version had no fault.
    Passed,
    /// The newer version was unloaded or replaced.
    Gone,
}

/// The form in which a module on trial is saved: that of the version before it.
#[derive(Clone, Debug)]
pub(crate) struct SavedBefore {
    pub(crate) spec: ModuleSpec,
    pub(crate) origin: Option<ModuleOrigin>,
}

impl Node {
    /// Returns the publishers of tables of a session's modules, by the modules' names.
    pub(crate) fn publishers_of(&self, session: &Name) -> BTreeMap<Name, u64> {
        let modules = self.sessions.get(session).into_iter().flat_map(|state| &state.modules);
        modules
            .filter_map(|(name, module)| Some((name.clone(), module.table_binding.publisher_number()?)))
            .collect()
    }

    /// Prepares a started module to replace the present module of its name, and tells the core of the present module to release
    /// it. The newer version gets the channel and the virtual CPU of the present one. The caller [waits](PreparedReplacement::wait)
    /// without the node's lock.
    ///
    /// # Errors
    /// The errors of a load. Then the present module goes on.
    pub(crate) fn begin_replacement(
        &mut self,
        session: &Name,
        mut prepared: StartedModule,
        hash_and_signers: Option<HashAndSigners>,
    ) -> Result<PreparedReplacement, NodeError> {
        let missing = || NodeError::NoModule { session: session.clone(), module: prepared.name.clone() };
        let state = self.sessions.get(session).ok_or_else(|| NodeError::NoSession(session.clone()))?;
        let present = state.modules.get(&prepared.name).ok_or_else(missing)?;
        (prepared.spec.channel, prepared.spec.cpu) = (present.spec.channel.clone(), present.spec.cpu.clone());
        let places = DeclaredState::places(&prepared.admitted.manifest().states, &present.states);
        let present = present.number;
        let session_id = SessionId { name: session.clone(), id: state.id };
        let (name, module, ready) = self.prepare_install(session, prepared, hash_and_signers, true)?;
        let (sender, released) = channel();
        if let Some(core) = self.cores.get(ready.vp().core) {
            core.submit(move |runner| runner.release_task(present, sender));
        }
        Ok(PreparedReplacement { session: session_id, name, present, module, ready, places, released })
    }

    /// Gives the newer version the place of the older one, which waits for the end of the trial.
    ///
    /// # Errors
    /// The session or the older version is gone, or the core does not take the newer version. If the older version cannot go on, it is
    /// returned, to be ended without the node's lock.
    pub(crate) fn switch_version(
        &mut self,
        replacement: PreparedReplacement,
        older: ModuleTask,
        trial: Nanos,
    ) -> Result<Box<OlderVersion>, (NodeError, Option<Box<OlderVersion>>)> {
        let (sender, failed) = channel();
        let mut version = self.older_version(&replacement, older);
        (version.failed, version.until) = (failed, Instant::now() + Duration::from_nanos(trial.0));
        let (session, name) = (version.session.name.clone(), version.name.clone());
        let has_version = self.has_version(&replacement);
        let PreparedReplacement { mut module, ready, .. } = replacement;
        let Some(state) = self.sessions.get_mut(&session).filter(|_| has_version) else {
            ready.discard();
            return Err((NodeError::Changed(session), Some(version)));
        };
        if let Some(before) = state.take_version(version.number, &name) {
            let saved = || SavedBefore { spec: before.spec.clone(), origin: before.origin.clone() };
            module.saved_before = Some(before.saved_before.clone().unwrap_or_else(saved));
            module.table_binding.take_over(&before.table_binding);
            state.stopping.insert(version.number, before);
        }
        state.stopped.forget(&name);
        state.modules.insert(name, module);
        let trial = Some(ModuleTrial { until: version.until, failed: sender }).filter(|_| trial.0 > 0);
        let newer_outputs = ready.outputs().clone();
        let Err(error) = self.run_version(&version, ready.into_task(), trial) else { return Ok(version) };
        crate::sessions::writer::close(&newer_outputs, version.newer);
        let returned = self.return_to_older(&mut version);
        self.remove_stopping(&session, version.newer);
        Err((error, returned.is_err().then_some(version)))
    }

    /// Gives the older version its place again, after a step of the replacement has failed. If the older version is gone from its
    /// session, it is returned, to be ended without the node's lock.
    pub(crate) fn undo_replacement(
        &mut self,
        replacement: PreparedReplacement,
        older: ModuleTask,
    ) -> Option<Box<OlderVersion>> {
        let mut version = self.older_version(&replacement, older);
        let has_version = self.has_version(&replacement);
        replacement.ready.discard();
        let module =
            self.sessions.get(&version.session.name).and_then(|state| state.modules.get(&version.name));
        let queue = module.filter(|_| has_version).map(|module| Arc::clone(&module.queue));
        if let Some(queue) = queue
            && let Some(mut task) = version.task.take()
        {
            task.set_queue(queue);
            if let Err(error) = self.add_task_on_trial(&version.vp, task, None) {
                let (session, module) = (&version.session.name, &version.name);
                let what =
                    format_args!("session {session}, module {module}: it does not run any more: {error}");
                crate::log::session(session).module(module).warn(&what);
            }
            return None;
        }
        Some(version)
    }

    /// Returns the older version of a replacement, whose trial is over at once.
    fn older_version(&self, replacement: &PreparedReplacement, task: ModuleTask) -> Box<OlderVersion> {
        let (_, failed) = channel();
        Box::new(OlderVersion {
            session: replacement.session.clone(),
            name: replacement.name.clone(),
            number: replacement.present,
            newer: replacement.module.number,
            task: Some(task),
            vp: replacement.ready.vp().clone(),
            is_state_taken: replacement.places.is_some(),
            failed,
            until: Instant::now(),
            outputs: self.writer.outputs(),
        })
    }

    /// Returns true if the session still has the version that is to be replaced.
    fn has_version(&self, replacement: &PreparedReplacement) -> bool {
        let SessionId { name, id } = &replacement.session;
        let state = self.session_with_id(name, *id).ok().filter(|state| !state.is_closing);
        let module = state.and_then(|state| state.modules.get(&replacement.name));
        module.is_some_and(|module| module.number == replacement.present)
    }

    /// Ends a release that has taken too long. Returns the task if the core has released it meanwhile.
    pub(crate) fn cancel_release(&self, replacement: &PreparedReplacement) -> Option<ModuleTask> {
        let present = replacement.present;
        if let Some(core) = self.cores.get(replacement.ready.vp().core) {
            _ = core.execute(move |runner| runner.keep_task(present));
        }
        replacement.released.try_recv().ok()
    }

    /// Gives the older version its place again, because the newer one has failed. The newer version is among the session's stopping
    /// modules afterwards.
    ///
    /// # Errors
    /// The newer version is gone, or the older one may not run any more. Then the older one is among the stopping modules.
    pub(crate) fn return_to_older(&mut self, version: &mut OlderVersion) -> Result<(), NodeError> {
        let (SessionId { name: session, id }, name) = (version.session.clone(), version.name.clone());
        let missing = || NodeError::NoModule { session: session.clone(), module: name.clone() };
        let state = self.sessions.get_mut(&session).filter(|state| state.id == id && !state.is_closing);
        let state = state.ok_or_else(|| NodeError::NoSession(session.clone()))?;
        let failed = state.take_version(version.newer, &name).ok_or_else(missing)?;
        state.stopping.insert(version.newer, failed);
        let older = state.stopping.get(&version.number).ok_or_else(missing)?;
        // The right to run the older version may have ended while it waited.
        if let (Some(owner), Some(known)) = (&state.owner, &older.hash_and_signers) {
            known.check(&owner.credential, &older.spec).map_err(Box::new)?;
        }
        let (mut task, older) = match (version.task.take(), state.stopping.remove(&version.number)) {
            (Some(task), Some(older)) => (task, older),
            _ => return Err(missing()),
        };
        if let Some(newer) = state.stopping.get(&version.newer) {
            older.table_binding.take_over(&newer.table_binding);
        }
        // Grants of tables, services and outputs may have changed as well.
        older.table_binding.change(&state.spec);
        let queues: Vec<_> =
            state.outputs.iter().map(|(name, output)| (name.clone(), output.tx_queue.clone())).collect();
        task.set_outputs(queues_for_outputs(&older.outputs, &queues));
        state.modules.insert(name.clone(), older);
        let added = self.run_version(version, task, None);
        if added.is_err()
            && let Some(state) = self.sessions.get_mut(&session)
            && let Some(older) = state.modules.remove(&name)
        {
            state.stopping.insert(version.number, older);
        }
        added
    }

    /// Runs the version that is the session's module now. The packets of the queue wake it from then on.
    fn run_version(
        &mut self,
        version: &OlderVersion,
        mut task: ModuleTask,
        trial: Option<ModuleTrial>,
    ) -> Result<(), NodeError> {
        let session = &version.session.name;
        if let Some(state) = self.sessions.get(session)
            && let Some(module) = state.modules.get(&version.name)
        {
            task.set_queue(Arc::clone(&module.queue));
            self.announce(state, module, &version.vp);
        }
        // Packets of the old routes are no loss: the task looks into the queue when it is added.
        self.route_session(session)?;
        self.add_task_on_trial(&version.vp, task, trial)
    }

    /// Adds a task to a virtual CPU; with `trial`, it leaves the core again at its first fault.
    fn add_task_on_trial(
        &self,
        vp: &Vp,
        task: ModuleTask,
        trial: Option<ModuleTrial>,
    ) -> Result<(), NodeError> {
        let full = || NodeError::VirtualCpuFull(vp.spec.name.clone());
        let (core, id) = (self.cores.get(vp.core).ok_or_else(full)?, vp.id);
        let is_added = core.execute(move |runner| runner.add_task_on_trial(id, task, trial).is_ok())?;
        if is_added { Ok(()) } else { Err(full()) }
    }

    /// Begins to stop the older version on its core. The caller [waits](crate::sessions::close::wait_for) without the node's lock.
    pub(crate) fn stop_version(&self, version: OlderVersion) -> StoppingModule {
        let OlderVersion { session, name, number, task, vp, outputs, .. } = version;
        let (sender, stopped) = channel();
        let core = self.cores.get(vp.core);
        match (core, task) {
            (Some(core), Some(task)) => {
                core.submit(move |runner| runner.stop_returned_task(vp.id, task, sender));
            }
            (None, Some(task)) => _ = sender.send(task),
            (_, None) => {}
        }
        let core = core.map(|core| (core.number(), core.waker()));
        StoppingModule::of_version(session, (name, number), core, stopped, outputs)
    }

    /// Ends the trial of the newer version, which is saved in its own form from now on. Returns the task of the newer version if it
    /// failed at the last moment.
    pub(crate) fn pass_trial(&mut self, version: &OlderVersion) -> Option<Box<ModuleTask>> {
        let newer = version.newer;
        if let Some(core) = self.cores.get(version.vp.core) {
            _ = core.execute(move |runner| runner.end_trial(newer));
        }
        if let Ok(failed) = version.failed.try_recv() {
            return Some(Box::new(failed));
        }
        let SessionId { name: session, id } = &version.session;
        let state = self.sessions.get_mut(session).filter(|state| state.id == *id);
        let module = state.and_then(|state| state.modules.get_mut(&version.name));
        if let Some(module) = module.filter(|module| module.number == newer) {
            module.saved_before = None;
        }
        None
    }

    /// Removes a module that has stopped from its session, which keeps its usage.
    fn remove_stopping(&mut self, session: &Name, number: u64) {
        if let Some(state) = self.sessions.get_mut(session)
            && let Some(module) = state.stopping.remove(&number)
        {
            crate::sessions::usage::add_module(&mut state.closed_usage, &module);
        }
    }
}

impl SessionState {
    /// Takes the module of this name and number out of the session, and disconnects it from services and events.
    fn take_version(&mut self, number: u64, name: &Name) -> Option<SessionModule> {
        self.modules.get(name).filter(|module| module.number == number)?;
        let module = self.modules.remove(name)?;
        self.disconnect(&module);
        Some(module)
    }
}

impl PreparedReplacement {
    /// Waits for the task of the present version. The caller must not hold the node's lock.
    ///
    /// # Errors
    /// The present version does not come to the end of its call, or is gone.
    pub(crate) fn wait(&self) -> Result<ModuleTask, NodeError> {
        self.released.recv_timeout(RELEASE_MAX).map_err(|error| match error {
            RecvTimeoutError::Timeout => {
                NodeError::Busy { module: self.name.clone(), seconds: RELEASE_MAX.as_secs() }
            }
            RecvTimeoutError::Disconnected => {
                NodeError::NoModule { session: self.session.name.clone(), module: self.name.clone() }
            }
        })
    }

    /// Gives the newer version the state of the older one, if both declare the same blocks.
    ///
    /// # Errors
    /// One of them has ended.
    pub(crate) fn take_state(&mut self, older: &mut ModuleTask) -> Result<(), NodeError> {
        let Some(places) = &self.places else { return Ok(()) };
        let taken = self.ready.task_mut().take_state_of(older, places);
        taken.map_err(|source| NodeError::State { module: self.name.clone(), source })
    }

    /// Discards the newer version; the present one has not been released, or is gone.
    pub(crate) fn discard(self) {
        self.ready.discard();
    }
}

impl OlderVersion {
    /// Returns the session and the module's name in it.
    pub(crate) fn place(&self) -> (&SessionId, &Name) {
        (&self.session, &self.name)
    }

    /// Waits for the end of the trial.
    pub(crate) fn wait(&self) -> TrialEnd {
        match self.failed.recv_timeout(self.until.saturating_duration_since(Instant::now())) {
            Ok(task) => TrialEnd::Failed(Box::new(task)),
            Err(RecvTimeoutError::Timeout) => TrialEnd::Passed,
            // Without a trial there is no sender from the beginning.
            Err(RecvTimeoutError::Disconnected) if Instant::now() >= self.until => TrialEnd::Passed,
            Err(RecvTimeoutError::Disconnected) => TrialEnd::Gone,
        }
    }

    /// Ends the older version without its stop function. The caller must not hold the node's lock.
    pub(crate) fn finish(self) -> StopResult {
        let Self { session, name, number, task, outputs, .. } = self;
        task.into_iter().for_each(ModuleTask::finish_without_stop);
        if let Some(outputs) = &outputs {
            crate::sessions::writer::close(outputs, number);
        }
        StopResult::of_ended(session, name, number)
    }

    /// Ends the newer version, after it has failed.
    pub(crate) fn finish_newer(&self, failed: ModuleTask) -> StopResult {
        failed.finish_without_stop();
        if let Some(outputs) = &self.outputs {
            crate::sessions::writer::close(outputs, self.newer);
        }
        StopResult::of_ended(self.session.clone(), self.name.clone(), self.newer)
    }
}
