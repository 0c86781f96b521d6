//! Admission, compilation and start of modules. They take long, so they are done without the node lock; the started
//! module is installed afterwards.

use crate::control::ShippedModules;
use crate::control::module_file::ModuleFile;
use crate::control::process_isolation::{Process, unsupported_in_own_process};
use crate::control::spec::{ModuleSpec, SessionSpec};
use crate::core_thread::sandbox::SandboxInstance;
use crate::core_thread::service_bus::{ServiceBus, ServiceEndpoint};
use crate::core_thread::task::{CallTimes, FuelRate};
use crate::sessions::compiler_trust::{self, BundleRefusal, CompilerTrust, VouchedModule, given_object};
use crate::sessions::error::NodeError;
use crate::sessions::filters::RequestFilters;
use crate::sessions::limits::SessionLimits;
use crate::sessions::tables::{ReadTables, TableBinding, TableRegistry};
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_compilation::bundle::{Bundle, ObjectForm};
use weir_compilation::compiler_keys::VouchedCode;
use weir_os::{Launcher, ProcessorBudget};
use weir_sandbox::{
    Engine, Instance, InstanceContext, LoadError, LoadedModule, MessageHandler, ModuleCode, RemoteInstance,
};
use weir_trust::grant::ModuleHash;
use weir_units::{Bytes, Nanos, escaped};
use {
    weir_admission::{Admitted, Assessment, CalibratedProfile, Manifest, Name, Tier},
    weir_session::{HeldMemory, MemoryReservation},
};

/// Admits modules by the node's profiles, and compiles and starts them with its engine, services and tables.
#[derive(Clone, Debug)]
pub struct ModuleLoader {
    pub(crate) engine: Arc<Engine>,
    /// Profile for sessions that name no profile.
    pub(crate) default: CalibratedProfile,
    pub(crate) profiles: BTreeMap<Name, CalibratedProfile>,
    pub(crate) shipped: ShippedModules,
    /// Maximum time for which a module may keep a core: `blocking` in `[cpu]` of the configuration.
    pub(crate) blocking_max: Nanos,
    pub(crate) fuel_rate: Arc<FuelRate>,
    pub(crate) service_bus: Arc<ServiceBus>,
    pub(crate) registry: Arc<TableRegistry>,
    pub(crate) filters: Arc<RequestFilters>,
    /// Compilers whose machine code is used.
    pub(crate) compilers: CompilerTrust,
    /// The publishers of tables of the modules that a loaded one replaces, by the modules' names.
    pub(crate) replaced: BTreeMap<Name, u64>,
}

/// A module that has been admitted, compiled and started. It gets packets once it is installed.
pub struct StartedModule {
    pub(crate) spec: ModuleSpec,
    pub(crate) name: Name,
    pub(crate) admitted: Arc<Admitted>,
    /// Hash of the module's bytes, computed before the node is locked.
    pub(crate) digest: ModuleHash,
    pub(crate) sandbox: SandboxInstance,
    /// The machine code of the module's bundle, if the module runs in it.
    pub(crate) vouched: Option<VouchedModule>,
    /// The loaded module, which LLVM can compile later; `None` for a module in a process of its own.
    pub(crate) program: Option<Arc<LoadedModule>>,
    pub(crate) call_times: CallTimes,
    pub(crate) endpoint: Arc<ServiceEndpoint>,
    /// Tables that the module reads.
    pub(crate) tables: ReadTables,
    /// Tables that the module reads or publishes, for later changes of the session's grants.
    pub(crate) table_binding: TableBinding,
    /// Profile by which the module was admitted; `None` for the default.
    pub(crate) profile: Option<Name>,
    /// Memory of the module's record files, taken from the session.
    pub(crate) record_memory: HeldMemory,
}

impl std::fmt::Debug for StartedModule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StartedModule")
            .field("name", &self.name)
            .field("spec", &self.spec)
            .finish_non_exhaustive()
    }
}

/// Rules by which a node admits modules.
pub(crate) struct AdmissionRules<'a> {
    pub(crate) default: &'a CalibratedProfile,
    pub(crate) profiles: &'a BTreeMap<Name, CalibratedProfile>,
    pub(crate) shipped: ShippedModules,
    /// Maximum time for which a module may keep a core.
    pub(crate) blocking_max: Nanos,
}

/// An admitted module, with the maximum times of its calls.
pub(crate) struct AdmittedModule {
    pub(crate) admitted: Admitted,
    pub(crate) call_times: CallTimes,
    /// True if calls of the module are compiled with suspension points; false if all calls are proved to be short.
    can_suspend: bool,
    /// Name of the module in the session.
    pub(crate) name: Name,
}

