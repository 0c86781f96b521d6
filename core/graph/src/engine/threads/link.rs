//! Messages between the threads of a graph, and the way on which they go.

use super::part::ThreadedGraph;
use crate::control::HandlerCall;
use crate::engine::handler::HandlerError;
use crate::engine::router::GraphError;
use crate::language::FlatConfiguration;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use weir_units::Nanos;

/// The side of a queue between two threads that a message is for, with the news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueSide {
    /// The side that removes packets: there are some.
    Packets,
    /// The side that adds packets: there is room.
    Room,
    /// The side that adds packets: it has to wait, since the queue began full.
    NoRoom,
}

/// A call of a handler of an element on another thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadCall {
    /// The thread that calls, and waits for the answer.
    pub from: usize,
    /// The number of the call among those of its thread.
    pub id: u64,
    /// The handler, with its value.
    pub call: HandlerCall,
}

/// A message to a thread of a graph.
#[derive(Clone, Debug)]
pub enum ThreadMessage {
    /// A side of a queue has to be woken, or has to wait.
    Wake {
        /// The queue.
        element: usize,
        /// The side.
        side: QueueSide,
    },
    /// Elements ask the driver to stop, this number of times.
    Stop(u32),
    /// A call of a handler.
    Call(ThreadCall),
    /// The result of a call.
    Answer {
        /// The number of the call.
        id: u64,
        /// The result.
        result: Result<String, HandlerError>,
    },
    /// A signal of the system, for the elements that wait for it.
    Signal(i32),
    /// Something outside of the graph waits for the thread that started it, such as a peer of a control socket.
    Attention,
    /// An order of the thread that started the graph.
    Order(ThreadOrder),
    /// The result of an order.
    Done {
        /// The thread that has carried it out.
        thread: usize,
        /// The errors, each with the index of its element.
        errors: Vec<(usize, GraphError)>,
    },
}

/// An order to a thread of a graph.
#[derive(Clone, Debug)]
pub enum ThreadOrder {
    /// Prepares the thread's elements among these.
    Initialize(Range<usize>),
    /// Runs until the graph stops, or pauses.
    Run,
    /// Makes the thread's part of another graph, which takes the place of the present one until
    /// [`ThreadOrder::Continue`] or [`ThreadOrder::Abandon`].
    Replace {
        /// The configuration of the other graph.
        configuration: Box<FlatConfiguration>,
        /// The facts that its threads share.
        graph: Arc<ThreadedGraph>,
    },
    /// Goes on with the other graph: its elements take over the state of the earlier ones.
    Continue,
    /// Goes back to the earlier graph.
    Abandon,
    /// Completes the results of the thread's elements among these.
    Finish(Range<usize>),
    /// Ends the thread.
    End,
}

/// The reason for which a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadWait {
    /// It needs an answer, or an order.
    Message,
    /// It has nothing to do until this much time has passed.
    Time(Nanos),
    /// It has nothing to do. When this is so for all threads, the graph stops.
    Work,
}

/// The way of a thread to the others. Threads are numbered from 0; the thread that started the graph has the next number.
pub trait ThreadLink {
    /// Sends a message. To a thread that has ended early, calls get an answer that says so.
    fn send(&self, to: usize, message: ThreadMessage);

    /// Returns the next message for this thread, if there is one.
    fn receive(&self) -> Option<ThreadMessage>;

    /// Waits for the next message. Returns `None` when the time has passed, and, unless it waits for a message, when the
    /// graph stops or pauses.
    fn wait(&self, reason: ThreadWait) -> Option<ThreadMessage>;

    /// Returns true if the graph stops.
    fn is_stopped(&self) -> bool;

    /// Returns true if the graph pauses: threads go on with the next order to run.
    fn is_paused(&self) -> bool;

    /// Stops the graph: each thread, when its present task has ended.
    fn stop(&self);

    /// States the signals of the system for which elements of this thread wait. As long as there are some, the graph has
    /// something to wait for.
    fn wait_for_signals(&self, signals: &BTreeSet<i32>);
}

/// The threads that wait for other threads' elements to become free.
///
/// An element that runs cannot answer. A call of one of its handlers waits until it has ended, while its own calls may
/// wait for other elements. Threads in a circle would wait for ever, so the call that would close it fails.
#[derive(Debug, Default)]
pub struct WaitGraph {
    /// Pairs of a thread that waits, and the thread that it waits for.
    waits: Mutex<Vec<(usize, usize)>>,
}

impl WaitGraph {
    /// Adds that a thread waits for another one. Returns false, and adds nothing, if that would close a circle.
    pub fn add(&self, waiting: usize, on: usize) -> bool {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        let mut open = vec![on];
        let mut seen = open.clone();
        while let Some(thread) = open.pop() {
            if thread == waiting {
                return false;
            }
            for (_, next) in waits.iter().filter(|(from, _)| *from == thread) {
                if !seen.contains(next) {
                    seen.push(*next);
                    open.push(*next);
                }
            }
        }
        waits.push((waiting, on));
        true
    }

    /// Removes that a thread waits for another one, once.
    pub fn remove(&self, waiting: usize, on: usize) {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = waits.iter().position(|it| *it == (waiting, on)) {
            waits.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_that_closes_a_circle_is_refused() {
        let waits = WaitGraph::default();
        assert!(waits.add(0, 1) && waits.add(1, 2) && waits.add(3, 1));
        assert!(!waits.add(2, 0) && !waits.add(1, 0) && !waits.add(4, 4));
        waits.remove(0, 1);
        assert!(waits.add(2, 0));
        assert!(!waits.add(0, 3));
    }
}
