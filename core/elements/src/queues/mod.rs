//! Queues, and elements that pull from them.

mod between_threads;
mod queue;
mod rate;
mod rated_unqueue;
mod schedulers;
mod shaper;
mod unqueue;

pub use rate::{EvenRate, TokenBucket};
use weir_graph::engine::ElementClass;

/// The classes of this folder.
pub const CLASSES: &[&ElementClass] = &[
    &queue::QUEUE,
    &queue::SIMPLE_QUEUE,
    &queue::NOTIFIER_QUEUE,
    &queue::FULL_NOTE_QUEUE,
    &queue::THREAD_SAFE_QUEUE,
    &queue::MIXED_QUEUE,
    &queue::FRONT_DROP_QUEUE,
    &unqueue::CLASS,
    &schedulers::ROUND_ROBIN,
    &schedulers::PRIO,
    &shaper::CLASS,
    &rated_unqueue::RATED,
    &rated_unqueue::BANDWIDTH_RATED,
];
