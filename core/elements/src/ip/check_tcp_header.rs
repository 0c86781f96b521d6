//! `CheckTCPHeader`: passes packets with a right TCP header.

use super::bad_packets::{BadPackets, bad_packets};
use super::header::{Ipv4, TCP, transport_checksum};
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "CheckTCPHeader",
    ports: "1/1-2",
    processing: "a/ah",
    flow: "x/x",
    cost: ElementCost::E2,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
passes packets with a right TCP header

CheckTCPHeader([keywords VERBOSE, DETAILS])

CheckTCPHeader checks the protocol, the header length and the checksum of TCP packets, whose IP header is known. Others go \
to output 1, or are discarded without one. The message about the first of them comes at the end of the run.

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
        let reasons = &["not TCP", "bad packet length", "bad TCP checksum"];
        let bad = BadPackets::new(cx.name(), "TCP", reasons, is_verbose);
        Ok(BuiltElement::routing(CheckTcpHeader { bad }))
    },
};

struct CheckTcpHeader {
    bad: BadPackets,
}

impl Element for CheckTcpHeader {
    bad_packets!();
}

impl RoutingElement for CheckTcpHeader {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, services: &mut Services) -> Destination {
        match check(packet) {
            Ok(()) => Destination::FIRST,
            Err(reason) => self.bad.refuse(reason, services),
        }
    }
}

/// Checks a packet. Fails with the index of a reason.
fn check(packet: &GraphPacket) -> Result<(), usize> {
    let header = Ipv4::of(packet).filter(|it| it.protocol() == TCP).ok_or(0_usize)?;
    let segment = header.segment().filter(|it| it.len() >= 20).ok_or(1_usize)?;
    let header_bytes = usize::from(segment[12] >> 4) * 4;
    if header_bytes < 20 || segment.len() < header_bytes {
        return Err(1);
    }
    if transport_checksum(&header, segment) == 0 { Ok(()) } else { Err(2) }
}
