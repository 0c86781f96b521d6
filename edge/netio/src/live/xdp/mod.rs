//! AF_XDP: packets in memory that the program shares with the kernel, or with the card itself.

mod bpf;
mod frames;
mod port;
mod redirect;
mod rings;
mod send;
mod socket;

use super::error::LiveError;
use super::netlink::KernelInterface;
use super::options::LiveOptions;
pub(crate) use frames::{FrameHold, FramePin, ReturnedFrames};
pub(crate) use port::XdpPort;
pub(crate) use send::XdpSink;

/// Checks that the program can be loaded and a socket be opened on the queue. Both are closed before any packet is
/// redirected.
pub(crate) fn try_socket(link: &KernelInterface, options: &LiveOptions) -> Result<(), LiveError> {
    redirect::XdpRedirect::try_program(link)?;
    let config = socket::SocketConfig { queue: options.queue, zero_copy: false, memory: options.ring };
    socket::Socket::open(link, config).map(drop)
}
