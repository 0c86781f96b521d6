//! The module `talkers` on generated packets and on real captures, compared with simple exact counts.

use super::capture::{BEGIN, Capture, ETHERNET, MILLISECOND, SECOND, repository, sample};
use super::noise::Random;
use super::packet::{ACK, Packet, SYN};
use super::weir::{Row, Run, refusal, run, run_file};
use crate::run::traces;
use exact::{Counts, Interval, count};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The exact counts: a small parser and maps, which share nothing with the module.
pub mod exact {
    use super::Capture;
    use std::collections::{BTreeMap, HashMap};
    use std::net::{IpAddr, Ipv6Addr};

    /// Bytes and packets.
    pub type Counts = (u64, u64);

    /// The addresses of a packet's outermost IP header; protocol and ports, if they are known.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Seen {
        pub src: IpAddr,
        pub dst: IpAddr,
        pub ports: Option<(u8, u16, u16)>,
    }

    fn be16(bytes: &[u8], at: usize) -> Option<u16> {
        Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().unwrap()))
    }

    /// Finds the first IP header behind a link header, tags, labels, PPPoE and SNAP, if it has the version that the header before
    /// it names.
    fn ip_header(link_type: u32, bytes: &[u8]) -> Option<usize> {
        let version = |at: usize, version: u8| (bytes.get(at)? >> 4 == version).then_some(at);
        let by_version = |at: usize| version(at, 4).or_else(|| version(at, 6));
        let (mut ether_type, mut at) = match link_type {
            1 => (be16(bytes, 12)?, 14),
            12 | 14 | 101 => return by_version(0),
            228 => return version(0, 4),
            229 => return version(0, 6),
            0 | 108 => {
                let family = bytes.get(..4)?;
                let number = family[0].max(family[3]);
                let is_small = family[1] == 0 && family[2] == 0 && family[0].min(family[3]) == 0;
                return match number {
                    2 if is_small => version(4, 4),
                    10 | 23 | 24 | 26 | 28 | 30 if is_small => version(4, 6),
                    _ => None,
                };
            }
            113 | 276 => {
                let (protocol, hardware, len) = if link_type == 113 { (14, 2, 16) } else { (0, 8, 20) };
                if bytes.len() < len || be16(bytes, hardware)? == 824 {
                    return None;
                }
                match be16(bytes, protocol)? {
                    4 => (0, len),
                    ..0x600 => return None,
                    protocol => (protocol, len),
                }
            }
            _ => return None,
        };
        loop {
            match ether_type {
                0x0800 => return version(at, 4),
                0x86dd => return version(at, 6),
                0x8100 | 0x88a8 | 0x9100 | 0x9200 | 0x9300 => {
                    (ether_type, at) = (be16(bytes, at + 2)?, at + 4);
                }
                0x8847 | 0x8848 => {
                    while bytes.get(at + 2)? & 1 == 0 {
                        at += 4;
                    }
                    return by_version(at + 4);
                }
                0x8864 => {
                    return match be16(bytes, at + 6)? {
                        _ if bytes.get(at..at + 2)? != [0x11, 0] => None,
                        0x21 => version(at + 8, 4),
                        0x57 => version(at + 8, 6),
                        _ => None,
                    };
                }
                ..0x600 => {
                    if bytes.get(at..at + 6)? != [0xaa, 0xaa, 3, 0, 0, 0] || be16(bytes, at + 6)? < 0x600 {
                        return None;
                    }
                    (ether_type, at) = (be16(bytes, at + 6)?, at + 8);
                }
                _ => return None,
            }
        }
    }

    /// Parses a packet of `wire` bytes.
    pub fn parse(link_type: u32, bytes: &[u8], wire: usize) -> Option<Seen> {
        let at = ip_header(link_type, bytes)?;
        let ip = &bytes[at..];
        let wire = wire.max(bytes.len());
        let (src, dst, protocol, upper, end): (IpAddr, IpAddr, _, _, _);
        let mut is_fragment = false;
        if ip.first()? >> 4 == 4 {
            let header: [u8; 20] = ip.get(..20)?.try_into().unwrap();
            let (header_len, total) = (usize::from(header[0] & 15) * 4, usize::from(be16(ip, 2)?));
            if header_len < 20 || (total != 0 && total < header_len) {
                return None;
            }
            (src, dst) = (
                <[u8; 4]>::try_from(&header[12..16]).unwrap().into(),
                <[u8; 4]>::try_from(&header[16..]).unwrap().into(),
            );
            is_fragment = be16(ip, 6)? & 0x3fff != 0;
            (protocol, upper) = (Some(header[9]), at + header_len);
            end = if total == 0 { wire } else { at + total };
        } else {
            let header = ip.get(..40)?;
            let address = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&header[at..at + 16]).unwrap());
            // As in all of weir, an IPv4-mapped address is the IPv4 address in it.
            let plain = |ip: Ipv6Addr| ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4);
            (src, dst) = (plain(address(8)), plain(address(24)));
            let len = usize::from(be16(ip, 4)?);
            let mut next = Some(header[6]);
            end = if len == 0 && next != Some(59) { wire } else { at + 40 + len };
            let mut from = at + 40;
            while let Some(kind @ (0 | 43 | 44 | 51 | 60 | 135 | 139 | 140)) = next {
                let Some(header) = bytes.get(from..from + 8).filter(|_| from + 8 <= end) else {
                    next = None;
                    break;
                };
                let len = match kind {
                    44 => 8,
                    51 => (usize::from(header[1]) + 2) * 4,
                    _ => (usize::from(header[1]) + 1) * 8,
                };
                if from + len > end {
                    next = None;
                    break;
                }
                is_fragment |= kind == 44 && (be16(header, 2)? >> 3 != 0 || header[3] & 1 == 1);
                next = Some(header[0]);
                from += len;
                if is_fragment {
                    break;
                }
            }
            (protocol, upper) = (next, from);
        }
        // The header above IP is known if all of it is captured, and inside the IP packet.
        let has = |len: usize| upper + len <= end && upper + len <= bytes.len();
        let ports = match protocol {
            Some(6) if !is_fragment && has(20) => {
                let len = usize::from(bytes[upper + 12] >> 4) * 4;
                (len >= 20 && has(len)).then_some(6)
            }
            Some(17) if !is_fragment && has(8) => Some(17),
            _ => None,
        };
        let ports = ports.and_then(|protocol| Some((protocol, be16(bytes, upper)?, be16(bytes, upper + 2)?)));
        Some(Seen { src, dst, ports })
    }

    /// The traffic of an interval, by keys such as "host 10.0.0.1", "prefix 10.0.0.0/24", "port 6 80" and
    /// "pair 10.0.0.1 10.0.0.2".
    #[derive(Default)]
    pub struct Interval {
        pub total: Counts,
        pub keys: HashMap<String, Counts>,
    }

    pub fn prefix(ip: IpAddr, lengths: (u32, u32)) -> String {
        match ip {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - lengths.0).unwrap_or(0);
                format!("prefix {}/{}", std::net::Ipv4Addr::from(u32::from(v4) & mask), lengths.0)
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - lengths.1).unwrap_or(0);
                format!("prefix {}/{}", Ipv6Addr::from(u128::from(v6) & mask), lengths.1)
            }
        }
    }

    pub fn pair(a: IpAddr, b: IpAddr) -> String {
        format!("pair {} {}", a.min(b), a.max(b))
    }

    /// Calls `each` for each IP packet, with the begin of its interval. Time that goes back does not lead to an earlier interval.
    pub fn each(capture: &Capture, interval: u64, mut each: impl FnMut(u64, Seen, u64)) {
        let mut now = 0;
        for frame in &capture.frames {
            now = now.max(frame.ts);
            if let Some(seen) = parse(capture.link_type, &frame.bytes, frame.wire_len as usize) {
                each(now - now % interval, seen, frame.wire_len.into());
            }
        }
    }

    pub fn count(capture: &Capture, interval: u64, lengths: (u32, u32)) -> BTreeMap<u64, Interval> {
        let mut intervals: BTreeMap<u64, Interval> = BTreeMap::new();
        each(capture, interval, |begin, seen, bytes| {
            let at = intervals.entry(begin).or_default();
            at.total = (at.total.0 + bytes, at.total.1 + 1);
            let mut keys = vec![pair(seen.src, seen.dst)];
            for ip in [seen.src, seen.dst] {
                keys.extend([format!("host {ip}"), prefix(ip, lengths)]);
            }
            if let Some((protocol, src, dst)) = seen.ports {
                keys.extend([format!("port {protocol} {src}"), format!("port {protocol} {dst}")]);
            }
            keys.sort();
            keys.dedup();
            for key in keys {
                let counts = at.keys.entry(key).or_default();
                *counts = (counts.0 + bytes, counts.1 + 1);
            }
        });
        intervals
    }
}

