//! Checksums and datagrams of packets that etherparse builds independently.

use etherparse::PacketBuilder;
use proptest::prelude::*;
use weir_abi::{Descriptor, flag};
use weir_units::{Bytes, Nanos, Timestamp};
use weir_wire::{
    BadChecksum, LinkType, Meta, Reassembled, Reassembler, ReassemblyLimits, classify, fragment, verify,
};

const SECOND: u64 = 1_000_000_000;

fn described(packet: &[u8], at: u64) -> Descriptor {
    let len = u32::try_from(packet.len()).unwrap();
    let ts = Timestamp(at);
    let link_type = LinkType::Ethernet;
    classify(packet, &Meta { ts, cap_len: len, wire_len: len, link_type, interface: 0, number: 0, data: 0 })
        .unwrap()
}

fn check(packet: &[u8]) -> Result<(), BadChecksum> {
    verify(packet, &described(packet, 0))
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Tcp,
    Udp,
    Icmp,
}

fn built(is_v6: bool, kind: Kind, payload: &[u8]) -> Vec<u8> {
    let link = PacketBuilder::ethernet2([2; 6], [4; 6]);
    let ip = if is_v6 { link.ipv6([1; 16], [2; 16], 9) } else { link.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 9) };
    let mut bytes = Vec::new();
    match (kind, is_v6) {
        (Kind::Tcp, _) => ip.tcp(1, 2, 3, 4).write(&mut bytes, payload),
        (Kind::Udp, _) => ip.udp(1, 2).write(&mut bytes, payload),
        (Kind::Icmp, false) => ip.icmpv4_echo_request(1, 2).write(&mut bytes, payload),
        (Kind::Icmp, true) => ip.icmpv6_echo_request(1, 2).write(&mut bytes, payload),
    }
    .unwrap();
    bytes
}

