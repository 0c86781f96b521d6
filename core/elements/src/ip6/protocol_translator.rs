//! `ProtocolTranslator64` and `ProtocolTranslator46`: translate packets between IPv6 and IPv4.

use super::translated_icmp::{to_icmp, to_icmpv6};
use crate::ipv4::{
    DONT_FRAGMENT, HEADER_BYTES as IPV4_BYTES, ICMP, Ipv4Header, TCP, UDP, finish_header, transport_checksum,
};
use crate::ipv6::{HEADER_BYTES as IPV6_BYTES, ICMPV6, ICMPV6_CHECKSUM, Ipv6Header, NewIpv6Header};
use core::net::{Ipv4Addr, Ipv6Addr};
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, HEADROOM,
    OrderDependence, PacketPool, RoutingElement, Services,
};
use weir_graph::handlers;
use weir_wire::checksum::internet_checksum;

/// The class that translates to IPv4.
pub static TO_IPV4: ElementClass = ElementClass {
    name: "ProtocolTranslator64",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E2,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
translates packets from IPv6 to IPv4

ProtocolTranslator64()

ProtocolTranslator64 turns IPv6 packets of TCP, UDP and ICMPv6 into IPv4 packets (RFC 2765). Packets begin with the IPv6 \
header, and their addresses have IPv4 addresses in them: ::ffff:192.0.2.1 or ::192.0.2.1. The time to live is the hop \
limit, and fragments are forbidden. Types of ICMPv6 become those of ICMP with the same meaning; the packet within an error \
stays as it is. Checksums are computed. All other packets are discarded: those with extension headers, of other protocols or \
addresses, and those that are cut.

Handlers:
  drops  r  the number of discarded packets",
    build: |cx| {
        cx.arguments().end()?;
        Ok(BuiltElement::routing(ProtocolTranslator { translate: to_ipv4, drops: 0 }))
    },
};

/// The class that translates to IPv6.
pub static TO_IPV6: ElementClass = ElementClass {
    name: "ProtocolTranslator46",
    manual: "\
translates packets from IPv4 to IPv6

ProtocolTranslator46()

ProtocolTranslator46 turns IPv4 packets of TCP, UDP and ICMP into IPv6 packets (RFC 2765). Packets begin with the IPv4 \
header; IPv4 options go. An address 192.0.2.1 becomes ::ffff:192.0.2.1, and the hop limit is the time to live. Types of ICMP \
become those of ICMPv6 with the same meaning; the packet within an error stays as it is. Checksums are computed. All other \
packets are discarded: fragments, other protocols, and packets that are cut.

Handlers:
  drops  r  the number of discarded packets",
    build: |cx| {
        cx.arguments().end()?;
        Ok(BuiltElement::routing(ProtocolTranslator { translate: to_ipv6, drops: 0 }))
    },
    ..TO_IPV4
};

/// The offsets of checksums in the headers of TCP and UDP.
const TCP_CHECKSUM: usize = 16;
const UDP_CHECKSUM: usize = 6;

/// Returns the offset of the checksum in a segment; `None` for another protocol, or a segment that is too short for its
/// header.
fn checksum_at(protocol: u8, segment: &[u8]) -> Option<usize> {
    match protocol {
        TCP if segment.len() >= 20 => Some(TCP_CHECKSUM),
        UDP if segment.len() >= 8 => Some(UDP_CHECKSUM),
        _ => None,
    }
}

/// Returns the IPv4 address in an IPv6 address.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    match address.octets() {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]
        | [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d] => {
            Some(Ipv4Addr::new(a, b, c, d)).filter(|address| !address.is_unspecified())
        }
        _ => None,
    }
}

fn to_ipv4(packet: &[u8], pool: &mut PacketPool) -> Option<GraphPacket> {
    let header = Ipv6Header::read_version_6(packet)?;
    let (source, destination) = (embedded(header.source())?, embedded(header.destination())?);
    let segment = header.segment()?;
    let icmp;
    let (protocol, segment, checksum_at) = match header.next_header() {
        ICMPV6 => {
            icmp = to_icmp(segment)?;
            (ICMP, &icmp[..], None)
        }
        protocol => (protocol, segment, Some(checksum_at(protocol, segment)?)),
    };
    let length = u16::try_from(IPV4_BYTES + segment.len()).ok()?;
    let mut translated = pool.of_length(usize::from(length), HEADROOM);
    let bytes = translated.bytes_mut();
    let (new, data) = bytes.split_at_mut(IPV4_BYTES);
    new.fill(0);
    new[0] = 0x45;
    (new[8], new[9]) = (header.hop_limit(), protocol);
    new[12..16].copy_from_slice(&source.octets());
    new[16..20].copy_from_slice(&destination.octets());
    finish_header(new, length, DONT_FRAGMENT);
    data.copy_from_slice(segment);
    let sum = match checksum_at {
        Some(at) => {
            data[at..at + 2].fill(0);
            transport_checksum(&Ipv4Header::read(new)?, data)
        }
        None => internet_checksum(data),
    };
    // 0 stands for no checksum in UDP.
    let sum = if protocol == UDP && sum == 0 { u16::MAX } else { sum };
    let at = checksum_at.unwrap_or(ICMPV6_CHECKSUM);
    data[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    translated.set_network_header(0, IPV4_BYTES);
    Some(translated)
}

fn to_ipv6(packet: &[u8], pool: &mut PacketPool) -> Option<GraphPacket> {
    let header = Ipv4Header::read_version_4(packet).filter(|header| !header.is_fragment())?;
    let segment = header.segment()?;
    let icmp;
    let (next_header, segment, checksum_at) = match header.protocol() {
        ICMP => {
            icmp = to_icmpv6(segment)?;
            (ICMPV6, &icmp[..], ICMPV6_CHECKSUM)
        }
        protocol => (protocol, segment, checksum_at(protocol, segment)?),
    };
    let mut translated = pool.of_length(IPV6_BYTES + segment.len(), HEADROOM);
    let bytes = translated.bytes_mut();
    bytes[IPV6_BYTES..].copy_from_slice(segment);
    let new = NewIpv6Header {
        next_header,
        hop_limit: header.bytes[8],
        source: header.source().to_ipv6_mapped(),
        destination: header.destination().to_ipv6_mapped(),
    };
    new.write_with_checksum(bytes, checksum_at);
    let sum = &mut bytes[IPV6_BYTES + checksum_at..][..2];
    if next_header == UDP && *sum == [0, 0] {
        sum.fill(0xff);
    }
    translated.set_network_header(0, IPV6_BYTES);
    Some(translated)
}

struct ProtocolTranslator {
    /// Returns the packet in the other protocol; `None` if there is none.
    translate: fn(&[u8], &mut PacketPool) -> Option<GraphPacket>,
    drops: u64,
}

impl Element for ProtocolTranslator {
    handlers! {
        "drops": counter "the number of discarded packets", read |this, _, _| Ok(this.drops.to_string());
    }
}

impl RoutingElement for ProtocolTranslator {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, services: &mut Services) -> Destination {
        let Some(mut translated) = (self.translate)(packet.bytes(), &mut services.pool) else {
            self.drops += 1;
            return Destination::DISCARD;
        };
        translated.set_time(packet.time());
        services.pool.discard(std::mem::replace(packet, translated));
        Destination::FIRST
    }
}
