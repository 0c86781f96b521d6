//! Installation of started modules: a module's task is built for its session, which can fail, and then added to its
//! core.

use crate::control::authority::HashAndSigners;
use crate::control::spec::ModuleSpec;
use crate::core_thread::record_sender::RecordSender;
use crate::core_thread::runner::Runner;
use crate::core_thread::session_part::RecordLimits;
use crate::core_thread::task::{BatchOutput, Inbox, ModuleTask, ShedPriority, TaskCounters};
use crate::sessions::change::queues_for_outputs;
use crate::sessions::error::NodeError;
use crate::sessions::module_loader::StartedModule;
use crate::sessions::node::{Node, SessionChannel, SessionModule, SessionState, Vp};
use crate::sessions::preprocessing;
use crate::sessions::processors::allocation;
use crate::sessions::view;
use crate::sessions::writer::RecordedModule;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::Sender;
use std::sync::{Arc, PoisonError};
use weir_admission::{Name, Tier};
use weir_datapath::account::DeferredCharges;
use weir_datapath::driver::{BatchDriver, BatchError};
use weir_datapath::plan::Visibility;
use weir_datapath::preprocess::Preprocessor;
use weir_netio::{DescriptorRing, MemoryQuota};
use weir_rows::FindingReader;
use weir_trust::credential::DelegationId;
use weir_units::{Bytes, Nanos};

/// Numbers and memory that the node allocates for one module.
pub(crate) struct ModuleAllocation {
    /// Number of the module on the node.
    number: u64,
    /// Number of the module's own selection, which is used if packets are transformed for this module alone.
    selection_number: u64,
    /// Limit on the memory of the module's waiting packets; `None` for an operator's module.
    waiting: Option<Arc<MemoryQuota>>,
}

/// A module that is ready to run, but not on its core yet.
pub(crate) struct PreparedModule {
    number: u64,
    task: ModuleTask,
    vp: Vp,
    outputs: Sender<BatchOutput>,
}

impl PreparedModule {
    /// Returns the virtual CPU on which the module will run.
    pub(crate) fn vp(&self) -> &Vp {
        &self.vp
    }

    /// Returns the sender for the module's output.
    pub(crate) fn outputs(&self) -> &Sender<BatchOutput> {
        &self.outputs
    }

    pub(crate) fn task_mut(&mut self) -> &mut ModuleTask {
        &mut self.task
    }

    /// Returns the task of a module that has been [announced](Node::announce).
    pub(crate) fn into_task(self) -> ModuleTask {
        self.task
    }

    /// Discards a module that will not run, and closes its record files.
    pub(crate) fn discard(self) {
        crate::sessions::writer::close(&self.outputs, self.number);
    }
}

/// A job for a core thread that adds a module's task to its virtual CPU. Returns true if the virtual CPU had capacity.
pub(crate) type AddTask = Box<dyn FnOnce(&mut Runner) -> bool + Send>;

/// Checks that a session can have one more module, of this name. With `forwards`, the channel forwards packets, and
/// can have only one module. `replaced` is the module whose place the new one takes.
fn check_new_module(
    state: &SessionState,
    spec: &ModuleSpec,
    name: &Name,
    forwards: bool,
    replaced: Option<&SessionModule>,
) -> Result<(), NodeError> {
    let session = &state.spec.name;
    let is_replaced = |module: &SessionModule| replaced.is_some_and(|it| it.number == module.number);
    if state.modules.get(name).is_some_and(|module| !is_replaced(module)) {
        return Err(NodeError::ModuleExists { session: session.clone(), module: name.clone() });
    }
    state.check_module_count(session)?;
    let is_reader = |module: &SessionModule| module.spec.channel == spec.channel && !is_replaced(module);
    let present = state.modules.iter().find(|(_, module)| is_reader(module));
    match present.filter(|_| forwards) {
        None => Ok(()),
        Some((module, _)) => {
            let (session, channel, module) = (session.clone(), spec.channel.clone(), module.clone());
            Err(NodeError::ForwardingModuleExists { session, channel, module })
        }
    }
}

