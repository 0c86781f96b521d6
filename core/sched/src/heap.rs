//! A binary heap that also knows where each of its members is, so that any of them can be taken out or moved.

/// A member that is not in the heap.
const NOWHERE: u32 = u32::MAX;

/// Members are small numbers (places in a table), the least key is on top, and equal keys go by number, so that the order never depends on
/// history.
#[derive(Clone, Debug)]
pub(crate) struct Heap<K> {
    items: Vec<(K, u32)>,
    /// Where in `items` each member is.
    places: Vec<u32>,
}

impl<K> Default for Heap<K> {
    fn default() -> Self {
        Heap { items: Vec::new(), places: Vec::new() }
    }
}

impl<K: Copy + Ord> Heap<K> {
    /// A heap with room for `members`.
    pub(crate) fn new(members: usize) -> Self {
        let mut heap = Self::default();
        heap.grow(members);
        heap
    }

    /// Makes room for `members`, so that nothing below allocates.
    pub(crate) fn grow(&mut self, members: usize) {
        if self.places.len() < members {
            self.places.resize(members, NOWHERE);
        }
        self.items.reserve(members.saturating_sub(self.items.len()));
    }

    /// The least key and whose it is.
    pub(crate) fn peek(&self) -> Option<(K, usize)> {
        self.items.first().map(|&(key, member)| (key, member as usize))
    }

    pub(crate) fn contains(&self, member: usize) -> bool {
        self.places.get(member).is_some_and(|&place| place != NOWHERE)
    }

    /// Puts `member` in, or moves it to where its new key belongs. Room for it has been made by [`Heap::grow`].
    pub(crate) fn set(&mut self, member: usize, key: K) {
        let Ok(number) = u32::try_from(member) else { return };
        let place = match self.places[member] {
            NOWHERE => {
                self.items.push((key, number));
                self.items.len() - 1
            }
            place => {
                self.items[place as usize].0 = key;
                place as usize
            }
        };
        self.settle(place);
    }

    /// Takes `member` out, if it is in.
    pub(crate) fn remove(&mut self, member: usize) {
        let Some(&place) = self.places.get(member) else { return };
        if place == NOWHERE {
            return;
        }
        self.places[member] = NOWHERE;
        self.items.swap_remove(place as usize);
        if (place as usize) < self.items.len() {
            self.settle(place as usize);
        }
    }

    /// Moves what is at `place` up or down until the order holds.
    fn settle(&mut self, mut place: usize) {
        let item = self.items[place];
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.items[parent] <= item {
                break;
            }
            self.put(place, self.items[parent]);
            place = parent;
        }
        loop {
            let mut child = 2 * place + 1;
            if child + 1 < self.items.len() && self.items[child + 1] < self.items[child] {
                child += 1;
            }
            if child >= self.items.len() || item <= self.items[child] {
                break;
            }
            self.put(place, self.items[child]);
            place = child;
        }
        self.put(place, item);
    }

    fn put(&mut self, place: usize, item: (K, u32)) {
        self.items[place] = item;
        self.places[item.1 as usize] = u32::try_from(place).unwrap_or(NOWHERE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_top_is_the_least_whatever_was_put_in_moved_and_taken_out(
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
