//! Tunnels: IP in IP (RFC 2003, RFC 2473, RFC 4213), MPLS in IP (RFC 4023), GRE (RFC 2784, RFC 2890), VXLAN (RFC
//! 7348), Geneve (RFC 8926), GTP-U (3GPP TS 29.281), Teredo (RFC 4380).
//!
//! The classifier and the views follow tunnels with this code. A port alone does not prove a tunnel, as other protocols
//! can use the same port. So a tunnel over UDP is opened only if there is a consistent packet inside (see
//! [`crate::consistent`]). GRE of version 1 (PPTP) is not opened.

use crate::classify::{
    ByteRange, FirstHeader, HeaderVisitor, MoreHeader, PEEK_MAX, to_offset, to_usize, walk_inside,
};
use crate::consistent::is_packet;
use crate::ip::protocol;
use crate::link::{ETHERNET_IN_GRE, IPV4, IPV6, MPLS, MPLS_UPSTREAM};
use crate::meta::{LinkType, Meta};
use crate::upper::UpperHeader;
use weir_abi::{Descriptor, flag, tunnel};

/// The most nested tunnels that are followed. The packet inside the last of them is not searched for further tunnels.
pub const TUNNELS_MAX: u8 = 4;

/// IP protocols that carry packets.
mod carrying {
    pub(super) const IPV4: u8 = 4;
    pub(super) const IPV6: u8 = 41;
    pub(super) const GRE: u8 = 47;
    pub(super) const MPLS: u8 = 137;
}

/// UDP ports of tunnels that are opened.
mod port {
    pub(super) const GTP_U: u16 = 2152;
    pub(super) const TEREDO: u16 = 3544;
    pub(super) const VXLAN: u16 = 4789;
    /// The port of VXLAN before one was assigned (the Linux kernel's default).
    pub(super) const VXLAN_LINUX: u16 = 8472;
    pub(super) const GENEVE: u16 = 6081;
}

/// The only GTP-U message that contains a packet.
const G_PDU: u8 = 255;
/// The most GTP-U extension headers that are followed. A packet with more is not parsed.
const GTP_EXTENSIONS_MAX: usize = 4;
/// The number of bytes of Teredo's authentication header without identifier and value: kind and lengths, nonce,
/// confirmation.
const TEREDO_AUTHENTICATION: usize = 4 + 8 + 1;
/// The number of bytes of Teredo's origin indication.
const TEREDO_ORIGIN: usize = 8;

/// A kind of tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tunnel {
    IpInIp,
    MplsInIp,
    /// GRE of version 0, with IP, MPLS labels or an Ethernet frame inside.
    Gre,
    Vxlan,
    Geneve,
    GtpU,
    Teredo,
}

impl Tunnel {
    /// The tunnel's number in descriptors.
    fn number(self) -> u8 {
        match self {
            Self::IpInIp => tunnel::IP_IN_IP,
            Self::MplsInIp => tunnel::MPLS_IN_IP,
            Self::Gre => tunnel::GRE,
            Self::Vxlan => tunnel::VXLAN,
            Self::Geneve => tunnel::GENEVE,
            Self::GtpU => tunnel::GTP_U,
            Self::Teredo => tunnel::TEREDO,
        }
    }
}

/// The captured bytes of a packet, of which the first ones are available.
#[derive(Clone, Copy)]
pub(crate) struct Captured<'a> {
    head: &'a [u8],
    /// The number of bytes that can be requested.
    len: usize,
}

impl<'a> Captured<'a> {
    /// The captured bytes of a packet, all of which are available.
    pub(crate) fn whole(bytes: &'a [u8]) -> Self {
        Self { head: bytes, len: bytes.len() }
    }

    /// The `cap` captured bytes of a packet, of which the first ones, `head`, are available. Bytes beyond [`PEEK_MAX`]
    /// are never read.
    fn first(head: &'a [u8], cap: usize) -> Self {
        let len = cap.min(PEEK_MAX);
        Self { head: head.get(..len).unwrap_or(head), len }
    }

