//! The result of etherparse, an independent parser, for a packet.

use etherparse::{LaxNetSlice, LaxSlicedPacket, TransportSlice};
use weir_abi::{Descriptor, flag};
use weir_wire::LinkType;

/// The parts of a descriptor that etherparse determines too.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen {
    pub kind: u32,
    pub l3_offset: usize,
    pub ttl_tos: (u8, u8),
    /// The offset of the header above IP, and the offset and length of its data; `None` for fragments.
    pub upper: Option<(usize, usize, usize)>,
    pub ports: (u16, u16),
    pub tcp_flags: u8,
}

const KINDS: u32 = flag::IPV4 | flag::IPV6 | flag::TCP | flag::UDP | flag::ICMP | flag::FRAGMENT;

/// The same parts of our descriptor.
pub fn ours(d: &Descriptor) -> Seen {
    let has_upper = d.flags & flag::L4 != 0 && d.flags & flag::FRAGMENT == 0;
    // etherparse does not parse above IP in a fragment, so these parts cannot be compared.
    let whole = d.flags & flag::FRAGMENT == 0;
    Seen {
        kind: d.flags & if whole { KINDS } else { flag::IPV4 | flag::IPV6 | flag::FRAGMENT },
        l3_offset: usize::from(d.l3_offset),
        ttl_tos: (d.ttl, d.tos),
        upper: has_upper.then(|| {
            (
                usize::from(d.l4_offset),
                usize::from(d.payload_offset),
                usize::try_from(d.payload_len).expect("a length"),
            )
        }),
        ports: if whole { (d.src_port, d.dst_port) } else { (0, 0) },
        tcp_flags: if whole { d.tcp_flags } else { 0 },
    }
}

/// The parts found by etherparse; `None` if it finds no IP.
pub fn etherparse(packet: &[u8], link_type: LinkType) -> Option<Seen> {
    let sliced = match link_type {
        LinkType::Ethernet => LaxSlicedPacket::from_ethernet(packet).ok()?,
        _ => LaxSlicedPacket::from_ip(packet).ok()?,
    };
    let at = |part: &[u8]| part.as_ptr().addr() - packet.as_ptr().addr();
    let (header, kind, ttl_tos, payload, fragmented) = match sliced.net.as_ref()? {
        LaxNetSlice::Ipv4(ip) => {
            let header = ip.header();
            let tos = header.slice()[1];
            (
                at(header.slice()),
                flag::IPV4,
                (header.ttl(), tos),
                ip.payload().clone(),
                ip.is_payload_fragmented(),
            )
        }
        LaxNetSlice::Ipv6(ip) => {
            let header = ip.header();
            let fields = (header.hop_limit(), header.traffic_class());
            (at(header.slice()), flag::IPV6, fields, ip.payload().clone(), ip.is_payload_fragmented())
        }
        LaxNetSlice::Arp(_) => return None,
    };
    let mut seen = Seen { kind, l3_offset: header, ttl_tos, upper: None, ports: (0, 0), tcp_flags: 0 };
    if fragmented {
        seen.kind |= flag::FRAGMENT;
        return Some(seen);
    }
    let upper = at(payload.payload);
    seen.upper = Some(match &sliced.transport {
        Some(TransportSlice::Tcp(tcp)) => {
            seen.kind |= flag::TCP;
            seen.ports = (tcp.source_port(), tcp.destination_port());
            seen.tcp_flags = tcp.slice()[13];
            (at(tcp.slice()), at(tcp.payload()), tcp.payload().len())
        }
        Some(TransportSlice::Udp(udp)) => {
            seen.kind |= flag::UDP;
            seen.ports = (udp.source_port(), udp.destination_port());
            (at(udp.slice()), at(udp.payload()), udp.payload().len())
        }
        // The ICMP header counts as 8 bytes here, whatever the type.
        Some(TransportSlice::Icmpv4(icmp)) => {
            seen.kind |= flag::ICMP;
            (at(icmp.slice()), at(icmp.slice()) + 8, icmp.slice().len() - 8)
        }
        Some(TransportSlice::Icmpv6(icmp)) => {
            seen.kind |= flag::ICMP;
            (at(icmp.slice()), at(icmp.slice()) + 8, icmp.slice().len() - 8)
        }
        Some(TransportSlice::Igmp(_)) | None => (upper, upper, payload.payload.len()),
    });
    Some(seen)
}

/// Returns true if both parsers should agree: they know all headers of the packet, and none is damaged or cut off.
pub fn comparable(d: &Descriptor, link_type: LinkType) -> bool {
    const AH: u8 = 51;
    matches!(link_type, LinkType::Ethernet | LinkType::Raw)
        && d.flags & (flag::MALFORMED | flag::CUT | flag::MPLS | flag::PPPOE) == 0
        && d.vlan_count <= 3
        && d.flags & (flag::IPV4 | flag::IPV6) != 0
        // In IPv4, etherparse takes an authentication header for an extension.
        && !(d.flags & flag::IPV4 != 0 && d.ip_proto == AH)
}
