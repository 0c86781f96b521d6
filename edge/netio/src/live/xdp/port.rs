//! Receiving of packets with AF_XDP.

use super::frames::FrameHold;
use super::redirect::XdpRedirect;
use super::send::XdpSink;
use super::socket::{Receiving, Sending, Socket, SocketConfig};
use crate::BLOCK_PACKETS;
use crate::block::MemoryHold;
use crate::format::CaptureRecord;
use crate::live::error::LiveError;
use crate::live::netlink::KernelInterface;
use crate::live::options::LiveOptions;
use crate::live::port::{self, ReceiveStatus};
use crate::live::sys;
use crate::live::totals::ReceiveDrops;
use crate::mapped_bytes::{MappedBytes, PacketPrefix};
use crate::reader::UnfinishedBlock;
use crate::totals::PacketCounts;
use crate::window::PacketWindow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use weir_abi::ARENA_BASE;
use weir_wire::{LinkType, PEEK};

/// The number of packets by which prefetching is ahead of reading.
const PREFETCH_AHEAD: u32 = 8;

/// A socket that receives the packets of one queue.
#[derive(Debug)]
pub(crate) struct XdpPort {
    socket: Arc<Socket>,
    receiving: Receiving,
    /// The rings for sending, until the first sink takes them.
    sending: Option<Sending>,
    /// The addresses of free frames.
    free: Vec<u64>,
    link_type: LinkType,
    snap_len: u32,
    number: u16,
    invalid: u64,
    drops: ReceiveDrops,
    _promiscuous: Option<OwnedFd>,
    /// Declared last, so that the socket lives until no more packets are redirected to it.
    _redirect: Arc<XdpRedirect>,
}

impl XdpPort {
    pub(crate) fn open(link: &KernelInterface, options: &LiveOptions) -> Result<Self, LiveError> {
        let name = &link.name;
        let link_type = port::link_type(link)?;
        let config =
            SocketConfig { queue: options.queue, zero_copy: options.zero_copy, memory: options.ring };
        let (socket, receiving, sending) = Socket::open(link, config)?;
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
            port::set_promiscuous(fd.as_fd(), index).map_err(system)?;
            Some(fd)
        } else {
            None
        };
        let redirect = XdpRedirect::shared(link)?;
        let free = (0..socket.frames).map(|i| u64::from(i) * u64::from(socket.frame_bytes)).collect();
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
            _redirect: Arc::clone(&redirect),
        };
        port.refill();
        redirect
            .add_socket(options.queue, port.fd())
            .map_err(LiveError::system(name, "taking the packets of a queue"))?;
        Ok(port)
    }

    pub(crate) fn window(&self) -> &Arc<PacketWindow> {
        &self.receiving.window
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.fd()
    }

    pub(crate) fn hold(&self) -> MemoryHold {
        FrameHold::empty(&self.receiving.returned).into()
    }

    /// The sink of the same socket, which can be taken once.
    pub(crate) fn sink(&mut self) -> Option<XdpSink> {
        self.sending.take().map(|sending| XdpSink::new(Arc::clone(&self.socket), sending, None))
    }

    pub(crate) fn drops(&mut self) -> ReceiveDrops {
        let statistics: libc::xdp_statistics =
            sys::get_option(self.fd(), libc::SOL_XDP, libc::XDP_STATISTICS).unwrap_or(sys::Plain::zeroed());
        let full = statistics.rx_dropped.saturating_add(statistics.rx_ring_full);
        let invalid = self.invalid.saturating_add(statistics.rx_invalid_descs);
        // If the kernel does not answer, the counters stay as they were.
        self.drops.ring_full = self.drops.ring_full.max(full);
        self.drops.invalid = self.drops.invalid.max(invalid);
        self.drops
    }

    /// Returns the free frames to the kernel.
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

    /// Adds the packets that have arrived.
    pub(crate) fn receive(
        &mut self,
        filling: &mut UnfinishedBlock<MemoryHold>,
        counts: &mut PacketCounts,
    ) -> ReceiveStatus {
        self.refill();
        let room = BLOCK_PACKETS.saturating_sub(filling.end());
        let available = self.receiving.received.available() as usize;
        if available == 0 {
            let held = self.receiving.fill.waiting() == 0 && self.free.is_empty();
            return if held { ReceiveStatus::NoMemory } else { ReceiveStatus::Empty };
        }
        let window = Arc::clone(&self.receiving.window);
        let mapping = window.mapping();
        // SAFETY: the whole mapping, which `window` keeps. The kernel writes only frames that it has.
        let mapped =
            unsafe { MappedBytes::new(mapping.base().as_ptr(), 0, mapping.len() as u64, ARENA_BASE) };
        let mut head = PacketPrefix::<PEEK>::new();
        // The kernel reports no arrival times, so all packets read at once get the same time.
        let now = sys::time_of_day();
        let received = &self.receiving.received;
        (0..PREFETCH_AHEAD).for_each(|ahead| mapped.prefetch(received.peek(ahead).addr));
        if let MemoryHold::Frames { hold } = &mut filling.hold {
            hold.reserve(available.min(room));
        }
        for _ in 0..available.min(room) {
            // Another core has just written the packet, and fetching it from that core's cache takes longer than all other work.
            mapped.prefetch(self.receiving.received.peek(PREFETCH_AHEAD).addr);
            let descriptor = self.receiving.received.take();
            let frame = self.socket.frame_of(descriptor.addr);
            let end = descriptor.addr.saturating_add(u64::from(descriptor.len));
            if end > frame.saturating_add(u64::from(self.socket.frame_bytes)) || end > mapped.end() {
                self.invalid += 1;
                if frame < mapped.end() {
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
            if let MemoryHold::Frames { hold } = &mut filling.hold {
                hold.add(frame);
            }
            filling.add(&mapped, counts, &record, &mut head);
        }
        self.receiving.received.release_taken();
        if available >= room { ReceiveStatus::Full } else { ReceiveStatus::Empty }
    }
}
