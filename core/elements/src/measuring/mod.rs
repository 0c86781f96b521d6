//! Elements that count and show packets.

mod counter;
mod print;

use weir_graph::engine::ElementClass;

/// The classes of this folder.
pub const CLASSES: &[&ElementClass] = &[&counter::CLASS, &print::CLASS];
