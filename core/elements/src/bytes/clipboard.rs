//! `Clipboard`: copies bytes from one packet to others.

use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    PACKET_BYTES_MAX, Reason, RoutingElement, Services,
};
use weir_graph::reconfigured_fields;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "Clipboard",
    ports: "2/2",
    processing: "a/a",
    flow: "#/#",
    cost: ElementCost::E5,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: "\
copies bytes from one packet to others

Clipboard(RANGE, ...)

Clipboard keeps the bytes in each RANGE of a packet of input 0, and passes the packet to output 0. It writes the kept bytes \
to the same places of packets of input 1, and passes them to output 1. A packet that does not have all the bytes is passed on \
unchanged, and none of its bytes are kept. Before the first packet of input 0, the kept bytes are 0.

Arguments:
  RANGE  OFFSET/LENGTH: the number of the first byte, and the number of bytes. All ranges together have at most 1048576 \
bytes.",
    build: |cx| {
        let mut args = cx.arguments();
        let mut ranges = Vec::new();
        for (index, text) in args.rest().iter().enumerate() {
            let parts = text.split_once('/').map(|(offset, length)| (cx.read(offset.trim()), cx.read(length.trim())));
            match parts {
                None => args.error("", format!("range {index}: expected '/' between offset and length")),
                Some((Some(offset), Some(length))) => match CopiedRange::new(offset, length) {
                    Ok(range) => ranges.push(range),
                    Err(reason) => args.error("", format!("range {index}: {reason}")),
                },
                Some(_) => args.error("", format!("range {index}: invalid offset or length")),
            }
        }
        let bytes: usize = ranges.iter().map(|range| range.length).sum();
        if bytes > PACKET_BYTES_MAX {
            args.error("", format!("all ranges together can have {PACKET_BYTES_MAX} bytes"));
        }
        args.end()?;
        let end = ranges.iter().map(|range| range.offset + range.length).max().unwrap_or(0);
        let kept = vec![0; bytes.min(PACKET_BYTES_MAX)];
        Ok(BuiltElement::routing(Clipboard { ranges, end, kept }))
    },
};

/// A range of bytes.
#[derive(Clone, Copy, Debug)]
struct CopiedRange {
    offset: usize,
    length: usize,
}

impl CopiedRange {
    fn new(offset: u32, length: u32) -> Result<Self, Reason> {
        let (offset, length) = (offset as usize, length as usize);
        match offset.checked_add(length) {
            Some(end) if end <= PACKET_BYTES_MAX => Ok(Self { offset, length }),
            _ => Err(format!("a packet can have {PACKET_BYTES_MAX} bytes")),
        }
    }
}

struct Clipboard {
    ranges: Vec<CopiedRange>,
    /// The bytes that a packet needs.
    end: usize,
    /// The bytes of all ranges, one after the other.
    kept: Vec<u8>,
}

impl Element for Clipboard {
    reconfigured_fields!(ranges, end, kept);
}

impl RoutingElement for Clipboard {
    fn route(&mut self, input: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        if packet.len() >= self.end && self.end > 0 {
            let mut at = 0;
            for CopiedRange { offset, length } in &self.ranges {
                let (offset, length) = (*offset, *length);
                let kept = &mut self.kept[at..at + length];
                match input {
                    0 => kept.copy_from_slice(&packet.bytes()[offset..offset + length]),
                    _ => packet.bytes_mut()[offset..offset + length].copy_from_slice(kept),
                }
                at += length;
            }
        }
        Destination::output(input)
    }
}
