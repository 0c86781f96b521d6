//! Has the modules of a session look for what is new.

use crate::runner::Waker;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Tells all modules of a session that there is something new for them.
#[derive(Debug, Default)]
pub(crate) struct SessionNotifier {
    modules: Mutex<BTreeMap<u64, Waker>>,
}

impl SessionNotifier {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Waker>> {
        self.modules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A module that hears it from now on, by its number on the node.
    pub(crate) fn add(&self, guest: u64, waker: Waker) {
        self.lock().insert(guest, waker);
    }

    /// It is there no longer.
    pub(crate) fn remove(&self, guest: u64) {
        self.lock().remove(&guest);
    }

    /// There is something new.
    pub(crate) fn ring(&self) {
        self.lock().iter().for_each(|(guest, waker)| waker.wake_for_news(*guest));
    }
}
