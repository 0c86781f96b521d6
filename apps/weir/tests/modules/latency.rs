//! The module `latency` on generated packets.

pub mod oracles;

use super::capture::{BEGIN, Capture, ETHERNET, MILLISECOND, RAW_IP, SECOND, repository, samples, trace};
use super::noise::Random;
use super::packet::{ACK, FIN, PSH, Packet, RST, SYN};
use super::weir::{Row, refusal, run, run_file};
use std::collections::HashMap;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;

pub const CLIENT: &str = "10.0.0.1:1000";
pub const SERVER: &str = "10.0.0.2:80";

/// A TCP segment with options.
#[derive(Clone, Debug)]
pub struct Segment {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub flags: u8,
    pub seq: u32,
    pub ack: u32,
    pub len: usize,
    pub window: u16,
    pub options: Vec<u8>,
}

impl Segment {
    pub fn new(from: &str, to: &str, flags: u8, seq: u32, ack: u32, len: usize) -> Self {
        let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
        Self { from, to, flags, seq, ack, len, window: 1000, options: Vec::new() }
    }

    pub fn window(self, window: u16) -> Self {
        Self { window, ..self }
    }

    /// With the time stamps option, as most hosts send it.
    pub fn stamps(self, value: u32, echo: u32) -> Self {
        let options = [&[1, 1, 8, 10][..], &value.to_be_bytes(), &echo.to_be_bytes()].concat();
        Self { options, ..self }
    }

    /// The bytes from the IP header on.
    pub fn ip(&self) -> Vec<u8> {
        let header_len = 20 + self.options.len();
        let mut tcp = [self.from.port().to_be_bytes(), self.to.port().to_be_bytes()].concat();
        tcp.extend_from_slice(&self.seq.to_be_bytes());
        tcp.extend_from_slice(&self.ack.to_be_bytes());
        tcp.extend_from_slice(&[u8::try_from(header_len * 4).unwrap(), self.flags]);
        tcp.extend_from_slice(&self.window.to_be_bytes());
        tcp.extend_from_slice(&[0; 4]);
        tcp.extend_from_slice(&self.options);
        tcp.resize(header_len + self.len, b'x');
        ip(self.from.ip(), self.to.ip(), 6, &tcp)
    }
}

/// An IP packet with a correct header.
pub fn ip(src: IpAddr, dst: IpAddr, protocol: u8, body: &[u8]) -> Vec<u8> {
    let len = u16::try_from(body.len()).unwrap();
    let mut header = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let total = (len + 20).to_be_bytes();
            let head = [0x45, 0, total[0], total[1], 0, 1, 0, 0, 64, protocol, 0, 0];
            let mut header = [&head[..], &src.octets(), &dst.octets()].concat();
            let sum: u32 =
                header.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
            let checksum = !u16::try_from((sum & 0xFFFF) + (sum >> 16)).unwrap();
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            header
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let len = len.to_be_bytes();
            [&[0x60, 0, 0, 0, len[0], len[1], protocol, 64][..], &src.octets(), &dst.octets()].concat()
        }
        _ => panic!("two address families in one packet"),
    };
    header.extend_from_slice(body);
    header
}

/// A capture of segments at these times in ms.
pub fn capture_of(segments: &[(u64, Segment)]) -> Capture {
    let mut capture = Capture::new(RAW_IP);
    for (ms, segment) in segments {
        capture.push(BEGIN + ms * MILLISECOND, segment.ip());
    }
    capture
}

/// The argument of `-m` for a module of the repository.
pub fn module(name: &str, parameters: &str) -> String {
    format!("{}/guest/modules/{name}/{name}.wasm{parameters}", repository().display())
}

fn c(flags: u8, seq: u32, ack: u32, len: usize) -> Segment {
    Segment::new(CLIENT, SERVER, flags, seq, ack, len)
}

fn s(flags: u8, seq: u32, ack: u32, len: usize) -> Segment {
    Segment::new(SERVER, CLIENT, flags, seq, ack, len)
}

fn rows(capture: &Capture, parameters: &str) -> Vec<Row> {
    run(capture, &["-m", &module("latency", parameters)]).rows("latency", "samples")
}

/// Each sample: the part of the path, and its time in ms.
fn parts(rows: &[Row]) -> Vec<(&'static str, i128)> {
    let ms = i128::from(MILLISECOND);
    rows.iter()
        .map(|row| match (row.number("server_samples"), row.number("client_samples")) {
            (1, 0) => ("server", row.number("server_rtt_ns") / ms),
            (0, 1) => ("client", row.number("client_rtt_ns") / ms),
            _ => panic!("{row:?} is no single sample"),
        })
        .collect()
}

