//! `TimeSortedSched`: merges streams of packets by their time stamps.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weir_graph::engine::{
    BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement, GraphPacket,
    OrderDependence, Reason, SignalId, TaskRun, WaitsFor,
};
use weir_graph::handlers;
use weir_units::Timestamp;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "TimeSortedSched",
    ports: "-/1",
    processing: "l/l",
    flow: "x/x",
    cost: ElementCost::E5,
    effects: Effects::CONTROL,
    order: OrderDependence::Ordered,
    manual: "\
merges streams of packets by their time stamps

TimeSortedSched([keywords STOP, BUFFER])

TimeSortedSched pulls up to BUFFER packets from each input, and gives out the one with the earliest time stamp; of equal \
ones, the one that it pulled first. So streams that are in order are merged in order.

Arguments:
  STOP    true: stops the driver when no input has packets, and none is about to have some. Default false.
  BUFFER  the most packets of each input that are stored, from 1 to 65536. More of them bring packets into order that are \
somewhat out of it. Default 1.

Handlers:
  well_ordered  r  false if packets came out that were not in order",
    build: |cx| {
        let inputs = cx.ports().inputs_pull.len();
        let mut args = cx.arguments();
        let stop = args.flag("STOP");
        let buffer = args.keyword("BUFFER").within(1..=BUFFER_MAX).or(1_u32);
        args.end()?;
        let signal = cx.services.signals.create(true);
        Ok(BuiltElement::emitting(TimeSortedSched {
            stop,
            buffer: buffer as usize,
            stored: vec![0; inputs],
            waits_for: Vec::new(),
            packets: BinaryHeap::new(),
            pulled: 0,
            signal,
            latest: Timestamp(0),
            is_ordered: true,
        }))
    },
};

const BUFFER_MAX: u32 = 1 << 16;

/// A packet of an input.
struct MergedPacket {
    /// The time stamp, and the number of packets that were pulled before.
    key: (Timestamp, u64),
    input: usize,
    packet: GraphPacket,
}

impl PartialEq for MergedPacket {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for MergedPacket {}

impl PartialOrd for MergedPacket {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for MergedPacket {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

struct TimeSortedSched {
    stop: bool,
    /// The most packets of each input.
    buffer: usize,
    /// The number of packets of each input that are stored.
    stored: Vec<usize>,
    /// The signals upstream of each input.
    waits_for: Vec<WaitsFor>,
    /// The stored packets, the earliest one first.
    packets: BinaryHeap<Reverse<MergedPacket>>,
    /// The number of packets that were pulled.
    pulled: u64,
    /// Active while a pull may be successful.
    signal: SignalId,
    /// The time stamp of the latest packet that was given out.
    latest: Timestamp,
    is_ordered: bool,
}

impl TimeSortedSched {
    /// Pulls packets from the inputs. Returns true if there may be more packets soon.
    fn fill(&mut self, cx: &mut ElementContext<'_>) -> bool {
        let mut is_active = false;
        for input in 0..self.stored.len() {
            if self.stored[input] >= self.buffer || !cx.is_active(&self.waits_for[input]) {
                continue;
            }
            is_active = true;
            while self.stored[input] < self.buffer
                && let Some(packet) = cx.pull(input)
            {
                self.stored[input] += 1;
                let key = (packet.time(), self.pulled);
                self.packets.push(Reverse(MergedPacket { key, input, packet }));
                self.pulled += 1;
            }
        }
        is_active
    }
}

impl Element for TimeSortedSched {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        // The task does nothing but to pass the signals of packets upstream on.
        self.waits_for = (0..self.stored.len()).map(|input| cx.wait_for_packets(input)).collect();
        cx.add_task(false);
        Ok(())
    }

    fn effects(&self) -> Option<Effects> {
        (!self.stop).then_some(Effects::NONE)
    }

    fn take_state(&mut self, earlier: &mut dyn std::any::Any, _: &mut ElementContext<'_>) {
        let Some(earlier) = earlier.downcast_mut::<TimeSortedSched>() else { return };
        self.packets = std::mem::take(&mut earlier.packets);
        (self.pulled, self.latest, self.is_ordered) = (earlier.pulled, earlier.latest, earlier.is_ordered);
        for Reverse(MergedPacket { input, .. }) in &self.packets {
            // Packets of an input that is no more count for none.
            if let Some(stored) = self.stored.get_mut(*input) {
                *stored += 1;
            }
        }
    }

    fn nonempty_signal(&self) -> Option<SignalId> {
        Some(self.signal)
    }

    fn run(&mut self, _: usize, cx: &mut ElementContext<'_>) -> TaskRun {
        cx.services.wake(self.signal);
        TaskRun { work: 0, again: false }
    }

    handlers! {
        "well_ordered": "false if packets came out that were not in order",
            read |this, _, _| Ok(this.is_ordered.to_string());
    }
}

impl EmittingElement for TimeSortedSched {
    fn pull(&mut self, _: usize, cx: &mut ElementContext<'_>) -> Option<GraphPacket> {
        let is_active = self.fill(cx);
        let Some(Reverse(MergedPacket { key: (time, _), input, packet })) = self.packets.pop() else {
            if !is_active {
                cx.services.signals.sleep(self.signal);
                if self.stop {
                    cx.services.stop();
                }
            }
            return None;
        };
        if time != Timestamp(0) {
            self.is_ordered &= time >= self.latest;
            self.latest = time;
        }
        if let Some(stored) = self.stored.get_mut(input) {
            *stored = stored.saturating_sub(1);
        }
        Some(packet)
    }
}
