//! The module `scan` on generated packets and on real captures.

#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "generated packets")]

use super::capture::{BEGIN, Capture, ETHERNET, MILLISECOND, SECOND, repository, trace};
use super::noise::Random;
use super::packet::{ACK, FIN, PSH, RST, SYN};
use super::weir::{Row, Run, refusal, run, run_file};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;

pub const URG: u8 = 32;

/// Packets at times in ns from the begin of the capture, in any order, and the random numbers that they are made from.
pub struct Traffic {
    pub random: Random,
    packets: Vec<(u64, Vec<u8>)>,
}

/// Returns the packet from the IP header on, without checksums.
pub fn ip(src: IpAddr, dst: IpAddr, protocol: u8, body: &[u8]) -> Vec<u8> {
    let len = u16::try_from(body.len()).unwrap();
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let total = (len + 20).to_be_bytes();
            let header = [0x45, 0, total[0], total[1], 0, 1, 0, 0, 64, protocol, 0, 0];
            [&header[..], &src.octets(), &dst.octets(), body].concat()
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let len = len.to_be_bytes();
            [&[0x60, 0, 0, 0, len[0], len[1], protocol, 64][..], &src.octets(), &dst.octets(), body].concat()
        }
        _ => panic!("two address families in one packet"),
    }
}

pub fn tcp_header(ports: (u16, u16), flags: u8, seq: u32) -> Vec<u8> {
    let [from, to] = [ports.0.to_be_bytes(), ports.1.to_be_bytes()];
    [&from[..], &to, &seq.to_be_bytes(), &[0, 0, 0, 0, 0x50, flags, 4, 0, 0, 0, 0, 0]].concat()
}

pub fn ethernet(ip: &[u8]) -> Vec<u8> {
    let kind = if ip[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xDD] };
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], &kind, ip].concat()
}

impl Traffic {
    pub fn new(seed: u64) -> Self {
        Self { random: Random(seed), packets: Vec::new() }
    }

    pub fn push(&mut self, at: u64, ip: &[u8]) {
        self.packets.push((at, ethernet(ip)));
    }

    pub fn tcp(&mut self, at: u64, from: (IpAddr, u16), to: (IpAddr, u16), flags: u8, seq: u32) {
        self.push(at, &ip(from.0, to.0, 6, &tcp_header((from.1, to.1), flags, seq)));
    }

    pub fn udp(&mut self, at: u64, from: (IpAddr, u16), to: (IpAddr, u16), payload_len: u16) {
        let len = payload_len + 8;
        let words = [from.1, to.1, len, 0].map(u16::to_be_bytes);
        self.push(at, &ip(from.0, to.0, 17, &[&words.concat()[..], &vec![7; payload_len.into()]].concat()));
    }

    pub fn echo(&mut self, at: u64, from: IpAddr, to: IpAddr, reply: bool) {
        let (protocol, kind) = if from.is_ipv4() { (1, [8, 0]) } else { (58, [128, 129]) };
        self.push(at, &ip(from, to, protocol, &[kind[usize::from(reply)], 0, 0, 0, 0, 1, 0, 1]));
    }

    /// A whole number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.random.word() % end
    }

    /// A number of this range.
    pub fn between(&mut self, from: f64, to: f64) -> f64 {
        from + (to - from) * (self.random.word() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn chance(&mut self, probability: f64) -> bool {
        self.between(0.0, 1.0) < probability
    }

    pub fn port(&mut self) -> u16 {
        u16::try_from(1_024 + self.below(60_000)).unwrap()
    }

    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.between(1e-12, 1.0).ln()
    }

    /// An address of an IPv4 or IPv6 network; the first number distinguishes networks.
    pub fn address(&mut self, network: u8, is_v6: bool) -> IpAddr {
        let word = self.random.word();
        if is_v6 {
            return Ipv6Addr::from(0x2001_0db8_u128 << 96 | u128::from(network) << 64 | u128::from(word))
                .into();
        }
        let [a, b, c, ..] = word.to_be_bytes();
        Ipv4Addr::new(network, a, b, c % 254 + 1).into()
    }

    pub fn capture(mut self) -> Capture {
        self.packets.sort();
        let mut capture = Capture::new(ETHERNET);
        for (at, bytes) in self.packets {
            capture.push(BEGIN + at, bytes);
        }
        capture
    }
}

fn seconds(s: f64) -> u64 {
    (s * 1e9) as u64
}

pub fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    Ipv4Addr::new(a, b, c, d).into()
}

/// The seed: 1, or from the environment. It is printed, so that a failure can be repeated.
pub fn seed(test: &str) -> u64 {
    let seed = std::env::var("WEIR_SEED").map_or(1, |seed| seed.parse().unwrap());
    let _ = writeln!(std::io::stderr(), "{test}: WEIR_SEED={seed}");
    seed
}

