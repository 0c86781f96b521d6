//! `CheckICMPHeader`: passes packets with a right ICMP header.

use super::transport_check::{TransportHeader, build, check_manual};
use crate::ipv4::{ICMP, Ipv4Header};
use weir_graph::engine::{Effects, ElementClass, ElementCost, GraphPacket, OrderDependence};
use weir_wire::checksum::internet_checksum;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "CheckICMPHeader",
    ports: "1/1-2",
    processing: "a/ah",
    flow: "x/x",
    cost: ElementCost::E2,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: check_manual!(
        "passes packets with a right ICMP header",
        "CheckICMPHeader",
        "CheckICMPHeader checks the protocol, the length and the checksum of ICMP packets, whose IP header is known. Errors must have 28 \
bytes of the original packet, timestamps 20 bytes and information requests 8 bytes."
    ),
    build: build::<IcmpHeader>,
};

struct IcmpHeader;

impl TransportHeader for IcmpHeader {
    const PROTOCOL: &'static str = "ICMP";
    const REASONS: &'static [&'static str] = &["not ICMP", "bad packet length", "bad ICMP checksum"];

    fn check(packet: &GraphPacket) -> Result<(), usize> {
        let header = Ipv4Header::of(packet).filter(|it| it.protocol() == ICMP).ok_or(0_usize)?;
        let message = header.transport();
        let length = message.len();
        let has_length = length >= 8
            && match message[0] {
                // Unreachable, source quench, redirect, time exceeded and parameter problem: with a part of a packet.
                3 | 4 | 5 | 11 | 12 => length >= 36,
                // Timestamps, and their replies.
                13 | 14 => length == 20,
                // Information requests, and their replies.
                15 | 16 => length == 8,
                _ => true,
            };
        if !has_length {
            return Err(1);
        }
        if internet_checksum(message) == 0 { Ok(()) } else { Err(2) }
    }
}
