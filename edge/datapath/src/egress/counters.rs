//! What went out through a channel, and what did not.

use std::sync::atomic::{AtomicU64, Ordering};
use weir_netio::Loss;

/// What an output channel sent and lost. Counters only grow.
#[derive(Debug, Default)]
pub struct OutputCounters {
    /// Packets that the interface took.
    pub packets: AtomicU64,
    /// Their bytes.
    pub bytes: AtomicU64,
    /// Lost because the channel's queue was full.
    pub queue_full: AtomicU64,
    /// Lost because they were longer than the link's longest frame, or than what the interface takes.
    pub too_long: AtomicU64,
    /// Not sent, because the channel's filter does not let them out.
    pub refused: AtomicU64,
    /// Lost because the interface was down, or gone.
    pub down: AtomicU64,
    /// Lost because the kernel did not take them, because there was nothing whole to send, or because a checksum that
    /// a host left to its network card could not be computed.
    pub failed: AtomicU64,
    /// Lost because their session was closed.
    pub closed: AtomicU64,
}

impl OutputCounters {
    /// A frame of so many bytes has gone.
    pub(crate) fn sent(&self, bytes: usize) {
        self.packets.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// A frame has been given up at the interface.
    pub(crate) fn lost(&self, loss: Loss) {
        let counter = match loss {
            Loss::TooLong => &self.too_long,
            Loss::Down | Loss::Gone => &self.down,
            Loss::Malformed | Loss::Cut | Loss::Refused => &self.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