impl Node {
    /// Installs a started module into a session, if the session's owner still has the right to run it. Returns the
    /// module's name in the session.
    pub(crate) fn install(
        &mut self,
        session: &Name,
        prepared: StartedModule,
        hash_and_signers: Option<HashAndSigners>,
    ) -> Result<Name, NodeError> {
        let (name, module, ready) = self.prepare_install(session, prepared, hash_and_signers, false)?;
        let (vp, outputs) = (ready.vp.clone(), ready.outputs.clone());
        let state = self.sessions.get(session).ok_or_else(|| NodeError::NoSession(session.clone()))?;
        let core = self.cores.get(vp.core).ok_or_else(|| NodeError::Changed(session.clone()))?;
        let add_task = self.open(state, &module, ready);
        let is_added = core.execute(add_task)?;
        if !is_added {
            state.notifier.remove(module.number);
            module.endpoint.bus().close(&module.endpoint);
            crate::sessions::writer::close(&outputs, module.number);
            return Err(NodeError::VirtualCpuFull(module.spec.cpu));
        }
        if let Some(session) = self.sessions.get_mut(session) {
            session.stopped.forget(&name);
            session.modules.insert(name.clone(), module);
        }
        self.route_session(session)?;
        Ok(name)
    }

    /// Builds the task of a started module, if the session's owner still has the right to run it. With `replaces`, the module takes
    /// the place and the queue of the session's module of its name.
    pub(crate) fn prepare_install(
        &mut self,
        session: &Name,
        prepared: StartedModule,
        hash_and_signers: Option<HashAndSigners>,
        replaces: bool,
    ) -> Result<(Name, SessionModule, PreparedModule), NodeError> {
        let channel = self.sessions.get(session).and_then(|state| state.channels.get(&prepared.spec.channel));
        let allocation = self.allocate_module(channel.and_then(|channel| channel.spec.granted.party));
        let state = self.sessions.get(session).ok_or_else(|| NodeError::NoSession(session.clone()))?;
        if let (Some(owner), Some(module)) = (&state.owner, &hash_and_signers) {
            module.check(&owner.credential, &prepared.spec).map_err(Box::new)?;
        }
        if state.is_closing {
            return Err(NodeError::Closing(session.clone()));
        }
        // The session's grants of tables, and its profile, may have changed since the module was prepared. The session may
        // also have been closed and created again under the same name.
        let is_unchanged =
            prepared.table_binding.is_unchanged(&state.spec) && prepared.profile == state.spec.profile;
        if !prepared.tables.are_of_session(&state.memory) || !is_unchanged {
            return Err(NodeError::Changed(session.clone()));
        }
        let checked =
            crate::control::spec::SessionSpec { modules: vec![prepared.spec.clone()], ..state.spec.clone() };
        checked.check(&self.sources.keys().cloned().collect::<Vec<_>>(), &self.loader.profiles())?;
        let channel = state.channels.get(&prepared.spec.channel);
        let overrun = channel.map_or(Nanos(0), |channel| self.overrun_of(&prepared, channel));
        let replaced = state.modules.get(&prepared.name).filter(|_| replaces);
        let built = self.build(state, prepared, hash_and_signers, allocation, replaced)?;
        match self.allow_overrun(&built.2.vp, overrun) {
            Ok(()) => Ok(built),
            Err(error) => {
                built.2.discard();
                Err(error)
            }
        }
    }

    /// Makes a virtual CPU reserve capacity for a module's overrun, unless it already reserves as much.
    fn allow_overrun(&self, vp: &Vp, overrun: Nanos) -> Result<(), NodeError> {
        let Some(core) = self.cores.get(vp.core) else { return Ok(()) };
        let (id, share, number) = (vp.id, allocation(&vp.spec), core.number());
        let result = core.execute(move |runner| runner.allow_overrun(id, share, overrun))?;
        result.map_err(|refusal| NodeError::Cpu { name: vp.spec.name.clone(), core: number, refusal })
    }

    /// Allocates the numbers and memory of the next module. `party` is the first identifier in the delegation chain of the
    /// session's owner; all holders under it share a quota.
    pub(crate) fn allocate_module(&mut self, party: Option<DelegationId>) -> ModuleAllocation {
        let waiting = self.packet_quota_of(party);
        self.next_module += 1;
        self.next_selection += 1;
        ModuleAllocation { number: self.next_module, selection_number: self.next_selection, waiting }
    }

