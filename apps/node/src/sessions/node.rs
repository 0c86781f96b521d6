//! A node: its cores, interfaces, links and sessions, and the operations on them.
//!
//! The server keeps a [`Node`] behind one lock. Work that takes long, such as the compilation of a module, is done
//! before the lock is taken: see [`ModuleLoader::prepare`].

use crate::control::authority::{self, HashAndSigners, RequestRefusal, SessionOwner, ceilings};
use crate::control::config::NodeConfiguration;
use crate::control::spec::{
    ChannelSpec, LIST_ENTRIES_MAX, MappedPackets, ModuleSpec, OnLag, OnNoModule, ProcessorSpec, SessionSpec,
    SpecError,
};
use crate::core_thread::runner::CoreThread;
use crate::core_thread::service_bus::ServiceEndpoint;
use crate::core_thread::task::TaskCounters;
use crate::log::{self, warn};
use crate::sessions::channel_plan::PlanError;
use crate::sessions::compiler_trust::VouchedModule;
use crate::sessions::error::NodeError;
use crate::sessions::filters::CompiledFilters;
use crate::sessions::findings::SessionFindings;
use crate::sessions::followers::Following;
use crate::sessions::limits::SessionLimits;
use crate::sessions::link::{NodeLink, SessionOutputs};
use crate::sessions::module_loader::ModuleLoader;
use crate::sessions::notifier::SessionNotifier;
use crate::sessions::queue_memory;
use crate::sessions::replace::SavedBefore;
use crate::sessions::saved::{ModuleOrigin, SavedModule};
use crate::sessions::stopped::StoppedModules;
use crate::sessions::tables::{TableBinding, TableClaims};
use crate::sessions::view::{self, Method, Secret, SelectionKey, SharedSelection};
use crate::sessions::writer::{RECORDS, RecordWriter, Rotation, SessionFiles, StorageHolder, WriteCounters};
use crate::sync::LeafMutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::Instant;
use weir_admission::DeclaredState;
use weir_compilation::compiler_keys::CompilerPolicy;
use weir_datapath::account::DeferredCharges;
use weir_datapath::egress::Egress;
use weir_datapath::event::ObservedEvent;
use weir_datapath::overflow::Overflow;
use weir_datapath::plan::{ChannelPlanCounters, LagPolicy, PlanReader, Route, Visibility};
use weir_datapath::queue::PacketQueue;
use weir_datapath::receive::{ReceiveThreads, Receiver};
use weir_demux::{FilterProgram, SubFlows};
use weir_ledger::{UnloadReason, Usage};
use weir_netio::{MemoryQuota, ViewStage};
use weir_sandbox::{BackEnd, LoadedModule};
use weir_sched::cpu::VcpuId;
use weir_session::services::ServiceCounters;
use weir_trust::credential::{DelegationId, VerifiedCredential};
use weir_trust::grant::ModuleHash;
use weir_units::Nanos;
use {
    weir_admission::{CalibratedProfile, DeclaredService, Name, Tier},
    weir_session::{HeldMemory, MemoryReservation, NodeMemory},
};

/// A virtual CPU of a session.
#[derive(Clone, Debug)]
pub(crate) struct Vp {
    pub(crate) spec: ProcessorSpec,
    /// Index of the virtual CPU's core on the node.
    pub(crate) core: usize,
    pub(crate) id: VcpuId,
}

/// A channel of a session.
#[derive(Debug)]
pub(crate) struct SessionChannel {
    number: u64,
    pub(crate) spec: ChannelSpec,
    flows: Option<SubFlows>,
    program: Arc<FilterProgram>,
    pub(crate) visibility: Visibility,
    /// View stages by which packets are transformed for each module separately, if packets are
    /// [preprocessed](Visibility::Preprocessed); otherwise empty.
    pub(crate) stages: Vec<ViewStage>,
    /// Memory of the session for the tables of the channel's view.
    pub(crate) view_tables: HeldMemory,
    pub(crate) counters: Arc<ChannelPlanCounters>,
    /// Charges for packets that are forwarded without a module.
    pub(crate) account: Arc<DeferredCharges>,
}

