//! Modules and sessions that leave. A module stops on its core, in slices like any other call, and what it says at its end is written: that can take long,
//! and is waited for by nobody but who asked for it.

use crate::error::NodeError;
use crate::guest::{BatchOutput, ModuleTask};
use crate::runner::{CoreThread, Stuck, Waker};
use crate::server::log::{self, warn};
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
use weir_ledger::{CloseReason, Unloaded};

/// How long a module may take to stop, by the clock: its slices can be short. After that it is given up.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a core's thread may take to give a module up.
const ANSWER: Duration = Duration::from_secs(5);

/// A module that gets nothing any more, and stops. It is still on its session's bill.
#[derive(Debug)]
pub(crate) struct Leaving {
    session: Name,
    id: u64,
    module: Name,
    guest: u64,
    core: Option<(u16, Waker)>,
    stopped: Receiver<ModuleTask>,
    outputs: Option<Sender<BatchOutput>>,
}

/// A module that was taken out of its session, and has yet to be told to stop.
#[derive(Debug)]
pub(crate) struct Withdrawn {
    leaving: Leaving,
    told: Sender<ModuleTask>,
    queue: Arc<PacketQueue>,
    tally: Option<Arc<ChannelPlanCounters>>,
}

impl Withdrawn {
    /// Has it stop, when no interface has packets for it any more.
    pub(crate) fn stop(self) -> Leaving {
        let Self { leaving, told, queue, tally } = self;
        let lost = queue.close().unwrap_or(0);
        if let Some(tally) = tally {
            tally.closed.fetch_add(lost, Ordering::Relaxed);
        }
        let guest = leaving.guest;
        if let Some((_, core)) = &leaving.core {
            core.tell(move |runner| runner.end(guest, told));
        }
        leaving
    }
}

/// Takes modules out of a session. Interfaces have packets for them until they are told otherwise.
pub(crate) fn withdraw(
    there: &mut SessionState,
    modules: &[Name],
    cores: &[CoreThread],
    writer: &RecordWriter,
) -> Vec<Withdrawn> {
    let mut all = Vec::new();
    for module in modules {
        let Some(gone) = there.modules.remove(module) else { continue };
        let guest = gone.guest;
        there.bell.remove(guest);
        // No caller waits for it any more.
        let services = gone.desk.office().close(&gone.desk);
        there.gone_services.merge(&services);
        let core = there.vps.get(&gone.spec.cpu).and_then(|vp| cores.get(vp.core));
        let core = core.map(|core| (core.number(), core.waker()));
        let tally = there.channels.get(&gone.spec.channel).map(|channel| Arc::clone(&channel.tally));
        let ((told, stopped), outputs) = (channel(), writer.outputs());
        let (session, module, id) = (there.spec.name.clone(), module.clone(), there.id);
        let queue = Arc::clone(&gone.queue);
        let leaving = Leaving { session, id, module, guest, core, stopped, outputs };
        all.push(Withdrawn { leaving, told, queue, tally });
        there.leaving.insert(guest, gone);
    }
    all
}

/// A module that has stopped.
#[derive(Debug)]
pub(crate) struct Left {
    session: Name,
    id: u64,
    pub(crate) module: Name,
    guest: u64,
    result: Result<(), Stuck>,
}

/// Waits until all of these have stopped, and what they said at their ends is written; says so of each. They have the same time, all of them at
/// once. The node is not to be held meanwhile.
pub(crate) fn wait_for(all: Vec<Leaving>, mut has_left: impl FnMut(Left)) {
    let until = Instant::now() + PATIENCE;
    let mut late = Vec::new();
    for leaving in all {
        match leaving.stopped.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(guest) => has_left(leaving.left(Some(guest))),
            // It has no core, or none any more.
            Err(RecvTimeoutError::Disconnected) => has_left(leaving.left(None)),
            Err(RecvTimeoutError::Timeout) => late.push((leaving.evict(), leaving)),
        }
    }
    let until = Instant::now() + ANSWER;
    for (evicted, leaving) in late {
        has_left(leaving.given_up(&evicted, until));
    }
}

impl Leaving {
    fn left(self, guest: Option<ModuleTask>) -> Left {
        if let Some(guest) = guest {
            guest.leave();
        }
        if let Some(outputs) = &self.outputs {
            crate::sessions::writer::close(outputs, self.guest);
        }
        Left { session: self.session, id: self.id, module: self.module, guest: self.guest, result: Ok(()) }
    }

    /// Has its core take it away. Where it is sent.
    fn evict(&self) -> Receiver<Option<ModuleTask>> {
        let ((told, hears), guest) = (channel(), self.guest);
        if let Some((_, core)) = &self.core {
            core.tell(move |runner| _ = told.send(runner.evict(guest)));
        }
        hears
    }

