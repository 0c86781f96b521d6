//! Receiving of packets with AF_PACKET.

use super::error::LiveError;
use super::netlink::KernelInterface;
use super::options::{Direction, LiveOptions};
use super::packet_ring::{BLOCKS_MAX, PacketRing, RingHold};
use super::port::{self, ReceiveStatus};
use super::sys::{self, Plain};
use super::totals::ReceiveDrops;
use crate::block::MemoryHold;
use crate::checksum::ChecksumStatus;
use crate::format::CaptureRecord;
use crate::mapped_bytes::{MappedBytes, PacketPrefix};
use crate::reader::UnfinishedBlock;
use crate::totals::PacketCounts;
use crate::window::PacketWindow;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use weir_abi::ARENA_BASE;
use weir_units::Bytes;
use weir_wire::{LinkType, PEEK};

/// The length of the kernel's header of a packet (`tpacket3_hdr`).
const HEADER: usize = size_of::<libc::tpacket3_hdr>();
/// The least distance of a packet from the beginning of its header: the header and the link-layer address.
const PACKET_OFFSET_MIN: u64 = (HEADER + size_of::<libc::sockaddr_ll>()) as u64;
/// The length of a VLAN tag.
const VLAN_TAG_BYTES: u32 = 4;
/// The length of the two addresses in front of a VLAN tag.
const ADDRESSES_BYTES: usize = 12;
const ETHERTYPE_VLAN: u16 = 0x8100;
/// The length of the shortest block in bytes. Shorter blocks would hold few packets, and truncate long ones: a host's own
/// packet can have 64 KiB before the card segments it.
const BLOCK_MIN: usize = 16 << 10;
/// The length of the longest block in bytes.
const BLOCK_MAX: usize = 4 << 20;

const CAPABILITY: &str = "cap_net_raw";

/// A packet socket with its ring.
#[derive(Debug)]
pub(crate) struct PacketPort {
    ring: Arc<PacketRing>,
    link_type: LinkType,
    snap_len: u32,
    number: u16,
    /// The block that the kernel fills next.
    next_block: usize,
    current: Option<CurrentBlock>,
    drops: ReceiveDrops,
}

/// The block that is being read.
#[derive(Debug)]
struct CurrentBlock {
    hold: RingHold,
    /// The offset in the ring of the next packet's header.
    at: u64,
    /// The offset in the ring of the block's end.
    end: u64,
    /// The number of packets not read yet.
    unread: u32,
}

impl PacketPort {
    pub(crate) fn open(link: &KernelInterface, options: &LiveOptions) -> Result<Self, LiveError> {
        let name = &link.name;
        let link_type = port::link_type(link)?;
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
        set(libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V3 as u32, "choosing TPACKET_V3")?;
        set(libc::PACKET_RESERVE, VLAN_TAG_BYTES, "reserving room for VLAN tags")?;
        let incoming = options.direction == Direction::Incoming || link.hardware == libc::ARPHRD_LOOPBACK;
        set(libc::PACKET_IGNORE_OUTGOING, u32::from(incoming), "leaving outgoing packets out")?;
        if options.hardware_time {
            super::hardware_time::enable(name, fd)?;
        }
        sys::truncate_packets(fd, options.snap_len.max(1)).map_err(system("limiting the captured length"))?;

        let (block_bytes, blocks) = ring_layout(options.ring);
        let size = Bytes((block_bytes * blocks) as u64);
        let memory = |error| LiveError::Memory { interface: name.clone(), size, error };
        let to_u32 = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        let request = libc::tpacket_req3 {
            tp_block_size: to_u32(block_bytes),
            tp_block_nr: to_u32(blocks),
            // TPACKET_V3 does not use frames of a fixed size, but their size has to divide that of blocks.
            tp_frame_size: 2048,
            tp_frame_nr: to_u32(block_bytes / 2048 * blocks),
            tp_retire_blk_tov: u32::try_from(options.latency.0.div_ceil(1_000_000))
                .unwrap_or(1000)
                .clamp(1, 1000),
            ..libc::tpacket_req3::zeroed()
        };
        sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &request).map_err(memory)?;
        let ring = PacketRing::new(File::from(socket), block_bytes, blocks).map_err(memory)?;
        let window = Arc::clone(ring.window());
        let port = Self {
            ring: Arc::new(ring),
            link_type,
            snap_len: options.snap_len,
            number: options.number,
            next_block: 0,
            current: None,
            drops: ReceiveDrops::default(),
        };

