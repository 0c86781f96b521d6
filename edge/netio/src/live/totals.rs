//! What an interface gave, and what was lost on the way.

use crate::totals::Totals;

/// Counts of a live source. None of them ever goes back, also not where the interface was opened again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveTotals {
    /// What was handed out in blocks, as of a capture.
    pub received: Totals,
    /// What was lost before it could be.
    pub drops: ReceiveDrops,
    /// How often the interface was opened again.
    pub reopened: u64,
}

/// Packets that arrived and were lost, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveDrops {
    /// The memory for packets was full, of packets not yet read or of blocks in use.
    pub ring_full: u64,
    /// What the kernel or the card says about them makes no sense, or they do not fit a frame.
    pub invalid: u64,
    /// How often (not: how many packets) the kernel had to stop because the memory was full; AF_PACKET only.
    pub freezes: u64,
}

impl ReceiveDrops {
    /// Packets lost, for whatever cause.
    pub fn packets(&self) -> u64 {
        self.ring_full.saturating_add(self.invalid)
    }

    pub(crate) fn and(self, other: ReceiveDrops) -> ReceiveDrops {
        ReceiveDrops {
            ring_full: self.ring_full.saturating_add(other.ring_full),
            invalid: self.invalid.saturating_add(other.invalid),
            freezes: self.freezes.saturating_add(other.freezes),
        }
    }
}
