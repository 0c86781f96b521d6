//! Mutexes with a defined order of locking, so that no two threads wait for each other.
//!
//! - [`LeafMutex`] holds a value that is used for one step. It has no guard, and no other mutex is locked in the step.
//! - [`OrderedMutex`] has a [rank](rank) in its type. A thread locks mutexes in the order of their ranks, lowest first.
//!   [`OrderedMutex::lock_after`] takes the guard of the outer mutex, and the compiler checks the order.
//!   [`OrderedMutex::lock`] compares the rank with all ranks that the thread holds. A wrong order could become a
//!   deadlock with another thread, so it is an error even where no other thread waits: see [`OrderError`].
//!
//! Two mutexes of this crate are of neither type, as other code needs the plain one: that of the compile queue, on which
//! threads wait by a condition variable, and that of a selection, which the packet path shares.
//!
//! A panic does not poison a mutex, so the node continues after a panic in the thread of one client.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The ranks, in the order in which mutexes are locked. A thread can hold one mutex of each rank.
pub(crate) mod rank {
    /// Held during a reload, so that reloads run one after the other.
    pub(crate) const RELOAD: u8 = 0;
    /// Held during a change of the revocations, including the write to their files.
    pub(crate) const REVOCATIONS: u8 = 1;
    /// The cached snapshot. All clients that wait for a snapshot get the same one.
    pub(crate) const SNAPSHOT: u8 = 2;
    /// The saved sessions. Saves run one after the other, so an older state never replaces a newer one.
    pub(crate) const STORE: u8 = 3;
    /// The ledger. It is locked before the node, so that its entries are in the order in which the changes took effect.
    pub(crate) const LEDGER: u8 = 4;
    /// The node.
    pub(crate) const NODE: u8 = 5;
    /// The modules with record files.
    pub(crate) const RECORDS: u8 = 6;
    /// The tables that a module may read or publish.
    pub(crate) const TABLE_GRANTS: u8 = 7;
    /// The map from names to tables.
    pub(crate) const TABLES: u8 = 8;
    /// The number of a table's last version, while the next one is written.
    pub(crate) const TABLE_NUMBER: u8 = 9;
    /// The contents and the owner of a table.
    pub(crate) const TABLE: u8 = 10;
    /// The exchange of the service bus.
    pub(crate) const SERVICES: u8 = 11;
    /// The modules that are woken for an event: readers of a table, or the modules of a session.
    pub(crate) const WOKEN: u8 = 12;
    /// A module's open record files.
    pub(crate) const MODULE_RECORDS: u8 = 13;
    /// The record files of all sessions, with their sizes.
    pub(crate) const RECORD_FILES: u8 = 14;
    /// Independent state, such as quotas and rate limits. After it, only a [`LeafMutex`](super::LeafMutex) is locked.
    pub(crate) const INDEPENDENT: u8 = 15;
    /// Any [`LeafMutex`](super::LeafMutex).
    pub(super) const LEAF: u8 = 31;
}

