//! `IP6NDSolicitor`: finds the Ethernet addresses of next hops by neighbour discovery.

use super::ETHERNET_BYTES;
use super::encap::encapsulate;
use super::nd_message::{ETHERTYPE_IPV6, NeighborKind, NeighborMessage, solicited_group};
use super::neighbor_cache::{NeighborAnswer, NeighborCache, NeighborLimits, NeighborRow};
use crate::values;
use core::net::Ipv6Addr;
use std::any::Any;
use weir_graph::arguments::EthernetAddress;
use weir_graph::engine::{
    Batch, BuiltElement, DST_IP6, Effects, Element, ElementClass, ElementContext, ElementCost,
    EmittingElement, GraphPacket, OrderDependence, PACKET_BYTES_MAX,
};
use weir_graph::handlers;
use weir_units::Nanos;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "IP6NDSolicitor",
    ports: "2/1-2",
    processing: "h/h",
    flow: "xy/x",
    cost: ElementCost::E5,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: "\
puts Ethernet headers before IPv6 packets, with addresses found by neighbour discovery

IP6NDSolicitor(IP, ETH, [keywords CAPACITY, ENTRY_CAPACITY, ENTRY_PACKET_CAPACITY, CAPACITY_SLIM_FACTOR, TIMEOUT, \
POLL_TIMEOUT])

Input 0 takes IPv6 packets, whose annotation DST_IP6 is the next hop. If the Ethernet address of the next hop is known, the \
packet goes to output 0 with an Ethernet header. Else it waits, and a neighbour solicitation is sent. Input 1 takes \
neighbour advertisements, with their Ethernet headers. An advertisement sets the entry of its target, if there is one, and \
the packets that wait for it go to output 0. Advertisements that a router has forwarded, whose checksum is wrong, or that \
state no address of a single host, are ignored (RFC 4861, section 7.1.2). Solicitations go to the last output. At most ten a second are \
sent for an address, and one every two seconds when ten were not answered.

Packets to groups go to their Ethernet groups (RFC 2464, section 7). Packets to :: are discarded. A solicitation has the \
time stamp of the packet for which it is sent.

The table is bounded, also under a flood of packets to addresses that do not exist: a new entry of a full table replaces \
the oldest one without a known address, else the oldest one. A packet for which there is no room replaces the oldest one \
that waits for its address.

Arguments:
  IP                     the address of this host, the source of solicitations
  ETH                    the Ethernet address of this host
  CAPACITY               the most packets that wait for an address. Default 2048; 0 for 1048576.
  ENTRY_CAPACITY         the most entries. Default 65536; 0 for 1048576.
  ENTRY_PACKET_CAPACITY  the most packets that wait for one address. Default 1; 0 for CAPACITY.
  CAPACITY_SLIM_FACTOR   a packet that exceeds CAPACITY replaces CAPACITY divided by this number of packets. Default 2.
  TIMEOUT                the time after which an entry expires; 0 for never. Default 120 s.
  POLL_TIMEOUT           the age of an entry from which on solicitations renew it; 0 for never. Default 60 s.

Handlers:
  table    r  a line for each entry, oldest first: address, 1 if it is valid, Ethernet address
  stats    r  the numbers of discarded packets and of solicitations, in words
  queries  r  the number of solicitations that were sent
  drops    r  the number of discarded packets
  count    r  the number of entries
  length   r  the number of packets that wait",
    build: |cx| {
        let mut args = cx.arguments();
        let ip = args.either("IP").required();
        let ethernet = args.either("ETH").required();
        let limits = NeighborLimits::read(&mut args, 120, 1);
        let poll_timeout = args.keyword("POLL_TIMEOUT").or(Nanos(Nanos::SECOND.0 * 60));
        args.end()?;
        Ok(BuiltElement::emitting(NeighborSolicitor {
            ip,
            ethernet,
            poll_timeout,
            neighbors: NeighborCache::new(limits),
            query_output: cx.ports().targets.len().saturating_sub(1),
            queries: 0,
            drops: 0,
            found: Vec::new(),
        }))
    },
};

struct NeighborSolicitor {
    ip: Ipv6Addr,
    ethernet: EthernetAddress,
    poll_timeout: Nanos,
    neighbors: NeighborCache<Ipv6Addr>,
    query_output: usize,
    queries: u64,
    /// The packets without a next hop, or too long for a header. The table counts the others.
    drops: u64,
    /// The addresses for the packets of a batch.
    found: Vec<EthernetAddress>,
}

/// Returns the address to which a packet is to be sent.
fn next_hop(packet: &GraphPacket) -> Ipv6Addr {
    Ipv6Addr::from(packet.annotation(DST_IP6).first_chunk::<16>().copied().unwrap_or_default())
}

impl NeighborSolicitor {
    /// Sends an IPv6 packet, has it wait, or discards it.
    fn handle_ip(&mut self, packet: GraphPacket, cx: &mut ElementContext<'_>) {
        let next = next_hop(&packet);
        let now = cx.services.coarse_now();
        match self.neighbors.lookup(next, now, self.poll_timeout) {
            NeighborAnswer::Known { ethernet, polls } => {
                if polls {
                    let query = self.query(next, &packet, cx);
                    self.send_query(query, cx);
                }
                self.send(packet, ethernet, cx);
            }
            NeighborAnswer::Unknown if next.is_multicast() => {
                let [.., a, b, c, d] = next.octets();
                self.send(packet, EthernetAddress([0x33, 0x33, a, b, c, d]), cx);
            }
            NeighborAnswer::Unknown if next.is_unspecified() => {
                self.drops += 1;
                cx.services.pool.discard(packet);
            }
            NeighborAnswer::Unknown => {
                let query = self.query(next, &packet, cx);
                if self.neighbors.wait(next, packet, now, &mut cx.services.pool) {
                    self.send_query(query, cx);
                } else {
                    cx.services.pool.discard(query);
                }
            }
        }
    }

