//! The module `flows` on real captures, compared with tshark, with nfpcapd and nfdump, and with the module rtt.

use super::{module, say};
use crate::modules::capture::samples;
use crate::modules::weir::{Row, run_file};
use crate::run::traces::{self, Trace};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Command;

#[test]
fn times_of_handshakes_are_those_of_the_module_rtt() {
    for path in samples() {
        let count = |module: &str, rows: Vec<Row>| {
            let mut counts: BTreeMap<(String, String, i128, Option<i128>, String), usize> = BTreeMap::new();
            for row in rows.iter().filter(|row| !row.is_null("rtt_ns") && !row.is_null("community_id")) {
                let times = (row.number("rtt_ns"), row.optional_number("server_rtt_ns"));
                *counts
                    .entry((
                        row.end("src"),
                        row.end("dst"),
                        times.0,
                        times.1,
                        row.text("community_id").to_owned(),
                    ))
                    .or_default() += 1;
            }
            say(&format!("{}: {} handshakes of {module}", path.display(), counts.values().sum::<usize>()));
            counts
        };
        let theirs =
            count("rtt", run_file(&path, &["-m", "rtt,table-size=1048576,layer=outer"]).rows("rtt", "rtts"));
        let ours = count(
            "flows",
            run_file(&path, &["-m", &module(",active=0s,layer=outer")]).rows("flows", "closed"),
        );
        let missing: usize = theirs.iter().map(|(key, n)| n - ours.get(key).unwrap_or(&0).min(n)).sum();
        let extra: usize = ours.iter().map(|(key, n)| n - theirs.get(key).unwrap_or(&0).min(n)).sum();
        // A SYN that comes again with its number belongs to the same flow, whose row has the last handshake only.
        assert!(
            extra == 0 && missing <= 2 && theirs.len() > 400,
            "{}: {missing} missing, {extra} extra",
            path.display()
        );
    }
}

/// Packets and bytes of a direction, by protocol, source and destination.
type Directions = BTreeMap<(u8, String, String), [u64; 2]>;

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("-h").output().is_ok();
    if !found {
        say(&format!("SKIPPED: {program} is not installed"));
    }
    found
}

/// The traces to compare. Of the captures of broken packets only those with TCP or UDP: others have nothing to compare.
fn traces() -> impl Iterator<Item = Trace> {
    let has_flows = |trace: &Trace| !trace.is_damaged() || trace.counts[1..3] != [0, 0];
    traces::compared().into_iter().filter(has_flows)
}

/// The rows as JSON; `None` for a capture that weir does not read.
fn json_rows(path: &Path, parameters: &str) -> Option<Vec<Value>> {
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .args(["run", "-q", "--format", "json", "--summary", "/dev/null", "-m", &module(parameters), "-r"])
        .arg(path)
        .output()
        .unwrap();
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("weir reads") || error.contains("it reads"), "{}: {error}", path.display());
        return None;
    }
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

fn json_end(row: &Value, side: &str) -> String {
    format!("{}|{}", row[side].as_str().unwrap(), row[format!("{side}_port")])
}

/// Adds up the rows of TCP and UDP with ports.
fn directions(rows: &[Value]) -> Directions {
    let mut directions = Directions::new();
    for row in rows
        .iter()
        .filter(|row| [6, 17].contains(&row["protocol"].as_u64().unwrap()) && !row["src_port"].is_null())
    {
        let ends = [json_end(row, "src"), json_end(row, "dst")];
        for (side, from, to) in [("source", 0, 1), ("destination", 1, 0)] {
            let count = ["packets", "bytes"].map(|name| row[format!("{side}_{name}")].as_u64().unwrap());
            if count[0] != 0 {
                let protocol = u8::try_from(row["protocol"].as_u64().unwrap()).unwrap();
                let sum = directions.entry((protocol, ends[from].clone(), ends[to].clone())).or_default();
                *sum = [sum[0] + count[0], sum[1] + count[1]];
            }
        }
    }
    directions
}

/// A program's lines, split at |.
fn fields_of(command: &mut Command) -> Vec<Vec<String>> {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| line.split('|').map(|field| field.trim().to_owned()).collect()).collect()
}

fn tshark(path: &Path, occurrence: &str, fields: &[&str]) -> Vec<Vec<String>> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-T", "fields", "-E", "separator=|", "-E", &format!("occurrence={occurrence}")]);
    command.args(["-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE", "-r"]).arg(path);
    command.args(fields.iter().flat_map(|field| ["-e", field]));
    fields_of(&mut command)
}

