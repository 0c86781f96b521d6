//! The overview: services, slow and failing ones, and hosts that stand out, on the page and as text.

use super::fabricated::{Module, START, Value, add_module, finding, manifest};
use super::html::elements;
use super::{HOSTILE, assert_harmless, assert_sound, resident};
use weir_report::{CaptureInfo, RunReport};
use weir_rows::utc;

const SECOND: u64 = 1_000_000_000;
const SERVER: [u8; 4] = [192, 0, 2, 10];
const CLIENT: [u8; 4] = [198, 51, 100, 7];

/// Emits a TCP flow with this state.
fn flow(
    report: &mut RunReport,
    flows: &mut Module,
    client: [u8; 4],
    server: ([u8; 4], u64),
    state: &str,
    bytes: u64,
) {
    let answers = if state == "S0" { 0 } else { 5 };
    let history = if state == "S0" { "S" } else { "ShADad" };
    flows.emit(
        report,
        "closed",
        &[
            ("start_time", Value::Int(START)),
            ("src", Value::Ip(client)),
            ("src_port", Value::Int(40_000)),
            ("dst", Value::Ip(server.0)),
            ("dst_port", Value::Int(server.1)),
            ("protocol", Value::Int(6)),
            ("source_packets", Value::Int(5)),
            ("source_bytes", Value::Int(bytes / 2)),
            ("destination_packets", Value::Int(answers)),
            ("destination_bytes", Value::Int(bytes - bytes / 2)),
            ("conn_state", Value::Text(state.as_bytes())),
            ("history", Value::Text(history.as_bytes())),
            ("reason", Value::Text(b"end")),
        ],
    );
}

/// Emits a handshake of TLS 1.3 for this name.
fn handshake(report: &mut RunReport, tls: &mut Module, server: [u8; 4], name: &[u8]) {
    tls.emit(
        report,
        "handshakes",
        &[
            ("time", Value::Int(START)),
            ("dst", Value::Ip(server)),
            ("dst_port", Value::Int(443)),
            ("version", Value::Text(b"TLS 1.3")),
            ("server_name", Value::Text(name)),
            ("latency_ns", Value::Int(700_000_000)),
            ("complete", Value::Int(1)),
        ],
    );
}

fn text(report: &RunReport) -> String {
    report.overview().expect("a module feeds it").text(utc)
}

#[test]
fn services_with_their_names_slow_ones_and_unreachable_ones_are_listed() {
    let mut report = RunReport::new();
    let mut flows = add_module(&mut report, "flows", manifest("flows"));
    let mut tls = add_module(&mut report, "tls", manifest("tls"));
    for last in [10, 11] {
        for _ in 0..6 {
            flow(&mut report, &mut flows, CLIENT, ([192, 0, 2, last], 443), "SF", 3_000);
            handshake(&mut report, &mut tls, [192, 0, 2, last], b"WWW.example");
        }
    }
    flow(&mut report, &mut flows, CLIENT, (SERVER, 22), "S1", 500);
    for _ in 0..30 {
        flow(&mut report, &mut flows, [198, 51, 100, 9], ([192, 0, 2, 99], 8_443), "S0", 60);
    }
    let digest = report.overview().unwrap();
    let services: Vec<_> = digest
        .services
        .rows
        .iter()
        .map(|row| {
            (
                row.name.as_deref(),
                row.addresses.len(),
                row.port.as_str(),
                row.protocol.as_str(),
                row.connections,
                row.bytes,
            )
        })
        .collect();
    assert_eq!(
        services,
        [
            (Some("www.example"), 2, "443/tcp", "TLS 1.3", 12, Some(36_000)),
            (None, 1, "22/tcp", "ssh", 1, Some(500)),
        ]
    );
    assert!(digest.slow.rows.iter().all(|row| row.is_slow && row.count == 6 && row.median_ns == 700_000_000));
    assert_eq!(digest.slow.rows.len(), 2);
    let problems: Vec<_> =
        digest.problems.rows.iter().map(|row| (row.service.as_str(), row.text.as_str())).collect();
    assert_eq!(
        problems,
        [("192.0.2.99, 8443/tcp", "30 of 30 connections failed: 30 without answer, 0 refused")]
    );
    let suspects: Vec<_> = digest.suspects.rows.iter().map(|row| row.reasons.join("; ")).collect();
    assert_eq!(
        suspects,
        ["failed in 30 of 30 connections: 30 without answer, 0 refused; many to 192.0.2.99"]
    );
    assert!(!digest.is_quiet());
    let shown = text(&report);
    for wanted in [
        "2025-03-10 09:46:40 to 09:46:40  LOW  198.51.100.9  failed in 30 of 30 connections",
        "www.example (192.0.2.10), 443/tcp  TLS answer      6  700 ms  700 ms   700 ms",
        "www.example  192.0.2.10 +1  443/tcp  TLS 1.3            12  35.2 KiB",
    ] {
        assert!(shown.contains(wanted), "{wanted}: {shown}");
    }
    let page = report.render(&CaptureInfo::default(), &[]);
    assert_sound(&page);
    let place = |what: &str| page.find(what).unwrap_or_else(|| panic!("{what}"));
    assert!(place("Suspicious hosts") < place("Reported by modules"));
    assert!(place("Reported by modules") < place("<section id=\"services\""));
    assert!(place("<section id=\"services\"") < place("figures-heading"));
}

