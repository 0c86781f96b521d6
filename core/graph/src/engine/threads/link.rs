//! Messages between the threads of a graph, and the way on which they go.

use crate::engine::router::GraphError;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use weir_units::Nanos;

/// The side of a queue between two threads that has to be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueSide {
    /// The side that removes packets: there are some.
    Packets,
    /// The side that adds packets: there is room.
    Room,
}

/// A call of a handler of an element on another thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadCall {
    /// The thread that calls, and waits for the answer.
    pub from: usize,
    /// The number of the call among those of its thread.
    pub id: u64,
    /// The handler with its argument, as `ELEMENT.HANDLER ARGUMENT`.
    pub call: String,
    /// The handler is written.
    pub is_write: bool,
}

/// A message to a thread of a graph.
#[derive(Clone, Debug)]
pub enum ThreadMessage {
    /// A side of a queue has to be woken.
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
        result: Result<String, String>,
    },
    /// An order of the thread that started the graph.
    Order(ThreadOrder),
    /// The result of an order.
    Done(Vec<(usize, GraphError)>),
}

/// An order to a thread of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThreadOrder {
    /// Prepares the thread's elements among these.
    Initialize(Range<usize>),
    /// Runs until the graph stops.
    Run,
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
    /// graph stops.
    fn wait(&self, reason: ThreadWait) -> Option<ThreadMessage>;

    /// Returns true if the graph stops.
    fn is_stopped(&self) -> bool;

    /// Stops the graph: each thread, when its present task has ended.
    fn stop(&self);
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
