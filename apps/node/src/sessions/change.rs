//! The request to change a running session: all parts of the change are applied, or none.

use crate::control::spec::{Change, ChannelSpec, ProcessorSpec, SessionSpec};
use crate::log::warn;
use crate::sessions::error::NodeError;
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

/// The applied steps of a change, which are undone if a later step is refused.
struct AppliedChanges {
    session: Name,
    reservation: Arc<MemoryReservation>,
    /// Memory reservation before the change.
    memory: MemoryState,
    /// The present virtual CPUs.
    vps: BTreeMap<Name, Vp>,
    /// The earlier state of each changed virtual CPU; `None` for a new one.
    vps_before: Vec<(Name, Option<Vp>)>,
    /// The earlier state of each changed channel; `None` for a new one.
    channels_before: Vec<(Name, Option<SessionChannel>)>,
}

impl Node {
    /// Changes a session's reservations, channels and rights: all of them, or none.
    pub(crate) fn change(&mut self, change: &Change, compiled: &CompiledFilters) -> Result<(), NodeError> {
        let changed = self.make_change(change, compiled);
        // Releases the selections of replaced channels, or those of new channels if the change was refused.
        self.drop_unused_selections();
        changed
    }

    fn make_change(&mut self, change: &Change, compiled: &CompiledFilters) -> Result<(), NodeError> {
        let name = &change.session;
        let (state, present, spec) = self.changed_session(change)?;
        let (reservation, memory) = (Arc::clone(&state.memory), state.memory.state());
        let limits = Arc::clone(&state.limits);
        // If a later step is refused, dropping `claims` releases the tables.
        let claims = state.claims.claim_more(&spec)?;
        let (vps, vps_before) = (state.vps.clone(), Vec::new());
        let mut channels = Vec::new();
        for channel in &change.channels {
            channels.push(self.channel(name, &reservation, channel, compiled)?);
        }
        reservation
            .change(spec.memory, spec.memory_ceiling())
            .map_err(|error| NodeError::of_memory(name, error))?;
        let (session, channels_before) = (name.clone(), Vec::new());
        let mut done = AppliedChanges { session, reservation, memory, vps, vps_before, channels_before };
        let still_kept = |error| NodeError::StillKept { session: name.clone(), error };
        let rest = self
            .change_processors(&change.processors, &mut done)
            .and_then(|()| self.change_channels(channels, &mut done))
            .and_then(|()| limits.lower(&present, &spec).map_err(still_kept))
            .and_then(|()| self.change_outputs(name, &change.outputs, compiled));
        if let Err(error) = rest {
            // The limit before the change is not lower than the present one, so this cannot be refused.
            _ = limits.lower(&present, &present);
            self.undo_change(done);
            return Err(error);
        }
        if let Some(session) = self.sessions.get_mut(name) {
            session.priority.store(spec.priority, Ordering::Relaxed);
            session.limits.apply(&spec);
            (session.spec, session.vps) = (spec, done.vps);
            // A table whose grant has ended is withdrawn before another session can publish it.
            session.modules.values().for_each(|module| module.table_binding.change(&session.spec));
            session.claims.replace(&session.spec, claims);
            // The usage of replaced channels stays with the session.
            for before in done.channels_before.iter().filter_map(|(_, before)| before.as_ref()) {
                crate::sessions::usage::add_channel(&mut session.closed_usage, before);
            }
        }
        self.update_services(name)?;
        if !change.outputs.is_empty() {
            self.update_outputs(name)?;
        }
        // Priority and forwarding may have changed.
        self.route_session(name)
    }

