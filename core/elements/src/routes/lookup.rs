//! The element of all route lookups, over an index that each of them chooses.

use super::route::{IpRoute, ParsedRoute, RouteKey};
use super::table::{HopNumber, NextHop, NextHops, RouteTable, StoredRoute};
use core::net::Ipv4Addr;
use weir_graph::arguments::ArgumentErrors;
use weir_graph::engine::{
    BuildContext, BuiltElement, DST_IP, Destination, Element, GraphPacket, Reason, RoutingElement, Services,
    TextOutput, route_each,
};
use weir_graph::handlers;

/// Makes the manual of a class with an index of routes: its summary, its name, and the text about the index.
macro_rules! lookup_manual {
    ($summary:literal, $name:literal, $index:literal) => {
        concat!(
            $summary,
            "\n\n",
            $name,
            "(ADDRESS/MASK [GATEWAY] OUTPUT, ... [keyword CAPACITY])\n\n",
            $name,
            " looks up the destination annotation of each packet: the route with the longest prefix gives the output. If the \
route has a gateway, it becomes the destination annotation. Packets without a route are discarded. Of several routes to the \
same destinations the first one counts.\n\n",
            $index,
            "\n\nArguments:\n",
            "  ADDRESS/MASK [GATEWAY] OUTPUT  a route\n",
            "  CAPACITY                       the most routes, up to 4194304. Default 1048576. A full table takes no more.\n\n",
            "Handlers:\n",
            "  table   r  the routes\n",
            "  lookup  r  the output and the gateway for the address that follows; -1 if there is no route\n",
            "  drops   r  the number of packets without a route\n",
            "  add     w  adds a route; fails if there is one to the same destinations\n",
            "  set     w  adds or replaces a route\n",
            "  remove  w  removes a route: ADDRESS/MASK [[GATEWAY] OUTPUT]\n",
            "  ctrl    w  a command on each line: add, set or remove, and a route; if one fails, none has an effect\n",
            "  flush   w  removes all routes"
        )
    };
}
pub(super) use lookup_manual;

/// A structure for looking up addresses. It never sees the default route, which has the hop number 0.
pub trait RouteIndex: Default + 'static {
    /// The most routes without an argument.
    const CAPACITY_DEFAULT: u32;
    /// The most routes with one.
    const CAPACITY_MAX: u32;
    /// Masks need not be those of prefixes.
    const TAKES_ANY_MASK: bool = false;

    /// Checks that there is room for a route with a next hop of this number.
    ///
    /// # Errors
    ///
    /// Fails with what is full.
    fn check_room(&self, key: RouteKey, hop: HopNumber) -> Result<(), Reason> {
        let _ = (key, hop);
        Ok(())
    }

    /// Adapts to a route of the table that was added, replaced or removed.
    fn update(&mut self, table: &RouteTable, key: RouteKey);

    /// Ends a group of updates.
    fn commit(&mut self, table: &RouteTable) {
        let _ = table;
    }

    /// Returns the number of the next hop for an address; 0 for the default route.
    fn lookup(&self, address: u32) -> HopNumber;

    /// Adds the number of the next hop for each address to a list. An index that waits for memory in one lookup has a way
    /// of its own, in which the lookups wait at the same time.
    fn lookup_all(&self, addresses: &[u32], hops: &mut Vec<HopNumber>) {
        hops.extend(addresses.iter().map(|address| self.lookup(*address)));
    }
}

/// An element that looks up routes.
pub struct IpLookup<I> {
    table: RouteTable,
    hops: NextHops,
    index: I,
    capacity: usize,
    outputs: usize,
    drops: u64,
    /// The destinations of the packets of a batch, and the numbers of their next hops.
    addresses: Vec<u32>,
    found: Vec<HopNumber>,
}

/// A change of a route, with what it replaced.
struct RouteChange {
    key: RouteKey,
    before: Option<IpRoute>,
}

/// The reading of `add`, `set` and `remove`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RouteCommand {
    Add,
    Set,
    Remove,
}

/// Makes an element from arguments that are routes. Of several routes to the same destinations the first one counts.
pub fn build<I: RouteIndex>(cx: &mut BuildContext<'_>) -> Result<BuiltElement, ArgumentErrors> {
    Ok(BuiltElement::routing(read::<I>(cx)?))
}

