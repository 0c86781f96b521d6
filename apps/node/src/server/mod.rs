//! The server: connections and requests of clients, and the daemon that executes them.

pub(crate) mod cached;
pub mod case_simulation;
pub(crate) mod compile_queue;
pub mod daemon;
pub(crate) mod deliveries;
pub mod isolation;
pub mod metrics;
pub(crate) mod requests;
pub(crate) mod revocation_files;
pub(crate) mod service;
pub(crate) mod session_store;
pub(crate) mod state_version;
pub mod trust;
pub(crate) mod unwritten_revocations;
pub(crate) mod uploads;
pub mod verify;
pub(crate) mod virtual_clock;
