//! Elements that add Ethernet headers, and find Ethernet addresses by ARP and neighbour discovery.

mod arp;
mod arp_print;
mod arp_querier;
mod arp_responder;
mod arp_table;
mod drop_broadcasts;
mod encap;
mod ensure_ether;
mod ether_mirror;
mod ether_switch;
mod ether_vlan_encap;
mod host_ether_filter;
mod ip6_nd_advertiser;
mod ip6_nd_solicitor;
mod nd_message;
mod neighbor_cache;
mod store_ether_address;
mod strip_ether_vlan_header;
mod vlan;
mod vlan_decap;
mod vlan_encap;

use weir_graph::engine::ElementClass;

pub use encap::encapsulate;

/// The classes of this folder.
pub const CLASSES: &[&ElementClass] = &[
    &encap::CLASS,
    &arp_querier::CLASS,
    &arp_responder::CLASS,
    &arp_table::CLASS,
    &arp_print::CLASS,
    &drop_broadcasts::CLASS,
    &ensure_ether::CLASS,
    &ether_mirror::CLASS,
    &ether_switch::CLASS,
    &ether_vlan_encap::CLASS,
    &host_ether_filter::CLASS,
    &ip6_nd_advertiser::CLASS,
    &ip6_nd_solicitor::CLASS,
    &store_ether_address::CLASS,
    &strip_ether_vlan_header::CLASS,
    &vlan_decap::CLASS,
    &vlan_encap::CLASS,
];

/// The bytes of an Ethernet header.
pub const ETHERNET_BYTES: usize = 14;
