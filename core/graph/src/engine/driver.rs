//! The driver: it runs tasks and timers, and takes packets through the graph.

use super::batch::Batch;
use super::class::OrderDependence;
use super::context::{ElementContext, Emitted, Services};
use super::effects::TextOutput;
use super::element::{BuiltElement, Destination};
use super::order::{FIRST_MAX, Order};
use super::packet::GraphPacket;
use super::plan::Plan;
use super::ports::PortReference;
use super::router::{ElementGraph, Router, Waiting};
use weir_units::Nanos;

/// The tasks that run before timers and the system get their turn, as in Click.
const TASKS_PER_ROUND: usize = 128;

/// The most requests to stop that an element can withdraw one after the other.
const STOPS_MAX: usize = 1000;

/// Memory that the driver keeps between packets.
pub(super) struct Driver {
    /// The batches that wait for each element.
    waiting: Vec<Waiting>,
    /// The destination of each packet of a batch.
    destinations: Vec<Destination>,
    /// Batches that are divided by output.
    divided: Vec<Batch>,
    /// Empty batches.
    free: Vec<Batch>,
    /// The packets that go one by one: the next one is last.
    stack: Vec<(PortReference, GraphPacket)>,
}

impl Driver {
    pub fn new(elements: usize) -> Self {
        Self {
            waiting: (0..elements).map(|_| Vec::new()).collect(),
            destinations: Vec::new(),
            divided: Vec::new(),
            free: Vec::new(),
            stack: Vec::new(),
        }
    }
}

impl Router {
    /// Runs tasks, then timers, and looks at devices. Waits if there is nothing to do. Returns false when the graph has
    /// stopped, or nothing is left to do.
    pub fn step(&mut self) -> bool {
        if !self.services.clock.is_simulated() {
            self.services.clock.now();
        }
        for _ in 0..TASKS_PER_ROUND {
            if self.is_stopped() {
                return false;
            }
            let Some(element) = self.services.schedule.next_task() else { break };
            self.run_task(element);
            self.switch();
        }
        let is_watching = !self.services.watching.is_empty();
        if is_watching {
            self.look_at_devices();
        }
        let has_task = self.services.schedule.has_task();
        // A timer at the end of time never expires.
        let next = self.services.schedule.next_timer().filter(|next| next.0 < u64::MAX);
        if let Some(next) = next {
            if !has_task && (!is_watching || self.services.clock.is_simulated()) {
                self.services.clock.wait(Some(next));
            }
            let now = self.services.clock.now();
            while let Some((element, key)) = self.services.schedule.expired_timer(now) {
                self.context(element).with_element(element, |it, cx| it.element().timer_expired(key, cx));
                self.dispatch();
                self.switch();
            }
        } else if !has_task && !is_watching {
            return false;
        }
        !self.is_stopped()
    }

    /// Schedules the tasks of elements that watch devices, if these may have packets. Waits for that until the next timer,
    /// if no task is there to run. In a simulation, waiting for a timer takes no time.
    fn look_at_devices(&mut self) {
        let Services { clock, system, watching, schedule, .. } = &mut self.services;
        let longest = match schedule.next_timer() {
            _ if schedule.has_task() => Some(Nanos(0)),
            Some(_) if clock.is_simulated() => Some(Nanos(0)),
            Some(next) => Some(next.since(clock.now())),
            None => None,
        };
        if system.wait_for_devices(longest) {
            watching.iter().for_each(|element| schedule.wake(*element));
        }
    }

    /// Returns true if the driver has to stop. An element that manages stops may withdraw them.
    fn is_stopped(&mut self) -> bool {
        for _ in 0..STOPS_MAX {
            let before = self.services.stops;
            let Some(manager) = self.services.stop_manager.filter(|_| before > 0) else { break };
            let result = self
                .context(manager)
                .with_element(manager, |it, cx| it.element().write_handler("step", "router", cx));
            if let Some(Some(Err(reason))) = result {
                let name = &self.graph.declared[manager].name;
                self.services.system.write_text(TextOutput::Error, &format!("{name}: {reason}\n"));
            }
            self.dispatch();
            if self.services.stops >= before {
                break;
            }
        }
        self.services.stops > 0
    }

    fn run_task(&mut self, element: usize) {
        let most = self.most_packets(element);
        let run = self.context(element).with_element(element, |it, cx| it.element().run(most, cx));
        if run.is_some_and(|run| run.again) {
            self.services.schedule.wake(element);
        }
        self.dispatch();
    }

