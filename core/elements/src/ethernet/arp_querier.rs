//! `ARPQuerier`: finds the Ethernet addresses of next hops by ARP.

use super::ETHERNET_BYTES;
use super::arp::{ArpMessage, REPLY, REQUEST};
use super::arp_table::{current, delete, insert, table};
use super::encap::encapsulate;
use super::neighbor_cache::{NeighborAnswer, NeighborCache, NeighborLimits};
use core::net::Ipv4Addr;
use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;
use weir_graph::arguments::{
    ArgumentContext, ArgumentFault, ArgumentValue, EthernetAddress, Ipv4Prefix, WordArgument,
};
use weir_graph::engine::{
    Batch, BuiltElement, DST_IP, Effects, Element, ElementClass, ElementContext, ElementCost,
    EmittingElement, GraphPacket, OrderDependence, PACKET_BYTES_MAX, Reason, VLAN_TCI,
};
use weir_graph::handlers;
use weir_units::Nanos;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "ARPQuerier",
    ports: "2/1-2",
    processing: "h/h",
    flow: "xy/x",
    cost: ElementCost::E5,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: "\
puts Ethernet headers before IP packets, with addresses found by ARP

ARPQuerier(IP, ETH, [keywords TABLE, CAPACITY, ENTRY_CAPACITY, ENTRY_PACKET_CAPACITY, CAPACITY_SLIM_FACTOR, TIMEOUT, \
POLL_TIMEOUT, BROADCAST, BROADCAST_POLL])

Input 0 takes IP packets, whose destination annotation is the next hop. If the Ethernet address of the next hop is known, \
the packet goes to output 0 with an Ethernet header. Else it waits, and an ARP request is sent. Input 1 takes ARP \
replies, with their Ethernet headers. A reply sets the entry of its sender, and the packets that wait for it go to \
output 0. Requests go to the last output. At most ten requests a second are sent for an address, and one every two \
seconds when ten were not answered.

Packets to 255.255.255.255 and BROADCAST go to ff-ff-ff-ff-ff-ff, and packets to multicast addresses to their Ethernet \
groups (RFC 1112). Packets to 0.0.0.0 are discarded. A request has the time stamp and the VLAN annotation of the packet \
for which it is sent.

Arguments:
  IP                     the address of this host, with its prefix; a name can stand for IP and ETH
  ETH                    the Ethernet address of this host
  TABLE                  the name of an ARPTable or ARPQuerier whose table is used
  CAPACITY, ENTRY_CAPACITY, ENTRY_PACKET_CAPACITY, CAPACITY_SLIM_FACTOR, TIMEOUT
                         the limits of the element's own table, as in ARPTable
  POLL_TIMEOUT           the age of an entry from which on requests renew it; 0 for never. Default 60 s.
  BROADCAST              the broadcast address. Default: that of the prefix, else 255.255.255.255.
  BROADCAST_POLL         true: requests that renew an entry go to all. Default false.

Handlers:
  ipaddr     rw  the address of this host
  broadcast  rw  the argument
  table      r   the entries, as in ARPTable
  stats      r   the numbers of discarded packets and of requests, in words
  queries    r   the number of requests that were sent
  responses  r   the number of packets at input 1
  drops      r   the number of packets without a next hop
  count      r   the number of entries
  length     r   the number of packets that wait
  insert     w   IP ETH: sets an entry
  delete     w   IP: makes an entry not valid
  clear      w   removes all entries, and sets the counts to 0",
    build: |cx| {
        let mut args = cx.arguments();
        let host: HostArgument = args.either("IP").required();
        let ethernet = match host.ethernet {
            Some(of_name) => args.either("ETH").or(of_name),
            None => args.either("ETH").required(),
        };
        let table: Option<WordArgument> = args.keyword("TABLE").optional();
        let limits = NeighborLimits::read(&mut args, 300, 0);
        let poll_timeout = args.keyword("POLL_TIMEOUT").or(Nanos(Nanos::SECOND.0 * 60));
        let broadcast: Option<Ipv4Addr> = args.keyword("BROADCAST").optional();
        let polls_all = args.flag("BROADCAST_POLL");
        args.end()?;
        let Ipv4Prefix { address: ip, mask } = host.prefix;
        let of_prefix = ip | !mask;
        let of_prefix = if of_prefix == ip { Ipv4Addr::BROADCAST } else { of_prefix };
        Ok(BuiltElement::emitting(ArpQuerier {
            ip,
            ethernet,
            broadcast: broadcast.unwrap_or(of_prefix),
            poll_timeout,
            polls_all,
            shares: table.map(|name| name.0),
            state: Rc::new(RefCell::new(NeighborCache::new(limits))),
            query_output: cx.ports().targets.len().saturating_sub(1),
            queries: 0,
            responses: 0,
            drops: 0,
            found: Vec::new(),
        }))
    },
};

