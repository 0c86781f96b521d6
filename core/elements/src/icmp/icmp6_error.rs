//! `ICMP6Error`: answers packets with ICMPv6 errors.

use crate::ipv6::{
    HEADER_BYTES, ICMPV6, ICMPV6_CHECKSUM, Ipv6Header, NewIpv6Header, UpperLayer, upper_layer,
};
use core::net::Ipv6Addr;
use weir_graph::arguments::{ArgumentContext, ArgumentFault, ArgumentValue};
use weir_graph::engine::{
    BuiltElement, DST_IP6, Destination, Effects, Element, ElementClass, ElementCost, FIX_IP_SRC, GraphPacket,
    HEADROOM, ICMP_PARAMPROB, OrderDependence, PacketPool, PacketType, RoutingElement, Services,
};
use weir_graph::handlers;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "ICMP6Error",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
answers packets with ICMPv6 errors

ICMP6Error(SRC, TYPE, CODE, [keyword PMTU])

ICMP6Error turns each IPv6 packet into an ICMPv6 error to its source, with up to 568 bytes of the packet. Packets need a \
network header. The annotation DST_IP6 of the error is its destination address, and its time stamp is that of the packet.

No error answers an ICMPv6 error or redirect, a fragment but the first, a packet that came as a link-level broadcast or \
multicast, or a packet whose source or destination is no address of a single host (RFC 4443, section 2.4). These packets \
are discarded.

The target of a redirect is the annotation DST_IP6 of the packet. The pointer of a parameter problem with code 0 is the \
annotation ICMP_PARAMPROB.

Arguments:
  SRC   the source address of the errors
  TYPE  1 (destination unreachable), 2 (packet too big), 3 (time exceeded), 4 (parameter problem) or 137 (redirect)
  CODE  a number
  PMTU  the MTU that packet too big reports. Default 1500.

Handlers:
  drops  r  the number of packets that were not answered",
    build: |cx| {
        let mut args = cx.arguments();
        let source: Ipv6Addr = args.either("SRC").required();
        let ErrorType6(icmp_type) = args.either("TYPE").required();
        let code = args.either("CODE").required();
        let path_mtu = args.keyword("PMTU").or(1500);
        if source.is_unspecified() {
            args.error("SRC", ":: is no source of an error");
        }
        args.end()?;
        Ok(BuiltElement::routing(Icmp6Error { source, icmp_type, code, path_mtu, drops: 0 }))
    },
};

const PACKET_TOO_BIG: u8 = 2;
const PARAMETER_PROBLEM: u8 = 4;
const REDIRECT: u8 = 137;
/// The highest type of an error, also of one that is not defined yet.
const ERROR_TYPE_MAX: u8 = 127;

const ICMP_BYTES: usize = 8;
/// The ICMP header of a redirect, with the target and the destination.
const REDIRECT_BYTES: usize = 40;
/// The most bytes of the packet in an error.
const COPIED_MAX: usize = 568;
const HOP_LIMIT: u8 = 255;

/// The type of an error, or that of redirects.
struct ErrorType6(u8);

impl ArgumentValue for ErrorType6 {
    fn parse_argument(text: &str, context: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        match u8::parse_argument(text, context)? {
            number @ (1..=PARAMETER_PROBLEM | REDIRECT) => Ok(Self(number)),
            number => {
                Err(ArgumentFault::Other(format!("ICMP6 type {number} is not an error or redirect type")))
            }
        }
    }

    fn placeholder() -> Self {
        Self(REDIRECT)
    }
}

struct Icmp6Error {
    source: Ipv6Addr,
    icmp_type: u8,
    code: u8,
    path_mtu: u32,
    drops: u64,
}

/// Returns true for a packet that an error may answer.
fn is_answered(packet: &GraphPacket, network: &[u8], header: &Ipv6Header<'_>) -> bool {
    let is_group = matches!(packet.packet_type(), PacketType::Broadcast | PacketType::Multicast);
    let source = header.source();
    let is_host = !source.is_multicast() && !source.is_unspecified() && !source.is_loopback();
    let is_error = match upper_layer(network) {
        Some(UpperLayer { is_later_fragment: true, .. }) | None => true,
        Some(UpperLayer { protocol: ICMPV6, bytes, .. }) => bytes
            .and_then(|message| message.first())
            .is_none_or(|icmp_type| *icmp_type <= ERROR_TYPE_MAX || *icmp_type == REDIRECT),
        Some(_) => false,
    };
    !is_group && !header.destination().is_multicast() && is_host && !is_error
}

impl Icmp6Error {
    /// Returns the error for a packet.
    fn answer(&self, packet: &GraphPacket, pool: &mut PacketPool) -> Option<GraphPacket> {
        let network = packet.network_bytes()?;
        let header = Ipv6Header::read_version_6(network)?;
        if !is_answered(packet, network, &header) {
            return None;
        }
        let is_redirect = self.icmp_type == REDIRECT;
        let icmp_bytes = if is_redirect { REDIRECT_BYTES } else { ICMP_BYTES };
        let copied = &network[..network.len().min(COPIED_MAX)];
        let mut error = pool.of_length(HEADER_BYTES + icmp_bytes + copied.len(), HEADROOM);
        let bytes = error.bytes_mut();
        let icmp = &mut bytes[HEADER_BYTES..];
        icmp[..icmp_bytes].fill(0);
        icmp[icmp_bytes..].copy_from_slice(copied);
        (icmp[0], icmp[1]) = (self.icmp_type, self.code);
        match (self.icmp_type, self.code) {
            (PACKET_TOO_BIG, 0) => icmp[4..8].copy_from_slice(&self.path_mtu.to_be_bytes()),
            (PARAMETER_PROBLEM, 0) => {
                icmp[7] = packet.annotation(ICMP_PARAMPROB).first().copied().unwrap_or(0)
            }
            (REDIRECT, 0) => {
                icmp[8..24].copy_from_slice(packet.annotation(DST_IP6));
                icmp[24..40].copy_from_slice(&header.destination().octets());
            }
            _ => {}
        }
        let destination = header.source();
        let new =
            NewIpv6Header { next_header: ICMPV6, hop_limit: HOP_LIMIT, source: self.source, destination };
        new.write_with_checksum(bytes, ICMPV6_CHECKSUM);
        error.set_network_header(0, HEADER_BYTES);
        error.set_time(packet.time());
        error.annotation_mut(DST_IP6).copy_from_slice(&destination.octets());
        error.annotation_mut(FIX_IP_SRC)[0] = 1;
        Some(error)
    }
}

impl Element for Icmp6Error {
    handlers! {
        "drops": counter "the number of packets that were not answered", read |this, _, _| Ok(this.drops.to_string());
    }
}

impl RoutingElement for Icmp6Error {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, services: &mut Services) -> Destination {
        match self.answer(packet, &mut services.pool) {
            Some(error) => {
                services.pool.discard(std::mem::replace(packet, error));
                Destination::FIRST
            }
            None => {
                self.drops += 1;
                Destination::DISCARD
            }
        }
    }
}
