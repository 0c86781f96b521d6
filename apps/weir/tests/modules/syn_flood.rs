//! Module syn-flood: counts, the cumulative sum, the alarm, and the destinations of a flood.

use super::capture::{BEGIN, Capture, ETHERNET, MILLISECOND, SECOND, sample, samples, trace};
use super::packet::{ACK, FIN, Packet, RST, SYN};
use super::parsed_packet::ParsedPacket;
use super::weir::{Row, run, run_file};
use std::collections::{BTreeMap, HashMap};

const SERVER: &str = "192.0.2.10:80";

/// Adds `per_second` connections per second, each opened and closed by both sides within 20 ms.
pub fn connections(capture: &mut Capture, seconds: std::ops::Range<u64>, per_second: u64) {
    for second in seconds {
        for i in 0..per_second {
            let begin = BEGIN + second * SECOND + i * (900 * MILLISECOND / per_second);
            let client = format!("10.0.{}.{}:{}", second % 256, i % 250, 1024 + i);
            for (ms, from, to, flags) in [
                (0, client.as_str(), SERVER, SYN),
                (5, SERVER, client.as_str(), SYN | ACK),
                (10, client.as_str(), SERVER, FIN | ACK),
                (15, SERVER, client.as_str(), FIN | ACK),
            ] {
                capture.push(begin + ms * MILLISECOND, Packet::tcp(from, to, flags).ethernet());
            }
        }
    }
}

/// Adds `per_second` SYN packets per second from spoofed addresses.
pub fn flood(capture: &mut Capture, seconds: std::ops::Range<u64>, per_second: u64, victim: &str) {
    for second in seconds {
        for i in 0..per_second {
            let source = format!("203.0.{}.{}:{}", i / 250, i % 250, 1024 + second);
            let ts = BEGIN + second * SECOND + i * (900 * MILLISECOND / per_second);
            capture.push(ts, Packet::tcp(&source, victim, SYN).ethernet());
        }
    }
}

fn sorted(mut capture: Capture) -> Capture {
    capture.frames.sort_by_key(|frame| frame.ts);
    capture
}

fn second(row: &Row) -> i128 {
    (row.number("time") - i128::from(BEGIN)) / i128::from(SECOND)
}

fn alarms(rows: &[Row]) -> Vec<i128> {
    rows.iter().filter(|row| row.flag("alarm")).map(second).collect()
}

#[test]
fn a_flood_raises_the_alarm_within_three_seconds_with_its_victim() {
    let mut capture = Capture::new(ETHERNET);
    connections(&mut capture, 0..40, 200);
    // Slightly more than twice a = 0.35 of the 400 closed per second.
    flood(&mut capture, 15..21, 290, "198.51.100.9:443");
    let run = run(&sorted(capture), &["-m", "syn-flood"]);

    let rows = run.rows("syn-flood", "intervals");
    assert_eq!(rows.iter().map(second).collect::<Vec<_>>(), (0..40).collect::<Vec<_>>());
    let alarms = alarms(&rows);
    assert!((15..18).contains(&alarms[0]), "the first alarm is in second {}", alarms[0]);
    assert_eq!(alarms, (alarms[0]..=*alarms.last().unwrap()).collect::<Vec<_>>(), "one alarm");
    // At most 3 N / a = 9 intervals after the flood.
    assert!((20..=29).contains(alarms.last().unwrap()), "{alarms:?}");

    let top = run.rows("syn-flood", "top");
    let first = |at: i128| top.iter().find(|row| second(row) == at && row.number("rank") == 1).unwrap();
    for second in alarms[0]..21 {
        let row = first(second);
        assert_eq!((row.text("dst"), row.number("syn_packets")), ("198.51.100.9", 290), "second {second}");
    }
    assert_eq!(first(22).text("dst"), "192.0.2.10");
    assert_eq!((first(22).number("syn_packets"), first(22).number("error_packets")), (200, 0));
}

