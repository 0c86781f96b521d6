//! Receiving of packets with AF_PACKET.

use super::error::LiveError;
use super::fanout::Fanout;
use super::hidden::HiddenFromHost;
use super::netlink::KernelInterface;
use super::options::{Direction, LiveOptions};
use super::packet_header::{KernelHeader, PACKET_OFFSET_MIN_V2, VLAN_TAG_BYTES};
use super::packet_ring::{FrameLayout, PacketRing, RingHold, RingLayout};
use super::port::{self, ReceiveStatus};
use super::sys::{self, Plain};
use super::totals::ReceiveDrops;
use crate::BLOCK_PACKETS;
use crate::block::MemoryHold;
use crate::mapped_bytes::{MappedBytes, PacketPrefix};
use crate::reader::UnfinishedBlock;
use crate::totals::PacketCounts;
use crate::window::PacketWindow;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use weir_abi::ARENA_BASE;
use weir_units::Bytes;
use weir_wire::{LinkType, PEEK};

/// The length of the shortest block in bytes. Shorter blocks would hold few packets, and truncate long ones: a host's own
/// packet can have 64 KiB before the card segments it.
const BLOCK_MIN: usize = 16 << 10;
/// The length of the longest block in bytes.
const BLOCK_MAX: usize = 4 << 20;

/// The most packets of a block of descriptors, if blocks share pages of descriptors. With their packets they fit a core's
/// second-level cache, in which they are found again when they are copied to selections.
const PACKETS_MAX: usize = 256;
/// The most blocks of a ring that the kernel fills block by block.
const BLOCKS_MAX: usize = 64;
/// The length of the header of an Ethernet packet with two VLAN tags, which a frame has room for beside the MTU.
const LINK_HEADER_MAX: usize = 22;
/// The limits of the MTU for which frames have room. The lower one allows for a larger MTU later; the upper one is that of
/// packets which cards or systems have merged.
const MTU_MIN: usize = 1500;
const MTU_MAX: usize = 65_536;
/// The room that the kernel leaves between its header and the packet in a frame, for alignment and a VLAN tag.
const FRAME_MARGIN: usize = 64;
/// The length of a cache line in bytes.
const LINE: usize = 64;
/// The number of frames for which a block of a frame ring has room, unless its frames are long.
const BLOCK_FRAMES: usize = 64;
/// The least number of blocks of a frame ring.
const FRAME_BLOCKS_MIN: usize = 8;
/// The distance in bytes by which a ring is prefetched ahead of the reader.
const PREFETCH_AHEAD: u64 = 1024;
/// The most cache lines of a packet that are prefetched.
const PREFETCH_LINES: u64 = 6;

const CAPABILITY: &str = "cap_net_raw";

/// A packet socket with its ring.
#[derive(Debug)]
pub(crate) struct PacketPort {
    ring: Arc<PacketRing>,
    link_type: LinkType,
    snap_len: u32,
    number: u16,
    /// True if arrivals are reported.
    has_arrivals: bool,
    /// The block that the kernel fills next.
    next_block: usize,
    current: Option<CurrentBlock>,
    drops: ReceiveDrops,
    /// Blocks of descriptors end at multiples of this number, so that the batches behind them are complete.
    packets_max: usize,
    /// The value of `next_block` for which no block ahead was found in use. None comes to be in use before another block
    /// is read.
    clear_at: AtomicUsize,
    /// The sockets that share the interface's packets, if there are several.
    fanout: Option<Arc<Fanout>>,
    /// Keeps the packets from the host's own network.
    _hidden: Option<HiddenFromHost>,
}

/// The block that is being read.
#[derive(Debug)]
struct CurrentBlock {
    hold: RingHold,
    /// The number of the block.
    number: usize,
    /// The offset in the ring of the next packet's header.
    at: u64,
    /// The offset in the ring of the block's end.
    end: u64,
    /// The number of packets or frames not read yet.
    unread: u32,
}