/// The address of a host, which can be a name of an Ethernet address as well.
struct HostArgument {
    prefix: Ipv4Prefix,
    ethernet: Option<EthernetAddress>,
}

impl ArgumentValue for HostArgument {
    fn parse_argument(text: &str, context: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        let prefix = Ipv4Prefix::parse_argument(text, context)?;
        Ok(Self { prefix, ethernet: EthernetAddress::parse_argument(text, context).ok() })
    }

    fn placeholder() -> Self {
        Self { prefix: Ipv4Prefix::placeholder(), ethernet: None }
    }
}

const BROADCAST: EthernetAddress = EthernetAddress([0xff; 6]);
const ETHERTYPE_IPV4: u16 = 0x0800;

struct ArpQuerier {
    ip: Ipv4Addr,
    ethernet: EthernetAddress,
    broadcast: Ipv4Addr,
    poll_timeout: Nanos,
    polls_all: bool,
    /// The element whose table is used.
    shares: Option<String>,
    state: Rc<RefCell<NeighborCache<Ipv4Addr>>>,
    query_output: usize,
    queries: u64,
    responses: u64,
    drops: u64,
    /// The addresses for the packets of a batch.
    found: Vec<EthernetAddress>,
}

/// The fate of an IP packet.
enum Forwarding {
    Send(EthernetAddress),
    Wait,
    Drop,
}

/// Returns the address to which a packet is to be sent.
#[inline]
fn next_hop(packet: &GraphPacket) -> Ipv4Addr {
    Ipv4Addr::from(packet.annotation(DST_IP).first_chunk::<4>().copied().unwrap_or_default())
}

impl ArpQuerier {
    /// Sends an IP packet, has it wait, or discards it.
    fn handle_ip(&mut self, mut packet: GraphPacket, cx: &mut ElementContext<'_>) {
        let next = next_hop(&packet);
        match self.forwarding(next, &packet, cx) {
            Forwarding::Send(to) => {
                if encapsulate(&mut packet, ETHERTYPE_IPV4, self.ethernet, to) {
                    cx.emit(0, packet);
                } else {
                    self.drops += 1;
                    cx.services.pool.discard(packet);
                }
            }
            Forwarding::Wait => {
                let query = self.query(next, &packet, BROADCAST, cx);
                let now = cx.services.coarse_now();
                if self.state.borrow_mut().wait(next, packet, now, &mut cx.services.pool) {
                    self.queries += 1;
                    cx.emit(self.query_output, query);
                } else {
                    cx.services.pool.discard(query);
                }
            }
            Forwarding::Drop => {
                self.drops += 1;
                cx.services.pool.discard(packet);
            }
        }
    }

    /// Decides about a packet. Sends a request if an entry gets old.
    fn forwarding(
        &mut self,
        next: Ipv4Addr,
        packet: &GraphPacket,
        cx: &mut ElementContext<'_>,
    ) -> Forwarding {
        if self.ip.is_unspecified() {
            return Forwarding::Drop;
        }
        let now = cx.services.coarse_now();
        let answer = self.state.borrow_mut().lookup(next, now, self.poll_timeout);
        if let NeighborAnswer::Known { ethernet, polls } = answer {
            if polls {
                let to = if self.polls_all { BROADCAST } else { ethernet };
                let query = self.query(next, packet, to, cx);
                self.queries += 1;
                cx.emit(self.query_output, query);
            }
            Forwarding::Send(ethernet)
        } else if next.is_broadcast() || next == self.broadcast {
            Forwarding::Send(BROADCAST)
        } else if next.is_multicast() {
            let [_, b, c, d] = next.octets();
            Forwarding::Send(EthernetAddress([0x01, 0x00, 0x5e, b & 0x7f, c, d]))
        } else if next.is_unspecified() {
            Forwarding::Drop
        } else {
            Forwarding::Wait
        }
    }

    /// Returns a request for a next hop.
    fn query(
        &self,
        next: Ipv4Addr,
        packet: &GraphPacket,
        to: EthernetAddress,
        cx: &mut ElementContext<'_>,
    ) -> GraphPacket {
        let message = ArpMessage {
            operation: REQUEST,
            sender: self.ethernet,
            sender_ip: self.ip,
            target: EthernetAddress([0; 6]),
            target_ip: next,
        };
        let mut query = cx.services.pool.of_bytes(&message.frame(to));
        query.set_link_header(0);
        query.set_time(packet.time());
        query.annotation_mut(VLAN_TCI).copy_from_slice(packet.annotation(VLAN_TCI));
        query
    }

    /// Takes the address of a reply, and sends the packets that wait for it.
    fn handle_response(&mut self, frame: &[u8], cx: &mut ElementContext<'_>) {
        if frame.len() < super::arp::FRAME_BYTES {
            return;
        }
        self.responses += 1;
        let is_group = |address: EthernetAddress| address.0[0] & 1 != 0;
        let message = ArpMessage::read(frame);
        let Some(reply) = message.filter(|it| it.operation == REPLY && !is_group(it.sender)) else { return };
        let now = cx.services.coarse_now();
        let packets =
            self.state.borrow_mut().insert(reply.sender_ip, reply.sender, now, true, &mut cx.services.pool);
        for packet in packets {
            self.handle_ip(packet, cx);
        }
    }
}

