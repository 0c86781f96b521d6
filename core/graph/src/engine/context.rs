//! The services that an element can use while it runs.

use super::batch::{Batch, Emissions};
use super::class::Effects;
use super::clock::GraphClock;
use super::effects::System;
use super::element::{BuiltElement, Destination, Reason};
use super::endpoints::CallAnswer;
use super::names::DefinedNames;
use super::packet::{GraphPacket, PacketPool};
use super::ports::{ElementPorts, PortReference};
use super::replace::{OtherArguments, Replacement};
use super::schedule::Schedule;
use super::signal::{SignalId, SignalTable, WaitsFor};
use super::threads::{QueueSide, ThreadState};
use crate::arguments::ArgumentContext;
use crate::control::HandlerCall;
use crate::language::ElementDeclaration;
use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use weir_units::Timestamp;

/// A call of a handler that an element makes for another program, when its own function has returned.
pub(super) struct ForeignCall {
    pub call: HandlerCall,
    /// The program may not write.
    pub is_read_only: bool,
    pub answer: CallAnswer,
}

/// The services that all elements share: packets, time, the system.
pub struct Services {
    /// Discards packets, and makes new ones.
    pub pool: PacketPool,
    /// Tasks and timers.
    pub schedule: Schedule,
    /// The signals of queues.
    pub signals: SignalTable,
    /// The system.
    pub system: Box<dyn System>,
    /// Names for the arguments of elements that are made later.
    pub names: DefinedNames,
    pub(super) clock: Box<dyn GraphClock>,
    /// An empty batch for packets that are pulled together.
    pub(super) pulled: Batch,
    /// The packets that elements have emitted, in order.
    pub(super) emitted: Emissions,
    /// The handlers to call when the element that runs has returned, each with the element that calls.
    pub(super) calls: Vec<(usize, String)>,
    /// The calls for other programs that wait until the element that runs has returned.
    pub(super) foreign_calls: Vec<ForeignCall>,
    /// The elements whose tasks run when devices may have packets.
    pub(super) watching: Vec<usize>,
    /// The number of requests to stop the driver.
    pub(super) stops: u32,
    /// The element that decides when the driver stops.
    pub(super) stop_manager: Option<usize>,
    /// The effects of elements that a handler has changed.
    pub(super) changed_effects: Vec<(usize, Effects)>,
    /// The number of handlers that run, each called by the one before.
    pub(super) handler_depth: usize,
    /// The number of elements that the present pull leads through without entering them.
    pub(super) pulled_through: usize,
    /// The way to another configuration, if the graph may be replaced.
    pub(super) replacement: Option<Box<Replacement>>,
    /// The arguments of elements that have got others while the graph runs.
    pub(super) reconfigured: OtherArguments,
    /// The elements that wait for a signal of the system, by its number.
    pub(super) system_signals: BTreeSet<(i32, usize)>,
    /// Pairs of elements of which the first has the state of the second.
    pub(super) references: RefCell<BTreeSet<(usize, usize)>>,
    /// The state towards the other threads of a graph that has some.
    pub(super) threads: Option<Box<ThreadState>>,
    pub(super) random: u64,
}

/// Returns the next random number of a generator, and changes its state. An element with a generator of its own draws
/// numbers without an effect that others can see.
///
/// - G. L. Steele, D. Lea, C. H. Flood: "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014 (SplitMix64).
pub fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl Default for Services {
    /// Returns services without a system, with a simulated clock.
    fn default() -> Self {
        Self::new(Box::new(super::effects::NoFiles), Box::<super::clock::SimulatedClock>::default(), 0)
    }
}

/// The most handlers that run at a time, each called by the one before.
const HANDLER_DEPTH_MAX: usize = 64;

impl Services {
    /// Returns services with a seed for random numbers.
    pub fn new(system: Box<dyn System>, clock: Box<dyn GraphClock>, seed: u64) -> Self {
        Self {
            pool: PacketPool::default(),
            schedule: Schedule::default(),
            signals: SignalTable::default(),
            system,
            names: DefinedNames::default(),
            clock,
            pulled: Batch::default(),
            emitted: Emissions::default(),
            calls: Vec::new(),
            foreign_calls: Vec::new(),
            watching: Vec::new(),
            stops: 0,
            stop_manager: None,
            changed_effects: Vec::new(),
            handler_depth: 0,
            pulled_through: 0,
            replacement: None,
            reconfigured: OtherArguments::default(),
            system_signals: BTreeSet::new(),
            references: RefCell::default(),
            threads: None,
            random: seed,
        }
    }

