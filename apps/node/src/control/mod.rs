//! Control: requests, descriptions, configuration and authorisation.
//!
//! - [`protocol`]: messages between clients and a node. [`status`]: the state of a node, which the messages contain.
//! - [`config`], [`spec`], [`link_spec`], [`services`], [`table_grant`], [`share`]: descriptions of a node and its sessions.
//! - `authority`: the check of each request against a credential, as (state, request, time) -> decision.
//! - [`policy`]: profiles, roots of trust, revocations and cases of an operator.
//! - `audit`, `ledger_view`: decisions for the ledger, and the part of the ledger that a reader may see.
//! - `quantity`, `bounded_list`, `resource_keys`: how values, lists and amounts are read and written.
//! - [`renamed_keys`]: advice for earlier spellings and other unknown keys.

pub(crate) mod access;
pub(crate) mod audit;
pub(crate) mod authority;
pub(crate) mod bounded_list;
pub mod config;
pub(crate) mod delegation;
pub mod isolation_config;
pub(crate) mod ledger_view;
pub mod link_spec;
pub mod policy;
pub(crate) mod preprocessing;
pub mod process_isolation;
pub mod protocol;
pub(crate) mod quantity;
pub mod renamed_keys;
pub(crate) mod resource_keys;
pub mod services;
pub mod share;
pub mod spec;
pub mod status;
pub mod table_grant;
pub(crate) mod visibility;

/// Returns the bytes of a module that comes with weir, by its name.
pub type ShippedModules = fn(&str) -> Option<&'static [u8]>;
