//! The Internet checksum (RFC 1071), and how it is updated by what changed.

/// Collects what changes in the bytes that a checksum covers, and corrects the checksum by it: RFC 1624, equation 3,
/// HC' = ~(~HC + ~m + m'). So a right checksum stays right, and a wrong one stays wrong by as much.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Update {
    /// Sum of all ~m + m', not yet folded; 0 exactly if nothing changed, since ~m + m' is 0 for no change of a byte.
    sum: u64,
}

impl Update {
    /// The byte `distance` bytes into what is covered changes: the even ones are the upper halves of the words.
    pub(crate) fn byte(&mut self, distance: usize, old: u8, new: u8) {
        if old == new {
            return;
        }
        let word = |byte: u8| {
            if distance.is_multiple_of(2) { u16::from_be_bytes([byte, 0]) } else { u16::from(byte) }
        };
        self.sum += u64::from(!word(old)) + u64::from(word(new));
    }

    /// Whether nothing has changed, so that the checksum has to stay, down to the last bit.
    pub(crate) fn is_nothing(self) -> bool {
        self.sum == 0
    }

    /// The checksum after the changes.
    pub(crate) fn apply(self, checksum: u16) -> u16 {
        !fold(self.sum + u64::from(!checksum))
    }
}

/// Adds bytes, as 16-bit numbers of which the last one may lack its lower half, to a sum that is yet to be folded. There is room for some
/// gigabytes.
pub(crate) fn add(sum: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut last = [0; 4];
    last.iter_mut().zip(rest).for_each(|(to, byte)| *to = *byte);
    // 32 bits at a time: 2^16 counts as one.
    words.iter().chain([&last]).fold(sum, |sum, word| sum + u64::from(u32::from_be_bytes(*word)))
}

/// The 16-bit sum, with carries added at its end (RFC 1071).
pub(crate) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    u16::try_from(sum).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1624_comes_out_right() {
        // Section 4: HC = 0xDD2F, m = 0x5555, m' = 0x3285 gives 0x0000, where RFC 1141 gave 0xFFFF.
        let mut update = Update::default();
        update.byte(0, 0x55, 0x32);
        update.byte(1, 0x55, 0x85);
        assert_eq!(update.apply(0xdd2f), 0x0000);
    }

    #[test]
    fn writing_what_is_there_already_is_no_change() {
        let mut update = Update::default();
        update.byte(3, 7, 7);
        assert!(update.is_nothing());
        update.byte(3, 0, 0xff);
        update.byte(5, 0xff, 0);
        assert!(!update.is_nothing());
        assert_eq!(update.apply(0x1234), 0x1234, "two changes that cancel each other");
    }
}
