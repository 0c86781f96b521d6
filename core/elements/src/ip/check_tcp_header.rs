//! `CheckTCPHeader`: passes packets with a right TCP header.

use super::transport_check::{TransportHeader, build, check_manual};
use crate::ipv4::{Ipv4Header, TCP, transport_checksum};
use weir_graph::engine::{Effects, ElementClass, ElementCost, GraphPacket, OrderDependence};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "CheckTCPHeader",
    ports: "1/1-2",
    processing: "a/ah",
    flow: "x/x",
    cost: ElementCost::E2,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: check_manual!(
        "passes packets with a right TCP header",
        "CheckTCPHeader",
        "CheckTCPHeader checks the protocol, the header length and the checksum of TCP packets, whose IP header is known."
    ),
    build: build::<TcpHeader>,
};

struct TcpHeader;

impl TransportHeader for TcpHeader {
    const PROTOCOL: &'static str = "TCP";
    const REASONS: &'static [&'static str] = &["not TCP", "bad packet length", "bad TCP checksum"];

    fn check(packet: &GraphPacket) -> Result<(), usize> {
        let header = Ipv4Header::of(packet).filter(|it| it.protocol() == TCP).ok_or(0_usize)?;
        let segment = header.segment().filter(|it| it.len() >= 20).ok_or(1_usize)?;
        let header_bytes = usize::from(segment[12] >> 4) * 4;
        if header_bytes < 20 || segment.len() < header_bytes {
            return Err(1);
        }
        if transport_checksum(&header, segment) == 0 { Ok(()) } else { Err(2) }
    }
}
