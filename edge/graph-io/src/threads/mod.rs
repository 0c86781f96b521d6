//! Graphs on several threads: each has a part of the graph, and an inbox.

mod hub;

use hub::{EndGuard, HubLink, ThreadHub};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use weir_graph::engine::{
    ElementClasses, GraphClock, GraphError, Router, RunOptions, System, ThreadCall, ThreadMessage,
    ThreadOrder, ThreadPart, ThreadPlacement, ThreadWait, ThreadedGraph,
};
use weir_graph::language::FlatConfiguration;
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
    names: Vec<Arc<str>>,
    next_call: u64,
    /// The messages that came while another one was expected.
    early: Vec<ThreadMessage>,
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
        let names = configuration.elements.iter().map(|it| Arc::clone(&it.name)).collect();
        let mut this = Self { hub, graph, threads: Vec::new(), names, next_call: 0, early: Vec::new() };
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
                guard.0.hub.send(count, ThreadMessage::Done(errors));
                if let Some(mut router) = router {
                    router.serve();
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
    pub fn names(&self) -> &[Arc<str>] {
        &self.names
    }

    /// Runs until the graph stops itself, until nothing is left to do, or until `is_interrupted` returns true.
    ///
    /// # Errors
    ///
    /// Fails if a thread ends early.
    pub fn run(&mut self, is_interrupted: impl Fn() -> bool) -> Result<(), Vec<GraphError>> {
        let all = 0..self.threads.len();
        all.clone().for_each(|thread| self.hub.send(thread, ThreadMessage::Order(ThreadOrder::Run)));
        let mut left = all.len();
        while left > 0 {
            if is_interrupted() {
                self.hub.stop();
            }
            match self.hub.wait(self.threads.len(), ThreadWait::Time(LOOK_EVERY)) {
                Some(ThreadMessage::Done(_)) => left -= 1,
                Some(message) => self.early.push(message),
                None => {
                    if let Some(thread) = all.clone().find(|thread| self.hub.has_ended(*thread)) {
                        return Err(vec![without_place(format!(
                            "thread {thread} ended by a defect of an element"
                        ))]);
                    }
                }
            }
        }
        Ok(())
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
        self.call(call, false)
    }

    /// Writes a handler, with the value behind a space.
    ///
    /// # Errors
    ///
    /// Fails with a reason if there is no such handler, or it does not take the value.
    pub fn write_handler(&mut self, call: &str) -> Result<String, String> {
        self.call(call, true)
    }

    fn call(&mut self, call: &str, is_write: bool) -> Result<String, String> {
        // A name that does not exist gets its error from thread 0.
        let element = call.split_whitespace().next().and_then(|name| name.rsplit_once('.')).map(|(it, _)| it);
        let index = element.and_then(|element| self.names.iter().position(|it| **it == *element));
        let to = index.map_or(0, |index| self.graph.placement.thread_of[index]);
        self.next_call += 1;
        let (from, id) = (self.threads.len(), self.next_call);
        let call = ThreadCall { from, id, call: call.to_owned(), is_write };
        self.hub.send(to, ThreadMessage::Call(call));
        loop {
            match self.hub.wait(from, ThreadWait::Message) {
                Some(ThreadMessage::Answer { id: answered, result }) if answered == id => return result,
                Some(message) => self.early.push(message),
                None => return Err("the graph has ended".to_owned()),
            }
        }
    }

    /// Waits until a thread has carried out an order, and returns the errors.
    fn done(&mut self, thread: usize) -> Vec<(usize, GraphError)> {
        if let Some(at) = self.early.iter().position(|it| matches!(it, ThreadMessage::Done(_)))
            && let ThreadMessage::Done(errors) = self.early.swap_remove(at)
        {
            return errors;
        }
        loop {
            match self.hub.wait(self.threads.len(), ThreadWait::Time(LOOK_EVERY)) {
                Some(ThreadMessage::Done(errors)) => return errors,
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
