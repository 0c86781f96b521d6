//! The accounts that memory of queues is on: which queue has some, and whose it is.

use crate::control::spec::{ChannelSpec, OnLag, RecordVisibility};
use crate::error::NodeError;
use crate::server::log::warn;
use std::sync::Arc;
use weir_datapath::overflow::{Overflow, QueueMemory};
use weir_netio::{PacketBuffers, Selection};
use {
    weir_admission::Name,
    weir_session::{Holding, MemoryReservation},
};

/// The account that the memory of a queue is on.
#[derive(Debug)]
enum Account {
    /// The session's reservation, since the queue was made.
    Session { _reserved: Holding },
    /// A party's share of the node's memory for packets, as far as there is some when it is needed.
    Party(Arc<PacketBuffers>),
    /// The node: queues of the operator's own sessions.
    Node,
}

impl QueueMemory for Account {
    fn make(&self, packets: u32, is_first: bool) -> Option<Selection> {
        // It takes descriptors, and some are kept for requests.
        let made = crate::server::descriptors::check().map_err(|error| error.to_string());
        let room = if let Self::Party(room) = self { Some(room) } else { None };
        let made = made.and_then(|()| Selection::of_queue(packets, room).map_err(|error| error.to_string()));
        // A party's share being used up is no fault: the packets are counted.
        if let Err(error) = &made
            && is_first
            && room.is_none()
        {
            warn(&format_args!("there is no memory for a queue, which loses packets: {error}"));
        }
        made.ok()
    }
}

/// The memory of a channel's queue, if its packets would otherwise wait in a selection or in a ring that is filled in turn. In a ring they wait with a
/// `lag` or `late = "terminate"`. Memory for a queue of a stated length is reserved here.
pub(crate) fn of_channel(
    spec: &ChannelSpec,
    is_filled_in_turn: bool,
    session: &Name,
    memory: &Arc<MemoryReservation>,
    party: Option<&Arc<PacketBuffers>>,
) -> Result<Option<Overflow>, NodeError> {
    let is_wanted = match spec.sees {
        RecordVisibility::Selected => true,
        RecordVisibility::All => is_filled_in_turn && spec.late == OnLag::Lose && spec.lag.is_none(),
    };
    if !is_wanted {
        return Ok(None);
    }
    let packets = spec.queue_len();
    if spec.queue.is_none() {
        let budget = party.map_or(Account::Node, |room| Account::Party(Arc::clone(room)));
        return Ok(Some(Overflow::new(packets, Box::new(budget))));
    }
    let wanted = Selection::memory(packets);
    let reserved = Holding::of(memory, wanted).ok_or_else(|| NodeError::WaitingMemory {
        channel: spec.name.clone(),
        queue: packets,
        wanted,
        session: session.clone(),
        left: memory.state().left(),
    })?;
    Ok(Some(Overflow::new(packets, Box::new(Account::Session { _reserved: reserved }))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_states_the_memory_of_queues() {
        let manual = include_str!("../../../docs/OPERATING.md");
        let (least, usual) = (Selection::memory(1), Selection::memory(4096));
        let stated = format!("{least} at least, {usual} for 4,096");
        assert!(manual.contains(&stated), "{stated}");
    }
}
