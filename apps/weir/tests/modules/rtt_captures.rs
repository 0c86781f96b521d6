//! Module rtt on whole captures, compared with an oracle, with tshark, and with a trace of known handshakes.

use super::capture::{Capture, sample, samples, trace};
use super::parsed_packet::ParsedPacket;
use super::weir::run_file;
use std::collections::HashMap;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

/// A completed handshake.
#[derive(Debug, PartialEq, Eq)]
struct Handshake {
    time: u64,
    client: SocketAddr,
    server: SocketAddr,
    rtt: i128,
    /// The server's part of the round-trip time; -1 if unknown.
    server_rtt: i128,
    /// Number of SYN packets.
    syns: i128,
}

struct Pending {
    client: SocketAddr,
    syn_ts: u64,
    seq: u32,
    data: u32,
    syns: i128,
    /// The time of the SYN-ACK, and the sequence number that the client must acknowledge.
    synack: Option<(u64, u32)>,
}

/// The oracle: the algorithm of the module's README.md with an unlimited map of connections.
fn handshakes(capture: &Capture) -> Vec<Handshake> {
    let mut pending: HashMap<[SocketAddr; 2], Pending> = HashMap::new();
    let mut found = Vec::new();
    for frame in &capture.frames {
        let Some(seen) = ParsedPacket::parse(&frame.bytes) else { continue };
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
                    found.push(Handshake {
                        time: frame.ts,
                        client: seen.from,
                        server: seen.to,
                        rtt: since(p.syn_ts),
                        server_rtt: server,
                        syns: p.syns,
                    });
                    pending.remove(&ends);
                }
            }
            (false, false, false) => {}
        }
    }
    found
}

fn rows(path: &Path) -> Vec<Handshake> {
    // The oracles read the outermost IP header.
    let rows = run_file(path, &["-m", "rtt,layer=outer"]).rows("rtt", "rtts");
    let handshake = |row: &super::weir::Row| {
        assert_eq!(row.number("evicted"), 0);
        Handshake {
            time: u64::try_from(row.number("time")).unwrap(),
            client: row.end("src").parse().unwrap(),
            server: row.end("dst").parse().unwrap(),
            rtt: row.number("rtt_ns"),
            server_rtt: row.optional_number("server_rtt_ns").unwrap_or(-1),
            syns: row.number("syn_packets"),
        }
    };
    rows.iter().map(handshake).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn handshakes_of_whole_captures_equal_the_oracles() {
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
fn the_sample_has_ipv6_handshakes_and_repeated_syns() {
    let rows = rows(&sample());
    assert!(rows.iter().filter(|row| row.client.is_ipv6()).count() > 20);
    assert!(rows.iter().any(|row| row.syns > 1));
    let ms = median(rows.iter().map(|row| row.rtt as f64 / 1e6).collect());
    assert!((5.0..40.0).contains(&ms), "half of the clients are around 15 ms away: {ms} ms");
}

#[test]
fn a_trace_of_500_connections_gives_500_times() {
    let Some(path) = trace("tcp/echo-connections-500.pcap") else { return };
    let rows = rows(&path);
    assert_eq!(rows.len(), 500);
    assert!(
        rows.iter().all(|row| (11_000..=1_600_000).contains(&row.rtt)),
        "11 us to 1.6 ms, says its description"
    );
}

#[test]
fn the_median_equals_tsharks() {
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
        // tshark repeats the value in every packet after the handshake, and also counts refused handshakes.
        let mut by_stream: HashMap<&str, Option<f64>> = HashMap::new();
        let text = String::from_utf8(output.stdout).unwrap();
        for line in text.lines() {
            let [stream, reset, seconds] = line.split('\t').collect::<Vec<_>>()[..] else { continue };
            let is_refused = ["1", "True"].contains(&reset);
            by_stream.entry(stream).or_insert_with(|| (!is_refused).then(|| seconds.parse().unwrap()));
        }
        let theirs = median(by_stream.values().flatten().map(|seconds| seconds * 1e9).collect());
        let ours = median(rows(&path).iter().map(|row| row.rtt as f64).collect());
        assert!((ours / theirs - 1.0).abs() < 0.05, "{}: {ours} ns, tshark {theirs} ns", path.display());
    }
}
