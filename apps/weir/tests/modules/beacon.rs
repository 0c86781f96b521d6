//! The module `beacon` on generated packets and on real captures.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small numbers of generated packets"
)]

use super::capture::{BEGIN, Capture, ETHERNET, SECOND, trace};
use super::packet::{ACK, SYN};
use super::scan::{Traffic, assert_proved, ethernet, ip, module, seed, v4};
use super::weir::{Row, Run, refusal, run, run_file};
use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;
use std::process::Command;

fn beacons_with(capture: &Capture, parameters: &str) -> (Run, Vec<Row>) {
    let ran = run(capture, &["-m", &module("beacon", parameters)]);
    let rows = ran.rows("beacon", "beacons");
    (ran, rows)
}

fn client(is_v6: bool) -> IpAddr {
    if is_v6 { "2001:db8:bad::1".parse().unwrap() } else { v4(10, 0, 0, 66) }
}

fn server(is_v6: bool) -> IpAddr {
    if is_v6 { "2a01::80".parse().unwrap() } else { v4(198, 51, 100, 9) }
}

/// SYN packets at times in ms.
fn contacts(times: impl IntoIterator<Item = u64>) -> Capture {
    let mut traffic = Traffic::new(1);
    for (i, ms) in times.into_iter().enumerate() {
        let from = (client(false), 20_000 + i as u16);
        traffic.tcp(ms * 1_000_000, from, (server(false), 443), SYN, 7 * i as u32);
    }
    traffic.capture()
}

/// The last row, if there is one.
fn last(capture: &Capture) -> Option<Row> {
    beacons_with(capture, "").1.pop()
}

#[test]
fn a_perfect_period_gives_rows_and_one_finding_whose_filter_selects_its_packets() {
    for is_v6 in [false, true] {
        for is_tcp in [true, false] {
            let mut traffic = Traffic::new(1);
            for i in 0..100u64 {
                let (from, to, at) =
                    ((client(is_v6), 20_000 + i as u16), (server(is_v6), 4444), i * 60 * SECOND);
                if is_tcp {
                    traffic.tcp(at, from, to, SYN, 7);
                    traffic.tcp(at + 1_000_000, to, from, SYN | ACK, 7);
                } else {
                    traffic.udp(at, from, to, 20);
                    traffic.udp(at + 1_000_000, to, from, 20);
                }
            }
            let capture = traffic.capture();
            let (ran, rows) = beacons_with(&capture, "");
            let number: Vec<_> = rows.iter().map(|row| row.number("contacts")).collect();
            assert_eq!(number, [10, 20, 40, 80, 100]);
            let row = rows.last().unwrap();
            assert_eq!(
                (row.text("src"), row.text("dst")),
                (&*client(is_v6).to_string(), &*server(is_v6).to_string())
            );
            assert_eq!((row.number("dst_port"), row.number("protocol")), (4444, if is_tcp { 6 } else { 17 }));
            assert_eq!((row.number("period_ns"), row.number("jitter_ns")), (60_000_000_000, 0));
            assert_eq!((row.number("intervals"), row.number("missed")), (64, 0));
            let times = (row.number("first_time"), row.number("last_time"));
            assert!((times.0 - i128::from(BEGIN)).abs() <= 100_000, "{row:?}");
            assert_eq!(times.1, i128::from(BEGIN + 99 * 60 * SECOND));
            assert!(
                (row.float("score") - 64.0 / 66.0).abs() < 1e-9 && row.float("regular") == 1.0,
                "{row:?}"
            );
            let findings = ran.rows("beacon", "findings");
            assert_eq!(findings.len(), 1);
            let finding = &findings[0];
            assert!(finding.text("text").contains("every 60.0 s with a jitter of 0.0 s"), "{finding:?}");
            assert_eq!((finding.number("severity"), finding.text("evidence")), (3, "beacons"));
            let selected = run(&capture, &["-m", &module("beacon", ""), finding.text("filter")]);
            assert_eq!(selected.summary["capture"]["selected"], 200, "{}", finding.text("filter"));
        }
    }
}

#[test]
fn period_and_jitter_are_the_median_and_its_absolute_deviation() {
    // Intervals 58, 59, 60, 61, 62 s again and again: the deviations 2, 1, 0, 1, 2 have the median 1.
    let times = (0..51u64).scan(0, |at, i| {
        let now = *at;
        *at += 58_000 + i % 5 * 1_000;
        Some(now)
    });
    let row = last(&contacts(times)).unwrap();
    assert_eq!((row.number("period_ns"), row.number("jitter_ns")), (60_000_000_000, 1_000_000_000));
    let score = (1.0 - 2.0 / 60.0) * 50.0 / 52.0;
    assert!((row.float("score") - score).abs() < 1e-9, "{row:?}");
}