    /// Returns a session that a change concerns, its present description, and the description after the change, if the
    /// names, the rights and the modules allow the change.
    pub(crate) fn changed_session(
        &self,
        change: &Change,
    ) -> Result<(&SessionState, SessionSpec, SessionSpec), NodeError> {
        let name = &change.session;
        let state = self.sessions.get(name).ok_or_else(|| NodeError::NoSession(name.clone()))?;
        if state.is_closing && !(change.channels.is_empty() && change.outputs.is_empty()) {
            return Err(NodeError::Closing(name.clone()));
        }
        // The session's modules may have changed the memory reservation by themselves.
        let memory = state.memory.state();
        let mut present = state.spec.clone();
        if present.memory != memory.reserved {
            (present.memory, present.retained_memory_max) = (memory.reserved, Some(memory.ceiling));
        }
        let spec = present.changed(change)?;
        self.check(&spec)?;
        self.check_ceilings(state.owner.as_ref(), &spec)?;
        change.processors.iter().try_for_each(|cpu| self.check_tiers(state, cpu))?;
        change.channels.iter().try_for_each(|channel| check_unused(state, channel))?;
        Ok((state, present, spec))
    }

    fn change_processors(
        &self,
        changes: &[ProcessorSpec],
        done: &mut AppliedChanges,
    ) -> Result<(), NodeError> {
        for cpu in changes {
            let before = done.vps.get(&cpu.name).cloned();
            let now = match &before {
                Some(vp) => self.change_processor(vp, cpu)?,
                None => self.place_processor(cpu)?,
            };
            done.vps_before.push((cpu.name.clone(), before));
            done.vps.insert(cpu.name.clone(), now);
        }
        Ok(())
    }

    /// Replaces the channels of these names, and routes packets to the new ones.
    fn change_channels(
        &mut self,
        channels: Vec<SessionChannel>,
        done: &mut AppliedChanges,
    ) -> Result<(), NodeError> {
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

    /// Undoes a change.
    fn undo_change(&mut self, done: AppliedChanges) {
        let AppliedChanges { session, reservation, memory, vps, vps_before, channels_before } = done;
        if !channels_before.is_empty() {
            if let Some(state) = self.sessions.get_mut(&session) {
                for (name, before) in channels_before.into_iter().rev() {
                    match before {
                        Some(before) => _ = state.channels.insert(name, before),
                        None => _ = state.channels.remove(&name),
                    }
                }
            }
            // The earlier filters have fitted before, so this cannot fail.
            if let Err(error) = self.route_all_interfaces() {
                warn(&error);
            }
        }
        self.undo_processors(vps_before, &vps);
        // If a module has taken memory meanwhile, the earlier reservation is too small and is refused.
        _ = reservation.change(memory.reserved, memory.ceiling);
    }

    /// Gives the modules of a session the queues of its present output channels, from each module's next call on.
    fn update_outputs(&self, session: &Name) -> Result<(), NodeError> {
        let state = self.sessions.get(session).ok_or_else(|| NodeError::NoSession(session.clone()))?;
        let queues = self.output_queues(session);
        for module in state.modules.values().filter(|module| !module.outputs.is_empty()) {
            let (number, output_queues) = (module.number, queues_for_outputs(&module.outputs, &queues));
            if let Some(core) = state.vps.get(&module.spec.cpu).and_then(|vp| self.cores.get(vp.core)) {
                core.execute(move |runner| runner.set_outputs(number, output_queues))?;
            }
        }
        Ok(())
    }
}

/// Returns the tx queue for each output of a module's manifest: that of the output channel of the same name, or `None`.
pub(crate) fn queues_for_outputs(
    outputs: &[Name],
    queues: &[(Name, TxPacketSink)],
) -> Vec<Option<TxPacketSink>> {
    let queue =
        |name: &Name| queues.iter().find(|(known, _)| known == name).map(|(_, tx_queue)| tx_queue.clone());
    outputs.iter().map(queue).collect()
}

/// Checks that no module reads the channel that is to be replaced.
fn check_unused(session: &SessionState, channel: &ChannelSpec) -> Result<(), NodeError> {
    let mut modules = session.modules.values().chain(session.stopping.values());
    match modules.find(|module| module.spec.channel == channel.name) {
        None => Ok(()),
        Some(module) => Err(NodeError::ChannelInUse {
            session: session.spec.name.clone(),
            channel: channel.name.clone(),
            module: module.title.clone(),
        }),
    }
}
