//! The only packet parser of weir.
//!
//! [`classify`] turns the first bytes of a packet into the [`Descriptor`](weir_abi::Descriptor) that every module reads.
//! [`patch`] writes into a packet's private copy without changing how it is parsed, and keeps its checksums as they were:
//! right ones right, wrong ones wrong. Both walk the headers with the same code, so they cannot disagree about them.
//!
//! [`complete`] computes checksums that a sender has left to its network card.
//!
//! Everything here is pure: bytes in, values out. No input panics, and no loop runs longer than [`PEEK_MAX`] bytes are many.

#![forbid(unsafe_code)]

mod checksum;
mod classify;
mod complete;
#[doc(hidden)]
pub mod exercise;
mod flow_hash;
mod ip;
mod link;
mod meta;
pub mod patch;
mod upper;

pub use classify::{MoreHeader, PEEK, PEEK_MAX, classify, classify_into};
pub use complete::complete;
pub use meta::{LinkType, Meta, UnknownLinkType};
pub use patch::PatchError;
