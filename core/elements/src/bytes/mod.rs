//! Elements that add, remove and check bytes.

mod align;
mod clipboard;
mod length;
mod resize;
mod strip;
mod strip_to_network;

use weir_graph::engine::ElementClass;

/// The classes of this folder.
pub const CLASSES: &[&ElementClass] = &[
    &strip::STRIP,
    &strip::UNSTRIP,
    &strip_to_network::CLASS,
    &length::TRUNCATE,
    &length::PAD,
    &length::CHECK,
    &align::CLASS,
    &resize::CLASS,
    &clipboard::CLASS,
];
