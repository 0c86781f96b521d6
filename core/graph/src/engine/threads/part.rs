//! The part of a graph that runs on one thread.
//!
//! Each thread has a [`Router`] of its own, with all facts about the graph, but only its own elements. Packets go to
//! other threads through queues. A call of a handler of an element elsewhere is a message; the caller waits for the
//! answer. Its thread answers between two batches. While it waits itself, it answers only calls that would close a
//! circle of waiting threads.

use super::super::clock::{GraphClock, SimulatedClock};
use super::super::context::{ElementContext, Services};
use super::super::effects::{InterfaceAddresses, OnlyInterfaces, System};
use super::super::handler::{HandlerError, HandlerFault};
use super::super::replace::OtherArguments;
use super::super::router::{ElementClasses, GraphError, Router, RunOptions, without_elements};
use super::link::{QueueSide, ThreadCall, ThreadLink, ThreadMessage, ThreadOrder, ThreadWait, WaitGraph};
use super::placement::ThreadPlacement;
use super::queue::ThreadQueue;
use crate::control::{HandlerAction, HandlerCall};
use crate::language::FlatConfiguration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

/// The facts about a graph that its threads share.
#[derive(Debug, Default)]
pub struct ThreadedGraph {
    /// The threads of the elements.
    pub placement: ThreadPlacement,
    queues: BTreeMap<usize, Arc<ThreadQueue>>,
    waits: WaitGraph,
    pub(super) reconfigured: OtherArguments,
    /// The errors of the latest configuration, in a graph that can be replaced.
    errors: Mutex<Option<String>>,
}

impl ThreadedGraph {
    /// Returns a graph with this placement, and with empty queues between its threads.
    pub fn new(placement: ThreadPlacement) -> Self {
        let queues = placement.queues.keys().map(|element| (*element, Arc::default())).collect();
        Self { placement, queues, ..Self::default() }
    }

    /// Sets the errors of the latest configuration that was to take the place of this one. From then on the graph offers
    /// the handler `hotconfig`.
    pub fn set_replacement_errors(&self, errors: String) {
        *self.errors.lock().unwrap_or_else(PoisonError::into_inner) = Some(errors);
    }

    /// Returns these errors; `None` if the graph cannot be replaced.
    pub(in crate::engine) fn replacement_errors(&self) -> Option<String> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the packets of a queue between threads.
    pub(in crate::engine) fn queue(&self, element: usize) -> Option<Arc<ThreadQueue>> {
        self.queues.get(&element).map(Arc::clone)
    }
}

/// A thread's place among the threads of a graph.
pub struct ThreadPart {
    /// The number of the thread.
    pub thread: usize,
    /// The facts that the threads share.
    pub graph: Arc<ThreadedGraph>,
    /// The way to the other threads.
    pub link: Rc<dyn ThreadLink>,
}

/// The state of a thread towards the others.
pub(in crate::engine) struct ThreadState {
    pub part: ThreadPart,
    next_call: u64,
    /// The answers that came while a later call waited for its own.
    answers: BTreeMap<u64, Result<String, HandlerError>>,
    /// The calls and wakes for after the present task.
    postponed: Vec<ThreadMessage>,
    orders: VecDeque<ThreadOrder>,
    /// The signals that the other threads know of; `None` if that has to be stated anew.
    stated_signals: Option<BTreeSet<i32>>,
}

impl ThreadState {
    pub fn new(part: ThreadPart) -> Self {
        Self {
            part,
            next_call: 0,
            answers: BTreeMap::new(),
            postponed: Vec::new(),
            orders: VecDeque::new(),
            stated_signals: None,
        }
    }

    fn placement(&self) -> &ThreadPlacement {
        &self.part.graph.placement
    }

    /// Returns true if an element, or a side of a queue, is on this thread.
    pub fn has(&self, element: usize) -> bool {
        self.placement().is_on(element, self.part.thread)
    }

