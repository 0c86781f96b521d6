//! Preparation of new sessions beside the present sessions, without an effect on them.

use super::processors::VirtualCpuRequest;
use super::{NewSession, Rearrangement, Refused};
use crate::control::link_spec::LinkConfig;
use crate::control::spec::SessionSpec;
use crate::sessions::error::NodeError;
use crate::sessions::install::PreparedModule;
use crate::sessions::limits::SessionLimits;
use crate::sessions::link::{ChannelChange, IncomingOutput, SessionOutputs};
use crate::sessions::node::{Node, SessionState, Vp};
use crate::sessions::notifier::SessionNotifier;
use crate::sessions::processors::allocation;
use crate::sessions::tables::{PreparedTables, TableClaims, TableError};
use std::collections::BTreeSet;
use std::sync::Arc;
use weir_datapath::receive::{PreparedPlan, Receiver};
use weir_ledger::{Digest, Reserved};
use weir_sched::cpu::{CpuAllocation, CpuTerms, VcpuId, Weight};
use weir_units::Nanos;
use {weir_admission::Name, weir_session::MemoryReservation};

/// A session of a draft, which the switch puts on the node.
pub(super) struct Incoming {
    pub(super) session: SessionState,
    /// Reservations of the present session that is replaced; `None` for a new session.
    pub(super) replaces: Option<Reserved>,
    /// Modules, which run from the switch on.
    pub(super) ready: Vec<(Name, PreparedModule)>,
    /// Hashes of the modules' files.
    pub(super) hashes: Vec<(Name, Digest)>,
    /// Virtual CPUs that were created for the session. They get their reservations with the switch.
    new_vps: Vec<Vp>,
    /// CPU time of the session's preparation.
    pub(super) used: Nanos,
}

/// Terms of a virtual CPU: the index of its core, its id, and the terms.
pub(super) type VpTerms = (usize, VcpuId, CpuTerms);

/// All changes of a switch besides the sessions.
pub(super) struct Draft {
    /// Sessions that close and are not replaced.
    pub(super) removed: Vec<Name>,
    pub(super) links: Vec<LinkConfig>,
    /// Changes of output channels.
    pub(super) steps: Vec<ChannelChange>,
    /// New terms of virtual CPUs.
    pub(super) terms: Vec<VpTerms>,
    pub(super) tables: PreparedTables,
    pub(super) plans: Vec<(Arc<Receiver>, PreparedPlan)>,
}

impl Node {
    /// Prepares a change and checks that its reservations fit. Memory is reserved last, because no later step can fail.
    pub(super) fn draft(
        &mut self,
        incoming: &mut Vec<Incoming>,
        wanted: Rearrangement<'_>,
    ) -> Result<Draft, Refused> {
        let Rearrangement { removed, added, links, tables, new_tables } = wanted;
        let is_operators = |name: &&Name| self.sessions.get(*name).is_some_and(|it| it.owner.is_none());
        let removed: Vec<Name> = removed.iter().filter(is_operators).cloned().collect();
        let is_replaced = |name: &Name| added.iter().any(|session| session.spec.name == *name);
        let (replaced, removed): (Vec<Name>, Vec<Name>) = removed.into_iter().partition(is_replaced);
        let count = self.sessions.len() - removed.len() - replaced.len() + added.len();
        if count > crate::control::config::SESSIONS_MAX {
            return Err((None, NodeError::TooMany(count)));
        }
        let (mut steps, mut prepared) = (Vec::new(), Vec::new());
        for new_session in added {
            let NewSession { spec, memory, limits, compiled, modules, used } = new_session;
            let name = spec.name.clone();
            let of_session = |error| (Some(name.clone()), error);
            let empty = self.empty_session(&spec, memory, limits, &replaced, used).map_err(of_session)?;
            incoming.push(empty);
            let Some(it) = incoming.last_mut() else { continue };
            let parts = self.draft_parts(it, &spec, &compiled).map_err(of_session)?;
            steps.extend(parts);
            prepared.push((spec, modules));
        }
        let (leaving, terms) = self.draft_processors(incoming, &prepared, &removed)?;
        for (it, (_, modules)) in incoming.iter_mut().zip(prepared) {
            let name = it.session.spec.name.clone();
            for (prepared, hash) in modules {
                let allocation = self.allocate_module(None);
                let built = self.build(&it.session, prepared, None, allocation, None);
                let (module, session_module, ready) = built.map_err(|error| (Some(name.clone()), error))?;
                it.session.modules.insert(module.clone(), session_module);
                it.ready.push((module.clone(), ready));
                it.hashes.push((module, hash));
            }
            check_publishers(&it.session).map_err(|error| (Some(name), NodeError::from(error)))?;
        }
        let incoming: &[Incoming] = incoming;
        let (given_up, more) = self.draft_bandwidth(incoming, links, &replaced, &removed)?;
        steps.extend(given_up);
        steps.extend(more);
        let present = |name: &Name| self.sessions.get(name);
        let before: Vec<Arc<MemoryReservation>> =
            replaced.iter().chain(&removed).filter_map(present).map(|it| Arc::clone(&it.memory)).collect();
        let sessions: Vec<_> = incoming.iter().map(|it| (&it.session.spec, &it.session.memory)).collect();
        let prepared = self.loader.registry.prepare_change(tables, new_tables, &sessions, &before);
        let session = |place: usize| incoming.get(place).map(|it| it.session.spec.name.clone());
        let prepared =
            prepared.map_err(|(place, error)| (place.and_then(session), NodeError::from(error)))?;
        let plans = self.draft_plans(incoming, &replaced, &removed)?;
        let after: Vec<_> = incoming.iter().map(|it| Arc::clone(&it.session.memory)).collect();
        self.memory.replace(&before, &after).map_err(|(place, error)| {
            let name = session(place);
            let of = name.clone().unwrap_or_else(crate::control::spec::main);
            (name, NodeError::of_memory(&of, error))
        })?;
        let mut all_terms = terms;
        // The modules on these virtual CPUs still run until they have stopped, so their overruns still count.
        all_terms.extend(leaving.into_iter().map(|vp| {
            let overrun = self.overrun(&vp);
            (vp.core, vp.id, CpuTerms { share: CpuAllocation::BestEffort(Weight::USUAL), overrun })
        }));
        Ok(Draft { removed, links: links.to_vec(), steps, terms: all_terms, tables: prepared, plans })
    }

