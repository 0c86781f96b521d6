//! How much of something a call may ask of the host.

use crate::run::host::HostPhase;
use weir_session::RecordOrder;

/// The most of something, as a number and in bytes.
#[derive(Clone, Copy)]
pub(crate) struct CountBytesMax {
    pub(crate) number: u32,
    pub(crate) bytes: u32,
}

/// What was asked for so far, in the call at hand and in those that share an allowance.
#[derive(Default)]
pub(crate) struct CallUsage {
    /// Of the packet at hand, or of a batch that is taken whole.
    packet: Budget,
    /// Of start and stop, or of the ticks of a block: there can be one before each packet, so they share an allowance.
    periodic: Budget,
}

#[derive(Default)]
struct Budget {
    order: Option<RecordOrder>,
    number: u32,
    bytes: u32,
}

impl CallUsage {
    /// A call begins: its packets have whole allowances.
    pub(crate) fn enter(&mut self) {
        self.packet = Budget::default();
    }

    /// A block begins: its ticks have a whole allowance.
    pub(crate) fn begin_block(&mut self) {
        self.periodic = Budget::default();
    }

    /// Whether nothing was asked for yet for the packet of this order; in a batch that is taken whole there is one order for all of it.
    pub(crate) fn is_new(&self, phase: HostPhase, order: RecordOrder) -> bool {
        matches!(phase, HostPhase::Batch { .. }) && self.packet.order != Some(order)
    }

    /// Whether one more of so many bytes may be had, at most so much for each packet or for a call without packets; counts it.
    pub(crate) fn charge(
        &mut self,
        phase: HostPhase,
        order: RecordOrder,
        bytes: usize,
        packet: CountBytesMax,
        call: CountBytesMax,
    ) -> bool {
        if self.is_new(phase, order) {
            self.packet = Budget { order: Some(order), ..Budget::default() };
        }
        let (budget, most) = match phase {
            HostPhase::Batch { one_by_one: true, .. } => (&mut self.packet, packet),
            HostPhase::Batch { mask, .. } => {
                let packets = mask.count_ones();
                let most = CountBytesMax { number: packet.number * packets, bytes: packet.bytes * packets };
                (&mut self.packet, most)
            }
            HostPhase::Start | HostPhase::Periodic { .. } => (&mut self.periodic, call),
        };
        let bytes = budget.bytes.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        if budget.number >= most.number || bytes > most.bytes {
            return false;
        }
        budget.number += 1;
        budget.bytes = bytes;
        true
    }
}
