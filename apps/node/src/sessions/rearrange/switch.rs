//! The switch to a draft, which cannot fail.

use super::draft::{Draft, Incoming, is_same};
use super::{StoppingModules, Switched};
use crate::sessions::close::{WithdrawnModule, withdraw};
use crate::sessions::node::{Node, SessionChannel, SessionState};
use std::collections::BTreeMap;
use weir_admission::Name;
use weir_ledger::{LedgerEvent, SessionId, Usage};

/// Earlier parts of a session, which are released once they get no more packets.
struct EarlierParts {
    session: SessionId,
    modules: Vec<WithdrawnModule>,
    channels: BTreeMap<Name, SessionChannel>,
    /// The replaced session; `None` for a session that ends and is still on the node.
    old: Option<SessionState>,
}

impl Node {
    /// Replaces the present sessions by those of a draft.
    pub(super) fn switch(&mut self, incoming: Vec<Incoming>, draft: Draft) -> Switched {
        let Draft { gone, links, steps, terms, tables, plans } = draft;
        let mut before: Vec<EarlierParts> = gone.iter().filter_map(|name| self.begin_end(name)).collect();
        let mut come = Vec::new();
        for it in incoming {
            before.extend(self.replace_session(it, &mut come));
        }
        let committed = tables.commit(self.sessions.values_mut().map(|state| &mut state.claims));
        self.apply_bandwidth(&links, steps);
        for (index, core) in self.cores.iter().enumerate() {
            let core_terms = terms.iter().filter(|(core, ..)| *core == index);
            let core_terms: Vec<_> = core_terms.map(|(_, vp, terms)| (*vp, *terms)).collect();
            if !core_terms.is_empty() {
                core.tell(move |runner| runner.rearrange(core_terms));
            }
        }
        for SwitchedSession { name, ready, .. } in &mut come {
            let Some(state) = self.sessions.get(name) else { continue };
            for (module, ready) in ready.drain(..) {
                let Some(module) = state.modules.get(&module) else { continue };
                module.tables.change(&state.spec);
                let core = state.vps.get(&module.spec.cpu).and_then(|vp| self.cores.get(vp.core));
                let add_task = self.open(state, module, ready);
                if let Some(core) = core {
                    // A virtual CPU has capacity for twice as many modules as a session may have.
                    core.tell(move |runner| _ = add_task(runner));
                }
            }
        }
        plans.into_iter().for_each(|(source, planned)| source.activate(planned));
        let (mut changed, mut closing) = (Vec::new(), Vec::new());
        for it in before {
            let is_changed = it.old.is_some();
            let stopping = self.release_parts(it);
            if is_changed { changed.push(stopping) } else { closing.push(stopping) }
        }
        let events = come.iter().flat_map(|it| self.events_of(it)).collect();
        let (tables, notes) = (committed.files, committed.notes);
        Switched { changed, gone: closing, events, tables, notes }
    }

    /// Begins to close a session, and takes its modules and channels.
    fn begin_end(&mut self, name: &Name) -> Option<EarlierParts> {
        let state = self.sessions.get_mut(name)?;
        state.is_closing = true;
        let modules: Vec<Name> = state.modules.keys().cloned().collect();
        let modules = withdraw(state, &modules, &self.cores, &self.writer);
        let channels = std::mem::take(&mut state.channels);
        let session = SessionId { name: name.clone(), id: state.id };
        Some(EarlierParts { session, modules, channels, old: None })
    }

    /// Puts a session on the node. The session takes over the usage and the stopping modules of the session that it
    /// replaces.
    fn replace_session(
        &mut self,
        incoming: Incoming,
        come: &mut Vec<SwitchedSession>,
    ) -> Option<EarlierParts> {
        let Incoming { mut session, replaces, ready, hashes, used, .. } = incoming;
        let name = session.spec.name.clone();
        come.push(SwitchedSession { name: name.clone(), replaces, ready, hashes });
        let old = self.sessions.remove(&name);
        let before = old.map(|mut old| {
            let modules: Vec<Name> = old.modules.keys().cloned().collect();
            let modules = withdraw(&mut old, &modules, &self.cores, &self.writer);
            session.stopping = std::mem::take(&mut old.stopping);
            session.closed_usage = std::mem::take(&mut old.closed_usage);
            session.closed_services = old.closed_services;
            // To its owner it is the same session, so its counters go on.
            session.reported = std::mem::take(&mut old.reported);
            session.stopped = std::mem::take(&mut old.stopped);
            session.modules.keys().for_each(|module| _ = session.stopped.forget(module));
            (session.refusals, session.compiled) = (old.refusals, old.compiled);
            old.limits.add_to(&mut session.closed_usage);
            session.memory.raise_peak(old.memory.take_peak());
            let has_gone =
                |vp: &&crate::sessions::node::Vp| !session.vps.values().any(|now| is_same(now, vp));
            session.retired = old.all_vps().filter(has_gone).cloned().collect();
            let channels = std::mem::take(&mut old.channels);
            let session = SessionId { name: name.clone(), id: old.id };
            EarlierParts { session, modules, channels, old: Some(old) }
        });
        session.compiled.0 = session.compiled.0.saturating_add(used.0);
        // Even if no module writes records now, earlier records are kept within the session's limit.
        let records = self.writer.operators_session(&name, &session.limits);
        records.set_limits(&session.limits);
        session.records = Some(records);
        self.sessions.insert(name, session);
        before
    }

    /// Stops the earlier modules of a session and closes its earlier parts, whose usage stays with the session. The
    /// interfaces must have stopped sending packets to these parts.
    fn release_parts(&mut self, before: EarlierParts) -> StoppingModules {
        let EarlierParts { session, modules, channels, old } = before;
        let leaving = modules.into_iter().map(WithdrawnModule::stop).collect();
        let mut gone = Usage::default();
        channels.values().for_each(|channel| crate::sessions::usage::add_channel(&mut gone, channel));
        if let (Some(old), Some(now)) = (&old, self.sessions.get(&session.name)) {
            self.close_outputs_but(&old.outputs, &now.outputs);
            let is_closed = |output: &&crate::sessions::link::OutputChannel| {
                !now.outputs.values().any(|it| it.is_same(output))
            };
            old.outputs.values().filter(is_closed).for_each(|output| output.add_to(&mut gone));
        }
        if let Some(state) = self.sessions.get_mut(&session.name) {
            state.closed_usage.merge(&gone);
        }
        StoppingModules { session, leaving }
    }

    /// Returns the ledger events for a session that has been created or changed.
    fn events_of(&self, come: &SwitchedSession) -> Vec<LedgerEvent> {
        let Some((session, reserved)) = self.reserved(&come.name) else { return Vec::new() };
        let mut events = Vec::new();
        match &come.replaces {
            None => {
                let session = session.clone();
                events.push(LedgerEvent::SessionCreated { session, reserved, holder: None });
            }
            Some(before) if *before != reserved => {
                let session = session.clone();
                events.push(LedgerEvent::SessionChanged { session, reserved });
            }
            Some(_) => {}
        }
        for (module, hash) in &come.hashes {
            let tier = self.tier(&come.name, module);
            let (session, module, hash) = (session.clone(), module.clone(), *hash);
            events.extend(tier.map(|tier| LedgerEvent::ModuleLoaded { session, module, code: hash, tier }));
        }
        events
    }
}

/// A session that was created or has replaced another one.
struct SwitchedSession {
    name: Name,
    replaces: Option<weir_ledger::Reserved>,
    ready: Vec<(Name, crate::sessions::install::PreparedModule)>,
    hashes: Vec<(Name, weir_ledger::Digest)>,
}
