//! Completion of checksums that the sending host has left to its network card (checksum offload).

use crate::checksum::ChecksumStatus;
use weir_abi::{Descriptor, flag, tunnel};
use weir_wire::{LinkType, Meta};

const SCTP: u8 = 132;
/// The offset of the checksum in an SCTP header.
const SCTP_FIELD: usize = 8;
const SCTP_HEADER: usize = 12;

/// Completes the one checksum of a packet that a host leaves open for its network card to compute: that of the packet
/// itself, or that of the packet inside its innermost tunnel. The host has computed all other checksums as if this
/// one were complete.
///
/// Returns false if the kernel reports an open checksum that cannot be computed.
///
/// A checksum that the kernel reports as complete stays unchanged. If the kernel reports nothing, a checksum counts as
/// open if its field holds the sum of the pseudo header.
pub fn finish_checksum(packet: &mut [u8], descriptor: &Descriptor, checksum: ChecksumStatus) -> bool {
    if checksum == ChecksumStatus::Complete {
        return true;
    }
    let is_offloaded = checksum == ChecksumStatus::Offloaded;
    // Only a whole packet has all bytes that the checksum covers.
    let is_whole = descriptor.flags & (flag::CUT | flag::FRAGMENT | flag::MALFORMED) == 0;
    if weir_wire::complete(packet, descriptor) {
        return true;
    }
    if descriptor.tunnel == tunnel::NONE {
        return !is_offloaded || is_whole && compute(packet, descriptor);
    }
    if descriptor.flags & (flag::CUT | flag::FRAGMENT) == 0
        && let Some(inside) = packet.get_mut(usize::from(descriptor.inner_offset)..)
        && let Ok(descriptor) = weir_wire::classify(inside, &Meta::of_whole(inside, LinkType::Raw))
        && descriptor.flags & flag::MALFORMED == 0
    {
        let is_part = descriptor.flags & flag::FRAGMENT != 0;
        return weir_wire::complete(inside, &descriptor)
            || !is_offloaded
            || !is_part && compute(inside, &descriptor);
    }
    !is_offloaded
}

/// Computes the checksum above IP that the kernel reports as open. Returns false if that is impossible.
///
/// The TCP or UDP field holds the sum of the pseudo header, also behind a routing header: the kernel has summed the
/// final address.
fn compute(packet: &mut [u8], descriptor: &Descriptor) -> bool {
    let has = |wanted: u32| descriptor.flags & wanted != 0;
    if !has(flag::L4) {
        return false;
    }
    let from = usize::from(descriptor.l4_offset);
    let header = usize::from(descriptor.payload_offset.saturating_sub(descriptor.l4_offset));
    let end = usize::try_from(descriptor.payload_len).ok().map(|len| from + header.saturating_add(len));
    let Some(segment) = end.and_then(|end| packet.get_mut(from..end)) else { return false };
    if has(flag::TCP) {
        put_sum(segment, 16, false)
    } else if has(flag::UDP) {
        put_sum(segment, 6, true)
    } else if descriptor.ip_proto == SCTP && segment.len() >= SCTP_HEADER {
        let Some(field) = segment.get_mut(SCTP_FIELD..SCTP_HEADER) else { return false };
        field.fill(0);
        // RFC 9260, appendix A: the least significant byte comes first.
        let crc = crc32c(segment).to_le_bytes();
        segment.get_mut(SCTP_FIELD..SCTP_HEADER).is_some_and(|field| {
            field.copy_from_slice(&crc);
            true
        })
    } else {
        false
    }
}

/// Writes the Internet checksum (RFC 1071) of a segment into its field, which holds the sum of the pseudo header. For
/// UDP a result of zero is written as 0xffff, because zero means no checksum (RFC 768).
fn put_sum(segment: &mut [u8], field: usize, is_udp: bool) -> bool {
    let words = segment.chunks(2).map(|word| match *word {
        [high, low] => u64::from(u16::from_be_bytes([high, low])),
        [high] => u64::from(high) << 8,
        _ => 0,
    });
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let checksum = match !u16::try_from(sum).unwrap_or(u16::MAX) {
        0 if is_udp => u16::MAX,
        checksum => checksum,
    };
    let Some(place) = segment.get_mut(field..field + 2) else { return false };
    place.copy_from_slice(&checksum.to_be_bytes());
    true
}

