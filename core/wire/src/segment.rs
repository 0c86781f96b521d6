//! Division of packets that a host has left to its network card, or that a card or a host has merged.

use crate::checksum::{add_bytes, fold_sum};
use crate::classify;
use crate::meta::{LinkType, Meta};
use weir_abi::{Descriptor, flag, tunnel};

/// The fewest bytes of a segment. A smaller number, which no system asks for, would make very many packets of one.
pub const SEGMENT_BYTES_MIN: usize = 64;

/// The bit FIN, PSH and CWR of the flags of TCP.
const FIN_AND_PSH: u8 = 0x09;
const CWR: u8 = 0x80;

/// Divides a TCP segment, or several UDP datagrams in one, into packets of at most `segment_bytes` bytes of payload, as
/// a network card does (TSO, and USO for UDP). Headers are repeated; lengths, the identification of IPv4, sequence
/// numbers, flags and checksums are adapted. All checksums of the results are right.
///
/// `packet` is the whole packet that `descriptor` describes. Returns false, and calls nothing, if the packet has no more
/// than `segment_bytes` bytes of payload, or is none that can be divided: within a tunnel, a fragment, cut, or IPv6 with
/// extension headers.
pub fn segment(
    packet: &[u8],
    descriptor: &Descriptor,
    segment_bytes: usize,
    mut each: impl FnMut(&[u8]),
) -> bool {
    let has = |wanted: u32| descriptor.flags & wanted != 0;
    let is_whole = !has(flag::CUT | flag::FRAGMENT | flag::MALFORMED) && descriptor.tunnel == tunnel::NONE;
    if !is_whole || !has(flag::L4) || !has(flag::TCP | flag::UDP) || has(flag::IPV6) && has(flag::OPTIONS) {
        return false;
    }
    let (l3, l4) = (usize::from(descriptor.l3_offset), usize::from(descriptor.l4_offset));
    let start = usize::from(descriptor.payload_offset);
    let end = usize::try_from(descriptor.payload_len).ok().and_then(|len| start.checked_add(len));
    let (Some(headers), Some(payload)) = (packet.get(..start), end.and_then(|end| packet.get(start..end)))
    else {
        return false;
    };
    let is_tcp = has(flag::TCP);
    if segment_bytes < SEGMENT_BYTES_MIN
        || payload.len() <= segment_bytes
        || l4 + if is_tcp { 20 } else { 8 } > start
        || l3 + if has(flag::IPV4) { 20 } else { 40 } > l4
    {
        return false;
    }
    let mut result = Vec::with_capacity(start + segment_bytes);
    let last = payload.len().div_ceil(segment_bytes) - 1;
    for (index, part) in payload.chunks(segment_bytes).enumerate() {
        result.clear();
        result.extend_from_slice(headers);
        result.extend_from_slice(part);
        set_network_header(&mut result, l3, l4, index, has(flag::IPV4));
        let upper = &mut result[l4..];
        if is_tcp {
            let sent = u32::try_from(index * segment_bytes).unwrap_or(0);
            let sequence = u32::from_be_bytes([upper[4], upper[5], upper[6], upper[7]]);
            upper[4..8].copy_from_slice(&sequence.wrapping_add(sent).to_be_bytes());
            if index != last {
                upper[13] &= !FIN_AND_PSH;
            }
            if index != 0 {
                upper[13] &= !CWR;
            }
        } else {
            let length = u16::try_from(upper.len()).unwrap_or(u16::MAX);
            upper[4..6].copy_from_slice(&length.to_be_bytes());
        }
        set_checksum(&mut result, l3, l4, descriptor.ip_proto, is_tcp, has(flag::IPV4));
        each(&result);
    }
    true
}