/// The module by its path, with parameters such as ",hosts=30".
pub fn module(name: &str, parameters: &str) -> String {
    format!("{}{parameters}", repository().join(format!("guest/modules/{name}/{name}.wasm")).display())
}

fn scans_with(capture: &Capture, parameters: &str) -> (Run, Vec<Row>) {
    let ran = run(capture, &["-m", &module("scan", parameters)]);
    let rows = ran.rows("scan", "scans");
    (ran, rows)
}

fn scans(traffic: Traffic) -> Vec<Row> {
    scans_with(&traffic.capture(), "").1
}

/// Kind, method, and source of each row.
fn kinds(rows: &[Row]) -> Vec<(String, String, String)> {
    rows.iter().map(|row| ["kind", "method", "src"].map(|name| row.text(name).to_owned()).into()).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Method {
    Syn,
    Fin,
    Null,
    Xmas,
    Udp,
    Echo,
}

impl Method {
    const ALL: [Self; 6] = [Self::Syn, Self::Fin, Self::Null, Self::Xmas, Self::Udp, Self::Echo];

    fn name(self) -> &'static str {
        ["syn", "fin", "null", "xmas", "udp", "echo"][self as usize]
    }

    fn probe(self, traffic: &mut Traffic, at: u64, from: (IpAddr, u16), to: (IpAddr, u16)) {
        match self {
            Self::Udp => traffic.udp(at, from, to, 12),
            Self::Echo => traffic.echo(at, from.0, to.0, false),
            _ => traffic.tcp(at, from, to, [SYN, FIN, 0, FIN | PSH | URG][self as usize], 7),
        }
    }
}

/// Host `i` of a network.
fn host(i: usize, is_v6: bool) -> IpAddr {
    if is_v6 {
        return Ipv6Addr::from(0x2001_0db8_0001_u128 << 80 | (i as u128 + 1)).into();
    }
    v4(198, 18, (i / 250) as u8, (i % 250 + 1) as u8)
}

fn scanner(is_v6: bool) -> IpAddr {
    if is_v6 { "2001:db8:bad::1".parse().unwrap() } else { v4(203, 0, 113, 66) }
}

/// Probes of all pairs of hosts and ports, 100 a second, without any answer.
fn sweep(method: Method, hosts: usize, ports: std::ops::Range<u16>, is_v6: bool) -> Traffic {
    let mut traffic = Traffic::new(1);
    let pairs = (0..hosts).flat_map(|i| ports.clone().map(move |port| (host(i, is_v6), port)));
    for (at, to) in (0..).step_by(10_000_000).zip(pairs) {
        method.probe(&mut traffic, at, (scanner(is_v6), 40_000), to);
    }
    traffic
}

/// True if the estimate is within four standard errors, and lacks the first pairs of a source.
fn is_close(estimate: i128, truth: usize) -> bool {
    (estimate as f64 - truth as f64).abs() <= 5.0 + 0.3 * truth as f64
}

#[test]
fn each_kind_and_method_gives_a_scan_with_counts_and_a_finding_whose_filter_selects_it() {
    for is_v6 in [false, true] {
        for method in Method::ALL {
            let shapes: &[(&str, usize, std::ops::Range<u16>)] = if method == Method::Echo {
                &[("horizontal", 200, 0..1)]
            } else {
                &[("horizontal", 200, 22..23), ("vertical", 1, 1..301), ("block", 12, 20..45)]
            };
            for (kind, hosts, ports) in shapes {
                let case = format!("{kind} {method:?} IPv6 {is_v6}");
                let capture = sweep(method, *hosts, ports.clone(), is_v6).capture();
                let (ran, rows) = scans_with(&capture, "");
                let last = rows.last().unwrap_or_else(|| panic!("{case}: no row"));
                assert_eq!((last.text("kind"), last.text("method")), (*kind, method.name()), "{case}");
                assert!(
                    last.flag("ended") && last.text("src") == scanner(is_v6).to_string(),
                    "{case}: {last:?}"
                );
                let protocol = match method {
                    Method::Udp => 17,
                    Method::Echo if is_v6 => 58,
                    Method::Echo => 1,
                    _ => 6,
                };
                assert_eq!(last.number("protocol"), protocol, "{case}");
                assert!(is_close(last.number("hosts"), *hosts), "{case}: {last:?}");
                assert!(is_close(last.number("services"), hosts * ports.len()), "{case}: {last:?}");
                let ports_seen = if method == Method::Echo { 0 } else { ports.len() };
                assert!(is_close(last.number("ports"), ports_seen), "{case}: {last:?}");
                assert_eq!((last.number("answered"), last.number("refused")), (0, 0), "{case}");
                // The first packets of a source are missing: four, or more if two pairs share a bit.
                let missing = (hosts * ports.len()) as i128 - last.number("probe_packets");
                assert!((4..=8).contains(&missing), "{case}: {missing} packets are missing");
                assert_eq!(last.is_null("dst"), *kind != "vertical", "{case}");
                let has_port = *kind == "horizontal" && method != Method::Echo;
                assert_eq!(last.optional_number("dst_port"), has_port.then_some(22), "{case}");

                let findings = ran.rows("scan", "findings");
                let last = findings.last().unwrap();
                let words = last.text("text").to_lowercase();
                assert!(
                    words.contains(kind) && words.contains(&scanner(is_v6).to_string()),
                    "{case}: {words}"
                );
                assert_eq!((last.number("severity"), last.text("evidence")), (2, "scans"), "{case}");
                let selected = run(&capture, &["-m", &module("scan", ""), last.text("filter")]);
                assert_eq!(
                    selected.summary["capture"]["selected"],
                    hosts * ports.len(),
                    "{case}: {}",
                    last.text("filter")
                );
            }
        }
    }
}