impl PacketPort {
    /// Opens `sources` sockets that share the interface's packets by flow, and the memory of `options`.
    pub(crate) fn open(
        link: &KernelInterface,
        options: &LiveOptions,
        sources: usize,
    ) -> Result<Vec<Self>, LiveError> {
        let name = &link.name;
        let link_type = port::link_type(link)?;
        let incoming = options.direction == Direction::Incoming || link.hardware == libc::ARPHRD_LOOPBACK;
        let ring = Bytes(options.ring.0 / sources.max(1) as u64);
        let layout = match options.immediate {
            true if options.arrivals => frame_layout(ring, u32::MAX),
            true => frame_layout(ring, link.mtu),
            false => block_layout(ring),
        };
        // Sockets that share packets receive none until all of them share.
        let cap_len = if sources > 1 { 0 } else { options.snap_len.max(1) };
        let size = Bytes((layout.block_bytes * layout.blocks * sources) as u64);
        let memory = |error| LiveError::Memory { interface: name.clone(), size, error };
        let sockets: Result<Vec<File>, LiveError> =
            (0..sources).map(|_| Self::open_socket(link, options, incoming, cap_len, layout)).collect();
        let rings = PacketRing::map(sockets?, layout).map_err(memory)?;
        let mut ports: Vec<Self> = rings
            .into_iter()
            .map(|ring| Self {
                ring: Arc::new(ring),
                link_type,
                snap_len: options.snap_len,
                number: options.number,
                has_arrivals: options.arrivals,
                next_block: 0,
                current: None,
                drops: ReceiveDrops::default(),
                packets_max: if options.dense { PACKETS_MAX } else { BLOCK_PACKETS },
                clear_at: AtomicUsize::new(usize::MAX),
                fanout: None,
                _hidden: None,
            })
            .collect();
        let mut is_down = false;
        for port in &ports {
            is_down |= port.listen(link, options)?;
        }
        if let Some(first) = ports.first_mut().filter(|_| options.hidden) {
            first._hidden = Some(HiddenFromHost::new(link)?);
        }
        if sources > 1 {
            let flags = if incoming { libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING } else { 0 };
            let window = ports.first().map(|port| Arc::clone(port.window()));
            let fanout = window.map(|window| Arc::new(Fanout::new(window, flags, options.snap_len.max(1))));
            if let Some(fanout) = fanout.as_ref().filter(|_| !is_down) {
                fanout.join(name, true)?;
            }
            ports.iter_mut().for_each(|port| port.fanout.clone_from(&fanout));
        }
        Ok(ports)
    }

