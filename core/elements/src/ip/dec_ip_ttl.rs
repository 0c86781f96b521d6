//! `DecIPTTL`: decrements the time to live.

use crate::ipv4::{Ipv4Header, half};
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};
use weir_graph::handlers;
use weir_wire::checksum::updated_checksum;

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
        "drops": "the number of packets that expired or had no IP header",
            read |this, _, _| Ok(this.drops.to_string());
        "active": "false if all packets pass unchanged",
            read |this, _, _| Ok(this.is_active.to_string()),
            write |this, value, _| {
                this.is_active = crate::values::read(value)?;
                Ok(String::new())
            };
    }
}

impl RoutingElement for DecIpTtl {
    #[inline]
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        if !self.is_active {
            return Destination::FIRST;
        }
        let Some(header) = Ipv4Header::of(packet) else {
            self.drops += 1;
            return Destination::DISCARD;
        };
        if !self.has_multicast && header.bytes[16] >> 4 == 0xe {
            return Destination::FIRST;
        }
        if header.bytes[8] <= 1 {
            self.drops += 1;
            return Destination::output(1);
        }
        if let Some(bytes) = packet.network_bytes_mut() {
            decrement(bytes);
        }
        Destination::FIRST
    }
}

/// Decrements the time to live in a complete header, where it is at least 1.
#[inline]
pub fn decrement(bytes: &mut [u8]) {
    // The new word is computed: reading it behind the write of its first byte would wait for the write.
    let old = half(bytes, 8);
    let new = old - 0x100;
    let sum = updated_checksum(half(bytes, 10), u32::from(old), u32::from(new));
    bytes[8..10].copy_from_slice(&new.to_be_bytes());
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
}
