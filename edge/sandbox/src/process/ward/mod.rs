//! A module in a process of its own, a *ward*.
//!
//! Sandboxes in one process are walls against what a program can do by its instructions. They are none against what a processor does ahead of them: whatever
//! is mapped in the process can be read by speculation, though slowly and noisily, and told by what is in a cache. A ward has mapped what its module may see
//! and nothing else: its private memory, and the packets and descriptors of its channel's selection. The interface's own memory, other sessions' packets, keys
//! and the node's memory are not there.
//!
//! ```text
//! node                                                        ward (Landlock, seccomp, no privileges)
//! thread of the core ── call, budget ──────────────────────►  thread on the same core ── Instance::begin, resume
//!   waits, and bills the wait   ◄── drops, records, frames, …     reads packets where they lie, read-only
//! ```
//!
//! - The node decides everything: when the module is called, with which packets, for how long. The ward's thread is bound to the core of the virtual processor,
//!   and the core's own thread waits for its answer: so there is one schedule, and the time is the session's.
//! - A ward that does not answer when its slice is over is halted where it is, as a call in the node is suspended; it goes on in its next slice. One that
//!   keeps doing so is killed.
//! - What a ward says is a stranger's: [`wire`] takes only what a module could have done. Who takes a ward over by a flaw in the sandbox has a module
//!   without limits on its own packets, in a process that can open, reach and execute nothing.
//! - It is this program once more, with the argument [`WARD`]. The node sends it the module, the terms that it was admitted by, and its code, which was
//!   compiled elsewhere; the node itself never maps that code.
//! - The module's memory is taken from its session as a whole when it is loaded. Named tables, services and kept packets are not for wards: they are refused
//!   before.

mod inside;
mod outside;
mod wire;

pub use inside::{SandboxProcessError, ward_child};
pub use outside::RemoteInstance;

/// The argument that makes a process of weir a ward; it has to answer it with [`ward_child`].
pub const WARD: &str = "ward";
