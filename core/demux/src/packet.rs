//! A packet as filters read it.

use crate::machine::LoadWidth;

/// A packet whose first bytes are available.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The first bytes of the packet, in a private copy: they are read more than once, and must not change meanwhile.
    /// Bytes beyond `cap_len` are ignored.
    pub head: &'a [u8],
    /// The number of captured bytes.
    pub cap_len: u32,
    /// The number of bytes on the link, which filters call the packet's length.
    pub wire_len: u32,
}

/// The error where a filter reads a captured byte beyond the packet's `head`. The caller repeats the call with a longer
/// `head`.
///
/// The requested number of bytes at least doubles each time. So a few calls are enough for a packet. The
/// `head`s of all calls together have at most twice as many bytes as the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a filter reads beyond the available bytes: provide the first {enough} bytes of the packet")]
pub struct MoreBytes {
    /// The number of bytes that `head` needs; at most `cap_len`.
    pub enough: u32,
}

/// The reason why a value is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadFailure {
    /// The bytes were not captured, or do not exist: the filter rejects the packet.
    Reject,
    /// The bytes are beyond `head`.
    More(MoreBytes),
}

impl Packet<'_> {
    /// The number at the offset `at`, in network byte order.
    #[inline(always)]
    pub(crate) fn load(&self, width: LoadWidth, at: u32) -> Result<u32, LoadFailure> {
        let rest = usize::try_from(at).ok().and_then(|at| self.head.get(at..)).unwrap_or_default();
        let value = match width {
            LoadWidth::Byte => rest.first().map(|&byte| u32::from(byte)),
            LoadWidth::Half => rest.first_chunk().map(|&bytes| u32::from(u16::from_be_bytes(bytes))),
            LoadWidth::Word => rest.first_chunk().map(|&bytes| u32::from_be_bytes(bytes)),
        };
        match value {
            Some(value) if at.wrapping_add(width.bytes()) <= self.cap_len => Ok(value),
            _ => Err(self.load_failure(width, at)),
        }
    }

    #[cold]
    fn load_failure(&self, width: LoadWidth, at: u32) -> LoadFailure {
        match at.checked_add(width.bytes()) {
            Some(end) if end <= self.cap_len => {
                let available = u32::try_from(self.head.len()).unwrap_or(u32::MAX);
                LoadFailure::More(MoreBytes {
                    enough: end.max(available.saturating_mul(2)).min(self.cap_len),
                })
            }
            _ => LoadFailure::Reject,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_captured_byte_is_requested_and_a_missing_one_rejects_the_packet() {
        let packet = Packet { head: &[1, 2, 3, 4, 5, 6], cap_len: 20, wire_len: 100 };
        assert_eq!(packet.load(LoadWidth::Word, 2), Ok(0x0304_0506));
        assert_eq!(packet.load(LoadWidth::Word, 3), Err(LoadFailure::More(MoreBytes { enough: 12 })));
        assert_eq!(packet.load(LoadWidth::Half, 18), Err(LoadFailure::More(MoreBytes { enough: 20 })));
        assert_eq!(packet.load(LoadWidth::Half, 19), Err(LoadFailure::Reject));
        assert_eq!(packet.load(LoadWidth::Word, u32::MAX), Err(LoadFailure::Reject));
        // Bytes of `head` beyond the captured ones are not the packet's.
        let short = Packet { cap_len: 3, ..packet };
        assert_eq!(short.load(LoadWidth::Byte, 3), Err(LoadFailure::Reject));
        assert_eq!(short.load(LoadWidth::Half, 1), Ok(0x0203));
    }
}
