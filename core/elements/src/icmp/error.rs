//! `ICMPError`: answers packets with ICMP errors.

use super::names::{
    ERROR_AT_POINTER, ErrorType, NEEDS_FRAGMENTS, PARAMETER_PROBLEM, REDIRECT, UNREACHABLE, is_error,
};
use crate::ipv4::{ICMP, Ipv4Header, header_words};
use core::net::Ipv4Addr;
use weir_graph::arguments::WordArgument;
use weir_graph::arguments::protocols::icmp_code_number;
use weir_graph::engine::{
    BuiltElement, DST_IP, Destination, Effects, Element, ElementClass, ElementCost, FIX_IP_SRC, GraphPacket,
    ICMP_PARAMPROB, OrderDependence, PacketPool, PacketType, RoutingElement, Services,
};
use weir_graph::{handlers, reconfigured_fields};
use weir_wire::checksum::internet_checksum;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "ICMPError",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E5,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: "\
answers packets with ICMP errors

ICMPError(SRC, TYPE, [CODE, BADADDRS, keywords MTU, PMTU, USE_FIX_ANNO])

ICMPError turns each IPv4 packet into an ICMP error to its source, with the header and the first bytes of the packet. \
Packets need a network header. The destination annotation of the error is its destination address, and its time stamp is \
that of the packet. A source route of the packet is reversed.

No error answers an ICMP error, a fragment but the first, a packet that came as a link-level broadcast or multicast, or a \
packet whose addresses are not those of single hosts (RFC 1812, section 4.3.2.7). These packets are discarded.

The gateway of a redirect is the destination annotation of the packet. The pointer of parameterproblem with erroratptr is \
the annotation ICMP_PARAMPROB.

Arguments:
  SRC           the source address of the errors
  TYPE          unreachable, sourcequench, redirect, timeexceeded or parameterproblem, or their number
  CODE          a number, or a name: net, host, protocol, port, needfrag; transit, reassembly; erroratptr, missingopt, \
length. Default 0.
  BADADDRS      addresses that are not those of single hosts, such as broadcast addresses
  MTU           the most bytes of an error, at least 68. Default 576.
  PMTU          the MTU that unreachable with needfrag reports. Default 0.
  USE_FIX_ANNO  false: does not set the annotation that has FixIPSrc change the source address. Default true. \
SET_FIX_ANNO is the same.

Handlers:
  src    rw  the argument
  mtu    rw  the argument
  pmtu   rw  the argument
  drops  r   the number of packets that were not answered",
    build: |cx| {
        let mut args = cx.arguments();
        let source = args.either("SRC").required();
        let ErrorType(icmp_type) = args.either("TYPE").required();
        let given: Option<WordArgument> = args.either("CODE").optional();
        let code = match given {
            None => 0,
            Some(WordArgument(text)) => {
                let number = icmp_code_number(icmp_type, &text).or_else(|| crate::values::read(&text).ok());
                number.unwrap_or_else(|| {
                    args.error("CODE", format!("'{text}' is no code of ICMP type {icmp_type}"));
                    0
                })
            }
        };
        let not_unicast: Vec<Ipv4Addr> = args.either("BADADDRS").or(Vec::new());
        let mtu = args.keyword("MTU").within(MTU_MIN..).or(576);
        let path_mtu = args.keyword("PMTU").or(0);
        let fixes = args.keyword("SET_FIX_ANNO").or(true);
        let fixes = args.keyword("USE_FIX_ANNO").or(fixes);
        args.end()?;
        Ok(BuiltElement::routing(IcmpError {
            source,
            icmp_type,
            code,
            not_unicast,
            mtu,
            path_mtu,
            fixes,
            identification: 1,
            drops: 0,
        }))
    },
};

/// The longest IPv4 header, and the ICMP header.
const MTU_MIN: u16 = 68;
const ICMP_BYTES: usize = 8;
const TTL: u8 = 200;

struct IcmpError {
    source: Ipv4Addr,
    icmp_type: u8,
    code: u8,
    not_unicast: Vec<Ipv4Addr>,
    mtu: u16,
    path_mtu: u16,
    fixes: bool,
    /// The identification of the next error.
    identification: u16,
    drops: u64,
}

impl IcmpError {
    fn is_unicast(&self, address: Ipv4Addr) -> bool {
        !address.is_broadcast() && !address.is_multicast() && !self.not_unicast.contains(&address)
    }

    /// Returns true for an address to which an error can be sent (RFC 1812, section 5.3.7).
    fn is_source(&self, address: Ipv4Addr) -> bool {
        let first = address.octets()[0];
        self.is_unicast(address) && first != 0 && first != 127 && first < 240
    }

    fn is_answered(&self, packet: &GraphPacket, header: &Ipv4Header<'_>) -> bool {
        let is_icmp_error = header.protocol() == ICMP
            && header.transport().first().is_none_or(|icmp_type| is_error(*icmp_type));
        let is_group = matches!(packet.packet_type(), PacketType::Broadcast | PacketType::Multicast);
        !is_icmp_error
            && !is_group
            && header.offset() == 0
            && self.is_unicast(header.destination())
            && self.is_source(header.source())
    }

