//! A ward, from within: it does what the node says, and says what has become of it.

use super::wire::{CallReport, Job, Nonsense, Notes, SandboxRequest};
use crate::load::engine::{CompiledModule, Engine, EngineOptions, LoadError};
use crate::run::event::InstanceContext;
use crate::run::fault::Indices;
use crate::run::instance::Instance;
use crate::run::rights::WriteRights;
use crate::run::space::Area;
use crate::run::suspend::CallStep;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use weir_os::child;
use weir_os::companion::HelperChannel;
use weir_wire::WriteFields;
use {
    weir_admission::{
        AdmissionTerms, Assessment, Calibration, CalibrationError, ModuleRefusal, Profile, ProfileError,
    },
    weir_session::Records,
};

/// What the node sends is no longer than that: a module, its code, and little else.
const REQUEST_BYTES_MAX: usize = 512 << 20;

/// Why a ward ends before the node has it end. To blame is the node, or its system.
#[derive(Debug, thiserror::Error)]
pub enum SandboxProcessError {
    /// The line to the node is broken.
    #[error("the node is gone: {0}")]
    Line(#[from] io::Error),
    /// The node says nothing that a node says.
    #[error("the node: {0}")]
    Said(String),
    /// The module was admitted by the node and is not here.
    #[error(transparent)]
    Refused(#[from] ModuleRefusal),
    /// Its sandbox cannot be made.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// It cannot be closed to other code than its module's.
    #[error(transparent)]
    Confine(#[from] weir_os::ConfineError),
}

impl From<Nonsense> for SandboxProcessError {
    fn from(nonsense: Nonsense) -> Self {
        Self::Said(nonsense.to_string())
    }
}

impl From<ProfileError> for SandboxProcessError {
    fn from(error: ProfileError) -> Self {
        Self::Said(error.to_string())
    }
}

impl From<CalibrationError> for SandboxProcessError {
    fn from(error: CalibrationError) -> Self {
        Self::Said(error.to_string())
    }
}

/// What a ward does: gives up everything but what is open, starts the module that it is sent, and calls it as it is told until nobody tells it anything.
///
/// # Errors
/// [`SandboxProcessError`].
pub fn ward_child() -> Result<(), SandboxProcessError> {
    let mut line = HelperChannel::of_standard_input()?;
    // Before anything of a stranger's is looked at.
    child::confined(weir_os::ward);
    let Some(job) = line.hear(REQUEST_BYTES_MAX)? else { return Ok(()) };
    let writes = Arc::new(WriteRights::new(WriteFields::ALL));
    let instance = start(Job::read(&job)?, &writes)?;
    let mut inside = Inside { instance, writes, told: 0 };
    // It is in the sandbox now.
    drop(job);
    let report = inside.report(CallStep::Done(0));
    line.say(&report.write())?;
    while let Some(request) = line.hear(REQUEST_BYTES_MAX)? {
        let step = match SandboxRequest::read(&request)? {
            SandboxRequest::Map { is_packets, offset, len } => {
                let memory = line.take()?;
                let len = usize::try_from(len).map_err(|_| Nonsense)?;
                let area = Area { fd: memory.as_fd(), offset, len };
                let instance = &mut inside.instance;
                if is_packets {
                    instance.map_packets(area)?
                } else {
                    instance.map_descriptors(area)?
                };
                CallStep::Done(0)
            }
            SandboxRequest::Begin(notes, call, budget) => {
                inside.note(notes);
                inside.instance.begin(call, budget)
            }
            SandboxRequest::Resume(budget) => inside.instance.resume(budget),
            SandboxRequest::Abandon => CallStep::Done(inside.instance.abandon()),
        };
        let report = inside.report(step);
        line.say(&report.write())?;
    }
    Ok(())
}

fn start(job: Job, writes: &Arc<WriteRights>) -> Result<Instance, SandboxProcessError> {
    let short = |number: u64| u32::try_from(number).map_err(|_| Nonsense);
    let terms = AdmissionTerms {
        profile: Profile::parse(&job.profile)?,
        calibration: Calibration::parse(&job.calibration)?,
    };
    let admitted = Assessment::of(job.module, &job.settings, &terms)?.admit()?;
    let call_limit = Duration::from_nanos(job.call_limit);
    let engine = Engine::new(EngineOptions { call_limit, ..EngineOptions::default() }, None)?;
    let compiled = CompiledModule {
        code: job.code,
        checks: engine.checks(&admitted, job.is_suspendable),
        indices: Indices {
            imported: short(job.imported)?,
            functions: short(job.functions)?,
            is_shifted: job.is_shifted,
        },
        from_cache: false,
    };
    // SAFETY: the node is this program, which has compiled this very module with the options of its own engine; those that shape code are the same here. Nobody
    // else has the other end of the line.
    let program = unsafe { engine.assemble(admitted, compiled) }?;
    // Before anything of the module runs. What is sealed cannot be unmapped: the code stays until the process ends.
    weir_os::code_is_loaded(program.code_range())?;
    std::mem::forget(program.clone());
    let means = InstanceContext { writes: Some(Arc::clone(writes)), ..InstanceContext::default() };
    Ok(Instance::start_with(&engine, &program, means)?)
}

/// A module, and how many of its faults have been told.
struct Inside {
    instance: Instance,
    writes: Arc<WriteRights>,
    told: usize,
}

impl Inside {
    fn note(&mut self, notes: Notes) {
        self.writes.change(notes.writes);
        if notes.begins_block {
            self.instance.begin_block();
        }
        if let Some(open) = notes.open {
            self.instance.open_outputs(open);
        }
        if notes.ignores_patches {
            self.instance.ignore_patches();
        }
    }

    fn report(&mut self, step: CallStep) -> CallReport {
        let instance = &mut self.instance;
        let mut report = CallReport {
            memory: instance.memory(),
            counters: instance.counters(),
            refused: self.writes.refused(),
            has_ended: instance.has_ended(),
            is_suspended: step == CallStep::Suspended,
            ..CallReport::default()
        };
        if let CallStep::Done(drops) = step {
            report.drops = drops;
            report.unserved = instance.take_unserved();
            report.records = instance.take_records(Records::default());
            report.frames = instance.take_frames(Records::default());
            report.patches = instance.take_patches();
            report.log = instance.take_log();
            let new = instance.incidents().iter().skip(self.told);
            report.faults = new.map(|incident| incident.fault.to_string()).collect();
            self.told += report.faults.len();
        }
        report
    }
}