const KINDS: [&str; 4] = ["host", "prefix", "port", "pair"];

/// The module by its path, with parameters that begin with a comma.
pub fn module(name: &str, parameters: &str) -> String {
    let path = repository().join(format!("guest/modules/{name}/{name}.wasm"));
    format!("{}{parameters}", path.to_str().unwrap())
}

fn talkers(capture: &Capture, parameters: &str) -> Run {
    run(capture, &["-m", &module("talkers", parameters)])
}

fn unsigned(row: &Row, name: &str) -> u64 {
    u64::try_from(row.number(name)).unwrap()
}

/// The key of a row, as in [`Interval`].
fn key(row: &Row) -> String {
    let ip = |name: &str| row.text(name).parse::<std::net::IpAddr>().unwrap();
    match row.text("kind") {
        "host" => format!("host {}", ip("src")),
        "prefix" => format!("prefix {}/{}", ip("src"), row.number("prefix_length")),
        "port" => format!("port {} {}", row.number("protocol"), row.number("port")),
        "pair" => {
            assert!(ip("src") <= ip("dst"), "{row:?}");
            exact::pair(ip("src"), ip("dst"))
        }
        kind => panic!("{kind}"),
    }
}

/// Rows of a kind, with bytes and packets, in the order of the module.
fn found(run: &Run, kind: &str) -> Vec<(String, Counts)> {
    let rows = run.rows("talkers", "top");
    let of_kind = rows.iter().filter(|row| row.text("kind") == kind);
    of_kind.map(|row| (key(row), (unsigned(row, "bytes"), unsigned(row, "packets")))).collect()
}

