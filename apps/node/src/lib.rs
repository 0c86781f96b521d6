//! The live node: several parties' modules on one machine's live traffic, each with what it was promised.

#![forbid(unsafe_code)]

pub mod config;
pub mod protocol;
mod queue;
mod quantity;
pub mod seat;
pub mod spec;
