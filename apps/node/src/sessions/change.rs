//! Sessions that change while they run.

use crate::control::protocol::Change;
use crate::control::spec::{ChannelSpec, ProcessorSpec};
use crate::error::NodeError;
use crate::server::log::warn;
use crate::sessions::filters::CompiledFilters;
use crate::sessions::node::{Node, SessionChannel, SessionState, Vp};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_datapath::egress::TxPacketSink;
use {
    weir_admission::Name,
    weir_session::{MemoryReservation, MemoryState},
};

/// What was done of a change, to be taken back where the rest is refused.
struct Done {
    session: Name,
    reservation: Arc<MemoryReservation>,
    /// What was reserved of it before.
    memory: MemoryState,
    /// Virtual processors as they are now, and what those that have changed were.
    vps: BTreeMap<Name, Vp>,
    vps_before: Vec<(Name, Option<Vp>)>,
    /// Those that channels took the place of.
    channels_before: Vec<(Name, Option<SessionChannel>)>,
}

impl Node {
    /// Changes what a session has reserved, and what it may do. Nothing of it is done where a part cannot be.
    pub(crate) fn change(&mut self, change: &Change, compiled: &CompiledFilters) -> Result<(), NodeError> {
        let changed = self.make_change(change, compiled);
        // Those that have gone, or that were made and are not to come.
        self.forget_selections();
        changed
    }

    fn make_change(&mut self, change: &Change, compiled: &CompiledFilters) -> Result<(), NodeError> {
        let name = &change.session;
        let there = self.sessions.get(name).ok_or_else(|| NodeError::NoSession(name.clone()))?;
        // Nothing more comes to it or goes out of it.
        if there.is_closing && !(change.channels.is_empty() && change.outputs.is_empty()) {
            return Err(NodeError::Closing(name.clone()));
        }
        // Its modules may have changed what is reserved.
        let (reservation, memory) = (Arc::clone(&there.memory), there.memory.state());
        let limits = Arc::clone(&there.limits);
        let mut present = there.spec.clone();
        if present.memory != memory.reserved {
            (present.memory, present.memory_max_before) = (memory.reserved, Some(memory.ceiling));
        }
        let spec = present.changed(change)?;
        self.check(&spec)?;
        self.hold(there.owner.as_ref(), &spec)?;
        change.processors.iter().try_for_each(|cpu| self.check_tiers(there, cpu))?;
        change.channels.iter().try_for_each(|channel| check_idle(there, channel))?;
        // Given back with this, where something else is refused.
        let claims = there.claims.more(&spec)?;
        let (vps, vps_before) = (there.vps.clone(), Vec::new());
        let mut channels = Vec::new();
        for channel in &change.channels {
            channels.push(self.channel(name, &reservation, channel, compiled)?);
        }
        reservation
            .change(spec.memory, spec.memory_ceiling())
            .map_err(|error| NodeError::of_memory(name, error))?;
        let (session, channels_before) = (name.clone(), Vec::new());
        let mut done = Done { session, reservation, memory, vps, vps_before, channels_before };
        let still_kept = |error| NodeError::StillKept { session: name.clone(), error };
        let rest = self
            .change_processors(&change.processors, &mut done)
            .and_then(|()| self.change_channels(channels, &mut done))
            .and_then(|()| limits.narrow(&present, &spec).map_err(still_kept))
            .and_then(|()| self.change_outputs(name, &change.outputs, compiled));
        if let Err(error) = rest {
            // No fewer than before: no more can be kept than that.
            _ = limits.narrow(&present, &present);
            self.take_back(done);
            return Err(error);
        }
        if let Some(session) = self.sessions.get_mut(name) {
            session.priority.store(spec.priority, Ordering::Relaxed);
            session.limits.become_those_of(&spec);
            (session.spec, session.vps) = (spec, done.vps);
            // What its modules publish is theirs no longer before it is anybody else's.
            session.modules.values().for_each(|module| module.tables.change(&session.spec));
            session.claims.become_those_of(&session.spec, claims);
            // They are on its bill still.
            for before in done.channels_before.iter().filter_map(|(_, before)| before.as_ref()) {
                crate::sessions::bill::add_channel(&mut session.gone, before);
            }
        }
        self.tell_services(name)?;
        if !change.outputs.is_empty() {
            self.tell_outputs(name)?;
        }
        // Their priority may have changed, and where their packets go on.
        self.route_all(name)
    }

