//! Threads of a graph: their placement in words, and a graph that runs on one or on several.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use weir_elements::AllElements;
use weir_graph::engine::{
    ElementGraph, ForcedTogether, GraphClock, GraphError, Router, RunOptions, SimulatedClock, System,
    THREADS_MAX, ThreadPlacement,
};
use weir_graph::language::FlatConfiguration;
use weir_graph_io::{GraphSystem, GraphThreads, SystemClock, ThreadSystem};

/// The most threads, in the type of an option's range.
pub const MOST_THREADS: i64 = THREADS_MAX as i64;

/// Returns the statements of StaticThreadSched that cannot be followed, each as a line.
pub fn unfollowed(placement: &ThreadPlacement, graph: &ElementGraph) -> Vec<String> {
    let show = |element: usize| graph.declared[element].to_string();
    let forced = placement.forced.iter().map(|ForcedTogether { one, other, shared, thread }| {
        let why = match shared {
            Some(shared) => format!("{} and {} share {}", show(*one), show(*other), show(*shared)),
            None => format!("{} and {} are connected without a queue", show(*one), show(*other)),
        };
        format!("{why}: both run on thread {thread}")
    });
    let beyond = placement.beyond.iter().map(|(element, stated)| {
        let threads = placement.threads;
        let thread = placement.thread_of[*element];
        format!(
            "{}: there is no thread {stated} with -j {threads}; it runs on thread {thread}",
            show(*element)
        )
    });
    forced.chain(beyond).collect()
}

/// Returns the placement of a graph on threads, in lines.
pub fn describe(placement: &ThreadPlacement, graph: &ElementGraph) -> String {
    let mut text = String::new();
    for thread in 0..placement.threads {
        let all = placement.thread_of.iter().filter(|it| **it == thread).count();
        let active: Vec<&str> = placement
            .active
            .iter()
            .filter(|it| placement.thread_of[**it] == thread)
            .map(|it| &*graph.declared[*it].name)
            .collect();
        let list = if active.is_empty() { "none".to_owned() } else { active.join(", ") };
        _ = writeln!(text, "thread {thread}: {all} elements; with tasks or timers: {list}");
    }
    for (queue, threads) in &placement.queues {
        let name = &graph.declared[*queue].name;
        _ = writeln!(
            text,
            "  {name} takes packets from thread {} to thread {}",
            threads.adds, threads.removes
        );
    }
    for line in unfollowed(placement, graph) {
        _ = writeln!(text, "  {line}");
    }
    text
}

/// A graph that runs on one thread, or on several.
pub enum RunningGraph {
    /// On the thread of the command.
    One(Box<Router>),
    /// On threads of its own.
    Several(GraphThreads),
}

impl RunningGraph {
    /// Makes a graph in simulated time, on one thread.
    ///
    /// # Errors
    ///
    /// Fails with everything that is wrong.
    pub fn simulated(flat: FlatConfiguration, options: RunOptions) -> Result<Self, Vec<GraphError>> {
        let clock = Box::<SimulatedClock>::default();
        let router = Router::new(flat, &AllElements, Box::<GraphSystem>::default(), clock, options)?;
        Ok(Self::One(Box::new(router)))
    }

    /// Makes a graph on this number of threads. `warn` gets the statements of StaticThreadSched that cannot be followed.
    ///
    /// # Errors
    ///
    /// Fails with everything that is wrong.
    pub fn on_threads(
        flat: FlatConfiguration,
        options: RunOptions,
        threads: usize,
        interrupted: &Arc<AtomicBool>,
        warn: impl Fn(&str),
    ) -> Result<Self, Vec<GraphError>> {
        let interrupted = Arc::clone(interrupted);
        let system = move |_| -> (Box<dyn System>, Box<dyn GraphClock>) {
            (Box::<GraphSystem>::default(), Box::new(SystemClock::new(Arc::clone(&interrupted))))
        };
        if threads <= 1 {
            let (files, clock) = system(0);
            return Ok(Self::One(Box::new(Router::new(flat, &AllElements, files, clock, options)?)));
        }
        let mut router =
            Router::for_placement(flat.clone(), &AllElements, weir_graph_io::interfaces(), options)?;
        let placement = ThreadPlacement::of(&mut router, threads);
        unfollowed(&placement, router.graph()).iter().for_each(|line| warn(line));
        drop(router);
        let system: Arc<ThreadSystem> = Arc::new(system);
        Ok(Self::Several(GraphThreads::start(&flat, &AllElements, placement, &system, options)?))
    }

    /// Completes the results of all elements.
    ///
    /// # Errors
    ///
    /// Fails with every result that is not complete.
    pub fn finish(&mut self) -> Result<(), Vec<GraphError>> {
        match self {
            Self::One(router) => router.finish(),
            Self::Several(graph) => graph.finish(),
        }
    }

    /// Reads a handler.
    ///
    /// # Errors
    ///
    /// Fails with a reason if there is no such handler.
    pub fn read_handler(&mut self, call: &str) -> Result<String, String> {
        match self {
            Self::One(router) => router.read_handler(call),
            Self::Several(graph) => graph.read_handler(call),
        }
    }

    /// Returns the names of all elements.
    pub fn names(&self) -> Vec<Arc<str>> {
        match self {
            Self::One(router) => router.graph().declared.iter().map(|it| Arc::clone(&it.name)).collect(),
            Self::Several(graph) => graph.names().cloned().collect(),
        }
    }
}
