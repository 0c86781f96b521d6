//! The IP and UDP headers that elements put before packets.

use crate::ipv4::{HEADER_BYTES, set_header_checksum, set_udp_checksum, word};
use core::net::Ipv4Addr;
use weir_graph::arguments::{ArgumentContext, ArgumentFault, ArgumentValue};
use weir_graph::engine::{DST_IP, GraphPacket};

/// The time to live of new headers, as in Click.
pub const TIME_TO_LIVE: u8 = 250;

/// The destination of new headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewDestination {
    /// The annotation DST_IP of each packet.
    Annotation,
    /// An address, which also becomes the annotation.
    Address(Ipv4Addr),
}

impl std::fmt::Display for NewDestination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Annotation => write!(f, "DST_ANNO"),
            Self::Address(address) => write!(f, "{address}"),
        }
    }
}

impl ArgumentValue for NewDestination {
    fn parse_argument(text: &str, context: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        if text == "DST_ANNO" {
            return Ok(Self::Annotation);
        }
        let address = Ipv4Addr::parse_argument(text, context);
        address.map(Self::Address).map_err(|_| ArgumentFault::Type("IP address or DST_ANNO"))
    }

    fn placeholder() -> Self {
        Self::Annotation
    }
}

/// The fields of new headers.
#[derive(Clone, Copy, Debug)]
pub struct NewHeader {
    /// The source.
    pub source: Ipv4Addr,
    /// The destination.
    pub destination: NewDestination,
    /// The protocol.
    pub protocol: u8,
    /// The type of service.
    pub service: u8,
    /// The time to live.
    pub time_to_live: u8,
    /// The bit that forbids fragments.
    pub dont_fragment: bool,
    /// The identification of the next packet.
    pub identification: u16,
}

impl NewHeader {
    /// Puts a header before a packet, with room for more bytes behind it, and sets the network header. Returns all bytes;
    /// `None`, with the packet unchanged, if it would get too long for IP.
    pub fn add<'p>(&mut self, packet: &'p mut GraphPacket, more: usize) -> Option<&'p mut [u8]> {
        let length = u16::try_from(packet.len() + HEADER_BYTES + more).ok()?;
        let destination = match self.destination {
            NewDestination::Annotation => Ipv4Addr::from_bits(word(packet.annotation(DST_IP), 0)),
            NewDestination::Address(address) => {
                packet.annotation_mut(DST_IP).copy_from_slice(&address.octets());
                address
            }
        };
        packet.prepend(HEADER_BYTES + more);
        packet.set_network_header(0, HEADER_BYTES);
        let bytes = packet.bytes_mut();
        let header = &mut bytes[..HEADER_BYTES];
        header[0] = 0x45;
        header[1] = self.service;
        header[2..4].copy_from_slice(&length.to_be_bytes());
        header[4..6].copy_from_slice(&self.identification.to_be_bytes());
        header[6..8].copy_from_slice(&[if self.dont_fragment { 0x40 } else { 0 }, 0]);
        header[8] = self.time_to_live;
        header[9] = self.protocol;
        header[12..16].copy_from_slice(&self.source.octets());
        header[16..20].copy_from_slice(&destination.octets());
        set_header_checksum(header);
        self.identification = self.identification.wrapping_add(1);
        Some(bytes)
    }
}

const UDP_BYTES: usize = 8;

/// The fields of new UDP headers.
#[derive(Clone, Copy, Debug)]
pub struct NewUdpHeader {
    /// The source port.
    pub source_port: u16,
    /// The destination port.
    pub destination_port: u16,
    /// The header gets a checksum.
    pub has_checksum: bool,
}

impl NewUdpHeader {
    /// Puts an IP header and this one before a packet. Returns false, and changes nothing, if it would get too long for IP.
    pub fn add(&self, ip: &mut NewHeader, packet: &mut GraphPacket) -> bool {
        let Some(bytes) = ip.add(packet, UDP_BYTES) else { return false };
        let length = u16::try_from(bytes.len() - HEADER_BYTES).unwrap_or(u16::MAX);
        let udp = &mut bytes[HEADER_BYTES..][..UDP_BYTES];
        udp[..2].copy_from_slice(&self.source_port.to_be_bytes());
        udp[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        udp[4..6].copy_from_slice(&length.to_be_bytes());
        udp[6..].fill(0);
        if self.has_checksum {
            set_udp_checksum(bytes, usize::from(length));
        }
        true
    }
}
