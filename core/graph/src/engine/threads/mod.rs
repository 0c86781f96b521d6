//! Graphs on several threads.
//!
//! [`ThreadPlacement`] cuts a graph at its queues, and gives each component a thread. A [`ThreadQueue`] has the packets of
//! a queue between two threads. Each thread has a part of the graph: a [`Router`](super::Router) with the elements of the
//! thread. This crate starts no thread: a [`ThreadLink`] is the way between threads, and who starts them implements it.

mod link;
mod part;
mod placement;
mod queue;
mod replace;

pub use link::{QueueSide, ThreadCall, ThreadLink, ThreadMessage, ThreadOrder, ThreadWait, WaitGraph};
pub use part::{ThreadPart, ThreadedGraph};
pub(super) use part::{ThreadState, call_elsewhere};
pub use placement::{ForcedTogether, QueueThreads, THREADS_MAX, ThreadPlacement};
pub use queue::{QueueCounts, QueueDiscipline, ThreadQueue};
pub use replace::RunningPlacement;
