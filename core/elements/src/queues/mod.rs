//! Queues, and elements that pull from them.

mod between_threads;
mod pull_switch;
mod queue;
mod rate;
mod rated_bucket;
mod rated_unqueue;
mod schedulers;
mod shaper;
mod stride;
mod stride_sched;
mod time_sorted_sched;
mod unqueue;

pub use rate::{EvenRate, TokenBucket};
pub use rated_bucket::{RatedBucket, RatedQuantity};
pub use stride::StrideOrder;
pub(crate) use stride::stride_handlers;
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
    &stride_sched::CLASS,
    &time_sorted_sched::CLASS,
    &pull_switch::SWITCH,
    &pull_switch::SIMPLE,
    &shaper::SHAPER,
    &shaper::BANDWIDTH,
    &rated_unqueue::RATED,
    &rated_unqueue::BANDWIDTH_RATED,
];
