//! Views of tunnels: GRE (RFC 2784, RFC 2890), VXLAN (RFC 7348), Geneve (RFC 8926), GTP-U (3GPP TS 29.281), Teredo (RFC 4380).
//!
//! A packet that another one carries is shown by the same rules. Tunnels over UDP are known by their port alone, and what looks like one could be
//! somebody's payload: so they are opened only if there is a consistent packet inside, and are else not shown any further.

use super::scene::{Kind, Rest, Scene, Sum};
use crate::link::{ETHERNET_IN_GRE, IPV4, IPV6, MPLS, MPLS_UPSTREAM};
use crate::meta::LinkType;

/// What a port says.
#[derive(Clone, Copy)]
pub(super) enum Tunnel {
    Vxlan,
    Geneve,
    Gtp,
    Teredo,
    /// One that is not opened.
    Closed,
}

/// The only message of GTP-U with a packet in it.
const G_PDU: u8 = 255;
/// More extension headers than this has nothing that is known.
const GTP_EXTENSIONS_MAX: usize = 4;

impl Scene<'_> {
    /// Which tunnel these ports are used for, if any.
    #[inline(always)]
    pub(super) fn tunnel_over_udp(&self, src: u16, dst: u16) -> Option<Tunnel> {
        // Few packets get beyond this.
        if !is_tunnel_port(src) && !is_tunnel_port(dst) {
            return None;
        }
        match dst {
            4789 | 8472 => Some(Tunnel::Vxlan),
            6081 => Some(Tunnel::Geneve),
            2152 => Some(Tunnel::Gtp),
            _ if src == 3544 || dst == 3544 => Some(Tunnel::Teredo),
            _ if is_closed_port(src) || is_closed_port(dst) => Some(Tunnel::Closed),
            _ => None,
        }
    }

    /// What a UDP header carries on such a port, from `at` to `end`.
    #[inline(never)]
    pub(super) fn open_over_udp(&mut self, tunnel: Tunnel, at: usize, end: usize, depth: u8) {
        let opened = match tunnel {
            Tunnel::Vxlan => self.vxlan(at),
            Tunnel::Geneve => self.geneve(at),
            Tunnel::Gtp => self.gtp(at),
            Tunnel::Teredo => self.teredo(at),
            Tunnel::Closed => None,
        };
        let Some((inner, kind)) = opened.filter(|&(inner, kind)| self.is_packet(inner, end, kind)) else {
            return self.finish(&Rest::Unknown { at, end });
        };
        self.show(inner);
        match tunnel {
            // Options and extension headers can have private meanings.
            Tunnel::Geneve => self.zero(at + 8, inner.saturating_sub(at + 8)),
            Tunnel::Gtp if self.hides_fields => self.zero(at + 8, inner.saturating_sub(at + 8)),
            Tunnel::Gtp => self.gtp_extensions(at + 12, inner),
            // An origin indication has an address and a port in it.
            Tunnel::Teredo if self.hides_fields => self.zero(at + 2, inner.saturating_sub(at + 2)),
            Tunnel::Teredo | Tunnel::Vxlan | Tunnel::Closed => {}
        }
        self.inside(inner, end, kind, depth);
    }

    /// Zeros the contents of extension headers of GTP-U up to `end`. Their lengths and kinds stay.
    fn gtp_extensions(&mut self, mut at: usize, end: usize) {
        while let Some(&[words]) = self.read::<1>(at).filter(|_| at < end) {
            let len = usize::from(words) * 4;
            // All of them have been looked at, so there is none without a length.
            if len == 0 {
                return self.zero(at, end - at);
            }
            self.zero(at + 1, len - 2);
            at += len;
        }
    }

    /// Where the packet begins, and with what.
    fn vxlan(&self, at: usize) -> Option<(usize, Kind)> {
        match self.read::<8>(at)? {
            [0x08, 0, 0, 0, _, _, _, 0] => Some((at + 8, Kind::Link(LinkType::Ethernet))),
            _ => None,
        }
    }

    fn geneve(&self, at: usize) -> Option<(usize, Kind)> {
        let &[first, second, high, low, _, _, _, last] = self.read::<8>(at)?;
        if first >> 6 != 0 || second & 0x3f != 0 || last != 0 {
            return None;
        }
        let kind = kind_of(u16::from_be_bytes([high, low]))?;
        Some((at + 8 + usize::from(first & 0x3f) * 4, kind))
    }

    fn gtp(&self, at: usize) -> Option<(usize, Kind)> {
        let &[flags, message, ..] = self.read::<8>(at)?;
        // Version 1, GTP and not GTP'.
        if flags & 0xf8 != 0x30 || message != G_PDU {
            return None;
        }
        let mut inner = at + 8;
        if flags & 7 != 0 {
            let &[_, _, _, mut next] = self.read::<4>(inner)?;
            inner += 4;
            // Without this flag the number of the next extension says nothing.
            if flags & 4 == 0 {
                next = 0;
            }
            let mut count = 0;
            while next != 0 {
                let &[words] = self.read::<1>(inner)?;
                count += 1;
                if words == 0 || count > GTP_EXTENSIONS_MAX {
                    return None;
                }
                inner += usize::from(words) * 4;
                next = *self.from.get(inner - 1)?;
            }
        }
        let &[first] = self.read::<1>(inner)?;
        match first >> 4 {
            4 => Some((inner, Kind::Type(IPV4))),
            6 => Some((inner, Kind::Type(IPV6))),
            _ => None,
        }
    }

    fn teredo(&self, at: usize) -> Option<(usize, Kind)> {
        match self.read::<8>(at)? {
            [0, 0, ..] => Some((at + 8, Kind::Type(IPV6))),
            [first, ..] if first >> 4 == 6 => Some((at, Kind::Type(IPV6))),
            _ => None,
        }
    }

    /// GRE, from `at` to `end`, whose checksum goes up to `covered`.
    pub(super) fn gre(&mut self, at: usize, end: usize, covered: usize, in_part: bool, depth: u8) {
        let Some(&[flags, version, high, low]) = self.read::<4>(at) else {
            return self.finish(&Rest::Unknown { at, end });
        };
        let has = |bit: u8| flags & bit != 0;
        let (has_sum, has_key, has_number) = (has(0x80), has(0x20), has(0x10));
        let inner = at + 4 + 4 * (usize::from(has_sum) + usize::from(has_key) + usize::from(has_number));
        // Routing (RFC 1701), reserved bits, and other versions.
        if flags & 0x4f != 0 || version != 0 || inner > self.limit(end) {
            return self.finish(&Rest::Unknown { at, end });
        }
        self.show(inner);
        if has_sum && self.hides_fields {
            self.zero(at + 6, 2);
        }
        match kind_of(u16::from_be_bytes([high, low])) {
            Some(kind) => self.inside(inner, end, kind, depth),
            None => self.finish(&Rest::Unknown { at: inner, end }),
        }
        if has_sum {
            self.seal(&Sum { field: at + 4, from: at, end: covered, pseudo: None, in_part });
        }
    }
}

/// What an EtherType in a tunnel's header says follows.
fn kind_of(ether_type: u16) -> Option<Kind> {
    match ether_type {
        IPV4 | IPV6 | MPLS | MPLS_UPSTREAM => Some(Kind::Type(ether_type)),
        ETHERNET_IN_GRE => Some(Kind::Link(LinkType::Ethernet)),
        _ => None,
    }
}

#[inline(always)]
pub(super) fn is_tunnel_port(port: u16) -> bool {
    matches!(port, 2152 | 3544 | 4789 | 6081 | 8472) || is_closed_port(port)
}

/// Tunnels, and what sets them up, that are not opened: L2TP, GTP-C, LISP, GRE in UDP, VXLAN-GPE, CAPWAP, GUE, MPLS in UDP, TZSP.
#[inline(always)]
fn is_closed_port(port: u16) -> bool {
    matches!(port, 1701 | 2123 | 4341 | 4342 | 4754 | 4755 | 4790 | 5246 | 5247 | 6080 | 6635 | 37008)
}
