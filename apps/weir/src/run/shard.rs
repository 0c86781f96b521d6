//! A module's instance and its place in the run.

use super::work::{Output, Work};
use std::io;
use std::os::fd::BorrowedFd;
use weir_netio::{Block, WatchError, WatchGuard};
use weir_sandbox::{Area, Batch, During, Incident, Instance, thread_time};
use weir_session::Records;
use weir_units::{Nanos, Timestamp};

/// Flows are spread over instances by the upper bits of their hash, in whole 64ths: a table that a module indexes with more bits
/// than these never has two instances write to one of its sets, whatever their number.
const SHARE_BITS: u32 = 6;
const SHARES: u64 = 1 << SHARE_BITS;
/// Instances of one module at most: one for each share.
pub const PARTS_MAX: usize = 1 << SHARE_BITS;

/// Why an instance could not go on. To blame is the node.
#[derive(Debug, thiserror::Error)]
pub enum ShardError {
    /// The packets could not be mapped into the sandbox.
    #[error(
        "packets cannot be mapped into a sandbox: {0}; more address space may help (ulimit -v, vm.max_map_count)"
    )]
    Map(#[from] io::Error),
    /// The mapping could not be watched.
    #[error(transparent)]
    Watch(#[from] WatchError),
}

/// A fault, with the number of its packet in the capture.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// What happened.
    pub incident: Incident,
    /// The packet, if it was in one.
    pub packet: Option<u64>,
}

/// One instance of a module: all its packets, or the flows of its share.
#[derive(Debug)]
pub struct Shard {
    // Dropped before `instance`: addresses that the sandbox has given back must not be watched.
    window: Option<(u64, WatchGuard)>,
    /// The sandbox.
    pub instance: Instance,
    /// Processor time in the module and on calling it: what others, or the hypervisor, took meanwhile is not charged.
    pub time: Nanos,
    /// Its first faults.
    pub troubles: Vec<Trouble>,
    part: u64,
    parts: u64,
    clock: Clock,
}

impl Shard {
    /// Part `part` of `parts` of a module whose ticks come every `tick` nanoseconds.
    pub fn new(instance: Instance, part: u64, parts: u64, tick: Option<u64>) -> Self {
        let clock = Clock::new(tick);
        let mut instance = instance;
        if part != 0 {
            // Every instance says and emits the same at its start; one of them is heard.
            instance.forget_start();
        }
        let mut shard =
            Self { instance, time: Nanos(0), troubles: Vec::new(), part, parts, clock, window: None };
        shard.note_troubles(0);
        shard
    }

    /// Has the module see a block, or its stop when there are no more, and leaves what came out with the work.
    pub fn process(&mut self, work: &Work, slot: usize) -> Result<(), ShardError> {
        let mut drops = Vec::new();
        match &work.block {
            Some(block) => {
                self.map(block)?;
                self.instance.begin_block();
                self.instance.set_first_packet(block.first_packet());
                let begin = thread_time();
                for (index, batch) in block.batches().enumerate() {
                    let selected = work.selected(index) & batch.mask;
                    let mask =
                        if self.parts == 1 { selected } else { selected & self.share(block, batch.first) };
                    let dropped = if self.clock.is_due(batch.latest) {
                        self.run_with_ticks(block, batch.guest_address, batch.first, batch.count, mask)
                    } else {
                        self.run(batch.guest_address, batch.first, mask)
                    };
                    self.clock.advance(batch.latest);
                    if dropped != 0 {
                        drops.resize(block.batch_count(), 0);
                        drops[index] = dropped;
                    }
                }
                self.time.0 += thread_time().0.saturating_sub(begin.0);
                self.note_troubles(block.first_packet());
            }
            None => {
                self.instance.stop(Timestamp(self.clock.now));
                self.note_troubles(0);
            }
        }
        let records = if self.instance.has_records() {
            self.instance.take_records(Records::default())
        } else {
            Records::default()
        };
        let (patches, log) = (self.instance.take_patches(), self.instance.take_log());
        work.leave(slot, Output { records, drops, patches, log, part: self.part });
        Ok(())
    }

    fn run(&mut self, descriptors: u32, first: usize, mask: u64) -> u64 {
        let first = u32::try_from(first).unwrap_or(u32::MAX);
        self.instance.run(Batch { descriptors, mask, first })
    }

