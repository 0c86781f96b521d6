//! The module `flows` on generated packets and on real captures.

use super::capture::{BEGIN, Capture, ETHERNET, MILLISECOND, SECOND, repository, samples};
use super::packet::{ACK, FIN, PSH, Packet, RST, SYN};
use super::weir::{Row, refusal, run, run_file};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::Command;

mod oracles;

const CLIENT: &str = "10.0.0.1:1000";
const SERVER: &str = "10.0.0.2:80";
const ETHERNET_IPV4: [u8; 14] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00];

/// The module by its path, with parameters such as ",idle=1s".
fn module(parameters: &str) -> String {
    let path = repository().join("guest/modules/flows/flows.wasm");
    format!("{}{parameters}", path.to_str().unwrap())
}

fn rows_of(capture: &Capture, parameters: &str) -> Vec<Row> {
    run(capture, &["-m", &module(parameters)]).rows("flows", "closed")
}

/// Makes a capture of packets at these times in ms.
fn capture_of(packets: &[(u64, Packet)]) -> Capture {
    let mut capture = Capture::new(ETHERNET);
    for (ms, packet) in packets {
        capture.push(BEGIN + ms * MILLISECOND, packet.ethernet());
    }
    capture
}

fn rows(packets: &[(u64, Packet)], parameters: &str) -> Vec<Row> {
    rows_of(&capture_of(packets), parameters)
}

fn client(flags: u8, seq: u32, ack: u32) -> Packet {
    Packet::tcp(CLIENT, SERVER, flags).numbers(seq, ack)
}

fn server(flags: u8, seq: u32, ack: u32) -> Packet {
    Packet::tcp(SERVER, CLIENT, flags).numbers(seq, ack)
}

/// SYN, SYN-ACK and ACK, 10 ms and 5 ms apart.
fn handshake() -> Vec<(u64, Packet)> {
    vec![(0, client(SYN, 100, 0)), (10, server(SYN | ACK, 500, 101)), (15, client(ACK, 101, 501))]
}

/// Packets one ms apart, after a handshake.
fn after_handshake(packets: &[Packet]) -> Vec<(u64, Packet)> {
    let mut all = handshake();
    all.extend(packets.iter().cloned().zip(16..).map(|(packet, ms)| (ms, packet)));
    all
}

/// Packets one ms apart.
fn in_order(packets: &[Packet]) -> Vec<(u64, Packet)> {
    packets.iter().cloned().zip(0..).map(|(packet, ms)| (ms, packet)).collect()
}

/// For each row the state, the history and the reason.
fn states(packets: &[(u64, Packet)]) -> Vec<[String; 3]> {
    let rows = rows(packets, "");
    rows.iter().map(|row| ["conn_state", "history", "reason"].map(|name| row.text(name).to_owned())).collect()
}

/// Packets and bytes of both directions.
fn amounts(row: &Row) -> [i128; 4] {
    ["source_packets", "source_bytes", "destination_packets", "destination_bytes"]
        .map(|name| row.number(name))
}

fn reasons(rows: &[Row]) -> Vec<&str> {
    rows.iter().map(|row| row.text("reason")).collect()
}

fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// An IPv4 packet with any protocol. `fragment` is the field with the flags and the offset.
fn ipv4(protocol: u8, source: [u8; 4], destination: [u8; 4], fragment: u16, payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(20 + payload.len()).unwrap().to_be_bytes();
    let [high, low] = fragment.to_be_bytes();
    let mut bytes = vec![0x45, 0, len[0], len[1], 0, 9, high, low, 64, protocol, 0, 0];
    bytes.extend(source.iter().chain(&destination).chain(payload));
    bytes
}

/// A capture of IPv4 packets, one ms apart.
fn capture_of_ipv4(packets: &[Vec<u8>]) -> Capture {
    let mut capture = Capture::new(ETHERNET);
    for (i, packet) in packets.iter().enumerate() {
        capture.push(BEGIN + i as u64 * MILLISECOND, [&ETHERNET_IPV4[..], packet].concat());
    }
    capture
}

