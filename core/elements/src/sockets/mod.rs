//! Sockets: packets over TCP, UDP, Unix-domain sockets, multicast and raw IP.

mod endpoint;
mod mcast_socket;
mod raw_socket;
mod socket;

use weir_graph::engine::ElementClass;

/// The classes of this folder.
pub const CLASSES: &[&ElementClass] = &[&socket::CLASS, &mcast_socket::CLASS, &raw_socket::CLASS];
