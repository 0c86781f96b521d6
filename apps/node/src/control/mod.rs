//! Control: requests, descriptions, configuration and authorisation. Nothing here depends on a running node.
//!
//! - [`protocol`]: messages between clients and a node. [`status`]: the state of a node, which the messages contain.
//! - [`config`], [`spec`], [`link_spec`], [`services`], [`table_grant`], [`share`]: descriptions of a node, its links
//!   and its sessions.
//! - `authority`: the decision on each request by the rights of its requester.
//! - [`compiler_config`]: compiler keys. `module_file`: modules and bundles.
//! - [`policy`]: profiles, roots of trust, revocation lists and test cases of an operator.
//! - `audit`: the decisions that are written to the ledger. `ledger_view`: the part of the ledger that a reader may see.
//! - `quantity`, `bounded_list`, `resource_keys`: serde functions for values, lists and amounts.
//! - [`renamed_keys`]: advice in errors about earlier spellings and other unknown keys.

pub(crate) mod access;
pub(crate) mod audit;
pub(crate) mod authority;
pub(crate) mod bounded_list;
pub mod compiler_config;
pub mod config;
pub(crate) mod delegation;
pub mod isolation_config;
pub(crate) mod ledger_view;
pub mod link_spec;
pub(crate) mod module_file;
pub mod policy;
pub(crate) mod preprocessing;
pub mod process_isolation;
pub mod protocol;
pub(crate) mod quantity;
pub mod record_format;
pub mod renamed_keys;
pub(crate) mod resource_keys;
pub mod services;
pub mod share;
pub mod spec;
pub mod status;
pub mod table_grant;
pub(crate) mod visibility;

pub use authority::{RefusalText, RequestRefusal};

/// Returns the bytes of a module that comes with weir, by its name.
pub type ShippedModules = fn(&str) -> Option<&'static [u8]>;
