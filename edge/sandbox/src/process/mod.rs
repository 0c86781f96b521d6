//! Sandbox processes: instances in a process of their own, and the protocol with them.

pub(crate) mod remote;
