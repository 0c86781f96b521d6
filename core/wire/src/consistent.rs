//! Bytes that count as a packet where nothing says that they are one, or only a port does.
//!
//! Behind MPLS labels the first four bits say whether IP follows (RFC 4928), and in GTP-U likewise. But the hardware address that a frame begins with
//! can begin with the same four: that of Ethernet over MPLS without a control word (RFC 4448, RFC 4385), or of a session of 5G with frames in it.
//! Taken for IP, such a frame would show what is at the place of IP's fields: hardware addresses, and addresses, checksums and payload of the packet inside.
//! So what is behind these four bits has to be exactly an IP packet, and must not read as a frame as well: else it is not understood.

use crate::checksum::{add, fold};
use crate::classify::{MoreHeader, NetworkKind, be16, walk_inside};
use crate::link::{ARP, ARP_OF_ETHERNET_AND_IPV4, IPV4, IPV6, MPLS, MPLS_UPSTREAM};
use crate::meta::LinkType;
use crate::tunnel::Captured;
use weir_abi::{Descriptor, flag};

const IPV6_HEADER: usize = 40;
/// So many bytes Ethernet's shortest frame has behind its header (IEEE 802.3, 3.2.8): where there are less, it is padded. An IPv6 header with
/// anything above it is longer.
const PADDED: usize = 46;

/// What a frame can carry besides IP, so that a hardware address in front of it is one.
const NOT_IP: [u16; 20] = [
    ARP,
    0x8035, // RARP
    0x8100, // a VLAN tag, if it was not captured as a whole
    0x8137, // IPX
    MPLS,
    MPLS_UPSTREAM,
    0x8863, // PPPoE, discovery
    0x8864, // PPPoE
    0x888e, // EAPOL
    0x8892, // PROFINET
    0x88a2, // ATA over Ethernet
    0x88a4, // EtherCAT
    0x88a8, // a VLAN tag, likewise
    0x88cc, // LLDP
    0x88e5, // MACsec
    0x88e7, // provider backbone bridges
    0x88f7, // PTP
    0x8902, // connectivity fault management
    0x8906, // Fibre Channel
    0x8915, // RDMA
];

/// True if the bytes from `at` to `end`, of which only the first four bits say so, are an IP packet and nothing else. It is as long as it says, but for
/// the padding of Ethernet's shortest frames.
pub(crate) fn is_only_ip(captured: Captured<'_>, at: usize, end: usize) -> Result<bool, MoreHeader> {
    let room = end.saturating_sub(at);
    let is_v4 = captured.read(at)?.is_some_and(|[first]: &[u8; 1]| first >> 4 == 4);
    let is_exact = len_of_ip(captured, at, end)?.is_some_and(|len| len == room || is_v4 && room <= PADDED);
    Ok(is_exact && !is_frame(captured, at, end)?)
}

/// True if there is a consistent packet from `at` to `end` at the most.
pub(crate) fn is_packet(
    captured: Captured<'_>,
    at: usize,
    end: usize,
    kind: NetworkKind,
) -> Result<bool, MoreHeader> {
    let now = described(captured, at, end, kind)?;
    if now.flags & (flag::IPV4 | flag::IPV6) == 0 {
        // Only below an Ethernet header without tags is it known where ARP begins.
        return Ok(now.ether_type == ARP && captured.read(at + 14)? == Some(&ARP_OF_ETHERNET_AND_IPV4));
    }
    let ip = at + usize::from(now.l3_offset);
    match kind {
        NetworkKind::Type(_) => is_only_ip(captured, ip, end),
        // Its EtherType names it too, and it may be padded.
        NetworkKind::Link(_) => Ok(len_of_ip(captured, ip, end)?.is_some()),
    }
}

/// True if the bytes can be read as a frame of Ethernet, by what it would carry. What was not captured of that speaks for it.
fn is_frame(captured: Captured<'_>, at: usize, end: usize) -> Result<bool, MoreHeader> {
    const IP: u32 = flag::IPV4 | flag::IPV6;
    let Descriptor { flags, ether_type, .. } =
        described(captured, at, end, NetworkKind::Link(LinkType::Ethernet))?;
    let is_no_ip = flags & (IP | flag::MALFORMED) == flag::MALFORMED;
    Ok(matches!(ether_type, IPV4 | IPV6) && !is_no_ip
        || NOT_IP.contains(&ether_type)
        || flags & (flag::MPLS | flag::PPPOE) != 0)
}

/// The length of the IP packet at `at`, which goes to `end` at the most. Nothing if it contradicts that, or does not say it; nor if an IPv4 header's
/// checksum is wrong.
fn len_of_ip(captured: Captured<'_>, at: usize, end: usize) -> Result<Option<usize>, MoreHeader> {
    let Some(start) = captured.read::<6>(at)? else { return Ok(None) };
    let len = match start[0] >> 4 {
        4 => {
            let header = usize::from(start[0] & 15) * 4;
            let len = usize::from(be16(start, 2));
            let Some(bytes) = captured.get(at, at + header)? else { return Ok(None) };
            let is_right = fold(add(0, bytes)) == u16::MAX;
            Some(len).filter(|len| header >= 20 && *len >= header && is_right)
        }
        6 => Some(usize::from(be16(start, 4))).filter(|len| *len > 0).map(|len| len + IPV6_HEADER),
        _ => None,
    };
    Ok(len.filter(|len| *len <= end.saturating_sub(at)))
}

/// The parser's description of the bytes from `at` to `end`.
fn described(
    captured: Captured<'_>,
    at: usize,
    end: usize,
    kind: NetworkKind,
) -> Result<Descriptor, MoreHeader> {
    let mut now = Descriptor::default();
    walk_inside(captured.part(at, end), kind, &mut now, &mut ())?;
    Ok(now)
}
