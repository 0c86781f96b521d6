//! The memory of a queue, for packets that wait for too long to stay where they arrived.
//!
//! The kernel fills the ring of a packet socket in turn: a block that is held for a whole turn stops it. Packets stay there as long as they can, so a reader that
//! keeps up costs no copy. When the kernel needs a block, its waiting packets are copied to memory that was reserved for the queue.

use crate::error::NodeError;
use crate::log::warn;
use crate::queue::Ticket;
use crate::spec::{ChannelSpec, Late, Sees};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_netio::Selection;
use weir_session::{Holding, MemoryReservation, Name};
use weir_units::Bytes;

/// The memory of one queue. It is reserved when the queue is made, and mapped when it is first needed.
#[derive(Debug)]
pub struct Overflow {
    packets: u32,
    own: Mutex<Own>,
    _reserved: Option<Holding>,
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
    /// The session's memory that a queue of so many packets takes.
    pub(crate) fn memory(packets: u32) -> Bytes {
        Selection::memory(packets)
    }

    /// Reserves memory for so many packets from a session's; `None` where too little is left.
    pub(crate) fn reserve(packets: u32, memory: &Arc<MemoryReservation>) -> Option<Self> {
        let reserved = Some(Holding::of(memory, Self::memory(packets))?);
        Some(Self { packets, own: Mutex::default(), _reserved: reserved })
    }

    /// The memory of a channel's queue, if its packets would otherwise wait in a ring that is filled in turn. With a `lag` or `late = "terminate"` they wait there.
    pub(crate) fn of_channel(
        spec: &ChannelSpec,
        is_filled_in_turn: bool,
        session: &Name,
        memory: &Arc<MemoryReservation>,
    ) -> Result<Option<Self>, NodeError> {
        let waits_there = spec.sees == Sees::All && spec.late == Late::Lose && spec.lag.is_none();
        if !(waits_there && is_filled_in_turn) {
            return Ok(None);
        }
        Self::reserve(spec.queue, memory).map(Some).ok_or_else(|| NodeError::WaitingMemory {
            channel: spec.name.clone(),
            queue: spec.queue,
            wanted: Self::memory(spec.queue),
            session: session.clone(),
            left: memory.state().left(),
        })
    }

    /// Copies a ticket's packets to this memory; `None` where not all of them fit.
    pub(crate) fn copy(&self, ticket: &Ticket) -> Option<Ticket> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let is_wanted = match &*own {
            Own::None => true,
            Own::Made(_) => false,
            Own::Failed(at) => at.elapsed() >= AGAIN,
        };
        if is_wanted {
            let is_first = matches!(*own, Own::None);
            // It takes descriptors, and some are kept for requests.
            let made = crate::descriptors::check().map_err(|error| error.to_string());
            let made =
                made.and_then(|()| Selection::of_queue(self.packets).map_err(|error| error.to_string()));
            *own = match made {
                Ok(selection) => Own::Made(Box::new(selection)),
                Err(error) => {
                    if is_first {
                        warn(&format_args!("there is no memory for a queue, which loses packets: {error}"));
                    }
                    Own::Failed(Instant::now())
                }
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
        Self { packets, own: Mutex::default(), _reserved: None }
    }
}
