//! Sending on an interface.

use super::error::LiveError;
use super::event;
use super::netlink::KernelInterface;
use super::options::SocketKind;
use super::packet_sink::PacketSink;
use super::port;
use super::sys;
use super::tap;
use super::xdp::XdpSink;
use crate::block::Block;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use weir_abi::{ARENA_BASE, Descriptor, flag};
use weir_units::Bytes;
use weir_wire::LinkType;

/// The outcome of sending packets. Of the first `consumed` packets, `sent` were handed to the interface; the others were
/// lost, and are counted in [`SentTotals`] by cause. For the packets after the first `consumed` there was no buffer space;
/// the caller can send them later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendResult {
    /// The number of packets that were sent or lost; they are the first ones.
    pub consumed: usize,
    /// Packets that were handed to the interface.
    pub sent: usize,
}

/// The reason why a packet was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The packet is longer than the interface's MTU and link header.
    TooLong,
    /// The packet is shorter than a link header, or otherwise invalid for the interface.
    Malformed,
    /// The packet was captured only in part, so it cannot be sent.
    Cut,
    /// The interface was down.
    Down,
    /// The interface did not exist.
    Gone,
    /// The interface refused the packet for another reason.
    Refused,
}

/// Packets that a sink has sent and lost. Counters never decrease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentTotals {
    /// Packets handed to the interface.
    pub packets: u64,
    /// Bytes of the packets handed to the interface.
    pub bytes: Bytes,
    /// Packets longer than the interface's MTU and link header.
    pub too_long: u64,
    /// Packets shorter than a link header, or otherwise invalid for the interface.
    pub malformed: u64,
    /// Packets captured only in part, which cannot be sent.
    pub cut: u64,
    /// Packets lost while the interface was down.
    pub down: u64,
    /// Packets lost while the interface did not exist.
    pub gone: u64,
    /// Packets that the interface refused for another reason.
    pub refused: u64,
}

impl SentTotals {
    fn count(&mut self, loss: Loss) {
        *match loss {
            Loss::TooLong => &mut self.too_long,
            Loss::Malformed => &mut self.malformed,
            Loss::Cut => &mut self.cut,
            Loss::Down => &mut self.down,
            Loss::Gone => &mut self.gone,
            Loss::Refused => &mut self.refused,
        } += 1;
    }

    /// All packets that were lost.
    pub fn lost(&self) -> u64 {
        self.too_long + self.malformed + self.cut + self.down + self.gone + self.refused
    }
}

/// The reason why a packet was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendRefused {
    /// No buffer space now.
    Full,
    Lost(Loss),
}

impl From<io::Error> for SendRefused {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR) => Self::Full,
            Some(libc::EMSGSIZE) => Self::Lost(Loss::TooLong),
            Some(libc::EINVAL) => Self::Lost(Loss::Malformed),
            Some(libc::ENETDOWN | libc::EIO) => Self::Lost(Loss::Down),
            Some(libc::ENXIO | libc::ENODEV | libc::EBADFD) => Self::Lost(Loss::Gone),
            _ => Self::Lost(Loss::Refused),
        }
    }
}

/// A packet's bytes, readable during a call to a sink. They may change meanwhile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedBytes {
    pub(crate) base: *const u8,
    pub(crate) len: usize,
}

/// A sink that sends through an interface. Sending never blocks.
#[derive(Debug)]
pub struct LiveSink {
    name: String,
    method: SendMethod,
    link_type: LinkType,
    totals: SentTotals,
    /// The next time at which a removed interface is looked for, in ns of the coarse clock.
    next_try: u64,
}

#[derive(Debug)]
pub(crate) enum SendMethod {
    Packet(PacketSink),
    Tap(Arc<File>),
    Xdp(Box<XdpSink>),
}

/// The interval at which a removed interface is looked for while there are packets to send.
const REOPEN_INTERVAL: u64 = 100_000_000;
/// The result of [`LiveSink::room`] for a TAP device, which does not tell its buffer space. Any number would do: sending
/// stops when the device takes no more.
const TAP_ROOM: usize = 1024;

