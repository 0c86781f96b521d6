//! The driver: it runs tasks and timers, and takes packets through the graph.

use super::batch::Batch;
use super::context::{ElementContext, Services};
use super::effects::TextOutput;
use super::element::{BuiltElement, Destination, RUN_MAX};
use super::order::{FIRST_MAX, Order};
use super::packet::GraphPacket;
use super::plan::OneByOne;
use super::ports::PortReference;
use super::router::{ElementGraph, Router};
use super::run::{OrderedPacket, PacketRun, Waiting};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use weir_units::Nanos;

/// The tasks that run before timers and the system get their turn, as in Click.
const TASKS_PER_ROUND: usize = 128;

/// The most requests to stop that an element can withdraw one after the other.
const STOPS_MAX: usize = 1000;

/// Memory that the driver keeps between packets.
#[derive(Default)]
pub(super) struct Driver {
    /// The batches that wait for each element.
    pub waiting: Vec<Waiting>,
    /// The elements for which batches wait, by their components.
    pub pending: BinaryHeap<Reverse<(u32, usize)>>,
    /// The packets that wait for elements which depend on the order, and are on a cycle.
    pub ordered: BinaryHeap<Reverse<OrderedPacket>>,
    /// The number of packets that came to such elements.
    pub arrived: u64,
    /// The destination of each packet of a batch.
    pub destinations: Vec<Destination>,
    /// Batches that are divided by output.
    pub divided: Vec<Batch>,
    /// Empty batches.
    pub free: Vec<Batch>,
    /// The packets that go one by one: the next one is last.
    pub stack: Vec<(PortReference, GraphPacket)>,
    /// The number of ways around a cycle that packets of the batch have begun.
    pub turns: u64,
    /// The packets that were discarded because they went around a cycle without end, by the element that closes it.
    pub cycle_drops: BTreeMap<usize, u64>,
}

impl Driver {
    pub fn new(elements: usize) -> Self {
        Self { waiting: (0..elements).map(|_| Vec::new()).collect(), ..Self::default() }
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
            self.take_messages();
            if self.is_stopped() {
                return false;
            }
            let Some(element) = self.services.schedule.next_task() else { break };
            self.run_task(element);
            self.switch();
        }
        self.state_signals();
        let is_watching = !self.services.watching.is_empty();
        if is_watching {
            self.look_at_devices();
        }
        let has_task = self.services.schedule.has_task();
        // A timer at the end of time never expires.
        let next = self.services.schedule.next_timer().filter(|next| next.0 < u64::MAX);
        if let Some(next) = next {
            if !has_task && (!is_watching || self.services.clock.is_simulated()) {
                self.wait_until(next);
            }
            let now = self.services.clock.now();
            while let Some((element, key)) = self.services.schedule.expired_timer(now) {
                self.context(element).with_element(element, |it, cx| it.element().timer_expired(key, cx));
                self.dispatch();
                self.switch();
            }
        } else if !has_task && !is_watching && !self.wait_for_work() {
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
        if self.services.threads.as_ref().is_some_and(|it| it.is_stopped(&mut self.services.stops)) {
            return true;
        }
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
        let (mut most, mut runs) = (self.most_packets(element), 1);
        if most == 0 {
            runs = self.elements[element].as_mut().map_or(1, |it| it.element().burst()).clamp(1, RUN_MAX);
            // An element without a burst runs for one packet anyway.
            most = usize::from(runs == 1);
        }
        for _ in 0..runs {
            let run = self.context(element).with_element(element, |it, cx| it.element().run(most, cx));
            let again = run.is_some_and(|run| run.again);
            if again {
                self.services.schedule.wake(element);
            }
            self.dispatch();
            if !self.services.foreign_calls.is_empty() {
                self.make_foreign_calls();
            }
            if !again || run.is_none_or(|run| run.work == 0) || self.services.stops > 0 {
                break;
            }
        }
    }

