//! The switch from the present sessions to those of a draft. The switch cannot fail.

use super::draft::{Draft, Incoming, is_same};
use super::{StoppingModules, Switched};
use crate::sessions::close::{WithdrawnModule, withdraw};
use crate::sessions::compiler_trust::VouchedModule;
use crate::sessions::node::{Node, SessionChannel, SessionState};
use std::collections::BTreeMap;
use weir_admission::Name;
use weir_ledger::{LedgerEvent, SessionId, Usage};

/// Modules and channels of a session that closes or is replaced. They are released once they get no more packets.
struct EarlierParts {
    session: SessionId,
    modules: Vec<WithdrawnModule>,
    channels: BTreeMap<Name, SessionChannel>,
    /// The replaced session; `None` for a session that closes, which is still on the node.
    replaced: Option<SessionState>,
}

impl Node {
    /// Replaces the present sessions by those of a draft.
    pub(super) fn switch(&mut self, incoming: Vec<Incoming>, draft: Draft) -> Switched {
        let Draft { removed, links, steps: output_changes, terms: cpu_terms, tables, plans } = draft;
        let mut earlier: Vec<EarlierParts> =
            removed.iter().filter_map(|name| self.begin_removal(name)).collect();
        let mut switched = Vec::new();
        for it in incoming {
            earlier.extend(self.replace_session(it, &mut switched));
        }
        let committed = tables.commit(self.sessions.values_mut().map(|state| &mut state.claims));
        self.apply_bandwidth(&links, output_changes);
        for (index, core) in self.cores.iter().enumerate() {
            let core_terms = cpu_terms.iter().filter(|(core, ..)| *core == index);
            let core_terms: Vec<_> = core_terms.map(|(_, vp, terms)| (*vp, *terms)).collect();
            if !core_terms.is_empty() {
                core.submit(move |runner| runner.rearrange(core_terms));
            }
        }
        for SwitchedSession { name, ready, .. } in &mut switched {
            let Some(state) = self.sessions.get(name) else { continue };
            for (module, ready) in ready.drain(..) {
                let Some(module) = state.modules.get(&module) else { continue };
                module.table_binding.change(&state.spec);
                let core = state.vps.get(&module.spec.cpu).and_then(|vp| self.cores.get(vp.core));
                // Connects the module to the service bus and the notifier.
                let add_task = self.open(state, module, ready);
                if let Some(core) = core {
                    // A virtual CPU has capacity for twice the maximum number of a session's modules, so this succeeds.
                    core.submit(move |runner| _ = add_task(runner));
                }
            }
        }
        plans.into_iter().for_each(|(source, planned)| source.activate(planned));
        let (mut changed, mut closing) = (Vec::new(), Vec::new());
        for parts in earlier {
            let is_changed = parts.replaced.is_some();
            let stopping = self.release_parts(parts);
            if is_changed { changed.push(stopping) } else { closing.push(stopping) }
        }
        let events = switched.iter().flat_map(|session| self.events_of(session)).collect();
        let (tables, notes) = (committed.files, committed.notes);
        Switched { changed, closing, events, tables, notes }
    }

    /// Begins to close a session, and takes its modules and channels out.
    fn begin_removal(&mut self, name: &Name) -> Option<EarlierParts> {
        let state = self.sessions.get_mut(name)?;
        state.is_closing = true;
        let modules: Vec<Name> = state.modules.keys().cloned().collect();
        let modules = withdraw(state, &modules, &self.cores, &self.writer);
        let channels = std::mem::take(&mut state.channels);
        let session = SessionId { name: name.clone(), id: state.id };
        Some(EarlierParts { session, modules, channels, replaced: None })
    }