        let index = libc::c_int::try_from(link.index).unwrap_or(-1);
        let address = libc::sockaddr_ll {
            sll_family: u16::try_from(libc::AF_PACKET).unwrap_or_default(),
            sll_protocol: u16::try_from(libc::ETH_P_ALL).unwrap_or_default().to_be(),
            sll_ifindex: index,
            ..libc::sockaddr_ll::zeroed()
        };
        let fd = window.fd();
        sys::bind(fd, &address).map_err(system("listening"))?;
        // An interface that is down is an event, not an error.
        sys::take_error(fd).map_err(system("listening"))?;
        if options.promiscuous {
            port::set_promiscuous(fd, index).map_err(system("listening for packets to other hosts"))?;
        }
        if let Some(group) = options.fanout {
            let mode = libc::PACKET_FANOUT_HASH
                | if incoming { libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING } else { 0 };
            let value = u32::from(group) | mode << 16;
            sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_FANOUT, &value)
                .map_err(system("joining the group that shares the interface's packets"))?;
        }
        Ok(port)
    }

    pub(crate) fn window(&self) -> &Arc<PacketWindow> {
        self.ring.window()
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.ring.window().fd()
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

    /// Returns true if one of the blocks that the kernel fills next, a quarter of all, is in use.
    pub(crate) fn is_running_out(&self) -> bool {
        let blocks = self.ring.blocks();
        (0..blocks / 4).any(|ahead| self.ring.is_held((self.next_block + ahead) % blocks))
    }

    /// Adds the packets that have arrived.
    pub(crate) fn receive(
        &mut self,
        filling: &mut UnfinishedBlock<MemoryHold>,
        counts: &mut PacketCounts,
    ) -> ReceiveStatus {
        let window = Arc::clone(self.ring.window());
        let mapping = window.mapping();
        // SAFETY: the whole mapping, which `window` keeps. The kernel may write it meanwhile.
        let mapped =
            unsafe { MappedBytes::new(mapping.base().as_ptr(), 0, mapping.len() as u64, ARENA_BASE) };
        let mut head = PacketPrefix::<PEEK>::new();
        loop {
            let Some(current) = &mut self.current else {
                match self.take_next_block(&mapped) {
                    Some(current) => self.current = Some(current),
                    None if self.ring.is_held(self.next_block) => return ReceiveStatus::NoMemory,
                    None => return ReceiveStatus::Empty,
                }
                continue;
            };
            if current.unread > 0
                && !filling.is_full()
                && let MemoryHold::Ring { hold } = &mut filling.hold
            {
                hold.add_all(&current.hold);
            }
            while current.unread > 0 && !filling.is_full() {
                let Some((record, next, checksum)) =
                    current.packet(&mapped, self.link_type, self.snap_len, self.number)
                else {
                    self.drops.invalid += u64::from(current.unread);
                    current.unread = 0;
                    break;
                };
                mapped.prefetch(next);
                filling.add(&mapped, counts, &record, &mut head);
                filling.set_checksum(checksum);
                current.at = next;
                current.unread -= 1;
            }
            if current.unread > 0 {
                return ReceiveStatus::Full;
            }
            self.current = None;
        }
    }

    /// Takes the next block, if the kernel has released it.
    fn take_next_block(&mut self, mapped: &MappedBytes<'_>) -> Option<CurrentBlock> {
        let hold = self.ring.take(self.next_block)?;
        let block_bytes = self.ring.block_bytes() as u64;
        let start = self.next_block as u64 * block_bytes;
        self.next_block = (self.next_block + 1) % self.ring.blocks();
        let [packets, first] = [12, 16].map(|at| mapped.read(start + at).map_or(0, u32::from_ne_bytes));
        Some(CurrentBlock { hold, at: start + u64::from(first), end: start + block_bytes, unread: packets })
    }
}

