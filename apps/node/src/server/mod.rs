//! The server: peers' connections, requests in their order, and what the node keeps between them.

pub mod daemon;
pub(crate) mod deliveries;
pub(crate) mod descriptors;
pub(crate) mod fair;
pub mod isolation;
pub(crate) mod log;
pub mod metrics;
pub(crate) mod recent;
pub(crate) mod requests;
pub(crate) mod revoked;
pub(crate) mod service;
pub mod trust;
pub(crate) mod turns;
pub(crate) mod uploads;
pub mod verify;