/// The sum of what was compared.
#[derive(Debug, Default)]
struct Compared {
    intervals: usize,
    rows: usize,
    inexact_rows: usize,
    listed_for_certain: usize,
}

/// Asserts the bounds of all rows, the ranks, and that everything above the stated bound has a row.
fn assert_sound(intervals: &BTreeMap<u64, Interval>, run: &Run, place: &str) -> Compared {
    let rows = run.rows("talkers", "intervals");
    let mut by_interval: HashMap<u64, Vec<Row>> = HashMap::new();
    for row in run.rows("talkers", "top") {
        by_interval.entry(unsigned(&row, "time")).or_default().push(row);
    }
    let times: Vec<u64> = rows.iter().map(|row| unsigned(row, "time")).collect();
    assert_eq!(times, intervals.keys().copied().collect::<Vec<_>>(), "{place}");
    let mut compared = Compared { intervals: rows.len(), ..Compared::default() };
    for (row, (time, interval)) in rows.iter().zip(intervals) {
        let place = format!("{place}, interval {time}");
        assert_eq!((unsigned(row, "bytes"), unsigned(row, "packets")), interval.total, "{place}");
        let top = by_interval.remove(time).unwrap_or_default();
        let mut listed = BTreeSet::new();
        for row in &top {
            let key = key(row);
            let &(bytes, packets) = interval.keys.get(&key).unwrap_or_else(|| panic!("{place}: no {key}"));
            for (name, truth) in [("bytes", bytes), ("packets", packets)] {
                let (count, error) = (unsigned(row, name), unsigned(row, &format!("error_{name}")));
                assert!(count >= truth && count - error <= truth, "{place}: {key} has {truth}, {row:?}");
                assert!(!key.starts_with("port") || error == 0, "{place}: {row:?}");
                compared.inexact_rows += usize::from(name == "bytes" && error != 0);
            }
            compared.rows += 1;
            assert!(listed.insert(key), "{place}: two rows of {row:?}");
        }
        for kind in KINDS {
            for (rank, name) in [("bytes_rank", "bytes"), ("packets_rank", "packets")] {
                let mut ranked: Vec<(i128, u64)> = top
                    .iter()
                    .filter(|row| row.text("kind") == kind)
                    .filter_map(|row| Some((row.optional_number(rank)?, unsigned(row, name))))
                    .collect();
                ranked.sort_unstable();
                let in_order = ranked.windows(2).all(|pair| pair[0].1 >= pair[1].1);
                let ranks = ranked.iter().map(|(rank, _)| *rank).eq(1..=ranked.len() as i128);
                assert!(in_order && ranks, "{place}: {kind} by {name}: {ranked:?}");
            }
        }
        let unlisted = KINDS.map(|kind| {
            let bound = |name: &str| unsigned(row, &format!("{kind}_unlisted_{name}"));
            (kind, (bound("bytes"), bound("packets")))
        });
        for (key, &(bytes, packets)) in &interval.keys {
            let (_, most) = unlisted.iter().find(|(kind, _)| key.starts_with(kind)).unwrap();
            if bytes > most.0 || packets > most.1 {
                assert!(listed.contains(key), "{place}: {key} has {bytes} bytes in {packets} packets");
                compared.listed_for_certain += 1;
            }
        }
    }
    assert!(by_interval.is_empty(), "{place}: rows of intervals without packets");
    compared
}

