//! All of a node: its cores, interfaces and sessions, and what is asked of them.
//!
//! Whoever asks holds the node alone while something is decided. What takes long (analysing, compiling and starting a stranger's module) is
//! done before that: see [`ModuleLoader::prepare`].

use crate::control::authority::{self, RequestRefusal, SessionOwner, Signed, ceilings};
use crate::control::config::NodeConfiguration;
use crate::control::spec::{
    ChannelSpec, ModuleSpec, OnLag, OnNoModule, PARTS_MAX, ProcessorSpec, RecordVisibility, SessionSpec,
    SpecError,
};
use crate::error::NodeError;
use crate::guest::TaskCounters;
use crate::link::{NodeLink, SessionOutputs};
use crate::overflow;
use crate::plan::PlanError;
use crate::runner::CoreThread;
use crate::server::log::{self, warn};
use crate::sessions::bell::SessionNotifier;
use crate::sessions::ended::StoppedModules;
use crate::sessions::filters::CompiledFilters;
use crate::sessions::followers::Following;
use crate::sessions::limits::SessionLimits;
use crate::sessions::post::Desk;
use crate::sessions::tables::{TableBinding, TableClaims};
use crate::sessions::view::{self, Method, Secret, SelectionKey, SharedSelection};
use crate::sessions::workshop::ModuleLoader;
use crate::sessions::writer::{RECORDS, RecordWriter, Rotation, SessionFiles, StorageHolder, WriteCounters};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use weir_datapath::account::DeferredCharges;
use weir_datapath::egress::Egress;
use weir_datapath::notice::ObservedEvent;
use weir_datapath::overflow::Overflow;
use weir_datapath::plan::{ChannelPlanCounters, LagCounters, PlanReader, Route, Visibility};
use weir_datapath::queue::PacketQueue;
use weir_datapath::receive::Receiver;
use weir_demux::{FilterProgram, SubFlows};
use weir_ledger::{Unloaded, Usage};
use weir_netio::{PacketBuffers, ViewStage};
use weir_sched::cpu::VpId;
use weir_session::services::ServiceCounters;
use weir_trust::credential::{PrefixId, VerifiedCredential};
use weir_units::Nanos;
use {
    weir_admission::{AdmissionTerms, DeclaredService, Name, Tier},
    weir_session::{Holding, MemoryReservation, NodeMemory},
};

/// A virtual processor of a session.
#[derive(Clone, Debug)]
pub(crate) struct Vp {
    pub(crate) spec: ProcessorSpec,
    /// Its core's place among the node's.
    pub(crate) core: usize,
    pub(crate) id: VpId,
}

/// A channel of a session.
#[derive(Debug)]
pub(crate) struct SessionChannel {
    number: u64,
    pub(crate) spec: ChannelSpec,
    flows: Option<SubFlows>,
    program: Arc<FilterProgram>,
    pub(crate) sight: Visibility,
    /// Through what each of its modules is shown what is [made](Visibility::Made) for it.
    pub(crate) screens: Vec<ViewStage>,
    /// The session's memory that is taken for what shows them.
    pub(crate) tables: Holding,
    pub(crate) tally: Arc<ChannelPlanCounters>,
    /// What is spent for packets that go on without a module.
    pub(crate) account: Arc<DeferredCharges>,
}

/// A module of a session.
#[derive(Debug)]
pub(crate) struct SessionModule {
    pub(crate) guest: u64,
    pub(crate) spec: ModuleSpec,
    /// What its right to run is held against.
    pub(crate) signed: Option<Signed>,
    pub(crate) title: String,
    pub(crate) tier: Tier,
    /// The walls around its process; nothing where it runs in this one.
    pub(crate) isolation: String,
    pub(crate) streams: Vec<Name>,
    /// Services that it has, and that it calls, as its manifest says.
    pub(crate) services: Vec<DeclaredService>,
    pub(crate) calls: Vec<Name>,
    /// Its outputs, in the order of its manifest.
    pub(crate) outputs: Vec<Name>,
    pub(crate) tables: TableBinding,
    pub(crate) queue: Arc<PacketQueue>,
    /// Where packets are transformed for it alone: the number of that, and how many they are.
    pub(crate) shown: Option<(u64, Arc<AtomicU64>)>,
    pub(crate) tally: Arc<TaskCounters>,
    pub(crate) account: Arc<DeferredCharges>,
    pub(crate) written: Arc<WriteCounters>,
    pub(crate) desk: Arc<Desk>,
}

