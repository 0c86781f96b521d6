//! `AggregateIP`: makes a field of a header the aggregate of a packet.

use super::ip_field::{FieldStart, field_start, field_text, header_name, is_tcp_or_udp, read_field};
use crate::classification::Field;
use crate::ipv4::{Ipv4Header, TCP, UDP, word};
use weir_graph::arguments::RawArgument;
use weir_graph::arguments::text::unquote;
use weir_graph::engine::{
    AGGREGATE, BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket,
    OrderDependence, RoutingElement, Services,
};
use weir_graph::handlers;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "AggregateIP",
    ports: "1/1-2",
    processing: "a/ah",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
makes a field of a header the aggregate of a packet

AggregateIP(FIELD [, keywords INCREMENTAL, UNSHIFT_IP_ADDR])

AggregateIP sets the annotation AGGREGATE of each packet to the value of FIELD. Packets without the field go to output 1, or \
are discarded if there is none: of another protocol, too short, or a fragment without the transport header.

FIELD is `HEADER NAME`, such as `ip src` or `tcp dport`, or `HEADER[OFFSET:LENGTH]` in bytes, or `HEADER{OFFSET:LENGTH}` in \
bits. `[OFFSET]` is one byte, and `[FIRST-LAST]` a range. Headers are ip, tcp, udp, icmp and other protocols, `ip proto N`, \
tcpudp, transp for any transport header, and data or payload for what is behind that of TCP or UDP. `/N` behind a field is \
its first N bits, and `& MASK` the bits of a mask, which lie side by side. A field lies within 4 bytes at a multiple of 4.

Arguments:
  FIELD            the field
  INCREMENTAL      true: the bits of the former aggregate stay, before those of the field. Default false.
  UNSHIFT_IP_ADDR  true: bits of an IP address stay at their places in the address. Default false.

Handlers:
  header      r  the header
  bit_offset  r  the first bit of the field, from the start of the header
  bit_length  r  the number of bits
  field       r  the field in words",
    build: |cx| {
        let mut args = cx.arguments();
        let text: RawArgument = args.either("FIELD").required();
        let is_incremental = args.flag("INCREMENTAL");
        let keeps_place = args.flag("UNSHIFT_IP_ADDR");
        let text = String::from_utf8_lossy(&unquote(&text.0)).into_owned();
        let field = read_field(&text).unwrap_or_else(|reason| {
            args.error("FIELD", reason);
            Field { protocol: None, first_bit: 0, bits: 8 }
        });
        if field.bits == 32 && is_incremental {
            args.error("INCREMENTAL", "'INCREMENTAL' is incompatible with field length 32");
        }
        args.end()?;
        let is_address = field.protocol.is_none() && ADDRESS_BITS.contains(&field.first_bit);
        let behind = 32 - u32::from(field.first_bit % 32) - u32::from(field.bits);
        let mask = u32::MAX >> (32 - u32::from(field.bits));
        let (shift, mask) = if keeps_place && is_address { (0, mask << behind) } else { (behind, mask) };
        Ok(BuiltElement::routing(AggregateIp { field, start: field_start(field), shift, mask, is_incremental }))
    },
};

/// The bits of both addresses of the IP header.
const ADDRESS_BITS: std::ops::Range<u16> = 96..160;

/// The least bytes of a TCP header, and those of a UDP header.
const TCP_HEADER_BYTES: usize = 20;
const UDP_HEADER_BYTES: usize = 8;

struct AggregateIp {
    field: Field,
    start: FieldStart,
    /// The bits behind the field in its word.
    shift: u32,
    mask: u32,
    is_incremental: bool,
}

impl AggregateIp {
    /// Returns the bytes from which the field counts.
    fn part<'p>(&self, header: &Ipv4Header<'p>) -> Option<&'p [u8]> {
        if self.start == FieldStart::IpHeader {
            return Some(header.bytes);
        }
        let (protocol, transport) = (header.protocol(), header.transport());
        let is_there = header.is_first()
            && match self.start {
                FieldStart::Transport(wanted) => protocol == wanted,
                FieldStart::TcpOrUdp | FieldStart::Payload => is_tcp_or_udp(protocol),
                FieldStart::IpHeader | FieldStart::AnyTransport => true,
            };
        match (self.start, protocol) {
            _ if !is_there => None,
            (FieldStart::Payload, TCP) if transport.len() >= TCP_HEADER_BYTES => {
                transport.get(usize::from(transport[12] >> 4) * 4..)
            }
            (FieldStart::Payload, UDP) => transport.get(UDP_HEADER_BYTES..),
            (FieldStart::Payload, _) => None,
            _ => Some(transport),
        }
    }

    fn value(&self, packet: &GraphPacket) -> Option<u32> {
        let part = self.part(&Ipv4Header::of(packet)?)?;
        let at = usize::from(self.field.first_bit / 32) * 4;
        // As in Click, the whole word has to be there.
        (part.len() >= at + 4).then(|| word(part, at) >> self.shift & self.mask)
    }
}

impl Element for AggregateIp {
    handlers! {
        "header": "the header", read |this, _, _| Ok(header_name(this.field));
        "bit_offset": "the first bit of the field", read |this, _, _| Ok(this.field.first_bit.to_string());
        "bit_length": "the number of bits", read |this, _, _| Ok(this.field.bits.to_string());
        "field": "the field in words", read |this, _, _| Ok(field_text(this.field));
    }
}

impl RoutingElement for AggregateIp {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        let Some(mut value) = self.value(packet) else { return Destination::output(1) };
        let aggregate = packet.annotation_mut(AGGREGATE);
        if self.is_incremental {
            let former = <[u8; 4]>::try_from(&*aggregate).map_or(0, u32::from_ne_bytes);
            value = (former << self.field.bits).wrapping_add(value);
        }
        aggregate.copy_from_slice(&value.to_ne_bytes());
        Destination::FIRST
    }
}