/// A client's connections to 120 hosts, 10 a second. `answer` adds what follows the SYN.
fn connections(answer: impl Fn(&mut Traffic, u64, (IpAddr, u16), (IpAddr, u16))) -> Traffic {
    let mut traffic = Traffic::new(2);
    for i in 0..120usize {
        let (at, client, server) =
            (i as u64 * SECOND / 10, (scanner(false), 30_000 + i as u16), (host(i, false), 8443));
        traffic.tcp(at, client, server, SYN, 99);
        answer(&mut traffic, at + MILLISECOND, client, server);
    }
    traffic
}

#[test]
fn success_speaks_against_a_scan_in_both_directions_and_in_the_clients_alone() {
    let number = |traffic| scans(traffic).len();
    assert_ne!(number(connections(|_, _, _, _| ())), 0, "no answers");
    assert_eq!(
        number(connections(|t, at, client, server| t.tcp(at, server, client, SYN | ACK, 5))),
        0,
        "SYN-ACK"
    );
    assert_eq!(
        number(connections(|t, at, client, server| t.tcp(at, client, server, ACK, 100))),
        0,
        "the client's ACK"
    );
    let half_open = connections(|t, at, client, server| {
        t.tcp(at, server, client, SYN | ACK, 5);
        t.tcp(at + 1, client, server, RST, 100);
    });
    assert_ne!(number(half_open), 0, "taken back");
    let closed = connections(|t, at, client, server| t.tcp(at, server, client, RST | ACK, 0));
    let rows = scans(closed);
    assert!(is_close(rows.last().unwrap().number("refused"), 120), "{rows:?}");
    // The RST of an established connection is no refusal.
    let ended = connections(|t, at, client, server| {
        t.tcp(at, server, client, SYN | ACK, 5);
        t.tcp(at + 1, client, server, ACK, 100);
        t.tcp(at + 2, server, client, RST | ACK, 6);
    });
    assert_eq!(number(ended), 0);
    // Half of the attempts are below the share, three quarters are not.
    let some = |failed: usize| {
        connections(move |t, at, client, server| {
            if usize::from(client.1) % 4 >= failed {
                t.tcp(at, server, client, SYN | ACK, 5);
            }
        })
    };
    assert_eq!(number(some(2)), 0);
    assert_ne!(number(some(3)), 0);
    assert_ne!(scans_with(&some(2).capture(), ",failed=0.3").1.len(), 0);
}

#[test]
fn thresholds_are_those_of_the_parameters() {
    let number = |hosts: usize, parameters: &str| {
        scans_with(&sweep(Method::Syn, hosts, 22..23, false).capture(), parameters).1.len()
    };
    assert_eq!(number(20, ""), 0);
    assert_ne!(number(45, ""), 0);
    assert_ne!(number(20, ",hosts=10"), 0);
    assert_eq!(number(45, ",hosts=80"), 0);
    let vertical = |ports: u16| scans(sweep(Method::Syn, 1, 1..ports, false)).len();
    assert_eq!(vertical(15), 0);
    assert_ne!(vertical(40), 0);
}

