//! Properties: the joined filters accept what each accepts alone, for any programs and packets, and nothing panics.

use proptest::prelude::*;
use std::sync::Arc;
use weir_demux::{
    ChannelSet, Demux, FilterProgram, Filters, Instruction, JoinError, JoinLimits, Joiner, MoreBytes, Packet,
    join_all,
};

/// An instruction that `left` instructions follow; the last one always returns.
fn instruction(left: u8) -> impl Strategy<Value = Instruction> {
    let plain = |code: u16, k: u32| Instruction { code, jt: 0, jf: 0, k };
    let near = prop_oneof![Just(12_u32), Just(14), 0..24_u32];
    let small = prop_oneof![0..4_u32, Just(0x0800), Just(0xff), Just(0xff00), any::<u32>()];
    let load = (prop::sample::select(vec![0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0xb1]), near);
    let alu = (
        prop::sample::select(vec![
            0x04, 0x14, 0x24, 0x44, 0x54, 0xa4, 0x0c, 0x1c, 0x2c, 0x3c, 0x4c, 0x5c, 0x6c, 0x7c, 0x9c, 0xac,
            0x84,
        ]),
        small.clone(),
    );
    let shift = (prop::sample::select(vec![0x64, 0x74]), 0..32_u32);
    let memory = (prop::sample::select(vec![0x60, 0x61, 0x02, 0x03]), 0..4_u32);
    let other = (prop::sample::select(vec![0x00, 0x01, 0x80, 0x81, 0x07, 0x87]), small.clone());
    let returns = (prop::sample::select(vec![0x06, 0x16]), 0..2_u32);
    let test = (
        prop::sample::select(vec![0x15, 0x25, 0x35, 0x45, 0x1d, 0x2d, 0x3d, 0x4d]),
        0..=left,
        0..=left,
        small,
    )
        .prop_map(|(code, jt, jf, k)| Instruction { code, jt, jf, k });
    prop_oneof![
        6 => load.prop_map(move |(code, k)| plain(code, k)),
        3 => alu.prop_map(move |(code, k)| plain(code, k)),
        1 => shift.prop_map(move |(code, k)| plain(code, k)),
        2 => memory.prop_map(move |(code, k)| plain(code, k)),
        2 => other.prop_map(move |(code, k)| plain(code, k)),
        1 => returns.prop_map(move |(code, k)| plain(code, k)),
        1 => (0..=u32::from(left)).prop_map(move |k| plain(0x05, k)),
        8 => test,
    ]
}

fn program() -> impl Strategy<Value = FilterProgram> {
    (1..24_u8)
        .prop_flat_map(|len| {
            let body: Vec<_> = (0..len).map(|at| instruction(len - 1 - at)).collect();
            (body, 0..2_u32)
        })
        .prop_map(|(mut body, k)| {
            body.push(Instruction { code: 6, jt: 0, jf: 0, k });
            FilterProgram::new(&body).expect("all jumps lead to instructions")
        })
}

/// A packet: captured bytes, many with values that the programs test for, and the length on the link.
fn packet() -> impl Strategy<Value = (Vec<u8>, u32)> {
    let byte = prop_oneof![0..4_u8, Just(8), Just(0xff), any::<u8>()];
    (prop::collection::vec(byte, 0..40), prop_oneof![0..4_u32, any::<u32>()])
}

