//! A channel's queue: references to packets that wait for a module.

use crate::overflow::Overflow;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir_abi::BATCH_PACKETS;
use weir_netio::Block;

/// Packets of one batch that wait or are being processed. The memory of the packets stays unchanged as long as the
/// entry exists.
#[derive(Clone, Debug)]
pub struct QueueEntry {
    /// The block of the packets.
    pub block: Arc<Block>,
    /// The index of the batch in the block.
    pub batch: usize,
    /// The packets of the batch: bit i stands for packet i.
    pub mask: u64,
    /// The number of bytes that the interface received before the block. The lag of a reader is the distance between
    /// the position of its oldest packet and the interface's present position.
    pub position: u64,
    /// True if the packets were copied to memory of the queue or the module, so that the entry does not hold the memory
    /// where they arrived.
    pub is_moved: bool,
}

impl QueueEntry {
    /// The number of packets.
    pub fn packets(&self) -> u32 {
        self.mask.count_ones()
    }

    /// Returns true if both entries can be merged: they have packets of the same batch, and none in common.
    fn can_merge(&self, other: &QueueEntry) -> bool {
        self.mask & other.mask == 0
            && (self.batch, self.position) == (other.batch, other.position)
            && Arc::ptr_eq(&self.block, &other.block)
    }
}

/// A bounded queue. One thread puts packets in, another takes them out.
///
/// Without sub-flows, packets come out in order of arrival. With sub-flows, each sub-flow has a queue of its own, and
/// the sub-flows are served in turn. So a burst of one sub-flow takes no space and no turn from the others. If the
/// next packets of several sub-flows belong to one batch, they come out together, in order of arrival.
#[derive(Debug)]
pub struct PacketQueue {
    inner: Mutex<QueueState>,
    /// The most packets of all sub-flows together.
    capacity: u32,
    /// The position of the *in-hand* packets, which were taken out and are still being processed; [`NOTHING`] if there
    /// are no such packets.
    in_hand: AtomicU64,
    /// Memory for packets that wait too long to stay where they arrived.
    overflow: Option<Overflow>,
}

/// The number of packets after which one call of [`PacketQueue::move_before`] ends.
const MOVED_MAX: u64 = 512;
/// The value of `in_hand` without in-hand packets.
const NOTHING: u64 = u64::MAX;

/// The packets of a queue.
#[derive(Debug, Default)]
struct QueueState {
    flows: Vec<SubFlowQueue>,
    /// Sub-flows with packets, in the order in which they are served.
    service_order: VecDeque<u16>,
    packets: u32,
    closed: bool,
}

/// The queue of one sub-flow.
#[derive(Debug, Default)]
struct SubFlowQueue {
    /// The most packets of this sub-flow.
    capacity: u32,
    entries: VecDeque<QueueEntry>,
    packets: u32,
}

/// The outcome of putting packets into a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutOutcome {
    /// Packets that did not fit.
    pub lost: u64,
    /// True if the reader has to be woken: the queue was empty before and has packets now, or has become half
    /// full.
    pub wakes: bool,
}

impl PacketQueue {
    /// Creates a queue for `capacity` packets in each of `flows` sub-flows, of which there is at least one.
    pub fn new(capacity: u32, flows: u16) -> Self {
        Self::divided(capacity.saturating_mul(flows.max(1).into()), flows)
    }

    /// Creates a queue for `capacity` packets in all, divided among `flows` sub-flows. The parts differ by at most
    /// one packet.
    pub fn divided(capacity: u32, flows: u16) -> Self {
        let flows = flows.max(1);
        let (part, rest) = (capacity / u32::from(flows), capacity % u32::from(flows));
        let part = |flow: u16| part + u32::from(u32::from(flow) < rest);
        let flow = |flow| SubFlowQueue { capacity: part(flow), ..SubFlowQueue::default() };
        let inner = QueueState { flows: (0..flows).map(flow).collect(), ..QueueState::default() };
        let (inner, in_hand) = (Mutex::new(inner), AtomicU64::new(NOTHING));
        Self { inner, capacity, in_hand, overflow: None }
    }

