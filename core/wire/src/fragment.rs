//! What a fragment's headers say of the datagram that it belongs to: RFC 791, 3.2, and RFC 8200, 4.5.

use crate::classify::{Marks, MoreHeader, walk};
use crate::meta::Meta;
use weir_abi::{Descriptor, flag};

/// A part of a datagram, as its headers describe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// To which datagram it belongs.
    pub datagram: Datagram,
    /// Where its data belong in the datagram, in bytes.
    pub offset: u32,
    /// Whether there is more behind it.
    pub has_more: bool,
    /// Where its data begin in the packet …
    pub data: usize,
    /// … and end, as far as IP knows: that may be beyond what is captured.
    pub end: usize,
    /// Where the header begins that says all this: the fragment header of IPv6, or the IPv4 header.
    pub header: usize,
    /// Where the number of the next header stands that names the fragment header; in IPv4 where the protocol stands.
    pub named_at: usize,
}

/// By what the fragments of a datagram are known, on their VLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Datagram {
    /// Source address; one of IPv4 in the lowest 32 bits.
    pub src: u128,
    /// Destination address, likewise.
    pub dst: u128,
    /// The identification.
    pub id: u32,
    /// The number of the outermost VLAN tag.
    pub vlan: Option<u16>,
    /// The protocol above IP, or the header that follows the fragment header: all that later fragments know of the rest.
    pub protocol: u8,
    /// IPv6.
    pub is_v6: bool,
}

impl Datagram {
    /// The least in order.
    pub(crate) const LEAST: Self = Self { src: 0, dst: 0, id: 0, vlan: None, protocol: 0, is_v6: false };

    /// Who has to answer for it: an address, or the network that a subscriber has in IPv6, on a VLAN. No two sources have one number.
    pub fn source(&self) -> u128 {
        let source = if self.is_v6 { self.src >> 64 } else { self.src };
        source << 32 | u128::from(self.is_v6) << 24 | self.vlan.map_or(1 << 16, u128::from)
    }
}

/// What the parser tells of a fragment.
#[derive(Clone, Copy)]
pub(crate) struct FragmentInfo {
    pub(crate) header: usize,
    pub(crate) named_at: usize,
    pub(crate) data: usize,
    pub(crate) end: usize,
    pub(crate) id: u32,
    pub(crate) protocol: u8,
    pub(crate) offset: u32,
    pub(crate) has_more: bool,
}

/// Keeps the first piece: a fragment within a fragment is somebody else's.
struct Listener(Option<FragmentInfo>);

impl Marks for Listener {
    fn fixed(&mut self, _: usize, _: usize) {}
    fn fixed_bits(&mut self, _: usize, _: u8) {}
    fn checksum(&mut self, _: usize, _: usize, _: usize) {}
    fn unknown_from(&mut self, _: usize) {}
    fn routed(&mut self) {}

    fn fragment(&mut self, piece: FragmentInfo) {
        self.0.get_or_insert(piece);
    }
}

/// What a fragment says; nothing for what is no fragment. `head` are the first bytes of the packet that `descriptor` describes.
///
/// # Errors
///
/// [`MoreHeader`] asks to be called again with `min(cap_len, PEEK_MAX)` bytes; with that many, or more, it is never returned.
pub fn fragment(head: &[u8], descriptor: &Descriptor) -> Result<Option<Fragment>, MoreHeader> {
    if descriptor.flags & flag::FRAGMENT == 0 {
        return Ok(None);
    }
    let Some(meta) = Meta::of(descriptor) else { return Ok(None) };
    // The bytes may have changed since they were described: what counts is what they are now.
    let (mut now, mut listener) = (Descriptor::default(), Listener(None));
    walk(head, &meta, &mut now, &mut listener)?;
    let Some((piece, (src, dst))) = listener.0.zip(addresses(head, &now)) else { return Ok(None) };
    let datagram = Datagram {
        src,
        dst,
        id: piece.id,
        vlan: (now.flags & flag::VLAN != 0).then_some(now.vlan_tci & 0xfff),
        protocol: piece.protocol,
        is_v6: now.flags & flag::IPV6 != 0,
    };
    Ok(Some(Fragment {
        datagram,
        offset: piece.offset,
        has_more: piece.has_more,
        data: piece.data,
        end: piece.end,
        header: piece.header,
        named_at: piece.named_at,
    }))
}

/// Source and destination address of the outermost IP header, those of IPv4 in the lowest 32 bits. Nothing where there is none, or where
/// `head`, the first bytes of the packet that `descriptor` describes, ends before.
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
