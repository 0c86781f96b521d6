//! Link layers, tags, labels and PPPoE: everything before the outermost IP header.

use crate::classify::{HeaderVisitor, IncompleteHeader, LinkPart, NetworkLayer, Walk, be16};
use crate::meta::LinkType;
use weir_abi::flag;

pub(crate) const ETHERNET_HEADER: usize = 14;
pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const IPV6: u16 = 0x86dd;
pub(crate) const ARP: u16 = 0x0806;
/// ARP for Ethernet and IPv4, with addresses of 6 and 4 bytes (RFC 826).
pub(crate) const ARP_OF_ETHERNET_AND_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];
/// The EtherType of an Ethernet frame in GRE ("transparent Ethernet bridging").
pub(crate) const ETHERNET_IN_GRE: u16 = 0x6558;
pub(crate) const MPLS: u16 = 0x8847;
pub(crate) const MPLS_UPSTREAM: u16 = 0x8848;
const PPPOE_SESSION: u16 = 0x8864;
/// The smallest EtherType. A smaller number is the length of an IEEE 802.3 frame, and an LLC header follows.
const SMALLEST_ETHER_TYPE: u16 = 0x0600;
/// LLC: SNAP, unnumbered information, and the organisation whose protocol numbers are EtherTypes (RFC 1042).
const SNAP: [u8; 6] = [0xaa, 0xaa, 0x03, 0, 0, 0];
const PPP_IPV4: u16 = 0x0021;
const PPP_IPV6: u16 = 0x0057;
/// ARPHRD_NETLINK: the kind of an interface whose cooked headers name a netlink family in place of a protocol.
const ARPHRD_NETLINK: u16 = 824;

