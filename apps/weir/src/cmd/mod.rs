//! The subcommands.

pub(crate) mod build;
pub(crate) mod calibrate;
pub(crate) mod check;
pub(crate) mod compile;
pub(crate) mod extcap;
pub(crate) mod graph;
pub(crate) mod node;
pub(crate) mod policy;
pub(crate) mod run;
pub(crate) mod schema;
pub(crate) mod test;
pub(crate) mod trust;
pub(crate) mod ui;