/// Reads the arguments.
pub fn read<I: RouteIndex>(cx: &mut BuildContext<'_>) -> Result<IpLookup<I>, ArgumentErrors> {
    let outputs = cx.ports().targets.len();
    let mut args = cx.arguments();
    let capacity: u32 = args.keyword("CAPACITY").within(0..=I::CAPACITY_MAX).or(I::CAPACITY_DEFAULT);
    let mut it = IpLookup::<I>::new(capacity as usize, outputs);
    let mut ignored = Vec::new();
    for (number, text) in args.rest().into_iter().enumerate() {
        let route = ParsedRoute::read(&text, true).and_then(|route| route.with_output(outputs));
        let added = route.and_then(|route| {
            if it.table.get(route.key).is_some() {
                ignored.push(route.key);
                return Ok(());
            }
            it.set(route).map(|_| ())
        });
        if let Err(reason) = added {
            args.error(&format!("argument {}", number + 1), reason);
        }
    }
    args.end()?;
    it.index.commit(&it.table);
    for key in ignored {
        let text = format!("{}: warning: a further route to {key} is ignored\n", cx.name());
        cx.services.system.write_text(TextOutput::Error, &text);
    }
    Ok(it)
}

impl<I: RouteIndex> IpLookup<I> {
    /// Returns an element without routes.
    pub fn new(capacity: usize, outputs: usize) -> Self {
        Self {
            table: RouteTable::default(),
            hops: NextHops::default(),
            index: I::default(),
            capacity,
            outputs,
            drops: 0,
            addresses: Vec::new(),
            found: Vec::new(),
        }
    }

    /// Adds a route, or replaces that to the same destinations. Returns the change.
    fn set(&mut self, route: IpRoute) -> Result<RouteChange, Reason> {
        let IpRoute { key, target } = route;
        if !I::TAKES_ANY_MASK && !key.is_prefix() {
            return Err(format!("the mask of {key} is not that of a prefix"));
        }
        let before = self.table.get(key).map(|stored| stored.route);
        if before.is_none() && self.table.len() >= self.capacity {
            return Err(format!("no room for route '{route}': the table has {} routes", self.capacity));
        }
        if key == RouteKey::DEFAULT {
            self.hops.set_default(Some(target));
            self.table.set(StoredRoute { route, hop: 0 });
        } else {
            self.index.check_room(key, self.hops.number_for(target))?;
            let hop = self.hops.take(target);
            if let Some(before) = before {
                self.hops.release(before.target);
            }
            self.table.set(StoredRoute { route, hop });
            self.index.update(&self.table, key);
        }
        Ok(RouteChange { key, before })
    }

    fn remove(&mut self, key: RouteKey) -> Option<RouteChange> {
        let removed = self.table.remove(key)?.route;
        if key == RouteKey::DEFAULT {
            self.hops.set_default(None);
        } else {
            self.index.update(&self.table, key);
            self.hops.release(removed.target);
        }
        Some(RouteChange { key, before: Some(removed) })
    }

    fn run(&mut self, command: RouteCommand, text: &str) -> Result<RouteChange, Reason> {
        let parsed = ParsedRoute::read(text, command != RouteCommand::Remove)?;
        let before = self.table.get(parsed.key).map(|stored| stored.route);
        if command != RouteCommand::Remove {
            let route = parsed.with_output(self.outputs)?;
            return match before.filter(|_| command == RouteCommand::Add) {
                Some(before) => Err(format!("conflict with existing route '{before}'")),
                None => self.set(route),
            };
        }
        let wanted = match parsed.output {
            Some(_) => Some(parsed.with_output(self.outputs)?),
            None => None,
        };
        let is_wanted = |found: &IpRoute| wanted.is_none_or(|wanted| wanted == *found);
        let found = before.filter(is_wanted).and_then(|_| self.remove(parsed.key));
        found.ok_or_else(|| match wanted {
            Some(wanted) => format!("route '{wanted}' not found"),
            None => format!("route '{}' not found", parsed.key),
        })
    }

    /// Runs one command.
    fn change(&mut self, command: RouteCommand, text: &str) -> Result<String, Reason> {
        let result = self.run(command, text);
        self.index.commit(&self.table);
        result.map(|_| String::new())
    }

    /// Runs a command on each line. If one fails, no line has an effect.
    pub fn control(&mut self, text: &str) -> Result<String, Reason> {
        let mut changes = Vec::new();
        let result = text.lines().filter(|line| !line.trim().is_empty()).try_for_each(|line| {
            let line = line.trim();
            let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let command = match word {
                "add" => RouteCommand::Add,
                "set" => RouteCommand::Set,
                "remove" => RouteCommand::Remove,
                _ => return Err(format!("bad command '{word}': expected add, set or remove")),
            };
            changes.push(self.run(command, rest)?);
            Ok(())
        });
        if result.is_err() {
            for RouteChange { key, before } in changes.into_iter().rev() {
                match before {
                    // There was room for it before.
                    Some(route) => _ = self.set(route),
                    None => _ = self.remove(key),
                }
            }
        }
        self.index.commit(&self.table);
        result.map(|()| String::new())
    }

