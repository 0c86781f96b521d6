//! Module dns on the shared traces, compared with the fields that tshark prints.

use super::super::capture::sample;
use super::super::weir::{Row, run_file};
use super::module;
use crate::run::traces;
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A message as tshark has it.
#[derive(Debug)]
struct Seen {
    frame: String,
    name: String,
    ty: String,
    code: String,
    answers: String,
    addresses: Vec<String>,
    /// tshark's time from the query to this answer, in ns.
    latency: Option<i128>,
    is_malformed: bool,
    opcode: String,
    protocols: String,
}

/// Time in ns, identifier, true for an answer, sender and receiver.
type Key = (i128, i128, bool, String, String);

const FIELDS: [&str; 21] = [
    "frame.number",
    "frame.time_epoch",
    "ip.src",
    "ip.dst",
    "ipv6.src",
    "ipv6.dst",
    "udp.srcport",
    "udp.dstport",
    "dns.id",
    "dns.flags.response",
    "dns.qry.name",
    "dns.qry.type",
    "dns.flags.rcode",
    "dns.count.answers",
    "dns.a",
    "dns.aaaa",
    "dns.time",
    "_ws.malformed",
    "frame.protocols",
    "dns.resp.type",
    "dns.flags.opcode",
];

fn nanoseconds(seconds: &str) -> i128 {
    let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    whole.parse::<i128>().unwrap() * 1_000_000_000 + digits.parse::<i128>().unwrap()
}

/// tshark's messages over UDP. Fragments are not put together, as the module does not.
fn tshark(path: &Path) -> Option<Vec<(Key, Seen)>> {
    let output = Command::new("tshark")
        .args(["-n", "-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE"])
        .args([
            "-Y",
            "udp && (dns || mdns || llmnr)",
            "-T",
            "fields",
            "-E",
            "occurrence=a",
            "-E",
            "aggregator=|",
        ])
        .args(FIELDS.iter().flat_map(|field| ["-e", field]))
        .arg("-r")
        .arg(path)
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let message = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        let field = |name: &str| fields[FIELDS.iter().position(|field| *field == name).unwrap()];
        let first = |name: &str| field(name).split('|').next().unwrap_or_default().to_owned();
        let last = |name: &str| field(name).split('|').next_back().unwrap_or_default().to_owned();
        let is_v4 = field("frame.protocols").rfind("ip:udp") > field("frame.protocols").rfind("ipv6:udp");
        let end = |side: &str| {
            let address = last(&if is_v4 { format!("ip.{side}") } else { format!("ipv6.{side}") });
            let port = last(&format!("udp.{side}port"));
            if is_v4 { format!("{address}:{port}") } else { format!("[{address}]:{port}") }
        };
        let id = i128::from_str_radix(first("dns.id").trim_start_matches("0x"), 16).ok()?;
        let is_answer = ["1", "True"].contains(&first("dns.flags.response").as_str());
        let key = (nanoseconds(field("frame.time_epoch")), id, is_answer, end("src"), end("dst"));
        let addresses = field("dns.a").split('|').chain(field("dns.aaaa").split('|'));
        let seen = Seen {
            frame: first("frame.number"),
            name: first("dns.qry.name"),
            ty: first("dns.qry.type"),
            code: first("dns.flags.rcode"),
            answers: first("dns.count.answers"),
            addresses: addresses.filter(|text| !text.is_empty()).map(str::to_owned).collect(),
            latency: (!field("dns.time").is_empty()).then(|| nanoseconds(&first("dns.time"))),
            is_malformed: !field("_ws.malformed").is_empty(),
            opcode: first("dns.flags.opcode"),
            protocols: field("frame.protocols").to_owned(),
        };
        Some((key, seen))
    };
    Some(text.lines().filter_map(message).collect())
}