const A: [u8; 4] = [192, 168, 0, 89];
const B: [u8; 4] = [192, 168, 0, 1];

#[test]
fn a_flow_gives_a_row_with_the_amounts_of_both_directions() {
    let packets = after_handshake(&[
        client(ACK | PSH, 101, 501).payload("GET / HTTP/1.0\r\n\r\n"),
        server(ACK | PSH, 501, 119).payload([7; 1000]),
        client(FIN | ACK, 119, 1501),
        server(FIN | ACK, 1501, 120),
        client(ACK, 120, 1502),
    ]);
    let rows = rows(&packets, "");
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!(
        (row.end("src").as_str(), row.end("dst").as_str(), row.number("protocol")),
        (CLIENT, SERVER, 6)
    );
    assert_eq!(amounts(row), [5, 5 * 40 + 18, 3, 3 * 40 + 1000]);
    assert_eq!(row.number("start_time"), i128::from(BEGIN));
    assert_eq!(row.number("time"), i128::from(BEGIN + 20 * MILLISECOND));
    assert_eq!(row.number("duration_ns"), 20_000_000);
    assert_eq!((row.number("rtt_ns"), row.number("server_rtt_ns")), (15_000_000, 10_000_000));
    assert_eq!((row.text("tunnel"), row.is_null("vlan"), row.text("reason")), ("", true, "end"));
    assert_eq!((row.text("conn_state"), row.text("history")), ("SF", "ShADdFf"));
}

#[test]
fn each_row_of_zeeks_table_of_states_has_its_connection() {
    let cases = [
        ("S0", "S", "stop", in_order(&[client(SYN, 100, 0)])),
        ("S1", "ShA", "stop", handshake()),
        ("SF", "ShAFf", "end", after_handshake(&[client(FIN | ACK, 101, 501), server(FIN | ACK, 501, 102)])),
        ("REJ", "Sr", "end", in_order(&[client(SYN, 100, 0), server(RST | ACK, 0, 101)])),
        ("S2", "ShAFa", "stop", after_handshake(&[client(FIN | ACK, 101, 501), server(ACK, 501, 102)])),
        ("S3", "ShAf", "stop", after_handshake(&[server(FIN | ACK, 501, 101), client(ACK, 101, 502)])),
        ("RSTO", "ShAR", "end", after_handshake(&[client(RST, 101, 0)])),
        ("RSTR", "ShAr", "end", after_handshake(&[server(RST, 501, 0)])),
        ("RSTOS0", "SR", "end", in_order(&[client(SYN, 100, 0), client(RST, 101, 0)])),
        ("RSTRH", "^hr", "end", in_order(&[server(SYN | ACK, 500, 101), server(RST, 501, 0)])),
        ("SH", "SF", "end", in_order(&[client(SYN, 100, 0), client(FIN, 101, 0)])),
        ("SHR", "^hf", "end", in_order(&[server(SYN | ACK, 500, 101), server(FIN | ACK, 501, 101)])),
        ("OTH", "Da", "stop", in_order(&[client(ACK, 101, 501).payload("x"), server(ACK, 501, 102)])),
    ];
    for (state, history, reason, packets) in cases {
        assert_eq!(states(&packets), [[state, history, reason].map(str::to_owned)], "{state}");
        let rows = rows(&packets, "");
        assert_eq!((rows[0].end("src").as_str(), rows[0].end("dst").as_str()), (CLIENT, SERVER), "{state}");
    }
}

