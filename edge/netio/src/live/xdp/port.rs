//! Receiving of packets with AF_XDP.

use super::frames::{FrameHold, ReturnedFrames};
use super::memory::{QueueSocket, SourceSockets, XdpMemory};
use super::redirect::XdpRedirect;
use super::send::XdpSink;
use super::socket::{Receiving, Sending, Socket};
use crate::BLOCK_PACKETS;
use crate::block::MemoryHold;
use crate::format::CaptureRecord;
use crate::live::error::LiveError;
use crate::live::group::GroupPlace;
use crate::live::netlink::KernelInterface;
use crate::live::options::LiveOptions;
use crate::live::port::{self, ReceiveStatus};
use crate::live::queues;
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
const CACHE_LINE: u32 = 64;
/// The number of ring entries by which prefetching of the ring is ahead: the kernel's core has written them, too, and they
/// have the addresses of the packets that are prefetched.
const ENTRIES_AHEAD: u32 = 32;
const ENTRIES_A_LINE: usize = CACHE_LINE as usize / size_of::<libc::xdp_desc>();

/// The sockets that receive the packets of one or more queues.
#[derive(Debug)]
pub(crate) struct XdpPort {
    memory: Arc<XdpMemory>,
    queues: Vec<QueueSocket>,
    /// The index of the queue that is read first the next time.
    first: usize,
    /// The frames of this source that blocks have returned.
    returned: Arc<ReturnedFrames>,
    /// The rings for sending, until the first sink takes them.
    sending: Option<(Arc<Socket>, Sending)>,
    /// The addresses of free frames.
    free: Vec<u64>,
    link_type: LinkType,
    snap_len: u32,
    number: u16,
    invalid: u64,
    drops: ReceiveDrops,
    _promiscuous: Option<OwnedFd>,
    /// Declared last, so that the sockets live until no more packets are redirected to them.
    _redirect: Arc<XdpRedirect>,
}

impl XdpPort {
    /// Opens the part of the queues that belongs to a source of a group; `None` if there are fewer queues than
    /// sources, and none is left.
    pub(crate) fn open(
        link: &KernelInterface,
        options: &LiveOptions,
        place: &GroupPlace,
    ) -> Result<Option<Self>, LiveError> {
        let name = &link.name;
        let link_type = port::link_type(link)?;
        let queues = place.part_of(&queues::find(link, options.queues)?);
        let sources = place.group.sources;
        let Some(sockets) = place.group.frames.open(link, options, sources, &queues)? else {
            return Ok(None);
        };
        let SourceSockets { memory, queues, sending } = sockets;
        let Some(returned) = memory.pools.of_source(place.place).map(Arc::clone) else { return Ok(None) };
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
        let free = memory.layout().addresses(place.place).collect();
        let mut port = Self {
            memory,
            queues,
            first: 0,
            returned,
            sending,
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
        for QueueSocket { queue, socket, .. } in &port.queues {
            redirect
                .add_socket(*queue, socket.fd())
                .map_err(LiveError::system(name, "taking the packets of a queue"))?;
        }
        Ok(Some(port))
    }

    pub(crate) fn window(&self) -> &Arc<PacketWindow> {
        &self.memory.window
    }

    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.queues.iter().map(|queue| queue.socket.fd())
    }

    /// The number of packets that can gather without loss, even if all arrive at one queue and three times as many come
    /// as expected.
    pub(crate) fn gathered_max(&self) -> usize {
        let smallest = self.queues.iter().map(|queue| queue.rings.received.size()).min();
        smallest.map_or(1, |entries| entries as usize / 4)
    }

    pub(crate) fn hold(&self) -> MemoryHold {
        FrameHold::empty(&self.returned).into()
    }

    /// The sink of the interface's first socket, which can be taken once.
    pub(crate) fn sink(&mut self) -> Option<XdpSink> {
        self.sending.take().map(|(socket, sending)| XdpSink::new(socket, sending, None))
    }

