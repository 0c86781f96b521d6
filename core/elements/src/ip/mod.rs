//! Elements that read and write the headers of IPv4, ICMP, TCP and UDP.

pub mod bad_packets;
mod check_icmp_header;
mod check_ip_header;
mod check_tcp_header;
mod check_udp_header;
mod dec_ip_ttl;
pub mod encapsulation;
mod fix_ip_src;
mod get_ip_address;
mod ip_encap;
mod ip_gw_options;
mod ip_input_combo;
mod ip_mirror;
mod ip_output_combo;
mod ip_print;
mod mark_ip_ce;
mod mark_ip_header;
mod options;
mod print_line;
mod set_ip_address;
mod set_ip_checksum;
mod set_ip_dscp;
mod set_rand_ip_address;
mod set_tcp_checksum;
mod set_udp_checksum;
mod store_ip_address;
mod strip_ip_header;
mod transport_check;
mod udp_ip_encap;
mod unstrip_ip_header;
mod web_gen;

use weir_graph::engine::ElementClass;

/// The classes of this folder.
pub const CLASSES: &[&ElementClass] = &[
    &check_icmp_header::CLASS,
    &check_ip_header::CLASS,
    &check_tcp_header::CLASS,
    &check_udp_header::CLASS,
    &dec_ip_ttl::CLASS,
    &fix_ip_src::CLASS,
    &get_ip_address::CLASS,
    &ip_encap::CLASS,
    &ip_gw_options::CLASS,
    &ip_input_combo::CLASS,
    &ip_mirror::CLASS,
    &ip_output_combo::CLASS,
    &ip_print::CLASS,
    &mark_ip_ce::CLASS,
    &mark_ip_header::CLASS,
    &set_ip_address::CLASS,
    &set_ip_checksum::CLASS,
    &set_ip_dscp::CLASS,
    &set_rand_ip_address::CLASS,
    &set_tcp_checksum::CLASS,
    &set_udp_checksum::CLASS,
    &store_ip_address::CLASS,
    &strip_ip_header::CLASS,
    &udp_ip_encap::CLASS,
    &unstrip_ip_header::CLASS,
    &web_gen::CLASS,
];
