//! The live node: several parties' modules on one machine's live traffic, each with what it was promised.

#![forbid(unsafe_code)]

mod bill;
pub mod client;
pub mod config;
pub mod daemon;
mod error;
mod guest;
pub mod link;
mod log;
pub mod metrics;
pub mod node;
mod post;
mod processors;
pub mod protocol;
mod quantity;
mod queue;
mod runner;
pub mod seat;
mod service;
mod snapshot;
mod source;
pub mod spec;
mod writer;

pub use error::NodeError;