/// An admitted module with its code.
struct ChosenCode {
    code: ModuleCode,
    call_times: CallTimes,
    /// Name of the module in the session.
    name: Name,
    /// The machine code of the module's bundle, if it is used.
    vouched: Option<VouchedModule>,
}

impl AdmissionRules<'_> {
    /// Returns the profile by which modules of a session are admitted.
    fn profile(&self, session: &SessionSpec) -> Result<&CalibratedProfile, NodeError> {
        match &session.profile {
            None => Ok(self.default),
            // A reload may have removed the profile. The default profile could allow more, so it is not used instead.
            Some(name) => self.profiles.get(name).ok_or_else(|| NodeError::NoProfile(name.clone())),
        }
    }

    /// Admits a module of a session. `file` has the module's file; `None` stands for a module that comes with weir.
    pub(crate) fn admit(
        &self,
        session: &SessionSpec,
        spec: &ModuleSpec,
        file: Option<ModuleFile>,
    ) -> Result<AdmittedModule, NodeError> {
        let bytes = match file {
            Some(file) => file.module,
            None => (self.shipped)(&spec.module)
                .ok_or_else(|| NodeError::UnknownModule(spec.module.clone()))?
                .to_vec(),
        };
        self.admit_by(self.profile(session)?, session, spec, bytes)
    }

    /// Admits a module of a session by this profile.
    fn admit_by(
        &self,
        profile: &CalibratedProfile,
        session: &SessionSpec,
        spec: &ModuleSpec,
        bytes: Vec<u8>,
    ) -> Result<AdmittedModule, NodeError> {
        session.check_unmetered(spec)?;
        let module = || spec.module.clone();
        let refused = |refusal| NodeError::Refused { module: module(), refusal };
        let admitted = Assessment::assess(bytes, &spec.settings(), profile)
            .and_then(Assessment::admit)
            .map_err(refused)?;
        let admitted = if spec.unmetered { admitted.without_meter() } else { admitted };
        // A module runs without suspension points only if all of its calls are proved to be short. A call for a packet, or
        // for streams that are over, can have many events of TCP streams, each of which has the bound of one event.
        let mut call_times = CallTimes::from_bounds(&admitted);
        let is_long = call_times.call.0 >= self.blocking_max.0 / 2
            || admitted.tier() != Tier::Proved
            || admitted.tcp().is_some();
        if is_long {
            call_times = CallTimes::suspendable(&admitted);
        }
        // Calls without a meter have no suspension points: the module's process is stopped instead.
        let is_unmetered = admitted.tier() == Tier::Unmetered;
        if is_unmetered {
            call_times.call = call_times.call.max(RemoteInstance::UNMETERED_OVERRUN);
        }
        let can_suspend = is_long && !is_unmetered;
        if call_times.call >= self.blocking_max {
            let (longest, blocking_max) = (call_times.call, self.blocking_max);
            return Err(NodeError::CallTooLong { module: module(), longest, blocking_max });
        }
        if let Some(what) = unsupported_in_own_process(&admitted).filter(|_| session.process == Process::Own)
        {
            return Err(NodeError::OwnProcess { module: module(), what });
        }
        let name = spec.name.clone().unwrap_or_else(|| admitted.manifest().name.clone());
        Ok(AdmittedModule { admitted, call_times, can_suspend, name })
    }
}

impl ModuleLoader {
    /// Creates a loader. `default` is the profile of sessions that name none.
    pub fn new(
        engine: Arc<Engine>,
        default: CalibratedProfile,
        profiles: BTreeMap<Name, CalibratedProfile>,
        shipped: ShippedModules,
        blocking_max: Nanos,
    ) -> Self {
        let calibration = default.calibration().clone();
        let nanos_per_cycle = weir_sandbox::ClockCheck::begin().nanos_per_cycle();
        let fuel_rate = Arc::new(FuelRate { calibration, nanos_per_cycle });
        Self {
            engine,
            default,
            profiles,
            shipped,
            blocking_max,
            fuel_rate,
            service_bus: Arc::default(),
            registry: Arc::default(),
            filters: Arc::new(RequestFilters::default()),
            compilers: CompilerTrust::default(),
            replaced: BTreeMap::new(),
        }
    }

    /// Returns this loader with other trust in compilers.
    pub(crate) fn with_compilers(self, compilers: CompilerTrust) -> Self {
        Self { compilers, ..self }
    }

    /// Returns this loader for a module that replaces one of a session. `replaced` are the publishers of tables of these.
    pub(crate) fn replacing(self, replaced: BTreeMap<Name, u64>) -> Self {
        Self { replaced, ..self }
    }

