//! The joined filters of many channels give the same result as libpcap gives for each of them.

use crate::oracle::Oracle;
use pcap::Linktype;
use proptest::prelude::*;
use std::path::Path;
use weir_demux::{ChannelSet, Demux, FilterProgram, Instruction, JoinLimits, MoreBytes, Packet};
use weir_netio::{Capture, CaptureInput, CaptureNext, compile_filter};
use weir_wire::LinkType;

fn sample() -> Vec<(u32, Vec<u8>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/sample/sample.pcap");
    let mut capture = Capture::open(CaptureInput::File(path)).unwrap();
    let mut packets = Vec::new();
    while let CaptureNext::Block(block) = capture.next_block().unwrap() {
        for (i, descriptor) in block.descriptors().iter().enumerate() {
            assert_eq!(descriptor.link_type, LinkType::Ethernet.number());
            let mut bytes = Vec::new();
            block.copy_packet(i, &mut bytes);
            packets.push((descriptor.wire_len, bytes));
        }
    }
    packets
}

/// Addresses, most of which are in the sample capture or in the generated packets.
fn host() -> impl Strategy<Value = String> {
    let last = prop_oneof![Just(1_u8), Just(2), any::<u8>()];
    let v4 = (prop::sample::select(vec!["10.0.0", "10.1.1", "192.168.1", "172.16.0"]), last.clone())
        .prop_map(|(net, last)| format!("{net}.{last}"));
    let v6 = last.prop_map(|last| format!("fd00::{last:x}"));
    prop_oneof![4 => v4, 1 => v6]
}

fn net() -> impl Strategy<Value = String> {
    prop::sample::select(
        [
            "10.0.0.0/8",
            "10.0.0.0/24",
            "10.1.0.0/16",
            "192.168.0.0/17",
            "172.16.0.0/12",
            "fd00::/16",
            "0.0.0.0/0",
        ]
        .to_vec(),
    )
    .prop_map(str::to_owned)
}

fn port() -> impl Strategy<Value = u16> {
    prop_oneof![prop::sample::select(vec![53_u16, 80, 443, 22, 123, 5000]), any::<u16>()]
}

fn primitive() -> impl Strategy<Value = String> {
    let direction = || prop::sample::select(vec!["", "src ", "dst ", "src or dst ", "src and dst "]);
    let transport = prop::sample::select(vec!["", "tcp ", "udp "]);
    let plain = [
        "ip",
        "ip6",
        "arp",
        "tcp",
        "udp",
        "icmp",
        "icmp6",
        "vlan",
        "ip multicast",
        "ether multicast",
        "broadcast or multicast",
        "sctp",
        "ip proto 47",
        "tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn",
        "tcp[13] & 4 != 0",
        "ip[6:2] & 0x1fff != 0",
        "ip[0] & 0xf > 5",
        "udp[8:4] = 0x01020304",
        "tcp[((tcp[12] & 0xf0) >> 2):4] = 0x47455420",
        "ip[2:2] > ip[0]",
        "ether[0] & 1 = 0 and ip[8] < 64",
        "len / 2 > 100",
        "ether[len - 1] = 0",
        "not ip and not ip6 and not arp",
        "mpls",
    ];
    prop_oneof![
        4 => (direction(), host()).prop_map(|(direction, host)| format!("{direction}host {host}")),
        3 => (direction(), net()).prop_map(|(direction, net)| format!("{direction}net {net}")),
        3 => (transport, direction(), port()).prop_map(|(transport, direction, port)| format!("{transport}{direction}port {port}")),
        2 => (direction(), port(), 0..2000_u16)
            .prop_map(|(direction, port, more)| format!("{direction}portrange {port}-{}", port.saturating_add(more))),
        1 => (prop::sample::select(vec!["less", "greater"]), 40..200_u16).prop_map(|(which, len)| format!("{which} {len}")),
        1 => (1..5_u16).prop_map(|id| format!("vlan {id}")),
        4 => prop::sample::select(plain.to_vec()).prop_map(str::to_owned),
    ]
}

