//! A channel's queue: packets that wait for a session, where they lie.

use crate::overflow::Overflow;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir_abi::BATCH_PACKETS;
use weir_netio::Block;

/// Packets of one batch. While it exists their memory stays as it is.
#[derive(Clone, Debug)]
pub struct BatchTicket {
    /// Where they are.
    pub block: Arc<Block>,
    /// Which batch of the block.
    pub batch: usize,
    /// Bit i: packet i of the batch.
    pub mask: u64,
    /// How much traffic of the interface came before the block, in bytes.
    pub position: u64,
    /// They are in memory of the queue or the module: the memory that they came in does not wait for them.
    pub is_own: bool,
}

impl BatchTicket {
    /// How many packets.
    pub fn packets(&self) -> u32 {
        self.mask.count_ones()
    }

    /// Whether both can be one: packets of the same batch, none of them twice.
    fn goes_with(&self, other: &BatchTicket) -> bool {
        self.mask & other.mask == 0
            && (self.batch, self.position) == (other.batch, other.position)
            && Arc::ptr_eq(&self.block, &other.block)
    }
}

/// A bounded queue. One thread puts packets in, one takes them out.
///
/// Without sub-flows they come out in the order of arrival. With them each sub-flow has a queue of its own, of the same size, and they are
/// served in turn: so a burst of one costs the others neither room nor their turn. Packets of one batch come out together, in the order of
/// arrival, where those of several sub-flows are next.
#[derive(Debug)]
pub struct PacketQueue {
    inner: Mutex<Inner>,
    /// Packets of all flows.
    capacity: u32,
    /// Where those packets are that were taken out, and that whoever did so is not done with; [`NOTHING`] where there are none.
    in_hand: AtomicU64,
    /// Memory for packets that wait for too long to stay where they arrived.
    overflow: Option<Overflow>,
}

/// Packets that are copied at a time.
const MOVED_MAX: u64 = 512;
/// No position.
const NOTHING: u64 = u64::MAX;

#[derive(Debug, Default)]
struct Inner {
    flows: Vec<Flow>,
    /// Those with packets, in the order in which they are served.
    turn: VecDeque<u16>,
    packets: u32,
    closed: bool,
}

#[derive(Debug, Default)]
struct Flow {
    /// The most packets.
    capacity: u32,
    tickets: VecDeque<BatchTicket>,
    packets: u32,
}

/// What became of packets that were put in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Put {
    /// Packets for which there was no room.
    pub lost: u64,
    /// The queue was empty before and no longer is, or is now half full and was not: somebody has to be told.
    pub wakes: bool,
}

impl PacketQueue {
    /// An empty queue for so many packets, for each of so many flows; at least one.
    pub fn new(capacity: u32, flows: u16) -> Self {
        Self::divided(capacity.saturating_mul(flows.max(1).into()), flows)
    }

    /// An empty queue for so many packets in all, of which each of so many flows has its part; the parts differ by one packet at most.
    pub fn divided(capacity: u32, flows: u16) -> Self {
        let flows = flows.max(1);
        let (part, rest) = (capacity / u32::from(flows), capacity % u32::from(flows));
        let part = |flow: u16| part + u32::from(u32::from(flow) < rest);
        let flow = |flow| Flow { capacity: part(flow), ..Flow::default() };
        let inner = Inner { flows: (0..flows).map(flow).collect(), ..Inner::default() };
        let (inner, in_hand) = (Mutex::new(inner), AtomicU64::new(NOTHING));
        Self { inner, capacity, in_hand, overflow: None }
    }

    /// The same, with memory for packets that cannot wait where they came.
    #[must_use]
    pub fn with(self, overflow: Option<Overflow>) -> Self {
        Self { overflow, ..self }
    }

    /// True where it has such memory.
    pub fn has_own_memory(&self) -> bool {
        self.overflow.is_some()
    }

    /// Returns true where it has memory of its own now, needed or not.
    pub fn has_made_memory(&self) -> bool {
        self.overflow.as_ref().is_some_and(Overflow::is_made)
    }

