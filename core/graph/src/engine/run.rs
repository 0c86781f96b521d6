//! The way of packets through the elements of a graph, in batches or one by one.

use super::batch::Batch;
use super::context::{ElementContext, Services};
use super::driver::{Driver, call_handlers};
use super::element::{BuiltElement, EmittingElement};
use super::order::Order;
use super::packet::GraphPacket;
use super::ports::PortReference;
use super::router::ElementGraph;
use std::cmp::Reverse;

/// The batches that wait for an element, each for one input.
pub(super) type Waiting = Vec<(usize, Batch)>;

/// The most times that a packet can come back to where a cycle closes before an element stores it.
const TURNS_MAX: u16 = 255;

/// The most ways around cycles of all packets of a batch, with their copies.
const BATCH_TURNS_MAX: u64 = 1 << 18;

/// A packet that waits for an element on a cycle which depends on the order.
#[derive(Debug)]
pub(super) struct OrderedPacket {
    component: u32,
    order: Order,
    /// Packets without room for an order of their own have that of their arrival.
    arrival: u64,
    at: PortReference,
    packet: GraphPacket,
}

impl OrderedPacket {
    fn key(&self) -> (u32, Order, u64) {
        (self.component, self.order, self.arrival)
    }
}

impl PartialEq for OrderedPacket {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for OrderedPacket {}

impl PartialOrd for OrderedPacket {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OrderedPacket {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// The parts of a router that are needed while packets go through it.
pub(super) struct PacketRun<'a> {
    pub graph: &'a ElementGraph,
    pub elements: &'a mut [Option<BuiltElement>],
    pub services: &'a mut Services,
    pub driver: &'a mut Driver,
}

impl PacketRun<'_> {
    /// Takes a packet through the graph, and all that elements emit for it, depth first.
    pub fn one_by_one(&mut self, target: PortReference, packet: GraphPacket) {
        self.driver.stack.push((target, packet));
        while let Some((at, mut packet)) = self.driver.stack.pop() {
            match self.elements[at.element].as_mut() {
                Some(BuiltElement::Routing(element)) => {
                    let destination = element.route_one(at.port, &mut packet, self.services);
                    match destination.port() {
                        Some(port) => self.follow(PortReference { element: at.element, port }, packet),
                        None => self.services.pool.discard(packet),
                    }
                }
                Some(BuiltElement::Emitting(_)) => {
                    let first = self.services.emitted.len();
                    self.with_emitting(at.element, |element, cx| element.push(at.port, packet, cx));
                    while self.services.emitted.len() > first
                        && let Some((from, packet)) = self.services.emitted.pop()
                    {
                        self.follow(from, packet);
                    }
                }
                // The element runs already: it has called a handler that emitted a packet to it.
                None => self.services.pool.discard(packet),
            }
            // An element may have asked for a handler, whose effect comes before the next element.
            if !self.services.calls.is_empty() {
                call_handlers(self.graph, self.elements, self.services);
            }
        }
    }

    fn follow(&mut self, from: PortReference, mut packet: GraphPacket) {
        match self.graph.push_target(from) {
            Some(target)
                if self.graph.closes_cycle(from.element, target.element) && !self.may_turn(&mut packet) =>
            {
                self.discard_of_cycle(target.element, packet);
            }
            Some(target) => self.driver.stack.push((target, packet)),
            None => self.services.pool.discard(packet),
        }
    }