impl LiveSink {
    /// Opens an interface for sending, by AF_PACKET or by queue 0 of AF_XDP. If packets are received by AF_XDP or
    /// from a TAP or TUN device, use [`LiveSource::sink`](super::LiveSource::sink) instead, because such a socket or
    /// device has only one owner.
    ///
    /// If the interface is removed, an interface of the same name is used as soon as it exists.
    ///
    /// # Errors
    ///
    /// [`LiveError`] if there is no interface of that name, or the process lacks a capability.
    pub fn open(interface: &str, kind: SocketKind) -> Result<LiveSink, LiveError> {
        let link = event::find_interface(interface)?;
        match kind {
            SocketKind::Auto | SocketKind::Packet => Self::packet(&link),
            SocketKind::Xdp => {
                let method = SendMethod::Xdp(Box::new(XdpSink::open(&link, 0)?));
                Ok(Self::new(interface, method, port::link_type(&link)?))
            }
            SocketKind::Tap | SocketKind::Tun => Err(LiveError::Option {
                interface: interface.to_owned(),
                what: "a TAP or TUN device has only one owner: open the device as a source, and get the sink from that source",
            }),
        }
    }

    /// Opens a sink by AF_PACKET.
    pub(crate) fn packet(link: &KernelInterface) -> Result<LiveSink, LiveError> {
        let link_type = port::link_type(link)?;
        Ok(Self::new(&link.name, SendMethod::Packet(PacketSink::open(link)?), link_type))
    }

    pub(crate) fn new(name: &str, method: SendMethod, link_type: LinkType) -> LiveSink {
        LiveSink { name: name.to_owned(), method, link_type, totals: SentTotals::default(), next_try: 0 }
    }

    /// The name of the interface.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns true if an interface of the sink's name exists, is up, and has a carrier. Reads all interfaces from the
    /// kernel.
    pub fn is_up(&self) -> bool {
        event::find_interface(&self.name).is_ok_and(|link| link.running)
    }

    /// The link type of the interface's packets.
    pub fn link_type(&self) -> LinkType {
        self.link_type
    }

    /// The kind of socket or device; [`SocketKind::Tap`] also for a TUN device.
    pub fn kind(&self) -> SocketKind {
        match self.method {
            SendMethod::Packet(_) => SocketKind::Packet,
            SendMethod::Tap(_) => SocketKind::Tap,
            SendMethod::Xdp(_) => SocketKind::Xdp,
        }
    }

