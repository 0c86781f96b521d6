//! `IPGWOptions`: processes the IP options that every router processes.

use super::options::{OptionsResult, RouterAddresses};
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};
use weir_graph::handlers;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "IPGWOptions",
    ports: "1/1-2",
    processing: "a/ah",
    flow: "x/x",
    cost: ElementCost::E3,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
processes the IP options that every router processes

IPGWOptions(MYADDR [, OTHERADDRS])

IPGWOptions adds the router to the options record route and timestamp, and computes the checksum of a header that it \
has changed. It leaves other options as they are. A packet with a wrong option goes unchanged to output 1, or is \
discarded without one: its annotation ICMP_PARAMPROB has the position of the wrong byte, for an ICMPError. A packet \
without IP header is discarded.

The time is that of the latest look at the clock: the element does not look itself.

Arguments:
  MYADDR      the address of the interface by which packets leave
  OTHERADDRS  further addresses of the router, for timestamps at given addresses

Handlers:
  drops  r  the number of packets with a wrong option, or without IP header",
    build: |cx| {
        let mut args = cx.arguments();
        let own = args.either("MYADDR").required();
        let others = args.either("OTHERADDRS").or(Vec::new());
        args.end()?;
        Ok(BuiltElement::routing(IpGwOptions { addresses: RouterAddresses { own, others }, drops: 0 }))
    },
};

struct IpGwOptions {
    addresses: RouterAddresses,
    drops: u64,
}

impl Element for IpGwOptions {
    handlers! {
        "drops": counter "the number of packets with a wrong option, or without IP header",
            read |this, _, _| Ok(this.drops.to_string());
    }
}

impl RoutingElement for IpGwOptions {
    #[inline(always)]
    fn route(&mut self, _: usize, packet: &mut GraphPacket, services: &mut Services) -> Destination {
        let result = self.addresses.process(packet, services);
        if result == OptionsResult::Right {
            return Destination::FIRST;
        }
        self.drops += 1;
        if result == OptionsResult::Wrong { Destination::output(1) } else { Destination::DISCARD }
    }
}
