//! The path of packets that `weir run` and the node share.
//!
//! | module | stage |
//! |---|---|
//! | [`seat`] | drives a module over the blocks of a source, with the ticks that come between packets |
//! | [`moment`] | the two clocks that packet time follows |
//!
//! No session, request or protocol is known here. No unsafe code; here because it has clocks.

#![forbid(unsafe_code)]

pub mod moment;
pub mod seat;
