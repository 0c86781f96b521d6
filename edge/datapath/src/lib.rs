//! The path of packets that `weir run` and the node share.
//!
//! | module | stage |
//! |---|---|
//! | [`source`] | gives blocks of packets: of a capture, or of an interface |
//! | [`queue`], [`overflow`] | packets that wait, where they lie or in memory of the queue |
//! | [`seat`] | drives a module over the blocks of a source, with the ticks that come between packets |
//! | [`effects`] | makes of a private copy of a packet what goes on: completed, and patched |
//! | [`egress`] | completes packets, and sends them: links, of which channels reserve shares, and TAP devices |
//! | [`moment`] | the two clocks that packet time follows |
//!
//! No session of a node, no request and no protocol is known here. No unsafe code; here because it has clocks, threads and interfaces.

#![forbid(unsafe_code)]

pub mod effects;
pub mod egress;
pub mod moment;
pub mod overflow;
pub mod queue;
pub mod seat;
pub mod source;