/// A module of a session.
#[derive(Debug)]
pub(crate) struct SessionModule {
    pub(crate) number: u64,
    pub(crate) spec: ModuleSpec,
    /// File from which a restart loads the module again; `None` for a module that is not saved.
    pub(crate) origin: Option<ModuleOrigin>,
    /// Hash and signers, by which the owner's credential allows the module; `None` for a module of the configuration that
    /// a reload has loaded.
    pub(crate) hash_and_signers: Option<HashAndSigners>,
    pub(crate) title: String,
    pub(crate) tier: Tier,
    /// Bound on the time for a packet, as text; `None` for a module that gets no packets.
    pub(crate) bound: Option<String>,
    /// Isolation of the module's sandbox process; empty for a module in the node's process.
    pub(crate) isolation: String,
    /// The compiler of the code in which the module has started.
    pub(crate) first_back_end: BackEnd,
    /// The machine code of the module's bundle, if the module has begun in it.
    pub(crate) vouched: Option<VouchedModule>,
    /// The loaded module, which LLVM can compile later; `None` for a module in a process of its own.
    pub(crate) program: Option<Arc<LoadedModule>>,
    pub(crate) streams: Vec<Name>,
    /// Services that the manifest offers.
    pub(crate) services: Vec<DeclaredService>,
    /// Services that the manifest calls.
    pub(crate) calls: Vec<Name>,
    /// Outputs of the manifest, in the order of the manifest.
    pub(crate) outputs: Vec<Name>,
    /// The manifest's blocks of state.
    pub(crate) states: Vec<DeclaredState>,
    /// The form in which the module is saved while it is on trial.
    pub(crate) saved_before: Option<SavedBefore>,
    /// Hash of the module's bytes.
    pub(crate) digest: ModuleHash,
    pub(crate) table_binding: TableBinding,
    pub(crate) queue: Arc<PacketQueue>,
    /// Number and count of packets of the module's own selection; `None` unless packets are transformed for this
    /// module alone.
    pub(crate) own_selection: Option<(u64, Arc<AtomicU64>)>,
    pub(crate) counters: Arc<TaskCounters>,
    pub(crate) account: Arc<DeferredCharges>,
    pub(crate) written: Arc<WriteCounters>,
    /// True if the module declares a stream of findings.
    pub(crate) has_findings: bool,
    pub(crate) endpoint: Arc<ServiceEndpoint>,
}

impl SessionModule {
    /// Returns the keys that vouch for the machine code in which the module runs; empty for code that the node has compiled.
    pub(crate) fn compiled_by(&self) -> Vec<String> {
        let in_use = self.vouched.as_ref().filter(|_| !self.is_withdrawn());
        in_use.map(|vouched| vouched.keys().iter().map(ToString::to_string).collect()).unwrap_or_default()
    }

    /// Returns true if the machine code of the module's bundle was withdrawn.
    fn is_withdrawn(&self) -> bool {
        self.vouched.as_ref().is_some_and(|vouched| vouched.withdrawal.is_withdrawn())
    }

    /// Returns the compiler of the module's code.
    pub(crate) fn back_end(&self) -> BackEnd {
        if self.is_withdrawn() {
            return BackEnd::Cranelift;
        }
        self.program.as_ref().map_or(self.first_back_end, |program| program.back_end())
    }
}

