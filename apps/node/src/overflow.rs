//! The memory of a queue, for packets that wait for longer than the memory that they came in can be held.
//!
//! A packet socket's ring is filled in turn: whoever holds a block of it for a whole turn stops it. Packets stay there as long as they can, since nothing is to be
//! copied for a reader that keeps up. When a block is needed, the packets of it that still wait are copied to memory that was reserved for the queue.

use crate::error::NodeError;
use crate::log::warn;
use crate::queue::Ticket;
use crate::spec::{ChannelSpec, Late, Sees};
use std::sync::{Arc, Mutex, PoisonError};
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
    /// It has not been needed.
    #[default]
    None,
    Made(Box<Selection>),
    /// The system has none.
    Failed,
}

impl Overflow {
    /// The memory that a queue of so many packets takes of its session.
    pub(crate) fn memory(packets: u32) -> Bytes {
        Selection::memory(packets)
    }

    /// For so many packets, reserved from a session's memory; nothing where there is too little left.
    pub(crate) fn reserve(packets: u32, memory: &Arc<MemoryReservation>) -> Option<Self> {
        let reserved = Some(Holding::of(memory, Self::memory(packets))?);
        Some(Self { packets, own: Mutex::default(), _reserved: reserved })
    }

    /// Memory for a queue whose packets would have to wait in a ring that is filled in turn. Where the channel says how far it may lag, they wait there.
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

    /// The packets of a ticket in this memory; nothing where they do not all fit.
    pub(crate) fn copy(&self, ticket: &Ticket) -> Option<Ticket> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*own, Own::None) {
            *own = match Selection::of_queue(self.packets) {
                Ok(selection) => Own::Made(Box::new(selection)),
                Err(error) => {
                    warn(&format_args!("there is no memory for a queue, which loses packets: {error}"));
                    Own::Failed
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

    /// One for tests, which has nothing reserved.
    #[cfg(test)]
    pub(crate) fn unreserved(packets: u32) -> Self {
        Self { packets, own: Mutex::default(), _reserved: None }
    }
}
