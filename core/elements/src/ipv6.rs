//! The IPv6 header of a packet (RFC 8200).

use core::net::Ipv6Addr;
use weir_graph::engine::GraphPacket;
use weir_wire::checksum::{add_bytes, fold_sum};
use weir_wire::{LinkType, Meta, classify, fragment};

/// The bytes of a header.
pub const HEADER_BYTES: usize = 40;

/// The number of ICMPv6.
pub const ICMPV6: u8 = 58;
/// The offset of the checksum in an ICMPv6 message.
pub const ICMPV6_CHECKSUM: usize = 2;

/// A complete IPv6 header, with the bytes behind it.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6Header<'p> {
    header: &'p [u8; HEADER_BYTES],
    /// The bytes behind the header, up to the packet's end.
    pub payload: &'p [u8],
}

impl<'p> Ipv6Header<'p> {
    /// Returns the header that an element has found in a packet; `None` if there is none, or it is not complete.
    #[inline]
    pub fn of(packet: &'p GraphPacket) -> Option<Self> {
        Self::read(packet.network_bytes()?)
    }

    /// Returns the header at the start of bytes; `None` if it is not complete. The version is not checked.
    #[inline]
    pub fn read(bytes: &'p [u8]) -> Option<Self> {
        let (header, payload) = bytes.split_first_chunk()?;
        Some(Self { header, payload })
    }

    /// Returns the header at the start of bytes; `None` if it is not complete, or of another version.
    pub fn read_version_6(bytes: &'p [u8]) -> Option<Self> {
        Self::read(bytes).filter(|it| it.version() == 6)
    }

    /// Returns the version.
    pub fn version(&self) -> u8 {
        self.header[0] >> 4
    }

    /// Returns the length of the payload, as the header states it.
    pub fn payload_length(&self) -> usize {
        usize::from(u16::from_be_bytes([self.header[4], self.header[5]]))
    }

    /// Returns the protocol of the header behind this one.
    pub fn next_header(&self) -> u8 {
        self.header[6]
    }

    /// Returns the hop limit.
    pub fn hop_limit(&self) -> u8 {
        self.header[7]
    }

    /// Returns the source address.
    pub fn source(&self) -> Ipv6Addr {
        self.address(8)
    }

    /// Returns the destination address.
    pub fn destination(&self) -> Ipv6Addr {
        self.address(24)
    }

    /// Returns the bytes behind the header, up to the stated length; `None` if the packet ends before it.
    pub fn segment(&self) -> Option<&'p [u8]> {
        self.payload.get(..self.payload_length())
    }

    fn address(&self, at: usize) -> Ipv6Addr {
        let mut octets = [0; 16];
        octets.copy_from_slice(&self.header[at..at + 16]);
        octets.into()
    }
}

/// The header above IP in an IPv6 packet, behind all extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpperLayer<'p> {
    /// The protocol.
    pub protocol: u8,
    /// The bytes from the header on; `None` if it is not complete.
    pub bytes: Option<&'p [u8]>,
    /// The packet is a fragment but the first one of its datagram.
    pub is_later_fragment: bool,
}

/// Finds the header above IP in an IPv6 packet. `None` if the bytes are no such packet.
pub fn upper_layer(bytes: &[u8]) -> Option<UpperLayer<'_>> {
    let descriptor = classify(bytes, &Meta::of_whole(bytes, LinkType::Ipv6)).ok()?;
    let fragment = fragment(bytes, &descriptor).ok()?;
    let at = usize::from(descriptor.l4_offset);
    Some(UpperLayer {
        protocol: descriptor.ip_proto,
        // 0 is no offset: the IPv6 header is before it.
        bytes: bytes.get(at..).filter(|_| at > 0),
        is_later_fragment: fragment.is_some_and(|it| it.offset > 0),
    })
}