/// tshark's view of the outermost IP headers of whole TCP and UDP packets, and the number of packets behind link headers that weir
/// does not know.
fn tshark_directions(path: &Path) -> (Directions, usize) {
    let names = [
        "frame.protocols",
        "ip.src",
        "ip.dst",
        "ip.len",
        "ipv6.src",
        "ipv6.dst",
        "ipv6.plen",
        "tcp.srcport",
        "tcp.dstport",
        "udp.srcport",
        "udp.dstport",
        "ip.flags.mf",
        "ip.frag_offset",
        "ipv6.fraghdr.offset",
        "ipv6.fraghdr.more",
    ];
    let (mut directions, mut unknown) = (Directions::new(), 0);
    for line in tshark(path, "f", &names) {
        let field: HashMap<&str, &str> = names.into_iter().zip(line.iter().map(String::as_str)).collect();
        let is_set = |name: &str| !["", "0", "False"].contains(&field[name]);
        let is_fragment = names[11..].iter().any(|name| is_set(name));
        let layers: Vec<&str> =
            field["frame.protocols"].split(':').filter(|layer| !layer.starts_with("ipv6.")).collect();
        let Some(at) = layers.iter().position(|layer| ["ip", "ipv6"].contains(layer)) else { continue };
        let Some(upper) = layers.get(at + 1).filter(|layer| ["tcp", "udp"].contains(layer)) else { continue };
        let port = |side: &str| field[format!("{upper}.{side}port").as_str()];
        if is_fragment || port("src").is_empty() {
            continue;
        }
        if layers[..at].iter().any(|layer| ["cfp", "nsh", "macsec"].contains(layer)) {
            unknown += 1;
            continue;
        }
        let (version, len) = match layers[at] {
            "ip" => ("ip", field["ip.len"].parse::<u64>().unwrap()),
            _ => ("ipv6", field["ipv6.plen"].parse::<u64>().unwrap() + 40),
        };
        let end = |side: &str| format!("{}|{}", field[format!("{version}.{side}").as_str()], port(side));
        let protocol = if *upper == "tcp" { 6 } else { 17 };
        let sum = directions.entry((protocol, end("src"), end("dst"))).or_default();
        *sum = [sum[0] + 1, sum[1] + len];
    }
    (directions, unknown)
}

/// Returns the keys that differ.
fn differences(a: &Directions, b: &Directions) -> Vec<(u8, String, String)> {
    let keys: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
    keys.into_iter().filter(|key| a.get(key) != b.get(key)).cloned().collect()
}

/// Compares the traces of a part of the folder with tshark.
fn compare_with_tshark(is_chosen: impl Fn(&Trace) -> bool) {
    // Jumbograms, whose payload length of 0 tshark takes for no payload; and a TCP packet that tshark does not dissect, as its IP
    // header is malformed.
    let known = HashMap::from([
        ("formats/bigtcp-ipv6-80k.pcap", 1),
        ("robustness/tcpdump/bigtcp-ipv6-vxlan-ipv6.pcap", 1),
        ("robustness/suricata-verify/tcp-session-decode-malformed-ipv4.pcap", 1),
    ]);
    let (mut total, mut unread, mut unknown) = (0, 0, 0);
    for Trace { name, path, .. } in traces().filter(is_chosen) {
        let Some(rows) = json_rows(&path, ",layer=outer") else {
            unread += 1;
            continue;
        };
        let ours = directions(&rows);
        let (theirs, behind_unknown) = tshark_directions(&path);
        let different = differences(&ours, &theirs);
        let allowed = *known.get(name.as_str()).unwrap_or(&0);
        assert_eq!(
            different.len(),
            allowed,
            "{name}: {:?}",
            different.iter().map(|key| (key, ours.get(key), theirs.get(key))).next()
        );
        total += ours.len() - allowed;
        unknown += behind_unknown;
    }
    say(&format!(
        "tshark: {total} directions equal; {unread} captures of other link types; {unknown} packets behind other link headers"
    ));
}

#[test]
fn amounts_of_traces_are_those_of_tshark() {
    if has("tshark") {
        compare_with_tshark(|trace| !trace.is_damaged());
    }
}

