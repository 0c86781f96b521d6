//! Elements that control a graph, or state facts about it.

mod control_socket;
mod info;
mod message;
mod sched_order_test;
mod script;

pub use script::general;
use weir_graph::engine::ElementClass;

/// The classes of this folder.
pub const CLASSES: &[&ElementClass] = &[
    &script::SCRIPT,
    &script::DRIVER_MANAGER,
    &message::MESSAGE,
    &message::ERROR,
    &message::RANDOM_SEED,
    &info::ADDRESSES,
    &info::PORTS,
    &info::SCHEDULE,
    &info::ALIGNMENT,
    &info::THREADS,
    &info::BALANCED,
    &sched_order_test::CLASS,
    &info::CLICKY,
    &control_socket::CLASS,
];
