//! The server: connections and requests of clients, and the daemon that executes them.

pub mod case_simulation;
pub(crate) mod chain_clocks;
pub mod child_isolation;
pub(crate) mod compile_queue;
pub mod config_check;
pub mod daemon;
pub(crate) mod deliveries;
pub(crate) mod endpoints;
pub mod metrics;
pub(crate) mod request_usage;
pub(crate) mod revocation_files;
pub(crate) mod session_store;
pub(crate) mod single_value_cache;
pub(crate) mod state_version;
pub mod trust;
pub(crate) mod unwritten_revocations;
pub(crate) mod uploads;
