//! `CheckUDPHeader`: passes packets with a right UDP header.

use super::transport_check::{TransportHeader, build, check_manual};
use crate::ipv4::{Ipv4Header, UDP, half, transport_checksum};
use weir_graph::engine::{Effects, ElementClass, ElementCost, GraphPacket, OrderDependence};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "CheckUDPHeader",
    ports: "1/1-2",
    processing: "a/ah",
    flow: "x/x",
    cost: ElementCost::E2,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: check_manual!(
        "passes packets with a right UDP header",
        "CheckUDPHeader",
        "CheckUDPHeader checks the protocol, the length and the checksum of UDP packets, whose IP header is known. A checksum of 0 \
stands for none, and is right."
    ),
    build: build::<UdpHeader>,
};

struct UdpHeader;

impl TransportHeader for UdpHeader {
    const PROTOCOL: &'static str = "UDP";
    const REASONS: &'static [&'static str] = &["not UDP", "bad packet length", "bad UDP checksum"];

    fn check(packet: &GraphPacket) -> Result<(), usize> {
        let header = Ipv4Header::of(packet).filter(|it| it.protocol() == UDP).ok_or(0_usize)?;
        let datagram = header.transport();
        let length = usize::from(half(datagram, 4));
        if length < 8 || datagram.len() < length {
            return Err(1);
        }
        if half(datagram, 6) == 0 || transport_checksum(&header, &datagram[..length]) == 0 {
            return Ok(());
        }
        Err(2)
    }
}
