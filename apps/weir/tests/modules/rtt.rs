//! Module rtt: round-trip times of handshakes, case by case.

use super::capture::{BEGIN, Capture, ETHERNET, MILLISECOND};
use super::packet::{ACK, FIN, PSH, Packet, RST, SYN};
use super::weir::{Row, run};

const CLIENT: &str = "10.0.0.1:1000";
const SERVER: &str = "10.0.0.2:80";

fn client(flags: u8, seq: u32, ack: u32) -> Packet {
    Packet::tcp(CLIENT, SERVER, flags).numbers(seq, ack)
}

fn server(flags: u8, seq: u32, ack: u32) -> Packet {
    Packet::tcp(SERVER, CLIENT, flags).numbers(seq, ack)
}

/// Makes a capture of packets at these times in ms.
fn capture_of(packets: &[(u64, Packet)]) -> Capture {
    let mut capture = Capture::new(ETHERNET);
    for (ms, packet) in packets {
        capture.push(BEGIN + ms * MILLISECOND, packet.ethernet());
    }
    capture
}

/// The rows for packets at these times in ms.
fn rows(packets: &[(u64, Packet)]) -> Vec<Row> {
    run(&capture_of(packets), &["-m", "rtt"]).rows("rtt", "rtts")
}

/// For each row the round-trip time and the server's part of it (-1: unknown), both in ms, and the number of SYN packets.
fn times(packets: &[(u64, Packet)]) -> Vec<(i128, i128, i128)> {
    let ms = |ns: i128| if ns == -1 { -1 } else { ns / i128::from(MILLISECOND) };
    let rows = rows(packets);
    rows.iter()
        .map(|row| {
            (
                ms(row.number("rtt_ns")),
                ms(row.optional_number("server_rtt_ns").unwrap_or(-1)),
                row.number("syn_packets"),
            )
        })
        .collect()
}

#[test]
fn a_slow_handshake_is_a_finding_whose_filter_selects_it() {
    let slow = |args: &str, ack_ms: u64, syns: u64| {
        let mut packets: Vec<(u64, Packet)> = (0..syns).map(|ms| (ms, client(SYN, 100, 0))).collect();
        packets.push((ack_ms, client(ACK, 101, 501)));
        run(&capture_of(&packets), &["-m", &format!("rtt{args}")]).rows("rtt", "findings")
    };
    assert_eq!(slow("", 999, 1).len() + slow(",slow=0s", 5_000, 1).len(), 0);
    let findings = slow("", 1_000, 1);
    assert_eq!(
        (findings.len(), findings[0].number("severity"), findings[0].text("evidence")),
        (1, 1, "rtts")
    );
    let again = slow(",slow=10ms", 13, 3);
    assert_eq!(again[0].number("severity"), 2);
    assert!(again[0].text("text").ends_with(": 11 ms, 3 SYN"), "{again:?}");
    let packets = [(0, client(SYN, 100, 0)), (2_000, client(ACK, 101, 501))];
    let ran = run(&capture_of(&packets), &["-m", "rtt", findings[0].text("filter")]);
    assert_eq!(ran.summary["capture"]["selected"], 2);
}

#[test]
fn a_handshake_gives_a_row_with_endpoints_and_times() {
    let rows = rows(&[
        (0, client(SYN, 100, 0)),
        (30, server(SYN | ACK, 500, 101)),
        (32, client(ACK, 101, 501)),
        (33, client(ACK | PSH, 101, 501).payload("GET /")),
    ]);
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!((row.end("src").as_str(), row.end("dst").as_str()), (CLIENT, SERVER));
    assert_eq!(row.number("time"), i128::from(BEGIN + 32 * MILLISECOND));
    assert_eq!(
        (row.number("rtt_ns"), row.optional_number("server_rtt_ns").unwrap_or(-1)),
        (32_000_000, 30_000_000)
    );
    assert_eq!((row.number("syn_packets"), row.number("evicted")), (1, 0));
}

#[test]
fn ipv6_handshakes_count_too() {
    let (client, server) = ("[2001:db8::1]:1000", "[2001:db8::2]:443");
    let rows = rows(&[
        (0, Packet::tcp(client, server, SYN).numbers(9, 0)),
        // Another connection, with the same ports between other hosts.
        (1, Packet::tcp("[2001:db8::1:1]:1000", server, ACK).numbers(10, 78)),
        (4, Packet::tcp(server, client, SYN | ACK).numbers(77, 10)),
        (5, Packet::tcp(client, server, ACK).numbers(10, 78)),
    ]);
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].end("src").as_str(), rows[0].end("dst").as_str()), (client, server));
    assert_eq!(rows[0].number("rtt_ns"), 5_000_000);
}

#[test]
fn client_and_server_with_equal_ports_and_networks_are_distinguished() {
    for (client, server) in
        [("[2001:db8::1]:179", "[2001:db8::2]:179"), ("[2001:db8:1::1]:179", "[2001:db8:2::1]:179")]
    {
        let rows = rows(&[
            (0, Packet::tcp(client, server, SYN).numbers(9, 0)),
            (4, Packet::tcp(server, client, SYN | ACK).numbers(77, 10)),
            (5, Packet::tcp(client, server, ACK).numbers(10, 78)),
        ]);
        assert_eq!((rows.len(), rows[0].number("server_rtt_ns")), (1, 4_000_000));
    }
}

