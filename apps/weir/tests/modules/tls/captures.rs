//! The module `tls` on all traces, compared with tshark.

use super::super::weir::run_file;
use super::{Row, module, text};
use crate::run::traces;
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The fields of tshark. Several values of a field are separated by `|`.
const FIELDS: [&str; 16] = [
    "tcp.stream",
    "tcp.srcport",
    "ip.src",
    "ipv6.src",
    "ip.dst",
    "ipv6.dst",
    "tcp.dstport",
    "tls.handshake.type",
    "tls.handshake.version",
    "tls.handshake.extensions.supported_version",
    "tls.handshake.ciphersuite",
    "tls.handshake.extensions_server_name",
    "tls.handshake.extensions_alpn_str",
    "tls.alert_message.desc",
    "x509af.utcTime",
    "tls.record.content_type",
];

/// A handshake as tshark has it.
#[derive(Debug, Default)]
struct Handshake {
    client: String,
    server: String,
    has_client_hello: bool,
    has_server_hello: bool,
    server_name: String,
    alpn_offered: String,
    alpn: String,
    version: String,
    cipher: String,
    alerts: Vec<String>,
    has_certificate: bool,
}

/// The paths of the traces to compare, malformed ones or others.
fn traces(is_malformed: bool) -> Vec<PathBuf> {
    let traces = traces::compared().into_iter().filter(|trace| trace.is_damaged() == is_malformed);
    traces.map(|trace| trace.path).collect()
}

/// Returns the handshakes of a capture by stream; `None` without tshark.
fn tshark(path: &Path) -> Option<BTreeMap<u32, Handshake>> {
    let output = Command::new("tshark")
        .args(["-n", "-Y", "tcp && tls", "-T", "fields", "-E", "aggregator=|", "-r"])
        .arg(path)
        .args(FIELDS.iter().flat_map(|field| ["-e", field]))
        .output();
    let output = output.ok()?;
    let mut handshakes = BTreeMap::<u32, Handshake>::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let columns: Vec<Vec<&str>> = line
            .split('\t')
            .map(|column| column.split('|').filter(|value| !value.is_empty()).collect())
            .collect();
        let column = |field: &str| &columns[FIELDS.iter().position(|name| *name == field).unwrap()];
        let last = |field: &str| column(field).last().copied().unwrap_or_default();
        // Of tunnels, the innermost layer. Shared traces with both versions of IP have IPv6 in IPv4.
        let end = |address: [&str; 2], port: &str| {
            let address =
                column(address[1]).last().or(column(address[0]).last()).copied().unwrap_or_default();
            format!("{address} {}", last(port))
        };
        let (from, to) =
            (end(["ip.src", "ipv6.src"], "tcp.srcport"), end(["ip.dst", "ipv6.dst"], "tcp.dstport"));
        let Ok(stream) = column("tcp.stream").first().unwrap_or(&"").parse() else { continue };
        let h = handshakes.entry(stream).or_default();
        let types = column("tls.handshake.type");
        if types.contains(&"1") && !h.has_client_hello {
            h.has_client_hello = true;
            (h.client, h.server) = (from, to);
            h.server_name =
                column("tls.handshake.extensions_server_name").first().unwrap_or(&"-").to_string();
            h.alpn_offered = match column("tls.handshake.extensions_alpn_str") {
                names if names.is_empty() => "-".to_owned(),
                names => names.join(","),
            };
        } else if types.contains(&"2") && !h.has_server_hello {
            h.has_server_hello = true;
            let chosen = column("tls.handshake.extensions.supported_version");
            h.version = chosen.first().or(column("tls.handshake.version").first()).unwrap_or(&"").to_string();
            h.cipher = last("tls.handshake.ciphersuite").to_owned();
            h.alpn = column("tls.handshake.extensions_alpn_str").first().unwrap_or(&"-").to_string();
            h.has_certificate = types.contains(&"11");
        }
        h.alerts.extend(column("tls.alert_message.desc").iter().map(|alert| alert.to_string()));
    }
    handshakes.retain(|_, handshake| handshake.has_client_hello);
    Some(handshakes)
}

