//! The module `http` on real captures, where the oracle is tshark.

#![allow(clippy::type_complexity, reason = "small numbers of generated packets")]

use super::super::capture::{sample, samples, trace};
use super::super::weir::run_file;
use super::{findings, module};
use crate::run::traces;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::Command;

#[test]
fn rows_are_the_same_for_any_number_of_threads() {
    let traces = ["attack/web-rce-scan.pcap", "encap/erspan.pcap", "encap/teredo.pcap"];
    for path in samples().into_iter().chain(traces.iter().filter_map(|name| trace(name))) {
        for parameters in ["", ",streams=512,requests=2048"] {
            let files = |jobs| run_file(&path, &["-m", &module(parameters), "-j", jobs]).files();
            let one = files("1");
            assert!(files("2") == one && files("3") == one, "{}", path.display());
        }
    }
}

#[test]
fn attacks_in_real_captures_are_findings() {
    let found = |name: &str| trace(name).map(|path| findings(&run_file(&path, &["-m", &module("")])));
    if let Some(found) = found("attack/web-rce-scan.pcap") {
        assert!(
            (1..=64).contains(&found.len()) && found.iter().all(|(severity, _)| *severity == 3),
            "{found:?}"
        );
    }
    if let Some(found) = found("attack/log4j-exploit-sll.pcap") {
        assert!(found.iter().any(|(_, text)| text.contains("with \"jndi:ldap:\"")), "{found:?}");
    }
}

/// The requests and final responses that tshark shows of a capture, by the ports of client and server.
#[derive(Default)]
struct Oracle {
    requests: BTreeMap<String, i64>,
    responses: BTreeMap<String, i64>,
    /// Ports of connections in which tshark misses segments or sees them out of order.
    disturbed: BTreeSet<String>,
}

fn tshark(path: &Path, filter: &str, fields: &[&str]) -> Vec<Vec<String>> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-Y", filter, "-T", "fields", "-E", "aggregator=\u{1}", "-r"]).arg(path);
    command.args(fields.iter().flat_map(|field| ["-e", field]));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

fn oracle(path: &Path) -> Oracle {
    let mut oracle = Oracle::default();
    let fields =
        ["tcp.srcport", "tcp.dstport", "http.request.method", "http.request.uri", "http.response.code"];
    let last = |field: &str| field.split('\u{1}').next_back().unwrap().to_owned();
    for row in tshark(path, "http && tcp", &fields) {
        let [from, to, methods, targets, codes] = row.as_slice() else { panic!("{row:?}") };
        let (from, to) = (last(from), last(to));
        let mut targets = targets.split('\u{1}');
        for method in methods.split('\u{1}').filter(|method| !method.is_empty()) {
            let key = format!("{from} {to} {method} {}", targets.next().unwrap_or(""));
            *oracle.requests.entry(key).or_default() += 1;
        }
        for code in
            codes.split('\u{1}').filter(|code| !code.is_empty() && (!code.starts_with('1') || *code == "101"))
        {
            *oracle.responses.entry(format!("{to} {from} {code}")).or_default() += 1;
        }
    }
    if oracle.requests.is_empty() && oracle.responses.is_empty() {
        return oracle;
    }
    let disturbed = "tcp.analysis.lost_segment || tcp.analysis.ack_lost_segment || tcp.analysis.out_of_order || tcp.analysis.retransmission";
    for row in tshark(path, disturbed, &["tcp.srcport", "tcp.dstport"]) {
        let (from, to) = (last(&row[0]), last(&row[1]));
        oracle.disturbed.extend([format!("{from} {to}"), format!("{to} {from}")]);
    }
    oracle
}

/// The differences to tshark that are known, by trace: requests that are missing and more, responses that are missing and
/// unexplained, and the reason.
const DIFFERENCES: [(&str, [usize; 4], &str); 10] = [
    (
        "composite-mixed-a.pcap",
        [4, 3, 3, 0],
        "3 requests in AYIYA, a tunnel that weir does not parse; a target with spaces; a connection and a segment that tshark takes for a retransmission",
    ),
    ("sample.pcap", [0, 0, 0, 0], ""),
    (
        "dns-amplification-fragmented.pcap",
        [0, 1, 0, 0],
        "a segment below the first sequence number, which tshark takes for a retransmission",
    ),
    ("web-rce-scan.pcap", [1, 1, 0, 0], "a target with spaces, which tshark cuts"),
    ("gre-aruba.pcap", [52, 0, 0, 0], "IEEE 802.11 in GRE, which weir does not parse"),
    ("http-request-invalid.pcap", [0, 0, 2, 0], "responses to bytes that are no request"),
    (
        "fuzz-2006-09-29-28586.pcap",
        [0, 3, 1, 0],
        "damaged headers: requests of which tshark shows no end, and a sequence number far away",
    ),
    ("AH-IPcomp-IPv4.pcap", [1, 0, 1, 0], "IPComp, which weir does not parse"),
    ("AH-IPcomp-IPv6.pcap", [1, 0, 1, 0], "IPComp, which weir does not parse"),
    ("http-bad-request-with-version.pcap", [0, 0, 1, 0], "the response to bytes that are no request"),
];

