//! The packet path that `weir run` and the node share.
//!
//! | module | stage |
//! |---|---|
//! | [`source`] | blocks of packets from a capture file, a packet socket, an AF_XDP socket or a TAP device |
//! | [`receive`], [`plan`] | the receive thread of an interface: matches packets against filters and fills the channels' queues |
//! | [`queue`], [`overflow`] | waiting packets: references to where they arrived, or copies in memory of the queue |
//! | [`preprocess`] | checksum validation and reassembly, and then the view of the channel |
//! | [`driver`] | calls a module for the packets of a source, with the ticks that fall between them |
//! | [`effects`] | applies patches to a private copy of a packet and completes its checksum |
//! | [`egress`] | forwards packets into a file, a link's socket, a TAP device, or nothing |
//! | [`account`], [`delay`] | CPU time spent on behalf of modules, and time lost to other threads |
//! | [`event`] | events for the log and for the owners of channels |
//! | [`clock`] | the wall clock and the monotonic clock |
//!
//! This crate knows no session, request or protocol of a node. A node passes plain data or implements a trait
//! ([`overflow::QueueMemory`], [`plan::ModuleWaker`]). The crate has no unsafe code; it is under `edge` because it uses
//! clocks, threads and interfaces.

#![forbid(unsafe_code)]

pub mod account;
pub mod clock;
pub mod delay;
pub mod driver;
pub mod effects;
pub mod egress;
pub mod event;
pub mod overflow;
pub mod plan;
pub mod preprocess;
pub mod queue;
pub mod receive;
pub mod source;