fn each(segments: &[(u64, Segment)]) -> Vec<(&'static str, i128)> {
    parts(&rows(&capture_of(segments), ",interval=0s"))
}

/// A handshake from 0 to 12 ms.
fn handshake() -> Vec<(u64, Segment)> {
    vec![(0, c(SYN, 100, 0, 0)), (10, s(SYN | ACK, 500, 101, 0)), (12, c(ACK, 101, 501, 0))]
}

fn after_handshake(segments: &[(u64, Segment)]) -> Vec<(&'static str, i128)> {
    let all = each(&[&handshake()[..], segments].concat());
    assert_eq!(all[..2], [("server", 10), ("client", 2)]);
    all[2..].to_vec()
}

#[test]
fn the_handshake_and_data_of_both_ends_give_samples() {
    let got = after_handshake(&[
        (20, c(ACK | PSH, 101, 501, 5)),
        (31, s(ACK, 501, 106, 0)),
        (40, s(ACK, 501, 106, 100)),
        (43, c(ACK, 106, 601, 0)),
        // An acknowledgement that repeats tells nothing.
        (50, c(ACK, 106, 601, 0)),
    ]);
    assert_eq!(got, [("server", 11), ("client", 3)]);
}

#[test]
fn the_last_of_several_covered_segments_counts_and_three_are_marked() {
    let data = |at: u64, number: u32| (at, c(ACK, 101 + number * 10, 501, 10));
    let all: Vec<_> = (0..5).map(|i| data(20 + u64::from(i), i)).collect();
    // All five are covered; the third was marked last, at 22 ms.
    assert_eq!(after_handshake(&[&all[..], &[(40, s(ACK, 501, 151, 0))]].concat()), [("server", 18)]);
    // Two are covered, and then the third.
    let two = [(40, s(ACK, 501, 121, 0)), (41, s(ACK, 501, 131, 0))];
    assert_eq!(after_handshake(&[&all[..], &two].concat()), [("server", 19), ("server", 19)]);
    // Half of a segment is not acknowledged.
    assert_eq!(
        after_handshake(&[data(20, 0), (25, s(ACK, 501, 106, 0)), (26, s(ACK, 501, 111, 0))]),
        [("server", 6)]
    );
}

#[test]
fn retransmitted_segments_and_those_behind_them_give_no_sample() {
    let got = after_handshake(&[
        (20, c(ACK, 101, 501, 10)),
        (21, c(ACK, 111, 501, 10)),
        (50, c(ACK, 101, 501, 10)),
        (60, s(ACK, 501, 121, 0)),
        // New data counts again.
        (70, c(ACK, 121, 501, 10)),
        (74, s(ACK, 501, 131, 0)),
    ]);
    assert_eq!(got, [("server", 4)]);
    // Segments before the repeated one still count.
    let got = after_handshake(&[
        (20, c(ACK, 101, 501, 10)),
        (21, c(ACK, 111, 501, 10)),
        (50, c(ACK, 111, 501, 10)),
        (51, s(ACK, 501, 111, 0)),
        (60, s(ACK, 501, 121, 0)),
    ]);
    assert_eq!(got, [("server", 31)]);
    // A repeated SYN.
    let repeated = [(0, c(SYN, 100, 0, 0)), (1000, c(SYN, 100, 0, 0)), (1010, s(SYN | ACK, 500, 101, 0))];
    assert_eq!(each(&repeated), []);
}

#[test]
fn segments_behind_a_gap_give_no_sample() {
    let gap = [(20, c(ACK, 111, 501, 10)), (30, s(ACK, 501, 121, 0))];
    let more = [(40, c(ACK, 121, 501, 10)), (46, s(ACK, 501, 131, 0))];
    assert_eq!(after_handshake(&[&gap[..], &more].concat()), [("server", 6)]);
    // A packet without data tells of the gap, too.
    let told = [(20, c(ACK, 111, 501, 0)), (30, c(ACK, 111, 501, 10)), (35, s(ACK, 501, 121, 0))];
    assert_eq!(after_handshake(&told), [("server", 5)]);
}

