//! Packets of active networks: the Active Network Encapsulation Protocol (ANEP), version 1. docs/WIRE.md describes the
//! bytes on the wire.
//!
//! - [`AnepPacket`]: a packet that was read, with its header, options and payload; [`AnepHeader`] writes one.
//! - [`handling`]: the decision to process, forward or discard a packet, by the flags of its header and options.
//! - [`add_checksum`] and [`check_checksum`]: the checksum option.
//! - [`seal`] and [`AnepReceiver`]: packets that an association authenticates or encrypts, in one datagram or in
//!   fragments.
//!
//! Pure: bytes in, values out. Untrusted bytes give errors, never panics. The header and the authentication header follow
//! Alexander et al., SQoSH, IEEE Communications Magazine, 2000 (figure 3).

#![forbid(unsafe_code)]

mod checksum;
mod error;
mod fragments;
mod option;
mod packet;
mod receiver;
mod seal;

pub use checksum::{add_checksum, check_checksum};
pub use error::{AnepError, AnepOpenError, AnepSealError};
pub use fragments::{FragmentLimits, ReassemblyFailure};
pub use option::{AnepOption, OptionKind};
pub use packet::{AnepHandling, AnepHeader, AnepPacket, HEADER_BYTES, handling};
pub use receiver::{AnepReceiver, PeerPacket};
pub use seal::{FragmentNumber, Protection, SEAL_BYTES, seal};

/// The UDP port that is registered for active networks.
pub const ANEP_PORT: u16 = 3322;
