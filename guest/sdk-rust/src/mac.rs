//! Ethernet addresses.

use crate::bytes::at;
use crate::{Line, LogValue, Packet};

/// LINKTYPE_ETHERNET.
const ETHERNET: u16 = 1;

/// The length of an Ethernet header.
const HEADER_BYTES: usize = 14;

/// An Ethernet address (MAC-48).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Makes an address of 6 bytes; `None` for another number of bytes.
    #[inline(always)]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// Returns the 17 characters of the address as people write it, for a field of type `string`.
    pub const fn text(self) -> [u8; 17] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let [a, b, c, d, e, f] = self.0;
        const fn digits(byte: u8) -> [u8; 2] {
            [DIGITS[(byte >> 4) as usize], DIGITS[(byte & 15) as usize]]
        }
        let ([g, h], [i, j], [k, l]) = (digits(a), digits(b), digits(c));
        let ([m, n], [o, p], [q, r]) = (digits(d), digits(e), digits(f));
        [g, h, b':', i, j, b':', k, l, b':', m, n, b':', o, p, b':', q, r]
    }
}

/// The address as people write it: 02:00:5e:10:00:ff.
impl core::fmt::Display for Mac {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(core::str::from_utf8(&self.text()).unwrap_or_default())
    }
}

/// The address as people write it: 02:00:5e:10:00:ff.
impl LogValue for Mac {
    fn write(&self, line: &mut Line, _is_hex: bool) {
        line.push_bytes(&self.text());
    }
}

impl Packet<'_> {
    /// Returns the source's Ethernet address; `None` without a whole Ethernet header.
    #[inline(always)]
    pub fn mac_src(&self) -> Option<Mac> {
        self.mac(6)
    }

    /// Returns the destination's Ethernet address; `None` without a whole Ethernet header.
    #[inline(always)]
    pub fn mac_dst(&self) -> Option<Mac> {
        self.mac(0)
    }

    #[inline(always)]
    fn mac(&self, offset: usize) -> Option<Mac> {
        let header = self.bytes().get(..HEADER_BYTES).filter(|_| self.link_type == ETHERNET)?;
        at(header, offset).map(Mac)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn addresses_have_six_groups_of_two_digits() {
        for bytes in [[0x02, 0, 0x5e, 0x10, 0, 0xff], [0x9a, 0xbc, 0xde, 0xf1, 0x23, 0x45]] {
            let [a, b, c, d, e, f] = bytes;
            let expected = std::format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}");
            let mut line = Line::new();
            Mac(bytes).write(&mut line, false);
            assert_eq!((line.text(), Mac(bytes).to_string()), (expected.as_str(), expected.clone()));
        }
    }

    #[test]
    fn other_numbers_of_bytes_are_no_address() {
        assert_eq!(Mac::of(&[1, 2, 3, 4, 5, 6]), Some(Mac([1, 2, 3, 4, 5, 6])));
        assert_eq!((Mac::of(&[1; 5]), Mac::of(&[1; 8])), (None, None));
    }
}
