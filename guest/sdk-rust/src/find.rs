//! Search for byte strings.

use crate::host::{self, Error};
use crate::{heap, List};

/// The treatment of upper and lower case of ASCII letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// Upper and lower case differ.
    Exact = 0,
    /// Upper and lower case are the same.
    Ignore = 1,
}

/// Patterns that the host searches for, many at once. For one short needle in a short text [`find_short`] is faster.
#[derive(Clone, Copy, Debug)]
pub struct Patterns(i32);

/// A match of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The index of the pattern, from 0.
    pub pattern: usize,
    /// The offset of the match.
    pub offset: usize,
}

impl Patterns {
    /// No patterns, which find nothing: for a state's first value.
    pub const NONE: Patterns = Patterns(-1);

    /// Compiles the patterns of a parameter. At start only.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] beyond [`limit`](crate::limit), [`Error::When`] after start.
    pub fn compile(list: List<'_>, case: Case) -> Result<Self, Error> {
        // SAFETY: the address and length are those of a slice, which the host only reads.
        let code = unsafe { host::find_compile(list.0.as_ptr(), list.0.len() as u32, case as u32) };
        Error::check(code).map(Patterns)
    }

    /// Compiles patterns that are part of the module. At start only.
    ///
    /// # Errors
    ///
    /// The errors of [`compile`](Self::compile), and [`Error::Full`] if there is no memory for the list.
    pub fn of(patterns: &[&[u8]], case: Case) -> Result<Self, Error> {
        let len = patterns.iter().map(|pattern| 4 + pattern.len()).sum();
        let list = heap::alloc(len, 0u8).ok_or(Error::Full)?;
        let bytes = patterns.iter().flat_map(|pattern| {
            (pattern.len() as u32).to_le_bytes().into_iter().chain(pattern.iter().copied())
        });
        for (place, byte) in list.iter_mut().zip(bytes) {
            *place = byte;
        }
        Self::compile(List(list), case)
    }

    /// Returns the leftmost match, and of several at one offset the longest.
    #[inline(always)]
    pub fn find(&self, text: &[u8]) -> Option<Found> {
        if self.0 < 0 {
            return None;
        }
        // SAFETY: the address and length are those of a slice, which the host only reads.
        let found = unsafe { host::find(self.0, text.as_ptr(), text.len() as u32) };
        (found >= 0).then_some(Found { pattern: (found >> 32) as usize, offset: found as u32 as usize })
    }
}

/// Returns the offset of the needle's first occurrence in the text; 0 for an empty needle. The search stays in the
/// sandbox: for one short needle in a short text that is faster than a call to the host. It compares the needle's first
/// and last byte with 16 places at a time, and the rest only where both match.
pub fn find_short(text: &[u8], needle: &[u8]) -> Option<usize> {
    let (Some(first), Some(last)) = (needle.first(), needle.last()) else { return Some(0) };
    let places = text.len().checked_sub(needle.len())? + 1;
    let ends = text.get(needle.len() - 1..)?;
    let blocks = text.chunks_exact(BLOCK).zip(ends.chunks_exact(BLOCK));
    let mut begin = 0;
    for (heads, tails) in blocks {
        let mut both = same(heads, *first) & same(tails, *last);
        while both != 0 {
            let at = begin + both.trailing_zeros() as usize;
            if text.get(at..).is_some_and(|rest| rest.starts_with(needle)) {
                return Some(at);
            }
            both &= both - 1;
        }
        begin += BLOCK;
    }
    (begin..places).find(|at| text.get(*at..).is_some_and(|rest| rest.starts_with(needle)))
}

const BLOCK: usize = 16;

/// Returns a mask in which bit i is set if byte i of a block is `byte`.
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
#[inline(always)]
fn same(block: &[u8], byte: u8) -> u32 {
    use core::arch::wasm32::{u8x16_bitmask, u8x16_eq, u8x16_splat, v128_load};
    debug_assert!(block.len() == BLOCK);
    // SAFETY: the callers' chunks have 16 bytes, and the load takes any alignment.
    let block = unsafe { v128_load(block.as_ptr().cast()) };
    u32::from(u8x16_bitmask(u8x16_eq(block, u8x16_splat(byte))))
}

#[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
fn same(block: &[u8], byte: u8) -> u32 {
    block.iter().enumerate().fold(0, |mask, (index, other)| mask | u32::from(*other == byte) << index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn finds_what_a_naive_search_finds() {
        // Two letters, so that there are many partial matches; lengths around the block's.
        let mut state = 1u32;
        let mut random = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 16
        };
        for _ in 0..20_000 {
            let text: Vec<u8> = (0..random() % 70).map(|_| b'a' + (random() % 2) as u8).collect();
            let needle: Vec<u8> = (0..random() % 9).map(|_| b'a' + (random() % 2) as u8).collect();
            let naive = (0..=text.len()).find(|at| text[*at..].starts_with(&needle));
            assert_eq!(find_short(&text, &needle), naive, "{needle:?} in {text:?}");
        }
    }
}
