//! Graphs on several threads: each has a part of the graph, and an inbox.

mod hub;
mod replace;

use crate::control::{ControlServer, PendingCall};
use hub::{EndGuard, HubLink, ThreadHub};
use replace::OtherConfigurations;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;
use weir_graph::control::{HandlerAction, HandlerCall};
use weir_graph::engine::{
    ElementClasses, GraphClock, GraphError, HandlerError, REPLACES, Router, RunOptions, System, ThreadCall,
    ThreadMessage, ThreadOrder, ThreadPart, ThreadPlacement, ThreadWait, ThreadedGraph,
};
use weir_graph::language::{ElementDeclaration, FlatConfiguration};
use weir_units::Nanos;

/// The system and the clock of a thread, by its number. It is called on that thread.
pub type ThreadSystem = dyn Fn(usize) -> (Box<dyn System>, Box<dyn GraphClock>) + Send + Sync;

/// The longest wait for the end of the graph without a look at a request to stop.
const LOOK_EVERY: Nanos = Nanos(50_000_000);

/// A graph on several threads. It is in the state of a [`Router`]: made, run, read, completed.
pub struct GraphThreads {
    hub: Arc<ThreadHub>,
    graph: Arc<ThreadedGraph>,
    threads: Vec<JoinHandle<()>>,
    declared: Vec<ElementDeclaration>,
    classes: &'static (dyn ElementClasses + Sync),
    options: RunOptions,
    next_call: u64,
    /// The messages that came while another one was expected.
    early: Vec<ThreadMessage>,
    /// The threads that run, or are about to.
    running: BTreeSet<usize>,
    /// The calls of control sockets that wait for an answer.
    answers: BTreeMap<u64, SyncSender<Result<String, HandlerError>>>,
    replacement: Option<OtherConfigurations>,
}

impl GraphThreads {
    /// Starts the threads of a graph: each makes its elements, then all elements are prepared in the order of their
    /// declaration.
    ///
    /// # Errors
    ///
    /// Fails with everything that is wrong, and if the system starts no threads.
    pub fn start(
        configuration: &FlatConfiguration,
        classes: &'static (dyn ElementClasses + Sync),
        placement: ThreadPlacement,
        system: &Arc<ThreadSystem>,
        options: RunOptions,
    ) -> Result<Self, Vec<GraphError>> {
        let count = placement.threads;
        let graph = Arc::new(ThreadedGraph::new(placement));
        let hub = Arc::new(ThreadHub::new(count));
        let mut this = Self {
            hub,
            graph,
            threads: Vec::new(),
            declared: configuration.elements.clone(),
            classes,
            options,
            next_call: 0,
            early: Vec::new(),
            running: BTreeSet::new(),
            answers: BTreeMap::new(),
            replacement: None,
        };
        for thread in 0..count {
            let (hub, graph, system) = (Arc::clone(&this.hub), Arc::clone(&this.graph), Arc::clone(system));
            let configuration = configuration.clone();
            let body = move || {
                let guard = EndGuard(HubLink { hub: Arc::clone(&hub), thread });
                let (mut system, clock) = system(thread);
                if let Some(waker) = system.device_waker() {
                    hub.set_device_waker(thread, waker);
                }
                let link = Rc::new(HubLink { hub, thread });
                let part = ThreadPart { thread, graph, link };
                let made = Router::part(configuration, classes, system, clock, options, part);
                let (errors, router) = match made {
                    Ok(router) => (Vec::new(), Some(router)),
                    Err(errors) => (errors, None),
                };
                guard.0.hub.send(count, ThreadMessage::Done { thread, errors });
                if let Some(mut router) = router {
                    router.serve(classes);
                }
            };
            let name = format!("graph-{thread}");
            match std::thread::Builder::new().name(name).spawn(body) {
                Ok(started) => this.threads.push(started),
                Err(error) => {
                    return Err(vec![without_place(format!("thread {thread} cannot be started: {error}"))]);
                }
            }
        }
        let errors = (0..count).flat_map(|thread| this.done(thread)).collect();
        in_order(errors)?;
        let runs = this.graph.placement.runs();
        in_order(this.order_in_turn(runs, ThreadOrder::Initialize))?;
        Ok(this)
    }

