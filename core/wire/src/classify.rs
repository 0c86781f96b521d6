//! From the first bytes of a packet to its descriptor.

use crate::flow_hash;
use crate::fragment::FragmentInfo;
use crate::link::ETHERNET_HEADER;
use crate::meta::{LinkType, Meta};
use crate::tunnel;
use crate::upper::Upper;
use weir_abi::{Descriptor, flag};

/// Bytes that are enough for nearly all packets: Ethernet, IPv4 and a TCP header with all options are 94.
pub const PEEK: usize = 96;

/// Bytes that are always enough: of a longer chain of headers the rest is not looked at, and the packet is `MALFORMED`.
/// This is also what bounds every loop of the parser. With it the counts of tags and labels fit their fields.
pub const PEEK_MAX: usize = 1024;

/// The headers are longer than the bytes that were given: call again with `min(cap_len, PEEK_MAX)` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the packet's headers are longer than the bytes given; give the first {PEEK_MAX} bytes, or all if there are fewer"
)]
pub struct MoreHeader;

/// Describes a packet.
///
/// `head` is a private copy of the first bytes of the packet, normally `min(cap_len, PEEK)` of them: it is read more than once,
/// so nobody may change it meanwhile. More bytes never change the answer.
///
/// # Errors
///
/// [`MoreHeader`] asks to be called again with `min(cap_len, PEEK_MAX)` bytes; with that many, or more, it is never returned.
///
/// # What is decided here
///
/// - An IPv4 header with an impossible version or length, and an IPv6 header with an impossible version, is no IP: the packet
///   has neither flag, is `MALFORMED`, and its flow hash is that of the link header.
/// - An IPv4 total length of 0 (segmentation offload), and an IPv6 payload length of 0 with something after it (jumbogram, BIG
///   TCP), mean that the packet reaches as far as the link says.
/// - Ports and TCP flags are filled in as soon as they are captured, also where the rest of the header is not (no `L4` then).
/// - `payload_len` of UDP ends where the UDP length says, if that is inside the packet.
/// - An IPv6 fragment header that says "offset 0, no more fragments" is no fragment (RFC 6946).
/// - The fields about tunnels are those of the innermost IP header that is found within [`TUNNELS_MAX`](crate::TUNNELS_MAX) tunnels and the first
///   [`PEEK_MAX`] bytes. A tunnel over UDP is one by its port, and by a consistent packet in it.
/// - Fields that are not valid are 0.
pub fn classify(head: &[u8], meta: &Meta) -> Result<Descriptor, MoreHeader> {
    let mut out = Descriptor::default();
    classify_into(head, meta, &mut out).map(|()| out)
}

/// [`classify`], straight into where the descriptor has to go: this is the faster of the two, since nothing is copied.
///
/// # Errors
///
/// As [`classify`]; `out` then holds nothing of use.
pub fn classify_into(head: &[u8], meta: &Meta, out: &mut Descriptor) -> Result<(), MoreHeader> {
    walk(head, meta, out, &mut ())?;
    // No other packet pays for the way into tunnels.
    if tunnel::may_carry(out) {
        return tunnel::follow(head, meta, out);
    }
    Ok(())
}