    /// Returns the number of packets for which a task may run.
    ///
    /// Runs of one task are joined, up to the quantum, where the order of tasks cannot be seen in the results: no queue
    /// behind the task gets full, and nothing behind it stops the graph. In a simulation, tasks alternate as in Click.
    fn most_packets(&mut self, element: usize) -> usize {
        let alternates = self.services.clock.is_simulated() && self.services.schedule.has_task();
        if alternates || self.options.quantum <= 1 {
            return 1;
        }
        let mut most = self.options.quantum;
        for port in 0..self.graph.ports[element].targets.len() {
            let Some(plan) = self.graph.plan(PortReference { element, port }) else { continue };
            if matches!(plan.one_by_one, Some(super::plan::OneByOne::Control(_))) {
                return 1;
            }
            for member in plan.steps.iter().flatten() {
                let room = self.elements[*member].as_mut().and_then(|it| it.element().room());
                most = most.min(room.unwrap_or(usize::MAX));
            }
        }
        most.max(1)
    }

    /// Calls the handlers that elements have asked for, and takes all emitted packets through the graph.
    pub(super) fn dispatch(&mut self) {
        self.call_handlers();
        while !self.services.emitted.is_empty() {
            let emitted = std::mem::take(&mut self.services.emitted);
            let mut batch = self.driver.free.pop().unwrap_or_default();
            let mut from = None;
            for Emitted { element, output, packet, .. } in emitted {
                let this = PortReference { element, port: output };
                if (from.is_some() && from != Some(this))
                    || batch.len() >= self.options.batch.clamp(1, FIRST_MAX)
                {
                    self.take_through(from, &mut batch);
                }
                from = Some(this);
                batch.push_next(packet);
            }
            self.take_through(from, &mut batch);
            self.driver.free.push(batch);
            self.call_handlers();
        }
    }

    fn call_handlers(&mut self) {
        call_handlers(&self.graph, &mut self.elements, &mut self.services);
    }

    /// Takes a batch from an output through the graph.
    fn take_through(&mut self, from: Option<PortReference>, batch: &mut Batch) {
        let Some(from) = from else { return };
        let Some(target) = push_target(&self.graph, from) else {
            batch.take_packets().for_each(|packet| self.services.pool.discard(packet));
            return;
        };
        let Self { graph, elements, services, driver, options } = self;
        let Some(plan) = graph.plan(from) else { return };
        let mut run = Run { graph, elements, services, driver };
        if options.batch > 1 && plan.one_by_one.is_none() {
            run.in_batches(plan, target, batch);
        } else {
            for packet in batch.take_packets() {
                run.one_by_one(target, packet);
            }
        }
    }
}

/// Calls the handlers that elements have asked for. A call that fails is reported on standard error.
fn call_handlers(graph: &ElementGraph, elements: &mut [Option<BuiltElement>], services: &mut Services) {
    for (this, call) in std::mem::take(&mut services.calls) {
        let mut cx = ElementContext { services: &mut *services, elements: &mut *elements, graph, this };
        if let Err(reason) = super::handler::write(&mut cx, &call) {
            let name = graph.declared.get(this).map_or("", |it| &*it.name);
            services.system.write_text(TextOutput::Error, &format!("{name}: {call}: {}\n", reason.text));
        }
    }
}

/// Returns the input to which a push output is connected.
fn push_target(graph: &ElementGraph, from: PortReference) -> Option<PortReference> {
    let ports = &graph.ports[from.element];
    if ports.outputs_push.get(from.port) != Some(&true) {
        return None;
    }
    ports.targets[from.port].first().copied()
}

/// The parts of a router that are needed while packets go through it.
struct Run<'a> {
    graph: &'a ElementGraph,
    elements: &'a mut [Option<BuiltElement>],
    services: &'a mut Services,
    driver: &'a mut Driver,
}

