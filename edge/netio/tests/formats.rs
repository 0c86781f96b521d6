//! Well-formed and damaged captures.

use crate::builders::{MICROSECONDS, NANOSECONDS, Order, Pcap, Pcapng, many, udp};
use crate::exercise::{Reading, read_all};
use weir_netio::{Capture, CaptureInput, CaptureNext, CaptureOptions, EndReason, OpenError, Truncation};
use weir_units::{Bytes, Timestamp};

fn times(reading: &Reading) -> Vec<u64> {
    reading.packets.iter().map(|(descriptor, _)| descriptor.ts_ns).collect()
}

#[test]
fn pcap_in_both_byte_orders_and_both_resolutions_gives_the_same_packets() {
    for order in [Order::Little, Order::Big] {
        for (magic, fraction) in [(MICROSECONDS, 1), (NANOSECONDS, 1000)] {
            let pcap =
                Pcap::new(order, magic, 1).packet(5, 7 * fraction, &udp(1, 100)).packet(6, 0, &udp(2, 3));
            let reading = read_all(&pcap.bytes).unwrap();
            assert_eq!(times(&reading), [5_000_007_000, 6_000_000_000], "{order:?} {magic:x}");
            assert_eq!(reading.packets[0].1, udp(1, 100));
            assert_eq!(reading.packets[1].0.src_port, 1002);
            assert_eq!((reading.totals.udp, reading.totals.truncated), (2, None));
        }
    }
}

#[test]
fn versions_before_2_3_state_the_length_on_the_link_first() {
    let packet = &udp(0, 10)[..40];
    for (version, lengths) in [([2, 1], [52, 40]), ([2, 3], [52, 40]), ([2, 3], [40, 52]), ([2, 4], [40, 52])]
    {
        let pcap = Pcap::with(Order::Big, MICROSECONDS, version, 96, 1).record(1, 0, lengths, packet);
        let reading = read_all(&pcap.bytes).unwrap();
        assert_eq!((reading.packets[0].0.cap_len, reading.packets[0].0.wire_len), (40, 52), "{version:?}");
    }
}

#[test]
fn a_record_of_impossible_length_ends_the_capture_there() {
    for (snap_len, stated, max) in
        [(0, 262_145, 262_144), (u32::MAX, 16_777_217, 16_777_216), (96, u32::MAX, 262_144)]
    {
        let pcap = Pcap::with(Order::Little, MICROSECONDS, [2, 4], snap_len, 1)
            .packet(1, 0, &udp(0, 10))
            .record(2, 0, [stated, stated], &[0; 100]);
        let totals = read_all(&pcap.bytes).unwrap().totals;
        assert_eq!(totals.packets, 1);
        let reason = EndReason::CapturedLength { stated, max };
        assert_eq!(totals.truncated, Some(Truncation { offset: 24 + 16 + 52, reason }));
    }
}

#[test]
fn a_capture_cut_anywhere_gives_the_packets_before_the_cut() {
    let whole =
        Pcap::new(Order::Little, MICROSECONDS, 1).packet(1, 0, &udp(0, 0)).packet(2, 0, &udp(1, 5)).bytes;
    let second = 24 + 16 + 42;
    for len in 24..whole.len() {
        let totals = read_all(&whole[..len]).unwrap().totals;
        let expected = match len {
            24 => (0, None),
            25..82 => (0, Some(24)),
            82 => (1, None),
            _ => (1, Some(second)),
        };
        assert_eq!((totals.packets, totals.truncated.map(|t| t.offset)), expected, "{len}");
    }
}