    /// A batch in which packet time passes a period: ticks come between the packets.
    #[cold]
    fn run_with_ticks(
        &mut self,
        block: &Block,
        descriptors: u32,
        first: usize,
        count: usize,
        mask: u64,
    ) -> u64 {
        let mut dropped = 0;
        let mut from = 0;
        for (i, descriptor) in block.descriptors().iter().skip(first).take(count).enumerate() {
            if let Some((now, periods)) = self.clock.reach(descriptor.ts_ns) {
                let before = mask & below(i) & !below(from);
                dropped |= self.run(descriptors, first, before);
                let index = u32::try_from(first + i).unwrap_or(u32::MAX);
                self.instance.tick(Timestamp(now), periods, index);
                from = i;
            }
        }
        dropped | self.run(descriptors, first, mask & !below(from))
    }

    /// Which packets of the batch are of this instance's share of flows.
    fn share(&self, block: &Block, first: usize) -> u64 {
        let mut mask = 0;
        for (i, descriptor) in block.descriptors().iter().skip(first).take(64).enumerate() {
            let share = descriptor.flow_hash >> (u64::BITS - SHARE_BITS);
            mask |= u64::from(share * self.parts / SHARES == self.part) << i;
        }
        mask
    }

    fn map(&mut self, block: &Block) -> Result<(), ShardError> {
        let window = block.window();
        if self.window.as_ref().is_some_and(|(id, _)| *id == window.id()) {
            return Ok(());
        }
        let len = usize::try_from(window.len().0).unwrap_or(usize::MAX);
        let area = Area { fd: window.fd(), offset: window.file_offset(), len };
        // The old mapping is gone with this call, so its watch must not outlive it.
        self.window = None;
        let addresses = self.instance.map_packets(area)?;
        let guard = weir_netio::watch(addresses, window)?;
        self.window = Some((window.id(), guard));
        Ok(())
    }

    /// Maps the descriptors, before the first block.
    pub fn map_descriptors(&mut self, fd: BorrowedFd<'_>, len: usize) -> Result<(), ShardError> {
        self.instance.map_descriptors(Area { fd, offset: 0, len })?;
        Ok(())
    }

    fn note_troubles(&mut self, first_packet: u64) {
        let known = self.troubles.len();
        let new = self.instance.incidents().iter().skip(known);
        let troubles = new.map(|incident| Trouble {
            incident: incident.clone(),
            packet: match incident.during {
                During::Packet(index) => Some(first_packet + u64::from(index)),
                _ => None,
            },
        });
        self.troubles.extend(troubles);
    }
}

/// Bits 0 to i - 1.
fn below(i: usize) -> u64 {
    1u64.checked_shl(u32::try_from(i).unwrap_or(u32::MAX)).map_or(u64::MAX, |bit| bit - 1)
}

/// Packet time: the latest time stamp so far, and when the next tick is due.
#[derive(Debug)]
struct Clock {
    now: u64,
    period: Option<u64>,
    next: u64,
}

impl Clock {
    fn new(period: Option<u64>) -> Self {
        // Due at once: the first packet says where the periods begin.
        Self { now: 0, period, next: if period.is_some() { 0 } else { u64::MAX } }
    }

    fn is_due(&self, latest: Timestamp) -> bool {
        self.period.is_some() && latest.0 >= self.next
    }

    fn advance(&mut self, latest: Timestamp) {
        self.now = self.now.max(latest.0);
    }

    /// A packet of time `ts`: the tick that comes before it, and how many periods that is.
    fn reach(&mut self, ts: u64) -> Option<(u64, u64)> {
        let period = self.period?;
        if ts < self.next {
            return None;
        }
        let begun = ts / period;
        let periods = begun - (self.next / period).wrapping_sub(1).min(begun);
        let first = self.next == 0;
        self.next = (begun + 1).saturating_mul(period);
        (!first).then_some((begun * period, periods))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_come_at_multiples_of_the_period_and_once_for_a_gap() {
        let mut clock = Clock::new(Some(10));
        assert_eq!(clock.reach(25), None, "the first packet only says where we are");
        assert_eq!(clock.reach(29), None);
        assert_eq!(clock.reach(30), Some((30, 1)));
        assert_eq!(clock.reach(25), None, "time going backwards does not tick");
        assert_eq!(clock.reach(71), Some((70, 4)));
        assert_eq!(clock.reach(79), None);
        assert_eq!(clock.reach(80), Some((80, 1)));
        let (now, periods) = clock.reach(u64::MAX).unwrap();
        assert_eq!((now, periods), (u64::MAX / 10 * 10, u64::MAX / 10 - 8));
        assert_eq!(Clock::new(None).reach(u64::MAX), None);
    }

    #[test]
    fn a_mask_of_the_packets_before_one() {
        assert_eq!([below(0), below(1), below(63), below(64)], [0, 1, u64::MAX >> 1, u64::MAX]);
    }
}