#[test]
fn scans_floods_and_names_that_do_not_exist_name_their_hosts() {
    let mut report = RunReport::new();
    let [mut scan, mut floods, mut dns] =
        ["scan", "syn-flood", "dns"].map(|name| add_module(&mut report, name, manifest(name)));
    // Two rows of one scan: the last one counts.
    for (hosts, ended) in [(25, 0), (200, 1)] {
        let values = [
            ("first_time", Value::Int(START)),
            ("last_time", Value::Int(START + hosts * SECOND / 10)),
            ("src", Value::Ip(CLIENT)),
            ("dst_port", Value::Int(22)),
            ("protocol", Value::Int(6)),
            ("method", Value::Text(b"syn")),
            ("hosts", Value::Int(hosts)),
            ("ports", Value::Int(1)),
            ("services", Value::Int(hosts)),
            ("answered", Value::Int(3)),
            ("refused", Value::Int(120)),
            ("ended", Value::Int(ended)),
        ];
        scan.emit(&mut report, "scans", &values);
    }
    // A flood, and after it an interval in which the alarm lasts, with more closed connections than opened ones.
    for (n, syn, statistic) in [(0, 1_000, 9.0), (1, 2_000, 9.0), (2, 50, -0.5)] {
        let time = Value::Int(START + n * SECOND);
        let values = [
            ("time", time),
            ("syn_packets", Value::Int(syn)),
            ("statistic", Value::Float(statistic)),
            ("alarm", Value::Int(1)),
        ];
        floods.emit(&mut report, "intervals", &values);
        for (dst, syn) in [([192, 0, 2, 66], syn - 20), (SERVER, 20)] {
            let values = [("time", time), ("dst", Value::Ip(dst)), ("syn_packets", Value::Int(syn))];
            floods.emit(&mut report, "top", &values);
        }
    }
    for n in 0..40u64 {
        let name = format!("x{n}.example");
        let code: &[u8] = if n < 30 { b"NXDOMAIN" } else { b"NOERROR" };
        let values = [
            ("time", Value::Int(START + n * SECOND)),
            ("src", Value::Ip([198, 51, 100, 53])),
            ("dst", Value::Ip([192, 0, 2, 53])),
            ("dst_port", Value::Int(53)),
            ("transport", Value::Text(b"udp")),
            ("kind", Value::Text(b"dns")),
            ("name", Value::Text(name.as_bytes())),
            ("asked", Value::Int(1)),
            ("code", Value::Text(code)),
            ("latency_ns", Value::Int(2_000_000)),
        ];
        dns.emit(&mut report, "queries", &values);
    }
    let digest = report.overview().unwrap();
    let shown: Vec<_> = digest
        .suspects
        .rows
        .iter()
        .map(|row| (row.severity.name(), row.host.to_string(), row.reasons.join("; ")))
        .collect();
    let expected = [
        (
            "high",
            "::ffff:192.0.2.66",
            "was flooded with 2,960 SYN packets in 2 intervals, at most 1,980 in one",
        ),
        (
            "medium",
            "::ffff:198.51.100.7",
            "scanned about 200 hosts on TCP port 22 (TCP SYN): 3 answered, 120 refused",
        ),
        (
            "medium",
            "::ffff:198.51.100.53",
            "asked DNS for names that do not exist in 30 of 40 queries, such as x0.example",
        ),
    ];
    let expected: Vec<_> = expected
        .iter()
        .map(|(severity, host, text)| (*severity, (*host).to_owned(), (*text).to_owned()))
        .collect();
    assert_eq!(shown, expected);
    assert_eq!(digest.suspects.rows[1].last.0, START + 20 * SECOND);
}