fn expression() -> impl Strategy<Value = String> {
    primitive().prop_recursive(4, 12, 3, |inner| {
        prop_oneof![
            2 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}) and ({b})")),
            2 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}) or ({b})")),
            1 => inner.prop_map(|a| format!("not ({a})")),
        ]
    })
}

/// Packets close to those that the expressions select.
fn packet() -> impl Strategy<Value = (u32, Vec<u8>)> {
    let tags = prop::sample::select(vec![vec![], vec![1_u16], vec![2], vec![1, 3]]);
    let transport = prop::sample::select(vec![6_u8, 17, 1, 47, 132, 58]);
    let address = || {
        let net = prop::sample::select(vec![[10, 0, 0], [10, 1, 1], [192, 168, 1], [172, 16, 0]]);
        (net, prop_oneof![Just(1_u8), Just(2), any::<u8>()])
    };
    let header = (tags, any::<bool>(), transport, address(), address(), port(), port());
    let rest = (
        prop_oneof![4 => Just(0_u16), 1 => any::<u16>()],
        0..8_u8,
        any::<u8>(),
        prop::collection::vec(any::<u8>(), 0..40),
    );
    (header, rest, prop_oneof![3 => Just(usize::MAX), 1 => 0..90_usize], 0..300_u32).prop_map(
        |(
            (tags, is_v6, transport, src, dst, src_port, dst_port),
            (fragment, options, flags, payload),
            cut,
            more,
        )| {
            let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
            for tag in tags {
                bytes.extend([0x81, 0, 0]);
                bytes.extend([u8::try_from(tag).unwrap()]);
            }
            if is_v6 {
                bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 60, transport, 64]);
                for address in [src, dst] {
                    bytes.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, address.1]);
                }
            } else {
                let words = 5 + options / 4 * 2;
                bytes.extend([8, 0, 0x40 | words, 0, 0, 100, 0, 7]);
                bytes.extend(fragment.to_be_bytes());
                bytes.extend([64, transport, 0, 0]);
                for ([a, b, c], d) in [src, dst] {
                    bytes.extend([a, b, c, d]);
                }
                bytes.extend(vec![1; usize::from(words - 5) * 4]);
            }
            bytes.extend([src_port, dst_port].iter().flat_map(|port| port.to_be_bytes()));
            bytes.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 1, 0, 0, 0, 0, 0]);
            bytes.extend(payload);
            bytes.truncate(cut);
            (u32::try_from(bytes.len()).unwrap() + more, bytes)
        },
    )
}

/// An expression as compiled by libpcap and by weir.
struct Filter {
    expression: String,
    libpcap: Oracle,
    /// Compiled without libpcap's optimiser, which removes some loads beyond a packet's end.
    unoptimised: Oracle,
    program: FilterProgram,
}

/// libpcap's instructions for Ethernet, from its text output.
fn by_libpcap(expression: &str, is_optimised: bool) -> Option<Vec<Instruction>> {
    let dead = pcap::Capture::dead(Linktype::ETHERNET).unwrap();
    let compiled = dead.compile(expression, is_optimised).ok()?;
    let instruction = |shown: String| {
        let fields: Vec<u32> = shown.split_whitespace().map(|field| field.parse().unwrap()).collect();
        Instruction {
            code: fields[0].try_into().unwrap(),
            jt: fields[1].try_into().unwrap(),
            jf: fields[2].try_into().unwrap(),
            k: fields[3],
        }
    };
    Some(compiled.get_instructions().iter().map(|one| instruction(one.to_string())).collect())
}

/// The filters that can be compiled for Ethernet.
fn compiled(expressions: &[String]) -> Vec<Filter> {
    expressions
        .iter()
        .filter_map(|expression| {
            let program = compile_filter(expression, LinkType::Ethernet).ok()?;
            let oracle = |is_optimised| {
                Some(Oracle::new(&by_libpcap(expression, is_optimised)?).expect("it is valid"))
            };
            let (libpcap, unoptimised) = (oracle(true)?, oracle(false)?);
            Some(Filter { expression: expression.clone(), libpcap, unoptimised, program })
        })
        .collect()
}

