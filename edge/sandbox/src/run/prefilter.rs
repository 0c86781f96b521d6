//! A search for the first place where a pattern may begin, in memory that another process can change meanwhile.
//!
//! The method is that of Teddy (Hyperscan; Wang et al., NSDI 2019): the first bytes of all patterns form a fingerprint
//! for each of eight buckets, and a vector instruction looks up both halves of 32 bytes of the text at once. A place is
//! a candidate if all bytes of a bucket's fingerprint fit. The caller compares the candidates' bytes in a copy. Each
//! vector is read by one volatile load, so the compiler neither repeats nor omits a read. Bytes that change between two
//! loads can add a candidate or hide one, which is as if they had changed before or after the search.

use std::arch::x86_64::{
    __m128i, __m256i, _mm_loadu_si128, _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_cmpeq_epi8,
    _mm256_movemask_epi8, _mm256_set1_epi8, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi16,
};

/// The most bytes of a fingerprint.
const FINGERPRINT_MAX: usize = 3;
/// The number of buckets: one for each bit of a byte.
const BUCKETS: usize = 8;
/// The number of places that one step examines.
const STEP: usize = 32;
/// The length of the buffer for texts of less than one step.
const SHORT: usize = STEP + FINGERPRINT_MAX - 1;

/// 32 bytes at any address: one vector load.
#[repr(C, packed)]
#[derive(Clone, Copy)]
struct Unaligned(__m256i);

/// For each byte of the fingerprint and each value of half a byte, the buckets that the value fits.
#[derive(Clone, Debug)]
pub(crate) struct Prefilter {
    low: [[u8; 16]; FINGERPRINT_MAX],
    high: [[u8; 16]; FINGERPRINT_MAX],
    /// The number of bytes of the fingerprint: at most those of the shortest pattern.
    len: usize,
}

impl Prefilter {
    /// Makes a prefilter for patterns, none of which is empty. `None` if the processor lacks AVX2.
    pub(crate) fn new(patterns: &[&[u8]]) -> Option<Self> {
        let len = patterns.iter().map(|pattern| pattern.len()).min()?.min(FINGERPRINT_MAX);
        if len == 0 || !std::arch::is_x86_feature_detected!("avx2") {
            return None;
        }
        let mut this = Self { low: [[0; 16]; FINGERPRINT_MAX], high: [[0; 16]; FINGERPRINT_MAX], len };
        // Patterns with the same beginning share a bucket, so that they add no false candidates.
        let mut sorted: Vec<&[u8]> = patterns.iter().filter_map(|pattern| pattern.get(..len)).collect();
        sorted.sort_unstable();
        sorted.dedup();
        for (index, fingerprint) in sorted.iter().enumerate() {
            let bucket = 1_u8 << (index * BUCKETS / sorted.len());
            for (at, byte) in fingerprint.iter().enumerate() {
                this.low[at][usize::from(byte & 15)] |= bucket;
                this.high[at][usize::from(byte >> 4)] |= bucket;
            }
        }
        // Bytes behind the fingerprint fit every bucket.
        for at in len..FINGERPRINT_MAX {
            (this.low[at], this.high[at]) = ([u8::MAX; 16], [u8::MAX; 16]);
        }
        Some(this)
    }

    /// Returns the first place in `len` bytes at which a pattern may begin: no pattern begins before it. `None` if no
    /// pattern occurs.
    ///
    /// # Safety
    /// `text` is readable for `len` bytes.
    pub(crate) unsafe fn first_candidate(&self, text: *const u8, len: usize) -> Option<usize> {
        // SAFETY: `new` has found AVX2; the rest by the promise of the caller.
        unsafe { self.search(text, len) }
    }

