//! Capture metadata of a packet.

use weir_abi::Descriptor;
use weir_units::Timestamp;

/// A supported link type, numbered by the tcpdump group (<https://www.tcpdump.org/linktypes.html>).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkType {
    /// LINKTYPE_NULL, 0: the address family in four bytes, in the byte order of the capturing machine.
    Null,
    /// LINKTYPE_ETHERNET, 1.
    Ethernet,
    /// LINKTYPE_RAW, 101 (also DLT_RAW, which is 12 or 14): an IPv4 or IPv6 header, which its version distinguishes.
    Raw,
    /// LINKTYPE_LOOP, 108: the address family in four bytes, in network byte order.
    Loop,
    /// LINKTYPE_LINUX_SLL, 113: Linux "cooked" capture.
    LinuxSll,
    /// LINKTYPE_IPV4, 228.
    Ipv4,
    /// LINKTYPE_IPV6, 229.
    Ipv6,
    /// LINKTYPE_LINUX_SLL2, 276: Linux "cooked" capture, version 2.
    LinuxSll2,
}

/// An unsupported link type of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "link type {0} is not one that weir reads; it reads Ethernet (1), raw IP (101, 12, 14, 228, 229), NULL (0), LOOP (108), SLL (113) and SLL2 (276)"
)]
pub struct UnknownLinkType(pub u32);

impl LinkType {
    /// All supported link types.
    pub const ALL: [LinkType; 8] = [
        Self::Null,
        Self::Ethernet,
        Self::Raw,
        Self::Loop,
        Self::LinuxSll,
        Self::Ipv4,
        Self::Ipv6,
        Self::LinuxSll2,
    ];

    /// The usual name of the link type.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Null => "NULL",
            Self::Ethernet => "Ethernet",
            Self::Raw => "raw IP",
            Self::Loop => "LOOP",
            Self::LinuxSll => "SLL",
            Self::Ipv4 => "raw IPv4",
            Self::Ipv6 => "raw IPv6",
            Self::LinuxSll2 => "SLL2",
        }
    }

    /// The LINKTYPE_ number; [`Raw`](Self::Raw) is always 101.
    pub const fn number(self) -> u16 {
        match self {
            Self::Null => 0,
            Self::Ethernet => 1,
            Self::Raw => 101,
            Self::Loop => 108,
            Self::LinuxSll => 113,
            Self::Ipv4 => 228,
            Self::Ipv6 => 229,
            Self::LinuxSll2 => 276,
        }
    }
}

impl TryFrom<u32> for LinkType {
    type Error = UnknownLinkType;

    /// Finds a link type by its number. The caller has to remove the bits of a pcap header that describe the FCS (26
    /// to 31) first.
    fn try_from(number: u32) -> Result<Self, UnknownLinkType> {
        Ok(match number {
            0 => Self::Null,
            1 => Self::Ethernet,
            12 | 14 | 101 => Self::Raw,
            108 => Self::Loop,
            113 => Self::LinuxSll,
            228 => Self::Ipv4,
            229 => Self::Ipv6,
            276 => Self::LinuxSll2,
            _ => return Err(UnknownLinkType(number)),
        })
    }
}

/// The metadata that a source provides for one packet, and the packet's address in a module's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The time stamp.
    pub ts: Timestamp,
    /// The number of bytes captured.
    pub cap_len: u32,
    /// The number of bytes on the link; less than `cap_len` counts as `cap_len`.
    pub wire_len: u32,
    /// The link type of the first header.
    pub link_type: LinkType,
    /// The number of the capture interface.
    pub interface: u16,
    /// The number of the packet in the capture, from 0.
    pub number: u64,
    /// The address of the first captured byte in a module's memory.
    pub data: u32,
}

impl Meta {
    /// The metadata of a packet of which all bytes are present, without a time stamp.
    pub fn of_whole(packet: &[u8], link_type: LinkType) -> Self {
        let len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        Self { ts: Timestamp(0), cap_len: len, wire_len: len, link_type, interface: 0, number: 0, data: 0 }
    }

    /// The metadata that a descriptor contains; `None` if its link type is unknown. The packet's number is reduced to
    /// its lower half.
    pub fn from_descriptor(descriptor: &Descriptor) -> Option<Self> {
        Some(Self {
            ts: Timestamp(descriptor.ts_ns),
            cap_len: descriptor.cap_len,
            wire_len: descriptor.wire_len,
            link_type: LinkType::try_from(u32::from(descriptor.link_type)).ok()?,
            interface: descriptor.interface,
            number: u64::from(descriptor.number),
            data: descriptor.data,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_type_is_found_by_its_number_and_unknown_ones_are_refused() {
        for link_type in LinkType::ALL {
            assert_eq!(LinkType::try_from(u32::from(link_type.number())), Ok(link_type));
        }
        assert_eq!(LinkType::try_from(12), Ok(LinkType::Raw));
        assert_eq!(LinkType::try_from(105), Err(UnknownLinkType(105)));
        assert!(UnknownLinkType(105).to_string().starts_with("link type 105 is not one that weir reads"));
    }
}