/// Sets the lengths of a packet's IP header, and for IPv4 the identification of the packet with this index and the
/// checksum.
fn set_network_header(packet: &mut [u8], l3: usize, l4: usize, index: usize, is_v4: bool) {
    let length = |from: usize| u16::try_from(packet.len() - from).unwrap_or(u16::MAX).to_be_bytes();
    if !is_v4 {
        let length = length(l3 + 40);
        packet[l3 + 4..l3 + 6].copy_from_slice(&length);
        return;
    }
    let length = length(l3);
    packet[l3 + 2..l3 + 4].copy_from_slice(&length);
    let first = u16::from_be_bytes([packet[l3 + 4], packet[l3 + 5]]);
    let own = first.wrapping_add(u16::try_from(index).unwrap_or(0));
    packet[l3 + 4..l3 + 6].copy_from_slice(&own.to_be_bytes());
    packet[l3 + 10..l3 + 12].fill(0);
    let sum = !fold_sum(add_bytes(0, &packet[l3..l4]));
    packet[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
}

/// Computes the checksum above IP.
fn set_checksum(packet: &mut [u8], l3: usize, l4: usize, protocol: u8, is_tcp: bool, is_v4: bool) {
    let field = l4 + if is_tcp { 16 } else { 6 };
    packet[field..field + 2].fill(0);
    let addresses = if is_v4 { l3 + 12..l3 + 20 } else { l3 + 8..l3 + 40 };
    let length = (packet.len() - l4) as u64;
    let pseudo = add_bytes(u64::from(protocol) + length, &packet[addresses]);
    let sum = match !fold_sum(add_bytes(pseudo, &packet[l4..])) {
        // Zero means no checksum (RFC 768).
        0 if !is_tcp => u16::MAX,
        sum => sum,
    };
    packet[field..field + 2].copy_from_slice(&sum.to_be_bytes());
}

/// As [`segment`], for a packet of which all bytes are present.
pub fn segment_whole(
    packet: &[u8],
    link_type: LinkType,
    segment_bytes: usize,
    each: impl FnMut(&[u8]),
) -> bool {
    classify(packet, &Meta::of_whole(packet, link_type))
        .is_ok_and(|descriptor| segment(packet, &descriptor, segment_bytes, each))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify;
    use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};

    fn pieces(packet: &[u8], segment_bytes: usize) -> Option<Vec<Vec<u8>>> {
        let mut all = Vec::new();
        let is_divided =
            segment_whole(packet, LinkType::Ethernet, segment_bytes, |piece| all.push(piece.to_vec()));
        assert_eq!(is_divided, !all.is_empty());
        is_divided.then_some(all)
    }

    fn built(is_v6: bool, is_tcp: bool, payload: &[u8]) -> Vec<u8> {
        let link = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let net = if is_v6 {
            link.ipv6([0xfd; 16], [0xfe; 16], 64)
        } else {
            link.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        };
        let mut packet = Vec::new();
        if is_tcp {
            let tcp = net.tcp(1000, 80, u32::MAX - 100, 4096).psh().fin().ack(7);
            tcp.options_raw(&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2])
                .unwrap()
                .write(&mut packet, payload)
                .unwrap();
        } else {
            net.udp(1000, 53).write(&mut packet, payload).unwrap();
        }
        packet
    }

    #[test]
    fn the_parts_have_the_payload_in_order_and_right_checksums() {
        let payload: Vec<u8> = (0..5000_u32).map(|byte| (byte % 251) as u8).collect();
        for (is_v6, is_tcp) in [(false, false), (false, true), (true, false), (true, true)] {
            let packet = built(is_v6, is_tcp, &payload);
            let all = pieces(&packet, 1400).unwrap();
            assert_eq!(all.len(), 4);
            let mut joined = Vec::new();
            for (index, piece) in all.iter().enumerate() {
                let descriptor = classify(piece, &Meta::of_whole(piece, LinkType::Ethernet)).unwrap();
                assert_eq!(verify(piece, &descriptor), Ok(()), "IPv6 {is_v6}, TCP {is_tcp}, {index}");
                assert_eq!(descriptor.flags & (flag::CUT | flag::MALFORMED), 0);
                let sliced = SlicedPacket::from_ethernet(piece).unwrap();
                if let Some(NetSlice::Ipv4(ip)) = &sliced.net {
                    assert_eq!(usize::from(ip.header().total_len()), piece.len() - 14);
                    assert_eq!(usize::from(ip.header().identification()), index);
                    assert_eq!(ip.header().header_checksum(), ip.header().to_header().calc_header_checksum());
                }
                match sliced.transport.unwrap() {
                    TransportSlice::Tcp(tcp) => {
                        let sent = u32::try_from(index * 1400).unwrap();
                        assert_eq!(tcp.sequence_number(), (u32::MAX - 100).wrapping_add(sent));
                        assert_eq!((tcp.fin(), tcp.psh(), tcp.ack()), (index == 3, index == 3, true));
                        joined.extend_from_slice(tcp.payload());
                    }
                    TransportSlice::Udp(udp) => {
                        assert_eq!(usize::from(udp.length()), 8 + udp.payload().len());
                        joined.extend_from_slice(udp.payload());
                    }
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(joined, payload);
        }
    }

    #[test]
    fn packets_that_cannot_be_divided_are_left() {
        let packet = built(false, true, &[7; 3000]);
        assert_eq!(pieces(&packet, 3000), None, "nothing to divide");
        assert_eq!(pieces(&packet, 0), None);
        assert_eq!(pieces(&packet, SEGMENT_BYTES_MIN - 1), None);
        assert_eq!(pieces(&packet[..2000], 1000), None, "cut");
        let mut fragment = packet.clone();
        fragment[20] = 0x20;
        assert_eq!(pieces(&fragment, 1000), None);
        assert_eq!(pieces(&[0; 9], 1000), None);
        let arp = [&[0xff; 12][..], &[8, 6], &[0; 3000]].concat();
        assert_eq!(pieces(&arp, 1000), None);
    }

    #[test]
    fn only_the_first_part_has_the_flag_cwr() {
        let mut packet = built(true, true, &[7; 3000]);
        packet[14 + 40 + 13] |= CWR;
        let flags: Vec<u8> = pieces(&packet, 1000).unwrap().iter().map(|piece| piece[14 + 40 + 13]).collect();
        assert_eq!(flags, [0x90, 0x10, 0x19]);
    }
}
