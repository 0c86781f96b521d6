//! The descriptor that trusted code writes once for each packet, and that every module reads in place.

/// The classifier's results for one packet: 128 bytes, little-endian, naturally aligned. Most modules need only the
/// first 64, a cache line.
///
/// Offsets count from the first captured byte of the packet ([`data`](Self::data)). "Outermost IP" is the first IP
/// header after any VLAN tags, MPLS labels and PPPoE session header; headers tunnelled inside it are payload. The
/// fields from `inner_flow_hash` on describe the innermost IP header of a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Descriptor {
    /// Time stamp, ns since 1970-01-01 00:00 UTC.
    pub ts_ns: u64,
    /// Guest address of the first captured byte.
    pub data: u32,
    /// Bytes captured, readable at `data`.
    pub cap_len: u32,
    /// Bytes that the packet had on the link.
    pub wire_len: u32,
    /// A set of the bits of [`flag`].
    pub flags: u32,
    /// Hash of addresses, protocol and ports, equal in both directions of a flow. The ports are left out for all
    /// fragments of a datagram. For a packet without IP it is a hash of the link header.
    pub flow_hash: u64,
    /// Offset of the outermost IP header; valid with `IPV4` or `IPV6`.
    pub l3_offset: u16,
    /// Offset of the TCP, UDP, ICMP or other header above IP; valid with `L4`.
    pub l4_offset: u16,
    /// Offset of the first byte above the TCP, UDP or ICMP header; valid with `L4`.
    pub payload_offset: u16,
    /// The last EtherType found (after tags and labels), host order: 0x0800, 0x86DD, 0x0806, …; 0 if there is none.
    pub ether_type: u16,
    /// Captured bytes from `payload_offset` on, without link-layer padding; valid with `L4`.
    pub payload_len: u32,
    /// TCP or UDP source port, host order; 0 where there is none.
    pub src_port: u16,
    /// TCP or UDP destination port, host order; 0 where there is none.
    pub dst_port: u16,
    /// Protocol above IP (after IPv6 extension headers), as IANA numbers it; valid with `IPV4` or `IPV6`.
    pub ip_proto: u8,
    /// TCP flags (FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128); 0 without `TCP`, or where they are not captured.
    pub tcp_flags: u8,
    /// IPv4 time to live or IPv6 hop limit.
    pub ttl: u8,
    /// IPv4 type of service or IPv6 traffic class: DSCP in the upper six bits, ECN in the lower two.
    pub tos: u8,
    /// Tag control information of the outermost VLAN tag, host order; valid with `VLAN`.
    pub vlan_tci: u16,
    /// Capture interface: 0 in pcap, the interface's number in pcapng.
    pub interface: u16,
    /// Link type of the packet (LINKTYPE_…, as the tcpdump group numbers them).
    pub link_type: u16,
    /// VLAN tags before the outermost IP header.
    pub vlan_count: u8,
    /// MPLS labels before the outermost IP header.
    pub mpls_count: u8,
    /// Number of the packet in the capture, from 0; the lower 32 bits.
    pub number: u32,
    /// The [`flow_hash`](Self::flow_hash) of the innermost IP packet of a tunnel; valid where `tunnel` is not 0.
    pub inner_flow_hash: u64,
    /// Reference to the packet's stream; 0, as there are no streams yet.
    pub stream: u32,
    /// Offset of the packet's annotations in a graph; 0, as there are no graphs yet.
    pub annotation: u32,
    /// Offset of the innermost IP header of a tunnel; valid where `tunnel` is not 0.
    pub inner_offset: u16,
    /// The tunnel that carries the innermost IP packet: a number of [`tunnel`]; 0 for a packet without a tunnel, or without IP in it.
    pub tunnel: u8,
    /// Number of tunnels around the innermost IP packet: 0 to 4. The classifier follows no more.
    pub tunnel_count: u8,
    /// The [`flags`](Self::flags) of the packet of the innermost IP header, without those of the link layer. These fields
    /// are valid where `tunnel` is not 0.
    pub inner_flags: u32,
    /// As [`l4_offset`](Self::l4_offset), of the innermost packet.
    pub inner_l4_offset: u16,
    /// As [`payload_offset`](Self::payload_offset), of the innermost packet.
    pub inner_payload_offset: u16,
    /// As [`payload_len`](Self::payload_len), of the innermost packet.
    pub inner_payload_len: u32,
    /// As [`src_port`](Self::src_port), of the innermost packet.
    pub inner_src_port: u16,
    /// As [`dst_port`](Self::dst_port), of the innermost packet.
    pub inner_dst_port: u16,
    /// As [`ip_proto`](Self::ip_proto), of the innermost packet.
    pub inner_ip_proto: u8,
    /// As [`tcp_flags`](Self::tcp_flags), of the innermost packet.
    pub inner_tcp_flags: u8,
    /// As [`ttl`](Self::ttl), of the innermost packet.
    pub inner_ttl: u8,
    /// As [`tos`](Self::tos), of the innermost packet.
    pub inner_tos: u8,
    /// Reserved: zeros.
    pub spare: [u32; 6],
}

