//! Modules and sessions that leave. A module stops on its core, in slices like any other call, and what it says at its end is written: that can take long,
//! and is waited for by nobody but who asked for it.

use crate::error::NodeError;
use crate::guest::{Guest, Output};
use crate::log::say;
use crate::node::{Module, Node};
use crate::runner::{Stuck, Waker};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use weir_session::Name;

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
    stopped: Receiver<Guest>,
    outputs: Option<Sender<Output>>,
}

/// A module that has stopped.
#[derive(Debug)]
pub(crate) struct Left {
    session: Name,
    id: u64,
    guest: u64,
    result: Result<(), Stuck>,
}

impl Leaving {
    /// Waits until it has stopped, and what it said at its end is written. The node is not to be held meanwhile.
    pub(crate) fn wait(self) -> Left {
        let mut result = Ok(());
        match self.stopped.recv_timeout(PATIENCE) {
            Ok(guest) => guest.leave(),
            // It has no core, or none any more.
            Err(RecvTimeoutError::Disconnected) => {}
            Err(RecvTimeoutError::Timeout) => result = self.give_up(),
        }
        if let Some(outputs) = &self.outputs {
            crate::writer::close(outputs, self.guest);
        }
        Left { session: self.session, id: self.id, guest: self.guest, result }
    }

    fn give_up(&self) -> Result<(), Stuck> {
        let Some((number, core)) = &self.core else { return Ok(()) };
        let ((told, hears), guest) = (channel(), self.guest);
        core.tell(move |runner| _ = told.send(runner.evict(guest)));
        // It may have stopped meanwhile.
        let gone = hears.recv_timeout(ANSWER).map_err(|_| Stuck { core: *number })?;
        let Some(guest) = gone.or_else(|| self.stopped.try_recv().ok()) else { return Ok(()) };
        say(&format!(
            "session {}, module {}: does not stop in {} s in its slices, and is given up",
            self.session,
            self.module,
            PATIENCE.as_secs()
        ));
        guest.leave();
        Ok(())
    }
}

impl Node {
    /// Takes a module out: nothing comes for it any more, and it stops. To be [waited](Leaving::wait) for, and then [ended](Self::end_unload). `guest`:
    /// only the one with this number.
    pub(crate) fn begin_unload(
        &mut self,
        session: &Name,
        module: &Name,
        guest: Option<u64>,
    ) -> Result<Leaving, NodeError> {
        let there = self.sessions.get_mut(session).ok_or_else(|| NodeError::NoSession(session.clone()))?;
        let is_it = |there: &Module| guest.is_none_or(|guest| there.guest == guest);
        let gone = there.modules.get(module).filter(|there| is_it(there)).is_some();
        let Some(gone) = gone.then(|| there.modules.remove(module)).flatten() else {
            return Err(NodeError::NoModule { session: session.clone(), module: module.clone() });
        };
        let (id, guest) = (there.id, gone.guest);
        let core = there.vps.get(&gone.spec.cpu).and_then(|vp| self.cores.get(vp.core));
        let core = core.map(|core| (core.number(), core.waker()));
        there.bell.remove(guest);
        // Nobody waits for it any more.
        let services = gone.desk.office().close(&gone.desk);
        there.gone_services.merge(&services);
        let tally = there.channels.get(&gone.spec.channel).map(|channel| Arc::clone(&channel.tally));
        let queue = Arc::clone(&gone.queue);
        there.leaving.insert(guest, gone);
        // First nothing more comes for it. With fewer readers than before there is no reason to fail.
        if let Err(error) = self.route_all(session) {
            say(&error.to_string());
        }
        let lost = queue.close().unwrap_or(0);
        if let Some(tally) = tally {
            tally.closed.fetch_add(lost, Ordering::Relaxed);
        }
        let (told, stopped) = channel();
        if let Some((_, core)) = &core {
            core.tell(move |runner| runner.end(guest, told));
        }
        let outputs = self.writer.outputs();
        Ok(Leaving { session: session.clone(), id, module: module.clone(), guest, core, stopped, outputs })
    }

    /// A module has stopped: what it used is its session's, as long as that is there.
    pub(crate) fn end_unload(&mut self, left: Left) -> Result<(), NodeError> {
        let Left { session, id, guest, result } = left;
        if let Some(there) = self.sessions.get_mut(&session).filter(|there| there.id == id)
            && let Some(module) = there.leaving.remove(&guest)
        {
            crate::bill::add_module(&mut there.gone, &module);
        }
        Ok(result?)
    }

    /// Whether any modules of a session are about to stop.
    pub(crate) fn has_leaving(&self, session: &Name, id: u64) -> bool {
        self.still(session, id).is_ok_and(|there| !there.leaving.is_empty())
    }

    /// The session with this number is to end: from now on no module comes to it, and nothing is left to wait for when those that there are have been taken
    /// out. Says which these are, with their numbers.
    pub(crate) fn begin_close(&mut self, session: &Name, id: u64) -> Result<Vec<(Name, u64)>, NodeError> {
        let there = self.sessions.get_mut(session).filter(|there| there.id == id);
        let there = there.ok_or_else(|| NodeError::NoSession(session.clone()))?;
        there.is_closing = true;
        Ok(there.modules.iter().map(|(name, module)| (name.clone(), module.guest)).collect())
    }

    /// Ends a session: what it had reserved is free. Its modules have been taken out before; one that does not stop is given up.
    pub(crate) fn close(&mut self, session: &Name) -> Result<(), NodeError> {
        self.silence(session);
        if let Some(gone) = self.sessions.remove(session) {
            self.evict(gone.leaving, &gone.vps);
            self.close_vps(&gone.vps);
        }
        self.forget_selections();
        self.route_everything()
    }

    /// Gives up modules that somebody still waits for.
    fn evict(&self, leaving: BTreeMap<u64, Module>, vps: &BTreeMap<Name, crate::node::Vp>) {
        for (guest, module) in leaving {
            let core = vps.get(&module.spec.cpu).and_then(|vp| self.cores.get(vp.core));
            if let Some(Err(error)) = core.map(|core| core.ask(move |runner| drop(runner.evict(guest)))) {
                say(&error.to_string());
            }
        }
    }
}
