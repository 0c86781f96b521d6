//! Builds test packets with etherparse.

use etherparse::{
    IpEcn, IpFragOffset, IpHeaders, IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header, PacketBuilder, TcpHeader,
};
use std::net::{IpAddr, SocketAddr};

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const PSH: u8 = 8;
pub const ACK: u8 = 16;

const MACS: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

/// A TCP or UDP packet.
#[derive(Clone, Debug)]
pub struct Packet {
    pub from: SocketAddr,
    pub to: SocketAddr,
    /// TCP flags; `None` for UDP.
    pub tcp_flags: Option<u8>,
    pub seq: u32,
    pub ack: u32,
    pub payload: Vec<u8>,
    pub ttl: u8,
    /// DSCP and ECN bits.
    pub tos: u8,
    pub identification: u16,
    pub flow_label: u32,
}

impl Packet {
    /// A TCP packet between endpoints such as "10.0.0.1:1000" and "[2001:db8::1]:80".
    pub fn tcp(from: &str, to: &str, flags: u8) -> Self {
        Self { tcp_flags: Some(flags), ..Self::udp(from, to) }
    }

    pub fn udp(from: &str, to: &str) -> Self {
        Self {
            from: from.parse().unwrap(),
            to: to.parse().unwrap(),
            tcp_flags: None,
            seq: 0,
            ack: 0,
            payload: Vec::new(),
            ttl: 64,
            tos: 0,
            identification: 7,
            flow_label: 0,
        }
    }

    pub fn numbers(self, seq: u32, ack: u32) -> Self {
        Self { seq, ack, ..self }
    }

    pub fn payload(self, payload: impl AsRef<[u8]>) -> Self {
        Self { payload: payload.as_ref().to_vec(), ..self }
    }

    /// The bytes from the IP header on, with lengths and checksums.
    pub fn ip(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let builder = PacketBuilder::ip(self.ip_headers());
        match self.tcp_flags {
            Some(flags) => {
                let mut tcp = TcpHeader::new(self.from.port(), self.to.port(), self.seq, 0xFFFF);
                let has = |flag| flags & flag != 0;
                (tcp.fin, tcp.syn, tcp.rst, tcp.psh, tcp.ack) =
                    (has(FIN), has(SYN), has(RST), has(PSH), has(ACK));
                tcp.acknowledgment_number = self.ack;
                builder.tcp_header(tcp).write(&mut bytes, &self.payload).unwrap();
            }
            None => {
                builder.udp(self.from.port(), self.to.port()).write(&mut bytes, &self.payload).unwrap();
            }
        }
        bytes
    }

    fn ip_headers(&self) -> IpHeaders {
        match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut header =
                    Ipv4Header::new(0, self.ttl, IpNumber(0), source.octets(), destination.octets()).unwrap();
                header.dscp = (self.tos >> 2).try_into().unwrap();
                header.ecn = IpEcn::try_new(self.tos & 3).unwrap();
                header.identification = self.identification;
                header.fragment_offset = IpFragOffset::ZERO;
                IpHeaders::Ipv4(header, Default::default())
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let header = Ipv6Header {
                    traffic_class: self.tos,
                    flow_label: Ipv6FlowLabel::try_new(self.flow_label).unwrap(),
                    hop_limit: self.ttl,
                    source: source.octets(),
                    destination: destination.octets(),
                    ..Default::default()
                };
                IpHeaders::Ipv6(header, Default::default())
            }
            _ => panic!("two address families in one packet"),
        }
    }

    /// The bytes with an Ethernet header.
    pub fn ethernet(&self) -> Vec<u8> {
        [&MACS[..], &self.ether_type(), &self.ip()].concat()
    }

    /// The bytes with an Ethernet header and a VLAN tag.
    pub fn tagged(&self, vlan: u16) -> Vec<u8> {
        [&MACS[..], &[0x81, 0x00], &vlan.to_be_bytes(), &self.ether_type(), &self.ip()].concat()
    }

    fn ether_type(&self) -> [u8; 2] {
        if self.from.is_ipv4() { [0x08, 0x00] } else { [0x86, 0xDD] }
    }
}