    /// Creates a session without channels, virtual CPUs and modules.
    fn empty_session(
        &mut self,
        spec: &SessionSpec,
        memory: Arc<MemoryReservation>,
        limits: Arc<SessionLimits>,
        replaced: &[Name],
        used: Nanos,
    ) -> Result<Incoming, NodeError> {
        let name = &spec.name;
        let replaces = self.reserved(name).map(|(_, reserved)| reserved);
        let old = self.sessions.get(name).map(|old| (old.id, Arc::clone(&old.notifier), old.is_closing));
        let (id, notifier): (_, Arc<SessionNotifier>) = match old {
            None => {
                self.next_session += 1;
                (self.next_session, Arc::default())
            }
            Some(_) if !replaced.contains(name) => return Err(NodeError::Exists(name.clone())),
            Some((.., true)) => return Err(NodeError::Closing(name.clone())),
            Some((id, notifier, false)) => (id, notifier),
        };
        let notified = Arc::clone(&notifier);
        memory.on_low(move || notified.notify_all());
        let claims = TableClaims::none(&self.loader.registry, name, &memory);
        let session = SessionState::empty(id, spec.clone(), limits, memory, notifier, claims);
        let (ready, hashes, new_vps) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Incoming { session, replaces, ready, hashes, new_vps, used })
    }

    /// Adds the channels and output channels of a session. An output channel that continues a present one uses the
    /// same queue. Returns the changes that give output channels their terms.
    fn draft_parts(
        &mut self,
        it: &mut Incoming,
        spec: &SessionSpec,
        compiled: &crate::sessions::filters::CompiledFilters,
    ) -> Result<Vec<ChannelChange>, NodeError> {
        let (name, memory) = (&spec.name, Arc::clone(&it.session.memory));
        for channel in &spec.channels {
            let made = self.channel(name, &memory, channel, compiled)?;
            it.session.channels.insert(channel.name.clone(), made);
        }
        let mut steps = Vec::new();
        for output in &spec.outputs {
            let before = self.sessions.get(name).and_then(|old| old.outputs.get(&output.name));
            let before = before.filter(|before| before.can_continue_as(output));
            let (made, step) = self.draft_output(output, before, name, &memory, compiled)?;
            it.session.outputs.insert(output.name.clone(), made);
            steps.push(step);
        }
        Ok(steps)
    }

    /// Adds the virtual CPUs of the sessions, new ones without a reservation. Returns the virtual CPUs that have to
    /// give up their reservations, and the new terms. If the capacity suffices, virtual CPUs that end keep their
    /// reservations until their modules have stopped.
    fn draft_processors(
        &self,
        incoming: &mut [Incoming],
        prepared: &[(SessionSpec, Vec<(crate::sessions::module_loader::StartedModule, Digest)>)],
        removed: &[Name],
    ) -> Result<(Vec<Vp>, Vec<VpTerms>), Refused> {
        let mut wanted = Vec::new();
        for (session_index, (it, (spec, modules))) in incoming.iter().zip(prepared).enumerate() {
            let old = self.sessions.get(&spec.name);
            for cpu in spec.all_processors() {
                let kept = old.and_then(|old| old.vps.get(&cpu.name)).filter(|vp| self.can_stay(vp, &cpu));
                let mut overrun = kept.map_or(Nanos(0), |vp| self.overrun(vp));
                for (module, _) in modules.iter().filter(|(module, _)| module.spec.cpu == cpu.name) {
                    let channel = it.session.channels.get(&module.spec.channel);
                    overrun =
                        overrun.max(channel.map_or(Nanos(0), |channel| self.overrun_of(module, channel)));
                }
                wanted.push(VirtualCpuRequest { session_index, spec: cpu, kept: kept.cloned(), overrun });
            }
        }
        let is_kept = |vp: &Vp| {
            let keeps_it = |it: &VirtualCpuRequest| it.kept.as_ref().is_some_and(|kept| is_same(kept, vp));
            wanted.iter().any(keeps_it)
        };
        let names = incoming.iter().map(|it| &it.session.spec.name).chain(removed);
        let present = names.filter_map(|name| self.sessions.get(name)).flat_map(SessionState::all_vps);
        let mut leaving: Vec<Vp> = present.filter(|vp| !is_kept(vp)).cloned().collect();
        // If the capacity suffices, virtual CPUs that end keep their reservations, so that their modules stop in
        // reserved time.
        let kept = self.place_all(&wanted, &leaving, false);
        let releases = kept.is_err();
        let placed = kept.or_else(|_| self.place_all(&wanted, &leaving, true));
        let placed = placed.map_err(|(place, error)| {
            let blamed = wanted.get(place).and_then(|it| incoming.get(it.session_index));
            (blamed.map(|it| it.session.spec.name.clone()), error)
        })?;
        if !releases {
            leaving.clear();
        }
        let mut terms = Vec::new();
        for (wanted, (core, id)) in wanted.into_iter().zip(placed) {
            let Some(it) = incoming.get_mut(wanted.session_index) else { continue };
            let wanted_terms = wanted.terms();
            let id = match id {
                Some(id) => id,
                None => {
                    let made = self.make_processor(core, &wanted);
                    let vp = made.map_err(|error| (Some(it.session.spec.name.clone()), error))?;
                    // The earlier virtual CPU stays on its core until its modules have stopped.
                    leaving.extend(wanted.kept.filter(|_| releases));
                    let id = vp.id;
                    it.new_vps.push(vp);
                    id
                }
            };
            terms.push((core, id, wanted_terms));
            let name = wanted.spec.name.clone();
            it.session.vps.insert(name, Vp { spec: wanted.spec, core, id });
        }
        Ok((leaving, terms))
    }

    /// Returns true if a virtual CPU can stay on its core: its new specification names this core or no core.
    fn can_stay(&self, vp: &Vp, cpu: &crate::control::spec::ProcessorSpec) -> bool {
        let number = self.cores.get(vp.core).map(crate::core_thread::runner::CoreThread::number);
        number.is_some() && cpu.core.is_none_or(|core| Some(core) == number)
    }

    /// Returns the present overrun of a virtual CPU.
    pub(super) fn overrun(&self, vp: &Vp) -> Nanos {
        let id = vp.id;
        let overrun = self.cores.get(vp.core).map(|core| core.execute(move |runner| runner.overrun(id)));
        overrun.and_then(Result::ok).flatten().unwrap_or(Nanos(0))
    }

    /// Creates a virtual CPU on this core. A requested reservation is made later, by the switch.
    fn make_processor(&self, core: usize, wanted: &VirtualCpuRequest) -> Result<Vp, NodeError> {
        let Some(thread) = self.cores.get(core) else { return Err(self.no_core(&wanted.spec)) };
        let weight = Weight::new(wanted.spec.weight).unwrap_or(Weight::USUAL);
        let terms = match allocation(&wanted.spec) {
            CpuAllocation::Reserved(_) => {
                CpuTerms { share: CpuAllocation::BestEffort(weight), overrun: wanted.overrun }
            }
            CpuAllocation::BestEffort(_) => wanted.terms(),
        };
        let made = thread.execute(move |runner| runner.create(terms))?;
        let (name, number) = (wanted.spec.name.clone(), thread.number());
        let id = made.map_err(|refusal| NodeError::Cpu { name, core: number, refusal })?;
        Ok(Vp { spec: wanted.spec.clone(), core, id })
    }

    /// Checks that links have capacity for the sessions' output channels. Returns the changes that free the
    /// reservations of removed output channels, and the changes that free the reservations of sessions that close. The
    /// latter are empty if the capacity suffices without them.
    fn draft_bandwidth(
        &self,
        incoming: &[Incoming],
        links: &[LinkConfig],
        replaced: &[Name],
        removed: &[Name],
    ) -> Result<(Vec<ChannelChange>, Vec<ChannelChange>), Refused> {
        let mut entering = Vec::new();
        for it in incoming {
            let session = &it.session.spec.name;
            entering.extend(
                it.session.outputs.values().map(|output| IncomingOutput { session, spec: &output.spec }),
            );
        }
        let outputs_of = |names: &[Name]| {
            let states = names.iter().filter_map(|name| self.sessions.get(name));
            states.flat_map(|state| state.outputs.values()).collect::<Vec<_>>()
        };
        let (changing, going) = (outputs_of(replaced), outputs_of(removed));
        let mut given_up: Vec<_> = changing.iter().map(|output| output.released()).collect();
        let mut more = Vec::new();
        if self.check_bandwidth(links, &given_up, &entering).is_err() {
            given_up.extend(going.iter().map(|output| output.released()));
            self.check_bandwidth(links, &given_up, &entering)?;
            more = going.iter().map(|output| output.release_step()).collect();
        }
        let successor = |name: &Name| incoming.iter().find(|it| it.session.spec.name == *name);
        let mut steps = Vec::new();
        for (name, state) in replaced.iter().filter_map(|name| Some((name, self.sessions.get(name)?))) {
            for (output, before) in &state.outputs {
                let continued = successor(name).and_then(|it| it.session.outputs.get(output));
                if continued.is_none_or(|it| !it.is_same(before)) {
                    steps.push(before.release_step());
                }
            }
        }
        Ok((steps, more))
    }

    /// Prepares the forwarding plans of all interfaces whose channels change.
    fn draft_plans(
        &self,
        incoming: &[Incoming],
        replaced: &[Name],
        removed: &[Name],
    ) -> Result<Vec<(Arc<Receiver>, PreparedPlan)>, Refused> {
        let leaves = |name: &Name| replaced.contains(name) || removed.contains(name);
        let (leaving, staying): (Vec<&SessionState>, Vec<&SessionState>) =
            self.sessions.values().partition(|state| leaves(&state.spec.name));
        let added: Vec<&SessionState> = incoming.iter().map(|it| &it.session).collect();
        let channels = leaving.iter().chain(&added).flat_map(|state| state.channels.values());
        let interfaces: BTreeSet<&String> = channels.map(|channel| &channel.spec.interface).collect();
        let mut plans = Vec::new();
        for interface in interfaces {
            let Some(source) = self.sources.get(interface) else { continue };
            let routes = self.routes(interface, staying.iter().chain(&added).copied());
            let planned = source.plan(routes).map_err(|error| {
                // The error names the last new channel of the interface.
                let last = added.iter().rev().find_map(|state| {
                    let channel = state.channels.values().find(|it| it.spec.interface == *interface)?;
                    Some((state.spec.name.clone(), channel.spec.name.clone()))
                });
                let (name, channel) =
                    last.map_or((None, crate::control::spec::main()), |(s, c)| (Some(s), c));
                (name, NodeError::Channel { channel, error: error.into() })
            })?;
            plans.push((Arc::clone(source), planned));
        }
        Ok(plans)
    }

    /// Closes all parts of a draft after an error.
    pub(super) fn discard(&self, incoming: Vec<Incoming>) {
        let none = SessionOutputs::new();
        for it in incoming {
            it.ready.into_iter().for_each(|(_, ready)| ready.discard());
            let old = self.sessions.get(&it.session.spec.name).filter(|_| it.replaces.is_some());
            self.close_outputs_but(&it.session.outputs, old.map_or(&none, |old| &old.outputs));
            it.new_vps.iter().for_each(|vp| self.close_vp(vp));
        }
    }
}

/// Returns true if both values stand for the same virtual CPU.
pub(super) fn is_same(one: &Vp, other: &Vp) -> bool {
    (one.core, one.id) == (other.core, other.id)
}

/// Checks that no two modules of a session publish the same table.
fn check_publishers(session: &SessionState) -> Result<(), TableError> {
    let mut published = BTreeSet::new();
    for module in session.modules.values() {
        for table in module.table_binding.published() {
            if !published.insert(table) {
                let (session, table) = (session.spec.name.clone(), table.clone());
                return Err(TableError::PublishedByOtherModule { session, table });
            }
        }
    }
    Ok(())
}
