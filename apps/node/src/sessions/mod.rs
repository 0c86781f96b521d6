//! Sessions: their modules, memory, tables, views and channels on a node.

pub(crate) mod arrival;
pub(crate) mod bell;
pub(crate) mod bill;
pub(crate) mod change;
pub(crate) mod ended;
pub(crate) mod filters;
pub(crate) mod followers;
pub(crate) mod installing;
pub(crate) mod leaving;
pub mod limits;
pub(crate) mod lineage;
pub(crate) mod memory;
pub(crate) mod metered;
pub mod node;
pub(crate) mod post;
pub(crate) mod premises;
pub(crate) mod processors;
pub(crate) mod snapshot;
pub mod tables;
pub(crate) mod unkept;
pub(crate) mod view;
pub mod workshop;
pub(crate) mod writer;
