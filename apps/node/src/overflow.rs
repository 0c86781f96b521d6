//! The memory of a queue, for packets that wait for too long to stay where they arrived.
//!
//! Packets stay where they arrived as long as they can, so a reader that keeps up costs no copy. Two kinds of memory cannot wait for a slow one:
//!
//! - The kernel fills the ring of a packet socket in turn: a block that is held for a whole turn stops it.
//! - The memory of a selection belongs to all of its readers, and a piece of it is in use as long as one of its packets waits.
//!
//! When a piece is needed again, its waiting packets are copied to memory that was reserved for the queue.

use crate::error::NodeError;
use crate::log::warn;
use crate::queue::Ticket;
use crate::spec::{ChannelSpec, Late, Sees};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_netio::{PacketRoom, Selection};
use weir_session::{Holding, MemoryReservation, Name};
use weir_units::Bytes;

/// The memory of one queue, which is mapped when it is first needed.
#[derive(Debug)]
pub struct Overflow {
    packets: u32,
    own: Mutex<Own>,
    budget: Budget,
}

/// The account that the memory of a queue is on.
#[derive(Debug)]
enum Budget {
    /// The session's reservation, since the queue was made.
    Session { _reserved: Holding },
    /// A party's share of the node's memory for packets, as far as there is some when it is needed.
    Party(Arc<PacketRoom>),
    /// The node: queues of the operator's own sessions.
    Node,
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
    /// The memory that a queue of so many packets takes.
    pub(crate) fn memory(packets: u32) -> Bytes {
        Selection::memory(packets)
    }

    fn new(packets: u32, budget: Budget) -> Self {
        Self { packets, own: Mutex::default(), budget }
    }

    /// The memory of a channel's queue, if its packets would otherwise wait in a selection or in a ring that is filled in turn. In a ring they wait with a
    /// `lag` or `late = "terminate"`. Memory for a queue of a stated length is reserved here.
    pub(crate) fn of_channel(
        spec: &ChannelSpec,
        is_filled_in_turn: bool,
        session: &Name,
        memory: &Arc<MemoryReservation>,
        party: Option<&Arc<PacketRoom>>,
    ) -> Result<Option<Self>, NodeError> {
        let is_wanted = match spec.sees {
            Sees::Selected => true,
            Sees::All => is_filled_in_turn && spec.late == Late::Lose && spec.lag.is_none(),
        };
        if !is_wanted {
            return Ok(None);
        }
        let packets = spec.queue_len();
        if spec.queue.is_none() {
            let budget = party.map_or(Budget::Node, |room| Budget::Party(Arc::clone(room)));
            return Ok(Some(Self::new(packets, budget)));
        }
        let wanted = Self::memory(packets);
        let reserved = Holding::of(memory, wanted).ok_or_else(|| NodeError::WaitingMemory {
            channel: spec.name.clone(),
            queue: packets,
            wanted,
            session: session.clone(),
            left: memory.state().left(),
        })?;
        Ok(Some(Self::new(packets, Budget::Session { _reserved: reserved })))
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
            let room = if let Budget::Party(room) = &self.budget { Some(room) } else { None };
            let made = made
                .and_then(|()| Selection::of_queue(self.packets, room).map_err(|error| error.to_string()));
            *own = match made {
                Ok(selection) => Own::Made(Box::new(selection)),
                Err(error) => {
                    // A party's share being used up is no fault: the packets are counted.
                    if is_first && room.is_none() {
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
        Self::new(packets, Budget::Node)
    }
}