/// The channels that select a packet, given its first 96 bytes, and more bytes on request.
fn selecting_channels(demux: &Demux, wire_len: u32, bytes: &[u8]) -> ChannelSet {
    let cap_len = u32::try_from(bytes.len()).unwrap();
    let (mut have, mut set) = (bytes.len().min(96), ChannelSet::NONE);
    while let Err(MoreBytes { enough }) =
        demux.channels(&Packet { head: &bytes[..have], cap_len, wire_len }, &mut set)
    {
        assert!(usize::try_from(enough).unwrap() > have);
        have = usize::try_from(enough).unwrap();
    }
    set
}

fn compare(filters: &[Filter], packets: &[(u32, Vec<u8>)]) -> Result<usize, TestCaseError> {
    let programs: Vec<Option<&FilterProgram>> = filters.iter().map(|filter| Some(&filter.program)).collect();
    let demux = Demux::new(&programs, &JoinLimits::default()).unwrap();
    let mut matches = 0;
    for (wire_len, bytes) in packets {
        let set = selecting_channels(&demux, *wire_len, bytes);
        for (channel, filter) in filters.iter().enumerate() {
            let mut expected = filter.libpcap.accepts(*wire_len, bytes);
            if set.contains(channel) != expected {
                expected = filter.unoptimised.accepts(*wire_len, bytes);
            }
            prop_assert_eq!(
                set.contains(channel),
                expected,
                "{}: {:02x?} of {}",
                filter.expression,
                bytes,
                wire_len
            );
        }
        matches += set.len();
    }
    Ok(matches)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 50, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn joined_filters_select_the_same_channels_as_single_filters(
        expressions in prop::collection::vec(expression(), 1..30),
        packets in prop::collection::vec(packet(), 1..40),
    ) {
        compare(&compiled(&expressions), &packets)?;
    }
}

#[test]
fn the_sample_capture_is_divided_as_libpcap_divides_it() {
    let packets = sample();
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut matches = 0;
    for _ in 0..10 {
        let tree = prop::collection::vec(expression(), 40).new_tree(&mut runner).unwrap();
        matches += compare(&compiled(&proptest::strategy::ValueTree::current(&tree)), &packets).unwrap();
    }
    assert!(matches > packets.len(), "{matches} matches of {} packets", packets.len());
}

#[test]
fn usual_filters_are_joined() {
    let usual = [
        "host 10.0.0.1",
        "tcp port 80 or udp port 53",
        "net 10.0.0.0/8 and not port 22",
        "vlan 5 and ip6",
        "ip6 host fd00::1",
    ];
    let filters = compiled(&usual.map(str::to_owned));
    let programs: Vec<Option<&FilterProgram>> = filters.iter().map(|filter| Some(&filter.program)).collect();
    let demux = Demux::new(&programs, &JoinLimits::default()).unwrap();
    assert_eq!(demux.interpreted().count(), 0);
    // libpcap's program for this expression has a loop.
    assert!(FilterProgram::new(&by_libpcap("ip6 protochain 6", true).unwrap()).is_err());
    assert!(compile_filter("ip6 protochain 6", LinkType::Ethernet).is_ok());
}

#[test]
fn expressions_with_very_many_paths_are_interpreted() {
    // Each byte may be less than the next, so none of the 2^30 paths can be merged.
    let hostile = (20..50)
        .map(|at| format!("(ether[{at}] & 1 = 1 and ether[{}] & 2 = 2)", at + 1))
        .collect::<Vec<_>>()
        .join(" or ");
    let filters = compiled(&[format!("not ({hostile})"), hostile, "tcp".to_owned()]);
    let programs: Vec<Option<&FilterProgram>> = filters.iter().map(|filter| Some(&filter.program)).collect();
    let limits = JoinLimits::default();
    let demux = Demux::new(&programs, &limits).unwrap();
    assert!(demux.interpreted().count() > 0);
    assert!(demux.work() <= 3 * limits.filter_work + limits.work);
    compare(&filters, &sample()[..200]).unwrap();
}
