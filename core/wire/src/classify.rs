//! Classification: from the first bytes of a packet to its descriptor. All parsing of this crate starts here, in
//! [`walk`] for a packet, and in [`walk_inside`] for a packet that another one carries.

use crate::flow_hash;
use crate::fragment::FragmentInfo;
use crate::link::ETHERNET_HEADER;
use crate::meta::{LinkType, Meta};
use crate::tunnel;
use crate::upper::UpperHeader;
use weir_abi::{Descriptor, flag};

/// The number of leading bytes of a packet that suffices to classify nearly all packets: Ethernet, IPv4 and a TCP
/// header with all options have 94.
pub const PEEK: usize = 96;

/// The number of leading bytes of a packet that always suffices to classify it. Headers beyond it are not parsed, and
/// the packet is `MALFORMED`. This bounds every loop of the parser, and keeps the counts of tags and labels within
/// their fields.
pub const PEEK_MAX: usize = 1024;

/// The error that a packet's headers are longer than the given bytes. The caller repeats the call with the first
/// `min(cap_len, PEEK_MAX)` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the packet's headers are longer than the bytes given; give the first {PEEK_MAX} bytes, or all if there are fewer"
)]
pub struct MoreHeader;

/// Describes a packet.
///
/// `head` is a private copy of the first bytes of the packet, normally `min(cap_len, PEEK)` of them. It is read more
/// than once, so it must not change meanwhile. More bytes never change the result.
///
/// # Errors
///
/// [`MoreHeader`] requests another call with `min(cap_len, PEEK_MAX)` bytes. A call with this number of bytes, or more,
/// never returns it.
///
/// # Decisions
///
/// - An IPv4 header with an impossible version or length, and an IPv6 header with an impossible version, do not count
///   as IP. The packet has neither of the flags `IPV4` and `IPV6`, is `MALFORMED`, and its flow hash is that of the
///   link header.
/// - An IPv4 total length of 0 (segmentation offload), and an IPv6 payload length of 0 with data behind it
///   (jumbogram, BIG TCP), mean that the IP packet extends to the end of the packet on the link.
/// - Ports and TCP flags are set if they are captured, even if the rest of the header is not (`L4` is then unset).
/// - The payload of UDP ends at the UDP length, if this end is inside the packet.
/// - An IPv6 fragment header with offset 0 and no more fragments does not make a fragment (RFC 6946).
/// - The fields about tunnels describe the innermost IP header that is found within
///   [`TUNNELS_MAX`](crate::TUNNELS_MAX) tunnels and the first [`PEEK_MAX`] bytes. A tunnel over UDP is recognised by
///   its port and by a consistent packet inside.
/// - Fields that are not valid are 0.
pub fn classify(head: &[u8], meta: &Meta) -> Result<Descriptor, MoreHeader> {
    let mut out = Descriptor::default();
    classify_into(head, meta, &mut out).map(|()| out)
}

/// Classifies as [`classify`] does, but directly into `out`. This is faster, since nothing is copied.
///
/// # Errors
///
/// As [`classify`]; `out` is then undefined.
pub fn classify_into(head: &[u8], meta: &Meta, out: &mut Descriptor) -> Result<(), MoreHeader> {
    walk(head, meta, out, &mut ())?;
    // Only packets that may carry others pay for following tunnels.
    if tunnel::may_carry(out) {
        return tunnel::follow(head, meta, out);
    }
    Ok(())
}

/// A visitor to which the parser reports the headers that it finds, and the bytes that decide how it continues. The
/// visitor `()` ignores all reports and costs nothing.
pub(crate) trait HeaderVisitor {
    /// Reports bytes that decide how the packet is parsed, or that a checksum unknown to weir covers. A patch must not
    /// change them.
    fn fixed(&mut self, at: usize, len: usize);
    /// Reports bits of a byte that a patch must not change.
    fn fixed_bits(&mut self, at: usize, mask: u8);
    /// Reports the checksum of the header above IP, at `field`. It covers `from..end` and, except for ICMP, the
    /// addresses.
    fn checksum(&mut self, field: usize, from: usize, end: usize);
    /// Reports the offset from which on nothing is parsed.
    fn unknown_from(&mut self, at: usize);
    /// Reports that the IP header's destination address is not the final one, which is in a routing header.
    fn has_other_destination(&mut self);
    /// Reports that the packet is a fragment of a datagram.
    #[inline(always)]
    fn fragment(&mut self, _: FragmentInfo) {}
    /// Reports a part of the link layer, of `len` bytes, all of which are captured.
    #[inline(always)]
    fn link(&mut self, _: LinkPart, _at: usize, _len: usize) {}
    /// Decides whether the bytes behind MPLS labels, at `at` of a packet of `wire` bytes, count as IP. Their first
    /// four bits are those of IP, and nothing else indicates IP.
    #[inline(always)]
    fn is_ip_behind_labels(&mut self, _at: usize, _wire: usize) -> bool {
        true
    }
    /// Reports the offset `at` of a network layer that is neither IPv4 nor IPv6.
    #[inline(always)]
    fn other_network(&mut self, _at: usize) {}
    /// Reports the IPv4 header at `at`, with options up to `data`, of a packet up to `end`. The header's fixed part is
    /// captured and consistent.
    #[inline(always)]
    fn ipv4(&mut self, _at: usize, _data: usize, _end: usize) {}
    /// Reports the IPv6 header at `at`, of a packet up to `end`. The header is captured.
    #[inline(always)]
    fn ipv6(&mut self, _at: usize, _end: usize) {}
    /// Reports an IPv6 extension header, all of which is inside the packet.
    #[inline(always)]
    fn extension(&mut self, _protocol: u8, _at: usize, _len: usize) {}
    /// Reports the header above IP, or the data of a later fragment.
    #[inline(always)]
    fn upper(&mut self, _: UpperHeader) {}
}

