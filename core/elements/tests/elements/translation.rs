//! A translation of addresses, fed with arbitrary packets of its flows: nothing panics, batches give the same results as
//! single packets, and checksums stay right.

use super::feed::{AnyPacket, FedElements, run_flat, set_packets};
use proptest::prelude::*;
use weir_graph::engine::{ANNOTATION_BYTES, PacketType};
use weir_graph::language::{ConfigurationSource, parse};

/// All elements of a translation, with small tables and few ports.
const GRAPH: &str = "\
AnySource -> side :: IPClassifier(src net 10.0.0.0/8 and dst tcp port 21, src net 10.0.0.0/8 and (tcp or udp), \
    src net 10.0.0.0/8 and icmp type echo, icmp type echo-reply, icmp, -);
IPRewriterPatterns(address 198.51.100.1 1024-1031 - -);
flows :: IPRewriter(pattern address 0 1, keep 1 0, MAPPING_CAPACITY 12, TCP_GUARANTEE 0, REPLY_ANNO PAINT);
pings :: ICMPPingRewriter(pattern address 0 1, drop, MAPPING_CAPACITY flows);
errors :: ICMPRewriter(flows pings);
side [0] -> FTPPortMapper(flows, flows, 0) -> flows;
side [1] -> flows;
side [2] -> pings;
side [3] -> [1] pings;
side [4] -> errors;
side [5] -> [1] flows;
flows [0] -> s0 :: AnySink; flows [1] -> s1 :: AnySink;
pings [0] -> s2 :: AnySink; pings [1] -> s3 :: AnySink;
errors [0] -> s4 :: AnySink; errors [1] -> s5 :: AnySink;
";

/// Pieces of an FTP session.
const TEXTS: &[&str] = &[
    "PORT 10,0,0,1,3,9\r\n",
    "PORT 10,0,",
    "0,1,3,9\r\nPO",
    "RT 10,0,0,2,1,1\n",
    "PORT 999,0,0,0,0,0\r\n",
    "LIST\r\n",
    "1",
    ",",
    "PORT ",
    "",
];

fn internet_sum(bytes: &[u8]) -> u16 {
    let mut sum: u64 = bytes
        .chunks(2)
        .map(|pair| u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0)))
        .sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    u16::try_from(sum).unwrap()
}

