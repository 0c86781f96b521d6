//! What a channel did.

use weir_units::{Bytes, Nanos};

/// Packets, and their bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// How many.
    pub packets: u64,
    /// Their length together.
    pub bytes: Bytes,
}

impl Volume {
    pub(super) fn add(&mut self, length: u32) {
        self.packets += 1;
        self.bytes.0 += u64::from(length);
    }
}

/// Why a packet was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkDropCause {
    /// The queue holds as many packets as it may.
    QueuePackets,
    /// The queue holds as many bytes as it may.
    QueueBytes,
    /// Longer than the link's longest frame.
    TooLong,
    /// The channel is closed, or never was open.
    NoSuchChannel,
}

/// Time from a packet's arrival to the beginning of its transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delays {
    /// The longest.
    pub max: Nanos,
    /// How many by size: the first under 1,024 ns, each of the others under twice the one before; the last is open (17 s and more).
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

/// What a channel did since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelCounters {
    /// Sent by the reservation.
    pub reserved: Volume,
    /// Sent with what was left.
    pub excess: Volume,
    /// Not queued, as the queue held as many packets as it may.
    pub dropped_queue_packets: Volume,
    /// Not queued, as the queue held as many bytes as it may.
    pub dropped_queue_bytes: Volume,
    /// Not queued, as longer than the link's longest frame.
    pub dropped_too_long: Volume,
    /// How long the packets sent have waited.
    pub delays: Delays,
}

impl ChannelCounters {
    pub(super) fn dropped(&mut self, cause: LinkDropCause, length: u32) {
        match cause {
            LinkDropCause::QueuePackets => self.dropped_queue_packets.add(length),
            LinkDropCause::QueueBytes => self.dropped_queue_bytes.add(length),
            LinkDropCause::TooLong => self.dropped_too_long.add(length),
            // There is no channel to count it by: the caller has the packet and the cause.
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
