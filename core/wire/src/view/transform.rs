//! A view, applied to packets.

use super::anonymise::Anonymiser;
use super::key::ViewKey;
use super::scene::PacketRewriter;
use super::{Addresses, PacketView};
use crate::classify::{NetworkKind, classify_into, size};
use crate::meta::{LinkType, Meta};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use weir_abi::{Descriptor, tunnel};
use weir_units::Bytes;

/// Makes of packets what a [`PacketView`] shows of them.
///
/// Nothing is shown that is not understood: bytes are let through header by header, as the parser comes by, and each header without what the
/// view hides. Where the parser stops, so does what is shown; a view that hides nothing but payload counts the bytes from there on as payload, and shows them
/// all or not at all. Behind MPLS labels only what is exactly an IP packet is understood; without one behind them, only the first label. Options and
/// extension headers that are not known are zeroed, whatever else the view hides.
/// What is shown keeps its place, so a packet is only ever cut at its end, and lengths say what they said.
///
/// Checksums over anything that is hidden are computed anew, also where they were wrong, so that they tell nothing of what was there; those over
/// bytes that are not shown, or that were not captured, become 0. That goes for the checksums of all packets around what is hidden. A UDP checksum of 0
/// stays 0.
///
/// A clone has the same key and shows the same, with a memory of its own.
#[derive(Clone, Debug)]
pub struct Transform {
    view: PacketView,
    anonymiser: Option<Box<Anonymiser>>,
    flow: [u64; 3],
}

/// How much of a packet is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownPart {
    /// Bytes that were written, from the first one on.
    pub len: usize,
    /// Bytes that the packet had on the link. A view does not hide lengths.
    pub wire_len: u32,
}

impl Transform {
    /// With a memory of addresses of its own, if it anonymises: see [`memory`](Self::memory).
    pub fn new(view: PacketView, key: &ViewKey) -> Self {
        let (words, _) = key.flow.as_chunks::<8>();
        let flow = std::array::from_fn(|i| words.get(i).copied().map_or(1, u64::from_le_bytes) | 1);
        Self { view, anonymiser: Anonymiser::of(view.addresses, key).map(Box::new), flow }
    }

    /// Shows something else from now on. Addresses have to be shown as before.
    pub fn set_view(&mut self, view: PacketView) {
        self.view = view;
    }

    /// What it shows.
    pub fn view(&self) -> &PacketView {
        &self.view
    }

    /// The memory that it has for addresses: as much from the start on as ever.
    pub fn memory(&self) -> Bytes {
        self.anonymiser.as_ref().map_or(Bytes(0), |anonymiser| anonymiser.memory())
    }

    /// The address that stands for another one in what is shown.
    pub fn address(&mut self, address: IpAddr) -> IpAddr {
        match (self.anonymiser.as_deref_mut(), address) {
            (None, _) if self.view.addresses == Addresses::Visible => address,
            (None, IpAddr::V4(_)) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            (None, IpAddr::V6(_)) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            (Some(anonymiser), IpAddr::V4(address)) => IpAddr::V4(anonymiser.ipv4(address.into()).into()),
            (Some(anonymiser), IpAddr::V6(address)) => IpAddr::V6(anonymiser.ipv6(address.into()).into()),
        }
    }

    /// Writes what may be seen of a packet to the beginning of `out`, and says how much that is. `packet` are all captured bytes of the packet that
    /// `descriptor` describes; nobody may change them meanwhile.
    ///
    /// `out` must not be where the holder can look yet: hidden bytes may stand in it while this runs, though never in what is shown when it
    /// returns. Where it is shorter than the packet, less is shown.
    pub fn apply(&mut self, packet: &[u8], descriptor: &Descriptor, out: &mut [u8]) -> ShownPart {
        let wire_len = descriptor.wire_len;
        let len = packet.len().min(size(descriptor.cap_len)).min(out.len());
        let (packet, out) = (packet.get(..len).unwrap_or_default(), out.get_mut(..len).unwrap_or_default());
        if self.view == PacketView::ALL {
            out.copy_from_slice(packet);
            return ShownPart { len, wire_len };
        }
        let Ok(link_type) = LinkType::try_from(u32::from(descriptor.link_type)) else {
            return ShownPart { len: 0, wire_len };
        };
        let mut scene = PacketRewriter::new(&self.view, self.anonymiser.as_deref_mut(), packet, out);
        scene.packet(0, size(wire_len).max(len), NetworkKind::Link(link_type), 0);
        ShownPart { len: scene.shown(), wire_len }
    }

    /// Describes what is shown of a packet, from the bytes that are shown and from nothing else; `like` has what is known of it besides: time,
    /// length on the link, link type, interface, number and guest address.
    pub fn describe(&self, shown: &[u8], like: &Descriptor) -> Descriptor {
        let mut descriptor = Descriptor::default();
        let cap_len = u32::try_from(shown.len()).unwrap_or(u32::MAX);
        // All bytes are always enough for the parser.
        if let Some(meta) = Meta::of(&Descriptor { cap_len, ..*like })
            && classify_into(shown, &meta, &mut descriptor).is_ok()
        {
            descriptor.flow_hash = self.flow_hash(descriptor.flow_hash);
            if descriptor.tunnel != tunnel::NONE {
                descriptor.inner_flow_hash = self.flow_hash(descriptor.inner_flow_hash);
            }
        }
        descriptor
    }

    /// The flow hash as this view's holder sees it, of that of the bytes that are shown. Equal ones stay equal, different ones different; two
    /// views have nothing in common.
    pub fn flow_hash(&self, hash: u64) -> u64 {
        // Odd factors and shifted bits are undone by others, so this only puts the hashes in another order.
        let [a, b, c] = self.flow;
        let hash = (hash ^ a).wrapping_mul(b);
        let hash = (hash ^ hash >> 32).wrapping_mul(c);
        hash ^ hash >> 29
    }
}