#[test]
fn unreachable_messages_are_refusals() {
    for is_v6 in [false, true] {
        for method in [Method::Syn, Method::Udp, Method::Echo] {
            let mut traffic = sweep(method, 100, 22..23, is_v6);
            let probes = traffic.packets.clone();
            for (at, frame) in probes {
                let header: &[u8] = if is_v6 { &[1, 4, 0, 0, 0, 0, 0, 0] } else { &[3, 3, 0, 0, 0, 0, 0, 0] };
                let router = if is_v6 { "2001:db8::1".parse().unwrap() } else { v4(192, 0, 2, 1) };
                let message = [header, &frame[14..]].concat();
                traffic.push(at + 1, &ip(router, scanner(is_v6), if is_v6 { 58 } else { 1 }, &message));
            }
            let rows = scans(traffic);
            assert!(is_close(rows.last().unwrap().number("refused"), 100), "{method:?} {is_v6}: {rows:?}");
        }
    }
}

#[test]
fn floods_are_no_scans() {
    let victim = v4(198, 51, 100, 9);
    type Flood = fn(&mut Traffic, u64, IpAddr);
    let floods: [(&str, Flood); 6] = [
        ("forged sources", |t, at, victim| {
            let from = (t.address(11, false), t.port());
            t.tcp(at, from, (victim, 80), SYN, 1);
        }),
        ("forged sources of a network, to random ports", |t, at, victim| {
            let (from, to) = ((v4(203, 0, 113, t.below(256) as u8), t.port()), t.port());
            t.tcp(at, from, (victim, to), SYN, 1);
        }),
        ("one source to one port", |t, at, victim| {
            let from = (v4(203, 0, 113, 1), t.port());
            t.tcp(at, from, (victim, 80), SYN, 1);
        }),
        ("one source to all hosts of a network, again and again", |t, at, _| {
            let (from, to) = ((v4(203, 0, 113, 1), t.port()), v4(198, 51, 100, t.below(254) as u8));
            t.tcp(at, from, (to, 80), SYN, 1);
        }),
        ("UDP to random ports, forged", |t, at, victim| {
            let (from, to) = ((t.address(12, false), t.port()), t.port());
            t.udp(at, from, (victim, to), 16);
        }),
        ("UDP, reflected", |t, at, victim| {
            let (from, to) = ((v4(203, 0, 114, t.below(50) as u8), 123), t.port());
            t.udp(at, from, (victim, to), 440);
        }),
    ];
    for (name, flood) in floods {
        for rate in [2_000, 20_000] {
            let mut traffic = Traffic::new(3);
            for i in 0..20_000 {
                flood(&mut traffic, i * (SECOND / rate), victim);
            }
            assert_eq!(kinds(&scans(traffic)), [], "{name}, {rate} packets/s");
        }
    }
}

#[test]
fn a_flood_of_forged_sources_does_not_evict_a_slow_scanner() {
    let mut traffic = sweep(Method::Syn, 60, 22..23, false);
    for (at, _) in &mut traffic.packets {
        *at *= 50; // two a second
    }
    for i in 0..150_000 {
        let from = (traffic.address(11, false), traffic.port());
        traffic.tcp(i * 200_000, from, (v4(198, 51, 100, 9), 80), SYN, 1);
    }
    let (_, rows) = scans_with(&traffic.capture(), ",table-size=256");
    let last = rows.last().unwrap();
    assert_eq!(kinds(&rows)[0].2, scanner(false).to_string());
    assert!(is_close(last.number("hosts"), 60), "{rows:?}");
}

#[test]
fn rows_come_at_detection_at_tenfold_growth_and_at_the_end() {
    let mut traffic = sweep(Method::Syn, 600, 22..23, false);
    // After the timeout, another scan of the same source.
    for i in 0..60 {
        let at = 6 * SECOND + 400 * SECOND + i * SECOND / 10;
        Method::Syn.probe(&mut traffic, at, (scanner(false), 1), (host(i as usize, false), 23));
    }
    let rows = scans(traffic);
    let found: Vec<_> = rows.iter().map(|row| (row.number("dst_port"), row.flag("ended"))).collect();
    assert_eq!(found.last(), Some(&(23, true)), "{found:?}");
    let first: Vec<_> = found.iter().filter(|row| row.0 == 22).collect();
    assert!((2..=4).contains(&first.len()) && first.last().unwrap().1, "{found:?}");
    assert_eq!(first.iter().filter(|row| row.1).count(), 1, "{found:?}");
    let last = rows.iter().rfind(|row| row.number("dst_port") == 22).unwrap();
    assert!(is_close(last.number("hosts"), 600), "{last:?}");
    assert!(
        last.number("time") < i128::from(BEGIN + 407 * SECOND),
        "the end is not reported at the end of the capture"
    );
}