/// The name of a version that tshark has as a number.
fn version(number: &str) -> String {
    let number = u16::from_str_radix(number.trim_start_matches("0x"), 16).unwrap();
    match number {
        0x0300 => "SSL 3.0".to_owned(),
        0x0301..=0x0304 => format!("TLS 1.{}", number - 0x0301),
        0x7F00.. => format!("TLS 1.3 draft {}", number & 0xFF),
        _ => format!("{number:#06x}"),
    }
}

/// Names of cipher suites by number, as tshark has them.
fn cipher_names() -> HashMap<u16, String> {
    let output = Command::new("tshark").args(["-G", "values"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let suite = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        (fields.len() >= 4 && fields[..2] == ["V", "tls.handshake.ciphersuite"])
            .then(|| (fields[2].parse().unwrap_or(0), fields[3].to_owned()))
    };
    // Some numbers stand twice; the first name counts.
    let mut names = HashMap::new();
    text.lines().filter_map(suite).for_each(|(number, name): (u16, String)| {
        names.entry(number).or_insert(name);
    });
    names
}

/// Returns what differs between a row and tshark's handshake.
fn differences(row: &Row, theirs: &Handshake, names: &HashMap<u16, String>) -> Vec<String> {
    let mut found = Vec::new();
    let mut compare = |field: &str, expected: &str| {
        if text(row, field) != expected {
            found.push(format!("{field}: {}, tshark has {expected}", text(row, field)));
        }
    };
    compare("server_name", &theirs.server_name);
    compare("alpn_offered", &theirs.alpn_offered);
    if theirs.has_server_hello {
        let number = u16::from_str_radix(theirs.cipher.trim_start_matches("0x"), 16).unwrap();
        compare("cipher", &names[&number]);
        compare("version", &version(&theirs.version));
        compare("alpn", &theirs.alpn);
    }
    if theirs.has_certificate && row.flag("complete") && row.is_null("subject") {
        found.push("no certificate".into());
    }
    // Rows have alerts of the handshake, tshark those of the whole connection.
    if !row.flag("complete")
        && theirs.alerts.is_empty() != row.is_null("alert")
        && text(row, "alert") != "encrypted"
    {
        found.push(format!("alert: {}, tshark has {:?}", text(row, "alert"), theirs.alerts));
    }
    found
}

fn key(row: &Row) -> (String, String) {
    let end = |name: &str| format!("{} {}", row.text(name), row.number(&format!("{name}_port")));
    (end("src"), end("dst"))
}

#[test]
fn rows_of_traces_equal_tsharks() {
    let paths = traces(false);
    if paths.is_empty() || Command::new("tshark").arg("--version").output().is_err() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: there are no traces, or tshark is not installed");
        return;
    }
    let names = cipher_names();
    let (mut equal, mut only_ours, mut only_theirs) = (0, 0, 0);
    for path in paths {
        let Some(theirs) = tshark(&path) else { continue };
        let rows = run_file(&path, &["-m", &module("")]).rows("tls", "handshakes");
        let mut ours: HashMap<(String, String), Vec<Row>> = HashMap::new();
        rows.into_iter()
            .filter(|row| !row.is_null("offered_version"))
            .for_each(|row| ours.entry(key(&row)).or_default().push(row));
        for handshake in theirs.values() {
            let place = (handshake.client.clone(), handshake.server.clone());
            let Some(candidates) = ours.get_mut(&place).filter(|rows| !rows.is_empty()) else {
                only_theirs += 1;
                let _ = writeln!(std::io::stderr(), "{}: only tshark has {handshake:?}", path.display());
                continue;
            };
            let row = candidates.remove(0);
            assert_eq!(
                differences(&row, handshake, &names),
                [] as [String; 0],
                "{}: {row:?}",
                path.display()
            );
            equal += 1;
        }
        // tshark looks for TLS at known ports only: not at 8443, and at 8080 it sees HTTP.
        for row in ours.values().flatten() {
            assert_ne!(row.number("dst_port"), 443, "{}: only weir has {row:?}", path.display());
            only_ours += 1;
        }
    }
    let _ = writeln!(
        std::io::stderr(),
        "{equal} handshakes as tshark has them, {only_ours} at other ports, {only_theirs} only tshark's"
    );
    assert!(equal > if traces::are_all() { 800 } else { 50 }, "{equal}");
    assert!(only_ours <= 12 && only_theirs == 0, "{only_ours} only ours, {only_theirs} only tshark's");
}

