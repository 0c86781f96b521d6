//! Messages of neighbour discovery over Ethernet (RFC 4861): solicitations and advertisements.

use super::ETHERNET_BYTES;
use crate::ipv4::half;
use crate::ipv6::{HEADER_BYTES, ICMPV6, ICMPV6_CHECKSUM, Ipv6Header, NewIpv6Header, transport_checksum};
use core::net::Ipv6Addr;
use weir_graph::arguments::EthernetAddress;

/// The EtherType of IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;

/// The bytes of a message without options, and of an option with an Ethernet address.
const MESSAGE_BYTES: usize = 24;
const OPTION_BYTES: usize = 8;
/// The bytes of a message with an Ethernet address, in its frame.
pub const FRAME_BYTES: usize = ETHERNET_BYTES + HEADER_BYTES + MESSAGE_BYTES + OPTION_BYTES;

/// The hop limit that shows that no router has forwarded the message.
const HOP_LIMIT: u8 = 255;

/// The flag of advertisements that a router sends.
pub const IS_ROUTER: u8 = 0x80;
/// The flag of advertisements that answer a solicitation.
pub const IS_SOLICITED: u8 = 0x40;

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighborKind {
    /// It asks for the Ethernet address of an IPv6 address.
    Solicitation,
    /// It states one.
    Advertisement,
}

impl NeighborKind {
    fn icmp_type(self) -> u8 {
        match self {
            Self::Solicitation => 135,
            Self::Advertisement => 136,
        }
    }

    /// Returns the type of the option with the Ethernet address: that of the source, or of the target.
    fn option_type(self) -> u8 {
        match self {
            Self::Solicitation => 1,
            Self::Advertisement => 2,
        }
    }
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborMessage {
    /// The kind.
    pub kind: NeighborKind,
    /// The addresses of the frame.
    pub from: EthernetAddress,
    pub to: EthernetAddress,
    /// The addresses of the IPv6 header.
    pub source: Ipv6Addr,
    pub destination: Ipv6Addr,
    /// The flags of an advertisement.
    pub flags: u8,
    /// The address that the message is about.
    pub target: Ipv6Addr,
    /// The Ethernet address in its option; `None` if there is no such option.
    pub link_address: Option<EthernetAddress>,
}

impl NeighborMessage {
    /// Reads a frame, and checks the message (RFC 4861, section 7.1). Bytes behind the message are not looked at.
    pub fn read(kind: NeighborKind, frame: &[u8]) -> Option<Self> {
        let (ethernet, packet) = frame.split_first_chunk::<ETHERNET_BYTES>()?;
        if half(ethernet, 12) != ETHERTYPE_IPV6 {
            return None;
        }
        let header = Ipv6Header::read_version_6(packet)?;
        let message = header.segment()?;
        let (fixed, options) = message.split_first_chunk::<MESSAGE_BYTES>()?;
        let (source, destination) = (header.source(), header.destination());
        let target = Ipv6Addr::from(*fixed[8..].first_chunk::<16>()?);
        let is_right = header.next_header() == ICMPV6
            && header.hop_limit() == HOP_LIMIT
            && fixed[..2] == [kind.icmp_type(), 0]
            && !target.is_multicast()
            && transport_checksum(source, destination, ICMPV6, message) == 0;
        if !is_right {
            return None;
        }
        let address = |at: usize| Some(EthernetAddress(*ethernet.get(at..)?.first_chunk()?));
        Some(Self {
            kind,
            from: address(6)?,
            to: address(0)?,
            source,
            destination,
            flags: fixed[4],
            target,
            link_address: link_address(kind, options)?,
        })
    }