    /// Looks at the clock.
    pub fn now(&mut self) -> Timestamp {
        self.clock.now()
    }

    /// Returns the time of the latest look at the clock, or a later one. It is no look itself, so it is no effect.
    pub fn coarse_now(&self) -> Timestamp {
        self.clock.latest()
    }

    /// Asks the driver to stop, after the task or timer that runs.
    pub fn stop(&mut self) {
        self.stops += 1;
    }

    /// Takes a request to stop the driver back.
    pub fn withdraw_stop(&mut self) {
        self.stops = self.stops.saturating_sub(1);
    }

    /// Makes an element the one that decides when the driver stops: for each request, its handler `step` is called with the
    /// value `router`, and the request can be withdrawn. Returns false if there is one already.
    pub fn manage_stops(&mut self, element: usize) -> bool {
        let is_first = self.stop_manager.is_none();
        self.stop_manager.get_or_insert(element);
        is_first
    }

    /// Calls a write handler, when the element that runs has returned. `element` is the index of the element that calls.
    pub fn call_later(&mut self, element: usize, call: &str) {
        self.calls.push((element, call.to_owned()));
    }

    /// Calls a handler for another program, when the task of the element that runs has returned. A program that may not
    /// write gets an error for a call that would.
    pub fn call_for_program(&mut self, call: HandlerCall, is_read_only: bool, answer: CallAnswer) {
        self.foreign_calls.push(ForeignCall { call, is_read_only, answer });
    }

    /// Has the handler of an element called when the program gets a signal of the system, such as 1 for HUP: its handler
    /// `step` with the value `signal`.
    pub fn wait_for_signal(&mut self, number: i32, element: usize) {
        self.system_signals.insert((number, element));
    }

    /// Sends a signal to a process, or to a group of processes for a negative number.
    ///
    /// # Errors
    ///
    /// Fails with a reason.
    pub fn send_signal(&mut self, process: i32, signal: i32) -> Result<(), Reason> {
        let result = self.system.send_signal(process, signal);
        if let Some(threads) = &self.threads {
            // The signal may be one for this program: the thread that started the graph looks at it.
            threads.call_attention();
        }
        result
    }

    /// Starts the random numbers anew.
    pub fn seed(&mut self, seed: u64) {
        self.random = seed;
    }

    /// Returns the seed from which the next random numbers come.
    pub(super) fn random_state(&self) -> u64 {
        self.random
    }

    /// Returns a random number.
    pub fn random(&mut self) -> u64 {
        next_random(&mut self.random)
    }

    /// Makes a signal active, and schedules the tasks that wait for it.
    #[inline]
    pub fn wake(&mut self, signal: SignalId) {
        self.signals.wake(signal, &mut self.schedule);
    }

    /// Wakes a side of a queue between threads, by the index of its element.
    pub fn wake_other_thread(&self, queue: usize, side: QueueSide) {
        if let Some(threads) = &self.threads {
            threads.wake(queue, side);
        }
    }
}

/// The services that an element can use, and its place in the graph.
pub struct ElementContext<'a> {
    /// The services that all elements share.
    pub services: &'a mut Services,
    /// All elements. Those that run at present are not in their place.
    pub(super) elements: &'a mut [Option<BuiltElement>],
    pub(super) graph: &'a super::router::ElementGraph,
    /// The index of the element.
    pub(super) this: usize,
}

