//! The packets of a queue between two threads.
//!
//! One thread adds packets, and another one removes them. Packets move in groups, each behind one lock. The number of
//! packets is a counter beside the lock, and includes those of a group that is being taken apart: so a full queue is
//! found without the lock, and no group gets more packets than there is room.
//!
//! Neither side misses that the other one waits:
//!
//! - The removing side states behind the lock that it found nothing. The next group that is added takes the statement
//!   back, and its thread wakes the other.
//! - The adding side states that it waits for room, then looks at the number of packets again. The removing side
//!   subtracts from the number, then looks at the statement. In the order in which all threads see these four steps, one
//!   side sees what the other did.

use crate::engine::packet::{ArrivedPackets, GraphPacket, PacketPool, TransferredPackets};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The packet that a full queue discards, and the end at which a packet is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueDiscipline {
    /// First in, first out; a packet that comes to a full queue is discarded.
    DropsNew,
    /// First in, first out; the oldest packet is discarded.
    DropsOldest,
    /// Packets can be added at both ends, so each packet is a group of its own.
    TwoEnds,
}

/// The counts of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// The number of discarded packets.
    pub drops: u64,
    /// The most packets that were stored.
    pub highwater: usize,
}

#[derive(Debug, Default)]
struct QueueState {
    groups: VecDeque<TransferredPackets>,
    /// The removing side found nothing, and has to be woken.
    is_waited_for: bool,
}

/// The packets of a queue between two threads, with its counters.
#[derive(Debug)]
pub struct ThreadQueue {
    state: Mutex<QueueState>,
    capacity: AtomicUsize,
    /// The number of packets, with those of a group that is taken apart.
    length: AtomicUsize,
    highwater: AtomicUsize,
    drops: AtomicU64,
    /// The adding side waits for room.
    waits_for_room: AtomicBool,
}

impl Default for ThreadQueue {
    fn default() -> Self {
        Self {
            state: Mutex::new(QueueState { groups: VecDeque::new(), is_waited_for: true }),
            capacity: AtomicUsize::new(0),
            length: AtomicUsize::new(0),
            highwater: AtomicUsize::new(0),
            drops: AtomicU64::new(0),
            waits_for_room: AtomicBool::new(true),
        }
    }
}

