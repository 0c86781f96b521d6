//! Stopping of modules and closing of sessions. A module stops on its core, in slices like any other call, and its last
//! records are written. That can take long, so only the requester waits for it.

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
use weir_ledger::{CloseReason, UnloadReason};

/// The longest wall time for which a module may stop, since its slices can be short. The stop is aborted then.
const STOP_MAX: Duration = Duration::from_secs(10);
/// The longest time for which a core thread may take to remove a module.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// A module that stops and gets no more packets. Its session is still charged.
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

/// A module that has been taken out of its session, but not been sender to stop.
#[derive(Debug)]
pub(crate) struct WithdrawnModule {
    leaving: StoppingModule,
    sender: Sender<ModuleTask>,
    queue: Arc<PacketQueue>,
    counters: Option<Arc<ChannelPlanCounters>>,
}

impl WithdrawnModule {
    /// Starts the stop. No interface may have packets for it any more.
    pub(crate) fn stop(self) -> StoppingModule {
        let Self { leaving, sender, queue, counters } = self;
        let lost = queue.close().unwrap_or(0);
        if let Some(counters) = counters {
            counters.closed.fetch_add(lost, Ordering::Relaxed);
        }
        let number = leaving.number;
        if let Some((_, core)) = &leaving.core {
            core.tell(move |runner| runner.stop_task(number, sender));
        }
        leaving
    }
}

/// Takes modules out of a session. Interfaces still have packets for them until the routes are changed.
pub(crate) fn withdraw(
    there: &mut SessionState,
    modules: &[Name],
    cores: &[CoreThread],
    writer: &RecordWriter,
) -> Vec<WithdrawnModule> {
    let mut all = Vec::new();
    for module in modules {
        let Some(gone) = there.modules.remove(module) else { continue };
        let number = gone.number;
        there.notifier.remove(number);
        // Callers of its services no longer wait.
        let services = gone.endpoint.bus().close(&gone.endpoint);
        there.closed_services.merge(&services);
        let core = there.vps.get(&gone.spec.cpu).and_then(|vp| cores.get(vp.core));
        let core = core.map(|core| (core.number(), core.waker()));
        let counters = there.channels.get(&gone.spec.channel).map(|channel| Arc::clone(&channel.counters));
        let ((sender, stopped), outputs) = (channel(), writer.outputs());
        let (session, module, id) = (there.spec.name.clone(), module.clone(), there.id);
        let queue = Arc::clone(&gone.queue);
        let leaving = StoppingModule { session, id, module, number, core, stopped, outputs };
        all.push(WithdrawnModule { leaving, sender, queue, counters });
        there.stopping.insert(number, gone);
    }
    all
}

/// A module that has stopped.
#[derive(Debug)]
pub(crate) struct StopResult {
    session: Name,
    id: u64,
    pub(crate) module: Name,
    number: u64,
    result: Result<(), Stuck>,
}

/// Waits until all of these have stopped and their last records are written, and calls `has_left` for each. All share
/// one timeout. The caller must not hold the node lock.
pub(crate) fn wait_for(all: Vec<StoppingModule>, mut has_left: impl FnMut(StopResult)) {
    let until = Instant::now() + STOP_MAX;
    let mut late = Vec::new();
    for leaving in all {
        match leaving.stopped.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(task) => has_left(leaving.finish(Some(task))),
            // It had no core.
            Err(RecvTimeoutError::Disconnected) => has_left(leaving.finish(None)),
            Err(RecvTimeoutError::Timeout) => late.push((leaving.remove_from_core(), leaving)),
        }
    }
    let until = Instant::now() + ANSWER_MAX;
    for (evicted, leaving) in late {
        has_left(leaving.finish_late(&evicted, until));
    }
}