#[test]
fn time_stamps_match_retransmissions_and_need_data() {
    let stamped = |at: u64, from: fn(u8, u32, u32, usize) -> Segment, seq, ack, len, value, echo| {
        (at, from(ACK, seq, ack, len).stamps(value, echo))
    };
    let capture = capture_of(&[
        stamped(0, c, 101, 501, 10, 7, 3),
        // The same segment again: the answer tells by its echo which one it answers.
        stamped(300, c, 101, 501, 10, 307, 3),
        stamped(310, s, 501, 111, 0, 900, 307),
        // Only the first packet with a TSval is marked, and only its first echo counts.
        stamped(320, c, 111, 501, 10, 320, 900),
        stamped(325, c, 121, 501, 10, 320, 900),
        stamped(330, s, 501, 121, 0, 910, 320),
        stamped(331, s, 501, 131, 0, 911, 320),
        // A packet without data is not marked, and neither is data with the same TSval.
        stamped(340, c, 131, 501, 0, 340, 911),
        stamped(341, c, 131, 501, 10, 340, 911),
        stamped(350, s, 501, 141, 0, 920, 340),
        // An older TSval is a segment out of order.
        stamped(360, c, 151, 501, 10, 361, 920),
        stamped(361, c, 141, 501, 10, 360, 920),
        stamped(370, s, 501, 161, 0, 930, 360),
        stamped(371, s, 501, 161, 0, 931, 361),
        // A later echo shows that the mark's own echo was missed.
        stamped(400, c, 161, 501, 10, 400, 931),
        stamped(401, c, 171, 501, 0, 401, 931),
        stamped(410, s, 501, 171, 0, 940, 401),
        stamped(411, s, 501, 171, 0, 940, 400),
    ]);
    let got = rows(&capture, ",interval=0s");
    assert_eq!(parts(&got), [("server", 10), ("server", 10), ("server", 11)]);
    assert!(got.iter().all(|row| row.text("method") == "timestamp" && !row.flag("handshake")));
    // By sequence numbers, some others count.
    assert_eq!(
        parts(&rows(&capture, ",interval=0s,timestamps=false")),
        [("server", 10), ("server", 6), ("server", 9), ("server", 10),]
    );
}

#[test]
fn time_stamps_are_found_among_other_options() {
    let stamps = [&[8, 10][..], &5u32.to_be_bytes(), &0u32.to_be_bytes()].concat();
    let echo = [&[8, 10][..], &9u32.to_be_bytes(), &5u32.to_be_bytes()].concat();
    for (before, after) in
        [(vec![1], vec![0]), (vec![2, 4, 5, 180], vec![1, 1]), (vec![4, 2, 3, 3, 7], vec![0])]
    {
        let with = |segment: Segment, stamps: &[u8]| Segment {
            options: [&before, stamps, &after].concat(),
            ..segment
        };
        let capture = capture_of(&[(0, with(c(ACK, 1, 1, 5), &stamps)), (9, with(s(ACK, 1, 1, 0), &echo))]);
        assert_eq!(parts(&rows(&capture, ",interval=0s")), [("server", 9)], "{before:?}");
    }
    // Options that end too early, with a length of 0 or one beyond the header.
    for options in
        [vec![8, 10, 0, 0], vec![5, 0, 8, 10], vec![2, 200, 1, 1], vec![1, 1, 1, 8], vec![0, 8, 10, 0]]
    {
        let with = |segment: Segment| Segment { options: options.clone(), ..segment };
        let capture = capture_of(&[(0, with(c(ACK, 1, 1, 5))), (9, with(s(ACK, 1, 6, 0)))]);
        let got = rows(&capture, ",interval=0s");
        assert_eq!((parts(&got), got[0].text("method")), (vec![("server", 9)], "sequence"), "{options:?}");
    }
}

#[test]
fn the_handshake_is_measured_where_only_one_end_uses_time_stamps() {
    let got = rows(
        &capture_of(&[
            (0, c(SYN, 100, 0, 0).stamps(1, 0)),
            (10, s(SYN | ACK, 500, 101, 0)),
            (12, c(ACK, 101, 501, 0)),
            (20, c(ACK, 101, 501, 5)),
            (27, s(ACK, 501, 106, 0)),
        ]),
        "",
    );
    let [row] = &got[..] else { panic!("{got:?}") };
    assert_eq!(
        (row.text("method"), row.number("server_samples"), row.number("client_samples")),
        ("sequence", 2, 1)
    );
    let with = capture_of(&[
        (0, c(SYN, 100, 0, 0).stamps(1, 0)),
        (10, s(SYN | ACK, 500, 101, 0).stamps(50, 1)),
        (12, c(ACK, 101, 501, 0).stamps(12, 50)),
        (20, c(ACK, 101, 501, 5).stamps(20, 50)),
        (27, s(ACK, 501, 106, 0).stamps(67, 20)),
    ]);
    let got = rows(&with, "");
    assert_eq!((got.len(), got[0].text("method"), got[0].number("server_samples")), (1, "both", 2));
}