fn differences(ours: &BTreeMap<String, i64>, theirs: &BTreeMap<String, i64>) -> (Vec<String>, Vec<String>) {
    let beyond = |a: &BTreeMap<String, i64>, b: &BTreeMap<String, i64>| {
        let more = a.iter().map(|(key, count)| (key, count - b.get(key).unwrap_or(&0)));
        more.flat_map(|(key, more)| std::iter::repeat_n(key.clone(), usize::try_from(more).unwrap_or(0)))
            .collect()
    };
    (beyond(theirs, ours), beyond(ours, theirs))
}

/// The rows of a capture: requests, responses, and the responses of which the end is missing, which tshark need not show: it
/// shows a response in the packet that completes it. `None` if weir does not read the capture, such as one of another link type.
fn ours(path: &Path) -> Option<(BTreeMap<String, i64>, BTreeMap<String, i64>, BTreeSet<String>)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    let output =
        command.args(["run", "--format", "json", "-m", &module(""), "-r"]).arg(path).output().unwrap();
    if !output.status.success() {
        return None;
    }
    let (mut requests, mut responses, mut incomplete) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
    for line in output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let row: Value = serde_json::from_slice(line).unwrap();
        if row["stream"] != "requests" {
            continue;
        }
        let ports = format!("{} {}", row["src_port"], row["dst_port"]);
        if let (Some(method), Some(path)) = (row["method"].as_str(), row["path"].as_str()) {
            *requests.entry(format!("{ports} {method} {path}")).or_default() += 1;
        }
        if let Some(status) = row["status"].as_u64() {
            let key = format!("{ports} {status}");
            if row["response_complete"] != true {
                incomplete.insert(key.clone());
            }
            *responses.entry(key).or_default() += 1;
        }
    }
    Some((requests, responses, incomplete))
}

#[test]
fn rows_of_traces_equal_tsharks_but_for_known_differences() {
    if Command::new("tshark").arg("--version").output().is_err() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: tshark is not installed");
        return;
    }
    // A damaged capture without TCP has nothing to compare.
    let traces = traces::compared().into_iter().filter(|trace| !trace.is_damaged() || trace.may_have_tcp());
    let paths: Vec<_> = std::iter::once(sample()).chain(traces.map(|trace| trace.path)).collect();
    let (mut requests, mut responses, mut late) = (0, 0, 0);
    for path in &paths {
        let Some((our_requests, our_responses, incomplete)) = ours(path) else { continue };
        let theirs = oracle(path);
        let (missing, more) = differences(&our_requests, &theirs.requests);
        let (missing_responses, more_responses) = differences(&our_responses, &theirs.responses);
        let ports = |key: &String| key.rsplit_once(' ').unwrap().0.to_owned();
        let unexplained: Vec<&String> = more_responses
            .iter()
            .filter(|key| !incomplete.contains(*key) && !theirs.disturbed.contains(&ports(key)))
            .collect();
        let name = path.file_name().unwrap().to_str().unwrap();
        let known =
            DIFFERENCES.iter().find(|(known, ..)| *known == name).map_or([0; 4], |(_, counts, _)| *counts);
        let counts = [missing.len(), more.len(), missing_responses.len(), unexplained.len()];
        assert_eq!(counts, known, "{name}: {missing:?} {more:?} {missing_responses:?} {unexplained:?}");
        requests += our_requests.values().sum::<i64>();
        responses += our_responses.values().sum::<i64>();
        late += more_responses.len();
    }
    let _ = writeln!(
        std::io::stderr(),
        "{} captures: {requests} requests and {responses} responses compared; tshark shows {late} responses less, whose end it does not see",
        paths.len()
    );
}
