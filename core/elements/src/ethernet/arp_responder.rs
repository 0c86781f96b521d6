//! `ARPResponder`: answers ARP requests.

use super::arp::{ArpMessage, REPLY, REQUEST};
use crate::values;
use core::net::Ipv4Addr;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use weir_graph::arguments::{ArgumentContext, ArgumentFault, ArgumentValue, EthernetAddress, Ipv4Prefix};
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    Reason, RoutingElement, Services, VLAN_TCI,
};
use weir_graph::{handlers, reconfigured_fields};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "ARPResponder",
    ports: "1/1-2",
    processing: "a/ah",
    flow: "x/x",
    cost: ElementCost::E4,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
answers ARP requests

ARPResponder(IP/MASK [IP/MASK ...] ETH, ... [keyword CAPACITY])

ARPResponder turns ARP requests for the given addresses into replies with the Ethernet address of the longest prefix. \
Packets have to begin with the Ethernet header. All other packets go to output 1, if there is one. A reply has the time \
stamp, the device and the VLAN annotation of its request.

Arguments:
  IP/MASK [IP/MASK ...] ETH  prefixes, and the Ethernet address of all of them; a name can stand for both
  CAPACITY                   the most prefixes, up to 65536. Default 1024. `add` fails if they are exceeded.

Handlers:
  table   r  the prefixes with their Ethernet addresses, the longest prefixes first
  lookup  r  the Ethernet address for the IP address that follows; empty if there is none
  add     w  IP/MASK [IP/MASK ...] ETH: adds prefixes, or changes their Ethernet address
  remove  w  IP/MASK: removes a prefix",
    build: |cx| {
        let mut args = cx.arguments();
        let capacity: u32 = args.keyword("CAPACITY").within(0..=65_536).or(1024);
        let mut it = ArpResponder { entries: BTreeMap::new(), capacity: capacity as usize };
        while args.unread() > 0 {
            let before = args.unread();
            let ResponderArgument(group) = args.positional("IP/MASK ETH").required();
            if let Err(reason) = it.add(group) {
                args.error("CAPACITY", reason);
            }
            if args.unread() == before {
                break;
            }
        }
        args.end()?;
        Ok(BuiltElement::routing(it))
    },
};

/// A prefix, and the Ethernet address of all addresses in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ResponderEntry {
    prefix: Ipv4Prefix,
    ethernet: EthernetAddress,
}

/// Prefixes with a common Ethernet address.
struct ResponderArgument(Vec<ResponderEntry>);

impl ArgumentValue for ResponderArgument {
    fn parse_argument(text: &str, context: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        let other = |text: &str| ArgumentFault::Other(text.to_owned());
        let mut prefixes = Vec::new();
        let mut ethernet = None;
        // A name can be that of an address of both kinds.
        let mut of_name = None;
        for word in text.split_whitespace() {
            let as_ethernet = EthernetAddress::parse_argument(word, context).ok();
            if let Ok(Ipv4Prefix { address, mask }) = Ipv4Prefix::parse_argument(word, context) {
                prefixes.push(Ipv4Prefix { address: address & mask, mask });
                of_name = of_name.or(as_ethernet);
            } else if as_ethernet.is_none() {
                return Err(other("expected IP/MASK ETH"));
            } else if ethernet.is_some() {
                return Err(other("more than one ETH"));
            } else {
                ethernet = as_ethernet;
            }
        }
        if prefixes.is_empty() {
            return Err(other("missing IP/MASK"));
        }
        let ethernet = ethernet.or(of_name).ok_or_else(|| other("missing ETH"))?;
        Ok(Self(prefixes.into_iter().map(|prefix| ResponderEntry { prefix, ethernet }).collect()))
    }

    fn placeholder() -> Self {
        Self(Vec::new())
    }
}

/// The place of a prefix in the table. A prefix comes before all shorter ones, so before those that contain it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PrefixOrder {
    bits: Reverse<u32>,
    mask: Reverse<u32>,
    address: u32,
}

impl From<Ipv4Prefix> for PrefixOrder {
    fn from(Ipv4Prefix { address, mask }: Ipv4Prefix) -> Self {
        let mask = mask.to_bits();
        Self { bits: Reverse(mask.count_ones()), mask: Reverse(mask), address: address.to_bits() & mask }
    }
}

struct ArpResponder {
    entries: BTreeMap<PrefixOrder, ResponderEntry>,
    capacity: usize,
}

impl ArpResponder {
    fn add(&mut self, group: Vec<ResponderEntry>) -> Result<(), Reason> {
        let is_new = |entry: &ResponderEntry| !self.entries.contains_key(&entry.prefix.into());
        let added: BTreeSet<PrefixOrder> =
            group.iter().filter(|it| is_new(it)).map(|it| it.prefix.into()).collect();
        if self.entries.len() + added.len() > self.capacity {
            return Err(format!("there can be {} prefixes", self.capacity));
        }
        self.entries.extend(group.into_iter().map(|entry| (entry.prefix.into(), entry)));
        Ok(())
    }

    fn lookup(&self, address: Ipv4Addr) -> Option<EthernetAddress> {
        Some(self.entries.values().find(|it| it.prefix.contains(address))?.ethernet)
    }

    /// Returns the reply to a request; `None` for another packet.
    fn reply(&self, packet: &GraphPacket) -> Option<[u8; super::arp::FRAME_BYTES]> {
        let request = ArpMessage::read(packet.bytes()).filter(|it| it.operation == REQUEST)?;
        let reply = ArpMessage {
            operation: REPLY,
            sender: self.lookup(request.target_ip)?,
            sender_ip: request.target_ip,
            target: request.sender,
            target_ip: request.sender_ip,
        };
        Some(reply.frame(request.sender))
    }
}

fn show(Ipv4Prefix { address, mask }: Ipv4Prefix) -> String {
    let bits = mask.to_bits();
    if bits.leading_ones() == bits.count_ones() {
        format!("{address}/{}", bits.leading_ones())
    } else {
        format!("{address}/{mask}")
    }
}

impl Element for ArpResponder {
    reconfigured_fields!(entries, capacity);

    handlers! {
        "table": "the prefixes with their Ethernet addresses",
            read |this, _, _| {
                Ok(this.entries.values().map(|it| format!("{} {}\n", show(it.prefix), it.ethernet)).collect())
            };
        "lookup": "the Ethernet address for an IP address",
            read |this, address, _| {
                let found = this.lookup(values::read(address)?);
                Ok(found.map_or_else(String::new, |ethernet| ethernet.to_string()))
            };
        "add": "adds prefixes",
            write |this, value, _| {
                let ResponderArgument(group) = values::read(value)?;
                this.add(group)?;
                Ok(String::new())
            };
        "remove": "removes a prefix",
            write |this, value, _| {
                let Ipv4Prefix { address, mask } = values::read(value)?;
                let prefix = Ipv4Prefix { address: address & mask, mask };
                this.entries.remove(&prefix.into()).ok_or_else(|| format!("{} not found", show(prefix)))?;
                Ok(String::new())
            };
    }
}

impl RoutingElement for ArpResponder {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, services: &mut Services) -> Destination {
        let Some(frame) = self.reply(packet) else { return Destination::output(1) };
        let mut reply = services.pool.of_bytes(&frame);
        reply.set_link_header(0);
        reply.set_time(packet.time());
        reply.set_device(packet.device());
        reply.annotation_mut(VLAN_TCI).copy_from_slice(packet.annotation(VLAN_TCI));
        services.pool.discard(std::mem::replace(packet, reply));
        Destination::FIRST
    }
}
