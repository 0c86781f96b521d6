//! The heaviest keys of a stream, in bounded memory.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};

/// Maximum number of keys kept, unless another one is given.
pub(crate) const ENTRIES_MAX: usize = 8_192;

/// Keys with a weight and a value each, and a bound on what is missing.
///
/// A sketch for frequent items (Misra and Gries 1982; with weights: Anderson et al., "A High-Performance Algorithm for
/// Identifying Frequent Items in Data Streams", IMC 2017). When there are too many keys, the median of the counters is
/// subtracted from all of them, and keys without a remaining counter are removed. The sum of these medians is [`missed_max`]:
/// no weight is too small by more than that, and every key with a larger weight is kept. At least half of the counters lose
/// a median in full, so the sum is at most 2 / [`ENTRIES_MAX`] of all weight.
///
/// [`missed_max`]: Self::missed_max
#[derive(Clone, Debug)]
pub(crate) struct TopKeys<K, V, S = RandomState> {
    entries: HashMap<K, Entry<V>, S>,
    entries_max: usize,
    /// The maximum weight that is missing from a key.
    missed_max: u64,
    /// True if keys were removed.
    pub(crate) incomplete: bool,
}

#[derive(Clone, Debug, Default)]
struct Entry<V> {
    /// Weight added since the key is kept.
    weight: u64,
    /// [`TopKeys::missed_max`] when the key was added: the maximum weight that was lost before.
    before: u64,
    value: V,
}

impl<V> Entry<V> {
    /// The maximum weight that the key can have. The counter of the sketch is this number less [`TopKeys::missed_max`].
    fn most(&self) -> u64 {
        self.weight.saturating_add(self.before)
    }
}

impl<K, V, S: Default> Default for TopKeys<K, V, S> {
    fn default() -> Self {
        Self::of_at_most(ENTRIES_MAX)
    }
}

impl<K, V, S: Default> TopKeys<K, V, S> {
    /// Creates a sketch of at most `entries_max` keys, for values that are large.
    pub(crate) fn of_at_most(entries_max: usize) -> Self {
        Self { entries: HashMap::default(), entries_max, missed_max: 0, incomplete: false }
    }
}

impl<K: Hash + Eq + Ord + Copy, V: Default, S: BuildHasher> TopKeys<K, V, S> {
    /// Adds to a key's weight, and returns its value.
    pub(crate) fn add(&mut self, key: K, weight: u64) -> &mut V {
        if self.entries.len() >= self.entries_max && !self.entries.contains_key(&key) {
            self.shrink();
        }
        let before = self.missed_max;
        let entry =
            self.entries.entry(key).or_insert_with(|| Entry { weight: 0, before, value: V::default() });
        entry.weight = entry.weight.saturating_add(weight);
        &mut entry.value
    }

    /// Subtracts the median from all counters, and removes the keys without a remaining counter.
    fn shrink(&mut self) {
        let mut most: Vec<u64> = self.entries.values().map(Entry::most).collect();
        let middle = most.len() / 2;
        if middle < most.len() {
            self.missed_max = self.missed_max.max(*most.select_nth_unstable(middle).1);
        }
        self.entries.retain(|_, entry| entry.most() > self.missed_max);
        self.incomplete = true;
    }

    /// Returns true if the key is kept.
    pub(crate) fn contains(&self, key: &K) -> bool {
        self.entries.contains_key(key)
    }

    /// Number of distinct keys kept.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The maximum weight that is missing from a key, kept or not; 0 if all weights are exact.
    pub(crate) fn missed_max(&self) -> u64 {
        self.missed_max
    }

    /// The `most` heaviest keys with weight and value. Keys of equal weight are ordered by the key.
    pub(crate) fn heaviest(&self, most: usize) -> Vec<(K, u64, &V)> {
        let mut all: Vec<_> =
            self.entries.iter().map(|(key, entry)| (*key, entry.weight, &entry.value)).collect();
        all.sort_unstable_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        all.truncate(most);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heavy_keys_survive_many_light_ones() {
        let mut top = TopKeys::<u64, ()>::default();
        for n in 0..1_000_000u64 {
            top.add(n % 3, 1);
            top.add(1_000 + n, 1);
        }
        assert!(top.len() <= ENTRIES_MAX && top.incomplete);
        assert_eq!(top.heaviest(3).iter().map(|entry| entry.0).collect::<Vec<_>>(), [0, 1, 2]);
    }

    /// The order that is worst for a sketch which removes the lighter half: a key returns after each removal.
    #[test]
    fn weights_are_short_by_at_most_the_stated_error_and_the_error_is_small() {
        let mut exact = HashMap::<u64, u64>::new();
        let mut top = TopKeys::<u64, ()>::default();
        let (mut total, mut random) = (0, 1u64);
        let mut add = |key, weight| {
            *exact.entry(key).or_default() += weight;
            total += weight;
            top.add(key, weight);
        };
        for round in 0..100u64 {
            for n in 0..ENTRIES_MAX as u64 / 2 {
                add(n, 40);
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                add(1_000_000 + (random >> 40), 1 + (random >> 60));
            }
            add(u64::MAX, 30 * (round % 3));
        }
        let missed = top.missed_max();
        assert!(missed > 0 && missed <= 2 * total / ENTRIES_MAX as u64, "{missed} of {total}");
        let kept: HashMap<u64, u64> =
            top.heaviest(usize::MAX).iter().map(|(key, weight, ())| (*key, *weight)).collect();
        for (key, weight) in &exact {
            let shown = kept.get(key).copied().unwrap_or(0);
            assert!(shown <= *weight && weight - shown <= missed, "{key}: {shown} of {weight}, {missed}");
        }
    }

    #[test]
    fn weights_of_any_size_do_not_overflow() {
        let mut top = TopKeys::<u64, ()>::default();
        for n in 0..3 * ENTRIES_MAX as u64 {
            top.add(n, u64::MAX / 2);
            top.add(n, u64::MAX);
            top.add(n, 0);
        }
        assert!(top.len() <= ENTRIES_MAX && top.missed_max() == u64::MAX);
    }
}
