//! The descriptor of a packet, which weir writes before the module runs.

/// The classifier's results for one packet: 128 bytes, little-endian, naturally aligned. Most modules need only the
/// first 64, a cache line.
///
/// Offsets count from the first captured byte of the packet. "Outermost IP" is the first IP header
/// after any VLAN tags, MPLS labels and PPPoE session header; headers tunnelled inside it are payload. The fields from
/// `inner_flow_hash` on describe the innermost IP header there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Descriptor {
    /// Time stamp, ns since 1970-01-01 00:00 UTC.
    pub ts_ns: u64,
    /// Guest address of the first captured byte: [`Packet::bytes`](crate::Packet::bytes) gives the bytes.
    pub data: u32,
    /// Bytes captured.
    pub cap_len: u32,
    /// Bytes that the packet had on the link.
    pub wire_len: u32,
    /// Bits of [`flag`].
    pub flags: u32,
    /// Hash of the flow: both directions give the same value, all fragments of a datagram give that of its addresses and
    /// protocol. Taken over addresses, protocol and ports; for other packets over the link header.
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
    /// Hash of the flow of the innermost packet in tunnels, computed as [`flow_hash`](Self::flow_hash); valid where `tunnel` is not 0.
    pub inner_flow_hash: u64,
    /// Reference to the packet's stream; 0, as there are no streams yet.
    pub stream: u32,
    /// Offset of the packet's annotations in a graph; 0, as there are no graphs yet.
    pub annotation: u32,
    /// Offset of the innermost IP header in tunnels; valid where `tunnel` is not 0.
    pub inner_offset: u16,
    /// The tunnel that carries the innermost IP packet: a number of [`tunnel`]; 0 for a packet without a tunnel, or without IP in it.
    pub tunnel: u8,
    /// Tunnels around the innermost IP packet: 0 to 4, as no more are followed.
    pub tunnel_count: u8,
    /// Flags of the packet of the innermost IP header, without those of the link layer. These fields are valid where
    /// `tunnel` is not 0.
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
    /// Zeros.
    pub spare: [u32; 6],
}

const _: () = assert!(core::mem::size_of::<Descriptor>() == 128);

/// Bits of [`Descriptor::flags`].
pub mod flag {
    /// The outermost IP header is IPv4, its fixed part is captured and consistent.
    pub const IPV4: u32 = 1 << 0;
    /// The outermost IP header is IPv6, its fixed part is captured.
    pub const IPV6: u32 = 1 << 1;
    /// The protocol is TCP, and this is no later fragment.
    pub const TCP: u32 = 1 << 2;
    /// The protocol is UDP, and this is no later fragment.
    pub const UDP: u32 = 1 << 3;
    /// The protocol is ICMP or ICMPv6, and this is no later fragment.
    pub const ICMP: u32 = 1 << 4;
    /// The header above IP is captured up to its end (for TCP, with its options; UDP 8 bytes; ICMP 8 bytes; other protocols 0 bytes),
    /// so `l4_offset`, `payload_offset`, `payload_len` and the ports are valid.
    pub const L4: u32 = 1 << 5;
    /// Part of a fragmented datagram: the first, or a later one.
    pub const FRAGMENT: u32 = 1 << 6;
    /// A fragment that is not the first: it carries no header above IP.
    pub const LATER_FRAGMENT: u32 = 1 << 7;
    /// At least one VLAN tag.
    pub const VLAN: u32 = 1 << 8;
    /// At least one MPLS label.
    pub const MPLS: u32 = 1 << 9;
    /// A PPPoE session header.
    pub const PPPOE: u32 = 1 << 10;
    /// Fewer bytes captured than were on the link.
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

/// Bits of [`Descriptor::tcp_flags`].
pub mod tcp {
    /// No more data from this side.
    pub const FIN: u8 = 0x01;
    /// Opens a connection.
    pub const SYN: u8 = 0x02;
    /// Ends a connection at once.
    pub const RST: u8 = 0x04;
    /// To be handed to the application without delay.
    pub const PSH: u8 = 0x08;
    /// The acknowledgement number is valid.
    pub const ACK: u8 = 0x10;
    /// The urgent pointer is valid.
    pub const URG: u8 = 0x20;
    /// Congestion was seen (RFC 3168).
    pub const ECE: u8 = 0x40;
    /// The congestion window was reduced (RFC 3168).
    pub const CWR: u8 = 0x80;
}