    /// Opens a socket with a ring, which receives no packets yet.
    fn open_socket(
        link: &KernelInterface,
        options: &LiveOptions,
        incoming: bool,
        cap_len: u32,
        layout: RingLayout,
    ) -> Result<File, LiveError> {
        let name = &link.name;
        let system = |what| LiveError::system(name, what);
        // Without a protocol no packet arrives before the setup is complete.
        let socket = sys::socket(libc::AF_PACKET, libc::SOCK_RAW, 0).map_err(LiveError::refused(
            name,
            "opening a packet socket",
            CAPABILITY,
        ))?;
        let fd = socket.as_fd();
        let set = |option, value: u32, what| {
            sys::set_option(fd, libc::SOL_PACKET, option, &value).map_err(system(what))
        };
        let version = match options.immediate {
            true => libc::tpacket_versions::TPACKET_V2,
            false => libc::tpacket_versions::TPACKET_V3,
        };
        set(libc::PACKET_VERSION, version as u32, "choosing the version of the ring")?;
        set(libc::PACKET_RESERVE, VLAN_TAG_BYTES, "reserving room for VLAN tags")?;
        set(libc::PACKET_IGNORE_OUTGOING, u32::from(incoming), "leaving outgoing packets out")?;
        if options.arrivals {
            set(libc::PACKET_VNET_HDR, 1, "asking for the offloads of packets")?;
        }
        if options.hardware_time {
            super::hardware_time::enable(name, fd)?;
        }
        sys::truncate_packets(fd, cap_len).map_err(system("limiting the captured length"))?;

        let RingLayout { block_bytes, blocks, frames } = layout;
        let size = Bytes((block_bytes * blocks) as u64);
        let memory = |error| LiveError::Memory { interface: name.clone(), size, error };
        let to_u32 = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        // TPACKET_V3 does not use frames of a fixed size, but their size has to divide that of blocks.
        let FrameLayout { bytes, count } =
            frames.unwrap_or(FrameLayout { bytes: 2048, count: block_bytes / 2048 });
        let request = libc::tpacket_req3 {
            tp_block_size: to_u32(block_bytes),
            tp_block_nr: to_u32(blocks),
            tp_frame_size: to_u32(bytes),
            tp_frame_nr: to_u32(count * blocks),
            tp_retire_blk_tov: u32::try_from(options.latency.min(options.retire).0.div_ceil(1_000_000))
                .unwrap_or(1000)
                .clamp(1, 1000),
            ..libc::tpacket_req3::zeroed()
        };
        if options.immediate {
            let libc::tpacket_req3 { tp_block_size, tp_block_nr, tp_frame_size, tp_frame_nr, .. } = request;
            let request = libc::tpacket_req { tp_block_size, tp_block_nr, tp_frame_size, tp_frame_nr };
            sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &request).map_err(memory)?;
        } else {
            sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &request).map_err(memory)?;
        }
        Ok(File::from(socket))
    }

    /// Binds the socket to the interface. Returns true if the interface is down.
    fn listen(&self, link: &KernelInterface, options: &LiveOptions) -> Result<bool, LiveError> {
        let system = |what| LiveError::system(&link.name, what);
        let index = libc::c_int::try_from(link.index).unwrap_or(-1);
        let address = libc::sockaddr_ll {
            sll_family: u16::try_from(libc::AF_PACKET).unwrap_or_default(),
            sll_protocol: u16::try_from(libc::ETH_P_ALL).unwrap_or_default().to_be(),
            sll_ifindex: index,
            ..libc::sockaddr_ll::zeroed()
        };
        let fd = self.fd();
        sys::bind(fd, &address).map_err(system("listening"))?;
        // An interface that is down is an event, not an error.
        let error = sys::take_error(fd).map_err(system("listening"))?;
        if options.promiscuous {
            port::set_promiscuous(fd, index).map_err(system("listening for packets to other hosts"))?;
        }
        Ok(error.is_some())
    }

    /// Lets the socket receive packets if it does not yet, because the interface was down when it was opened. `is_up` is
    /// true if the interface is up now.
    pub(crate) fn complete(&self, name: &str, is_up: bool) -> Result<(), LiveError> {
        self.fanout.as_ref().map_or(Ok(()), |fanout| fanout.join(name, is_up))
    }

    /// Returns true if the socket listens to the interface with this number.
    pub(crate) fn is_bound_to(&self, index: u32) -> bool {
        let bound = sys::bound_address::<libc::sockaddr_ll>(self.fd());
        bound.is_ok_and(|address| u32::try_from(address.sll_ifindex) == Ok(index))
    }

    pub(crate) fn window(&self) -> &Arc<PacketWindow> {
        self.ring.window()
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.ring.fd()
    }

    pub(crate) fn hold(&self) -> MemoryHold {
        RingHold::empty(&self.ring).into()
    }

    /// The packets that the kernel has dropped since the socket was opened.
    pub(crate) fn drops(&mut self) -> ReceiveDrops {
        // Reading resets the kernel's counters. If it fails, they are read the next time.
        if let Ok(now) =
            sys::get_option::<libc::tpacket_stats_v3>(self.fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS)
        {
            self.drops.ring_full += u64::from(now.tp_drops);
            self.drops.freezes += u64::from(now.tp_freeze_q_cnt);
        }
        self.drops
    }

    /// Returns true if the kernel wakes the program for each packet, and false if it gathers packets for a time.
    pub(crate) fn wakes_for_each_packet(&self) -> bool {
        self.ring.layout().frames.is_some()
    }

    /// Returns true if one of the blocks that the kernel fills next, a quarter of all, is in use. The block that is being
    /// read does not count.
    pub(crate) fn is_running_out(&self) -> bool {
        let blocks = self.ring.layout().blocks;
        if self.clear_at.load(Ordering::Relaxed) == self.next_block {
            return false;
        }
        let is_held = (0..blocks / 4).any(|ahead| self.ring.is_held((self.next_block + ahead) % blocks));
        self.clear_at.store(if is_held { usize::MAX } else { self.next_block }, Ordering::Relaxed);
        is_held
    }

    /// Adds the packets that have arrived.
    pub(crate) fn receive(
        &mut self,
        filling: &mut UnfinishedBlock<MemoryHold>,
        counts: &mut PacketCounts,
    ) -> ReceiveStatus {
        let window = Arc::clone(self.ring.window());
        let mapping = window.mapping();
        // A window is no longer than `ARENA_MAX`.
        let guest_base = ARENA_BASE.saturating_add(u32::try_from(self.ring.start()).unwrap_or(u32::MAX));
        // SAFETY: the part of the mapping that is this ring, and `window` keeps the mapping. The kernel may write it meanwhile.
        let mapped = unsafe {
            let base = mapping.base().as_ptr().add(self.ring.start());
            MappedBytes::new(base, 0, self.ring.len() as u64, guest_base)
        };
        loop {
            let Some(current) = &mut self.current else {
                match self.take_next_block(&mapped) {
                    Some(current) => self.current = Some(current),
                    None if self.ring.is_held(self.next_block) => return ReceiveStatus::NoMemory,
                    None => return ReceiveStatus::Empty,
                }
                continue;
            };
            let packet = PacketOf {
                link_type: self.link_type,
                snap_len: self.snap_len,
                number: self.number,
                has_arrivals: self.has_arrivals,
                packets_max: self.packets_max,
            };
            let before = filling.count;
            let is_waiting = match self.ring.layout().frames {
                Some(frames) => {
                    current.read_frames(&mapped, &self.ring, frames, packet, filling, counts, &mut self.drops)
                }
                None => {
                    current.read_packets(&mapped, packet, filling, counts, &mut self.drops);
                    false
                }
            };
            if filling.count > before
                && let MemoryHold::Ring { hold } = &mut filling.hold
            {
                hold.add(current.number);
            }
            if is_waiting {
                return ReceiveStatus::Empty;
            }
            if current.unread > 0 {
                return ReceiveStatus::Full;
            }
            self.current = None;
            if is_full(filling, self.packets_max) {
                return ReceiveStatus::Full;
            }
        }
    }

    /// Takes the next block, if the kernel has released it, or with frames, the first of its frames.
    fn take_next_block(&mut self, mapped: &MappedBytes<'_>) -> Option<CurrentBlock> {
        let (number, layout) = (self.next_block, self.ring.layout());
        let hold = self.ring.take(number)?;
        let start = number as u64 * layout.block_bytes as u64;
        let end = start + layout.block_bytes as u64;
        self.next_block = self.ring.next(number);
        if let Some(frames) = layout.frames {
            let unread = u32::try_from(frames.count).unwrap_or(0);
            return Some(CurrentBlock { hold, number, at: start, end, unread });
        }
        let [packets, first] = [12, 16].map(|at| mapped.read(start + at).map_or(0, u32::from_ne_bytes));
        Some(CurrentBlock { hold, number, at: start + u64::from(first), end, unread: packets })
    }
}

