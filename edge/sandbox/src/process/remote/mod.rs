//! Sandbox processes: a module in a process of its own.
//!
//! Sandboxes in one process isolate against the instructions that a module executes. They do not isolate against
//! speculative execution: all memory mapped in the process can be read speculatively, though slowly and noisily, and
//! leaked through the cache. A sandbox process maps only the memory that its module may see: its private memory, and
//! the packets and descriptors of its channel's selection. The interface's own memory, other sessions' packets, keys
//! and the node's memory are not mapped.
//!
//! ```text
//! node                                                        sandbox process (Landlock, seccomp, no privileges)
//! core thread ── call, budget ─────────────────────────────►  thread on the same core ── Instance::begin, resume
//!   waits, and bills the wait   ◄── drops, records, frames, …     reads packets in place, read-only
//! ```
//!
//! - The node decides everything: when the module is called, with which packets, for how long. The process's thread
//!   is bound to the core of the virtual CPU, and the core thread waits for its answer. So there is one schedule, and
//!   the time is charged to the session.
//! - A process that does not answer by the end of its slice is stopped by a signal, as a call in the node is
//!   suspended; it continues in its next slice. A process that keeps doing so is killed.
//! - The process's reports are not trusted: [`wire`] accepts only results that a module could have produced. An
//!   attacker who takes the process over by a flaw in the sandbox controls a module without limits on its own
//!   packets, in a process that can open, reach and execute nothing.
//! - The process runs this same program with the argument [`SANDBOX_ARGUMENT`]. The node sends it the module, the
//!   terms of admission, and the code, which was compiled elsewhere. The node itself never maps that code.
//! - The module's whole memory is reserved from its session at load. Named tables, services and kept packets are not
//!   available in sandbox processes: such modules are refused earlier.

mod child;
mod host;
mod wire;

pub use child::{SandboxProcessError, sandbox_child};
pub use host::RemoteInstance;

/// The command-line argument that makes a process of weir a sandbox process. The program must answer it with
/// [`sandbox_child`].
pub const SANDBOX_ARGUMENT: &str = "sandbox";
