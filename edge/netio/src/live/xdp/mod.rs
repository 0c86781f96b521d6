//! AF_XDP: packets in memory that the program shares with the kernel, or with the card itself.

pub(crate) mod bpf;
mod frames;
mod memory;
mod port;
mod redirect;
mod rings;
mod send;
mod socket;

use super::error::LiveError;
use super::netlink::KernelInterface;
use super::options::LiveOptions;
use super::queues;
pub(crate) use frames::{FrameHold, FramePin, FramePools};
pub(crate) use memory::SharedFrames;
pub(crate) use port::XdpPort;
pub(crate) use send::XdpSink;

/// Checks that the program can be loaded and sockets be opened on the queues. They are closed before any packet is
/// redirected.
pub(crate) fn try_sockets(link: &KernelInterface, options: &LiveOptions) -> Result<(), LiveError> {
    redirect::XdpRedirect::try_program(link)?;
    let options = LiveOptions { zero_copy: false, ..*options };
    let queues = queues::find(link, options.queues)?;
    SharedFrames::default().open(link, &options, 1, &queues).map(drop)
}
