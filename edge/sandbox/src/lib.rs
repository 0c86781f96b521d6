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

mod allowance;
mod batch;
mod cache;
mod caller;
mod clock;
mod compile;
mod copy;
mod engine;
mod entry;
mod event;
mod fault;
mod guest;
mod host;
mod instance;
mod interrupt;
mod kept;
mod meter;
mod outgoing;
mod pattern;
mod rewrite;
mod rights;
mod slice;
mod space;
mod suspend;
mod table;
mod tally;
mod ward;
mod watchdog;
mod writer;

pub use cache::{Cache, CacheError, user_folder};
pub use clock::{Calibration, Cycles, process_time, thread_time};
pub use compile::{CompileError, CompileLimits, compile_child};
pub use engine::{Compiling, Control, Engine, Foreign, LoadError, Options, Program};
pub use event::{Means, News, Post};
pub use fault::{Fault, FaultKind};
pub use host::{LogLine, Patch};
pub use instance::{Batch, Counters, During, Incident, Instance};
pub use kept::{Keeper, NotPinned, Pinned};
pub use rights::WriteRights;
pub use slice::Budget;
pub use space::Area;
pub use suspend::{Call, Step};
pub use table::{Press, TableVersion};
pub use ward::{WARD, Ward, WardError, ward_child};
pub use watchdog::EXIT_STUCK;
pub use weir_os::spawner::{GroupSetting, SPAWNER, Settings, Spawner, serve as start_processes};
pub use weir_os::{Isolation, Launcher};
