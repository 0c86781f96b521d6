//! The only packet parser of weir.
//!
//! [`classify`] turns the first bytes of a packet into the [`Descriptor`](weir_abi::Descriptor) that modules read.
//! [`patch`] writes into a packet's private copy without changing how it is parsed, and updates its checksums so that a
//! right checksum stays right and a wrong one stays wrong. [`verify`] checks checksums, [`fragment`] returns the
//! datagram that a fragment belongs to, and a [`Reassembler`] reassembles it. All these functions parse headers with
//! the same code, so they cannot disagree about a packet.
//!
//! [`complete`] computes checksums that a sender has left to its network card, and [`segment`] divides packets whose
//! division it has left to the card. A [`PacketView`] defines the visible
//! part of a packet.
//!
//! The crate is pure: bytes in, values out. No input causes a panic, and no loop of the parser exceeds [`PEEK_MAX`]
//! iterations.

#![forbid(unsafe_code)]

pub mod checksum;
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
mod segment;
pub mod stream;
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
pub use segment::{SEGMENT_BYTES_MIN, segment, segment_whole};
pub use tunnel::{TUNNELS_MAX, is_tunnel_port};
pub use verify::{BadChecksum, verify};
pub use view::PacketView;
pub use write_field::{WriteField, WriteFieldError, WriteFields};
