//! Views of link layers, IP headers and ARP.

use super::packet_rewriter::{IpHeader, PacketRewriter, Rest};
use super::{Exposure, ZeroedField};
use crate::classify::LinkPart;
use crate::ip::protocol;
use crate::link::{ARP, ARP_OF_ETHERNET_AND_IPV4};

const RARP: u16 = 0x8035;
const ARPHRD_ETHER: [u8; 2] = [0, 1];

/// The known options of IPv4 (RFC 791, 3.1; RFC 2113; RFC 4782).
mod option_v4 {
    pub(super) const END: u8 = 0;
    pub(super) const NO_OPERATION: u8 = 1;
    pub(super) const RECORD_ROUTE: u8 = 7;
    pub(super) const QUICK_START: u8 = 25;
    pub(super) const TIMESTAMP: u8 = 68;
    pub(super) const LOOSE_ROUTE: u8 = 131;
    pub(super) const STREAM: u8 = 136;
    pub(super) const STRICT_ROUTE: u8 = 137;
    pub(super) const ROUTER_ALERT: u8 = 148;
}

/// The known options of IPv6 (RFC 8200, 4.2; RFC 2473, RFC 2711, RFC 2675, RFC 6275).
mod option_v6 {
    pub(super) const PAD1: u8 = 0;
    pub(super) const PADN: u8 = 1;
    pub(super) const TUNNEL_LIMIT: u8 = 4;
    pub(super) const ROUTER_ALERT: u8 = 5;
    pub(super) const JUMBO: u8 = 0xc2;
    pub(super) const HOME_ADDRESS: u8 = 0xc9;
}

/// The known routing headers of IPv6: source route (RFC 2460), home address (RFC 6275), segment routing (RFC 8754).
mod routing {
    pub(super) const SOURCE: u8 = 0;
    pub(super) const HOME: u8 = 2;
    pub(super) const SEGMENTS: u8 = 4;
}

