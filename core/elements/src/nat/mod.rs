//! Elements that translate addresses and ports (NAT).

mod flow_id;
mod form;
mod ftp_command;
mod ftp_port_mapper;
mod icmp_ping_rewriter;
mod icmp_rewriter;
mod input;
mod ip_addr_pair_rewriter;
mod ip_addr_rewriter;
mod ip_rewriter;
mod manual;
mod mapping;
mod mapping_table;
mod pattern;
mod patterns;
mod rewriter;
mod round_robin_ip_mapper;
mod stream_edits;
mod tcp_rewriter;
mod udp_rewriter;

use weir_graph::engine::ElementClass;

/// The classes of this folder.
pub const CLASSES: &[&ElementClass] = &[
    &ip_rewriter::CLASS,
    &tcp_rewriter::CLASS,
    &udp_rewriter::CLASS,
    &ip_addr_rewriter::CLASS,
    &ip_addr_pair_rewriter::CLASS,
    &icmp_rewriter::CLASS,
    &icmp_ping_rewriter::CLASS,
    &patterns::CLASS,
    &round_robin_ip_mapper::CLASS,
    &ftp_port_mapper::CLASS,
];
