//! Elements that read and write the header of IPv6, and translate packets.

mod address_translator;
mod check_ip6_header;
mod dec_ip6_hlim;
mod get_ip6_address;
mod ip6_print;
mod protocol_translator;
mod translated_icmp;

use weir_graph::engine::ElementClass;

/// The classes of this folder.
pub const CLASSES: &[&ElementClass] = &[
    &check_ip6_header::CLASS,
    &dec_ip6_hlim::CLASS,
    &get_ip6_address::CLASS,
    &ip6_print::CLASS,
    &address_translator::CLASS,
    &protocol_translator::TO_IPV4,
    &protocol_translator::TO_IPV6,
];
