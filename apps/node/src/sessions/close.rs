//! Stopping of modules and closing of sessions. The stop call of a module runs on the module's core, in slices like
//! any other call, and then the module's last records are written. This can take seconds, so the requester waits
//! without the node lock.

use crate::core_thread::runner::{CoreThread, Stuck, Waker};
use crate::core_thread::task::{BatchOutput, ModuleTask};
use crate::log::{self, warn};
use crate::sessions::error::NodeError;
use crate::sessions::node::{Node, SessionModule, SessionState};
use crate::sessions::writer::RecordWriter;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use weir_admission::Name;
use weir_datapath::plan::ChannelPlanCounters;
use weir_datapath::queue::PacketQueue;
use weir_ledger::{CloseReason, SessionId, UnloadReason};

/// Maximum wall time of a module's stop. It is aborted then.
const STOP_MAX: Duration = Duration::from_secs(10);
/// Maximum time that a core thread may take to remove a module after this.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// A module that is stopping and gets no more packets. It still counts for its session's usage.
#[derive(Debug)]
pub(crate) struct StoppingModule {
    session: Name,
    id: u64,
    module: Name,
    number: u64,
    core: Option<(u16, Waker)>,
    stopped: Receiver<ModuleTask>,
    outputs: Option<Sender<BatchOutput>>,
}

/// A module that has been taken out of its session, but has not begun to stop.
#[derive(Debug)]
pub(crate) struct WithdrawnModule {
    leaving: StoppingModule,
    sender: Sender<ModuleTask>,
    queue: Arc<PacketQueue>,
    counters: Option<Arc<ChannelPlanCounters>>,
}

impl WithdrawnModule {
    /// Begins to stop the module. The routes must have been changed, so that interfaces send no more packets to it.
    pub(crate) fn stop(self) -> StoppingModule {
        let Self { leaving, sender, queue, counters } = self;
        let lost = queue.close().unwrap_or(0);
        if let Some(counters) = counters {
            counters.closed.fetch_add(lost, Ordering::Relaxed);
        }
        let number = leaving.number;
        if let Some((_, core)) = &leaving.core {
            core.submit(move |runner| runner.stop_task(number, sender));
        }
        leaving
    }
}

/// Takes modules out of a session without stopping them. Interfaces send packets to the modules' queues until the
/// routes are changed.
pub(crate) fn withdraw(
    state: &mut SessionState,
    modules: &[Name],
    cores: &[CoreThread],
    writer: &RecordWriter,
) -> Vec<WithdrawnModule> {
    let mut all = Vec::new();
    for module in modules {
        let Some(withdrawn) = state.modules.remove(module) else { continue };
        let number = withdrawn.number;
        state.disconnect(&withdrawn);
        let core = state.vps.get(&withdrawn.spec.cpu).and_then(|vp| cores.get(vp.core));
        let core = core.map(|core| (core.number(), core.waker()));
        let counters =
            state.channels.get(&withdrawn.spec.channel).map(|channel| Arc::clone(&channel.counters));
        let ((sender, stopped), outputs) = (channel(), writer.outputs());
        let (session, module, id) = (state.spec.name.clone(), module.clone(), state.id);
        let queue = Arc::clone(&withdrawn.queue);
        let leaving = StoppingModule { session, id, module, number, core, stopped, outputs };
        all.push(WithdrawnModule { leaving, sender, queue, counters });
        state.stopping.insert(number, withdrawn);
    }
    all
}

/// The result of a module's stop.
#[derive(Debug)]
pub(crate) struct StopResult {
    session: Name,
    id: u64,
    pub(crate) module: Name,
    number: u64,
    result: Result<(), Stuck>,
}

impl StopResult {
    /// The result for a module that has ended already.
    pub(crate) fn of_ended(session: SessionId, module: Name, number: u64) -> Self {
        Self { session: session.name, id: session.id, module, number, result: Ok(()) }
    }
}