    /// A file descriptor that becomes writable when there is buffer space again.
    pub fn fd(&self) -> BorrowedFd<'_> {
        match &self.method {
            SendMethod::Packet(sink) => sink.fd(),
            SendMethod::Tap(device) => device.as_fd(),
            SendMethod::Xdp(sink) => sink.fd(),
        }
    }

    /// The number of packets of full length for which there is buffer space now. More short packets may fit.
    pub fn room(&mut self) -> usize {
        match &mut self.method {
            SendMethod::Packet(sink) => sink.room(),
            SendMethod::Tap(_) => TAP_ROOM,
            SendMethod::Xdp(sink) => sink.room(),
        }
    }

    /// The totals so far.
    pub fn totals(&self) -> SentTotals {
        self.totals
    }

    /// Sends packets with their link headers, in order, until buffer space runs out.
    pub fn send(&mut self, packets: &[&[u8]]) -> SendResult {
        self.send_pieces(pieces_of(packets), &mut |_, _| {})
    }

    /// Sends packets as [`send`](Self::send) does, and reports each lost packet by its index and the reason.
    pub fn send_reporting(&mut self, packets: &[&[u8]], mut lost: impl FnMut(usize, Loss)) -> SendResult {
        self.send_pieces(pieces_of(packets), &mut lost)
    }

    /// Sends packets of a block, given by their indices in it, without copying them first.
    pub fn forward(&mut self, block: &Block, packets: &[usize]) -> SendResult {
        let mapping = block.window().mapping();
        let descriptors = block.descriptors();
        let piece = |descriptor: &Descriptor| {
            let from = usize::try_from(descriptor.data.checked_sub(ARENA_BASE)?).ok()?;
            let len = usize::try_from(descriptor.cap_len).ok()?;
            let fits = descriptor.flags & flag::CUT == 0 && from.checked_add(len)? <= mapping.len();
            // SAFETY: inside the mapping by the check before; the block keeps it while it is borrowed.
            fits.then(|| SharedBytes { base: unsafe { mapping.base().as_ptr().add(from) }, len })
        };
        self.send_pieces(packets.iter().map(|&i| descriptors.get(i).and_then(piece)), &mut |_, _| {})
    }

    /// Sends packets in batches. `None` stands for an incomplete packet, which is lost.
    fn send_pieces(
        &mut self,
        packets: impl Iterator<Item = Option<SharedBytes>>,
        lost: &mut dyn FnMut(usize, Loss),
    ) -> SendResult {
        let mut done = SendResult::default();
        let mut packets = packets.peekable();
        let mut batch: Vec<SharedBytes> = Vec::with_capacity(super::packet_sink::BATCH);
        while packets.peek().is_some() {
            batch.clear();
            let mut is_incomplete = false;
            while batch.len() < super::packet_sink::BATCH
                && let Some(next) = packets.next()
            {
                match next {
                    Some(piece) => batch.push(piece),
                    None => {
                        is_incomplete = true;
                        break;
                    }
                }
            }
            if !self.send_batch(&batch, &mut done, lost) {
                return done;
            }
            if is_incomplete {
                self.totals.count(Loss::Cut);
                lost(done.consumed, Loss::Cut);
                done.consumed += 1;
            }
        }
        done
    }

    /// Sends all of these packets. Returns false if buffer space runs out.
    fn send_batch(
        &mut self,
        mut pieces: &[SharedBytes],
        done: &mut SendResult,
        lost: &mut dyn FnMut(usize, Loss),
    ) -> bool {
        while let Some(first) = pieces.first() {
            let result = match &mut self.method {
                SendMethod::Packet(sink) => sink.send(pieces),
                SendMethod::Xdp(sink) => sink.send(pieces),
                SendMethod::Tap(device) => tap::write(device, *first).map(|()| 1).map_err(SendRefused::from),
            };
            let consumed = match result {
                Ok(count) => {
                    let bytes: usize = pieces.iter().take(count).map(|piece| piece.len).sum();
                    self.totals.packets += count as u64;
                    self.totals.bytes.0 += bytes as u64;
                    done.sent += count;
                    count
                }
                Err(SendRefused::Full) => return false,
                Err(SendRefused::Lost(Loss::Gone)) if self.reopen() => 0,
                Err(SendRefused::Lost(loss)) => {
                    self.totals.count(loss);
                    lost(done.consumed, loss);
                    1
                }
            };
            done.consumed += consumed;
            pieces = pieces.get(consumed..).unwrap_or_default();
        }
        true
    }

    /// Looks for a removed interface. Returns true if an interface of its name exists again and was opened. A sink that
    /// belongs to a source is opened again with the source, and not here.
    fn reopen(&mut self) -> bool {
        let now = sys::coarse_time();
        if now < self.next_try {
            return false;
        }
        self.next_try = now.saturating_add(REOPEN_INTERVAL);
        let Ok(link) = event::find_interface(&self.name) else { return false };
        match &mut self.method {
            SendMethod::Packet(sink) => PacketSink::open(&link).map(|new| *sink = new).is_ok(),
            SendMethod::Xdp(sink) => {
                let Some(queue) = sink.own_queue else { return false };
                XdpSink::open(&link, queue).map(|new| **sink = new).is_ok()
            }
            SendMethod::Tap(_) => false,
        }
    }
}

fn pieces_of(packets: &[&[u8]]) -> impl Iterator<Item = Option<SharedBytes>> {
    packets.iter().map(|packet| Some(SharedBytes { base: packet.as_ptr(), len: packet.len() }))
}