/// A session.
#[derive(Debug)]
pub(crate) struct SessionState {
    pub(crate) id: u64,
    pub(crate) spec: SessionSpec,
    /// Whose it is, where it is not the operator's.
    pub(crate) owner: Option<SessionOwner>,
    /// Those from whom its owner has his right, and who had a session when it was made.
    pub(crate) parents: BTreeSet<PrefixId>,
    pub(crate) vps: BTreeMap<Name, Vp>,
    /// Virtual processors that it has no more, until the modules on them have stopped.
    pub(crate) retired: Vec<Vp>,
    pub(crate) channels: BTreeMap<Name, SessionChannel>,
    pub(crate) outputs: SessionOutputs,
    /// The tables that it publishes. After its modules have ended, they are nobody's.
    pub(crate) claims: TableClaims,
    pub(crate) modules: BTreeMap<Name, SessionModule>,
    /// Modules that stop, by their numbers.
    pub(crate) leaving: BTreeMap<u64, SessionModule>,
    /// It is about to end: no module comes to it any more.
    pub(crate) is_closing: bool,
    pub(crate) refusals: u64,
    /// Processor time that was spent on analysing and compiling what it asked for.
    pub(crate) compiled: Nanos,
    /// Its memory.
    pub(crate) memory: Arc<MemoryReservation>,
    /// What it is held to beside that.
    pub(crate) limits: Arc<SessionLimits>,
    /// Its record files; none for a session that is only imagined.
    pub(crate) records: Option<Arc<SessionFiles>>,
    pub(crate) bell: Arc<SessionNotifier>,
    /// Its priority, for those who work.
    pub(crate) priority: Arc<AtomicU8>,
    /// What modules and virtual processors used that are no longer there.
    pub(crate) gone: Usage,
    /// Its whole usage, as it was told last.
    pub(crate) told: Mutex<Usage>,
    /// Modules that were ended, and not by request.
    pub(crate) ended: StoppedModules,
    pub(crate) gone_services: ServiceCounters,
}

impl SessionState {
    /// A session with nothing in it yet, of the operator.
    pub(crate) fn empty(
        id: u64,
        spec: SessionSpec,
        limits: Arc<SessionLimits>,
        memory: Arc<MemoryReservation>,
        bell: Arc<SessionNotifier>,
        claims: TableClaims,
    ) -> Self {
        Self {
            id,
            priority: Arc::new(AtomicU8::new(spec.priority)),
            limits,
            records: None,
            spec: SessionSpec { modules: Vec::new(), ..spec },
            owner: None,
            parents: BTreeSet::new(),
            vps: BTreeMap::new(),
            retired: Vec::new(),
            channels: BTreeMap::new(),
            outputs: SessionOutputs::new(),
            claims,
            modules: BTreeMap::new(),
            leaving: BTreeMap::new(),
            is_closing: false,
            refusals: 0,
            compiled: Nanos(0),
            memory,
            bell,
            gone: Usage::default(),
            told: Mutex::default(),
            ended: StoppedModules::default(),
            gone_services: ServiceCounters::default(),
        }
    }

    /// Holds it with its modules against what its owner's credential allows. `others` are those that share with it.
    fn hold<'a>(
        &self,
        others: impl Iterator<Item = (&'a SessionOwner, &'a SessionSpec)> + Clone,
    ) -> Result<(), RequestRefusal> {
        let Some(owner) = &self.owner else { return Ok(()) };
        ceilings::hold(owner, &self.spec, others)?;
        let mut signed = self.modules.values().filter_map(|module| Some((module.signed.as_ref()?, module)));
        signed.try_for_each(|(signed, module)| signed.hold(&owner.credential, &module.spec.module))
    }

    /// Its virtual processors, with those that it has no more and on which modules still stop.
    pub(crate) fn all_vps(&self) -> impl Iterator<Item = &Vp> {
        self.vps.values().chain(&self.retired)
    }

    /// The counters of its modules' services, and the number of waiting calls of others.
    pub(crate) fn services(&self) -> (ServiceCounters, u64) {
        let (mut tally, mut waiting) = (self.gone_services, 0);
        for module in self.modules.values() {
            let (of_module, waits) = module.desk.tally();
            tally.merge(&of_module);
            waiting += waits as u64;
        }
        (tally, waiting)
    }

    /// Whether there can be one more module. Those that stop count, for as long as they have what they had.
    pub(crate) fn check_room(&self, name: &Name) -> Result<(), SpecError> {
        let count = self.modules.len() + self.leaving.len() + 1;
        if count <= PARTS_MAX {
            return Ok(());
        }
        Err(SpecError::TooMany { session: name.clone(), what: "module", count })
    }
}

