//! Checksums that a host has left to its network card.

use crate::effects::whole;
use weir_abi::{Descriptor, flag, tunnel};
use weir_netio::ChecksumStatus;
use weir_wire::LinkType;

const SCTP: u8 = 132;
/// Offset of the checksum in the header, and the header's length.
const SCTP_FIELD: usize = 8;
const SCTP_HEADER: usize = 12;

/// Computes the one checksum that a host leaves to its network card: the packet's own, or that of the packet in its innermost tunnel. The checksums between
/// them are right when that one is: the host has computed them so. Returns false where the kernel says that it was left, and it cannot be computed.
///
/// A checksum that the kernel calls finished stays as it came. Without the kernel's word, a field that has the sum of its pseudo header counts as left.
pub(crate) fn finish(packet: &mut [u8], descriptor: &Descriptor, checksum: ChecksumStatus) -> bool {
    if checksum == ChecksumStatus::Finished {
        return true;
    }
    let is_left = checksum == ChecksumStatus::Left;
    // Of a packet that is not whole, the one inside is not either.
    let is_whole = descriptor.flags & (flag::CUT | flag::FRAGMENT | flag::MALFORMED) == 0;
    if weir_wire::complete(packet, descriptor) {
        return true;
    }
    if descriptor.tunnel == tunnel::NONE {
        return !is_left || is_whole && compute(packet, descriptor);
    }
    if descriptor.flags & (flag::CUT | flag::FRAGMENT) == 0
        && let Some(inside) = packet.get_mut(usize::from(descriptor.inner_offset)..)
        && let Ok(descriptor) = weir_wire::classify(inside, &whole(inside, LinkType::Raw))
        && descriptor.flags & flag::MALFORMED == 0
    {
        let is_part = descriptor.flags & flag::FRAGMENT != 0;
        return weir_wire::complete(inside, &descriptor)
            || !is_left
            || !is_part && compute(inside, &descriptor);
    }
    !is_left
}

/// Computes the checksum above IP of a packet whose host left it to its network card. The field of TCP or UDP has the sum of the pseudo header, by the kernel's
/// word, also where the header is behind a routing header: the kernel has put the last address into that sum.
fn compute(packet: &mut [u8], descriptor: &Descriptor) -> bool {
    let is = |wanted: u32| descriptor.flags & wanted != 0;
    if !is(flag::L4) {
        return false;
    }
    let from = usize::from(descriptor.l4_offset);
    let header = usize::from(descriptor.payload_offset.saturating_sub(descriptor.l4_offset));
    let end = usize::try_from(descriptor.payload_len).ok().map(|len| from + header.saturating_add(len));
    let Some(segment) = end.and_then(|end| packet.get_mut(from..end)) else { return false };
    if is(flag::TCP) {
        put_sum(segment, 16, false)
    } else if is(flag::UDP) {
        put_sum(segment, 6, true)
    } else if descriptor.ip_proto == SCTP && segment.len() >= SCTP_HEADER {
        let Some(field) = segment.get_mut(SCTP_FIELD..SCTP_HEADER) else { return false };
        field.fill(0);
        // RFC 9260, appendix A: the least significant byte first.
        let crc = crc32c(segment).to_le_bytes();
        segment.get_mut(SCTP_FIELD..SCTP_HEADER).is_some_and(|field| {
            field.copy_from_slice(&crc);
            true
        })
    } else {
        false
    }
}

/// Puts the Internet checksum (RFC 1071) of a segment where its field is, which stands for the pseudo header. Of UDP 0 says that there is none (RFC 768).
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

/// CRC32c (RFC 9260, appendix A), bit by bit: the kernel leaves it to few interfaces.
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

    /// IPv4 or IPv6, the latter behind these extension headers, and this above it.
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
        let descriptor = classify(&packet, &whole(&packet, LinkType::Raw)).unwrap();
        let is_finished = finish(&mut packet, &descriptor, checksum);
        (is_finished, packet)
    }

    /// Sum of 16-bit words, folded.
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

    /// A segment of TCP or UDP whose field has the sum of its pseudo header, and that sum.
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
            assert_eq!(finished(before.clone(), ChecksumStatus::Finished), (true, before.clone()));
            for checksum in [ChecksumStatus::Left, ChecksumStatus::Unknown] {
                let (is_finished, after) = finished(before.clone(), checksum);
                let l4 = after.len() - segment.len();
                // The receiver's rule: all words and the pseudo header are 0xffff together.
                assert!(is_finished && after != before);
                assert_eq!(
                    sum(words(&after[l4..]).chain([u32::from(pseudo)])),
                    0xffff,
                    "IPv6 {is_v6}, TCP {is_tcp}"
                );
            }
        }
    }

    #[test]
    fn a_checksum_that_was_left_is_computed_behind_extension_headers_of_ipv6() {
        for is_tcp in [false, true] {
            let (segment, pseudo) = open(true, is_tcp);
            let protocol = if is_tcp { 6 } else { 17 };
            let options = [protocol, 0, 1, 4, 0, 0, 0, 0];
            let before = packet(true, protocol, &options, &segment);
            let (is_finished, after) = finished(before.clone(), ChecksumStatus::Left);
            assert!(is_finished);
            assert_eq!(after[..48], before[..48]);
            assert_eq!(sum(words(&after[48..]).chain([u32::from(pseudo)])), 0xffff);
            assert_eq!(finished(before.clone(), ChecksumStatus::Finished), (true, before));
        }
    }

    #[test]
    fn the_crc_of_sctp_that_was_left_is_computed_and_a_wrong_one_stays() {
        // The check value of CRC32c.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        for is_v6 in [false, true] {
            let segment = [&[0, 1, 0, 2, 0, 0, 0, 9, 0, 0, 0, 0][..], &[3; 20]].concat();
            let before = packet(is_v6, SCTP, &[], &segment);
            for checksum in [ChecksumStatus::Finished, ChecksumStatus::Unknown] {
                assert_eq!(finished(before.clone(), checksum), (true, before.clone()));
            }
            let (is_finished, after) = finished(before.clone(), ChecksumStatus::Left);
            let field = before.len() - segment.len() + SCTP_FIELD;
            assert!(is_finished);
            assert_eq!(after[field..field + 4], crc32c(&segment).to_le_bytes());
        }
    }

    #[test]
    fn a_checksum_that_was_left_and_cannot_be_computed_is_told() {
        // DCCP.
        let before = packet(false, 33, &[], &[0; 40]);
        assert_eq!(finished(before.clone(), ChecksumStatus::Left), (false, before.clone()));
        assert_eq!(finished(before.clone(), ChecksumStatus::Finished), (true, before));
        let (segment, _) = open(false, true);
        let mut fragment = packet(false, 6, &[], &segment);
        fragment[6] = 0x20;
        assert!(!finished(fragment, ChecksumStatus::Left).0);
    }
}
