//! Devices: interfaces of the host.

mod from_device;
mod to_device;

use weir_graph::engine::ElementClass;

/// The classes of this folder.
pub const CLASSES: &[&ElementClass] = &[&from_device::CLASS, &to_device::CLASS];

/// The link types of captures in which packets begin with the IP header.
const RAW_IP: u32 = 101;

/// Returns the name of a device's link type, as the handler `encap` shows it.
fn link_name(link_type: u32) -> &'static str {
    if link_type == RAW_IP { "IP" } else { "ETHER" }
}