/// Waits until these modules have stopped and their last records are written. Calls `has_stopped` with the result for
/// each module. One timeout applies to all modules together. The caller must not hold the node lock.
pub(crate) fn wait_for(all: Vec<StoppingModule>, mut has_stopped: impl FnMut(StopResult)) {
    let until = Instant::now() + STOP_MAX;
    let mut late = Vec::new();
    for leaving in all {
        match leaving.stopped.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(task) => has_stopped(leaving.finish(Some(task))),
            // The module has no core thread.
            Err(RecvTimeoutError::Disconnected) => has_stopped(leaving.finish(None)),
            Err(RecvTimeoutError::Timeout) => late.push((leaving.remove_from_core(), leaving)),
        }
    }
    let until = Instant::now() + ANSWER_MAX;
    for (removed, leaving) in late {
        has_stopped(leaving.finish_late(&removed, until));
    }
}

impl StoppingModule {
    /// A module, by name and number, whose task is sent to `stopped` after its stop.
    pub(crate) fn of_version(
        session: SessionId,
        (module, number): (Name, u64),
        core: Option<(u16, Waker)>,
        stopped: Receiver<ModuleTask>,
        outputs: Option<Sender<BatchOutput>>,
    ) -> Self {
        Self { session: session.name, id: session.id, module, number, core, stopped, outputs }
    }

    /// Completes the stop of a module: sends the task's last output and closes the module's record files.
    fn finish(self, task: Option<ModuleTask>) -> StopResult {
        if task.is_some_and(|task| !task.finish(Instant::now() + STOP_MAX)) {
            let (session, module, seconds) = (&self.session, &self.module, STOP_MAX.as_secs());
            log::session(session).module(module).warn(&format_args!(
                "session {session}, module {module}: its stop did not end within {seconds} s, and was aborted"
            ));
        }
        if let Some(outputs) = &self.outputs {
            crate::sessions::writer::close(outputs, self.number);
        }
        StopResult {
            session: self.session,
            id: self.id,
            module: self.module,
            number: self.number,
            result: Ok(()),
        }
    }

    /// Tells the core to remove the module's task. The returned receiver gets the task; `None` if the core does not
    /// have it.
    fn remove_from_core(&self) -> Receiver<Option<ModuleTask>> {
        let ((sender, receiver), number) = (channel(), self.number);
        if let Some((_, core)) = &self.core {
            core.submit(move |runner| _ = sender.send(runner.remove_task(number)));
        }
        receiver
    }

    /// Completes the stop of a module whose stop call exceeded the timeout.
    fn finish_late(self, removed: &Receiver<Option<ModuleTask>>, until: Instant) -> StopResult {
        let task = removed.recv_timeout(until.saturating_duration_since(Instant::now()));
        let (Err(RecvTimeoutError::Timeout), Some((core, _))) = (&task, &self.core) else {
            // The module may have stopped before its task was removed.
            let task = task.ok().flatten().or_else(|| self.stopped.try_recv().ok());
            return self.finish(task);
        };
        let stuck = Stuck { core: *core };
        StopResult { result: Err(stuck), ..self.finish(None) }
    }
}

impl Node {
    /// Takes a module out of its session and stops it. The caller [waits](wait_for) for the module and then calls
    /// [`end_unload`](Self::end_unload). With `number`, the module is unloaded only if it has this number. A module
    /// that stops for another reason than a request stays in the session's status.
    pub(crate) fn begin_unload(
        &mut self,
        session: &Name,
        module: &Name,
        number: Option<u64>,
        reason: UnloadReason,
    ) -> Result<StoppingModule, NodeError> {
        let state = self.sessions.get_mut(session).ok_or_else(|| NodeError::NoSession(session.clone()))?;
        let has_number = |module: &SessionModule| number.is_none_or(|number| module.number == number);
        let unloaded = state.modules.get(module).filter(|module| has_number(module));
        if let Some(unloaded) = unloaded {
            state.stopped.add(module, unloaded, reason);
        }
        let is_present = unloaded.is_some();
        let taken =
            is_present.then(|| self.take_out(session, std::slice::from_ref(module), false).pop()).flatten();
        taken.ok_or_else(|| NodeError::NoModule { session: session.clone(), module: module.clone() })
    }

