//! `Resize`: adds and removes bytes at both ends of packets.

use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    PACKET_BYTES_MAX, RoutingElement, Services,
};
use weir_graph::{handlers, reconfigured_fields};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "Resize",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E5,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
adds and removes bytes at both ends of packets

Resize([HEAD, TAIL])

Resize adds HEAD bytes before each packet, and TAIL bytes behind it. Bytes before a packet that were stripped have their \
values; others have any. Bytes behind it are 0. Negative numbers remove bytes: all, if there are fewer. A packet that would \
get longer than 1048576 bytes is discarded.

Arguments:
  HEAD  the number of bytes before a packet, from -1048576 to 65535. Default 0.
  TAIL  the number of bytes behind a packet, from -1048576 to 1048576. Default 0.

Handlers:
  head   rw  the argument
  tail   rw  the argument
  drops  r   the number of discarded packets",
    build: |cx| {
        let mut args = cx.arguments();
        let head = args.either("HEAD").within(-LENGTH_MAX..=HEAD_MAX).or(0_i32);
        let tail = args.either("TAIL").within(-LENGTH_MAX..=LENGTH_MAX).or(0_i32);
        args.end()?;
        Ok(BuiltElement::routing(Resize { head, tail, drops: 0 }))
    },
};

/// The most bytes of a packet.
const LENGTH_MAX: i32 = 1 << 20;

/// The most bytes that are added before a packet, as by an Unstrip.
const HEAD_MAX: i32 = 65_535;

struct Resize {
    head: i32,
    tail: i32,
    drops: u64,
}

/// Reads the value of a handler.
fn read(value: &str, most: i32) -> Result<i32, String> {
    let length: i32 = crate::values::read(value)?;
    match length {
        _ if length > most => Err(format!("out of range, bound {most}")),
        _ => Ok(length.max(-LENGTH_MAX)),
    }
}

impl Element for Resize {
    reconfigured_fields!(head, tail);

    handlers! {
        "head": "the bytes that are added before a packet",
            read |this, _, _| Ok(this.head.to_string()),
            write |this, value, _| {
                this.head = read(value, HEAD_MAX)?;
                Ok(String::new())
            };
        "tail": "the bytes that are added behind a packet",
            read |this, _, _| Ok(this.tail.to_string()),
            write |this, value, _| {
                this.tail = read(value, LENGTH_MAX)?;
                Ok(String::new())
            };
        "drops": counter "the number of discarded packets", read |this, _, _| Ok(this.drops.to_string());
    }
}

impl RoutingElement for Resize {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        let added = |length: i32| usize::try_from(length).unwrap_or(0);
        let removed = |length: i32| added(length.saturating_neg());
        packet.strip(removed(self.head));
        if packet.len() + added(self.head) + added(self.tail) > PACKET_BYTES_MAX {
            self.drops += 1;
            return Destination::DISCARD;
        }
        if self.head > 0 {
            packet.unstrip(added(self.head));
        }
        if self.tail > 0 {
            let length = packet.len();
            packet.append(added(self.tail))[length..].fill(0);
        }
        packet.truncate_by(removed(self.tail));
        Destination::FIRST
    }
}
