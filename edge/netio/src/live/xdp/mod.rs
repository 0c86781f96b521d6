//! AF_XDP: packets in memory that the kernel, or the card itself, and the program share.

mod bpf;
mod frames;
mod gate;
mod port;
mod rings;
mod send;
mod socket;

pub(crate) use frames::{FrameHold, FramePin, Returned};
pub(crate) use port::XdpPort;
pub(crate) use send::XdpSink;