impl Run<'_> {
    /// Takes a packet through the graph, and all that elements emit for it, depth first.
    fn one_by_one(&mut self, target: PortReference, packet: GraphPacket) {
        self.driver.stack.push((target, packet));
        while let Some((at, mut packet)) = self.driver.stack.pop() {
            match self.elements[at.element].as_mut() {
                Some(BuiltElement::Routing(element)) => {
                    let destination = element.route_one(at.port, &mut packet, self.services);
                    self.follow(at.element, destination, packet);
                }
                Some(BuiltElement::Emitting(_)) => {
                    let first = self.services.emitted.len();
                    self.with_emitting(at.element, |element, cx| element.push(at.port, packet, cx));
                    let emitted: Vec<Emitted> = self.services.emitted.drain(first..).rev().collect();
                    for Emitted { element, output, packet, .. } in emitted {
                        self.follow(element, Destination::output(output), packet);
                    }
                }
                // The element runs already: it has called a handler that emitted a packet to it.
                None => self.services.pool.discard(packet),
            }
            // An element may have asked for a handler, whose effect comes before the next element.
            call_handlers(self.graph, self.elements, self.services);
        }
    }

    fn follow(&mut self, element: usize, destination: Destination, packet: GraphPacket) {
        let target =
            destination.port().and_then(|port| push_target(self.graph, PortReference { element, port }));
        match target {
            Some(target) => self.driver.stack.push((target, packet)),
            None => self.services.pool.discard(packet),
        }
    }

    fn with_emitting<T>(
        &mut self,
        index: usize,
        run: impl FnOnce(&mut dyn super::element::EmittingElement, &mut ElementContext<'_>) -> T,
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

    /// Takes a batch through the elements of a plan.
    fn in_batches(&mut self, plan: &Plan, target: PortReference, batch: &mut Batch) {
        self.enqueue(target, batch);
        for step in &plan.steps {
            // Elements of a cycle run until no packet is left in it.
            loop {
                let mut has_run = false;
                for element in step {
                    if !self.driver.waiting[*element].is_empty() {
                        has_run = true;
                        self.run_element(*element);
                    }
                }
                if !has_run || step.len() == 1 && self.driver.waiting[step[0]].is_empty() {
                    break;
                }
            }
        }
    }

    /// Adds a batch to those that wait for an element.
    fn enqueue(&mut self, target: PortReference, batch: &mut Batch) {
        let waiting = &mut self.driver.waiting[target.element];
        match waiting.iter_mut().find(|(port, _)| *port == target.port) {
            Some((_, there)) => there.append(batch),
            None => {
                let mut there = self.driver.free.pop().unwrap_or_default();
                there.append(batch);
                waiting.push((target.port, there));
            }
        }
    }

    fn run_element(&mut self, element: usize) {
        let mut inputs = std::mem::take(&mut self.driver.waiting[element]);
        if self.graph.classes[element].order == OrderDependence::Ordered {
            if inputs.len() > 1 {
                inputs = self.in_order(inputs);
            } else {
                inputs.iter_mut().for_each(|(_, batch)| batch.sort());
            }
        }
        for (port, mut batch) in inputs.drain(..) {
            self.run_batch(PortReference { element, port }, &mut batch);
            self.driver.free.push(batch);
        }
        if self.driver.waiting[element].is_empty() {
            self.driver.waiting[element] = inputs;
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

    fn run_batch(&mut self, at: PortReference, batch: &mut Batch) {
        match self.elements[at.element].as_mut() {
            Some(BuiltElement::Routing(element)) => {
                let destinations = &mut self.driver.destinations;
                element.route_batch(at.port, batch.packets_mut(), destinations, self.services);
                let first = destinations.first().copied().unwrap_or(Destination::DISCARD);
                if destinations.iter().all(|it| *it == first) {
                    self.follow_batch(at.element, first, batch);
                } else {
                    self.divide(at.element, batch);
                }
            }
            Some(BuiltElement::Emitting(_)) => {
                self.with_emitting(at.element, |element, cx| element.push_batch(at.port, batch, cx));
                self.enqueue_emitted();
            }
            None => batch.take_packets().for_each(|packet| self.services.pool.discard(packet)),
        }
    }

    fn follow_batch(&mut self, element: usize, destination: Destination, batch: &mut Batch) {
        let target =
            destination.port().and_then(|port| push_target(self.graph, PortReference { element, port }));
        match target {
            Some(target) => self.enqueue(target, batch),
            None => batch.take_packets().for_each(|packet| self.services.pool.discard(packet)),
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
            self.follow_batch(element, Destination::output(port), batch);
        }
        self.driver.divided = divided;
        self.driver.destinations = destinations;
    }

    fn enqueue_emitted(&mut self) {
        let mut emitted = std::mem::take(&mut self.services.emitted);
        let mut batch = self.driver.free.pop().unwrap_or_default();
        let mut from: Option<PortReference> = None;
        for Emitted { element, output, packet, order } in emitted.drain(..) {
            let this = PortReference { element, port: output };
            if from.is_some_and(|from| from != this) {
                let PortReference { element, port } = from.unwrap_or(this);
                self.follow_batch(element, Destination::output(port), &mut batch);
            }
            from = Some(this);
            batch.push(packet, order);
        }
        if let Some(PortReference { element, port }) = from {
            self.follow_batch(element, Destination::output(port), &mut batch);
        }
        self.driver.free.push(batch);
        if self.services.emitted.is_empty() {
            self.services.emitted = emitted;
        }
    }
}
