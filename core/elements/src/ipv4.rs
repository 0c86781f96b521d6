//! The IPv4 header of a packet.

use core::net::Ipv4Addr;
use weir_graph::engine::GraphPacket;
use weir_wire::checksum::{add_bytes, fold_sum, internet_checksum, updated_checksum};

/// The bytes of a header without options.
pub const HEADER_BYTES: usize = 20;

/// The flag "do not fragment" in the field of the fragment offset.
pub const DONT_FRAGMENT: u16 = 0x4000;
/// The flag "more fragments" there.
pub const MORE_FRAGMENTS: u16 = 0x2000;
/// The bits of the offset, which counts 8 bytes.
pub const OFFSET: u16 = 0x1fff;

/// The numbers of protocols.
pub const ICMP: u8 = 1;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;

/// Returns two bytes as a number in network byte order; 0 beyond the end.
#[inline]
pub fn half(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |pair| u16::from_be_bytes([pair[0], pair[1]]))
}

/// Returns four bytes as a number in network byte order; 0 beyond the end.
#[inline]
pub fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |four| u32::from_be_bytes([four[0], four[1], four[2], four[3]]))
}

/// A complete IPv4 header, with the bytes behind it.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4Header<'p> {
    /// The bytes from the header to the packet's end.
    pub bytes: &'p [u8],
    /// The length of the header: from 20 to 60, and at most the length of the bytes.
    pub header_bytes: usize,
}

impl<'p> Ipv4Header<'p> {
    /// Returns the header that an element has found in a packet; `None` if there is none, or it is not complete.
    #[inline]
    pub fn of(packet: &'p GraphPacket) -> Option<Self> {
        Self::read(packet.network_bytes()?)
    }

    /// Returns the header at the start of bytes; `None` if it is not complete. The version is not checked.
    #[inline]
    pub fn read(bytes: &'p [u8]) -> Option<Self> {
        let header_bytes = header_length(*bytes.first()?);
        (header_bytes >= HEADER_BYTES && header_bytes <= bytes.len()).then_some(Self { bytes, header_bytes })
    }

    /// Returns the header at the start of bytes; `None` if it is not complete, or of another version.
    pub fn read_version_4(bytes: &'p [u8]) -> Option<Self> {
        Self::read(bytes).filter(|it| it.bytes[0] >> 4 == 4)
    }

    /// Returns the header.
    pub fn header(&self) -> &'p [u8] {
        &self.bytes[..self.header_bytes]
    }

    /// Returns the bytes behind the header, up to the packet's end.
    pub fn transport(&self) -> &'p [u8] {
        &self.bytes[self.header_bytes..]
    }

    /// Returns the bytes behind the header, up to the total length; `None` if the packet ends before it, or the total length
    /// is shorter than the header.
    pub fn segment(&self) -> Option<&'p [u8]> {
        self.bytes.get(self.header_bytes..self.length())
    }

    /// Returns the total length, as the header states it.
    pub fn length(&self) -> usize {
        usize::from(half(self.bytes, 2))
    }

    /// Returns the protocol.
    pub fn protocol(&self) -> u8 {
        self.bytes[9]
    }

    /// Returns the identification.
    pub fn identification(&self) -> u16 {
        half(self.bytes, 4)
    }

    /// Returns the flags and the fragment offset.
    pub fn fragment_field(&self) -> u16 {
        half(self.bytes, 6)
    }

    /// Returns the offset of the payload in its datagram, in bytes.
    pub fn offset(&self) -> usize {
        usize::from(self.fragment_field() & OFFSET) * 8
    }

    /// Returns the source address.
    pub fn source(&self) -> Ipv4Addr {
        word(self.bytes, 12).into()
    }

    /// Returns the destination address.
    pub fn destination(&self) -> Ipv4Addr {
        word(self.bytes, 16).into()
    }

    /// Returns true for a fragment, the first one too.
    pub fn is_fragment(&self) -> bool {
        self.fragment_field() & (MORE_FRAGMENTS | OFFSET) != 0
    }

    /// Returns true if the data begins with the transport header: for a packet that is no fragment, or the first one.
    pub fn is_first(&self) -> bool {
        self.fragment_field() & OFFSET == 0
    }

    /// Returns the unfolded sum of the pseudo-header of TCP or UDP, for a segment of this length.
    ///
    /// The destination is the last address of a source route, if there is one (RFC 1122, section 4.1.3.2).
    pub fn pseudo_header_sum(&self, length: usize) -> u64 {
        let destination = source_route_end(&self.bytes[HEADER_BYTES..self.header_bytes]);
        let destination = destination.unwrap_or_else(|| word(self.bytes, 16));
        let addresses = u64::from(word(self.bytes, 12)) + u64::from(destination);
        addresses + u64::from(self.protocol()) + length as u64
    }
}

/// Returns the length of a header that begins with this byte.
#[inline]
pub fn header_length(first: u8) -> usize {
    usize::from(first & 0xf) * 4
}

/// Returns the length of a header of at most 60 bytes in words of 4 bytes.
pub fn header_words(header_bytes: usize) -> u8 {
    u8::try_from(header_bytes / 4).unwrap_or(0xf)
}

/// Sets the total length and the fragment field of a header, then its checksum.
pub fn finish_header(header: &mut [u8], total_bytes: u16, fragment_field: u16) {
    header[2..4].copy_from_slice(&total_bytes.to_be_bytes());
    header[6..8].copy_from_slice(&fragment_field.to_be_bytes());
    set_header_checksum(header);
}