/// The fields of a new header.
#[derive(Clone, Copy, Debug)]
pub struct NewIpv6Header {
    /// The protocol behind the header.
    pub next_header: u8,
    /// The hop limit.
    pub hop_limit: u8,
    /// The source address.
    pub source: Ipv6Addr,
    /// The destination address.
    pub destination: Ipv6Addr,
}

impl NewIpv6Header {
    /// Writes the header at the start of a packet, whose other bytes are the payload.
    pub fn write(&self, packet: &mut [u8]) {
        let payload_length = packet.len().saturating_sub(HEADER_BYTES);
        let Some(header) = packet.first_chunk_mut::<HEADER_BYTES>() else { return };
        header[..4].copy_from_slice(&[0x60, 0, 0, 0]);
        header[4..6].copy_from_slice(&u16::try_from(payload_length).unwrap_or(u16::MAX).to_be_bytes());
        header[6] = self.next_header;
        header[7] = self.hop_limit;
        header[8..24].copy_from_slice(&self.source.octets());
        header[24..].copy_from_slice(&self.destination.octets());
    }

    /// Writes the header at the start of a packet, and the checksum of its payload at an offset within that.
    pub fn write_with_checksum(&self, packet: &mut [u8], at: usize) {
        self.write(packet);
        let Some((_, payload)) = packet.split_at_mut_checked(HEADER_BYTES) else { return };
        if payload.len() < at + 2 {
            return;
        }
        payload[at..at + 2].fill(0);
        let sum = transport_checksum(self.source, self.destination, self.next_header, payload);
        payload[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Returns the checksum of a segment with its pseudo-header (RFC 8200, section 8.1). It is 0 for a segment with a right
/// checksum.
pub fn transport_checksum(source: Ipv6Addr, destination: Ipv6Addr, protocol: u8, segment: &[u8]) -> u16 {
    let addresses = add_bytes(add_bytes(0, &source.octets()), &destination.octets());
    !fold_sum(add_bytes(addresses + u64::from(protocol) + segment.len() as u64, segment))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: NewIpv6Header = NewIpv6Header {
        next_header: ICMPV6,
        hop_limit: 64,
        source: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
        destination: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
    };

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let mut bytes = [7; HEADER_BYTES + 9];
        NEW.write_with_checksum(&mut bytes, ICMPV6_CHECKSUM);
        let header = Ipv6Header::read_version_6(&bytes).unwrap();
        assert_eq!((header.payload_length(), header.next_header(), header.hop_limit()), (9, ICMPV6, 64));
        assert_eq!((header.source(), header.destination()), (NEW.source, NEW.destination));
        let segment = header.segment().unwrap();
        assert_eq!(transport_checksum(NEW.source, NEW.destination, ICMPV6, segment), 0);
        assert!(Ipv6Header::read(&bytes[..39]).is_none());
        assert!(Ipv6Header::read(&bytes[..48]).unwrap().segment().is_none());
        bytes[0] = 0x45;
        assert!(Ipv6Header::read_version_6(&bytes).is_none());
    }

    #[test]
    fn the_upper_layer_is_behind_extension_headers() {
        let mut bytes = [0; HEADER_BYTES + 8 + 8 + 8];
        NEW.write(&mut bytes);
        // Destination options, then a fragment header, then an echo request.
        (bytes[6], bytes[40], bytes[48], bytes[56]) = (60, 44, ICMPV6, 128);
        let upper = upper_layer(&bytes).unwrap();
        assert_eq!(
            (upper.protocol, upper.bytes, upper.is_later_fragment),
            (ICMPV6, Some(&bytes[56..]), false)
        );
        bytes[51] = 8;
        assert!(upper_layer(&bytes).unwrap().is_later_fragment);
        bytes[51] = 0;
        assert_eq!(upper_layer(&bytes[..60]).unwrap().bytes, None);
        assert!(upper_layer(&[]).is_none_or(|upper| upper.bytes.is_none()));
    }
}