impl Drop for PacketPort {
    fn drop(&mut self) {
        // Sandboxes may keep the ring mapped, and with it the socket open. The filter keeps further packets out of the ring.
        let _ = sys::truncate_packets(self.fd(), 0);
    }
}

/// The properties that all packets of a port share.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketOf {
    pub(super) link_type: LinkType,
    pub(super) snap_len: u32,
    pub(super) number: u16,
    /// True if the kernel writes a `virtio_net_hdr` in front of each packet.
    pub(super) has_arrivals: bool,
    packets_max: usize,
}

impl CurrentBlock {
    /// Adds the packets of a block of TPACKET_V3, until `filling` is full.
    fn read_packets(
        &mut self,
        mapped: &MappedBytes<'_>,
        packet: PacketOf,
        filling: &mut UnfinishedBlock<MemoryHold>,
        counts: &mut PacketCounts,
        drops: &mut ReceiveDrops,
    ) {
        let mut head = PacketPrefix::<PEEK>::new();
        while self.unread > 0 && !is_full(filling, packet.packets_max) {
            let read = KernelHeader::read_v3(mapped, self.at);
            let read = read.and_then(|(header, next)| {
                Some((header.record(mapped, &self.hold, self.at, self.end, packet)?, next))
            });
            let Some(((record, checksum, arrival), next)) = read else {
                drops.invalid += u64::from(self.unread);
                self.unread = 0;
                break;
            };
            // The next packets follow closely, and have probably the same length.
            let bytes = next.saturating_sub(self.at);
            for line in 0..(bytes / LINE as u64 + 1).min(PREFETCH_LINES) {
                mapped.prefetch(next.saturating_add(PREFETCH_AHEAD + LINE as u64 * line));
            }
            filling.add(mapped, counts, &record, &mut head);
            filling.set_checksum(checksum);
            filling.add_arrival(arrival);
            self.at = next;
            self.unread -= 1;
        }
    }

    /// Adds the packets of frames of TPACKET_V2, until `filling` is full. Returns true if the kernel has not handed over
    /// the next frame yet.
    #[expect(
        clippy::too_many_arguments,
        reason = "the state of a port, in parts so that they are borrowed apart"
    )]
    fn read_frames(
        &mut self,
        mapped: &MappedBytes<'_>,
        ring: &PacketRing,
        frames: FrameLayout,
        packet: PacketOf,
        filling: &mut UnfinishedBlock<MemoryHold>,
        counts: &mut PacketCounts,
        drops: &mut ReceiveDrops,
    ) -> bool {
        let mut head = PacketPrefix::<PEEK>::new();
        let bytes = frames.bytes as u64;
        while self.unread > 0 && !is_full(filling, packet.packets_max) {
            let Some(status) = ring.frame_status(self.at) else { return true };
            let end = self.at.saturating_add(bytes).min(self.end);
            let header = KernelHeader::read_v2(mapped, self.at, status);
            let record = header.and_then(|header| header.record(mapped, &self.hold, self.at, end, packet));
            for line in 0..3 {
                mapped.prefetch(self.at.saturating_add(2 * bytes + LINE as u64 * line));
            }
            match record {
                Some((record, checksum, arrival)) => {
                    filling.add(mapped, counts, &record, &mut head);
                    filling.set_checksum(checksum);
                    filling.add_arrival(arrival);
                }
                None => drops.invalid += 1,
            }
            self.at = end;
            self.unread -= 1;
        }
        false
    }
}