#[test]
fn amounts_of_broken_traces_are_those_of_tshark() {
    if has("tshark") {
        compare_with_tshark(Trace::is_damaged);
    }
}

#[test]
fn amounts_of_traces_are_those_of_nfdump() {
    if !has("nfpcapd") || !has("nfdump") {
        return;
    }
    let (mut total, mut reasons) = (0, BTreeMap::<&str, usize>::new());
    for Trace { name, path, .. } in traces().filter(|trace| !trace.is_damaged()) {
        let folder = tempfile::tempdir().unwrap();
        let output =
            Command::new("nfpcapd").arg("-r").arg(&path).arg("-w").arg(folder.path()).output().unwrap();
        assert!(output.status.success(), "{name}");
        let mut command = Command::new("nfdump");
        command.arg("-R").arg(folder.path()).args([
            "-q",
            "-N",
            "-6",
            "-o",
            "fmt:%pr|%sa|%sp|%da|%dp|%pkt|%byt",
        ]);
        let mut theirs = Directions::new();
        for line in fields_of(&mut command)
            .iter()
            .filter(|line| line.len() == 7 && ["6", "17"].contains(&line[0].as_str()))
        {
            let key = (
                line[0].parse().unwrap(),
                format!("{}|{}", line[1], line[2]),
                format!("{}|{}", line[3], line[4]),
            );
            let sum = theirs.entry(key).or_default();
            *sum = [sum[0] + line[5].parse::<u64>().unwrap(), sum[1] + line[6].parse::<u64>().unwrap()];
        }
        let rows = json_rows(&path, ",layer=outer").unwrap();
        let tunnels = directions(&json_rows(&path, "").unwrap());
        let ours = directions(&rows);
        let address = |end: &str| end.split('|').next().unwrap().to_owned();
        let is_fragmented = |key: &(u8, String, String)| {
            let ends = [address(&key.1), address(&key.2)];
            rows.iter().any(|row| {
                let row_ends = ["src", "dst"].map(|side| row[side].as_str().unwrap());
                row["src_port"].is_null()
                    && row["protocol"] == key.0
                    && (row_ends == [&ends[0], &ends[1]] || row_ends == [&ends[1], &ends[0]])
            })
        };
        let is_unread = theirs.is_empty() && path.extension().is_some_and(|extension| extension == "pcapng");
        let different = differences(&ours, &theirs);
        for key in &different {
            let (a, b) = (ours.get(key), theirs.get(key));
            let reason = if is_unread {
                "nfpcapd reads no pcapng with several interfaces"
            } else if is_fragmented(key) {
                "nfpcapd reassembles datagrams"
            } else if a.is_none() && tunnels.contains_key(key) {
                "nfpcapd follows IP in IP"
            } else if a.zip(b).is_some_and(|(a, b)| a[0] == b[0] && a[1] > b[1]) {
                "nfpcapd counts a length of 0 as the header alone"
            } else {
                panic!("{name}: {key:?}: {a:?}, nfdump has {b:?}")
            };
            *reasons.entry(reason).or_default() += 1;
        }
        total += ours.len() - different.iter().filter(|key| ours.contains_key(key)).count();
    }
    say(&format!("nfdump: {total} directions equal; different: {reasons:?}"));
}

/// The facts about a connection, by tshark.
#[derive(Default)]
struct Seen {
    /// Flags of the packets of the two sides, lower end first.
    flags: [u32; 2],
    streams: std::collections::BTreeSet<String>,
    retransmitted: [i64; 2],
    syns: [bool; 2],
    syn_acks: [bool; 2],
}

