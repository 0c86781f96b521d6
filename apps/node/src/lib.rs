//! The live node: modules of several parties on one machine's live traffic, each with guaranteed resources.
//!
//! - [`control`]: requests, session descriptions, configuration and authorisation. It uses no thread, socket or packet.
//! - `core_thread`: the thread of each core that runs modules, and a module's task on it.
//! - [`sessions`]: the parts of a node's sessions: modules, memory, channels, tables, links, records and usage.
//! - [`server`]: connections, the execution of requests, metrics, and the state that the node keeps between requests.
//! - [`client`]: the client's side of the node's protocol.
//! - [`input_oracle`]: checks for fuzzing the inputs of a node and of a client.
//! - `log` and `sync`: the log, and mutexes with a checked order.

#![forbid(unsafe_code)]

pub mod client;
pub mod control;
mod core_thread;
pub mod input_oracle;
mod log;
pub mod server;
pub mod sessions;
mod sync;

pub use control::authority::authorise;
pub use sessions::error::NodeError;
pub use sessions::view::SecretError;
pub use weir_os::spawner::{SPAWNER, ServeError, serve as start_processes};
pub use weir_remote::{KEY_AGENT_ARGUMENT, run_key_agent};
pub use weir_sandbox::{SANDBOX_ARGUMENT, SandboxProcessError, sandbox_child};
