//! Totals of a live source.

use crate::totals::Totals;

/// Counters of a live source. They never decrease, even if the interface is opened again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveTotals {
    /// The totals of packets returned in blocks, as for a capture.
    pub received: Totals,
    /// Packets that were lost before they were returned in a block.
    pub drops: ReceiveDrops,
    /// The number of times that the interface was opened again.
    pub reopened: u64,
}

/// Packets that arrived and were lost, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveDrops {
    /// The memory for packets was full of unread packets or blocks in use.
    pub ring_full: u64,
    /// The packet does not fit a frame, or its description by the kernel or the card is invalid.
    pub invalid: u64,
    /// The number of times (not packets) that the kernel stopped because memory was full; AF_PACKET only.
    pub freezes: u64,
}

impl ReceiveDrops {
    /// All packets lost.
    pub fn packets(&self) -> u64 {
        self.ring_full.saturating_add(self.invalid)
    }

    /// The sum of both counters.
    #[must_use]
    pub fn plus(self, other: ReceiveDrops) -> ReceiveDrops {
        ReceiveDrops {
            ring_full: self.ring_full.saturating_add(other.ring_full),
            invalid: self.invalid.saturating_add(other.invalid),
            freezes: self.freezes.saturating_add(other.freezes),
        }
    }
}