#[test]
fn tags_and_tunnels_are_looked_into() {
    let plain = sweep(Method::Syn, 100, 22..23, false).capture();
    let mut tagged = Capture::new(ETHERNET);
    let mut tunnelled = Capture::new(ETHERNET);
    for frame in &plain.frames {
        let bytes = &frame.bytes;
        tagged.push(frame.ts, [&bytes[..12], &[0x81, 0, 0, 5], &bytes[12..]].concat());
        let gre = [&[0, 0, 8, 0], &bytes[14..]].concat();
        tunnelled.push(frame.ts, ethernet(&ip(v4(192, 0, 2, 1), v4(192, 0, 2, 2), 47, &gre)));
    }
    for (capture, vlan, tunnel) in [(&plain, None, ""), (&tagged, Some(5), ""), (&tunnelled, None, "gre")] {
        let (ran, rows) = scans_with(capture, "");
        let last = rows.last().unwrap();
        assert_eq!((last.optional_number("vlan"), last.text("tunnel")), (vlan, tunnel));
        assert_eq!(last.text("src"), scanner(false).to_string());
        let filter = ran.rows("scan", "findings")[0].text("filter").to_owned();
        let selected = run(capture, &["-m", &module("scan", ""), &filter]);
        assert_eq!(selected.summary["capture"]["selected"], 100, "{filter}");
    }
    assert_eq!(scans_with(&tunnelled, ",layer=outer").1.len(), 0);
    assert_ne!(scans_with(&plain, ",layer=outer").1.len(), 0);
    let said = refusal(&plain, &["-m", &module("scan", ",layer=middle")]);
    assert!(said.contains("`middle` is none of inner, outer"), "{said}");
}

#[test]
fn short_packets_and_times_that_go_back_are_no_faults() {
    let mut damaged = Capture::new(ETHERNET);
    for method in Method::ALL {
        for is_v6 in [false, true] {
            for (i, frame) in sweep(method, 8, 22..30, is_v6).capture().frames.iter().enumerate() {
                let mut bytes = frame.bytes.clone();
                bytes.truncate(14 + i);
                let ts = if i % 2 == 0 { frame.ts } else { frame.ts - 3_600 * SECOND };
                damaged.frames.push(super::capture::Frame { ts, wire_len: frame.wire_len, bytes });
                // An unreachable message that quotes what is left of it.
                let quoted =
                    [&[3, 3, 0, 0, 0, 0, 0, 0], &frame.bytes[14..(14 + i).min(frame.bytes.len())]].concat();
                damaged.push(ts, ethernet(&ip(v4(192, 0, 2, 1), v4(192, 0, 2, 2), 1, &quoted)));
            }
        }
    }
    // `run` fails on a fault.
    assert_eq!(scans_with(&damaged, ",hosts=10,ports=10").0.summary["modules"][0]["faults"], 0);
}

#[test]
fn rows_do_not_depend_on_the_number_of_threads_and_the_module_is_proved() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), random_capture(11, false).0.to_pcap()).unwrap();
    let files = |jobs: &str| run_file(file.path(), &["-m", &module("scan", ""), "-j", jobs]).files();
    let one = files("1");
    assert!(files("2") == one && files("3") == one);
    for parameters in ["", ",table-size=32768,timeout=24h,window=168h,hosts=100000,ports=65535"] {
        assert_proved(&module("scan", parameters));
    }
}

pub fn assert_proved(module: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(["check", module, "--json"]).output().unwrap();
    let checked: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(checked["tier"], "proved", "{module}: {}", checked["tier_reason"]);
}

/// A connection of a client; if it has success, with data and an end. Without `both`, only the client's packets.
fn connection(t: &mut Traffic, at: f64, client: IpAddr, server: (IpAddr, u16), success: bool, both: bool) {
    let (from, rtt) = ((client, t.port()), t.between(0.005, 0.2));
    t.tcp(seconds(at), from, server, SYN, 100);
    let refused = t.chance(0.5);
    if success {
        if both {
            t.tcp(seconds(at + rtt), server, from, SYN | ACK, 500);
            t.tcp(seconds(at + 2.0 * rtt), server, from, ACK | PSH, 501);
        }
        t.tcp(seconds(at + rtt) + 1, from, server, ACK, 101);
        t.tcp(seconds(at + rtt) + 2, from, server, ACK | PSH, 101);
        t.tcp(seconds(at + 3.0 * rtt), from, server, FIN | ACK, 201);
    } else if refused {
        if both {
            t.tcp(seconds(at + rtt), server, from, RST | ACK, 0);
        }
    } else {
        for delay in [1.0, 3.0, 7.0].into_iter().take(t.below(4) as usize) {
            t.tcp(seconds(at + delay), from, server, SYN, 100);
        }
    }
}

