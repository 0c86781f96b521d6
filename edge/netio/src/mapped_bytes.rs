//! Reading memory that can change while it is read.

use std::marker::PhantomData;
use weir_os::memory::copy_once;

/// A range of the capture's bytes that is in memory now: the bytes from offset `start` to `end` of the capture.
///
/// Other processes may write a mapped file while we read it. So nothing here gives a reference to its bytes: they are
/// copied out, each exactly once, by volatile reads, which the compiler can neither repeat nor leave out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BytesView<'a> {
    base: *const u8,
    start: u64,
    end: u64,
    guest_base: u32,
    memory: PhantomData<&'a u8>,
}

/// Bytes that come into a core at once.
const LINE: usize = 64;

impl<'a> BytesView<'a> {
    /// The bytes at `base` as offsets `start..end` of the capture; sandboxes see the first of them at `guest_base`.
    ///
    /// # Safety
    ///
    /// The `end - start` bytes from `base` on are mapped and readable for `'a`; that they change meanwhile, or that their
    /// file loses them where [`crate::watch`] covers them, is allowed.
    pub(crate) unsafe fn new(base: *const u8, start: u64, end: u64, guest_base: u32) -> BytesView<'a> {
        BytesView { base, start, end, guest_base, memory: PhantomData }
    }

    /// Offset of the first byte after this view.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Whether the bytes `from..to` of the capture are in this view.
    #[inline]
    pub(crate) fn holds(&self, from: u64, to: u64) -> bool {
        self.start <= from && from <= to && to <= self.end
    }

    /// The address at which sandboxes see the byte at `offset`, which is in this view or at its end.
    #[inline]
    pub(crate) fn guest_address(&self, offset: u64) -> u32 {
        let distance = u32::try_from(offset.saturating_sub(self.start)).unwrap_or(u32::MAX);
        self.guest_base.saturating_add(distance)
    }

    /// Reads `N` bytes at `offset`, or nothing where they are not all in this view.
    #[inline]
    pub(crate) fn read<const N: usize>(&self, offset: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.copy(offset, &mut bytes).then_some(bytes)
    }

    /// Fills `to` from `offset` on; false, and nothing done, where that is not all in this view.
    #[inline]
    pub(crate) fn copy(&self, offset: u64, to: &mut [u8]) -> bool {
        // A slice is never longer than isize::MAX.
        let len = to.len();
        if !self.holds(offset, offset.saturating_add(len as u64)) {
            return false;
        }
        // SAFETY: the bytes lie in the view, by the check above, and so are readable by the promise given to `new`.
        unsafe { copy_once(self.at(offset), to.as_mut_ptr(), len) };
        true
    }

    /// Copies the first bytes at `offset` into `head`: at least `wanted` of them, where this view has so many; and returns
    /// how many of `wanted` there are. Copies of constant length are made where possible, which is faster; but of a short packet's second line nothing is
    /// asked for, as it would have to come from far away.
    #[inline(always)]
    pub(crate) fn peek<const N: usize>(
        &self,
        offset: u64,
        wanted: usize,
        head: &mut PacketPrefix<N>,
    ) -> usize {
        let wanted = wanted.min(N);
        if self.holds(offset, offset.saturating_add(N as u64)) {
            let first = const { if N < LINE { N } else { LINE } };
            // SAFETY: N readable bytes by the check above, and `first` is no more; `head` has room for N.
            unsafe { copy_once(self.at(offset), head.0.as_mut_ptr(), first) };
            if wanted > first {
                // SAFETY: as above, for the rest of the N bytes.
                unsafe { copy_once(self.at(offset).add(first), head.0.as_mut_ptr().add(first), N - first) };
            }
            return wanted;
        }
        if !self.holds(offset, offset.saturating_add(wanted as u64)) {
            return 0;
        }
        // SAFETY: `wanted` readable bytes by the check above; `head` has room for N, which is at least that.
        unsafe { copy_once(self.at(offset), head.0.as_mut_ptr(), wanted) };
        wanted
    }

    /// Asks the processor to have the byte at `offset` ready soon. Any offset will do.
    #[inline(always)]
    pub(crate) fn prefetch(&self, offset: u64) {
        #[cfg(target_arch = "x86_64")]
        {
            let distance = isize::try_from(offset.wrapping_sub(self.start)).unwrap_or(0);
            // SAFETY: a prefetch is a hint: it reads nothing and faults at no address; the pointer is only computed.
            unsafe {
                std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(
                    self.base.wrapping_offset(distance).cast(),
                );
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = offset;
    }

    /// # Safety
    ///
    /// `offset` is in `start..=end`.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "a distance inside mapped memory fits a usize")]
    unsafe fn at(&self, offset: u64) -> *const u8 {
        let distance = (offset - self.start) as usize;
        // SAFETY: by the promise of the caller the result is inside the view, or one past it.
        unsafe { self.base.add(distance) }
    }
}

/// Room for the first `N` bytes of a packet.
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
    fn only_bytes_inside_the_view_are_read() {
        let bytes: Vec<u8> = (0..100).collect();
        // SAFETY: `bytes` lives as long as the view.
        let view = unsafe { BytesView::new(bytes.as_ptr(), 1000, 1100, 0x4000_0000) };

        assert_eq!(view.read(1000), Some([0, 1, 2, 3]));
        assert_eq!(view.read(1089), Some([89u8, 90, 91, 92, 93, 94, 95, 96, 97, 98, 99]));
        assert_eq!(view.read::<4>(1097), None);
        assert_eq!(view.read::<4>(999), None);
        assert_eq!(view.read::<4>(u64::MAX - 1), None);
        assert_eq!(view.guest_address(1010), 0x4000_000A);

        let mut head = PacketPrefix::<16>::new();
        let got = view.peek(1050, 9, &mut head);
        assert_eq!(head.bytes(got), [50, 51, 52, 53, 54, 55, 56, 57, 58]);
        let got = view.peek(1095, 5, &mut head);
        assert_eq!(head.bytes(got), [95, 96, 97, 98, 99]);
        assert_eq!(view.peek(1095, 6, &mut head), 0);
    }
}
