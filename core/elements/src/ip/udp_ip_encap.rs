//! `UDPIPEncap`: puts a UDP and an IP header before packets.

use super::encapsulation::{NewHeader, NewUdpHeader, TIME_TO_LIVE};
use crate::ipv4::UDP;
use weir_graph::arguments::UdpPort;
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};
use weir_graph::{handlers, reconfigured_fields};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "UDPIPEncap",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E2,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: "\
puts a UDP and an IPv4 header before packets

UDPIPEncap(SRC, SPORT, DST, DPORT [, CHECKSUM])

UDPIPEncap puts a UDP and an IPv4 header before each packet, and sets the network header. The identification counts the \
packets from 0. The annotation DST_IP becomes DST. A packet that would be longer than 65535 bytes is discarded.

Arguments:
  SRC       the source
  SPORT     the source port, as a number or by name
  DST       the destination; DST_ANNO for the annotation DST_IP of each packet
  DPORT     the destination port
  CHECKSUM  false: sends no UDP checksum. Default true.

Handlers:
  src    rw  the argument
  sport  rw  the argument
  dst    rw  the argument
  dport  rw  the argument
  drops  r   the number of packets that were too long",
    build: |cx| {
        let mut args = cx.arguments();
        let source = args.either("SRC").required();
        let UdpPort(source_port) = args.either("SPORT").required();
        let destination = args.either("DST").required();
        let UdpPort(destination_port) = args.either("DPORT").required();
        let has_checksum = args.either("CHECKSUM").or(true);
        args.end()?;
        let new = NewHeader {
            source,
            destination,
            protocol: UDP,
            service: 0,
            time_to_live: TIME_TO_LIVE,
            dont_fragment: false,
            identification: 0,
        };
        let udp = NewUdpHeader { source_port, destination_port, has_checksum };
        Ok(BuiltElement::routing(UdpIpEncap { new, udp, drops: 0 }))
    },
};

struct UdpIpEncap {
    new: NewHeader,
    udp: NewUdpHeader,
    drops: u64,
}

impl Element for UdpIpEncap {
    reconfigured_fields!(new, udp);

    handlers! {
        "src": "the source", field new.source;
        "sport": "the source port",
            read |this, _, _| Ok(this.udp.source_port.to_string()),
            write |this, value, _| {
                UdpPort(this.udp.source_port) = crate::values::read(value)?;
                Ok(String::new())
            };
        "dst": "the destination", field new.destination;
        "dport": "the destination port",
            read |this, _, _| Ok(this.udp.destination_port.to_string()),
            write |this, value, _| {
                UdpPort(this.udp.destination_port) = crate::values::read(value)?;
                Ok(String::new())
            };
        "drops": counter "the number of packets that were too long", read |this, _, _| Ok(this.drops.to_string());
    }
}

impl RoutingElement for UdpIpEncap {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        if self.udp.add(&mut self.new, packet) {
            return Destination::FIRST;
        }
        self.drops += 1;
        Destination::DISCARD
    }
}
