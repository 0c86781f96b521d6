//! The Internet checksum (RFC 1071), and its incremental update (RFC 1624).

/// A collector of changes in the bytes that a checksum covers. It updates the checksum by RFC 1624, equation 3, HC' =
/// ~(~HC + ~m + m'), so a right checksum stays right, and a wrong one stays wrong by the same amount.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChecksumUpdate {
    /// The sum of ~m + m' of all changed bytes, not yet folded. It is 0 exactly if no byte changed, since ~m is above
    /// 0 for a word in which only one byte is set.
    sum: u64,
}

impl ChecksumUpdate {
    /// Adds a change of the byte that is `distance` bytes after the beginning of the covered range. Bytes at even
    /// distances are the upper halves of words.
    pub(crate) fn add_change(&mut self, distance: usize, old: u8, new: u8) {
        if old == new {
            return;
        }
        let word = |byte: u8| {
            if distance.is_multiple_of(2) { u16::from_be_bytes([byte, 0]) } else { u16::from(byte) }
        };
        self.sum += u64::from(!word(old)) + u64::from(word(new));
    }

    /// Returns true if no byte has changed. The checksum must then keep its exact value.
    pub(crate) fn is_empty(self) -> bool {
        self.sum == 0
    }

    /// The checksum after the changes.
    pub(crate) fn apply(self, checksum: u16) -> u16 {
        !fold_sum(self.sum + u64::from(!checksum))
    }
}

/// Adds bytes to an unfolded sum, as 16-bit words; if their number is odd, the lower half of the last word is 0. The
/// sum cannot overflow for less than 16 GiB.
#[inline]
pub fn add_bytes(sum: u64, bytes: &[u8]) -> u64 {
    if let Ok(header) = <&[u8; 20]>::try_from(bytes) {
        // An IPv4 header without options: its length is known, so there is no loop.
        let words = header.as_chunks::<4>().0;
        return words.iter().fold(sum, |sum, word| sum + u64::from(u32::from_be_bytes(*word)));
    }
    let (words, rest) = bytes.as_chunks::<4>();
    let mut last = [0; 4];
    last.iter_mut().zip(rest).for_each(|(to, byte)| *to = *byte);
    // Adding 32 bits at a time is valid because 2^16 equals 1 in one's complement arithmetic of 16 bits.
    words.iter().chain([&last]).fold(sum, |sum, word| sum + u64::from(u32::from_be_bytes(*word)))
}

/// Folds a sum to 16 bits, with end-around carry (RFC 1071).
#[inline]
pub fn fold_sum(sum: u64) -> u16 {
    // A fixed number of steps, because a loop has as many as the bytes demand, which a processor cannot predict.
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    u16::try_from(sum).unwrap_or(u16::MAX)
}

/// Returns the checksum of bytes. It is 0 for bytes that contain their right checksum.
#[inline]
pub fn internet_checksum(bytes: &[u8]) -> u16 {
    !fold_sum(add_bytes(0, bytes))
}

/// Returns a checksum after a covered word has changed, by equation 3 of RFC 1624: a right checksum stays right, and a
/// wrong one stays wrong by the same amount. The words can have 32 bits.
#[inline]
pub fn updated_checksum(checksum: u16, old: u32, new: u32) -> u16 {
    !fold_sum(u64::from(!checksum) + u64::from(!old) + u64::from(new))
}

/// Returns a checksum after a covered word of 16 bits has changed, as [`updated_checksum`] does.
#[inline]
pub fn updated_checksum_of_half(checksum: u16, old: u16, new: u16) -> u16 {
    // Below 2^18, so that two steps suffice.
    let sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

/// Returns true if an IPv4 header without options has its right checksum.
#[inline]
pub fn is_right_header(header: &[u8; 20]) -> bool {
    // The sum of words in another byte order is the sum in that byte order (RFC 1071, section 2).
    let words = header.as_chunks::<4>().0;
    let sum: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    fold_sum(sum) == u16::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071_comes_out_right() {
        // Section 3: the sum of these bytes is 0xddf2.
        assert_eq!(internet_checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
        assert_eq!(internet_checksum(&[0x00, 0x01, 0xf2]), !0xf201);
        assert_eq!(internet_checksum(&[]), 0xffff);
    }

    #[test]
    fn an_update_gives_the_checksum_of_the_changed_bytes() {
        let mut bytes = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 10, 0, 0, 1, 10, 0, 0, 2];
        let before = internet_checksum(&bytes);
        bytes[10..14].copy_from_slice(&[192, 0, 2, 77]);
        assert_eq!(updated_checksum(before, 0x0a00_0001, 0xc000_024d), internet_checksum(&bytes));
        assert_eq!(updated_checksum(0xdd2f, 0x5555, 0x3285), 0x0000, "RFC 1624, section 4");
        assert_eq!(updated_checksum(0x1234, 0xc0a8_0001, 0xc0a8_0001), 0x1234);
    }

    #[test]
    fn an_update_by_a_half_is_that_by_a_word() {
        assert_eq!(updated_checksum_of_half(0xffff, 0xffff, 0), 0xffff, "~(0 + 0 + 0), by equation 3");
        for (old, new) in [(0x5555, 0x3285), (0x4011, 0x3f11), (0, 0xffff), (0xffff, 1), (0x0100, 0), (7, 7)]
        {
            for checksum in 0..=u16::MAX {
                let by_word = updated_checksum(checksum, u32::from(old), u32::from(new));
                assert_eq!(updated_checksum_of_half(checksum, old, new), by_word, "{checksum} {old} {new}");
            }
        }
    }

    #[test]
    fn a_header_is_right_with_one_checksum_only() {
        let mut header = *b"\x45\x00\x00\x73\x00\x00\x40\x00\x40\x11\x00\x00\xc0\xa8\x00\x01\xc0\xa8\x00\xc7";
        let right = internet_checksum(&header);
        for checksum in 0..=u16::MAX {
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            assert_eq!(is_right_header(&header), checksum == right, "{checksum}");
        }
    }

    #[test]
    fn the_example_of_rfc_1624_comes_out_right() {
        // Section 4: HC = 0xDD2F, m = 0x5555, m' = 0x3285 gives 0x0000, where RFC 1141 gave 0xFFFF.
        let mut update = ChecksumUpdate::default();
        update.add_change(0, 0x55, 0x32);
        update.add_change(1, 0x55, 0x85);
        assert_eq!(update.apply(0xdd2f), 0x0000);
    }

    #[test]
    fn an_unchanged_byte_does_not_change_the_checksum() {
        let mut update = ChecksumUpdate::default();
        update.add_change(3, 7, 7);
        assert!(update.is_empty());
        update.add_change(3, 0, 0xff);
        update.add_change(5, 0xff, 0);
        assert!(!update.is_empty());
        assert_eq!(update.apply(0x1234), 0x1234, "two changes that cancel each other");
    }
}
