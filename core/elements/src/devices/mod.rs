//! Devices: interfaces of the host, and devices of the host's network that the graph makes.

mod from_device;
mod from_host;
mod host_sender;
mod kernel_tun;
pub mod losses;
mod receiver;
mod to_device;
mod to_host;

use weir_graph::arguments::{ElementArguments, WordArgument};
use weir_graph::engine::{ElementClass, ElementContext, GraphPacket, HostDeviceKind, ReceivedPacket};

/// The classes of this folder.
pub const CLASSES: &[&ElementClass] = &[
    &from_device::CLASS,
    &from_device::POLL_DEVICE,
    &to_device::CLASS,
    &kernel_tun::TUN,
    &kernel_tun::TAP,
    &from_host::CLASS,
    &to_host::CLASS,
    &to_host::SNIFFERS,
];

/// The link types of captures in which packets begin with the IP header.
pub const RAW_IP: u32 = 101;

/// Returns the name of a device's link type, as the handler `encap` shows it.
fn link_name(link_type: u32) -> &'static str {
    if link_type == RAW_IP { "IP" } else { "ETHER" }
}

/// Returns the rights that packet sockets need.
fn sending_rights() -> String {
    "root or CAP_NET_RAW".to_owned()
}

/// Returns the rights that devices of the host's network need.
fn host_device_rights() -> String {
    "root or CAP_NET_ADMIN".to_owned()
}

/// Returns the packet that a device of the host's network has received.
fn received(received: &ReceivedPacket<'_>, headroom: usize, cx: &mut ElementContext<'_>) -> GraphPacket {
    let mut packet = cx.services.pool.of_length(received.bytes.len(), headroom);
    packet.bytes_mut().copy_from_slice(received.bytes);
    packet.set_time(received.time);
    packet
}

/// Marks the headers of a packet of the host. Returns false for a packet of a TUN device that is not IP.
fn is_ip_or_ethernet(packet: &mut GraphPacket, kind: HostDeviceKind) -> bool {
    match kind {
        HostDeviceKind::Ethernet => {
            packet.set_link_header(0);
            crate::headers::find_ip(packet, receiver::ETHERNET);
            true
        }
        HostDeviceKind::Ip => crate::headers::find_ip(packet, RAW_IP),
    }
}

/// Reads the argument TYPE: Ethernet frames, or packets that begin with the IP header.
fn read_type(args: &mut ElementArguments<'_, '_>) -> HostDeviceKind {
    let name: Option<WordArgument> = args.keyword("TYPE").optional();
    match name.as_ref().map_or("ETHER", |name| &name.0) {
        "ETHER" => HostDeviceKind::Ethernet,
        "IP" => HostDeviceKind::Ip,
        _ => {
            args.error("TYPE", "expected ETHER or IP");
            HostDeviceKind::Ethernet
        }
    }
}
