//! AF_XDP: packets in memory that the kernel, or the card itself, and the program share.

mod bpf;
mod frames;
mod gate;
mod port;
mod rings;
mod send;
mod socket;

use super::error::LiveError;
use super::netlink::KernelInterface;
use super::options::LiveOptions;
pub(crate) use frames::{FrameHold, FramePin, Returned};
pub(crate) use port::XdpPort;
pub(crate) use send::XdpSink;

/// Loads the program and opens a socket with its memory on a queue, and closes both before any packet is sent their way.
pub(crate) fn try_socket(link: &KernelInterface, options: &LiveOptions) -> Result<(), LiveError> {
    gate::XdpRedirect::try_program(link)?;
    let wanted = socket::SocketConfig { queue: options.queue, zero_copy: false, memory: options.ring };
    socket::Socket::open(link, wanted).map(drop)
}
