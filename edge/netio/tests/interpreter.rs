//! weir's interpreter gives the same result as libpcap's for any program.

use crate::oracle::Oracle;
use proptest::prelude::*;
use weir_demux::{FilterProgram, Instruction, Packet};

/// An instruction with `left` instructions behind it.
fn instruction(left: u8) -> impl Strategy<Value = Instruction> {
    let plain = |code: u16, k: u32| Instruction { code, jt: 0, jf: 0, k };
    let small = prop_oneof![0..40_u32, Just(0x0800), Just(0xffff_fff0), any::<u32>()];
    let load = (prop::sample::select(vec![0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0xb1]), small.clone());
    let alu = (
        prop::sample::select(vec![
            0x04, 0x14, 0x24, 0x34, 0x44, 0x54, 0x94, 0xa4, 0x0c, 0x1c, 0x2c, 0x3c, 0x4c, 0x5c, 0x6c, 0x7c,
            0x9c, 0xac, 0x84,
        ]),
        small.clone().prop_map(|k| k.max(1)),
    );
    let shift = (prop::sample::select(vec![0x64, 0x74]), 0..32_u32);
    let other = (prop::sample::select(vec![0x00, 0x01, 0x80, 0x81, 0x07, 0x87]), small.clone());
    let memory = (prop::sample::select(vec![0x60, 0x61, 0x02, 0x03]), 0..4_u32);
    let returns = (prop::sample::select(vec![0x06, 0x16]), 0..2_u32);
    let tests = prop::sample::select(vec![0x15, 0x25, 0x35, 0x45, 0x1d, 0x2d, 0x3d, 0x4d]);
    prop_oneof![
        6 => load.prop_map(move |(code, k)| plain(code, k)),
        4 => alu.prop_map(move |(code, k)| plain(code, k)),
        1 => shift.prop_map(move |(code, k)| plain(code, k)),
        2 => other.prop_map(move |(code, k)| plain(code, k)),
        2 => memory.prop_map(move |(code, k)| plain(code, k)),
        1 => returns.prop_map(move |(code, k)| plain(code, k)),
        1 => (0..=u32::from(left)).prop_map(move |k| plain(0x05, k)),
        4 => (tests, 0..=left, 0..=left, small).prop_map(|(code, jt, jf, k)| Instruction { code, jt, jf, k }),
    ]
}

/// Scratch memory is written first, because libpcap's is not initialised.
fn program() -> impl Strategy<Value = Vec<Instruction>> {
    (1..30_u8).prop_flat_map(|len| {
        let body: Vec<_> = (0..len).map(|at| instruction(len - 1 - at)).collect();
        (body, any::<bool>()).prop_map(|(body, ends_with_a)| {
            let mut all: Vec<Instruction> =
                (0..4).map(|k| Instruction { code: 2, jt: 0, jf: 0, k }).collect();
            all.extend(body);
            all.push(Instruction { code: if ends_with_a { 0x16 } else { 6 }, jt: 0, jf: 0, k: 1 });
            all
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_accept_the_same_packets_as_in_libpcap(
        instructions in program(),
        packets in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..60), any::<u16>()), 8),
    ) {
        let (ours, theirs) = (FilterProgram::new(&instructions), Oracle::new(&instructions));
        prop_assert_eq!(ours.is_ok(), theirs.is_some());
        let (Ok(ours), Some(theirs)) = (ours, theirs) else { return Ok(()) };
        for (bytes, wire_len) in packets {
            let (cap_len, wire_len) = (u32::try_from(bytes.len()).unwrap(), u32::from(wire_len));
            let accepted = ours.accepts(&Packet { head: &bytes, cap_len, wire_len }).unwrap();
            prop_assert_eq!(accepted, theirs.accepts(wire_len, &bytes), "{:02x?} of {}", bytes, wire_len);
        }
    }
}