/// A session.
#[derive(Debug)]
pub(crate) struct SessionState {
    pub(crate) id: u64,
    pub(crate) spec: SessionSpec,
    /// The owner; `None` for the operator.
    pub(crate) owner: Option<SessionOwner>,
    /// Number under which the session is saved; `None` for a session that a restart does not restore.
    pub(crate) saved_as: Option<u64>,
    /// Saved modules that are still to be restored.
    pub(crate) unrestored: Vec<SavedModule>,
    /// Earlier credentials in the owner's delegation chain whose holders had a session when this session was created.
    pub(crate) parents: BTreeSet<DelegationId>,
    pub(crate) vps: BTreeMap<Name, Vp>,
    /// Virtual CPUs that were replaced, until the modules on them have stopped.
    pub(crate) retired: Vec<Vp>,
    pub(crate) channels: BTreeMap<Name, SessionChannel>,
    pub(crate) outputs: SessionOutputs,
    /// Ownership of the tables that the session may publish.
    pub(crate) claims: TableClaims,
    pub(crate) modules: BTreeMap<Name, SessionModule>,
    /// Modules that are stopping, by number.
    pub(crate) stopping: BTreeMap<u64, SessionModule>,
    /// True once the session has begun to close: from then on no module can be added.
    pub(crate) is_closing: bool,
    pub(crate) refusals: u64,
    /// CPU time of analysis and compilation for the session's requests.
    pub(crate) compiled: Nanos,
    pub(crate) memory: Arc<MemoryReservation>,
    /// Limits on resources other than CPU time and memory.
    pub(crate) limits: Arc<SessionLimits>,
    /// Record files; `None` before the session is on the node, and for a session that is only checked.
    pub(crate) records: Option<Arc<SessionFiles>>,
    pub(crate) notifier: Arc<SessionNotifier>,
    /// Priority of the session, as its tasks read it.
    pub(crate) priority: Arc<AtomicU8>,
    /// Usage of the session's parts that are closed, such as modules and channels.
    pub(crate) closed_usage: Usage,
    /// Total usage at the latest computation, below which later totals do not fall.
    pub(crate) reported: LeafMutex<Usage>,
    /// Modules that the node stopped without a request.
    pub(crate) stopped: StoppedModules,
    /// Latest findings of the session's modules.
    pub(crate) findings: Arc<SessionFindings>,
    pub(crate) closed_services: ServiceCounters,
}

impl SessionState {
    /// Creates a session of the operator without any parts.
    pub(crate) fn empty(
        id: u64,
        spec: SessionSpec,
        limits: Arc<SessionLimits>,
        memory: Arc<MemoryReservation>,
        notifier: Arc<SessionNotifier>,
        claims: TableClaims,
    ) -> Self {
        Self {
            id,
            priority: Arc::new(AtomicU8::new(spec.priority)),
            limits,
            records: None,
            spec: SessionSpec { modules: Vec::new(), ..spec },
            owner: None,
            saved_as: None,
            unrestored: Vec::new(),
            parents: BTreeSet::new(),
            vps: BTreeMap::new(),
            retired: Vec::new(),
            channels: BTreeMap::new(),
            outputs: SessionOutputs::new(),
            claims,
            modules: BTreeMap::new(),
            stopping: BTreeMap::new(),
            is_closing: false,
            refusals: 0,
            compiled: Nanos(0),
            memory,
            notifier,
            closed_usage: Usage::default(),
            reported: LeafMutex::default(),
            stopped: StoppedModules::default(),
            findings: Arc::default(),
            closed_services: ServiceCounters::default(),
        }
    }

    /// Checks that the owner's credential allows the session and its modules. `others` are the other sessions with
    /// owners, whose usage counts under common ceilings.
    fn check_ceilings<'a>(
        &self,
        others: impl Iterator<Item = (&'a SessionOwner, &'a SessionSpec)> + Clone,
    ) -> Result<(), RequestRefusal> {
        let Some(owner) = &self.owner else { return Ok(()) };
        ceilings::check(owner, &self.spec, others)?;
        let mut known =
            self.modules.values().filter_map(|module| Some((module.hash_and_signers.as_ref()?, module)));
        known.try_for_each(|(known, module)| known.check(&owner.credential, &module.spec))
    }

    /// Returns the session's virtual CPUs, including replaced ones on which modules are stopping.
    pub(crate) fn all_vps(&self) -> impl Iterator<Item = &Vp> {
        self.vps.values().chain(&self.retired)
    }

    /// Returns the sum of the modules' service counters, and the number of calls that wait for the modules.
    pub(crate) fn services(&self) -> (ServiceCounters, u64) {
        let (mut counters, mut waiting) = (self.closed_services, 0);
        for module in self.modules.values() {
            let (of_module, waits) = module.endpoint.counters();
            counters.merge(&of_module);
            waiting += waits as u64;
        }
        (counters, waiting)
    }

    /// Disconnects a module from events and services. Pending calls of its services fail, so their callers no longer wait.
    pub(crate) fn disconnect(&mut self, module: &SessionModule) {
        self.notifier.remove(module.number);
        let services = module.endpoint.bus().close(&module.endpoint);
        self.closed_services.merge(&services);
    }

    /// Checks that the session can have one more module. Stopping modules count, because they keep their resources
    /// until they have stopped.
    pub(crate) fn check_module_count(&self, name: &Name) -> Result<(), SpecError> {
        let count = self.modules.len() + self.stopping.len() + 1;
        if count <= LIST_ENTRIES_MAX {
            return Ok(());
        }
        Err(SpecError::TooMany { session: name.clone(), what: "module", count })
    }
}

