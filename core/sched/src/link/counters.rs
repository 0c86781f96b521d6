//! Counters of a channel.

use weir_units::{Bytes, Nanos};

/// A number of packets and their bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// The number of packets.
    pub packets: u64,
    /// The sum of their lengths on the wire.
    pub bytes: Bytes,
}

impl Volume {
    pub(super) fn add(&mut self, length: u32) {
        self.packets += 1;
        self.bytes.0 += u64::from(length);
    }
}

/// The reason why a packet was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkDropCause {
    /// The queue is at its limit of packets.
    QueuePackets,
    /// The queue is at its limit of bytes.
    QueueBytes,
    /// The packet is longer than the link's longest frame.
    TooLong,
    /// The channel is closed, or never was open.
    NoSuchChannel,
}

/// A histogram of the time from a packet's arrival to the start of its transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delays {
    /// The longest delay.
    pub max: Nanos,
    /// The number of delays in each bucket. The first is below 1,024 ns; each bound is twice the one before. The last
    /// bucket has no upper bound (17 s and more).
    pub counts: [u64; 26],
}

impl Default for Delays {
    fn default() -> Self {
        Delays { max: Nanos(0), counts: [0; 26] }
    }
}

impl Delays {
    pub(super) fn add(&mut self, delay: Nanos) {
        self.max = self.max.max(delay);
        let doublings = (delay.0 >> 10).checked_ilog2().map_or(0, |log| log as usize + 1);
        self.counts[doublings.min(self.counts.len() - 1)] += 1;
    }
}

/// The counters of a channel since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelCounters {
    /// Packets that the reservation sent.
    pub reserved: Volume,
    /// Packets sent as excess traffic.
    pub excess: Volume,
    /// Packets not queued because the queue was at its limit of packets.
    pub dropped_queue_packets: Volume,
    /// Packets not queued because the queue was at its limit of bytes.
    pub dropped_queue_bytes: Volume,
    /// Packets not queued because they were longer than the link's longest frame.
    pub dropped_too_long: Volume,
    /// The delays of the packets sent.
    pub delays: Delays,
}

impl ChannelCounters {
    /// Counts a packet of `length` bytes on the wire that was not queued.
    pub(super) fn count_drop(&mut self, cause: LinkDropCause, length: u32) {
        match cause {
            LinkDropCause::QueuePackets => self.dropped_queue_packets.add(length),
            LinkDropCause::QueueBytes => self.dropped_queue_bytes.add(length),
            LinkDropCause::TooLong => self.dropped_too_long.add(length),
            // No channel has a counter for this packet; the caller gets the packet and the cause.
            LinkDropCause::NoSuchChannel => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_counted_by_powers_of_two() {
        let mut delays = Delays::default();
        for delay in [0, 1_023, 1_024, 2_047, 2_048, 1 << 34, u64::MAX] {
            delays.add(Nanos(delay));
        }
        assert_eq!((delays.counts[0], delays.counts[1], delays.counts[2], delays.counts[25]), (2, 2, 1, 2));
        assert_eq!(delays.max, Nanos(u64::MAX));
    }
}