#[test]
fn sequence_numbers_and_time_stamps_wrap() {
    let top = u32::MAX - 4;
    let got =
        each(&[(0, c(ACK, top, 1, 10)), (3, s(ACK, 1, 5, 0)), (5, c(ACK, 5, 1, 10)), (9, s(ACK, 1, 15, 0))]);
    assert_eq!(got, [("server", 3), ("server", 4)]);
    let stamped = [
        (0, c(ACK, 1, 1, 10).stamps(u32::MAX, 0)),
        (3, s(ACK, 1, 11, 0).stamps(1, u32::MAX)),
        (5, c(ACK, 11, 1, 10).stamps(0, 1)),
        (9, s(ACK, 1, 21, 0).stamps(2, 0)),
    ];
    assert_eq!(each(&stamped), [("server", 3), ("server", 4)]);
}

#[test]
fn a_reset_and_the_last_acknowledgement_end_a_connection() {
    assert_eq!(
        after_handshake(&[
            (20, c(ACK, 101, 501, 5)),
            (25, s(RST | ACK, 501, 106, 0)),
            (30, s(ACK, 501, 106, 0))
        ]),
        []
    );
    let fins = [
        (20, c(FIN | ACK, 101, 501, 0)),
        (30, s(FIN | ACK, 501, 102, 0)),
        (33, c(ACK, 102, 502, 0)),
        // The ports are used again, with numbers that continue.
        (40, c(SYN, 103, 0, 0)),
        (47, s(SYN | ACK, 502, 104, 0)),
    ];
    assert_eq!(after_handshake(&fins), [("server", 10), ("client", 3), ("server", 7)]);
    // Used again without an end.
    assert_eq!(after_handshake(&[(20, c(SYN, 7000, 0, 0)), (29, s(SYN | ACK, 9, 7001, 0))]), [("server", 9)]);
}

#[test]
fn long_times_are_exact_and_backward_ones_give_no_sample() {
    let (begin, minute) = (20, 60_000);
    for ms in [5_000, 10 * 60_000 - 60_000] {
        assert_eq!(
            after_handshake(&[(begin, c(ACK, 101, 501, 5)), (begin + ms, s(ACK, 501, 106, 0))]),
            [("server", i128::from(ms))]
        );
    }
    assert_eq!(
        after_handshake(&[(begin, c(ACK, 101, 501, 5)), (begin + 10 * minute, s(ACK, 501, 106, 0))]),
        []
    );
    assert_eq!(after_handshake(&[(begin, c(ACK, 101, 501, 5)), (begin - 5, s(ACK, 501, 106, 0))]), []);
}

/// A connection with a request each `step` ms, answered `rtt(number)` ms later, without handshake.
fn requests(count: u32, step: u64, rtt: impl Fn(u32) -> u64) -> Vec<(u64, Segment)> {
    let pairs = (0..count).flat_map(|i| {
        let at = u64::from(i) * step;
        [(at, c(ACK, 1 + i, 1, 1)), (at + rtt(i), s(ACK, 1, 2 + i, 0))]
    });
    pairs.collect()
}

#[test]
fn a_row_sums_up_an_interval() {
    // Ten requests in each second; the last two seconds follow after a pause.
    let segments: Vec<_> = requests(40, 100, |i| 20 + u64::from(i % 10))
        .into_iter()
        .map(|(at, s)| (if at < 2000 { at } else { at + 60_000 }, s))
        .collect();
    let got = rows(&capture_of(&segments), "");
    let seconds: Vec<_> =
        got.iter().map(|row| (row.number("time") - i128::from(BEGIN)) / i128::from(SECOND)).collect();
    assert_eq!(seconds, [0, 1, 62, 63]);
    for row in &got {
        let times = ["server_samples", "server_rtt_ns", "server_last_ns", "client_samples"]
            .map(|name| row.number(name));
        assert_eq!(times, [10, 20_000_000, 29_000_000, 0]);
        assert!(row.is_null("client_rtt_ns") && row.is_null("client_last_ns"));
        assert_eq!((row.end("src").as_str(), row.end("dst").as_str()), (CLIENT, SERVER));
    }
    assert_eq!(rows(&capture_of(&segments), ",interval=1h").len(), 1);
    assert_eq!(rows(&capture_of(&segments), ",interval=0s").len(), 40);
    // A connection that has ended gets its row from the ticks that others cause, before the last packet.
    let other = |at: u64| (at, Segment::new("10.0.0.9:9", "10.0.0.8:8", ACK, 1, 1, 0));
    let late: Vec<_> = (1..40).map(|second| other(second * 1000)).collect();
    let live =
        run(&capture_of(&[&requests(3, 10, |_| 2)[..], &late].concat()), &["-m", &module("latency", "")]);
    assert_eq!(live.rows("latency", "samples").len(), 1);
}