/// The messages that a row stands for: the first packet of the query, and the answer.
fn messages(row: &Row) -> Vec<Key> {
    let (time, id) = (row.number("time"), row.number("id"));
    let (client, server) = (row.end("src"), row.end("dst"));
    let mut keys = Vec::new();
    if row.number("query_packets") > 0 {
        keys.push((time, id, false, client.clone(), server.clone()));
    }
    if row.flag("answered") {
        keys.push((time + row.optional_number("latency_ns").unwrap_or(0), id, true, server, client));
    }
    keys
}

/// Counts kinds of differences, and panics at one without a reason.
#[derive(Default)]
struct Differences(BTreeMap<&'static str, usize>);

impl Differences {
    fn add(&mut self, reason: &'static str) {
        *self.0.entry(reason).or_default() += 1;
    }
}

const CODES: [&str; 6] = ["NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED"];

/// The ASCII letters and digits of a name, without its escaped bytes and its cut end.
fn letters(name: &str) -> String {
    let mut text = String::new();
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        let is_escaped_byte = c == '\\' && rest.len() >= 4 && rest.as_bytes()[1].is_ascii_digit();
        let len = if is_escaped_byte { 4 } else { c.len_utf8() };
        if !is_escaped_byte && c.is_ascii_alphanumeric() {
            text.push(c);
        }
        rest = &rest[len..];
    }
    text
}

/// Compares a row with tshark's message.
fn compare(row: &Row, key: &Key, seen: &Seen, differences: &mut Differences) {
    let place = || format!("frame {}: {seen:?}, {row:?}", seen.frame);
    if !row.is_null("name") {
        let name = row.text("name");
        let is_plain = !name.contains('\\') && seen.name.chars().all(|c| c.is_ascii_graphic());
        if seen.name.is_empty() && row.number("questions") == 0 {
            differences.add("an answer without questions has the name of its first record");
        } else if !is_plain {
            differences.add("tshark prints bytes of names that are no ASCII letters in another way");
            assert_eq!(letters(name), letters(&seen.name), "{}", place());
        } else if name.eq_ignore_ascii_case(&seen.name) || (name == "." && seen.name == "<Root>") {
            let ty: Option<u16> = seen.ty.parse().ok();
            let ours = row.text("type");
            let theirs = match ty.unwrap() {
                1 => "A",
                2 => "NS",
                5 => "CNAME",
                6 => "SOA",
                10 => "NULL",
                12 => "PTR",
                15 => "MX",
                16 => "TXT",
                28 => "AAAA",
                33 => "SRV",
                46 => "RRSIG",
                48 => "DNSKEY",
                64 => "SVCB",
                65 => "HTTPS",
                255 => "ANY",
                256 => "URI",
                _ => ours,
            };
            assert_eq!(ours, theirs, "{}", place());
        } else {
            panic!("{}", place());
        }
    }
    if !key.2 {
        return;
    }
    if let Some(code) = seen.code.parse::<usize>().ok().and_then(|code| CODES.get(code)) {
        assert_eq!(row.text("code"), *code, "{}", place());
    }
    assert_eq!(row.number("answer_count").to_string(), seen.answers, "{}", place());
    for answer in row.text("answers").split("; ") {
        if let Some(address) = answer.strip_prefix("A ").or_else(|| answer.strip_prefix("AAAA ")) {
            assert!(seen.addresses.iter().any(|seen| seen == address), "{address}: {}", place());
        }
    }
    match (row.optional_number("latency_ns"), seen.latency) {
        (Some(ours), Some(theirs)) if ours == theirs => {}
        (None, None) => {}
        (Some(_), Some(_)) if row.number("query_packets") > 1 => {
            differences.add("tshark takes the time from another packet of a repeated query");
        }
        (None, Some(_)) if row.flag("asked") => differences.add("a repeated answer has no latency"),
        (None, Some(_)) if row.text("kind") != "dns" => {
            differences.add("tshark joins mDNS messages, whose identifiers are all 0");
        }
        (None, Some(theirs)) if theirs > 5_000_000_000 => {
            differences.add("the answer came after the timeout")
        }
        (Some(_), None) if seen.is_malformed => differences.add("tshark stops at a damaged record"),
        (None, Some(_)) | (Some(_), None) => panic!("{}", place()),
        (Some(_), Some(_)) => panic!("{}", place()),
    }
}

