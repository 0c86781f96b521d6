//! The only packet parser of weir.
//!
//! [`classify`] turns the first bytes of a packet into the [`Descriptor`](weir_abi::Descriptor) that every module reads.
//! [`patch`] writes into a packet's private copy without changing how it is parsed, and keeps its checksums as they were:
//! right ones right, wrong ones wrong. [`verify`] looks whether checksums are right, [`fragment`] says to which datagram a fragment belongs, and a
//! [`Reassembler`] puts it together. All of them walk the headers with the same code, so they cannot disagree about them.
//!
//! [`complete`] computes checksums that a sender has left to its network card. A [`PacketView`] says what may be seen of a packet.
//!
//! Everything here is pure: bytes in, values out. No input panics, and no loop runs longer than [`PEEK_MAX`] bytes are many.

#![forbid(unsafe_code)]

mod checksum;
mod classify;
mod complete;
mod consistent;
#[doc(hidden)]
mod flow_hash;
mod fragment;
mod ip;
mod link;
mod meta;
pub mod patch;
mod reassembly;
mod tunnel;
mod upper;
mod verify;
pub mod view;
mod write_field;

pub use classify::{MoreHeader, PEEK, PEEK_MAX, classify, classify_into};
pub use complete::complete;
pub use fragment::{Datagram, Fragment, addresses, fragment};
pub use meta::{LinkType, Meta, UnknownLinkType};
pub use patch::PatchError;
pub use reassembly::{Reassembled, Reassembler, ReassemblyCounters, ReassemblyLimits};
pub use tunnel::{TUNNELS_MAX, is_tunnel_port};
pub use verify::{BadChecksum, verify};
pub use view::PacketView;
pub use write_field::{WriteField, WriteFieldError, WriteFields};
