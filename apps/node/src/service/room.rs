//! What clients have together: so many of them, and so many bytes of files.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir_trust::key::PublicKey;

/// Bytes of the files that all clients together send at a time, at most: each is kept whole until it is dealt with, in memory that is nobody's.
const BODIES_MAX: usize = 4 * weir_abi::limit::TABLE_BYTES as usize;

/// Counts a client for as long as it is there.
#[derive(Debug)]
pub(super) struct Seat(Arc<AtomicUsize>);

impl Seat {
    /// Nothing where `most` are there.
    pub(super) fn take(clients: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let one_more = |there: usize| (there < most).then_some(there + 1);
        clients.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).ok()?;
        Some(Self(Arc::clone(clients)))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Places for clients from elsewhere, of which nobody takes all.
#[derive(Debug)]
pub(super) struct Seats {
    taken: Mutex<BTreeMap<PublicKey, usize>>,
    most: usize,
    of_one: usize,
}

impl Seats {
    /// So many for all, and for each key.
    pub(super) fn new(most: usize, of_one: usize) -> Self {
        Self { taken: Mutex::default(), most, of_one }
    }

    /// Nothing where there is none left.
    pub(super) fn take(&self, key: PublicKey) -> Option<OwnSeat<'_>> {
        let mut taken = self.lock();
        if taken.values().sum::<usize>() >= self.most {
            return None;
        }
        let own = taken.entry(key).or_default();
        if *own >= self.of_one {
            return None;
        }
        *own += 1;
        Some(OwnSeat { seats: self, key })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PublicKey, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place of one client, for as long as this is there.
#[derive(Debug)]
pub(super) struct OwnSeat<'a> {
    seats: &'a Seats,
    key: PublicKey,
}

impl Drop for OwnSeat<'_> {
    fn drop(&mut self) {
        let mut taken = self.seats.lock();
        if let Some(own) = taken.get_mut(&self.key) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.key);
            }
        }
    }
}

/// Room for a client's file, for as long as this is there.
pub(super) struct Room<'a> {
    taken: &'a AtomicUsize,
    bytes: usize,
}

impl<'a> Room<'a> {
    /// Nothing where others have taken too much.
    pub(super) fn take(taken: &'a AtomicUsize, bytes: usize) -> Option<Self> {
        let more = |taken: usize| taken.checked_add(bytes).filter(|all| *all <= BODIES_MAX);
        taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(Self { taken, bytes })
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_seats_for_others_whatever_one_takes() {
        let key = |n: u8| weir_trust::key::Identity::from_seed(&[n; 32]).public();
        let seats = Seats::new(3, 2);
        let first = seats.take(key(1)).unwrap();
        let _second = seats.take(key(1)).unwrap();
        assert!(seats.take(key(1)).is_none());
        let _other = seats.take(key(2)).unwrap();
        assert!(seats.take(key(2)).is_none() && seats.take(key(3)).is_none());
        drop(first);
        assert!(seats.take(key(3)).is_some());
        // Nothing is remembered of who has gone.
        assert_eq!(seats.lock().len(), 2);
    }

    #[test]
    fn there_is_room_for_so_many_bytes_of_files_and_it_comes_back() {
        let taken = AtomicUsize::new(0);
        let first = Room::take(&taken, BODIES_MAX - 10).unwrap();
        let second = Room::take(&taken, 10).unwrap();
        assert!(Room::take(&taken, 1).is_none() && Room::take(&taken, usize::MAX).is_none());
        // Who sends none needs none.
        assert!(Room::take(&taken, 0).is_some());
        drop(second);
        assert!(Room::take(&taken, 11).is_none() && Room::take(&taken, 10).is_some());
        drop(first);
        assert_eq!(taken.load(Ordering::Acquire), 0);
    }
}