    /// Adds memory for packets that cannot stay where they arrived.
    #[must_use]
    pub fn with_overflow(self, overflow: Option<Overflow>) -> Self {
        Self { overflow, ..self }
    }

    /// Returns true if waiting packets can be moved to memory of the queue.
    pub fn has_own_memory(&self) -> bool {
        self.overflow.is_some()
    }

    /// Returns true if the queue's own memory is mapped now, in use or not.
    pub fn has_mapped_memory(&self) -> bool {
        self.overflow.as_ref().is_some_and(Overflow::is_mapped)
    }

    /// Releases the queue's own memory if it is unused. Returns true if it was released.
    pub fn release_memory(&self) -> bool {
        self.overflow.as_ref().is_some_and(Overflow::release)
    }

    /// The most packets that can wait.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The number of packets that wait.
    pub fn waiting(&self) -> u32 {
        self.lock().packets
    }

    /// Returns true if no further packet fits.
    pub fn is_full(&self) -> bool {
        self.waiting() >= self.capacity
    }

    /// The fill level in thousandths.
    pub fn filled(&self) -> u32 {
        let filled = (u64::from(self.waiting()) * 1000).checked_div(self.capacity.into());
        filled.and_then(|filled| u32::try_from(filled).ok()).unwrap_or(1000)
    }

    fn is_half_full(&self, packets: u32) -> bool {
        u64::from(packets) * 2 >= u64::from(self.capacity)
    }

    /// Puts the packets that the masks select into the queue. If they do not all fit, the first packets are queued and
    /// the later ones are lost. `flows` is the sub-flow of each packet of the block; packets beyond its end belong to
    /// sub-flow 0.
    pub fn put(&self, block: &Arc<Block>, masks: &[u64], position: u64, flows: &[u16]) -> PutOutcome {
        let mut inner = self.lock();
        let before = inner.packets;
        let mut lost = 0;
        for (batch, &mask) in masks.iter().enumerate().filter(|(_, mask)| **mask != 0) {
            let mut rest = mask;
            while rest != 0 {
                // Without sub-flows all packets of a batch go in at once.
                let part = if flows.is_empty() { rest } else { rest & rest.wrapping_neg() };
                let index = batch * BATCH_PACKETS + part.trailing_zeros() as usize;
                let flow = flows.get(index).copied().unwrap_or(0);
                let entry =
                    QueueEntry { block: Arc::clone(block), batch, mask: part, position, is_moved: false };
                lost += inner.put(flow, entry);
                rest &= !part;
            }
        }
        let now = inner.packets;
        let wakes = before == 0 && now > 0 || !self.is_half_full(before) && self.is_half_full(now);
        PutOutcome { lost, wakes }
    }

    /// Takes out the next packets, all of one batch: at most `packets_max`, but at least one. They become the in-hand
    /// packets, in place of the previous in-hand packets.
    pub fn take(&self, packets_max: u32) -> Option<QueueEntry> {
        let mut inner = self.lock();
        let mut taken = inner.take(packets_max.max(1))?;
        while let Some(rest) = packets_max.checked_sub(taken.packets()).filter(|rest| *rest > 0)
            && let Some(more) = inner.take_same_batch(&taken, rest)
        {
            taken.mask |= more.mask;
        }
        let in_hand = if taken.is_moved { NOTHING } else { taken.position };
        self.in_hand.store(in_hand, Ordering::Relaxed);
        Some(taken)
    }

    /// The position of the in-hand packets; `None` if there are none, or they are in memory of the queue.
    pub fn in_hand(&self) -> Option<u64> {
        Some(self.in_hand.load(Ordering::Relaxed)).filter(|position| *position != NOTHING)
    }