/// A node.
#[derive(Debug)]
pub struct Node {
    pub(crate) config: NodeConfiguration,
    pub(crate) workshop: ModuleLoader,
    pub(crate) cores: Vec<CoreThread>,
    pub(crate) sources: BTreeMap<String, Arc<Receiver>>,
    pub(crate) links: BTreeMap<String, NodeLink>,
    pub(crate) notices: Sender<ObservedEvent>,
    /// Copies of what filters select on an interface together, or of what is shown of it: shared by all channels of which that is the same.
    pub(crate) selections: HashMap<SelectionKey, SharedSelection>,
    pub(crate) next_selection: u64,
    /// From which the keys of views come.
    pub(crate) secret: Arc<Secret>,
    pub(crate) sessions: BTreeMap<Name, SessionState>,
    pub(crate) memory: Arc<NodeMemory>,
    /// Where packets wait for modules of those who come with credentials, and how much each of them may have of it.
    pub(crate) packet_room: Arc<PacketBuffers>,
    pub(crate) packet_rooms: BTreeMap<PrefixId, Arc<PacketBuffers>>,
    pub(crate) writer: RecordWriter,
    pub(crate) records: PathBuf,
    pub(crate) next_guest: u64,
    next_channel: u64,
    pub(crate) next_session: u64,
    pub(crate) started: Instant,
}

impl Node {
    /// Starts the threads of a node's cores and interfaces. Its sessions are [created](Self::create) by whoever starts it.
    pub fn start(
        config: NodeConfiguration,
        workshop: ModuleLoader,
        before: u64,
        notices: &Sender<ObservedEvent>,
    ) -> Result<Self, NodeError> {
        let core_config = config.cpu.of_cores();
        let numbers = config.cpu.module_cores();
        let trace = config.cpu.trace.as_deref();
        let cores = numbers.into_iter().map(|core| CoreThread::start(core, core_config, trace));
        let cores = cores.collect::<Result<_, _>>()?;
        let rotation = Rotation { bytes: config.node.records_bytes, time: config.node.records_time };
        let records = config.node.state.join(RECORDS);
        let writer = RecordWriter::start(rotation, &records).map_err(NodeError::Writer)?;
        let mut sources = BTreeMap::new();
        for interface in &config.interfaces {
            let (polls, core) = (config.cpu.poll, config.cpu.receive);
            let bind = move || _ = core.map(crate::runner::bind);
            let source = Receiver::start(&interface.name, interface.options(), polls, bind, notices.clone())?;
            sources.insert(interface.name.clone(), Arc::new(source));
        }
        let mut links = BTreeMap::new();
        for link in &config.links {
            links.insert(link.interface.clone(), NodeLink::start(link.clone(), notices, trace)?);
        }
        let method = Method::before(&config.node.state);
        let secret = Arc::new(Secret::of(&config.node.state)?);
        method.tell(&config.node.state);
        Ok(Self {
            memory: NodeMemory::new(config.node.memory),
            packet_room: PacketBuffers::new(config.node.packet_memory),
            packet_rooms: BTreeMap::new(),
            config,
            workshop,
            cores,
            sources,
            links,
            notices: notices.clone(),
            selections: HashMap::new(),
            next_selection: 0,
            secret,
            sessions: BTreeMap::new(),
            writer,
            records,
            next_guest: 0,
            next_channel: 0,
            next_session: before,
            started: Instant::now(),
        })
    }

