//! What takes long before a module has its place: it is checked, compiled and started while nobody holds the node.

use crate::control::apart::{Process, not_apart};
use crate::control::spec::{ModuleSpec, SessionSpec};
use crate::error::NodeError;
use crate::guest::{FuelRate, Longest};
use crate::sessions::filters::RequestFilters;
use crate::sessions::limits::SessionLimits;
use crate::sessions::post::{Desk, ServiceBus};
use crate::sessions::tables::{Readings, TableBinding, TableRegistry};
use crate::tenant::SandboxInstance;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_os::{CpuMeter, Launcher};
use weir_sandbox::{Engine, Instance, InstanceContext, LoadError, MessageHandler, RemoteInstance};
use weir_units::{Bytes, Nanos};
use {
    weir_admission::{AdmissionTerms, Admitted, Assessment, Name, Tier},
    weir_session::MemoryReservation,
};

/// Modules that come with weir, by their names.
pub type ShippedProfiles = fn(&str) -> Option<&'static [u8]>;

/// What a module is admitted by, and compiled with.
#[derive(Clone, Debug)]
pub struct ModuleLoader {
    pub(crate) engine: Arc<Engine>,
    pub(crate) default: AdmissionTerms,
    pub(crate) profiles: BTreeMap<Name, AdmissionTerms>,
    pub(crate) shipped: ShippedProfiles,
    pub(crate) blocking: Nanos,
    pub(crate) pace: Arc<FuelRate>,
    pub(crate) office: Arc<ServiceBus>,
    pub(crate) shelf: Arc<TableRegistry>,
    pub(crate) filters: Arc<RequestFilters>,
}

/// A module that is admitted, compiled and started, and that has yet to get its place.
pub struct Prepared {
    pub(crate) spec: ModuleSpec,
    pub(crate) name: Name,
    pub(crate) admitted: Arc<Admitted>,
    pub(crate) tenant: SandboxInstance,
    pub(crate) longest: Longest,
    pub(crate) desk: Arc<Desk>,
    pub(crate) tables: Readings,
    pub(crate) binding: TableBinding,
    /// By which it was admitted.
    pub(crate) profile: Option<Name>,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").field("name", &self.name).field("spec", &self.spec).finish_non_exhaustive()
    }
}

/// The rules by which a node admits modules.
pub(crate) struct AdmissionRules<'a> {
    pub(crate) default: &'a AdmissionTerms,
    pub(crate) profiles: &'a BTreeMap<Name, AdmissionTerms>,
    pub(crate) shipped: ShippedProfiles,
    pub(crate) blocking: Nanos,
}

/// A module that a node admits.
pub(crate) struct Assessed {
    pub(crate) admitted: Admitted,
    pub(crate) longest: Longest,
    /// It runs as it is, without places where it can be suspended.
    is_short: bool,
    /// Its name in its session.
    pub(crate) name: Name,
}

impl AdmissionRules<'_> {
    /// Admits a module of a session, whose file's bytes are given unless it comes with weir.
    pub(crate) fn assess(
        &self,
        session: &SessionSpec,
        spec: &ModuleSpec,
        file: Option<Vec<u8>>,
    ) -> Result<Assessed, NodeError> {
        let module = || spec.module.clone();
        let bytes = match file {
            Some(bytes) => bytes,
            None => (self.shipped)(&spec.module).ok_or_else(|| NodeError::Unknown(module()))?.to_vec(),
        };
        let terms = match &session.profile {
            None => self.default,
            // The configuration may have lost it since the session was made. Another one would allow more than was meant.
            Some(name) => self.profiles.get(name).ok_or_else(|| NodeError::NoProfile(name.clone()))?,
        };
        let refused = |refusal| NodeError::Refused { module: module(), refusal };
        let admitted =
            Assessment::of(bytes, &spec.settings(), terms).and_then(Assessment::admit).map_err(refused)?;
        // What is short runs as it is; what is not, or is not known to be, gets places where it can be suspended.
        let mut longest = Longest::of(&admitted);
        let is_short = longest.call.0 < self.blocking.0 / 2 && admitted.tier() == Tier::Proved;
        if !is_short {
            longest = Longest::suspendable(&admitted);
        }
        if longest.call >= self.blocking {
            let (longest, blocking) = (longest.call, self.blocking);
            return Err(NodeError::TooLong { module: module(), longest, blocking });
        }
        if let Some(what) = not_apart(&admitted).filter(|_| session.process == Process::Own) {
            return Err(NodeError::Apart { module: module(), what });
        }
        let name = spec.name.clone().unwrap_or_else(|| admitted.manifest().name.clone());
        Ok(Assessed { admitted, longest, is_short, name })
    }
}