#[test]
fn one_direction_is_enough() {
    assert_eq!(times(&[(0, client(SYN, 100, 0)), (7, client(ACK, 101, 501))]), [(7, -1, 1)]);
}

#[test]
fn a_repeated_syn_is_timed_from_the_last_one() {
    let packets = [
        (0, client(SYN, 100, 0)),
        (1000, client(SYN, 100, 0)),
        (1020, server(SYN | ACK, 500, 101)),
        (1021, client(ACK, 101, 501)),
    ];
    assert_eq!(times(&packets), [(21, 20, 2)]);
}

#[test]
fn reused_ports_are_a_new_handshake() {
    let first = [
        (0, client(SYN, 100, 0)),
        (10, server(SYN | ACK, 500, 101)),
        (11, client(ACK, 101, 501)),
        (12, client(FIN | ACK, 101, 501)),
    ];
    let again = [(20, client(SYN, 9000, 0)), (22, server(SYN | ACK, 1, 9001)), (23, client(ACK, 9001, 2))];
    assert_eq!(times(&[&first[..], &again].concat()), [(11, 10, 1), (3, 2, 1)]);
    // If the first handshake is incomplete, the new SYN replaces it, and is not counted as repeated.
    assert_eq!(times(&[&first[..2], &again].concat()), [(3, 2, 1)]);
    // The server opens a connection from the same port.
    let back = [(20, server(SYN, 70, 0)), (24, client(SYN | ACK, 80, 71)), (25, server(ACK, 71, 81))];
    assert_eq!(times(&[&first[..2], &back].concat()), [(5, 4, 1)]);
    // With the client's sequence number.
    let back = [(20, server(SYN, 100, 0)), (24, client(SYN | ACK, 80, 101)), (25, server(ACK, 101, 81))];
    assert_eq!(times(&[&first[..2], &back].concat()), [(5, 4, 1)]);
}

#[test]
fn a_reset_ends_the_handshake() {
    for reset in [server(RST | ACK, 0, 101), server(RST, 0, 0), client(RST, 101, 0)] {
        assert_eq!(times(&[(0, client(SYN, 100, 0)), (1, reset), (2, client(ACK, 101, 501))]), []);
    }
}

#[test]
fn only_the_ack_that_completes_the_handshake_counts() {
    let packets = [
        (0, client(SYN, 100, 0)),
        // Not an answer to this SYN.
        (1, server(SYN | ACK, 700, 55)),
        (10, server(SYN | ACK, 500, 101)),
        // A repeated SYN-ACK: the first counts.
        (11, server(SYN | ACK, 500, 101)),
        // A wrong acknowledgement, a wrong sequence number, and data of the server.
        (12, client(ACK, 101, 777)),
        (13, client(ACK, 999, 501)),
        (14, server(ACK | PSH, 501, 101).payload("220 ready")),
        // The client's numbers in a packet of the server.
        (14, server(ACK, 101, 501)),
        (15, client(ACK, 101, 501)),
        (16, client(ACK, 101, 501)),
    ];
    assert_eq!(times(&packets), [(15, 10, 1)]);
}

#[test]
fn sequence_numbers_wrap() {
    let packets =
        [(0, client(SYN, u32::MAX, 0)), (10, server(SYN | ACK, u32::MAX, 0)), (11, client(ACK, 0, 0))];
    assert_eq!(times(&packets), [(11, 10, 1)]);
}

#[test]
fn data_with_the_syn_may_be_acknowledged_or_not() {
    for taken in [0, 3] {
        let packets = [
            (0, client(SYN, 100, 0).payload("GET")),
            (10, server(SYN | ACK, 500, 101 + taken)),
            (11, client(ACK, 101 + taken, 501)),
        ];
        assert_eq!(times(&packets), [(11, 10, 1)], "{taken} bytes taken");
    }
}

#[test]
fn a_flood_evicts_handshakes_from_a_small_table_and_rows_count_them() {
    let ends = |port: u16| format!("10.0.0.1:{port}");
    let syns = (1..=5000).map(|port| Packet::tcp(&ends(port), SERVER, SYN).numbers(100, 0));
    let acks = (1..=5000).map(|port| Packet::tcp(&ends(port), SERVER, ACK).numbers(101, 1));
    let capture = Capture::from_packets(&syns.chain(acks).collect::<Vec<_>>());
    let rows = |size: &str| run(&capture, &["-m", &format!("rtt,table-size={size}")]).rows("rtt", "rtts");

    let few = rows("256");
    // Each of 64 sets of 4 is full.
    assert_eq!(few.len(), 256);
    let evicted: i128 = few.iter().map(|row| row.number("evicted")).sum();
    assert_eq!(evicted, 5000 - 256);
    // The youngest of each set remain.
    let ports: Vec<_> = few.iter().map(|row| row.number("src_port")).collect();
    assert!(ports.is_sorted() && ports[0] > 3000, "{ports:?}");

    let all = rows("1048576");
    assert_eq!((all.len(), all.iter().map(|row| row.number("evicted")).sum::<i128>()), (5000, 0));
}
