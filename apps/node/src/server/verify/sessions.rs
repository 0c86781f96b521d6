//! Sessions of a configuration, tried in the order in which a start creates them.

use super::devices::Devices;
use super::{Remarks, Subject};
use crate::control::config::ReceiveMethod;
use crate::control::spec::{ChannelSpec, ModuleSpec, ProcessorSpec, SessionSpec};
use crate::error::{NodeError, of_session};
use crate::guest::Longest;
use crate::intake::{longest_for, reassembly};
use crate::link::{LinkCheck, OutputError, OutputSpec};
use crate::overflow;
use crate::plan::PlanError;
use crate::server::turns;
use crate::sessions::filters::{CompiledFilters, RequestFilters};
use crate::sessions::limits::SessionLimits;
use crate::sessions::metered::metered;
use crate::sessions::premises::NodeInventory;
use crate::sessions::processors::share;
use crate::sessions::tables::{Publisher, TableClaims, TableRegistry};
use crate::sessions::view::{Secret, SelectionKey, tables};
use crate::sessions::workshop::{AdmissionRules, Assessed, ModuleLoader, Prepared};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use weir_datapath::egress::{TapError, open_device};
use weir_demux::{JoinLimits, Joiner};
use weir_netio::LiveSource;
use weir_sched::cpu::{Core, CpuTerms, ReservationRefusal, VpId};
use weir_units::{Bytes, Nanos};
use weir_wire::LinkType;
use {
    weir_admission::{Admitted, MODULE_BYTES_MAX, Name, Tier},
    weir_session::{Holding, MemoryReservation, NodeMemory},
};

/// The means of a check that compiles and starts modules.
pub(super) struct Closely<'a> {
    pub(super) workshop: ModuleLoader,
    /// Hears of each module before it is tried.
    pub(super) tell: &'a mut dyn FnMut(&str),
}

/// A module that a node would load, with what it holds.
struct Tested {
    name: Name,
    admitted: Arc<Admitted>,
    longest: Longest,
    /// Kept until all modules are tried, so that no two of them publish one table.
    publisher: Option<Arc<Publisher>>,
}

/// The parts of a node that a start would have created so far.
struct Tried<'a> {
    subject: &'a Subject<'a>,
    closely: Option<Closely<'a>>,
    /// Modules that have started, and TAP devices: held until the end, as on a node.
    started: Vec<Prepared>,
    devices: Vec<LiveSource>,
    /// Warnings about sessions.
    warnings: Vec<String>,
    /// The processor time that each session's modules took.
    used: BTreeMap<Name, Nanos>,
    premises: NodeInventory,
    filters: RequestFilters,
    shelf: Arc<TableRegistry>,
    memory: Arc<NodeMemory>,
    cores: Vec<(u16, Core)>,
    links: LinkCheck,
    /// The filters of each interface's channels.
    programs: BTreeMap<String, Vec<Option<Arc<weir_demux::FilterProgram>>>>,
    held: Vec<(Arc<MemoryReservation>, TableClaims, Vec<Holding>)>,
}

impl Remarks {
    /// Tries all sessions. After a refusal the next ones are tried without the rest of the refused one.
    pub(super) fn sessions<'a>(
        &mut self,
        subject: &'a Subject<'a>,
        Devices { interfaces, links: kinds, trial: links }: Devices,
        closely: Option<Closely<'a>>,
    ) {
        let config = subject.config;
        let numbers = config.cpu.module_cores().into_iter();
        let shelf = closely.as_ref().map(|it| Arc::clone(&it.workshop.shelf)).unwrap_or_default();
        let mut tried = Tried {
            subject,
            closely,
            started: Vec::new(),
            devices: Vec::new(),
            warnings: Vec::new(),
            used: BTreeMap::new(),
            premises: NodeInventory {
                interfaces,
                links: kinds,
                outgoing: config.outgoing(),
                profiles: subject.profiles.keys().cloned().collect(),
                secret: Arc::new(Secret::stand_in()),
            },
            filters: RequestFilters::default(),
            shelf,
            memory: NodeMemory::new(config.node.memory),
            cores: numbers.map(|core| (core, Core::new(config.cpu.of_cores()))).collect(),
            links,
            programs: BTreeMap::new(),
            held: Vec::new(),
        };
        for session in &config.sessions {
            let line = subject.places.session(&session.name);
            if let Err(error) = tried.create(session) {
                self.problem(line, of_session(&session.name, &error));
            }
            tried.warnings.drain(..).for_each(|what| self.warning(line, of_session(&session.name, &what)));
        }
        self.used = std::mem::take(&mut tried.used);
    }
}

