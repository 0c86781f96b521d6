//! Associations over datagrams, such as UDP. docs/WIRE.md describes the bytes on the wire.
//!
//! A [`DatagramEndpoint`] makes associations with many peers over one socket. It has no socket, clock or randomness: the
//! caller passes the time, received datagrams and randomness, and takes datagrams to send, events, and the time of the
//! next timer.
//!
//! - **Cookie.** A responder answers a hello without a valid cookie with a cookie, which is an authentication code of the
//!   sender's address. It keeps no state for that, makes no operation on the curve, and its answer is shorter than the
//!   hello. So only a peer that receives at its address reaches the [`crate::gate`], which limits the further work.
//! - **Handshake.** The first three messages are those of [`crate::association`], with another prologue. The third has no
//!   credentials: both sides send theirs in encrypted datagrams of at most 1,024 bytes of credentials each. So no byte of
//!   them is stored before its datagram is authenticated.
//! - **Keys.** Each direction has an AES-256-GCM key, derived from the handshake and the security parameter indices (SPI)
//!   of both sides. The nonce is the packet's counter. A key encrypts at most [`DatagramLimits::packets_max`] packets,
//!   for at most [`DatagramLimits::age_max`]. Before that, a new handshake makes new keys. The old keys stay valid until
//!   the new ones are in use, so no packet is lost.
//! - **One association for each peer.** The newest one is used. If two peers open at the same time, the peer with the
//!   larger key keeps the association that is complete first, and discards the other.
//! - **Addresses.** An authenticated packet from a new address makes the endpoint send a random challenge to that address. The
//!   address changes when the peer has answered. So a copied packet redirects no traffic.
//! - **Retransmission.** The initiator repeats what is not answered, with exponential back-off. A responder repeats
//!   only its acceptance.
//! - **Forged datagrams** change nothing that is established. An attacker on the path who changes messages of a
//!   handshake can delay it: the initiator begins again after a few attempts.

mod attempt;
mod control;
mod cookie;
mod endpoint;
mod error;
mod event;
mod format;
mod incoming;
mod keys;
mod limits;
mod link;
mod packets;
mod parts;
mod path_mtu;
mod receive;
mod timers;

pub use endpoint::{DatagramEndpoint, Transmit};
pub use error::{AttemptError, ConnectRefusal, PacketError, UnknownPeer};
pub use event::{DatagramCounters, DatagramEvent, DownReason};
pub use format::{SEALED_HEAD_BYTES, Spi};
pub use keys::{PACKET_TAG_BYTES, PacketSeal};
pub use limits::DatagramLimits;
pub use packets::OpenedPacket;
pub use path_mtu::PATH_BYTES_MIN;