#[test]
fn steady_traffic_of_any_volume_raises_no_alarm() {
    for per_second in [1, 60, 700] {
        let mut capture = Capture::new(ETHERNET);
        connections(&mut capture, 0..30, per_second);
        let run = run(&sorted(capture), &["-m", "syn-flood"]);
        let rows = run.rows("syn-flood", "intervals");
        assert_eq!(alarms(&rows), []);
        let count = i128::from(per_second);
        for row in &rows {
            let counts =
                ["syn_packets", "synack_packets", "fin_packets", "rst_packets"].map(|name| row.number(name));
            assert_eq!((counts, row.float("statistic")), ([count, count, 2 * count, 0], 0.0));
        }
        assert_eq!(run.rows("syn-flood", "top"), []);
    }
}

#[test]
fn few_syns_on_an_idle_link_raise_no_alarm_above_the_floor() {
    let mut capture = Capture::new(ETHERNET);
    flood(&mut capture, 0..10, 20, SERVER);
    let alarm = |module: &str| alarms(&run(&capture, &["-m", module]).rows("syn-flood", "intervals"));
    assert_eq!(alarm("syn-flood"), []);
    assert!(alarm("syn-flood,floor=1").len() >= 9);
    assert!(alarm("syn-flood,floor=1,threshold=1000000").is_empty());
    assert!(alarm("syn-flood,floor=1,offset=1000").is_empty());
}

#[test]
fn the_number_of_reported_destinations_is_limited() {
    let mut capture = Capture::new(ETHERNET);
    for i in 0..40u64 {
        flood(&mut capture, 0..4, 20 + i, &format!("198.51.100.{i}:80"));
    }
    let capture = sorted(capture);
    for top in [0, 1, 7, 100] {
        let run = run(&capture, &["-m", &format!("syn-flood,top={top}")]);
        let rows = run.rows("syn-flood", "top");
        let of_last: Vec<&Row> = rows.iter().filter(|row| second(row) == 3).collect();
        let found: Vec<_> = of_last.iter().map(|row| (row.text("dst"), row.number("syn_packets"))).collect();
        let names: Vec<String> = (0..40).rev().map(|i| format!("198.51.100.{i}")).collect();
        let expected: Vec<_> =
            names.iter().map(String::as_str).zip((20..60).rev().map(i128::from)).take(top).collect();
        assert_eq!(found, expected, "top={top}");
        let ranks: Vec<i128> = of_last.iter().map(|row| row.number("rank")).collect();
        assert_eq!(ranks, (1..=expected.len() as i128).collect::<Vec<_>>());
    }
}

#[test]
fn the_victim_of_an_ipv6_flood_is_reported() {
    let mut capture = Capture::new(ETHERNET);
    for second in 0..5 {
        for i in 0..500 {
            let source = format!("[2001:db8:{i:x}::1]:1024");
            let packet = Packet::tcp(&source, "[2001:db8::80]:80", SYN);
            capture.push(BEGIN + second * SECOND + i * MILLISECOND, packet.ethernet());
        }
    }
    let rows = run(&capture, &["-m", "syn-flood"]).rows("syn-flood", "top");
    assert!(!rows.is_empty() && rows.iter().all(|row| row.text("dst") == "2001:db8::80"));
}

#[test]
fn an_interval_at_time_zero_has_a_row() {
    // With and without packets that count. A capture without packets has no interval.
    for (flags, syn) in [(&[SYN, ACK][..], 1), (&[ACK], 0)] {
        let mut capture = Capture::new(ETHERNET);
        for flags in flags {
            capture.push(0, Packet::tcp("10.0.0.1:1000", SERVER, *flags).ethernet());
        }
        let rows = run(&capture, &["-m", "syn-flood"]).rows("syn-flood", "intervals");
        let found: Vec<_> = rows.iter().map(|row| (row.number("time"), row.number("syn_packets"))).collect();
        assert_eq!(found, [(0, syn)]);
    }
    let empty = Capture::new(ETHERNET);
    assert_eq!(run(&empty, &["-m", "syn-flood"]).rows("syn-flood", "intervals"), []);
}