/// A node.
#[derive(Debug)]
pub struct Node {
    pub(crate) config: NodeConfiguration,
    pub(crate) loader: ModuleLoader,
    pub(crate) cores: Vec<CoreThread>,
    pub(crate) sources: BTreeMap<String, Arc<Receiver>>,
    pub(crate) links: BTreeMap<String, NodeLink>,
    /// Sender for the events of interfaces and links.
    pub(crate) events: Sender<ObservedEvent>,
    /// Selections of packets, each shared by all channels with the same key.
    pub(crate) selections: HashMap<SelectionKey, SharedSelection>,
    pub(crate) next_selection: u64,
    /// Secret from which the keys of views are derived.
    pub(crate) secret: Arc<Secret>,
    pub(crate) sessions: BTreeMap<Name, SessionState>,
    pub(crate) memory: Arc<NodeMemory>,
    /// Memory for waiting packets of the modules of all credential holders.
    pub(crate) packet_buffers: Arc<MemoryQuota>,
    /// Each party's part of `packet_buffers`.
    pub(crate) party_buffers: BTreeMap<DelegationId, Arc<MemoryQuota>>,
    pub(crate) writer: RecordWriter,
    pub(crate) records: PathBuf,
    pub(crate) next_module: u64,
    next_channel: u64,
    pub(crate) next_session: u64,
    pub(crate) started: Instant,
}

impl Node {
    /// Starts the threads of a node's cores and interfaces. The caller [creates](Self::create) the sessions.
    /// `last_session` is the highest session number that earlier runs of the node have used.
    pub fn start(
        config: NodeConfiguration,
        loader: ModuleLoader,
        last_session: u64,
        events: &Sender<ObservedEvent>,
    ) -> Result<Self, NodeError> {
        let core_config = config.cpu.scheduler_config();
        let numbers = config.cpu.module_cores();
        let trace = config.cpu.trace.as_deref();
        let cores = numbers.into_iter().map(|core| CoreThread::start(core, core_config, trace));
        let cores = cores.collect::<Result<_, _>>()?;
        let rotation = Rotation { bytes: config.node.record_file_size, time: config.node.record_file_age };
        let records = config.node.state.join(RECORDS);
        let writer = RecordWriter::start(rotation, &records).map_err(NodeError::Writer)?;
        let mut sources = BTreeMap::new();
        for interface in &config.interfaces {
            let (polls, shared_core) = (config.cpu.poll, config.cpu.receive_core);
            let cores = interface.receive_cores.clone();
            let bind = move |thread: usize| {
                _ = cores.get(thread).copied().or(shared_core).map(crate::core_thread::runner::bind);
            };
            let threads = ReceiveThreads {
                count: interface.receive_threads(),
                delivery: interface.latency.into(),
                polls,
            };
            let source =
                Receiver::start(&interface.name, interface.options(), threads, bind, events.clone())?;
            sources.insert(interface.name.clone(), Arc::new(source));
        }
        let mut links = BTreeMap::new();
        for link in &config.links {
            links.insert(link.interface.clone(), NodeLink::start(link.clone(), events, trace)?);
        }
        let method = Method::read(&config.node.state);
        let secret = Arc::new(Secret::open(&config.node.state)?);
        method.update(&config.node.state);
        Ok(Self {
            memory: NodeMemory::new(config.node.memory),
            packet_buffers: MemoryQuota::new(config.node.packet_memory),
            party_buffers: BTreeMap::new(),
            config,
            loader,
            cores,
            sources,
            links,
            events: events.clone(),
            selections: HashMap::new(),
            next_selection: 0,
            secret,
            sessions: BTreeMap::new(),
            writer,
            records,
            next_module: 0,
            next_channel: 0,
            next_session: last_session,
            started: Instant::now(),
        })
    }