    /// What it takes to [prepare](ModuleLoader::prepare) a module without holding the node.
    pub fn workshop(&self) -> ModuleLoader {
        self.workshop.clone()
    }

    /// What a session asked for.
    pub fn spec(&self, session: &Name) -> Result<&SessionSpec, NodeError> {
        self.sessions
            .get(session)
            .map(|session| &session.spec)
            .ok_or_else(|| NodeError::NoSession(session.clone()))
    }

    /// A session with its virtual processors and channels, whose filters are [compiled](crate::sessions::filters). Its modules are loaded afterwards.
    pub(crate) fn create(
        &mut self,
        spec: SessionSpec,
        owner: Option<SessionOwner>,
        compiled: &CompiledFilters,
    ) -> Result<(), NodeError> {
        // Where it is refused, nobody has what was made for it.
        self.make(spec, owner, compiled).inspect_err(|_| self.forget_selections())
    }

    /// Whether a session can be, as far as that can be said of it alone.
    pub(crate) fn check(&self, spec: &SessionSpec) -> Result<(), NodeError> {
        self.premises().check(spec)
    }

    fn make(
        &mut self,
        spec: SessionSpec,
        owner: Option<SessionOwner>,
        compiled: &CompiledFilters,
    ) -> Result<(), NodeError> {
        self.check(&spec)?;
        self.hold(owner.as_ref(), &spec)?;
        if self.sessions.contains_key(&spec.name) {
            return Err(NodeError::Exists(spec.name));
        }
        if self.sessions.len() >= crate::control::config::SESSIONS_MAX {
            return Err(NodeError::TooMany(self.sessions.len()));
        }
        let memory = MemoryReservation::new(&self.memory, spec.memory, spec.memory_ceiling());
        let memory = memory.map_err(|error| NodeError::of_memory(&spec.name, error))?;
        let bell: Arc<SessionNotifier> = Arc::default();
        let rings = Arc::clone(&bell);
        memory.on_low(move || rings.ring());
        let claims = self.workshop.shelf.claim(&spec, &memory)?;
        let mut channels = BTreeMap::new();
        for channel in &spec.channels {
            let made = self.channel(&spec.name, &memory, channel, compiled)?;
            channels.insert(channel.name.clone(), made);
        }
        let mut vps = BTreeMap::new();
        for processor in spec.all_processors() {
            match self.place(&processor) {
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
        let limits = Arc::new(SessionLimits::of(&spec, owner.as_ref()));
        let holder = StorageHolder::of(owner.as_ref());
        let mut session =
            SessionState::empty(self.next_session, spec, Arc::clone(&limits), memory, bell, claims);
        (session.owner, session.parents) = (owner, parents);
        (session.vps, session.channels, session.outputs) = (vps, channels, outputs);
        self.sessions.insert(name.clone(), session);
        // Joined with all others, a filter can still be one too many.
        if let Err(error) = self.route_all(&name) {
            if let Some(session) = self.sessions.remove(&name) {
                self.close_vps(&session.vps);
                self.close_outputs(session.outputs);
            }
            // Some of its interfaces may know it already.
            self.route_everything()?;
            return Err(error);
        }
        // Last: a request that is refused changes nothing about the records that are kept under this name.
        let records = self.writer.session(&name, &limits, holder);
        if let Some(session) = self.sessions.get_mut(&name) {
            session.records = Some(records);
        }
        Ok(())
    }

    /// Whether a session can be as it would be, as far as its owner's credential is concerned.
    pub(crate) fn hold(&self, owner: Option<&SessionOwner>, spec: &SessionSpec) -> Result<(), NodeError> {
        let Some(owner) = owner else {
            // The operator's own: they have it from no one.
            return match spec.share.first() {
                None => Ok(()),
                Some(share) => Err(Box::new(RequestRefusal::not_from(&spec.name, share)).into()),
            };
        };
        let others = self.sessions.values().filter(|session| session.spec.name != spec.name);
        let others = others.filter_map(|session| Some((session.owner.as_ref()?, &session.spec)));
        Ok(ceilings::hold(owner, spec, others).map_err(Box::new)?)
    }

    /// What the cores decide is recorded no longer.
    pub(crate) fn end_records(&self) {
        for core in &self.cores {
            if let Err(error) = core.ask(crate::runner::Runner::end_record) {
                warn(&error);
            }
        }
    }

    /// The rows of a stream from now on.
    pub fn follow(
        &self,
        session: &Name,
        module: &Name,
        stream: &Name,
    ) -> Result<Option<Following>, NodeError> {
        let there = self.sessions.get(session).ok_or_else(|| NodeError::NoSession(session.clone()))?;
        let Some(found) = there.modules.get(module) else {
            return Err(NodeError::NoModule { session: session.clone(), module: module.clone() });
        };
        Ok(self.writer.follow(found.guest, stream))
    }

    /// Gives sessions what their owners' credentials are worth now, as `current` says, after a root may grant something else than before. Those that have more than that, or run a
    /// module that it does not allow, are named, with the reason: of several that have too much together the oldest stay.
    pub(crate) fn hold_again(
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
                records.belong_to(StorageHolder::of(Some(owner)));
            }
            let party = authority::line(&owner.credential).next().map(|(id, _)| id);
            let channels = session.channels.values_mut().map(|channel| &mut channel.spec);
            channels.chain(&mut session.spec.channels).for_each(|spec| spec.bounds.party = party);
            let others = kept.iter().filter_map(|name| self.sessions.get(name));
            let others = others.filter_map(|session| Some((session.owner.as_ref()?, &session.spec)));
            match self.sessions.get(&name).map_or(Ok(()), |there| there.hold(others)) {
                Ok(()) => kept.push(name),
                Err(refusal) => beyond.push((name, id, refusal)),
            }
        }
        beyond
    }