const _: () = assert!(core::mem::size_of::<Descriptor>() == crate::DESCRIPTOR_BYTES);

impl Descriptor {
    /// Reads a descriptor from a copy of its bytes.
    #[inline]
    pub fn from_bytes(bytes: &[u8; crate::DESCRIPTOR_BYTES]) -> Self {
        // Inlined, because each bounds check is then known to succeed.
        #[inline(always)]
        fn chunk<const N: usize>(bytes: &[u8; crate::DESCRIPTOR_BYTES], at: usize) -> [u8; N] {
            let mut chunk = [0; N];
            chunk.copy_from_slice(&bytes[at..at + N]);
            chunk
        }
        let at8 = |i: usize| u64::from_le_bytes(chunk(bytes, i));
        let at4 = |i: usize| u32::from_le_bytes(chunk(bytes, i));
        let at2 = |i: usize| u16::from_le_bytes(chunk(bytes, i));
        Self {
            ts_ns: at8(0),
            data: at4(8),
            cap_len: at4(12),
            wire_len: at4(16),
            flags: at4(20),
            flow_hash: at8(24),
            l3_offset: at2(32),
            l4_offset: at2(34),
            payload_offset: at2(36),
            ether_type: at2(38),
            payload_len: at4(40),
            src_port: at2(44),
            dst_port: at2(46),
            ip_proto: bytes[48],
            tcp_flags: bytes[49],
            ttl: bytes[50],
            tos: bytes[51],
            vlan_tci: at2(52),
            interface: at2(54),
            link_type: at2(56),
            vlan_count: bytes[58],
            mpls_count: bytes[59],
            number: at4(60),
            inner_flow_hash: at8(64),
            stream: at4(72),
            annotation: at4(76),
            inner_offset: at2(80),
            tunnel: bytes[82],
            tunnel_count: bytes[83],
            inner_flags: at4(84),
            inner_l4_offset: at2(88),
            inner_payload_offset: at2(90),
            inner_payload_len: at4(92),
            inner_src_port: at2(96),
            inner_dst_port: at2(98),
            inner_ip_proto: bytes[100],
            inner_tcp_flags: bytes[101],
            inner_ttl: bytes[102],
            inner_tos: bytes[103],
            spare: core::array::from_fn(|i| at4(104 + 4 * i)),
        }
    }
}

/// Bits of [`Descriptor::flags`].
pub mod flag {
    /// The outermost IP header is IPv4, its fixed part is captured and consistent.
    pub const IPV4: u32 = 1 << 0;
    /// The outermost IP header is IPv6, its fixed part is captured.
    pub const IPV6: u32 = 1 << 1;
    /// The protocol is TCP, and the packet is not a later fragment.
    pub const TCP: u32 = 1 << 2;
    /// The protocol is UDP, and the packet is not a later fragment.
    pub const UDP: u32 = 1 << 3;
    /// The protocol is ICMP or ICMPv6, and the packet is not a later fragment.
    pub const ICMP: u32 = 1 << 4;
    /// The header above IP is captured up to its end (for TCP, with its options; UDP 8 bytes; ICMP 8 bytes; other protocols 0 bytes),
    /// so `l4_offset`, `payload_offset`, `payload_len` and the ports are valid.
    pub const L4: u32 = 1 << 5;
    /// A fragment of a datagram: the first, or a later one.
    pub const FRAGMENT: u32 = 1 << 6;
    /// A fragment that is not the first: it carries no header above IP.
    pub const LATER_FRAGMENT: u32 = 1 << 7;
    /// At least one VLAN tag.
    pub const VLAN: u32 = 1 << 8;
    /// At least one MPLS label.
    pub const MPLS: u32 = 1 << 9;
    /// A PPPoE session header.
    pub const PPPOE: u32 = 1 << 10;
    /// Fewer bytes were captured than the packet had on the link.
    pub const CUT: u32 = 1 << 11;
    /// A header contradicts itself or the packet's length.
    pub const MALFORMED: u32 = 1 << 12;
    /// An IPv4 header with options, or an IPv6 packet with extension headers.
    pub const OPTIONS: u32 = 1 << 13;
}

/// Values of [`Descriptor::tunnel`].
pub mod tunnel {
    /// No tunnel, or none with an IP packet in it.
    pub const NONE: u8 = 0;
    /// IPv4 or IPv6 directly in IPv4 or IPv6.
    pub const IP_IN_IP: u8 = 1;
    /// MPLS labels in IP.
    pub const MPLS_IN_IP: u8 = 2;
    /// GRE of version 0.
    pub const GRE: u8 = 3;
    /// VXLAN.
    pub const VXLAN: u8 = 4;
    /// Geneve.
    pub const GENEVE: u8 = 5;
    /// GTP-U.
    pub const GTP_U: u8 = 6;
    /// Teredo.
    pub const TEREDO: u8 = 7;
}
