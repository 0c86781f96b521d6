//! Memory for packets that wait in modules' queues, and the account that this memory is charged to.

use crate::control::spec::{ChannelSpec, MappedPackets, OnLag};
use crate::log::warn;
use crate::sessions::error::NodeError;
use std::sync::Arc;
use weir_datapath::overflow::{Overflow, QueueMemory};
use weir_netio::{MemoryQuota, Selection};
use {
    weir_admission::Name,
    weir_session::{HeldMemory, MemoryReservation},
};

/// The account that the memory of a queue is charged to.
#[derive(Debug)]
enum Account {
    /// The session's reservation, taken when the queue is created.
    Session { _reserved: HeldMemory },
    /// A party's share of the node's packet memory, taken when packets wait.
    Party(Arc<MemoryQuota>),
    /// The node itself, for the operator's sessions.
    Node,
}

impl QueueMemory for Account {
    fn allocate(&self, packets: u32, is_first: bool) -> Option<Selection> {
        // The memory takes file descriptors, some of which are reserved for requests.
        let made = crate::sessions::descriptors::check().map_err(|error| error.to_string());
        let buffers = if let Self::Party(buffers) = self { Some(buffers) } else { None };
        let made =
            made.and_then(|()| Selection::of_queue(packets, buffers).map_err(|error| error.to_string()));
        // A lack of memory of a party is not logged, because it is no fault of the node. The lost packets are counted.
        if let Err(error) = &made
            && is_first
            && buffers.is_none()
        {
            warn(&format_args!(
                "there is no memory for the waiting packets of a queue, which are lost: {error}"
            ));
        }
        made.ok()
    }
}

/// Returns the memory to which waiting packets of a channel are copied before their arena or ring is reused; `None` if
/// the packets stay in place. Packets are copied from selections, and from rings that are filled in turn
/// (`is_filled_in_turn`) unless the channel has `lag_max` or `on_lag = "close"`. For a queue with a stated length, the
/// memory is taken from the session's reservation here.
pub(crate) fn for_channel(
    spec: &ChannelSpec,
    is_filled_in_turn: bool,
    session: &Name,
    memory: &Arc<MemoryReservation>,
    party: Option<&Arc<MemoryQuota>>,
) -> Result<Option<Overflow>, NodeError> {
    let is_wanted = match spec.visibility {
        MappedPackets::Selected => true,
        MappedPackets::All => is_filled_in_turn && spec.on_lag == OnLag::Drop && spec.lag_max.is_none(),
    };
    if !is_wanted {
        return Ok(None);
    }
    let packets = spec.queue_len();
    if spec.queue.is_none() {
        let account = party.map_or(Account::Node, |buffers| Account::Party(Arc::clone(buffers)));
        return Ok(Some(Overflow::new(packets, Box::new(account))));
    }
    let wanted = Selection::memory(packets);
    let reserved = HeldMemory::take(memory, wanted).ok_or_else(|| NodeError::WaitingMemory {
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
        let manual = include_str!("../../../../docs/reference/NODE.md");
        let (least, usual) = (Selection::memory(1), Selection::memory(4096));
        let stated = format!("{least} at least, {usual} for 4,096");
        assert!(manual.contains(&stated), "{stated}");
    }
}