    /// What modules are admitted by from now on.
    pub(crate) fn set_profiles(&mut self, default: AdmissionTerms, profiles: BTreeMap<Name, AdmissionTerms>) {
        (self.workshop.default, self.workshop.profiles) = (default, profiles);
    }

    /// The session of this name, if it is still the one with this number.
    pub(crate) fn still(&self, name: &Name, id: u64) -> Result<&SessionState, NodeError> {
        let there = self.sessions.get(name).filter(|there| there.id == id);
        there.ok_or_else(|| NodeError::NoSession(name.clone()))
    }

    /// The name of the session with this number, while it has a channel with that one.
    pub(crate) fn with_channel(&self, id: u64, channel: u64) -> Option<&Name> {
        let (name, there) = self.sessions.iter().find(|(_, there)| there.id == id)?;
        there.channels.values().any(|it| it.number == channel).then_some(name)
    }

    /// The session of this name, if it is still the owner's; the operator's, where there is none.
    pub(crate) fn still_of(
        &self,
        name: &Name,
        owner: Option<&SessionOwner>,
    ) -> Result<&SessionState, NodeError> {
        let id = |owner: &SessionOwner| owner.credential.id();
        let is_his = |there: &&SessionState| there.owner.as_ref().map(id) == owner.map(id);
        self.sessions.get(name).filter(is_his).ok_or_else(|| NodeError::NoSession(name.clone()))
    }

    /// Modules that get no more packets, with their sessions and their numbers, and why.
    pub(crate) fn ended(&self) -> Vec<(Name, Name, u64, Unloaded)> {
        let of = |(session, there): (&Name, &SessionState)| {
            let ended = there.modules.iter().filter_map(|(name, module)| {
                let why = match module.tally.ended.load(Ordering::Relaxed) {
                    0 => return None,
                    1 => Unloaded::Strikes,
                    _ => Unloaded::ProcessEnded,
                };
                Some((session.clone(), name.clone(), module.guest, why))
            });
            ended.collect::<Vec<_>>()
        };
        self.sessions.iter().flat_map(of).collect()
    }

    /// A request of a session was refused.
    pub fn count_refusal(&mut self, session: &Name) {
        if let Some(session) = self.sessions.get_mut(session) {
            session.refusals += 1;
        }
    }
}