    /// The bytes from `at` to `end`, if they were captured.
    pub(crate) fn get(&self, at: usize, end: usize) -> Result<Option<&'a [u8]>, MoreHeader> {
        match self.head.get(at..end) {
            None if at <= end && end <= self.len => Err(MoreHeader),
            bytes => Ok(bytes),
        }
    }

    /// The `N` bytes at `at`, if they were captured.
    #[inline(always)]
    pub(crate) fn read<const N: usize>(&self, at: usize) -> Result<Option<&'a [u8; N]>, MoreHeader> {
        match self.head.get(at..).and_then(|rest| rest.first_chunk()) {
            None if at.saturating_add(N) <= self.len => Err(MoreHeader),
            bytes => Ok(bytes),
        }
    }

    /// The packet from `at` to `end`, which may be beyond the captured bytes.
    pub(crate) fn part(&self, at: usize, end: usize) -> ByteRange<'a> {
        ByteRange {
            head: self.head.get(at..end.min(self.head.len())).unwrap_or_default(),
            cap: end.min(self.len).saturating_sub(at),
            wire: end.saturating_sub(at),
        }
    }
}

/// A parsed tunnel header.
pub(crate) struct TunnelHeader {
    pub(crate) tunnel: Tunnel,
    /// The offset of the packet inside.
    pub(crate) inner: usize,
    /// The packet's first header; `None` if the tunnel header names an unknown protocol.
    pub(crate) kind: Option<FirstHeader>,
}

/// The tunnel over UDP that a pair of ports indicates.
#[derive(Clone, Copy)]
pub(crate) enum UdpTunnel {
    /// A tunnel whose header is parsed.
    Known(Tunnel),
    /// A tunnel whose header is not parsed.
    NotOpened,
}

/// The tunnel of these ports, if any.
#[inline(always)]
pub(crate) fn tunnel_of_ports(src: u16, dst: u16) -> Option<UdpTunnel> {
    // Most packets return here.
    if !is_tunnel_port(src) && !is_tunnel_port(dst) {
        return None;
    }
    match dst {
        port::VXLAN | port::VXLAN_LINUX => Some(UdpTunnel::Known(Tunnel::Vxlan)),
        port::GENEVE => Some(UdpTunnel::Known(Tunnel::Geneve)),
        port::GTP_U => Some(UdpTunnel::Known(Tunnel::GtpU)),
        _ if src == port::TEREDO || dst == port::TEREDO => Some(UdpTunnel::Known(Tunnel::Teredo)),
        _ if is_unopened_port(src) || is_unopened_port(dst) => Some(UdpTunnel::NotOpened),
        _ => None,
    }
}

/// Returns true for ports of tunnels over UDP, opened or not. Data behind such a port do not count as payload.
#[inline(always)]
pub fn is_tunnel_port(port: u16) -> bool {
    is_opened_port(port) || is_unopened_port(port)
}

#[inline(always)]
fn is_opened_port(port: u16) -> bool {
    matches!(port, port::GTP_U | port::TEREDO | port::VXLAN | port::GENEVE | port::VXLAN_LINUX)
}

/// Returns true for ports of tunnels that are not opened, and of their control protocols: L2TP, GTP-C, LISP, GRE in
/// UDP, VXLAN-GPE, CAPWAP, GUE, MPLS in UDP, TZSP.
#[inline(always)]
fn is_unopened_port(port: u16) -> bool {
    matches!(port, 1701 | 2123 | 4341 | 4342 | 4754 | 4755 | 4790 | 5246 | 5247 | 6080 | 6635 | 37008)
}

/// Returns true if a packet may carry another packet, judged by its descriptor.
#[inline(always)]
pub(crate) fn may_carry(descriptor: &Descriptor) -> bool {
    let Descriptor { flags, src_port, dst_port, ip_proto, .. } = *descriptor;
    match flags & (flag::TCP | flag::UDP | flag::L4) {
        // Most packets are TCP.
        flag::L4 => is_carrying(ip_proto),
        bits if bits == flag::UDP | flag::L4 => is_opened_port(dst_port) || src_port == port::TEREDO,
        _ => false,
    }
}

#[inline(always)]
fn is_carrying(protocol: u8) -> bool {
    matches!(protocol, carrying::IPV4 | carrying::IPV6 | carrying::GRE | carrying::MPLS)
}

