//! `IPPrint`: prints IPv4 packets in words.

use super::print_line::print_transport;
use crate::ipv4::{HEADER_BYTES, half, header_length, word};
use crate::printed_lines::{PrintedLines, printed_lines};
use core::net::Ipv4Addr;
use std::fmt::Write;
use weir_graph::arguments::WordArgument;
use weir_graph::engine::{
    AGGREGATE, BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket,
    OrderDependence, PAINT, RoutingElement, Services,
};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "IPPrint",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E2,
    effects: Effects::TERMINAL,
    order: OrderDependence::Ordered,
    manual: "\
prints IPv4 packets in words

IPPrint([LABEL, keywords CONTENTS, PAYLOAD, MAXLENGTH, ID, TTL, TOS, LENGTH, TIMESTAMP, AGGREGATE, PAINT, SWAP, ACTIVE, \
OUTFILE])

IPPrint writes a line about each packet whose IP header is known to standard error, similar to that of tcpdump. Packets \
without one pass without a line.

Arguments:
  LABEL      a text before each line
  CONTENTS   NONE, HEX or ASCII: the bytes of the packet, in further lines. Default NONE.
  PAYLOAD    the same for the bytes behind the transport header. Not with CONTENTS.
  MAXLENGTH  the most bytes that are shown; -1 for all. Default 1500.
  ID, TTL, TOS, LENGTH  true: shows this field of the IP header. Default false.
  TIMESTAMP  true: shows the time stamp. Default true.
  AGGREGATE, PAINT      true: shows this annotation. Default false.
  SWAP       false: shows the numbers of ICMP echos in the opposite byte order. Default true.
  ACTIVE     false: prints nothing. Default true.
  OUTFILE    a file for the lines, instead of standard error

CHANNEL is accepted and changes nothing.

Handlers:
  active  rw  the argument",
    build: |cx| {
        let mut args = cx.arguments();
        let lines = PrintedLines::read(&mut args);
        let mut contents = |name| {
            let word: Option<WordArgument> = args.keyword(name).optional();
            let word = word.map_or("NONE".to_owned(), |word| word.0.to_ascii_uppercase());
            match word.as_str() {
                "NONE" | "FALSE" | "NO" | "F" | "N" | "0" => None,
                "HEX" | "TRUE" | "YES" | "T" | "Y" | "1" => Some(BytesForm::Hex),
                "ASCII" => Some(BytesForm::Ascii),
                _ => {
                    args.error(name, "expected NONE, HEX or ASCII");
                    None
                }
            }
        };
        let (whole, payload) = (contents("CONTENTS"), contents("PAYLOAD"));
        if whole.is_some() && payload.is_some() {
            args.error("PAYLOAD", "not together with CONTENTS");
        }
        let old_most: i32 = args.keyword("NBYTES").or(1500);
        let most: i32 = args.keyword("MAXLENGTH").or(old_most);
        let shows = Shows {
            identification: args.flag("ID"),
            time_to_live: args.flag("TTL"),
            service: args.flag("TOS"),
            length: args.flag("LENGTH"),
            aggregate: args.flag("AGGREGATE"),
            paint: args.flag("PAINT"),
        };
        let swaps = args.keyword("SWAP").or(true);
        args.end()?;
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        Ok(BuiltElement::routing(IpPrint { lines, whole, payload, most, shows, swaps }))
    },
};

/// The form in which bytes are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BytesForm {
    Hex,
    Ascii,
}

/// The optional parts of a line.
struct Shows {
    identification: bool,
    time_to_live: bool,
    service: bool,
    length: bool,
    aggregate: bool,
    paint: bool,
}

struct IpPrint {
    lines: PrintedLines,
    whole: Option<BytesForm>,
    payload: Option<BytesForm>,
    /// The most bytes that are shown.
    most: usize,
    shows: Shows,
    /// Numbers of ICMP echos are in network byte order.
    swaps: bool,
}

