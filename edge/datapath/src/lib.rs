//! The path of packets that `weir run` and the node share.
//!
//! | module | stage |
//! |---|---|
//! | [`source`] | gives blocks of packets: of a capture file, a packet socket, an AF_XDP socket or a TAP device |
//! | [`receive`], [`plan`] | the thread of an interface: finds the channels that want a packet, and puts it into their queues |
//! | [`queue`], [`overflow`] | packets that wait, where they lie or in memory of the queue |
//! | [`preprocess`] | validates checksums, puts datagrams together, and shows packets through views |
//! | [`seat`] | drives a module over the blocks of a source, with the ticks that come between packets |
//! | [`effects`] | makes of a private copy of a packet what goes on: completed, and patched |
//! | [`egress`] | has packets go on: into a file, through a socket of a link, into a TAP device, or nowhere |
//! | [`account`], [`delay`] | processor time that is spent on behalf of modules, and time that others take |
//! | [`notice`] | news for the log and for the owners of channels |
//! | [`moment`] | the two clocks that packet time follows |
//!
//! No session of a node, no request and no protocol is known here: what a node adds comes as plain data or through a trait
//! ([`overflow::QueueMemory`], [`plan::Wake`]). No unsafe code; here because it has clocks, threads and interfaces.

#![forbid(unsafe_code)]

pub mod account;
pub mod delay;
pub mod effects;
pub mod egress;
mod left;
pub mod moment;
pub mod notice;
pub mod overflow;
pub mod plan;
pub mod preprocess;
pub mod queue;
pub mod receive;
pub mod seat;
pub mod source;