#[test]
fn states_follow_zeeks_rules_beyond_the_table() {
    let fins = [client(FIN | ACK, 101, 501), server(FIN | ACK, 501, 102)];
    let mut closed = after_handshake(&fins);
    closed.push((20, client(RST, 102, 0)));
    // A RST after both FINs changes nothing, nor does FIN and RST of one side before the FIN of the other.
    assert_eq!(states(&closed)[0][..2], ["SF", "ShAFfR"]);
    let packets = after_handshake(&[fins[0].clone(), client(RST, 102, 0), fins[1].clone()]);
    assert_eq!(states(&packets)[0][..2], ["SF", "ShAFRf"]);
    // A connection that was refused by both sides without data.
    let packets = in_order(&[client(SYN, 100, 0), client(RST, 101, 0), server(RST, 501, 0)]);
    assert_eq!(states(&packets)[0][..2], ["REJ", "SRr"]);
    // The SYN-ACK was captured before its SYN.
    let packets = in_order(&[server(SYN | ACK, 500, 101), client(SYN, 100, 0), client(ACK, 101, 501)]);
    assert_eq!(states(&packets), [["S1", "^hSA", "stop"].map(str::to_owned)]);
    // Only the SYN was missed.
    let packets = in_order(&[server(SYN | ACK, 500, 101), client(ACK, 101, 501)]);
    assert_eq!(states(&packets)[0][..2], ["S1", "^hA"]);
    // Some servers acknowledge the SYN before they answer it.
    let packets = in_order(&[
        client(SYN, 100, 0),
        server(ACK, 0, 101),
        server(SYN | ACK, 500, 101),
        client(ACK, 101, 501),
    ]);
    assert_eq!(states(&packets)[0][..2], ["S1", "SahA"]);
    let packets = in_order(&[client(SYN | FIN, 100, 0), client(FIN | RST, 100, 0)]);
    assert_eq!(states(&packets)[0][1], "QI");
    // A SYN with another number is another letter; one with the same number is not.
    let packets =
        in_order(&[server(SYN | ACK, 5, 101), server(SYN | ACK, 5, 101), server(SYN | ACK, 6, 101)]);
    assert_eq!(states(&packets).iter().map(|row| row[1].as_str()).collect::<Vec<_>>(), ["^h", "^h"]);
}

#[test]
fn a_syn_of_a_new_connection_ends_the_old_row() {
    let mut packets = after_handshake(&[client(FIN | ACK, 101, 501), server(FIN | ACK, 501, 102)]);
    packets.extend([(20, client(SYN, 9000, 0)), (21, client(SYN, 9000, 0)), (22, client(SYN, 9500, 0))]);
    let expected = [["SF", "ShAFf", "end"], ["S0", "S", "reused"], ["S0", "S", "stop"]];
    assert_eq!(states(&packets), expected.map(|row| row.map(str::to_owned)));
    // Each SYN of a client that is refused and tries again is a connection of its own, as in Zeek.
    let refused = [client(SYN, 100, 0), server(RST | ACK, 0, 101)];
    let packets = in_order(&[&refused[..], &refused].concat());
    assert_eq!(
        states(&packets),
        [["REJ", "Sr", "end"].map(str::to_owned), ["REJ", "Sr", "end"].map(str::to_owned)]
    );
    // An old SYN-ACK is none.
    assert_eq!(states(&after_handshake(&[server(SYN | ACK, 500, 101)])).len(), 1);
}

#[test]
fn packets_shortly_after_the_end_belong_to_the_flow() {
    let end = after_handshake(&[client(FIN | ACK, 101, 501), server(FIN | ACK, 501, 102)]);
    for (ms, count) in [(5_017, 1), (5_018, 2)] {
        let mut packets = end.clone();
        packets.push((ms, client(ACK, 102, 502)));
        assert_eq!(rows(&packets, "").len(), count, "{ms}");
    }
}

