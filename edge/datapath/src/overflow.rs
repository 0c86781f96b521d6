//! The memory of a queue, for packets that wait for too long to stay where they arrived.
//!
//! Packets stay where they arrived as long as they can, so a reader that keeps up costs no copy. Two kinds of memory cannot wait for a slow one:
//!
//! - The kernel fills the ring of a packet socket in turn: a block that is held for a whole turn stops it.
//! - The memory of a selection belongs to all of its readers, and a piece of it is in use as long as one of its packets waits.
//!
//! When a piece is needed again, its waiting packets are copied to memory of the queue.

use crate::queue::Ticket;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_netio::Selection;

/// The account that the memory of a queue is on.
pub trait Budget: Debug + Send + Sync {
    /// Makes memory for so many packets; `None` where there is none now. `is_first` is true when it is asked for the first time, so that a fault is told once.
    fn make(&self, packets: u32, is_first: bool) -> Option<Selection>;
}

/// The memory of one queue, which is mapped when it is first needed.
#[derive(Debug)]
pub struct Overflow {
    packets: u32,
    own: Mutex<Own>,
    budget: Box<dyn Budget>,
}

#[derive(Debug, Default)]
enum Own {
    /// No packet has needed it yet.
    #[default]
    None,
    Made(Box<Selection>),
    /// The system had no memory, or no descriptors, at this time.
    Failed(Instant),
}

/// The time after which memory that the system did not have is asked for again.
const AGAIN: Duration = Duration::from_secs(1);

impl Overflow {
    /// Memory for so many packets, made by the budget when it is needed.
    pub fn new(packets: u32, budget: Box<dyn Budget>) -> Self {
        Self { packets, own: Mutex::default(), budget }
    }

    /// Copies a ticket's packets to this memory; `None` where not all of them fit.
    pub fn copy(&self, ticket: &Ticket) -> Option<Ticket> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let is_wanted = match &*own {
            Own::None => true,
            Own::Made(_) => false,
            Own::Failed(at) => at.elapsed() >= AGAIN,
        };
        if is_wanted {
            let is_first = matches!(*own, Own::None);
            *own = match self.budget.make(self.packets, is_first) {
                Some(selection) => Own::Made(Box::new(selection)),
                None => Own::Failed(Instant::now()),
            };
        }
        let Own::Made(selection) = &mut *own else { return None };
        let mut masks = vec![0; ticket.batch + 1];
        *masks.last_mut()? = ticket.mask;
        let copied = selection.select(&ticket.block, &masks);
        if copied.lost > 0 {
            return None;
        }
        let block = copied.block?;
        let mask = block.batch(0).mask;
        Some(Ticket { block: Arc::new(block), batch: 0, mask, position: ticket.position, is_own: true })
    }

    /// Memory for tests, without a reservation.
    #[cfg(test)]
    pub(crate) fn unreserved(packets: u32) -> Self {
        #[derive(Debug)]
        struct Unlimited;
        impl Budget for Unlimited {
            fn make(&self, packets: u32, _: bool) -> Option<Selection> {
                Selection::of_queue(packets, None).ok()
            }
        }
        Self::new(packets, Box::new(Unlimited))
    }
}