#[test]
fn hosts_prefixes_ports_and_pairs_are_counted_in_both_directions() {
    let mut capture = Capture::new(ETHERNET);
    let mut add = |packet: Packet, times: u64| {
        for _ in 0..times {
            capture.push(BEGIN, packet.ethernet());
        }
    };
    // 54 bytes of headers for TCP over IPv4, 42 for UDP; 62 for UDP over IPv6.
    add(Packet::tcp("10.0.0.1:1000", "10.0.1.2:80", ACK).payload([0; 46]), 5);
    add(Packet::tcp("10.0.1.2:80", "10.0.0.1:1000", ACK).payload([0; 946]), 4);
    add(Packet::udp("10.0.0.1:5000", "10.0.0.3:53").payload([0; 58]), 3);
    add(Packet::udp("[2001:db8::1]:5000", "[2001:db8:1::1]:53").payload([0; 38]), 2);
    let run = talkers(&capture, "");
    let expected =
        |keys: &[(&str, Counts)]| keys.iter().map(|(k, c)| ((*k).to_owned(), *c)).collect::<Vec<_>>();
    assert_eq!(
        found(&run, "pair"),
        expected(&[
            ("pair 10.0.0.1 10.0.1.2", (4500, 9)),
            ("pair 10.0.0.1 10.0.0.3", (300, 3)),
            ("pair 2001:db8::1 2001:db8:1::1", (200, 2)),
        ])
    );
    let hosts = found(&run, "host");
    assert_eq!(hosts[0], ("host 10.0.0.1".to_owned(), (4800, 12)));
    assert_eq!(hosts.len(), 5);
    // What stays within a prefix counts once for it.
    let prefixes = found(&run, "prefix");
    assert_eq!(prefixes[0], ("prefix 10.0.0.0/24".to_owned(), (4800, 12)));
    assert_eq!(prefixes[1], ("prefix 10.0.1.0/24".to_owned(), (4500, 9)));
    assert!(prefixes.contains(&("prefix 2001:db8::/48".to_owned(), (200, 2))), "{prefixes:?}");
    let ports = found(&run, "port");
    assert!(ports.contains(&("port 17 53".to_owned(), (500, 5))), "{ports:?}");
    assert!(ports.contains(&("port 6 80".to_owned(), (4500, 9))), "{ports:?}");
    assert_eq!(ports.len(), 4);
    assert_sound(&count(&capture, 10 * SECOND, (24, 48)), &run, "a small capture");

    let wide = talkers(&capture, ",prefix-v4=0,prefix-v6=0");
    let all = expected(&[("prefix 0.0.0.0/0", (4800, 12)), ("prefix ::/0", (200, 2))]);
    assert_eq!(found(&wide, "prefix"), all);
    let narrow = talkers(&capture, ",prefix-v4=32,prefix-v6=128");
    assert_eq!(found(&narrow, "prefix").len(), 5);
}

#[test]
fn a_packet_counts_once_for_a_host_and_a_port_at_both_of_its_ends() {
    let capture = Capture::from_packets(&[
        Packet::udp("127.0.0.1:123", "127.0.0.1:123"),
        Packet::udp("10.0.0.1:123", "10.0.0.2:123"),
    ]);
    let run = talkers(&capture, "");
    assert!(found(&run, "host").contains(&("host 127.0.0.1".to_owned(), (42, 1))));
    assert!(found(&run, "pair").contains(&("pair 127.0.0.1 127.0.0.1".to_owned(), (42, 1))));
    assert_eq!(found(&run, "port"), [("port 17 123".to_owned(), (84, 2))]);
}

