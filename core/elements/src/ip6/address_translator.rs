//! `AddressTranslator`: translates the addresses and ports of IPv6 packets.

use crate::ipv4::{TCP, UDP, half, word};
use crate::ipv6::{HEADER_BYTES, ICMPV6, ICMPV6_CHECKSUM, Ipv6Header};
use crate::values;
use core::net::Ipv6Addr;
use std::collections::BTreeMap;
use std::fmt::Write;
use weir_graph::engine::{
    BuildContext, BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket,
    OrderDependence, Reason, RoutingElement, Services,
};
use weir_graph::handlers;
use weir_units::{Nanos, Timestamp};
use weir_wire::checksum::updated_checksum;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "AddressTranslator",
    ports: "2/2",
    processing: "h/h",
    flow: "xy/xy",
    cost: ElementCost::E4,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: "\
translates the addresses and ports of IPv6 packets

AddressTranslator(STATIC [, STATIC_PORTS, MAPPING, ...], DYNAMIC [, DYNAMIC_PORTS, INWARD, ADDRESS ...])

AddressTranslator changes the source of outward packets, from input 0 to output 0, and the destination of inward packets, \
from input 1 to output 1. Packets begin with the IPv6 header; they are of TCP, UDP or ICMPv6, without extension headers. \
Checksums are updated by the change. Packets without a mapping, and all others, are discarded.

A static mapping is a pair of an inner and a mapped address, with their ports if STATIC_PORTS is true. With DYNAMIC, \
packets of the direction that INWARD names also make mappings. Without DYNAMIC_PORTS, a new address takes the next ADDRESS \
that is free, and keeps it; a packet is discarded if none is. With DYNAMIC_PORTS, a new flow takes a port of ADDRESS that is \
free, or else that of the flow that sent no packet for longest, at least 300 s; echo requests and their replies are flows by \
their identifiers.

Arguments:
  STATIC         the number of static mappings
  STATIC_PORTS   true: mappings have ports; only if STATIC is not 0
  MAPPING        INNER MAPPED, or INNER PORT MAPPED PORT
  DYNAMIC        true: packets make mappings
  DYNAMIC_PORTS  true: mappings of addresses and ports
  INWARD         true: inward packets make mappings. Else outward packets do.
  ADDRESS        addresses; or one address, with its first and its last port

Handlers:
  table  r  the mappings: inner address and port, mapped address and port, and for a flow the other address and port
  drops  r  the number of discarded packets",
    build: |cx| {
        let mut args = cx.arguments();
        let texts = args.rest();
        let read = TranslatorReader { cx, texts: &texts, next: 0 }.read();
        let translator = read.unwrap_or_else(|reason| {
            args.error("", reason);
            AddressTranslator::default()
        });
        args.end()?;
        Ok(BuiltElement::routing(translator))
    },
};

/// The time without packets after which the port of a flow can be taken by another one.
const IDLE: Nanos = Nanos(300 * Nanos::SECOND.0);

/// An address with a port, or with the identifier of an echo request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Endpoint {
    address: Ipv6Addr,
    port: u16,
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", values::ipv6(self.address), self.port)
    }
}

/// The direction of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Direction {
    /// From inside, with an inner source.
    #[default]
    Outward,
    /// To inside, with a mapped destination.
    Inward,
}

/// A static mapping.
#[derive(Clone, Copy, Debug)]
struct StaticMapping {
    inner: Endpoint,
    mapped: Endpoint,
}

/// The addresses that a packet can be given, and the inner and mapped addresses that have one.
#[derive(Default)]
struct AddressPool {
    free: Vec<Ipv6Addr>,
    mapped: BTreeMap<Ipv6Addr, Ipv6Addr>,
    inner: BTreeMap<Ipv6Addr, Ipv6Addr>,
}

/// A flow: the protocol, the endpoint that is translated, and the other one.
type FlowKey = (u8, Endpoint, Endpoint);

/// A mapping of a flow.
#[derive(Clone, Copy)]
struct FlowMapping {
    protocol: u8,
    inner: Endpoint,
    mapped: Endpoint,
    other: Endpoint,
    used_at: Timestamp,
    /// The key in the order of uses.
    number: u64,
}