    /// Returns a loader with the same engine and profiles, and with services, tables and filters of its own, for
    /// modules that are only checked.
    pub(crate) fn for_checks(&self) -> Self {
        Self {
            service_bus: Arc::default(),
            registry: Arc::default(),
            filters: Arc::new(RequestFilters::default()),
            ..self.clone()
        }
    }

    /// Returns the names of the profiles.
    pub fn profiles(&self) -> Vec<Name> {
        self.profiles.keys().cloned().collect()
    }

    /// Admits a module, and returns it with its code: the machine code of its bundle, if the node may use that, otherwise code
    /// that the node compiles. Charges `budget` for the compiler.
    fn choose_code(
        &self,
        session: &SessionSpec,
        spec: &ModuleSpec,
        file: Option<ModuleFile>,
        budget: &mut dyn ProcessorBudget,
    ) -> Result<ChosenCode, NodeError> {
        let rules = AdmissionRules {
            default: &self.default,
            profiles: &self.profiles,
            shipped: self.shipped,
            blocking_max: self.blocking_max,
        };
        if let Some(bundle) = file.as_ref().and_then(|file| file.bundle.as_ref()) {
            match self.code_of_bundle(&rules, session, spec, bundle, budget) {
                Ok(chosen) => return Ok(chosen),
                Err(why) if !self.engine.compiles() => {
                    return Err(NodeError::NoCode { module: spec.module.clone(), why: Box::new(why) });
                }
                Err(why) => {
                    let what = format_args!(
                        "session `{}`, module `{}`: the machine code of the bundle is not used: {}",
                        session.name,
                        escaped(&spec.module),
                        escaped(&why.to_string())
                    );
                    crate::log::session(&session.name).info(&what);
                }
            }
        }
        let AdmittedModule { admitted, call_times, can_suspend, name } = rules.admit(session, spec, file)?;
        let failed = |error| NodeError::Load { module: spec.module.clone(), error };
        let code = self.engine.compile(admitted, can_suspend, budget).map_err(failed)?;
        Ok(ChosenCode { code, call_times, name, vouched: None })
    }

    /// Returns a module with the machine code of its bundle: if record, profile and policy agree, and then the verifier accepts
    /// the code.
    fn code_of_bundle(
        &self,
        rules: &AdmissionRules<'_>,
        session: &SessionSpec,
        spec: &ModuleSpec,
        bundle: &Bundle,
        budget: &mut dyn ProcessorBudget,
    ) -> Result<ChosenCode, BundleRefusal> {
        let profile = rules.profile(session).map_err(Box::new)?;
        let [.., own_nanoseconds] = profile.calibration().spread();
        let of_node = (profile.profile(), own_nanoseconds);
        let mut vouched = self.compilers.vouched(bundle, ObjectForm::Suspendable, of_node)?;
        let admit = |vouched: &VouchedCode| {
            let profile = vouched.profile(profile.profile().clone())?;
            let module = bundle.module().to_vec();
            Ok::<_, BundleRefusal>(rules.admit_by(&profile, session, spec, module).map_err(Box::new)?)
        };
        let mut admitted = admit(&vouched)?;
        if !admitted.can_suspend {
            // All calls of the module are short, so it runs in the code without suspension.
            vouched = self.compilers.vouched(bundle, ObjectForm::ToCompletion, of_node)?;
            admitted = admit(&vouched)?;
        }
        let AdmittedModule { admitted, call_times, can_suspend, name } = admitted;
        vouched.check(&admitted, &spec.settings())?;
        let (form, digest, vouchers) = (vouched.form, vouched.digest, vouched.vouchers.clone());
        let given = given_object(vouched);
        let code = self.engine.take_object(admitted, can_suspend, &given, budget)?;
        let has_other_code = code.has_other_code();
        let vouched = code.withdrawal().map(|withdrawal| VouchedModule {
            form,
            object: digest,
            vouchers,
            withdrawal,
            has_other_code,
        });
        Ok(ChosenCode { code, call_times, name, vouched })
    }