/// Repeats a call until the packet's head has enough bytes, beginning with `first` bytes.
fn call_until_enough<T>(
    bytes: &[u8],
    wire_len: u32,
    first: usize,
    call: impl Fn(&Packet<'_>) -> Result<T, MoreBytes>,
) -> T {
    let cap_len = u32::try_from(bytes.len()).unwrap();
    let mut available = first.min(bytes.len());
    for _ in 0..8 {
        match call(&Packet { head: &bytes[..available], cap_len, wire_len }) {
            Ok(answer) => return answer,
            Err(MoreBytes { enough }) => {
                let enough = usize::try_from(enough).unwrap();
                assert!(
                    enough > available && enough <= bytes.len(),
                    "{enough} of {}, {available} were available",
                    bytes.len()
                );
                available = enough;
            }
        }
    }
    panic!("more bytes were requested again and again")
}

fn wanted(demux: &Demux, bytes: &[u8], wire_len: u32, first: usize) -> ChannelSet {
    wanted_by(bytes, wire_len, first, |packet, set| demux.channels(packet, set))
}

fn wanted_by(
    bytes: &[u8],
    wire_len: u32,
    first: usize,
    channels: impl Fn(&Packet<'_>, &mut ChannelSet) -> Result<(), MoreBytes>,
) -> ChannelSet {
    call_until_enough(bytes, wire_len, first, |packet| {
        // Earlier contents of the set must not remain.
        let mut set: ChannelSet = (0..1024).collect();
        channels(packet, &mut set).map(|()| set)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn joined_programs_accept_what_each_accepts_alone(
        programs in prop::collection::vec(prop::option::weighted(0.9, program()), 1..12),
        packets in prop::collection::vec(packet(), 1..12),
        first in 0..20_usize,
        limits in prop_oneof![
            4 => Just(JoinLimits::default()),
            // Limits with which some or all filters are interpreted.
            1 => (0..300_u64, 0..3_usize, 0..2000_u64, 0..8000_usize).prop_map(|(filter_work, filter_paths, work, memory)| JoinLimits {
                filter_work, filter_paths, work, memory, ..JoinLimits::default()
            }),
        ],
    ) {
        let filters: Vec<Option<&FilterProgram>> = programs.iter().map(Option::as_ref).collect();
        let demux = Demux::new(&filters, &limits).unwrap();
        for (bytes, wire_len) in &packets {
            let expected: ChannelSet = filters
                .iter()
                .enumerate()
                .filter(|(_, filter)| filter.is_some_and(|program| call_until_enough(bytes, *wire_len, bytes.len(), |p| program.accepts(p))))
                .map(|(channel, _)| channel)
                .collect();
            prop_assert_eq!(wanted(&demux, bytes, *wire_len, first), expected);
        }
    }

    #[test]
    fn added_and_removed_filters_accept_what_each_accepts_alone(
        programs in prop::collection::vec(program(), 1..6),
        // Each step: the channel, its new program or none, and true if all filters are joined afterwards.
        steps in prop::collection::vec((0..60_usize, prop::option::weighted(0.8, 0..6_usize), prop::bool::weighted(0.1)), 1..60),
        together in 0..60_usize,
        packets in prop::collection::vec(packet(), 1..4),
        first in 0..20_usize,
    ) {
        let programs: Vec<Arc<FilterProgram>> = programs.into_iter().map(Arc::new).collect();
        let mut filters: Filters = vec![programs.first().cloned(); together];
        let mut joiner = Joiner::new(JoinLimits::default());
        for (channel, program, settles) in steps {
            if filters.len() <= channel {
                filters.resize(channel + 1, None);
            }
            filters[channel] = program.map(|number| Arc::clone(&programs[number % programs.len()]));
            joiner.change(filters.clone()).unwrap();
            if settles {
                let all = join_all(&filters, &JoinLimits::default()).unwrap();
                prop_assert!(all.is_settled() && joiner.settle(&filters, all));
            }
            for (bytes, wire_len) in &packets {
                let accepts = |program: &FilterProgram| call_until_enough(bytes, *wire_len, bytes.len(), |packet| program.accepts(packet));
                let alone = filters.iter().enumerate().filter(|(_, filter)| filter.as_deref().is_some_and(accepts));
                let expected: ChannelSet = alone.map(|(channel, _)| channel).collect();
                let joined = wanted_by(bytes, *wire_len, first, |packet, set| joiner.joined().channels(packet, set));
                prop_assert_eq!(joined, expected);
            }
        }
    }

    #[test]
    fn both_of_two_programs_accept_what_their_conjunction_accepts(a in program(), b in program(), (bytes, wire_len) in packet()) {
        let both = a.and(&b).unwrap();
        let accepts = |program: &FilterProgram| call_until_enough(&bytes, wire_len, 0, |packet| program.accepts(packet));
        prop_assert_eq!(accepts(&both), accepts(&a) && accepts(&b));
    }

    #[test]
    fn any_instructions_are_a_program_or_an_error(
        instructions in prop::collection::vec((0..0x110_u16, 0..6_u8, 0..6_u8, prop_oneof![0..20_u32, any::<u32>()]), 0..12),
        (bytes, wire_len) in packet(),
    ) {
        let instructions: Vec<Instruction> =
            instructions.into_iter().map(|(code, jt, jf, k)| Instruction { code, jt, jf, k }).collect();
        if let Ok(program) = FilterProgram::new(&instructions) {
            let demux = Demux::new(&[Some(&program)], &JoinLimits::default()).unwrap();
            let alone = call_until_enough(&bytes, wire_len, 0, |packet| program.accepts(packet));
            prop_assert_eq!(wanted(&demux, &bytes, wire_len, 0).contains(0), alone);
        }
    }
}

fn plain(code: u16, jt: u8, jf: u8, k: u32) -> Instruction {
    Instruction { code, jt, jf, k }
}

/// Computes bit by bit if an odd number of bytes is odd. The accepting paths are exponentially many, and no two can be
/// merged.
fn parity(bytes: u32) -> FilterProgram {
    let mut all = vec![plain(0x00, 0, 0, 0), plain(0x02, 0, 0, 0)];
    for at in 0..bytes {
        // A = packet[at]; where it is odd, M[0] ^= 1.
        all.extend([
            plain(0x30, 0, 0, at),
            plain(0x45, 0, 3, 1),
            plain(0x60, 0, 0, 0),
            plain(0xa4, 0, 0, 1),
            plain(0x02, 0, 0, 0),
        ]);
    }
    all.extend([plain(0x60, 0, 0, 0), plain(0x16, 0, 0, 0)]);
    FilterProgram::new(&all).unwrap()
}

#[test]
fn a_filter_with_exponentially_many_paths_is_interpreted_after_bounded_work() {
    let (odd, port) = (
        parity(40),
        FilterProgram::new(&[
            plain(0x28, 0, 0, 0),
            plain(0x15, 0, 1, 7),
            plain(6, 0, 0, 1),
            plain(6, 0, 0, 0),
        ])
        .unwrap(),
    );
    let limits = JoinLimits::default();
    let demux = Demux::new(&[Some(&odd), None, Some(&port)], &limits).unwrap();
    assert_eq!(demux.interpreted().collect::<Vec<_>>(), [0]);
    assert!(demux.work() <= 2 * limits.filter_work + limits.work);
    let bytes: Vec<u8> = [0, 7].into_iter().chain([2; 38]).collect();
    assert_eq!(wanted(&demux, &bytes, 40, 4), [0, 2].into_iter().collect());
}

#[test]
fn too_much_to_interpret_is_refused_with_the_channel() {
    let (odd, small) = (parity(700), parity(2));
    let filters: Vec<Option<&FilterProgram>> = [&small, &odd, &odd, &odd, &odd, &odd].map(Some).to_vec();
    let error = Demux::new(&filters, &JoinLimits::default()).unwrap_err();
    let instructions = 5 * odd.longest_path();
    assert!(
        matches!(error, JoinError::TooMuchToInterpret { channel: 1..=5, instructions: n, limit: 16_384 } if n == instructions),
        "{error}"
    );
    assert_eq!(
        Demux::new(&[None; 1025], &JoinLimits::default()).unwrap_err(),
        JoinError::TooManyChannels(1025)
    );
}

#[test]
fn where_the_tables_exceed_a_limit_the_heaviest_filters_are_interpreted() {
    // Each tests for its own value at two places: ((0) = n and (4) = n) or (8) = n.
    let one = |n: u32| {
        FilterProgram::new(&[
            plain(0x20, 0, 0, 0),
            plain(0x15, 0, 2, n),
            plain(0x20, 0, 0, 4),
            plain(0x15, 2, 0, n),
            plain(0x20, 0, 0, 8),
            plain(0x15, 0, 1, n),
            plain(6, 0, 0, 1),
            plain(6, 0, 0, 0),
        ])
        .unwrap()
    };
    let programs: Vec<FilterProgram> = (0..60).map(|n| one(n * 0x0101_0101)).collect();
    let filters: Vec<Option<&FilterProgram>> = programs.iter().map(Some).collect();
    let whole = Demux::new(&filters, &JoinLimits::default()).unwrap();
    assert_eq!(whole.interpreted().count(), 0);
    let limits = JoinLimits { memory: whole.memory() / 2, ..JoinLimits::default() };
    let demux = Demux::new(&filters, &limits).unwrap();
    let interpreted = demux.interpreted().count();
    assert!((1..60).contains(&interpreted), "{interpreted}");
    assert!(demux.memory() <= limits.memory);
    for n in 0..60_u8 {
        let bytes: Vec<u8> = [[0xff; 8], [n; 8]].concat();
        let expected: ChannelSet = [usize::from(n)].into_iter().collect();
        assert_eq!(wanted(&whole, &bytes, 16, 4), expected);
        assert_eq!(wanted(&demux, &bytes, 16, 4), expected);
    }
}

#[test]
fn later_bytes_are_requested_only_where_they_matter() {
    // (0) = 1, and the byte at 30 is 5.
    let program = FilterProgram::new(&[
        plain(0x30, 0, 0, 0),
        plain(0x15, 0, 3, 1),
        plain(0x30, 0, 0, 30),
        plain(0x15, 0, 1, 5),
        plain(6, 0, 0, 1),
        plain(6, 0, 0, 0),
    ])
    .unwrap();
    let demux = Demux::new(&[Some(&program)], &JoinLimits::default()).unwrap();
    let mut set = ChannelSet::NONE;
    let other = Packet { head: &[2, 0], cap_len: 40, wire_len: 40 };
    assert_eq!(demux.channels(&other, &mut set), Ok(()));
    let mine = Packet { head: &[1, 0], cap_len: 40, wire_len: 40 };
    assert_eq!(demux.channels(&mine, &mut set), Err(MoreBytes { enough: 31 }));
}
