//! Control: requests, specifications and configuration, and who may do what.

pub(crate) mod access;
pub(crate) mod amounts;
pub mod apart;
pub(crate) mod audit;
pub(crate) mod authority;
pub mod config;
pub(crate) mod counted;
pub(crate) mod handling;
pub mod offers;
pub mod policy;
pub mod protocol;
pub(crate) mod quantity;
pub mod share;
pub mod spec;
pub(crate) mod statement;
