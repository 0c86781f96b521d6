//! `IP6Print`: prints IPv6 packets in words.

use crate::ipv6::Ipv6Header;
use crate::values;
use std::fmt::Write;
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services, TextOutput,
};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "IP6Print",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E2,
    effects: Effects::TERMINAL,
    order: OrderDependence::Ordered,
    manual: "\
prints IPv6 packets in words

IP6Print([LABEL, keywords CONTENTS, NBYTES])

IP6Print writes a line about each packet whose IPv6 header is known to standard error. Packets without one pass without a \
line.

Arguments:
  LABEL     a text before each line
  CONTENTS  true: shows the bytes of the packet, in further lines. Default false.
  NBYTES    the most bytes that are shown. Default 1500.",
    build: |cx| {
        let mut args = cx.arguments();
        let label = args.either("LABEL").or(String::new());
        let shows_bytes = args.flag("CONTENTS");
        let most: u32 = args.keyword("NBYTES").or(1500);
        args.end()?;
        Ok(BuiltElement::routing(Ip6Print { label, shows_bytes, most: most as usize }))
    },
};

/// The bytes in a line, and in a group of it.
const LINE_BYTES: usize = 24;
const GROUP_BYTES: usize = 4;

struct Ip6Print {
    label: String,
    shows_bytes: bool,
    /// The most bytes that are shown.
    most: usize,
}

impl Element for Ip6Print {}

impl Ip6Print {
    fn print(&self, packet: &GraphPacket, header: &Ipv6Header<'_>) -> String {
        let mut text = String::new();
        if !self.label.is_empty() {
            _ = write!(text, "{}: ", self.label);
        }
        let (source, destination) = (values::ipv6(header.source()), values::ipv6(header.destination()));
        let (length, next) = (header.payload_length(), header.next_header());
        _ = writeln!(
            text,
            "{source} -> {destination} plen {length}, next {next}, hlim {}",
            header.hop_limit()
        );
        if self.shows_bytes {
            text.push_str("  ");
            let bytes = packet.bytes();
            for (index, byte) in bytes[..bytes.len().min(self.most)].iter().enumerate() {
                _ = write!(text, "{byte:02x}");
                if index % LINE_BYTES == LINE_BYTES - 1 {
                    text.push_str("\n  ");
                } else if index % GROUP_BYTES == GROUP_BYTES - 1 {
                    text.push(' ');
                }
            }
            text.push('\n');
        }
        text
    }
}

impl RoutingElement for Ip6Print {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, services: &mut Services) -> Destination {
        if let Some(header) = Ipv6Header::of(packet) {
            services.system.write_text(TextOutput::Error, &self.print(packet, &header));
        }
        Destination::FIRST
    }
}