    pub(crate) fn drops(&mut self) -> ReceiveDrops {
        let (mut full, mut invalid) = (0u64, self.invalid);
        for fd in self.fds() {
            let statistics: libc::xdp_statistics =
                sys::get_option(fd, libc::SOL_XDP, libc::XDP_STATISTICS).unwrap_or(sys::Plain::zeroed());
            full = full.saturating_add(statistics.rx_dropped).saturating_add(statistics.rx_ring_full);
            invalid = invalid.saturating_add(statistics.rx_invalid_descs);
        }
        // If the kernel does not answer, the counters stay as they were.
        self.drops.ring_full = self.drops.ring_full.max(full);
        self.drops.invalid = self.drops.invalid.max(invalid);
        self.drops
    }

    /// Returns the free frames to the kernel, which gets the same number for each queue.
    fn refill(&mut self) {
        self.returned.take(&mut self.free);
        for QueueSocket { socket, rings, .. } in &mut self.queues {
            let fill = &mut rings.fill;
            let count = (fill.room() as usize).min(self.free.len());
            for frame in self.free.drain(self.free.len() - count..) {
                fill.add(frame);
            }
            if count > 0 {
                fill.publish();
            }
            if fill.needs_wakeup() {
                socket.wake_receiver();
            }
        }
    }

    /// Adds the packets that have arrived. The queues are read in turn, each from where the last block ended.
    pub(crate) fn receive(
        &mut self,
        filling: &mut UnfinishedBlock<MemoryHold>,
        counts: &mut PacketCounts,
    ) -> ReceiveStatus {
        self.refill();
        let (mut is_starved, mut is_full) = (false, false);
        for turn in 0..self.queues.len() {
            let index = (self.first + turn) % self.queues.len();
            let Some(queue) = self.queues.get(index) else { continue };
            let available = queue.rings.received.available() as usize;
            if available == 0 {
                is_starved |= queue.rings.fill.waiting() == 0 && self.free.is_empty();
                continue;
            }
            let room = BLOCK_PACKETS.saturating_sub(filling.end());
            self.read(index, available.min(room), filling, counts);
            if available >= room {
                is_full = true;
                self.first = index;
                break;
            }
        }
        match filling.count {
            0 if is_starved => ReceiveStatus::NoMemory,
            _ if is_full => ReceiveStatus::Full,
            _ => ReceiveStatus::Empty,
        }
    }

    /// Adds the next `count` packets of a queue, which must be available.
    fn read(
        &mut self,
        index: usize,
        count: usize,
        filling: &mut UnfinishedBlock<MemoryHold>,
        counts: &mut PacketCounts,
    ) {
        let Some(QueueSocket { socket, rings: Receiving { received, .. }, .. }) = self.queues.get_mut(index)
        else {
            return;
        };
        let mapping = self.memory.window.mapping();
        // SAFETY: the whole mapping, which the window keeps. The kernel writes only frames that it has.
        let mapped =
            unsafe { MappedBytes::new(mapping.base().as_ptr(), 0, mapping.len() as u64, ARENA_BASE) };
        let mut head = PacketPrefix::<PEEK>::new();
        // The kernel reports no arrival times, so all packets read at once get the same time.
        let now = sys::time_of_day();
        let prefetch = |descriptor: libc::xdp_desc| {
            mapped.prefetch(descriptor.addr);
            // The classifier reads two cache lines of a packet that is so long.
            mapped.prefetch(descriptor.addr.saturating_add(u64::from(descriptor.len.min(CACHE_LINE))));
        };
        (0..ENTRIES_AHEAD).step_by(ENTRIES_A_LINE).for_each(|ahead| received.prefetch(ahead));
        (0..PREFETCH_AHEAD).for_each(|ahead| prefetch(received.peek(ahead)));
        if let MemoryHold::Frames { hold } = &mut filling.hold {
            hold.reserve(count);
        }
        for _ in 0..count {
            // Another core has just written the packet, and fetching it from that core's cache takes longer than all other work.
            received.prefetch(ENTRIES_AHEAD);
            prefetch(received.peek(PREFETCH_AHEAD));
            let descriptor = received.take();
            let frame = socket.frame_of(descriptor.addr);
            let end = descriptor.addr.saturating_add(u64::from(descriptor.len));
            if end > frame.saturating_add(u64::from(socket.frame_bytes)) || end > mapped.end() {
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
        received.release_taken();
    }
}