#[test]
fn a_flow_ends_after_the_idle_time() {
    let packets = |ms| [(0, Packet::udp(CLIENT, SERVER)), (ms, Packet::udp(SERVER, CLIENT))];
    assert_eq!(reasons(&rows(&packets(60_000), "")), ["stop"]);
    let two = rows(&packets(60_001), "");
    assert_eq!(
        (reasons(&two), two[0].end("src"), two[1].end("src")),
        (vec!["idle", "stop"], CLIENT.into(), SERVER.into())
    );
    assert_eq!(rows(&packets(1_001), ",idle=1s").len(), 2);
    // A tick finds a flow without further packets: its row comes before that of a flow that another packet ends.
    let other = |ms| (ms, Packet::udp("10.0.0.7:7", "10.0.0.8:8"));
    let mut mixed = vec![(0, Packet::udp(CLIENT, SERVER))];
    mixed.extend((0..100).map(|s| other(s * 1000)));
    let rows = rows(&mixed, ",idle=10s");
    assert_eq!(reasons(&rows), ["idle", "stop"]);
    assert_eq!((rows[0].end("src").as_str(), rows[1].number("source_packets")), (CLIENT, 100));
}

#[test]
fn a_long_flow_has_a_row_for_each_active_time() {
    let packets: Vec<_> = (0..100).map(|i| (i * 100, Packet::udp(CLIENT, SERVER).payload([0; 10]))).collect();
    let parts = rows(&packets, ",active=2s");
    assert_eq!(reasons(&parts), ["active", "active", "active", "active", "stop"]);
    for (row, i) in parts.iter().zip(0..) {
        assert_eq!(amounts(row), [20, 20 * 38, 0, 0]);
        assert_eq!(row.number("start_time"), i128::from(BEGIN) + i * 2_000_000_000);
        assert_eq!(row.number("duration_ns"), 1_900_000_000);
    }
    assert_eq!(rows(&packets, ",active=0s").len(), 1);
    // The state goes on, and the counts of retransmissions begin again.
    let data = client(ACK, 101, 501).payload("abc");
    let mut packets = handshake();
    packets.extend([(20, data.clone()), (30, data.clone()), (2_100, data), (2_200, client(RST, 104, 0))]);
    let parts = rows(&packets, ",active=2s");
    let column = |name| parts.iter().map(|row| row.number(name)).collect::<Vec<_>>();
    assert_eq!(column("source_retransmitted_packets"), [1, 1]);
    assert_eq!((parts[0].text("conn_state"), parts[1].text("conn_state")), ("S1", "RSTO"));
    assert_eq!(parts[1].text("history"), "ShADTTR");
}

#[test]
fn segments_below_the_highest_sequence_number_are_retransmissions() {
    let data = |seq: u32, len: usize| client(ACK, seq, 501).payload(vec![1; len]);
    let packets = after_handshake(&[
        data(101, 100),
        data(301, 100), // a gap
        data(201, 100), // out of order, or retransmitted
        data(350, 100), // new data behind old
        data(450, 10),
        data(459, 1), // keep-alive: one byte below the next number
        client(ACK, 459, 501),
        server(ACK, 501, 460).payload("y"),
        server(ACK, 501, 460).payload("y"),
    ]);
    let rows = rows(&packets, "");
    let counts = ["source_retransmitted_packets", "destination_retransmitted_packets"]
        .map(|name| rows[0].number(name));
    assert_eq!((counts, rows[0].text("history")), ([2, 0], "ShADTd"), "{rows:?}");
    // Numbers wrap around.
    let wrapping = in_order(&[
        client(ACK, u32::MAX - 1, 1).payload("abcd"),
        client(ACK, 2, 1).payload("efgh"),
        client(ACK, u32::MAX - 1, 1).payload("abcd"),
    ]);
    assert_eq!(self::rows(&wrapping, "")[0].number("source_retransmitted_packets"), 1);
}

#[test]
fn a_full_table_emits_evicted_flows_and_loses_none() {
    let packets: Vec<Packet> =
        (1..=5000).map(|port| Packet::udp(&format!("10.0.0.1:{port}"), SERVER)).collect();
    let rows = rows_of(&Capture::from_packets(&packets), ",table-size=1024");
    assert_eq!(rows.len(), 5000);
    let evicted = rows.iter().filter(|row| row.text("reason") == "evicted").count();
    assert_eq!(evicted, 5000 - 1536, "the whole table is used: 128 sets of 12");
    let rows = rows_of(&Capture::from_packets(&packets), "");
    assert!(rows.len() == 5000 && rows.iter().all(|row| row.text("reason") == "stop"));
}