impl ThreadQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // No function leaves the state half changed, so a thread that ended early does not matter.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of packets.
    pub fn len(&self) -> usize {
        self.length.load(Ordering::SeqCst)
    }

    /// Returns true if there is no packet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the most packets that are stored.
    pub fn capacity(&self) -> usize {
        self.capacity.load(Ordering::SeqCst)
    }

    /// Returns the number of packets for which there is room.
    pub fn room(&self) -> usize {
        self.capacity().saturating_sub(self.len())
    }

    /// Returns the most packets that were stored.
    pub fn highwater(&self) -> usize {
        self.highwater.load(Ordering::Relaxed)
    }

    /// Returns the number of discarded packets.
    pub fn drops(&self) -> u64 {
        self.drops.load(Ordering::Relaxed)
    }

    /// Sets the number of discarded packets to 0, and the most packets that were stored to the present number.
    pub fn reset_counts(&self) {
        self.drops.store(0, Ordering::Relaxed);
        self.highwater.store(self.len(), Ordering::Relaxed);
    }

    /// Sets the capacity of a queue without packets.
    pub fn begin(&self, capacity: usize) {
        self.capacity.store(capacity, Ordering::SeqCst);
    }

    /// Adds packets, or discards them. `is_first` adds each before all others. Returns true if the other side has to be
    /// woken.
    pub fn add(
        &self,
        packets: impl ExactSizeIterator<Item = GraphPacket>,
        discipline: QueueDiscipline,
        is_first: bool,
        pool: &mut PacketPool,
    ) -> bool {
        match discipline {
            QueueDiscipline::DropsNew => self.add_groups(packets, pool),
            QueueDiscipline::DropsOldest | QueueDiscipline::TwoEnds => {
                self.add_singly(packets, discipline, is_first, pool)
            }
        }
    }

    fn add_groups(&self, packets: impl ExactSizeIterator<Item = GraphPacket>, pool: &mut PacketPool) -> bool {
        let all = packets.len();
        // The other side only makes more room.
        let mut left = self.room().min(all);
        self.drops.fetch_add((all - left) as u64, Ordering::Relaxed);
        let mut wakes = false;
        let mut group = TransferredPackets::default();
        for packet in packets {
            if left > 0 {
                group.add(&packet);
                left -= 1;
                if left == 0 || group.is_full() {
                    wakes |= self.add_group(std::mem::take(&mut group));
                }
            }
            pool.discard(packet);
        }
        wakes
    }

    fn add_group(&self, group: TransferredPackets) -> bool {
        let length = self.length.fetch_add(group.len(), Ordering::SeqCst) + group.len();
        self.highwater.fetch_max(length, Ordering::Relaxed);
        let mut state = self.lock();
        state.groups.push_back(group);
        std::mem::take(&mut state.is_waited_for)
    }

    fn add_singly(
        &self,
        packets: impl Iterator<Item = GraphPacket>,
        discipline: QueueDiscipline,
        is_first: bool,
        pool: &mut PacketPool,
    ) -> bool {
        let mut state = self.lock();
        for packet in packets {
            if state.groups.len() >= self.capacity() {
                self.drops.fetch_add(1, Ordering::Relaxed);
                let dropped = match (discipline, is_first) {
                    (QueueDiscipline::DropsOldest, _) => state.groups.pop_front(),
                    (_, true) => state.groups.pop_back(),
                    (_, false) => None,
                };
                if dropped.is_none() {
                    pool.discard(packet);
                    continue;
                }
                self.length.fetch_sub(1, Ordering::SeqCst);
            }
            let mut group = TransferredPackets::default();
            group.add(&packet);
            pool.discard(packet);
            if is_first {
                state.groups.push_front(group);
            } else {
                state.groups.push_back(group);
            }
            let length = self.length.fetch_add(1, Ordering::SeqCst) + 1;
            self.highwater.fetch_max(length, Ordering::Relaxed);
        }
        !state.groups.is_empty() && std::mem::take(&mut state.is_waited_for)
    }

    /// Removes the next group for taking it apart. Its packets count until [`ThreadQueue::removed`]. If there is none, the
    /// next packet wakes the removing side.
    pub fn take_group(&self) -> Option<ArrivedPackets> {
        let mut state = self.lock();
        let group = state.groups.pop_front();
        state.is_waited_for = group.is_none();
        group.map(ArrivedPackets::of)
    }

    /// Subtracts packets that were removed. Returns true if the adding side has to be woken.
    pub fn removed(&self, count: usize) -> bool {
        let length = self.length.fetch_sub(count, Ordering::SeqCst) - count;
        self.has_room_again(length)
    }

    /// Returns true if the adding side waits, and there is enough room again. It is not woken for each packet: half of the
    /// queue is free then.
    fn has_room_again(&self, length: usize) -> bool {
        self.waits_for_room.load(Ordering::SeqCst)
            && length <= self.capacity() / 2
            && self.room() > 0
            && self.waits_for_room.swap(false, Ordering::SeqCst)
    }

    /// States that the adding side waits for room. Returns false if there is room again, so that it does not have to.
    pub fn wait_for_room(&self) -> bool {
        self.waits_for_room.store(true, Ordering::SeqCst);
        !self.has_room_again(self.len())
    }

    /// Sets the capacity, on the removing side, which may have a group. Discards packets that are too many. Returns true if
    /// the adding side has to be woken.
    pub fn set_capacity(
        &self,
        capacity: usize,
        discipline: QueueDiscipline,
        taken: &mut ArrivedPackets,
        pool: &mut PacketPool,
    ) -> bool {
        self.capacity.store(capacity, Ordering::SeqCst);
        while self.len() > capacity {
            let is_dropped = if discipline == QueueDiscipline::DropsOldest {
                self.take_first(taken, pool)
            } else {
                self.drop_last(taken)
            };
            if !is_dropped {
                break;
            }
            self.drops.fetch_add(1, Ordering::Relaxed);
            self.length.fetch_sub(1, Ordering::SeqCst);
        }
        self.has_room_again(self.len())
    }

    fn take_first(&self, taken: &mut ArrivedPackets, pool: &mut PacketPool) -> bool {
        if taken.is_empty() {
            *taken = self.take_group().unwrap_or_default();
        }
        taken.next(pool).map(|packet| pool.discard(packet)).is_some()
    }

    fn drop_last(&self, taken: &mut ArrivedPackets) -> bool {
        let mut state = self.lock();
        while let Some(mut group) = state.groups.pop_back() {
            if group.drop_last() {
                if !group.is_empty() {
                    state.groups.push_back(group);
                }
                return true;
            }
        }
        taken.drop_last()
    }

    /// Removes all packets, on the removing side.
    pub fn drain(&self, taken: &mut ArrivedPackets, pool: &mut PacketPool) -> Vec<GraphPacket> {
        let mut packets = Vec::new();
        loop {
            while let Some(packet) = taken.next(pool) {
                packets.push(packet);
            }
            match self.take_group() {
                Some(group) => *taken = group,
                None => break,
            }
        }
        self.length.fetch_sub(packets.len(), Ordering::SeqCst);
        packets
    }

    /// Adds the packets and counts of an earlier queue to one without packets, also packets that exceed the capacity.
    pub fn restore(
        &self,
        packets: impl IntoIterator<Item = GraphPacket>,
        discipline: QueueDiscipline,
        counts: QueueCounts,
        pool: &mut PacketPool,
    ) {
        let mut group = TransferredPackets::default();
        for packet in packets {
            group.add(&packet);
            pool.discard(packet);
            if group.is_full() || discipline != QueueDiscipline::DropsNew {
                self.add_group(std::mem::take(&mut group));
            }
        }
        if !group.is_empty() {
            self.add_group(group);
        }
        self.drops.store(counts.drops, Ordering::Relaxed);
        self.highwater.fetch_max(counts.highwater, Ordering::Relaxed);
    }

    /// Discards all packets, on the removing side. Returns true if the adding side has to be woken.
    pub fn clear(&self, taken: &mut ArrivedPackets) -> bool {
        let mut state = self.lock();
        state.is_waited_for = true;
        let groups = std::mem::take(&mut state.groups);
        drop(state);
        let count = groups.iter().map(TransferredPackets::len).sum::<usize>() + std::mem::take(taken).len();
        self.removed(count)
    }
}
