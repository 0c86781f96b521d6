//! Reading of mapped memory whose bytes can change during reads.

use std::marker::PhantomData;
use weir_os::memory::{copy_once, prefetch, read_once};

/// The number of bytes that are prefetched at once.
pub(crate) const PREFETCH_BYTES: u64 = 512;

/// The bytes of a capture, or of other packet memory, that are mapped now: those from offset `start` to `end`.
///
/// Other processes may write a mapped file during reads. So no reference to its bytes is given out: they are copied,
/// each exactly once, by volatile reads, which the compiler can neither repeat nor omit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MappedBytes<'a> {
    base: *const u8,
    start: u64,
    end: u64,
    guest_base: u32,
    memory: PhantomData<&'a u8>,
}

impl<'a> MappedBytes<'a> {
    /// Creates the value for the bytes at `base`, which are at the offsets `start..end` of the capture. The guest
    /// address of the first byte is `guest_base`.
    ///
    /// # Safety
    ///
    /// The `end - start` bytes from `base` on must be mapped and readable for `'a`. They may change meanwhile. If their
    /// file can be truncated, [`crate::watch`] must cover them.
    pub(crate) unsafe fn new(base: *const u8, start: u64, end: u64, guest_base: u32) -> MappedBytes<'a> {
        MappedBytes { base, start, end, guest_base, memory: PhantomData }
    }

    /// The offset behind the last mapped byte.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Returns true if the bytes `from..to` of the capture are mapped.
    #[inline]
    pub(crate) fn holds(&self, from: u64, to: u64) -> bool {
        self.start <= from && from <= to && to <= self.end
    }

    /// The guest address of the byte at `offset`, which must be mapped or at the end of the mapped bytes.
    #[inline]
    pub(crate) fn guest_address(&self, offset: u64) -> u32 {
        let distance = u32::try_from(offset.saturating_sub(self.start)).unwrap_or(u32::MAX);
        self.guest_base.saturating_add(distance)
    }

    /// Reads `N` bytes at `offset`; `None` if they are not all mapped.
    #[inline]
    pub(crate) fn read<const N: usize>(&self, offset: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.copy(offset, &mut bytes).then_some(bytes)
    }

    /// Reads `N` little-endian numbers of 64 bits at `offset`; `None` if they are not all mapped. The numbers are in
    /// registers, so taking them apart costs less than with the bytes of [`read`](Self::read).
    #[inline(always)]
    pub(crate) fn read_words<const N: usize>(&self, offset: u64) -> Option<[u64; N]> {
        if !self.holds(offset, offset.saturating_add(8 * N as u64)) {
            return None;
        }
        // SAFETY: 8 * N bytes are readable by the check above, and a word needs no alignment. Each is read once.
        let word = |i: usize| unsafe { read_once(self.pointer_at(offset).add(8 * i)) };
        Some(std::array::from_fn(word))
    }

    /// Fills `to` from `offset` on. Returns false, and does nothing, if the bytes are not all mapped.
    #[inline]
    pub(crate) fn copy(&self, offset: u64, to: &mut [u8]) -> bool {
        // A slice is at most isize::MAX long.
        let len = to.len();
        if !self.holds(offset, offset.saturating_add(len as u64)) {
            return false;
        }
        // SAFETY: the bytes are mapped by the check above, and so readable by the contract of `new`.
        unsafe { copy_once(self.pointer_at(offset), to.as_mut_ptr(), len) };
        true
    }

    /// Copies the `wanted` bytes from `offset` on, at most `N`, into `head`; bytes behind them may be copied, too.
    /// Returns the number of wanted bytes; 0 if they are not all mapped.
    ///
    /// The copy has a constant length, without a branch on the packet's length, if that many bytes are mapped.
    #[inline(always)]
    pub(crate) fn peek<const N: usize>(
        &self,
        offset: u64,
        wanted: usize,
        head: &mut PacketPrefix<N>,
    ) -> usize {
        let wanted = wanted.min(N);
        if self.holds(offset, offset.saturating_add(N as u64)) {
            // SAFETY: N bytes are readable by the check above, and `head` has space for N.
            unsafe { copy_once(self.pointer_at(offset), head.0.as_mut_ptr(), N) };
            return wanted;
        }
        if !self.holds(offset, offset.saturating_add(wanted as u64)) {
            return 0;
        }
        // SAFETY: `wanted` bytes are readable by the check above; `head` has space for N, which is at least `wanted`.
        unsafe { copy_once(self.pointer_at(offset), head.0.as_mut_ptr(), wanted) };
        wanted
    }

    /// Prefetches a piece of [`PREFETCH_BYTES`] at `offset`. Any offset is valid.
    #[inline(always)]
    pub(crate) fn prefetch_piece(&self, offset: u64) {
        const LINE: u64 = 64;
        for i in 0..PREFETCH_BYTES / LINE {
            self.prefetch(offset.wrapping_add(LINE * i));
        }
    }

    /// Prefetches the byte at `offset` into the cache. Any offset is valid.
    #[inline(always)]
    pub(crate) fn prefetch(&self, offset: u64) {
        let distance = isize::try_from(offset.wrapping_sub(self.start)).unwrap_or(0);
        prefetch(self.base.wrapping_offset(distance));
    }

    /// The address of the byte at `offset`.
    ///
    /// # Safety
    ///
    /// `offset` must be in `start..=end`.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "a distance inside mapped memory fits a usize")]
    unsafe fn pointer_at(&self, offset: u64) -> *const u8 {
        let distance = (offset - self.start) as usize;
        // SAFETY: by the caller's contract the result is inside the mapped bytes, or one past them.
        unsafe { self.base.add(distance) }
    }
}

/// A buffer for the first `N` bytes of a packet.
pub(crate) struct PacketPrefix<const N: usize>([u8; N]);

impl<const N: usize> PacketPrefix<N> {
    pub(crate) fn new() -> Self {
        Self([0; N])
    }

    /// The first `len` bytes, as they were peeked.
    #[inline(always)]
    pub(crate) fn bytes(&self, len: usize) -> &[u8] {
        &self.0[..len.min(N)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mapped_bytes_are_read() {
        let bytes: Vec<u8> = (0..100).collect();
        // SAFETY: `bytes` lives as long as `mapped`.
        let mapped = unsafe { MappedBytes::new(bytes.as_ptr(), 1000, 1100, 0x4000_0000) };

        assert_eq!(mapped.read(1000), Some([0, 1, 2, 3]));
        assert_eq!(mapped.read(1089), Some([89u8, 90, 91, 92, 93, 94, 95, 96, 97, 98, 99]));
        assert_eq!(mapped.read::<4>(1097), None);
        assert_eq!(mapped.read_words(1001), Some([0x0807_0605_0403_0201, 0x100f_0e0d_0c0b_0a09]));
        assert_eq!(mapped.read_words::<2>(1085), None);
        assert_eq!(mapped.read::<4>(999), None);
        assert_eq!(mapped.read::<4>(u64::MAX - 1), None);
        assert_eq!(mapped.guest_address(1010), 0x4000_000A);

        let mut head = PacketPrefix::<16>::new();
        let got = mapped.peek(1050, 9, &mut head);
        assert_eq!(head.bytes(got), [50, 51, 52, 53, 54, 55, 56, 57, 58]);
        let got = mapped.peek(1095, 5, &mut head);
        assert_eq!(head.bytes(got), [95, 96, 97, 98, 99]);
        assert_eq!(mapped.peek(1095, 6, &mut head), 0);
    }
}
