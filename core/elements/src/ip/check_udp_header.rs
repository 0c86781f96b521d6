//! `CheckUDPHeader`: passes packets with a right UDP header.

use super::bad_packets::{BadPackets, bad_packets};
use super::header::{Ipv4, UDP, half, transport_checksum};
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "CheckUDPHeader",
    ports: "1/1-2",
    processing: "a/ah",
    flow: "x/x",
    cost: ElementCost::E2,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
passes packets with a right UDP header

CheckUDPHeader([keywords VERBOSE, DETAILS])

CheckUDPHeader checks the protocol, the length and the checksum of UDP packets, whose IP header is known. A checksum of 0 \
stands for none, and is right. Others go to output 1, or are discarded without one. The message about the first of them \
comes at the end of the run.

Arguments:
  VERBOSE  true: writes a message about each wrong packet. Default false.
  DETAILS  has no effect: the counts by reason are always there

Handlers:
  drops         r  the number of wrong packets
  drop_details  r  their number for each reason",
    build: |cx| {
        let mut args = cx.arguments();
        let is_verbose = args.flag("VERBOSE");
        let _: Option<bool> = args.keyword("DETAILS").optional();
        args.end()?;
        let reasons = &["not UDP", "bad packet length", "bad UDP checksum"];
        let bad = BadPackets::new(cx.name(), "UDP", reasons, is_verbose);
        Ok(BuiltElement::routing(CheckUdpHeader { bad }))
    },
};

struct CheckUdpHeader {
    bad: BadPackets,
}

impl Element for CheckUdpHeader {
    bad_packets!();
}

impl RoutingElement for CheckUdpHeader {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, services: &mut Services) -> Destination {
        match check(packet) {
            Ok(()) => Destination::FIRST,
            Err(reason) => self.bad.refuse(reason, services),
        }
    }
}

/// Checks a packet. Fails with the index of a reason.
fn check(packet: &GraphPacket) -> Result<(), usize> {
    let header = Ipv4::of(packet).filter(|it| it.protocol() == UDP).ok_or(0_usize)?;
    let datagram = header.transport();
    let length = usize::from(half(datagram, 4));
    if length < 8 || datagram.len() < length {
        return Err(1);
    }
    if half(datagram, 6) == 0 || transport_checksum(&header, &datagram[..length]) == 0 {
        return Ok(());
    }
    Err(2)
}