    /// Declares the in-hand packets processed.
    pub fn release(&self) {
        self.in_hand.store(NOTHING, Ordering::Relaxed);
    }

    /// Copies packets before `position` to memory of the queue, oldest first in each sub-flow, as far as they fit.
    /// Stops after some hundreds, because the receive thread and the queue's reader wait meanwhile. Returns the
    /// number of packets moved.
    pub fn move_before(&self, position: u64) -> u64 {
        let Some(overflow) = &self.overflow else { return 0 };
        let mut inner = self.lock();
        let mut moved = 0;
        for flow in &mut inner.flows {
            let movable = flow.movable(position);
            for entry in flow.entries.range_mut(movable) {
                if moved >= MOVED_MAX {
                    return moved;
                }
                let Some(copy) = overflow.copy(entry) else { return moved };
                moved += u64::from(copy.packets());
                *entry = copy;
            }
        }
        moved
    }

    /// Copies to memory of the queue the packets of an entry that was taken out; `None` if they do not fit.
    pub fn copy_to_own_memory(&self, entry: &QueueEntry) -> Option<QueueEntry> {
        if entry.is_moved { Some(entry.clone()) } else { self.overflow.as_ref()?.copy(entry) }
    }

    /// Evicts packets before `position` that are still where they arrived. Returns their number.
    pub fn evict_before(&self, position: u64) -> u64 {
        let mut inner = self.lock();
        let mut lost = 0;
        for flow in &mut inner.flows {
            let movable = flow.movable(position);
            let evicted: u32 = flow.entries.drain(movable).map(|entry| entry.packets()).sum();
            flow.packets -= evicted;
            lost += evicted;
        }
        inner.packets -= lost;
        let QueueState { flows, service_order, .. } = &mut *inner;
        service_order.retain(|flow| flows.get(usize::from(*flow)).is_some_and(|flow| flow.packets > 0));
        lost.into()
    }

    /// Evicts all packets. Returns their number.
    pub fn evict_all(&self) -> u64 {
        self.lock().clear()
    }

    /// The position of the oldest packet that waits where it arrived; `None` if there is none.
    pub fn oldest(&self) -> Option<u64> {
        let inner = self.lock();
        let fronts = inner.flows.iter().filter_map(|flow| flow.entries.get(flow.moved()));
        fronts.map(|entry| entry.position).min()
    }

