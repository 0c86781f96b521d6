//! Module port-count: UDP packets and bytes of a list of ports.

use super::capture::{BEGIN, Capture, ETHERNET, SECOND, samples};
use super::packet::{ACK, Packet};
use super::parsed_packet::{ParsedPacket, Transport};
use super::weir::{Row, run, run_file, start_failure};
use std::collections::BTreeMap;

/// Packets and bytes to a port, then packets and bytes from it.
type Counts = [i128; 4];

/// Counts by start of the interval and port.
type ByInterval = BTreeMap<(u64, u16), Counts>;

fn counts(row: &Row) -> Counts {
    ["to_packets", "to_bytes", "from_packets", "from_bytes"].map(|name| row.number(name))
}

/// Expected counts: totals, and counts by interval.
fn count(capture: &Capture, ports: &[u16], interval: u64) -> (Vec<(u16, Counts)>, ByInterval) {
    let mut totals: Vec<(u16, Counts)> = ports.iter().map(|port| (*port, Counts::default())).collect();
    let mut by_interval = ByInterval::new();
    // The packet time never goes back, even if timestamps do.
    let mut now = 0;
    for frame in &capture.frames {
        now = now.max(frame.ts);
        let Some(seen) =
            ParsedPacket::parse(&frame.bytes).filter(|seen| matches!(seen.transport, Transport::Udp))
        else {
            continue;
        };
        for (port, total) in &mut totals {
            for (side, end) in [(0, seen.to), (2, seen.from)] {
                if end.port() == *port {
                    for counts in [&mut *total, by_interval.entry((now - now % interval, *port)).or_default()]
                    {
                        counts[side] += 1;
                        counts[side + 1] += i128::from(frame.wire_len);
                    }
                }
            }
        }
    }
    (totals, by_interval)
}

#[test]
fn whole_captures_are_counted_exactly() {
    let ports = [53, 123, 514, 1900, 5353, 443, 67, 9, 137];
    let names: Vec<String> = ports.iter().map(u16::to_string).collect();
    for path in samples() {
        for (interval, text) in [(SECOND, "1s"), (SECOND / 4, "250ms"), (3600 * SECOND, "1h")] {
            // The oracle reads the outermost IP header.
            let module = format!("port-count,ports={},interval={text},layer=outer", names.join(","));
            let run = run_file(&path, &["-m", &module]);
            let (totals, by_interval) = count(&Capture::read(&path), &ports, interval);
            assert!(totals.iter().any(|(_, counts)| counts[0] > 50 && counts[2] > 50), "the capture has UDP");

            let rows = run.rows("port-count", "totals");
            let rows: Vec<_> = rows.iter().map(|row| (row.number("port"), counts(row))).collect();
            let expected: Vec<_> =
                totals.into_iter().map(|(port, counts)| (i128::from(port), counts)).collect();
            assert_eq!(rows, expected, "{module} on {}", path.display());

            let rows = run.rows("port-count", "counts");
            let key = |row: &Row| {
                (u64::try_from(row.number("time")).unwrap(), u16::try_from(row.number("port")).unwrap())
            };
            assert_eq!(rows.len(), by_interval.len(), "no interval and port twice");
            let rows: ByInterval = rows.iter().map(|row| (key(row), counts(row))).collect();
            assert!(rows == by_interval, "{module} on {}", path.display());
        }
    }
}

#[test]
fn directions_are_counted_separately_in_intervals_and_totals() {
    let query = Packet::udp("10.0.0.1:5000", "10.0.0.2:53").payload([0; 30]);
    let answer = Packet::udp("10.0.0.2:53", "10.0.0.1:5000").payload([0; 90]);
    let both = Packet::udp("10.0.0.2:53", "10.0.0.3:53");
    let mut capture = Capture::new(ETHERNET);
    for (ts, packet) in [
        (0, &query),
        (SECOND / 2, &answer),
        // A second without packets, then one with TCP only.
        (2 * SECOND, &query),
        (3 * SECOND, &Packet::tcp("10.0.0.1:5000", "10.0.0.2:53", ACK)),
        (4 * SECOND, &both),
    ] {
        capture.push(BEGIN + ts, packet.ethernet());
    }
    let run = run(&capture, &["-m", "port-count"]);
    let intervals: Vec<_> = run
        .rows("port-count", "counts")
        .iter()
        .map(|row| {
            ((row.number("time") - i128::from(BEGIN)) / i128::from(SECOND), row.number("port"), counts(row))
        })
        .collect();
    let (udp, q, a) = (42, 72, 132);
    assert_eq!(intervals, [(0, 53, [1, q, 1, a]), (2, 53, [1, q, 0, 0]), (4, 53, [1, udp, 1, udp])]);
    let totals: Vec<_> =
        run.rows("port-count", "totals").iter().map(|row| (row.number("port"), counts(row))).collect();
    // The default ports 111 and 666 have rows without traffic.
    assert_eq!(totals, [(53, [3, 2 * q + udp, 2, a + udp]), (111, [0; 4]), (666, [0; 4])]);
}

#[test]
fn bytes_are_the_lengths_on_the_link_even_of_truncated_packets() {
    let mut capture =
        Capture::from_packets(&[Packet::udp("10.0.0.1:5000", "10.0.0.2:53").payload([0; 1000])]);
    capture.frames[0].bytes.truncate(64);
    let rows = run(&capture, &["-m", "port-count"]).rows("port-count", "totals");
    assert_eq!(counts(&rows[0]), [1, 14 + 20 + 8 + 1000, 0, 0]);
}

#[test]
fn the_list_may_have_duplicate_and_extreme_ports_up_to_its_maximum_length() {
    let capture = Capture::from_packets(&[Packet::udp("10.0.0.1:0", "10.0.0.2:65535")]);
    let totals = |module: &str| run(&capture, &["-m", module]).rows("port-count", "totals");
    let rows = totals("port-count,ports=65535,0,53,53");
    let rows: Vec<_> = rows.iter().map(|row| (row.number("port"), counts(row))).collect();
    assert_eq!(rows, [(65535, [1, 42, 0, 0]), (0, [0, 0, 1, 42]), (53, [0; 4])]);

    let many = |count: u32| {
        let ports: Vec<String> = (0..count).map(|port| (65535 - port).to_string()).collect();
        format!("port-count,ports={}", ports.join(","))
    };
    assert_eq!(totals(&many(4096)).len(), 4096);
    assert!(start_failure(&capture, &["-m", &many(4097)]).contains("ports: at most 4096 can be counted"));
}
