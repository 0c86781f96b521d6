//! Where modules are analysed, compiled and started, before they get their places.

use super::{Prepared, Shipped, Workshop};
use crate::error::NodeError;
use crate::filters::Filters;
use crate::guest::{Longest, Pace};
use crate::limits::Limits;
use crate::spec::{ModuleSpec, SessionSpec};
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_netio::FilterCompiler;
use weir_sandbox::{Engine, Instance, LoadError, Means, Post};
use weir_session::{Assessment, MemoryReservation, Name, Terms, Tier};
use weir_units::Nanos;

impl Workshop {
    /// What modules are admitted by where a session names no profile, and by name.
    pub fn new(
        engine: Arc<Engine>,
        default: Terms,
        profiles: BTreeMap<Name, Terms>,
        shipped: Shipped,
        blocking: Nanos,
    ) -> Self {
        let calibration = default.calibration.clone();
        let nanos_per_cycle = weir_sandbox::Calibration::begin().nanos_per_cycle();
        let pace = Arc::new(Pace { calibration, nanos_per_cycle });
        Self {
            engine,
            default,
            profiles,
            shipped,
            blocking,
            pace,
            office: Arc::default(),
            shelf: Arc::default(),
            filters: Arc::new(Filters::new(FilterCompiler::default())),
        }
    }

    /// Names of its profiles.
    pub fn profiles(&self) -> Vec<Name> {
        self.profiles.keys().cloned().collect()
    }

    /// Admits, compiles and starts a module, whose file's bytes are given unless it is one that comes with weir. This is what takes long; what of it
    /// others than this thread take is added to `used`, also where it fails.
    pub(crate) fn prepare(
        &self,
        session: &SessionSpec,
        memory: &Arc<MemoryReservation>,
        limits: &Limits,
        spec: &ModuleSpec,
        file: Option<Vec<u8>>,
        used: &mut Nanos,
    ) -> Result<Prepared, NodeError> {
        let module = || spec.module.clone();
        let bytes = match file {
            Some(bytes) => bytes,
            None => (self.shipped)(&spec.module).ok_or_else(|| NodeError::Unknown(module()))?.to_vec(),
        };
        let terms = match &session.profile {
            None => &self.default,
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
        let name = spec.name.clone().unwrap_or_else(|| admitted.manifest().name.clone());
        let failed = |error| NodeError::Load { module: module(), error };
        let program = self.engine.load_counting(admitted, !is_short, used).map_err(failed)?;
        let before = memory.state();
        let short = || NodeError::SessionMemory {
            session: session.name.clone(),
            module: name.clone(),
            left: before.left(),
            reserved: before.reserved,
        };
        let uses = program.admitted().manifest().calls.iter().map(|name| session.used(name));
        let desk = self.office.desk(uses.collect());
        let post: Arc<dyn Post> = Arc::clone(&desk) as _;
        let (mut tables, publisher, binding) =
            self.shelf.bind(session, &name, program.admitted().manifest(), memory)?;
        let memory_of = Some(Arc::clone(memory));
        let means = Means {
            memory: memory_of,
            kept: Some(Arc::clone(&limits.kept)),
            writes: Some(Arc::clone(&limits.writes)),
            post: Some(post),
            tables: tables.first(),
            press: Some(publisher),
        };
        let instance = match Instance::start_with(&self.engine, &program, means) {
            Err(LoadError::Memory { .. }) => return Err(short()),
            started => started.map_err(failed)?,
        };
        if instance.has_ended() {
            if memory.state().refused > before.refused {
                return Err(short());
            }
            let why = instance.incidents().first().map(|incident| incident.fault.to_string());
            return Err(NodeError::Start { module: module(), fault: why.unwrap_or_default() });
        }
        let (spec, profile) = (spec.clone(), session.profile.clone());
        Ok(Prepared { spec, name, program, instance, longest, desk, tables, binding, profile })
    }
}