/// The ports of an address, and the flows that have one.
struct PortPool {
    address: Ipv6Addr,
    first: u16,
    last: u16,
    /// The offset from the first port of the next one that was never used.
    fresh: u32,
    flows: BTreeMap<u16, FlowMapping>,
    outward: BTreeMap<FlowKey, u16>,
    inward: BTreeMap<FlowKey, u16>,
    by_use: BTreeMap<u64, u16>,
    next: u64,
}

/// The way in which packets make mappings.
#[derive(Default)]
enum DynamicMapping {
    #[default]
    None,
    Addresses(AddressPool),
    Ports(Box<PortPool>),
}

#[derive(Default)]
struct AddressTranslator {
    fixed: Vec<StaticMapping>,
    has_fixed_ports: bool,
    dynamic: DynamicMapping,
    /// The direction whose packets make mappings.
    makes: Direction,
    drops: u64,
}

/// Reads arguments in their order.
struct TranslatorReader<'a, 'b> {
    cx: &'a BuildContext<'b>,
    texts: &'a [String],
    next: usize,
}

impl TranslatorReader<'_, '_> {
    fn wrong(&self, form: &str) -> Reason {
        format!("argument {} should be {form}", self.next)
    }

    fn take(&mut self) -> &str {
        let text = self.texts.get(self.next).map_or("", String::as_str);
        self.next += 1;
        text
    }

    fn boolean(&mut self) -> Result<bool, Reason> {
        let text = self.take().to_owned();
        self.cx.read(&text).ok_or_else(|| self.wrong("true or false"))
    }

    fn static_mapping(&mut self, has_ports: bool) -> Result<StaticMapping, Reason> {
        let text = self.take().to_owned();
        let words: Vec<&str> = text.split_whitespace().collect();
        let endpoint = |address: &str, port: &str| {
            Some(Endpoint { address: self.cx.read(address)?, port: self.cx.read(port)? })
        };
        let found = match words[..] {
            [inner, mapped] if !has_ports => endpoint(inner, "0").zip(endpoint(mapped, "0")),
            [inner, port, mapped, mapped_port] if has_ports => {
                endpoint(inner, port).zip(endpoint(mapped, mapped_port))
            }
            _ => None,
        };
        let form = if has_ports { "INNER PORT MAPPED PORT" } else { "INNER MAPPED" };
        let (inner, mapped) = found.ok_or_else(|| self.wrong(form))?;
        Ok(StaticMapping { inner, mapped })
    }

    fn port_pool(&mut self) -> Result<PortPool, Reason> {
        let text = self.take().to_owned();
        let words: Vec<&str> = text.split_whitespace().collect();
        let found = match words[..] {
            [address, first, last] => (|| {
                let (first, last): (u16, u16) = (self.cx.read(first)?, self.cx.read(last)?);
                Some((self.cx.read(address)?, first, last)).filter(|_| first <= last)
            })(),
            _ => None,
        };
        let (address, first, last) = found.ok_or_else(|| self.wrong("ADDRESS FIRST_PORT LAST_PORT"))?;
        Ok(PortPool {
            address,
            first,
            last,
            fresh: 0,
            flows: BTreeMap::new(),
            outward: BTreeMap::new(),
            inward: BTreeMap::new(),
            by_use: BTreeMap::new(),
            next: 0,
        })
    }

    fn read(mut self) -> Result<AddressTranslator, Reason> {
        let mut translator = AddressTranslator::default();
        let text = self.take().to_owned();
        let count: u32 = self.cx.read(&text).ok_or_else(|| self.wrong("a number of static mappings"))?;
        if count > 0 {
            translator.has_fixed_ports = self.boolean()?;
        }
        for _ in 0..count {
            let mapping = self.static_mapping(translator.has_fixed_ports)?;
            translator.fixed.push(mapping);
        }
        if self.boolean()? {
            let has_ports = self.boolean()?;
            translator.makes = if self.boolean()? { Direction::Inward } else { Direction::Outward };
            translator.dynamic = if has_ports {
                DynamicMapping::Ports(Box::new(self.port_pool()?))
            } else {
                let mut free = Vec::new();
                while self.next < self.texts.len() {
                    let text = self.take().to_owned();
                    free.push(self.cx.read(&text).ok_or_else(|| self.wrong("an IPv6 address"))?);
                }
                // The first address goes first.
                free.reverse();
                DynamicMapping::Addresses(AddressPool { free, ..AddressPool::default() })
            };
        }
        if self.next < self.texts.len() {
            return Err(format!("too many arguments: {} are used", self.next));
        }
        Ok(translator)
    }
}

