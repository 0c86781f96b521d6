//! Decides whether bytes are a packet, where no header says so (behind MPLS labels), or only a UDP port does (in tunnels
//! over UDP).
//!
//! Behind MPLS labels and inside GTP-U, only the first four bits indicate whether IP follows (RFC 4928). But the bytes
//! can also be an Ethernet frame, whose first field, a hardware address, can begin with the same bits: in Ethernet over
//! MPLS without a control word (RFC 4448, RFC 4385), and in a 5G session that carries frames. If a view took such a
//! frame for IP, it would show data that it has to hide: the frame's hardware addresses, and the addresses, checksums
//! and payload of the packet in the frame. So the bytes are parsed only if they are an IP packet with consistent
//! lengths and, for IPv4, a right header checksum, and cannot also be read as a frame.

use crate::checksum::{add_bytes, fold_sum};
use crate::classify::{FirstHeader, MoreHeader, be16, walk_inside};
use crate::link::{ARP, ARP_OF_ETHERNET_AND_IPV4, IPV4, IPV6, MPLS, MPLS_UPSTREAM};
use crate::meta::LinkType;
use crate::tunnel::Captured;
use weir_abi::{Descriptor, flag};

const IPV6_HEADER: usize = 40;
/// The length to which Ethernet pads shorter data of a frame (IEEE 802.3, 3.2.8), in bytes. Padding is accepted behind IPv4
/// packets only. An IPv6 packet with a UDP, TCP or ICMPv6 header has at least 48 bytes, so it is not padded; a shorter
/// IPv6 packet is recognised only without padding.
const PADDED_MAX: usize = 46;

/// EtherTypes, other than IP's, of protocols that frames carry. If bytes contain one of these numbers at the place of
/// an EtherType, they are taken for a frame.
const NOT_IP: [u16; 20] = [
    ARP,
    0x8035, // RARP
    0x8100, // a VLAN tag that was not captured completely; behind a complete tag, the EtherType in the tag is judged
    0x8137, // IPX
    MPLS,
    MPLS_UPSTREAM,
    0x8863, // PPPoE, discovery
    0x8864, // PPPoE
    0x888e, // EAPOL
    0x8892, // PROFINET
    0x88a2, // ATA over Ethernet
    0x88a4, // EtherCAT
    0x88a8, // a service VLAN tag that was not captured completely
    0x88cc, // LLDP
    0x88e5, // MACsec
    0x88e7, // provider backbone bridges
    0x88f7, // PTP
    0x8902, // connectivity fault management
    0x8906, // Fibre Channel
    0x8915, // RDMA
];

/// Returns true if the bytes from `at` to `end` are an IP packet and cannot be read as an Ethernet frame. The packet
/// must have exactly its stated length, except for the padding of short Ethernet frames. Returns false if the IP header was
/// not captured.
///
/// # Errors
/// [`MoreHeader`] if bytes that decide this were captured, but are not available yet.
pub(crate) fn is_only_ip(captured: Captured<'_>, at: usize, end: usize) -> Result<bool, MoreHeader> {
    let available = end.saturating_sub(at);
    let is_v4 = captured.read(at)?.is_some_and(|[first]: &[u8; 1]| first >> 4 == 4);
    let has_stated_len =
        len_of_ip(captured, at, end)?.is_some_and(|len| len == available || is_v4 && available <= PADDED_MAX);
    Ok(has_stated_len && !is_frame(captured, at, end)?)
}

/// Returns true if the bytes from `at` to `end` are a packet that begins with a header of `kind` and contains IP, or ARP for
/// Ethernet and IPv4. If `kind` is a link type, the packet is a frame, and the stated length of IP in it must fit. If
/// `kind` is an EtherType, which the tunnel header has stated, IP must pass [`is_only_ip`].
///
/// # Errors
/// As for [`is_only_ip`].
pub(crate) fn is_packet(
    captured: Captured<'_>,
    at: usize,
    end: usize,
    kind: FirstHeader,
) -> Result<bool, MoreHeader> {
    let descriptor = descriptor_of(captured, at, end, kind)?;
    if descriptor.flags & (flag::IPV4 | flag::IPV6) == 0 {
        // The offset of ARP is known only behind an Ethernet header without tags.
        return Ok(descriptor.ether_type == ARP && captured.read(at + 14)? == Some(&ARP_OF_ETHERNET_AND_IPV4));
    }
    let ip = at + usize::from(descriptor.l3_offset);
    match kind {
        FirstHeader::Type(_) => is_only_ip(captured, ip, end),
        // The EtherType in the frame confirms IP, and the frame may be padded.
        FirstHeader::Link(_) => Ok(len_of_ip(captured, ip, end)?.is_some()),
    }
}

/// Returns true if the bytes can be read as an Ethernet frame, judged by its EtherType, and for IP also by the header
/// behind the EtherType, as far as that header was captured.
fn is_frame(captured: Captured<'_>, at: usize, end: usize) -> Result<bool, MoreHeader> {
    const IP: u32 = flag::IPV4 | flag::IPV6;
    let Descriptor { flags, ether_type, .. } =
        descriptor_of(captured, at, end, FirstHeader::Link(LinkType::Ethernet))?;
    // MALFORMED without an IP flag: the bytes behind the EtherType are no IP header.
    let has_no_ip_header = flags & (IP | flag::MALFORMED) == flag::MALFORMED;
    Ok(matches!(ether_type, IPV4 | IPV6) && !has_no_ip_header
        || NOT_IP.contains(&ether_type)
        || flags & (flag::MPLS | flag::PPPOE) != 0)
}

/// The stated length of the IP packet at `at`. `None` if there is no IP header, if the packet would end after `end`,
/// if the header states no length, if an IPv4 header has a wrong checksum, or if the header was not captured.
///
/// # Errors
/// As for [`is_only_ip`].
fn len_of_ip(captured: Captured<'_>, at: usize, end: usize) -> Result<Option<usize>, MoreHeader> {
    let Some(start) = captured.read::<6>(at)? else { return Ok(None) };
    let len = match start[0] >> 4 {
        4 => {
            let header = usize::from(start[0] & 15) * 4;
            let len = usize::from(be16(start, 2));
            let Some(bytes) = captured.get(at, at + header)? else { return Ok(None) };
            let is_checksum_right = fold_sum(add_bytes(0, bytes)) == u16::MAX;
            Some(len).filter(|len| header >= 20 && *len >= header && is_checksum_right)
        }
        6 => Some(usize::from(be16(start, 4))).filter(|len| *len > 0).map(|len| len + IPV6_HEADER),
        _ => None,
    };
    Ok(len.filter(|len| *len <= end.saturating_sub(at)))
}

/// The descriptor of the packet from `at` to `end`, whose first header is of `kind`.
fn descriptor_of(
    captured: Captured<'_>,
    at: usize,
    end: usize,
    kind: FirstHeader,
) -> Result<Descriptor, MoreHeader> {
    let mut descriptor = Descriptor::default();
    walk_inside(captured.part(at, end), kind, &mut descriptor, &mut ())?;
    Ok(descriptor)
}
