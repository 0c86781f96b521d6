//! `LookupIP6Route`: looks up IPv6 routes.

use super::ipv6::{Ipv6PrefixTable, Ipv6Row, show_prefix};
use crate::values;
use core::net::Ipv6Addr;
use weir_graph::arguments::{ArgumentContext, ArgumentValue, Ipv6Prefix};
use weir_graph::engine::{
    BuiltElement, DST_IP6, Destination, Effects, Element, ElementClass, ElementContext, ElementCost,
    GraphPacket, OrderDependence, Reason, RoutingElement, Services,
};
use weir_graph::handlers;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "LookupIP6Route",
    ports: "1/-",
    processing: "h/h",
    flow: "x/x",
    cost: ElementCost::E4,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
looks up IPv6 routes

LookupIP6Route(ADDRESS/LENGTH [GATEWAY] OUTPUT, ... [keyword CAPACITY])

LookupIP6Route looks up the annotation DST_IP6 of each packet: the route with the longest prefix gives the output. If the \
route has a gateway other than ::, it becomes the annotation. Packets without a route are discarded. Of several routes to \
the same prefix the last one counts. A lookup takes a search for each length that a prefix in the table has.

Arguments:
  ADDRESS/LENGTH [GATEWAY] OUTPUT  a route
  CAPACITY                         the most routes, up to 1048576. Default 65536. A full table takes no more.

Handlers:
  table   r  the routes
  lookup  r  the output and the gateway for the address that follows; -1 if there is no route
  drops   r  the number of packets without a route
  add     w  adds or replaces a route
  remove  w  removes the route to a prefix
  ctrl    w  add or remove, and what follows it in these handlers",
    build: |cx| {
        let outputs = cx.ports().targets.len();
        let mut args = cx.arguments();
        let capacity: u32 = args.keyword("CAPACITY").within(0..=1 << 20).or(1 << 16);
        let mut routes = Ipv6Routes { table: Ipv6PrefixTable::default(), capacity: capacity as usize, drops: 0 };
        let mut highest = None;
        for (number, text) in args.rest().into_iter().enumerate() {
            let Some((prefix, target, output)) = read_route(&text, cx.argument_context()) else {
                args.error("", format!("argument {} should be DADDR/MASK [GW] OUTPUT", number + 1));
                continue;
            };
            highest = highest.max(Some(output));
            if let Err(reason) = routes.add(prefix, target) {
                args.error("", reason);
            }
        }
        if let Some(highest) = highest
            && highest >= outputs
        {
            args.error("", format!("need {} or more output ports", highest.saturating_add(1)));
        }
        args.end()?;
        Ok(BuiltElement::routing(routes))
    },
};

/// The way of packets with a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ipv6Target {
    /// The next hop; :: if the destination itself is the next hop.
    gateway: Ipv6Addr,
    output: u16,
}

struct Ipv6Routes {
    table: Ipv6PrefixTable<Ipv6Target>,
    capacity: usize,
    drops: u64,
}

/// Reads `ADDRESS/LENGTH [GATEWAY] OUTPUT`. The output is returned beside the target, as it can be too high for one.
fn read_route(text: &str, context: &ArgumentContext<'_>) -> Option<(Ipv6Prefix, Ipv6Target, usize)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (prefix, gateway, output) = match words[..] {
        [prefix, output] => (prefix, None, output),
        [prefix, gateway, output] => (prefix, Some(gateway), output),
        _ => return None,
    };
    let prefix = Ipv6Prefix::parse_argument(prefix, context).ok()?;
    let gateway = match gateway {
        Some(gateway) => Ipv6Addr::parse_argument(gateway, context).ok()?,
        None => Ipv6Addr::UNSPECIFIED,
    };
    let output = u32::parse_argument(output, context).ok()? as usize;
    let target = Ipv6Target { gateway, output: u16::try_from(output).unwrap_or(u16::MAX) };
    Some((prefix, target, output))
}

impl Ipv6Routes {
    fn add(&mut self, prefix: Ipv6Prefix, target: Ipv6Target) -> Result<(), Reason> {
        if self.table.len() >= self.capacity && !self.table.contains(prefix) {
            return Err(format!("no room for a route: the table has {} routes", self.capacity));
        }
        self.table.set(prefix, target);
        Ok(())
    }

    fn write_add(&mut self, value: &str, cx: &ElementContext<'_>) -> Result<String, Reason> {
        let outputs = cx.ports().targets.len();
        let route = cx.with_argument_context(|context| read_route(value, context));
        let (prefix, target, output) = route.ok_or("expected PREFIX [GATEWAY] PORT")?;
        if output >= outputs {
            return Err("output port out of range".to_owned());
        }
        self.add(prefix, target)?;
        Ok(String::new())
    }

    fn write_remove(&mut self, value: &str, cx: &ElementContext<'_>) -> Result<String, Reason> {
        let prefix =
            cx.with_argument_context(|context| Ipv6Prefix::parse_argument(value.trim(), context).ok());
        self.table.remove(prefix.ok_or("expected PREFIX")?);
        Ok(String::new())
    }
}

impl Element for Ipv6Routes {
    handlers! {
        "table": "the routes",
            read |this, _, _| {
                let line = |row: &Ipv6Row<Ipv6Target>| {
                    let Ipv6Target { gateway, output } = row.value;
                    format!("{}\t{}\t{output}\n", show_prefix(row.prefix), values::ipv6(gateway))
                };
                let lines: String = this.table.in_order().map(line).collect();
                Ok(if lines.is_empty() { lines } else { format!("# Active routes\n{lines}") })
            };
        "lookup": "the output and the gateway for an address",
            read |this, address, _| Ok(match this.table.lookup(values::read(address)?) {
                Some(Ipv6Target { gateway: Ipv6Addr::UNSPECIFIED, output }) => output.to_string(),
                Some(Ipv6Target { gateway, output }) => format!("{output} {}", values::ipv6(*gateway)),
                None => "-1".to_owned(),
            });
        "drops": counter "the number of packets without a route", read |this, _, _| Ok(this.drops.to_string());
        "add": "adds or replaces a route", write |this, value, cx| this.write_add(value, cx);
        "remove": "removes the route to a prefix", write |this, value, cx| this.write_remove(value, cx);
        "ctrl": "adds or removes a route",
            write |this, value, cx| match value.trim().split_once(char::is_whitespace) {
                Some(("add", route)) => this.write_add(route, cx),
                Some(("remove", prefix)) => this.write_remove(prefix, cx),
                _ => Err("bad command, should be `add' or `remove'".to_owned()),
            };
    }
}

impl RoutingElement for Ipv6Routes {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        let next = packet.annotation_mut(DST_IP6);
        let address: [u8; 16] = next.try_into().unwrap_or([0; 16]);
        let Some(Ipv6Target { gateway, output }) = self.table.lookup(address.into()) else {
            self.drops += 1;
            return Destination::DISCARD;
        };
        if !gateway.is_unspecified() {
            packet.annotation_mut(DST_IP6).copy_from_slice(&gateway.octets());
        }
        Destination::output(usize::from(*output))
    }
}
