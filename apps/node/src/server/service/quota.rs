//! What clients have together: so many of them, and so many bytes of files.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir_trust::credential::PrefixId;

/// Bytes of the files that all clients together send at a time, at most: each is kept whole until it is dealt with, in memory that is nobody's.
const BODIES_MAX: usize = 4 * weir_abi::limit::TABLE_BYTES as usize;

/// Counts a client for as long as it is there.
#[derive(Debug)]
pub(super) struct ClientPermit(Arc<AtomicUsize>);

impl ClientPermit {
    /// Nothing where `most` are there.
    pub(super) fn take(clients: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let one_more = |there: usize| (there < most).then_some(there + 1);
        clients.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).ok()?;
        Some(Self(Arc::clone(clients)))
    }
}

impl Drop for ClientPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Places for peers from elsewhere, limited for all together and for each key or source.
#[derive(Debug)]
pub(super) struct PeerQuota<K> {
    taken: Mutex<BTreeMap<K, usize>>,
    most: usize,
    of_one: usize,
}

impl<K: Ord + Copy> PeerQuota<K> {
    /// `most` places for all, and `of_one` for each key or source.
    pub(super) fn new(most: usize, of_one: usize) -> Self {
        Self { taken: Mutex::default(), most, of_one }
    }

    /// A place; nothing where there is none left.
    pub(super) fn take(&self, key: K) -> Option<PeerPermit<'_, K>> {
        let mut taken = self.lock();
        if taken.values().sum::<usize>() >= self.most {
            return None;
        }
        let own = taken.get(&key).copied().unwrap_or(0);
        if own >= self.of_one {
            return None;
        }
        taken.insert(key, own + 1);
        Some(PeerPermit { places: self, key })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<K, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place of one peer, for as long as this is there.
#[derive(Debug)]
pub(super) struct PeerPermit<'a, K: Ord + Copy> {
    places: &'a PeerQuota<K>,
    key: K,
}

impl<K: Ord + Copy> Drop for PeerPermit<'_, K> {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        if let Some(own) = taken.get_mut(&self.key) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.key);
            }
        }
    }
}

/// Room for what clients send. Nobody takes all of it: a party of those who come from elsewhere has at most as much as is left for others then. So one alone has a half, of two each a
/// third, and there is always room for one more.
#[derive(Debug, Default)]
pub(super) struct UploadQuota(Mutex<BTreeMap<Option<PrefixId>, usize>>);

impl UploadQuota {
    /// Nothing where there is too little left. `of` is the first by whose right somebody asks; nobody for the operator, whose own all of it is.
    pub(super) fn take(&self, of: Option<PrefixId>, bytes: usize) -> Option<UploadPermit<'_>> {
        let mut taken = self.lock();
        let all = taken.values().sum::<usize>().checked_add(bytes)?;
        let left = BODIES_MAX.checked_sub(all)?;
        let own = taken.get(&of).copied().unwrap_or(0) + bytes;
        if bytes > 0 && of.is_some() && own > left {
            return None;
        }
        taken.insert(of, own);
        Some(UploadPermit { rooms: self, of, bytes })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Option<PrefixId>, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Room for a client's file, for as long as this is there.
#[derive(Debug)]
pub(super) struct UploadPermit<'a> {
    rooms: &'a UploadQuota,
    of: Option<PrefixId>,
    bytes: usize,
}

impl Drop for UploadPermit<'_> {
    fn drop(&mut self) {
        let mut taken = self.rooms.lock();
        if let Some(own) = taken.get_mut(&self.of) {
            *own -= self.bytes;
            if *own == 0 {
                taken.remove(&self.of);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_places_for_others_whatever_one_takes() {
        let key = |n: u8| weir_trust::key::Identity::from_seed(&[n; 32]).public();
        let places = PeerQuota::new(3, 2);
        let first = places.take(key(1)).unwrap();
        let _second = places.take(key(1)).unwrap();
        assert!(places.take(key(1)).is_none());
        let _other = places.take(key(2)).unwrap();
        assert!(places.take(key(2)).is_none() && places.take(key(3)).is_none());
        // A peer that finds no place leaves nothing behind.
        assert_eq!(places.lock().len(), 2);
        drop(first);
        assert!(places.take(key(3)).is_some());
        // Nothing is remembered of who has gone.
        assert_eq!(places.lock().len(), 2);
    }

    fn party(digit: char) -> Option<PrefixId> {
        Some(format!("weir-id:{}", digit.to_string().repeat(32)).parse().unwrap())
    }

    #[test]
    fn the_operator_has_room_for_so_many_bytes_of_files_and_it_comes_back() {
        let rooms = UploadQuota::default();
        let first = rooms.take(None, BODIES_MAX - 10).unwrap();
        let second = rooms.take(None, 10).unwrap();
        assert!(rooms.take(None, 1).is_none() && rooms.take(None, usize::MAX).is_none());
        // Who sends none needs none.
        assert!(rooms.take(None, 0).is_some());
        drop(second);
        assert!(rooms.take(None, 11).is_none() && rooms.take(None, 10).is_some());
        drop(first);
        assert!(rooms.lock().is_empty());
    }

    #[test]
    fn whatever_some_take_there_is_room_for_a_file_of_others() {
        let (rooms, file) = (UploadQuota::default(), weir_admission::MODULE_BYTES_MAX);
        let mut kept = Vec::new();
        let mut take_all = |of| {
            let before = kept.len();
            kept.extend(std::iter::from_fn(|| rooms.take(of, file)));
            kept.len() - before
        };
        // In files of 8 MiB, of which there would be room for 32: half of them; of what is left then half again.
        let parties = ['a', 'b', 'c', 'd'].map(party);
        assert_eq!(parties.map(&mut take_all), [16, 8, 4, 2]);
        assert!(rooms.take(parties[0], 1).is_none() && rooms.take(parties[0], usize::MAX).is_none());
        assert!(rooms.take(parties[0], 0).is_some());
        assert!(rooms.take(party('e'), file).is_some());
        drop(kept);
        assert!(rooms.lock().is_empty());
    }
}