/// Divides an Ethernet packet into fragments with `size` bytes of data each, a multiple of 8.
fn cut(packet: &[u8], id: u8, size: usize) -> Vec<Vec<u8>> {
    let is_v6 = packet[12] == 0x86;
    let headers = if is_v6 { 54 } else { 34 };
    let (front, data) = packet.split_at(headers);
    let parts = data.chunks(size).enumerate();
    let parts = parts.map(|(number, part)| {
        let offset = number * size;
        let has_more = offset + part.len() < data.len();
        let mut bytes = front.to_vec();
        if is_v6 {
            let len = u16::try_from(part.len() + 8).unwrap();
            bytes[18..20].copy_from_slice(&len.to_be_bytes());
            let next = std::mem::replace(&mut bytes[20], 44);
            let field = u16::try_from(offset).unwrap() | u16::from(has_more);
            bytes.extend([next, 0]);
            bytes.extend(field.to_be_bytes());
            bytes.extend([0, 0, 0, id]);
        } else {
            let len = u16::try_from(part.len() + 20).unwrap();
            bytes[16..18].copy_from_slice(&len.to_be_bytes());
            bytes[18..20].copy_from_slice(&[0, id]);
            let field = u16::try_from(offset / 8).unwrap() | u16::from(has_more) << 13;
            bytes[20..22].copy_from_slice(&field.to_be_bytes());
            bytes[24..26].copy_from_slice(&[0, 0]);
            let sum = header_sum(&bytes[14..34]);
            bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        bytes.extend_from_slice(part);
        bytes
    });
    parts.collect()
}

/// The checksum of an IPv4 header, computed as specified.
fn header_sum(header: &[u8]) -> u16 {
    let mut sum: u32 = header.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}

fn table() -> Reassembler {
    Reassembler::new(ReassemblyLimits::default())
}

fn put(table: &mut Reassembler, packet: &[u8]) -> Reassembled {
    table.put(packet, &described(packet, 0))
}

/// Sets the identification that the fragments of an IPv4 packet have.
fn with_id(mut packet: Vec<u8>, id: u8) -> Vec<u8> {
    if packet[12] == 0x08 {
        packet[18..22].copy_from_slice(&[0, id, 0, 0]);
        packet[24..26].copy_from_slice(&[0, 0]);
        let sum = header_sum(&packet[14..34]);
        packet[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}

#[test]
fn right_checksums_are_right_and_every_flipped_bit_is_found() {
    for (is_v6, kind, bad) in [
        (false, Kind::Tcp, BadChecksum::Tcp),
        (false, Kind::Udp, BadChecksum::Udp),
        (false, Kind::Icmp, BadChecksum::Icmp),
        (true, Kind::Tcp, BadChecksum::Tcp),
        (true, Kind::Udp, BadChecksum::Udp),
        (true, Kind::Icmp, BadChecksum::Icmp),
    ] {
        let packet = built(is_v6, kind, b"an odd number of bytes");
        assert_eq!(check(&packet), Ok(()), "{kind:?}");
        let odd = built(is_v6, kind, b"one less, or one more");
        assert_eq!(check(&odd), Ok(()), "{kind:?}");
        let headers = if is_v6 { 54 } else { 34 };
        // Addresses are covered too, except for ICMP over IPv4, where the header's own checksum covers them.
        for (at, expected) in [
            (headers - 1, if is_v6 { bad } else { BadChecksum::Ipv4 }),
            (headers + 5, bad),
            (packet.len() - 1, bad),
        ] {
            let mut wrong = packet.clone();
            wrong[at] ^= 4;
            // A changed UDP length changes the end of the datagram.
            if matches!(kind, Kind::Udp) && at == headers + 5 {
                continue;
            }
            assert_eq!(check(&wrong), Err(expected), "{kind:?} at {at}");
        }
    }
}

#[test]
fn a_checksum_that_cannot_be_verified_is_not_wrong() {
    let mut udp = built(false, Kind::Udp, b"no checksum");
    udp[40..42].copy_from_slice(&[0, 0]);
    assert_eq!(check(&udp), Ok(()));
    let mut udp = built(true, Kind::Udp, b"no checksum");
    udp[60..62].copy_from_slice(&[0, 0]);
    assert_eq!(check(&udp), Err(BadChecksum::Udp), "RFC 8200, 8.1");
    // Cut off, padded, in fragments.
    let whole = built(false, Kind::Tcp, &[7; 200]);
    let cut_off = Descriptor { cap_len: 100, ..described(&whole, 0) };
    assert_eq!(verify(&whole[..100], &cut_off), Ok(()));
    let padded = [built(false, Kind::Tcp, b"x"), vec![0xff; 20]].concat();
    assert_eq!(check(&padded), Ok(()));
    for part in cut(&whole, 1, 64) {
        assert_eq!(check(&part), Ok(()));
        let mut wrong = part.clone();
        wrong[24] ^= 1;
        assert_eq!(check(&wrong), Err(BadChecksum::Ipv4));
    }
}

#[test]
fn fragments_are_described_by_their_headers() {
    let whole = built(false, Kind::Udp, &[7; 100]);
    let parts = cut(&whole, 9, 64);
    let second = fragment(&parts[1], &described(&parts[1], 0)).unwrap().unwrap();
    assert_eq!((second.offset, second.has_more, second.data, second.end), (64, false, 34, parts[1].len()));
    assert_eq!((second.datagram.id, second.datagram.protocol, second.datagram.src), (9, 17, 0x0a00_0001));
    assert_eq!(fragment(&whole, &described(&whole, 0)), Ok(None));
}

#[test]
fn overlapping_fragments_end_their_datagram_and_duplicates_do_not() {
    for is_v6 in [false, true] {
        let whole = built(is_v6, Kind::Udp, &[7; 200]);
        let other = built(is_v6, Kind::Udp, &[8; 200]);
        let (parts, others) = (cut(&whole, 1, 64), cut(&other, 1, 64));
        let mut table = table();
        put(&mut table, &parts[0]);
        put(&mut table, &parts[0]);
        put(&mut table, &parts[1]);
        assert_eq!(table.counters().repeated, 1);
        // Teardrop, and the subject of RFC 5722: the same range with other bytes.
        put(&mut table, &others[1]);
        for part in &parts {
            assert_eq!(put(&mut table, part), Reassembled::Nothing);
        }
        assert_eq!((table.counters().overlapping, table.counters().datagrams), (7, 0));
        assert_eq!(table.waiting(), 0);
        // Two ends: a shorter datagram's last fragment.
        let short = cut(&built(is_v6, Kind::Udp, &[7; 100]), 2, 64);
        let long = cut(&whole, 2, 64);
        put(&mut table, &long[3]);
        put(&mut table, &short[1]);
        assert_eq!(table.counters().overlapping, 9);
    }
}

#[test]
fn a_fragment_that_cannot_be_part_of_a_packet_is_dropped_alone() {
    let whole = built(false, Kind::Udp, &[7; 200]);
    let parts = cut(&whole, 1, 64);
    let mut table = table();
    // A length that is not a multiple of 8 and not the last fragment's; no data; beyond the longest packet ("ping of
    // death").
    let mut odd = parts[1].clone();
    odd.truncate(odd.len() - 3);
    odd[17] -= 3;
    let mut empty = parts[1].clone();
    empty.truncate(34);
    empty[17] = 20;
    let mut far = parts[1].clone();
    far[20..22].copy_from_slice(&0x1fff_u16.to_be_bytes());
    for part in [&odd, &empty, &far] {
        assert_eq!(put(&mut table, part), Reassembled::Nothing);
    }
    // Captured only in part.
    let cut_off = Descriptor { cap_len: 60, ..described(&parts[1], 0) };
    assert_eq!(table.put(&parts[1][..60], &cut_off), Reassembled::Nothing);
    assert_eq!((table.counters().malformed, table.memory()), (4, Bytes(0)));
    let last = parts.iter().map(|part| put(&mut table, part)).last();
    assert_eq!(last, Some(Reassembled::Whole(with_id(whole, 1))));
    assert_eq!((table.counters().fragments, table.memory(), table.waiting()), (4, Bytes(0), 0));
}

#[test]
fn a_datagram_that_takes_too_long_is_dropped() {
    let whole = built(true, Kind::Udp, &[7; 200]);
    let parts = cut(&whole, 1, 64);
    let mut table = table();
    table.put(&parts[0], &described(&parts[0], SECOND));
    table.put(&parts[1], &described(&parts[1], 31 * SECOND));
    assert_eq!(table.counters().late, 0);
    table.advance(Timestamp(31 * SECOND + 1));
    assert_eq!((table.counters().late, table.memory()), (2, Bytes(0)));
    // A time that goes back has no effect.
    table.put(&parts[2], &described(&parts[2], 0));
    table.advance(Timestamp(61 * SECOND));
    assert_eq!((table.counters().late, table.waiting()), (2, 1));
}

#[test]
fn a_packet_evicts_few_late_datagrams_and_none_of_them_is_reassembled() {
    let whole = built(false, Kind::Udp, &[7; 200]);
    let parts = cut(&whole, 1, 128);
    let mut table = table();
    let number = |part: &[u8], id: u16| {
        let mut part = part.to_vec();
        part[18..20].copy_from_slice(&id.to_be_bytes());
        part
    };
    for id in 0..2000 {
        let first = number(&parts[0], id);
        table.put(&first, &described(&first, SECOND));
    }
    assert_eq!((table.waiting(), table.counters().lost()), (2000, 0));
    // The rest of the last one comes too late.
    let last = number(&parts[1], 1999);
    assert_eq!(table.put(&last, &described(&last, 40 * SECOND)), Reassembled::Nothing);
    let late = table.counters().late;
    assert!(0 < late && late <= 5, "{late}");
    // More datagrams are evicted with each packet than can come with it.
    let other = built(false, Kind::Udp, b"whole");
    for _ in 0..500 {
        let before = table.counters().late;
        assert_eq!(table.put(&other, &described(&other, 40 * SECOND)), Reassembled::NoFragment);
        assert!(table.counters().late <= before + 4);
    }
    assert_eq!((table.counters().late, table.waiting()), (2000, 1));
}

#[test]
fn a_fragment_that_would_evict_many_datagrams_is_lost_alone() {
    let mut table = table();
    let small = cut(&built(false, Kind::Udp, &[7; 100]), 1, 8).remove(0);
    let held = |table: &mut Reassembler| {
        (0..u16::MAX).find(|id| {
            let mut part = small.clone();
            part[18..20].copy_from_slice(&id.to_be_bytes());
            put(table, &part);
            table.counters().displaced > 0
        })
    };
    assert!(held(&mut table).is_some());
    let (waiting, displaced) = (table.waiting(), table.counters().displaced);
    // A fragment of a frame's usual length fits after evictions, and one of 60,000 bytes does not.
    let mut usual = cut(&built(false, Kind::Udp, &[7; 3000]), 2, 1480).remove(0);
    usual[29] = 77;
    put(&mut table, &usual);
    let less = table.counters().displaced - displaced;
    assert!(less <= 16 && table.waiting() == waiting + 1 - less, "{less}");
    let mut long = cut(&built(false, Kind::Udp, &[7; 62_000]), 3, 60_000).remove(0);
    long[29] = 78;
    put(&mut table, &long);
    let more = table.counters().displaced - displaced - less;
    assert!(more <= 17 && table.waiting() == waiting + 2 - less - more, "{more}");
    assert!(table.memory() <= ReassemblyLimits::default().bytes);
}

#[test]
fn memory_is_bounded_and_a_flood_costs_no_source_that_holds_less() {
    let limits = ReassemblyLimits { bytes: Bytes(20_000), lifetime: Nanos(30 * SECOND) };
    let mut table = Reassembler::new(limits);
    let whole = built(false, Kind::Udp, &[7; 1000]);
    let modest = cut(&whole, 1, 512);
    put(&mut table, &modest[0]);
    // A flooding source, with first fragments of ever new datagrams.
    let mut flood = modest[0].clone();
    flood[29] = 77;
    for id in 0..2000_u16 {
        flood[18..20].copy_from_slice(&id.to_be_bytes());
        put(&mut table, &flood);
        assert!(table.memory() <= limits.bytes);
    }
    let counters = table.counters();
    assert!(counters.displaced > 1900 && counters.displaced + table.waiting() == 2001, "{counters:?}");
    assert!(matches!(put(&mut table, &modest[1]), Reassembled::Whole(_)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_datagram_is_restored_in_whatever_order_its_fragments_come(
        is_v6 in any::<bool>(),
        payload in prop::collection::vec(any::<u8>(), 1..3000),
        size in (1..180_usize).prop_map(|eighths| eighths * 8),
        order in any::<prop::sample::Index>(),
        twice in any::<prop::sample::Index>(),
        wrong in any::<bool>(),
    ) {
        let mut whole = with_id(built(is_v6, Kind::Udp, &payload), 5);
        if wrong {
            // A wrong checksum does not become right.
            let last = whole.len() - 1;
            whole[last] ^= 1;
        }
        let mut parts = cut(&whole, 5, size);
        prop_assume!(parts.len() > 1);
        let middle = order.index(parts.len());
        parts.rotate_left(middle);
        parts[middle..].reverse();
        let again = parts[twice.index(parts.len() - 1)].clone();
        let last = parts.pop().unwrap();
        parts.push(again);
        let mut table = table();
        for part in &parts {
            prop_assert_eq!(put(&mut table, part), Reassembled::Nothing);
        }
        let made = put(&mut table, &last);
        let Reassembled::Whole(made) = made else { panic!("it is whole: {:?}", table.counters()) };
        prop_assert_eq!(&made, &whole);
        prop_assert_eq!(check(&made), if wrong { Err(BadChecksum::Udp) } else { Ok(()) });
        prop_assert_eq!(described(&made, 0).flags & flag::FRAGMENT, 0);
    }

    #[test]
    fn each_fragment_is_in_one_counter_and_memory_stays_bounded(
        fragments in prop::collection::vec((0..4_u8, 0..6_u16, any::<bool>(), 0..50_usize, any::<u8>(), 0..40_u64), 0..200),
    ) {
        let limits = ReassemblyLimits { bytes: Bytes(3000), lifetime: Nanos(SECOND) };
        let mut table = Reassembler::new(limits);
        let mut wholes = 0;
        let sent = fragments.len() as u64;
        let mut time = 0;
        for (id, offset, more, len, byte, later) in fragments {
            let template = cut(&built(false, Kind::Udp, &[byte & 1; 600]), id, 512).remove(0);
            let mut packet = template[..34 + len * 4].to_vec();
            packet[16..18].copy_from_slice(&u16::try_from(20 + len * 4).unwrap().to_be_bytes());
            packet[20..22].copy_from_slice(&((offset * 4) | (u16::from(more) << 13)).to_be_bytes());
            time += later * SECOND / 100;
            let descriptor = described(&packet, time);
            match table.put(&packet, &descriptor) {
                Reassembled::NoFragment => wholes += 1,
                Reassembled::Nothing | Reassembled::Whole(_) => {}
            }
            prop_assert!(table.memory() <= limits.bytes, "{:?}", table.memory());
        }
        let counters = table.counters();
        prop_assert_eq!(counters.fragments + counters.lost() + table.waiting() + wholes, sent, "{:?}", counters);
    }
}