impl Node {
    pub(crate) fn channel(
        &mut self,
        session: &Name,
        memory: &Arc<MemoryReservation>,
        spec: &ChannelSpec,
        compiled: &CompiledFilters,
    ) -> Result<SessionChannel, NodeError> {
        self.check_crowd(spec)?;
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
        let share = SelectionKey::of(spec);
        let link_type = source.link_type();
        let tables = view::tables(session, &spec.name, memory, share.memory(compiled))?;
        let filters = share.filters.iter().map(String::as_str);
        let program = compiled.all(filters, link_type).map_err(failed)?;
        let mut screens = Vec::new();
        let sight = match spec.sees {
            RecordVisibility::All => {
                let most = spec.lag.map_or(source.arena().0 / 2, |lag| lag.0);
                Visibility::All(LagCounters { most, ends: spec.late == OnLag::Terminate })
            }
            RecordVisibility::Selected if spec.is_handled() && !share.screens.is_empty() => {
                screens = share.screens(compiled, link_type).map_err(failed)?.0;
                Visibility::Made(self.selection(spec, share.as_they_are(), compiled, link_type)?)
            }
            RecordVisibility::Selected => {
                Visibility::Selected(self.selection(spec, share, compiled, link_type)?)
            }
        };
        self.next_channel += 1;
        let flows = spec.subflows.as_ref().map(|subflows| {
            // With a key that strangers do not know they cannot choose who shares a queue with whom.
            SubFlows::new(&subflows.fields(), subflows.queues, RandomState::new().hash_one(self.next_channel))
        });
        Ok(SessionChannel {
            number: self.next_channel,
            spec: spec.clone(),
            flows,
            program,
            sight,
            screens,
            tables,
            tally: Arc::default(),
            account: Arc::default(),
        })
    }

    /// Memory for a queue whose packets cannot wait for long where they arrive: see [`overflow::of_channel`].
    pub(crate) fn overflow(
        &self,
        session: &SessionState,
        channel: &SessionChannel,
        party: Option<&Arc<PacketBuffers>>,
    ) -> Result<Option<Overflow>, NodeError> {
        let source = self.sources.get(&channel.spec.interface);
        let is_filled_in_turn = source.is_some_and(|source| source.is_filled_in_turn());
        overflow::of_channel(&channel.spec, is_filled_in_turn, &session.spec.name, &session.memory, party)
    }

    /// Tells the interfaces of a session's channels where packets go.
    pub(crate) fn route_all(&mut self, session: &Name) -> Result<(), NodeError> {
        let Some(there) = self.sessions.get(session) else { return Ok(()) };
        let channels = there.channels.values().map(|channel| channel.spec.clone()).collect::<Vec<_>>();
        let mut told: Vec<&String> = Vec::new();
        for channel in &channels {
            if !told.contains(&&channel.interface) {
                told.push(&channel.interface);
                let failed = |error| NodeError::Channel { channel: channel.name.clone(), error };
                self.route(&channel.interface).map_err(failed)?;
            }
        }
        Ok(())
    }

    pub(crate) fn route_everything(&mut self) -> Result<(), NodeError> {
        for interface in self.sources.keys().cloned().collect::<Vec<_>>() {
            // Fewer filters than before fit.
            if let Err(error) = self.route(&interface) {
                log::interface(&interface).warn(&format_args!("{interface}: {error}"));
            }
        }
        Ok(())
    }

    pub(crate) fn route(&self, interface: &str) -> Result<(), PlanError> {
        let Some(source) = self.sources.get(interface) else { return Ok(()) };
        Ok(source.follow(self.routes(interface, self.sessions.values()))?)
    }

    /// The routes of an interface's packets to these sessions.
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
                        module: module.guest,
                        queue,
                        waker: core.waker().for_packets(),
                        account,
                    })
                });
                routes.push(Route {
                    channel: channel.number,
                    owner: session.id,
                    priority: session.spec.priority,
                    unattended: self.way(session, &channel.spec).map(|way| match channel.spec.unattended {
                        OnNoModule::Pass => way,
                        OnNoModule::Drop => Egress::Nothing,
                    }),
                    program: Arc::clone(&channel.program),
                    sight: channel.sight.clone(),
                    is_screened: channel.sight.is_screened(),
                    flows: channel.flows.clone(),
                    readers: readers.collect(),
                    tally: Arc::clone(&channel.tally),
                    account: Arc::clone(&channel.account),
                });
            }
        }
        routes
    }
}