#[test]
fn missed_and_additional_contacts_are_resisted() {
    // Of 80 contacts, every third is missing, or more than half are.
    let row = last(&contacts((0..80).filter(|i| i % 3 != 1).map(|i| i * 30_000))).unwrap();
    assert_eq!((row.number("period_ns"), row.number("missed")), (30_000_000_000, 26));
    assert!(row.float("regular") == 1.0, "{row:?}");
    let row =
        last(&contacts((0..90).filter(|i| [0, 1, 4, 8].contains(&(i % 9))).map(|i| i * 30_000))).unwrap();
    assert_eq!(row.number("period_ns"), 30_000_000_000, "{row:?}");
    // Another contact within every fifth period.
    let row = last(&contacts((0..60u64).flat_map(|i| {
        let more = (i % 5 == 0).then_some(i * 30_000 + 11_000);
        std::iter::once(i * 30_000).chain(more)
    })))
    .unwrap();
    assert_eq!(row.number("period_ns"), 30_000_000_000);
    assert!(row.float("regular") > 0.8, "{row:?}");
}

#[test]
fn bursts_and_repeated_syns_are_one_contact() {
    // Five connections at once.
    let bursts = (0..20u64).flat_map(|i| (0..5).map(move |j| i * 30_000 + j * 200));
    let row = last(&contacts(bursts)).unwrap();
    assert_eq!((row.number("contacts"), row.number("period_ns")), (20, 30_000_000_000));
    // A server that does not answer: SYN again after 1, 3 and 7 s.
    let mut traffic = Traffic::new(1);
    for i in 0..20u64 {
        for delay in [0, 1, 3, 7] {
            let from = (client(false), 20_000 + i as u16);
            traffic.tcp((i * 30 + delay) * SECOND, from, (server(false), 443), SYN, 7 + i as u32);
        }
    }
    let row = last(&traffic.capture()).unwrap();
    assert_eq!(
        (row.number("contacts"), row.number("period_ns"), row.number("jitter_ns")),
        (20, 30_000_000_000, 0)
    );
    // Of a UDP flow that keeps its port, the first packet of each burst counts, and no packet of the server.
    let mut traffic = Traffic::new(1);
    for i in 0..20u64 {
        for (ms, back) in [(0, false), (50, true), (900, false), (1_700, true), (9_000, true)] {
            let (mut from, mut to) = ((client(false), 5_000), (server(false), 6_000));
            if back {
                std::mem::swap(&mut from, &mut to);
            }
            traffic.udp(i * 30 * SECOND + ms * 1_000_000, from, to, 9);
        }
    }
    let (_, rows) = beacons_with(&traffic.capture(), "");
    assert!(rows.iter().all(|row| row.number("dst_port") == 6_000), "{rows:?}");
    assert_eq!(
        (rows.last().unwrap().number("contacts"), rows.last().unwrap().number("period_ns")),
        (20, 30_000_000_000)
    );
}

#[test]
fn chatter_that_is_periodic_by_design_does_not_count() {
    let number = |to: (IpAddr, u16), parameters: &str| {
        let mut traffic = Traffic::new(1);
        for i in 0..30u64 {
            traffic.udp(i * 64 * SECOND, (client(to.0.is_ipv6()), 5_000), to, 48);
        }
        beacons_with(&traffic.capture(), parameters).1.len()
    };
    let other = server(false);
    assert_ne!(number((other, 124), ""), 0);
    for (address, port) in [
        (other, 123),
        (other, 137),
        (v4(224, 0, 0, 251), 9_999),
        (v4(239, 255, 255, 250), 9_999),
        (v4(255, 255, 255, 255), 9_999),
        (v4(192, 168, 1, 255), 9_999),
        ("ff02::fb".parse().unwrap(), 9_999),
    ] {
        assert_eq!(number((address, port), ""), 0, "{address} {port}");
    }
    assert_ne!(number((other, 123), ",ignore-ports=7"), 0);
    assert_eq!(number((other, 124), ",ignore-ports=7,124"), 0);
}