/// What the parser tells whoever wants to know which bytes decided how it went on. For `()`, this costs nothing.
pub(crate) trait Marks {
    /// These bytes must stay as they are.
    fn fixed(&mut self, at: usize, len: usize);
    /// These bits of this byte must stay as they are.
    fn fixed_bits(&mut self, at: usize, mask: u8);
    /// The header above IP has its checksum at `field`, over `from..end` and, but for ICMP, the addresses.
    fn checksum(&mut self, field: usize, from: usize, end: usize);
    /// From here on nothing is understood.
    fn unknown_from(&mut self, at: usize);
    /// The destination address of the IP header is not the last one: a routing header has that.
    fn routed(&mut self);
    /// The packet is part of a datagram.
    #[inline(always)]
    fn fragment(&mut self, _: FragmentInfo) {}
    /// A part of the link layer, of so many bytes, all of which are there.
    #[inline(always)]
    fn link(&mut self, _: LinkPart, _at: usize, _len: usize) {}
    /// Behind MPLS labels, at `at` of a packet that had `wire` bytes, is what begins as IP does, and nothing else says that it is. Whether it counts as IP.
    #[inline(always)]
    fn is_ip_behind_labels(&mut self, _at: usize, _wire: usize) -> bool {
        true
    }
    /// What follows the link layer is neither IPv4 nor IPv6.
    #[inline(always)]
    fn other(&mut self, _at: usize) {}
    /// The IPv4 header at `at`, with options up to `data`, of a packet up to `end`. Its fixed part is there, and consistent.
    #[inline(always)]
    fn ipv4(&mut self, _at: usize, _data: usize, _end: usize) {}
    /// The IPv6 header at `at`, of a packet up to `end`. It is there.
    #[inline(always)]
    fn ipv6(&mut self, _at: usize, _end: usize) {}
    /// An IPv6 extension header, inside the packet.
    #[inline(always)]
    fn extension(&mut self, _protocol: u8, _at: usize, _len: usize) {}
    /// What is above IP; that of a later fragment too.
    #[inline(always)]
    fn upper(&mut self, _: Upper) {}
}

/// A part of the link layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkPart {
    /// What a packet of its link type begins with.
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

impl Marks for () {
    #[inline(always)]
    fn fixed(&mut self, _: usize, _: usize) {}
    #[inline(always)]
    fn fixed_bits(&mut self, _: usize, _: u8) {}
    #[inline(always)]
    fn checksum(&mut self, _: usize, _: usize, _: usize) {}
    #[inline(always)]
    fn unknown_from(&mut self, _: usize) {}
    #[inline(always)]
    fn routed(&mut self) {}
}

/// The header that begins at `at` would have to reach to `end`, and the bytes end before.
pub(crate) struct Short {
    pub(crate) at: usize,
    pub(crate) end: usize,
}

/// What comes after the link-layer headers, and where.
pub(crate) enum NetworkLayer {
    Ipv4(usize),
    Ipv6(usize),
    Other(usize),
}

/// One packet while it is walked through.
pub(crate) struct Walk<'a, M> {
    /// The bytes that can be looked at: at most `cap` and at most [`PEEK_MAX`].
    pub(crate) head: &'a [u8],
    /// Bytes captured.
    pub(crate) cap: usize,
    /// Bytes on the link; not less than `cap`.
    pub(crate) wire: usize,
    pub(crate) out: &'a mut Descriptor,
    pub(crate) marks: &'a mut M,
}

/// What a packet, or one inside it, begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NetworkKind {
    /// A header of this link layer.
    Link(LinkType),
    /// The header that an EtherType names.
    Type(u16),
}

/// The bytes of a packet, or of one inside it.
#[derive(Clone, Copy)]
pub(crate) struct ByteRange<'a> {
    /// The first of the captured bytes, or all of them.
    pub(crate) head: &'a [u8],
    /// Bytes captured.
    pub(crate) cap: usize,
    /// Bytes that the packet may have had; less than `cap` counts as `cap`.
    pub(crate) wire: usize,
}

/// Walks through a packet that another one carries. The result goes into `out`, with offsets from the packet's beginning.
///
/// # Errors
///
/// [`MoreHeader`] where the headers are longer than `part.head`, and that is shorter than the captured bytes.
pub(crate) fn walk_inside<M: Marks>(
    part: ByteRange<'_>,
    kind: NetworkKind,
    out: &mut Descriptor,
    marks: &mut M,
) -> Result<(), MoreHeader> {
    let enough = part.cap.min(PEEK_MAX);
    let head = part.head.get(..enough).unwrap_or(part.head);
    *out = Descriptor::default();
    let mut walk = Walk { head, cap: part.cap, wire: part.wire.max(part.cap), out, marks };
    let walked = match kind {
        NetworkKind::Type(ether_type) => walk.inside(ether_type),
        NetworkKind::Link(link_type) if walk.is_plain_ipv4(link_type) => walk.ipv4(ETHERNET_HEADER),
        NetworkKind::Link(link_type) => walk.any(link_type),
    };
    if let Err(short) = walked {
        if head.len() < enough {
            return Err(MoreHeader);
        }
        walk.ends_early(&short);
    }
    if let NetworkKind::Link(link_type) = kind
        && walk.out.flags & (flag::IPV4 | flag::IPV6) == 0
    {
        walk.out.flow_hash = walk.link_hash(link_type);
    }
    Ok(())
}