/// A part of the link layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkPart {
    /// The first header of the link type.
    Header,
    /// A VLAN tag.
    Tag,
    /// An MPLS label.
    Label,
    /// A PPPoE session header, with the PPP protocol.
    Session,
    /// LLC and SNAP, with an EtherType.
    Snap,
}

impl HeaderVisitor for () {
    #[inline(always)]
    fn fixed(&mut self, _: usize, _: usize) {}
    #[inline(always)]
    fn fixed_bits(&mut self, _: usize, _: u8) {}
    #[inline(always)]
    fn checksum(&mut self, _: usize, _: usize, _: usize) {}
    #[inline(always)]
    fn unknown_from(&mut self, _: usize) {}
    #[inline(always)]
    fn has_other_destination(&mut self) {}
}

/// The error that the header from `at` to `end` extends beyond the given bytes.
pub(crate) struct IncompleteHeader {
    pub(crate) at: usize,
    pub(crate) end: usize,
}

/// The kind of the network layer, with the offset of its beginning.
pub(crate) enum NetworkLayer {
    Ipv4(usize),
    Ipv6(usize),
    Other(usize),
}

/// A walk over the headers of one packet.
pub(crate) struct Walk<'a, M> {
    /// The given bytes: at most `cap` and at most [`PEEK_MAX`].
    pub(crate) head: &'a [u8],
    /// The number of captured bytes.
    pub(crate) cap: usize,
    /// The number of bytes on the link; at least `cap`.
    pub(crate) wire: usize,
    /// The descriptor that the walk fills in.
    pub(crate) out: &'a mut Descriptor,
    pub(crate) visitor: &'a mut M,
}

/// The first header of a packet, or of a packet inside one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstHeader {
    /// A header of this link layer.
    Link(LinkType),
    /// The header that an EtherType names.
    Type(u16),
}

/// The bytes of a packet, or of a packet inside one.
#[derive(Clone, Copy)]
pub(crate) struct ByteRange<'a> {
    /// The first captured bytes, or all of them.
    pub(crate) head: &'a [u8],
    /// The number of captured bytes.
    pub(crate) cap: usize,
    /// The number of bytes up to the end of the packet, captured or not; less than `cap` counts as `cap`.
    pub(crate) wire: usize,
}

/// Walks over a packet that another one carries. The result goes into `out`, with offsets from the inner packet's
/// beginning.
///
/// # Errors
///
/// [`MoreHeader`] if the headers are longer than `part.head`, and more bytes were captured.
pub(crate) fn walk_inside<M: HeaderVisitor>(
    part: ByteRange<'_>,
    kind: FirstHeader,
    out: &mut Descriptor,
    visitor: &mut M,
) -> Result<(), MoreHeader> {
    let enough = part.cap.min(PEEK_MAX);
    let head = part.head.get(..enough).unwrap_or(part.head);
    *out = Descriptor::default();
    let mut walk = Walk { head, cap: part.cap, wire: part.wire.max(part.cap), out, visitor };
    let walked = match kind {
        FirstHeader::Type(ether_type) => walk.walk_ether_type(ether_type),
        FirstHeader::Link(link_type) if walk.is_plain_ipv4(link_type) => walk.ipv4(ETHERNET_HEADER),
        FirstHeader::Link(link_type) => walk.walk_link_layer(link_type),
    };
    if let Err(short) = walked {
        if head.len() < enough {
            return Err(MoreHeader);
        }
        walk.ends_early(&short);
    }
    if let FirstHeader::Link(link_type) = kind
        && walk.out.flags & (flag::IPV4 | flag::IPV6) == 0
    {
        walk.out.flow_hash = walk.link_hash(link_type);
    }
    Ok(())
}

