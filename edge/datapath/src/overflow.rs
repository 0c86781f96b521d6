//! The memory of a queue, for packets that wait for too long to stay where they arrived.
//!
//! Packets stay where they arrived as long as they can, so a reader that keeps up costs no copy. Two kinds of memory cannot wait for a slow one:
//!
//! - The kernel fills the ring of a packet socket in turn: a block that is held for a whole turn stops it.
//! - The memory of a selection belongs to all of its readers, and a piece of it is in use as long as one of its packets waits.
//!
//! When a piece is needed again, its waiting packets are copied to memory of the queue.

use crate::queue::BatchTicket;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_netio::Selection;

/// The account that the memory of a queue is on.
pub trait QueueMemory: Debug + Send + Sync {
    /// Makes memory for so many packets; `None` where there is none now. `is_first` is true when it is asked for the first time, so that a fault is told once.
    fn make(&self, packets: u32, is_first: bool) -> Option<Selection>;
}

/// The memory of one queue, which is mapped when it is first needed, and given back when it is not needed any more.
#[derive(Debug)]
pub struct Overflow {
    packets: u32,
    own: Mutex<Own>,
    /// There is memory: looked at before the lock is taken.
    is_made: AtomicBool,
    budget: Box<dyn QueueMemory>,
}

#[derive(Debug, Default)]
struct Own {
    memory: Option<Box<Selection>>,
    /// The budget has been asked.
    was_asked: bool,
    /// The system had no memory, or no descriptors, at this time.
    failed: Option<Instant>,
}

/// The time after which memory that the system did not have is asked for again.
const AGAIN: Duration = Duration::from_secs(1);

impl Overflow {
    /// Memory for so many packets, made by the budget when it is needed.
    pub fn new(packets: u32, budget: Box<dyn QueueMemory>) -> Self {
        Self { packets, own: Mutex::default(), is_made: AtomicBool::new(false), budget }
    }

    /// Returns true where there is memory, needed or not.
    pub fn is_made(&self) -> bool {
        self.is_made.load(Ordering::Relaxed)
    }

    /// Gives the memory back where no packet is in it and no module has it mapped. Returns true if it did.
    pub fn give_back(&self) -> bool {
        if !self.is_made() {
            return false;
        }
        let unused = {
            let mut own = self.lock();
            let unused = own.memory.take_if(|memory| memory.is_unused());
            self.is_made.store(own.memory.is_some(), Ordering::Relaxed);
            unused
        };
        // Without the lock: it takes a while.
        unused.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies a ticket's packets to this memory; `None` where not all of them fit.
    pub fn copy(&self, ticket: &BatchTicket) -> Option<BatchTicket> {
        let mut own = self.lock();
        if own.memory.is_none() && own.failed.is_none_or(|at| at.elapsed() >= AGAIN) {
            let is_first = !std::mem::replace(&mut own.was_asked, true);
            own.memory = self.budget.make(self.packets, is_first).map(Box::new);
            own.failed = own.memory.is_none().then(Instant::now);
            self.is_made.store(own.memory.is_some(), Ordering::Relaxed);
        }
        let selection = own.memory.as_mut()?;
        let mut masks = vec![0; ticket.batch + 1];
        *masks.last_mut()? = ticket.mask;
        let copied = selection.select(&ticket.block, &masks);
        if copied.lost > 0 {
            return None;
        }
        let block = copied.block?;
        let mask = block.batch(0).mask;
        Some(BatchTicket { block: Arc::new(block), batch: 0, mask, position: ticket.position, is_own: true })
    }

    /// Memory for tests, without a reservation.
    #[cfg(test)]
    pub(crate) fn unreserved(packets: u32) -> Self {
        Self::within(packets, None)
    }

    /// Memory for tests, as a part of this room.
    #[cfg(test)]
    pub(crate) fn within(packets: u32, room: Option<Arc<weir_netio::PacketBuffers>>) -> Self {
        #[derive(Debug)]
        struct Room(Option<Arc<weir_netio::PacketBuffers>>);
        impl QueueMemory for Room {
            fn make(&self, packets: u32, _: bool) -> Option<Selection> {
                Selection::of_queue(packets, self.0.as_ref()).ok()
            }
        }
        Self::new(packets, Box::new(Room(room)))
    }
}
