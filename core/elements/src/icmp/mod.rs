//! Elements that send ICMP messages.

mod error;
mod names;

use weir_graph::engine::ElementClass;

/// The classes of this folder.
pub const CLASSES: &[&ElementClass] = &[&error::CLASS];
