//! `HashSwitch`: sends packets to the output of a hash of some of their bytes.

use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "HashSwitch",
    ports: "1/1-",
    processing: "h/h",
    flow: "x/x",
    cost: ElementCost::E5,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
sends packets to the output of a hash of some of their bytes

HashSwitch(OFFSET, LENGTH)

HashSwitch sends packets with the same bytes at OFFSET to the same output. A packet that has not all of these bytes goes to \
output 0. The hash is the sum of the bytes; senders can choose the output of their packets.

Arguments:
  OFFSET  the number of the first byte
  LENGTH  the number of bytes, from 1 on",
    build: |cx| {
        let outputs = cx.ports().targets.len();
        let mut args = cx.arguments();
        let offset: u32 = args.either("OFFSET").required();
        let length: u32 = args.either("LENGTH").required();
        if length == 0 {
            args.error("LENGTH", "length must be > 0");
        }
        args.end()?;
        Ok(BuiltElement::routing(HashSwitch { offset: offset as usize, length: length as usize, outputs }))
    },
};

struct HashSwitch {
    offset: usize,
    length: usize,
    outputs: usize,
}

impl Element for HashSwitch {}

impl RoutingElement for HashSwitch {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        let bytes = packet.bytes().get(self.offset..).and_then(|bytes| bytes.get(..self.length));
        let Some(bytes) = bytes else { return Destination::FIRST };
        let sum: usize = bytes.iter().map(|byte| usize::from(*byte)).sum();
        Destination::output(match self.outputs {
            // With a power of two, the remainder alone would be that of the low bits.
            2 | 4 | 8 => (sum ^ (sum >> 4)) & (self.outputs - 1),
            outputs => sum % outputs.max(1),
        })
    }
}
