//! `IPEncap`: puts an IP header before packets.

use super::encapsulation::{NewHeader, TIME_TO_LIVE};
use weir_graph::arguments::{ArgumentContext, ArgumentFault, ArgumentValue, IpProtocol};
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};
use weir_graph::{handlers, reconfigured_fields};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "IPEncap",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: "\
puts an IPv4 header before packets

IPEncap(PROTO, SRC, DST [, keywords TTL, DSCP, ECT, CE, TOS, DF])

IPEncap puts an IPv4 header before each packet, and sets the network header. The identification counts the packets from 0. \
The annotation DST_IP becomes DST. A packet that would be longer than 65535 bytes is discarded.

Arguments:
  PROTO  the protocol, as a number or by name
  SRC    the source
  DST    the destination; DST_ANNO for the annotation DST_IP of each packet
  TTL    the time to live. Default 250.
  DSCP   the differentiated services code point, from 0 to 63. Default 0.
  ECT    true or 2: sets the ECN bits to ECT(1) or ECT(0). Default false.
  CE     true: sets the ECN bits to Congestion Experienced. Default false.
  TOS    the whole type of service, instead of DSCP, ECT and CE
  DF     true: forbids fragments. Default false.

Handlers:
  src    rw  the argument
  dst    rw  the argument
  drops  r   the number of packets that were too long",
    build: |cx| {
        let mut args = cx.arguments();
        let IpProtocol(protocol) = args.either("PROTO").required();
        let source = args.either("SRC").required();
        let destination = args.either("DST").required();
        let tos: Option<u8> = args.keyword("TOS").optional();
        let time_to_live = args.keyword("TTL").or(TIME_TO_LIVE);
        let dscp: Option<u8> = args.keyword("DSCP").within(0..=63).optional();
        let EcnCapable(capable) = args.keyword("ECT").or(EcnCapable(0));
        let congestion: bool = args.keyword("CE").or(false);
        let dont_fragment = args.keyword("DF").or(false);
        if tos.is_some() && (dscp.is_some() || capable != 0 || congestion) {
            args.error("TOS", "not together with DSCP, ECT or CE");
        }
        if capable != 0 && congestion {
            args.error("CE", "not together with ECT");
        }
        args.end()?;
        let service = tos.unwrap_or(dscp.unwrap_or(0) << 2 | if congestion { 3 } else { capable });
        let new = NewHeader {
            source,
            destination,
            protocol,
            service,
            time_to_live,
            dont_fragment,
            identification: 0,
        };
        Ok(BuiltElement::routing(IpEncap { new, drops: 0 }))
    },
};

/// The ECN bits of a transport that is capable of ECN; 0 for one that is not.
struct EcnCapable(u8);

impl ArgumentValue for EcnCapable {
    fn parse_argument(text: &str, context: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        if text == "2" {
            return Ok(Self(2));
        }
        let capable = bool::parse_argument(text, context).map_err(|_| ArgumentFault::Type("boolean or 2"))?;
        Ok(Self(capable.into()))
    }

    fn placeholder() -> Self {
        Self(0)
    }
}

struct IpEncap {
    new: NewHeader,
    drops: u64,
}

impl Element for IpEncap {
    reconfigured_fields!(new);

    handlers! {
        "src": "the source", field new.source;
        "dst": "the destination", field new.destination;
        "drops": counter "the number of packets that were too long", read |this, _, _| Ok(this.drops.to_string());
    }
}

impl RoutingElement for IpEncap {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        if self.new.add(packet, 0).is_some() {
            return Destination::FIRST;
        }
        self.drops += 1;
        Destination::DISCARD
    }
}
