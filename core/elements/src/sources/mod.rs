//! Sources and sinks of packets.

mod content;
mod discard;
mod fast_udp_source;
mod from_dump;
mod idle;
mod infinite_source;
mod link_type;
mod random_source;
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
    &random_source::CLASS,
    &rated_source::CLASS,
    &fast_udp_source::CLASS,
    &timed::SOURCE,
    &timed::SINK,
    &from_dump::CLASS,
    &to_dump::CLASS,
    &summary::FROM,
    &summary::TO,
];