impl Drop for PacketPort {
    fn drop(&mut self) {
        // Sandboxes may keep the ring mapped, and with it the socket open. The filter keeps further packets out of the ring.
        let _ = sys::truncate_packets(self.fd(), 0);
    }
}

impl CurrentBlock {
    /// Parses the packet at `at`. Returns it with the offset of the next header and its checksum state; `None` if the
    /// kernel's header is invalid.
    fn packet(
        &self,
        mapped: &MappedBytes<'_>,
        link_type: LinkType,
        snap_len: u32,
        number: u16,
    ) -> Option<(CaptureRecord, u64, ChecksumStatus)> {
        let header: [u8; HEADER] = mapped.read(self.at)?;
        let word =
            |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let [next, seconds, nanos, mut cap_len, mut wire_len, status] = [0, 4, 8, 12, 16, 20].map(word);
        let packet_offset = u16::from_ne_bytes([header[24], header[25]]);
        let mut data = self.at + u64::from(packet_offset);
        if u64::from(packet_offset) < PACKET_OFFSET_MIN || data + u64::from(cap_len) > self.end {
            return None;
        }
        let tagged = status & libc::TP_STATUS_VLAN_VALID != 0 && link_type == LinkType::Ethernet;
        if tagged
            && cap_len as usize >= ADDRESSES_BYTES
            && data - u64::from(VLAN_TAG_BYTES) >= self.at + PACKET_OFFSET_MIN
        {
            let has_type = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
            let ether_type =
                if has_type { u16::from_ne_bytes([header[36], header[37]]) } else { ETHERTYPE_VLAN };
            let tci = u16::from_ne_bytes([header[32], header[33]]);
            data -= u64::from(VLAN_TAG_BYTES);
            let addresses: [u8; ADDRESSES_BYTES] = mapped.read(data + u64::from(VLAN_TAG_BYTES))?;
            let mut front = [0; ADDRESSES_BYTES + VLAN_TAG_BYTES as usize];
            front[..ADDRESSES_BYTES].copy_from_slice(&addresses);
            front[ADDRESSES_BYTES..ADDRESSES_BYTES + 2].copy_from_slice(&ether_type.to_be_bytes());
            front[ADDRESSES_BYTES + 2..].copy_from_slice(&tci.to_be_bytes());
            self.hold.write(data, &front);
            cap_len += VLAN_TAG_BYTES;
            wire_len = wire_len.saturating_add(VLAN_TAG_BYTES);
        }
        let record = CaptureRecord {
            ts: Some(u64::from(seconds) * 1_000_000_000 + u64::from(nanos)),
            cap_len: cap_len.min(snap_len),
            wire_len,
            link_type,
            interface: number,
            data,
            next: 0,
        };
        let is_offloaded = status & libc::TP_STATUS_CSUMNOTREADY != 0;
        let checksum = if is_offloaded { ChecksumStatus::Offloaded } else { ChecksumStatus::Complete };
        Some((record, self.at + u64::from(next), checksum))
    }
}

/// The length and number of the blocks of a ring of at most this size, within limits.
fn ring_layout(ring: Bytes) -> (usize, usize) {
    let ring = usize::try_from(ring.0).unwrap_or(usize::MAX).clamp(16 * BLOCK_MIN, BLOCKS_MAX * BLOCK_MAX);
    let block = (ring / BLOCKS_MAX).max(BLOCK_MIN);
    let block = 1 << block.ilog2();
    (block, (ring / block).min(BLOCKS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_has_whole_blocks_and_is_no_larger_than_requested() {
        assert_eq!(ring_layout(Bytes(64 << 20)), (1 << 20, 64));
        assert_eq!(ring_layout(Bytes(100 << 20)), (1 << 20, 64));
        assert_eq!(ring_layout(Bytes(1 << 20)), (16 << 10, 64));
        assert_eq!(ring_layout(Bytes(0)), (16 << 10, 16));
        assert_eq!(ring_layout(Bytes(u64::MAX)), (4 << 20, 64));
    }
}
