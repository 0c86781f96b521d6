//! `StaticIPLookup` and `LinearIPLookup`: look up routes one after the other.

use super::lookup::{IpLookup, RouteIndex, build, read};
use super::route::RouteKey;
use super::table::{HopNumber, RouteTable};
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};
use weir_graph::handlers;

/// The class whose routes stay.
pub static STATIC: ElementClass = ElementClass {
    name: "StaticIPLookup",
    ports: "1/-",
    processing: "h/h",
    flow: "x/x",
    cost: ElementCost::E4,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
looks up IPv4 routes in a short table that stays

StaticIPLookup(ADDRESS/MASK [GATEWAY] OUTPUT, ... [keyword CAPACITY])

StaticIPLookup is as LinearIPLookup, but its routes cannot be changed.

Arguments:
  ADDRESS/MASK [GATEWAY] OUTPUT  a route
  CAPACITY                       the most routes, up to 65536. Default 4096.

Handlers:
  table   r  the routes
  lookup  r  the output and the gateway for the address that follows; -1 if there is no route
  drops   r  the number of packets without a route",
    build: |cx| Ok(BuiltElement::routing(StaticLookup(read(cx)?))),
};

/// The class whose routes can change.
pub static LINEAR: ElementClass = ElementClass {
    name: "LinearIPLookup",
    manual: "\
looks up IPv4 routes in a short table

LinearIPLookup(ADDRESS/MASK [GATEWAY] OUTPUT, ... [keyword CAPACITY])

LinearIPLookup looks up the destination annotation of each packet: the route with the longest prefix gives the output. \
If the route has a gateway, it becomes the destination annotation. Packets without a route are discarded. The lookup \
looks at every route; RadixIPLookup, DirectIPLookup and RangeIPLookup are faster for more than about ten. Masks need not \
be those of prefixes. Of several routes to the same destinations the first one counts.

Arguments:
  ADDRESS/MASK [GATEWAY] OUTPUT  a route
  CAPACITY                       the most routes, up to 65536. Default 4096. A full table takes no more.

Handlers:
  table   r  the routes
  lookup  r  the output and the gateway for the address that follows; -1 if there is no route
  drops   r  the number of packets without a route
  add     w  adds a route; fails if there is one to the same destinations
  set     w  adds or replaces a route
  remove  w  removes a route: ADDRESS/MASK [[GATEWAY] OUTPUT]
  ctrl    w  a command on each line: add, set or remove, and a route; if one fails, none has an effect
  flush   w  removes all routes",
    build: build::<LinearIndex>,
    ..STATIC
};

/// A route in a [`LinearIndex`].
#[derive(Clone, Copy, Debug)]
struct LinearRow {
    key: RouteKey,
    hop: HopNumber,
}

/// The routes in their order.
#[derive(Debug, Default)]
pub struct LinearIndex {
    rows: Vec<LinearRow>,
    is_changed: bool,
}

impl RouteIndex for LinearIndex {
    const CAPACITY_DEFAULT: u32 = 4096;
    const CAPACITY_MAX: u32 = 65_536;
    const TAKES_ANY_MASK: bool = true;

    fn update(&mut self, _: &RouteTable, _: RouteKey) {
        self.is_changed = true;
    }

    fn commit(&mut self, table: &RouteTable) {
        if std::mem::take(&mut self.is_changed) {
            let others = table.in_order().filter(|stored| stored.route.key != RouteKey::DEFAULT);
            self.rows = others.map(|stored| LinearRow { key: stored.route.key, hop: stored.hop }).collect();
        }
    }

    fn lookup(&self, address: u32) -> HopNumber {
        let (mut found, mut mask) = (0, 0);
        for row in &self.rows {
            // Of masks that do not include each other, the first one counts.
            if address & row.key.mask == row.key.prefix && row.key.mask & mask == mask {
                (found, mask) = (row.hop, row.key.mask);
            }
        }
        found
    }
}

struct StaticLookup(IpLookup<LinearIndex>);

impl Element for StaticLookup {
    handlers! {
        "table": "the routes", read |this, _, _| Ok(this.0.table());
        "lookup": "the output and the gateway for an address", read |this, address, _| this.0.describe(address);
        "drops": counter "the number of packets without a route", read |this, _, _| Ok(this.0.drops().to_string());
    }
}

impl RoutingElement for StaticLookup {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        self.0.forward(packet)
    }
}
