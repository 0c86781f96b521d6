//! The Internet checksum (RFC 1071), and its incremental update (RFC 1624).

/// Adds bytes to an unfolded sum, as 16-bit words; if their number is odd, the lower half of the last word is 0.
#[inline]
pub fn sum_of(sum: u64, bytes: &[u8]) -> u64 {
    // 32 bits at a time are valid because 2^16 equals 1 in one's complement arithmetic of 16 bits.
    if let Ok(header) = <&[u8; 20]>::try_from(bytes) {
        // An IPv4 header without options.
        let words = header.as_chunks::<4>().0;
        return words.iter().fold(sum, |sum, word| sum + u64::from(u32::from_be_bytes(*word)));
    }
    let (words, rest) = bytes.as_chunks::<4>();
    let mut last = [0; 4];
    last.iter_mut().zip(rest).for_each(|(to, byte)| *to = *byte);
    let sum = words.iter().fold(sum, |sum, word| sum + u64::from(u32::from_be_bytes(*word)));
    sum + u64::from(u32::from_be_bytes(last))
}

/// Folds a sum to 16 bits, with end-around carry.
#[inline]
pub fn fold(sum: u64) -> u16 {
    // A fixed number of steps, because a loop has as many as the bytes demand, which a processor cannot predict.
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    u16::try_from(sum).unwrap_or(u16::MAX)
}

/// Returns the checksum of bytes. It is 0 for bytes that contain their right checksum.
#[inline]
pub fn checksum(bytes: &[u8]) -> u16 {
    !fold(sum_of(0, bytes))
}

/// Returns a checksum after a covered word has changed, by equation 3 of RFC 1624: a right checksum stays right, and a
/// wrong one wrong by the same amount. The words can have 32 bits.
#[inline]
pub fn updated(checksum: u16, old: u32, new: u32) -> u16 {
    !fold(u64::from(!checksum) + u64::from(!old) + u64::from(new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071_comes_out_right() {
        // Section 3: the sum of these bytes is 0xddf2.
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
        assert_eq!(checksum(&[0x00, 0x01, 0xf2]), !0xf201);
    }

    #[test]
    fn the_example_of_rfc_1624_comes_out_right() {
        // Section 4.
        assert_eq!(updated(0xdd2f, 0x5555, 0x3285), 0x0000);
        assert_eq!(updated(0x1234, 0xc0a8_0001, 0xc0a8_0001), 0x1234);
    }

    #[test]
    fn an_update_gives_the_checksum_of_the_changed_bytes() {
        let mut bytes = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 10, 0, 0, 1, 10, 0, 0, 2];
        let before = checksum(&bytes);
        bytes[10..14].copy_from_slice(&[192, 0, 2, 77]);
        assert_eq!(updated(before, 0x0a00_0001, 0xc000_024d), checksum(&bytes));
    }
}
