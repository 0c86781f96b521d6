//! The heaviest keys of a stream, in bounded memory.

use std::collections::HashMap;
use std::hash::Hash;

/// Maximum number of keys kept.
const ENTRIES_MAX: usize = 8_192;

/// Keys with a weight and a value each. When there are too many, the half with the smaller weights is removed, so weights are lower
/// bounds (after Misra and Gries, 1982).
#[derive(Debug)]
pub(crate) struct TopKeys<K, V> {
    entries: HashMap<K, (u64, V)>,
    /// True if keys were removed.
    pub(crate) incomplete: bool,
}

impl<K, V> Default for TopKeys<K, V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), incomplete: false }
    }
}

impl<K: Hash + Eq + Ord + Copy, V: Default> TopKeys<K, V> {
    /// Adds to a key's weight, and returns its value.
    pub(crate) fn add(&mut self, key: K, weight: u64) -> &mut V {
        if self.entries.len() >= ENTRIES_MAX && !self.entries.contains_key(&key) {
            self.shrink();
        }
        let entry = self.entries.entry(key).or_default();
        entry.0 = entry.0.saturating_add(weight);
        &mut entry.1
    }

    /// Removes the half of the keys with the smaller weights.
    fn shrink(&mut self) {
        let mut weights: Vec<(u64, K)> = self.entries.iter().map(|(key, entry)| (entry.0, *key)).collect();
        weights.sort_unstable();
        for (_, key) in weights.iter().take(ENTRIES_MAX / 2) {
            self.entries.remove(key);
        }
        self.incomplete = true;
    }

    /// Number of distinct keys kept.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The `most` heaviest keys with weight and value. Keys of equal weight are ordered by the key.
    pub(crate) fn heaviest(&self, most: usize) -> Vec<(K, u64, &V)> {
        let mut all: Vec<_> =
            self.entries.iter().map(|(key, (weight, value))| (*key, *weight, value)).collect();
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
}
