//! The Bloom filter.

use super::{nth, Key};
use core::marker::PhantomData;

/// Number of hashes.
const HASHES: u32 = 4;

/// Set of keys (B. Bloom, "Space/time trade-offs in hash coding with allowable errors", CACM 13, 1970), with four hashes,
/// in `WORDS` words of 64 bits, each of which is meant for four keys.
///
/// A key that was added is never new again. With 4 * `WORDS` keys in the set, 1 of 400 other keys does not look new
/// either; with twice as many, 1 of 40.
pub struct Bloom<K, const WORDS: usize> {
    words: [u64; WORDS],
    len: u64,
    keys: PhantomData<K>,
}

impl<K: Key, const WORDS: usize> Bloom<K, WORDS> {
    /// Returns an empty set.
    pub const fn new() -> Self {
        const { assert!(WORDS > 0 && WORDS <= 1 << 25, "a filter has 1 to 2^25 words") };
        Self { words: [0; WORDS], len: 0, keys: PhantomData }
    }

    /// Returns false if the set does not have the key.
    #[inline]
    pub fn has(&self, key: &K) -> bool {
        let hash = key.hash();
        let mut all = 1;
        for i in 0..HASHES {
            let bit = nth(hash, i, WORDS * 64);
            all &= self.words[bit / 64] >> (bit % 64);
        }
        all != 0
    }

    /// Adds a key. Returns true if it is new.
    #[inline]
    pub fn add(&mut self, key: &K) -> bool {
        let hash = key.hash();
        let mut all = 1;
        for i in 0..HASHES {
            let bit = nth(hash, i, WORDS * 64);
            all &= self.words[bit / 64] >> (bit % 64);
            self.words[bit / 64] |= 1 << (bit % 64);
        }
        self.len += u64::from(all == 0);
        all == 0
    }

    /// Returns the number of keys that were new.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Returns true if no key was added.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        self.words.fill(0);
        self.len = 0;
    }
}

impl<K: Key, const WORDS: usize> Default for Bloom<K, WORDS> {
    fn default() -> Self {
        Self::new()
    }
}
