//! The module `loss` on generated packets, and compared with tshark on random and on real captures.

use super::capture::{BEGIN, Capture, ETHERNET, MILLISECOND, RAW_IP, SECOND, samples, trace};
use super::latency::oracles::{EVENTS, Seen, tcp_traces, tshark};
use super::latency::{
    CLIENT, SERVER, Segment, assert_proved, assert_same_for_any_number_of_threads, capture_of, hostile,
    in_udp_tunnels, module, tunnelled,
};
use super::noise::Random;
use super::packet::{ACK, FIN, PSH, RST, SYN};
use super::weir::{Row, refusal, run, run_file};
use crate::run::{outside, traces};
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::path::Path;

/// The columns of a direction in the order of EVENTS.
const COLUMNS: [&str; 7] =
    ["retransmissions", "fast", "spurious", "reordered", "gaps", "duplicate_acks", "zero_windows"];

fn c(flags: u8, seq: u32, ack: u32, len: usize) -> Segment {
    Segment::new(CLIENT, SERVER, flags, seq, ack, len)
}

fn s(flags: u8, seq: u32, ack: u32, len: usize) -> Segment {
    Segment::new(SERVER, CLIENT, flags, seq, ack, len)
}

fn rows(capture: &Capture, parameters: &str) -> Vec<Row> {
    run(capture, &["-m", &module("loss", parameters)]).rows("loss", "flows")
}

fn events_of(row: &Row, side: &str) -> [i128; 7] {
    COLUMNS.map(|column| row.number(&format!("{side}_{column}")))
}

/// The events of the client and of the server after a handshake of 10 ms, which ends at 12 ms.
fn events(segments: &[(u64, Segment)]) -> [[i128; 7]; 2] {
    let handshake = [(0, c(SYN, 100, 0, 0)), (10, s(SYN | ACK, 500, 101, 0)), (12, c(ACK, 101, 501, 0))];
    let got = rows(&capture_of(&[&handshake[..], segments].concat()), ",all=true");
    match &got[..] {
        [] => [[0; 7]; 2],
        [row] => ["client", "server"].map(|side| events_of(row, side)),
        _ => panic!("{got:?}"),
    }
}

fn of_client(segments: &[(u64, Segment)]) -> [i128; 7] {
    let [client, server] = events(segments);
    assert_eq!(server, [0; 7]);
    client
}

#[test]
fn segments_in_order_are_no_events() {
    let segments = [
        (20, c(ACK | PSH, 101, 501, 10)),
        (21, s(ACK, 501, 111, 100)),
        (22, c(ACK, 111, 601, 10)),
        (23, s(FIN | ACK, 601, 121, 0)),
        (24, c(FIN | ACK, 121, 602, 0)),
        (25, s(ACK, 602, 122, 0)),
    ];
    assert_eq!(events(&segments), [[0; 7]; 2]);
    assert_eq!(rows(&capture_of(&segments), "").len(), 0, "no row without an event");
}

#[test]
fn a_segment_below_the_highest_is_reordered_if_it_is_soon_and_else_sent_again() {
    // The handshake took 12 ms.
    let after = |ms: u64| {
        of_client(&[(20, c(ACK, 101, 501, 10)), (30, c(ACK, 121, 501, 10)), (30 + ms, c(ACK, 111, 501, 10))])
    };
    assert_eq!(after(11), [0, 0, 0, 1, 1, 0, 0]);
    assert_eq!(after(12), [1, 0, 0, 0, 1, 0, 0]);
    // A segment that ends with the highest number was sent again, even if it is soon.
    let last = [(20, c(ACK, 101, 501, 10)), (21, c(ACK, 111, 501, 10)), (22, c(ACK, 111, 501, 10))];
    assert_eq!(of_client(&last), [1, 0, 0, 0, 0, 0, 0]);
    // Without handshake, 3 ms count.
    let unknown = |ms: u64| {
        let got = rows(
            &capture_of(&[(0, c(ACK, 1, 1, 10)), (1, c(ACK, 21, 1, 10)), (1 + ms, c(ACK, 11, 1, 10))]),
            "",
        );
        assert!(got[0].is_null("rtt_ns") && !got[0].flag("handshake"));
        events_of(&got[0], "client")
    };
    assert_eq!((unknown(2)[3], unknown(3)[0]), (1, 1));
}