    /// Returns the loader, which [prepares](ModuleLoader::prepare) modules without the node lock.
    pub fn loader(&self) -> ModuleLoader {
        self.loader.clone()
    }

    /// Returns the description of a session.
    pub fn spec(&self, session: &Name) -> Result<&SessionSpec, NodeError> {
        self.sessions
            .get(session)
            .map(|session| &session.spec)
            .ok_or_else(|| NodeError::NoSession(session.clone()))
    }

    /// Creates a session with its virtual CPUs, channels and output channels, from its
    /// [compiled](crate::sessions::filters) filters. Its modules are loaded afterwards.
    pub(crate) fn create(
        &mut self,
        spec: SessionSpec,
        owner: Option<SessionOwner>,
        compiled: &CompiledFilters,
    ) -> Result<(), NodeError> {
        // After an error, selections that were created for the session are released.
        self.build_session(spec, owner, compiled).inspect_err(|_| self.drop_unused_selections())
    }

    /// Checks a session's description against the node's inventory.
    pub(crate) fn check(&self, spec: &SessionSpec) -> Result<(), NodeError> {
        self.inventory().check(spec)
    }

    fn build_session(
        &mut self,
        spec: SessionSpec,
        owner: Option<SessionOwner>,
        compiled: &CompiledFilters,
    ) -> Result<(), NodeError> {
        self.check(&spec)?;
        self.check_ceilings(owner.as_ref(), &spec)?;
        if self.sessions.contains_key(&spec.name) {
            return Err(NodeError::Exists(spec.name));
        }
        if self.sessions.len() >= crate::control::config::SESSIONS_MAX {
            return Err(NodeError::TooMany(self.sessions.len()));
        }
        let memory = MemoryReservation::new(&self.memory, spec.memory, spec.memory_ceiling());
        let memory = memory.map_err(|error| NodeError::of_memory(&spec.name, error))?;
        let notifier: Arc<SessionNotifier> = Arc::default();
        let notified = Arc::clone(&notifier);
        memory.on_low(move || notified.notify_all());
        let claims = self.loader.registry.claim(&spec, &memory)?;
        let mut channels = BTreeMap::new();
        for channel in &spec.channels {
            let made = self.channel(&spec.name, &memory, channel, compiled)?;
            channels.insert(channel.name.clone(), made);
        }
        let mut vps = BTreeMap::new();
        for processor in spec.all_processors() {
            match self.place_processor(&processor) {
                Ok(vp) => _ = vps.insert(processor.name, vp),
                Err(error) => {
                    self.close_vps(&vps);
                    return Err(error);
                }
            }
        }
        let outputs = match self.open_outputs(&spec.outputs, &spec.name, &memory, compiled) {
            Ok(outputs) => outputs,
            Err(error) => {
                self.close_vps(&vps);
                return Err(error);
            }
        };
        self.next_session += 1;
        let parents = self.parents_of(owner.as_ref());
        let name = spec.name.clone();
        let limits = Arc::new(SessionLimits::new(&spec, owner.as_ref()));
        let holder = StorageHolder::of_owner(owner.as_ref());
        let mut session =
            SessionState::empty(self.next_session, spec, Arc::clone(&limits), memory, notifier, claims);
        (session.owner, session.parents) = (owner, parents);
        (session.vps, session.channels, session.outputs) = (vps, channels, outputs);
        self.sessions.insert(name.clone(), session);
        // The forwarding plan of an interface can be full, so that it has no room for a valid filter.
        if let Err(error) = self.route_session(&name) {
            if let Some(session) = self.sessions.remove(&name) {
                self.close_vps(&session.vps);
                self.close_outputs(session.outputs);
            }
            // Interfaces that already have routes to the session get their routes without it.
            self.route_all_interfaces()?;
            return Err(error);
        }
        // The record files are opened last, because opening them applies the session's limit to earlier files of this
        // name.
        let records = self.writer.session(&name, &limits, holder);
        if let Some(session) = self.sessions.get_mut(&name) {
            session.records = Some(records);
        }
        Ok(())
    }