    fn send(&mut self, mut packet: GraphPacket, to: EthernetAddress, cx: &mut ElementContext<'_>) {
        if encapsulate(&mut packet, ETHERTYPE_IPV6, self.ethernet, to) {
            cx.emit(0, packet);
        } else {
            self.drops += 1;
            cx.services.pool.discard(packet);
        }
    }

    fn send_query(&mut self, query: GraphPacket, cx: &mut ElementContext<'_>) {
        self.queries += 1;
        cx.emit(self.query_output, query);
    }

    /// Returns a solicitation for a next hop.
    fn query(&self, target: Ipv6Addr, packet: &GraphPacket, cx: &mut ElementContext<'_>) -> GraphPacket {
        let (destination, to) = solicited_group(target);
        let solicitation = NeighborMessage {
            kind: NeighborKind::Solicitation,
            from: self.ethernet,
            to,
            source: self.ip,
            destination,
            flags: 0,
            target,
            link_address: Some(self.ethernet),
        };
        let mut query = cx.services.pool.of_bytes(&solicitation.frame());
        query.set_link_header(0);
        query.set_time(packet.time());
        query
    }

    /// Takes the address of an advertisement, and sends the packets that wait for it.
    fn handle_advertisement(&mut self, frame: &[u8], cx: &mut ElementContext<'_>) {
        let Some(advertisement) = NeighborMessage::read(NeighborKind::Advertisement, frame) else { return };
        let Some(address) = advertisement.link_address.filter(|address| address.0[0] & 1 == 0) else {
            return;
        };
        // Hosts that no packet is for get no entry (RFC 4861, section 7.2.5).
        if !self.neighbors.contains(advertisement.target) {
            return;
        }
        let now = cx.services.coarse_now();
        let pool = &mut cx.services.pool;
        for packet in self.neighbors.insert(advertisement.target, address, now, true, pool) {
            self.handle_ip(packet, cx);
        }
    }

    /// Removes expired entries, and returns a value of the table.
    fn current<T>(
        &mut self,
        cx: &mut ElementContext<'_>,
        value: impl FnOnce(&NeighborCache<Ipv6Addr>) -> T,
    ) -> T {
        self.neighbors.expire(cx.services.coarse_now(), &mut cx.services.pool);
        value(&self.neighbors)
    }
}

impl Element for NeighborSolicitor {
    fn take_state(&mut self, earlier: &mut dyn Any, _: &mut ElementContext<'_>) {
        let Some(earlier) = earlier.downcast_mut::<NeighborSolicitor>() else { return };
        if (self.ip, self.ethernet) == (earlier.ip, earlier.ethernet) {
            self.neighbors.take(&mut earlier.neighbors);
            (self.queries, self.drops) = (earlier.queries, earlier.drops);
        }
    }

    handlers! {
        "table": "the entries",
            read |this, _, cx| {
                let now = cx.services.coarse_now();
                let line = |row: NeighborRow<Ipv6Addr>| {
                    format!("{} {} {}\n", values::ipv6(row.ip), u8::from(row.is_known), row.ethernet)
                };
                Ok(this.current(cx, |neighbors| neighbors.rows(now).map(line).collect()))
            };
        "stats": "the numbers of discarded packets and of solicitations",
            read |this, _, cx| {
                let drops = this.drops + this.current(cx, NeighborCache::drops);
                Ok(format!("{drops} packets killed\n{} ND Solicitation Message sent\n", this.queries))
            };
        "queries": counter "the number of solicitations", read |this, _, _| Ok(this.queries.to_string());
        "drops": counter "the number of discarded packets",
            read |this, _, cx| Ok((this.drops + this.current(cx, NeighborCache::drops)).to_string());
        "count": gauge "the number of entries", read |this, _, cx| Ok(this.current(cx, NeighborCache::count).to_string());
        "length": gauge "the number of packets that wait",
            read |this, _, cx| Ok(this.current(cx, NeighborCache::length).to_string());
    }
}

impl EmittingElement for NeighborSolicitor {
    fn pass_batch(&mut self, input: usize, batch: &mut Batch, cx: &mut ElementContext<'_>) -> Option<usize> {
        if input != 0 {
            return None;
        }
        let now = cx.services.coarse_now();
        self.found.clear();
        for packet in batch.packets() {
            if packet.len() + ETHERNET_BYTES > PACKET_BYTES_MAX {
                return None;
            }
            self.found.push(self.neighbors.known(next_hop(packet), now, self.poll_timeout)?);
        }
        for (packet, to) in batch.packets_mut().iter_mut().zip(&self.found) {
            encapsulate(packet, ETHERTYPE_IPV6, self.ethernet, *to);
        }
        Some(0)
    }

    fn push(&mut self, input: usize, packet: GraphPacket, cx: &mut ElementContext<'_>) {
        if input == 0 {
            self.handle_ip(packet, cx);
        } else {
            self.handle_advertisement(packet.bytes(), cx);
            cx.services.pool.discard(packet);
        }
    }
}