#[test]
fn a_reset_counts_as_a_partial_close() {
    let mut capture = Capture::new(ETHERNET);
    for (i, flags) in [SYN, RST, RST | ACK, FIN | RST, SYN | ACK, FIN | ACK, ACK].into_iter().enumerate() {
        capture.push(BEGIN + i as u64, Packet::tcp("10.0.0.1:1000", SERVER, flags).ethernet());
    }
    // SYN with contradictory flags counts as SYN.
    for flags in [SYN | FIN, SYN | RST, SYN | FIN | RST] {
        capture.push(BEGIN + 2 * SECOND, Packet::tcp("10.0.0.1:1000", SERVER, flags).ethernet());
    }
    let rows = run(&capture, &["-m", "syn-flood"]).rows("syn-flood", "intervals");
    assert_eq!(
        ["syn_packets", "synack_packets", "fin_packets", "rst_packets"].map(|name| rows[0].number(name)),
        [1, 1, 1, 3]
    );
    assert_eq!(
        ["syn_packets", "synack_packets", "fin_packets", "rst_packets"].map(|name| rows[1].number(name)),
        [3, 0, 0, 0]
    );
    // (1 + 1 - (1 + 3/4 of 3)) / 100
    assert!((rows[0].float("statistic") + 0.0125).abs() < 1e-12);
}

/// Expected counts of an interval: SYN, SYN-ACK, FIN and RST; and SYN by destination.
#[derive(Default)]
struct Interval {
    counts: [u64; 4],
    destinations: HashMap<String, i128>,
}

fn count(capture: &Capture, interval: u64) -> BTreeMap<u64, Interval> {
    let mut intervals: BTreeMap<u64, Interval> = BTreeMap::new();
    let mut now = 0;
    for frame in &capture.frames {
        now = now.max(frame.ts);
        let at = intervals.entry(now - now % interval).or_default();
        let seen = ParsedPacket::parse(&frame.bytes);
        let Some((seen, tcp)) = seen.as_ref().and_then(|seen| Some((seen, seen.tcp()?))) else { continue };
        match (tcp.syn(), tcp.ack(), tcp.rst(), tcp.fin()) {
            (true, false, ..) => {
                at.counts[0] += 1;
                *at.destinations.entry(seen.to.ip().to_string()).or_default() += 1;
            }
            (true, true, ..) => at.counts[1] += 1,
            (_, _, true, _) => at.counts[3] += 1,
            (.., true) => at.counts[2] += 1,
            _ => {}
        }
    }
    intervals
}

/// Asserts that all intervals of a capture match the paper's detector with the module's defaults.
fn assert_exact(capture: &Capture, floor: f64) -> Vec<Row> {
    let intervals = count(capture, SECOND);
    // The oracle reads the outermost IP header.
    let run = run(capture, &["-m", &format!("syn-flood,floor={floor},layer=outer")]);
    let rows = run.rows("syn-flood", "intervals");
    let times: Vec<i128> = rows.iter().map(|row| row.number("time")).collect();
    assert_eq!(times, intervals.keys().map(|time| i128::from(*time)).collect::<Vec<_>>());

    let (mut mean, mut cusum): (Option<f64>, f64) = (None, 0.0);
    let mut step = |opened: f64, closed: f64| {
        let k = mean.map_or(closed, |mean| 0.9 * mean + 0.1 * closed);
        mean = Some(k);
        let statistic = (opened - closed) / k.max(floor);
        cusum = (cusum + statistic - 0.35).clamp(0.0, 4.2);
        (statistic, cusum)
    };
    let mut expected_next = None;
    for (row, (time, interval)) in rows.iter().zip(&intervals) {
        // Intervals without packets are steps of the detector too.
        for _ in expected_next.unwrap_or(time / SECOND)..time / SECOND {
            step(0.0, 0.0);
        }
        expected_next = Some(time / SECOND + 1);
        let [syn, synack, fin, rst] = interval.counts;
        let counts =
            ["syn_packets", "synack_packets", "fin_packets", "rst_packets"].map(|name| row.number(name));
        assert_eq!(counts, interval.counts.map(i128::from), "{time}");
        let (statistic, cusum) = step((syn + synack) as f64, fin as f64 + 0.75 * rst as f64);
        assert!((row.float("statistic") - statistic).abs() < 1e-9, "{time}: {statistic}, {row:?}");
        assert!((row.float("cusum") - cusum).abs() < 1e-9, "{time}: {cusum}, {row:?}");
        assert_eq!(row.flag("alarm"), cusum >= 1.05, "{time}");
    }

    // Counts of destinations may be too high by at most their stated error.
    let top = run.rows("syn-flood", "top");
    for row in &top {
        let time = u64::try_from(row.number("time")).unwrap();
        let truth = intervals[&time].destinations[row.text("dst")];
        let (count, error) = (row.number("syn_packets"), row.number("error_packets"));
        assert!((truth..=truth + error).contains(&count), "{row:?}, {truth} in truth");
    }
    top
}

