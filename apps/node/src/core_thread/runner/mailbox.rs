//! The mailbox of a core's thread. Other threads put requests in, and wake the thread.

use super::Runner;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Instant;
use weir_datapath::plan::Wake;
use weir_units::Nanos;

type Job = Box<dyn FnOnce(&mut Runner) + Send>;

/// Requests to a core's thread, which reads them between two runs.
#[derive(Default)]
pub(super) struct Mailbox {
    pub(super) jobs: Mutex<Vec<Job>>,
    /// Modules with waiting packets, by the time of the request.
    pub(super) woken: Mutex<Vec<(Instant, u64)>>,
    /// Modules with other work than packets, and the time of its first request.
    pub(super) news: Mutex<BTreeMap<u64, Instant>>,
    /// Modules that have to release the packets in hand before this position.
    pub(super) lagging: Mutex<BTreeMap<u64, u64>>,
    /// Processor time that others spent on behalf of modules, ns.
    pub(super) debts: Mutex<BTreeMap<u64, u64>>,
    pub(super) any: AtomicBool,
    pub(super) thread: OnceLock<Thread>,
}

impl Mailbox {
    fn ring(&self) {
        if !self.any.swap(true, Ordering::AcqRel)
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

impl Wake for Mailbox {
    fn wake(&self, module: u64) {
        lock(&self.woken).push((Instant::now(), module));
        self.ring();
    }

    fn release(&self, module: u64, position: u64) {
        lock(&self.lagging).insert(module, position);
        self.ring();
    }
}

impl Waker {
    /// What the packet path wakes modules with.
    pub(crate) fn for_packets(&self) -> Arc<dyn Wake> {
        Arc::<Mailbox>::clone(&self.0)
    }

    /// Wakes a module for other work than packets. Requests that come before the thread looks count as one.
    pub fn wake_for_news(&self, guest: u64) {
        lock(&self.0.news).entry(guest).or_insert_with(Instant::now);
        self.0.ring();
    }

    /// Has the core's thread do a job between two runs.
    pub(crate) fn tell(&self, job: impl FnOnce(&mut Runner) + Send + 'static) {
        lock(&self.0.jobs).push(Box::new(job));
        self.0.ring();
    }

    /// Debits the virtual processor of a module for time that others spent on its behalf.
    pub fn debit(&self, guest: u64, time: Nanos) {
        let mut debts = lock(&self.0.debts);
        let debt = debts.entry(guest).or_default();
        *debt = debt.saturating_add(time.0);
        drop(debts);
        self.0.ring();
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