#[test]
fn a_run_without_anything_suspicious_says_so() {
    let mut report = RunReport::new();
    let mut flows = add_module(&mut report, "flows", manifest("flows"));
    let mut talkers = add_module(&mut report, "talkers", manifest("talkers"));
    flow(&mut report, &mut flows, CLIENT, (SERVER, 80), "SF", 3_000);
    talkers.emit(&mut report, "findings", &finding(START, 1, "a note", "tcp", "top"));
    assert!(report.overview().unwrap().is_quiet());
    assert!(text(&report).starts_with("nothing suspicious: "), "{}", text(&report));
    let page = report.render(&CaptureInfo::default(), &[]);
    assert!(page.contains("Nothing suspicious.") && !page.contains("Suspicious hosts"));
    // A finding to act on ends the quiet, and modules that feed no overview have none.
    talkers.emit(&mut report, "findings", &finding(START, 2, "a finding", "tcp", "top"));
    assert!(!report.overview().unwrap().is_quiet() && !text(&report).contains("nothing suspicious"));
    let mut report = RunReport::without_page();
    add_module(&mut report, "rtt", manifest("rtt"));
    assert!(report.overview().is_none() && !report.has_page());
}

/// Names with markup, control characters, characters that turn the direction, and of any length.
#[test]
fn hostile_names_are_harmless_and_the_overview_is_bounded() {
    let before = resident();
    let mut report = RunReport::new();
    let [mut flows, mut tls, mut http, mut dns] =
        ["flows", "tls", "http", "dns"].map(|name| add_module(&mut report, name, manifest(name)));
    for n in 0..40_000u32 {
        let [_, b, c, d] = n.to_be_bytes();
        let server = [10, b, c, d];
        let mut name = format!("\u{1b}[2J\u{202e}{HOSTILE}{n}\r\n").into_bytes();
        name.extend([0, 0xff, 0xc3]);
        name.resize(if n % 2 == 0 { name.len() } else { 5_000 }, b'x');
        flow(&mut report, &mut flows, server, (server, 443), "SF", u64::from(n) + 100_000);
        flow(&mut report, &mut flows, [10, 99, 0, 1], (server, 80), "S0", 60);
        for _ in 0..2 {
            handshake(&mut report, &mut tls, server, &name);
        }
        let values = [
            ("time", Value::Int(START)),
            ("dst", Value::Ip(server)),
            ("dst_port", Value::Int(443)),
            ("host", Value::Text(&name)),
            ("status", Value::Int(500)),
        ];
        http.emit(&mut report, "requests", &values);
        let values = [
            ("time", Value::Int(START)),
            ("src", Value::Ip([10, 99, 0, 2])),
            ("dst", Value::Ip(server)),
            ("dst_port", Value::Int(53)),
            ("transport", Value::Text(b"udp")),
            ("kind", Value::Text(b"dns")),
            ("name", Value::Text(&name)),
            ("asked", Value::Int(1)),
            ("code", Value::Text(b"NXDOMAIN")),
            ("answers", Value::Text(&name)),
        ];
        dns.emit(&mut report, "queries", &values);
    }
    // The names alone have 300 MiB. The limit leaves room for other tests in this process.
    let used = resident().saturating_sub(before);
    assert!(used < 64 << 10, "{used} KiB");
    let shown = text(&report);
    assert!(shown.contains(r"\u{1b}[2j\u{202e}") && shown.len() < 20_000, "{} {shown}", shown.len());
    assert!(shown.chars().all(|c| c == '\n' || weir_admission::is_plain(c)), "{shown:?}");
    assert!(shown.lines().all(|line| line.chars().count() < 1_000), "{shown}");
    assert!(shown.contains("other services") && shown.contains("such as "), "{shown}");
    let page = report.render(&CaptureInfo::default(), &[]);
    assert!(page.len() < 512 << 10, "{} bytes", page.len());
    assert_harmless(&page);
    assert!(elements(&page).iter().any(|element| element.text.contains("such as ")));
    // Records that end early or have other values are no rows.
    let digest = report.overview().unwrap();
    assert!(digest.services.rows.len() == 20 && digest.services.others > 100, "{}", digest.services.others);
    assert_eq!(digest.suspects.rows.len(), 2, "{:?}", digest.suspects);
}
