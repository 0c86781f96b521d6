//! Host functions read packets in place or as a copy, with the same results: of files, which can change meanwhile, and
//! of memory that nothing changes.

use crate::support::{Packets, all, bytes, emitting, engine, values, wat};
use weir_admission::Admitted;
use weir_sandbox::Instance;

/// Packets of several lengths over three letters, so that patterns occur in some of them, also in parts.
fn packet(i: usize) -> Vec<u8> {
    let mut state = i as u64 * 0x9e37_79b9_7f4a_7c15 + 1;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        b"abc"[usize::try_from(state >> 33).unwrap() % 3]
    };
    (0..[1, 2, 3, 31, 33, 34, 35, 66, 67, 100][i % 10]).map(|_| letter()).collect()
}

/// The data of a module: patterns, each with its length.
fn list(patterns: &[&str]) -> (String, usize) {
    let len = patterns.iter().map(|pattern| 4 + pattern.len()).sum();
    let text =
        patterns.iter().map(|pattern| format!("\\{:02x}\\00\\00\\00{pattern}", pattern.len())).collect();
    (text, len)
}

/// The result of `find` by comparing each pattern at each place.
fn found(patterns: &[&str], text: &[u8]) -> u64 {
    let longest = |at: usize| {
        let fitting = patterns.iter().enumerate().filter(|(_, p)| text[at..].starts_with(p.as_bytes()));
        fitting.max_by_key(|(_, pattern)| pattern.len())
    };
    (0..text.len())
        .find_map(|at| longest(at).map(|(number, _)| (number as u64) << 32 | at as u64))
        .unwrap_or(u64::MAX)
}

/// The values that a module emits whose code for a packet is `value`, over packets in memory of either kind.
fn emitted(patterns: &[&str], value: &str) -> [Vec<u64>; 2] {
    let (data, len) = list(patterns);
    let body = format!(
        r#"(data (i32.const 1024) "{data}")
        (func (export "weir_start") (result i32)
            (call $find_compile (i32.const 1024) (i32.const {len}) (i32.const 0)))
        {}"#,
        emitting(value)
    );
    let engine = engine();
    let admitted = Admitted::admit(bytes(&wat(&body), crate::support::MANIFEST), &[]).unwrap();
    let module = engine.load(admitted).unwrap();
    [false, true].map(|is_fixed| {
        let mut instance = Instance::start(&engine, &module).unwrap();
        Packets::of(packet, |_, _| ()).map_as(&mut instance, is_fixed);
        instance.run(all());
        values(&mut instance)
    })
}

#[test]
fn patterns_are_found_wherever_the_packet_lies() {
    let sets: [&[&str]; 6] = [
        &["b"],
        &["ca"],
        &["abcab"],
        &["abca", "cab", "abcabc"],
        &["aaaa", "bbbb", "cccc", "acac"],
        &["ab", "bca", "cabc"],
    ];
    let mut with_match = 0;
    for patterns in sets {
        let value = "(call $find (i32.const 0) (i32.load offset=8 (local.get $d)) (i32.load offset=12 (local.get $d)))";
        let expected: Vec<u64> = (0..64).map(|i| found(patterns, &packet(i))).collect();
        with_match += expected.iter().filter(|found| **found != u64::MAX).count();
        for (values, memory) in emitted(patterns, value).iter().zip(["a file", "memory"]) {
            assert_eq!(values, &expected, "{patterns:?} in {memory}");
        }
    }
    assert!((100..6 * 64 - 50).contains(&with_match), "{with_match} of 384 packets have a match");
}

#[test]
fn hashes_are_of_the_packet_wherever_it_lies() {
    let value =
        "(call $hash (i32.load offset=8 (local.get $d)) (i32.load offset=12 (local.get $d)) (i64.const 7))";
    let expected: Vec<u64> = (0..64).map(|i| xxhash_rust::xxh3::xxh3_64_with_seed(&packet(i), 7)).collect();
    assert_eq!(emitted(&["b"], value), [expected.clone(), expected]);
}

#[test]
fn bytes_of_other_packets_and_across_packets_are_read_too() {
    // The second half of the packet and what follows it, up to 90 bytes; then the packet before.
    let all: Vec<u8> = (0..64).flat_map(packet).collect();
    let start = |i: usize| (0..i).map(|i| packet(i).len()).sum::<usize>();
    let expected: Vec<u64> = (0..64)
        .map(|i| {
            let from = start(i) + packet(i).len() / 2;
            let mut text = all[from..all.len().min(from + 90)].to_vec();
            // The last page ends with zeros.
            text.resize(90, 0);
            found(&["abc", "bcab"], &text)
        })
        .collect();
    let value = "(call $find (i32.const 0)
        (i32.add (i32.load offset=8 (local.get $d)) (i32.shr_u (i32.load offset=12 (local.get $d)) (i32.const 1)))
        (i32.const 90))";
    assert_eq!(emitted(&["abc", "bcab"], value), [expected.clone(), expected]);
    let first = packet(0)[0];
    let expected: Vec<u64> = (0..64).map(|_| xxhash_rust::xxh3::xxh3_64_with_seed(&[first], 0)).collect();
    let value = "(call $hash (i32.const 0x40000000) (i32.const 1) (i64.const 0))";
    assert_eq!(emitted(&["b"], value), [expected.clone(), expected]);
}

#[test]
fn bytes_behind_the_mapped_packets_are_never_read() {
    // The area ends after two pages.
    let value = "(call $find (i32.const 0) (i32.const 0x40001ff0) (i32.const 17))";
    assert_eq!(emitted(&["b"], value), [const { Vec::new() }; 2]);
    let value = "(call $hash (i32.const 0x40001ff0) (i32.const 16) (i64.const 0))";
    assert!(emitted(&["b"], value).iter().all(|values| values.len() == 64));
}
