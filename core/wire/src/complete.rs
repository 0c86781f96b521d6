//! Computation of checksums that a sender has left to its network card. `weir run` and nodes call [`complete`] before
//! they forward a packet.

use crate::checksum::{add_bytes, fold_sum};
use weir_abi::{Descriptor, flag};

/// Computes the checksum of a TCP segment or UDP datagram whose checksum field holds the sum of its pseudo header.
/// Linux hands packets in this form to network cards that compute checksums (`CHECKSUM_PARTIAL`). Packets from a
/// virtual interface of the same machine are captured in this form, and have to be completed before they are
/// forwarded. Other packets stay unchanged. If a complete checksum happens to equal that sum (one packet in 65,536),
/// a right checksum stays right.
///
/// `packet` is the whole packet that `descriptor` describes. Returns true if a checksum was computed.
pub fn complete(packet: &mut [u8], descriptor: &Descriptor) -> bool {
    let flags = descriptor.flags;
    let has = |wanted: u32| flags & wanted != 0;
    // The checksum of a part of a datagram cannot be computed. With IPv6 extension headers, the checksum may cover
    // other addresses than those of the IPv6 header.
    if !has(flag::L4) || has(flag::FRAGMENT | flag::CUT) || (has(flag::IPV6) && has(flag::OPTIONS)) {
        return false;
    }
    let field = if has(flag::TCP) {
        16
    } else if has(flag::UDP) {
        6
    } else {
        return false;
    };
    let (l3, l4) = (usize::from(descriptor.l3_offset), usize::from(descriptor.l4_offset));
    let addresses = if has(flag::IPV4) { l3 + 12..l3 + 20 } else { l3 + 8..l3 + 40 };
    let header = u32::from(descriptor.payload_offset).saturating_sub(u32::from(descriptor.l4_offset));
    let len = header.saturating_add(descriptor.payload_len);
    let Some(end) = usize::try_from(len).ok().and_then(|len| l4.checked_add(len)) else { return false };
    let (Some(addresses), Some(segment)) = (packet.get(addresses), packet.get(l4..end)) else { return false };
    let Some(&[high, low]) = segment.get(field..field + 2) else { return false };
    let pseudo = add_bytes(u64::from(descriptor.ip_proto) + u64::from(len), addresses);
    let stored = u16::from_be_bytes([high, low]);
    if stored != fold_sum(pseudo) {
        return false;
    }
    // The checksum field, which is part of the segment, already holds the sum of the pseudo header.
    let checksum = match !fold_sum(add_bytes(0, segment)) {
        // For UDP, zero means no checksum (RFC 768).
        0 if has(flag::UDP) => u16::MAX,
        checksum => checksum,
    };
    if let Some(place) = packet.get_mut(l4 + field..l4 + field + 2) {
        place.copy_from_slice(&checksum.to_be_bytes());
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LinkType, Meta, classify};
    use etherparse::{PacketBuilder, SlicedPacket, TransportSlice};
    use proptest::prelude::*;
    use weir_units::Timestamp;

    fn descriptor(packet: &[u8]) -> Descriptor {
        let len = u32::try_from(packet.len()).unwrap();
        let meta = Meta {
            ts: Timestamp(0),
            cap_len: len,
            wire_len: len,
            link_type: LinkType::Ethernet,
            interface: 0,
            number: 0,
            data: 0,
        };
        classify(packet, &meta).unwrap()
    }

    /// A packet with these bytes above its header, and the offset of its checksum.
    fn packet(is_v6: bool, is_tcp: bool, payload: &[u8]) -> (Vec<u8>, usize) {
        let link = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let ip = if is_v6 {
            link.ipv6([0xfd; 16], [0xfe; 16], 64)
        } else {
            link.ipv4([10, 0, 0, 1], [192, 0, 2, 9], 64)
        };
        let mut bytes = Vec::new();
        if is_tcp {
            ip.tcp(1000, 80, 7, 512).write(&mut bytes, payload).unwrap();
        } else {
            ip.udp(1000, 53).write(&mut bytes, payload).unwrap();
        }
        (bytes, 14 + if is_v6 { 40 } else { 20 } + if is_tcp { 16 } else { 6 })
    }

    proptest! {
        /// The result equals etherparse's, with and without padding behind the packet. A packet with a checksum stays
        /// unchanged, whether that is right or wrong.
        #[test]
        fn an_offloaded_checksum_is_computed(
            is_v6: bool, is_tcp: bool, payload in prop::collection::vec(any::<u8>(), 0..100), padding in 0..8usize, wrong: u16,
        ) {
            let (mut whole, field) = packet(is_v6, is_tcp, &payload);
            let l4 = field - if is_tcp { 16 } else { 6 };
            let len = whole.len() - l4;
            whole.extend(vec![0xaa; padding]);
            let addresses = if is_v6 { 22..54 } else { 26..34 };
            let protocol = if is_tcp { 6u64 } else { 17 };
            let pseudo = fold_sum(add_bytes(protocol + len as u64, &whole[addresses]));
            let mut partial = whole.clone();
            partial[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
            let described = descriptor(&partial);
            prop_assert!(complete(&mut partial, &described));
            prop_assert_eq!(&partial, &whole);
            let is_parsed = SlicedPacket::from_ethernet(&partial[..partial.len() - padding])
                .is_ok_and(|parsed| matches!(parsed.transport, Some(TransportSlice::Tcp(_) | TransportSlice::Udp(_))));
            prop_assert!(is_parsed);
            complete(&mut partial, &described);
            prop_assert_eq!(&partial, &whole);
            if wrong != pseudo {
                partial[field..field + 2].copy_from_slice(&wrong.to_be_bytes());
                let before = partial.clone();
                prop_assert!(!complete(&mut partial, &described));
                prop_assert_eq!(partial, before);
            }
        }

        /// For any bytes and any descriptor, nothing panics, and at most two bytes change.
        #[test]
        fn arbitrary_bytes_and_descriptors_change_at_most_two_bytes(
            mut bytes in prop::collection::vec(any::<u8>(), 0..120), described in prop::array::uniform32(any::<u8>()), flags: u32,
        ) {
            let mut raw = [0; weir_abi::DESCRIPTOR_BYTES];
            raw[16..48].copy_from_slice(&described);
            let described = Descriptor { flags, ..Descriptor::from_bytes(&raw) };
            let before = bytes.clone();
            complete(&mut bytes, &described);
            prop_assert!(before.iter().zip(&bytes).filter(|(a, b)| a != b).count() <= 2);
        }
    }

    #[test]
    fn parts_of_datagrams_stay_unchanged() {
        let (mut bytes, field) = packet(false, false, b"data");
        let mut described = descriptor(&bytes);
        let pseudo = fold_sum(add_bytes(17 + 12, &bytes[26..34]));
        bytes[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
        described.flags |= flag::FRAGMENT;
        assert!(!complete(&mut bytes, &described));
    }
}