/// [`classify`], with somebody listening.
#[inline(always)]
pub(crate) fn walk<M: Marks>(
    head: &[u8],
    meta: &Meta,
    out: &mut Descriptor,
    marks: &mut M,
) -> Result<(), MoreHeader> {
    let cap = size(meta.cap_len);
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
    let mut walk = Walk { head, cap, wire: size(meta.wire_len).max(cap), out, marks };
    // What most packets are goes through in a straight line; both ways lead through the same code.
    let walked = if walk.is_plain_ipv4(meta.link_type) {
        walk.ipv4(ETHERNET_HEADER)
    } else {
        walk.any(meta.link_type)
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

impl<'a, M: Marks> Walk<'a, M> {
    #[inline(never)]
    fn any(&mut self, link_type: LinkType) -> Result<(), Short> {
        let network = self.link(link_type)?;
        self.network(network)
    }

    #[inline(never)]
    fn inside(&mut self, ether_type: u16) -> Result<(), Short> {
        let network = self.ether_type(ether_type, 0)?;
        self.network(network)
    }

    #[inline(always)]
    fn network(&mut self, network: NetworkLayer) -> Result<(), Short> {
        match network {
            NetworkLayer::Ipv4(at) => self.ipv4(at),
            NetworkLayer::Ipv6(at) => self.ipv6(at),
            NetworkLayer::Other(at) => {
                self.marks.other(at);
                Ok(())
            }
        }
    }

    /// The `N` bytes of a header at `at`.
    #[inline(always)]
    pub(crate) fn need<const N: usize>(&self, at: usize) -> Result<&'a [u8; N], Short> {
        match self.head.get(at..).and_then(|rest| rest.first_chunk()) {
            Some(bytes) => Ok(bytes),
            None => Err(Short { at, end: at + N }),
        }
    }

    /// The header at `at` contradicts itself or the packet's length, and what comes after it is not looked at.
    #[cold]
    pub(crate) fn stop(&mut self, at: usize) {
        self.out.flags |= flag::MALFORMED;
        self.marks.unknown_from(at);
    }

    /// A header that the snapshot length cut off is nobody's fault; one that the packet itself cuts off, or that lies
    /// beyond what is looked at, is malformed.
    #[cold]
    fn ends_early(&mut self, short: &Short) {
        if short.end > self.wire || self.cap > PEEK_MAX {
            self.out.flags |= flag::MALFORMED;
        }
        self.marks.unknown_from(short.at);
    }

    #[cold]
    fn link_hash(&self, link_type: LinkType) -> u64 {
        let (src, dst) = match (link_type, self.head.first_chunk::<12>()) {
            (LinkType::Ethernet, Some(&[a, b, c, d, e, f, g, h, i, j, k, l])) => {
                (u64::from_be_bytes([0, 0, g, h, i, j, k, l]), u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
            }
            // Cooked headers name the sender only, which is another one in the other direction.
            _ => (0, 0),
        };
        flow_hash::link(src, dst, self.out.ether_type)
    }
}

/// A length as an index; exact wherever addresses have at least 32 bits.
#[inline(always)]
pub(crate) fn size(bytes: u32) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// An offset as the descriptor holds it; offsets are below `PEEK_MAX` plus one header.
#[inline(always)]
pub(crate) fn offset(at: usize) -> u16 {
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
