//! The switch to a draft, which cannot fail.

use super::draft::{Draft, Incoming, is_same};
use super::{Departure, Switched};
use crate::sessions::leaving::{Withdrawn, withdraw};
use crate::sessions::node::{Node, SessionChannel, SessionState};
use std::collections::BTreeMap;
use weir_admission::Name;
use weir_ledger::{LedgerEvent, SessionId as Billed, Usage};

/// Earlier parts of a session, to release once no packets go to them.
struct Before {
    session: Billed,
    modules: Vec<Withdrawn>,
    channels: BTreeMap<Name, SessionChannel>,
    /// The session that was replaced; `None` for one that ends, and is still on the node.
    old: Option<SessionState>,
}

impl Node {
    pub(super) fn switch(&mut self, incoming: Vec<Incoming>, draft: Draft) -> Switched {
        let Draft { gone, links, steps, terms, tables, plans } = draft;
        let mut before: Vec<Before> = gone.iter().filter_map(|name| self.begin_end(name)).collect();
        let mut come = Vec::new();
        for it in incoming {
            before.extend(self.put(it, &mut come));
        }
        let committed = tables.commit(self.sessions.values_mut().map(|there| &mut there.claims));
        self.give_bandwidth(&links, steps);
        for (place, core) in self.cores.iter().enumerate() {
            let here = terms.iter().filter(|(core, ..)| *core == place);
            let here: Vec<_> = here.map(|(_, vp, terms)| (*vp, *terms)).collect();
            if !here.is_empty() {
                core.tell(move |runner| runner.rearrange(here));
            }
        }
        for Come { name, ready, .. } in &mut come {
            let Some(there) = self.sessions.get(name) else { continue };
            for (module, ready) in ready.drain(..) {
                let Some(module) = there.modules.get(&module) else { continue };
                module.tables.change(&there.spec);
                let core = there.vps.get(&module.spec.cpu).and_then(|vp| self.cores.get(vp.core));
                let settle = self.open(there, module, ready);
                if let Some(core) = core {
                    // A virtual processor has twice as many places as a session has modules.
                    core.tell(move |runner| _ = settle(runner));
                }
            }
        }
        plans.into_iter().for_each(|(source, planned)| source.take_up(planned));
        let (mut changed, mut closing) = (Vec::new(), Vec::new());
        for it in before {
            let is_changed = it.old.is_some();
            let departure = self.let_go(it);
            if is_changed { changed.push(departure) } else { closing.push(departure) }
        }
        let events = come.iter().flat_map(|it| self.events_of(it)).collect();
        let (tables, notes) = (committed.sheets, committed.notes);
        Switched { changed, gone: closing, events, tables, notes }
    }

    /// Begins to end a session, and takes its modules and channels.
    fn begin_end(&mut self, name: &Name) -> Option<Before> {
        let there = self.sessions.get_mut(name)?;
        there.is_closing = true;
        let modules: Vec<Name> = there.modules.keys().cloned().collect();
        let modules = withdraw(there, &modules, &self.cores, &self.writer);
        let channels = std::mem::take(&mut there.channels);
        let session = Billed { name: name.clone(), id: there.id };
        Some(Before { session, modules, channels, old: None })
    }

    /// Puts a session on the node. It takes over the bill and the stopping modules of the one that it replaces.
    fn put(&mut self, incoming: Incoming, come: &mut Vec<Come>) -> Option<Before> {
        let Incoming { mut session, replaces, ready, codes, used, .. } = incoming;
        let name = session.spec.name.clone();
        come.push(Come { name: name.clone(), replaces, ready, codes });
        let old = self.sessions.remove(&name);
        let before = old.map(|mut old| {
            let modules: Vec<Name> = old.modules.keys().cloned().collect();
            let modules = withdraw(&mut old, &modules, &self.cores, &self.writer);
            session.leaving = std::mem::take(&mut old.leaving);
            session.gone = std::mem::take(&mut old.gone);
            session.gone_services = old.gone_services;
            // The session is the same, so its counters go on.
            session.told = std::mem::take(&mut old.told);
            session.ended = std::mem::take(&mut old.ended);
            session.modules.keys().for_each(|module| _ = session.ended.forget(module));
            (session.refusals, session.compiled) = (old.refusals, old.compiled);
            old.limits.add_to(&mut session.gone);
            session.memory.had(old.memory.take_peak());
            let has_gone =
                |vp: &&crate::sessions::node::Vp| !session.vps.values().any(|now| is_same(now, vp));
            session.retired = old.all_vps().filter(has_gone).cloned().collect();
            let channels = std::mem::take(&mut old.channels);
            let session = Billed { name: name.clone(), id: old.id };
            Before { session, modules, channels, old: Some(old) }
        });
        session.compiled.0 = session.compiled.0.saturating_add(used.0);
        // Also where no module writes records now: what earlier ones wrote is kept within the session's limit.
        let records = self.writer.operators_session(&name, &session.limits);
        records.held_to(&session.limits);
        session.records = Some(records);
        self.sessions.insert(name, session);
        before
    }

    /// Stops the earlier modules of a session and closes its earlier parts, whose counters stay on its bill. No interface has packets for them.
    fn let_go(&mut self, before: Before) -> Departure {
        let Before { session, modules, channels, old } = before;
        let leaving = modules.into_iter().map(Withdrawn::stop).collect();
        let mut gone = Usage::default();
        channels.values().for_each(|channel| crate::sessions::bill::add_channel(&mut gone, channel));
        if let (Some(old), Some(now)) = (&old, self.sessions.get(&session.name)) {
            self.close_outputs_but(&old.outputs, &now.outputs);
            let is_closed =
                |output: &&crate::link::OutputChannel| !now.outputs.values().any(|it| it.is_same(output));
            old.outputs.values().filter(is_closed).for_each(|output| output.add_to(&mut gone));
        }
        if let Some(there) = self.sessions.get_mut(&session.name) {
            there.gone.merge(&gone);
        }
        Departure { session, leaving }
    }

    /// Entries of the ledger about a session that has come or changed.
    fn events_of(&self, come: &Come) -> Vec<LedgerEvent> {
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
        for (module, code) in &come.codes {
            let tier = self.tier(&come.name, module);
            let (session, module, code) = (session.clone(), module.clone(), *code);
            events.extend(tier.map(|tier| LedgerEvent::ModuleLoaded { session, module, code, tier }));
        }
        events
    }
}

/// A session that was created, or has replaced another one.
struct Come {
    name: Name,
    replaces: Option<weir_ledger::Reserved>,
    ready: Vec<(Name, crate::sessions::installing::PreparedModule)>,
    codes: Vec<(Name, weir_ledger::Digest)>,
}