#[test]
fn states_and_retransmissions_of_traces_agree_with_tshark() {
    if !has("tshark") {
        return;
    }
    let names = [
        "tcp.stream",
        "ip.src",
        "ip.dst",
        "ipv6.src",
        "ipv6.dst",
        "tcp.srcport",
        "tcp.dstport",
        "tcp.flags",
        "tcp.len",
        "tcp.analysis.retransmission",
        "tcp.analysis.fast_retransmission",
        "tcp.analysis.spurious_retransmission",
        "tcp.analysis.out_of_order",
    ];
    let mut wrong = Vec::new();
    let (mut compared, mut counts, mut several) = (0, BTreeMap::<String, usize>::new(), 0);
    let (mut other_counts, mut other_numbers) = (0, 0);
    for Trace { name, path, .. } in traces().filter(|trace| !trace.is_damaged()) {
        let mut seen: BTreeMap<[String; 2], Seen> = BTreeMap::new();
        for line in tshark(&path, "l", &names) {
            if line.len() != names.len() || line[0].is_empty() {
                continue;
            }
            let version = if line[1].is_empty() { 3 } else { 1 };
            let end = |side: usize| format!("{}|{}", line[version + side], line[5 + side]);
            let (from, to) = (end(0), end(1));
            let side = usize::from(from > to);
            // A header that is cut has no flags.
            let Ok(flags) = u32::from_str_radix(line[7].trim_start_matches("0x"), 16) else { continue };
            let entry = seen.entry(if side == 0 { [from, to] } else { [to, from] }).or_default();
            entry.flags[side] |= flags;
            entry.syns[side] |= flags & 0x12 == 2;
            entry.syn_acks[side] |= flags & 0x12 == 0x12;
            entry.streams.insert(line[0].clone());
            let has_data = line[8].parse().unwrap_or(0) > 0 && flags & 6 == 0;
            entry.retransmitted[side] +=
                i64::from(has_data && line[9..].iter().any(|field| !field.is_empty()));
        }
        let rows = json_rows(&path, ",active=0s,idle=168h").unwrap();
        let mut by_ends: BTreeMap<[String; 2], Vec<(usize, &Value)>> = BTreeMap::new();
        for row in rows.iter().filter(|row| !row["conn_state"].is_null()) {
            let (from, to) = (json_end(row, "src"), json_end(row, "dst"));
            let side = usize::from(from > to);
            by_ends.entry(if side == 0 { [from, to] } else { [to, from] }).or_default().push((side, row));
        }
        for (ends, rows) in by_ends {
            let Some(seen) = seen.get(&ends) else { continue };
            // tshark and Zeek do not always agree on which SYN begins a new connection.
            other_numbers += usize::from(rows.len() != seen.streams.len());
            let [(side, row)] = rows[..] else {
                several += 1;
                continue;
            };
            let (orig, resp) = (side, 1 - side);
            let state = row["conn_state"].as_str().unwrap();
            let flag = |side: usize, bit: u32| seen.flags[side] & bit != 0;
            let [fin, rst] = [1, 4].map(|bit| [flag(orig, bit), flag(resp, bit)]);
            let is_answered = seen.syn_acks[resp] || seen.syns[resp];
            let is_right = match state {
                "S0" => seen.syns[orig] && !is_answered && !fin[0] && !rst[0] && !rst[1],
                "S1" => !fin[0] && !fin[1] && !rst[0] && !rst[1] && is_answered,
                "SF" => fin[0] && fin[1],
                "S2" => fin[0] && !fin[1] && !rst[0] && !rst[1],
                "S3" => fin[1] && !fin[0] && !rst[0] && !rst[1],
                "REJ" => seen.syns[orig] && rst[1],
                "RSTO" => rst[0] && seen.flags[resp] != 0,
                "RSTR" => rst[1],
                "RSTOS0" => seen.syns[orig] && !seen.syn_acks[resp] && rst[0],
                "RSTRH" => rst[1] && !seen.syns[orig],
                "SH" => fin[0] && !fin[1] && !rst[0] && !rst[1],
                "SHR" => fin[1] && !fin[0] && !rst[0] && !rst[1],
                _ => !seen.syns[orig] || !is_answered || rst[0],
            };
            if !is_right {
                wrong.push(format!("{name}: {ends:?} {:?}, {row}", seen.flags));
            }
            compared += 1;
            *counts.entry(state.to_owned()).or_default() += 1;
            let ours = ["source", "destination"]
                .map(|side| row[format!("{side}_retransmitted_packets")].as_i64().unwrap());
            other_counts += usize::from(ours != [seen.retransmitted[orig], seen.retransmitted[resp]]);
        }
    }
    say(&format!(
        "tshark: {compared} states agree: {counts:?}; {several} ends with several rows, {other_numbers} with another number of them; {other_counts} other counts of retransmissions"
    ));
    assert!(wrong.is_empty(), "{} states: {:#?}", wrong.len(), &wrong[..wrong.len().min(9)]);
    // tshark takes some of them for keep-alives, zero-window probes or new data.
    assert!(other_counts * 200 <= compared.max(200), "{other_counts} of {compared}");
    assert!(other_numbers * 200 <= compared.max(200), "{other_numbers} of {compared}");
}
