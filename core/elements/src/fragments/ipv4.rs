//! The IPv4 header, as elements that make packets from others need it.

use core::net::Ipv4Addr;
use weir_wire::checksum::internet_checksum;

/// The bytes of a header without options.
pub const HEADER_BYTES: usize = 20;
/// The flag "do not fragment" in the field of the fragment offset.
pub const DONT_FRAGMENT: u16 = 0x4000;
/// The flag "more fragments" there.
pub const MORE_FRAGMENTS: u16 = 0x2000;
/// The bits of the offset, which counts 8 bytes.
pub const OFFSET: u16 = 0x1fff;

/// A header whose bytes are all there.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4Header<'a> {
    /// The header with its options: 20 to 60 bytes.
    pub bytes: &'a [u8],
    /// All that follows it, also what is behind the end by the total length.
    pub rest: &'a [u8],
}

impl<'a> Ipv4Header<'a> {
    /// Reads a header; `None` if the bytes are no IPv4 header, or not all of it.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let first = *bytes.first()?;
        let length = usize::from(first & 0xf) * 4;
        if first >> 4 != 4 || length < HEADER_BYTES {
            return None;
        }
        let (bytes, rest) = bytes.split_at_checked(length)?;
        Some(Self { bytes, rest })
    }

    fn field(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    fn address(&self, at: usize) -> Ipv4Addr {
        Ipv4Addr::new(self.bytes[at], self.bytes[at + 1], self.bytes[at + 2], self.bytes[at + 3])
    }

    /// Returns the total length by the header.
    pub fn total_bytes(&self) -> usize {
        usize::from(self.field(2))
    }

    /// Returns the payload by the total length; `None` if the total length is shorter than the header, or not all of the
    /// payload is there.
    pub fn payload(&self) -> Option<&'a [u8]> {
        self.rest.get(..self.total_bytes().checked_sub(self.bytes.len())?)
    }

    /// Returns the identification.
    pub fn identification(&self) -> u16 {
        self.field(4)
    }

    /// Returns the flags and the fragment offset.
    pub fn fragment_field(&self) -> u16 {
        self.field(6)
    }

    /// Returns the offset of the payload in its datagram, in bytes.
    pub fn offset(&self) -> usize {
        usize::from(self.fragment_field() & OFFSET) * 8
    }

    /// Returns the protocol of the payload.
    pub fn protocol(&self) -> u8 {
        self.bytes[9]
    }

    /// Returns the source address.
    pub fn source(&self) -> Ipv4Addr {
        self.address(12)
    }

    /// Returns the destination address.
    pub fn destination(&self) -> Ipv4Addr {
        self.address(16)
    }
}

/// Returns the length of a header of at most 60 bytes in words of 4 bytes.
pub fn header_words(header_bytes: usize) -> u8 {
    u8::try_from(header_bytes / 4).unwrap_or(0xf)
}

/// Sets the total length and the fragment field of a header, then its checksum.
pub fn finish_header(header: &mut [u8], total_bytes: u16, fragment_field: u16) {
    header[2..4].copy_from_slice(&total_bytes.to_be_bytes());
    header[6..8].copy_from_slice(&fragment_field.to_be_bytes());
    header[10..12].fill(0);
    let sum = internet_checksum(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_needs_all_its_bytes() {
        let mut bytes = [0u8; 24];
        bytes[0] = 0x46;
        bytes[3] = 25;
        assert!(Ipv4Header::read(&bytes[..23]).is_none());
        assert!(Ipv4Header::read(&bytes).unwrap().payload().is_none());
        bytes[3] = 24;
        assert_eq!(Ipv4Header::read(&bytes).unwrap().payload(), Some(&[][..]));
        bytes[3] = 23;
        assert!(Ipv4Header::read(&bytes).unwrap().payload().is_none());
        bytes[0] = 0x44;
        assert!(Ipv4Header::read(&bytes).is_none());
    }
}