    /// Admits, compiles and starts a module. `file` has the module's file, which can be a bundle; `None` stands for a module
    /// that comes with weir. Debits the CPU time of the compiler process from `budget`, also after an error. The caller debits
    /// the CPU time of the calling thread.
    pub(crate) fn prepare(
        &self,
        session: &SessionSpec,
        memory: &Arc<MemoryReservation>,
        limits: &SessionLimits,
        spec: &ModuleSpec,
        file: Option<Vec<u8>>,
        budget: &mut dyn ProcessorBudget,
    ) -> Result<StartedModule, NodeError> {
        let module = || spec.module.clone();
        let file = compiler_trust::read_file(&spec.module, file)?;
        let ChosenCode { code, call_times, name, vouched } = self.choose_code(session, spec, file, budget)?;
        let failed = |error| NodeError::Load { module: module(), error };
        let record_memory = take_record_memory(session, memory, &name, code.admitted().manifest())?;
        let before = memory.state();
        let memory_exhausted = |wanted: Option<Bytes>| NodeError::SessionMemory {
            session: session.name.clone(),
            module: name.clone(),
            wanted,
            left: before.left(),
            reserved: before.reserved,
        };
        // The use of each service that the module calls; `None` for a service that the session does not use.
        let manifest = code.admitted().manifest();
        let uses = manifest.calls.iter().map(|service| session.service_use(service)).collect();
        let endpoint = self.service_bus.new_endpoint(uses);
        let (mut tables, publisher, table_binding) =
            self.registry.bind(session, &name, manifest, memory, self.replaced.get(&name).copied())?;
        let sandbox = match session.process {
            Process::Own => {
                let remote = RemoteInstance::start(
                    &Launcher::of_process(),
                    &self.engine,
                    code,
                    &spec.settings(),
                    (Some(memory), &limits.writes),
                    budget,
                );
                remote.map(|remote| {
                    let admitted = Arc::clone(remote.admitted());
                    let instance = Box::new(remote);
                    (admitted, None, SandboxInstance::Remote { instance, _publisher: publisher })
                })
            }
            Process::Node => {
                let messages: Arc<dyn MessageHandler> = Arc::clone(&endpoint) as _;
                let context = InstanceContext {
                    memory: Some(Arc::clone(memory)),
                    kept: Some(Arc::clone(&limits.kept)),
                    writes: Some(Arc::clone(&limits.writes)),
                    messages: Some(messages),
                    tables: tables.initial_versions(),
                    publisher: Some(publisher),
                };
                self.engine.load_code(code).and_then(|program| {
                    program.read_source_lines();
                    let instance = Instance::start_with(&self.engine, &program, context)?;
                    let sandbox = SandboxInstance::InProcess(Box::new(instance));
                    Ok((program.shared_admitted(), Some(Arc::new(program)), sandbox))
                })
            }
        };
        let (admitted, program, sandbox) = match sandbox {
            Err(LoadError::Memory { wanted, .. }) => return Err(memory_exhausted(Some(wanted))),
            started => started.map_err(failed)?,
        };
        if sandbox.has_ended() {
            if memory.state().refused > before.refused {
                return Err(memory_exhausted(None));
            }
            let why = sandbox.faults(0).into_iter().next();
            return Err(NodeError::Start { module: module(), fault: why.unwrap_or_default() });
        }
        if let Some(program) = program.as_ref().filter(|_| self.engine.why_not_llvm().is_none()) {
            log_why_not_llvm(&session.name, &name, program);
        }
        let (spec, profile) = (spec.clone(), session.profile.clone());
        let digest = ModuleHash::of_bytes(admitted.bytes());
        Ok(StartedModule {
            spec,
            name,
            admitted,
            digest,
            sandbox,
            vouched,
            program,
            call_times,
            endpoint,
            tables,
            table_binding,
            profile,
            record_memory,
        })
    }
}

/// Takes the memory of a module's record files from its session. Files of all formats count alike: those of other
/// tools take less memory than Parquet.
pub(crate) fn take_record_memory(
    session: &SessionSpec,
    memory: &Arc<MemoryReservation>,
    module: &Name,
    manifest: &Manifest,
) -> Result<HeldMemory, NodeError> {
    let wanted = weir_records::memory(manifest);
    HeldMemory::take(memory, wanted).ok_or_else(|| {
        let (streams, memory) = (&manifest.streams, memory.state());
        NodeError::RecordMemory {
            module: module.clone(),
            streams: streams.len(),
            fields: streams.iter().map(|stream| stream.fields.len()).sum(),
            wanted,
            session: session.name.clone(),
            left: memory.left(),
            reserved: memory.reserved,
        }
    })
}

/// Logs the reason why a module stays in Cranelift's code, if it is known to stay there.
pub(crate) fn log_why_not_llvm(session: &Name, module: &Name, program: &LoadedModule) {
    if let (false, Some(why)) = (program.waits_for_llvm(), program.why_not_llvm()) {
        let what = format_args!("session `{session}`, module `{module}` stays in Cranelift's code: {why}");
        crate::log::session(session).module(module).info(&what);
    }
}
