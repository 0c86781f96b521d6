//! The keys with the largest sums.

use super::{scale, tag_of, Key, WAYS};

/// An entry: `count - error <= true count <= count`.
#[derive(Clone, Copy, Debug)]
pub struct TopEntry<K> {
    /// The key.
    pub key: K,
    /// The sum of the key's amounts, and the error.
    pub count: u64,
    /// The count that the key inherited with its place.
    pub error: u64,
}

/// The keys with the highest counts, by Space-Saving (A. Metwally, D. Agrawal, A. El Abbadi, "Efficient computation of
/// frequent and top-k elements in data streams", ICDT 2005), within sets of 8 entries. `CAPACITY` is a multiple of 8.
///
/// A new key in a full set takes the place of the set's lowest count, and inherits this count as its error. A key whose
/// true count is more than an eighth of all amounts of its set has an entry. Choose a capacity of ten times the number of
/// keys that are listed, or more.
pub struct Top<K, const CAPACITY: usize> {
    tags: [u32; CAPACITY],
    entries: [TopEntry<K>; CAPACITY],
    total: u64,
}

impl<K: Key, const CAPACITY: usize> Top<K, CAPACITY> {
    const SETS: usize = {
        assert!(CAPACITY > 0 && CAPACITY % WAYS == 0, "the capacity is a multiple of 8");
        CAPACITY / WAYS
    };

    /// Returns an empty table.
    pub const fn new() -> Self {
        let entry = TopEntry { key: K::ZERO, count: 0, error: 0 };
        Self { tags: [0; CAPACITY], entries: [entry; CAPACITY], total: 0 }
    }

    #[inline(always)]
    fn slot(&self, key: &K, hash: u64) -> Option<usize> {
        let first = scale(hash, Self::SETS) * WAYS;
        for way in 0..WAYS {
            if self.tags[first + way] == tag_of(hash) && self.entries[first + way].key.is(key) {
                return Some(first + way);
            }
        }
        None
    }

    /// Adds an amount to a key's count.
    #[inline]
    pub fn add(&mut self, key: K, amount: u64) {
        let hash = key.hash();
        self.total = self.total.wrapping_add(amount);
        let slot = self.slot(&key, hash).unwrap_or_else(|| {
            let first = scale(hash, Self::SETS) * WAYS;
            let (mut place, mut lowest) = (first, u64::MAX);
            for way in 0..WAYS {
                let is_free = self.tags[first + way] == 0;
                let count = if is_free { 0 } else { self.entries[first + way].count };
                if count < lowest {
                    lowest = count;
                    place = first + way;
                }
            }
            self.tags[place] = tag_of(hash);
            self.entries[place] = TopEntry { key, count: lowest, error: lowest };
            place
        });
        self.entries[slot].count = self.entries[slot].count.wrapping_add(amount);
    }

    /// Returns the entry of a key.
    #[inline]
    pub fn find(&self, key: &K) -> Option<&TopEntry<K>> {
        self.slot(key, key.hash()).map(|slot| &self.entries[slot])
    }

    /// Returns the sum of all amounts since [`clear`](Self::clear).
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Calls a function with rank and entry of up to `count` keys, at most `MOST`, the highest count first. Ranks begin
    /// with 1.
    #[inline(always)]
    pub fn each<const MOST: usize>(&self, count: usize, mut function: impl FnMut(u32, &TopEntry<K>)) {
        let mut last = (u64::MAX, None);
        for i in 0..MOST {
            let slot = if i < count { self.next(last) } else { CAPACITY };
            let Some(entry) = self.entries.get(slot) else { break };
            last = (entry.count, Some(slot));
            function(i as u32 + 1, entry);
        }
    }

    /// Returns the slot of the highest count behind `last`, and of equal counts the first one; `CAPACITY` if there is none.
    /// A search for each rank needs no list, and its bound is lower than that of an insertion into a sorted list.
    fn next(&self, last: (u64, Option<usize>)) -> usize {
        let (last_count, last_slot) = last;
        let (mut best, mut place) = (0, CAPACITY);
        for slot in 0..CAPACITY {
            let count = self.entries[slot].count;
            let is_behind =
                count < last_count || (count == last_count && last_slot.is_none_or(|last| slot > last));
            if is_behind && self.tags[slot] != 0 && (count > best || place == CAPACITY) {
                best = count;
                place = slot;
            }
        }
        place
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        self.tags.fill(0);
        self.total = 0;
    }
}

impl<K: Key, const CAPACITY: usize> Default for Top<K, CAPACITY> {
    fn default() -> Self {
        Self::new()
    }
}
