//! Elements that look up routes. They share the table of routes ([`table`]) and the element ([`lookup`]), and differ in
//! the structure in which a packet's destination is looked up.

mod direct;
mod ipv6;
mod linear;
mod lookup;
mod lookup_ip6_route;
mod radix;
mod range;
mod route;
mod table;

use weir_graph::engine::ElementClass;

pub use ipv6::{Ipv6PrefixTable, Ipv6Row, show_prefix};

/// The classes of this folder.
pub const CLASSES: &[&ElementClass] = &[
    &linear::STATIC,
    &linear::LINEAR,
    &radix::CLASS,
    &direct::CLASS,
    &range::CLASS,
    &lookup_ip6_route::CLASS,
];

#[cfg(test)]
mod tests;