#[test]
fn fragments_and_other_protocols_count_for_no_port() {
    let mut capture = Capture::new(ETHERNET);
    let plain = Packet::udp("10.0.0.1:5000", "10.0.0.2:53").payload([0; 40]).ethernet();
    for fragment in [0x2000u16, 0x2005, 0x0005] {
        let mut bytes = plain.clone();
        bytes[20..22].copy_from_slice(&fragment.to_be_bytes());
        capture.push(BEGIN, bytes);
    }
    let mut icmp = plain.clone();
    icmp[23] = 1;
    capture.push(BEGIN, icmp);
    // A header that the snapshot length cuts off.
    capture.push(BEGIN, plain[..14 + 20 + 6].to_vec());
    capture.frames.last_mut().unwrap().wire_len = u32::try_from(plain.len()).unwrap();
    capture.push(BEGIN, vec![0xFF; 60]);
    let run = talkers(&capture, "");
    assert_eq!(found(&run, "port"), []);
    assert_eq!(found(&run, "pair"), [("pair 10.0.0.1 10.0.0.2".to_owned(), (82 * 5, 5))]);
}

#[test]
fn the_innermost_or_the_outermost_ip_header_counts() {
    let inner = Packet::tcp("192.168.7.1:1000", "192.168.8.1:80", ACK).ip();
    let mut gre = vec![0, 0, 0x08, 0];
    gre.extend_from_slice(&inner);
    let mut outer = Packet::udp("10.0.0.1:0", "10.0.0.2:0").ethernet();
    outer.truncate(34);
    outer[23] = 47;
    outer[16..18].copy_from_slice(&(20 + u16::try_from(gre.len()).unwrap()).to_be_bytes());
    outer.extend_from_slice(&gre);
    let mut capture = Capture::new(ETHERNET);
    capture.push(BEGIN, outer.clone());
    capture.push(BEGIN, outer);
    let inside = talkers(&capture, "");
    let bytes = 2 * (14 + 20 + 4 + 40);
    assert_eq!(found(&inside, "pair"), [("pair 192.168.7.1 192.168.8.1".to_owned(), (bytes, 2))]);
    assert!(found(&inside, "port").contains(&("port 6 80".to_owned(), (bytes, 2))));
    let outside = talkers(&capture, ",layer=outer");
    assert_eq!(found(&outside, "pair"), [("pair 10.0.0.1 10.0.0.2".to_owned(), (bytes, 2))]);
    assert_eq!(found(&outside, "port"), []);
    let said = refusal(&capture, &["-m", &module("talkers", ",layer=middle")]);
    assert!(said.contains("`middle` is none of inner, outer"), "{said}");
}

#[test]
fn intervals_without_packets_have_no_row_and_time_that_goes_back_changes_no_interval() {
    let mut capture = Capture::new(ETHERNET);
    let packet = |i: u64| Packet::udp(&format!("10.0.0.{i}:5000"), "10.0.0.9:53").tagged(7);
    for (i, at) in [(1, 12), (2, 13), (3, 5), (4, 55), (5, 9), (6, 61), (7, 12)] {
        capture.push(BEGIN + at * SECOND, packet(i));
    }
    let run = talkers(&capture, "");
    let rows = run.rows("talkers", "intervals");
    let found: Vec<_> =
        rows.iter().map(|row| ((unsigned(row, "time") - BEGIN) / SECOND, unsigned(row, "packets"))).collect();
    assert_eq!(found, [(10, 3), (50, 2), (60, 2)]);
    assert_sound(&count(&capture, 10 * SECOND, (24, 48)), &run, "gaps");
    // One interval alone, whose last packet is older than the others.
    capture.frames.truncate(3);
    assert_sound(&count(&capture, 10 * SECOND, (24, 48)), &talkers(&capture, ""), "one interval");
    assert!(talkers(&Capture::new(ETHERNET), "").rows("talkers", "intervals").is_empty());
}

/// Adds packets of 1,000 bytes at equal distances in `seconds`.
fn stream(capture: &mut Capture, from: &str, to: &str, seconds: std::ops::Range<u64>, per_second: u64) {
    for second in seconds {
        for i in 0..per_second {
            let packet = Packet::udp(from, to).payload([0; 958]);
            capture.push(BEGIN + second * SECOND + i * (SECOND / per_second), packet.ethernet());
        }
    }
}

