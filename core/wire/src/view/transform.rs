//! The transformation of packets under a view.

use super::anonymise::Anonymiser;
use super::key::ViewKey;
use super::packet_rewriter::PacketRewriter;
use super::{Addresses, PacketView};
use crate::classify::{FirstHeader, classify_into, to_usize};
use crate::meta::{LinkType, Meta};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use weir_abi::{Descriptor, tunnel};
use weir_units::Bytes;

/// A transformation of packets under a [`PacketView`].
///
/// Headers are copied one by one as the parser reports them, each without its hidden fields. Under every view but
/// `all`, unknown options are replaced by padding, and the contents of unknown extension headers are zeroed. After the
/// last header:
///
/// - Payload is copied as far as the view shows payload.
/// - Bytes that the parser does not understand are not copied if the view hides header fields, because they may
///   contain such fields.
/// - If the view hides only payload, bytes that the parser does not understand count as payload. Behind a known
///   transport protocol they are copied as far as the view shows payload. Elsewhere they can contain a checksum over
///   all of them, which cannot be recomputed. So there they are copied only if all are captured and visible.
///
/// Bytes behind MPLS labels count as understood only if they are an IP packet with consistent lengths and, for IPv4,
/// a right header checksum. If they are not, only the first label counts as understood.
///
/// Bytes keep their offsets, so a packet is only ever truncated at its end, and length fields keep their values.
///
/// A checksum over fields that may have been hidden is recomputed, even if it was wrong, so that it reveals nothing
/// about them. A checksum over bytes that are not copied, or were not captured, becomes 0. Both rules also apply to
/// the packets that carry the changed packet in a tunnel. A UDP checksum of 0 stays 0.
///
/// A clone has the same key and gives the same results, with caches of its own.
#[derive(Clone, Debug)]
pub struct Transform {
    view: PacketView,
    anonymiser: Option<Box<Anonymiser>>,
    /// The key of [`flow_hash`](Self::flow_hash); each number is odd.
    flow_hash_key: [u64; 3],
}

/// The extent of the visible part of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownPart {
    /// The number of bytes that are written to the beginning of the output.
    pub len: usize,
    /// The packet's length on the link in bytes. A view does not hide lengths.
    pub wire_len: u32,
}

impl Transform {
    /// Creates a transformation with caches of addresses, if it anonymises: see [`memory`](Self::memory).
    pub fn new(view: PacketView, key: &ViewKey) -> Self {
        let (numbers, _) = key.flow_hash.as_chunks::<8>();
        let flow_hash_key =
            std::array::from_fn(|i| numbers.get(i).copied().map_or(1, u64::from_le_bytes) | 1);
        Self { view, anonymiser: Anonymiser::for_view(view.addresses, key).map(Box::new), flow_hash_key }
    }

    /// Changes the view. The new view must have the same visibility of addresses as the present one, because the
    /// anonymiser stays.
    pub fn set_view(&mut self, view: PacketView) {
        self.view = view;
    }

    /// The view that is applied.
    pub fn view(&self) -> &PacketView {
        &self.view
    }

    /// The memory of the caches of addresses, which is constant.
    pub fn memory(&self) -> Bytes {
        self.anonymiser.as_ref().map_or(Bytes(0), |anonymiser| anonymiser.memory())
    }

    /// The address that replaces `address` in the visible part of packets.
    pub fn address(&mut self, address: IpAddr) -> IpAddr {
        match (self.anonymiser.as_deref_mut(), address) {
            (None, _) if self.view.addresses == Addresses::Visible => address,
            (None, IpAddr::V4(_)) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            (None, IpAddr::V6(_)) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            (Some(anonymiser), IpAddr::V4(address)) => IpAddr::V4(anonymiser.ipv4(address.into()).into()),
            (Some(anonymiser), IpAddr::V6(address)) => IpAddr::V6(anonymiser.ipv6(address.into()).into()),
        }
    }

    /// Writes the visible part of a packet to the beginning of `out`, and returns its extent. `packet` is all
    /// captured bytes of the packet that `descriptor` describes; they must not change meanwhile.
    ///
    /// `out` must not be accessible to the holder yet: during the call it can contain hidden bytes. After the call, the
    /// returned extent contains none. If `out` is shorter than the visible part, only its beginning is written.
    pub fn apply(&mut self, packet: &[u8], descriptor: &Descriptor, out: &mut [u8]) -> ShownPart {
        let wire_len = descriptor.wire_len;
        let len = packet.len().min(to_usize(descriptor.cap_len)).min(out.len());
        let (packet, out) = (packet.get(..len).unwrap_or_default(), out.get_mut(..len).unwrap_or_default());
        if self.view == PacketView::ALL {
            out.copy_from_slice(packet);
            return ShownPart { len, wire_len };
        }
        let Ok(link_type) = LinkType::try_from(u32::from(descriptor.link_type)) else {
            return ShownPart { len: 0, wire_len };
        };
        let mut rewriter = PacketRewriter::new(&self.view, self.anonymiser.as_deref_mut(), packet, out);
        rewriter.packet(0, to_usize(wire_len).max(len), FirstHeader::Link(link_type), 0);
        ShownPart { len: rewriter.copied(), wire_len }
    }

    /// Describes the visible part of a packet from the visible bytes only. `original`, the descriptor of the whole
    /// packet, provides the metadata: time, length on the link, link type, interface, number and guest address.
    pub fn describe(&self, shown: &[u8], original: &Descriptor) -> Descriptor {
        let mut descriptor = Descriptor::default();
        let cap_len = u32::try_from(shown.len()).unwrap_or(u32::MAX);
        // The captured bytes of `meta` are the visible ones, so the classifier cannot fail for a lack of bytes.
        if let Some(meta) = Meta::from_descriptor(&Descriptor { cap_len, ..*original })
            && classify_into(shown, &meta, &mut descriptor).is_ok()
        {
            descriptor.flow_hash = self.flow_hash(descriptor.flow_hash);
            if descriptor.tunnel != tunnel::NONE {
                descriptor.inner_flow_hash = self.flow_hash(descriptor.inner_flow_hash);
            }
        }
        descriptor
    }

    /// The flow hash that the holder of this view sees, computed from the flow hash of the visible bytes. Different
    /// hashes stay different, and each key gives another mapping.
    pub fn flow_hash(&self, hash: u64) -> u64 {
        // Multiplication by odd numbers and XOR with shifted bits are invertible, so this only permutes the hashes.
        let [a, b, c] = self.flow_hash_key;
        let hash = (hash ^ a).wrapping_mul(b);
        let hash = (hash ^ hash >> 32).wrapping_mul(c);
        hash ^ hash >> 29
    }
}
