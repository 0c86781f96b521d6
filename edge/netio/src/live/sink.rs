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

/// What became of packets that were given to a sink: of those `taken`, from the first on, `sent` went to the interface, and the
/// rest is counted in [`SentTotals`] by cause. For the others there was no room: give them again later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendResult {
    /// Packets that are done with.
    pub taken: usize,
    /// Those of them that went.
    pub sent: usize,
}

/// Why a packet that was taken did not go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Longer than the interface takes (its MTU and link header).
    TooLong,
    /// Shorter than a link header, or otherwise nothing that the interface sends.
    Malformed,
    /// Captured only in part, so that there is nothing to send.
    Cut,
    /// The interface was down.
    Down,
    /// The interface was not there.
    Gone,
    /// Refused for any other cause.
    Refused,
}

/// What a sink has sent, and what it could not, in packets. None of these ever goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentTotals {
    /// Handed to the interface.
    pub packets: u64,
    /// Their bytes.
    pub bytes: Bytes,
    /// Longer than the interface takes (its MTU and link header).
    pub too_long: u64,
    /// Shorter than a link header, or otherwise nothing that the interface sends.
    pub malformed: u64,
    /// Captured only in part, so that there is nothing to send.
    pub cut: u64,
    /// The interface was down.
    pub down: u64,
    /// The interface was not there.
    pub gone: u64,
    /// Refused for any other cause.
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

    /// Packets that were taken and did not go.
    pub fn lost(&self) -> u64 {
        self.too_long + self.malformed + self.cut + self.down + self.gone + self.refused
    }
}

/// Why a packet did not go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendRefused {
    /// No room now.
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

/// A packet's bytes, readable while a call to a sink lasts. They may change meanwhile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedBytes {
    pub(crate) base: *const u8,
    pub(crate) len: usize,
}

/// A way out through an interface. Sending never waits.
#[derive(Debug)]
pub struct LiveSink {
    name: String,
    way: SendMethod,
    link_type: LinkType,
    totals: SentTotals,
    /// When an interface that is gone is looked for again, in ns of the coarse clock.
    next_try: u64,
}

#[derive(Debug)]
pub(crate) enum SendMethod {
    Packet(PacketSink),
    Tap(Arc<File>),
    Xdp(Box<XdpSink>),
}

/// How often an interface that is gone is looked for while there is something to send.
const TRY_EVERY: u64 = 100_000_000;
/// How many packets a TAP device takes at once: it makes no difference to it.
const TAP_ROOM: usize = 1024;

impl LiveSink {
    /// Opens an interface for sending: by AF_PACKET, or by queue 0 with AF_XDP. Where packets are received by AF_XDP or from a
    /// TAP or TUN device, [`Live::sink`](super::LiveSource::sink) is the way out: these have only one owner.
    ///
    /// An interface that is removed is used again as soon as there is one of its name.
    ///
    /// # Errors
    ///
    /// [`LiveError`]: there is none of that name, or the process may not.
    pub fn open(interface: &str, kind: SocketKind) -> Result<LiveSink, LiveError> {
        let link = event::find(interface)?;
        match kind {
            SocketKind::Auto | SocketKind::Packet => Self::on(&link),
            SocketKind::Xdp => {
                let way = SendMethod::Xdp(Box::new(XdpSink::open(&link, 0)?));
                Ok(Self::by(interface, way, port::link_type(&link)?))
            }
            SocketKind::Tap | SocketKind::Tun => Err(LiveError::Option {
                interface: interface.to_owned(),
                what: "open a TAP or TUN device as a source, and ask that for its sink",
            }),
        }
    }

    /// By AF_PACKET.
    pub(crate) fn on(link: &KernelInterface) -> Result<LiveSink, LiveError> {
        let link_type = port::link_type(link)?;
        Ok(Self::by(&link.name, SendMethod::Packet(PacketSink::open(link)?), link_type))
    }

    pub(crate) fn by(name: &str, way: SendMethod, link_type: LinkType) -> LiveSink {
        LiveSink { name: name.to_owned(), way, link_type, totals: SentTotals::default(), next_try: 0 }
    }

    /// The name of the interface.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether there is an interface of its name now that is up and has a carrier. Asks the kernel for all interfaces.
    pub fn is_up(&self) -> bool {
        event::find(&self.name).is_ok_and(|link| link.running)
    }

    /// What its packets begin with.
    pub fn link_type(&self) -> LinkType {
        self.link_type
    }

    /// By which way packets go.
    pub fn kind(&self) -> SocketKind {
        match self.way {
            SendMethod::Packet(_) => SocketKind::Packet,
            SendMethod::Tap(_) => SocketKind::Tap,
            SendMethod::Xdp(_) => SocketKind::Xdp,
        }
    }

