//! Packets as parsed by etherparse, for comparison with the modules' results.

use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, TcpSlice, UdpHeaderSlice, ip_number};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The transport layer of a packet.
#[derive(Clone, Debug)]
pub enum Transport<'a> {
    Tcp(TcpSlice<'a>),
    Udp,
}

/// A TCP or UDP packet with a complete header. Later fragments of a datagram are not included.
#[derive(Clone, Debug)]
pub struct ParsedPacket<'a> {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub transport: Transport<'a>,
    pub payload: &'a [u8],
}

impl<'a> ParsedPacket<'a> {
    /// Parses an Ethernet frame.
    pub fn parse(frame: &'a [u8]) -> Option<Self> {
        let packet = after_link(frame)?;
        let (source, destination, payload, is_later) = match packet.net? {
            LaxNetSlice::Ipv4(ip) => {
                let header = ip.header().to_header();
                let (source, destination) =
                    (Ipv4Addr::from(header.source), Ipv4Addr::from(header.destination));
                (
                    IpAddr::V4(source),
                    IpAddr::V4(destination),
                    ip.payload().clone(),
                    header.fragment_offset.value() != 0,
                )
            }
            LaxNetSlice::Ipv6(ip) => {
                let is_later = ip.extensions().clone().into_iter().any(|extension| {
                    matches!(extension, etherparse::Ipv6ExtensionSlice::Fragment(f) if f.fragment_offset().value() != 0)
                });
                let header = ip.header();
                let (source, destination) =
                    (Ipv6Addr::from(header.source()), Ipv6Addr::from(header.destination()));
                (IpAddr::V6(source), IpAddr::V6(destination), ip.payload().clone(), is_later)
            }
            LaxNetSlice::Arp(_) => return None,
        };
        if is_later {
            return None;
        }
        let (ports, transport, payload) = match payload.ip_number {
            ip_number::TCP => {
                let tcp = TcpSlice::from_slice(payload.payload).ok()?;
                let ports = (tcp.source_port(), tcp.destination_port());
                (ports, Transport::Tcp(tcp.clone()), tcp.payload())
            }
            ip_number::UDP => {
                let udp = UdpHeaderSlice::from_slice(payload.payload).ok()?;
                let ports = (udp.source_port(), udp.destination_port());
                (ports, Transport::Udp, &payload.payload[8..])
            }
            _ => return None,
        };
        Some(Self {
            from: SocketAddr::new(source, ports.0),
            to: SocketAddr::new(destination, ports.1),
            transport,
            payload,
        })
    }

    pub fn tcp(&self) -> Option<&TcpSlice<'a>> {
        match &self.transport {
            Transport::Tcp(tcp) => Some(tcp),
            Transport::Udp => None,
        }
    }
}

/// Parses a frame, skipping MPLS labels and PPPoE session headers, which etherparse does not parse.
fn after_link(frame: &[u8]) -> Option<LaxSlicedPacket<'_>> {
    let packet = LaxSlicedPacket::from_ethernet(frame).ok()?;
    let Some(payload) = packet.ether_payload() else { return Some(packet) };
    match payload.ether_type {
        EtherType(0x8864) if packet.net.is_none() => match payload.payload.get(6..8)? {
            [0x00, 0x21] => {
                Some(LaxSlicedPacket::from_ether_type(EtherType::IPV4, payload.payload.get(8..)?))
            }
            [0x00, 0x57] => {
                Some(LaxSlicedPacket::from_ether_type(EtherType::IPV6, payload.payload.get(8..)?))
            }
            _ => Some(packet),
        },
        EtherType(0x8847) if packet.net.is_none() => {
            let labels = payload.payload.chunks_exact(4).position(|label| label[2] & 1 == 1)? + 1;
            let ip = payload.payload.get(labels * 4..)?;
            let ether_type = if ip.first()? >> 4 == 6 { EtherType::IPV6 } else { EtherType::IPV4 };
            Some(LaxSlicedPacket::from_ether_type(ether_type, ip))
        }
        _ => Some(packet),
    }
}
