//! Checks the sessions of a configuration, in the order in which a start creates them.

use super::devices::Devices;
use super::{Remarks, Subject};
use crate::control::config::ReceiveMethod;
use crate::control::link_spec::OutputSpec;
use crate::control::spec::{ChannelSpec, ModuleSpec, ProcessorSpec, SessionSpec};
use crate::core_thread::task::CallTimes;
use crate::server::compile_queue;
use crate::sessions::channel_plan::PlanError;
use crate::sessions::cpu_debit::debit_cpu_time;
use crate::sessions::error::{NodeError, of_session};
use crate::sessions::filters::{CompiledFilters, RequestFilters};
use crate::sessions::inventory::NodeInventory;
use crate::sessions::limits::SessionLimits;
use crate::sessions::link::{LinkCheck, OutputError};
use crate::sessions::module_loader::{
    AdmissionRules, AdmittedModule, ModuleLoader, StartedModule, take_record_memory,
};
use crate::sessions::preprocessing::{fuel_max, reassembly_memory};
use crate::sessions::processors::allocation;
use crate::sessions::queue_memory;
use crate::sessions::tables::{Publisher, TableClaims, TableRegistry};
use crate::sessions::view::{Secret, SelectionKey, take_table_memory};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use weir_datapath::egress::{TapError, open_device};
use weir_demux::{JoinLimits, Joiner};
use weir_netio::LiveSource;
use weir_sched::cpu::{CoreScheduler, CpuTerms, ReservationRefusal, VcpuId};
use weir_units::{Bytes, Nanos};
use weir_wire::LinkType;
use {
    weir_admission::{Admitted, MODULE_BYTES_MAX, Name, Tier},
    weir_session::{HeldMemory, MemoryReservation, NodeMemory},
};

/// The parts that only the second part of a check needs, which compiles and starts modules.
pub(super) struct ModuleCheck<'a> {
    pub(super) loader: ModuleLoader,
    /// Called before each module.
    pub(super) progress: &'a mut dyn FnMut(&str),
}

/// A checked module, with the resources that it keeps until the end of the check.
struct CheckedModule {
    name: Name,
    admitted: Arc<Admitted>,
    call_times: CallTimes,
    /// The module's publisher. It is kept until all modules are checked, so that an error is found if two modules publish the
    /// same table.
    publisher: Option<Arc<Publisher>>,
    /// Memory of the module's record files; `None` for a started module, which has it.
    record_memory: Option<HeldMemory>,
}

/// The state of a check: the parts of a node that a start would have created so far.
struct SessionCheck<'a> {
    subject: &'a Subject<'a>,
    module_check: Option<ModuleCheck<'a>>,
    /// Started modules and TAP devices, kept until the end, as on a node.
    started: Vec<StartedModule>,
    devices: Vec<LiveSource>,
    /// Warnings about sessions.
    warnings: Vec<String>,
    /// The processor time that was used for each session's modules.
    used: BTreeMap<Name, Nanos>,
    inventory: NodeInventory,
    filters: RequestFilters,
    registry: Arc<TableRegistry>,
    memory: Arc<NodeMemory>,
    cores: Vec<(u16, CoreScheduler)>,
    links: LinkCheck,
    /// The filters of each interface's channels.
    programs: BTreeMap<String, Vec<Option<Arc<weir_demux::FilterProgram>>>>,
    /// The resources of the sessions checked so far.
    reserved: Vec<(Arc<MemoryReservation>, TableClaims, Vec<HeldMemory>)>,
}

impl Remarks {
    /// Checks all sessions. An error in a session does not keep the next sessions from being checked.
    pub(super) fn check_sessions<'a>(
        &mut self,
        subject: &'a Subject<'a>,
        Devices { interfaces, links: link_types, link_check }: Devices,
        module_check: Option<ModuleCheck<'a>>,
    ) {
        let config = subject.config;
        let numbers = config.cpu.module_cores().into_iter();
        let registry = module_check.as_ref().map(|it| Arc::clone(&it.loader.registry)).unwrap_or_default();
        let mut check = SessionCheck {
            subject,
            module_check,
            started: Vec::new(),
            devices: Vec::new(),
            warnings: Vec::new(),
            used: BTreeMap::new(),
            inventory: NodeInventory {
                interfaces,
                links: link_types,
                outgoing: config.outgoing(),
                profiles: subject.profiles.keys().cloned().collect(),
                secret: Arc::new(Secret::for_checks()),
            },
            filters: RequestFilters::default(),
            registry,
            memory: NodeMemory::new(config.node.memory),
            cores: numbers.map(|core| (core, CoreScheduler::new(config.cpu.scheduler_config()))).collect(),
            links: link_check,
            programs: BTreeMap::new(),
            reserved: Vec::new(),
        };
        for session in &config.sessions {
            let line = subject.lines.session(&session.name);
            if let Err(error) = check.create(session) {
                self.add_problem(line, of_session(&session.name, &error));
            }
            check
                .warnings
                .drain(..)
                .for_each(|what| self.add_warning(line, of_session(&session.name, &what)));
        }
        self.used = std::mem::take(&mut check.used);
    }
}