/// Web clients, a gateway with address translation, a resolver, a mail server, peers, busy servers and a monitor.
fn background(t: &mut Traffic, length: f64, both: bool) {
    let servers: Vec<[IpAddr; 2]> = (0..1_000).map(|_| [t.address(20, false), t.address(20, true)]).collect();
    for _ in 0..30 + t.below(30) {
        let is_v6 = t.chance(0.3);
        let client = t.address(10, is_v6);
        let success = [0.99, 0.95, 0.85][t.below(3) as usize];
        for _ in 0..10 + t.below(200) {
            let server = servers[t.below(1_000) as usize][usize::from(is_v6)];
            let (at, port) = (t.between(0.0, length), [443, 443, 443, 80, 8080][t.below(5) as usize]);
            let has_success = t.chance(success);
            connection(t, at, client, (server, port), has_success, both);
        }
        for _ in 0..t.below(60) {
            let (at, from, has_success) = (t.between(0.0, length), (client, t.port()), t.chance(0.9));
            let server = (servers[t.below(1_000) as usize][usize::from(is_v6)], 443);
            for i in 0..if has_success { 12 } else { 3 } {
                t.udp(seconds(at + 0.05 * f64::from(i)), from, server, 400);
                if has_success && both {
                    t.udp(seconds(at + 0.05 * f64::from(i) + 0.02), server, from, 500);
                }
            }
        }
    }
    for _ in 0..1_000 + t.below(3_000) {
        let server = servers[t.below(1_000) as usize][0];
        let (at, port) = (t.between(0.0, length), [443, 443, 443, 80, 993, 5222][t.below(6) as usize]);
        let has_success = t.chance(0.95);
        connection(t, at, v4(100, 64, 0, 1), (server, port), has_success, both);
        let (client, at) = (t.address(30, false), t.between(0.0, length));
        connection(t, at, client, (v4(192, 0, 2, 80), 443), true, both);
        let (from, to) = ((v4(10, 0, 0, 53), t.port()), (t.address(31, false), 53));
        t.udp(seconds(at), from, to, 40);
        if both && t.chance(0.95) {
            t.udp(seconds(at + 0.04), to, from, 120);
        }
        let from = (client, t.port());
        t.udp(seconds(at), from, (v4(192, 0, 2, 53), 53), 40);
        if both {
            t.udp(seconds(at) + 1_000_000, (v4(192, 0, 2, 53), 53), from, 300);
        }
    }
    for _ in 0..200 {
        let (at, server, has_success) = (t.between(0.0, length), t.address(32, false), t.chance(0.7));
        connection(t, at, v4(10, 0, 0, 25), (server, 25), has_success, both);
    }
    for _ in 0..3 + t.below(4) {
        let is_v6 = t.chance(0.3);
        let (peer, success) = (t.address(10, is_v6), t.between(0.25, 0.7));
        for _ in 0..100 + t.below(500) {
            let port = if t.chance(0.2) { 6881 } else { t.port() };
            let (at, other, has_success) = (t.between(0.0, length), t.address(33, is_v6), t.chance(success));
            connection(t, at, peer, (other, port), has_success, both);
            let (other, has_success) = (t.address(34, is_v6), t.chance(success));
            for i in 0..1 + t.below(3) {
                t.udp(seconds(at) + i * 2 * SECOND, (peer, 6881), (other, port), 100);
            }
            if both && has_success {
                t.udp(seconds(at + 0.1), (other, port), (peer, 6881), 200);
            }
        }
    }
    for i in 0..15 {
        let mut at = f64::from(i);
        while at < length {
            t.echo(seconds(at), v4(10, 0, 0, 7), v4(35, 0, 0, i as u8 + 1), false);
            at += 30.0;
        }
    }
}

fn floods(t: &mut Traffic, length: f64) {
    let begins: Vec<u64> = (0..5).map(|_| seconds(t.between(0.0, length / 2.0))).collect();
    let packets = 5_000 + t.below(10_000);
    for i in 0..packets {
        let from = (t.address(11, false), t.port());
        t.tcp(begins[0] + i * 300_000, from, (v4(198, 51, 100, 9), 80), SYN, 1);
        let from = (v4(203, 0, 113, t.below(256) as u8), t.port());
        let port = t.port();
        t.tcp(begins[1] + i * 200_000, from, (v4(198, 51, 100, 10), port), SYN, 1);
        let (from, port) = ((t.address(12, false), t.port()), t.port());
        t.udp(begins[2] + i * 400_000, from, (v4(198, 51, 100, 11), port), 16);
        let from = (v4(203, 0, 114, 1), t.port());
        t.tcp(begins[3] + i * 300_000, from, (v4(198, 51, 100, 12), 443), SYN, 1);
        let (from, port) = ((v4(203, 0, 115, t.below(50) as u8), 123), t.port());
        t.udp(begins[4] + i * 300_000, from, (v4(198, 51, 100, 13), port), 450);
    }
}

