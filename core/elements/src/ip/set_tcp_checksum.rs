//! `SetTCPChecksum`: computes the checksum of TCP.

use crate::ipv4::{Ipv4Header, transport_checksum};
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};
use weir_graph::handlers;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "SetTCPChecksum",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E2,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
computes the checksum of TCP

SetTCPChecksum([FIXOFF])

SetTCPChecksum writes the right checksum into TCP packets, whose IP header is known. The protocol is not checked. A packet \
without IP header, or without a complete TCP header or segment, is discarded.

Arguments:
  FIXOFF  true: sets a data offset that is too small to 5, and one beyond the segment to its end. Default false.

Handlers:
  drops  r  the number of discarded packets",
    build: |cx| {
        let mut args = cx.arguments();
        let fixes_offset = args.either("FIXOFF").or(false);
        args.end()?;
        Ok(BuiltElement::routing(SetTcpChecksum { fixes_offset, drops: 0 }))
    },
};

struct SetTcpChecksum {
    fixes_offset: bool,
    drops: u64,
}

impl Element for SetTcpChecksum {
    handlers! {
        "drops": counter "the number of discarded packets", read |this, _, _| Ok(this.drops.to_string());
    }
}

impl RoutingElement for SetTcpChecksum {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        let has_segment = Ipv4Header::of(packet)
            .and_then(|header| header.segment())
            .is_some_and(|segment| segment.len() >= 20);
        if !has_segment {
            self.drops += 1;
            return Destination::DISCARD;
        }
        if let Some(bytes) = packet.network_bytes_mut() {
            set_checksum(bytes, self.fixes_offset);
        }
        Destination::FIRST
    }
}

/// Writes the checksum of a complete segment, and its data offset if that is to be fixed.
fn set_checksum(bytes: &mut [u8], fixes_offset: bool) {
    let Some(header) = Ipv4Header::read(bytes) else { return };
    let (at, is_fragment) = (header.header_bytes, header.is_fragment());
    let length = header.length() - at;
    let offset = &mut bytes[at + 12];
    if fixes_offset {
        let header_bytes = usize::from(*offset >> 4) * 4;
        if header_bytes < 20 {
            *offset = 5 << 4 | *offset & 0xf;
        } else if header_bytes > length && !is_fragment {
            // The segment is shorter than 60 bytes.
            *offset = u8::try_from(length / 4).unwrap_or(15) << 4 | *offset & 0xf;
        }
    }
    bytes[at + 16..at + 18].fill(0);
    let Some(header) = Ipv4Header::read(bytes) else { return };
    let sum = transport_checksum(&header, &header.transport()[..length]);
    bytes[at + 16..at + 18].copy_from_slice(&sum.to_be_bytes());
}