#[test]
fn thresholds_are_those_of_the_parameters() {
    let nine = contacts((0..9).map(|i| i * 30_000));
    assert_eq!(beacons_with(&nine, "").1.len(), 0);
    assert_ne!(beacons_with(&nine, ",contacts=9").1.len(), 0);
    let findings = |capture: &Capture, parameters: &str| {
        beacons_with(capture, parameters).0.rows("beacon", "findings").len()
    };
    // A beacon for 4 minutes.
    let short = contacts((0..25).map(|i| i * 10_000));
    assert_eq!((findings(&short, ""), findings(&short, ",finding-time=60s")), (0, 1));
    assert_eq!(findings(&short, ",finding-time=60s,finding-score=0.99"), 0);
    assert_eq!(beacons_with(&short, ",score=0.99").1.len(), 0);
    assert_eq!(beacons_with(&short, ",burst=11s").1.len(), 0);
}

#[test]
fn a_flood_does_not_evict_a_known_beacon() {
    let mut traffic = Traffic::new(5);
    for i in 0..40u64 {
        traffic.tcp(i * 10 * SECOND, (client(false), 20_000 + i as u16), (server(false), 443), SYN, i as u32);
    }
    // From the fourth contact on.
    for i in 0..200_000u64 {
        let from = (traffic.address(11, false), traffic.port());
        traffic.tcp(35 * SECOND + i * 1_500_000, from, (v4(198, 51, 100, 10), 80), SYN, 1);
    }
    let (_, rows) = beacons_with(&traffic.capture(), ",table-size=256");
    assert_eq!(rows.last().unwrap().number("contacts"), 40);
}

#[test]
fn tags_and_tunnels_are_looked_into() {
    let plain = contacts((0..40).map(|i| i * 30_000));
    let (mut tagged, mut tunnelled) = (Capture::new(ETHERNET), Capture::new(ETHERNET));
    for frame in &plain.frames {
        let bytes = &frame.bytes;
        tagged.push(frame.ts, [&bytes[..12], &[0x81, 0, 0, 5], &bytes[12..]].concat());
        let gre = [&[0, 0, 8, 0], &bytes[14..]].concat();
        tunnelled.push(frame.ts, ethernet(&ip(v4(192, 0, 2, 1), v4(192, 0, 2, 2), 47, &gre)));
    }
    for (capture, vlan, tunnel) in [(&plain, None, ""), (&tagged, Some(5), ""), (&tunnelled, None, "gre")] {
        let (ran, rows) = beacons_with(capture, "");
        let last = rows.last().unwrap();
        assert_eq!((last.optional_number("vlan"), last.text("tunnel")), (vlan, tunnel));
        assert_eq!(last.text("dst"), server(false).to_string());
        let filter = ran.rows("beacon", "findings")[0].text("filter").to_owned();
        let selected = run(capture, &["-m", &module("beacon", ""), &filter]);
        assert_eq!(selected.summary["capture"]["selected"], 40, "{filter}");
    }
    assert_eq!(beacons_with(&tunnelled, ",layer=outer").1.len(), 0);
    assert_ne!(beacons_with(&plain, ",layer=outer").1.len(), 0);
    let said = refusal(&plain, &["-m", &module("beacon", ",layer=middle")]);
    assert!(said.contains("`middle` is none of inner, outer"), "{said}");
}

#[test]
fn short_packets_and_times_that_go_back_are_no_faults() {
    let mut damaged = contacts((0..90).map(|i| i * 30_000));
    for (i, frame) in damaged.frames.iter_mut().enumerate() {
        frame.bytes.truncate(14 + i);
        frame.ts -= if i % 7 == 0 { 7_200 * SECOND } else { 0 };
    }
    // `run` fails on a fault.
    assert_eq!(beacons_with(&damaged, ",score=0.1").0.summary["modules"][0]["faults"], 0);
}

/// Each beacon by source, destination and port, with its period in s.
type Truth = BTreeMap<(String, String, i128), f64>;

fn connection(t: &mut Traffic, at: f64, client: IpAddr, server: (IpAddr, u16)) {
    let (from, seq) = ((client, t.port()), t.below(1 << 32) as u32);
    let at = (at * 1e9) as u64;
    t.tcp(at, from, server, SYN, seq);
    t.tcp(at + 30_000_000, server, from, SYN | ACK, 1);
    t.tcp(at + 60_000_000, from, server, ACK, seq.wrapping_add(1));
}