#[test]
fn counts_and_sums_of_whole_captures_are_exact() {
    for path in samples() {
        let capture = Capture::read(&path);
        for floor in [100.0, 1.0] {
            assert_exact(&capture, floor);
        }
    }
}

/// Adds 600 SYN packets a second for 5 seconds, with ends that `ends` makes from a number.
fn attempts(ends: impl Fn(u64) -> (String, String)) -> Capture {
    let mut capture = Capture::new(ETHERNET);
    connections(&mut capture, 0..5, 100);
    for i in 0..3_000 {
        let (from, to) = ends(i);
        let ts = BEGIN + SECOND + i * (SECOND / 600);
        capture.push(ts, Packet::tcp(&from, &to, SYN).ethernet());
    }
    sorted(capture)
}

#[test]
fn scans_and_floods_are_told_apart_by_their_destinations_ports_and_sources() {
    let victim = |port: u64| format!("198.51.100.9:{port}");
    let host = |i: u64| format!("10.9.{}.{}:22", i / 200 % 200, i % 200 + 1);
    let forged = |i: u64| format!("203.{}.{}.7:5000", i / 250, i % 250);
    type Ends = Box<dyn Fn(u64) -> (String, String)>;
    let cases: [(&str, Ends, &str, i128); 5] = [
        (
            "ports of a host",
            Box::new(move |i| ("192.0.2.1:999".into(), victim(i + 1))),
            "Port scan of 198.51.100.9: ",
            3,
        ),
        ("hosts", Box::new(move |i| ("192.0.2.1:999".into(), host(i))), "Port scan of ", 3),
        ("one service", Box::new(move |i| (forged(i), victim(443))), "SYN flood on 198.51.100.9: ", 4),
        (
            "forged sources to all ports",
            Box::new(move |i| (forged(i), victim(i + 1))),
            "SYN flood on 198.51.100.9: ",
            4,
        ),
        (
            "IPv6",
            Box::new(|i| (format!("[2001:db8::{i:x}]:9"), "[2001:db8::80]:80".into())),
            "SYN flood on 2001:db8::80: ",
            4,
        ),
    ];
    for (case, ends, text, severity) in cases {
        let capture = attempts(ends);
        let ran = run(&capture, &["-m", "syn-flood"]);
        let findings = ran.rows("syn-flood", "findings");
        assert_eq!(findings.len(), 1, "{case}: {findings:?}");
        let finding = &findings[0];
        assert!(finding.text("text").starts_with(text), "{case}: {finding:?}");
        assert_eq!((finding.number("severity"), finding.text("evidence")), (severity, "intervals"), "{case}");
        let intervals = ran.rows("syn-flood", "intervals");
        assert_eq!(
            intervals.iter().any(|row| row.flag("alarm") && row.flag("scan")),
            severity == 3,
            "{case}"
        );
        // The filter selects the packets of the attack: those of one victim alone, if there is one.
        let selected = run(&capture, &["-m", "syn-flood", finding.text("filter")]);
        let packets = selected.summary["capture"]["selected"].as_u64().unwrap();
        let wanted = if finding.text("filter").contains("host") { 3_000..=3_000 } else { 5_000..=5_000 };
        assert!(wanted.contains(&packets), "{case}: {} selects {packets}", finding.text("filter"));
    }
}

#[test]
fn the_alarm_that_a_scan_leaves_is_no_flood_and_a_later_flood_is_a_finding_of_its_own() {
    let mut capture = Capture::new(ETHERNET);
    for i in 0..1_000 {
        let to = format!("198.51.100.9:{}", i + 1);
        capture
            .push(BEGIN + i * (900 * MILLISECOND / 1_000), Packet::tcp("192.0.2.1:999", &to, SYN).ethernet());
    }
    connections(&mut capture, 1..9, 3);
    // Without any packets for 40 s the alarm ends.
    flood(&mut capture, 50..53, 900, "198.51.100.9:443");
    let ran = run(&sorted(capture), &["-m", "syn-flood"]);
    let rows = ran.rows("syn-flood", "intervals");
    assert!(
        alarms(&rows).iter().filter(|second| (1..9).contains(*second)).count() > 2,
        "{:?}",
        alarms(&rows)
    );
    let findings = ran.rows("syn-flood", "findings");
    let found: Vec<_> = findings.iter().map(|row| (second(row), row.number("severity"))).collect();
    assert_eq!(found, [(0, 3), (50, 4)], "{findings:?}");
}