impl ModuleLoader {
    /// What modules are admitted by where a session names no profile, and by name.
    pub fn new(
        engine: Arc<Engine>,
        default: AdmissionTerms,
        profiles: BTreeMap<Name, AdmissionTerms>,
        shipped: ShippedProfiles,
        blocking: Nanos,
    ) -> Self {
        let calibration = default.calibration.clone();
        let nanos_per_cycle = weir_sandbox::ClockCheck::begin().nanos_per_cycle();
        let pace = Arc::new(FuelRate { calibration, nanos_per_cycle });
        Self {
            engine,
            default,
            profiles,
            shipped,
            blocking,
            pace,
            office: Arc::default(),
            shelf: Arc::default(),
            filters: Arc::new(RequestFilters::default()),
        }
    }

    /// The same engine and rules, with messages, tables and filters of its own.
    pub(crate) fn on_trial(&self) -> Self {
        Self {
            office: Arc::default(),
            shelf: Arc::default(),
            filters: Arc::new(RequestFilters::default()),
            ..self.clone()
        }
    }

    /// Names of its profiles.
    pub fn profiles(&self) -> Vec<Name> {
        self.profiles.keys().cloned().collect()
    }

    /// Admits, compiles and starts a module, whose file's bytes are given unless it comes with weir. This takes long. The processor time of the
    /// compiler's process is taken off `meter`, also where it fails. The caller takes off that of its own thread.
    pub(crate) fn prepare(
        &self,
        session: &SessionSpec,
        memory: &Arc<MemoryReservation>,
        limits: &SessionLimits,
        spec: &ModuleSpec,
        file: Option<Vec<u8>>,
        meter: &mut dyn CpuMeter,
    ) -> Result<Prepared, NodeError> {
        let module = || spec.module.clone();
        let rules = AdmissionRules {
            default: &self.default,
            profiles: &self.profiles,
            shipped: self.shipped,
            blocking: self.blocking,
        };
        let Assessed { admitted, longest, is_short, name } = rules.assess(session, spec, file)?;
        let failed = |error| NodeError::Load { module: module(), error };
        let before = memory.state();
        let short = |wanted: Option<Bytes>| NodeError::SessionMemory {
            session: session.name.clone(),
            module: name.clone(),
            wanted,
            left: before.left(),
            reserved: before.reserved,
        };
        let desk =
            self.office.desk(admitted.manifest().calls.iter().map(|name| session.used(name)).collect());
        let (mut tables, publisher, binding) =
            self.shelf.bind(session, &name, admitted.manifest(), memory)?;
        let tenant = match session.process {
            Process::Own => {
                let ward = RemoteInstance::start(
                    &Launcher::of_process(),
                    &self.engine,
                    admitted,
                    &spec.settings(),
                    !is_short,
                    (Some(memory), &limits.writes),
                    meter,
                );
                ward.map(|ward| {
                    let admitted = Arc::clone(ward.admitted());
                    (admitted, SandboxInstance::Apart { ward: Box::new(ward), _publisher: publisher })
                })
            }
            Process::Node => {
                let post: Arc<dyn MessageHandler> = Arc::clone(&desk) as _;
                let means = InstanceContext {
                    memory: Some(Arc::clone(memory)),
                    kept: Some(Arc::clone(&limits.kept)),
                    writes: Some(Arc::clone(&limits.writes)),
                    post: Some(post),
                    tables: tables.first(),
                    press: Some(publisher),
                };
                let program = self.engine.load_counting(admitted, !is_short, meter);
                program.and_then(|program| {
                    let instance = Instance::start_with(&self.engine, &program, means)?;
                    Ok((program.into_admitted(), SandboxInstance::Here(Box::new(instance))))
                })
            }
        };
        let (admitted, tenant) = match tenant {
            Err(LoadError::Memory { wanted, .. }) => return Err(short(Some(wanted))),
            started => started.map_err(failed)?,
        };
        if tenant.has_ended() {
            if memory.state().refused > before.refused {
                return Err(short(None));
            }
            let why = tenant.faults(0).into_iter().next();
            return Err(NodeError::Start { module: module(), fault: why.unwrap_or_default() });
        }
        let (spec, profile) = (spec.clone(), session.profile.clone());
        Ok(Prepared { spec, name, admitted, tenant, longest, desk, tables, binding, profile })
    }
}