    /// Evicts all packets and accepts no more. Returns their number, or `None` if the queue was closed already.
    pub fn close(&self) -> Option<u64> {
        let mut inner = self.lock();
        let was_closed = std::mem::replace(&mut inner.closed, true);
        let lost = inner.clear();
        (!was_closed).then_some(lost)
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SubFlowQueue {
    /// The number of entries in memory of the queue. They come first, since the oldest packets are moved first.
    fn moved(&self) -> usize {
        self.entries.partition_point(|entry| entry.is_moved)
    }

    /// The indices of entries before `position` whose packets are still where they arrived.
    fn movable(&self, position: u64) -> Range<usize> {
        let moved = self.moved();
        moved..self.entries.partition_point(|entry| entry.is_moved || entry.position < position)
    }
}

impl QueueState {
    /// Puts an entry into the queue of a sub-flow, as far as it fits. Returns the number of lost packets.
    fn put(&mut self, number: u16, mut entry: QueueEntry) -> u64 {
        let arrived = entry.packets();
        let Some(flow) = self.flows.get_mut(usize::from(number)).filter(|_| !self.closed) else {
            return arrived.into();
        };
        entry.mask = lowest_bits(entry.mask, flow.capacity.saturating_sub(flow.packets));
        let kept = entry.packets();
        if kept == 0 {
            return arrived.into();
        }
        if flow.packets == 0 {
            self.service_order.push_back(number);
        }
        self.packets += kept;
        flow.packets += kept;
        match flow.entries.back_mut().filter(|last| last.can_merge(&entry)) {
            Some(last) => last.mask |= entry.mask,
            None => flow.entries.push_back(entry),
        }
        (arrived - kept).into()
    }

    /// Takes the oldest packets of the sub-flow whose turn it is.
    fn take(&mut self, packets_max: u32) -> Option<QueueEntry> {
        let number = self.service_order.pop_front()?;
        let flow = self.flows.get_mut(usize::from(number))?;
        let front = flow.entries.front_mut()?;
        let mask = lowest_bits(front.mask, packets_max);
        let entry = QueueEntry { mask, ..front.clone() };
        front.mask &= !mask;
        if front.mask == 0 {
            flow.entries.pop_front();
        }
        let count = mask.count_ones();
        flow.packets -= count;
        self.packets -= count;
        if flow.packets > 0 {
            self.service_order.push_back(number);
        }
        Some(entry)
    }

    /// Takes packets of the next sub-flow, if they are of the same batch as `entry`.
    fn take_same_batch(&mut self, entry: &QueueEntry, packets_max: u32) -> Option<QueueEntry> {
        let next = self.flows.get(usize::from(*self.service_order.front()?))?;
        if next.entries.front()?.can_merge(entry) { self.take(packets_max) } else { None }
    }

    /// Removes all packets and returns their number.
    fn clear(&mut self) -> u64 {
        self.service_order.clear();
        for flow in &mut self.flows {
            flow.entries.clear();
            flow.packets = 0;
        }
        u64::from(std::mem::take(&mut self.packets))
    }
}

/// The lowest `count` set bits of the mask.
fn lowest_bits(mask: u64, count: u32) -> u64 {
    if mask.count_ones() <= count {
        return mask;
    }
    let mut rest = mask;
    for _ in 0..count {
        rest &= rest.wrapping_sub(1);
    }
    mask & !rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_netio::{Capture, CaptureInput, CaptureNext, MemoryQuota, Selection};

    /// Blocks of `packets` packets in all.
    fn blocks(packets: usize) -> Vec<Arc<Block>> {
        let mut bytes = b"\xd4\xc3\xb2\xa1\x02\0\x04\0\0\0\0\0\0\0\0\0\xff\xff\0\0\x01\0\0\0".to_vec();
        for _ in 0..packets {
            bytes.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 14, 0, 0, 0, 14, 0, 0, 0]);
            bytes.extend_from_slice(&[0; 14]);
        }
        let mut capture = Capture::open(CaptureInput::Bytes(bytes)).unwrap();
        let mut blocks = Vec::new();
        while let CaptureNext::Block(block) = capture.next_block().unwrap() {
            blocks.push(Arc::new(block));
        }
        blocks
    }

    fn put(queue: &PacketQueue, block: &Arc<Block>, masks: &[u64], position: u64) -> (u64, bool) {
        let PutOutcome { lost, wakes } = queue.put(block, masks, position, &[]);
        (lost, wakes)
    }

    #[test]
    fn the_first_packets_stay_and_come_out_in_order() {
        let block = &blocks(200)[0];
        let queue = PacketQueue::new(100, 1);
        let whole: Vec<u64> = block.batches().map(|batch| batch.mask).collect();
        assert_eq!(put(&queue, block, &whole, 0), (100, true));
        assert_eq!(put(&queue, block, &[1], 0), (1, false));
        assert_eq!((queue.waiting(), queue.is_full(), queue.filled()), (100, true, 1000));

        let taken: Vec<_> = std::iter::from_fn(|| queue.take(40)).map(|t| (t.batch, t.mask)).collect();
        let low = |bits: u32| (1u64 << bits) - 1;
        assert_eq!(taken, [(0, low(40)), (0, !low(40)), (1, low(36))]);
        assert_eq!((queue.waiting(), queue.oldest()), (0, None));
    }