    /// Returns the number of threads.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Returns the names of all elements.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.declared.iter().map(|it| &it.name)
    }

    /// Runs until the graph stops itself, until nothing is left to do, or until `is_interrupted` returns true.
    ///
    /// # Errors
    ///
    /// Fails if a thread ends early.
    pub fn run(&mut self, is_interrupted: impl Fn() -> bool) -> Result<(), Vec<GraphError>> {
        self.run_controlled(None, |_| is_interrupted())
    }

    /// Runs as [`GraphThreads::run`] does, and executes the calls of control sockets. With these, the graph goes on when
    /// nothing is left to do.
    ///
    /// # Errors
    ///
    /// Fails if a thread ends early.
    pub fn run_controlled(
        &mut self,
        control: Option<&ControlServer>,
        mut is_interrupted: impl FnMut(&Self) -> bool,
    ) -> Result<(), Vec<GraphError>> {
        if let Some(control) = control {
            let (hub, starter) = (Arc::clone(&self.hub), self.threads.len());
            control.set_waker(Box::new(move || hub.send(starter, ThreadMessage::Attention)));
            self.hub.keep();
        }
        let result = self.run_all(control, &mut is_interrupted);
        self.running.clear();
        // Calls without an answer learn that the graph has ended.
        self.answers.clear();
        result
    }

    fn run_all(
        &mut self,
        control: Option<&ControlServer>,
        is_interrupted: &mut dyn FnMut(&Self) -> bool,
    ) -> Result<(), Vec<GraphError>> {
        self.resume();
        while !self.running.is_empty() {
            if is_interrupted(self) {
                self.hub.stop();
            }
            for call in control.map_or_else(Vec::new, ControlServer::pending) {
                self.begin(call);
            }
            match self.next_message() {
                Some(ThreadMessage::Done { thread, .. }) => {
                    self.running.remove(&thread);
                    // A thread that saw a pause which is over runs again.
                    if !self.hub.is_stopped() {
                        self.resume();
                    }
                }
                Some(ThreadMessage::Answer { id, result }) => {
                    // A connection that is gone needs no answer.
                    _ = self.answers.remove(&id).map(|answer| answer.send(result));
                }
                Some(_) => {}
                None => {
                    if let Some(thread) = (0..self.threads.len()).find(|it| self.hub.has_ended(*it)) {
                        return Err(vec![without_place(format!(
                            "thread {thread} ended by a defect of an element"
                        ))]);
                    }
                }
            }
        }
        Ok(())
    }

    /// Has the threads run that do not.
    fn resume(&mut self) {
        for thread in 0..self.threads.len() {
            if self.running.insert(thread) {
                self.hub.send(thread, ThreadMessage::Order(ThreadOrder::Run));
            }
        }
    }

    /// Returns the next message, if one comes before it is time for a look at a request to stop.
    fn next_message(&mut self) -> Option<ThreadMessage> {
        if self.early.is_empty() {
            return self.hub.wait(self.threads.len(), ThreadWait::Time(LOOK_EVERY));
        }
        Some(self.early.remove(0))
    }

    /// Returns the signals of the system for which elements wait. `None` while elements handle one, and may wait for it
    /// again.
    pub fn system_signals(&self) -> Option<BTreeSet<i32>> {
        self.hub.signals()
    }

    /// Handles a signal of the system: its elements' handlers are called.
    pub fn handle_signal(&self, number: i32) {
        self.hub.deliver_signal(number);
    }

    /// Begins a call of a control socket. Its answer comes later, so a thread that is busy delays no other call.
    fn begin(&mut self, PendingCall { call, answer }: PendingCall) {
        if call.action == HandlerAction::Write && call.name == REPLACES && self.replacement.is_some() {
            _ = answer.send(self.replace(&call.value).map_err(HandlerError::from));
            return;
        }
        let id = self.send_call(call);
        self.answers.insert(id, answer);
    }

    /// Completes the results of all elements, such as files, in the order of their declaration.
    ///
    /// # Errors
    ///
    /// Fails with every result that is not complete.
    pub fn finish(&mut self) -> Result<(), Vec<GraphError>> {
        let runs = self.graph.placement.runs();
        in_order(self.order_in_turn(runs, ThreadOrder::Finish))
    }

    /// Reads a handler, such as `counter.count` or `list`.
    ///
    /// # Errors
    ///
    /// Fails with a reason if there is no such handler.
    pub fn read_handler(&mut self, call: &str) -> Result<String, String> {
        self.call(HandlerCall::of(HandlerAction::Read, call))
    }

    /// Writes a handler, with the value behind a space.
    ///
    /// # Errors
    ///
    /// Fails with a reason if there is no such handler, or it does not take the value.
    pub fn write_handler(&mut self, call: &str) -> Result<String, String> {
        self.call(HandlerCall::of(HandlerAction::Write, call))
    }

    /// Sends a call to the thread of its element, and returns its number.
    fn send_call(&mut self, call: HandlerCall) -> u64 {
        // A name that does not exist gets its error from thread 0.
        let element = call.name.rsplit_once('.').map(|(element, _)| element);
        let index = element.and_then(|element| {
            let numbered = || element.parse::<usize>().ok()?.checked_sub(1);
            self.declared.iter().position(|it| *it.name == *element).or_else(numbered)
        });
        let to = index.and_then(|index| self.graph.placement.thread_of.get(index).copied()).unwrap_or(0);
        self.next_call += 1;
        let id = self.next_call;
        self.hub.send(to, ThreadMessage::Call(ThreadCall { from: self.threads.len(), id, call }));
        id
    }

    fn call(&mut self, call: HandlerCall) -> Result<String, String> {
        let id = self.send_call(call);
        loop {
            match self.hub.wait(self.threads.len(), ThreadWait::Message) {
                Some(ThreadMessage::Answer { id: answered, result }) if answered == id => {
                    return result.map_err(|error| error.text);
                }
                Some(message) => self.early.push(message),
                None => return Err("the graph has ended".to_owned()),
            }
        }
    }

    /// Waits until a thread has carried out an order, and returns the errors.
    fn done(&mut self, thread: usize) -> Vec<(usize, GraphError)> {
        let is_done =
            |it: &ThreadMessage| matches!(it, ThreadMessage::Done { thread: other, .. } if *other == thread);
        if let Some(at) = self.early.iter().position(is_done)
            && let ThreadMessage::Done { errors, .. } = self.early.remove(at)
        {
            return errors;
        }
        loop {
            match self.hub.wait(self.threads.len(), ThreadWait::Time(LOOK_EVERY)) {
                Some(ThreadMessage::Done { thread: other, errors }) if other == thread => return errors,
                Some(message) => self.early.push(message),
                None if self.hub.has_ended(thread) => {
                    return vec![(
                        0,
                        without_place(format!("thread {thread} ended by a defect of an element")),
                    )];
                }
                None => {}
            }
        }
    }

    /// Has all threads carry out an order, at the same time.
    fn order_all(&mut self, order: impl Fn() -> ThreadOrder) -> Vec<(usize, GraphError)> {
        let all = 0..self.threads.len();
        all.clone().for_each(|thread| self.hub.send(thread, ThreadMessage::Order(order())));
        all.flat_map(|thread| self.done(thread)).collect()
    }

    /// Has the threads carry out an order for the elements of each range, one after the other.
    fn order_in_turn(
        &mut self,
        runs: Vec<(usize, Range<usize>)>,
        order: impl Fn(Range<usize>) -> ThreadOrder,
    ) -> Vec<(usize, GraphError)> {
        let mut errors = Vec::new();
        for (thread, range) in runs {
            self.hub.send(thread, ThreadMessage::Order(order(range)));
            errors.extend(self.done(thread));
        }
        errors
    }
}

impl Drop for GraphThreads {
    fn drop(&mut self) {
        self.hub.stop();
        for thread in 0..self.threads.len() {
            self.hub.send(thread, ThreadMessage::Order(ThreadOrder::End));
        }
        for thread in self.threads.drain(..) {
            // A thread that panicked has written why.
            _ = thread.join();
        }
    }
}

/// Returns an error of no element.
fn without_place(text: String) -> GraphError {
    let landmark = weir_graph::Landmark { file: "threads".into(), line: 0 };
    GraphError { landmark, text }
}

/// Returns the errors, if there are some, in the order of their elements.
fn in_order(errors: Vec<(usize, GraphError)>) -> Result<(), Vec<GraphError>> {
    if errors.is_empty() {
        return Ok(());
    }
    let mut all: BTreeMap<usize, Vec<GraphError>> = BTreeMap::new();
    for (element, error) in errors {
        let of_element = all.entry(element).or_default();
        if !of_element.contains(&error) {
            of_element.push(error);
        }
    }
    Err(all.into_values().flatten().collect())
}