    /// Removes a stopped module from the session's status. Returns false if no stopped module has that name.
    pub(crate) fn forget_stopped(&mut self, session: &Name, module: &Name) -> bool {
        self.sessions.get_mut(session).is_some_and(|state| state.stopped.forget(module))
    }

    /// Takes modules out of a session, and then stops them. With `is_silenced`, the output channels are closed first,
    /// so the modules' stop calls cannot send packets.
    fn take_out(&mut self, session: &Name, modules: &[Name], is_silenced: bool) -> Vec<StoppingModule> {
        let Some(state) = self.sessions.get_mut(session) else { return Vec::new() };
        let all = withdraw(state, modules, &self.cores, &self.writer);
        // The routes are changed before the modules stop, so that the modules get no more packets. A change to fewer
        // readers cannot fail.
        let routed = if is_silenced { self.stop_outputs(session) } else { self.route_session(session) };
        if let Err(error) = routed {
            warn(&error);
        }
        all.into_iter().map(WithdrawnModule::stop).collect()
    }

    /// Completes an unload: adds the module's usage to its session, if the session still exists. Returns the error of
    /// a core that did not answer.
    pub(crate) fn end_unload(&mut self, stop: StopResult) -> Result<(), NodeError> {
        let StopResult { session, id, number, result, .. } = stop;
        if let Some(state) = self.sessions.get_mut(&session).filter(|state| state.id == id)
            && let Some(module) = state.stopping.remove(&number)
        {
            crate::sessions::usage::add_module(&mut state.closed_usage, &module);
        }
        Ok(result?)
    }

    /// Returns true while modules of the session are stopping.
    pub(crate) fn has_stopping_modules(&self, session: &Name, id: u64) -> bool {
        self.session_with_id(session, id).is_ok_and(|state| !state.stopping.is_empty())
    }

    /// Begins to close the session with this number: from now on no module can be added, and all modules stop. If the
    /// session is closed for lack of a right or for misbehaviour, its output channels are closed first, so that even
    /// the stop calls send nothing.
    pub(crate) fn begin_close(
        &mut self,
        session: &Name,
        id: u64,
        reason: CloseReason,
    ) -> Result<Vec<StoppingModule>, NodeError> {
        let state = self.sessions.get_mut(session).filter(|state| state.id == id);
        let state = state.ok_or_else(|| NodeError::NoSession(session.clone()))?;
        state.is_closing = true;
        let modules: Vec<Name> = state.modules.keys().cloned().collect();
        let is_silenced = matches!(
            reason,
            CloseReason::Expired | CloseReason::Revoked | CloseReason::Parent | CloseReason::Misbehaved
        );
        Ok(self.take_out(session, &modules, is_silenced))
    }

    /// Closes a session and frees its reservations. The modules must have been taken out before. Modules that have not
    /// stopped are removed from their cores.
    pub(crate) fn close(&mut self, session: &Name) -> Result<(), NodeError> {
        if let Err(error) = self.stop_outputs(session) {
            warn(&error);
        }
        if let Some(closed) = self.sessions.remove(session) {
            self.remove_tasks(&closed.stopping);
            self.close_vps(&closed.vps);
            closed.retired.iter().for_each(|vp| self.close_vp(vp));
        }
        self.drop_unused_selections();
        self.route_all_interfaces()
    }

    /// Removes the tasks of modules that have not stopped from their cores.
    fn remove_tasks(&self, stopping: &BTreeMap<u64, SessionModule>) {
        for number in stopping.keys().copied() {
            // The module's virtual CPU may have been replaced by one on another core, so every core is asked.
            for core in &self.cores {
                if let Err(error) = core.execute(move |runner| drop(runner.remove_task(number))) {
                    warn(&error);
                }
            }
        }
    }
}