#[test]
fn pcapng_with_all_kinds_of_packet_blocks_in_both_byte_orders() {
    for order in [Order::Little, Order::Big] {
        let bytes = Pcapng::new(order)
            .block(0x0bad_f00d, &[1, 2, 3, 4, 5])
            .interface(1, 0, &[])
            .interface(101, 0, &[(2, b"tun0"), (9, &[9])])
            .enhanced(0, 1_000_000, &udp(0, 1))
            .enhanced(1, 2_000_000_000, &udp(1, 2)[14..])
            .simple(60, &udp(2, 3))
            .obsolete(0, 3_000_000, &udp(3, 4))
            .bytes;
        let reading = read_all(&bytes).unwrap();
        assert_eq!(reading.totals.truncated, None, "{order:?}");
        // A simple packet block has no time, so the packet gets that of the one before.
        assert_eq!(times(&reading), [1_000_000_000, 2_000_000_000, 2_000_000_000, 3_000_000_000]);
        let what: Vec<_> =
            reading.packets.iter().map(|(d, _)| (d.interface, d.link_type, d.src_port, d.cap_len)).collect();
        // Padding in a simple packet block cannot be distinguished if the packet is longer than stated.
        assert_eq!(what, [(0, 1, 1000, 43), (1, 101, 1001, 30), (0, 1, 1002, 48), (0, 1, 1003, 46)]);
        assert_eq!(reading.totals.interfaces.len(), 2);
    }
}

#[test]
fn a_simple_packet_block_ends_at_the_snap_length() {
    let bytes =
        Pcapng::new(Order::Little).interface(1, 45, &[]).simple(45, &udp(0, 3)).simple(60, &udp(0, 3)).bytes;
    let reading = read_all(&bytes).unwrap();
    let lengths: Vec<_> = reading.packets.iter().map(|p| (p.0.cap_len, p.0.wire_len)).collect();
    assert_eq!(lengths, [(45, 45), (45, 60)]);
    // Without a packet before it, its time is 0.
    assert_eq!(times(&reading), [0, 0]);
}

#[test]
fn a_new_section_has_its_own_byte_order_and_its_interfaces_continue_the_numbers() {
    let bytes = Pcapng::new(Order::Little)
        .interface(1, 0, &[])
        .enhanced(0, 1, &udp(0, 0))
        .section(Order::Big)
        .interface(101, 0, &[(9, &[0x80 | 4]), (14, &Order::Big.u64(100))])
        .enhanced(0, 24, &udp(1, 0)[14..])
        .bytes;
    let reading = read_all(&bytes).unwrap();
    assert_eq!(times(&reading), [1000, 101_500_000_000]);
    assert_eq!((reading.packets[1].0.interface, reading.packets[1].0.link_type), (1, 101));
}

#[test]
fn damaged_pcapng_blocks_end_the_capture_with_a_reason() {
    let start = || Pcapng::new(Order::Little).interface(1, 0, &[]).enhanced(0, 1, &udp(0, 0));
    let offset = start().bytes.len() as u64;
    let mut trailer = start().enhanced(0, 2, &udp(1, 0)).bytes;
    let last = trailer.len() - 4;
    trailer[last] = 0;
    let raw = |bytes: &[u8]| [&start().bytes[..], bytes].concat();
    let long = [&6u32.to_le_bytes()[..], &0x4000_0000u32.to_le_bytes(), &[0; 40]].concat();
    let cases = [
        (start().enhanced(1, 2, &udp(1, 0)).bytes, EndReason::Interface { number: 1 }),
        (trailer, EndReason::BlockTrailer { head: 76, tail: 0 }),
        (raw(&[0; 12]), EndReason::BlockLength { stated: 0 }),
        (raw(&[5, 0, 0, 0, 13, 0, 0, 0, 0]), EndReason::BlockLength { stated: 13 }),
        (raw(&long), EndReason::BlockLength { stated: 0x4000_0000 }),
        (raw(&[0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 1, 2, 3, 4, 1, 0, 0, 0]), EndReason::Section),
        (raw(&[5, 0, 0, 0, 0, 1, 0, 0, 1, 2, 3]), EndReason::Cut),
    ];
    for (bytes, reason) in cases {
        let totals = read_all(&bytes).unwrap().totals;
        assert_eq!(totals.packets, 1, "{reason:?}");
        assert_eq!(totals.truncated, Some(Truncation { offset, reason }));
    }
}

