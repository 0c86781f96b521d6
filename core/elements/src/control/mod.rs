//! Elements that control a graph, or state facts about it.

mod script;

use weir_graph::engine::ElementClass;

/// The classes of this folder.
pub const CLASSES: &[&ElementClass] = &[&script::SCRIPT, &script::DRIVER_MANAGER];
