//! `DecIPTTL`: decrements the time to live.

use crate::ipv4::{HEADER_BYTES, Ipv4Header, header_length};
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};
use weir_graph::handlers;
use weir_wire::checksum::updated_checksum_of_half;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "DecIPTTL",
    ports: "1/1-2",
    processing: "a/ah",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
decrements the time to live of IPv4 packets

DecIPTTL([keywords ACTIVE, MULTICAST])

DecIPTTL decrements the time to live, and updates the checksum of the header by the change. A packet whose time to live \
is 0 or 1 goes to output 1, or is discarded without one. A packet without IP header is discarded.

Arguments:
  ACTIVE     false: passes all packets on, unchanged. Default true.
  MULTICAST  false: passes packets to groups on, unchanged. Default true.

Handlers:
  drops   r   the number of packets that expired or had no IP header
  active  rw  the argument",
    build: |cx| {
        let mut args = cx.arguments();
        let is_active = args.keyword("ACTIVE").or(true);
        let has_multicast = args.keyword("MULTICAST").or(true);
        args.end()?;
        Ok(BuiltElement::routing(DecIpTtl { is_active, has_multicast, drops: 0 }))
    },
};

struct DecIpTtl {
    is_active: bool,
    /// Packets to groups are decremented, too.
    has_multicast: bool,
    drops: u64,
}

impl Element for DecIpTtl {
    handlers! {
        "drops": counter "the number of packets that expired or had no IP header",
            read |this, _, _| Ok(this.drops.to_string());
        "active": "false if all packets pass unchanged", field is_active;
    }
}

impl RoutingElement for DecIpTtl {
    #[inline(always)]
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        if !self.is_active {
            return Destination::FIRST;
        }
        if !self.has_multicast && Ipv4Header::of(packet).is_some_and(|it| it.bytes[16] >> 4 == 0xe) {
            return Destination::FIRST;
        }
        // Nearly all packets are written, so there is no look at the header before.
        match packet.network_bytes_mut().map(decrement) {
            Some(Ok(())) => Destination::FIRST,
            Some(Err(LivedOut::Expired)) => {
                self.drops += 1;
                Destination::output(1)
            }
            Some(Err(LivedOut::NoHeader)) | None => {
                self.drops += 1;
                Destination::DISCARD
            }
        }
    }
}

/// A reason for which a packet cannot be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LivedOut {
    /// The time to live is 0 or 1.
    Expired,
    /// The bytes begin with no complete header.
    NoHeader,
}

/// Decrements the time to live of a packet that begins with its IPv4 header.
#[inline]
pub fn decrement(bytes: &mut [u8]) -> Result<(), LivedOut> {
    let length = bytes.len();
    let Some(header) = bytes.first_chunk_mut::<HEADER_BYTES>() else { return Err(LivedOut::NoHeader) };
    if !(HEADER_BYTES..=length).contains(&header_length(header[0])) {
        return Err(LivedOut::NoHeader);
    }
    if header[8] <= 1 {
        return Err(LivedOut::Expired);
    }
    // The new word is computed: reading it behind the write of its first byte would wait for the write.
    let old = u16::from_be_bytes([header[8], header[9]]);
    let new = old - 0x100;
    let sum = updated_checksum_of_half(u16::from_be_bytes([header[10], header[11]]), old, new);
    header[8..10].copy_from_slice(&new.to_be_bytes());
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    Ok(())
}