#[test]
fn numbers_of_sources_destinations_and_services_are_close_to_the_truth() {
    for values in [1, 10, 100, 1_000, 10_000, 60_000u64] {
        let mut capture = Capture::new(ETHERNET);
        for i in 0..values {
            let to = format!("10.{}.{}.{}:{}", i >> 16, i >> 8 & 255, i & 255, 1 + i % 3);
            capture.push(BEGIN + i * 10_000, Packet::tcp("192.0.2.1:1000", &to, SYN).ethernet());
        }
        let row = &run(&capture, &["-m", "syn-flood"]).rows("syn-flood", "intervals")[0];
        assert_eq!(row.number("sources"), 1);
        for name in ["destinations", "services"] {
            let error = (row.number(name) - i128::from(values)).abs();
            // Four standard errors of linear counting with this load are less than 5 %.
            assert!(error * 20 <= i128::from(values), "{name}: {} of {values}", row.number(name));
        }
    }
}

#[test]
fn gaps_are_empty_intervals() {
    let mut capture = Capture::new(ETHERNET);
    connections(&mut capture, 0..5, 20);
    flood(&mut capture, 5..6, 300, SERVER);
    flood(&mut capture, 8..9, 300, SERVER);
    flood(&mut capture, 700..702, 300, SERVER);
    assert_exact(&sorted(capture), 1.0);
}

#[test]
fn counts_of_destinations_beyond_the_table_have_a_stated_error() {
    let mut capture = Capture::new(ETHERNET);
    for i in 0..12_000u64 {
        let to = if i % 4 == 0 { SERVER.to_owned() } else { format!("10.{}.{}.1:80", i % 31, i % 251) };
        capture.push(BEGIN + i * 70_000, Packet::tcp("10.0.0.1:1000", &to, SYN).ethernet());
    }
    let top = assert_exact(&capture, 100.0);
    // Less frequent destinations do not evict the victim.
    assert_eq!((top[0].text("dst"), top.len()), ("192.0.2.10", 10));
    assert!(top[0].number("syn_packets") >= 3000 && top.iter().any(|row| row.number("error_packets") > 0));
}

#[test]
fn the_flood_in_the_sample_is_detected() {
    let begin = Capture::read(&sample()).frames[0].ts;
    let rows = run_file(&sample(), &["-m", "syn-flood"]).rows("syn-flood", "intervals");
    let since = |row: &Row| (row.number("time") - i128::from(begin)) as f64 / 1e9;
    let alarms: Vec<f64> = rows.iter().filter(|row| row.flag("alarm")).map(since).collect();
    // The flood starts after 18 s and lasts for 4 s.
    assert!((17.0..21.0).contains(&alarms[0]) && *alarms.last().unwrap() < 30.0, "{alarms:?}");
    let top = run_file(&sample(), &["-m", "syn-flood"]).rows("syn-flood", "top");
    assert_eq!((top[0].text("dst"), top[0].number("rank")), ("192.0.2.66", 1));
}

#[test]
fn a_recorded_flood_is_detected_within_three_intervals() {
    let Some(path) = trace("attack/synflood-spoofed.pcap") else { return };
    let rows = run_file(&path, &["-m", "syn-flood"]).rows("syn-flood", "intervals");
    let first = rows.iter().position(|row| row.flag("alarm")).unwrap();
    assert!(first < 3, "the alarm comes in interval {first}");
    assert!(rows.iter().skip(first).all(|row| row.flag("alarm")), "and stays");
}

#[test]
fn a_capture_without_packets_has_no_interval() {
    assert_eq!(run(&Capture::new(ETHERNET), &["-m", "syn-flood"]).rows("syn-flood", "intervals"), []);
}
