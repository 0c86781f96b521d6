//! Elements that add, remove and check bytes.

mod strip;

use weir_graph::engine::ElementClass;

/// The classes of this folder.
pub const CLASSES: &[&ElementClass] = &[&strip::STRIP, &strip::UNSTRIP];