    /// Checks that the owner's credential allows a session with this description.
    pub(crate) fn check_ceilings(
        &self,
        owner: Option<&SessionOwner>,
        spec: &SessionSpec,
    ) -> Result<(), NodeError> {
        let Some(owner) = owner else {
            // A session of the operator has no earlier holders with whom it can be shared.
            return match spec.share.first() {
                None => Ok(()),
                Some(share) => Err(Box::new(RequestRefusal::not_from(&spec.name, share)).into()),
            };
        };
        let others = self.sessions.values().filter(|session| session.spec.name != spec.name);
        let others = others.filter_map(|session| Some((session.owner.as_ref()?, &session.spec)));
        Ok(ceilings::check(owner, spec, others).map_err(Box::new)?)
    }

    /// Completes the trace files of the cores.
    pub(crate) fn finish_traces(&self) {
        for core in &self.cores {
            if let Err(error) = core.execute(crate::core_thread::runner::Runner::finish_trace) {
                warn(&error);
            }
        }
    }

    /// Follows streams of a session's module, or of all its present modules, from now on; an empty list of streams stands
    /// for all. Returns the receiver of the records; `None` without such a stream.
    pub fn follow(
        &self,
        session: &Name,
        module: Option<&Name>,
        streams: &[Name],
    ) -> Result<Option<Following>, NodeError> {
        let state = self.sessions.get(session).ok_or_else(|| NodeError::NoSession(session.clone()))?;
        if let Some(module) = module.filter(|module| !state.modules.contains_key(module)) {
            return Err(NodeError::NoModule { session: session.clone(), module: module.clone() });
        }
        let followed = state.modules.iter().filter(|(name, _)| module.is_none_or(|module| module == *name));
        Ok(self.writer.follow(followed.map(|(name, module)| (name, module.number)), streams))
    }

    /// Replaces each session owner's credential by the result of `current`, after the limit of a root has changed.
    /// Returns the sessions that the credential does not allow any more, with the refusals. If several sessions
    /// together exceed a ceiling, the newest of them are returned.
    pub(crate) fn apply_new_grants(
        &mut self,
        current: impl Fn(&Arc<VerifiedCredential>) -> Option<Arc<VerifiedCredential>>,
    ) -> Vec<(Name, u64, RequestRefusal)> {
        let mut owned: Vec<(u64, Name)> = self
            .sessions
            .iter()
            .filter_map(|(name, session)| session.owner.as_ref().map(|_| (session.id, name.clone())))
            .collect();
        owned.sort_unstable();
        let (mut kept, mut beyond): (Vec<Name>, Vec<_>) = (Vec::new(), Vec::new());
        for (id, name) in owned {
            let Some(session) = self.sessions.get_mut(&name) else { continue };
            let Some(owner) = &mut session.owner else { continue };
            let Some(now) = current(&owner.credential) else { continue };
            owner.credential = now;
            if let Some(records) = &session.records {
                records.set_holder(StorageHolder::of_owner(Some(owner)));
            }
            let party = authority::delegation_chain(&owner.credential).next().map(|(id, _)| id);
            let channels = session.channels.values_mut().map(|channel| &mut channel.spec);
            channels.chain(&mut session.spec.channels).for_each(|spec| spec.granted.party = party);
            let others = kept.iter().filter_map(|name| self.sessions.get(name));
            let others = others.filter_map(|session| Some((session.owner.as_ref()?, &session.spec)));
            match self.sessions.get(&name).map_or(Ok(()), |state| state.check_ceilings(others)) {
                Ok(()) => kept.push(name),
                Err(refusal) => beyond.push((name, id, refusal)),
            }
        }
        beyond
    }

    /// Replaces the default profile and the named profiles.
    pub(crate) fn set_policy(
        &mut self,
        default: CalibratedProfile,
        profiles: BTreeMap<Name, CalibratedProfile>,
        compilers: Arc<CompilerPolicy>,
    ) {
        (self.loader.default, self.loader.profiles) = (default, profiles);
        self.loader.compilers.policy = compilers;
    }

