//! Feeds an element of a graph with arbitrary packets: their bytes, annotations and header offsets. The input chooses
//! the class and its configuration. Batches have to give the same results as single packets.
//!
//! An input is the name of a class, a line feed, a configuration, a zero byte, then packets.

#![no_main]
#![forbid(unsafe_code)]

#[path = "../../core/elements/tests/elements/feed.rs"]
mod feed;

use feed::{AnyPacket, FedGraph, set_packets};
use libfuzzer_sys::fuzz_target;
use weir_elements::{AllElements, CLASSES};
use weir_graph::engine::{ANNOTATION_BYTES, ElementClass, ElementClasses as _, PacketType, PortCounts};

/// The steps of a run: enough for all packets.
const STEPS: usize = 100;
const PACKETS_MAX: usize = 40;
const OUTPUTS_MAX: usize = 6;

fuzz_target!(|input: &[u8]| {
    let Some((head, packets)) = split(input, 0) else { return };
    let Some((name, configuration)) = split(head, b'\n') else { return };
    let (class, configuration) = (class(name), String::from_utf8_lossy(configuration));
    set_packets(read_packets(packets));
    let ports = PortCounts::read(class.ports).unwrap();
    let inputs = *ports.inputs.start().max(&usize::from(*ports.inputs.end() > 0));
    let counts = ports.outputs_with(inputs);
    for outputs in (0..OUTPUTS_MAX).rev().filter(|count| counts.contains(count)) {
        let graph = FedGraph { class, arguments: &configuration, inputs, outputs };
        if let Ok(one_by_one) = graph.run(1, STEPS) {
            let batches = graph.run(64, STEPS).unwrap();
            if let (Some(one_by_one), Some(batches)) = (one_by_one, batches) {
                assert_eq!(one_by_one, batches, "{}({configuration})", class.name);
            }
            break;
        }
    }
});

fn split(bytes: &[u8], end: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == end)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

/// Returns the class with this name, or else some class that depends on the name.
fn class(name: &[u8]) -> &'static ElementClass {
    let classes: Vec<&ElementClass> = CLASSES.iter().flat_map(|(_, classes)| classes.iter().copied()).collect();
    let sum: usize = name.iter().map(|byte| usize::from(*byte)).sum();
    let named = std::str::from_utf8(name).ok().and_then(|name| AllElements.find(name));
    named.unwrap_or(classes[sum % classes.len()])
}

/// Reads packets: eight bytes about each, then its bytes.
fn read_packets(mut bytes: &[u8]) -> Vec<AnyPacket> {
    let mut packets = Vec::new();
    while let Some(([kind, at, header, stripped, truncated, annotation, value, length], rest)) =
        bytes.split_first_chunk::<8>()
        && packets.len() < PACKETS_MAX
    {
        let (content, rest) = rest.split_at(usize::from(*length).min(rest.len()));
        bytes = rest;
        let mut annotations = vec![0; ANNOTATION_BYTES];
        annotations[usize::from(*annotation) % ANNOTATION_BYTES] = *value;
        packets.push(AnyPacket {
            bytes: content.to_vec(),
            header: (kind & 1 != 0).then_some((usize::from(*at), usize::from(*header))),
            annotations,
            stripped: if kind & 2 != 0 { usize::from(*stripped) } else { 0 },
            truncated: if kind & 4 != 0 { usize::from(*truncated) } else { 0 },
            packet_type: [PacketType::Host, PacketType::Broadcast, PacketType::Multicast, PacketType::OtherHost]
                [usize::from(kind >> 3 & 3)],
            // Seconds, so that timeouts pass.
            time: (u64::from(*value) + packets.len() as u64) * 1_000_000_000,
        });
    }
    packets
}
