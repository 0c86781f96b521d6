//! `CheckIP6Header`: passes packets with a right IPv6 header.

use crate::ip::bad_packets::{BadPackets, bad_packets};
use crate::ipv6::{HEADER_BYTES, Ipv6Header};
use core::net::Ipv6Addr;
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "CheckIP6Header",
    ports: "1/1-2",
    processing: "a/ah",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
passes packets with a right IPv6 header

CheckIP6Header([BADADDRS, OFFSET])

CheckIP6Header checks version, payload length and source address. For a packet that passes, it sets the network header, \
and removes bytes behind the payload, such as padding. Others go to output 1, or are discarded without one. The message \
about the first of them comes at the end of the run.

Arguments:
  BADADDRS  addresses that are wrong as a source, in addition to ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff. For a router, \
:: is wrong, too.
  OFFSET    the offset of the header. Default 0.

Handlers:
  drops         r  the number of wrong packets
  drop_details  r  their number for each reason",
    build: |cx| {
        let mut args = cx.arguments();
        let mut bad_sources: Vec<Ipv6Addr> = args.either("BADADDRS").or(Vec::new());
        let offset: u32 = args.either("OFFSET").or(0);
        args.end()?;
        bad_sources.push(Ipv6Addr::from_bits(u128::MAX));
        bad_sources.sort_unstable();
        let bad = BadPackets::new(cx.name(), "IP6", REASONS, false);
        Ok(BuiltElement::routing(CheckIp6Header { bad_sources, offset: offset as usize, bad }))
    },
};

/// The reasons for which a header is wrong, by their indices.
const REASONS: &[&str] = &["tiny packet", "bad IP version", "bad payload length", "bad source address"];

struct CheckIp6Header {
    /// In ascending order.
    bad_sources: Vec<Ipv6Addr>,
    offset: usize,
    bad: BadPackets,
}

impl CheckIp6Header {
    /// Returns the number of bytes behind the payload.
    ///
    /// # Errors
    ///
    /// Fails with the index of a reason.
    fn check(&self, packet: &GraphPacket) -> Result<usize, usize> {
        let header = packet.bytes().get(self.offset..).and_then(Ipv6Header::read).ok_or(0_usize)?;
        if header.version() != 6 {
            return Err(1);
        }
        let excess = header.payload.len().checked_sub(header.payload_length()).ok_or(2_usize)?;
        if self.bad_sources.binary_search(&header.source()).is_ok() {
            return Err(3);
        }
        Ok(excess)
    }
}

impl Element for CheckIp6Header {
    bad_packets!();
}

impl RoutingElement for CheckIp6Header {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, services: &mut Services) -> Destination {
        match self.check(packet) {
            Ok(excess) => {
                packet.set_network_header(self.offset, HEADER_BYTES);
                packet.truncate_by(excess);
                Destination::FIRST
            }
            Err(reason) => self.bad.refuse(reason, services),
        }
    }
}
