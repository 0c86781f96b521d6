//! CPU time that shared threads spend for a module: they receive its packets and write its records.

use crate::plan::Route;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_units::Nanos;

/// CPU time that shared threads spent for a module. It counts as usage of the module's session, and is debited from the
/// module's virtual CPU.
#[derive(Debug, Default)]
pub struct DeferredCharges {
    total: AtomicU64,
    /// The part of the total that receiving and demultiplexing took.
    receiving: AtomicU64,
    /// The part of the total that has not been debited yet.
    uncollected: AtomicU64,
}

impl DeferredCharges {
    /// Charges `time` to the module.
    pub fn charge(&self, time: Nanos) {
        self.total.fetch_add(time.0, Ordering::Relaxed);
        self.uncollected.fetch_add(time.0, Ordering::Relaxed);
    }

    /// Charges the module with `time` that receiving and demultiplexing took.
    pub fn charge_receiving(&self, time: Nanos) {
        self.receiving.fetch_add(time.0, Ordering::Relaxed);
        self.charge(time);
    }

    /// The time charged for receiving and demultiplexing since the start. It is part of the [total](Self::total).
    pub fn receiving(&self) -> Nanos {
        Nanos(self.receiving.load(Ordering::Relaxed))
    }

    /// Returns the time charged since the last call of this method.
    pub fn collect(&self) -> Nanos {
        if self.uncollected.load(Ordering::Relaxed) == 0 {
            return Nanos(0);
        }
        Nanos(self.uncollected.swap(0, Ordering::Relaxed))
    }

    /// The time charged since the start.
    pub fn total(&self) -> Nanos {
        Nanos(self.total.load(Ordering::Relaxed))
    }
}

/// The weight of one packet. The channels that select the packet divide the weight among them.
const WHOLE_PACKET: u64 = 1 << 16;

/// Divides the processor time of one or more blocks of packets among the channels.
///
/// Work for all packets of the blocks (receiving, classifying, matching filters) is divided equally among the packets,
/// and each packet's part equally among the channels that select it. The parts of packets that no channel selects are
/// charged to no channel. Work for some channels only is charged to these. Time is measured by the CPU's cycle counter
/// and scaled to the thread's CPU time.
#[derive(Debug, Default)]
pub struct BlockCharges {
    /// Each channel's share of the packets, in units of 1 / [`WHOLE_PACKET`] packets.
    packet_parts: Vec<u64>,
    /// Each channel's share of the cycles that were spent for some channels only.
    own_cycles: Vec<u64>,
    /// The sum of `own_cycles`.
    own_cycles_sum: u64,
    /// The number of packets counted.
    packets: u64,
}

impl BlockCharges {
    /// Starts measuring blocks, for this number of channels.
    pub fn begin(&mut self, channels: usize) {
        for list in [&mut self.packet_parts, &mut self.own_cycles] {
            list.clear();
            list.resize(channels, 0);
        }
        (self.own_cycles_sum, self.packets) = (0, 0);
    }

    /// Counts packets and the channels that select them.
    pub fn count_packets(&mut self, packets: u64, wanted: &[usize]) {
        self.packets += packets;
        let Some(part) = WHOLE_PACKET.checked_div(wanted.len() as u64) else { return };
        for channel in wanted {
            if let Some(parts) = self.packet_parts.get_mut(*channel) {
                *parts += packets * part;
            }
        }
    }