    /// Gives memory of its own back that it does not need any more. Returns true if there was some.
    pub fn give_back(&self) -> bool {
        self.overflow.as_ref().is_some_and(Overflow::give_back)
    }

    /// How many packets wait.
    pub fn waiting(&self) -> u32 {
        self.lock().packets
    }

    /// Whether there is room for nothing.
    pub fn is_full(&self) -> bool {
        self.waiting() >= self.capacity
    }

    /// How full it is, in thousandths.
    pub fn filled(&self) -> u32 {
        let filled = (u64::from(self.waiting()) * 1000).checked_div(self.capacity.into());
        filled.and_then(|filled| u32::try_from(filled).ok()).unwrap_or(1000)
    }

    fn is_half_full(&self, packets: u32) -> bool {
        u64::from(packets) * 2 >= u64::from(self.capacity)
    }

    /// Puts in what the masks select of a block's batches, as far as there is room: the first packets stay, the later ones are lost. `flows` says
    /// of each packet of the block to which flow it belongs; where nothing is said it is flow 0.
    pub fn put(&self, block: &Arc<Block>, masks: &[u64], position: u64, flows: &[u16]) -> Put {
        let mut inner = self.lock();
        let before = inner.packets;
        let mut lost = 0;
        for (batch, &mask) in masks.iter().enumerate().filter(|(_, mask)| **mask != 0) {
            let mut rest = mask;
            while rest != 0 {
                // Without flows all of a batch go in at once.
                let part = if flows.is_empty() { rest } else { rest & rest.wrapping_neg() };
                let index = batch * BATCH_PACKETS + part.trailing_zeros() as usize;
                let flow = flows.get(index).copied().unwrap_or(0);
                let ticket =
                    BatchTicket { block: Arc::clone(block), batch, mask: part, position, is_own: false };
                lost += inner.put(flow, ticket);
                rest &= !part;
            }
        }
        let now = inner.packets;
        let wakes = before == 0 && now > 0 || !self.is_half_full(before) && self.is_half_full(now);
        Put { lost, wakes }
    }

    /// Takes out the oldest packets of one batch, at most so many. From then on whoever does so has them in hand, and no others.
    pub fn take(&self, most: u32) -> Option<BatchTicket> {
        let mut inner = self.lock();
        let mut taken = inner.take(most.max(1))?;
        while let Some(left) = most.checked_sub(taken.packets()).filter(|left| *left > 0)
            && let Some(more) = inner.take_of(&taken, left)
        {
            taken.mask |= more.mask;
        }
        let held = if taken.is_own { NOTHING } else { taken.position };
        self.in_hand.store(held, Ordering::Relaxed);
        Some(taken)
    }

    /// Where the packets are that were taken out and are not done with; nothing where there are none.
    pub fn in_hand(&self) -> Option<u64> {
        Some(self.in_hand.load(Ordering::Relaxed)).filter(|position| *position != NOTHING)
    }

    /// Whoever has taken packets out is done with all of them.
    pub fn let_go(&self) {
        self.in_hand.store(NOTHING, Ordering::Relaxed);
    }

    /// Copies packets that came before this position to memory of the queue, the oldest first, as far as they fit, and some hundreds at a time: others wait for the
    /// receiving thread and for the queue. Says how many packets.
    pub fn move_before(&self, position: u64) -> u64 {
        let Some(overflow) = &self.overflow else { return 0 };
        let mut inner = self.lock();
        let mut moved = 0;
        for flow in &mut inner.flows {
            let held = flow.held(position);
            for ticket in flow.tickets.range_mut(held) {
                if moved >= MOVED_MAX {
                    return moved;
                }
                let Some(own) = overflow.copy(ticket) else { return moved };
                moved += u64::from(own.packets());
                *ticket = own;
            }
        }
        moved
    }

    /// Packets that were taken out, in memory of the queue; nothing where they do not fit.
    pub fn own(&self, ticket: &BatchTicket) -> Option<BatchTicket> {
        if ticket.is_own { Some(ticket.clone()) } else { self.overflow.as_ref()?.copy(ticket) }
    }

