//! Elements that read and write the header of IPv6.

mod check_ip6_header;
mod dec_ip6_hlim;
mod get_ip6_address;
mod ip6_print;

use weir_graph::engine::ElementClass;

/// The classes of this folder.
pub const CLASSES: &[&ElementClass] =
    &[&check_ip6_header::CLASS, &dec_ip6_hlim::CLASS, &get_ip6_address::CLASS, &ip6_print::CLASS];
