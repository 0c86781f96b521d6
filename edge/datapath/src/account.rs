//! What others' threads do for a module: they receive its packets, and write its records.

use crate::plan::Route;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_demux::ChannelSet;
use weir_units::Nanos;

/// Processor time that others' threads spent for a module. It is billed to its session, and debited from its virtual processor.
#[derive(Debug, Default)]
pub struct DeferredCharges {
    total: AtomicU64,
    /// Of the total, on receiving and demultiplexing.
    receiving: AtomicU64,
    owed: AtomicU64,
}

impl DeferredCharges {
    /// So much was spent.
    pub fn charge(&self, time: Nanos) {
        self.total.fetch_add(time.0, Ordering::Relaxed);
        self.owed.fetch_add(time.0, Ordering::Relaxed);
    }

    /// So much was spent on receiving and demultiplexing its packets.
    pub fn charge_receiving(&self, time: Nanos) {
        self.receiving.fetch_add(time.0, Ordering::Relaxed);
        self.charge(time);
    }

    /// The time on receiving and demultiplexing since the beginning. It is part of the [total](Self::total).
    pub fn receiving(&self) -> Nanos {
        Nanos(self.receiving.load(Ordering::Relaxed))
    }

    /// What was spent since this was asked last.
    pub fn collect(&self) -> Nanos {
        if self.owed.load(Ordering::Relaxed) == 0 {
            return Nanos(0);
        }
        Nanos(self.owed.swap(0, Ordering::Relaxed))
    }

    /// What was spent since the beginning.
    pub fn total(&self) -> Nanos {
        Nanos(self.total.load(Ordering::Relaxed))
    }
}

/// What a packet that everybody wants has to divide.
const WHOLE: u64 = 1 << 16;

/// Divides the time that a block of packets took among those that they are for.
///
/// What is done for all packets of the block (receiving, classifying, looking up all filters) is divided by packets, and a packet's part by the
/// channels that want it; what nobody wants is nobody's. What is done for some channels is theirs. Time is measured by the processor's
/// counter, and corrected by the time that the thread really had.
#[derive(Debug, Default)]
pub struct BlockMeter {
    /// For each channel, its parts of packets.
    parts: Vec<u64>,
    /// For each channel, cycles that were spent for it alone.
    own: Vec<u64>,
    /// These together.
    owned: u64,
    packets: u64,
}

impl BlockMeter {
    /// Before a block, with so many channels.
    pub fn begin(&mut self, channels: usize) {
        for list in [&mut self.parts, &mut self.own] {
            list.clear();
            list.resize(channels, 0);
        }
        (self.owned, self.packets) = (0, 0);
    }

    /// A packet, and who wants it.
    pub fn packet(&mut self, wanted: &ChannelSet) {
        self.packets += 1;
        let Some(part) = WHOLE.checked_div(wanted.len() as u64) else { return };
        for channel in wanted.iter() {
            if let Some(parts) = self.parts.get_mut(channel) {
                *parts += part;
            }
        }
    }

    /// So many cycles were spent for these channels, each of them alike.
    pub fn spent(&mut self, channels: &[usize], cycles: u64) {
        let Some(part) = cycles.checked_div(channels.len() as u64) else { return };
        for channel in channels {
            if let Some(own) = self.own.get_mut(*channel) {
                *own += part;
                self.owned += part;
            }
        }
    }

    /// What a channel has to pay of `time`, in which `cycles` passed.
    pub fn share(&self, channel: usize, cycles: u64, time: Nanos) -> Nanos {
        let own = self.own.get(channel).copied().unwrap_or(0);
        let common = self.common(channel, Nanos(cycles.saturating_sub(self.owned)));
        let of_it = u128::from(own.saturating_add(common.0));
        let time = u128::from(time.0) * of_it / u128::from(cycles.max(1));
        Nanos(u64::try_from(time).unwrap_or(u64::MAX))
    }

    /// What a channel has to pay of time that was spent for all packets.
    pub fn common(&self, channel: usize, time: Nanos) -> Nanos {
        let parts = self.parts.get(channel).copied().unwrap_or(0);
        let whole = u128::from(self.packets.max(1)) * u128::from(WHOLE);
        Nanos(u64::try_from(u128::from(time.0) * u128::from(parts) / whole).unwrap_or(u64::MAX))
    }
}

/// Divides a channel's part of the time of receiving among its readers. Without a reader the time is the channel's own.
pub fn charge(route: &Route, time: Nanos) {
    match time.0.checked_div(route.readers.len() as u64) {
        Some(part) => route.readers.iter().for_each(|reader| reader.account.charge_receiving(Nanos(part))),
        None => route.account.charge_receiving(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_charged_is_collected_once_and_stays_on_the_bill() {
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
    fn a_packet_is_paid_for_by_those_who_want_it() {
        let mut meter = BlockMeter::default();
        meter.begin(4);
        let set = |channels: &[usize]| channels.iter().copied().collect();
        // Ten packets: four for 0, four for 0 and 1, one for 2, and one for nobody. 400 cycles for 1 alone, 600 for all.
        for wanted in [&[0][..], &[0, 1]].repeat(4) {
            meter.packet(&set(wanted));
        }
        meter.packet(&set(&[2]));
        meter.packet(&set(&[]));
        meter.spent(&[1], 400);
        // The thread had half of the time that passed.
        let shares = [0, 1, 2, 3].map(|channel| meter.share(channel, 1000, Nanos(500)));
        assert_eq!(shares, [Nanos(180), Nanos(260), Nanos(30), Nanos(0)]);
        // In the next block nothing is left of it.
        meter.begin(2);
        assert_eq!(meter.share(0, 0, Nanos(0)), Nanos(0));
    }

    #[test]
    fn what_is_done_for_several_is_divided() {
        let mut meter = BlockMeter::default();
        meter.begin(3);
        meter.spent(&[0, 2], 100);
        meter.spent(&[], 100);
        assert_eq!([0, 1, 2].map(|channel| meter.share(channel, 200, Nanos(200)).0), [50, 0, 50]);
    }
}
