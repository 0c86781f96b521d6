//! Elements that send ICMP messages.

mod error;
mod icmp6_error;
mod icmp_ip_encap;
mod names;
mod ping_responder;
mod ping_source;

use weir_graph::engine::ElementClass;

/// The classes of this folder.
pub const CLASSES: &[&ElementClass] =
    &[&error::CLASS, &icmp6_error::CLASS, &icmp_ip_encap::CLASS, &ping_responder::CLASS, &ping_source::CLASS];