    /// Returns the error for a packet.
    fn answer(&mut self, packet: &GraphPacket, pool: &mut PacketPool) -> Option<GraphPacket> {
        let network = packet.network_bytes()?;
        let header = Ipv4Header::read_version_4(network).filter(|header| self.is_answered(packet, header))?;
        let pointer = packet.annotation(ICMP_PARAMPROB).first().copied().unwrap_or(0);
        let has_pointer = self.icmp_type == PARAMETER_PROBLEM && self.code == ERROR_AT_POINTER;
        let mut route = source_route(header.header());
        if let Some(found) = &route {
            if self.icmp_type == REDIRECT {
                return None;
            }
            // The error is about the route itself.
            if has_pointer && found.contains(usize::from(pointer)) {
                route = None;
            }
        }
        let options = route.map_or_else(Vec::new, |route| route.reversed());
        let header_bytes = 20 + options.len();
        let copied = network.len().min(usize::from(self.mtu).saturating_sub(header_bytes + ICMP_BYTES));
        let total = header_bytes + ICMP_BYTES + copied;
        let mut error = pool.of_length(total, weir_graph::engine::HEADROOM);
        let bytes = error.bytes_mut();
        bytes[header_bytes + ICMP_BYTES..].copy_from_slice(&network[..copied]);
        bytes[20..header_bytes].copy_from_slice(&options);

        let icmp = &mut bytes[header_bytes..];
        icmp[..ICMP_BYTES].fill(0);
        (icmp[0], icmp[1]) = (self.icmp_type, self.code);
        match (self.icmp_type, self.code) {
            (PARAMETER_PROBLEM, ERROR_AT_POINTER) => icmp[4] = pointer,
            (REDIRECT, _) => icmp[4..8].copy_from_slice(packet.annotation(DST_IP)),
            (UNREACHABLE, NEEDS_FRAGMENTS) => icmp[6..8].copy_from_slice(&self.path_mtu.to_be_bytes()),
            _ => {}
        }
        let sum = internet_checksum(icmp);
        icmp[2..4].copy_from_slice(&sum.to_be_bytes());

        let ip = &mut bytes[..header_bytes];
        ip[..20].fill(0);
        ip[0] = 0x40 | header_words(header_bytes);
        ip[2..4].copy_from_slice(&u16::try_from(total).unwrap_or(self.mtu).to_be_bytes());
        ip[4..6].copy_from_slice(&self.identification.to_be_bytes());
        (ip[8], ip[9]) = (TTL, ICMP);
        ip[12..16].copy_from_slice(&self.source.octets());
        ip[16..20].copy_from_slice(&header.source().octets());
        let sum = internet_checksum(ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        self.identification = self.identification.wrapping_add(1);

        error.set_network_header(0, header_bytes);
        error.set_time(packet.time());
        error.annotation_mut(DST_IP).copy_from_slice(&header.source().octets());
        error.annotation_mut(FIX_IP_SRC)[0] = u8::from(self.fixes);
        Some(error)
    }
}

/// A source route in the options of a header.
#[derive(Clone, Copy, Debug)]
struct SourceRoute<'a> {
    /// The position in the header.
    at: usize,
    option: &'a [u8],
    /// The number of bytes with addresses that the packet has passed.
    passed: usize,
}

impl SourceRoute<'_> {
    fn contains(&self, position: usize) -> bool {
        (self.at..self.at + self.option.len()).contains(&position)
    }

    /// Returns the option with the passed addresses in reverse order, and an end.
    fn reversed(&self) -> Vec<u8> {
        const END: u8 = 0;
        let length = 3 + self.passed;
        let mut option = vec![self.option[0], u8::try_from(length).unwrap_or(u8::MAX), 4];
        for address in self.option[3..length].rchunks_exact(4) {
            option.extend_from_slice(address);
        }
        option.push(END);
        option
    }
}

/// Returns the first loose or strict source route of a header. Reads up to an option that is wrong.
fn source_route(header: &[u8]) -> Option<SourceRoute<'_>> {
    const END: u8 = 0;
    const NOTHING: u8 = 1;
    const ROUTES: [u8; 2] = [131, 137];
    let mut at = 20;
    loop {
        match *header.get(at)? {
            NOTHING => at += 1,
            END => return None,
            kind => {
                let length = usize::from(*header.get(at + 1)?);
                let option = header.get(at..at + length).filter(|_| length >= 2)?;
                // The pointer counts from 1, and is that of the next address.
                let next = usize::from(option.get(2).copied().unwrap_or(0));
                if ROUTES.contains(&kind) && next >= 4 && next % 4 == 0 && next <= length + 1 {
                    return Some(SourceRoute { at, option, passed: next - 4 });
                }
                at += length;
            }
        }
    }
}

impl Element for IcmpError {
    reconfigured_fields!(source, icmp_type, code, not_unicast, mtu, path_mtu, fixes);

    handlers! {
        "src": "the source address of the errors", field source;
        "mtu": "the most bytes of an error",
            read |this, _, _| Ok(this.mtu.to_string()),
            write |this, value, _| {
                let mtu: u16 = crate::values::read(value)?;
                if mtu < MTU_MIN {
                    return Err(format!("at least {MTU_MIN}"));
                }
                this.mtu = mtu;
                Ok(String::new())
            };
        "pmtu": "the MTU that is reported", field path_mtu;
        "drops": counter "the number of packets that were not answered", read |this, _, _| Ok(this.drops.to_string());
    }
}

impl RoutingElement for IcmpError {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, services: &mut Services) -> Destination {
        match self.answer(packet, &mut services.pool) {
            Some(error) => {
                services.pool.discard(std::mem::replace(packet, error));
                Destination::FIRST
            }
            None => {
                self.drops += 1;
                Destination::DISCARD
            }
        }
    }
}