#[test]
fn flows_with_equal_tags_stay_apart() {
    // With 384 sets and a byte of the hash, dozens of pairs of these flows differ in nothing but their addresses and ports.
    let end = |v6: bool, i: usize| {
        if v6 {
            format!("[2001:db8::{:x}]:{}", i % 7 + 1, 1000 + i)
        } else {
            format!("10.1.{}.9:{}", i % 7, 1000 + i)
        }
    };
    let mut packets = Vec::new();
    for round in 0..5 {
        for v6 in [true, false] {
            let service = if v6 { "[2001:db8::53]:53" } else { "10.0.0.53:53" };
            for i in (0..1400).filter(|i| i % 5 >= round) {
                packets.push(Packet::udp(&end(v6, i), service));
                packets.push(Packet::udp(service, &end(v6, i)).payload([0; 8]));
            }
        }
    }
    let rows = rows_of(&Capture::from_packets(&packets), ",table-size=4096");
    let found: BTreeMap<String, [i128; 4]> = rows.iter().map(|row| (row.end("src"), amounts(row))).collect();
    assert_eq!((rows.len(), found.len()), (2800, 2800));
    for v6 in [true, false] {
        for i in 0..1400 {
            let (count, header) = (i as i128 % 5 + 1, if v6 { 48 } else { 28 });
            assert_eq!(found[&end(v6, i)], [count, count * header, count, count * (header + 8)], "{i}");
        }
    }
}

#[test]
fn icmp_flows_are_by_type_as_in_zeek() {
    let icmp = |from, to, kind: u8, code: u8| ipv4(1, from, to, 0, &[kind, code, 0, 0, 0, 1, 0, 1]);
    let packets = [
        icmp(A, B, 8, 0),
        icmp(B, A, 0, 0),
        icmp(A, B, 8, 0),
        icmp(B, A, 3, 3),
        icmp(A, B, 3, 3),
        icmp(B, A, 3, 1),
    ];
    let mut rows: Vec<_> = rows_of(&capture_of_ipv4(&packets), "")
        .iter()
        .map(|row| (row.end("src"), row.end("dst"), amounts(row), row.text("community_id").to_owned()))
        .collect();
    rows.sort();
    // Messages without an answer are one flow for each direction, type and code.
    let ends: Vec<_> = rows.iter().map(|row| (row.0.as_str(), row.1.as_str(), row.2)).collect();
    assert_eq!(
        ends,
        [
            ("192.168.0.1:3", "192.168.0.89:1", [1, 28, 0, 0]),
            ("192.168.0.1:3", "192.168.0.89:3", [1, 28, 0, 0]),
            ("192.168.0.89:3", "192.168.0.1:3", [1, 28, 0, 0]),
            ("192.168.0.89:8", "192.168.0.1:0", [2, 56, 1, 28]),
        ]
    );
    assert_eq!(rows[3].3, "1:X0snYXpgwiv9TZtqg64sgzUn6Dk=");
}

#[test]
fn community_ids_are_those_of_the_specification() {
    let sctp = [0, 7, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 4];
    let row =
        &rows_of(&capture_of_ipv4(&[ipv4(132, [192, 168, 170, 8], [192, 168, 170, 56], 0, &sctp)]), "")[0];
    assert_eq!((row.text("community_id"), row.number("src_port")), ("1:MP2EtRCAUIZvTw6MxJHLV7N7JDs=", 7));
    let one_way = &rows_of(
        &capture_of_ipv4(&[ipv4(1, [10, 0, 0, 1], [10, 0, 0, 2], 0, &[11, 0, 0, 0, 0, 0, 0, 0])]),
        "",
    )[0];
    assert_eq!(one_way.text("community_id"), "1:YHxtAirCG//0OzkcVAukqKQN9xM=");
    for (from, to, id) in [
        ("128.232.110.120:34855", "66.35.250.204:80", "1:LQU9qZlK+B5F3KDmev6m5PMibrg="),
        (
            "[2001:470:e5bf:dead:4957:2174:e82c:4887]:63943",
            "[2607:f8b0:400c:c03::1a]:25",
            "1:/qFaeAR+gFe1KYjMzVDsMv+wgU4=",
        ),
    ] {
        for packet in [Packet::tcp(from, to, SYN), Packet::tcp(to, from, ACK)] {
            assert_eq!(rows(&[(0, packet)], "")[0].text("community_id"), id);
        }
    }
}

