//! `ICMPPingResponder`: answers ICMP echo requests.

use super::names::{ECHO, ECHO_REPLY};
use crate::ipv4::{ICMP, Ipv4Header, half, set_header_half};
use weir_graph::engine::{
    BuiltElement, DST_IP, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket,
    OrderDependence, PAINT, RoutingElement, Services,
};
use weir_graph::handlers;
use weir_wire::checksum::updated_checksum;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "ICMPPingResponder",
    ports: "1/1-2",
    processing: "a/ah",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::CLOCK,
    order: OrderDependence::Ordered,
    manual: "\
answers ICMP echo requests

ICMPPingResponder()

ICMPPingResponder turns ICMP echo requests into their replies: it swaps the addresses, sets the time to live to 255, clears \
the fragment field, and updates the checksums by the change. The annotation DST_IP becomes the new destination, the paint 0, \
and the time stamp the present time. Other packets go to output 1, or are discarded without one. Source routes are not \
reversed.

Handlers:
  drops  r  the number of packets for output 1",
    build: |cx| {
        cx.arguments().end()?;
        Ok(BuiltElement::routing(PingResponder { drops: 0 }))
    },
};

const ICMP_BYTES: usize = 8;
const TIME_TO_LIVE: u16 = 255;

struct PingResponder {
    drops: u64,
}

impl Element for PingResponder {
    handlers! {
        "drops": counter "the number of packets for output 1", read |this, _, _| Ok(this.drops.to_string());
    }
}

impl RoutingElement for PingResponder {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, services: &mut Services) -> Destination {
        let is_echo = |header: &Ipv4Header<'_>| {
            let icmp = header.transport();
            header.protocol() == ICMP && header.is_first() && icmp.len() >= ICMP_BYTES && icmp[0] == ECHO
        };
        let Some(header) = Ipv4Header::of(packet).filter(is_echo) else {
            self.drops += 1;
            return Destination::output(1);
        };
        let (at, source) = (header.header_bytes, header.source());
        packet.annotation_mut(DST_IP).copy_from_slice(&source.octets());
        packet.annotation_mut(PAINT)[0] = 0;
        packet.set_time(services.now());
        if let Some(bytes) = packet.network_bytes_mut() {
            bytes[12..20].rotate_left(4);
            set_header_half(bytes, 6, 0);
            set_header_half(bytes, 8, TIME_TO_LIVE << 8 | u16::from(ICMP));
            let reply = u16::from_be_bytes([ECHO_REPLY, 0]);
            let sum = updated_checksum(half(bytes, at + 2), half(bytes, at).into(), reply.into());
            bytes[at..at + 2].copy_from_slice(&reply.to_be_bytes());
            bytes[at + 2..at + 4].copy_from_slice(&sum.to_be_bytes());
        }
        Destination::FIRST
    }
}