impl PacketRewriter<'_> {
    /// Copies a part of the link layer and hides its fields.
    #[inline(always)]
    pub(super) fn link(&mut self, part: LinkPart, at: usize, len: usize) {
        self.copy_up_to(at + len);
        match part {
            LinkPart::Header => match len {
                14 => {
                    self.mac(at);
                    self.mac(at + 6);
                }
                16 => self.cooked(at + 2, at + 6),
                20 => self.cooked(at + 8, at + 12),
                _ => {}
            },
            LinkPart::Tag if self.hides(ZeroedField::Vlan) => self.zero(at, 2),
            LinkPart::Label => self.label(at),
            LinkPart::Session if self.hides(ZeroedField::Pppoe) => self.zero(at + 2, 2),
            LinkPart::Tag | LinkPart::Session | LinkPart::Snap => {}
        }
    }

    /// Hides fields of an MPLS label. Its class and TTL are also hidden if the view hides those of IP headers: in the
    /// uniform model (RFC 3270, RFC 3443) they are copies of the IP header's.
    #[inline(never)]
    fn label(&mut self, at: usize) {
        let is_hidden = self.hides(ZeroedField::Mpls);
        if is_hidden {
            self.zero(at, 2);
        }
        // The bottom-of-stack bit stays, as the parser has to find the bottom of the stack in the same place.
        let kept = match (is_hidden, self.hides(ZeroedField::Dscp)) {
            (true, _) => 0x01,
            (false, true) => 0xf1,
            (false, false) => 0xff,
        };
        self.mask(at + 2, kept);
        if is_hidden || self.hides(ZeroedField::Ttl) {
            self.zero(at + 3, 1);
        }
    }

    /// Hides the hardware address in a cooked header. The hardware address of a tunnel interface is an IP address.
    fn cooked(&mut self, hardware: usize, address: usize) {
        let is_mac = self.read(hardware) == Some(&ARPHRD_ETHER);
        if self.view.macs == Exposure::Zeroed || self.hides_addresses && !is_mac {
            self.zero(address, 8);
        }
    }

    /// Copies an IPv4 header and hides its fields.
    #[inline(always)]
    pub(super) fn ipv4(&mut self, at: usize, data: usize) -> IpHeader {
        self.copy_up_to(data);
        let mut routed = false;
        if data > at + 20 {
            routed = self.options_v4(at + 20, data);
        }
        if self.hides_fields {
            if !self.view.zeroed.is_empty() {
                self.fields_v4(at);
            }
            self.address_v4(at + 12);
            self.address_v4(at + 16);
            self.finish_ipv4_checksum(at, data);
        } else if data > at + 20 && !self.is_as_captured(at + 20, data) {
            self.finish_ipv4_checksum(at, data);
        }
        IpHeader { at, is_v6: false, routed }
    }

    fn fields_v4(&mut self, at: usize) {
        if self.hides(ZeroedField::Dscp) {
            self.mask(at + 1, 3);
        }
        if self.hides(ZeroedField::IpId) {
            self.zero(at + 4, 2);
        }
        if self.hides(ZeroedField::Ttl) {
            self.zero(at + 8, 1);
        }
    }

    /// Replaces unknown and hidden options by "no operation". Returns true if the copy contains a source route.
    #[inline(never)]
    fn options_v4(&mut self, from: usize, data: usize) -> bool {
        let end = self.captured_end(data);
        if self.hides(ZeroedField::IpOptions) {
            self.zero(from, end - from);
            return false;
        }
        let (mut at, mut routed) = (from, false);
        while at < end {
            let Some(&[kind]) = self.read::<1>(at) else { break };
            if kind == option_v4::NO_OPERATION {
                at += 1;
                continue;
            }
            let len = self.read::<2>(at).map_or(0, |&[_, len]| usize::from(len));
            if kind == option_v4::END || len < 2 || len > end - at {
                self.zero(at, end - at);
                break;
            }
            if self.keeps_option_v4(kind, len, at) {
                routed |= matches!(kind, option_v4::LOOSE_ROUTE | option_v4::STRICT_ROUTE);
            } else {
                // The option is replaced in place, so the header keeps its length.
                self.fill(at, len, option_v4::NO_OPERATION);
            }
            at += len;
        }
        routed
    }

    fn keeps_option_v4(&self, kind: u8, len: usize, at: usize) -> bool {
        match (kind, len) {
            (option_v4::STREAM | option_v4::ROUTER_ALERT, 4) | (option_v4::QUICK_START, 8) => true,
            // The flags of a timestamp option state whether it contains addresses; other flags than 0, 1 and 3 are
            // undefined.
            (option_v4::TIMESTAMP, 4..) => match self.read::<4>(at) {
                Some([.., flags]) if flags & 15 == 0 => true,
                Some([.., flags]) => matches!(flags & 15, 1 | 3) && !self.hides_addresses,
                None => false,
            },
            (option_v4::RECORD_ROUTE | option_v4::LOOSE_ROUTE | option_v4::STRICT_ROUTE, 3..) => {
                !self.hides_addresses
            }
            _ => false,
        }
    }

    /// Copies an IPv6 header and hides its fields.
    #[inline(always)]
    pub(super) fn ipv6(&mut self, at: usize) -> IpHeader {
        self.copy_up_to(at + 40);
        if self.hides_fields {
            if !self.view.zeroed.is_empty() {
                self.fields_v6(at);
            }
            self.address_v6(at + 8);
            self.address_v6(at + 24);
        }
        IpHeader { at, is_v6: true, routed: false }
    }

    fn fields_v6(&mut self, at: usize) {
        if self.hides(ZeroedField::Dscp) {
            self.mask(at, 0xf0);
            self.mask(at + 1, 0x3f);
        }
        if self.hides(ZeroedField::FlowLabel) {
            self.mask(at + 1, 0xf0);
            self.zero(at + 2, 2);
        }
        if self.hides(ZeroedField::Ttl) {
            self.zero(at + 7, 1);
        }
    }

    /// Copies an IPv6 extension header and hides its fields.
    #[inline(never)]
    pub(super) fn extension(&mut self, protocol: u8, at: usize, len: usize) {
        self.copy_up_to(at + len);
        match protocol {
            protocol::FRAGMENT if self.hides(ZeroedField::IpId) => self.zero(at + 4, 4),
            protocol::FRAGMENT => {}
            protocol::HOP_BY_HOP | protocol::DESTINATION => self.options_v6(at + 2, at + len),
            protocol::ROUTING => self.routing(at, len),
            // SPI and sequence number stay; the integrity check value, which covers everything, is zeroed.
            protocol::AH => self.zero(at + 12, len.saturating_sub(12)),
            // Other extension headers contain addresses, checksums and options of their own.
            _ => self.zero(at + 2, len - 2),
        }
    }

    /// Hides fields of a routing header. The kind stays, and of a known kind the part whose meaning is known.
    fn routing(&mut self, at: usize, len: usize) {
        // The number of segments left is zeroed, too, so the IPv6 header's destination is the final one.
        if self.hides_addresses {
            return self.zero(at + 3, len - 3);
        }
        let known = match self.read::<5>(at) {
            Some([_, _, routing::SOURCE | routing::HOME, ..]) => len,
            // Options follow the list, and none of them is known.
            Some([_, _, routing::SEGMENTS, _, last]) => 8 + (usize::from(*last) + 1) * 16,
            _ => 4,
        };
        let known = if known <= len { known } else { 4 };
        self.zero(at + known, len - known);
    }

    /// Replaces unknown and hidden options by padding.
    fn options_v6(&mut self, from: usize, to: usize) {
        let end = self.captured_end(to);
        if self.hides(ZeroedField::IpOptions) {
            // A sequence of Pad1.
            return self.zero(from, end.saturating_sub(from));
        }
        let mut at = from;
        while at < end {
            let Some(&[kind, len]) = self.read::<2>(at).filter(|[kind, _]| *kind != option_v6::PAD1) else {
                self.zero(at, 1);
                at += 1;
                continue;
            };
            let len = usize::from(len) + 2;
            if len > end - at {
                return self.zero(at, end - at);
            }
            let is_kept = match (kind, len) {
                (option_v6::TUNNEL_LIMIT, 3) | (option_v6::ROUTER_ALERT, 4) | (option_v6::JUMBO, 6) => true,
                (option_v6::HOME_ADDRESS, 18) => !self.hides_addresses,
                _ => false,
            };
            if !is_kept {
                self.fill(at, 1, option_v6::PADN);
                self.zero(at + 2, len - 2);
            }
            at += len;
        }
    }

    /// Copies a packet that is neither IPv4 nor IPv6, of which only ARP is understood.
    #[inline(never)]
    pub(super) fn not_ip(&mut self, at: usize, end: usize, ether_type: u16) {
        if !matches!(ether_type, ARP | RARP)
            || self.read(at) != Some(&ARP_OF_ETHERNET_AND_IPV4)
            || self.read::<28>(at).is_none()
            || at + 28 > end
            || self.copied() != at
        {
            return self.finish(&Rest::Unknown { at, end });
        }
        self.copy_up_to(at + 28);
        self.mac(at + 8);
        self.address_v4(at + 14);
        self.mac(at + 18);
        self.address_v4(at + 24);
        self.finish(&Rest::Unknown { at: at + 28, end });
    }
}
