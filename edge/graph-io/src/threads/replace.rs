//! The replacement of a graph on several threads.
//!
//! All threads pause between two tasks, while each makes its part of the new graph and takes over the state of its
//! elements. If anything is wrong, all of them go on with the earlier graph.

use super::{GraphThreads, LOOK_EVERY, in_order};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_graph::engine::{
    GraphError, Router, RunningPlacement, ThreadMessage, ThreadOrder, ThreadPlacement, ThreadWait,
    ThreadedGraph,
};
use weir_graph::language::FlatConfiguration;

/// Parses the text of a configuration. An error is one line for each error of the text.
type ParseConfiguration = dyn Fn(&str) -> Result<FlatConfiguration, String>;

/// The way to other configurations.
pub(super) struct OtherConfigurations {
    parse: Box<ParseConfiguration>,
}

/// The longest wait for all threads to end their present tasks. A task takes as long as a script, or a call of another
/// thread's handler.
const PAUSE_MAX: Duration = Duration::from_secs(10);

impl GraphThreads {
    /// Offers the handler `hotconfig` to control sockets, which replaces the graph. `parse` reads a configuration.
    pub fn allow_replacement(&mut self, parse: impl Fn(&str) -> Result<FlatConfiguration, String> + 'static) {
        self.replacement = Some(OtherConfigurations { parse: Box::new(parse) });
        self.graph.set_replacement_errors(String::new());
    }

    /// Replaces the graph by another configuration, while it runs.
    pub(super) fn replace(&mut self, text: &str) -> Result<String, String> {
        let result = self.try_replace(text);
        let errors = result.as_ref().err().map_or_else(String::new, |errors| format!("{errors}\n"));
        self.graph.set_replacement_errors(errors);
        self.hub.pause(false);
        self.resume();
        result.map(|()| String::new())
    }

    fn try_replace(&mut self, text: &str) -> Result<(), String> {
        let Some(replacement) = &self.replacement else { return Ok(()) };
        let configuration = (replacement.parse)(text).map_err(|errors| errors.trim_end().to_owned())?;
        // The threads run on while it is found out where the elements go.
        let mut router =
            Router::for_placement(configuration.clone(), self.classes, crate::interfaces(), self.options)
                .map_err(|it| lines(&it))?;
        let running = RunningPlacement::new(&self.declared, &self.graph.placement);
        let placement = ThreadPlacement::following(&mut router, self.threads.len(), &running);
        let moves = running.moves(router.graph(), &placement);
        drop(router);
        if !moves.is_empty() {
            return Err(lines(&moves));
        }
        self.pause()?;
        let graph = Arc::new(ThreadedGraph::new(placement));
        let replace = || ThreadOrder::Replace {
            configuration: Box::new(configuration.clone()),
            graph: Arc::clone(&graph),
        };
        let mut errors = self.order_all(replace);
        if errors.is_empty() {
            errors = self.order_in_turn(graph.placement.runs(), ThreadOrder::Initialize);
        }
        if let Err(errors) = in_order(errors) {
            self.order_all(|| ThreadOrder::Abandon);
            return Err(lines(&errors));
        }
        self.order_all(|| ThreadOrder::Continue);
        self.declared = configuration.elements;
        self.graph = graph;
        Ok(())
    }

    /// Waits until all threads have ended their present tasks.
    fn pause(&mut self) -> Result<(), String> {
        self.hub.pause(true);
        let end = Instant::now() + PAUSE_MAX;
        while let Some(busy) = self.running.first().copied() {
            match self.hub.wait(self.threads.len(), ThreadWait::Time(LOOK_EVERY)) {
                Some(ThreadMessage::Done { thread, .. }) => _ = self.running.remove(&thread),
                Some(message) => self.early.push(message),
                None => {}
            }
            if self.hub.is_stopped() {
                return Err("the graph has ended".to_owned());
            }
            if Instant::now() >= end {
                return Err(format!(
                    "hotconfig: thread {busy} does not end its present task within {} s: try again",
                    PAUSE_MAX.as_secs()
                ));
            }
        }
        Ok(())
    }
}

fn lines(errors: &[GraphError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