impl Element for ArpQuerier {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        if let Some(name) = &self.shares {
            let found = cx.find(name).ok_or_else(|| format!("TABLE: no element named '{name}'"))?;
            let state = cx.shared_state(found).and_then(|state| state.downcast().ok());
            self.state = state.ok_or_else(|| format!("TABLE: '{name}' is no ARPTable"))?;
        }
        Ok(())
    }

    fn effects(&self) -> Option<Effects> {
        self.shares.is_some().then_some(Effects::SHARED)
    }

    fn shared_state(&self) -> Option<Rc<dyn Any>> {
        Some(Rc::clone(&self.state) as Rc<dyn Any>)
    }

    fn can_reconfigure(&self) -> bool {
        true
    }

    fn reconfigure(&mut self, other: &mut dyn Any, _: &mut ElementContext<'_>) -> bool {
        let Some(other) = other.downcast_mut::<ArpQuerier>() else { return false };
        if self.shares != other.shares {
            return false;
        }
        let ArpQuerier { ip, ethernet, broadcast, poll_timeout, polls_all, .. } = *other;
        (self.ip, self.ethernet, self.broadcast) = (ip, ethernet, broadcast);
        (self.poll_timeout, self.polls_all) = (poll_timeout, polls_all);
        if self.shares.is_none() {
            self.state.borrow_mut().take_limits(&other.state.borrow());
        }
        true
    }

    fn take_state(&mut self, earlier: &mut dyn Any, _: &mut ElementContext<'_>) {
        let Some(earlier) = earlier.downcast_mut::<ArpQuerier>() else { return };
        let host = |it: &ArpQuerier| (it.ip, it.ethernet, it.broadcast);
        if host(self) != host(earlier) {
            return;
        }
        if self.shares.is_none() && earlier.shares.is_none() {
            self.state.borrow_mut().take(&mut earlier.state.borrow_mut());
        }
        (self.queries, self.responses, self.drops) = (earlier.queries, earlier.responses, earlier.drops);
    }

    handlers! {
        "ipaddr": "the address of this host", field ip;
        "broadcast": "the broadcast address", field broadcast;
        "table": "the entries", read |this, _, cx| table(&this.state, cx);
        "stats": "the numbers of discarded packets and of requests",
            read |this, _, cx| {
                let drops = this.drops;
                let queries = this.queries;
                current(&this.state, cx, |state| {
                    format!("{} packets killed\n{queries} ARP queries sent\n", drops + state.drops())
                })
            };
        "queries": counter "the number of requests", read |this, _, _| Ok(this.queries.to_string());
        "responses": counter "the number of packets at input 1", read |this, _, _| Ok(this.responses.to_string());
        "drops": counter "the number of packets without a next hop", read |this, _, _| Ok(this.drops.to_string());
        "count": gauge "the number of entries", read |this, _, cx| current(&this.state, cx, NeighborCache::count);
        "length": gauge "the number of packets that wait", read |this, _, cx| current(&this.state, cx, NeighborCache::length);
        "insert": "sets an entry", write |this, value, cx| insert(&this.state, value, cx);
        "delete": "makes an entry not valid", write |this, value, cx| delete(&this.state, value, cx);
        "clear": "removes all entries, and sets the counts to 0",
            write |this, _, cx| {
                (this.queries, this.responses, this.drops) = (0, 0, 0);
                this.state.borrow_mut().clear(&mut cx.services.pool);
                Ok(String::new())
            };
    }
}

impl EmittingElement for ArpQuerier {
    fn pass_batch(&mut self, input: usize, batch: &mut Batch, cx: &mut ElementContext<'_>) -> Option<usize> {
        if input != 0 || self.ip.is_unspecified() {
            return None;
        }
        let now = cx.services.coarse_now();
        let mut state = self.state.borrow_mut();
        self.found.clear();
        for packet in batch.packets() {
            if packet.len() + ETHERNET_BYTES > PACKET_BYTES_MAX {
                return None;
            }
            self.found.push(state.known(next_hop(packet), now, self.poll_timeout)?);
        }
        for (packet, to) in batch.packets_mut().iter_mut().zip(&self.found) {
            encapsulate(packet, ETHERTYPE_IPV4, self.ethernet, *to);
        }
        Some(0)
    }

    fn push(&mut self, input: usize, packet: GraphPacket, cx: &mut ElementContext<'_>) {
        if input == 0 {
            self.handle_ip(packet, cx);
        } else {
            self.handle_response(packet.bytes(), cx);
            cx.services.pool.discard(packet);
        }
    }
}
