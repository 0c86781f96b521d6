//! A queue whose neighbours are on different threads. Both threads have one element for it.

use super::queue::{QueueKind, StoredPackets, earlier_packets, queue_handlers};
use std::sync::Arc;
use weir_graph::engine::{
    ArrivedPackets, Batch, Element, ElementContext, EmittingElement, GraphPacket, PacketPool, QueueCounts,
    QueueDiscipline, QueueSide, SignalId, ThreadQueue,
};

/// One side of a queue between threads: that which adds packets, or that which removes them and has the handlers.
pub struct QueueBetweenThreads {
    kind: QueueKind,
    discipline: QueueDiscipline,
    packets: Arc<ThreadQueue>,
    /// The packets that this side has removed together, and gives out one by one.
    taken: ArrivedPackets,
    nonempty: SignalId,
    nonfull: SignalId,
}

impl QueueBetweenThreads {
    /// Returns one side of a queue.
    pub fn new(
        kind: QueueKind,
        capacity: usize,
        packets: Arc<ThreadQueue>,
        nonempty: SignalId,
        nonfull: SignalId,
    ) -> Self {
        packets.begin(capacity);
        let discipline = match kind {
            QueueKind { drops_front: true, .. } => QueueDiscipline::DropsOldest,
            QueueKind { is_mixed: true, .. } => QueueDiscipline::TwoEnds,
            _ => QueueDiscipline::DropsNew,
        };
        Self { kind, discipline, packets, taken: ArrivedPackets::default(), nonempty, nonfull }
    }

    fn add(
        &mut self,
        input: usize,
        packets: impl ExactSizeIterator<Item = GraphPacket>,
        cx: &mut ElementContext<'_>,
    ) {
        let is_first = self.kind.is_mixed && input == 1;
        if self.packets.add(packets, self.discipline, is_first, &mut cx.services.pool) {
            cx.services.wake_other_thread(cx.element(), QueueSide::Packets);
        }
        if self.kind.is_nonfull && self.packets.room() == 0 {
            cx.services.signals.sleep(self.nonfull);
            if !self.packets.wait_for_room() {
                cx.services.wake(self.nonfull);
            }
        }
    }

    /// Removes all packets, on the side that removes them.
    pub fn drain(&mut self, pool: &mut PacketPool) -> (Vec<GraphPacket>, QueueCounts) {
        let counts = QueueCounts { drops: self.packets.drops(), highwater: self.packets.highwater() };
        (self.packets.drain(&mut self.taken, pool), counts)
    }

    fn wake_for_room(&self, is_room: bool, cx: &ElementContext<'_>) {
        if is_room {
            cx.services.wake_other_thread(cx.element(), QueueSide::Room);
        }
    }
}

impl StoredPackets for QueueBetweenThreads {
    fn length(&self) -> usize {
        self.packets.len()
    }

    fn highwater(&self) -> usize {
        self.packets.highwater()
    }

    fn capacity(&self) -> usize {
        self.packets.capacity()
    }

    fn drops(&self) -> u64 {
        self.packets.drops()
    }

    fn reset_counts(&mut self) {
        self.packets.reset_counts();
    }

    fn set_capacity(&mut self, capacity: usize, cx: &mut ElementContext<'_>) {
        let pool = &mut cx.services.pool;
        let is_room = self.packets.set_capacity(capacity, self.discipline, &mut self.taken, pool);
        self.wake_for_room(is_room, cx);
    }

    fn clear(&mut self, cx: &mut ElementContext<'_>) {
        let is_room = self.packets.clear(&mut self.taken);
        cx.services.signals.sleep(self.nonempty);
        self.wake_for_room(is_room, cx);
    }
}

impl Element for QueueBetweenThreads {
    fn take_state(&mut self, earlier: &mut dyn std::any::Any, cx: &mut ElementContext<'_>) {
        let Some((packets, counts)) = earlier_packets(earlier, cx) else { return };
        self.packets.restore(packets, self.discipline, counts, &mut cx.services.pool);
        // Both sides are made already, and this may be either.
        if !self.packets.is_empty() {
            cx.services.wake_other_thread(cx.element(), QueueSide::Packets);
        }
        if self.packets.room() == 0 {
            cx.services.wake_other_thread(cx.element(), QueueSide::NoRoom);
        }
    }

    fn nonempty_signal(&self) -> Option<SignalId> {
        self.kind.is_nonempty.then_some(self.nonempty)
    }

    fn nonfull_signal(&self) -> Option<SignalId> {
        self.kind.is_nonfull.then_some(self.nonfull)
    }

    fn can_be_between_threads(&self) -> bool {
        true
    }

    fn room(&self) -> Option<usize> {
        Some(self.packets.room())
    }

    fn stored(&self) -> Option<usize> {
        Some(self.length())
    }

    queue_handlers!();
}

impl EmittingElement for QueueBetweenThreads {
    fn push(&mut self, input: usize, packet: GraphPacket, cx: &mut ElementContext<'_>) {
        self.add(input, std::iter::once(packet), cx);
    }

    fn push_batch(&mut self, input: usize, batch: &mut Batch, cx: &mut ElementContext<'_>) {
        self.add(input, batch.take_packets(), cx);
    }

    fn pull(&mut self, _: usize, cx: &mut ElementContext<'_>) -> Option<GraphPacket> {
        if self.taken.is_empty() {
            match self.packets.take_group() {
                Some(group) => self.taken = group,
                None => {
                    cx.services.signals.sleep(self.nonempty);
                    return None;
                }
            }
        }
        let packet = self.taken.next(&mut cx.services.pool)?;
        let is_room = self.packets.removed(1);
        self.wake_for_room(is_room, cx);
        Some(packet)
    }
}
