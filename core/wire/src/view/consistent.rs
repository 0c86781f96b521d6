//! What counts as a packet where nothing says that it is one, or only a port does.
//!
//! Behind MPLS labels the first four bits say whether IP follows (RFC 4928), and in GTP-U likewise. But the hardware address that a frame begins with
//! can begin with the same four: that of Ethernet over MPLS without a control word (RFC 4448, RFC 4385), or of a session of 5G with frames in it.
//! Taken for IP, such a frame would show what is at the place of IP's fields: hardware addresses, and addresses, checksums and payload of the packet inside.
//! So what is behind these four bits has to be exactly an IP packet, and must not read as a frame as well: else it is not understood.

use super::network::ARP_OF_ETHERNET_AND_IPV4;
use super::scene::{Kind, Scene};
use crate::checksum::{add, fold};
use crate::classify::{be16, classify, walk_inside};
use crate::link::{ARP, IPV4, IPV6, MPLS, MPLS_UPSTREAM};
use crate::meta::{LinkType, Meta};
use weir_abi::{Descriptor, flag};
use weir_units::Timestamp;

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

impl Scene<'_> {
    /// Whether what is from `at` to `end`, of which only the first four bits say so, is an IP packet and nothing else. It is as long as it says, but for
    /// the padding of Ethernet's shortest frames.
    pub(super) fn is_only_ip(&self, at: usize, end: usize) -> bool {
        let room = end.saturating_sub(at);
        let is_v4 = self.read(at).is_some_and(|[first]: &[u8; 1]| first >> 4 == 4);
        let is_exact = self.len_of_ip(at, end).is_some_and(|len| len == room || is_v4 && room <= PADDED);
        is_exact && !self.is_frame(at, end)
    }

    /// Whether there is a consistent packet from `at` to `end` at the most.
    pub(super) fn is_packet(&self, at: usize, end: usize, kind: Kind) -> bool {
        let Some(now) = self.described(at, end, kind) else { return false };
        if now.flags & (flag::IPV4 | flag::IPV6) == 0 {
            // Only below an Ethernet header without tags is it known where ARP begins.
            return now.ether_type == ARP && self.read(at + 14) == Some(&ARP_OF_ETHERNET_AND_IPV4);
        }
        let ip = at + usize::from(now.l3_offset);
        match kind {
            Kind::Type(_) => self.is_only_ip(ip, end),
            // Its EtherType names it too, and it may be padded.
            Kind::Link(_) => self.len_of_ip(ip, end).is_some(),
        }
    }

    /// Whether it can be read as a frame of Ethernet, by what it would carry. What was not captured of that speaks for it.
    fn is_frame(&self, at: usize, end: usize) -> bool {
        const IP: u32 = flag::IPV4 | flag::IPV6;
        self.described(at, end, Kind::Link(LinkType::Ethernet)).is_some_and(
            |Descriptor { flags, ether_type, .. }| {
                let is_no_ip = flags & (IP | flag::MALFORMED) == flag::MALFORMED;
                matches!(ether_type, IPV4 | IPV6) && !is_no_ip
                    || NOT_IP.contains(&ether_type)
                    || flags & (flag::MPLS | flag::PPPOE) != 0
            },
        )
    }

    /// How long the IP packet at `at` is, which goes to `end` at the most. Nothing if it contradicts that, or does not say it; nor if an IPv4 header's
    /// checksum is wrong.
    fn len_of_ip(&self, at: usize, end: usize) -> Option<usize> {
        let start: &[u8; 6] = self.read(at)?;
        let len = match start[0] >> 4 {
            4 => {
                let header = usize::from(start[0] & 15) * 4;
                let len = usize::from(be16(start, 2));
                let is_right = fold(add(0, self.from.get(at..at + header)?)) == u16::MAX;
                Some(len).filter(|len| header >= 20 && *len >= header && is_right)
            }
            6 => Some(usize::from(be16(start, 4))).filter(|len| *len > 0).map(|len| len + IPV6_HEADER),
            _ => None,
        };
        len.filter(|len| *len <= end.saturating_sub(at))
    }

    /// What the parser says of what is from `at` to `end`.
    fn described(&self, at: usize, end: usize, kind: Kind) -> Option<Descriptor> {
        let head = self.from.get(at..end.min(self.from.len()))?;
        match kind {
            Kind::Type(ether_type) => {
                let mut now = Descriptor::default();
                walk_inside(head, end - at, ether_type, &mut now, &mut ());
                Some(now)
            }
            Kind::Link(link_type) => {
                let cap_len = u32::try_from(head.len()).unwrap_or(u32::MAX);
                let wire_len = u32::try_from(end - at).unwrap_or(u32::MAX);
                let (ts, interface, number, data) = (Timestamp(0), 0, 0, 0);
                classify(head, &Meta { ts, cap_len, wire_len, link_type, interface, number, data }).ok()
            }
        }
    }
}
