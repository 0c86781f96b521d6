//! `StoreIPAddress`: writes an address into the packet.

use crate::ipv4::{Ipv4Header, TCP, UDP, half, word};
use core::net::Ipv4Addr;
use weir_graph::arguments::{ArgumentContext, ArgumentFault, ArgumentValue};
use weir_graph::engine::{
    BuiltElement, DST_IP, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket,
    OrderDependence, RoutingElement, Services,
};
use weir_wire::checksum::updated_checksum;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "StoreIPAddress",
    ports: "1/1-2",
    processing: "a/ah",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
writes an IPv4 address into packets

StoreIPAddress(OFFSET)
StoreIPAddress(ADDR, OFFSET)

StoreIPAddress writes ADDR, or else the annotation DST_IP, into each packet. If the annotation is 0, the packet stays \
unchanged. A packet without the bytes, or without IP header, goes to output 1, or is discarded without one.

With src or dst as OFFSET, it updates the checksums of IP, TCP and UDP by the change. With a number it updates none.

Arguments:
  ADDR    the address
  OFFSET  the offset from the packet's start; or src or dst, for the address in the IP header",
    build: |cx| {
        let mut args = cx.arguments();
        let address = if args.unread() > 1 { Some(args.either("ADDR").required()) } else { None };
        let place = args.either("OFFSET").required();
        args.end()?;
        Ok(BuiltElement::routing(StoreIpAddress { address, place }))
    },
};

/// The place of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// At an offset from the packet's start.
    Offset(usize),
    /// At an offset from the start of the IP header.
    Header(usize),
}

impl ArgumentValue for Place {
    fn parse_argument(text: &str, context: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        match text.to_ascii_lowercase().as_str() {
            "src" => Ok(Self::Header(12)),
            "dst" => Ok(Self::Header(16)),
            _ => u32::parse_argument(text, context)
                .map(|offset| Self::Offset(offset as usize))
                .map_err(|_| ArgumentFault::Type("an offset, src or dst")),
        }
    }

    fn placeholder() -> Self {
        Self::Offset(0)
    }
}

struct StoreIpAddress {
    /// The address; `None` for that of the annotation.
    address: Option<Ipv4Addr>,
    place: Place,
}

impl Element for StoreIpAddress {}

impl RoutingElement for StoreIpAddress {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        let new = match self.address {
            Some(address) => address.to_bits(),
            None => word(packet.annotation(DST_IP), 0),
        };
        if new == 0 && self.address.is_none() {
            return Destination::FIRST;
        }
        match self.place {
            Place::Offset(offset) if packet.len() >= 4 && offset <= packet.len() - 4 => {
                packet.bytes_mut()[offset..][..4].copy_from_slice(&new.to_be_bytes());
                Destination::FIRST
            }
            Place::Header(offset) if Ipv4Header::of(packet).is_some() => {
                packet.network_bytes_mut().map_or(Destination::DISCARD, |bytes| {
                    store(bytes, offset, new);
                    Destination::FIRST
                })
            }
            _ => Destination::output(1),
        }
    }
}

/// Writes an address into a complete header, and updates the checksums that cover it.
fn store(bytes: &mut [u8], offset: usize, new: u32) {
    let Some(header) = Ipv4Header::read(bytes) else { return };
    let old = word(bytes, offset);
    let segment = header.header_bytes;
    let room = header.transport().len();
    let transport = match header.protocol() {
        TCP if header.is_first() && room >= 20 => Some(segment + 16),
        // A UDP checksum of 0 stands for none.
        UDP if header.is_first() && room >= 8 && half(bytes, segment + 6) != 0 => Some(segment + 6),
        _ => None,
    };
    let is_udp = header.protocol() == UDP;
    bytes[offset..][..4].copy_from_slice(&new.to_be_bytes());
    for (at, is_udp) in std::iter::once((10, false)).chain(transport.map(|at| (at, is_udp))) {
        let sum = updated_checksum(half(bytes, at), old, new);
        let sum = if is_udp && sum == 0 { u16::MAX } else { sum };
        bytes[at..][..2].copy_from_slice(&sum.to_be_bytes());
    }
}
