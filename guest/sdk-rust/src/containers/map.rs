//! The hash map.

use super::{scale, tag_of, Key, WAYS};

/// An entry of a map.
#[derive(Clone, Copy, Debug)]
pub struct MapEntry<K, V> {
    /// The key.
    pub key: K,
    /// The value.
    pub value: V,
}

/// The result of [`Map::add`].
#[derive(Debug)]
pub struct Added<'a, K, V> {
    /// The key's value; a new one is the map's first value.
    pub value: &'a mut V,
    /// The entry that lost its place to the key.
    pub evicted: Option<MapEntry<K, V>>,
}

/// The tag of a key's hash, 0 for a free entry, and the map's clock at the entry's last use.
#[derive(Clone, Copy)]
struct Mark {
    tag: u32,
    used: u32,
}

/// The marks, so that those of a set are in one cache line.
#[repr(align(64))]
struct Marks<const CAPACITY: usize>([Mark; CAPACITY]);

/// A hash map of `CAPACITY` entries, a multiple of 8.
///
/// The map is divided into sets of 8 entries. If a key's set is full, [`add`](Self::add) evicts the set's least recently
/// used entry, before the whole map is full: of `CAPACITY` / 4 keys, about 1 of 6,800 has no place, of `CAPACITY` / 2 keys
/// 1 of 120, of `CAPACITY` keys 1 of 7. So choose twice to four times the expected number of keys, and report entries that
/// are evicted. Maps are not indexed by the top bits of `flow_hash`, so modules that use them need `parallel = "none"`.
pub struct Map<K, V, const CAPACITY: usize> {
    marks: Marks<CAPACITY>,
    entries: [MapEntry<K, V>; CAPACITY],
    first_value: V,
    evictions: u64,
    len: u32,
    clock: u32,
}

impl<K: Key, V: Copy, const CAPACITY: usize> Map<K, V, CAPACITY> {
    const SETS: usize = {
        assert!(CAPACITY > 0 && CAPACITY % WAYS == 0, "the capacity is a multiple of 8");
        CAPACITY / WAYS
    };

    /// Returns an empty map. New keys have the value `first_value`, which should be made of zeros.
    pub const fn new(first_value: V) -> Self {
        Self {
            marks: Marks([Mark { tag: 0, used: 0 }; CAPACITY]),
            entries: [MapEntry { key: K::ZERO, value: first_value }; CAPACITY],
            first_value,
            evictions: 0,
            len: 0,
            clock: 0,
        }
    }

    /// Returns the slot of a key, which is then the most recently used one of its set.
    #[inline(always)]
    fn slot(&mut self, key: &K, hash: u64) -> Option<usize> {
        let first = scale(hash, Self::SETS) * WAYS;
        let tag = tag_of(hash);
        for way in 0..WAYS {
            if self.marks.0[first + way].tag == tag && self.entries[first + way].key.is(key) {
                self.clock = self.clock.wrapping_add(1);
                self.marks.0[first + way].used = self.clock;
                return Some(first + way);
            }
        }
        None
    }

    /// Returns the slot for a new key: a free one of its set, else that of the least recently used entry. Ages are
    /// differences that may wrap around: an entry that was not used for 2^32 uses of the map can look young, which is
    /// harmless.
    #[inline(always)]
    fn place(&self, hash: u64) -> usize {
        let first = scale(hash, Self::SETS) * WAYS;
        let (mut place, mut oldest) = (first, 0);
        for way in 0..WAYS {
            let mark = self.marks.0[first + way];
            let age = if mark.tag == 0 { u64::MAX } else { u64::from(self.clock.wrapping_sub(mark.used)) };
            if age > oldest {
                oldest = age;
                place = first + way;
            }
        }
        place
    }

    /// Returns the value of a key. This counts as a use.
    #[inline]
    pub fn find(&mut self, key: &K) -> Option<&mut V> {
        let slot = self.slot(key, key.hash())?;
        Some(&mut self.entries[slot].value)
    }

    /// Returns the value of a key, which is added if the map does not have it.
    #[inline]
    pub fn add(&mut self, key: K) -> Added<'_, K, V> {
        let hash = key.hash();
        if let Some(slot) = self.slot(&key, hash) {
            return Added { value: &mut self.entries[slot].value, evicted: None };
        }
        let slot = self.place(hash);
        let is_full = self.marks.0[slot].tag != 0;
        self.clock = self.clock.wrapping_add(1);
        self.marks.0[slot] = Mark { tag: tag_of(hash), used: self.clock };
        self.evictions += u64::from(is_full);
        self.len += u32::from(!is_full);
        let entry = &mut self.entries[slot];
        let evicted = is_full.then_some(*entry);
        *entry = MapEntry { key, value: self.first_value };
        Added { value: &mut entry.value, evicted }
    }

    /// Removes a key, and returns its value.
    #[inline]
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let slot = self.slot(key, key.hash())?;
        self.marks.0[slot].tag = 0;
        self.len -= 1;
        Some(self.entries[slot].value)
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        self.marks.0.fill(Mark { tag: 0, used: 0 });
        self.len = 0;
    }

    /// Returns the number of entries.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns true if there is no entry.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of entries that lost their place since the start.
    pub const fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Calls a function for each entry, in no particular order. It goes through the whole capacity.
    #[inline(always)]
    pub fn each(&mut self, mut function: impl FnMut(&mut MapEntry<K, V>)) {
        for slot in 0..CAPACITY {
            if self.marks.0[slot].tag != 0 {
                function(&mut self.entries[slot]);
            }
        }
    }

    /// Calls a function for each entry, and removes those for which it returns false.
    #[inline(always)]
    pub fn retain(&mut self, mut function: impl FnMut(&mut MapEntry<K, V>) -> bool) {
        for slot in 0..CAPACITY {
            if self.marks.0[slot].tag != 0 && !function(&mut self.entries[slot]) {
                self.marks.0[slot].tag = 0;
                self.len -= 1;
            }
        }
    }

    /// Calls a function for the entries of a part of the map: of `COUNT` slots from `position` on, free ones included. For
    /// a map with more rows than a call may emit. Moves the position behind the part, and returns true if slots are left:
    /// `self.map.part::<1024>(&mut self.position, report)` as the result of `rest`.
    #[inline(always)]
    pub fn part<const COUNT: usize>(
        &mut self,
        position: &mut usize,
        mut function: impl FnMut(&mut MapEntry<K, V>),
    ) -> bool {
        let first = *position;
        for i in 0..COUNT {
            let slot = first.wrapping_add(i);
            if slot < CAPACITY && self.marks.0[slot].tag != 0 {
                function(&mut self.entries[slot]);
            }
        }
        *position = if first < CAPACITY { (first + COUNT).min(CAPACITY) } else { first };
        *position < CAPACITY
    }
}
