//! Loads admitted modules into WebAssembly sandboxes that read packets in place.
//!
//! ```text
//! Admitted ──load──► LoadedModule ──start──► Instance ──run, tick, stop──► records, drops, patches, faults
//! ```
//!
//! Calls of a module that was loaded with [`Engine::load_suspendable`] can be suspended and resumed:
//! [`Instance::begin`].
//!
//! [`Engine::load`] takes only modules that admission has checked. The module of an [`Instance`] can access its private
//! memory and call the host functions in `weir_abi::host`. It can read packets, descriptors and shared tables, which are
//! mapped read-only at fixed guest addresses. All accesses of the host to guest memory go through `guest_memory.rs`.

mod back_end;
mod compiled_object;
mod engine;
mod explain;
mod given_object;
mod load;
mod process;
mod run;
mod watchdog;

pub use back_end::{BackEnd, CodeSymbol, CodeWithdrawal, LlvmUse};
pub use compiled_object::{CheckedObject, CompiledObject, ObjectFailure};
pub use engine::{
    CheckMode, Engine, EngineOptions, LoadError, LoadedModule, ModuleCode, WasmtimeCheck, compile_child,
    compile_llvm_child, llvm_version_child,
};
pub use explain::{
    CodeOrigin, ExplainedCode, ExplainedFunction, ExplainedGlobal, ExplainedInstruction, LlvmExplanation,
    ModuleFunction, WithoutMachineCode,
};
pub use given_object::{GivenObject, ObjectRefusal};
pub use load::cache::{Cache, CacheError, user_folder};
pub use load::compile::{CompileError, CompileLimits};
pub use process::remote::{RemoteInstance, SANDBOX_ARGUMENT, SandboxProcessError, sandbox_child};
pub use run::cipher;
pub use run::clock::{ClockCheck, Cycles, process_time, thread_time};
pub use run::event::{InstanceContext, MessageHandler, ModuleEvent};
pub use run::fault::{CallFault, FaultKind};
pub use run::host::LogLine;
pub use run::instance::{BatchInput, During, Incident, Instance, InstanceCounters};
pub use run::kept::{NotPinned, PacketPinner, Pinned};
pub use run::patching::{Patch, PatchBytes};
#[doc(hidden)]
pub use run::pattern::find_both_ways;
pub use run::rights::WriteRights;
pub use run::slice::FuelSlice;
pub use run::space::Area;
pub use run::suspend::{Call, CallStep};
pub use run::table::{TablePublisher, TableVersion};
pub use run::trace::{TraceStep, TracedCall, TracedEvent, TracedHostCall};
pub use watchdog::EXIT_STUCK;
pub use weir_lower::IsolatedAccesses;
pub use weir_os::spawner::{GroupSetting, SPAWNER, Settings, Spawner, serve as start_processes};
pub use weir_os::{Isolation, Launcher};
