//! `Queue` and its relatives: they store packets that are pushed until others pull them.

use super::between_threads::QueueBetweenThreads;
use std::collections::VecDeque;
use weir_graph::arguments::ArgumentErrors;
use weir_graph::engine::{
    Batch, BuildContext, BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost,
    EmittingElement, GraphPacket, OrderDependence, QueueCounts, SignalId,
};

/// The part of the manuals that all queues share.
macro_rules! manual {
    ($summary:literal, $name:literal, $text:literal) => {
        concat!(
            $summary,
            "\n\n",
            $name,
            "([CAPACITY])\n\n",
            $text,
            "\n\nArguments:\n  CAPACITY  the most packets that are stored. Default 1000.\n\nHandlers:\n",
            "  length            r   the number of stored packets\n",
            "  highwater_length  r   the most packets that were stored\n",
            "  capacity          rw  the argument\n",
            "  drops             r   the number of discarded packets\n",
            "  reset_counts      w   sets drops and highwater_length back\n",
            "  reset             w   discards all stored packets"
        )
    };
}

/// The class of queues that tell both neighbours.
pub static QUEUE: ElementClass = ElementClass {
    name: "Queue",
    ports: "1/1",
    processing: "h/l",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: manual!(
        "stores packets, first in, first out",
        "Queue",
        "Queue stores pushed packets until they are pulled. A packet that comes to a full queue is discarded. Elements that \
pull sleep while the queue is empty, and sources sleep while it is full."
    ),
    build: |cx| {
        build(cx, QueueKind { drops_front: false, is_nonempty: true, is_nonfull: true, is_mixed: false })
    },
};

/// The class of queues without signals.
pub static SIMPLE_QUEUE: ElementClass = ElementClass {
    name: "SimpleQueue",
    manual: manual!(
        "stores packets, first in, first out, without signals",
        "SimpleQueue",
        "As Queue, but neither those that pull nor sources learn whether it is empty or full, so they try again and again."
    ),
    build: |cx| {
        build(cx, QueueKind { drops_front: false, is_nonempty: false, is_nonfull: false, is_mixed: false })
    },
    ..QUEUE
};

/// The class of queues that tell those that pull.
pub static NOTIFIER_QUEUE: ElementClass = ElementClass {
    name: "NotifierQueue",
    manual: manual!(
        "stores packets, and tells those that pull",
        "NotifierQueue",
        "As Queue, but sources do not learn whether it is full."
    ),
    build: |cx| {
        build(cx, QueueKind { drops_front: false, is_nonempty: true, is_nonfull: false, is_mixed: false })
    },
    ..QUEUE
};

/// Another name of [`QUEUE`].
pub static FULL_NOTE_QUEUE: ElementClass = ElementClass {
    name: "FullNoteQueue",
    manual: manual!("stores packets, and tells both neighbours", "FullNoteQueue", "The same as Queue."),
    ..QUEUE
};

/// Another name of [`QUEUE`]: every queue can be between threads.
pub static THREAD_SAFE_QUEUE: ElementClass = ElementClass {
    name: "ThreadSafeQueue",
    manual: manual!(
        "stores packets, and can be between threads",
        "ThreadSafeQueue",
        "The same as Queue. Every queue can be between threads: one thread adds packets, and another one removes them. \
Packets keep their order. Bytes are copied once. Sources that sleep are woken when half of a full queue is free."
    ),
    ..QUEUE
};

/// The class of queues with an input for the latest packets.
pub static MIXED_QUEUE: ElementClass = ElementClass {
    name: "MixedQueue",
    ports: "2/1",
    manual: manual!(
        "stores packets, first in, first out, or last in, first out",
        "MixedQueue",
        "Packets of input 0 go behind all others, as in a Queue. Packets of input 1 go before all others. A full queue \
discards a packet of input 0, and for a packet of input 1 the last stored one."
    ),
    build: |cx| {
        build(cx, QueueKind { drops_front: false, is_nonempty: true, is_nonfull: false, is_mixed: true })
    },
    ..QUEUE
};

/// The class of queues that discard the oldest packet.
pub static FRONT_DROP_QUEUE: ElementClass = ElementClass {
    name: "FrontDropQueue",
    manual: manual!(
        "stores packets, and discards the oldest if it is full",
        "FrontDropQueue",
        "As Queue, but a packet that comes to a full queue is stored, and the oldest one is discarded."
    ),
    build: |cx| {
        build(cx, QueueKind { drops_front: true, is_nonempty: true, is_nonfull: false, is_mixed: false })
    },
    ..QUEUE
};