impl<M: HeaderVisitor> Walk<'_, M> {
    /// Returns true if an IPv4 header follows the Ethernet header directly, at [`ETHERNET_HEADER`]. In this case
    /// the call reports the Ethernet header as [`link`](Self::link) does.
    #[inline(always)]
    pub(crate) fn is_plain_ipv4(&mut self, link_type: LinkType) -> bool {
        let Some(header) = self.head.first_chunk::<ETHERNET_HEADER>() else { return false };
        let is_plain = link_type == LinkType::Ethernet && be16(header, 12) == IPV4;
        if is_plain {
            self.out.ether_type = IPV4;
            self.visitor.fixed(12, 2);
            self.visitor.link(LinkPart::Header, 0, ETHERNET_HEADER);
        }
        is_plain
    }

    /// Parses everything before the outermost IP header.
    pub(crate) fn link(&mut self, link_type: LinkType) -> Result<NetworkLayer, IncompleteHeader> {
        match link_type {
            LinkType::Ethernet => {
                let header: &[u8; ETHERNET_HEADER] = self.need(0)?;
                self.visitor.fixed(12, 2);
                self.visitor.link(LinkPart::Header, 0, ETHERNET_HEADER);
                self.ether_type(be16(header, 12), ETHERNET_HEADER)
            }
            LinkType::Ipv4 => Ok(NetworkLayer::Ipv4(0)),
            LinkType::Ipv6 => Ok(NetworkLayer::Ipv6(0)),
            LinkType::Raw => {
                let [first]: &[u8; 1] = self.need(0)?;
                Ok(match first >> 4 {
                    4 => NetworkLayer::Ipv4(0),
                    6 => NetworkLayer::Ipv6(0),
                    _ => {
                        self.mark_malformed(0);
                        NetworkLayer::Other(0)
                    }
                })
            }
            LinkType::Loop => {
                let family = u32::from_be_bytes(*self.need(0)?);
                Ok(self.address_family(family))
            }
            LinkType::Null => {
                let family = u32::from_le_bytes(*self.need(0)?);
                // Families are small numbers, so the byte order in which the number is small is right.
                Ok(self.address_family(if family > 0xffff { family.swap_bytes() } else { family }))
            }
            LinkType::LinuxSll => {
                let header: &[u8; 16] = self.need(0)?;
                self.visitor.fixed(0, 6);
                self.visitor.fixed(14, 2);
                self.visitor.link(LinkPart::Header, 0, 16);
                self.cooked(be16(header, 2), be16(header, 14), 16)
            }
            LinkType::LinuxSll2 => {
                let header: &[u8; 20] = self.need(0)?;
                self.visitor.fixed(0, 12);
                self.visitor.link(LinkPart::Header, 0, 20);
                self.cooked(be16(header, 8), be16(header, 0), 20)
            }
        }
    }

    /// Finds the network layer by a BSD address family. IPv6 has a different number on each system.
    fn address_family(&mut self, family: u32) -> NetworkLayer {
        self.visitor.fixed(0, 4);
        self.visitor.link(LinkPart::Header, 0, 4);
        match family {
            2 => NetworkLayer::Ipv4(4),
            10 | 23 | 24 | 26 | 28 | 30 => NetworkLayer::Ipv6(4),
            _ => NetworkLayer::Other(4),
        }
    }

    /// Finds the network layer behind the header of a cooked capture. The header ends at `at`, and states the kind of
    /// the interface (`hardware`) and the `protocol`.
    fn cooked(&mut self, hardware: u16, protocol: u16, at: usize) -> Result<NetworkLayer, IncompleteHeader> {
        match protocol {
            _ if hardware == ARPHRD_NETLINK => Ok(NetworkLayer::Other(at)),
            // ETH_P_802_2: an LLC header follows, as after an IEEE 802.3 length.
            4 => self.llc(at),
            0..SMALLEST_ETHER_TYPE => Ok(NetworkLayer::Other(at)),
            _ => self.ether_type(protocol, at),
        }
    }

    /// Follows EtherTypes to the network layer. `at` is the offset of the header that the first EtherType names.
    #[inline(never)]
    pub(crate) fn ether_type(
        &mut self,
        mut ether_type: u16,
        mut at: usize,
    ) -> Result<NetworkLayer, IncompleteHeader> {
        loop {
            if ether_type < SMALLEST_ETHER_TYPE {
                return self.llc(at);
            }
            self.out.ether_type = ether_type;
            match ether_type {
                IPV4 => return Ok(NetworkLayer::Ipv4(at)),
                IPV6 => return Ok(NetworkLayer::Ipv6(at)),
                0x8100 | 0x88a8 | 0x9100 | 0x9200 | 0x9300 => {
                    let tag: &[u8; 4] = self.need(at)?;
                    self.visitor.fixed(at + 2, 2);
                    self.visitor.link(LinkPart::Tag, at, 4);
                    if self.out.flags & flag::VLAN == 0 {
                        self.out.flags |= flag::VLAN;
                        self.out.vlan_tci = be16(tag, 0);
                    }
                    self.out.vlan_count = self.out.vlan_count.saturating_add(1);
                    ether_type = be16(tag, 2);
                    at += 4;
                }
                MPLS | MPLS_UPSTREAM => return self.labels(at),
                PPPOE_SESSION => return self.pppoe(at),
                _ => return Ok(NetworkLayer::Other(at)),
            }
        }
    }

    /// Parses a SNAP header with an EtherType. Other LLC headers are not parsed.
    fn llc(&mut self, at: usize) -> Result<NetworkLayer, IncompleteHeader> {
        self.out.ether_type = 0;
        let llc: &[u8; 3] = self.need(at)?;
        self.visitor.fixed(at, 3);
        if llc[..] != SNAP[..3] {
            return Ok(NetworkLayer::Other(at));
        }
        let snap: &[u8; 8] = self.need(at)?;
        self.visitor.fixed(at, 8);
        let ether_type = be16(snap, 6);
        // A length here would mean LLC inside LLC.
        if snap[..6] != SNAP || ether_type < SMALLEST_ETHER_TYPE {
            return Ok(NetworkLayer::Other(at));
        }
        self.visitor.link(LinkPart::Snap, at, 8);
        self.ether_type(ether_type, at + 8)
    }

    /// Parses a stack of MPLS labels (RFC 3032). No field names the protocol behind the stack. The first four
    /// bits behind it indicate IP (RFC 4928).
    fn labels(&mut self, mut at: usize) -> Result<NetworkLayer, IncompleteHeader> {
        loop {
            let label: &[u8; 4] = self.need(at)?;
            self.visitor.fixed_bits(at + 2, 1);
            self.visitor.link(LinkPart::Label, at, 4);
            self.out.flags |= flag::MPLS;
            self.out.mpls_count = self.out.mpls_count.saturating_add(1);
            at += 4;
            if label[2] & 1 == 1 {
                break;
            }
        }
        let [first]: &[u8; 1] = self.need(at)?;
        self.visitor.fixed_bits(at, 0xf0);
        match first >> 4 {
            4 | 6 if !self.visitor.is_ip_behind_labels(at, self.wire) => Ok(NetworkLayer::Other(at)),
            4 => {
                self.out.ether_type = IPV4;
                Ok(NetworkLayer::Ipv4(at))
            }
            6 => {
                self.out.ether_type = IPV6;
                Ok(NetworkLayer::Ipv6(at))
            }
            _ => Ok(NetworkLayer::Other(at)),
        }
    }

    /// Parses a PPPoE session header (RFC 2516) and the PPP protocol.
    fn pppoe(&mut self, at: usize) -> Result<NetworkLayer, IncompleteHeader> {
        let header: &[u8; 8] = self.need(at)?;
        self.visitor.fixed(at, 2);
        self.visitor.fixed(at + 4, 4);
        self.out.flags |= flag::PPPOE;
        if header[..2] != [0x11, 0] {
            self.mark_malformed(at);
            return Ok(NetworkLayer::Other(at));
        }
        self.visitor.link(LinkPart::Session, at, 8);
        match be16(header, 6) {
            PPP_IPV4 => {
                self.out.ether_type = IPV4;
                Ok(NetworkLayer::Ipv4(at + 8))
            }
            PPP_IPV6 => {
                self.out.ether_type = IPV6;
                Ok(NetworkLayer::Ipv6(at + 8))
            }
            _ => Ok(NetworkLayer::Other(at + 8)),
        }
    }
}
