//! rtt over whole captures, against an oracle, against tshark, and against a trace whose handshakes are known.

use super::capture::{Capture, sample, samples, trace};
use super::seen::Seen;
use super::weir::run_file;
use std::collections::HashMap;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

/// Time, client, server, round-trip time, the server's part of it, SYN packets.
type Handshake = (u64, SocketAddr, SocketAddr, i128, i128, i128);

struct Pending {
    client: SocketAddr,
    syn_ts: u64,
    seq: u32,
    data: u32,
    syns: i128,
    /// Time, and the sequence number that the client has to acknowledge.
    synack: Option<(u64, u32)>,
}

/// What README.md of the module says, in the simplest way: a map of all connections, and no limit.
fn handshakes(capture: &Capture) -> Vec<Handshake> {
    let mut pending: HashMap<[SocketAddr; 2], Pending> = HashMap::new();
    let mut found = Vec::new();
    for frame in &capture.frames {
        let Some(seen) = Seen::of(&frame.bytes) else { continue };
        let Some(tcp) = seen.tcp() else { continue };
        let mut ends = [seen.from, seen.to];
        ends.sort();
        let since = |ts: u64| i128::from(frame.ts) - i128::from(ts);
        let (seq, ack) = (tcp.sequence_number(), tcp.acknowledgment_number());
        match (tcp.syn(), tcp.ack(), tcp.rst()) {
            (_, _, true) => {
                pending.remove(&ends);
            }
            (true, false, false) => {
                let again = pending.get(&ends).filter(|p| p.client == seen.from && p.seq == seq);
                let syns = again.map_or(0, |p| p.syns) + 1;
                let data = u32::try_from(seen.payload.len()).unwrap();
                let syn = Pending { client: seen.from, syn_ts: frame.ts, seq, data, syns, synack: None };
                pending.insert(ends, syn);
            }
            (true, true, false) => {
                let Some(p) = pending.get_mut(&ends) else { continue };
                if p.client == seen.to && p.synack.is_none() && ack.wrapping_sub(p.seq + 1) <= p.data {
                    p.synack = Some((frame.ts, seq.wrapping_add(1)));
                }
            }
            (false, true, false) => {
                let Some(p) = pending.get(&ends) else { continue };
                let is_next = seq.wrapping_sub(p.seq.wrapping_add(1)) <= p.data;
                if p.client == seen.from && is_next && p.synack.is_none_or(|(_, next)| next == ack) {
                    let server = p.synack.map_or(-1, |(ts, _)| i128::from(ts) - i128::from(p.syn_ts));
                    found.push((frame.ts, seen.from, seen.to, since(p.syn_ts), server, p.syns));
                    pending.remove(&ends);
                }
            }
            (false, false, false) => {}
        }
    }
    found
}

fn rows(path: &Path) -> Vec<Handshake> {
    let rows = run_file(path, &["-m", "rtt"]).rows("rtt", "rtts");
    let handshake = |row: &super::weir::Row| {
        assert_eq!(row.number("evicted"), 0);
        (
            u64::try_from(row.number("time")).unwrap(),
            row.end("client").parse().unwrap(),
            row.end("server").parse().unwrap(),
            row.number("rtt"),
            row.number("server_rtt"),
            row.number("syns"),
        )
    };
    rows.iter().map(handshake).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn every_handshake_of_whole_captures_is_the_oracles() {
    for path in samples() {
        let expected = handshakes(&Capture::read(&path));
        assert!(expected.len() > 400, "the oracle found {} handshakes", expected.len());
        let rows = rows(&path);
        if let Some((row, oracle)) = rows.iter().zip(&expected).find(|(row, oracle)| row != oracle) {
            panic!("{}: {row:?}, the oracle has {oracle:?}", path.display());
        }
        assert_eq!(rows.len(), expected.len(), "{}", path.display());
        let _ = writeln!(
            std::io::stderr(),
            "{}: {} handshakes as the oracle has them",
            path.display(),
            rows.len()
        );
    }
}

#[test]
fn the_sample_has_handshakes_over_ipv6_and_some_that_were_repeated() {
    let rows = rows(&sample());
    assert!(rows.iter().filter(|row| row.1.is_ipv6()).count() > 20);
    assert!(rows.iter().any(|row| row.5 > 1));
    let ms = median(rows.iter().map(|row| row.3 as f64 / 1e6).collect());
    assert!((5.0..40.0).contains(&ms), "half of the clients are around 15 ms away: {ms} ms");
}

#[test]
fn a_trace_of_500_connections_gives_500_times() {
    let Some(path) = trace("tcp/echo-connections-500.pcap") else { return };
    let rows = rows(&path);
    assert_eq!(rows.len(), 500);
    assert!(
        rows.iter().all(|row| (11_000..=1_600_000).contains(&row.3)),
        "11 us to 1.6 ms, says its description"
    );
}

#[test]
fn the_median_is_tsharks() {
    if Command::new("tshark").arg("--version").output().is_err() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: tshark is not installed");
        return;
    }
    for path in samples() {
        let fields = ["tcp.stream", "tcp.flags.reset", "tcp.analysis.initial_rtt"];
        let output = Command::new("tshark")
            .args(["-n", "-Y", "tcp.analysis.initial_rtt", "-T", "fields", "-E", "occurrence=f"])
            .args(fields.iter().flat_map(|field| ["-e", field]))
            .arg("-r")
            .arg(&path)
            .output()
            .unwrap();
        // The value is repeated in every packet from the one that ended the handshake on. To tshark a refusal ends one too.
        let mut by_stream: HashMap<&str, Option<f64>> = HashMap::new();
        let text = String::from_utf8(output.stdout).unwrap();
        for line in text.lines() {
            let [stream, reset, seconds] = line.split('\t').collect::<Vec<_>>()[..] else { continue };
            let is_refused = ["1", "True"].contains(&reset);
            by_stream.entry(stream).or_insert_with(|| (!is_refused).then(|| seconds.parse().unwrap()));
        }
        let theirs = median(by_stream.values().flatten().map(|seconds| seconds * 1e9).collect());
        let ours = median(rows(&path).iter().map(|row| row.3 as f64).collect());
        assert!((ours / theirs - 1.0).abs() < 0.05, "{}: {ours} ns, tshark {theirs} ns", path.display());
    }
}
