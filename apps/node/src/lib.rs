//! The live node: several parties' modules on one machine's live traffic, each with what it was promised.

#![forbid(unsafe_code)]

mod account;
mod audit;
mod authority;
mod bell;
mod bill;
mod change;
pub mod client;
pub mod config;
pub mod daemon;
mod descriptors;
mod error;
pub mod exercise;
mod filters;
mod followers;
mod guest;
mod handling;
mod intake;
mod laps;
mod leaving;
pub mod limits;
mod lineage;
pub mod link;
mod log;
mod memory;
pub mod metrics;
pub mod node;
pub mod offers;
mod outbox;
mod plan;
pub mod policy;
mod post;
mod processors;
pub mod protocol;
mod quantity;
mod queue;
mod revoked;
mod runner;
pub mod seat;
mod service;
mod snapshot;
mod source;
pub mod spec;
pub mod tables;
mod trace;
pub mod trust;
mod turns;
mod uploads;
mod view;
mod writer;

pub use authority::authorise;
pub use error::NodeError;
pub use view::SecretError;
pub use weir_remote::{KEEPER, keep as keep_key};