    fn with_emitting<T>(
        &mut self,
        index: usize,
        run: impl FnOnce(&mut dyn EmittingElement, &mut ElementContext<'_>) -> T,
    ) -> Option<T> {
        let mut cx = ElementContext {
            services: self.services,
            elements: self.elements,
            graph: self.graph,
            this: index,
        };
        let result = cx.with_element(index, |element, cx| match element {
            BuiltElement::Emitting(element) => Some(run(&mut **element, cx)),
            BuiltElement::Routing(_) => None,
        });
        result.flatten()
    }

    /// Takes a batch to an input, and all that comes of it through the graph.
    pub fn in_batches(&mut self, target: PortReference, batch: &mut Batch) {
        let mut next = self.enqueue(target, batch);
        loop {
            // Most elements pass a whole batch on, for which no other element has to run first.
            while let Some(at) = next {
                self.sort(at.element, batch);
                next = self.run_batch(at, batch);
            }
            let pending = self.driver.pending.peek().map(|Reverse((component, _))| *component);
            let ordered = self.driver.ordered.peek().map(|Reverse(packet)| packet.component);
            match (pending, ordered) {
                (Some(pending), Some(ordered)) if pending > ordered => next = self.take_ordered(batch),
                (None, Some(_)) => next = self.take_ordered(batch),
                (Some(_), _) => next = self.take_pending(batch),
                (None, None) => break,
            }
        }
    }

    /// Takes the first of the packets that wait for elements on a cycle which depend on the order.
    fn take_ordered(&mut self, batch: &mut Batch) -> Option<PortReference> {
        let Reverse(first) = self.driver.ordered.pop()?;
        batch.push(first.packet, first.order);
        Some(first.at)
    }

    /// Takes the batch of the element that is to run next; runs elements with batches at several inputs.
    fn take_pending(&mut self, batch: &mut Batch) -> Option<PortReference> {
        let Reverse((_, element)) = self.driver.pending.pop()?;
        let waiting = &mut self.driver.waiting[element];
        if waiting.len() == 1
            && let Some((port, mut there)) = waiting.pop()
        {
            std::mem::swap(batch, &mut there);
            self.driver.free.push(there);
            return Some(PortReference { element, port });
        }
        let mut inputs = std::mem::take(waiting);
        if self.graph.ranks[element].is_ordered {
            inputs = self.in_order(inputs);
        }
        for (port, mut batch) in inputs.drain(..) {
            if let Some(next) = self.run_batch(PortReference { element, port }, &mut batch) {
                self.wait(next, &mut batch);
            }
            self.driver.free.push(batch);
        }
        if self.driver.waiting[element].is_empty() {
            self.driver.waiting[element] = inputs;
        }
        None
    }

    fn sort(&mut self, element: usize, batch: &mut Batch) {
        if self.graph.ranks[element].is_ordered {
            batch.sort();
        }
    }

    /// Counts a way around a cycle. Returns false for a packet that has gone around too often: else a packet could keep the
    /// driver for ever, and copies of it all memory.
    fn may_turn(&mut self, packet: &mut GraphPacket) -> bool {
        self.driver.turns += 1;
        packet.add_turn() <= TURNS_MAX && self.driver.turns <= BATCH_TURNS_MAX
    }

    fn discard_of_cycle(&mut self, element: usize, packet: GraphPacket) {
        *self.driver.cycle_drops.entry(element).or_default() += 1;
        self.services.pool.discard(packet);
    }

    /// Counts a way around a cycle for each packet of a batch, and removes those that have gone around too often.
    fn count_turns(&mut self, element: usize, batch: &mut Batch) {
        let mut all_may = true;
        for packet in batch.packets_mut() {
            all_may &= self.may_turn(packet);
        }
        if all_may {
            return;
        }
        let is_over = self.driver.turns > BATCH_TURNS_MAX;
        let mut kept = self.driver.free.pop().unwrap_or_default();
        for (packet, order) in batch.drain() {
            if packet.turns() <= TURNS_MAX && !is_over {
                kept.push(packet, order);
            } else {
                self.discard_of_cycle(element, packet);
            }
        }
        std::mem::swap(batch, &mut kept);
        self.driver.free.push(kept);
    }

    /// Adds a batch to those that wait for an element. If the element is the one to run next and nothing else waits for it,
    /// returns its input, and leaves the batch as it is.
    fn enqueue(&mut self, target: PortReference, batch: &mut Batch) -> Option<PortReference> {
        let rank = self.graph.ranks[target.element];
        if rank.is_cyclic && rank.is_ordered {
            for (packet, order) in batch.drain() {
                self.driver.arrived += 1;
                let (component, arrival) = (rank.component, self.driver.arrived);
                self.driver.ordered.push(Reverse(OrderedPacket {
                    component,
                    order,
                    arrival,
                    at: target,
                    packet,
                }));
            }
            return None;
        }
        let pending = self.driver.pending.peek();
        let ordered = self.driver.ordered.peek();
        if pending.is_none_or(|Reverse((component, _))| rank.component < *component)
            && ordered.is_none_or(|Reverse(packet)| rank.component <= packet.component)
        {
            return Some(target);
        }
        self.wait(target, batch);
        None
    }

    fn wait(&mut self, target: PortReference, batch: &mut Batch) {
        let waiting = &mut self.driver.waiting[target.element];
        if waiting.is_empty() {
            let component = self.graph.ranks[target.element].component;
            self.driver.pending.push(Reverse((component, target.element)));
        }
        match waiting.iter_mut().find(|(port, _)| *port == target.port) {
            Some((_, there)) => there.append(batch),
            None => {
                let mut there = self.driver.free.pop().unwrap_or_default();
                there.append(batch);
                waiting.push((target.port, there));
            }
        }
    }

    /// Returns batches for the same element, such that their packets are in order.
    fn in_order(&mut self, mut inputs: Waiting) -> Waiting {
        let mut all: Vec<(Order, usize, GraphPacket)> = Vec::new();
        for (port, batch) in &mut inputs {
            all.extend(batch.drain().map(|(packet, order)| (order, *port, packet)));
        }
        self.driver.free.extend(inputs.drain(..).map(|(_, batch)| batch));
        all.sort_by_key(|(order, ..)| *order);
        for (order, port, packet) in all {
            match inputs.last_mut() {
                Some((last, batch)) if *last == port => batch.push(packet, order),
                _ => {
                    let mut batch = self.driver.free.pop().unwrap_or_default();
                    batch.push(packet, order);
                    inputs.push((port, batch));
                }
            }
        }
        inputs
    }

    /// Runs an element. If all packets go to the same input and it can run next, returns that input, with the packets in the
    /// batch. Else they wait, and the batch is empty.
    fn run_batch(&mut self, at: PortReference, batch: &mut Batch) -> Option<PortReference> {
        let PortReference { element: index, port: input } = at;
        match self.elements[index].as_mut() {
            Some(BuiltElement::Routing(element)) => {
                let destinations = &mut self.driver.destinations;
                match element.route_batch(input, batch.packets_mut(), destinations, self.services) {
                    Some(destination) => return self.follow_batch(index, destination.port(), batch),
                    None => self.divide(index, batch),
                }
            }
            Some(BuiltElement::Emitting(_)) => {
                let passed = self.with_emitting(index, |element, cx| {
                    let passed = element.pass_batch(input, batch, cx);
                    if passed.is_none() {
                        element.push_batch(input, batch, cx);
                    }
                    passed
                });
                if let Some(Some(output)) = passed {
                    return self.follow_batch(index, Some(output), batch);
                }
                if !self.services.emitted.is_empty() {
                    return self.enqueue_emitted(batch);
                }
            }
            None => batch.take_packets().for_each(|packet| self.services.pool.discard(packet)),
        }
        None
    }

    fn follow_batch(
        &mut self,
        element: usize,
        output: Option<usize>,
        batch: &mut Batch,
    ) -> Option<PortReference> {
        let target = output.and_then(|port| self.graph.push_target(PortReference { element, port }));
        match target {
            Some(target) => {
                if self.graph.closes_cycle(element, target.element) {
                    self.count_turns(target.element, batch);
                    if batch.is_empty() {
                        return None;
                    }
                }
                self.enqueue(target, batch)
            }
            None => {
                batch.take_packets().for_each(|packet| self.services.pool.discard(packet));
                None
            }
        }
    }

    /// Has the packets of an output wait for their element.
    fn follow_and_wait(&mut self, from: PortReference, batch: &mut Batch) {
        if let Some(next) = self.follow_batch(from.element, Some(from.port), batch) {
            self.wait(next, batch);
        }
    }

    /// Divides a batch by the destinations of its packets.
    fn divide(&mut self, element: usize, batch: &mut Batch) {
        let destinations = std::mem::take(&mut self.driver.destinations);
        let mut divided = std::mem::take(&mut self.driver.divided);
        for ((packet, order), destination) in batch.drain().zip(&destinations) {
            match destination.port() {
                Some(port) => {
                    if divided.len() <= port {
                        divided.resize_with(port + 1, Batch::default);
                    }
                    divided[port].push(packet, order);
                }
                None => self.services.pool.discard(packet),
            }
        }
        for (port, batch) in divided.iter_mut().enumerate().filter(|(_, batch)| !batch.is_empty()) {
            self.follow_and_wait(PortReference { element, port }, batch);
        }
        self.driver.divided = divided;
        self.driver.destinations = destinations;
    }

    fn enqueue_emitted(&mut self, batch: &mut Batch) -> Option<PortReference> {
        let mut emitted = std::mem::take(&mut self.services.emitted);
        let mut next = None;
        match emitted.take_single(batch) {
            Some(from) => next = self.follow_batch(from.element, Some(from.port), batch),
            None => emitted.drain(usize::MAX, batch, |from, batch| self.follow_and_wait(from, batch)),
        }
        if self.services.emitted.is_empty() {
            self.services.emitted = emitted;
        }
        next
    }
}
