//! Elements that look up routes. They share the table of routes ([`table`]) and the element ([`lookup`]), and differ in
//! the structure in which a packet's destination is looked up.

mod direct;
mod linear;
mod lookup;
mod radix;
mod range;
mod route;
mod table;

use weir_graph::engine::ElementClass;

/// The classes of this folder.
pub const CLASSES: &[&ElementClass] =
    &[&linear::STATIC, &linear::LINEAR, &radix::CLASS, &direct::CLASS, &range::CLASS];

#[cfg(test)]
mod tests;