/// Classifies as [`classify`] does, and reports to a visitor.
#[inline(always)]
pub(crate) fn walk<M: HeaderVisitor>(
    head: &[u8],
    meta: &Meta,
    out: &mut Descriptor,
    visitor: &mut M,
) -> Result<(), MoreHeader> {
    let cap = to_usize(meta.cap_len);
    let enough = cap.min(PEEK_MAX);
    let head = head.get(..enough).unwrap_or(head);
    *out = Descriptor {
        ts_ns: meta.ts.0,
        data: meta.data,
        cap_len: meta.cap_len,
        wire_len: meta.wire_len,
        flags: if meta.cap_len < meta.wire_len { flag::CUT } else { 0 },
        interface: meta.interface,
        link_type: meta.link_type.number(),
        number: low_half(meta.number),
        ..Descriptor::default()
    };
    let mut walk = Walk { head, cap, wire: to_usize(meta.wire_len).max(cap), out, visitor };
    // Most packets are IPv4 in Ethernet and take the shorter first branch; for them, both branches have the same
    // result.
    let walked = if walk.is_plain_ipv4(meta.link_type) {
        walk.ipv4(ETHERNET_HEADER)
    } else {
        walk.walk_link_layer(meta.link_type)
    };
    if let Err(short) = walked {
        if head.len() < enough {
            return Err(MoreHeader);
        }
        walk.ends_early(&short);
    }
    if walk.out.flags & (flag::IPV4 | flag::IPV6) == 0 {
        walk.out.flow_hash = walk.link_hash(meta.link_type);
    }
    Ok(())
}

impl<'a, M: HeaderVisitor> Walk<'a, M> {
    /// Walks over a packet that begins with a header of any link layer.
    #[inline(never)]
    fn walk_link_layer(&mut self, link_type: LinkType) -> Result<(), IncompleteHeader> {
        let network = self.link(link_type)?;
        self.network(network)
    }

    /// Walks over a packet that begins with the header that an EtherType names.
    #[inline(never)]
    fn walk_ether_type(&mut self, ether_type: u16) -> Result<(), IncompleteHeader> {
        let network = self.ether_type(ether_type, 0)?;
        self.network(network)
    }

    #[inline(always)]
    fn network(&mut self, network: NetworkLayer) -> Result<(), IncompleteHeader> {
        match network {
            NetworkLayer::Ipv4(at) => self.ipv4(at),
            NetworkLayer::Ipv6(at) => self.ipv6(at),
            NetworkLayer::Other(at) => {
                self.visitor.other_network(at);
                Ok(())
            }
        }
    }

    /// The `N` bytes of a header at `at`.
    #[inline(always)]
    pub(crate) fn need<const N: usize>(&self, at: usize) -> Result<&'a [u8; N], IncompleteHeader> {
        match self.head.get(at..).and_then(|rest| rest.first_chunk()) {
            Some(bytes) => Ok(bytes),
            None => Err(IncompleteHeader { at, end: at + N }),
        }
    }

    /// Marks the packet as malformed, because the header at `at` contradicts itself or the packet's length. Reports that
    /// nothing from there on is parsed; the caller has to return.
    #[cold]
    pub(crate) fn mark_malformed(&mut self, at: usize) {
        self.out.flags |= flag::MALFORMED;
        self.visitor.unknown_from(at);
    }

    /// Handles a header that ends beyond the given bytes. The packet is malformed if the packet itself ends before the
    /// header does, or if the header lies beyond [`PEEK_MAX`]. Otherwise the snapshot length has cut the header off,
    /// and the packet is valid.
    #[cold]
    fn ends_early(&mut self, short: &IncompleteHeader) {
        if short.end > self.wire || self.cap > PEEK_MAX {
            self.out.flags |= flag::MALFORMED;
        }
        self.visitor.unknown_from(short.at);
    }

    #[cold]
    fn link_hash(&self, link_type: LinkType) -> u64 {
        let (src, dst) = match (link_type, self.head.first_chunk::<12>()) {
            (LinkType::Ethernet, Some(&[a, b, c, d, e, f, g, h, i, j, k, l])) => {
                (u64::from_be_bytes([0, 0, g, h, i, j, k, l]), u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
            }
            // Cooked headers have only the sender's address, which differs between directions.
            _ => (0, 0),
        };
        flow_hash::link(src, dst, self.out.ether_type)
    }
}

/// Converts a length to an index. The conversion is exact, as `usize` has at least 32 bits.
#[inline(always)]
pub(crate) fn to_usize(bytes: u32) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Converts an offset to the descriptor's type. Offsets are below `PEEK_MAX` plus one header.
#[inline(always)]
pub(crate) fn to_offset(at: usize) -> u16 {
    u16::try_from(at).unwrap_or(u16::MAX)
}

/// The big-endian 16-bit number at `at` of a header.
#[inline(always)]
pub(crate) fn be16<const N: usize>(header: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([header[at], header[at + 1]])
}

#[inline(always)]
fn low_half(number: u64) -> u32 {
    let [a, b, c, d, ..] = number.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}