impl Element for IpPrint {
    printed_lines!();
}

impl RoutingElement for IpPrint {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, services: &mut Services) -> Destination {
        if self.lines.is_active
            && let Some(header) = packet.network_bytes()
        {
            let mut text = self.start(packet);
            self.print_packet(&mut text, packet, header);
            text.push('\n');
            self.lines.add(&text, services);
        }
        Destination::FIRST
    }
}

impl IpPrint {
    /// Returns the parts of a line before those of the headers.
    fn start(&self, packet: &GraphPacket) -> String {
        let mut text = self.lines.start(packet);
        let aggregate = packet.annotation(AGGREGATE).try_into().map_or(0, u32::from_ne_bytes);
        let paint = packet.annotation(PAINT)[0];
        _ = match (self.shows.aggregate, self.shows.paint) {
            (true, true) => write!(text, "#{aggregate}.{paint}: "),
            (true, false) => write!(text, "#{aggregate}: "),
            (false, true) => write!(text, "paint {paint}: "),
            (false, false) => Ok(()),
        };
        text
    }

    fn print_packet(&self, text: &mut String, packet: &GraphPacket, header: &[u8]) {
        if header.len() < HEADER_BYTES {
            text.push_str("truncated-ip");
            return;
        }
        let length = usize::from(half(header, 2));
        let (identification, fragment) = (half(header, 4), half(header, 6));
        let fields = [
            (self.shows.identification, "id", usize::from(identification)),
            (self.shows.time_to_live, "ttl", usize::from(header[8])),
            (self.shows.service, "tos", usize::from(header[1])),
            (self.shows.length, "length", length),
        ];
        for (_, name, value) in fields.iter().filter(|(is_shown, ..)| *is_shown) {
            _ = write!(text, "{name} {value} ");
        }
        print_transport(text, packet, header, self.swaps);
        if fragment & 0x3fff != 0 {
            let payload = i64::from(half(header, 2)) - header_length(header[0]) as i64;
            let more = if fragment & 0x2000 == 0 { "" } else { "+" };
            let offset = (fragment & 0x1fff) << 3;
            _ = write!(text, " (frag {identification}:{payload}@{offset}{more})");
        }
        if let Some(form) = self.whole {
            self.print_bytes(text, form, packet.bytes());
        } else if let Some(form) = self.payload {
            self.print_bytes(text, form, payload(packet, header));
        }
    }

    fn print_bytes(&self, text: &mut String, form: BytesForm, bytes: &[u8]) {
        let (line, group) = match form {
            BytesForm::Hex => (24, 4),
            BytesForm::Ascii => (48, 8),
        };
        for (index, byte) in bytes.iter().take(self.most).enumerate() {
            if index % line == 0 {
                text.push_str("\n  ");
            } else if index % group == 0 {
                text.push(' ');
            }
            _ = match form {
                BytesForm::Hex => write!(text, "{byte:02x}"),
                BytesForm::Ascii => {
                    let is_shown = byte.is_ascii_graphic() || *byte == b' ';
                    write!(text, "{}", if is_shown { char::from(*byte) } else { '.' })
                }
            };
        }
    }
}

/// Returns the bytes behind the headers.
fn payload<'p>(packet: &'p GraphPacket, header: &[u8]) -> &'p [u8] {
    let transport = packet.transport_bytes().unwrap_or_default();
    let is_first = half(header, 6) & 0x1fff == 0;
    let header_bytes = match header[9] {
        6 if is_first => transport.get(12).map_or(transport.len(), |byte| usize::from(byte >> 4) * 4),
        17 if is_first => 8,
        _ => 0,
    };
    transport.get(header_bytes..).unwrap_or_default()
}

/// Returns the source and the destination of a header of at least 20 bytes.
pub fn addresses(header: &[u8]) -> (Ipv4Addr, Ipv4Addr) {
    (Ipv4Addr::from_bits(word(header, 12)), Ipv4Addr::from_bits(word(header, 16)))
}