impl SessionCheck<'_> {
    /// Checks the parts of a session in the order in which a node creates them.
    fn create(&mut self, spec: &SessionSpec) -> Result<(), NodeError> {
        if let Some(share) = spec.share.first() {
            return Err(
                Box::new(crate::control::authority::RequestRefusal::not_from(&spec.name, share)).into()
            );
        }
        self.inventory.check(spec)?;
        let needed = self.inventory.filter_requests(&spec.channels, &spec.outputs);
        let compiled = self.filters.compile(needed, &mut Nanos(0))?;
        let memory = MemoryReservation::new(&self.memory, spec.memory, spec.memory_ceiling());
        let memory = memory.map_err(|error| NodeError::of_memory(&spec.name, error))?;
        let claims = self.registry.claim(spec, &memory)?;
        let mut held_memory = Vec::new();
        for channel in &spec.channels {
            held_memory.push(self.check_channel(spec, channel, &memory, &compiled)?);
        }
        let mut vcpus = BTreeMap::new();
        for cpu in spec.all_processors() {
            vcpus.insert(cpu.name.clone(), (self.create_vcpu(&cpu)?, cpu));
        }
        for output in &spec.outputs {
            held_memory.push(self.links.open(output, &spec.name, &memory, &compiled)?);
            self.open_tap_device(output)?;
        }
        let loaded = self.check_modules(spec, &memory, &compiled, &vcpus, &mut held_memory);
        self.reserved.push((memory, claims, held_memory));
        loaded
    }

    /// Checks a channel's filters and memory. Returns the memory that the channel holds.
    fn check_channel(
        &mut self,
        spec: &SessionSpec,
        channel: &ChannelSpec,
        memory: &Arc<MemoryReservation>,
        compiled: &CompiledFilters,
    ) -> Result<HeldMemory, NodeError> {
        let key = SelectionKey::for_channel(channel);
        let failed = |error| NodeError::Channel { channel: channel.name.clone(), error };
        let link_type =
            self.inventory.interfaces.get(&channel.interface).copied().unwrap_or(LinkType::Ethernet);
        let held_memory = take_table_memory(&spec.name, &channel.name, memory, key.memory(compiled))?;
        let program =
            compiled.conjunction(key.filters.iter().map(String::as_str), link_type).map_err(failed)?;
        let programs = self.programs.entry(channel.interface.clone()).or_default();
        programs.push(Some(program));
        let joined = Joiner::new(JoinLimits::default()).change(programs.clone()).map(|_| ());
        if let Err(error) = joined {
            programs.pop();
            return Err(failed(PlanError::from(error)));
        }
        Ok(held_memory)
    }

    /// Finds a core with enough free processor time, as a node does. Returns the core's index and the virtual CPU's number.
    fn create_vcpu(&mut self, cpu: &ProcessorSpec) -> Result<(usize, VcpuId), NodeError> {
        let terms = CpuTerms { share: allocation(cpu), overrun: Nanos(0) };
        let mut refused = None;
        for (core_index, (number, core)) in self.cores.iter_mut().enumerate() {
            if cpu.core.is_some_and(|needed| needed != *number) {
                continue;
            }
            match core.create(terms, Nanos(0)) {
                Ok(id) => return Ok((core_index, id)),
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

    /// Checks the modules of a session, and reserves their memory and overruns.
    fn check_modules(
        &mut self,
        spec: &SessionSpec,
        memory: &Arc<MemoryReservation>,
        compiled: &CompiledFilters,
        vcpus: &BTreeMap<Name, ((usize, VcpuId), ProcessorSpec)>,
        held_memory: &mut Vec<HeldMemory>,
    ) -> Result<(), NodeError> {
        let (mut names, mut publishers) = (BTreeSet::new(), Vec::new());
        let (mut waiting, limits) = (Vec::new(), SessionLimits::new(spec, None));
        for module in &spec.modules {
            let CheckedModule { name, admitted, call_times, publisher, record_memory } =
                self.check_module(spec, module, memory, &limits)?;
            publishers.extend(publisher);
            held_memory.extend(record_memory);
            let Some(channel) = spec.channels.iter().find(|it| it.name == module.channel) else { continue };
            let Some(((core_index, id), cpu)) = vcpus.get(&module.cpu) else { continue };
            if !names.insert(name.clone()) {
                return Err(NodeError::ModuleExists { session: spec.name.clone(), module: name });
            }
            if cpu.reservation().is_none() && admitted.tier() != Tier::Proved {
                let (module, tier, cpu) = (module.module.clone(), admitted.tier(), cpu.name.clone());
                return Err(NodeError::BestEffort { module, tier, cpu });
            }
            held_memory.extend(reassembly_memory(&spec.name, memory, channel)?);
            waiting.extend(queue_memory::for_channel(
                channel,
                self.is_packet_socket(channel),
                &spec.name,
                memory,
                None,
            )?);
            let selection = SelectionKey::for_channel(channel);
            let view_count = if channel.is_preprocessed() { selection.keyed_views().count() } else { 0 };
            let needed = if view_count == 0 { Bytes(0) } else { selection.memory(compiled) };
            held_memory.push(take_table_memory(&spec.name, &channel.name, memory, needed)?);
            let preprocessing = fuel_max(channel, view_count).unwrap_or(0);
            let overrun = call_times.call.max(self.subject.default.calibration().time(preprocessing));
            self.reserve_overrun(*core_index, *id, cpu, overrun)?;
        }
        Ok(())
    }

    /// Admits a module and binds its tables. The second part of the check also compiles and starts it.
    fn check_module(
        &mut self,
        spec: &SessionSpec,
        module: &ModuleSpec,
        memory: &Arc<MemoryReservation>,
        limits: &SessionLimits,
    ) -> Result<CheckedModule, NodeError> {
        let Subject { default, profiles, shipped, config, .. } = *self.subject;
        let file = read_module_file(self.subject, &module.module)?;
        let Some(ModuleCheck { loader, progress }) = &mut self.module_check else {
            let rules = AdmissionRules { default, profiles, shipped, blocking_max: config.cpu.blocking_max };
            let file = crate::sessions::compiler_trust::read_file(&module.module, file)?;
            let AdmittedModule { admitted, call_times, name, .. } = rules.admit(spec, module, file)?;
            let record_memory = take_record_memory(spec, memory, &name, admitted.manifest())?;
            let (_, publisher, _) = self.registry.bind(spec, &name, admitted.manifest(), memory, None)?;
            return Ok(CheckedModule {
                name,
                admitted: Arc::new(admitted),
                call_times,
                publisher: Some(publisher),
                record_memory: Some(record_memory),
            });
        };
        crate::sessions::descriptors::check()?;
        progress(&format!("session `{}`: module `{}`", spec.name, module.module.escape_debug()));
        let mut budget = compile_queue::budget_for(None).cpu;
        let prepared =
            debit_cpu_time(&mut budget, |budget| loader.prepare(spec, memory, limits, module, file, budget));
        let used = self.used.entry(spec.name.clone()).or_default();
        used.0 = used.0.saturating_add(budget.used().0);
        let prepared = prepared?;
        let (name, admitted) = (prepared.name.clone(), Arc::clone(&prepared.admitted));
        let call_times = prepared.call_times;
        self.started.push(prepared);
        Ok(CheckedModule { name, admitted, call_times, publisher: None, record_memory: None })
    }

    /// Opens the TAP device of an output channel, in the second part of the check. A missing device is created, and disappears
    /// when the check ends.
    fn open_tap_device(&mut self, output: &OutputSpec) -> Result<(), NodeError> {
        let Some(device) = output.tap.as_ref().filter(|_| self.module_check.is_some()) else { return Ok(()) };
        let failed = |error| NodeError::Output { output: output.name.clone(), error };
        match open_device(device) {
            Ok((live, _)) => self.devices.push(live),
            Err(TapError::Live(error)) => match self.subject.context.interface_warning(&error) {
                Some(warning) => self.warnings.push(format!("output channel `{}`: {warning}", output.name)),
                None => return Err(failed(OutputError::Tap(error.into()))),
            },
            Err(error) => return Err(failed(error.into())),
        }
        Ok(())
    }

    /// Returns true if the channel's packets come from a packet socket: every kind but XDP.
    fn is_packet_socket(&self, channel: &ChannelSpec) -> bool {
        let interfaces = &self.subject.config.interfaces;
        interfaces.iter().any(|it| it.name == channel.interface && it.kind != ReceiveMethod::Xdp)
    }

    /// Raises the overrun of a virtual CPU to that of a module's calls, if it is lower.
    fn reserve_overrun(
        &mut self,
        core_index: usize,
        id: VcpuId,
        cpu: &ProcessorSpec,
        overrun: Nanos,
    ) -> Result<(), NodeError> {
        let Some((number, core)) = self.cores.get_mut(core_index) else { return Ok(()) };
        let present = core.terms(id).map_or(Nanos(0), |terms| terms.overrun);
        if overrun <= present {
            return Ok(());
        }
        let changed: Result<(), ReservationRefusal> =
            core.change(id, CpuTerms { share: allocation(cpu), overrun }, Nanos(0));
        let (name, core) = (cpu.name.clone(), *number);
        changed.map_err(|refusal| NodeError::Cpu { name, core, refusal })
    }
}

/// Reads the file of a module of the configuration. Returns `None` for a shipped module.
fn read_module_file(subject: &Subject<'_>, module: &str) -> Result<Option<Vec<u8>>, NodeError> {
    if (subject.shipped)(module).is_some() {
        return Ok(None);
    }
    let path = crate::server::daemon::resolve_path(subject.path, Path::new(module));
    let bytes = crate::server::daemon::read_at_most(&path, MODULE_BYTES_MAX);
    bytes.map(Some).map_err(|source| NodeError::File { module: module.to_owned(), source })
}
