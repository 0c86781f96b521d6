//! Fragments and the datagrams they belong to: RFC 791, 3.2, and RFC 8200, 4.5.

use crate::classify::{HeaderVisitor, MoreHeader, walk};
use crate::meta::Meta;
use weir_abi::{Descriptor, flag};

/// A fragment of a datagram, as its headers describe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The datagram that the fragment belongs to.
    pub datagram: Datagram,
    /// The offset of the fragment's data in the datagram, in bytes.
    pub offset: u32,
    /// True if further fragments of the datagram follow.
    pub has_more: bool,
    /// The offset in the packet where the fragment's data begin.
    pub data: usize,
    /// The offset in the packet where the fragment's data end according to IP. It may be beyond the captured bytes.
    pub end: usize,
    /// The offset of the header that describes the fragment: the fragment header of IPv6, or the IPv4 header.
    pub header: usize,
    /// The offset of the next-header number that names the fragment header; in IPv4 the offset of the protocol.
    pub next_header_at: usize,
}

/// The identity of a datagram: the fields that its fragments have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Datagram {
    /// The source address; an IPv4 address is in the lowest 32 bits.
    pub src: u128,
    /// The destination address, in the same form.
    pub dst: u128,
    /// The identification.
    pub id: u32,
    /// The number of the outermost VLAN tag.
    pub vlan: Option<u16>,
    /// The protocol above IP, or the header that follows the fragment header. Only the first fragment contains
    /// the headers behind it.
    pub protocol: u8,
    /// True for IPv6.
    pub is_v6: bool,
}

impl Datagram {
    /// The least datagram in the order of this type.
    pub(crate) const LEAST: Self = Self { src: 0, dst: 0, id: 0, vlan: None, protocol: 0, is_v6: false };

    /// The sender to whose account the datagram counts in limits for each sender: an IPv4 address, or the upper 64 bits
    /// of an IPv6 address, on a VLAN. Different senders have different numbers.
    pub fn source(&self) -> u128 {
        let source = if self.is_v6 { self.src >> 64 } else { self.src };
        source << 32 | u128::from(self.is_v6) << 24 | self.vlan.map_or(1 << 16, u128::from)
    }
}

/// The information about a fragment that the parser reports: see the fields of [`Fragment`].
#[derive(Clone, Copy)]
pub(crate) struct FragmentInfo {
    pub(crate) header: usize,
    pub(crate) next_header_at: usize,
    pub(crate) data: usize,
    pub(crate) end: usize,
    pub(crate) id: u32,
    pub(crate) protocol: u8,
    pub(crate) offset: u32,
    pub(crate) has_more: bool,
}

/// A visitor that keeps the outermost fragment header. A fragment inside a tunnel belongs to another datagram.
struct FragmentVisitor(Option<FragmentInfo>);

impl HeaderVisitor for FragmentVisitor {
    fn fixed(&mut self, _: usize, _: usize) {}
    fn fixed_bits(&mut self, _: usize, _: u8) {}
    fn checksum(&mut self, _: usize, _: usize, _: usize) {}
    fn unknown_from(&mut self, _: usize) {}
    fn has_other_destination(&mut self) {}

    fn fragment(&mut self, info: FragmentInfo) {
        self.0.get_or_insert(info);
    }
}

/// The fragment in a packet; `None` if the packet is not a fragment. `head` is the first bytes of the packet that
/// `descriptor` describes.
///
/// # Errors
///
/// [`MoreHeader`] requests another call with `min(cap_len, PEEK_MAX)` bytes. A call with this number of bytes, or more,
/// never returns it.
pub fn fragment(head: &[u8], descriptor: &Descriptor) -> Result<Option<Fragment>, MoreHeader> {
    if descriptor.flags & flag::FRAGMENT == 0 {
        return Ok(None);
    }
    let Some(meta) = Meta::from_descriptor(descriptor) else { return Ok(None) };
    // The bytes may have changed since they were described, so they are parsed again.
    let (mut reparsed, mut visitor) = (Descriptor::default(), FragmentVisitor(None));
    walk(head, &meta, &mut reparsed, &mut visitor)?;
    let Some((info, (src, dst))) = visitor.0.zip(addresses(head, &reparsed)) else { return Ok(None) };
    let datagram = Datagram {
        src,
        dst,
        id: info.id,
        vlan: (reparsed.flags & flag::VLAN != 0).then_some(reparsed.vlan_tci & 0xfff),
        protocol: info.protocol,
        is_v6: reparsed.flags & flag::IPV6 != 0,
    };
    Ok(Some(Fragment {
        datagram,
        offset: info.offset,
        has_more: info.has_more,
        data: info.data,
        end: info.end,
        header: info.header,
        next_header_at: info.next_header_at,
    }))
}

/// The source and destination addresses of the outermost IP header; IPv4 addresses are in the lowest 32 bits. `None`
/// if there is no IP header, or if `head` ends before the IP header does. `head` is the first bytes of the packet that
/// `descriptor` describes.
pub fn addresses(head: &[u8], descriptor: &Descriptor) -> Option<(u128, u128)> {
    let ip = head.get(usize::from(descriptor.l3_offset)..)?;
    match descriptor.flags & (flag::IPV4 | flag::IPV6) {
        flag::IPV4 => {
            let at = |at: usize| ip.get(at..)?.first_chunk().map(|&bytes| u32::from_be_bytes(bytes).into());
            at(12).zip(at(16))
        }
        flag::IPV6 => {
            let at = |at: usize| ip.get(at..)?.first_chunk().map(|&bytes| u128::from_be_bytes(bytes));
            at(8).zip(at(24))
        }
        _ => None,
    }
}
