//! Elements that divide IPv4 packets into fragments, and join them.

mod datagram;
mod fragmenter;
mod reassembler;

use weir_graph::engine::ElementClass;

/// The classes of this folder.
pub const CLASSES: &[&ElementClass] = &[&fragmenter::CLASS, &reassembler::CLASS];