    /// Puts a session on the node. If it replaces a session, it takes over the usage and the stopping modules of that
    /// session, whose other parts are returned.
    fn replace_session(
        &mut self,
        incoming: Incoming,
        switched: &mut Vec<SwitchedSession>,
    ) -> Option<EarlierParts> {
        let Incoming { mut session, replaces, ready, hashes, used: preparation_time, .. } = incoming;
        let name = session.spec.name.clone();
        switched.push(SwitchedSession { name: name.clone(), replaces, ready, hashes });
        let old = self.sessions.remove(&name);
        let before = old.map(|mut old| {
            let modules: Vec<Name> = old.modules.keys().cloned().collect();
            let modules = withdraw(&mut old, &modules, &self.cores, &self.writer);
            session.stopping = std::mem::take(&mut old.stopping);
            session.closed_usage = std::mem::take(&mut old.closed_usage);
            session.closed_services = old.closed_services;
            // For its holder it is the same session, so its usage does not fall.
            session.reported = std::mem::take(&mut old.reported);
            // Modules that the node stopped without a request stay listed, unless they run again.
            session.stopped = std::mem::take(&mut old.stopped);
            session.modules.keys().for_each(|module| _ = session.stopped.forget(module));
            (session.refusals, session.compiled) = (old.refusals, old.compiled);
            // The usage that is counted for all modules together.
            old.limits.add_to(&mut session.closed_usage);
            session.memory.raise_peak(old.memory.take_peak());
            let is_retired =
                |vp: &&crate::sessions::node::Vp| !session.vps.values().any(|now| is_same(now, vp));
            session.retired = old.all_vps().filter(is_retired).cloned().collect();
            let channels = std::mem::take(&mut old.channels);
            let session = SessionId { name: name.clone(), id: old.id };
            EarlierParts { session, modules, channels, replaced: Some(old) }
        });
        session.compiled.0 = session.compiled.0.saturating_add(preparation_time.0);
        // The record files are opened even if no module writes records, so that the session's limit on stored records
        // applies to the files of earlier modules. All sessions of a draft are the operator's.
        let records = self.writer.session_or_operators(&name, &session.limits);
        records.set_limits(&session.limits);
        session.records = Some(records);
        self.sessions.insert(name, session);
        before
    }

    /// Stops the modules and closes the channels in `earlier`. Their usage is added to the session. The interfaces
    /// must have stopped sending packets to them.
    fn release_parts(&mut self, earlier: EarlierParts) -> StoppingModules {
        let EarlierParts { session, modules, channels, replaced } = earlier;
        let leaving = modules.into_iter().map(WithdrawnModule::stop).collect();
        let mut closed_usage = Usage::default();
        channels.values().for_each(|channel| crate::sessions::usage::add_channel(&mut closed_usage, channel));
        if let (Some(old), Some(now)) = (&replaced, self.sessions.get(&session.name)) {
            self.close_outputs_but(&old.outputs, &now.outputs);
            let is_closed = |output: &&crate::sessions::link::OutputChannel| {
                !now.outputs.values().any(|it| it.is_same(output))
            };
            old.outputs.values().filter(is_closed).for_each(|output| output.add_to(&mut closed_usage));
        }
        if let Some(state) = self.sessions.get_mut(&session.name) {
            state.closed_usage.merge(&closed_usage);
        }
        StoppingModules { session, leaving }
    }

    /// Returns the ledger events for a session that was created or has replaced another one.
    fn events_of(&self, switched: &SwitchedSession) -> Vec<LedgerEvent> {
        let Some((session, reserved)) = self.reserved(&switched.name) else { return Vec::new() };
        let mut events = Vec::new();
        match &switched.replaces {
            None => {
                let session = session.clone();
                events.push(LedgerEvent::SessionCreated { session, reserved, holder: None });
            }
            Some(reserved_before) if *reserved_before != reserved => {
                let session = session.clone();
                events.push(LedgerEvent::SessionChanged { session, reserved });
            }
            Some(_) => {}
        }
        for (module, hash) in &switched.hashes {
            let tier = self.tier(&switched.name, module);
            let (session, module, hash) = (session.clone(), module.clone(), *hash);
            let compiled = self.vouched(&switched.name, &module).map(VouchedModule::in_ledger);
            let loaded = |tier| LedgerEvent::ModuleLoaded { session, module, code: hash, tier, compiled };
            events.extend(tier.map(loaded));
        }
        events
    }
}

/// A session that the switch has put on the node.
struct SwitchedSession {
    name: Name,
    /// Reservations of the replaced session; `None` for a new session.
    replaces: Option<weir_ledger::Reserved>,
    ready: Vec<(Name, crate::sessions::install::PreparedModule)>,
    hashes: Vec<(Name, weir_ledger::Digest)>,
}