/// Follows a packet's tunnels to the innermost IP header, through at most [`TUNNELS_MAX`] of them, and writes its
/// location into `out`. `out` is the descriptor so far; it stays unchanged for a packet without a tunnel, or without
/// an IP packet inside.
///
/// # Errors
///
/// [`MoreHeader`] as [`classify`](crate::classify).
#[inline(never)]
pub(crate) fn follow(head: &[u8], meta: &Meta, out: &mut Descriptor) -> Result<(), MoreHeader> {
    let cap = to_usize(meta.cap_len);
    let captured = Captured::first(head, cap);
    let (mut at, mut end) = (0, to_usize(meta.wire_len).max(cap));
    let (mut kind, mut carrier) = (FirstHeader::Link(meta.link_type), None);
    for depth in 0..=TUNNELS_MAX {
        let (mut descriptor, mut above) = (Descriptor::default(), UpperVisitor(None));
        walk_inside(captured.part(at, end), kind, &mut descriptor, &mut above)?;
        if descriptor.flags & (flag::IPV4 | flag::IPV6) == 0 {
            break;
        }
        if let Some(tunnel) = carrier {
            (out.tunnel, out.tunnel_count) = (Tunnel::number(tunnel), depth);
            out.inner_offset = to_offset(at + usize::from(descriptor.l3_offset));
            out.inner_flow_hash = descriptor.flow_hash;
            write_inner(&descriptor, at, out);
            if let Some(upper) = above.0 {
                out.inner_payload_len =
                    payload_len(captured, out, at.saturating_add(upper.end).min(end), cap)?;
            }
        }
        let Some(upper) =
            above.0.filter(|_| descriptor.flags & flag::LATER_FRAGMENT == 0 && may_carry(&descriptor))
        else {
            break;
        };
        let Some((opened, inner_end)) = open_tunnel(captured, at, end, upper)? else { break };
        let Some(inner_kind) = opened.kind else { break };
        (at, end, kind, carrier) = (opened.inner, inner_end, inner_kind, Some(opened.tunnel));
    }
    Ok(())
}

/// Writes the fields about the innermost packet, which begins at `at` and which `inner` describes.
fn write_inner(inner: &Descriptor, at: usize, out: &mut Descriptor) {
    let offset = |offset: u16, flags: u32| {
        if inner.flags & flags == 0 { 0 } else { to_offset(at + usize::from(offset)) }
    };
    out.inner_flags = inner.flags & !(flag::VLAN | flag::MPLS | flag::PPPOE | flag::CUT);
    out.inner_l4_offset = offset(inner.l4_offset, flag::L4);
    out.inner_payload_offset = offset(inner.payload_offset, flag::L4);
    out.inner_payload_len = inner.payload_len;
    (out.inner_src_port, out.inner_dst_port) = (inner.src_port, inner.dst_port);
    (out.inner_ip_proto, out.inner_tcp_flags) = (inner.ip_proto, inner.tcp_flags);
    (out.inner_ttl, out.inner_tos) = (inner.ttl, inner.tos);
}

/// The captured bytes of the innermost packet's payload. The packet ends at `end`, captured or not, and `cap` bytes of the
/// whole packet were captured: the parser itself sees no more than [`PEEK_MAX`] of them.
fn payload_len(captured: Captured<'_>, out: &Descriptor, end: usize, cap: usize) -> Result<u32, MoreHeader> {
    let payload = usize::from(out.inner_payload_offset);
    let is_cut_by_the_parser = payload + to_usize(out.inner_payload_len) >= captured.len;
    if out.inner_flags & flag::L4 == 0 || !is_cut_by_the_parser {
        return Ok(out.inner_payload_len);
    }
    let l4 = usize::from(out.inner_l4_offset);
    let end = match captured.read::<8>(l4)? {
        Some(header) if out.inner_flags & flag::UDP != 0 => end_of_datagram(header, l4, end),
        _ => end,
    };
    Ok(u32::try_from(end.min(cap).saturating_sub(payload)).unwrap_or(u32::MAX))
}

