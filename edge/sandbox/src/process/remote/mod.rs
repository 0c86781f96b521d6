//! Sandbox processes: a module in a process of its own.
//!
//! A sandbox inside the node's process confines the instructions that a module executes, but not speculative execution. A
//! module may be able to read all memory of the process speculatively, and to leak it through the cache, though slowly and
//! with errors. A sandbox process maps only the memory that its module may see: the module's private memory, and the
//! packets and descriptors of its channel's selection. The interface's own memory, other sessions' packets, keys and the
//! node's memory are not mapped.
//!
//! ```text
//! node                                                        sandbox process (Landlock, seccomp, no privileges)
//! core thread ── call, slice ──────────────────────────────►  thread on the same core ── Instance::begin, resume
//!   waits, and charges the wait ◄── drops, records, frames, …     reads packets in place, read-only
//! ```
//!
//! - The node decides when the module is called, with which packets and for how long. The process's thread is bound to
//!   the core of the virtual CPU, and the core thread waits for the answer. So the node's CPU scheduler also schedules the
//!   process, whose time is charged to the session.
//! - A process that does not answer by the end of its slice is stopped by a signal, and continues in its next slice, like a
//!   suspended call inside the node. A process that does not answer for 10 s of one call is killed.
//! - The process's reports are not trusted: [`wire`] accepts only results that a module could have produced. An attacker
//!   who takes over the process by a flaw in the sandbox can do with the channel's packets what any module of the session
//!   could do. The process can open no file, reach no other process and execute no program.
//! - The process runs this same program with the argument [`SANDBOX_ARGUMENT`]. The node sends it the module, the profile
//!   and calibration for the module's admission, and the compiled code. The node itself never maps this code.
//! - All memory that the module may use is reserved from its session when the module is loaded. Shared tables, services and
//!   kept packets are not available in sandbox processes, so the node refuses modules that need them.

mod child;
mod host;
mod wire;

pub use child::{SandboxProcessError, sandbox_child};
pub use host::RemoteInstance;

/// The command-line argument that makes a process of weir a sandbox process. A program that is started with this argument
/// must call [`sandbox_child`].
pub const SANDBOX_ARGUMENT: &str = "sandbox";
