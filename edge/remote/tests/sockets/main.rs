//! A node in a process of its own, and those who connect to it: honest ones, and others.

#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod crowd;
mod hostile;
mod keeper;
mod middle;
mod node;
mod said;