#[test]
fn fragments_are_a_flow_of_addresses_and_protocol() {
    let udp = Packet::udp("192.168.0.89:53", "192.168.0.1:99").payload([0; 16]).ip()[20..].to_vec();
    let packets = [
        ipv4(17, A, B, 0, &udp),          // whole
        ipv4(17, A, B, 0x2000, &udp),     // first
        ipv4(17, A, B, 3, &[0; 40]),      // last
        ipv4(17, B, A, 3, &[0; 40]),      // of another datagram
        ipv4(47, A, B, 0, &[0, 0, 8, 0]), // without ports
    ];
    let mut rows = rows_of(&capture_of_ipv4(&packets), "");
    rows.sort_by_key(|row| (row.number("protocol"), row.optional_number("src_port")));
    let [fragments, whole, gre] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!(
        (amounts(fragments), fragments.is_null("src_port"), fragments.is_null("community_id")),
        ([2, 104, 1, 60], true, true)
    );
    assert_eq!((amounts(whole), whole.number("src_port")), ([1, 44, 0, 0], 53));
    assert_eq!(
        (gre.is_null("src_port"), gre.is_null("community_id"), gre.is_null("conn_state")),
        (true, false, true)
    );
}

#[test]
fn tunnelled_flows_are_those_of_the_layer() {
    let inner: Vec<Packet> = (1001..=1300)
        .flat_map(|port| {
            let end = format!("10.9.0.1:{port}");
            [Packet::tcp(&end, SERVER, SYN).numbers(7, 0), Packet::tcp(SERVER, &end, SYN | ACK).numbers(9, 8)]
        })
        .collect();
    let packets: Vec<_> = inner
        .iter()
        .map(|packet| {
            let [from, to] = if packet.from.port() == 80 { [B, A] } else { [A, B] };
            ipv4(4, from, to, 0, &packet.ip())
        })
        .collect();
    let capture = capture_of_ipv4(&packets);
    let rows = rows_of(&capture, "");
    assert_eq!(rows.len(), 300);
    assert!(
        rows.iter().all(
            |row| (row.text("tunnel"), row.text("history"), amounts(row)) == ("ip", "Sh", [1, 40, 1, 40])
        )
    );
    let outer = rows_of(&capture, ",layer=outer");
    assert_eq!(
        (outer.len(), amounts(&outer[0]), outer[0].text("tunnel")),
        (1, [300, 300 * 60, 300, 300 * 60], "")
    );
    assert!(refusal(&capture, &["-m", &module(",layer=middle")]).contains("parameter `layer`"));
}

#[test]
fn a_vlan_is_that_of_the_first_packet() {
    let mut capture = Capture::new(ETHERNET);
    capture.push(BEGIN, Packet::udp(CLIENT, SERVER).tagged(42));
    capture.push(BEGIN + 1, Packet::udp(SERVER, CLIENT).ethernet());
    let rows = rows_of(&capture, "");
    assert_eq!((rows.len(), rows[0].number("vlan")), (1, 42));
}

#[test]
fn time_that_goes_backwards_ends_nothing() {
    let packets = [
        (500_000, Packet::udp(CLIENT, SERVER)),
        (0, Packet::udp(SERVER, CLIENT)),
        (500_001, Packet::udp(CLIENT, SERVER)),
    ];
    let rows = rows(&packets, ",idle=1s");
    assert_eq!((rows.len(), rows[0].number("duration_ns"), amounts(&rows[0])[0]), (1, 1_000_000, 2));
}