impl AddressPool {
    /// Returns the other address of one, and makes a mapping if the direction does.
    fn translate(&mut self, direction: Direction, makes: Direction, from: Ipv6Addr) -> Option<Ipv6Addr> {
        let (map, reverse) = match direction {
            Direction::Outward => (&mut self.mapped, &mut self.inner),
            Direction::Inward => (&mut self.inner, &mut self.mapped),
        };
        if let Some(to) = map.get(&from) {
            return Some(*to);
        }
        let to = self.free.pop_if(|_| direction == makes)?;
        map.insert(from, to);
        reverse.insert(to, from);
        Some(to)
    }
}

impl PortPool {
    /// Returns the other endpoint of a flow, and makes a mapping if the direction does.
    fn translate(
        &mut self,
        direction: Direction,
        makes: Direction,
        flow: FlowKey,
        now: Timestamp,
    ) -> Option<Endpoint> {
        let known = match direction {
            Direction::Outward => self.outward.get(&flow),
            Direction::Inward => self.inward.get(&flow),
        };
        let port = match known {
            Some(port) => *port,
            None if direction == makes => self.add(direction, flow, now)?,
            None => return None,
        };
        let number = self.next;
        self.next += 1;
        let mapping = self.flows.get_mut(&port)?;
        self.by_use.remove(&mapping.number);
        (mapping.used_at, mapping.number) = (now, number);
        self.by_use.insert(number, port);
        Some(if direction == Direction::Outward { mapping.mapped } else { mapping.inner })
    }

    /// Returns a free port.
    fn take_port(&mut self, now: Timestamp) -> Option<u16> {
        let fresh = u32::from(self.first) + self.fresh;
        if fresh <= u32::from(self.last) {
            self.fresh += 1;
            return u16::try_from(fresh).ok();
        }
        let port = *self.by_use.first_key_value()?.1;
        let oldest = *self.flows.get(&port)?;
        if now.0 < oldest.used_at.0.saturating_add(IDLE.0) {
            return None;
        }
        self.by_use.remove(&oldest.number);
        self.flows.remove(&port);
        self.outward.remove(&(oldest.protocol, oldest.inner, oldest.other));
        self.inward.remove(&(oldest.protocol, oldest.mapped, oldest.other));
        Some(port)
    }

    fn add(&mut self, direction: Direction, flow: FlowKey, now: Timestamp) -> Option<u16> {
        let (protocol, own, other) = flow;
        let port = self.take_port(now)?;
        let new = Endpoint { address: self.address, port };
        let (inner, mapped) = if direction == Direction::Outward { (own, new) } else { (new, own) };
        self.outward.insert((protocol, inner, other), port);
        self.inward.insert((protocol, mapped, other), port);
        let number = self.next;
        self.next += 1;
        self.by_use.insert(number, port);
        self.flows.insert(port, FlowMapping { protocol, inner, mapped, other, used_at: now, number });
        Some(port)
    }
}

/// The parts of a packet that a translation concerns.
struct TranslatedPacket {
    protocol: u8,
    source: Endpoint,
    destination: Endpoint,
    /// The ports are those of the packet. ICMPv6 messages have none, but echos have identifiers.
    has_ports: bool,
    /// The offsets of the ports, and of the checksum, in the packet.
    source_port_at: usize,
    destination_port_at: usize,
    checksum_at: usize,
}

impl TranslatedPacket {
    fn read(packet: &[u8]) -> Option<Self> {
        let header = Ipv6Header::read_version_6(packet)?;
        let segment = header.segment()?;
        let protocol = header.next_header();
        let (length, source_port, destination_port, checksum) = match protocol {
            TCP => (20, 0, 2, 16),
            UDP => (8, 0, 2, 6),
            // The identifier of an echo.
            ICMPV6 => (8, 4, 4, ICMPV6_CHECKSUM),
            _ => return None,
        };
        if segment.len() < length {
            return None;
        }
        let is_echo = matches!(segment[0], 128 | 129);
        Some(Self {
            protocol,
            source: Endpoint { address: header.source(), port: half(segment, source_port) },
            destination: Endpoint { address: header.destination(), port: half(segment, destination_port) },
            has_ports: protocol != ICMPV6 || is_echo,
            source_port_at: HEADER_BYTES + source_port,
            destination_port_at: HEADER_BYTES + destination_port,
            checksum_at: HEADER_BYTES + checksum,
        })
    }