#[test]
fn an_interface_of_unknown_link_type_is_an_error_only_if_it_has_a_packet() {
    let start =
        Pcapng::new(Order::Little).interface(105, 0, &[]).interface(1, 0, &[]).enhanced(1, 1, &udp(0, 0));
    let good = read_all(&start.bytes).unwrap();
    assert_eq!((good.packets.len(), good.error), (1, None));

    let offset = start.bytes.len();
    let bad = read_all(&start.enhanced(0, 2, &[0; 30]).bytes).unwrap();
    let error = bad.error.unwrap();
    assert_eq!(bad.packets.len(), 1);
    for part in ["packet 2", &format!("offset {offset}"), "interface 0", "link type 105"] {
        assert!(error.contains(part), "{part} in: {error}");
    }
}

#[test]
fn packets_with_decreasing_times_are_counted_and_read_as_others() {
    let mut pcap = Pcap::new(Order::Little, MICROSECONDS, 1);
    for seconds in [10, 12, 11, 11, 9, 20] {
        pcap = pcap.packet(seconds, 0, &udp(0, 0));
    }
    let mut capture = Capture::open(CaptureInput::Bytes(pcap.bytes)).unwrap();
    let CaptureNext::Block(block) = capture.next_block().unwrap() else { panic!() };
    assert_eq!(block.batch(0).latest, Timestamp(20_000_000_000));
    let totals = capture.totals();
    assert_eq!(totals.out_of_order, 2);
    let seconds =
        [totals.first, totals.last, totals.earliest, totals.latest].map(|t| t.unwrap().0 / 1_000_000_000);
    assert_eq!(seconds, [10, 20, 9, 20]);
}

#[test]
fn a_file_that_is_not_a_capture_is_refused_with_a_reason() {
    let modified = [&0xa1b2_cd34u32.to_le_bytes()[..], &[0; 40]].concat();
    let version = Pcap::with(Order::Little, MICROSECONDS, [2, 5], 0, 1).bytes;
    let link_type = Pcap::new(Order::Little, MICROSECONDS, 105).bytes;
    for (bytes, wanted) in [
        (&b""[..], "is empty"),
        (b"# notes\n", "its first bytes are \"# notes\\n\""),
        (b"\x7fELF\x02\x01\x01\x00", "its first bytes are 7f 45 4c 46 02 01 01 00"),
        (&modified, "editcap -F pcap"),
        (&version, "version 2.5 at offset 4"),
        (&link_type, "offset 20: link type 105"),
        (&many(1)[..20], "ends inside its header, after 20 bytes"),
        (b"\x0a\x0d\x0d\x0a\0\0\0\x20abcdefgh", "no byte-order magic at offset 8"),
        (b"\x1f\x8b\x08\x00broken", "the compressed data are damaged"),
        (b"\x28\xb5\x2f\xfdbroken", "the compressed data are damaged"),
    ] {
        let error = read_all(bytes).unwrap_err();
        assert!(error.contains(wanted), "{wanted} in: {error}");
    }
    let error = |path: &str| Capture::open(CaptureInput::File(path.into())).unwrap_err();
    assert!(matches!(error("/"), OpenError::Directory { .. }));
    assert!(error("/no/such/file.pcap").to_string().contains("/no/such/file.pcap"));
}

#[test]
fn fcs_bits_of_the_link_type_field_are_not_the_link_type() {
    let pcap = Pcap::new(Order::Little, MICROSECONDS, 0x4400_0001).packet(1, 0, &udp(0, 0));
    assert_eq!(read_all(&pcap.bytes).unwrap().totals.udp, 1);
}