/// Background traffic of many hosts.
fn background(capture: &mut Capture, seconds: std::ops::Range<u64>, per_second: u64) {
    for i in 0..20u64 {
        let (a, b) = (format!("172.16.{i}.1:4000"), format!("172.17.{i}.1:4001"));
        stream(capture, &a, &b, seconds.clone(), per_second / 20);
    }
}

#[test]
fn a_pair_or_a_host_with_a_large_share_is_one_finding() {
    let mut capture = Capture::new(ETHERNET);
    background(&mut capture, 0..60, 200);
    stream(&mut capture, "10.0.0.1:5000", "10.0.0.2:80", 10..40, 400);
    // A host with many peers.
    for i in 0..40 {
        stream(&mut capture, "[2001:db8::1]:443", &format!("[2001:db8:{i}::2]:99"), 40..60, 10);
    }
    capture.frames.sort_by_key(|frame| frame.ts);
    let run = talkers(&capture, "");
    let findings = run.rows("talkers", "findings");
    let texts: Vec<&str> = findings.iter().map(|row| row.text("text")).collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(texts[0].starts_with("10.0.0.1 and 10.0.0.2 exchanged 66 % of all bytes"), "{texts:?}");
    assert!(texts[1].starts_with("2001:db8::1 sent and received 67 % of all bytes"), "{texts:?}");
    for (finding, packets) in findings.iter().zip([12_000, 8_000]) {
        assert_eq!((finding.number("severity"), finding.text("evidence")), (1, "top"));
        let selected = self::run(&capture, &["-m", &module("talkers", ""), finding.text("filter")]);
        assert_eq!(selected.summary["capture"]["selected"].as_u64().unwrap(), packets, "{finding:?}");
    }
    for (parameters, expected) in
        [(",share=0", 0), (",share=0.9", 0), (",rate=100000000", 0), (",quiet=0s", 2)]
    {
        let findings = talkers(&capture, parameters).rows("talkers", "findings");
        assert_eq!(findings.len(), expected, "{parameters}: {findings:?}");
    }
}

#[test]
fn a_pair_is_a_finding_again_after_it_was_quiet() {
    let mut capture = Capture::new(ETHERNET);
    for seconds in [0..20, 50..70, 200..220] {
        background(&mut capture, seconds.clone(), 100);
        stream(&mut capture, "10.0.0.1:5000", "10.0.0.2:80", seconds, 300);
    }
    capture.frames.sort_by_key(|frame| frame.ts);
    for (quiet, expected) in [("0s", 3), ("1m", 2), ("1h", 1)] {
        let run = talkers(&capture, &format!(",quiet={quiet}"));
        assert_eq!(run.rows("talkers", "findings").len(), expected, "{quiet}");
    }
}

#[test]
fn broken_packets_are_counted_as_far_as_their_headers_hold() {
    let mut random = Random(7);
    let mut capture = Capture::new(ETHERNET);
    let good = [
        Packet::tcp("10.0.0.1:1000", "10.0.0.2:80", SYN).payload([7; 30]).ethernet(),
        Packet::udp("[2001:db8::1]:1000", "[2001:db8::2]:53").payload([7; 30]).tagged(9),
    ];
    for i in 0..20_000u64 {
        let mut bytes = good[(i % 2) as usize].clone();
        for _ in 0..random.word() % 4 {
            let at = below(&mut random, bytes.len());
            bytes[at] = random.word().to_le_bytes()[0];
        }
        let wire = bytes.len();
        bytes.truncate(below(&mut random, wire + 1));
        capture.push(BEGIN + i * 10 * MILLISECOND, bytes);
        // Also lengths on the link that no link has.
        let extra = if i % 97 == 0 { u32::MAX / 2 } else { 0 };
        capture.frames.last_mut().unwrap().wire_len = u32::try_from(wire).unwrap() + extra;
    }
    for parameters in ["", ",table-size=256,top=100"] {
        let run = talkers(&capture, &format!("{parameters},layer=outer,prefix-v4=8"));
        assert_sound(&count(&capture, 10 * SECOND, (8, 48)), &run, "broken packets");
    }
}

