//! `IP6NDAdvertiser`: answers solicitations of neighbour discovery.

use super::nd_message::{ALL_NODES, IS_ROUTER, IS_SOLICITED, NeighborKind, NeighborMessage};
use crate::routes::{Ipv6PrefixTable, Ipv6Row, show_prefix};
use weir_graph::arguments::{ArgumentContext, ArgumentValue, EthernetAddress, Ipv6Prefix};
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    Reason, RoutingElement, Services, VLAN_TCI,
};
use weir_graph::handlers;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "IP6NDAdvertiser",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E4,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
answers solicitations of neighbour discovery

IP6NDAdvertiser(IP6/LENGTH [IP6/LENGTH ...] ETH, ... [keyword CAPACITY])

IP6NDAdvertiser turns neighbour solicitations for the given IPv6 addresses into advertisements with the Ethernet address of \
the longest prefix. Packets have to begin with the Ethernet header. Other packets, and solicitations that a router has \
forwarded or whose checksum is wrong, are discarded (RFC 4861, section 7.1.1). An advertisement has the time stamp, the \
device and the VLAN annotation of its solicitation.

Arguments:
  IP6/LENGTH [IP6/LENGTH ...] ETH  prefixes, and the Ethernet address of all of them
  CAPACITY                         the most prefixes, up to 65536. Default 1024.

Handlers:
  table  r  the prefixes with their Ethernet addresses
  drops  r  the number of packets that were not answered",
    build: |cx| {
        let mut args = cx.arguments();
        let capacity: u32 = args.keyword("CAPACITY").within(0..=65_536).or(1024);
        let mut hosts = Ipv6PrefixTable::default();
        for (number, text) in args.rest().into_iter().enumerate() {
            let added = read_hosts(&text, cx.argument_context()).and_then(|group| {
                for Ipv6Row { prefix, value } in group {
                    if hosts.contains(prefix) {
                        continue;
                    }
                    if hosts.len() >= capacity as usize {
                        return Err(format!("exceeds the CAPACITY of {capacity} prefixes"));
                    }
                    hosts.set(prefix, value);
                }
                Ok(())
            });
            if let Err(reason) = added {
                args.error("", format!("argument {} {reason}", number + 1));
            }
        }
        args.end()?;
        Ok(BuiltElement::routing(NeighborAdvertiser { hosts, drops: 0 }))
    },
};

/// Reads prefixes with a common Ethernet address.
fn read_hosts(text: &str, context: &ArgumentContext<'_>) -> Result<Vec<Ipv6Row<EthernetAddress>>, Reason> {
    let mut prefixes = Vec::new();
    let mut ethernet = None;
    for word in text.split_whitespace() {
        if let Ok(prefix) = Ipv6Prefix::parse_argument(word, context) {
            prefixes.push(prefix);
        } else if let Ok(address) = EthernetAddress::parse_argument(word, context) {
            if ethernet.replace(address).is_some() {
                return Err("has more than one Ethernet address".to_owned());
            }
        } else {
            return Err("should be `IP6/MASK ETHADDR'".to_owned());
        }
    }
    if prefixes.is_empty() {
        return Err("had no IP6 address and masks".to_owned());
    }
    let value = ethernet.ok_or("has no Ethernet address")?;
    Ok(prefixes.into_iter().map(|prefix| Ipv6Row { prefix, value }).collect())
}

struct NeighborAdvertiser {
    hosts: Ipv6PrefixTable<EthernetAddress>,
    drops: u64,
}

impl NeighborAdvertiser {
    /// Returns the advertisement for a frame; `None` if it is no solicitation for a host in the table.
    fn answer(&self, frame: &[u8]) -> Option<Vec<u8>> {
        let solicitation = NeighborMessage::read(NeighborKind::Solicitation, frame)?;
        let own = *self.hosts.lookup(solicitation.target)?;
        // A host that checks whether an address is in use has none yet.
        let is_anonymous = solicitation.source.is_unspecified();
        let (destination, to) =
            if is_anonymous { ALL_NODES } else { (solicitation.source, solicitation.from) };
        let advertisement = NeighborMessage {
            kind: NeighborKind::Advertisement,
            from: own,
            to,
            source: solicitation.target,
            destination,
            flags: if is_anonymous { IS_ROUTER } else { IS_ROUTER | IS_SOLICITED },
            target: solicitation.target,
            link_address: Some(own),
        };
        Some(advertisement.frame())
    }
}

impl Element for NeighborAdvertiser {
    handlers! {
        "table": "the prefixes with their Ethernet addresses",
            read |this, _, _| {
                let line = |row: &Ipv6Row<EthernetAddress>| format!("{} {}\n", show_prefix(row.prefix), row.value);
                Ok(this.hosts.in_order().map(line).collect())
            };
        "drops": counter "the number of packets that were not answered", read |this, _, _| Ok(this.drops.to_string());
    }
}

impl RoutingElement for NeighborAdvertiser {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, services: &mut Services) -> Destination {
        let Some(frame) = self.answer(packet.bytes()) else {
            self.drops += 1;
            return Destination::DISCARD;
        };
        let mut answer = services.pool.of_bytes(&frame);
        answer.set_link_header(0);
        answer.set_time(packet.time());
        answer.set_device(packet.device());
        answer.annotation_mut(VLAN_TCI).copy_from_slice(packet.annotation(VLAN_TCI));
        services.pool.discard(std::mem::replace(packet, answer));
        Destination::FIRST
    }
}