    fn change_processors(&self, changes: &[ProcessorSpec], done: &mut Done) -> Result<(), NodeError> {
        for cpu in changes {
            let before = done.vps.get(&cpu.name).cloned();
            let now = match &before {
                Some(vp) => self.give(vp, cpu)?,
                None => self.place(cpu)?,
            };
            done.vps_before.push((cpu.name.clone(), before));
            done.vps.insert(cpu.name.clone(), now);
        }
        Ok(())
    }

    /// Puts these in the place of those of their names, and has packets go there.
    fn change_channels(&mut self, channels: Vec<SessionChannel>, done: &mut Done) -> Result<(), NodeError> {
        let Some(session) = self.sessions.get_mut(&done.session) else { return Ok(()) };
        for channel in channels {
            let name = channel.spec.name.clone();
            done.channels_before.push((name.clone(), session.channels.insert(name, channel)));
        }
        let Some(session) = self.sessions.get(&done.session) else { return Ok(()) };
        for (name, before) in &done.channels_before {
            let now = session.channels.get(name);
            for channel in now.into_iter().chain(before) {
                let failed = |error| NodeError::Channel { channel: name.clone(), error };
                self.route(&channel.spec.interface).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// It is as if nothing had been changed.
    fn take_back(&mut self, done: Done) {
        let Done { session, reservation, memory, vps, vps_before, channels_before } = done;
        if !channels_before.is_empty() {
            if let Some(there) = self.sessions.get_mut(&session) {
                for (name, before) in channels_before.into_iter().rev() {
                    match before {
                        Some(before) => _ = there.channels.insert(name, before),
                        None => _ = there.channels.remove(&name),
                    }
                }
            }
            // As many filters as before fit.
            if let Err(error) = self.route_everything() {
                warn(&error);
            }
        }
        self.undo(vps_before, &vps);
        // What a module has taken meanwhile stays reserved.
        _ = reservation.change(memory.reserved, memory.ceiling);
    }

    /// Has what the modules of a session send go out through the outputs that it has now. Calls that begin after this see them.
    fn tell_outputs(&self, session: &Name) -> Result<(), NodeError> {
        let there = self.sessions.get(session).ok_or_else(|| NodeError::NoSession(session.clone()))?;
        let ways = self.outlets(session);
        for module in there.modules.values().filter(|module| !module.outputs.is_empty()) {
            let (guest, outlets) = (module.guest, leading(&module.outputs, &ways));
            if let Some(core) = there.vps.get(&module.spec.cpu).and_then(|vp| self.cores.get(vp.core)) {
                core.ask(move |runner| runner.lead(guest, outlets))?;
            }
        }
        Ok(())
    }
}

/// Where the outputs of a module lead, by their places in its manifest: to those of its session with their names.
pub(crate) fn leading(outputs: &[Name], ways: &[(Name, TxPacketSink)]) -> Vec<Option<TxPacketSink>> {
    let way = |name: &Name| ways.iter().find(|(known, _)| known == name).map(|(_, outlet)| outlet.clone());
    outputs.iter().map(way).collect()
}

/// Whether no module has the memory of a channel's packets, if there is one of that name.
fn check_idle(session: &SessionState, channel: &ChannelSpec) -> Result<(), NodeError> {
    let mut modules = session.modules.values().chain(session.leaving.values());
    match modules.find(|module| module.spec.channel == channel.name) {
        None => Ok(()),
        Some(module) => Err(NodeError::ChannelInUse {
            session: session.spec.name.clone(),
            channel: channel.name.clone(),
            module: module.title.clone(),
        }),
    }
}
