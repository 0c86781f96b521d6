//! The thread of a core, and the modules that it runs.
//!
//! - [`runner`]: the thread's loop. It runs the virtual CPU that the scheduler chooses, and reads the thread's mailbox between two runs.
//! - [`task`]: a module's task: its queue, sandbox, output channels and records.
//! - [`sandbox`]: the sandbox of a task, in the node's process or in a process of its own.
//! - [`session_part`]: traits of the parts of a session that a task uses.
//! - [`service_bus`]: calls of services between modules, also of different cores.
//! - [`record_sender`]: the sender of a task's output to the records thread.
//! - [`cpu_clock`]: the processor time of each run, and the time for which other programs had the core.
//! - [`trace`]: files with a scheduler's inputs and decisions, for replay.

pub(crate) mod cpu_clock;
pub(crate) mod record_sender;
pub(crate) mod runner;
pub(crate) mod sandbox;
pub(crate) mod service_bus;
pub(crate) mod session_part;
pub(crate) mod task;
pub(crate) mod trace;
