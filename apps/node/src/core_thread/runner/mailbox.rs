//! The mailbox of a core thread. Other threads put requests into it and wake the thread.

use super::Runner;
use crate::sync::LeafMutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Instant;
use weir_datapath::plan::ModuleWaker;
use weir_units::Nanos;

type Job = Box<dyn FnOnce(&mut Runner) + Send>;

/// Requests to a core thread, which reads them between two runs.
#[derive(Default)]
pub(super) struct Mailbox {
    pub(super) jobs: LeafMutex<Vec<Job>>,
    /// Modules with waiting packets, each with the time of the request.
    pub(super) woken: LeafMutex<Vec<(Instant, u64)>>,
    /// Modules with events, and the time of the first request.
    pub(super) events: LeafMutex<BTreeMap<u64, Instant>>,
    /// For each module that lags, the position of its channel before which it has to release its packets in hand.
    pub(super) lagging: LeafMutex<BTreeMap<u64, u64>>,
    /// CPU time that other threads spent on behalf of each module, in ns.
    pub(super) debts: LeafMutex<BTreeMap<u64, u64>>,
    /// True if another thread has put a request in since the last reading.
    pub(super) has_requests: AtomicBool,
    /// The core thread; empty until the thread has started.
    pub(super) thread: OnceLock<Thread>,
}

impl Mailbox {
    /// Wakes the thread, unless it has been woken and has not read its mailbox yet.
    fn notify(&self) {
        if !self.has_requests.swap(true, Ordering::AcqRel)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }
}

/// Wakes modules on a core.
#[derive(Clone, Default)]
pub struct Waker(pub(super) Arc<Mailbox>);

impl std::fmt::Debug for Waker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Waker").finish()
    }
}

impl std::fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailbox").finish_non_exhaustive()
    }
}

impl ModuleWaker for Mailbox {
    fn wake(&self, module: u64) {
        self.woken.with(|woken| woken.push((Instant::now(), module)));
        self.notify();
    }

    fn release(&self, module: u64, position: u64) {
        self.lagging.with(|lagging| lagging.insert(module, position));
        self.notify();
    }
}

impl Waker {
    /// Returns the waker that the packet path uses.
    pub(crate) fn for_packets(&self) -> Arc<dyn ModuleWaker> {
        Arc::<Mailbox>::clone(&self.0)
    }

    /// Wakes a module for an event. Several requests for one module between two runs of the thread count as one.
    pub fn wake_for_event(&self, module: u64) {
        self.0.events.with(|events| _ = events.entry(module).or_insert_with(Instant::now));
        self.0.notify();
    }

    /// Runs a job on the core thread between two runs.
    pub(crate) fn submit(&self, job: impl FnOnce(&mut Runner) + Send + 'static) {
        self.0.jobs.with(|jobs| jobs.push(Box::new(job)));
        self.0.notify();
    }

    /// Debits the virtual CPU of a module for time that other threads spent on its behalf.
    pub fn debit(&self, module: u64, time: Nanos) {
        self.0.debts.with(|debts| {
            let debt = debts.entry(module).or_default();
            *debt = debt.saturating_add(time.0);
        });
        self.0.notify();
    }
}
