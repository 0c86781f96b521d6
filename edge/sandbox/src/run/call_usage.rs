//! Limits the records and frames of a call: their number and their bytes.

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
    /// Returns the bound for this many packets together.
    pub(crate) fn times(self, packets: u32) -> Self {
        Self { number: self.number * packets, bytes: self.bytes * packets }
    }

    pub(crate) fn as_sizes(self) -> (usize, usize) {
        (self.number as usize, self.bytes as usize)
    }
}

/// The most records or frames of a module: the lower ones of the profile's limits and the module interface's limits.
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

/// The records, or frames, of the current call and of the calls that share an allowance with it.
#[derive(Default)]
pub(crate) struct CallUsage {
    /// The usage of the current packet, or of the batch if one call processes it.
    packet: Usage,
    /// The usage of the start, a part of the stop, or the ticks of a block. All ticks of a block share one allowance, because there
    /// can be a tick before each packet.
    periodic: Usage,
}

/// The number and the bytes of the records or frames of one packet, or of a call without packets.
#[derive(Default)]
struct Usage {
    /// The packet's position in the block. `None` if no item has been charged yet, or for a call without packets.
    order: Option<RecordOrder>,
    number: u32,
    bytes: u32,
}

impl CallUsage {
    /// Begins a call, whose packets have used nothing yet.
    pub(crate) fn begin_call(&mut self) {
        self.packet = Usage::default();
    }

    /// Begins a block, whose ticks have used nothing yet.
    pub(crate) fn begin_block(&mut self) {
        self.periodic = Usage::default();
    }

    /// Returns true if the packet at this position has used nothing yet. If one call processes a batch, all of its packets
    /// have the position of the first one.
    pub(crate) fn has_used_nothing(&self, phase: HostPhase, order: RecordOrder) -> bool {
        matches!(phase, HostPhase::Batch { .. }) && self.packet.order != Some(order)
    }

    /// Charges one record or frame of `bytes` bytes. Returns false, and charges nothing, if that would exceed the
    /// allowance.
    pub(crate) fn charge(
        &mut self,
        phase: HostPhase,
        order: RecordOrder,
        bytes: usize,
        allowance: OutputAllowance,
    ) -> bool {
        if self.has_used_nothing(phase, order) {
            self.packet = Usage { order: Some(order), ..Usage::default() };
        }
        let (usage, limit) = match phase {
            HostPhase::Batch { has_packet_function: true, .. } => (&mut self.packet, allowance.packet),
            HostPhase::Batch { mask, .. } => (&mut self.packet, allowance.packet.times(mask.count_ones())),
            HostPhase::Start | HostPhase::Periodic { .. } => (&mut self.periodic, allowance.call),
        };
        let bytes = usage.bytes.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        if usage.number >= limit.number || bytes > limit.bytes {
            return false;
        }
        usage.number += 1;
        usage.bytes = bytes;
        true
    }
}
