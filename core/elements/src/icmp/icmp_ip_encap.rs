//! `ICMPIPEncap`: puts an ICMP and an IP header before packets.

use crate::ip::encapsulation::{NewDestination, NewHeader};
use crate::ipv4::{HEADER_BYTES, ICMP};
use core::net::Ipv4Addr;
use weir_graph::arguments::WordArgument;
use weir_graph::arguments::protocols::{icmp_code_number, icmp_type_number};
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};
use weir_graph::handlers;
use weir_wire::checksum::internet_checksum;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "ICMPIPEncap",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E2,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: "\
puts an ICMP and an IPv4 header before packets

ICMPIPEncap(SRC, DST, TYPE [, CODE, keyword IDENTIFIER])

ICMPIPEncap puts an ICMP and an IPv4 header before each packet, and sets the network header and the annotation DST_IP. The \
identification of the IPv4 header, and the sequence number of types that have one, count the packets from 1, without 0. A \
packet that would be longer than 65535 bytes is discarded.

Arguments:
  SRC         the source
  DST         the destination
  TYPE        the ICMP type, as a number or by name, such as echo
  CODE        the ICMP code, as a number or by name. Default 0.
  IDENTIFIER  the identifier of types that have one. Default 0.

Handlers:
  src    rw  the argument
  dst    rw  the argument
  drops  r   the number of packets that were too long",
    build: |cx| {
        let mut args = cx.arguments();
        let source = args.either("SRC").required();
        let destination: Ipv4Addr = args.either("DST").required();
        let WordArgument(type_text) = args.either("TYPE").required();
        let code_text: Option<WordArgument> = args.either("CODE").optional();
        let identifier = args.keyword("IDENTIFIER").or(0);
        let icmp_type = icmp_type_number(&type_text).or_else(|| cx.read(&type_text)).unwrap_or_else(|| {
            args.error("TYPE", format!("'{type_text}' is no type of ICMP"));
            0
        });
        let code = code_text.map_or(0, |WordArgument(text)| {
            icmp_code_number(icmp_type, &text).or_else(|| cx.read(&text)).unwrap_or_else(|| {
                args.error("CODE", format!("'{text}' is no code of ICMP type {icmp_type}"));
                0
            })
        });
        args.end()?;
        let ip = NewHeader {
            source,
            destination: NewDestination::Address(destination),
            protocol: ICMP,
            service: 0,
            time_to_live: TIME_TO_LIVE,
            dont_fragment: false,
            identification: 1,
        };
        Ok(BuiltElement::routing(IcmpIpEncap { ip, icmp_type, code, identifier, drops: 0 }))
    },
};

const TIME_TO_LIVE: u8 = 255;

/// The types whose header has an identifier and a sequence number: echo, time stamp and information, and their replies.
const SEQUENCED: [u8; 6] = [0, 8, 13, 14, 15, 16];
/// The types with three time stamps.
const TIMESTAMPS: [u8; 2] = [13, 14];

struct IcmpIpEncap {
    ip: NewHeader,
    icmp_type: u8,
    code: u8,
    identifier: u16,
    drops: u64,
}

impl Element for IcmpIpEncap {
    handlers! {
        "src": "the source", field ip.source;
        "dst": "the destination",
            read |this, _, _| Ok(this.ip.destination.to_string()),
            write |this, value, _| {
                this.ip.destination = NewDestination::Address(crate::values::read(value)?);
                Ok(String::new())
            };
        "drops": counter "the number of packets that were too long", read |this, _, _| Ok(this.drops.to_string());
    }
}

impl RoutingElement for IcmpIpEncap {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        let header_bytes = if TIMESTAMPS.contains(&self.icmp_type) { 20 } else { 8 };
        let number = self.ip.identification;
        let Some(bytes) = self.ip.add(packet, header_bytes) else {
            self.drops += 1;
            return Destination::DISCARD;
        };
        // 0 is left out, as other hosts take it for no identification.
        self.ip.identification = self.ip.identification.max(1);
        let icmp = &mut bytes[HEADER_BYTES..];
        icmp[..header_bytes].fill(0);
        (icmp[0], icmp[1]) = (self.icmp_type, self.code);
        if SEQUENCED.contains(&self.icmp_type) {
            icmp[4..6].copy_from_slice(&self.identifier.to_be_bytes());
            icmp[6..8].copy_from_slice(&number.to_be_bytes());
        }
        let sum = internet_checksum(icmp);
        icmp[2..4].copy_from_slice(&sum.to_be_bytes());
        Destination::FIRST
    }
}