impl StoppingModule {
    fn finish(self, task: Option<ModuleTask>) -> StopResult {
        if let Some(task) = task {
            task.finish();
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

    /// Tells the core to remove the task, and returns the receiver of it.
    fn remove_from_core(&self) -> Receiver<Option<ModuleTask>> {
        let ((sender, receiver), number) = (channel(), self.number);
        if let Some((_, core)) = &self.core {
            core.tell(move |runner| _ = sender.send(runner.remove_task(number)));
        }
        receiver
    }

    /// Ends a module that did not stop in time.
    fn finish_late(self, evicted: &Receiver<Option<ModuleTask>>, until: Instant) -> StopResult {
        let gone = evicted.recv_timeout(until.saturating_duration_since(Instant::now()));
        let (Err(RecvTimeoutError::Timeout), Some((core, _))) = (&gone, &self.core) else {
            // It may have stopped meanwhile.
            let task = gone.ok().flatten().or_else(|| self.stopped.try_recv().ok());
            if task.is_some() {
                let (session, module, seconds) = (&self.session, &self.module, STOP_MAX.as_secs());
                log::session(session).module(module).warn(&format_args!(
                    "session {session}, module {module}: its stop call did not end within {seconds} s, and was aborted"
                ));
            }
            return self.finish(task);
        };
        let stuck = Stuck { core: *core };
        StopResult { result: Err(stuck), ..self.finish(None) }
    }
}

impl Node {
    /// Takes a module out of its session and stops it. The caller [waits](wait_for) for it and then calls
    /// [`end_unload`](Self::end_unload). With `number`, only the module of that number is unloaded. A module that stops
    /// for another reason than a request stays visible.
    pub(crate) fn begin_unload(
        &mut self,
        session: &Name,
        module: &Name,
        number: Option<u64>,
        reason: UnloadReason,
    ) -> Result<StoppingModule, NodeError> {
        let there = self.sessions.get_mut(session).ok_or_else(|| NodeError::NoSession(session.clone()))?;
        let is_it = |there: &SessionModule| number.is_none_or(|number| there.number == number);
        let leaves = there.modules.get(module).filter(|module| is_it(module));
        if let Some(leaves) = leaves {
            there.stopped.add(module, leaves, reason);
        }
        let is_there = leaves.is_some();
        let taken =
            is_there.then(|| self.take_out(session, std::slice::from_ref(module), false).pop()).flatten();
        taken.ok_or_else(|| NodeError::NoModule { session: session.clone(), module: module.clone() })
    }

    /// Removes a stopped module from the status. Returns false if there is none of that name.
    pub(crate) fn forget_stopped(&mut self, session: &Name, module: &Name) -> bool {
        self.sessions.get_mut(session).is_some_and(|there| there.stopped.forget(module))
    }

    /// Takes modules out of a session, all of them before the first one stops. With `is_silenced`, their last packets
    /// are not sent.
    fn take_out(&mut self, session: &Name, modules: &[Name], is_silenced: bool) -> Vec<StoppingModule> {
        let Some(there) = self.sessions.get_mut(session) else { return Vec::new() };
        let all = withdraw(there, modules, &self.cores, &self.writer);
        // Routes first, so that no more packets come. With fewer readers than before, routing cannot fail.
        let routed = if is_silenced { self.stop_outputs(session) } else { self.route_all(session) };
        if let Err(error) = routed {
            warn(&error);
        }
        all.into_iter().map(WithdrawnModule::stop).collect()
    }

    /// Completes an unload: adds the module's usage to its session, if the session still exists.
    pub(crate) fn end_unload(&mut self, left: StopResult) -> Result<(), NodeError> {
        let StopResult { session, id, number, result, .. } = left;
        if let Some(there) = self.sessions.get_mut(&session).filter(|there| there.id == id)
            && let Some(module) = there.stopping.remove(&number)
        {
            crate::sessions::usage::add_module(&mut there.closed_usage, &module);
        }
        Ok(result?)
    }

    /// Returns true while modules of the session are stopping.
    pub(crate) fn has_leaving(&self, session: &Name, id: u64) -> bool {
        self.session_with_id(session, id).is_ok_and(|there| !there.stopping.is_empty())
    }

    /// Begins to close the session with this number: no module is added any more, and all modules stop. If the session
    /// has lost its right, nothing is sent any more, not even by the stop calls.
    pub(crate) fn begin_close(
        &mut self,
        session: &Name,
        id: u64,
        reason: CloseReason,
    ) -> Result<Vec<StoppingModule>, NodeError> {
        let there = self.sessions.get_mut(session).filter(|there| there.id == id);
        let there = there.ok_or_else(|| NodeError::NoSession(session.clone()))?;
        there.is_closing = true;
        let modules: Vec<Name> = there.modules.keys().cloned().collect();
        let has_no_right = matches!(
            reason,
            CloseReason::Expired | CloseReason::Revoked | CloseReason::Parent | CloseReason::Misbehaved
        );
        Ok(self.take_out(session, &modules, has_no_right))
    }

    /// Closes a session and frees its reservations. Its modules have been taken out before; one that has not stopped is
    /// removed.
    pub(crate) fn close(&mut self, session: &Name) -> Result<(), NodeError> {
        if let Err(error) = self.stop_outputs(session) {
            warn(&error);
        }
        if let Some(gone) = self.sessions.remove(session) {
            self.remove_tasks(&gone.stopping);
            self.close_vps(&gone.vps);
            gone.retired.iter().for_each(|vp| self.close_vp(vp));
        }
        self.forget_selections();
        self.route_everything()
    }

    /// Removes modules that a requester still waits for.
    fn remove_tasks(&self, leaving: &BTreeMap<u64, SessionModule>) {
        for number in leaving.keys().copied() {
            // Its virtual CPU may have been replaced, so all cores are asked.
            for core in &self.cores {
                if let Err(error) = core.ask(move |runner| drop(runner.remove_task(number))) {
                    warn(&error);
                }
            }
        }
    }
}