/// The CRC32c of RFC 9260, appendix A. Computed bit by bit: few interfaces offload it, so speed does not matter.
fn crc32c(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::classify;

    /// An IPv4 packet, or an IPv6 packet with extension headers, that carries `segment`.
    fn packet(is_v6: bool, protocol: u8, extensions: &[u8], segment: &[u8]) -> Vec<u8> {
        let mut packet = if is_v6 {
            let len = u16::try_from(extensions.len() + segment.len()).unwrap().to_be_bytes();
            let next = if extensions.is_empty() { protocol } else { 60 };
            [&[0x60, 0, 0, 0, len[0], len[1], next, 64][..], &[0xfd; 32]].concat()
        } else {
            let len = u16::try_from(20 + segment.len()).unwrap().to_be_bytes();
            [&[0x45, 0, len[0], len[1], 0, 0, 0, 0, 64, protocol, 0, 0][..], &[10; 8]].concat()
        };
        packet.extend_from_slice(extensions);
        packet.extend_from_slice(segment);
        packet
    }

    fn finished(mut packet: Vec<u8>, checksum: ChecksumStatus) -> (bool, Vec<u8>) {
        let descriptor = classify(&packet, &Meta::of_whole(&packet, LinkType::Raw)).unwrap();
        let is_complete = finish_checksum(&mut packet, &descriptor, checksum);
        (is_complete, packet)
    }

    /// The ones' complement sum of 16-bit words.
    fn sum(words: impl Iterator<Item = u32>) -> u16 {
        let mut sum: u32 = words.sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        u16::try_from(sum).unwrap()
    }

    fn words(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
        bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | word.get(1).map_or(0, |&low| u32::from(low)))
    }

    /// A TCP or UDP segment whose checksum field holds the sum of its pseudo header, and that sum.
    fn open(is_v6: bool, is_tcp: bool) -> (Vec<u8>, u16) {
        let mut segment = vec![7; 33];
        if is_tcp {
            segment[12] = 0x50;
        } else {
            segment[4..6].copy_from_slice(&33_u16.to_be_bytes());
        }
        let addresses = if is_v6 { vec![0xfd; 32] } else { vec![10; 8] };
        let pseudo = sum(words(&addresses).chain([33, if is_tcp { 6 } else { 17 }]));
        let field = if is_tcp { 16 } else { 6 };
        segment[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
        (segment, pseudo)
    }

    #[test]
    fn a_finished_checksum_that_happens_to_be_the_sum_of_the_pseudo_header_stays_as_it_came() {
        for (is_v6, is_tcp) in [(false, false), (false, true), (true, false), (true, true)] {
            let (segment, pseudo) = open(is_v6, is_tcp);
            let before = packet(is_v6, if is_tcp { 6 } else { 17 }, &[], &segment);
            assert_eq!(finished(before.clone(), ChecksumStatus::Complete), (true, before.clone()));
            for checksum in [ChecksumStatus::Offloaded, ChecksumStatus::Unknown] {
                let (is_complete, after) = finished(before.clone(), checksum);
                let l4 = after.len() - segment.len();
                // A receiver's check (RFC 1071): all words and the pseudo header sum up to 0xffff.
                assert!(is_complete && after != before);
                assert_eq!(
                    sum(words(&after[l4..]).chain([u32::from(pseudo)])),
                    0xffff,
                    "IPv6 {is_v6}, TCP {is_tcp}"
                );
            }
        }
    }

    #[test]
    fn an_offloaded_checksum_is_computed_behind_extension_headers_of_ipv6() {
        for is_tcp in [false, true] {
            let (segment, pseudo) = open(true, is_tcp);
            let protocol = if is_tcp { 6 } else { 17 };
            let options = [protocol, 0, 1, 4, 0, 0, 0, 0];
            let before = packet(true, protocol, &options, &segment);
            let (is_complete, after) = finished(before.clone(), ChecksumStatus::Offloaded);
            assert!(is_complete);
            assert_eq!(after[..48], before[..48]);
            assert_eq!(sum(words(&after[48..]).chain([u32::from(pseudo)])), 0xffff);
            assert_eq!(finished(before.clone(), ChecksumStatus::Complete), (true, before));
        }
    }

    #[test]
    fn an_offloaded_crc_of_sctp_is_computed_and_a_wrong_one_stays() {
        // The published check value of CRC32c.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        for is_v6 in [false, true] {
            let segment = [&[0, 1, 0, 2, 0, 0, 0, 9, 0, 0, 0, 0][..], &[3; 20]].concat();
            let before = packet(is_v6, SCTP, &[], &segment);
            for checksum in [ChecksumStatus::Complete, ChecksumStatus::Unknown] {
                assert_eq!(finished(before.clone(), checksum), (true, before.clone()));
            }
            let (is_complete, after) = finished(before.clone(), ChecksumStatus::Offloaded);
            let field = before.len() - segment.len() + SCTP_FIELD;
            assert!(is_complete);
            assert_eq!(after[field..field + 4], crc32c(&segment).to_le_bytes());
        }
    }

    #[test]
    fn an_offloaded_checksum_that_cannot_be_computed_is_reported() {
        // DCCP.
        let before = packet(false, 33, &[], &[0; 40]);
        assert_eq!(finished(before.clone(), ChecksumStatus::Offloaded), (false, before.clone()));
        assert_eq!(finished(before.clone(), ChecksumStatus::Complete), (true, before));
        let (segment, _) = open(false, true);
        let mut fragment = packet(false, 6, &[], &segment);
        fragment[6] = 0x20;
        assert!(!finished(fragment, ChecksumStatus::Offloaded).0);
    }
}