    /// The channels with charges.
    pub fn charged(&self) -> impl Iterator<Item = usize> + '_ {
        let charges = self.packet_parts.iter().zip(&self.own_cycles).enumerate();
        charges.filter(|(_, charges)| *charges != (&0, &0)).map(|(channel, _)| channel)
    }

    /// Charges `cycles`, which were spent for these channels only, to them in equal parts.
    pub fn charge_channels(&mut self, channels: &[usize], cycles: u64) {
        let Some(part) = cycles.checked_div(channels.len() as u64) else { return };
        for channel in channels {
            if let Some(own) = self.own_cycles.get_mut(*channel) {
                *own += part;
                self.own_cycles_sum += part;
            }
        }
    }

    /// A channel's charge for all work on the blocks, which took `time` and `cycles`.
    pub fn total_charge(&self, channel: usize, cycles: u64, time: Nanos) -> Nanos {
        let own = self.own_cycles.get(channel).copied().unwrap_or(0);
        let common = self.common_part(channel, cycles.saturating_sub(self.own_cycles_sum));
        let charged_cycles = u128::from(own.saturating_add(common));
        let time = u128::from(time.0) * charged_cycles / u128::from(cycles.max(1));
        Nanos(u64::try_from(time).unwrap_or(u64::MAX))
    }

    /// A channel's charge for `time` that was spent on all packets.
    pub fn common_charge(&self, channel: usize, time: Nanos) -> Nanos {
        Nanos(self.common_part(channel, time.0))
    }

    /// A channel's part of an amount of work on all packets, in the unit of the amount: cycles or nanoseconds.
    fn common_part(&self, channel: usize, amount: u64) -> u64 {
        let parts = self.packet_parts.get(channel).copied().unwrap_or(0);
        let whole = u128::from(self.packets.max(1)) * u128::from(WHOLE_PACKET);
        u64::try_from(u128::from(amount) * u128::from(parts) / whole).unwrap_or(u64::MAX)
    }
}

/// Charges a channel's part of the receive time to its readers, or to the channel itself if it has none.
pub fn charge_readers(route: &Route, time: Nanos) {
    match time.0.checked_div(route.readers.len() as u64) {
        Some(part) => route.readers.iter().for_each(|reader| reader.account.charge_receiving(Nanos(part))),
        None => route.account.charge_receiving(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_are_collected_once_and_stay_in_the_total() {
        let account = DeferredCharges::default();
        account.charge(Nanos(7));
        account.charge(Nanos(5));
        assert_eq!([account.collect(), account.collect()], [Nanos(12), Nanos(0)]);
        account.charge(Nanos(1));
        assert_eq!((account.collect(), account.total()), (Nanos(1), Nanos(13)));
        account.charge_receiving(Nanos(4));
        let now = (account.collect(), account.total(), account.receiving());
        assert_eq!(now, (Nanos(4), Nanos(17), Nanos(4)));
    }

    #[test]
    fn a_packet_is_charged_to_the_channels_that_want_it() {
        let mut charges = BlockCharges::default();
        charges.begin(4);
        // Ten packets: four for 0, four for 0 and 1, one for 2, and one for none. 400 cycles for 1 alone, 600 for
        // all.
        for wanted in [&[0][..], &[0, 1]].repeat(4) {
            charges.count_packets(1, wanted);
        }
        charges.count_packets(1, &[2]);
        charges.count_packets(1, &[]);
        charges.charge_channels(&[1], 400);
        assert_eq!(charges.charged().collect::<Vec<_>>(), [0, 1, 2]);
        // The thread had a CPU for half of the time that passed.
        let shares = [0, 1, 2, 3].map(|channel| charges.total_charge(channel, 1000, Nanos(500)));
        assert_eq!(shares, [Nanos(180), Nanos(260), Nanos(30), Nanos(0)]);
        // A new block starts from zero.
        charges.begin(2);
        assert_eq!(charges.total_charge(0, 0, Nanos(0)), Nanos(0));
    }

    #[test]
    fn work_for_several_channels_is_divided_among_them() {
        let mut charges = BlockCharges::default();
        charges.begin(3);
        charges.charge_channels(&[0, 2], 100);
        charges.charge_channels(&[], 100);
        assert_eq!([0, 1, 2].map(|channel| charges.total_charge(channel, 200, Nanos(200)).0), [50, 0, 50]);
    }
}