impl Tried<'_> {
    /// Tries a session in the order in which a node creates it.
    fn create(&mut self, spec: &SessionSpec) -> Result<(), NodeError> {
        if let Some(share) = spec.share.first() {
            return Err(
                Box::new(crate::control::authority::RequestRefusal::not_from(&spec.name, share)).into()
            );
        }
        self.premises.check(spec)?;
        let wanted = self.premises.filters_of(&spec.channels, &spec.outputs);
        let compiled = self.filters.compile(wanted, &mut Nanos(0))?;
        let memory = MemoryReservation::new(&self.memory, spec.memory, spec.memory_ceiling());
        let memory = memory.map_err(|error| NodeError::of_memory(&spec.name, error))?;
        let claims = self.shelf.claim(spec, &memory)?;
        let mut held = Vec::new();
        for channel in &spec.channels {
            held.push(self.channel(spec, channel, &memory, &compiled)?);
        }
        let mut vps = BTreeMap::new();
        for cpu in spec.all_processors() {
            vps.insert(cpu.name.clone(), (self.place(&cpu)?, cpu));
        }
        for output in &spec.outputs {
            held.push(self.links.open(output, &spec.name, &memory, &compiled)?);
            self.open_device_of(output)?;
        }
        let loaded = self.modules(spec, &memory, &compiled, &vps, &mut held);
        self.held.push((memory, claims, held));
        loaded
    }

    fn channel(
        &mut self,
        spec: &SessionSpec,
        channel: &ChannelSpec,
        memory: &Arc<MemoryReservation>,
        compiled: &CompiledFilters,
    ) -> Result<Holding, NodeError> {
        let share = SelectionKey::of(channel);
        let failed = |error| NodeError::Channel { channel: channel.name.clone(), error };
        let link_type =
            self.premises.interfaces.get(&channel.interface).copied().unwrap_or(LinkType::Ethernet);
        let held = tables(&spec.name, &channel.name, memory, share.memory(compiled))?;
        let program = compiled.all(share.filters.iter().map(String::as_str), link_type).map_err(failed)?;
        let all = self.programs.entry(channel.interface.clone()).or_default();
        all.push(Some(program));
        let joined = Joiner::new(JoinLimits::default()).change(all.clone()).map(|_| ());
        if let Err(error) = joined {
            all.pop();
            return Err(failed(PlanError::from(error)));
        }
        Ok(held)
    }

    /// The place of a core that has room, as [`Node::place`](crate::sessions::node::Node) finds it.
    fn place(&mut self, cpu: &ProcessorSpec) -> Result<(usize, VpId), NodeError> {
        let terms = CpuTerms { share: share(cpu), overrun: Nanos(0) };
        let mut refused = None;
        for (place, (number, core)) in self.cores.iter_mut().enumerate() {
            if cpu.core.is_some_and(|wanted| wanted != *number) {
                continue;
            }
            match core.create(terms, Nanos(0)) {
                Ok(id) => return Ok((place, id)),
                Err(refusal) => refused = Some((*number, refusal)),
            }
        }
        let name = cpu.name.clone();
        Err(match refused {
            Some((core, refusal)) => NodeError::Cpu { name, core, refusal },
            None => {
                let cores = self.cores.iter().map(|(number, _)| *number).collect();
                NodeError::NoCore { name, core: cpu.core.unwrap_or_default(), cores }
            }
        })
    }

    fn modules(
        &mut self,
        spec: &SessionSpec,
        memory: &Arc<MemoryReservation>,
        compiled: &CompiledFilters,
        vps: &BTreeMap<Name, ((usize, VpId), ProcessorSpec)>,
        held: &mut Vec<Holding>,
    ) -> Result<(), NodeError> {
        let (mut names, mut publishers) = (BTreeSet::new(), Vec::new());
        let (mut waiting, limits) = (Vec::new(), SessionLimits::of(spec, None));
        for module in &spec.modules {
            let Tested { name, admitted, longest, publisher } = self.test(spec, module, memory, &limits)?;
            publishers.extend(publisher);
            let Some(channel) = spec.channels.iter().find(|it| it.name == module.channel) else { continue };
            let Some(((place, id), cpu)) = vps.get(&module.cpu) else { continue };
            if !names.insert(name.clone()) {
                return Err(NodeError::ModuleExists { session: spec.name.clone(), module: name });
            }
            if cpu.reservation().is_none() && admitted.tier() != Tier::Proved {
                let (module, tier, cpu) = (module.module.clone(), admitted.tier(), cpu.name.clone());
                return Err(NodeError::BestEffort { module, tier, cpu });
            }
            held.extend(reassembly(&spec.name, memory, channel)?);
            waiting.extend(overflow::of_channel(
                channel,
                self.is_filled_in_turn(channel),
                &spec.name,
                memory,
                None,
            )?);
            let shown = SelectionKey::of(channel);
            let screens = if channel.is_handled() { shown.lenses().count() } else { 0 };
            let wanted = if screens == 0 { Bytes(0) } else { shown.memory(compiled) };
            held.push(tables(&spec.name, &channel.name, memory, wanted)?);
            let taking_in = longest_for(channel, screens).unwrap_or(0);
            let overrun = longest.call.max(self.subject.default.calibration.time(taking_in));
            self.make_room(*place, *id, cpu, overrun)?;
        }
        Ok(())
    }

    /// Admits a module and binds its tables. A close check also compiles and starts it.
    fn test(
        &mut self,
        spec: &SessionSpec,
        module: &ModuleSpec,
        memory: &Arc<MemoryReservation>,
        limits: &SessionLimits,
    ) -> Result<Tested, NodeError> {
        let Subject { default, profiles, shipped, config, .. } = *self.subject;
        let file = file(self.subject, &module.module)?;
        let Some(Closely { workshop, tell }) = &mut self.closely else {
            let rules = AdmissionRules { default, profiles, shipped, blocking: config.cpu.blocking };
            let Assessed { admitted, longest, name, .. } = rules.assess(spec, module, file)?;
            let (_, publisher, _) = self.shelf.bind(spec, &name, admitted.manifest(), memory)?;
            return Ok(Tested { name, admitted: Arc::new(admitted), longest, publisher: Some(publisher) });
        };
        crate::server::descriptors::check()?;
        tell(&format!("session `{}`: module `{}`", spec.name, module.module.escape_debug()));
        let mut budget = turns::budget_for(None);
        let prepared =
            metered(&mut budget, |budget| workshop.prepare(spec, memory, limits, module, file, budget));
        let used = self.used.entry(spec.name.clone()).or_default();
        used.0 = used.0.saturating_add(budget.used().0);
        let prepared = prepared?;
        let (name, admitted) = (prepared.name.clone(), Arc::clone(&prepared.admitted));
        let longest = prepared.longest;
        self.started.push(prepared);
        Ok(Tested { name, admitted, longest, publisher: None })
    }

    /// Opens the TAP device of an output channel in a close check. Makes it where it is missing: it is gone with the check.
    fn open_device_of(&mut self, output: &OutputSpec) -> Result<(), NodeError> {
        let Some(device) = output.tap.as_ref().filter(|_| self.closely.is_some()) else { return Ok(()) };
        let failed = |error| NodeError::Output { output: output.name.clone(), error };
        match open_device(device) {
            Ok((live, _)) => self.devices.push(live),
            Err(TapError::Live(error)) => match self.subject.standing.of_live(&error) {
                Some(warning) => self.warnings.push(format!("output channel `{}`: {warning}", output.name)),
                None => return Err(failed(OutputError::Tap(error.into()))),
            },
            Err(error) => return Err(failed(error.into())),
        }
        Ok(())
    }

    /// Returns true where the channel's packets come from a packet socket: every kind but XDP.
    fn is_filled_in_turn(&self, channel: &ChannelSpec) -> bool {
        let interfaces = &self.subject.config.interfaces;
        interfaces.iter().any(|it| it.name == channel.interface && it.kind != ReceiveMethod::Xdp)
    }

    fn make_room(
        &mut self,
        place: usize,
        id: VpId,
        cpu: &ProcessorSpec,
        overrun: Nanos,
    ) -> Result<(), NodeError> {
        let Some((number, core)) = self.cores.get_mut(place) else { return Ok(()) };
        let present = core.terms(id).map_or(Nanos(0), |terms| terms.overrun);
        if overrun <= present {
            return Ok(());
        }
        let changed: Result<(), ReservationRefusal> =
            core.change(id, CpuTerms { share: share(cpu), overrun }, Nanos(0));
        let (name, core) = (cpu.name.clone(), *number);
        changed.map_err(|refusal| NodeError::Cpu { name, core, refusal })
    }
}

/// The bytes of a module of the configuration; `None` for one that comes with weir.
fn file(subject: &Subject<'_>, module: &str) -> Result<Option<Vec<u8>>, NodeError> {
    if (subject.shipped)(module).is_some() {
        return Ok(None);
    }
    let path = crate::server::daemon::beside(subject.path, Path::new(module));
    let bytes = crate::server::daemon::read_file_of(&path, MODULE_BYTES_MAX);
    bytes.map(Some).map_err(|source| NodeError::File { module: module.to_owned(), source })
}
