//! `SetRandIPAddress`: sets the annotation of the destination to random addresses.

use core::net::Ipv4Addr;
use std::collections::BTreeMap;
use weir_graph::arguments::Ipv4Prefix;
use weir_graph::engine::{
    BuiltElement, DST_IP, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket,
    OrderDependence, RoutingElement, Services,
};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "SetRandIPAddress",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E5,
    effects: Effects::RANDOM,
    order: OrderDependence::Ordered,
    manual: "\
sets the annotation DST_IP to random addresses

SetRandIPAddress(PREFIX [, LIMIT])

SetRandIPAddress sets the annotation DST_IP of each packet to a random address of PREFIX.

Arguments:
  PREFIX  a prefix
  LIMIT   the most different addresses, up to 1048576; -1 or 0 for any number. Default -1.",
    build: |cx| {
        let mut args = cx.arguments();
        let Ipv4Prefix { address, mask } = args.either("PREFIX").required();
        let limit: i32 = args.either("LIMIT").within(-1..=1 << 20).or(-1);
        args.end()?;
        let limit = u32::try_from(limit).unwrap_or(0);
        Ok(BuiltElement::routing(SetRandIpAddress { address, mask, limit, chosen: BTreeMap::new() }))
    },
};

struct SetRandIpAddress {
    address: Ipv4Addr,
    mask: Ipv4Addr,
    /// 0 for any number of addresses.
    limit: u32,
    /// The addresses so far, by numbers below the limit.
    chosen: BTreeMap<u32, Ipv4Addr>,
}

/// Returns 32 random bits.
fn random(services: &mut Services) -> u32 {
    // The shift leaves the upper half.
    u32::try_from(services.random() >> 32).unwrap_or(0)
}

impl SetRandIpAddress {
    fn pick(&self, services: &mut Services) -> Ipv4Addr {
        self.address & self.mask | Ipv4Addr::from_bits(random(services)) & !self.mask
    }
}

impl Element for SetRandIpAddress {}

impl RoutingElement for SetRandIpAddress {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, services: &mut Services) -> Destination {
        let number = random(services).checked_rem(self.limit);
        let address = match number {
            None => self.pick(services),
            Some(number) => match self.chosen.get(&number) {
                Some(address) => *address,
                None => {
                    let address = self.pick(services);
                    self.chosen.insert(number, address);
                    address
                }
            },
        };
        packet.annotation_mut(DST_IP).copy_from_slice(&address.octets());
        Destination::FIRST
    }
}