/// Parses the tunnel header above the IP header of the packet from `base` to `end`. Also returns the end of the packet
/// inside the tunnel.
fn open_tunnel(
    captured: Captured<'_>,
    base: usize,
    end: usize,
    UpperHeader { protocol, at, end: covered }: UpperHeader,
) -> Result<Option<(TunnelHeader, usize)>, MoreHeader> {
    let (at, covered) = (base + at, base.saturating_add(covered));
    let end = end.min(covered);
    if protocol != protocol::UDP {
        return Ok(over_ip(captured, protocol, at, end)?.map(|opened| (opened, end)));
    }
    let Some(header) = captured.read::<8>(at)? else { return Ok(None) };
    let &[a, b, c, d, ..] = header;
    let end = end.min(end_of_datagram(header, at, covered));
    match tunnel_of_ports(u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])) {
        Some(UdpTunnel::Known(tunnel)) => {
            let opened = over_udp(captured, tunnel, at + 8, end)?;
            Ok(opened.map(|(inner, kind)| (TunnelHeader { tunnel, inner, kind: Some(kind) }, end)))
        }
        Some(UdpTunnel::NotOpened) | None => Ok(None),
    }
}

/// A visitor that keeps the header above IP.
struct UpperVisitor(Option<UpperHeader>);

impl HeaderVisitor for UpperVisitor {
    fn fixed(&mut self, _: usize, _: usize) {}
    fn fixed_bits(&mut self, _: usize, _: u8) {}
    fn checksum(&mut self, _: usize, _: usize, _: usize) {}
    fn unknown_from(&mut self, _: usize) {}
    fn has_other_destination(&mut self) {}

    fn upper(&mut self, upper: UpperHeader) {
        self.0 = Some(upper);
    }
}

/// The end of the datagram whose UDP header is at `at`, in a packet that ends at `covered` according to its IP header.
pub(crate) fn end_of_datagram(&[.., high, low, _, _]: &[u8; 8], at: usize, covered: usize) -> usize {
    let stated = at + usize::from(u16::from_be_bytes([high, low]));
    if stated >= at + 8 && stated <= covered { stated } else { covered }
}

/// Parses a tunnel header from `at` to `end` by the IP protocol that names it. `None` if the header is not understood.
pub(crate) fn over_ip(
    captured: Captured<'_>,
    protocol: u8,
    at: usize,
    end: usize,
) -> Result<Option<TunnelHeader>, MoreHeader> {
    let opened =
        |tunnel, ether_type| TunnelHeader { tunnel, inner: at, kind: Some(FirstHeader::Type(ether_type)) };
    match protocol {
        carrying::IPV4 => Ok(Some(opened(Tunnel::IpInIp, IPV4))),
        carrying::IPV6 => Ok(Some(opened(Tunnel::IpInIp, IPV6))),
        carrying::MPLS => Ok(Some(opened(Tunnel::MplsInIp, MPLS))),
        carrying::GRE => gre(captured, at, end),
        _ => Ok(None),
    }
}

/// Parses a GRE header from `at` to `end`.
fn gre(captured: Captured<'_>, at: usize, end: usize) -> Result<Option<TunnelHeader>, MoreHeader> {
    let Some(&[flags, version, high, low]) = captured.read::<4>(at)? else { return Ok(None) };
    let has = |bit: u8| usize::from(flags & bit != 0);
    // Checksum, key and sequence number.
    let inner = at + 4 + 4 * (has(0x80) + has(0x20) + has(0x10));
    // Routing (RFC 1701), reserved bits, and other versions are not parsed.
    if flags & 0x4f != 0 || version != 0 || inner > end.min(captured.len) {
        return Ok(None);
    }
    Ok(Some(TunnelHeader {
        tunnel: Tunnel::Gre,
        inner,
        kind: first_header_of(u16::from_be_bytes([high, low])),
    }))
}

/// Parses the header of a tunnel over UDP from `at` to `end`. Returns the packet inside; `None` if there is no
/// consistent packet.
pub(crate) fn over_udp(
    captured: Captured<'_>,
    tunnel: Tunnel,
    at: usize,
    end: usize,
) -> Result<Option<(usize, FirstHeader)>, MoreHeader> {
    let packet = match tunnel {
        Tunnel::Vxlan => vxlan(captured, at)?,
        Tunnel::Geneve => geneve(captured, at)?,
        Tunnel::GtpU => gtp(captured, at)?,
        Tunnel::Teredo => teredo(captured, at)?,
        Tunnel::IpInIp | Tunnel::MplsInIp | Tunnel::Gre => None,
    };
    match packet {
        Some((inner, kind)) if is_packet(captured, inner, end, kind)? => Ok(packet),
        _ => Ok(None),
    }
}