#[test]
fn addresses_of_all_kinds_name_the_client_and_the_server() {
    for (client, server) in [
        ("[2001:db8::1]:1000", "[2001:db8::2]:443"),
        ("[2001:db8::2]:179", "[2001:db8::1]:179"),
        ("10.0.0.1:500", "10.0.0.2:500"),
        ("10.0.0.2:500", "10.0.0.1:500"),
        ("10.0.0.1:20", "10.0.0.2:5000"),
    ] {
        let mut capture = Capture::new(ETHERNET);
        let kind: &[u8] = if client.starts_with('[') { &[0x86, 0xDD] } else { &[8, 0] };
        for (ms, segment) in [
            (0, Segment::new(client, server, SYN, 1, 0, 0)),
            (4, Segment::new(server, client, SYN | ACK, 1, 2, 0)),
            (5, Segment::new(client, server, ACK, 2, 2, 0)),
        ] {
            let frame = [&[2; 12][..], &[0x81, 0, 0, 7], kind, &segment.ip()].concat();
            capture.push(BEGIN + ms * MILLISECOND, frame);
        }
        let ran = run(&capture, &["-m", &module("latency", ""), "-m", "rtt"]);
        let (got, rtt) = (ran.rows("latency", "samples"), ran.rows("rtt", "rtts"));
        let [row] = &got[..] else { panic!("{got:?}") };
        assert_eq!((row.end("src"), row.end("dst")), (rtt[0].end("src"), rtt[0].end("dst")));
        assert_eq!((row.number("vlan"), row.flag("handshake"), row.text("tunnel")), (7, true, ""));
        assert_eq!(row.text("community_id"), rtt[0].text("community_id"));
        assert_eq!((row.number("server_rtt_ns"), row.number("client_rtt_ns")), (4_000_000, 1_000_000));
    }
    // The SYN-ACK alone tells, too.
    let half = [
        (0, Segment::new("10.0.0.1:20", "10.0.0.2:5000", SYN | ACK, 1, 2, 0)),
        (6, Segment::new("10.0.0.2:5000", "10.0.0.1:20", ACK, 2, 2, 0)),
    ];
    let got = rows(&capture_of(&half), "");
    assert_eq!((got[0].end("src").as_str(), got[0].number("client_rtt_ns")), ("10.0.0.2:5000", 6_000_000));
}

