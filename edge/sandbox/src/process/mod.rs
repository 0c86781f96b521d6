//! Sandbox processes: a module's instance in a process of its own, and the protocol between the node and that process.

pub(crate) mod remote;