/// Returns the last address of a source route in IP options.
fn source_route_end(options: &[u8]) -> Option<u32> {
    const LOOSE: u8 = 131;
    const STRICT: u8 = 137;
    let mut rest = options;
    loop {
        rest = match *rest {
            [1, ref rest @ ..] => rest,
            [kind, length, ..] if kind != 0 && length >= 2 => {
                let option = rest.get(..usize::from(length))?;
                if matches!(kind, LOOSE | STRICT) && option.len() >= 7 {
                    return Some(word(option, option.len() - 4));
                }
                &rest[option.len()..]
            }
            _ => return None,
        };
    }
}

/// Sets two bytes at an even offset of a complete header, and updates the checksum of the header by the change.
pub fn set_header_half(bytes: &mut [u8], at: usize, new: u16) {
    let sum = updated_checksum(half(bytes, 10), half(bytes, at).into(), new.into());
    bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Computes the checksum of a complete IPv4 header, and writes it.
pub fn set_header_checksum(bytes: &mut [u8]) {
    let Some(Ipv4Header { header_bytes, .. }) = Ipv4Header::read(bytes) else { return };
    bytes[10..12].fill(0);
    let sum = internet_checksum(&bytes[..header_bytes]);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Returns the checksum of a TCP or UDP segment with its pseudo-header. It is 0 for a segment with a right checksum.
pub fn transport_checksum(header: &Ipv4Header<'_>, segment: &[u8]) -> u16 {
    !fold_sum(add_bytes(header.pseudo_header_sum(segment.len()), segment))
}

/// A change of words that a checksum covers. It updates many checksums, by equation 3 of RFC 1624.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChecksumChange(u16);

impl ChecksumChange {
    /// Returns the change of words, each given as its old and its new value.
    pub fn of(words: impl IntoIterator<Item = (u32, u32)>) -> Self {
        let changed = words.into_iter().filter(|(old, new)| old != new);
        let sum = fold_sum(changed.map(|(old, new)| u64::from(!old) + u64::from(new)).sum());
        // Both zeros of one's complement arithmetic change nothing.
        Self(if sum == u16::MAX { 0 } else { sum })
    }

    /// Returns the change from the new values to the old ones.
    #[inline]
    pub fn reversed(self) -> Self {
        if self.0 == 0 { self } else { Self(!self.0) }
    }

    /// Returns a checksum after the change.
    #[inline]
    pub fn apply(self, checksum: u16) -> u16 {
        if self.0 == 0 { checksum } else { !fold_sum(u64::from(!checksum) + u64::from(self.0)) }
    }

    /// Updates the checksum at an offset.
    #[inline]
    pub fn apply_at(self, bytes: &mut [u8], at: usize) {
        let sum = self.apply(half(bytes, at));
        set_half(bytes, at, sum);
    }

    /// Updates the checksum of UDP at an offset: 0 stands for none, and stays.
    #[inline]
    pub fn apply_udp(self, bytes: &mut [u8], at: usize) {
        let old = half(bytes, at);
        if old != 0 {
            let sum = self.apply(old);
            set_half(bytes, at, if sum == 0 { u16::MAX } else { sum });
        }
    }
}

/// Writes two bytes in network byte order. Bytes beyond the end stay away.
#[inline]
pub fn set_half(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(pair) = bytes.get_mut(at..at + 2) {
        pair.copy_from_slice(&value.to_be_bytes());
    }
}

/// Writes four bytes in network byte order. Bytes beyond the end stay away.
#[inline]
pub fn set_word(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(four) = bytes.get_mut(at..at + 4) {
        four.copy_from_slice(&value.to_be_bytes());
    }
}

/// Writes the checksum of a UDP datagram of this length behind a complete IP header. The packet has these bytes.
pub fn set_udp_checksum(bytes: &mut [u8], length: usize) {
    let Some(Ipv4Header { header_bytes: at, .. }) = Ipv4Header::read(bytes) else { return };
    bytes[at + 6..at + 8].fill(0);
    let Some(header) = Ipv4Header::read(bytes) else { return };
    let sum = transport_checksum(&header, &header.transport()[..length]);
    // 0 stands for no checksum.
    let sum = if sum == 0 { u16::MAX } else { sum };
    bytes[at + 6..at + 8].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_needs_all_its_bytes() {
        let mut bytes = [0u8; 24];
        bytes[0] = 0x46;
        bytes[3] = 25;
        assert!(Ipv4Header::read_version_4(&bytes[..23]).is_none());
        assert!(Ipv4Header::read_version_4(&bytes).unwrap().segment().is_none());
        bytes[3] = 24;
        assert_eq!(Ipv4Header::read_version_4(&bytes).unwrap().segment(), Some(&[][..]));
        bytes[3] = 23;
        assert!(Ipv4Header::read_version_4(&bytes).unwrap().segment().is_none());
        bytes[0] = 0x44;
        assert!(Ipv4Header::read(&bytes).is_none());
        bytes[0] = 0x66;
        assert!(Ipv4Header::read(&bytes).is_some() && Ipv4Header::read_version_4(&bytes).is_none());
    }

    #[test]
    fn the_end_of_a_source_route_is_found_behind_other_options() {
        let route = [131, 11, 4, 10, 0, 0, 1, 10, 0, 0, 2];
        let options = |before: &[u8]| [before, &route].concat();
        assert_eq!(source_route_end(&options(&[])), Some(0x0a00_0002));
        assert_eq!(source_route_end(&options(&[1, 7, 3, 4])), Some(0x0a00_0002));
        assert_eq!(source_route_end(&options(&[0])), None);
        for wrong in [&[131, 3, 4][..], &[131], &[131, 0], &[7, 1, 1], &[7, 9, 1], &[]] {
            assert_eq!(source_route_end(wrong), None, "{wrong:?}");
        }
    }
}