thread_local! {
    /// The ranks of the mutexes that this thread holds, one bit each.
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// Returns true if a thread that holds mutexes of the ranks `held`, one bit each, may lock one of this rank.
const fn may_lock(held: u32, rank: u8) -> bool {
    held >> rank == 0
}

/// The environment variable with which a wrong order panics. Tests set it. A node in operation only logs the error,
/// because a possible deadlock is better than a certain stop of the node.
const PANIC_VARIABLE: &str = "WEIR_LOCK_ORDER_PANICS";

/// An attempt to lock a mutex out of order.
#[derive(Clone, Copy, Debug)]
struct OrderError {
    rank: u8,
    held: u32,
}

impl OrderError {
    /// Panics in tests. Otherwise logs the first error of the process.
    fn report(self) {
        static IS_LOGGED: AtomicBool = AtomicBool::new(false);
        let Self { rank, held } = self;
        let text = format!("a mutex of rank {rank} is locked while the ranks {held:#b} are held");
        assert!(!cfg!(test) && std::env::var_os(PANIC_VARIABLE).is_none(), "{text}");
        if !IS_LOGGED.swap(true, Ordering::Relaxed) {
            crate::log::warn(&format_args!("{text}: this is a defect of weir, please report it"));
        }
    }
}

/// The entry of a locked mutex in [`HELD`].
#[derive(Debug)]
struct Held(u8);

impl Held {
    /// Enters a mutex that is about to be locked.
    fn new(rank: u8) -> Self {
        let held = HELD.get();
        if !may_lock(held, rank) {
            OrderError { rank, held }.report();
        }
        HELD.set(held | (1 << rank));
        Self(rank)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.set(HELD.get() & !(1 << self.0));
    }
}

/// A mutex for a value that is used for one step.
#[derive(Debug, Default)]
pub(crate) struct LeafMutex<T>(Mutex<T>);

impl<T> LeafMutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Uses the value.
    ///
    /// `step` must not lock another mutex: that is an [`OrderError`].
    pub(crate) fn with<R>(&self, step: impl FnOnce(&mut T) -> R) -> R {
        let _held = Held::new(rank::LEAF);
        step(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns a copy of the value.
    pub(crate) fn get(&self) -> T
    where
        T: Clone,
    {
        self.with(|value| value.clone())
    }

    /// Replaces the value. The old one is dropped after the mutex was unlocked.
    pub(crate) fn set(&self, value: T) {
        drop(self.with(|old| std::mem::replace(old, value)));
    }

    /// Takes the value, and leaves the default one.
    pub(crate) fn take(&self) -> T
    where
        T: Default,
    {
        self.with(std::mem::take)
    }
}

/// A mutex with a place in the order of all mutexes.
#[derive(Debug, Default)]
pub(crate) struct OrderedMutex<T, const RANK: u8>(Mutex<T>);

/// A locked [`OrderedMutex`].
#[derive(Debug)]
pub(crate) struct OrderedGuard<'a, T, const RANK: u8> {
    guard: MutexGuard<'a, T>,
    _held: Held,
}

impl<T, const RANK: u8> OrderedMutex<T, RANK> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Locks the mutex.
    ///
    /// The thread must not hold a mutex of this rank or a higher one: that is an [`OrderError`].
    pub(crate) fn lock(&self) -> OrderedGuard<'_, T, RANK> {
        let held = Held::new(RANK);
        OrderedGuard { guard: self.0.lock().unwrap_or_else(PoisonError::into_inner), _held: held }
    }

    /// Locks the mutex while `outer` is locked. The program compiles only if the rank of `outer` is lower.
    pub(crate) fn lock_after<U, const OUTER: u8>(
        &self,
        _outer: &OrderedGuard<'_, U, OUTER>,
    ) -> OrderedGuard<'_, T, RANK> {
        const { assert!(may_lock(1 << OUTER, RANK), "the outer mutex has a rank that is not lower") };
        self.lock()
    }
}

impl<T, const RANK: u8> Deref for OrderedGuard<'_, T, RANK> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T, const RANK: u8> DerefMut for OrderedGuard<'_, T, RANK> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The condition that `lock_after` asserts at compile time.
    const _: () =
        assert!(may_lock(1 << rank::LEDGER, rank::NODE) && !may_lock(1 << rank::NODE, rank::LEDGER));
    const _: () = assert!(!may_lock(1 << rank::NODE, rank::NODE) && may_lock(0, rank::RELOAD));

    #[test]
    fn mutexes_are_locked_in_the_order_of_their_ranks_and_released_in_any() {
        let (outer, inner) = (OrderedMutex::<_, 4>::new(1), OrderedMutex::<_, 5>::new(2));
        let first = outer.lock();
        let second = inner.lock_after(&first);
        assert_eq!(*first + *second, 3);
        drop(first);
        drop(second);
        *inner.lock() += 1;
        assert_eq!((*outer.lock(), *inner.lock()), (1, 3));
    }

    #[test]
    fn a_step_on_a_leaf_locks_no_other_mutex() {
        let (leaf, other) = (LeafMutex::new(1), LeafMutex::new(2));
        let ordered = OrderedMutex::<_, { rank::INDEPENDENT }>::new(3);
        let guard = ordered.lock();
        assert_eq!(leaf.get() + other.get() + *guard, 6);
        drop(guard);
        let steps: [&(dyn Fn() + Sync); 2] = [&|| drop(ordered.lock()), &|| _ = other.get()];
        for step in steps {
            let tried = std::thread::scope(|scope| scope.spawn(|| leaf.with(|_| step())).join());
            assert!(tried.is_err());
        }
        assert_eq!((leaf.get(), other.get(), *ordered.lock()), (1, 2, 3));
    }

    #[test]
    fn a_wrong_order_panics_even_without_another_thread() {
        let (outer, inner) = (OrderedMutex::<_, 4>::new(1), OrderedMutex::<_, 5>::new(2));
        for wrong in [&outer as &(dyn AnyRank + Sync), &inner] {
            let tried = std::thread::scope(|scope| {
                scope
                    .spawn(|| {
                        let _inner = inner.lock();
                        wrong.lock_and_unlock();
                    })
                    .join()
            });
            assert!(tried.is_err());
        }
        // The thread that panicked has released what it held.
        assert_eq!((*outer.lock(), *inner.lock()), (1, 2));
    }

    /// A mutex of any rank.
    trait AnyRank {
        fn lock_and_unlock(&self);
    }

    impl<const RANK: u8> AnyRank for OrderedMutex<i32, RANK> {
        fn lock_and_unlock(&self) {
            drop(self.lock());
        }
    }
}
