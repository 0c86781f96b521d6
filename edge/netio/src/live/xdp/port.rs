//! Receiving with AF_XDP.

use super::frames::FrameHold;
use super::gate::XdpRedirect;
use super::send::XdpSink;
use super::socket::{Receiving, Sending, Socket, SocketConfig};
use crate::BLOCK_PACKETS;
use crate::block::Keep;
use crate::format::CaptureRecord;
use crate::live::error::LiveError;
use crate::live::netlink::KernelInterface;
use crate::live::options::LiveOptions;
use crate::live::port::{self, Got};
use crate::live::sys;
use crate::live::totals::ReceiveDrops;
use crate::reader::Filling;
use crate::totals::PacketCounts;
use crate::view::{BytesView, PacketPrefix};
use crate::window::PacketWindow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use weir_abi::ARENA_BASE;
use weir_wire::{LinkType, PEEK};

/// Packets are asked for so many before they are looked at.
const PREFETCH_AHEAD: u32 = 8;

/// A socket that packets of one queue go to.
#[derive(Debug)]
pub(crate) struct XdpPort {
    socket: Arc<Socket>,
    receiving: Receiving,
    /// Taken by the one who sends.
    sending: Option<Sending>,
    /// Frames that are with nobody.
    free: Vec<u64>,
    link_type: LinkType,
    snap_len: u32,
    number: u16,
    invalid: u64,
    drops: ReceiveDrops,
    _promiscuous: Option<OwnedFd>,
    /// Last, so that the socket is there until no more packets come.
    _gate: Arc<XdpRedirect>,
}

impl XdpPort {
    pub(crate) fn open(link: &KernelInterface, options: &LiveOptions) -> Result<Self, LiveError> {
        let name = &link.name;
        let link_type = port::link_type(link)?;
        let wanted =
            SocketConfig { queue: options.queue, zero_copy: options.zero_copy, memory: options.ring };
        let (socket, receiving, sending) = Socket::open(link, wanted)?;
        let Some(receiving) = receiving else {
            return Err(LiveError::Option {
                interface: name.clone(),
                what: "AF_XDP needs memory for packets",
            });
        };
        let promiscuous = if options.promiscuous {
            let system = |error| LiveError::system(name, "listening for packets to other hosts")(error);
            let fd = sys::socket(libc::AF_PACKET, libc::SOCK_RAW, 0).map_err(system)?;
            let index = libc::c_int::try_from(link.index).unwrap_or(-1);
            port::be_promiscuous(fd.as_fd(), index).map_err(system)?;
            Some(fd)
        } else {
            None
        };
        let gate = XdpRedirect::on(link)?;
        let free = (0..socket.frames).map(|i| u64::from(i) * u64::from(socket.frame)).collect();
        let mut port = Self {
            socket: Arc::new(socket),
            receiving,
            sending: Some(sending),
            free,
            link_type,
            snap_len: options.snap_len,
            number: options.number,
            invalid: 0,
            drops: ReceiveDrops::default(),
            _promiscuous: promiscuous,
            _gate: Arc::clone(&gate),
        };
        port.refill();
        gate.open(options.queue, port.fd())
            .map_err(LiveError::system(name, "taking the packets of a queue"))?;
        Ok(port)
    }

    pub(crate) fn window(&self) -> &Arc<PacketWindow> {
        &self.receiving.window
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.fd()
    }

    pub(crate) fn hold(&self) -> Keep {
        FrameHold::none(&self.receiving.returned).into()
    }

    /// The way out by the same socket; there is one.
    pub(crate) fn sink(&mut self) -> Option<XdpSink> {
        self.sending.take().map(|sending| XdpSink::new(Arc::clone(&self.socket), sending, None))
    }

    pub(crate) fn drops(&mut self) -> ReceiveDrops {
        let statistics: libc::xdp_statistics =
            sys::option(self.fd(), libc::SOL_XDP, libc::XDP_STATISTICS).unwrap_or(sys::Plain::zeroed());
        let full = statistics.rx_dropped.saturating_add(statistics.rx_ring_full);
        let invalid = self.invalid.saturating_add(statistics.rx_invalid_descs);
        // Should the kernel not answer, it is as before.
        self.drops.ring_full = self.drops.ring_full.max(full);
        self.drops.invalid = self.drops.invalid.max(invalid);
        self.drops
    }

    /// Gives the kernel the frames that nobody uses.
    fn refill(&mut self) {
        self.receiving.returned.take(&mut self.free);
        let fill = &mut self.receiving.fill;
        let count = (fill.room() as usize).min(self.free.len());
        for frame in self.free.drain(self.free.len() - count..) {
            fill.add(frame);
        }
        if count > 0 {
            fill.publish();
        }
        if fill.needs_wakeup() {
            self.socket.wake_receiver();
        }
    }

    /// Adds what has arrived.
    pub(crate) fn receive(&mut self, filling: &mut Filling<Keep>, counts: &mut PacketCounts) -> Got {
        self.refill();
        let room = BLOCK_PACKETS.saturating_sub(filling.end());
        let available = self.receiving.received.available() as usize;
        if available == 0 {
            let held = self.receiving.fill.waiting() == 0 && self.free.is_empty();
            return if held { Got::Held } else { Got::Nothing };
        }
        let window = Arc::clone(&self.receiving.window);
        let mapping = window.mapping();
        // SAFETY: all of the mapping, which `window` keeps. The kernel writes only frames that it has.
        let view = unsafe { BytesView::new(mapping.base().as_ptr(), 0, mapping.len() as u64, ARENA_BASE) };
        let mut head = PacketPrefix::<PEEK>::new();
        // The kernel says nothing of when they came; those of one look have one time.
        let now = sys::now();
        let received = &self.receiving.received;
        (0..PREFETCH_AHEAD).for_each(|ahead| view.prefetch(received.peek(ahead).addr));
        if let Keep::Frames { hold } = &mut filling.hold {
            hold.reserve(available.min(room));
        }
        for _ in 0..available.min(room) {
            // Another core has just written it: to get it from there takes longer than all that is done with it.
            view.prefetch(self.receiving.received.peek(PREFETCH_AHEAD).addr);
            let descriptor = self.receiving.received.take();
            let frame = self.socket.frame_of(descriptor.addr);
            let end = descriptor.addr.saturating_add(u64::from(descriptor.len));
            if end > frame.saturating_add(u64::from(self.socket.frame)) || end > view.end() {
                self.invalid += 1;
                if frame < view.end() {
                    self.free.push(frame);
                }
                continue;
            }
            let record = CaptureRecord {
                ts: Some(now),
                cap_len: descriptor.len.min(self.snap_len),
                wire_len: descriptor.len,
                link_type: self.link_type,
                interface: self.number,
                data: descriptor.addr,
                next: 0,
            };
            if let Keep::Frames { hold } = &mut filling.hold {
                hold.add(frame);
            }
            filling.add(&view, counts, &record, &mut head);
        }
        self.receiving.received.done();
        if available >= room { Got::Full } else { Got::Nothing }
    }
}