    /// A descriptor that becomes writable when there is room again.
    pub fn fd(&self) -> BorrowedFd<'_> {
        match &self.way {
            SendMethod::Packet(sink) => sink.fd(),
            SendMethod::Tap(device) => device.as_fd(),
            SendMethod::Xdp(sink) => sink.fd(),
        }
    }

    /// How many packets of full length can be sent now; at times more of them go, or of short ones.
    pub fn room(&mut self) -> usize {
        match &mut self.way {
            SendMethod::Packet(sink) => sink.room(),
            SendMethod::Tap(_) => TAP_ROOM,
            SendMethod::Xdp(sink) => sink.room(),
        }
    }

    /// What it has sent so far.
    pub fn totals(&self) -> SentTotals {
        self.totals
    }

    /// Sends packets, each with its link header, in order, until there is no more room.
    pub fn send(&mut self, packets: &[&[u8]]) -> SendResult {
        self.pieces(pieces(packets), &mut |_, _| {})
    }

    /// The same, and tells of each packet that is taken and does not go: its place among these, and why.
    pub fn send_telling(&mut self, packets: &[&[u8]], mut lost: impl FnMut(usize, Loss)) -> SendResult {
        self.pieces(pieces(packets), &mut lost)
    }

    /// Sends packets of a block, by their numbers in it, from where they lie.
    pub fn forward(&mut self, block: &Block, packets: &[usize]) -> SendResult {
        let mapping = block.window().mapping();
        let descriptors = block.descriptors();
        let piece = |descriptor: &Descriptor| {
            let from = usize::try_from(descriptor.data.checked_sub(ARENA_BASE)?).ok()?;
            let len = usize::try_from(descriptor.cap_len).ok()?;
            let fits = descriptor.flags & flag::CUT == 0 && from.checked_add(len)? <= mapping.len();
            // SAFETY: inside the mapping, by the check before; the block keeps it while it is borrowed.
            fits.then(|| SharedBytes { base: unsafe { mapping.base().as_ptr().add(from) }, len })
        };
        self.pieces(packets.iter().map(|&i| descriptors.get(i).and_then(piece)), &mut |_, _| {})
    }

    /// Sends what is there; nothing stands for a packet that is not whole.
    fn pieces(
        &mut self,
        packets: impl Iterator<Item = Option<SharedBytes>>,
        lost: &mut dyn FnMut(usize, Loss),
    ) -> SendResult {
        let mut done = SendResult::default();
        let mut packets = packets.peekable();
        let mut batch: Vec<SharedBytes> = Vec::with_capacity(super::packet_sink::BATCH);
        while packets.peek().is_some() {
            batch.clear();
            let mut cut = false;
            while batch.len() < super::packet_sink::BATCH
                && let Some(next) = packets.next()
            {
                match next {
                    Some(piece) => batch.push(piece),
                    None => {
                        cut = true;
                        break;
                    }
                }
            }
            if !self.batch(&batch, &mut done, lost) {
                return done;
            }
            if cut {
                self.totals.count(Loss::Cut);
                lost(done.taken, Loss::Cut);
                done.taken += 1;
            }
        }
        done
    }

    /// Sends all of these; false where there is no more room.
    fn batch(
        &mut self,
        mut pieces: &[SharedBytes],
        done: &mut SendResult,
        lost: &mut dyn FnMut(usize, Loss),
    ) -> bool {
        while let Some(first) = pieces.first() {
            let went = match &mut self.way {
                SendMethod::Packet(sink) => sink.send(pieces),
                SendMethod::Xdp(sink) => sink.send(pieces),
                SendMethod::Tap(device) => tap::write(device, *first).map(|()| 1).map_err(SendRefused::from),
            };
            let taken = match went {
                Ok(count) => {
                    let bytes: usize = pieces.iter().take(count).map(|piece| piece.len).sum();
                    self.totals.packets += count as u64;
                    self.totals.bytes.0 += bytes as u64;
                    done.sent += count;
                    count
                }
                Err(SendRefused::Full) => return false,
                Err(SendRefused::Lost(Loss::Gone)) if self.revive() => 0,
                Err(SendRefused::Lost(loss)) => {
                    self.totals.count(loss);
                    lost(done.taken, loss);
                    1
                }
            };
            done.taken += taken;
            pieces = pieces.get(taken..).unwrap_or_default();
        }
        true
    }

    /// Looks for an interface that was removed; whether there is one of its name again. What belongs to a source comes back with it.
    fn revive(&mut self) -> bool {
        let now = sys::coarse();
        if now < self.next_try {
            return false;
        }
        self.next_try = now.saturating_add(TRY_EVERY);
        let Ok(link) = event::find(&self.name) else { return false };
        match &mut self.way {
            SendMethod::Packet(sink) => PacketSink::open(&link).map(|new| *sink = new).is_ok(),
            SendMethod::Xdp(sink) => {
                let Some(queue) = sink.alone else { return false };
                XdpSink::open(&link, queue).map(|new| **sink = new).is_ok()
            }
            SendMethod::Tap(_) => false,
        }
    }
}

fn pieces(packets: &[&[u8]]) -> impl Iterator<Item = Option<SharedBytes>> {
    packets.iter().map(|packet| Some(SharedBytes { base: packet.as_ptr(), len: packet.len() }))
}
