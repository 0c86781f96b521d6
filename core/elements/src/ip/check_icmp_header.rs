//! `CheckICMPHeader`: passes packets with a right ICMP header.

use super::bad_packets::{BadPackets, bad_packets};
use super::header::{ICMP, Ipv4};
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};
use weir_wire::checksum::internet_checksum;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "CheckICMPHeader",
    ports: "1/1-2",
    processing: "a/ah",
    flow: "x/x",
    cost: ElementCost::E2,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
passes packets with a right ICMP header

CheckICMPHeader([keywords VERBOSE, DETAILS])

CheckICMPHeader checks the protocol, the length and the checksum of ICMP packets, whose IP header is known. Errors must \
have 28 bytes of the original packet, timestamps 20 bytes and information requests 8 bytes. Others go to output 1, or are \
discarded without one. The message about the first of them comes at the end of the run.

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
        let reasons = &["not ICMP", "bad packet length", "bad ICMP checksum"];
        let bad = BadPackets::new(cx.name(), "ICMP", reasons, is_verbose);
        Ok(BuiltElement::routing(CheckIcmpHeader { bad }))
    },
};

struct CheckIcmpHeader {
    bad: BadPackets,
}

impl Element for CheckIcmpHeader {
    bad_packets!();
}

impl RoutingElement for CheckIcmpHeader {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, services: &mut Services) -> Destination {
        match check(packet) {
            Ok(()) => Destination::FIRST,
            Err(reason) => self.bad.refuse(reason, services),
        }
    }
}

/// Checks a packet. Fails with the index of a reason.
fn check(packet: &GraphPacket) -> Result<(), usize> {
    let header = Ipv4::of(packet).filter(|it| it.protocol() == ICMP).ok_or(0_usize)?;
    let message = header.transport();
    let length = message.len();
    let has_length = length >= 8
        && match message[0] {
            // Unreachable, source quench, redirect, time exceeded and parameter problem: with a part of a packet.
            3 | 4 | 5 | 11 | 12 => length >= 36,
            // Timestamps, and their replies.
            13 | 14 => length == 20,
            // Information requests, and their replies.
            15 | 16 => length == 8,
            _ => true,
        };
    if !has_length {
        return Err(1);
    }
    if internet_checksum(message) == 0 { Ok(()) } else { Err(2) }
}
