//! Elements that copy packets, or choose an output without a look at their bytes.

mod null;
mod paint;
mod switch;
mod tee;

use weir_graph::engine::ElementClass;

/// The classes of this folder.
pub const CLASSES: &[&ElementClass] = &[
    &null::NULL,
    &null::PUSH_NULL,
    &null::PULL_NULL,
    &paint::CLASS,
    &switch::CLASS,
    &tee::TEE,
    &tee::PULL_TEE,
];