#[test]
fn a_segment_after_duplicate_acknowledgements_is_a_fast_retransmission() {
    let lost = |duplicates: u64, after: u64| {
        let mut segments: Vec<_> =
            (0..5).map(|i| (20 + u64::from(i), c(ACK, 101 + i * 10, 501, 10))).collect();
        segments.push((40, s(ACK, 501, 111, 0)));
        segments.extend((0..duplicates).map(|i| (41 + i, s(ACK, 501, 111, 0))));
        segments.push((40 + duplicates + after, c(ACK, 111, 501, 10)));
        let [client, server] = events(&segments);
        assert_eq!(server, [0, 0, 0, 0, 0, i128::from(duplicates), 0]);
        client[..2].to_vec()
    };
    assert_eq!(lost(2, 19), [1, 1]);
    assert_eq!(lost(2, 20), [1, 0]);
    assert_eq!(lost(1, 19), [1, 0]);
    assert_eq!(lost(300, 5), [1, 1]);
}

#[test]
fn a_segment_that_was_acknowledged_is_a_spurious_retransmission() {
    let segments = [(20, c(ACK, 101, 501, 10)), (30, s(ACK, 501, 111, 0)), (31, c(ACK, 101, 501, 10))];
    assert_eq!(of_client(&segments), [1, 0, 1, 0, 0, 0, 0]);
    // One that was acknowledged in part is no spurious one.
    let half = [(20, c(ACK, 101, 501, 10)), (30, s(ACK, 501, 106, 0)), (50, c(ACK, 101, 501, 10))];
    assert_eq!(of_client(&half), [1, 0, 0, 0, 0, 0, 0]);
    // After a reset without ACK, its number is no acknowledgement.
    let reset = [(20, c(ACK, 101, 501, 10)), (30, s(RST, 501, 4_000_000, 0)), (31, c(ACK, 111, 501, 10))];
    assert_eq!(of_client(&reset), [0; 7]);
}

