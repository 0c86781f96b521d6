//! The state that the receive threads of an interface share with the handle of the interface.

use crate::plan::ForwardingPlan;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use weir_demux::FragmentCounters;
use weir_netio::ReceiveDrops;
use weir_units::Nanos;

/// The state of an interface.
#[derive(Clone, Debug, Default)]
pub struct ReceiverState {
    /// True if the interface is up.
    pub is_up: bool,
    /// Packets received.
    pub packets: u64,
    /// Bytes on the link of the packets received.
    pub bytes: u64,
    /// Packets that the kernel dropped, by cause.
    pub drops: ReceiveDrops,
    /// Packets that no channel wanted.
    pub unwanted: u64,
    /// Counters of fragment tracking.
    pub fragments: FragmentCounters,
    /// The time that receive threads were ready to run but waited for a CPU.
    pub stolen: Nanos,
    /// The error that ended reading, if any.
    pub failed: Option<String>,
    /// The most recent events, oldest first.
    pub events: VecDeque<String>,
}

/// The state that a [`Receiver`](super::Receiver) and its threads share.
#[derive(Debug)]
pub(super) struct Shared {
    /// The latest plan.
    pub(super) plan: Mutex<Arc<ForwardingPlan>>,
    /// Plans no longer in use. The thread that publishes the next plan drops them, since that takes long.
    pub(super) retired: Mutex<Vec<Arc<ForwardingPlan>>>,
    pub(super) is_over: AtomicBool,
    /// The number of bytes that all threads have received so far, which is the position of the next block.
    pub(super) position: AtomicU64,
    pub(super) threads: Box<[ThreadShared]>,
}

/// The state that a [`Receiver`](super::Receiver) and one of its threads share.
#[derive(Debug)]
pub(super) struct ThreadShared {
    /// True until the thread has adopted the latest plan.
    pub(super) is_new: AtomicBool,
    /// The number of times that the receive thread has started or finished work by its plan. It is odd while the thread
    /// works.
    pub(super) activity: AtomicU64,
    pub(super) state: Mutex<ReceiverState>,
}

impl Shared {
    /// The state of `threads` threads that have not adopted this plan yet.
    pub(super) fn new(plan: Arc<ForwardingPlan>, threads: usize) -> Arc<Self> {
        let thread = || ThreadShared {
            is_new: AtomicBool::new(true),
            activity: AtomicU64::new(0),
            state: Mutex::default(),
        };
        Arc::new(Self {
            plan: Mutex::new(plan),
            retired: Mutex::default(),
            is_over: AtomicBool::new(false),
            position: AtomicU64::new(0),
            threads: (0..threads.max(1)).map(|_| thread()).collect(),
        })
    }
}

impl ReceiverState {
    /// The state of an interface with a further receive thread. Only the first thread reports most events.
    pub(super) fn plus(mut self, other: &ReceiverState) -> Self {
        self.packets = self.packets.saturating_add(other.packets);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.drops = self.drops.plus(other.drops);
        self.unwanted = self.unwanted.saturating_add(other.unwanted);
        self.fragments = self.fragments.plus(&other.fragments);
        self.stolen = Nanos(self.stolen.0.saturating_add(other.stolen.0));
        self.failed = self.failed.or_else(|| other.failed.clone());
        self.events.extend(other.events.iter().cloned());
        self
    }
}

/// A guard that marks a receive thread as working by its plan.
pub(super) struct BusyGuard {
    shared: Arc<Shared>,
    number: usize,
}

impl BusyGuard {
    pub(super) fn begin(shared: &Arc<Shared>, number: usize) -> Self {
        let guard = Self { shared: Arc::clone(shared), number };
        guard.count();
        guard
    }

    fn count(&self) {
        if let Some(thread) = self.shared.threads.get(self.number) {
            thread.activity.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.count();
    }
}