    /// Returns the maximum overrun of a module on this channel: the time of its longest call, or the time to
    /// preprocess a packet, whichever is longer. One run never exceeds its budget by both.
    pub(crate) fn overrun_of(&self, prepared: &StartedModule, channel: &SessionChannel) -> Nanos {
        let preprocessing_time = preprocessing::fuel_max(&channel.spec, channel.stages.len());
        let preprocessing_time =
            preprocessing_time.map_or(Nanos(0), |fuel| self.loader.fuel_rate.calibration.time(fuel));
        prepared.call_times.call.max(preprocessing_time)
    }

    /// Builds the task of a module and opens its record files. The session may be a draft that is not on the node yet. The task gets
    /// the queue of the module that it replaces, if any.
    pub(crate) fn build(
        &self,
        state: &SessionState,
        prepared: StartedModule,
        hash_and_signers: Option<HashAndSigners>,
        allocation: ModuleAllocation,
        replaced: Option<&SessionModule>,
    ) -> Result<(Name, SessionModule, PreparedModule), NodeError> {
        let session = &state.spec.name;
        let changed = || NodeError::Changed(session.clone());
        let channel = state.channels.get(&prepared.spec.channel).ok_or_else(changed)?;
        let StartedModule {
            spec,
            name,
            admitted,
            digest,
            sandbox,
            vouched,
            program,
            call_times,
            endpoint,
            mut tables,
            table_binding,
            record_memory,
            ..
        } = prepared;
        let vp = state.vps.get(&spec.cpu).ok_or_else(changed)?.clone();
        let egress = self.egress_of(state, &channel.spec);
        check_new_module(state, &spec, &name, egress.is_some(), replaced)?;
        if vp.spec.reservation().is_none() && admitted.tier() != Tier::Proved {
            let (module, tier, cpu) = (spec.module.clone(), admitted.tier(), spec.cpu.clone());
            return Err(NodeError::BestEffort { module, tier, cpu });
        }
        let failed = |source| NodeError::of_selection(&spec.channel, source);
        let fragments = state.reassembly_memory(&channel.spec)?;
        // On a channel with view stages, each module has its own tables of addresses.
        let wanted = if channel.stages.is_empty() { Bytes(0) } else { channel.view_tables.bytes() };
        let view_tables_memory = view::take_table_memory(session, &spec.channel, &state.memory, wanted)?;
        let waiting = allocation.waiting.as_ref();
        let preprocessor =
            preprocessing::for_channel(channel, fragments, view_tables_memory, waiting).map_err(failed)?;
        let ring = self.ring_of(channel, preprocessor.as_ref()).ok_or_else(changed)?;
        let transformed = preprocessor.as_ref().and_then(Preprocessor::transformed);
        let tick = admitted.tick_period().map(|period| period.0);
        let queue = match replaced {
            Some(replaced) => Arc::clone(&replaced.queue),
            None => {
                Arc::new(channel.spec.new_queue().with_overflow(self.queue_memory(state, channel, waiting)?))
            }
        };
        let (counters, account): (Arc<TaskCounters>, Arc<DeferredCharges>) = Default::default();
        let shed_priority =
            ShedPriority { priority: Arc::clone(&state.priority), channel: Arc::clone(&channel.counters) };
        let outputs = self.writer.outputs().ok_or_else(changed)?;
        let core = self.cores.get(vp.core).ok_or_else(changed)?;
        sandbox.bind(core.number()).map_err(BatchError::from)?;
        let (isolation, first_back_end) = (sandbox.isolation(), sandbox.back_end());
        let driver = BatchDriver::new(sandbox, &ring, tick)?;
        let number = allocation.number;
        let manifest = admitted.manifest();
        let recorded = RecordedModule {
            name: &name,
            manifest,
            // A manifest is UTF-8, as it was parsed from this text.
            manifest_text: String::from_utf8_lossy(admitted.module().manifest().unwrap_or_default())
                .into_owned(),
            digest,
            format: state.spec.record_format,
            findings: Arc::clone(&state.findings),
            memory: record_memory,
        };
        let written = self.writer.open(
            number,
            (session, &state.limits),
            recorded,
            &self.records,
            Arc::clone(&account),
        )?;
        let bound = admitted.assessment().packet_bound();
        let module = SessionModule {
            number,
            title: format!("{} {}", manifest.name, manifest.version),
            tier: admitted.tier(),
            bound: bound.map(|bound| self.loader.fuel_rate.calibration.time_bound(bound).to_string()),
            isolation,
            first_back_end,
            vouched,
            program,
            streams: manifest.streams.iter().map(|stream| stream.name.clone()).collect(),
            services: manifest.services.clone(),
            calls: manifest.calls.clone(),
            outputs: manifest.outputs.iter().map(|output| output.name.clone()).collect(),
            states: manifest.states.clone(),
            saved_before: None,
            digest,
            table_binding,
            queue: Arc::clone(&queue),
            own_selection: transformed
                .map(|transformed: Arc<AtomicU64>| (allocation.selection_number, transformed)),
            counters: Arc::clone(&counters),
            account: Arc::clone(&account),
            written,
            has_findings: FindingReader::of(manifest).is_some(),
            spec: spec.clone(),
            origin: None,
            hash_and_signers,
            endpoint: Arc::clone(&endpoint),
        };
        let queues: Vec<_> =
            state.outputs.iter().map(|(name, output)| (name.clone(), output.tx_queue.clone())).collect();
        let output_queues = queues_for_outputs(&module.outputs, &queues);
        tables.register(number, &format!("{session}/{name}"), &core.waker());
        let fuel_rate = Arc::clone(&self.loader.fuel_rate);
        let inbox = Inbox { queue, preprocessor, endpoint };
        let record_sender = RecordSender::new(outputs.clone());
        let task = ModuleTask::new(
            number,
            driver,
            inbox,
            shed_priority,
            counters,
            account,
            record_sender,
            call_times,
            fuel_rate,
        )
        .with_egress(egress)
        .with_outputs(output_queues)
        .with_tables(Box::new(tables))
        .with_limits(Arc::clone(&state.limits) as Arc<dyn RecordLimits>);
        Ok((name, module, PreparedModule { number, task, vp, outputs }))
    }