/// Each scan by method and source, with its kind and number of pairs.
type Truth = BTreeMap<(String, String), (&'static str, usize)>;

fn random_scanner(t: &mut Traffic, length: f64, both: bool, truth: &mut Truth) {
    let method = [
        Method::Syn,
        Method::Syn,
        Method::Syn,
        Method::Fin,
        Method::Null,
        Method::Xmas,
        Method::Udp,
        Method::Echo,
    ][t.below(8) as usize];
    let kind = if method == Method::Echo {
        "horizontal"
    } else {
        ["horizontal", "vertical", "block"][t.below(3) as usize]
    };
    let is_v6 = t.chance(0.3);
    let (source, network) = (t.address(172, is_v6), t.address(60, is_v6));
    let target = |i: u64| match network {
        IpAddr::V4(address) => Ipv4Addr::from(u32::from(address) & !0xFFFF | (i as u32 + 1)).into(),
        IpAddr::V6(address) => {
            IpAddr::from(Ipv6Addr::from(u128::from(address) & !0xFFFF | (u128::from(i) + 1)))
        }
    };
    let mut pairs: Vec<(IpAddr, u16)> = match kind {
        "horizontal" => {
            let port = [22, 23, 80, 161, 445, 3389, 5060, 1900][t.below(8) as usize];
            (0..60 + t.below(800)).map(|i| (target(i), port)).collect()
        }
        "vertical" => {
            let first = 1 + t.below(3_000) as u16;
            (first..first + 60 + t.below(1_500) as u16).map(|port| (target(0), port)).collect()
        }
        _ => {
            let (hosts, first) = (5 + t.below(35), 1 + t.below(1_000) as u16);
            let ports = 25 + t.below(35) as u16;
            (0..hosts)
                .flat_map(|i| (first..first + ports).map(move |port| (i, port)))
                .map(|(i, port)| (target(i), port))
                .collect()
        }
    };
    let is_shuffled = t.chance(0.5);
    for i in (1..pairs.len()).rev() {
        let other = t.below(i as u64 + 1) as usize;
        if is_shuffled {
            pairs.swap(i, other);
        }
    }
    let rate = 10f64.powf(t.between(0.3, 3.0)).max(pairs.len() as f64 / (length - 20.0));
    let (success, refusal, repeats) = (t.between(0.0, 0.2), t.between(0.0, 1.0), 1 + t.below(3) / 2);
    let (mut at, from) = (t.between(0.0, 5.0), (source, t.port() | 1024));
    truth.insert((method.name().into(), source.to_string()), (kind, pairs.len()));
    for to in pairs {
        at += t.exponential(1.0 / rate);
        for repeat in 0..repeats {
            method.probe(t, seconds(at) + repeat * SECOND, from, to);
        }
        let (has_success, is_refused, answer) = (t.chance(success), t.chance(refusal), seconds(at + 0.05));
        match method {
            _ if !both => (),
            Method::Echo if is_refused => t.echo(answer, to.0, source, true),
            Method::Echo => (),
            Method::Udp if has_success => t.udp(answer, to, from, 100),
            Method::Udp => (),
            Method::Syn if has_success => {
                t.tcp(answer, to, from, SYN | ACK, 9);
                t.tcp(answer + 1, from, to, RST, 8);
            }
            _ if is_refused => t.tcp(answer, to, from, RST | ACK, 0),
            _ => (),
        }
    }
}

fn random_capture(seed: u64, both: bool) -> (Capture, Truth) {
    let mut t = Traffic::new(seed);
    let length = t.between(100.0, 500.0);
    background(&mut t, length, both);
    floods(&mut t, length);
    let mut truth = Truth::new();
    for _ in 0..20 + t.below(15) {
        random_scanner(&mut t, length, both, &mut truth);
    }
    (t.capture(), truth)
}

#[test]
fn scans_among_random_traffic_are_found_with_precision_and_recall_above_95_percent() {
    let seed = seed("scan");
    let (mut right, mut found, mut all, mut right_kind, mut packets) = (0, 0, 0, 0, 0);
    for i in 0..6 {
        let (capture, truth) = random_capture(seed + i, i % 2 == 0);
        packets += capture.frames.len();
        let (_, rows) = scans_with(&capture, "");
        // The last row of each source and method.
        let last: BTreeMap<_, &Row> = rows
            .iter()
            .map(|row| ((row.text("method").to_owned(), row.text("src").to_owned()), row))
            .collect();
        for (scan, row) in &last {
            let Some((kind, pairs)) = truth.get(scan) else {
                let _ = writeln!(std::io::stderr(), "false: {row:?}");
                continue;
            };
            right += 1;
            right_kind += usize::from(row.text("kind") == *kind && is_close(row.number("services"), *pairs));
        }
        for (scan, truth) in truth.iter().filter(|(scan, _)| !last.contains_key(*scan)) {
            let _ = writeln!(std::io::stderr(), "missed: {scan:?} {truth:?}");
        }
        (found, all) = (found + last.len(), all + truth.len());
    }
    let [precision, recall, kinds] =
        [(right, found), (right, all), (right_kind, right)].map(|(a, b)| a as f64 / b as f64);
    let _ = writeln!(
        std::io::stderr(),
        "scan: {packets} packets, {all} scans, precision {precision:.3}, recall {recall:.3}, kind and count {kinds:.3}"
    );
    assert!(all > 100 && precision >= 0.95 && recall >= 0.95 && kinds >= 0.95);
}

/// Numbers of different ports of one host, and of different hosts of one port, of the SYN packets of each source without SYN-ACK, from tshark:
/// the largest of each.
fn unanswered_by_tshark(path: &std::path::Path) -> Option<BTreeMap<String, (usize, usize)>> {
    let fields = ["ip.src", "ipv6.src", "ip.dst", "ipv6.dst", "tcp.srcport", "tcp.dstport", "tcp.flags.ack"];
    let output = Command::new("tshark")
        .args(["-n", "-Y", "tcp.flags.syn == 1", "-T", "fields", "-E", "occurrence=f", "-r"])
        .arg(path)
        .args(fields.iter().flat_map(|field| ["-e", field]))
        .output();
    let Ok(output) = output else {
        let _ = writeln!(std::io::stderr(), "SKIPPED: tshark is not installed");
        return None;
    };
    let (mut tried, mut answered) = (BTreeSet::new(), BTreeSet::new());
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let f: Vec<&str> = line.split('\t').collect();
        let (src, dst) = (f[0].to_owned() + f[1], f[2].to_owned() + f[3]);
        if ["1", "True"].contains(&f[6]) {
            answered.insert((dst, src, f[4].to_owned()));
        } else {
            tried.insert((src, dst, f[5].to_owned()));
        }
    }
    let mut counts: BTreeMap<String, [BTreeMap<String, usize>; 2]> = BTreeMap::new();
    for (src, dst, port) in tried.difference(&answered) {
        let [by_host, by_port] = counts.entry(src.clone()).or_default();
        *by_host.entry(dst.clone()).or_default() += 1;
        *by_port.entry(port.clone()).or_default() += 1;
    }
    let most = |counts: BTreeMap<String, usize>| counts.into_values().max().unwrap();
    Some(counts.into_iter().map(|(src, [hosts, ports])| (src, (most(hosts), most(ports)))).collect())
}