#[test]
fn blocks_and_batches_have_consecutive_numbers_and_the_addresses_of_their_descriptors() {
    let mut capture = Capture::open(CaptureInput::Bytes(many(1100))).unwrap();
    let CaptureNext::Block(first) = capture.next_block().unwrap() else { panic!() };
    let CaptureNext::Block(second) = capture.next_block().unwrap() else { panic!() };
    assert!(matches!(capture.next_block(), Ok(CaptureNext::End)));

    assert_eq!((first.number(), first.first_packet(), first.len(), first.batch_count()), (0, 0, 1024, 16));
    assert_eq!(
        (second.number(), second.first_packet(), second.len(), second.batch_count()),
        (1, 1024, 76, 2)
    );
    let batch = u32::try_from(weir_abi::BATCH_BYTES).unwrap();
    assert_eq!(first.batch(3).guest_address, weir_abi::DESCRIPTORS_BASE + 3 * batch);
    assert_eq!(second.batch(1).guest_address, weir_abi::DESCRIPTORS_BASE + 16 * batch + batch);
    assert_eq!((first.batch(15).mask, second.batch(1).mask), (u64::MAX, 0xfff));
    assert_eq!(second.batch(2).count, 0);
    assert_eq!(second.descriptors()[75].number, 1099);
    // The data addresses are those of the packets in the file.
    let d = first.descriptors()[0];
    assert_eq!((d.data, first.window().file_offset()), (weir_abi::ARENA_BASE + 40, 0));
}

#[test]
fn blocks_in_use_keep_their_bytes_and_their_memory() {
    let bytes = many(40_000);
    for stream in [false, true] {
        let options = CaptureOptions { stream, ..CaptureOptions::default() };
        let mut capture = Capture::open_with(CaptureInput::Bytes(bytes.clone()), options).unwrap();
        let mut blocks = std::collections::VecDeque::new();
        let (mut full, mut seen, mut copy) = (0, 0u16, Vec::new());
        loop {
            let ended = match capture.next_block().unwrap() {
                CaptureNext::Block(block) => {
                    blocks.push_back(block);
                    continue;
                }
                CaptureNext::Full => false,
                CaptureNext::End => true,
            };
            full += 1;
            while let Some(block) = blocks.pop_front() {
                for i in 0..block.len() {
                    block.copy_packet(i, &mut copy);
                    assert!(copy == udp(seen % 1000, seen.wrapping_mul(37) % 1400), "{stream} {seen}");
                    seen = seen.wrapping_add(1);
                }
                if !ended {
                    break;
                }
            }
            if ended {
                break;
            }
        }
        assert_eq!(seen, 40_000, "{stream}");
        assert!(full > 2);
    }
}

#[test]
fn records_longer_than_a_chunk_are_read_through_the_arena() {
    let mut pcap = Pcap::with(Order::Little, MICROSECONDS, [2, 4], u32::MAX, 1);
    let sizes =
        [100, 700_000, 100, 3_000_000, 16_777_216, 100, 5_000_000, 900_000, 900_000, 900_000, 900_000, 1];
    for (n, size) in (0u8..).zip(sizes) {
        pcap = pcap.packet(u32::from(n), 0, &vec![n; size]);
    }
    let reading = read_all(&pcap.bytes).unwrap();
    assert_eq!(reading.totals.truncated, None);
    assert_eq!(reading.packets.iter().map(|(_, bytes)| bytes.len()).collect::<Vec<_>>(), sizes);
    assert!((0u8..).zip(&reading.packets).all(|(n, (_, bytes))| bytes.iter().all(|&b| b == n)));
}

#[test]
fn progress_ends_at_the_length_of_the_file() {
    let bytes = many(3000);
    let len = Bytes(bytes.len() as u64);
    for stream in [false, true] {
        let options = CaptureOptions { stream, ..CaptureOptions::default() };
        let mut capture = Capture::open_with(CaptureInput::Bytes(bytes.clone()), options).unwrap();
        assert!(capture.progress().done < capture.progress().total.unwrap());
        while let CaptureNext::Block(_) = capture.next_block().unwrap() {}
        assert_eq!((capture.progress().done, capture.progress().total), (len, Some(len)));
    }
}
