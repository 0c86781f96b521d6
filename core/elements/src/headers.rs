//! Headers of packets, for elements that need more than one field of them.

use weir_graph::engine::{DST_IP, GraphPacket};

/// The link types of captures whose packets begin with the IP header.
const RAW_IP: [u32; 4] = [12, 14, 101, 228];

/// Finds the IPv4 or IPv6 packet in a packet, and sets its network header, and the destination annotation of an IPv4
/// packet. Returns false, and changes nothing, if there is none.
///
/// `link_type` is that of a capture. The IP packet can be behind VLAN tags.
pub fn find_ip(packet: &mut GraphPacket, link_type: u32) -> bool {
    let bytes = packet.bytes();
    let offset = match link_type {
        // Ethernet.
        1 => ethernet_payload(bytes),
        // BSD loopback: an address family of four bytes.
        0 | 108 => Some(4),
        // Linux cooked capture, versions 1 and 2.
        113 => Some(16),
        276 => Some(20),
        raw if RAW_IP.contains(&raw) => Some(0),
        _ => None,
    };
    let Some(offset) = offset else { return false };
    let header_bytes = match bytes.get(offset) {
        Some(first) if first >> 4 == 4 => usize::from(first & 0xf) * 4,
        Some(first) if first >> 4 == 6 => 40,
        _ => return false,
    };
    packet.set_link_header(0);
    packet.set_network_header(offset, header_bytes);
    if let Some([0x40..=0x4f, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, destination @ ..]) =
        packet.network_bytes()
        && let Some(destination) = destination.first_chunk::<4>().copied()
    {
        packet.annotation_mut(DST_IP).copy_from_slice(&destination);
    }
    true
}

/// Returns the offset of the payload of an Ethernet frame with IP in it, behind VLAN tags.
pub fn ethernet_payload(bytes: &[u8]) -> Option<usize> {
    let mut at = 12;
    loop {
        match u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]) {
            0x8100 | 0x88a8 | 0x9100 => at += 4,
            0x0800 | 0x86dd => return Some(at + 2),
            _ => return None,
        }
    }
}
