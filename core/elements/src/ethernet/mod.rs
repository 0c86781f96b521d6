//! Elements that add Ethernet headers and speak ARP.

mod arp;
mod arp_print;
mod arp_querier;
mod arp_responder;
mod arp_table;
mod drop_broadcasts;
mod encap;
mod neighbor_cache;

use weir_graph::engine::ElementClass;

/// The classes of this folder.
pub const CLASSES: &[&ElementClass] = &[
    &encap::CLASS,
    &arp_querier::CLASS,
    &arp_responder::CLASS,
    &arp_table::CLASS,
    &arp_print::CLASS,
    &drop_broadcasts::CLASS,
];

/// The bytes of an Ethernet header.
const ETHERNET_BYTES: usize = 14;
