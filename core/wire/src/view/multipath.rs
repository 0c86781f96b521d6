//! Options of multipath TCP (RFC 8684): they announce addresses, count the bytes of the stream, and have checksums
//! over payload. The rewriter asks here which of them a view shows.

use super::Exposure;
use super::packet_rewriter::PacketRewriter;

/// Subtypes (RFC 8684, 8.2).
mod subtype {
    pub(super) const CAPABLE: u8 = 0;
    pub(super) const JOIN: u8 = 1;
    /// A data sequence signal.
    pub(super) const SIGNAL: u8 = 2;
    /// An announcement of an address, which may contain a port.
    pub(super) const ADD_ADDRESS: u8 = 3;
    pub(super) const REMOVE_ADDRESS: u8 = 4;
    pub(super) const PRIORITY: u8 = 5;
    pub(super) const FAIL: u8 = 6;
    pub(super) const FAST_CLOSE: u8 = 7;
    pub(super) const RESET: u8 = 8;
}

impl PacketRewriter<'_> {
    /// Returns true for an option of multipath TCP that RFC 8684 defines and that announces no hidden address or
    /// port.
    #[inline(never)]
    pub(super) fn keeps_multipath(&self, len: usize, at: usize) -> bool {
        let hides_endpoints = self.hides_addresses || self.view.ports == Exposure::Zeroed;
        let Some([_, _, third]) = self.read::<3>(at) else { return false };
        match (third >> 4, len) {
            (subtype::CAPABLE, 4 | 12 | 20 | 22 | 24)
            | (subtype::JOIN, 12 | 16 | 24)
            | (subtype::REMOVE_ADDRESS, 4..)
            | (subtype::PRIORITY, 3 | 4)
            | (subtype::FAIL | subtype::FAST_CLOSE, 12)
            | (subtype::RESET, 4) => true,
            (subtype::SIGNAL, _) => {
                let stated = self.len_of_signal(at);
                stated.is_some_and(|(without_checksum, has_mapping)| {
                    len == without_checksum || has_mapping && len == without_checksum + 2
                })
            }
            (subtype::ADD_ADDRESS, 8 | 10 | 16 | 18 | 20 | 22 | 28 | 30) => !hides_endpoints,
            _ => false,
        }
    }

    /// The length of a data sequence signal as its flags state it (RFC 8684, 3.3), without a checksum. The second
    /// result is true if the signal has a mapping; only then it can have a checksum.
    fn len_of_signal(&self, at: usize) -> Option<(usize, bool)> {
        let &[_, _, _, flags] = self.read::<4>(at)?;
        let number_len =
            |present_bit: u8, long_bit: u8| match (flags & present_bit != 0, flags & long_bit != 0) {
                (false, _) => 0,
                (true, false) => 4,
                (true, true) => 8,
            };
        let has_mapping = flags & 4 != 0;
        let mapping = if has_mapping { number_len(4, 8) + 6 } else { 0 };
        Some((4 + number_len(1, 2) + mapping, has_mapping))
    }

    /// The offset of the checksum in an option of multipath TCP. The checksum covers payload, also of other segments
    /// (RFC 8684, 3.3.1).
    pub(super) fn checksum_of_multipath(&self, len: usize, at: usize) -> Option<usize> {
        match self.read::<3>(at)?[2] >> 4 {
            subtype::CAPABLE => (len == 24).then_some(22),
            subtype::SIGNAL => self
                .len_of_signal(at)
                .map(|(without_checksum, _)| without_checksum)
                .filter(|without_checksum| *without_checksum + 2 == len),
            _ => None,
        }
    }
}