    /// Gives up what came before this position and is where it came. Says how many packets.
    pub fn give_up_before(&self, position: u64) -> u64 {
        let mut inner = self.lock();
        let mut lost = 0;
        for flow in &mut inner.flows {
            let held = flow.held(position);
            let given_up: u32 = flow.tickets.drain(held).map(|ticket| ticket.packets()).sum();
            flow.packets -= given_up;
            lost += given_up;
        }
        inner.packets -= lost;
        let Inner { flows, turn, .. } = &mut *inner;
        turn.retain(|flow| flows.get(usize::from(*flow)).is_some_and(|flow| flow.packets > 0));
        lost.into()
    }

    /// Gives up all that waits. Says how many packets.
    pub fn give_up_all(&self) -> u64 {
        self.lock().empty()
    }

    /// The position of the oldest packet that waits where it arrived; `None` where none waits there.
    pub fn oldest(&self) -> Option<u64> {
        let inner = self.lock();
        let fronts = inner.flows.iter().filter_map(|flow| flow.tickets.get(flow.owned()));
        fronts.map(|ticket| ticket.position).min()
    }

    /// Gives up everything, and takes nothing more. Says how many packets; nothing where it was closed before.
    pub fn close(&self) -> Option<u64> {
        let mut inner = self.lock();
        let was_closed = std::mem::replace(&mut inner.closed, true);
        let lost = inner.empty();
        (!was_closed).then_some(lost)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flow {
    /// Tickets in memory of the queue: the first ones, since the oldest are moved first.
    fn owned(&self) -> usize {
        self.tickets.partition_point(|ticket| ticket.is_own)
    }

    /// The places of tickets before this position that are where they came.
    fn held(&self, position: u64) -> Range<usize> {
        let owned = self.owned();
        owned..self.tickets.partition_point(|ticket| ticket.is_own || ticket.position < position)
    }
}

impl Inner {
    fn put(&mut self, number: u16, mut ticket: BatchTicket) -> u64 {
        let came = ticket.packets();
        let Some(flow) = self.flows.get_mut(usize::from(number)).filter(|_| !self.closed) else {
            return came.into();
        };
        ticket.mask = lowest(ticket.mask, flow.capacity.saturating_sub(flow.packets));
        let kept = ticket.packets();
        if kept == 0 {
            return came.into();
        }
        if flow.packets == 0 {
            self.turn.push_back(number);
        }
        self.packets += kept;
        flow.packets += kept;
        match flow.tickets.back_mut().filter(|last| last.goes_with(&ticket)) {
            Some(last) => last.mask |= ticket.mask,
            None => flow.tickets.push_back(ticket),
        }
        (came - kept).into()
    }

    /// The oldest packets of the flow whose turn it is.
    fn take(&mut self, most: u32) -> Option<BatchTicket> {
        let number = self.turn.pop_front()?;
        let flow = self.flows.get_mut(usize::from(number))?;
        let front = flow.tickets.front_mut()?;
        let mask = lowest(front.mask, most);
        let ticket = BatchTicket { mask, ..front.clone() };
        front.mask &= !mask;
        if front.mask == 0 {
            flow.tickets.pop_front();
        }
        let count = mask.count_ones();
        flow.packets -= count;
        self.packets -= count;
        if flow.packets > 0 {
            self.turn.push_back(number);
        }
        Some(ticket)
    }

    /// The same where they are of the same batch as these.
    fn take_of(&mut self, ticket: &BatchTicket, most: u32) -> Option<BatchTicket> {
        let next = self.flows.get(usize::from(*self.turn.front()?))?;
        if next.tickets.front()?.goes_with(ticket) { self.take(most) } else { None }
    }

    fn empty(&mut self) -> u64 {
        self.turn.clear();
        for flow in &mut self.flows {
            flow.tickets.clear();
            flow.packets = 0;
        }
        u64::from(std::mem::take(&mut self.packets))
    }
}

/// The lowest `count` bits that are set in the mask.
fn lowest(mask: u64, count: u32) -> u64 {
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
    use weir_netio::{Capture, CaptureInput, CaptureNext, PacketBuffers, Selection};

    /// Blocks of so many packets in all.
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
        let Put { lost, wakes } = queue.put(block, masks, position, &[]);
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
    fn somebody_is_told_when_the_first_comes_and_when_it_is_half_full() {
        let block = &blocks(64)[0];
        let queue = PacketQueue::new(10, 1);
        let told = [1, 2, 4, 8, 16, 32].map(|mask| put(&queue, block, &[mask], 0).1);
        assert_eq!(told, [true, false, false, false, true, false]);
    }

    #[test]
    fn a_burst_of_one_flow_pushes_out_no_other_and_all_are_served_in_turn() {
        let block = &blocks(64)[0];
        let queue = PacketQueue::new(4, 3);
        // Flow 0 sends fifty packets before flows 1 and 2 send two each.
        let flows: Vec<u16> = (0..64).map(|i| if i < 50 { 0 } else { 1 + i % 2 }).collect();
        let wanted = u64::MAX >> 10;
        assert_eq!(queue.put(block, &[wanted], 0, &flows).lost, 46);
        assert_eq!((queue.waiting(), queue.is_full()), (8, false));
        // All are of one batch, so they come out together; two at a time, it is everybody's turn.
        let low = |from: u64, count: u32| ((1u64 << count) - 1) << from;
        assert_eq!(queue.take(2).unwrap().mask, low(0, 2));
        assert_eq!(queue.take(3).unwrap().mask, 1 << 50 | 1 << 52 | 1 << 51);
        assert_eq!(queue.take(64).unwrap().mask, low(2, 2) | 1 << 53);
        assert!(queue.take(64).is_none() && queue.waiting() == 0);
    }

    #[test]
    fn what_lags_is_given_up_in_all_flows_and_a_closed_queue_takes_nothing() {
        let block = &blocks(10)[0];
        let queue = PacketQueue::new(100, 2);
        for position in [0, 1000, 2000] {
            queue.put(block, &[0b1111], position, &[0, 1, 0, 1]);
        }
        assert_eq!(queue.oldest(), Some(0));
        assert_eq!(queue.give_up_before(2000), 8);
        assert_eq!((queue.oldest(), queue.waiting()), (Some(2000), 4));
        assert_eq!(queue.take(64).unwrap().mask, 0b1111);
        queue.put(block, &[0b11], 2500, &[0, 1]);
        assert_eq!(queue.give_up_all(), 2);
        queue.put(block, &[0b111], 2500, &[0, 1, 7]);
        assert_eq!((queue.close(), queue.close()), (Some(2), None));
        assert_eq!(queue.put(block, &[0b11], 3000, &[]), Put { lost: 2, wakes: false });
        assert!(queue.take(1).is_none());
    }

    #[test]
    fn what_is_moved_waits_on_in_its_order_and_frees_the_block_that_it_came_in() {
        let capture = blocks(300);
        let block = &capture[0];
        let queue = PacketQueue::new(1000, 1).with(Some(Overflow::unreserved(1000)));
        let masks: Vec<u64> = block.batches().map(|batch| batch.mask & !1).collect();
        let expected: u32 = masks.iter().map(|mask| mask.count_ones()).sum();
        assert_eq!(put(&queue, block, &masks, 10).0, 0);
        assert_eq!((queue.oldest(), queue.move_before(10)), (Some(10), 0));
        assert_eq!(queue.move_before(11), u64::from(expected));
        assert_eq!((Arc::strong_count(block), queue.oldest(), queue.waiting()), (1, None, expected));
        // What comes later is where it came, and alone can be given up there.
        assert_eq!(put(&queue, block, &[0b11], 20).0, 0);
        assert_eq!((queue.oldest(), queue.give_up_before(u64::MAX)), (Some(20), 2));
        assert_eq!(put(&queue, block, &[0b1], 30).0, 0);
        let mut taken = Vec::new();
        while let Some(ticket) = queue.take(64) {
            assert_eq!(queue.in_hand(), (!ticket.is_own).then_some(30));
            let bits = (0..64).filter(|bit| ticket.mask >> bit & 1 == 1);
            let at = |bit: usize| ticket.block.descriptors()[ticket.batch * BATCH_PACKETS + bit];
            taken.extend(bits.map(|bit| at(bit).cap_len));
            // In hand, too, packets can be moved.
            let own = queue.own(&ticket).unwrap();
            assert_eq!((own.is_own, own.packets()), (true, ticket.packets()));
        }
        assert_eq!(taken.len(), expected as usize + 1);
    }

    #[test]
    fn memory_that_packets_waited_in_is_given_back_when_the_last_is_gone_and_made_again() {
        let capture = blocks(300);
        let room = PacketBuffers::new(Selection::memory(1000));
        let queue = PacketQueue::new(1000, 1).with(Some(Overflow::within(1000, Some(Arc::clone(&room)))));
        let masks: Vec<u64> = capture[0].batches().map(|batch| batch.mask).collect();
        assert!(!queue.give_back(), "there is none yet");
        for position in [10, 20] {
            put(&queue, &capture[0], &masks, position);
            assert_eq!(queue.move_before(position + 1), 300);
            assert!(room.left() < Selection::memory(1000) && !queue.give_back(), "packets wait");
            let mut facing = None;
            while let Some(ticket) = queue.take(64) {
                assert!(!queue.give_back(), "packets are in hand");
                facing = Some(Arc::clone(ticket.block.window()));
            }
            queue.let_go();
            assert!(!queue.give_back(), "a module has it mapped");
            drop(facing);
            assert!(queue.give_back() && !queue.give_back());
            assert_eq!(room.left(), Selection::memory(1000));
        }
    }

    #[test]
    fn a_queue_of_several_flows_holds_as_many_packets_as_it_is_for() {
        let block = &blocks(64)[0];
        let queue = PacketQueue::divided(10, 4);
        let flows: Vec<u16> = (0..64).map(|i| i % 4).collect();
        assert_eq!(queue.put(block, &[u64::MAX], 0, &flows).lost, 54);
        assert_eq!((queue.waiting(), queue.is_full(), queue.filled()), (10, true, 1000));
    }

    #[test]
    fn what_does_not_fit_stays_where_it_is() {
        let capture = blocks(1000);
        let queue = PacketQueue::new(100_000, 1).with(Some(Overflow::unreserved(1)));
        let whole: Vec<u64> = capture[0].batches().map(|batch| batch.mask).collect();
        for position in 0..40 {
            put(&queue, &capture[0], &whole, position);
        }
        let waiting = queue.waiting();
        let moved = queue.move_before(u64::MAX);
        assert!(moved > 0 && moved < waiting.into(), "{moved}");
        assert_eq!(queue.give_up_before(u64::MAX) + moved, u64::from(waiting));
        assert_eq!(u64::from(queue.waiting()), moved);
    }

    #[test]
    fn a_block_is_free_when_its_last_ticket_is_gone() {
        let block = blocks(3).remove(0);
        let queue = PacketQueue::new(10, 1);
        put(&queue, &block, &[0b101], 0);
        assert_eq!(Arc::strong_count(&block), 2);
        assert_eq!(queue.in_hand(), None);
        let ticket = queue.take(1);
        assert_eq!((Arc::strong_count(&block), queue.waiting(), queue.in_hand()), (3, 1, Some(0)));
        drop(ticket);
        queue.let_go();
        assert_eq!(queue.in_hand(), None);
        queue.close();
        assert_eq!(Arc::strong_count(&block), 1);
    }

    #[test]
    fn the_lowest_bits_of_a_mask() {
        assert_eq!(lowest(0b1011_0100, 2), 0b1_0100);
        assert_eq!(lowest(u64::MAX, 64), u64::MAX);
        assert_eq!(lowest(u64::MAX, 0), 0);
        assert_eq!(lowest(1 << 63, 1), 1 << 63);
    }
}
