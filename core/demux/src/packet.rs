//! A packet as filters see it.

use crate::machine::LoadWidth;

/// A packet of which the first bytes are at hand.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// A private copy of the first bytes of the packet: they are read more than once, so nobody may change them meanwhile.
    /// Bytes beyond `cap_len` are not looked at.
    pub head: &'a [u8],
    /// Bytes that were captured.
    pub cap_len: u32,
    /// Bytes that the packet had on the link: what filters call its length.
    pub wire_len: u32,
}

/// A filter looks at a byte that was captured, and that is not at hand: ask again with a longer `head`.
///
/// The number at least doubles each time, so a packet is asked about a few times at most, and copied at most twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a filter looks further into the packet: give its first {enough} bytes")]
pub struct MoreBytes {
    /// How many of the packet's bytes to give; not more than were captured.
    pub enough: u32,
}

/// Why a value cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    /// It was not captured, or does not exist: the filter does not accept the packet.
    Reject,
    /// It is not at hand.
    More(MoreBytes),
}

impl Packet<'_> {
    /// The big-endian number at `at`.
    #[inline(always)]
    pub(crate) fn load(&self, width: LoadWidth, at: u32) -> Result<u32, Lack> {
        let rest = usize::try_from(at).ok().and_then(|at| self.head.get(at..)).unwrap_or_default();
        let value = match width {
            LoadWidth::Byte => rest.first().map(|&byte| u32::from(byte)),
            LoadWidth::Half => rest.first_chunk().map(|&bytes| u32::from(u16::from_be_bytes(bytes))),
            LoadWidth::Word => rest.first_chunk().map(|&bytes| u32::from_be_bytes(bytes)),
        };
        match value {
            Some(value) if at.wrapping_add(width.bytes()) <= self.cap_len => Ok(value),
            _ => Err(self.lack(width, at)),
        }
    }

    #[cold]
    fn lack(&self, width: LoadWidth, at: u32) -> Lack {
        match at.checked_add(width.bytes()) {
            Some(end) if end <= self.cap_len => {
                let have = u32::try_from(self.head.len()).unwrap_or(u32::MAX);
                Lack::More(MoreBytes { enough: end.max(have.saturating_mul(2)).min(self.cap_len) })
            }
            _ => Lack::Reject,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_that_was_captured_is_asked_for_and_one_that_was_not_is_a_rejection() {
        let packet = Packet { head: &[1, 2, 3, 4, 5, 6], cap_len: 20, wire_len: 100 };
        assert_eq!(packet.load(LoadWidth::Word, 2), Ok(0x0304_0506));
        assert_eq!(packet.load(LoadWidth::Word, 3), Err(Lack::More(MoreBytes { enough: 12 })));
        assert_eq!(packet.load(LoadWidth::Half, 18), Err(Lack::More(MoreBytes { enough: 20 })));
        assert_eq!(packet.load(LoadWidth::Half, 19), Err(Lack::Reject));
        assert_eq!(packet.load(LoadWidth::Word, u32::MAX), Err(Lack::Reject));
        // Bytes that are there by accident, beyond what was captured, are not the packet's.
        let short = Packet { cap_len: 3, ..packet };
        assert_eq!(short.load(LoadWidth::Byte, 3), Err(Lack::Reject));
        assert_eq!(short.load(LoadWidth::Half, 1), Ok(0x0203));
    }
}
