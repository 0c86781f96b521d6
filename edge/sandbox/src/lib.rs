//! Loads admitted modules into WebAssembly sandboxes that read packets in place.
//!
//! ```text
//! Admitted ──load──► Program ──start──► Instance ──run, tick, stop──► records, drops, patches, faults
//! ```
//!
//! A call of a module that was loaded for that can be suspended and resumed: [`Instance::begin`].
//!
//! [`Engine::load`] takes only what admission has checked. An [`Instance`] sees its own memory, and, mapped read-only at fixed
//! guest addresses, the packets and their descriptors, and the tables that others share with it; what it can call is in
//! `weir_abi::host`. Where the host looks at memory that a module points to is one function, in `guest.rs`.

mod load;
mod process;
mod run;
mod watchdog;

pub use load::cache::{Cache, CacheError, user_folder};
pub use load::compile::{CompileError, CompileLimits, compile_child};
pub use load::engine::{Compiling, Control, Engine, EngineOptions, Foreign, LoadError, LoadedModule};
pub use process::ward::{RemoteInstance, SandboxProcessError, WARD, ward_child};
pub use run::clock::{ClockCheck, Cycles, process_time, thread_time};
pub use run::event::{InstanceContext, MessageHandler, News};
pub use run::fault::{CallFault, FaultKind};
pub use run::host::{LogLine, Patch};
pub use run::instance::{BatchInput, During, Incident, Instance, InstanceCounters};
pub use run::kept::{NotPinned, PacketPinner, Pinned};
pub use run::rights::WriteRights;
pub use run::slice::FuelSlice;
pub use run::space::Area;
pub use run::suspend::{Call, CallStep};
pub use run::table::{TablePublisher, TableVersion};
pub use watchdog::EXIT_STUCK;
pub use weir_os::spawner::{GroupSetting, SPAWNER, Settings, Spawner, serve as start_processes};
pub use weir_os::{Isolation, Launcher};
