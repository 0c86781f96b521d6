//! The child's side of a sandbox process: executes the node's requests and reports the results.

use super::wire::{CallReport, InvalidMessage, PendingChanges, SandboxRequest, StartRequest, write_blocks};
use crate::back_end::NativeSlot;
use crate::engine::{CompiledModule, Engine, EngineOptions, LoadError};
use crate::run::event::InstanceContext;
use crate::run::fault::FunctionIndices;
use crate::run::instance::Instance;
use crate::run::rights::WriteRights;
use crate::run::space::Area;
use crate::run::suspend::CallStep;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use weir_os::child;
use weir_os::helper::HelperChannel;
use weir_wire::WriteFields;
use {
    weir_admission::{
        Admitted, Assessment, CalibratedProfile, Calibration, CalibrationError, ModuleRefusal, Profile,
        ProfileError,
    },
    weir_session::Records,
};

/// The length limit of a request in bytes. The longest request has a module and the module's code.
const REQUEST_BYTES_MAX: usize = 512 << 20;

/// The reason why a sandbox process ends early. The cause is the node or its system, not the module.
#[derive(Debug, thiserror::Error)]
pub enum SandboxProcessError {
    /// The connection to the node is broken.
    #[error("the node is gone: {0}")]
    Connection(#[from] io::Error),
    /// The node sent an invalid message.
    #[error("the node: {0}")]
    Invalid(String),
    /// The sandbox process refused the module, although the node had admitted it.
    #[error(transparent)]
    Refused(#[from] ModuleRefusal),
    /// The sandbox cannot be created.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The process cannot be confined to the module's code.
    #[error(transparent)]
    Confine(#[from] weir_os::ConfineError),
}

impl From<InvalidMessage> for SandboxProcessError {
    fn from(error: InvalidMessage) -> Self {
        Self::Invalid(error.to_string())
    }
}

impl From<ProfileError> for SandboxProcessError {
    fn from(error: ProfileError) -> Self {
        Self::Invalid(error.to_string())
    }
}

impl From<CalibrationError> for SandboxProcessError {
    fn from(error: CalibrationError) -> Self {
        Self::Invalid(error.to_string())
    }
}

/// Runs a sandbox process: confines itself, starts the module that the node sends, and executes the node's requests until
/// the connection closes.
///
/// # Errors
/// [`SandboxProcessError`].
pub fn sandbox_child() -> Result<(), SandboxProcessError> {
    let mut channel = HelperChannel::from_standard_input()?;
    // The process is confined before it reads any untrusted input.
    child::confine_or_exit(weir_os::confine_sandbox);
    let Some(request) = channel.receive(REQUEST_BYTES_MAX)? else { return Ok(()) };
    let writes = Arc::new(WriteRights::new(WriteFields::ALL));
    let instance = start(StartRequest::read(&request)?, &writes)?;
    let mut child = SandboxChild { instance, writes, faults_reported: 0 };
    // The request has copies of the module and its code, which have been loaded.
    drop(request);
    let report = child.report(CallStep::Done(0));
    channel.send(&report.write())?;
    while let Some(request) = channel.receive(REQUEST_BYTES_MAX)? {
        let step = match SandboxRequest::read(&request)? {
            SandboxRequest::Map { is_packets, areas, is_fixed } => {
                let mut memory = Vec::new();
                for _ in &areas {
                    memory.push(channel.receive_descriptor()?);
                }
                let mut mapped = Vec::new();
                for (memory, range) in memory.iter().zip(areas) {
                    let len = usize::try_from(range.len).map_err(|_| InvalidMessage)?;
                    mapped.push(Area { fd: memory.as_fd(), offset: range.offset, len, is_fixed });
                }
                let instance = &mut child.instance;
                match mapped.as_slice() {
                    areas if is_packets => instance.map_packet_areas(areas)?,
                    [area] => instance.map_descriptors(*area)?,
                    _ => return Err(InvalidMessage.into()),
                };
                CallStep::Done(0)
            }
            SandboxRequest::Begin(changes, call, slice) => {
                child.apply(changes);
                child.instance.begin(call, slice)
            }
            SandboxRequest::Resume(slice) => child.instance.resume(slice),
            SandboxRequest::Abort => CallStep::Done(child.instance.abort()),
            SandboxRequest::ReadState => {
                channel.send(&write_blocks(&child.instance.state()?))?;
                continue;
            }
            SandboxRequest::SetState(blocks) => {
                child.instance.set_state(&blocks)?;
                CallStep::Done(0)
            }
        };
        let report = child.report(step);
        channel.send(&report.write())?;
    }
    Ok(())
}

/// Admits and starts the module of a request. From then on the process can load no other code.
fn start(request: StartRequest, writes: &Arc<WriteRights>) -> Result<Instance, SandboxProcessError> {
    let to_u32 = |number: u64| u32::try_from(number).map_err(|_| InvalidMessage);
    let calibration = Calibration::parse(&request.calibration)?;
    let profile = CalibratedProfile::new(Profile::parse(&request.profile)?, calibration);
    let admitted = Assessment::assess(request.module, &request.settings, &profile)?.admit()?;
    let admitted = if request.is_unmetered { admitted.without_meter() } else { admitted };
    let call_limit = Duration::from_nanos(request.call_limit);
    let engine = Engine::new(EngineOptions { call_limit, ..EngineOptions::default() }, None)?;
    let (native, rewritten) = native_code(&engine, &admitted, request.is_suspendable, request.object);
    let compiled = CompiledModule {
        code: Some(request.code).filter(|code| !code.is_empty()),
        native,
        rewritten,
        checks: engine.checks(&admitted, request.is_suspendable),
        indices: FunctionIndices {
            imported: to_u32(request.imported)?,
            functions: to_u32(request.functions)?,
            added: to_u32(request.added)?,
        },
        from_cache: false,
    };
    // SAFETY: only the node has the other end of the channel. The node runs this same program. Its engine, which compiled
    // this module, has the same values here of all options that affect code.
    let program = unsafe { engine.assemble(admitted, compiled, request.is_given) }?;
    // The code is sealed before the module runs. Sealed memory cannot be unmapped, so the code is never dropped.
    weir_os::seal_loaded_code(&program.code_ranges())?;
    std::mem::forget(program.clone());
    program.read_source_lines();
    let context = InstanceContext { writes: Some(Arc::clone(writes)), ..InstanceContext::default() };
    Ok(Instance::start_with(&engine, &program, context)?)
}

/// Returns the verified code of the request's object file, and the rewritten module. The process verifies the code itself.
fn native_code(
    engine: &Engine,
    admitted: &Admitted,
    is_suspendable: bool,
    object: Vec<u8>,
) -> (NativeSlot, Vec<u8>) {
    if object.is_empty() {
        let why = "the cache had no code of LLVM when the process started";
        return (NativeSlot::without_code(why), Vec::new());
    }
    let rewritten = match is_suspendable {
        true => engine.rewritten_suspendable(admitted),
        false => engine.rewritten(admitted),
    };
    match rewritten {
        Ok(rewritten) => (NativeSlot::from_object(&rewritten, object), rewritten),
        Err(error) => (NativeSlot::without_code(error.to_string()), Vec::new()),
    }
}

/// The state of a sandbox process.
struct SandboxChild {
    instance: Instance,
    writes: Arc<WriteRights>,
    /// The number of the module's faults that have been reported to the node.
    faults_reported: usize,
}

impl SandboxChild {
    /// Applies the changes of a request, before the request's call.
    fn apply(&mut self, changes: PendingChanges) {
        self.writes.change(changes.writes);
        if changes.begins_block {
            self.instance.begin_block();
        }
        if let Some(open) = changes.open {
            self.instance.connect_outputs(open);
        }
        if changes.is_withdrawn {
            self.instance.withdraw_verified_code();
        }
        if changes.ignores_patches {
            self.instance.ignore_patches();
        }
    }

    /// Builds the report of a call: the state of the instance, and the results if the call is complete.
    fn report(&mut self, step: CallStep) -> CallReport {
        let instance = &mut self.instance;
        let mut report = CallReport {
            memory: instance.memory(),
            counters: instance.counters(),
            refused_patches: self.writes.refused(),
            has_ended: instance.has_ended(),
            is_stopped: instance.is_stopped(),
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
            report.faults = instance.fault_messages(self.faults_reported);
            self.faults_reported += report.faults.len();
        }
        report
    }
}
