//! Elements that count and show packets.

mod average_counter;
mod counter;
mod print;
mod rate_average;

use weir_graph::engine::ElementClass;

/// The classes of this folder.
pub const CLASSES: &[&ElementClass] = &[&counter::CLASS, &average_counter::CLASS, &print::CLASS];