    /// Returns the seed of this thread's random numbers. That of thread 0 is the graph's.
    pub fn seed(&self) -> u64 {
        self.placement().seed ^ (self.part.thread as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// Has the thread that started the graph look at what is outside of it.
    pub fn call_attention(&self) {
        self.part.link.send(self.placement().threads, ThreadMessage::Attention);
    }

    /// Wakes the other side of a queue.
    pub fn wake(&self, element: usize, side: QueueSide) {
        let Some(threads) = self.placement().queues.get(&element) else { return };
        let to = match side {
            QueueSide::Packets => threads.removes,
            QueueSide::Room | QueueSide::NoRoom => threads.adds,
        };
        self.part.link.send(to, ThreadMessage::Wake { element, side });
    }

    /// Returns true if the graph stops or pauses. Sends requests to stop to the thread of the element that decides about them.
    pub fn is_stopped(&self, stops: &mut u32) -> bool {
        if *stops > 0
            && let Some(manager) = self.placement().stop_manager
            && !self.has(manager)
        {
            let to = self.placement().thread_of[manager];
            self.part.link.send(to, ThreadMessage::Stop(std::mem::take(stops)));
        }
        self.part.link.is_stopped() || self.part.link.is_paused()
    }
}

/// Calls a handler of an element on another thread, and waits for the result. Returns `None` for an element on this
/// thread.
pub(in crate::engine) fn call_elsewhere(
    cx: &mut ElementContext<'_>,
    element: usize,
    handler: &str,
    argument: &str,
    action: HandlerAction,
) -> Option<Result<String, HandlerError>> {
    let threads = cx.services.threads.as_deref_mut()?;
    let to = threads.placement().thread_of[element];
    if to == threads.part.thread {
        return None;
    }
    let id = threads.next_call;
    threads.next_call += 1;
    let link = Rc::clone(&threads.part.link);
    let name = format!("{}.{handler}", cx.graph.declared[element].name);
    let call = HandlerCall { action, name, value: argument.to_owned() };
    let call = ThreadCall { from: threads.part.thread, id, call };
    link.send(to, ThreadMessage::Call(call));
    loop {
        if let Some(result) = cx.services.threads.as_mut().and_then(|it| it.answers.remove(&id)) {
            return Some(result);
        }
        match link.wait(ThreadWait::Message) {
            Some(message) => take(cx, message, true),
            None => {
                let text = "the graph has ended".to_owned();
                return Some(Err(HandlerError { fault: HandlerFault::NoGraph, text }));
            }
        }
    }
}

/// Handles a message. `is_waiting` states that an element of this thread runs, and waits for an answer.
fn take(cx: &mut ElementContext<'_>, message: ThreadMessage, is_waiting: bool) {
    let Some(threads) = cx.services.threads.as_deref_mut() else { return };
    match message {
        ThreadMessage::Wake { element, side } => {
            let Some(queue) = cx.elements.get_mut(element).and_then(Option::as_mut) else {
                // Between two tasks no element runs.
                if is_waiting {
                    threads.postponed.push(ThreadMessage::Wake { element, side });
                }
                return;
            };
            let signal = match side {
                QueueSide::Packets => queue.element().nonempty_signal(),
                QueueSide::Room | QueueSide::NoRoom => queue.element().nonfull_signal(),
            };
            match signal {
                Some(signal) if side == QueueSide::NoRoom => cx.services.signals.sleep(signal),
                Some(signal) => cx.services.wake(signal),
                None => {}
            }
        }
        ThreadMessage::Stop(count) => cx.services.stops = cx.services.stops.saturating_add(count),
        ThreadMessage::Call(call) => {
            let (graph, this) = (Arc::clone(&threads.part.graph), threads.part.thread);
            // The caller waits, also while its call is answered: a call back to its thread must not wait for it.
            let waits = graph.waits.add(call.from, this);
            if is_waiting && waits {
                threads.postponed.push(ThreadMessage::Call(call));
                return;
            }
            answer(cx, &call);
            if waits {
                graph.waits.remove(call.from, this);
            }
        }
        ThreadMessage::Answer { id, result } => _ = threads.answers.insert(id, result),
        // It runs elements, so it comes after the present task.
        ThreadMessage::Signal(_) if is_waiting => threads.postponed.push(message),
        ThreadMessage::Order(order) => threads.orders.push_back(order),
        ThreadMessage::Signal(_) | ThreadMessage::Attention | ThreadMessage::Done { .. } => {}
    }
}

fn answer(cx: &mut ElementContext<'_>, ThreadCall { from, id, call }: &ThreadCall) {
    let mut own = ElementContext {
        services: &mut *cx.services,
        elements: &mut *cx.elements,
        graph: cx.graph,
        this: usize::MAX,
    };
    let result = super::super::handler::call(&mut own, call);
    if let Some(threads) = &cx.services.threads {
        threads.part.link.send(*from, ThreadMessage::Answer { id: *id, result });
    }
}

impl Router {
    /// Makes a graph for the placement of its elements: without files, and without the errors of elements that need them.
    ///
    /// # Errors
    ///
    /// Fails with everything that is wrong in the configuration itself.
    pub fn for_placement(
        configuration: FlatConfiguration,
        classes: &dyn ElementClasses,
        interfaces: Vec<InterfaceAddresses>,
        options: RunOptions,
    ) -> Result<Self, Vec<GraphError>> {
        let system = Box::new(OnlyInterfaces(interfaces));
        let services = Services::new(system, Box::<SimulatedClock>::default(), 0);
        let router = Self::assemble(configuration, classes, services, options);
        let mut router = router.map_err(|failed| without_elements(failed.1))?;
        let elements = router.elements.len();
        _ = router.initialize_range(0..elements);
        Ok(router)
    }

    /// Makes the part of a graph that runs on one thread. [`Router::serve`] runs it.
    ///
    /// # Errors
    ///
    /// Fails with everything that is wrong, each with the index of its element.
    pub fn part(
        configuration: FlatConfiguration,
        classes: &dyn ElementClasses,
        system: Box<dyn System>,
        clock: Box<dyn GraphClock>,
        options: RunOptions,
        part: ThreadPart,
    ) -> Result<Self, Vec<(usize, GraphError)>> {
        let threads = ThreadState::new(part);
        let mut services = Services::new(system, clock, threads.seed());
        services.join(threads);
        Self::assemble(configuration, classes, services, options).map_err(|failed| failed.1)
    }

    /// Carries out the orders of the thread that started the graph, and answers calls, until the order to end.
    pub fn serve(&mut self, classes: &dyn ElementClasses) {
        let Some(threads) = &self.services.threads else { return };
        let link = Rc::clone(&threads.part.link);
        let (thread, starter) = (threads.part.thread, threads.placement().threads);
        // The earlier graph, while another one is tried.
        let mut earlier = None;
        loop {
            self.take_postponed();
            let order = self.services.threads.as_mut().and_then(|it| it.orders.pop_front());
            let errors = match order {
                Some(ThreadOrder::Initialize(range)) => {
                    let errors = self.initialize_range(self.own(range));
                    // No signal is missed by a thread that runs later than others. A graph that is tried states none.
                    if earlier.is_none() {
                        self.state_signals();
                    }
                    errors
                }
                Some(ThreadOrder::Run) => {
                    while self.step() {}
                    if self.services.stops > 0 {
                        link.stop();
                    }
                    Vec::new()
                }
                Some(ThreadOrder::Finish(range)) => self.finish_range(self.own(range)),
                Some(ThreadOrder::Replace { configuration, graph }) => {
                    self.replace_part(*configuration, classes, graph, &mut earlier)
                }
                Some(ThreadOrder::Continue) => {
                    earlier.take().into_iter().for_each(|earlier| self.continue_part(earlier));
                    self.state_signals();
                    Vec::new()
                }
                Some(ThreadOrder::Abandon) => {
                    earlier.take().into_iter().for_each(|earlier| self.abandon_part(earlier));
                    Vec::new()
                }
                Some(ThreadOrder::End) => return,
                None => {
                    match link.wait(ThreadWait::Message) {
                        Some(message) => self.take_message(message),
                        None => return,
                    }
                    continue;
                }
            };
            link.send(starter, ThreadMessage::Done { thread, errors });
        }
    }

    /// Returns a range without what is beyond the elements.
    fn own(&self, range: Range<usize>) -> Range<usize> {
        range.start.min(self.elements.len())..range.end.min(self.elements.len())
    }

    fn take_message(&mut self, message: ThreadMessage) {
        if let ThreadMessage::Signal(number) = message {
            if let Some(threads) = self.services.threads.as_deref_mut() {
                threads.stated_signals = None;
            }
            return self.handle_signal(number);
        }
        take(&mut self.context(usize::MAX), message, false);
        self.dispatch();
    }

    /// Handles the messages of other threads, and what was left for the time between two tasks.
    #[inline]
    pub(in crate::engine) fn take_messages(&mut self) {
        if self.services.threads.is_some() {
            self.take_postponed();
            while let Some(message) = self.services.threads.as_ref().and_then(|it| it.part.link.receive()) {
                self.take_message(message);
                self.take_postponed();
            }
        }
    }

    /// Handles what was left for the time between two tasks. Returns false if that is nothing.
    fn take_postponed(&mut self) -> bool {
        let mut has_taken = false;
        while let Some(threads) = self.services.threads.as_deref_mut().filter(|it| !it.postponed.is_empty()) {
            has_taken = true;
            let message = threads.postponed.remove(0);
            let from = if let ThreadMessage::Call(call) = &message { Some(call.from) } else { None };
            self.take_message(message);
            if let (Some(from), Some(threads)) = (from, &self.services.threads) {
                threads.part.graph.waits.remove(from, threads.part.thread);
            }
        }
        has_taken
    }

    /// States the signals for which elements wait, if others are stated.
    #[inline]
    pub(in crate::engine) fn state_signals(&mut self) {
        if self.services.threads.is_some() {
            let wanted = self.system_signals();
            if let Some(threads) = self.services.threads.as_deref_mut()
                && threads.stated_signals.as_ref() != Some(&wanted)
            {
                threads.part.link.wait_for_signals(&wanted);
                threads.stated_signals = Some(wanted);
            }
        }
    }

    /// Waits until a message of another thread comes. Returns false if the graph stops.
    pub(in crate::engine) fn wait_for_work(&mut self) -> bool {
        // A task that waited for an answer may have left calls. They may have scheduled a task.
        if self.take_postponed() {
            return true;
        }
        let Some(threads) = &self.services.threads else { return false };
        match threads.part.link.wait(ThreadWait::Work) {
            Some(message) => {
                self.take_message(message);
                true
            }
            None => false,
        }
    }

    /// Waits until a time, or until a message of another thread comes.
    pub(in crate::engine) fn wait_until(&mut self, until: weir_units::Timestamp) {
        if self.take_postponed() {
            return;
        }
        match &self.services.threads {
            Some(threads) if !self.services.clock.is_simulated() => {
                let link = Rc::clone(&threads.part.link);
                let left = until.since(self.services.clock.now());
                if let Some(message) = link.wait(ThreadWait::Time(left)) {
                    self.take_message(message);
                }
            }
            _ => self.services.clock.wait(Some(until)),
        }
    }
}
