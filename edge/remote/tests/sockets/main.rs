//! A node in a process of its own, with honest and hostile clients.

#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod crowd;
mod datagrams;
mod erasure;
mod flood;
mod forged;
mod honest;
mod hostile;
mod key_agent;
mod middle;
mod node;

#[path = "../../../../core/trust/tests/association/pair.rs"]
#[allow(dead_code, reason = "shared with tests that have no sockets")]
mod pair;
#[path = "../../../../core/trust/tests/association/raw.rs"]
#[allow(dead_code, reason = "shared with tests that have no sockets")]
mod raw;