#[test]
fn syn_and_fin_are_sent_again_too() {
    let syns = [(0, c(SYN, 100, 0, 0)), (1000, c(SYN, 100, 0, 0)), (1001, c(SYN, 100, 0, 0))];
    let got = rows(&capture_of(&syns), "");
    assert_eq!((events_of(&got[0], "client"), got[0].number("client_packets")), ([2, 0, 0, 0, 0, 0, 0], 3));
    let fins = [(20, c(FIN | ACK, 101, 501, 0)), (300, c(FIN | ACK, 101, 501, 0))];
    assert_eq!(of_client(&fins), [1, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn keep_alives_and_probes_are_no_retransmissions() {
    let alive = [
        (20, c(ACK, 101, 501, 10)),
        (30, s(ACK, 501, 111, 0)),
        (9000, c(ACK, 110, 501, 1)),
        (9010, s(ACK, 501, 111, 0)),
    ];
    assert_eq!(events(&alive), [[0; 7]; 2]);
    let closed = [
        (20, c(ACK, 101, 501, 10)),
        (30, s(ACK, 501, 111, 0).window(0)),
        // Two probes: the byte does not count as sent.
        (200, c(ACK, 111, 501, 1)),
        (210, s(ACK, 501, 111, 0).window(0)),
        (500, c(ACK, 111, 501, 1)),
        (510, s(ACK, 501, 111, 0).window(0)),
        (600, s(ACK, 501, 111, 0)),
        (610, c(ACK, 111, 501, 10)),
    ];
    assert_eq!(events(&closed), [[0; 7], [0, 0, 0, 0, 0, 0, 3]]);
    // The byte of a probe that was taken is sent again with more.
    let taken = [(20, c(ACK, 101, 501, 1)), (30, c(ACK, 101, 501, 10))];
    assert_eq!(of_client(&taken), [0; 7]);
}

#[test]
fn duplicate_acknowledgements_repeat_all_numbers_and_the_window() {
    let server = |segment: Segment| {
        events(&[(20, c(ACK, 101, 501, 10)), (30, s(ACK, 501, 111, 0)), (31, segment)])[1][5]
    };
    assert_eq!(server(s(ACK, 501, 111, 0)), 1);
    assert_eq!(server(s(ACK, 501, 111, 0).window(1001)), 0);
    assert_eq!(server(s(ACK, 501, 111, 5)), 0);
    assert_eq!(server(s(ACK, 501, 110, 0)), 0);
    assert_eq!(server(s(FIN | ACK, 501, 111, 0)), 0);
}

#[test]
fn gaps_and_zero_windows_are_counted() {
    let segments = [
        (20, c(ACK, 121, 501, 10)),
        (21, c(ACK, 131, 501, 10).window(0)),
        (22, c(ACK, 181, 501, 0)),
        (23, c(RST | ACK, 300, 501, 0).window(0)),
    ];
    assert_eq!(of_client(&segments), [0, 0, 0, 0, 2, 0, 1]);
}

#[test]
fn numbers_wrap() {
    let top = u32::MAX - 4;
    let segments = [
        (0, c(ACK, top, 1, 10)),
        (10, c(ACK, 5, 1, 10)),
        (50, c(ACK, top, 1, 10)),
        (60, s(ACK, 1, 15, 0)),
        (70, c(ACK, 5, 1, 10)),
    ];
    let got = rows(&capture_of(&segments), "");
    assert_eq!(events_of(&got[0], "client"), [2, 0, 1, 0, 0, 0, 0]);
}

#[test]
fn a_row_has_the_connection_and_its_cause() {
    let connection = [
        (0, c(SYN, 100, 0, 0)),
        (8, s(SYN | ACK, 500, 101, 0)),
        (12, c(ACK, 101, 501, 0)),
        (20, c(ACK, 101, 501, 10)),
        (500, c(ACK, 101, 501, 10)),
        (510, s(ACK, 501, 111, 30)),
    ];
    let other = |seconds: u64| (seconds * 1000, Segment::new("10.0.0.9:9", "10.0.0.8:8", ACK, 1, 1, 0));
    let ticks = |range: std::ops::Range<u64>| range.map(other).collect::<Vec<_>>();
    let of = |more: &[(u64, Segment)], parameters: &str| {
        let mut got = rows(&capture_of(&[&connection[..], more].concat()), parameters);
        got.retain(|row| row.end("src") == CLIENT);
        got
    };
    let ms = |row: &Row, name: &str| (row.number(name) - i128::from(BEGIN)) / i128::from(MILLISECOND);

    let got = of(&[], "");
    let [row] = &got[..] else { panic!("{got:?}") };
    assert_eq!(
        (row.end("src").as_str(), row.end("dst").as_str(), row.text("cause")),
        (CLIENT, SERVER, "stop")
    );
    assert_eq!((ms(row, "start_time"), ms(row, "time"), row.number("rtt_ns")), (0, 510, 12_000_000));
    let counts = ["client_packets", "client_data_packets", "server_packets", "server_data_packets"]
        .map(|name| row.number(name));
    assert_eq!((counts, row.flag("handshake"), row.is_null("vlan")), ([4, 2, 2, 1], true, true));

    let causes = |got: &[Row]| got.iter().map(|row| row.text("cause").to_owned()).collect::<Vec<_>>();
    let ends =
        [(600, c(FIN | ACK, 111, 531, 0)), (610, s(FIN | ACK, 531, 112, 0)), (620, c(ACK, 112, 532, 0))];
    let got = of(&[&ends[..], &ticks(1..40)].concat(), "");
    assert_eq!((causes(&got), ms(&got[0], "time")), (vec!["closed".to_owned()], 620));
    assert_eq!(causes(&of(&[&[(600, c(RST, 111, 0, 0))], &ticks(1..40)[..]].concat(), "")), ["closed"]);
    // One FIN does not close it.
    assert_eq!(causes(&of(&[&ends[..1], &ticks(1..40)].concat(), "")), ["stop"]);
    assert_eq!(causes(&of(&ticks(1..100), "")), ["idle"]);
    assert_eq!(causes(&of(&ticks(1..100), ",idle=8m")), ["stop"]);
    let again = [(700, c(SYN, 9000, 0, 0)), (1700, c(SYN, 9000, 0, 0))];
    let got = of(&again, "");
    assert_eq!(causes(&got), ["reused", "stop"]);
    assert_eq!((events_of(&got[0], "client")[0], events_of(&got[1], "client")[0]), (1, 1));
    // It goes on: each row has what happened since the one before.
    let long: Vec<_> = (1..60u32)
        .flat_map(|i| {
            let at = u64::from(i) * 1000;
            [(at, c(ACK, 101 + i * 10, 501, 10)), (at + 400, c(ACK, 101 + i * 10, 501, 10))]
        })
        .collect();
    let got = of(&long, ",active=20s");
    assert!(got.len() > 1 && causes(&got)[0] == "active", "{got:?}");
    assert_eq!(got.iter().map(|row| events_of(row, "client")[0]).sum::<i128>(), 60);
    assert_eq!(got.iter().map(|row| row.number("client_packets")).sum::<i128>(), 4 + 118);
}

#[test]
fn connections_over_ipv6_with_vlan_and_in_tunnels_count() {
    let (client, server) = ("[2001:db8::1]:1000", "[2001:db8::2]:443");
    let segments: Vec<_> = [(0, 1), (50, 1), (70, 11)]
        .map(|(ms, seq)| (ms, Segment::new(client, server, ACK, seq, 1, 10)))
        .into();
    let mut capture = Capture::new(ETHERNET);
    for (ms, segment) in &segments {
        let frame = [&[2; 12][..], &[0x81, 0, 0, 7, 0x86, 0xDD], &segment.ip()].concat();
        capture.push(BEGIN + ms * MILLISECOND, frame);
    }
    let got = rows(&capture, "");
    assert_eq!((got[0].end("src").as_str(), got[0].number("vlan"), got[0].text("tunnel")), (client, 7, ""));
    assert_eq!(got[0].number("client_retransmissions"), 1);

    let plain = capture_of(&segments);
    let inner = rows(&tunnelled(&plain), "");
    assert_eq!((inner.len(), inner[0].text("tunnel"), inner[0].end("dst").as_str()), (1, "ip", server));
    assert_eq!(inner[0].text("community_id"), got[0].text("community_id"));
    assert_eq!(rows(&tunnelled(&plain), ",layer=outer,all=true").len(), 0);
    assert_eq!(rows(&plain, ",layer=outer").len(), 1);
    let said = refusal(&plain, &["-m", &module("loss", ",layer=x")]);
    assert!(said.contains("parameter `layer`"), "{said}");
}

#[test]
fn lossy_connections_and_full_receivers_are_findings_whose_filters_select_them() {
    let findings = |segments: &[(u64, Segment)], parameters: &str| {
        run(&capture_of(segments), &["-m", &module("loss", parameters)]).rows("loss", "findings")
    };
    // 200 segments, of which every tenth is sent again.
    let lossy: Vec<_> = (0..200u32)
        .flat_map(|i| {
            let (at, segment) = (u64::from(i) * 100, c(ACK, 1 + i * 10, 1, 10));
            let again = i.is_multiple_of(10).then(|| (at + 50, segment.clone()));
            std::iter::once((at, segment)).chain(again)
        })
        .collect();
    let got = findings(&lossy, "");
    assert_eq!((got.len(), got[0].number("severity"), got[0].text("evidence")), (1, 2, "flows"));
    assert_eq!(
        got[0].text("text"),
        "Packets from 10.0.0.1 to 10.0.0.2 get lost: 20 of 220 were sent again (the server's port is 80)"
    );
    let ran = run(&capture_of(&lossy), &["-m", &module("loss", ""), got[0].text("filter")]);
    assert_eq!(ran.summary["capture"]["selected"], 220);
    // Behind two tags, and in a tunnel, where a filter sees the outer headers only.
    let tunnel = tunnelled(&capture_of(&lossy));
    let mut tagged = Capture::new(ETHERNET);
    for frame in &capture_of(&lossy).frames {
        let head = [&[2; 12][..], &[0x88, 0xA8, 0, 5, 0x81, 0, 0, 7, 8, 0]].concat();
        tagged.push(frame.ts, [&head[..], &frame.bytes].concat());
    }
    let nested = in_udp_tunnels(&tunnel);
    for capture in nested.into_iter().chain([tunnel, tagged]) {
        let got = run(&capture, &["-m", &module("loss", "")]).rows("loss", "findings");
        let ran = run(&capture, &["-m", &module("loss", ""), got[0].text("filter")]);
        assert_eq!(ran.summary["capture"]["selected"], 220, "{got:?}");
    }
    for parameters in [",rate=0.1", ",rate=0", ",least=221"] {
        assert_eq!(findings(&lossy, parameters).len(), 0, "{parameters}");
    }
    let full: Vec<_> = (0..3u32).map(|i| (u64::from(i) * 100, s(ACK, 1, 1 + i, 0).window(0))).collect();
    let got = findings(&full, "");
    assert_eq!(
        got[0].text("text"),
        "10.0.0.2 cannot keep up with 10.0.0.1: it announced a zero window 3 times (the server's port is 80)"
    );
    assert_eq!(got[0].number("severity"), 1);
    assert_eq!(findings(&full, ",zero-windows=4").len() + findings(&full, ",zero-windows=0").len(), 0);
    // Many such connections give at most one finding for each 64th of them.
    let many: Vec<_> = (0..1000u32)
        .flat_map(|i| {
            let from = format!("10.1.{}.{}:{}", i / 200, i % 200, 2000 + i);
            (0..3u32)
                .map(move |k| (u64::from(k) * 10, Segment::new(&from, SERVER, ACK, 1, 1 + k, 0).window(0)))
        })
        .collect();
    let got = findings(&many, "");
    assert!((40..=64).contains(&got.len()), "{}", got.len());
}

#[test]
fn a_full_table_pushes_out_one_sided_connections_first() {
    let mut segments: Vec<_> = (0..300u32)
        .flat_map(|i| {
            let at = u64::from(i);
            [(at, c(ACK, 1 + i, 1, 1)), (at, s(ACK, 1, 2 + i, 0)), (at, c(ACK, 1 + i, 1, 1))]
        })
        .collect();
    let flood = |i: u32, flags| {
        Segment::new(
            &format!("10.1.{}.{}:{}", i / 200 % 200, i % 200, 1000 + i % 977),
            SERVER,
            flags,
            i,
            0,
            0,
        )
    };
    segments.extend((0..20_000u32).map(|i| (u64::from(i / 100), flood(i, SYN))));
    segments.sort_by_key(|(at, _)| *at);
    let got = rows(&capture_of(&segments), ",table-size=1024,all=true");
    let kept: Vec<_> =
        got.iter().filter(|row| row.number("dst_port") == 80 && row.end("src") == CLIENT).collect();
    assert_eq!((kept.len(), kept[0].text("cause"), kept[0].number("client_packets")), (1, "stop", 600));
    assert!(got.iter().map(|row| row.number("evicted")).sum::<i128>() > 0);
}

#[test]
fn damaged_packets_and_times_cause_no_fault() {
    let valid: Vec<_> = (0..50u32)
        .flat_map(|i| {
            [
                (u64::from(i) * 7, c(ACK, 1 + i * 5, 1 + i, 10)),
                (u64::from(i) * 7 + 3, s(ACK, 1 + i, 1 + i * 5, 1)),
            ]
        })
        .collect();
    let valid = capture_of(&valid);
    for seed in [1, 2, 3] {
        for capture in [hostile(seed, &valid), hostile(seed, &tunnelled(&valid))] {
            for parameters in ["", ",all=true,table-size=1024,idle=1s,active=10s"] {
                assert!(!rows(&capture, parameters).is_empty(), "seed {seed}");
            }
        }
    }
}

#[test]
fn rows_are_the_same_for_any_number_of_threads() {
    for parameters in ["", ",all=true,table-size=1024,idle=1s,active=10s,least=1"] {
        for path in samples() {
            assert_same_for_any_number_of_threads(&path, &[module("loss", parameters)]);
        }
        for name in ["encap/vxlan.pcap", "encap/6in4.pcap", "formats/snaplen128-mixed.pcap"] {
            trace(name)
                .iter()
                .for_each(|path| assert_same_for_any_number_of_threads(path, &[module("loss", parameters)]));
        }
    }
}

#[test]
fn the_module_is_proved_with_any_parameters() {
    for parameters in ["", ",table-size=1048576,all=true", ",table-size=1024,rate=0,zero-windows=0"] {
        assert_proved("loss", parameters);
    }
}

/// Events by direction: "from to".
type Counts = BTreeMap<String, [i128; 7]>;

fn of_module(path: &Path) -> Counts {
    let mut counts = Counts::new();
    let wanted = module("loss", ",all=true,active=24h,idle=8m");
    for row in run_file(path, &["-m", &wanted]).rows("loss", "flows") {
        for (side, from, to) in [("client", "src", "dst"), ("server", "dst", "src")] {
            let sums = counts.entry(format!("{} {}", row.end(from), row.end(to))).or_default();
            sums.iter_mut().zip(events_of(&row, side)).for_each(|(sum, count)| *sum += count);
        }
    }
    counts.retain(|_, events| *events != [0; 7]);
    counts
}

fn of_tshark(seen: &[Seen]) -> Counts {
    let mut counts = Counts::new();
    for seen in seen {
        let sums = counts.entry(format!("{} {}", seen.from, seen.to)).or_default();
        sums.iter_mut().zip(seen.events).for_each(|(sum, event)| *sum += i128::from(event));
    }
    counts.retain(|_, events| *events != [0; 7]);
    counts
}

fn difference(a: &Counts, b: &Counts) -> i128 {
    let names: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
    let of = |counts: &Counts, name: &String| counts.get(name).copied().unwrap_or_default();
    names
        .into_iter()
        .map(|name| of(a, name).iter().zip(of(b, name)).map(|(a, b)| (a - b).abs()).sum::<i128>())
        .sum()
}

/// Captures in which tshark sees other packets than weir, with the reason.
const OTHER_PACKETS: [(&str, &str); 8] = [
    ("encap/gre-aruba.pcap", "802.11 in GRE"),
    ("encap/gtp2-fragments.pcap", "fragments around a tunnel"),
    ("encap/pppoe-over-qinq.pcap", "wrong lengths"),
    ("formats/snaplen128-mixed.pcap", "wrong lengths"),
    ("robustness/nDPI/fuzz-2006-09-29-28586.pcap", "damaged headers"),
    ("robustness/nDPI/reasm_crash_anon.pcapng", "damaged headers"),
    ("robustness/suricata-verify/tcp-session-decode-malformed-ipv4.pcap", "damaged headers"),
    ("robustness/zeek/fuzz-72.pcap", "damaged headers"),
];

#[test]
fn counts_of_traces_equal_those_of_tshark_but_for_known_reasons() {
    let (mut all, mut kinds) = (0, HashMap::<&str, i128>::new());
    let traces = tcp_traces();
    for (name, path) in &traces {
        let (ours, theirs) = (of_module(path), of_tshark(&tshark(path)));
        all += theirs.values().flatten().sum::<i128>();
        if ours != theirs {
            let known = OTHER_PACKETS.iter().find(|(other, _)| other == name);
            let Some((_, kind)) = known else { panic!("{name}: {ours:?}, tshark {theirs:?}") };
            *kinds.entry(kind).or_default() += difference(&ours, &theirs);
        }
    }
    let _ =
        writeln!(std::io::stderr(), "{} traces: {all} events of tshark; differences {kinds:?}", traces.len());
    if traces::are_all() {
        assert!(all > 8000 && kinds.values().sum::<i128>() < 1100);
    }
}

/// Segments with numbers, flags, windows and times at random, near each other so that all rules apply.
fn random_walk(seed: u64) -> Capture {
    let mut random = Random(seed);
    let mut segments = Vec::new();
    for port in 0..40u32 {
        let client = format!("10.0.0.1:{}", 2000 + port);
        let mut at = u64::from(port) * 100 * SECOND;
        let mut next = [1000u32 + port * 100_000, 5_000_000 + port * 100_000];
        let mut below = |end: usize| usize::try_from(random.word()).unwrap() % end;
        for _ in 0..300 {
            at += [0, MILLISECOND / 10, 2 * MILLISECOND, 15 * MILLISECOND, 400 * MILLISECOND][below(5)];
            let side = below(2);
            let (from, to) = if side == 0 { (client.as_str(), SERVER) } else { (SERVER, client.as_str()) };
            let shift = |below: usize| u32::try_from(below).unwrap();
            let mut seq = next[side];
            let len = [0, 0, 1, 10, 10, 30][below(6)];
            match below(8) {
                0 => seq -= shift(below(40)),
                1 => seq += shift(below(20)),
                2 => seq -= 1,
                _ => {}
            }
            let ack = next[1 - side] - if below(3) == 0 { shift(below(30)) } else { 0 };
            let flags = [ACK, ACK, ACK, ACK | PSH, ACK | PSH, FIN | ACK][below(6)];
            let flags = if flags & FIN != 0 && below(8) != 0 { ACK } else { flags };
            let window = [0, 100, 100, 100, 200][below(5)];
            segments.push((at, Segment::new(from, to, flags, seq, ack, len).window(window)));
            let end = seq + shift(len) + u32::from(flags & FIN != 0);
            if below(10) == 0 {
                // Duplicate acknowledgements, and what they ask for.
                for _ in 0..1 + below(4) {
                    segments.push((at, Segment::new(to, from, ACK, next[1 - side], seq, 0)));
                }
                at += [0, 2, 19, 21][below(4)] * MILLISECOND;
                segments.push((at, Segment::new(from, to, ACK, seq, ack, 10)));
            }
            next[side] = next[side].max(end);
        }
    }
    segments.sort_by_key(|(at, _)| *at);
    let mut capture = Capture::new(RAW_IP);
    for (at, segment) in segments {
        capture.push(BEGIN + at, segment.ip());
    }
    capture
}

#[test]
fn counts_of_random_segments_equal_those_of_tshark() {
    if !outside::has("tshark") {
        return;
    }
    for seed in 1..=8 {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), random_walk(seed).to_pcap()).unwrap();
        let (ours, theirs) = (of_module(file.path()), of_tshark(&tshark(file.path())));
        for (index, event) in EVENTS.iter().enumerate() {
            let sum: i128 = theirs.values().map(|events| events[index]).sum();
            assert!(sum > 5, "seed {seed}: {event} is not tried: {sum}");
        }
        assert!(ours.keys().eq(theirs.keys()), "seed {seed}");
        let mut different = 0;
        for (name, theirs) in &theirs {
            let ours = ours[name];
            if ours == *theirs {
                continue;
            }
            // After an acknowledgement of bytes that it has not seen, tshark has the number -1 of duplicates, as an unsigned number. So the
            // next retransmission is a fast one.
            let is_same = |index: usize| ours[index] == theirs[index];
            assert!(
                [2, 4, 5, 6].into_iter().all(is_same),
                "seed {seed}, {name}: {ours:?}, tshark {theirs:?}"
            );
            assert!(ours[1] < theirs[1], "seed {seed}, {name}: {ours:?}, tshark {theirs:?}");
            different += theirs[1] - ours[1];
        }
        let fast: i128 = theirs.values().map(|events| events[1]).sum();
        let _ = writeln!(std::io::stderr(), "seed {seed}: {different} of {fast} fast retransmissions differ");
        assert!(different * 50 < fast, "seed {seed}");
    }
}