    /// Removes all routes.
    fn flush(&mut self) {
        self.table.clear();
        self.hops = NextHops::default();
        self.index = I::default();
        self.index.commit(&self.table);
    }

    /// Returns the table as text.
    pub fn table(&self) -> String {
        self.table.in_order().map(|stored| stored.route.line()).collect()
    }

    /// Returns the number of packets without a route.
    pub fn drops(&self) -> u64 {
        self.drops
    }

    /// Returns the output and the gateway for an address as text; -1 without a route.
    pub fn describe(&self, address: &str) -> Result<String, Reason> {
        let address: Ipv4Addr = crate::values::read(address)?;
        let hop = self.hops.get(self.index.lookup(address.to_bits()));
        Ok(match (hop.destination.port(), hop.has_gateway) {
            (None, _) => "-1".to_owned(),
            (Some(port), false) => port.to_string(),
            (Some(port), true) => format!("{port} {}", Ipv4Addr::from(hop.gateway)),
        })
    }

    /// Returns where a packet goes, and sets its next hop.
    #[inline]
    pub fn forward(&mut self, packet: &mut GraphPacket) -> Destination {
        let hop = self.index.lookup(destination_of(packet));
        send(self.hops.get(hop), packet, &mut self.drops)
    }

    /// Returns where packets go, as [`RoutingElement::route_all`] does, and sets their next hops.
    #[inline]
    pub fn forward_all(
        &mut self,
        packets: &mut [GraphPacket],
        destinations: &mut Vec<Destination>,
    ) -> Option<Destination> {
        let Self { index, hops, drops, addresses, found, .. } = self;
        addresses.clear();
        addresses.extend(packets.iter().map(destination_of));
        found.clear();
        index.lookup_all(addresses, found);
        let mut found = found.iter();
        route_each(packets, destinations, |packet| {
            let number = found.next().copied().unwrap_or(0);
            send(hops.get(number), packet, drops)
        })
    }
}

#[cfg(test)]
impl<I: RouteIndex> IpLookup<I> {
    pub fn found_together(&self, addresses: &[u32]) -> Vec<HopNumber> {
        let mut found = Vec::new();
        self.index.lookup_all(addresses, &mut found);
        found
    }

    pub fn found_one_by_one(&self, addresses: &[u32]) -> Vec<HopNumber> {
        addresses.iter().map(|address| self.index.lookup(*address)).collect()
    }
}

#[inline]
fn destination_of(packet: &GraphPacket) -> u32 {
    packet.annotation(DST_IP).first_chunk().map_or(0, |address| u32::from_be_bytes(*address))
}

/// Returns where a packet goes, and sets its next hop.
#[inline]
fn send(hop: &NextHop, packet: &mut GraphPacket, drops: &mut u64) -> Destination {
    if hop.has_gateway {
        packet.annotation_mut(DST_IP).copy_from_slice(&hop.gateway);
    }
    *drops += u64::from(hop.destination == Destination::DISCARD);
    hop.destination
}

impl<I: RouteIndex> Element for IpLookup<I> {
    handlers! {
        "table": "the routes", read |this, _, _| Ok(this.table());
        "lookup": "the output and the gateway for an address", read |this, address, _| this.describe(address);
        "drops": counter "the number of packets without a route", read |this, _, _| Ok(this.drops.to_string());
        "add": "adds a route", write |this, value, _| this.change(RouteCommand::Add, value);
        "set": "adds or replaces a route", write |this, value, _| this.change(RouteCommand::Set, value);
        "remove": "removes a route", write |this, value, _| this.change(RouteCommand::Remove, value);
        "ctrl": "runs a command on each line: add, set or remove", write |this, value, _| this.control(value);
        "flush": "removes all routes",
            write |this, _, _| {
                this.flush();
                Ok(String::new())
            };
    }
}

impl<I: RouteIndex> RoutingElement for IpLookup<I> {
    #[inline]
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        self.forward(packet)
    }

    #[inline]
    fn route_all(
        &mut self,
        _: usize,
        packets: &mut [GraphPacket],
        destinations: &mut Vec<Destination>,
        _: &mut Services,
    ) -> Option<Destination> {
        self.forward_all(packets, destinations)
    }
}