/// The capacity without an argument.
const CAPACITY_DEFAULT: u32 = 1000;

/// The most packets of a queue: about 8 MB for their places.
pub const CAPACITY_MAX: u32 = 1 << 20;

/// The choices in which queues differ.
#[derive(Clone, Copy, Debug)]
pub struct QueueKind {
    pub drops_front: bool,
    pub is_nonempty: bool,
    pub is_nonfull: bool,
    pub is_mixed: bool,
}

/// The values and commands of the handlers of queues.
pub trait StoredPackets {
    fn length(&self) -> usize;
    fn highwater(&self) -> usize;
    fn capacity(&self) -> usize;
    fn drops(&self) -> u64;
    fn reset_counts(&mut self);
    fn set_capacity(&mut self, capacity: usize, cx: &mut ElementContext<'_>);
    fn clear(&mut self, cx: &mut ElementContext<'_>);
}

/// Makes the handlers of a queue.
macro_rules! queue_handlers {
    () => {
        weir_graph::handlers! {
            "length": gauge "the number of stored packets", read |this, _, _| Ok(this.length().to_string());
            "highwater_length": gauge "the most packets that were stored", read |this, _, _| Ok(this.highwater().to_string());
            "capacity": "the most packets that are stored",
                read |this, _, _| Ok(this.capacity().to_string()),
                write |this, value, cx| {
                    let capacity: u32 = crate::values::read(value)?;
                    if capacity > $crate::queues::queue::CAPACITY_MAX {
                        return Err(format!("at most {}", $crate::queues::queue::CAPACITY_MAX));
                    }
                    this.set_capacity(capacity as usize, cx);
                    Ok(String::new())
                };
            "drops": counter "the number of discarded packets", read |this, _, _| Ok(this.drops().to_string());
            "reset_counts": "sets drops and highwater_length back",
                write |this, _, _| {
                    this.reset_counts();
                    Ok(String::new())
                };
            "reset": "discards all stored packets",
                write |this, _, cx| {
                    this.clear(cx);
                    Ok(String::new())
                };
        }
    };
}
pub(super) use queue_handlers;

fn build(cx: &mut BuildContext<'_>, kind: QueueKind) -> Result<BuiltElement, ArgumentErrors> {
    let mut args = cx.arguments();
    let capacity = args.either("CAPACITY").within(0..=CAPACITY_MAX).or(CAPACITY_DEFAULT);
    args.end()?;
    let nonempty = cx.services.signals.create(false);
    let nonfull = cx.services.signals.create(capacity > 0);
    if let Some(packets) = cx.between_threads() {
        let queue = QueueBetweenThreads::new(kind, capacity as usize, packets, nonempty, nonfull);
        return Ok(BuiltElement::emitting(queue));
    }
    Ok(BuiltElement::emitting(Queue {
        kind,
        capacity: capacity as usize,
        packets: VecDeque::new(),
        nonempty,
        nonfull,
        drops: 0,
        highwater: 0,
    }))
}

/// Takes the packets and the counts of a queue from another configuration, within a thread or between two.
pub fn earlier_packets(
    earlier: &mut dyn std::any::Any,
    cx: &mut ElementContext<'_>,
) -> Option<(Vec<GraphPacket>, QueueCounts)> {
    if let Some(queue) = earlier.downcast_mut::<Queue>() {
        let counts = QueueCounts { drops: queue.drops, highwater: queue.highwater };
        return Some((queue.packets.drain(..).collect(), counts));
    }
    Some(earlier.downcast_mut::<QueueBetweenThreads>()?.drain(&mut cx.services.pool))
}

struct Queue {
    kind: QueueKind,
    capacity: usize,
    packets: VecDeque<GraphPacket>,
    nonempty: SignalId,
    nonfull: SignalId,
    drops: u64,
    /// The most packets that were stored.
    highwater: usize,
}

impl Queue {
    fn add(&mut self, input: usize, packet: GraphPacket, cx: &mut ElementContext<'_>) {
        let is_first = self.kind.is_mixed && input == 1;
        if self.packets.len() >= self.capacity {
            self.drops += 1;
            let dropped = match (self.kind.drops_front, is_first) {
                (true, _) => self.packets.pop_front(),
                (false, true) => self.packets.pop_back(),
                (false, false) => None,
            };
            let Some(dropped) = dropped else { return cx.services.pool.discard(packet) };
            cx.services.pool.discard(dropped);
        }
        if is_first {
            self.packets.push_front(packet);
        } else {
            self.packets.push_back(packet);
        }
        self.highwater = self.highwater.max(self.packets.len());
        if self.packets.len() == 1 {
            cx.services.wake(self.nonempty);
        }
        if self.packets.len() >= self.capacity {
            cx.services.signals.sleep(self.nonfull);
        }
    }
}

impl StoredPackets for Queue {
    fn length(&self) -> usize {
        self.packets.len()
    }

    fn highwater(&self) -> usize {
        self.highwater
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn drops(&self) -> u64 {
        self.drops
    }

    fn reset_counts(&mut self) {
        (self.drops, self.highwater) = (0, self.packets.len());
    }

    fn set_capacity(&mut self, capacity: usize, cx: &mut ElementContext<'_>) {
        while self.packets.len() > capacity {
            let dropped =
                if self.kind.drops_front { self.packets.pop_front() } else { self.packets.pop_back() };
            self.drops += 1;
            dropped.into_iter().for_each(|packet| cx.services.pool.discard(packet));
        }
        self.capacity = capacity;
        if self.packets.len() < capacity {
            cx.services.wake(self.nonfull);
        } else {
            cx.services.signals.sleep(self.nonfull);
        }
    }

    fn clear(&mut self, cx: &mut ElementContext<'_>) {
        self.packets.drain(..).for_each(|packet| cx.services.pool.discard(packet));
        cx.services.signals.sleep(self.nonempty);
        cx.services.wake(self.nonfull);
    }
}

impl Element for Queue {
    fn take_state(&mut self, earlier: &mut dyn std::any::Any, cx: &mut ElementContext<'_>) {
        let Some((packets, counts)) = earlier_packets(earlier, cx) else { return };
        // Also those that exceed a smaller capacity, so that no packet is lost.
        self.packets.extend(packets);
        (self.drops, self.highwater) = (counts.drops, counts.highwater.max(self.packets.len()));
        if !self.packets.is_empty() {
            cx.services.wake(self.nonempty);
        }
        if self.packets.len() >= self.capacity {
            cx.services.signals.sleep(self.nonfull);
        }
    }

    fn can_reconfigure(&self) -> bool {
        true
    }

    fn reconfigure(&mut self, other: &mut dyn std::any::Any, cx: &mut ElementContext<'_>) -> bool {
        let Some(other) = other.downcast_mut::<Queue>() else { return false };
        self.set_capacity(other.capacity, cx);
        true
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
        Some(self.capacity.saturating_sub(self.packets.len()))
    }

    fn stored(&self) -> Option<usize> {
        Some(self.packets.len())
    }

    queue_handlers!();
}

impl EmittingElement for Queue {
    fn push(&mut self, input: usize, packet: GraphPacket, cx: &mut ElementContext<'_>) {
        self.add(input, packet, cx);
    }

    fn push_batch(&mut self, input: usize, batch: &mut Batch, cx: &mut ElementContext<'_>) {
        if !(self.kind.is_mixed && input == 1) && self.packets.len() + batch.len() < self.capacity {
            // There is room for all of them.
            if self.packets.is_empty() && !batch.is_empty() {
                cx.services.wake(self.nonempty);
            }
            self.packets.extend(batch.take_packets());
            self.highwater = self.highwater.max(self.packets.len());
            return;
        }
        for packet in batch.take_packets() {
            self.add(input, packet, cx);
        }
    }

    fn pull_batch(&mut self, _: usize, most: usize, batch: &mut Batch, cx: &mut ElementContext<'_>) -> bool {
        let was_full = self.packets.len() >= self.capacity;
        let count = most.min(self.packets.len());
        batch.extend_next(count, || self.packets.pop_front());
        if was_full && count > 0 {
            cx.services.wake(self.nonfull);
        }
        if count < most {
            cx.services.signals.sleep(self.nonempty);
        }
        true
    }

    fn pull(&mut self, _: usize, cx: &mut ElementContext<'_>) -> Option<GraphPacket> {
        let packet = self.packets.pop_front();
        if packet.is_some() {
            if self.packets.len() + 1 == self.capacity {
                cx.services.wake(self.nonfull);
            }
        } else {
            cx.services.signals.sleep(self.nonempty);
        }
        packet
    }
}
