//! A node in a process of its own, and those who connect to it: honest ones, and others.

#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod crowd;
mod erasure;
mod flood;
mod forged;
mod hostile;
mod keeper;
mod middle;
mod node;
mod said;

#[path = "../../../../core/trust/tests/association/pair.rs"]
#[allow(dead_code, reason = "shared with tests that have no sockets")]
mod pair;
#[path = "../../../../core/trust/tests/association/raw.rs"]
#[allow(dead_code, reason = "shared with tests that have no sockets")]
mod raw;