/// The offset and the first header of the packet inside a tunnel; `None` if the tunnel header is not understood.
type InnerPacketResult = Result<Option<(usize, FirstHeader)>, MoreHeader>;

fn vxlan(captured: Captured<'_>, at: usize) -> InnerPacketResult {
    Ok(match captured.read::<8>(at)? {
        Some([0x08, 0, 0, 0, _, _, _, 0]) => Some((at + 8, FirstHeader::Link(LinkType::Ethernet))),
        _ => None,
    })
}

fn geneve(captured: Captured<'_>, at: usize) -> InnerPacketResult {
    let Some(&[first, second, high, low, _, _, _, last]) = captured.read::<8>(at)? else { return Ok(None) };
    if first >> 6 != 0 || second & 0x3f != 0 || last != 0 {
        return Ok(None);
    }
    let inner = at + 8 + usize::from(first & 0x3f) * 4;
    Ok(first_header_of(u16::from_be_bytes([high, low])).map(|kind| (inner, kind)))
}

fn gtp(captured: Captured<'_>, at: usize) -> InnerPacketResult {
    let Some(&[flags, message, ..]) = captured.read::<8>(at)? else { return Ok(None) };
    // Version 1, and GTP rather than GTP'.
    if flags & 0xf8 != 0x30 || message != G_PDU {
        return Ok(None);
    }
    let mut inner = at + 8;
    // If any of these three flags is set, sequence number, N-PDU number and the kind of the first extension follow.
    if flags & 7 != 0 {
        let Some(&[_, _, _, mut next]) = captured.read::<4>(inner)? else { return Ok(None) };
        inner += 4;
        // Without the extension flag, the kind of the first extension is meaningless.
        if flags & 4 == 0 {
            next = 0;
        }
        let mut count = 0;
        while next != 0 {
            let Some(&[words]) = captured.read::<1>(inner)? else { return Ok(None) };
            count += 1;
            if words == 0 || count > GTP_EXTENSIONS_MAX {
                return Ok(None);
            }
            inner += usize::from(words) * 4;
            let Some(&[last]) = captured.read::<1>(inner - 1)? else { return Ok(None) };
            next = last;
        }
    }
    Ok(match captured.read::<1>(inner)? {
        Some([first]) if first >> 4 == 4 => Some((inner, FirstHeader::Type(IPV4))),
        Some([first]) if first >> 4 == 6 => Some((inner, FirstHeader::Type(IPV6))),
        _ => None,
    })
}

fn teredo(captured: Captured<'_>, at: usize) -> InnerPacketResult {
    let mut inner = at + teredo_authentication(captured, at)?;
    if let Some([0, 0]) = captured.read::<2>(inner)? {
        inner += TEREDO_ORIGIN;
    }
    Ok(match captured.read::<1>(inner)? {
        Some([first]) if first >> 4 == 6 => Some((inner, FirstHeader::Type(IPV6))),
        _ => None,
    })
}

/// The length of Teredo's authentication header at `at` (RFC 4380, 5.1.1); 0 if there is none.
pub(crate) fn teredo_authentication(captured: Captured<'_>, at: usize) -> Result<usize, MoreHeader> {
    Ok(match captured.read::<4>(at)? {
        Some(&[0, 1, identifier, value]) => {
            TEREDO_AUTHENTICATION + usize::from(identifier) + usize::from(value)
        }
        _ => 0,
    })
}

/// The first header of the packet that an EtherType in a tunnel's header names.
fn first_header_of(ether_type: u16) -> Option<FirstHeader> {
    match ether_type {
        IPV4 | IPV6 | MPLS | MPLS_UPSTREAM => Some(FirstHeader::Type(ether_type)),
        ETHERNET_IN_GRE => Some(FirstHeader::Link(LinkType::Ethernet)),
        _ => None,
    }
}