/// Packs a capture of raw IP packets into IP in IP.
pub fn tunnelled(capture: &Capture) -> Capture {
    let mut outer = Capture::new(RAW_IP);
    for frame in &capture.frames {
        let ends: [IpAddr; 2] = ["192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()];
        outer.push(
            frame.ts,
            ip(ends[0], ends[1], if frame.bytes[0] >> 4 == 4 { 4 } else { 41 }, &frame.bytes),
        );
    }
    outer
}

/// Packs a capture of raw IP packets into the UDP of each kind of tunnel over UDP for IPv4: VXLAN, Geneve, GTP-U.
pub fn in_udp_tunnels(capture: &Capture) -> [Capture; 3] {
    [4789, 6081, 2152].map(|port| {
        let mut outer = Capture::new(RAW_IP);
        for frame in &capture.frames {
            let [high, low] = u16::try_from(frame.bytes.len()).unwrap().to_be_bytes();
            let header = match port {
                4789 => [&[8, 0, 0, 0, 0, 0, 7, 0][..], &[2; 12], &[8, 0]].concat(),
                6081 => vec![0, 0, 8, 0, 0, 0, 7, 0],
                _ => vec![0x30, 0xff, high, low, 0, 0, 0, 7],
            };
            let packet = Packet::udp("192.0.2.3:50000", &format!("192.0.2.4:{port}"));
            outer.push(frame.ts, packet.payload([&header[..], &frame.bytes].concat()).ip());
        }
        outer
    })
}

/// Packs a capture of raw IP packets into IP with this protocol and header: GRE, or MPLS in IP.
fn in_ip_tunnel(capture: &Capture, protocol: u8, header: [u8; 4]) -> Capture {
    let mut outer = Capture::new(RAW_IP);
    for frame in &capture.frames {
        let ends: [IpAddr; 2] = ["192.0.2.5".parse().unwrap(), "192.0.2.6".parse().unwrap()];
        outer.push(frame.ts, ip(ends[0], ends[1], protocol, &[&header[..], &frame.bytes].concat()));
    }
    outer
}

#[test]
fn tunnelled_connections_count_unless_the_outer_layer_is_asked_for() {
    let plain = capture_of(&handshake());
    let capture = tunnelled(&plain);
    let (inner, outside) = (rows(&capture, ""), rows(&plain, ""));
    assert_eq!((inner.len(), inner[0].text("tunnel"), inner[0].end("src").as_str()), (1, "ip", CLIENT));
    assert_eq!(inner[0].text("community_id"), outside[0].text("community_id"));
    assert_eq!(rows(&capture, ",layer=outer").len(), 0);
    assert_eq!(rows(&plain, ",layer=outer"), outside);
    let said = refusal(&plain, &["-m", &module("latency", ",layer=both")]);
    assert!(said.contains("parameter `layer`"), "{said}");
    // Long inner packets, and 500 connections in one tunnel.
    let mut many = Vec::new();
    for port in 2000..2500 {
        let (from, to) = (format!("10.0.0.1:{port}"), SERVER);
        many.push((0, Segment::new(&from, to, ACK, 1, 1, 1400)));
        many.push((1, Segment::new(&from, to, ACK, 1401, 1, 10)));
        many.push((3, Segment::new(to, &from, ACK, 1, 1401, 0)));
    }
    many.sort_by_key(|(at, _)| *at);
    let got = rows(&tunnelled(&capture_of(&many)), "");
    assert_eq!((got.len(), got.iter().map(|row| row.number("evicted")).sum::<i128>()), (500, 0));
    assert!(got.iter().all(|row| row.number("server_rtt_ns") == 3_000_000));
}

#[test]
fn slow_connections_and_rising_times_are_findings_whose_filters_select_them() {
    let findings = |segments: &[(u64, Segment)], parameters: &str| {
        run(&capture_of(segments), &["-m", &module("latency", parameters)]).rows("latency", "findings")
    };
    let slow = requests(4, 1000, |_| 700);
    let got = findings(&slow, ",interval=10s");
    assert_eq!((got.len(), got[0].number("severity"), got[0].text("evidence")), (1, 1, "samples"));
    assert_eq!(
        got[0].text("text"),
        "TCP round trips to 10.0.0.2 take at least 700 ms; the other end is 10.0.0.1, the server's port 80"
    );
    assert_eq!(
        findings(&slow, ",interval=10s,slow=701ms").len() + findings(&slow, ",interval=10s,slow=0s").len(),
        0
    );
    // Two samples are too few for an interval.
    assert_eq!(findings(&slow[..4], ",interval=10s").len(), 0);
    let rising = requests(100, 100, |i| if i < 50 { 20 } else { 400 });
    let got = findings(&rising, "");
    assert_eq!((got.len(), got[0].number("severity")), (1, 2));
    assert!(
        got[0].text("text").starts_with("TCP round trips to 10.0.0.2 rose from 20 ms to at least 400 ms;"),
        "{got:?}"
    );
    let ran = run(&capture_of(&rising), &["-m", &module("latency", ""), got[0].text("filter")]);
    assert_eq!(ran.summary["capture"]["selected"], 200);
    assert_eq!(findings(&rising, ",rise=21").len() + findings(&rising, ",rise=0").len(), 0);
    assert_eq!(findings(&rising, ",interval=0s").len(), 1);
    // A filter sees the outer headers only.
    let tunnel = tunnelled(&capture_of(&slow));
    let wanted = module("latency", ",interval=10s");
    let in_ip = [(47, [0, 0, 8, 0]), (137, [0, 1, 1, 64])]
        .map(|(protocol, header)| in_ip_tunnel(&tunnel, protocol, header));
    for capture in in_udp_tunnels(&tunnel).into_iter().chain(in_ip).chain([tunnel]) {
        let got = run(&capture, &["-m", &wanted]).rows("latency", "findings");
        let ran = run(&capture, &["-m", &wanted, got[0].text("filter")]);
        assert_eq!(ran.summary["capture"]["selected"], 8, "{got:?}");
    }
    // A rise that delayed acknowledgements can cause.
    assert_eq!(findings(&requests(100, 100, |i| if i < 50 { 20 } else { 269 }), "").len(), 0);
}

#[test]
fn a_flood_evicts_what_has_no_answer_and_rows_count_it() {
    let mut segments = requests(200, 1, |_| 1);
    // More SYN than the table has entries, in the same time.
    let syns = (0..20_000u32).map(|i| {
        (
            u64::from(i / 100),
            Segment::new(
                &format!("10.1.{}.{}:{}", i / 200 % 200, i % 200, 1000 + i % 977),
                SERVER,
                SYN,
                i,
                0,
                0,
            ),
        )
    });
    segments.extend(syns);
    segments.sort_by_key(|(at, _)| *at);
    let capture = capture_of(&segments);
    let answered: i128 =
        rows(&capture, ",table-size=1024").iter().map(|row| row.number("server_samples")).sum();
    assert_eq!(answered, 200, "the connection with answers keeps its entry");
    // Active connections with both ends: those beyond the table are refused, and others are not disturbed.
    let mut many = Vec::new();
    for i in 0..4000u32 {
        let from = format!("10.1.{}.{}:{}", i / 200, i % 200, 2000);
        for k in 0..3 {
            let at = u64::from(k * 20);
            many.push((at, Segment::new(&from, SERVER, ACK, 1 + k, 1, 1)));
            many.push((at + 5, Segment::new(SERVER, &from, ACK, 1, 2 + k, 0)));
        }
    }
    many.sort_by_key(|(at, _)| *at);
    let got = rows(&capture_of(&many), ",table-size=1024");
    assert!(got.len() > 700 && got.len() <= 1024 + 8, "{}", got.len());
    assert!(got.iter().map(|row| row.number("evicted")).sum::<i128>() > 2000);
    assert!(got.iter().filter(|row| row.number("server_samples") == 3).count() > 700);
    assert_eq!(rows(&capture_of(&many), "").len(), 4000);
}

/// Damaged, short and fragmented packets from valid ones.
pub fn hostile(seed: u64, source: &Capture) -> Capture {
    let mut random = Random(seed);
    let mut capture = Capture::new(source.link_type);
    for frame in source.frames.iter().cycle().take(20_000) {
        let (mut bytes, mut ts) = (frame.bytes.clone(), frame.ts);
        for _ in 0..random.word() % 4 {
            let at = usize::try_from(random.word()).unwrap() % bytes.len().min(80);
            bytes[at] = random.word().to_le_bytes()[4];
        }
        let wire_len = u32::try_from(bytes.len()).unwrap();
        if random.word().is_multiple_of(4) {
            bytes.truncate(usize::try_from(random.word()).unwrap() % bytes.len() + 1);
        }
        if random.word().is_multiple_of(8) {
            ts = ts.wrapping_add(random.word() >> (random.word() % 64)) % (4_000_000_000 * SECOND);
        }
        capture.frames.push(super::capture::Frame { ts, wire_len, bytes });
    }
    capture
}

#[test]
fn damaged_packets_and_times_cause_no_fault_and_no_negative_time() {
    let valid = capture_of(&[&handshake()[..], &requests(50, 7, |i| u64::from(i % 9))].concat());
    for seed in [1, 2, 3] {
        for capture in [hostile(seed, &valid), hostile(seed, &tunnelled(&valid))] {
            for parameters in ["", ",interval=0s,table-size=1024"] {
                for row in rows(&capture, parameters) {
                    for name in ["server_rtt_ns", "client_rtt_ns"] {
                        let time = row.optional_number(name).unwrap_or(0);
                        assert!((0..1 << 39).contains(&time), "seed {seed}: {row:?}");
                    }
                }
            }
        }
    }
}

pub fn assert_same_for_any_number_of_threads(path: &Path, modules: &[String]) {
    let args: Vec<&str> = modules.iter().flat_map(|module| ["-m", module]).collect();
    let with = |jobs: &str| run_file(path, &[&args[..], &["-j", jobs]].concat()).files();
    let one = with("1");
    for jobs in ["2", "3", "8"] {
        assert!(with(jobs) == one, "{}: --jobs {jobs}", path.display());
    }
}

#[test]
fn rows_are_the_same_for_any_number_of_threads() {
    // One module at a time, so that it runs in several instances.
    for parameters in ["", ",interval=0s", ",table-size=1024,slow=1ms"] {
        for path in samples() {
            assert_same_for_any_number_of_threads(&path, &[module("latency", parameters)]);
        }
        for name in ["encap/vxlan.pcap", "encap/6in4.pcap", "formats/snaplen128-mixed.pcap"] {
            trace(name).iter().for_each(|path| {
                assert_same_for_any_number_of_threads(path, &[module("latency", parameters)])
            });
        }
    }
}

pub fn assert_proved(name: &str, parameters: &str) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_weir")).args(["check", &module(name, parameters)]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("Tier: proved"), "{name}{parameters}: {text}");
}

