//! `SetIPDSCP`: sets the differentiated services code point.

use crate::ipv4::{Ipv4Header, half, set_header_half};
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};
use weir_graph::{handlers, reconfigured_fields};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "SetIPDSCP",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
sets the differentiated services code point of IPv4 packets

SetIPDSCP(DSCP)

SetIPDSCP sets the upper six bits of the type of service, and updates the checksum of the header by the change. A packet \
without IP header is discarded.

Arguments:
  DSCP  the code point, from 0 to 63

Handlers:
  dscp   rw  the argument
  drops  r   the number of packets without IP header",
    build: |cx| {
        let mut args = cx.arguments();
        let code_point = args.either("DSCP").within(0..=CODE_POINT_MAX).required();
        args.end()?;
        Ok(BuiltElement::routing(SetIpDscp { code_point, drops: 0 }))
    },
};

const CODE_POINT_MAX: u8 = 63;
/// The bits of the code point in the first two bytes of a header.
const CODE_POINT_BITS: u16 = 0xfc;

struct SetIpDscp {
    code_point: u8,
    drops: u64,
}

impl Element for SetIpDscp {
    reconfigured_fields!(code_point);

    handlers! {
        "dscp": "the code point",
            read |this, _, _| Ok(this.code_point.to_string()),
            write |this, value, _| {
                let code_point: u8 = crate::values::read(value)?;
                if code_point > CODE_POINT_MAX {
                    return Err(format!("at most {CODE_POINT_MAX}"));
                }
                this.code_point = code_point;
                Ok(String::new())
            };
        "drops": counter "the number of packets without IP header", read |this, _, _| Ok(this.drops.to_string());
    }
}

impl RoutingElement for SetIpDscp {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        let Some(start) = Ipv4Header::of(packet).map(|header| half(header.bytes, 0)) else {
            self.drops += 1;
            return Destination::DISCARD;
        };
        if let Some(bytes) = packet.network_bytes_mut() {
            set_header_half(bytes, 0, start & !CODE_POINT_BITS | u16::from(self.code_point) << 2);
        }
        Destination::FIRST
    }
}
