//! Feeds each element with arbitrary packets: no element panics, and batches give the same results as single packets.
//!
//! The arguments of the elements are those in tests/graphs.

use super::classes;
use super::feed::{AnyPacket, FedGraph, set_packets};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::path::Path;
use weir_elements::AllElements;
use weir_graph::engine::{ANNOTATION_BYTES, ElementClass, ElementClasses as _, PacketType, PortCounts};
use weir_graph::language::{ConfigurationSource, parse};

/// The steps of a run.
const STEPS: usize = 1000;

/// The classes that run in no test here: a graph with an Error never starts, and the other ones need rewriters, with which
/// [`super::translation`] feeds them.
const NOT_FED: &[&str] = &["Error", "FTPPortMapper", "ICMPRewriter"];

/// Returns the classes in tests/graphs with their arguments.
fn configurations() -> BTreeSet<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/graphs");
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let graph =
            text.split("--- graph\n").nth(1).unwrap_or_default().split("\n---").next().unwrap_or_default();
        let source = ConfigurationSource { name: "graph", bytes: graph.as_bytes() };
        if let Ok(flat) = parse(&source, &[], &AllElements) {
            let of = |it: &weir_graph::language::ElementDeclaration| {
                (it.class.to_string(), it.configuration.to_string())
            };
            found.extend(flat.elements.iter().map(of));
        }
    }
    found
}

/// Feeds an element with the packets. Returns false if no graph of it can run.
fn feed(class: &ElementClass, arguments: &str) -> Result<bool, TestCaseError> {
    let ports = PortCounts::read(class.ports).unwrap();
    if *ports.inputs.end() == 0 {
        return Ok(true);
    }
    let inputs = *ports.inputs.start().max(&1);
    let counts = ports.outputs_with(inputs);
    for outputs in [5, 4, 3, 2, 1, 0].into_iter().filter(|count| counts.contains(count)) {
        let graph = FedGraph { class, arguments, inputs, outputs };
        if let Ok(one_by_one) = graph.run(1, STEPS) {
            let batches = graph.run(64, STEPS).map_err(TestCaseError::fail)?;
            if let (Some(one_by_one), Some(batches)) = (one_by_one, batches) {
                prop_assert_eq!(one_by_one, batches, "{}({})", class.name, arguments);
            }
            return Ok(true);
        }
    }
    Ok(false)
}

/// The shape of an IPv4 header, for bytes at an offset.
fn shape(bytes: &mut [u8], at: usize, kind: (u8, u8, u8), is_right: bool) {
    let (header_words, protocol, option) = kind;
    let Some(header) = bytes.get_mut(at..).filter(|header| header.len() >= 24) else { return };
    header[0] = 0x40 | header_words;
    header[9] = protocol;
    header[20] = option;
    let header_bytes = usize::from(header_words) * 4;
    if is_right && (20..=header.len()).contains(&header_bytes) {
        let length = u16::try_from(header.len()).unwrap();
        header[2..4].copy_from_slice(&length.to_be_bytes());
        header[10..12].fill(0);
        let mut sum: u32 =
            header[..header_bytes].chunks(2).map(|it| u32::from(it[0]) << 8 | u32::from(it[1])).sum();
        while sum > 0xffff {
            sum = (sum >> 16) + (sum & 0xffff);
        }
        header[10..12].copy_from_slice(&(!u16::try_from(sum).unwrap()).to_be_bytes());
    }
}

fn any_packet() -> impl Strategy<Value = AnyPacket> {
    let bytes = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..120),
        proptest::collection::vec(0..6_u8, 0..120)
    ];
    let kind = (
        prop_oneof![Just(5_u8), 0..16_u8, 6..10_u8],
        prop_oneof![Just(1_u8), Just(6), Just(17), any::<u8>()],
        prop_oneof![Just(7_u8), Just(68), Just(131), Just(0), any::<u8>()],
    );
    let header = prop_oneof![
        3 => Just(None),
        1 => (0..130_usize, 0..70_usize).prop_map(Some),
    ];
    let annotations = prop_oneof![
        proptest::collection::vec(any::<u8>(), ANNOTATION_BYTES),
        proptest::collection::vec(0..4_u8, ANNOTATION_BYTES)
    ];
    let packet_type = prop_oneof![
        3 => Just(PacketType::Host),
        1 => Just(PacketType::Broadcast),
        1 => Just(PacketType::OtherHost)
    ];
    let cut = (
        prop_oneof![3 => Just(0_usize), 1 => 0..60_usize],
        prop_oneof![3 => Just(0_usize), 1 => 0..60_usize],
    );
    let at = prop_oneof![Just(0_usize), Just(14), 0..30_usize];
    (bytes, kind, at, any::<(bool, bool, bool)>(), header, annotations, cut, packet_type, any::<u64>())
        .prop_map(
            |(
                mut bytes,
                kind,
                at,
                (is_ip, is_right, is_marked),
                header,
                annotations,
                cut,
                packet_type,
                time,
            )| {
                if is_ip {
                    shape(&mut bytes, at, kind, is_right);
                }
                let header = header.or((is_ip && is_marked).then_some((at, usize::from(kind.0) * 4)));
                let (stripped, truncated) = cut;
                AnyPacket { bytes, header, annotations, stripped, truncated, packet_type, time }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn each_element_survives_any_packet(packets in proptest::collection::vec(any_packet(), 1..12)) {
        set_packets(packets);
        let mut fed = BTreeSet::new();
        for (name, arguments) in configurations() {
            let Some(class) = AllElements.find(&name) else { continue };
            if feed(class, &arguments)? {
                fed.insert(name);
            }
        }
        let all = classes().map(|class| class.name);
        let missing: Vec<&str> = all.filter(|name| !fed.contains(*name) && !NOT_FED.contains(name)).collect();
        prop_assert!(missing.is_empty(), "no graph in tests/graphs has arguments that feed {missing:?}");
    }
}