#[test]
fn the_module_is_proved_with_any_parameters() {
    for parameters in ["", ",table-size=1048576,interval=1h", ",table-size=1024,interval=0s"] {
        assert_proved("latency", parameters);
    }
}

/// Connections whose path has a known constant delay, with losses on both sides of the capture point. Returns the capture and the
/// round-trip time between the capture point and the server by the client's port.
fn simulated(seed: u64, has_stamps: bool) -> (Capture, HashMap<i128, i128>) {
    let mut random = Random(seed);
    let (mut frames, mut truth) = (Vec::new(), HashMap::new());
    for port in 2000..2200u16 {
        let from = format!("10.0.0.1:{port}");
        let mut below = |end: u64| random.word() % end;
        let rtt = 200_000 + below(100_000) * 1000;
        truth.insert(i128::from(port), i128::from(rtt));
        // Transmissions that pass the capture point: time and number of the segment.
        let mut at = below(SECOND);
        let mut passes = std::collections::BTreeSet::new();
        for number in 0..60u32 {
            passes.insert((at, number));
            at += if below(3) == 0 { below(2 * rtt) } else { 10_000 };
        }
        let (mut got, mut recent) = ([false; 60], 0);
        while let Some((at, number)) = passes.pop_first() {
            let stamp = |at: u64| u32::try_from(at / MILLISECOND + 1000).unwrap();
            let with = |segment: Segment, value, echo| {
                if has_stamps { segment.stamps(value, echo) } else { segment }
            };
            let lost_before = below(25) == 0;
            let lost = lost_before || below(25) == 0;
            if lost {
                passes.insert((at + 2 * rtt + 200 * MILLISECOND, number));
            }
            let next =
                |got: &[bool]| got.iter().position(|got| !got).map_or(60, |at| u32::try_from(at).unwrap());
            if !lost_before {
                let data = Segment::new(&from, SERVER, ACK, 1 + number * 100, 1, 100);
                frames.push((at, with(data, stamp(at), 5)));
            }
            if lost {
                continue;
            }
            // RFC 7323, 4.3: the echo is that of the last segment in order.
            recent = if number <= next(&got) { stamp(at).max(recent) } else { recent };
            got[usize::try_from(number).unwrap()] = true;
            if below(50) != 0 {
                let answer = Segment::new(SERVER, &from, ACK, 1, 1 + next(&got) * 100, 0);
                frames.push((at + rtt, with(answer, stamp(at + rtt), recent)));
            }
        }
    }
    frames.sort_by_key(|(at, _)| *at);
    let mut capture = Capture::new(RAW_IP);
    for (at, segment) in frames {
        capture.push(BEGIN + at, segment.ip());
    }
    (capture, truth)
}