impl ElementContext<'_> {
    /// Returns the index of the element.
    pub fn element(&self) -> usize {
        self.this
    }

    /// Returns the name and the class of the element, as `NAME :: CLASS`.
    pub fn read_own_name(&self) -> String {
        let declared = &self.graph.declared[self.this];
        format!("{} :: {}", declared.name, declared.class)
    }

    /// Returns the name of an element by its index.
    pub fn element_name(&self, index: usize) -> Option<&str> {
        self.graph.declared.get(index).map(|declared| &*declared.name)
    }

    /// Returns the elements of a class, by their indices.
    pub fn elements_of_class(&self, class: &str) -> Vec<usize> {
        let declared = self.graph.declared.iter().enumerate();
        declared.filter(|(_, it)| &*it.class == class).map(|(index, _)| index).collect()
    }

    /// Returns the element's ports.
    pub fn ports(&self) -> &ElementPorts {
        &self.graph.ports[self.this]
    }

    /// Sends a packet to an output, when the element's function has returned. An output that does not exist discards it.
    #[inline]
    pub fn emit(&mut self, output: usize, packet: GraphPacket) {
        self.services.emitted.push(PortReference { element: self.this, port: output }, packet);
    }

    /// Sends this number of packets to an output, as [`ElementContext::emit`] does one after the other.
    #[inline]
    pub fn emit_each(
        &mut self,
        output: usize,
        count: usize,
        mut make: impl FnMut(&mut PacketPool, usize) -> GraphPacket,
    ) {
        let from = PortReference { element: self.this, port: output };
        let pool = &mut self.services.pool;
        self.services.emitted.extend(from, (0..count).map(|index| make(pool, index)));
    }

    /// Sends a packet to an output if the element has it and it pushes, and discards it else.
    pub fn emit_or_discard(&mut self, output: usize, packet: GraphPacket) {
        if self.ports().outputs_push.get(output) == Some(&true) {
            self.emit(output, packet);
        } else {
            self.services.pool.discard(packet);
        }
    }

    /// Pulls a packet from an input; `None` if there is none at present, or the input pushes.
    pub fn pull(&mut self, input: usize) -> Option<GraphPacket> {
        super::pull::pull(self, input)
    }

    /// Pulls at most this number of packets, and hands each of them over. Returns how many came: fewer if no more are
    /// there at present, or one left the way to this input.
    pub fn pull_each(
        &mut self,
        input: usize,
        most: usize,
        mut take: impl FnMut(&mut Self, GraphPacket),
    ) -> usize {
        let mut batch = std::mem::take(&mut self.services.pulled);
        let mut count = 0;
        if super::pull::pull_direct(self, input, most, &mut batch) {
            count = batch.len();
            batch.take_packets().for_each(|packet| take(self, packet));
            self.services.pulled = batch;
        } else {
            while count < most
                && let Some(packet) = self.pull(input)
            {
                take(self, packet);
                count += 1;
            }
        }
        count
    }

    /// Gives the element a task, and schedules it.
    pub fn add_task(&mut self, is_scheduled: bool) {
        let tickets = self.graph.tickets(self.this);
        self.services.schedule.add_task(self.this, tickets, is_scheduled);
    }

    /// Schedules the element's task.
    pub fn schedule(&mut self) {
        self.services.schedule.wake(self.this);
    }

    /// Has the element's task scheduled whenever devices may have packets. As long as an element watches devices, the
    /// driver has something to wait for.
    pub fn watch_devices(&mut self) {
        if !self.services.watching.contains(&self.this) {
            self.services.watching.push(self.this);
        }
    }

    /// Ends what [`ElementContext::watch_devices`] began.
    pub fn stop_watching(&mut self) {
        let this = self.this;
        self.services.watching.retain(|watching| *watching != this);
    }

    /// Sets a timer, by a key of the element's.
    pub fn set_timer(&mut self, at: Timestamp, key: u32) {
        self.services.schedule.set_timer(at, self.this, key);
    }

    /// Has the element's task scheduled whenever packets may be at a pull input, and returns the signals.
    pub fn wait_for_packets(&mut self, input: usize) -> WaitsFor {
        let waits_for = super::search::nonempty_upstream(self, input);
        self.services.signals.wait(self.this, &waits_for);
        waits_for
    }

    /// Has the element's task scheduled whenever there is room behind a push output, and returns the signals.
    pub fn wait_for_room(&mut self, output: usize) -> WaitsFor {
        let waits_for = super::search::nonfull_downstream(self, output);
        self.services.signals.wait(self.this, &waits_for);
        waits_for
    }

    /// Returns the next elements that store packets: behind a push output, or before a pull input, of the same number.
    pub fn nearest_stores(&mut self, port: usize) -> Vec<usize> {
        match self.ports().outputs_push.get(port) {
            Some(true) => super::search::stores_downstream(self, port),
            _ => super::search::stores_upstream(self, port),
        }
    }

    /// Returns the number of packets that an element stores, by its index; `None` if it stores none, or runs at present.
    pub fn stored_packets(&mut self, index: usize) -> Option<usize> {
        self.elements.get_mut(index)?.as_mut()?.element().stored()
    }

    /// Runs a function while another element has the place of this one. So handlers that the function calls reach state
    /// that both share, where this element itself is busy.
    pub fn with_stand_in<T>(&mut self, stand_in: BuiltElement, run: impl FnOnce(&mut Self) -> T) -> T {
        let this = self.this;
        let before = self.elements[this].replace(stand_in);
        let result = run(self);
        self.elements[this] = before;
        result
    }

    /// Returns true if a task that waits for these may find work.
    pub fn is_active(&self, waits_for: &WaitsFor) -> bool {
        self.services.signals.is_active(waits_for)
    }

    /// Returns the index of an element by its name, as it is called from this element: in its own compound element first.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.graph.find(self.this, name)
    }

    /// Runs a function with the context in which the element's arguments are read, for handlers that change them.
    pub fn with_argument_context<T>(&self, run: impl FnOnce(&ArgumentContext<'_>) -> T) -> T {
        let ElementDeclaration { name, class, landmark, .. } = &self.graph.declared[self.this];
        let names = super::router::GraphNames { graph: self.graph, defined: &self.services.names };
        run(&ArgumentContext { element: name, class, landmark, names: &names })
    }

    /// Returns the state that an element shares, by its index. `None` if it shares none, or runs at present.
    pub fn shared_state(&mut self, index: usize) -> Option<Rc<dyn Any>> {
        let element = self.elements.get(index)?.as_ref()?;
        let pair = (self.this, index);
        if self.services.references.borrow_mut().insert(pair) {
            self.services.changed_effects.push((self.this, self.graph.effects[self.this]));
        }
        match element {
            BuiltElement::Routing(element) => element.shared_state(),
            BuiltElement::Emitting(element) => element.shared_state(),
        }
    }

    /// Reads a handler, by `ELEMENT.HANDLER` or the name of a handler of the graph, with an argument behind a space.
    ///
    /// # Errors
    ///
    /// Fails with a reason if there is no such handler.
    pub fn read_handler(&mut self, call: &str) -> Result<String, Reason> {
        self.nest(|cx| super::handler::read(cx, call).map_err(|error| error.text))
    }

    /// Writes a handler, by `ELEMENT.HANDLER` or the name of a handler of the graph, with the value behind a space.
    ///
    /// # Errors
    ///
    /// Fails with a reason if there is no such handler, or it does not take the value.
    pub fn write_handler(&mut self, call: &str) -> Result<String, Reason> {
        self.nest(|cx| super::handler::write(cx, call).map_err(|error| error.text))
    }

    /// Runs a call of a handler, unless too many are running.
    fn nest(&mut self, call: impl FnOnce(&mut Self) -> Result<String, Reason>) -> Result<String, Reason> {
        if self.services.handler_depth >= HANDLER_DEPTH_MAX {
            return Err(format!("handlers call each other more than {HANDLER_DEPTH_MAX} levels deep"));
        }
        self.services.handler_depth += 1;
        let result = call(self);
        self.services.handler_depth -= 1;
        result
    }

    /// Runs a function of another element, with a context of that element. Returns `None` if it runs already.
    pub(super) fn with_element<T>(
        &mut self,
        index: usize,
        run: impl FnOnce(&mut BuiltElement, &mut ElementContext<'_>) -> T,
    ) -> Option<T> {
        let mut element = self.elements[index].take()?;
        let mut cx = ElementContext {
            services: self.services,
            elements: self.elements,
            graph: self.graph,
            this: index,
        };
        let result = run(&mut element, &mut cx);
        self.elements[index] = Some(element);
        Some(result)
    }

    pub(super) fn take_destination(&mut self, destination: Destination, packet: GraphPacket) {
        match destination.port() {
            Some(port) => self.emit_or_discard(port, packet),
            None => self.services.pool.discard(packet),
        }
    }
}
