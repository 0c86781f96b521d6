//! `Truncate`, `Pad` and `CheckLength`: change and check the length of packets.

use weir_graph::engine::{
    BuiltElement, Destination, EXTRA_LENGTH, Effects, Element, ElementClass, ElementCost, GraphPacket,
    OrderDependence, PACKET_BYTES_MAX, RoutingElement, Services,
};
use weir_graph::{handlers, reconfigured_fields};

/// The class that shortens packets.
pub static TRUNCATE: ElementClass = ElementClass {
    name: "Truncate",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
shortens packets

Truncate(LENGTH [, keyword EXTRA_LENGTH])

Truncate removes the bytes behind the first LENGTH bytes of each packet.

Arguments:
  LENGTH        the most bytes of a packet
  EXTRA_LENGTH  true: the annotation EXTRA_LENGTH grows by the removed bytes. Default true.

Handlers:
  nbytes  rw  the argument LENGTH",
    build: |cx| {
        let mut args = cx.arguments();
        let length = args.either("LENGTH").required();
        let has_extra = args.keyword("EXTRA_LENGTH").or(true);
        args.end()?;
        Ok(BuiltElement::routing(Truncate { length, has_extra }))
    },
};

/// The class that lengthens packets.
pub static PAD: ElementClass = ElementClass {
    name: "Pad",
    cost: ElementCost::E5,
    manual: "\
lengthens packets

Pad([LENGTH, keyword ZERO])

Pad adds zeros to the end of each packet that is shorter than LENGTH. Without LENGTH, or if it is 0, it adds as many as \
the annotation EXTRA_LENGTH states. The annotation becomes 0. A packet that would get longer than 1048576 bytes is \
discarded.

Arguments:
  LENGTH  the least bytes of a packet, at most 1048576
  ZERO    accepted, and changes nothing: added bytes are always zeros

Handlers:
  drops  r  the number of discarded packets",
    build: |cx| {
        let mut args = cx.arguments();
        let length: u32 = args.either("LENGTH").within(0..=LENGTH_MAX).or(0);
        let _: Option<bool> = args.keyword("ZERO").optional();
        args.end()?;
        Ok(BuiltElement::routing(Pad { length: length as usize, drops: 0 }))
    },
    ..TRUNCATE
};

/// The class that checks packets.
pub static CHECK: ElementClass = ElementClass {
    name: "CheckLength",
    ports: "1/1-2",
    processing: "a/ah",
    manual: "\
separates long packets

CheckLength(LENGTH)

CheckLength sends packets of at most LENGTH bytes to output 0. Longer ones go to output 1, or are discarded if there is \
none.

Arguments:
  LENGTH  the most bytes of a packet

Handlers:
  length  rw  the argument",
    build: |cx| {
        let mut args = cx.arguments();
        let length = args.either("LENGTH").required();
        args.end()?;
        Ok(BuiltElement::routing(CheckLength { length }))
    },
    ..TRUNCATE
};

/// The greatest length of a padded packet: that of any packet.
const LENGTH_MAX: u32 = 1 << 20;

/// Returns the number of bytes that are missing from a packet.
fn extra_length(packet: &GraphPacket) -> u32 {
    packet.annotation(EXTRA_LENGTH).try_into().map_or(0, u32::from_ne_bytes)
}

fn set_extra_length(packet: &mut GraphPacket, length: u32) {
    packet.annotation_mut(EXTRA_LENGTH).copy_from_slice(&length.to_ne_bytes());
}

struct Truncate {
    length: u32,
    has_extra: bool,
}

impl Element for Truncate {
    reconfigured_fields!(length, has_extra);

    handlers! {
        "nbytes": "the most bytes of a packet", field length;
    }
}

impl RoutingElement for Truncate {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        let removed = packet.len().saturating_sub(self.length as usize);
        if removed > 0 {
            packet.truncate_by(removed);
            if self.has_extra {
                let extra = extra_length(packet).saturating_add(u32::try_from(removed).unwrap_or(u32::MAX));
                set_extra_length(packet, extra);
            }
        }
        Destination::FIRST
    }
}

struct Pad {
    /// 0 for the length that the packet states.
    length: usize,
    drops: u64,
}

impl Element for Pad {
    reconfigured_fields!(length);

    handlers! {
        "drops": counter "the number of discarded packets", read |this, _, _| Ok(this.drops.to_string());
    }
}

impl RoutingElement for Pad {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        let length = packet.len();
        let added = match self.length {
            0 => extra_length(packet) as usize,
            wanted => wanted.saturating_sub(length),
        };
        if added > 0 {
            if added > PACKET_BYTES_MAX.saturating_sub(length) {
                self.drops += 1;
                return Destination::DISCARD;
            }
            packet.append(added)[length..].fill(0);
        }
        set_extra_length(packet, 0);
        Destination::FIRST
    }
}

struct CheckLength {
    length: u32,
}

impl Element for CheckLength {
    handlers! {
        "length": "the most bytes of a packet", field length;
    }
}

impl RoutingElement for CheckLength {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        Destination::output(usize::from(packet.len() > self.length as usize))
    }
}