#[test]
fn samples_of_simulated_connections_with_losses_are_those_of_the_path() {
    for (seed, has_stamps) in [(11, false), (12, true), (13, false), (14, true)] {
        let (capture, truth) = simulated(seed, has_stamps);
        let got = rows(&capture, ",interval=0s");
        assert!(got.len() > 1500, "seed {seed}: {} samples", got.len());
        let mut least: HashMap<i128, i128> = HashMap::new();
        let mut exact = 0;
        for row in &got {
            let (port, rtt) = (row.number("src_port"), row.number("server_rtt_ns"));
            assert!(rtt >= truth[&port], "seed {seed}: {row:?}, the path has {}", truth[&port]);
            exact += usize::from(rtt == truth[&port]);
            let entry = least.entry(port).or_insert(rtt);
            *entry = rtt.min(*entry);
        }
        let share = exact as f64 / got.len() as f64;
        let _ = writeln!(std::io::stderr(), "seed {seed}: {} samples, {share:.4} of them exact", got.len());
        assert!(share > 0.95, "seed {seed}: {share}");
        let found = truth.iter().filter(|(port, rtt)| least.get(port) == Some(rtt)).count();
        assert!(found > 180, "seed {seed}: the shortest of {found} connections of 200 is that of the path");
    }
}