/// Returns true if a block has as many packets as it should: its end is a multiple of `packets_max`, or of the slot.
#[inline(always)]
fn is_full(filling: &UnfinishedBlock<MemoryHold>, packets_max: usize) -> bool {
    filling.is_full() || filling.count > 0 && filling.end().is_multiple_of(packets_max)
}

/// The layout of a ring of TPACKET_V3 of at most this size, within limits.
fn block_layout(ring: Bytes) -> RingLayout {
    let ring = usize::try_from(ring.0).unwrap_or(usize::MAX).clamp(16 * BLOCK_MIN, BLOCKS_MAX * BLOCK_MAX);
    let block = (ring / BLOCKS_MAX).max(BLOCK_MIN);
    let block_bytes = 1 << block.ilog2();
    RingLayout { block_bytes, blocks: (ring / block_bytes).min(BLOCKS_MAX), frames: None }
}

/// The layout of a ring of TPACKET_V2 of at most this size, within limits, whose frames have room for packets of this MTU.
fn frame_layout(ring: Bytes, mtu: u32) -> RingLayout {
    let ring = usize::try_from(ring.0).unwrap_or(usize::MAX).clamp(16 * BLOCK_MIN, BLOCKS_MAX * BLOCK_MAX);
    let mtu = usize::try_from(mtu).unwrap_or(usize::MAX).clamp(MTU_MIN, MTU_MAX);
    // An odd number of cache lines, so that the headers of frames do not compete for the same sets of the cache.
    let bytes = ((PACKET_OFFSET_MIN_V2 + FRAME_MARGIN + LINK_HEADER_MAX + mtu).div_ceil(LINE) | 1) * LINE;
    // The kernel allocates powers of two of pages. With at least eight blocks, some can be in use.
    let block_bytes = (bytes * BLOCK_FRAMES).next_power_of_two().min(1 << (ring / FRAME_BLOCKS_MIN).ilog2());
    let block_bytes = block_bytes.max(bytes.next_power_of_two());
    RingLayout {
        block_bytes,
        blocks: (ring / block_bytes).max(FRAME_BLOCKS_MIN),
        frames: Some(FrameLayout { bytes, count: block_bytes / bytes }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_has_whole_blocks_and_is_no_larger_than_requested() {
        let layout = |ring| {
            let RingLayout { block_bytes, blocks, .. } = block_layout(Bytes(ring));
            (block_bytes, blocks)
        };
        assert_eq!(layout(64 << 20), (1 << 20, 64));
        assert_eq!(layout(100 << 20), (1 << 20, 64));
        assert_eq!(layout(1 << 20), (16 << 10, 64));
        assert_eq!(layout(0), (16 << 10, 16));
        assert_eq!(layout(u64::MAX), (4 << 20, 64));
    }

    #[test]
    fn frames_have_room_for_the_longest_packet_and_are_inside_their_blocks() {
        for mtu in [0, 68, 1500, 9000, 65_536, u32::MAX] {
            for ring in [0, 1 << 20, 64 << 20, 100 << 20, u64::MAX] {
                let layout = frame_layout(Bytes(ring), mtu);
                let FrameLayout { bytes, count } = layout.frames.unwrap();
                let longest = usize::try_from(mtu).unwrap().clamp(MTU_MIN, MTU_MAX) + LINK_HEADER_MAX;
                assert!(bytes >= longest + PACKET_OFFSET_MIN_V2 && bytes % LINE == 0, "{mtu} {layout:?}");
                assert!(count > 0 && count * bytes <= layout.block_bytes, "{mtu} {ring} {layout:?}");
                assert!(
                    layout.blocks >= 8 && layout.block_bytes.is_multiple_of(4096),
                    "{mtu} {ring} {layout:?}"
                );
                let size = layout.blocks * layout.block_bytes;
                assert!(size <= (256 << 20) && (size as u64 <= ring || ring < 1 << 20), "{mtu} {layout:?}");
            }
        }
        let usual = frame_layout(Bytes(64 << 20), 1500);
        assert_eq!(usual.frames.map(|frames| (frames.bytes, frames.count)), Some((1728, 75)));
        assert_eq!((usual.block_bytes, usual.blocks), (128 << 10, 512));
    }
}