/// One random capture of a second: keys with known shares among many others.
fn random_capture(random: &mut Random) -> (Capture, usize) {
    let mut below = |most: u64| random.word() % most;
    let packets = 20_000 + below(20_000);
    // None of the others is heavy, as there are more heavy keys than rows otherwise.
    let others = 2_000 + below(60_000);
    let heavy = 1 + usize::try_from(below(8)).unwrap();
    let is_v6 = below(2) == 1;
    // Each heavy pair has 1.5 to 6 % of the packets or bytes, its hosts and prefixes have no other traffic.
    let shares: Vec<u64> = (0..heavy).map(|_| 15 + below(45)).collect();
    let mut capture = Capture::new(ETHERNET);
    for i in 0..packets {
        let mut draw = below(1000);
        let pair = shares.iter().position(|share| {
            let is_it = draw < *share;
            draw = draw.saturating_sub(*share);
            is_it
        });
        let (a, b, port) = match pair {
            Some(pair) => (0xF000 + 256 * pair as u64, 0xF100_0000 + 256 * pair as u64, 80 + pair as u64),
            None => {
                let other = below(others);
                (0x10_0000 + 37 * other, 0x90_0000 + 411 * below(others), 1024 + other % 60_000)
            }
        };
        let end = |host: u64, port: u64| {
            if is_v6 {
                format!("[2001:{:x}:{:x}::1]:{port}", host >> 16 & 0xFFFF, host & 0xFFFF)
            } else {
                format!(
                    "{}.{}.{}.{}:{port}",
                    10 + (host >> 24),
                    host >> 16 & 255,
                    host >> 8 & 255,
                    host & 255
                )
            }
        };
        let (from, to) = (end(a, 1024 + below(60_000)), end(b, port));
        let (from, to) = if below(2) == 0 { (from, to) } else { (to, from) };
        let packet = Packet::udp(&from, &to).payload(vec![0; 10 + usize::try_from(below(900)).unwrap()]);
        capture.push(BEGIN + i * (SECOND / packets), packet.ethernet());
    }
    (capture, heavy)
}

/// A random index below a length.
pub fn below(random: &mut Random, len: usize) -> usize {
    usize::try_from(random.word() % len as u64).unwrap()
}

/// The seed: 1, or from the environment. Some assertions are about frequencies, so with few of all seeds they do not hold.
fn seed() -> u64 {
    let seed = std::env::var("WEIR_SEED").map_or(1, |seed| seed.parse().unwrap());
    let _ = writeln!(std::io::stderr(), "WEIR_SEED={seed}");
    seed
}

/// Random numbers for a test, from a seed that is printed. `WEIR_SEED` in the environment is another seed.
pub fn random() -> Random {
    Random(seed())
}

#[test]
fn heavy_keys_of_random_captures_are_found() {
    let mut random = random();
    let (mut hits, mut missed, mut wrong, mut inexact) = (0usize, 0usize, 0usize, 0);
    for round in 0..24 {
        let (capture, heavy) = random_capture(&mut random);
        // Tables of many sizes, most of them far too small for all keys.
        let size = 256 << (random.word() % 4);
        let run = talkers(&capture, &format!(",interval=1s,top=50,table-size={size}"));
        let intervals = count(&capture, SECOND, (24, 48));
        let place = format!("round {round}: {heavy} heavy pairs, table-size={size}");
        inexact += assert_sound(&intervals, &run, &place).inexact_rows;
        let interval = &intervals[&BEGIN];
        let rows = run.rows("talkers", "top");
        // Heavy: at least 1 % of the bytes or packets. The estimate is the middle of the bounds.
        let is_heavy =
            |counts: Counts| counts.0 * 100 >= interval.total.0 || counts.1 * 100 >= interval.total.1;
        let estimated: BTreeSet<String> = rows
            .iter()
            .filter(|row| {
                let middle = |name: &str| unsigned(row, name) - unsigned(row, &format!("error_{name}")) / 2;
                is_heavy((middle("bytes"), middle("packets")))
            })
            .map(key)
            .collect();
        let truth: BTreeSet<String> = interval
            .keys
            .iter()
            .filter(|(_, counts)| is_heavy(**counts))
            .map(|(key, _)| key.clone())
            .collect();
        assert!(truth.len() >= 3 * heavy, "{place}: {truth:?}");
        hits += truth.intersection(&estimated).count();
        missed += truth.difference(&estimated).count();
        wrong += estimated.difference(&truth).count();
    }
    let (recall, precision) = (hits as f64 / (hits + missed) as f64, hits as f64 / (hits + wrong) as f64);
    let _ = writeln!(
        std::io::stderr(),
        "{hits} heavy keys, {missed} missed, {wrong} wrong: recall {recall:.4}, precision {precision:.4}; {inexact} inexact rows"
    );
    assert!(inexact > 100, "the tables are too large to test anything");
    assert!(recall >= 0.95 && precision >= 0.95, "recall {recall}, precision {precision}");
}