    /// Returns the frame of the message. It has an option if there is an Ethernet address for it.
    pub fn frame(&self) -> Vec<u8> {
        let mut frame = vec![0; FRAME_BYTES];
        frame[..6].copy_from_slice(&self.to.0);
        frame[6..12].copy_from_slice(&self.from.0);
        frame[12..ETHERNET_BYTES].copy_from_slice(&ETHERTYPE_IPV6.to_be_bytes());
        let message = &mut frame[ETHERNET_BYTES + HEADER_BYTES..];
        message[0] = self.kind.icmp_type();
        message[4] = self.flags;
        message[8..MESSAGE_BYTES].copy_from_slice(&self.target.octets());
        match self.link_address {
            Some(address) => {
                let option = &mut message[MESSAGE_BYTES..];
                option[..2].copy_from_slice(&[self.kind.option_type(), 1]);
                option[2..].copy_from_slice(&address.0);
            }
            None => frame.truncate(FRAME_BYTES - OPTION_BYTES),
        }
        let header = NewIpv6Header {
            next_header: ICMPV6,
            hop_limit: HOP_LIMIT,
            source: self.source,
            destination: self.destination,
        };
        header.write_with_checksum(&mut frame[ETHERNET_BYTES..], ICMPV6_CHECKSUM);
        frame
    }
}

/// Returns the Ethernet address in the options of a message: `Some(None)` if there is none, and `None` for options that are
/// not complete.
#[expect(clippy::option_option, reason = "an option of the message can be missing, or the message be wrong")]
fn link_address(kind: NeighborKind, options: &[u8]) -> Option<Option<EthernetAddress>> {
    let mut found = None;
    let mut rest = options;
    while let [option_type, length, ..] = *rest {
        let length = usize::from(length) * OPTION_BYTES;
        let (option, behind) = rest.split_at_checked(length).filter(|_| length > 0)?;
        if option_type == kind.option_type() && found.is_none() {
            found = option.get(2..).and_then(|address| address.first_chunk()).map(|it| EthernetAddress(*it));
        }
        rest = behind;
    }
    rest.is_empty().then_some(found)
}

/// Returns the group to which a solicitation for an address is sent, and its Ethernet address (RFC 4291, section 2.7.1, and
/// RFC 2464, section 7).
pub fn solicited_group(target: Ipv6Addr) -> (Ipv6Addr, EthernetAddress) {
    let [.., a, b, c] = target.octets();
    let group = Ipv6Addr::from([0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c]);
    (group, EthernetAddress([0x33, 0x33, 0xff, a, b, c]))
}

/// The group of all hosts of a link, and its Ethernet address.
pub const ALL_NODES: (Ipv6Addr, EthernetAddress) =
    (Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), EthernetAddress([0x33, 0x33, 0, 0, 0, 1]));

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> NeighborMessage {
        NeighborMessage {
            kind: NeighborKind::Advertisement,
            from: EthernetAddress([2, 0, 0, 0, 0, 1]),
            to: EthernetAddress([2, 0, 0, 0, 0, 2]),
            source: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1),
            destination: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2),
            flags: IS_SOLICITED,
            target: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
            link_address: Some(EthernetAddress([2, 0, 0, 0, 0, 1])),
        }
    }

    #[test]
    fn a_frame_is_read_as_it_was_written() {
        let with_option = message();
        let without = NeighborMessage { link_address: None, ..with_option };
        for message in [with_option, without] {
            let frame = message.frame();
            assert_eq!(NeighborMessage::read(message.kind, &frame), Some(message));
            assert_eq!(NeighborMessage::read(NeighborKind::Solicitation, &frame), None);
            for end in 0..frame.len() {
                assert_eq!(NeighborMessage::read(message.kind, &frame[..end]), None, "{end} bytes");
            }
        }
        assert_eq!(with_option.frame().len(), FRAME_BYTES);
    }

    #[test]
    fn a_message_that_a_router_forwarded_or_with_a_wrong_checksum_is_none() {
        let right = message().frame();
        // The hop limit, the checksum, the code, the flags, the target.
        for at in [21, 56, 55, 58, 70] {
            let mut frame = right.clone();
            frame[at] ^= 1;
            assert_eq!(NeighborMessage::read(NeighborKind::Advertisement, &frame), None, "byte {at}");
        }
    }

    #[test]
    fn options_that_are_not_complete_are_none() {
        let kind = NeighborKind::Advertisement;
        let other = [14, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let own = [2, 1, 1, 2, 3, 4, 5, 6];
        let address = EthernetAddress([1, 2, 3, 4, 5, 6]);
        assert_eq!(link_address(kind, &[&other[..], &own].concat()), Some(Some(address)));
        assert_eq!(link_address(kind, &other), Some(None));
        for wrong in [&own[..7], &[2, 0, 1, 2, 3, 4, 5, 6], &[2], &[2, 2, 1, 2, 3, 4, 5, 6]] {
            assert_eq!(link_address(kind, wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn the_group_of_an_address_has_its_last_three_bytes() {
        // The example of RFC 4291, section 2.7.1.
        let (group, ethernet) = solicited_group("4037::01:800:200e:8c6c".parse().unwrap());
        assert_eq!(group, "ff02::1:ff0e:8c6c".parse::<Ipv6Addr>().unwrap());
        assert_eq!(ethernet, EthernetAddress([0x33, 0x33, 0xff, 0x0e, 0x8c, 0x6c]));
    }
}
