//! Limits on the number and bytes of a call's requests to the host.

use crate::run::host::HostPhase;
use weir_abi::limit;
use weir_admission::Profile;
use weir_session::RecordOrder;

/// An upper bound on a number of items and on their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CountBytesMax {
    pub(crate) number: u32,
    pub(crate) bytes: u32,
}

impl CountBytesMax {
    /// Returns the bound for several packets together.
    pub(crate) fn times(self, packets: u32) -> Self {
        Self { number: self.number * packets, bytes: self.bytes * packets }
    }

    pub(crate) fn as_sizes(self) -> (usize, usize) {
        (self.number as usize, self.bytes as usize)
    }
}

/// The most that a module may emit or send: the profile's limits, within those of all modules.
#[derive(Clone, Copy)]
pub(crate) struct OutputAllowance {
    /// For each packet.
    pub(crate) packet: CountBytesMax,
    /// For a call without packets.
    pub(crate) call: CountBytesMax,
}

impl OutputAllowance {
    pub(crate) fn of_records(profile: &Profile) -> Self {
        let packet = profile.records.min(limit::RECORDS_PER_PACKET);
        let call = profile.call_records.min(limit::RECORDS_PER_CALL);
        Self {
            packet: CountBytesMax { number: packet, bytes: limit::RECORD_BYTES_PER_PACKET },
            call: CountBytesMax { number: call, bytes: limit::RECORD_BYTES_PER_CALL },
        }
    }

    pub(crate) fn of_frames(profile: &Profile) -> Self {
        let packet = profile.frames.min(limit::FRAMES_PER_PACKET);
        let call = profile.call_frames.min(limit::FRAMES_PER_CALL);
        Self {
            packet: CountBytesMax { number: packet, bytes: limit::FRAME_BYTES_PER_PACKET },
            call: CountBytesMax { number: call, bytes: limit::FRAME_BYTES_PER_CALL },
        }
    }
}

/// Usage of the current call, and of the calls that share its allowance.
#[derive(Default)]
pub(crate) struct CallUsage {
    /// Usage of the current packet, or of a batch that is processed by one call.
    packet: Budget,
    /// Usage of start and stop, or of the ticks of a block. The ticks share an allowance because there can be one
    /// before each packet.
    periodic: Budget,
}

#[derive(Default)]
struct Budget {
    order: Option<RecordOrder>,
    number: u32,
    bytes: u32,
}

impl CallUsage {
    /// Begins a call: the allowances of its packets are unused.
    pub(crate) fn enter(&mut self) {
        self.packet = Budget::default();
    }

    /// Begins a block: the allowance of its ticks is unused.
    pub(crate) fn begin_block(&mut self) {
        self.periodic = Budget::default();
    }

    /// Returns whether the packet of this order has used nothing yet. A batch that is processed by one call has one
    /// order for all packets.
    pub(crate) fn is_new(&self, phase: HostPhase, order: RecordOrder) -> bool {
        matches!(phase, HostPhase::Batch { .. }) && self.packet.order != Some(order)
    }

    /// Charges one item of `bytes` bytes. Returns false, and charges nothing, beyond the allowance.
    pub(crate) fn charge(
        &mut self,
        phase: HostPhase,
        order: RecordOrder,
        bytes: usize,
        allowance: OutputAllowance,
    ) -> bool {
        if self.is_new(phase, order) {
            self.packet = Budget { order: Some(order), ..Budget::default() };
        }
        let (budget, most) = match phase {
            HostPhase::Batch { one_by_one: true, .. } => (&mut self.packet, allowance.packet),
            HostPhase::Batch { mask, .. } => (&mut self.packet, allowance.packet.times(mask.count_ones())),
            HostPhase::Start | HostPhase::Periodic { .. } => (&mut self.periodic, allowance.call),
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
