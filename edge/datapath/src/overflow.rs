//! The memory of a queue, for packets that wait too long to stay where they arrived.
//!
//! Packets stay where they arrived as long as possible, so a reader that keeps up costs no copy. Two kinds of memory
//! cannot wait for a slow reader:
//!
//! - The kernel fills the ring of a packet socket in order. A block that is still held when the kernel comes to it
//!   again stops reception.
//! - A selection's memory is shared by its readers. Each of its chunks (parts of an arena) stays in use while a packet
//!   in it waits.
//!
//! When the memory of waiting packets is needed again, they are copied to memory of the queue.

use crate::queue::QueueEntry;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_netio::Selection;

/// An allocator of memory for a queue, which takes it from a reservation.
pub trait QueueMemory: Debug + Send + Sync {
    /// Allocates memory for `packets` packets; `None` if there is no memory now. `is_first` is true on the first
    /// request, so that the implementation reports an error only once.
    fn allocate(&self, packets: u32, is_first: bool) -> Option<Selection>;
}

/// The memory of one queue. The memory is mapped when the queue first needs it, and released when no packet is in it.
#[derive(Debug)]
pub struct Overflow {
    /// The number of packets for which memory is allocated.
    packets: u32,
    own: Mutex<OwnMemory>,
    /// True while memory is mapped. It can be read without the lock of `own`.
    is_mapped: AtomicBool,
    allocator: Box<dyn QueueMemory>,
}

/// The queue's own memory, and the requests for it.
#[derive(Debug, Default)]
struct OwnMemory {
    memory: Option<Box<Selection>>,
    /// True once memory was requested.
    was_requested: bool,
    /// The time of the last request that the system refused for lack of memory or descriptors.
    failed: Option<Instant>,
}

/// The interval after which memory that the system refused is requested again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

impl Overflow {
    /// Creates the memory of a queue for `packets` packets. `allocator` allocates it when it is first needed.
    pub fn new(packets: u32, allocator: Box<dyn QueueMemory>) -> Self {
        Self { packets, own: Mutex::default(), is_mapped: AtomicBool::new(false), allocator }
    }

    /// Returns true while memory is mapped, in use or not.
    pub fn is_mapped(&self) -> bool {
        self.is_mapped.load(Ordering::Relaxed)
    }

    /// Releases the memory if no packet is in it and no module has it mapped. Returns true if it was released.
    pub fn release(&self) -> bool {
        if !self.is_mapped() {
            return false;
        }
        let unused = {
            let mut own = self.lock();
            let unused = own.memory.take_if(|memory| memory.is_unused());
            self.is_mapped.store(own.memory.is_some(), Ordering::Relaxed);
            unused
        };
        // Unmapped after the lock is released, because unmapping takes long.
        unused.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, OwnMemory> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies the packets of a queue entry to this memory; `None` if they do not all fit.
    pub fn copy(&self, entry: &QueueEntry) -> Option<QueueEntry> {
        let mut own = self.lock();
        if own.memory.is_none() && own.failed.is_none_or(|at| at.elapsed() >= RETRY_INTERVAL) {
            let is_first = !std::mem::replace(&mut own.was_requested, true);
            own.memory = self.allocator.allocate(self.packets, is_first).map(Box::new);
            own.failed = own.memory.is_none().then(Instant::now);
            self.is_mapped.store(own.memory.is_some(), Ordering::Relaxed);
        }
        let selection = own.memory.as_mut()?;
        let mut masks = vec![0; entry.batch + 1];
        *masks.last_mut()? = entry.mask;
        let copied = selection.select(&entry.block, &masks);
        if copied.lost > 0 {
            return None;
        }
        let block = copied.block?;
        let mask = block.batch(0).mask;
        Some(QueueEntry { block: Arc::new(block), batch: 0, mask, position: entry.position, is_moved: true })
    }

    /// Memory for tests, without a reservation.
    #[cfg(test)]
    pub(crate) fn unreserved(packets: u32) -> Self {
        Self::within(packets, None)
    }

    /// Memory for tests, taken from `room`.
    #[cfg(test)]
    pub(crate) fn within(packets: u32, room: Option<Arc<weir_netio::MemoryQuota>>) -> Self {
        #[derive(Debug)]
        struct Room(Option<Arc<weir_netio::MemoryQuota>>);
        impl QueueMemory for Room {
            fn allocate(&self, packets: u32, _: bool) -> Option<Selection> {
                Selection::of_queue(packets, self.0.as_ref()).ok()
            }
        }
        Self::new(packets, Box::new(Room(room)))
    }
}
