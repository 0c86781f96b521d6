//! Graphs on threads of a test.

use std::sync::Arc;
use weir_elements::AllElements;
use weir_elements::testing::{TestSystems, TestedGraph, interfaces};
use weir_graph::engine::{
    GraphClock, GraphError, NoFiles, Router, RunOptions, SimulatedClock, ThreadPlacement,
};
use weir_graph::language::{ConfigurationSource, FlatConfiguration, parse};
use weir_graph_io::{GraphThreads, SystemClock, ThreadSystem};
use weir_units::Timestamp;

/// Returns a configuration without compound elements.
pub fn flat(text: &str) -> FlatConfiguration {
    parse(&ConfigurationSource { name: "graph", bytes: text.as_bytes() }, &[], &AllElements).unwrap()
}

/// Returns the placement of a configuration.
pub fn placement(flat: &FlatConfiguration, threads: usize) -> Result<ThreadPlacement, Vec<GraphError>> {
    let mut router = Router::for_placement(flat.clone(), &AllElements, interfaces(), RunOptions::default())?;
    Ok(ThreadPlacement::of(&mut router, threads))
}

/// The clock of each thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestClock {
    Simulated,
    System,
}

/// Starts a graph on threads.
pub fn start(
    flat: &FlatConfiguration,
    systems: TestSystems,
    clock: TestClock,
    threads: usize,
    options: RunOptions,
) -> Result<GraphThreads, Vec<GraphError>> {
    let system: Arc<ThreadSystem> = Arc::new(move |_| {
        let clock: Box<dyn GraphClock> = match clock {
            TestClock::Simulated => Box::<SimulatedClock>::default(),
            TestClock::System => Box::<SystemClock>::default(),
        };
        (systems(), clock)
    });
    GraphThreads::start(flat, &AllElements, placement(flat, threads)?, &system, options)
}

/// Starts a graph without files.
pub fn start_text(text: &str, threads: usize) -> GraphThreads {
    let systems: TestSystems = Arc::new(|| Box::new(NoFiles));
    match start(&flat(text), systems, TestClock::System, threads, RunOptions::default()) {
        Ok(graph) => graph,
        Err(errors) => panic!("{errors:?}"),
    }
}

/// A graph on threads, as a test of `tests/graphs` runs it.
pub struct OnThreads(pub GraphThreads);

impl TestedGraph for OnThreads {
    fn write_handler(&mut self, call: &str) -> Result<String, String> {
        self.0.write_handler(call)
    }

    fn run_until(&mut self, _: Option<Timestamp>) {
        self.0.run(|| false).unwrap();
    }

    fn read_handler(&mut self, call: &str) -> Result<String, String> {
        self.0.read_handler(call)
    }

    fn finish(&mut self) -> Result<(), Vec<GraphError>> {
        self.0.finish()
    }
}
