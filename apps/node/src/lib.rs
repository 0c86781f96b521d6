//! The live node: several parties' modules on one machine's live traffic, each with what it was promised.

#![forbid(unsafe_code)]

pub mod client;
pub mod control;
mod error;
pub mod exercise;
mod guest;
mod intake;
mod laps;
pub mod link;
mod outbox;
mod overflow;
mod plan;
mod runner;
pub mod server;
pub mod sessions;
mod tenant;
mod trace;

pub use control::authority::authorise;
pub use error::NodeError;
pub use sessions::view::SecretError;
pub use weir_os::spawner::{SPAWNER, ServeError, serve as start_processes};
pub use weir_remote::{KEEPER, keep as keep_key};
pub use weir_sandbox::{SandboxProcessError, WARD, ward_child};