    #[test]
    fn the_reader_is_woken_when_the_first_packet_comes_and_when_the_queue_is_half_full() {
        let block = &blocks(64)[0];
        let queue = PacketQueue::new(10, 1);
        let wakes = [1, 2, 4, 8, 16, 32].map(|mask| put(&queue, block, &[mask], 0).1);
        assert_eq!(wakes, [true, false, false, false, true, false]);
    }

    #[test]
    fn a_burst_of_one_sub_flow_evicts_no_other_and_all_are_served_in_turn() {
        let block = &blocks(64)[0];
        let queue = PacketQueue::new(4, 3);
        // Sub-flow 0 has fifty packets before sub-flows 1 and 2 have two each.
        let flows: Vec<u16> = (0..64).map(|i| if i < 50 { 0 } else { 1 + i % 2 }).collect();
        let wanted = u64::MAX >> 10;
        assert_eq!(queue.put(block, &[wanted], 0, &flows).lost, 46);
        assert_eq!((queue.waiting(), queue.is_full()), (8, false));
        // All packets are of one batch, so they come out together; with two at a time, each sub-flow has its turn.
        let low = |from: u64, count: u32| ((1u64 << count) - 1) << from;
        assert_eq!(queue.take(2).unwrap().mask, low(0, 2));
        assert_eq!(queue.take(3).unwrap().mask, 1 << 50 | 1 << 52 | 1 << 51);
        assert_eq!(queue.take(64).unwrap().mask, low(2, 2) | 1 << 53);
        assert!(queue.take(64).is_none() && queue.waiting() == 0);
    }

    #[test]
    fn lagging_packets_are_evicted_in_all_flows_and_a_closed_queue_accepts_nothing() {
        let block = &blocks(10)[0];
        let queue = PacketQueue::new(100, 2);
        for position in [0, 1000, 2000] {
            queue.put(block, &[0b1111], position, &[0, 1, 0, 1]);
        }
        assert_eq!(queue.oldest(), Some(0));
        assert_eq!(queue.evict_before(2000), 8);
        assert_eq!((queue.oldest(), queue.waiting()), (Some(2000), 4));
        assert_eq!(queue.take(64).unwrap().mask, 0b1111);
        queue.put(block, &[0b11], 2500, &[0, 1]);
        assert_eq!(queue.evict_all(), 2);
        queue.put(block, &[0b111], 2500, &[0, 1, 7]);
        assert_eq!((queue.close(), queue.close()), (Some(2), None));
        assert_eq!(queue.put(block, &[0b11], 3000, &[]), PutOutcome { lost: 2, wakes: false });
        assert!(queue.take(1).is_none());
    }

    #[test]
    fn moved_packets_keep_their_order_and_free_the_block_that_they_arrived_in() {
        let capture = blocks(300);
        let block = &capture[0];
        let queue = PacketQueue::new(1000, 1).with_overflow(Some(Overflow::unreserved(1000)));
        let masks: Vec<u64> = block.batches().map(|batch| batch.mask & !1).collect();
        let expected: u32 = masks.iter().map(|mask| mask.count_ones()).sum();
        assert_eq!(put(&queue, block, &masks, 10).0, 0);
        assert_eq!((queue.oldest(), queue.move_before(10)), (Some(10), 0));
        assert_eq!(queue.move_before(11), u64::from(expected));
        assert_eq!((Arc::strong_count(block), queue.oldest(), queue.waiting()), (1, None, expected));
        // Later packets are where they arrived, so only these can be evicted by position.
        assert_eq!(put(&queue, block, &[0b11], 20).0, 0);
        assert_eq!((queue.oldest(), queue.evict_before(u64::MAX)), (Some(20), 2));
        assert_eq!(put(&queue, block, &[0b1], 30).0, 0);
        let mut taken = Vec::new();
        while let Some(entry) = queue.take(64) {
            assert_eq!(queue.in_hand(), (!entry.is_moved).then_some(30));
            let bits = (0..64).filter(|bit| entry.mask >> bit & 1 == 1);
            let at = |bit: usize| entry.block.descriptors()[entry.batch * BATCH_PACKETS + bit];
            taken.extend(bits.map(|bit| at(bit).cap_len));
            // In-hand packets can be moved, too.
            let own = queue.copy_to_own_memory(&entry).unwrap();
            assert_eq!((own.is_moved, own.packets()), (true, entry.packets()));
        }
        assert_eq!(taken.len(), expected as usize + 1);
    }

