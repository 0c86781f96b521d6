//! The kernel's headers of packets in the ring of a packet socket (`tpacket2_hdr`, `tpacket3_hdr`).

use super::packet::PacketOf;
use super::packet_ring::RingHold;
use crate::arrival::{PacketArrival, PacketReceiver};
use crate::checksum::ChecksumStatus;
use crate::format::CaptureRecord;
use crate::mapped_bytes::MappedBytes;
use weir_wire::LinkType;

/// The length of a header of TPACKET_V2.
const HEADER_V2: usize = size_of::<libc::tpacket2_hdr>();
/// The length of a header of TPACKET_V3.
const HEADER_V3: usize = size_of::<libc::tpacket3_hdr>();
/// The least distance of a packet from the beginning of its header of TPACKET_V2: the header and the link-layer address.
pub(super) const PACKET_OFFSET_MIN_V2: usize = HEADER_V2 + size_of::<libc::sockaddr_ll>();
/// The same for TPACKET_V3.
const PACKET_OFFSET_MIN_V3: usize = HEADER_V3 + size_of::<libc::sockaddr_ll>();
/// The length of a VLAN tag.
pub(super) const VLAN_TAG_BYTES: u32 = 4;
/// The length of the two addresses in front of a VLAN tag.
const ADDRESSES_BYTES: usize = 12;
const ETHERTYPE_VLAN: u16 = 0x8100;
/// The offset of the packet type in an address (`sockaddr_ll`).
const PACKET_TYPE_OFFSET: u64 = 10;
/// The length of the offloads in front of a packet (`virtio_net_hdr`).
const OFFLOADS_BYTES: usize = 10;
/// The types of merged packets that can be divided: TCP over IPv4, TCP over IPv6, UDP (`VIRTIO_NET_HDR_GSO_TCPV4`,
/// `_TCPV6`, `_UDP_L4`).
const MERGED_TYPES: [u8; 3] = [1, 4, 5];
/// The bit of a type for TCP with ECN.
const MERGED_WITH_ECN: u8 = 0x80;

/// A header of either version, in a private copy. Nothing of it is trusted.
#[derive(Clone, Copy, Debug)]
pub(super) struct KernelHeader {
    status: u32,
    seconds: u32,
    nanos: u32,
    cap_len: u32,
    wire_len: u32,
    /// The offset of the packet from the header.
    packet_offset: u16,
    /// The least value of `packet_offset`.
    packet_offset_min: usize,
    vlan_tci: u16,
    vlan_ether_type: u16,
}

impl KernelHeader {
    /// Reads a header of TPACKET_V2, whose `status` was read before; `None` if it is not all mapped.
    #[inline(always)]
    pub(super) fn read_v2(mapped: &MappedBytes<'_>, at: u64, status: u32) -> Option<Self> {
        let header: [u8; HEADER_V2] = mapped.read(at)?;
        Some(Self {
            status,
            wire_len: word(&header, 4),
            cap_len: word(&header, 8),
            packet_offset: half(&header, 12),
            packet_offset_min: PACKET_OFFSET_MIN_V2,
            seconds: word(&header, 16),
            nanos: word(&header, 20),
            vlan_tci: half(&header, 24),
            vlan_ether_type: half(&header, 26),
        })
    }

    /// Reads a header of TPACKET_V3 and the offset of the next header; `None` if it is not all mapped.
    #[inline(always)]
    pub(super) fn read_v3(mapped: &MappedBytes<'_>, at: u64) -> Option<(Self, u64)> {
        let header: [u8; HEADER_V3] = mapped.read(at)?;
        let read = Self {
            seconds: word(&header, 4),
            nanos: word(&header, 8),
            cap_len: word(&header, 12),
            wire_len: word(&header, 16),
            status: word(&header, 20),
            packet_offset: half(&header, 24),
            packet_offset_min: PACKET_OFFSET_MIN_V3,
            vlan_tci: half(&header, 32),
            vlan_ether_type: half(&header, 36),
        };
        Some((read, at + u64::from(word(&header, 0))))
    }

