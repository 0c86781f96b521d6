//! The sessions of a running node: their modules, memory, channels, tables, views, output channels, records and usage.
//! The server calls the operations of [`node::Node`].

pub(crate) mod change;
pub(crate) mod channel_plan;
pub(crate) mod close;
pub mod compiler_trust;
pub(crate) mod cpu_debit;
pub(crate) mod delegation;
pub(crate) mod descriptors;
pub(crate) mod error;
pub(crate) mod filters;
pub(crate) mod findings;
pub(crate) mod followers;
pub(crate) mod install;
pub(crate) mod inventory;
pub(crate) mod limits;
pub mod link;
pub(crate) mod memory;
pub mod module_loader;
pub mod node;
pub(crate) mod notifier;
pub(crate) mod preprocessing;
pub(crate) mod processors;
pub(crate) mod queue_memory;
pub(crate) mod rearrange;
pub(crate) mod replace;
pub(crate) mod saved;
pub(crate) mod services;
pub(crate) mod shares;
pub(crate) mod snapshot;
pub(crate) mod stopped;
pub mod tables;
pub(crate) mod usage;
pub(crate) mod view;
pub(crate) mod writer;
