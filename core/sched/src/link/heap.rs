//! A binary heap in which each slot of a table stands at most once and can be moved or taken out: what tells the first of n channels in
//! O(log n).

/// The smallest key first; equal keys in the order of their slots, so that nothing depends on what happened before.
#[derive(Debug)]
pub struct Heap<K> {
    /// Key and slot, in heap order.
    entries: Vec<(K, usize)>,
    /// Where each slot stands in `entries`.
    places: Vec<Option<usize>>,
}

impl<K: Ord + Copy> Heap<K> {
    /// For slots 0 to `slots` - 1. Nothing is allocated later.
    pub fn new(slots: usize) -> Self {
        Heap { entries: Vec::with_capacity(slots), places: vec![None; slots] }
    }

    /// The smallest key and its slot.
    pub fn first(&self) -> Option<(K, usize)> {
        self.entries.first().copied()
    }

    /// Whether the slot is in the heap.
    pub fn contains(&self, slot: usize) -> bool {
        self.places[slot].is_some()
    }

    /// Puts a slot in, or gives it another key.
    pub fn set(&mut self, slot: usize, key: K) {
        let at = match self.places[slot] {
            Some(at) => {
                self.entries[at].0 = key;
                at
            }
            None => {
                self.entries.push((key, slot));
                self.places[slot] = Some(self.entries.len() - 1);
                self.entries.len() - 1
            }
        };
        self.settle(at);
    }

    /// Takes a slot out, if it is in.
    pub fn remove(&mut self, slot: usize) {
        if let Some(at) = self.places[slot].take() {
            self.entries.swap_remove(at);
            if let Some((_, moved)) = self.entries.get(at) {
                self.places[*moved] = Some(at);
                self.settle(at);
            }
        }
    }

    /// Moves the entry at `at` up or down to where it belongs.
    fn settle(&mut self, mut at: usize) {
        while at > 0 && self.entries[at] < self.entries[(at - 1) / 2] {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
        loop {
            let children = 2 * at + 1..(2 * at + 3).min(self.entries.len());
            match children.min_by_key(|child| self.entries[*child]) {
                Some(child) if self.entries[child] < self.entries[at] => {
                    self.swap(at, child);
                    at = child;
                }
                _ => return,
            }
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.entries.swap(a, b);
        self.places[self.entries[a].1] = Some(a);
        self.places[self.entries[b].1] = Some(b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_heap_is_an_ordered_set_of_slots(steps in prop::collection::vec((0..20usize, prop::option::of(0..9u64)), 1..200)) {
            let mut heap = Heap::new(20);
            let mut keys = [None; 20];
            for (slot, key) in steps {
                match key {
                    Some(key) => heap.set(slot, key),
                    None => heap.remove(slot),
                }
                keys[slot] = key;
                let expected: BTreeSet<(u64, usize)> =
                    keys.iter().enumerate().filter_map(|(slot, key)| key.map(|key| (key, slot))).collect();
                prop_assert_eq!(heap.first(), expected.first().copied());
                prop_assert_eq!(heap.contains(slot), key.is_some());
            }
        }
    }
}
