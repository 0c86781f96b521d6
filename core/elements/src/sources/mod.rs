//! Sources and sinks of packets.

mod content;
mod discard;
mod from_dump;
mod idle;
mod infinite_source;
mod link_type;
mod rated_source;
mod replay;
mod summary;
mod timed;
mod to_dump;

use weir_graph::engine::ElementClass;

/// The classes of this folder.
pub const CLASSES: &[&ElementClass] = &[
    &idle::CLASS,
    &discard::CLASS,
    &infinite_source::CLASS,
    &rated_source::CLASS,
    &timed::SOURCE,
    &timed::SINK,
    &from_dump::CLASS,
    &to_dump::CLASS,
    &summary::FROM,
    &summary::TO,
];
