//! `ARPPrint`: prints ARP messages.

use super::ETHERNET_BYTES;
use super::arp::ARP_BYTES;
use crate::printed_lines::{PrintedLines, printed_lines};
use core::net::Ipv4Addr;
use std::fmt::Write;
use weir_graph::arguments::EthernetAddress;
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementCost, GraphPacket, OrderDependence,
    RoutingElement, Services,
};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "ARPPrint",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::TERMINAL,
    order: OrderDependence::Ordered,
    manual: "\
prints ARP messages

ARPPrint([LABEL, keywords TIMESTAMP, ETHER, ACTIVE, OUTFILE])

ARPPrint writes a line about each packet to standard error, in the form of tcpdump. The packet's network header has to \
be that of ARP; a packet without a network header is passed on and not printed.

Arguments:
  LABEL      a text before each line
  TIMESTAMP  false: does not show the time stamp. Default true.
  ETHER      true: shows the addresses of the Ethernet header. Default false.
  ACTIVE     false: prints nothing. Default true.
  OUTFILE    a file for the lines, instead of standard error

CHANNEL is accepted and changes nothing.

Handlers:
  active  rw  the argument",
    build: |cx| {
        let mut args = cx.arguments();
        let lines = PrintedLines::read(&mut args);
        let has_ethernet = args.keyword("ETHER").or(false);
        args.end()?;
        Ok(BuiltElement::routing(ArpPrint { lines, has_ethernet }))
    },
};

struct ArpPrint {
    lines: PrintedLines,
    has_ethernet: bool,
}

impl ArpPrint {
    /// Returns the line for a packet; `None` without a network header.
    fn line(&self, packet: &GraphPacket) -> Option<String> {
        let arp = packet.network_bytes()?;
        let mut line = self.lines.start(packet);
        if self.has_ethernet
            && let Some(header) = ethernet_header(packet, arp.len())
        {
            let [to, from] = [0, 6].map(|at| address(&header[at..]));
            _ = write!(line, "{from} > {to}: ");
        }
        describe(&mut line, arp);
        line.push('\n');
        Some(line)
    }
}

/// Returns the Ethernet header: from the link header on, or else from the start of the packet, if it ends before the
/// network header.
fn ethernet_header(packet: &GraphPacket, network_bytes: usize) -> Option<&[u8]> {
    let header = packet.link_bytes().unwrap_or(packet.bytes());
    (header.len() >= network_bytes + ETHERNET_BYTES).then(|| &header[..ETHERNET_BYTES])
}

/// Returns the Ethernet address at the start; with zeros for bytes that are missing.
fn address(bytes: &[u8]) -> EthernetAddress {
    EthernetAddress(bytes.first_chunk().copied().unwrap_or_default())
}

fn ip(bytes: &[u8]) -> Ipv4Addr {
    bytes.first_chunk::<4>().copied().unwrap_or_default().into()
}

fn describe(line: &mut String, arp: &[u8]) {
    const ETHERNET: u16 = 1;
    const IPV4: u16 = 0x0800;
    const TRAILER: u16 = 0x1000;
    let Some(arp) = arp.first_chunk::<ARP_BYTES>() else {
        _ = write!(line, "truncated-arp ({})", arp.len());
        return;
    };
    let field = |at: usize| u16::from_be_bytes([arp[at], arp[at + 1]]);
    let (hardware, protocol, operation) = (field(0), field(2), field(6));
    let (hardware_bytes, protocol_bytes) = (arp[4], arp[5]);
    if (protocol != IPV4 && protocol != TRAILER) || protocol_bytes != 4 || hardware_bytes == 0 {
        _ = write!(
            line,
            "arp-#{operation} for proto #{protocol} ({protocol_bytes}) hardware #{hardware} ({hardware_bytes})"
        );
        return;
    }
    let (sender, sender_ip) = (address(&arp[8..]), ip(&arp[14..]));
    let (target, target_ip) = (address(&arp[18..]), ip(&arp[24..]));
    if protocol == TRAILER {
        line.push_str("trailer-");
    }
    _ = match operation {
        1 if target.0 == [0; 6] => write!(line, "arp who-has {target_ip} tell {sender_ip}"),
        1 => write!(line, "arp who-has {target_ip} ({target}) tell {sender_ip}"),
        2 => write!(line, "arp reply {sender_ip} is-at {sender}"),
        3 => write!(line, "rarp who-is {target} tell {sender}"),
        4 => write!(line, "rarp reply {target} at {target_ip}"),
        8 => write!(line, "invarp who-is {target} tell {sender}"),
        9 => write!(line, "invarp reply {target} at {target_ip}"),
        _ => write!(line, "arp-#{operation}"),
    };
    if hardware != ETHERNET {
        _ = write!(line, "hardware #{hardware}");
    }
}

impl Element for ArpPrint {
    printed_lines!();
}

impl RoutingElement for ArpPrint {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, services: &mut Services) -> Destination {
        if self.lines.is_active
            && let Some(line) = self.line(packet)
        {
            self.lines.add(&line, services);
        }
        Destination::FIRST
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_graph::engine::PacketPool;

    fn line(arp: &[u8]) -> String {
        let mut packet = PacketPool::default().of_bytes(&[&[0xaa; 14], arp].concat());
        packet.set_network_header(14, arp.len());
        let print = ArpPrint { lines: PrintedLines::labelled("x"), has_ethernet: true };
        print.line(&packet).unwrap()
    }

    #[test]
    fn messages_are_shown_by_their_operation() {
        const ETHERNET: &str = "x: AA-AA-AA-AA-AA-AA > AA-AA-AA-AA-AA-AA: ";
        let mut arp = [0, 1, 8, 0, 6, 4, 0, 1, 1, 2, 3, 4, 5, 6, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2];
        assert_eq!(line(&arp), format!("{ETHERNET}arp who-has 10.0.0.2 tell 10.0.0.1\n"));
        arp[7] = 2;
        assert_eq!(line(&arp), format!("{ETHERNET}arp reply 10.0.0.1 is-at 01-02-03-04-05-06\n"));
        arp[5] = 16;
        assert_eq!(line(&arp), format!("{ETHERNET}arp-#2 for proto #2048 (16) hardware #1 (6)\n"));
        assert_eq!(line(&arp[..20]), format!("{ETHERNET}truncated-arp (20)\n"));
    }
}
