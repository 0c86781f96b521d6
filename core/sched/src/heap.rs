//! A binary heap that tracks the position of each member, so that any member can be removed or moved.

/// The position of a member that is not in the heap.
const ABSENT: u32 = u32::MAX;

/// A min-heap. Members are small numbers (indices of a table). Equal keys are ordered by member, so the order never
/// depends on history.
#[derive(Clone, Debug)]
pub(crate) struct Heap<K> {
    items: Vec<(K, u32)>,
    /// The index in `items` of each member.
    positions: Vec<u32>,
}

impl<K> Default for Heap<K> {
    fn default() -> Self {
        Heap { items: Vec::new(), positions: Vec::new() }
    }
}

impl<K: Copy + Ord> Heap<K> {
    /// Creates a heap with space for `members`.
    pub(crate) fn new(members: usize) -> Self {
        let mut heap = Self::default();
        heap.grow(members);
        heap
    }

    /// Makes space for `members`, so that [`Heap::set`] does not allocate.
    pub(crate) fn grow(&mut self, members: usize) {
        if self.positions.len() < members {
            self.positions.resize(members, ABSENT);
        }
        self.items.reserve(members.saturating_sub(self.items.len()));
    }

    /// The least key and its member.
    pub(crate) fn peek(&self) -> Option<(K, usize)> {
        self.items.first().map(|&(key, member)| (key, member as usize))
    }

    /// Returns true if `member` is in the heap.
    pub(crate) fn contains(&self, member: usize) -> bool {
        self.positions.get(member).is_some_and(|&position| position != ABSENT)
    }

    /// Inserts `member`, or changes its key. [`Heap::grow`] must have made space for it.
    pub(crate) fn set(&mut self, member: usize, key: K) {
        let Ok(number) = u32::try_from(member) else { return };
        let position = match self.positions[member] {
            ABSENT => {
                self.items.push((key, number));
                self.items.len() - 1
            }
            position => {
                self.items[position as usize].0 = key;
                position as usize
            }
        };
        self.settle(position);
    }

    /// Removes `member`, if it is present.
    pub(crate) fn remove(&mut self, member: usize) {
        let Some(&position) = self.positions.get(member) else { return };
        if position == ABSENT {
            return;
        }
        self.positions[member] = ABSENT;
        self.items.swap_remove(position as usize);
        if (position as usize) < self.items.len() {
            self.settle(position as usize);
        }
    }

    /// Moves the item at `position` up or down until the heap is ordered.
    fn settle(&mut self, mut position: usize) {
        let item = self.items[position];
        while position > 0 {
            let parent = (position - 1) / 2;
            if self.items[parent] <= item {
                break;
            }
            self.write(position, self.items[parent]);
            position = parent;
        }
        loop {
            let mut child = 2 * position + 1;
            if child + 1 < self.items.len() && self.items[child + 1] < self.items[child] {
                child += 1;
            }
            if child >= self.items.len() || item <= self.items[child] {
                break;
            }
            self.write(position, self.items[child]);
            position = child;
        }
        self.write(position, item);
    }

    /// Writes an item at a position, and records the position of its member.
    fn write(&mut self, position: usize, item: (K, u32)) {
        self.items[position] = item;
        self.positions[item.1 as usize] = u32::try_from(position).unwrap_or(ABSENT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_top_is_the_least_member_after_any_insertions_moves_and_removals(
            acts in prop::collection::vec((0..20_usize, prop::option::of(0..9_u8)), 0..200)
        ) {
            let mut heap = Heap::new(20);
            let mut model = std::collections::BTreeMap::new();
            for (member, key) in acts {
                match key {
                    Some(key) => {
                        heap.set(member, key);
                        model.insert(member, key);
                    }
                    None => {
                        heap.remove(member);
                        model.remove(&member);
                    }
                }
                let least = model.iter().map(|(&member, &key)| (key, member)).min();
                prop_assert_eq!(heap.peek(), least);
                prop_assert_eq!(heap.contains(member), model.contains_key(&member));
            }
        }
    }
}