    /// Returns the number of packets for which a task may run.
    ///
    /// Runs of one task are joined, up to the quantum, where the order of tasks cannot be seen in the results: no queue
    /// behind the task gets full, and nothing behind it stops the graph. In a simulation, tasks alternate as in Click.
    ///
    /// Returns 0 if each packet has to go through the graph before the task pulls the next one.
    fn most_packets(&mut self, element: usize) -> usize {
        self.refresh_effects();
        let alternates = self.services.clock.is_simulated() && self.services.schedule.has_task();
        let mut most = if alternates { 1 } else { self.options.quantum.max(1) };
        for port in 0..self.graph.ports[element].targets.len() {
            let Some(plan) = self.graph.plan(PortReference { element, port }) else { continue };
            if plan.alternates {
                return 0;
            }
            if matches!(plan.one_by_one, Some(OneByOne::Control(_))) {
                most = 1;
            }
            if most == 1 {
                continue;
            }
            for member in &plan.stores {
                let room = self.elements[*member].as_mut().and_then(|it| it.element().room());
                most = most.min(room.unwrap_or(usize::MAX));
            }
        }
        most.max(1)
    }

    /// Takes note of changed effects and of newly shared state: packets may have to go one by one now, or need not any
    /// more.
    pub(super) fn refresh_effects(&mut self) {
        if !self.services.changed_effects.is_empty() {
            let changed = std::mem::take(&mut self.services.changed_effects);
            self.graph.join_sharing(&self.services.references.borrow());
            self.graph.set_effects(changed);
        }
    }

    /// Calls the handlers that elements have asked for, and takes all emitted packets through the graph.
    pub(super) fn dispatch(&mut self) {
        self.call_handlers();
        let most = self.options.batch.clamp(1, FIRST_MAX);
        while !self.services.emitted.is_empty() {
            let mut emitted = std::mem::take(&mut self.services.emitted);
            let mut batch = self.driver.free.pop().unwrap_or_default();
            emitted.drain(most, &mut batch, |from, batch| self.take_through(from, batch));
            self.driver.free.push(batch);
            if self.services.emitted.is_empty() {
                self.services.emitted = emitted;
            }
            self.call_handlers();
        }
    }

    fn call_handlers(&mut self) {
        call_handlers(&self.graph, &mut self.elements, &mut self.services);
    }

    /// Takes a batch from an output through the graph.
    fn take_through(&mut self, from: PortReference, batch: &mut Batch) {
        let Some(target) = self.graph.push_target(from) else {
            batch.take_packets().for_each(|packet| self.services.pool.discard(packet));
            return;
        };
        self.refresh_effects();
        let Self { graph, elements, services, driver, options } = self;
        let Some(plan) = graph.plan(from) else { return };
        if plan.is_cyclic {
            batch.packets_mut().iter_mut().for_each(GraphPacket::clear_turns);
        }
        driver.turns = 0;
        let mut run = PacketRun { graph, elements, services, driver };
        if options.batch > 1 && plan.one_by_one.is_none() {
            if batch.len() <= plan.most {
                batch.number();
                run.in_batches(target, batch);
                return;
            }
            let mut part = Batch::default();
            for packet in batch.take_packets() {
                part.push(packet, Order::first(part.len()));
                if part.len() == plan.most {
                    run.in_batches(target, &mut part);
                }
            }
            run.in_batches(target, &mut part);
        } else {
            for packet in batch.take_packets() {
                run.driver.turns = 0;
                run.one_by_one(target, packet);
            }
        }
    }
}

/// Calls the handlers that elements have asked for. A call that fails is reported on standard error.
pub(super) fn call_handlers(
    graph: &ElementGraph,
    elements: &mut [Option<BuiltElement>],
    services: &mut Services,
) {
    for (this, call) in std::mem::take(&mut services.calls) {
        let mut cx = ElementContext { services: &mut *services, elements: &mut *elements, graph, this };
        if let Err(reason) = super::handler::write(&mut cx, &call) {
            let name = graph.declared.get(this).map_or("", |it| &*it.name);
            services.system.write_text(TextOutput::Error, &format!("{name}: {call}: {}\n", reason.text));
        }
    }
}
