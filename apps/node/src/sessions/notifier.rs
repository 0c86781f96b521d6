//! Waking of a session's modules when the session's memory is low, so that they can handle this event.

use crate::core_thread::runner::Waker;
use crate::sync::{OrderedMutex, rank};
use std::collections::BTreeMap;

/// Wakes all modules of a session when memory runs low.
#[derive(Debug, Default)]
pub(crate) struct SessionNotifier {
    modules: OrderedMutex<BTreeMap<u64, Waker>, { rank::WOKEN }>,
}

impl SessionNotifier {
    /// Adds a module, by its number on the node, with the waker of its core.
    pub(crate) fn add(&self, module: u64, waker: Waker) {
        self.modules.lock().insert(module, waker);
    }

    /// Removes a module.
    pub(crate) fn remove(&self, module: u64) {
        self.modules.lock().remove(&module);
    }

    /// Wakes all modules.
    pub(crate) fn notify_all(&self) {
        self.modules.lock().iter().for_each(|(module, waker)| waker.wake_for_event(*module));
    }
}
