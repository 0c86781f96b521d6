//! A cache for one value that is expensive to compute and requested often: metrics, and the snapshot for holders.

use crate::sync::{OrderedMutex, rank};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A value that is computed at most once in a given time, unless it is invalidated.
#[derive(Debug)]
pub(crate) struct SingleValueCache<T> {
    /// The age up to which the value is returned again.
    age_max: Duration,
    /// The number of invalidations.
    generation: AtomicU64,
    last: OrderedMutex<Option<CacheEntry<T>>, { rank::SNAPSHOT }>,
}

/// A computed value.
#[derive(Debug)]
struct CacheEntry<T> {
    /// The time at the end of the computation.
    computed: Instant,
    /// The generation when the computation began.
    generation: u64,
    value: Arc<T>,
}

impl<T> SingleValueCache<T> {
    pub(crate) fn new(age_max: Duration) -> Self {
        Self { age_max, generation: AtomicU64::new(0), last: OrderedMutex::new(None) }
    }

    /// Makes the next call of [`Self::get`] compute the value again.
    pub(crate) fn invalidate(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the cached value, or computes it if it is too old or invalidated. Concurrent callers wait for one
    /// computation and share its result.
    pub(crate) fn get(&self, compute: impl FnOnce() -> T) -> Arc<T> {
        let mut last = self.last.lock();
        let generation = self.generation.load(Ordering::Acquire);
        if let Some(last) = last
            .as_ref()
            .filter(|last| last.generation == generation && last.computed.elapsed() < self.age_max)
        {
            return Arc::clone(&last.value);
        }
        let value = Arc::new(compute());
        *last = Some(CacheEntry { computed: Instant::now(), generation, value: Arc::clone(&value) });
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn a_value_is_computed_once_until_it_is_invalidated_or_too_old() {
        let computed = AtomicUsize::new(0);
        let compute = || computed.fetch_add(1, Ordering::AcqRel);
        let cached = SingleValueCache::new(Duration::from_secs(3600));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..100).for_each(|_| assert_eq!(*cached.get(compute), 0)));
            }
        });
        assert_eq!(computed.load(Ordering::Acquire), 1);
        cached.invalidate();
        assert_eq!((*cached.get(compute), *cached.get(compute)), (1, 1));
        // An invalidation during a computation concerns its result, too.
        cached.invalidate();
        let during = cached.get(|| {
            cached.invalidate();
            compute()
        });
        assert_eq!((*during, *cached.get(compute), *cached.get(compute)), (2, 3, 3));
        let old = SingleValueCache::new(Duration::ZERO);
        assert_eq!((*old.get(|| 1), *old.get(|| 2)), (1, 2));
    }
}