/// Visits of web sites, random contacts, DNS, NTP, mDNS, peers that are contacted irregularly, a media stream, and a flood.
fn background(t: &mut Traffic, length: f64) {
    let ns = |at: f64| (at * 1e9) as u64;
    let servers: Vec<[IpAddr; 2]> = (0..300).map(|_| [t.address(20, false), t.address(20, true)]).collect();
    for _ in 0..40 {
        let is_v6 = t.chance(0.3);
        let client = t.address(10, is_v6);
        let some_server = |t: &mut Traffic| servers[t.below(300) as usize][usize::from(is_v6)];
        for _ in 0..5 + t.below(10) {
            let server = some_server(t);
            for _ in 0..1 + t.below(7) {
                let mut at = t.between(0.0, length);
                for _ in 0..1 + t.below(30) {
                    for _ in 0..1 + t.below(5) {
                        let begin = at + t.between(0.0, 0.5);
                        connection(t, begin, client, (server, 443));
                    }
                    at += t.exponential(1.0) * 10f64.powf(t.between(0.0, 2.0));
                }
            }
        }
        let (server, mean, mut at) = (some_server(t), t.between(10.0, 600.0), 0.0);
        while at < length {
            connection(t, at, client, (server, 443));
            at += t.exponential(mean);
        }
        let (resolver, time_server) = (t.address(21, is_v6), t.address(22, is_v6));
        let (mut at, mut time) = (0.0, t.between(0.0, 64.0));
        while at < length {
            let from = (client, t.port());
            t.udp(ns(at), from, (resolver, 53), 40);
            t.udp(ns(at) + 9_000_000, (resolver, 53), from, 90);
            at += t.exponential(10.0) + t.exponential(60.0);
        }
        let group = if is_v6 { "ff02::fb".parse().unwrap() } else { v4(224, 0, 0, 251) };
        while time < length {
            t.udp(ns(time), (client, 123), (time_server, 123), 48);
            t.udp(ns(time) + 9_000_000, (time_server, 123), (client, 123), 48);
            t.udp(ns(time), (client, 40_000), (group, 9_999), 48);
            time += 64.0;
        }
    }
    for _ in 0..800 {
        let is_v6 = t.chance(0.3);
        let (peer, other) = ((t.address(10, is_v6), 6881), (t.address(33, is_v6), t.port()));
        let mut at = t.between(0.0, length);
        for _ in 0..1 + t.below(30) {
            t.udp(ns(at), peer, other, 90);
            t.udp(ns(at) + 90_000_000, other, peer, 90);
            at += t.exponential(100.0);
        }
    }
    for i in 0..3_000 {
        t.udp(i * 20_000_000, (v4(10, 0, 0, 9), 5_000), (v4(34, 0, 0, 1), 6_000), 160);
        t.udp(i * 20_000_000 + 9, (v4(34, 0, 0, 1), 6_000), (v4(10, 0, 0, 9), 5_000), 160);
    }
    let begin = ns(t.between(0.0, length / 2.0));
    for i in 0..10_000 {
        let from = (t.address(11, false), t.port());
        t.tcp(begin + i * 1_000_000, from, (v4(198, 51, 100, 9), 80), SYN, 1);
    }
}

/// A beacon with a jitter of up to 20 %, of which up to 30 % of the contacts are missed.
fn random_beacon(t: &mut Traffic, length: f64, truth: &mut Truth) {
    let is_v6 = t.chance(0.3);
    let (client, server) = (t.address(172, is_v6), t.address(60, is_v6));
    let to = (server, [443, 80, 8080, 4444, 53][t.below(5) as usize]);
    let period = 10f64.powf(t.between(0.8, 3.0)).min(length / 40.0);
    let (jitter, missed) =
        ([0.0, 0.01, 0.05, 0.1, 0.2][t.below(5) as usize], [0.0, 0.0, 0.1, 0.3][t.below(4) as usize]);
    let (is_tcp, sleeps, is_dead, keeps_port) = (t.chance(0.6), t.chance(0.5), t.chance(0.3), t.chance(0.3));
    let additional = [0.0, 0.0, 0.05][t.below(3) as usize];
    let begin = t.between(0.0, period);
    let end = begin + t.between((0.3 * length).max(35.0 * period), length);
    let (mut at, mut port, mut number) = (begin, t.port(), 0);
    while at < end.min(length) {
        number += 1;
        port = if keeps_port { port } else { t.port() };
        let (from, now, seq) = ((client, port), (at * 1e9) as u64, t.below(1 << 32) as u32);
        if !t.chance(missed) {
            if is_tcp {
                t.tcp(now, from, to, SYN, seq);
                for delay in [1u32, 3].into_iter().filter(|delay| is_dead && f64::from(*delay) < period / 2.0)
                {
                    t.tcp(now + u64::from(delay) * SECOND, from, to, SYN, seq);
                }
            } else {
                t.udp(now, from, to, 20);
                t.udp(now + 10_000_000, from, to, 20);
            }
            if !is_dead && is_tcp {
                t.tcp(now + 50_000_000, to, from, SYN | ACK, 1);
            } else if !is_dead {
                t.udp(now + 50_000_000, to, from, 20);
            }
            if t.chance(additional) {
                let more = at + t.between(1.5, (period - 1.0).max(1.6));
                connection(t, more, client, to);
            }
        }
        let schedule = begin + f64::from(number) * period + period * t.between(-jitter / 2.0, jitter / 2.0);
        let sleep = at + period * t.between(1.0 - jitter, 1.0 + jitter);
        at = if sleeps { sleep } else { schedule.max(at + 0.01) };
    }
    truth.insert((client.to_string(), server.to_string(), to.1.into()), period);
}