    /// Returns the session of this name, if it still has this number.
    pub(crate) fn session_with_id(&self, name: &Name, id: u64) -> Result<&SessionState, NodeError> {
        let state = self.sessions.get(name).filter(|state| state.id == id);
        state.ok_or_else(|| NodeError::NoSession(name.clone()))
    }

    /// Returns the name of the session with the number `id`, if the session has the channel with the number `channel`.
    pub(crate) fn session_with_channel(&self, id: u64, channel: u64) -> Option<&Name> {
        let (name, state) = self.sessions.iter().find(|(_, state)| state.id == id)?;
        state.channels.values().any(|it| it.number == channel).then_some(name)
    }

    /// Returns the session of this name, if it belongs to this owner; `None` stands for the operator.
    pub(crate) fn session_of_owner(
        &self,
        name: &Name,
        owner: Option<&SessionOwner>,
    ) -> Result<&SessionState, NodeError> {
        let id = |owner: &SessionOwner| owner.credential.id();
        let is_owned = |state: &&SessionState| state.owner.as_ref().map(id) == owner.map(id);
        self.sessions.get(name).filter(is_owned).ok_or_else(|| NodeError::NoSession(name.clone()))
    }

    /// Returns the modules that have ended and are still to be unloaded: session, module, number of the module, and
    /// the reason.
    pub(crate) fn ended_modules(&self) -> Vec<(Name, Name, u64, UnloadReason)> {
        let ended_of = |(session, state): (&Name, &SessionState)| {
            let ended = state.modules.iter().filter_map(|(name, module)| {
                let why = match module.counters.ended.load(Ordering::Relaxed) {
                    0 => return None,
                    1 if module.is_withdrawn() => UnloadReason::CodeWithdrawn,
                    1 => UnloadReason::Strikes,
                    _ => UnloadReason::ProcessEnded,
                };
                Some((session.clone(), name.clone(), module.number, why))
            });
            ended.collect::<Vec<_>>()
        };
        self.sessions.iter().flat_map(ended_of).collect()
    }

    /// Counts a refused request of a session.
    pub fn count_refusal(&mut self, session: &Name) {
        if let Some(session) = self.sessions.get_mut(session) {
            session.refusals += 1;
        }
    }
}

impl Node {
    /// Creates a channel of a session. The channel gets packets once it is part of a session on the node and the
    /// routes of its interface have been set.
    pub(crate) fn channel(
        &mut self,
        session: &Name,
        memory: &Arc<MemoryReservation>,
        spec: &ChannelSpec,
        compiled: &CompiledFilters,
    ) -> Result<SessionChannel, NodeError> {
        self.check_channel_count(spec)?;
        let failed = |error| NodeError::Channel { channel: spec.name.clone(), error };
        let Some(source) = self.sources.get(&spec.interface) else {
            let known = self.sources.keys().cloned().collect();
            return Err(NodeError::Spec(SpecError::Missing {
                session: spec.name.clone(),
                what: "channel",
                name: spec.name.to_string(),
                missing: "interface",
                given: spec.interface.clone(),
                known,
            }));
        };
        let key = SelectionKey::for_channel(spec);
        let link_type = source.link_type();
        let view_tables = view::take_table_memory(session, &spec.name, memory, key.memory(compiled))?;
        let filters = key.filters.iter().map(String::as_str);
        let program = compiled.conjunction(filters, link_type).map_err(failed)?;
        let mut stages = Vec::new();
        let visibility = match spec.visibility {
            MappedPackets::All => {
                let most = spec.lag_max.map_or(source.arena().0 / 2, |lag| lag.0);
                Visibility::All(LagPolicy { lag_max: most, closes_session: spec.on_lag == OnLag::Close })
            }
            MappedPackets::Selected if spec.is_preprocessed() && !key.stages.is_empty() => {
                stages = key.stages(compiled, link_type).map_err(failed)?.0;
                Visibility::Preprocessed(self.selection(spec, key.without_views(), compiled, link_type)?)
            }
            MappedPackets::Selected => Visibility::Selected(self.selection(spec, key, compiled, link_type)?),
        };
        self.next_channel += 1;
        let flows = spec.subflows.as_ref().map(|subflows| {
            // The key is secret, so that senders of packets cannot choose flows that share a queue.
            SubFlows::new(&subflows.fields(), subflows.queues, RandomState::new().hash_one(self.next_channel))
        });
        Ok(SessionChannel {
            number: self.next_channel,
            spec: spec.clone(),
            flows,
            program,
            visibility,
            stages,
            view_tables,
            counters: Arc::default(),
            account: Arc::default(),
        })
    }

