//! Sandbox processes: a module in a process of its own.
//!
//! Sandboxes in one process isolate against the instructions that a module executes, but not against speculative
//! execution: a module may be able to read all memory of the process speculatively, and to leak it through the cache,
//! though slowly and with errors. A sandbox process maps only the memory that its module may see: its private memory, and
//! the packets and descriptors of its channel's selection. The interface's own memory, other sessions' packets, keys
//! and the node's memory are not mapped.
//!
//! ```text
//! node                                                        sandbox process (Landlock, seccomp, no privileges)
//! core thread ── call, slice ──────────────────────────────►  thread on the same core ── Instance::begin, resume
//!   waits, and charges the wait ◄── drops, records, frames, …     reads packets in place, read-only
//! ```
//!
//! - The node decides when the module is called, with which packets and for how long. The process's thread is bound to
//!   the core of the virtual CPU, and the core thread waits for the answer. So the node's CPU scheduler schedules the
//!   process too, and its time is charged to the session.
//! - A process that does not answer by the end of its slice is stopped by a signal, and continues in its next slice, as a
//!   call inside the node is suspended and resumed. A process that does not answer for too long is killed.
//! - The process's reports are not trusted: [`wire`] accepts only results that a module could have produced. An
//!   attacker who takes the process over by a flaw in the sandbox controls a module without limits on its own
//!   packets, in a process that can open, reach and execute nothing.
//! - The process runs this same program with the argument [`SANDBOX_ARGUMENT`]. The node sends it the module, the
//!   profile and calibration for its admission, and the code, which a compiler child has made. The node itself never maps
//!   that code.
//! - All memory that the module may use is reserved from its session at load. Named tables, services and kept packets are
//!   not available in sandbox processes: the node refuses modules that need them.

mod child;
mod host;
mod wire;

pub use child::{SandboxProcessError, sandbox_child};
pub use host::RemoteInstance;

/// The command-line argument that makes a process of weir a sandbox process. The program must answer it with
/// [`sandbox_child`].
pub const SANDBOX_ARGUMENT: &str = "sandbox";