    /// The packet of the header at `at`, with its checksum state; `None` if the header is invalid. The packet must end
    /// at `end` at the latest. A VLAN tag that the kernel has removed is put back, in memory that `hold` holds.
    #[inline(always)]
    pub(super) fn record(
        mut self,
        mapped: &MappedBytes<'_>,
        hold: &RingHold,
        at: u64,
        end: u64,
        packet: PacketOf,
    ) -> Option<(CaptureRecord, ChecksumStatus, Option<PacketArrival>)> {
        let offset_min = self.packet_offset_min as u64;
        let mut data = at + u64::from(self.packet_offset);
        if u64::from(self.packet_offset) < offset_min || data + u64::from(self.cap_len) > end {
            return None;
        }
        // Before the tag is put back, where the end of the offloads is.
        let arrival = if packet.has_arrivals { Some(self.arrival(mapped, at, data)?) } else { None };
        let tagged = self.status & libc::TP_STATUS_VLAN_VALID != 0 && packet.link_type == LinkType::Ethernet;
        if tagged
            && self.cap_len as usize >= ADDRESSES_BYTES
            && data - u64::from(VLAN_TAG_BYTES) >= at + offset_min
        {
            data -= u64::from(VLAN_TAG_BYTES);
            self.put_tag_back(mapped, hold, data)?;
            self.cap_len += VLAN_TAG_BYTES;
            self.wire_len = self.wire_len.saturating_add(VLAN_TAG_BYTES);
        }
        let record = CaptureRecord {
            ts: Some(u64::from(self.seconds) * 1_000_000_000 + u64::from(self.nanos)),
            cap_len: self.cap_len.min(packet.snap_len),
            wire_len: self.wire_len,
            link_type: packet.link_type,
            interface: packet.number,
            data,
            next: 0,
        };
        let is_offloaded = self.status & libc::TP_STATUS_CSUMNOTREADY != 0;
        let checksum = if is_offloaded { ChecksumStatus::Offloaded } else { ChecksumStatus::Complete };
        Some((record, checksum, arrival))
    }

    /// The arrival of the packet at `data`, whose header is at `at`.
    fn arrival(&self, mapped: &MappedBytes<'_>, at: u64, data: u64) -> Option<PacketArrival> {
        let address = at + (self.packet_offset_min - size_of::<libc::sockaddr_ll>()) as u64;
        let receiver: [u8; 1] = mapped.read(address + PACKET_TYPE_OFFSET)?;
        let offloads: [u8; OFFLOADS_BYTES] = mapped.read(data.checked_sub(OFFLOADS_BYTES as u64)?)?;
        let is_merged = MERGED_TYPES.contains(&(offloads[1] & !MERGED_WITH_ECN));
        Some(PacketArrival {
            receiver: PacketReceiver::from_kernel(receiver[0]),
            segment_bytes: if is_merged { half(&offloads, 4) } else { 0 },
        })
    }

    /// Moves the packet's addresses to `data`, four bytes before the packet, and writes the VLAN tag behind them.
    fn put_tag_back(&self, mapped: &MappedBytes<'_>, hold: &RingHold, data: u64) -> Option<()> {
        let has_type = self.status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
        let ether_type = if has_type { self.vlan_ether_type } else { ETHERTYPE_VLAN };
        let addresses: [u8; ADDRESSES_BYTES] = mapped.read(data + u64::from(VLAN_TAG_BYTES))?;
        let mut front = [0; ADDRESSES_BYTES + VLAN_TAG_BYTES as usize];
        front[..ADDRESSES_BYTES].copy_from_slice(&addresses);
        front[ADDRESSES_BYTES..ADDRESSES_BYTES + 2].copy_from_slice(&ether_type.to_be_bytes());
        front[ADDRESSES_BYTES + 2..].copy_from_slice(&self.vlan_tci.to_be_bytes());
        hold.write(data, &front);
        Some(())
    }
}

/// The number at an offset of a header, in the byte order of this machine.
#[inline(always)]
fn word<const N: usize>(header: &[u8; N], at: usize) -> u32 {
    u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

/// As [`word`], for a number of two bytes.
#[inline(always)]
fn half<const N: usize>(header: &[u8; N], at: usize) -> u16 {
    u16::from_ne_bytes([header[at], header[at + 1]])
}