/// Calls `each` with the path and the content of the sample and of each compared trace that is a pcap file, or that editcap makes one of, with a
/// link type and a version that weir reads. Returns how many there were.
pub fn each_trace(mut each: impl FnMut(&Path, &Capture)) -> usize {
    const LINK_TYPES: [u32; 10] = [0, 1, 12, 14, 101, 108, 113, 228, 229, 276];
    let has_format = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == "pcap" || extension == "pcapng")
    };
    let traces = traces::compared().into_iter().map(|trace| trace.path).filter(has_format);
    let files = std::iter::once(sample()).chain(traces);
    let folder = tempfile::tempdir().unwrap();
    let mut left_out = Vec::new();
    let mut compared = 0;
    for path in files {
        let mut path = path;
        let name = path.clone();
        // Some files are pcapng under another name.
        if std::fs::read(&path).unwrap().starts_with(&[0x0A, 0x0D, 0x0D, 0x0A]) {
            let converted = folder.path().join("converted.pcap");
            let _ = std::fs::remove_file(&converted);
            let ran = Command::new("editcap").args(["-F", "nsecpcap"]).args([&path, &converted]).output();
            if !ran.is_ok_and(|output| output.status.success()) {
                left_out.push(name);
                continue;
            }
            path = converted;
        }
        let bytes = std::fs::read(&path).unwrap();
        let is_readable = bytes.len() >= 24 && {
            let is_little = matches!(bytes[0], 0xD4 | 0x4D);
            let word = |at: usize| {
                let word: [u8; 4] = bytes[at..at + 4].try_into().unwrap();
                if is_little { u32::from_le_bytes(word) } else { u32::from_be_bytes(word) }
            };
            let version = if is_little { word(4).rotate_left(16) } else { word(4) };
            matches!(word(0), 0xA1B2_C3D4 | 0xA1B2_3C4D)
                && (0x2_0000..=0x2_0004).contains(&version)
                && LINK_TYPES.contains(&(word(20) & 0xFFFF))
        };
        if !is_readable {
            left_out.push(name);
            continue;
        }
        each(&path, &Capture::read(&path));
        compared += 1;
    }
    let _ = writeln!(
        std::io::stderr(),
        "{compared} traces; {} left out (link types or versions that weir does not read, or editcap does not convert)",
        left_out.len()
    );
    compared
}

#[test]
fn counts_of_traces_are_within_their_bounds() {
    let mut sum = Compared::default();
    each_trace(|path, capture| {
        for (parameters, interval) in
            [(",interval=1s", SECOND), (",interval=1h,table-size=256,top=20", 3600 * SECOND)]
        {
            let run = run_file(path, &["-m", &module("talkers", &format!("{parameters},layer=outer"))]);
            let place = format!("{} {parameters}", path.display());
            let one = assert_sound(&count(capture, interval, (24, 48)), &run, &place);
            sum.intervals += one.intervals;
            sum.rows += one.rows;
            sum.inexact_rows += one.inexact_rows;
            sum.listed_for_certain += one.listed_for_certain;
        }
    });
    let _ = writeln!(std::io::stderr(), "{sum:?}");
    assert!(sum.rows > 0 && sum.listed_for_certain > 0);
}

#[test]
fn the_module_is_proved_and_its_rows_do_not_depend_on_the_number_of_threads() {
    for parameters in ["", ",table-size=32768,top=100,interval=100ms"] {
        let module = module("talkers", parameters);
        let files = ["1", "2", "3"].map(|jobs| {
            let run = run_file(&sample(), &["-j", jobs, "-m", &module]);
            assert_eq!(run.summary["modules"][0]["tier"], "proved", "{parameters}: {}", run.summary);
            run.files()
        });
        assert!(files[0] == files[1] && files[0] == files[2], "{parameters}");
    }
}
