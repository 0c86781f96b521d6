//! Signals of the system: those that end a run, and those for which scripts of the graph wait.

use crate::output::signals::ENDING;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_graph::engine::Router;
use weir_graph_io::GraphThreads;

/// A signal that is caught.
#[derive(Debug, Default)]
struct CaughtSignal {
    has_arrived: Arc<AtomicBool>,
    /// The signal does to the program what it would do if it was not caught.
    is_default: Arc<AtomicBool>,
}

/// The signals of a run.
#[derive(Debug, Default)]
pub struct GraphSignals {
    /// A signal has arrived.
    any: Arc<AtomicBool>,
    caught: BTreeMap<i32, CaughtSignal>,
    /// The signals for which scripts wait.
    wanted: BTreeSet<i32>,
}

impl GraphSignals {
    /// Catches the signals that end a run for which no script waits: the first one ends it in an orderly way, a second one at once. Signals that
    /// were ignored when the process began stay ignored, as nohup(1) expects.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn catch(&mut self) -> io::Result<()> {
        for signal in ENDING.into_iter().filter(|signal| !weir_os::is_ignored(*signal)) {
            self.catch_one(signal)?;
        }
        Ok(())
    }

    fn catch_one(&mut self, signal: i32) -> io::Result<()> {
        let caught = CaughtSignal::default();
        // The order matters: the signal does its default only if that was chosen before it came.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&caught.is_default))?;
        signal_hook::flag::register(signal, Arc::clone(&caught.has_arrived))?;
        signal_hook::flag::register(signal, Arc::clone(&self.any))?;
        self.caught.insert(signal, caught);
        Ok(())
    }

    /// Returns a flag that is set while a signal has arrived and is not handled yet.
    pub fn arrived(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.any)
    }

    /// Passes signals to the scripts of a graph that wait for them. Returns true if another signal ends the run.
    pub fn end(&mut self, router: &mut Router) -> bool {
        let (signals, is_over) = self.take();
        signals.into_iter().for_each(|signal| router.handle_signal(signal));
        self.wait_for(router.system_signals());
        is_over
    }

    /// Does the same for a graph on several threads.
    pub fn end_threads(&mut self, graph: &GraphThreads) -> bool {
        // While a script handles a signal, others wait: it may be about to wait for the next one.
        let Some(wanted) = graph.system_signals() else { return false };
        self.wait_for(wanted);
        let (signals, is_over) = self.take();
        signals.into_iter().for_each(|signal| graph.handle_signal(signal));
        is_over
    }

    /// Returns the signals that have arrived and for which scripts wait, and true if another one ends the run.
    fn take(&mut self) -> (Vec<i32>, bool) {
        let (mut signals, mut is_over) = (Vec::new(), false);
        if self.any.load(Ordering::Relaxed) {
            self.any.store(false, Ordering::SeqCst);
            for (signal, caught) in &self.caught {
                if !caught.has_arrived.swap(false, Ordering::SeqCst) {
                    continue;
                }
                if self.wanted.contains(signal) {
                    signals.push(*signal);
                } else {
                    is_over = true;
                    caught.is_default.store(true, Ordering::SeqCst);
                }
            }
        }
        (signals, is_over)
    }

    fn wait_for(&mut self, wanted: BTreeSet<i32>) {
        if wanted == self.wanted {
            return;
        }
        for signal in &wanted {
            // A signal that the system does not let the program catch has its default effect.
            if !self.caught.contains_key(signal) && self.catch_one(*signal).is_err() {
                continue;
            }
        }
        for (signal, caught) in self.caught.iter().filter(|(signal, _)| !ENDING.contains(signal)) {
            caught.is_default.store(!wanted.contains(signal), Ordering::SeqCst);
        }
        self.wanted = wanted;
    }
}