#[test]
fn malformed_traces_without_tls_cause_neither_faults_nor_rows() {
    for path in traces(true) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR")).args([
            "run",
            "--json",
            "-m",
            &module(""),
            "-r",
        ]);
        let output = command.arg(&path).output().unwrap();
        let Ok(summary) = serde_json::from_slice::<serde_json::Value>(&output.stdout) else {
            continue; // a link type that weir does not read
        };
        let module = &summary["modules"][0];
        assert_eq!(
            (&module["faults"], &module["records"]),
            (&0.into(), &0.into()),
            "{}: {module}",
            path.display()
        );
    }
}

/// Seconds since 1970 of "2013-09-15 21:51:10Z", which is in this or the last century.
fn seconds(text: &str) -> i128 {
    let number = |at: usize, len: usize| text[at..at + len].parse::<i128>().unwrap();
    let (year, month, day) = (number(0, 4), number(5, 2), number(8, 2));
    let is_leap = |year: i128| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days_of = |month: i128| match month {
        2 => 28 + i128::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let years: i128 = (1970..year).map(|year| 365 + i128::from(is_leap(year))).sum();
    let days = years + (1..month).map(days_of).sum::<i128>() + day - 1;
    ((days * 24 + number(11, 2)) * 60 + number(14, 2)) * 60 + number(17, 2)
}

/// Subject, issuer and dates of a certificate, as openssl has them.
fn openssl(der: &[u8]) -> [String; 4] {
    let mut child = Command::new("openssl")
        .args(["x509", "-inform", "der", "-noout", "-subject", "-issuer", "-dates", "-dateopt", "iso_8601"])
        .args(["-nameopt", "esc_2253,utf8,sep_comma_plus,dn_rev,sname"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(der).unwrap();
    let text = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    let line = |key: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(key).map(str::to_owned))
            .unwrap_or_else(|| panic!("{text}"))
    };
    [line("subject="), line("issuer="), line("notBefore="), line("notAfter=")]
}

#[test]
fn certificates_of_traces_equal_openssls() {
    if ["tshark", "openssl"].iter().any(|tool| Command::new(tool).arg("version").output().is_err()) {
        let _ = writeln!(std::io::stderr(), "SKIPPED: tshark or openssl is not installed");
        return;
    }
    let mut known = HashMap::<String, [String; 4]>::new();
    let mut equal = 0;
    for path in traces(false) {
        let fields = ["tls.handshake.certificate", "tcp.srcport", "tcp.dstport", "ip.dst", "ipv6.dst"];
        let output = Command::new("tshark")
            .args([
                "-n",
                "-Y",
                "tcp && tls.handshake.certificate",
                "-T",
                "fields",
                "-E",
                "occurrence=f",
                "-r",
            ])
            .arg(&path)
            .args(fields.iter().flat_map(|field| ["-e", field]))
            .output()
            .unwrap();
        // The first certificate that a client got from a server's port.
        let mut theirs = HashMap::<(String, i128), [String; 4]>::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let columns: Vec<&str> = line.split('\t').collect();
            let hex: String = columns[0].chars().filter(|digit| *digit != ':').collect();
            let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
            let der: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
            let parts = known.entry(hex.clone()).or_insert_with(|| openssl(&der)).clone();
            let client = if columns[4].is_empty() { columns[3] } else { columns[4] };
            let key = (format!("{client} {}", columns[2]), columns[1].parse().unwrap());
            theirs.entry(key).or_insert(parts);
        }
        for row in run_file(&path, &["-m", &module("")]).rows("tls", "handshakes") {
            let Some(parts) =
                theirs.get(&(key(&row).0, row.number("dst_port"))).filter(|_| !row.is_null("subject"))
            else {
                continue;
            };
            assert_eq!(
                [text(&row, "subject"), text(&row, "issuer")],
                [&parts[0], &parts[1]],
                "{}",
                path.display()
            );
            let times = ["not_before_time", "not_after_time"].map(|field| row.number(field) / 1_000_000_000);
            assert_eq!(times, [seconds(&parts[2]), seconds(&parts[3])], "{}: {}", path.display(), parts[0]);
            equal += 1;
        }
    }
    let _ = writeln!(std::io::stderr(), "{equal} rows with {} certificates as openssl has them", known.len());
    assert!(equal > 300 || !traces::are_all(), "{equal}");
}
