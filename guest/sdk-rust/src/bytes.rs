//! Numbers in network byte order from slices.

/// Returns the 16-bit number at `offset`, in network order; `None` past the end.
#[inline(always)]
pub fn be16(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_be_bytes(at(bytes, offset)?))
}

/// Returns the 32-bit number at `offset`, in network order; `None` past the end.
#[inline(always)]
pub fn be32(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_be_bytes(at(bytes, offset)?))
}

/// Returns the 64-bit number at `offset`, in network order; `None` past the end.
#[inline(always)]
pub fn be64(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_be_bytes(at(bytes, offset)?))
}

/// Returns a copy of `N` bytes from `offset` on; `None` if there are fewer.
#[inline(always)]
pub(crate) fn at<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.get(..N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_network_order_and_never_past_the_end() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9];
        assert_eq!((be16(&bytes, 1), be32(&bytes, 5)), (Some(0x0203), Some(0x0607_0809)));
        assert_eq!(be64(&bytes, 1), Some(0x0203_0405_0607_0809));
        assert_eq!((be16(&bytes, 8), be32(&bytes, 6), be64(&bytes, 2)), (None, None, None));
        assert_eq!(be16(&bytes, usize::MAX), None);
    }
}