#[test]
fn lengths_that_the_network_card_fills_in_are_those_of_the_frame() {
    let mut packet = client(ACK, 1, 1).payload([0; 3000]).ethernet();
    packet[16..18].fill(0);
    let mut capture = Capture::new(ETHERNET);
    capture.push(BEGIN, packet);
    assert_eq!(amounts(&rows_of(&capture, "")[0]), [1, 3040, 0, 0]);
}

#[test]
fn broken_packets_neither_fault_nor_disturb_counts() {
    let seed = 0x9E37_79B9_7F4A_7C15_u64;
    say(&format!("seed {seed:#x}"));
    let mut state = seed;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut capture = Capture::read(&super::capture::sample());
    for frame in &mut capture.frames {
        for _ in 0..random(4) {
            let at = usize::try_from(random(frame.bytes.len().min(80) as u64)).unwrap();
            frame.bytes[at] = u8::try_from(random(256)).unwrap();
        }
        if random(3) == 0 {
            frame.bytes.truncate(usize::try_from(random(90)).unwrap().max(14));
        }
    }
    // Run::new asserts that there are no faults.
    let packets = |rows: &[Row]| rows.iter().map(|row| amounts(row)[0] + amounts(row)[2]).sum::<i128>();
    let (inner, outer) = (rows_of(&capture, ""), rows_of(&capture, ",layer=outer,table-size=1024,idle=10ms"));
    assert!(packets(&inner) > capture.frames.len() as i128 / 2);
    assert_eq!(packets(&inner), packets(&outer));
}

#[test]
fn rows_are_the_same_for_any_number_of_instances() {
    for path in samples() {
        for parameters in ["", ",table-size=1024,idle=500ms,active=3s"] {
            let files = |jobs| run_file(&path, &["-j", jobs, "-m", &module(parameters)]).files();
            let one = files("1");
            assert!(one.iter().map(|file| file.1.len()).sum::<usize>() > 10_000);
            assert!(["2", "3", "7"].iter().all(|jobs| files(jobs) == one), "{} {parameters}", path.display());
        }
    }
}

#[test]
fn all_calls_are_proved_also_with_the_largest_table() {
    for parameters in ["", ",table-size=4194304,idle=168h,active=168h,layer=outer"] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_weir")).args(["check", &module(parameters)]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("Tier: proved"), "{text}");
    }
}

#[test]
fn a_million_seconds_of_silence_are_one_gap() {
    let packets = [(0, Packet::udp(CLIENT, SERVER)), (1_000_000_000, Packet::udp(CLIENT, SERVER))];
    let rows = rows(&packets, "");
    assert_eq!(reasons(&rows), ["idle", "stop"]);
    assert_eq!(rows[0].number("time") + i128::from(1_000_000 * SECOND), rows[1].number("time"));
}

/// A call may emit 65,536 rows.
#[test]
fn every_flow_has_a_row_although_more_are_left_than_a_call_may_emit() {
    const FLOWS: u32 = 100_000;
    let mut capture = Capture::new(ETHERNET);
    for number in 0..FLOWS {
        let client = format!("10.{}.{}.{}:1000", number >> 16, number >> 8 & 0xff, number & 0xff);
        capture.push(BEGIN + u64::from(number), Packet::tcp(&client, SERVER, SYN).ethernet());
    }
    let rows = |jobs: &str| {
        let run = run(&capture, &["-m", &module(""), "--jobs", jobs]);
        let rows = run.rows("flows", "closed");
        rows.iter().map(|row| row.end("src")).collect::<Vec<_>>()
    };
    let one = rows("1");
    assert_eq!(one.len(), FLOWS as usize);
    assert_eq!(one.iter().collect::<BTreeSet<_>>().len(), FLOWS as usize, "each flow has one row");
    assert_eq!(rows("3"), one, "in the same order");
}
