//! Arbitrary bytes: reading them ends, does not panic, and gives the same result in every way of reading.

use crate::builders::{MICROSECONDS, NANOSECONDS, Order, Pcap, Pcapng, udp};
use crate::exercise::read_all;
use proptest::prelude::*;

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![Just(Order::Little), Just(Order::Big)]
}

/// A well-formed capture of some format.
fn capture() -> impl Strategy<Value = Vec<u8>> {
    let sizes = || prop::collection::vec(0u16..1400, 0..30);
    let pcap = (order(), prop_oneof![Just(MICROSECONDS), Just(NANOSECONDS)], 0u16..5, sizes()).prop_map(
        |(order, magic, minor, sizes)| {
            let mut pcap = Pcap::with(order, magic, [2, minor], 0, 1);
            for (n, size) in (0u16..).zip(sizes) {
                pcap = pcap.packet(u32::from(n), 0, &udp(n, size));
            }
            pcap.bytes
        },
    );
    let pcapng = (order(), order(), sizes(), any::<u8>()).prop_map(|(order, second, sizes, resolution)| {
        let mut pcapng = Pcapng::new(order).interface(1, 0, &[(9, &[resolution])]);
        for (n, size) in (0u16..).zip(sizes) {
            let packet = udp(n, size);
            pcapng = match n % 5 {
                0 => pcapng.simple(60, &packet),
                1 => pcapng.obsolete(0, u64::from(n), &packet),
                2 => pcapng.block(u32::from(n) + 100, &packet),
                3 if n % 2 == 1 => pcapng.section(second).interface(101, 60, &[]),
                _ => pcapng.enhanced(0, u64::from(n) << 20, &packet),
            };
        }
        pcapng.bytes
    });
    prop_oneof![pcap, pcapng]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_after_any_magic(
        magic in prop::sample::select(vec![
            [0xd4, 0xc3, 0xb2, 0xa1], [0xa1, 0xb2, 0x3c, 0x4d], [0x0a, 0x0d, 0x0d, 0x0a], [0x1f, 0x8b, 8, 0],
            [0x28, 0xb5, 0x2f, 0xfd], [0, 0, 0, 0],
        ]),
        rest in prop::collection::vec(any::<u8>(), 0..2000),
    ) {
        let _ = read_all(&[&magic[..], &rest].concat());
    }

    #[test]
    fn damaged_captures(
        mut bytes in capture(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if is_cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let _ = read_all(&bytes);
    }

    #[test]
    fn undamaged_captures_are_read_to_their_end(bytes in capture()) {
        let reading = read_all(&bytes).unwrap();
        prop_assert_eq!(reading.totals.truncated, None);
        prop_assert_eq!(reading.error, None);
    }
}
