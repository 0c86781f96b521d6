//! ARP messages for IPv4 over Ethernet (RFC 826).

use super::ETHERNET_BYTES;
use core::net::Ipv4Addr;
use weir_graph::arguments::EthernetAddress;

/// The bytes of a message, without the Ethernet header.
pub const ARP_BYTES: usize = 28;
/// The bytes of a message with its Ethernet header.
pub const FRAME_BYTES: usize = ETHERNET_BYTES + ARP_BYTES;

/// The EtherType of ARP.
const ETHERTYPE_ARP: [u8; 2] = [0x08, 0x06];
/// Ethernet and IPv4, with addresses of 6 and 4 bytes.
const FORMAT: [u8; 6] = [0, 1, 0x08, 0, 6, 4];

/// The operation that asks for an address.
pub const REQUEST: u16 = 1;
/// The operation that answers.
pub const REPLY: u16 = 2;

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArpMessage {
    pub operation: u16,
    pub sender: EthernetAddress,
    pub sender_ip: Ipv4Addr,
    pub target: EthernetAddress,
    pub target_ip: Ipv4Addr,
}

impl ArpMessage {
    /// Reads a frame: an Ethernet header and a message for IPv4 over Ethernet. Lengths of addresses are not looked at.
    pub fn read(frame: &[u8]) -> Option<Self> {
        let frame: &[u8; FRAME_BYTES] = frame.first_chunk()?;
        let (ethernet, arp) = frame.split_at(ETHERNET_BYTES);
        if ethernet[12..] != ETHERTYPE_ARP || arp[..4] != FORMAT[..4] {
            return None;
        }
        let ethernet_at = |at: usize| Some(EthernetAddress(*arp.get(at..)?.first_chunk()?));
        let ip_at = |at: usize| Some(Ipv4Addr::from(*arp.get(at..)?.first_chunk::<4>()?));
        Some(Self {
            operation: u16::from_be_bytes([arp[6], arp[7]]),
            sender: ethernet_at(8)?,
            sender_ip: ip_at(14)?,
            target: ethernet_at(18)?,
            target_ip: ip_at(24)?,
        })
    }

    /// Returns the frame of the message from its sender to an Ethernet address.
    pub fn frame(&self, to: EthernetAddress) -> [u8; FRAME_BYTES] {
        let mut frame = [0; FRAME_BYTES];
        frame[..6].copy_from_slice(&to.0);
        frame[6..12].copy_from_slice(&self.sender.0);
        frame[12..14].copy_from_slice(&ETHERTYPE_ARP);
        frame[14..20].copy_from_slice(&FORMAT);
        frame[20..22].copy_from_slice(&self.operation.to_be_bytes());
        frame[22..28].copy_from_slice(&self.sender.0);
        frame[28..32].copy_from_slice(&self.sender_ip.octets());
        frame[32..38].copy_from_slice(&self.target.0);
        frame[38..42].copy_from_slice(&self.target_ip.octets());
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_as_it_was_written() {
        let message = ArpMessage {
            operation: REQUEST,
            sender: EthernetAddress([1, 2, 3, 4, 5, 6]),
            sender_ip: Ipv4Addr::new(10, 0, 0, 1),
            target: EthernetAddress([0; 6]),
            target_ip: Ipv4Addr::new(10, 0, 0, 2),
        };
        let frame = message.frame(EthernetAddress([0xff; 6]));
        assert_eq!(ArpMessage::read(&frame), Some(message));
        assert_eq!(ArpMessage::read(&frame[..FRAME_BYTES - 1]), None);
    }
}