/// Returns an IP packet, with right checksums.
fn ip(source: [u8; 4], destination: [u8; 4], protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(20 + payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![0x45, 0, length[0], length[1], 0, 7, 0, 0, 64, protocol, 0, 0];
    bytes[6..8].copy_from_slice(&fragment.to_be_bytes());
    bytes.extend(source);
    bytes.extend(destination);
    let sum = !internet_sum(&bytes);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes.extend(payload);
    let at = match protocol {
        1 => 2,
        6 => 16,
        _ => 6,
    };
    if payload.len() >= at + 2 {
        let place = 20 + at;
        bytes[place..place + 2].fill(0);
        let sum = !transport_sum(&bytes);
        bytes[place..place + 2].copy_from_slice(&sum.to_be_bytes());
    }
    bytes
}

/// Returns the sum of the transport segment with its pseudo-header: 0xffff if the checksum is right.
fn transport_sum(bytes: &[u8]) -> u16 {
    let mut covered = bytes[20..].to_vec();
    if bytes[9] != 1 {
        if covered.len() % 2 == 1 {
            covered.push(0);
        }
        covered.extend_from_slice(&bytes[12..20]);
        covered.extend([0, bytes[9]]);
        covered.extend(u16::try_from(bytes.len() - 20).unwrap().to_be_bytes());
    }
    internet_sum(&covered)
}

/// A packet of the inside or the outside, with few addresses, ports and sequence numbers.
fn packet() -> impl Strategy<Value = Vec<u8>> {
    let numbers = (0..3_u8, 0..3_u8, 0..8_u8, 0..64_u32, 0..64_u32, any::<u8>());
    let text = prop_oneof![
        3 => (0..TEXTS.len()).prop_map(|index| TEXTS[index].as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..12)
    ];
    let kind = prop_oneof![4 => Just(0_u8), 1 => 1..6_u8];
    (kind, any::<bool>(), numbers, text).prop_map(
        |(kind, is_inside, (host, server, port, sequence, acknowledgement, flags), text)| {
            let server_port = [21, 53, 20][usize::from(server)];
            let (inside, outside) = ([10, 0, 0, host], [192, 0, 2, server]);
            let ends = match is_inside {
                true => (inside, outside, 1024 + u16::from(port), server_port),
                false => (outside, [198, 51, 100, 1], server_port, 1024 + u16::from(port)),
            };
            let (source, destination, from, to) = ends;
            let ports = [from.to_be_bytes(), to.to_be_bytes()].concat();
            let tcp = [
                &ports[..],
                &(1000 + sequence).to_be_bytes(),
                &(1000 + acknowledgement).to_be_bytes(),
                &[0x50, flags & 0x1f, 1, 0, 0, 0, 0, 0],
                &text,
            ]
            .concat();
            let udp = [&ports[..], &[0, 0, 0, 0], &text].concat();
            let echo = [&[if is_inside { 8 } else { 0 }, 0, 0, 0], &ports[..], &text].concat();
            match kind {
                0 => ip(source, destination, 6, 0, &tcp),
                1 => ip(source, destination, 17, if flags & 1 == 1 { 0x2000 } else { 0 }, &udp),
                2 => ip(source, destination, 1, 0, &echo),
                3 => ip(source, destination, 17, 5, &text),
                _ => {
                    // An error about a packet that the other side has got, cut somewhere.
                    let protocol = [6, 17, 1][usize::from(server)];
                    let cause = match protocol {
                        6 => tcp,
                        17 => udp,
                        _ => echo,
                    };
                    let cause = ip([198, 51, 100, 1], outside, protocol, 0, &cause);
                    let cut = usize::from(flags) % (cause.len() + 1);
                    let error =
                        [&[[3, 11][usize::from(is_inside)], 0, 0, 0, 0, 0, 0, 0], &cause[..cut]].concat();
                    ip([203, 0, 113, 5], [198, 51, 100, 1], 1, 0, &error)
                }
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_translation_survives_any_packets_of_its_flows(
        packets in proptest::collection::vec((packet(), prop_oneof![6 => Just(0_usize), 1 => 0..60_usize]), 1..60)
    ) {
        let fed = packets.iter().map(|(bytes, cut)| AnyPacket {
            bytes: bytes.clone(),
            header: Some((0, 20)),
            annotations: vec![1; ANNOTATION_BYTES],
            stripped: 0,
            truncated: *cut,
            packet_type: PacketType::Host,
            time: 0,
        });
        set_packets(fed.collect());
        let source = ConfigurationSource { name: "graph", bytes: GRAPH.as_bytes() };
        let flat = parse(&source, &[], &FedElements).map_err(|errors| TestCaseError::fail(errors.to_string()))?;
        let one_by_one = run_flat(flat.clone(), 1, 1000).map_err(TestCaseError::fail)?;
        let batches = run_flat(flat, 64, 1000).map_err(TestCaseError::fail)?;
        prop_assert!(one_by_one.is_some());
        prop_assert_eq!(&one_by_one, &batches);
        if packets.iter().all(|(_, cut)| *cut == 0) {
            for (bytes, ..) in one_by_one.into_iter().flat_map(|all| all.into_values().flatten()) {
                prop_assert_eq!(internet_sum(&bytes[..20]), 0xffff);
                // The checksum of a datagram covers its fragments as well.
                if bytes[6..8] == [0, 0] {
                    prop_assert_eq!(transport_sum(&bytes), 0xffff, "{:?}", bytes);
                }
            }
        }
    }
}