    /// It did not stop in time.
    fn given_up(self, evicted: &Receiver<Option<ModuleTask>>, until: Instant) -> Left {
        let gone = evicted.recv_timeout(until.saturating_duration_since(Instant::now()));
        let (Err(RecvTimeoutError::Timeout), Some((core, _))) = (&gone, &self.core) else {
            // It may have stopped meanwhile.
            let guest = gone.ok().flatten().or_else(|| self.stopped.try_recv().ok());
            if guest.is_some() {
                let (session, module, seconds) = (&self.session, &self.module, PATIENCE.as_secs());
                log::session(session).module(module).warn(&format_args!(
                    "session {session}, module {module}: does not stop in {seconds} s in its slices, and is given up"
                ));
            }
            return self.left(guest);
        };
        let stuck = Stuck { core: *core };
        Left { result: Err(stuck), ..self.left(None) }
    }
}

impl Node {
    /// Takes a module out: nothing comes for it any more, and it stops. To be [waited](wait_for) for, and then [ended](Self::end_unload). `guest`:
    /// only the one with this number. One that ends for another reason than a request stays visible.
    pub(crate) fn begin_unload(
        &mut self,
        session: &Name,
        module: &Name,
        guest: Option<u64>,
        reason: Unloaded,
    ) -> Result<Leaving, NodeError> {
        let there = self.sessions.get_mut(session).ok_or_else(|| NodeError::NoSession(session.clone()))?;
        let is_it = |there: &SessionModule| guest.is_none_or(|guest| there.guest == guest);
        let leaves = there.modules.get(module).filter(|module| is_it(module));
        if let Some(leaves) = leaves {
            there.ended.add(module, leaves, reason);
        }
        let is_there = leaves.is_some();
        let taken =
            is_there.then(|| self.take_out(session, std::slice::from_ref(module), false).pop()).flatten();
        taken.ok_or_else(|| NodeError::NoModule { session: session.clone(), module: module.clone() })
    }

    /// A module that was ended is shown no longer. False where there is none of that name.
    pub(crate) fn forget_ended(&mut self, session: &Name, module: &Name) -> bool {
        self.sessions.get_mut(session).is_some_and(|there| there.ended.forget(module))
    }

    /// Takes modules of a session out, all of them before any of them begins to stop. `is_silenced`: what they say at their ends goes nowhere but into records.
    fn take_out(&mut self, session: &Name, modules: &[Name], is_silenced: bool) -> Vec<Leaving> {
        let Some(there) = self.sessions.get_mut(session) else { return Vec::new() };
        let all = withdraw(there, modules, &self.cores, &self.writer);
        // First nothing more comes for them. With fewer readers than before there is no reason to fail.
        let routed = if is_silenced { self.silence(session) } else { self.route_all(session) };
        if let Err(error) = routed {
            warn(&error);
        }
        all.into_iter().map(Withdrawn::stop).collect()
    }

    /// A module has stopped: what it used is its session's, as long as that is there.
    pub(crate) fn end_unload(&mut self, left: Left) -> Result<(), NodeError> {
        let Left { session, id, guest, result, .. } = left;
        if let Some(there) = self.sessions.get_mut(&session).filter(|there| there.id == id)
            && let Some(module) = there.leaving.remove(&guest)
        {
            crate::sessions::bill::add_module(&mut there.gone, &module);
        }
        Ok(result?)
    }

    /// Whether any modules of a session are about to stop.
    pub(crate) fn has_leaving(&self, session: &Name, id: u64) -> bool {
        self.still(session, id).is_ok_and(|there| !there.leaving.is_empty())
    }

    /// The session with this number ends: from now on no module comes to it, and those that there are have been taken out. Where its right has ended, nothing of it goes out any
    /// more either, not even what its modules say at their ends.
    pub(crate) fn begin_close(
        &mut self,
        session: &Name,
        id: u64,
        reason: CloseReason,
    ) -> Result<Vec<Leaving>, NodeError> {
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

    /// Ends a session: what it had reserved is free. Its modules have been taken out before; one that does not stop is given up.
    pub(crate) fn close(&mut self, session: &Name) -> Result<(), NodeError> {
        if let Err(error) = self.silence(session) {
            warn(&error);
        }
        if let Some(gone) = self.sessions.remove(session) {
            self.evict(&gone.leaving);
            self.close_vps(&gone.vps);
            gone.retired.iter().for_each(|vp| self.close_vp(vp));
        }
        self.forget_selections();
        self.route_everything()
    }

    /// Gives up modules that somebody still waits for.
    fn evict(&self, leaving: &BTreeMap<u64, SessionModule>) {
        for guest in leaving.keys().copied() {
            // Its virtual processor may be one that the session has no more.
            for core in &self.cores {
                if let Err(error) = core.ask(move |runner| drop(runner.evict(guest))) {
                    warn(&error);
                }
            }
        }
    }
}