fn random_capture(seed: u64) -> (Capture, Truth) {
    let mut t = Traffic::new(seed);
    let length = t.between(3_600.0, 4.0 * 3_600.0);
    background(&mut t, length);
    let mut truth = Truth::new();
    for _ in 0..25 + t.below(15) {
        random_beacon(&mut t, length, &mut truth);
    }
    (t.capture(), truth)
}

#[test]
fn beacons_among_random_traffic_are_found_with_precision_and_recall_above_95_percent() {
    let seed = seed("beacon");
    let (mut right, mut found, mut all, mut right_period, mut packets) = (0, 0, 0, 0, 0);
    for i in 0..5 {
        let (capture, truth) = random_capture(seed + i);
        packets += capture.frames.len();
        let (_, rows) = beacons_with(&capture, "");
        let last: BTreeMap<_, &Row> = rows
            .iter()
            .map(|row| {
                ((row.text("src").to_owned(), row.text("dst").to_owned(), row.number("dst_port")), row)
            })
            .collect();
        for (pair, row) in &last {
            let Some(period) = truth.get(pair) else {
                let _ = writeln!(std::io::stderr(), "false: {row:?}");
                continue;
            };
            right += 1;
            right_period += usize::from((row.number("period_ns") as f64 / 1e9 / period - 1.0).abs() < 0.1);
        }
        for (pair, period) in truth.iter().filter(|(pair, _)| !last.contains_key(*pair)) {
            let _ = writeln!(std::io::stderr(), "missed: {pair:?}, every {period} s");
        }
        (found, all) = (found + last.len(), all + truth.len());
    }
    let [precision, recall, periods] =
        [(right, found), (right, all), (right_period, right)].map(|(a, b)| f64::from(a as u32) / b as f64);
    let _ = writeln!(
        std::io::stderr(),
        "beacon: {packets} packets, {all} beacons, precision {precision:.3}, recall {recall:.3}, period within 10 % {periods:.3}"
    );
    assert!(all > 100 && precision >= 0.95 && recall >= 0.95 && periods >= 0.95);
}

#[test]
fn rows_do_not_depend_on_the_number_of_threads_and_the_module_is_proved() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), random_capture(11).0.to_pcap()).unwrap();
    let files = |jobs: &str| run_file(file.path(), &["-m", &module("beacon", ""), "-j", jobs]).files();
    let one = files("1");
    assert!(files("2") == one && files("3") == one);
    for parameters in ["", ",table-size=32768,contacts=64,burst=1h"] {
        assert_proved(&module("beacon", parameters));
    }
}

/// A pair of source, destination and its port, and the protocol.
type Pair = (String, String, i128, i128);

