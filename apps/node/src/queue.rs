//! A channel's queue: packets that wait for a session, where they lie.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir_netio::Block;

/// Packets of one batch. While it exists their memory stays as it is.
#[derive(Clone, Debug)]
pub struct Ticket {
    /// Where they are.
    pub block: Arc<Block>,
    /// Which batch of the block.
    pub batch: usize,
    /// Bit i: packet i of the batch.
    pub mask: u64,
    /// How much traffic of the interface came before the block, in bytes.
    pub position: u64,
}

impl Ticket {
    /// How many packets.
    pub fn packets(&self) -> u32 {
        self.mask.count_ones()
    }
}

/// A bounded queue, in the order of arrival. One thread puts packets in, one takes them out.
#[derive(Debug)]
pub struct Queue {
    inner: Mutex<Inner>,
    capacity: u32,
}

#[derive(Debug, Default)]
struct Inner {
    tickets: VecDeque<Ticket>,
    packets: u32,
    closed: bool,
}

impl Queue {
    /// An empty queue for so many packets.
    pub fn new(capacity: u32) -> Self {
        Self { inner: Mutex::default(), capacity }
    }

    /// How many packets wait.
    pub fn waiting(&self) -> u32 {
        self.lock().packets
    }

    /// Puts in what the masks select of a block's batches, as far as there is room: the first packets stay, the later ones are lost. Says
    /// how many are lost, and whether the queue was empty before and no longer is, so that somebody has to be woken.
    pub fn put(&self, block: &Arc<Block>, masks: &[u64], position: u64) -> (u64, bool) {
        let mut inner = self.lock();
        let was_empty = inner.packets == 0;
        let mut lost = 0;
        for (batch, &mask) in masks.iter().enumerate().filter(|(_, mask)| **mask != 0) {
            let room = if inner.closed { 0 } else { self.capacity - inner.packets };
            let kept = lowest(mask, room);
            lost += u64::from((mask & !kept).count_ones());
            if kept != 0 {
                inner.packets += kept.count_ones();
                inner.tickets.push_back(Ticket { block: Arc::clone(block), batch, mask: kept, position });
            }
        }
        (lost, was_empty && inner.packets > 0)
    }

    /// Takes out the oldest packets of one batch, at most so many.
    pub fn take(&self, most: u32) -> Option<Ticket> {
        let mut inner = self.lock();
        let front = inner.tickets.front_mut()?;
        let mask = lowest(front.mask, most.max(1));
        let ticket = Ticket { mask, ..front.clone() };
        front.mask &= !mask;
        if front.mask == 0 {
            inner.tickets.pop_front();
        }
        inner.packets -= mask.count_ones();
        Some(ticket)
    }

    /// Gives up what came before this position. Says how many packets.
    pub fn give_up_before(&self, position: u64) -> u64 {
        let mut inner = self.lock();
        let mut lost = 0;
        while let Some(ticket) = inner.tickets.pop_front_if(|ticket| ticket.position < position) {
            inner.packets -= ticket.packets();
            lost += u64::from(ticket.packets());
        }
        lost
    }

    /// Where the oldest packet is; nothing where none waits.
    pub fn oldest(&self) -> Option<u64> {
        self.lock().tickets.front().map(|ticket| ticket.position)
    }

    /// Gives up everything, and takes nothing more. Says how many packets.
    pub fn close(&self) -> u64 {
        let mut inner = self.lock();
        inner.closed = true;
        inner.tickets.clear();
        u64::from(std::mem::take(&mut inner.packets))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
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
    use weir_netio::{Capture, Input, Next};

    /// Blocks of so many packets in all.
    fn blocks(packets: usize) -> Vec<Arc<Block>> {
        let mut bytes = b"\xd4\xc3\xb2\xa1\x02\0\x04\0\0\0\0\0\0\0\0\0\xff\xff\0\0\x01\0\0\0".to_vec();
        for _ in 0..packets {
            bytes.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 14, 0, 0, 0, 14, 0, 0, 0]);
            bytes.extend_from_slice(&[0; 14]);
        }
        let mut capture = Capture::open(Input::Bytes(bytes)).unwrap();
        let mut blocks = Vec::new();
        while let Next::Block(block) = capture.next_block().unwrap() {
            blocks.push(Arc::new(block));
        }
        blocks
    }

    #[test]
    fn the_first_packets_stay_and_come_out_in_order() {
        let block = &blocks(200)[0];
        let queue = Queue::new(100);
        let whole: Vec<u64> = block.batches().map(|batch| batch.mask).collect();
        assert_eq!(queue.put(block, &whole, 0), (100, true));
        assert_eq!(queue.put(block, &[1], 0), (1, false));
        assert_eq!(queue.waiting(), 100);

        let taken: Vec<_> = std::iter::from_fn(|| queue.take(40)).map(|t| (t.batch, t.mask)).collect();
        let low = |bits: u32| (1u64 << bits) - 1;
        assert_eq!(taken, [(0, low(40)), (0, !low(40)), (1, low(36))]);
        assert_eq!((queue.waiting(), queue.oldest()), (0, None));
    }

    #[test]
    fn what_lags_is_given_up_and_a_closed_queue_takes_nothing() {
        let block = &blocks(10)[0];
        let queue = Queue::new(100);
        for position in [0, 1000, 2000] {
            queue.put(block, &[0b111], position);
        }
        assert_eq!(queue.give_up_before(2000), 6);
        assert_eq!((queue.oldest(), queue.waiting()), (Some(2000), 3));
        assert_eq!(queue.close(), 3);
        assert_eq!(queue.put(block, &[0b11], 3000), (2, false));
        assert!(queue.take(1).is_none());
    }

    #[test]
    fn a_block_is_free_when_its_last_ticket_is_gone() {
        let block = blocks(3).remove(0);
        let queue = Queue::new(10);
        queue.put(&block, &[0b101], 0);
        assert_eq!(Arc::strong_count(&block), 2);
        let ticket = queue.take(1);
        assert_eq!((Arc::strong_count(&block), queue.waiting()), (3, 1));
        drop(ticket);
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