    /// Returns the ring with the descriptors of a module's packets.
    fn ring_of(
        &self,
        channel: &SessionChannel,
        preprocessor: Option<&Preprocessor>,
    ) -> Option<DescriptorRing> {
        match (preprocessor.and_then(Preprocessor::descriptors), &channel.visibility) {
            (Some(ring), _) => Some(ring.clone()),
            (None, Visibility::All(_)) => {
                self.sources.get(&channel.spec.interface).map(|source| source.descriptors().clone())
            }
            (None, Visibility::Selected(selection)) => {
                Some(selection.lock().unwrap_or_else(PoisonError::into_inner).descriptors().clone())
            }
            // This selection contains the packets before the view stages, which no module maps.
            (None, Visibility::Preprocessed(_)) => None,
        }
    }

    /// Connects a module to the service bus and to its session's notifier. Returns the job that adds it to its core.
    pub(crate) fn open(
        &self,
        state: &SessionState,
        module: &SessionModule,
        ready: PreparedModule,
    ) -> AddTask {
        let PreparedModule { task, vp, .. } = ready;
        self.announce(state, module, &vp);
        let id = vp.id;
        Box::new(move |runner: &mut Runner| runner.add_task(id, task).is_ok())
    }

    /// Connects a module, which runs on this virtual CPU, to the service bus and to its session's notifier.
    pub(crate) fn announce(&self, state: &SessionState, module: &SessionModule, vp: &Vp) {
        self.writer.set_limits(&state.spec.name, &state.limits);
        let waker =
            self.cores.get(vp.core).map(crate::core_thread::runner::CoreThread::waker).unwrap_or_default();
        let offers = state.spec.module_offers(&module.services);
        let (endpoint, session) = (&module.endpoint, &state.spec.name);
        endpoint.bus().open(endpoint, module.number, waker.clone(), session, &state.memory, offers.clone());
        // The session's uses may have changed since the module was prepared.
        endpoint.change(module.calls.iter().map(|name| state.spec.service_use(name)).collect(), offers);
        state.notifier.add(module.number, waker);
    }
}