/// The contacts of each pair as the README defines them, in ns, from tshark's fields of SYN and UDP packets.
fn contacts_by_tshark(path: &std::path::Path) -> Option<BTreeMap<Pair, Vec<i128>>> {
    let fields = [
        "frame.time_epoch",
        "ip.src",
        "ipv6.src",
        "ip.dst",
        "ipv6.dst",
        "tcp.srcport",
        "udp.srcport",
        "tcp.dstport",
        "udp.dstport",
        "tcp.seq_raw",
    ];
    let output = Command::new("tshark")
        .args([
            "-n",
            "-Y",
            "(udp || (tcp.flags.syn == 1 && tcp.flags.ack == 0)) && !icmp && !icmpv6",
            "-T",
            "fields",
        ])
        .args(["-E", "occurrence=f", "-r"])
        .arg(path)
        .args(fields.iter().flat_map(|field| ["-e", field]))
        .output();
    let Ok(output) = output else {
        let _ = writeln!(std::io::stderr(), "SKIPPED: tshark is not installed");
        return None;
    };
    let (mut bursts, mut contacts) = (BTreeMap::new(), BTreeMap::<Pair, Vec<i128>>::new());
    let mut candidates = BTreeMap::<Pair, (i128, String)>::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let f: Vec<&str> = line.split('\t').collect();
        let (whole, part) = f[0].split_once('.').unwrap();
        let now = whole.parse::<i128>().unwrap() * 1_000_000_000
            + format!("{part:0<9}")[..9].parse::<i128>().unwrap();
        let is_tcp = !f[5].is_empty();
        let [src, dst, from, to] = [1, 3, 5, 7].map(|i| f[i].to_owned() + f[i + 1]);
        let second = i128::from(SECOND);
        if !is_tcp {
            let last = bursts.insert((src.clone(), from.clone(), dst.clone(), to.clone()), now);
            if last.is_some_and(|last| now - last < second) {
                continue;
            }
        }
        let pair = (src, dst, to.parse().unwrap(), if is_tcp { 6 } else { 17 });
        let syn = from + f[9];
        let last = candidates.insert(pair.clone(), (now, syn.clone()));
        if last.is_some_and(|(last, last_syn)| now - last < second || (is_tcp && last_syn == syn)) {
            continue;
        }
        contacts.entry(pair).or_default().push(now);
    }
    Some(contacts)
}

#[test]
fn beacons_of_a_mixed_trace_have_the_median_interval_of_tsharks_packets() {
    let Some(path) = trace("mixed/composite-mixed-a.pcap") else { return };
    let ran = run_file(&path, &["-m", &module("beacon", "")]);
    let rows = ran.rows("beacon", "beacons");
    let Some(contacts) = contacts_by_tshark(&path) else { return };
    for row in &rows {
        let pair = (
            row.text("src").to_owned(),
            row.text("dst").to_owned(),
            row.number("dst_port"),
            row.number("protocol"),
        );
        let until = row.number("last_time");
        let times: Vec<i128> = contacts[&pair].iter().copied().filter(|time| *time <= until).collect();
        assert_eq!(times.len() as i128, row.number("contacts"), "{row:?}");
        let mut intervals: Vec<i128> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        intervals = intervals.split_off(intervals.len().saturating_sub(64));
        assert_eq!(intervals.len() as i128, row.number("intervals"), "{row:?}");
        // The median of the intervals, each divided by its number of periods. Without missed contacts that is 1 in most cases.
        let period = row.number("period_ns");
        for interval in &mut intervals {
            *interval /= ((*interval + period / 2) / period).max(1);
        }
        intervals.sort();
        let ratio = period as f64 / intervals[intervals.len() / 2] as f64;
        assert!((0.95..1.05).contains(&ratio), "{ratio} {row:?}");
    }
    let _ = writeln!(std::io::stderr(), "beacon: {} rows as from tshark's packets", rows.len());
    assert!(rows.len() >= 10);
    // A program that binds to a directory every second, a hundred times. It is too short for a finding by default.
    assert_eq!(ran.rows("beacon", "findings"), []);
    let ran = run_file(&path, &["-m", &module("beacon", ",finding-time=60s")]);
    let findings = ran.rows("beacon", "findings");
    let wanted = "Beacon from 10.0.0.1 to 10.0.0.2, TCP port 389: contact every 1.0 s with a jitter of 0.0 s";
    assert!(findings.iter().any(|row| row.text("text").starts_with(wanted)), "{findings:?}");
}

#[test]
fn real_traces_without_a_beacon_have_no_row() {
    for name in [
        "attack/synscan.pcap",
        "attack/synflood-spoofed.pcap",
        "attack/web-rce-scan.pcap",
        "tcp/banners-rawip.pcap",
    ] {
        let Some(path) = trace(name) else { continue };
        let rows = run_file(&path, &["-m", &module("beacon", "")]).rows("beacon", "beacons");
        assert_eq!(rows, [], "{name}");
    }
}
