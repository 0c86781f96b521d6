//! What takes long to make, and is asked for by many: it is made once for all who ask soon after one another.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The last one that was made.
#[derive(Debug)]
pub(crate) struct Recent<T> {
    /// For so long it is as good as a new one, unless something has changed.
    age: Duration,
    changes: AtomicU64,
    last: Mutex<Option<Last<T>>>,
}

#[derive(Debug)]
struct Last<T> {
    at: Instant,
    /// How often something had changed before it was begun.
    changes: u64,
    made: Arc<T>,
}

impl<T> Recent<T> {
    pub(crate) fn new(age: Duration) -> Self {
        Self { age, changes: AtomicU64::new(0), last: Mutex::default() }
    }

    /// Something has changed that who changed it expects to see: the next one who asks has a new one.
    pub(crate) fn outdate(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// The last one, or where that is too old, a new one. Who asks while it is made waits for it, and has the same.
    pub(crate) fn get(&self, new: impl FnOnce() -> T) -> Arc<T> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = self.changes.load(Ordering::Acquire);
        if let Some(last) =
            last.as_ref().filter(|last| last.changes == changes && last.at.elapsed() < self.age)
        {
            return Arc::clone(&last.made);
        }
        let made = Arc::new(new());
        *last = Some(Last { at: Instant::now(), changes, made: Arc::clone(&made) });
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn it_is_made_once_for_all_who_ask_until_something_changes_or_it_is_old() {
        let made = AtomicUsize::new(0);
        let make = || made.fetch_add(1, Ordering::AcqRel);
        let recent = Recent::new(Duration::from_secs(3600));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..100).for_each(|_| assert_eq!(*recent.get(make), 0)));
            }
        });
        assert_eq!(made.load(Ordering::Acquire), 1);
        recent.outdate();
        assert_eq!((*recent.get(make), *recent.get(make)), (1, 1));
        // What changes while one is made is not in it.
        recent.outdate();
        let during = recent.get(|| {
            recent.outdate();
            make()
        });
        assert_eq!((*during, *recent.get(make), *recent.get(make)), (2, 3, 3));
        let old = Recent::new(Duration::ZERO);
        assert_eq!((*old.get(|| 1), *old.get(|| 2)), (1, 2));
    }
}