    #[test]
    fn memory_of_the_queue_is_released_after_its_last_packet_and_mapped_again() {
        let capture = blocks(300);
        let room = MemoryQuota::new(Selection::memory(1000));
        let queue =
            PacketQueue::new(1000, 1).with_overflow(Some(Overflow::within(1000, Some(Arc::clone(&room)))));
        let masks: Vec<u64> = capture[0].batches().map(|batch| batch.mask).collect();
        assert!(!queue.release_memory(), "no memory is mapped yet");
        for position in [10, 20] {
            put(&queue, &capture[0], &masks, position);
            assert_eq!(queue.move_before(position + 1), 300);
            assert!(room.left() < Selection::memory(1000) && !queue.release_memory(), "packets wait");
            let mut mapped = None;
            while let Some(entry) = queue.take(64) {
                assert!(!queue.release_memory(), "packets are in hand");
                mapped = Some(Arc::clone(entry.block.window()));
            }
            queue.release();
            assert!(!queue.release_memory(), "a module has it mapped");
            drop(mapped);
            assert!(queue.release_memory() && !queue.release_memory());
            assert_eq!(room.left(), Selection::memory(1000));
        }
    }

    #[test]
    fn a_queue_of_several_sub_flows_holds_as_many_packets_as_its_capacity() {
        let block = &blocks(64)[0];
        let queue = PacketQueue::divided(10, 4);
        let flows: Vec<u16> = (0..64).map(|i| i % 4).collect();
        assert_eq!(queue.put(block, &[u64::MAX], 0, &flows).lost, 54);
        assert_eq!((queue.waiting(), queue.is_full(), queue.filled()), (10, true, 1000));
    }

    #[test]
    fn packets_that_do_not_fit_stay_where_they_are() {
        let capture = blocks(1000);
        let queue = PacketQueue::new(100_000, 1).with_overflow(Some(Overflow::unreserved(1)));
        let whole: Vec<u64> = capture[0].batches().map(|batch| batch.mask).collect();
        for position in 0..40 {
            put(&queue, &capture[0], &whole, position);
        }
        let waiting = queue.waiting();
        let moved = queue.move_before(u64::MAX);
        assert!(moved > 0 && moved < waiting.into(), "{moved}");
        assert_eq!(queue.evict_before(u64::MAX) + moved, u64::from(waiting));
        assert_eq!(u64::from(queue.waiting()), moved);
    }

    #[test]
    fn a_block_is_free_when_its_last_entry_is_dropped() {
        let block = blocks(3).remove(0);
        let queue = PacketQueue::new(10, 1);
        put(&queue, &block, &[0b101], 0);
        assert_eq!(Arc::strong_count(&block), 2);
        assert_eq!(queue.in_hand(), None);
        let entry = queue.take(1);
        assert_eq!((Arc::strong_count(&block), queue.waiting(), queue.in_hand()), (3, 1, Some(0)));
        drop(entry);
        queue.release();
        assert_eq!(queue.in_hand(), None);
        queue.close();
        assert_eq!(Arc::strong_count(&block), 1);
    }

    #[test]
    fn lowest_bits_returns_the_lowest_set_bits_of_a_mask() {
        assert_eq!(lowest_bits(0b1011_0100, 2), 0b1_0100);
        assert_eq!(lowest_bits(u64::MAX, 64), u64::MAX);
        assert_eq!(lowest_bits(u64::MAX, 0), 0);
        assert_eq!(lowest_bits(1 << 63, 1), 1 << 63);
    }
}