#[test]
fn the_scan_in_a_real_trace_has_the_ports_that_tshark_counts() {
    let Some(path) = trace("attack/synscan.pcap") else { return };
    let rows = run_file(&path, &["-m", &module("scan", "")]).rows("scan", "scans");
    let last = rows.last().unwrap();
    let about = (last.text("kind"), last.text("method"), last.text("src"), last.text("dst"));
    assert_eq!(about, ("vertical", "syn", "172.16.0.8", "64.13.134.52"));
    // nmap's 1,000 ports; a few had a SYN-ACK.
    let Some(counts) = unanswered_by_tshark(&path) else { return };
    let unanswered = counts["172.16.0.8"].0;
    assert!((990..1_000).contains(&unanswered), "{unanswered}");
    assert!(is_close(last.number("ports") - last.number("answered"), unanswered), "{last:?}");
}

#[test]
fn real_traces_without_a_scan_have_no_row() {
    // A flood with forged sources; requests to one server, without SYN; clients of 16 services that all answer; and many applications, of which a
    // telephone without a network tries 30 hosts, up to seven times each.
    for (name, most) in [
        ("attack/synflood-spoofed.pcap", (1, 1)),
        ("attack/web-rce-scan.pcap", (0, 0)),
        ("tcp/banners-rawip.pcap", (1, 1)),
        ("mixed/composite-mixed-a.pcap", (3, 30)),
    ] {
        let Some(path) = trace(name) else { continue };
        let rows = run_file(&path, &["-m", &module("scan", "")]).rows("scan", "scans");
        assert_eq!(kinds(&rows), [], "{name}");
        let Some(counts) = unanswered_by_tshark(&path) else { continue };
        let (ports, hosts) =
            counts.values().fold((0, 0), |(ports, hosts), count| (ports.max(count.0), hosts.max(count.1)));
        assert!(ports <= most.0 && hosts <= most.1, "{name}: {ports} ports, {hosts} hosts");
    }
}
