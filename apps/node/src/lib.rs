//! The live node: several parties' modules on one machine's live traffic, each with what it was promised.

#![forbid(unsafe_code)]

pub mod config;
mod guest;
pub mod protocol;
mod quantity;
mod queue;
mod runner;
pub mod seat;
mod source;
pub mod spec;