/// The sample, and the traces in a format that tshark reads.
fn captures() -> Vec<PathBuf> {
    let paths = traces::compared().into_iter().map(|trace| trace.path);
    let has_format =
        |path: &PathBuf| path.extension().is_some_and(|end| end == "pcap" || end == "pcapng" || end == "cap");
    std::iter::once(sample()).chain(paths.filter(has_format)).collect()
}

/// True if a file may have DNS: the bytes of one of the ports are in it.
fn may_have_dns(path: &Path) -> bool {
    let bytes = std::fs::read(path).unwrap();
    bytes.windows(2).any(|pair| [[0, 53], [20, 233], [20, 235]].iter().any(|port| pair == port))
}

fn can_be_read(path: &Path) -> bool {
    let run =
        Command::new(env!("CARGO_BIN_EXE_weir")).args(["run", "--json", "-r"]).arg(path).output().unwrap();
    run.status.success()
}

#[test]
fn rows_of_traces_equal_tsharks_fields() {
    let (mut differences, mut compared, mut rows_seen) = (Differences::default(), 0, 0);
    for path in captures().into_iter().filter(|path| may_have_dns(path)) {
        let Some(theirs) = tshark(&path) else {
            let _ = writeln!(std::io::stderr(), "SKIPPED: tshark is not installed");
            return;
        };
        if theirs.is_empty() || !can_be_read(&path) {
            continue;
        }
        let rows = run_file(&path, &["-m", &module("")]).rows("dns", "queries");
        rows_seen += rows.len();
        let mut open: HashMap<Key, Vec<Seen>> = HashMap::new();
        for (key, seen) in theirs {
            open.entry(key).or_default().push(seen);
        }
        let mut repeated = 0;
        for row in &rows {
            repeated += (row.number("query_packets") - 1).max(0);
            if row.text("transport") == "tcp" {
                continue;
            }
            for key in messages(row) {
                match open.get_mut(&key).and_then(Vec::pop) {
                    Some(seen) => {
                        compare(row, &key, &seen, &mut differences);
                        compared += 1;
                    }
                    None => panic!("{}: tshark has no message {key:?}", path.display()),
                }
            }
        }
        for (key, seen) in open.iter().flat_map(|(key, seen)| seen.iter().map(move |seen| (key, seen))) {
            let is_quoted = seen.protocols.contains("icmp");
            let is_listed = [&key.3, &key.4]
                .iter()
                .any(|end| [":53", ":5353", ":5355"].iter().any(|port| end.ends_with(port)));
            if is_quoted {
                differences.add("a message that an ICMP error quotes");
            } else if !is_listed {
                differences.add("another port than those of the parameter");
            } else if !key.2 && repeated > 0 {
                repeated -= 1;
                differences.add("a repeated query has no row of its own");
            } else if seen.protocols.starts_with("ip:ipv6") {
                differences.add("an IPv6 packet in a capture whose link type is IPv4");
            } else if !["0", "1", "2", "4", "5", "6"].contains(&seen.opcode.as_str()) {
                differences.add("an opcode that is not assigned");
            } else if seen.is_malformed
                || seen.name.is_empty()
                || seen.name.contains("<Unknown extended label>")
            {
                differences.add("the header or the first question is damaged or cut");
            } else {
                panic!("{}: no row for {key:?}, {seen:?}", path.display());
            }
        }
        assert_eq!(repeated, 0, "{}: repeated queries that tshark has not", path.display());
    }
    let _ = writeln!(
        std::io::stderr(),
        "{rows_seen} rows, {compared} messages as tshark has them; differences: {:#?}",
        differences.0
    );
    assert!(compared > 20, "{compared}");
}
