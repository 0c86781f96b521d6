//! `IPInputCombo`: the elements before the routing table of a router, in one.

use super::bad_packets::{BadPackets, bad_packets};
use super::check_ip_header::{AddressCheck, HeaderCheck, REASONS};
use core::net::Ipv4Addr;
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    PAINT, RoutingElement, Services,
};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "IPInputCombo",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E3,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
does what a router does with packets before its routing table

IPInputCombo(COLOR [, BADSRC, keywords INTERFACES, BADSRC, GOODDST])

IPInputCombo does with each Ethernet frame what these do: Paint(COLOR) -> Strip(14) -> CheckIPHeader(...) -> \
GetIPAddress(16). Packets with a wrong IP header are discarded. The message about the first of them comes at the end of \
the run.

Arguments:
  COLOR   the paint, from 0 to 255
  BADSRC  without a keyword: wrong sources, with 0.0.0.0 and 255.255.255.255 in addition
  BADSRC, GOODDST, INTERFACES  as in CheckIPHeader

Handlers:
  drops         r  the number of wrong packets
  drop_details  r  their number for each reason",
    build: |cx| {
        let mut args = cx.arguments();
        let color = args.either("COLOR").required();
        let bad_sources: Option<Vec<Ipv4Addr>> = args.positional("BADSRC").optional();
        let mut addresses = AddressCheck::read(&mut args);
        args.end()?;
        if let Some(more) = bad_sources {
            addresses.add_bad_sources(&more);
        }
        let check = HeaderCheck { offset: 0, has_checksum: true, addresses: addresses.sorted() };
        let bad = BadPackets::new(cx.name(), "IP", REASONS, false);
        Ok(BuiltElement::routing(IpInputCombo { color, check, bad }))
    },
};

/// The bytes of an Ethernet header.
const LINK_BYTES: usize = 14;

struct IpInputCombo {
    color: u8,
    check: HeaderCheck,
    bad: BadPackets,
}

impl Element for IpInputCombo {
    bad_packets!();
}

impl RoutingElement for IpInputCombo {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, services: &mut Services) -> Destination {
        packet.annotation_mut(PAINT)[0] = self.color;
        packet.strip(LINK_BYTES);
        match self.check.check(packet) {
            Ok(()) => Destination::FIRST,
            Err(reason) => {
                self.bad.refuse(reason, services);
                Destination::DISCARD
            }
        }
    }
}
