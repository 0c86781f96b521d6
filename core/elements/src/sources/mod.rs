//! Sources and sinks of packets.

mod discard;
mod from_dump;
mod idle;
mod infinite_source;
mod to_dump;

use weir_graph::engine::ElementClass;

/// The classes of this folder.
pub const CLASSES: &[&ElementClass] =
    &[&idle::CLASS, &discard::CLASS, &infinite_source::CLASS, &from_dump::CLASS, &to_dump::CLASS];