    /// Returns the memory for waiting packets of a module on this channel, if packets cannot wait in the arena: see
    /// [`queue_memory::for_channel`].
    pub(crate) fn queue_memory(
        &self,
        session: &SessionState,
        channel: &SessionChannel,
        party: Option<&Arc<MemoryQuota>>,
    ) -> Result<Option<Overflow>, NodeError> {
        let source = self.sources.get(&channel.spec.interface);
        let is_filled_in_turn = source.is_some_and(|source| source.is_filled_in_turn());
        queue_memory::for_channel(
            &channel.spec,
            is_filled_in_turn,
            &session.spec.name,
            &session.memory,
            party,
        )
    }

    /// Sets the routes of all interfaces that a session's channels name.
    pub(crate) fn route_session(&mut self, session: &Name) -> Result<(), NodeError> {
        let Some(state) = self.sessions.get(session) else { return Ok(()) };
        let channels = state.channels.values().map(|channel| channel.spec.clone()).collect::<Vec<_>>();
        let mut routed: Vec<&String> = Vec::new();
        for channel in &channels {
            if !routed.contains(&&channel.interface) {
                routed.push(&channel.interface);
                let failed = |error| NodeError::Channel { channel: channel.name.clone(), error };
                self.route(&channel.interface).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Sets the routes of all interfaces. Errors are logged.
    pub(crate) fn route_all_interfaces(&mut self) -> Result<(), NodeError> {
        for interface in self.sources.keys().cloned().collect::<Vec<_>>() {
            // The routes are those of channels that were routed before, so this should not fail.
            if let Err(error) = self.route(&interface) {
                log::interface(&interface).warn(&format_args!("{interface}: {error}"));
            }
        }
        Ok(())
    }

    /// Sets the routes of an interface: to the channels of all sessions.
    pub(crate) fn route(&self, interface: &str) -> Result<(), PlanError> {
        let Some(source) = self.sources.get(interface) else { return Ok(()) };
        Ok(source.set_routes(self.routes(interface, self.sessions.values()))?)
    }

    /// Returns the routes of an interface's packets to the channels of these sessions.
    pub(crate) fn routes<'a>(
        &self,
        interface: &str,
        sessions: impl Iterator<Item = &'a SessionState>,
    ) -> Vec<Route> {
        let mut routes = Vec::new();
        for session in sessions {
            for (channel_name, channel) in &session.channels {
                if channel.spec.interface != interface {
                    continue;
                }
                let readers = session.modules.values().filter(|module| module.spec.channel == *channel_name);
                let readers = readers.filter_map(|module| {
                    let core = self.cores.get(session.vps.get(&module.spec.cpu)?.core)?;
                    let queue = Arc::clone(&module.queue);
                    let account = Arc::clone(&module.account);
                    Some(PlanReader {
                        module: module.number,
                        queue,
                        waker: core.waker().for_packets(),
                        account,
                    })
                });
                routes.push(Route {
                    channel: channel.number,
                    owner: session.id,
                    priority: session.spec.priority,
                    on_no_module: self.egress_of(session, &channel.spec).map(|egress| {
                        match channel.spec.on_no_module {
                            OnNoModule::Pass => egress,
                            OnNoModule::Drop => Egress::Nothing,
                        }
                    }),
                    program: Arc::clone(&channel.program),
                    visibility: channel.visibility.clone(),
                    filters_view: channel.visibility.filters_view(),
                    flows: channel.flows.clone(),
                    readers: readers.collect(),
                    counters: Arc::clone(&channel.counters),
                    account: Arc::clone(&channel.account),
                });
            }
        }
        routes
    }
}