    /// # Safety
    /// As [`Self::first_candidate`], and the processor has AVX2.
    #[target_feature(enable = "avx2")]
    unsafe fn search(&self, text: *const u8, len: usize) -> Option<usize> {
        // The places at which a whole fingerprint fits into the text.
        let places = (len + 1).checked_sub(self.len).filter(|places| *places > 0)?;
        let masks = Masks::load(self);
        // A step reads this many bytes.
        if len < SHORT {
            let mut short = [0_u8; SHORT];
            // SAFETY: `text` is readable for `len` bytes, and `short` is longer.
            unsafe { weir_os::memory::copy_once(text, short.as_mut_ptr(), len) };
            // SAFETY: `short` has the bytes of one step.
            let found = unsafe { masks.candidates(short.as_ptr()) }.trailing_zeros() as usize;
            return (found < places).then_some(found);
        }
        let last = len - SHORT;
        let mut at = 0;
        loop {
            // SAFETY: `at` is at most `last`, so a step's bytes are inside the text.
            let found = unsafe { masks.candidates(text.add(at)) };
            if found != 0 {
                let found = at + found.trailing_zeros() as usize;
                return (found < places).then_some(found);
            }
            if at == last {
                break;
            }
            at = (at + STEP).min(last);
        }
        // The last step leaves out the places at which only a fingerprint of less than three bytes fits.
        if places > last + STEP { Some(last + STEP) } else { None }
    }
}

/// The masks of a [`Prefilter`] in registers.
struct Masks {
    low: [__m256i; FINGERPRINT_MAX],
    high: [__m256i; FINGERPRINT_MAX],
}

impl Masks {
    #[target_feature(enable = "avx2")]
    fn load(filter: &Prefilter) -> Self {
        let load = |mask: &[u8; 16]| {
            // SAFETY: the mask has 16 bytes, and the load needs no alignment.
            let mask = unsafe { _mm_loadu_si128(mask.as_ptr().cast::<__m128i>()) };
            _mm256_broadcastsi128_si256(mask)
        };
        Self {
            low: [load(&filter.low[0]), load(&filter.low[1]), load(&filter.low[2])],
            high: [load(&filter.high[0]), load(&filter.high[1]), load(&filter.high[2])],
        }
    }

    /// Returns a mask of the candidates among the next 32 places.
    ///
    /// # Safety
    /// `text` is readable for [`SHORT`] bytes.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn candidates(&self, text: *const u8) -> u32 {
        let half = _mm256_set1_epi8(0x0f);
        let buckets = |at: usize| {
            // SAFETY: `at` is below `FINGERPRINT_MAX`, so the 32 bytes are readable; `Unaligned` needs no alignment.
            let bytes = unsafe { text.add(at).cast::<Unaligned>().read_volatile() }.0;
            let low = _mm256_shuffle_epi8(self.low[at], _mm256_and_si256(bytes, half));
            let high = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), half);
            _mm256_and_si256(low, _mm256_shuffle_epi8(self.high[at], high))
        };
        let buckets = _mm256_and_si256(_mm256_and_si256(buckets(0), buckets(1)), buckets(2));
        let none = _mm256_cmpeq_epi8(buckets, _mm256_setzero_si256());
        !_mm256_movemask_epi8(none).cast_unsigned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn candidate(patterns: &[&[u8]], text: &[u8]) -> Option<Option<usize>> {
        let filter = Prefilter::new(patterns)?;
        // SAFETY: the text is readable.
        Some(unsafe { filter.first_candidate(text.as_ptr(), text.len()) })
    }

    /// The place of the first match, by comparing each pattern at each place.
    fn first_match(patterns: &[&[u8]], text: &[u8]) -> Option<usize> {
        (0..text.len()).find(|at| patterns.iter().any(|pattern| text[*at..].starts_with(pattern)))
    }

    proptest! {
        #[test]
        fn no_pattern_begins_before_the_first_candidate(
            patterns in prop::collection::vec(prop::collection::vec(0_u8..4, 1..6), 1..20),
            text in prop::collection::vec(0_u8..5, 0..200),
        ) {
            let patterns: Vec<&[u8]> = patterns.iter().map(Vec::as_slice).collect();
            let found = first_match(&patterns, &text);
            match candidate(&patterns, &text) {
                None => {}
                Some(None) => prop_assert_eq!(found, None),
                Some(Some(at)) => {
                    prop_assert!(at < text.len());
                    prop_assert!(found.is_none_or(|found| found >= at), "{:?} before {}", found, at);
                }
            }
        }

        #[test]
        fn most_texts_without_a_pattern_have_no_candidate(text in prop::collection::vec(0x80_u8..0xff, 0..200)) {
            prop_assert!(candidate(&[b"/bin/sh", b"cmd.exe"], &text).is_none_or(|found| found.is_none()));
        }
    }
}