    /// Writes a new source or destination, and updates the checksum.
    fn write(&self, packet: &mut [u8], direction: Direction, new: Endpoint) {
        let (address_at, port_at) = match direction {
            Direction::Outward => (8, self.source_port_at),
            Direction::Inward => (24, self.destination_port_at),
        };
        let mut sum = half(packet, self.checksum_at);
        for (at, part) in (address_at..).step_by(4).zip(new.address.octets().as_chunks::<4>().0) {
            sum = updated_checksum(sum, word(packet, at), u32::from_be_bytes(*part));
            packet[at..at + 4].copy_from_slice(part);
        }
        if self.has_ports {
            sum = updated_checksum(sum, half(packet, port_at).into(), new.port.into());
            packet[port_at..port_at + 2].copy_from_slice(&new.port.to_be_bytes());
        }
        // 0 stands for no checksum in UDP.
        let sum = if self.protocol == UDP && sum == 0 { u16::MAX } else { sum };
        packet[self.checksum_at..self.checksum_at + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

impl AddressTranslator {
    /// Returns the new source or destination of a packet; `None` without a mapping.
    fn translate(
        &mut self,
        direction: Direction,
        packet: &TranslatedPacket,
        now: Timestamp,
    ) -> Option<Endpoint> {
        let (own, other) = match direction {
            Direction::Outward => (packet.source, packet.destination),
            Direction::Inward => (packet.destination, packet.source),
        };
        // Messages of ICMPv6 have no ports of their own, so addresses alone count.
        let has_ports = self.has_fixed_ports && packet.protocol != ICMPV6;
        let fixed = self.fixed.iter().find_map(|mapping| {
            let (from, to) = match direction {
                Direction::Outward => (mapping.inner, mapping.mapped),
                Direction::Inward => (mapping.mapped, mapping.inner),
            };
            let is_it = from.address == own.address && (!has_ports || from.port == own.port);
            is_it
                .then_some(Endpoint { address: to.address, port: if has_ports { to.port } else { own.port } })
        });
        if fixed.is_some() {
            return fixed;
        }
        match &mut self.dynamic {
            DynamicMapping::None => None,
            DynamicMapping::Addresses(pool) => {
                let address = pool.translate(direction, self.makes, own.address)?;
                Some(Endpoint { address, port: own.port })
            }
            DynamicMapping::Ports(pool) if packet.has_ports => {
                // The identifier of an echo is that of its reply.
                let other = if packet.protocol == ICMPV6 { Endpoint { port: 0, ..other } } else { other };
                pool.translate(direction, self.makes, (packet.protocol, own, other), now)
            }
            DynamicMapping::Ports(_) => None,
        }
    }

    fn table(&self) -> String {
        let mut text = String::new();
        for StaticMapping { inner, mapped } in &self.fixed {
            _ = writeln!(text, "{inner} {mapped}");
        }
        match &self.dynamic {
            DynamicMapping::None => {}
            DynamicMapping::Addresses(pool) => {
                for (inner, mapped) in &pool.mapped {
                    _ = writeln!(text, "{} 0 {} 0", values::ipv6(*inner), values::ipv6(*mapped));
                }
            }
            DynamicMapping::Ports(pool) => {
                for FlowMapping { inner, mapped, other, .. } in pool.flows.values() {
                    _ = writeln!(text, "{inner} {mapped} {other}");
                }
            }
        }
        text
    }
}

impl Element for AddressTranslator {
    handlers! {
        "table": "the mappings", read |this, _, _| Ok(this.table());
        "drops": counter "the number of discarded packets", read |this, _, _| Ok(this.drops.to_string());
    }
}

impl RoutingElement for AddressTranslator {
    fn route(&mut self, input: usize, packet: &mut GraphPacket, services: &mut Services) -> Destination {
        let direction = if input == 0 { Direction::Outward } else { Direction::Inward };
        let now = services.coarse_now();
        let found = TranslatedPacket::read(packet.bytes())
            .and_then(|parts| self.translate(direction, &parts, now).map(|new| (parts, new)));
        let Some((parts, new)) = found else {
            self.drops += 1;
            return Destination::DISCARD;
        };
        parts.write(packet.bytes_mut(), direction, new);
        Destination::output(input)
    }
}
