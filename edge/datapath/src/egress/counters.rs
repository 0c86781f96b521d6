//! Counters of an egress.

use std::sync::atomic::{AtomicU64, Ordering};
use weir_netio::Loss;

/// Packets that an egress (an output channel, a file or a TAP device) sent and lost. Counters never decrease.
#[derive(Debug, Default)]
pub struct OutputCounters {
    /// Packets that the interface, file or device accepted.
    pub packets: AtomicU64,
    /// Bytes of the packets that the interface, file or device accepted.
    pub bytes: AtomicU64,
    /// Packets lost because the channel's queue was full.
    pub queue_full: AtomicU64,
    /// Packets lost because they were longer than the link's longest frame, or than the interface accepts.
    pub too_long: AtomicU64,
    /// Packets that the channel's filter refused.
    pub filtered: AtomicU64,
    /// Packets lost because the interface was down, or gone.
    pub down: AtomicU64,
    /// Packets lost because the kernel refused them, because they were captured only in part, or because an offloaded
    /// checksum could not be computed.
    pub failed: AtomicU64,
    /// Packets lost because their session was closed.
    pub closed: AtomicU64,
}

impl OutputCounters {
    /// Counts a frame of `bytes` bytes as sent.
    pub(crate) fn sent(&self, bytes: usize) {
        self.packets.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts a frame that was lost at the interface.
    pub(crate) fn lost(&self, loss: Loss) {
        let counter = match loss {
            Loss::TooLong => &self.too_long,
            Loss::Down | Loss::Gone => &self.down,
            Loss::Malformed | Loss::Cut | Loss::Refused => &self.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
