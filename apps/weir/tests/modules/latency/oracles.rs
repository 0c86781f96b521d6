//! The module `latency` on real captures, compared with tshark and with simple code.

use super::super::capture::{Capture, SECOND, samples};
use super::super::packet::{ACK, FIN, RST, SYN};
use super::super::parsed_packet::ParsedPacket;
use super::super::weir::run_file;
use super::module;
use crate::run::traces::{self, Trace};
use std::collections::HashMap;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;

/// A TCP packet as tshark describes it.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub number: usize,
    pub time: i128,
    pub stream: String,
    pub from: String,
    pub to: String,
    pub seq: u32,
    pub ack: u32,
    pub len: u32,
    pub flags: u8,
    pub protocols: String,
    pub rtt: Option<i128>,
    pub acked: usize,
    /// As EVENTS.
    pub events: [bool; 7],
}

pub const EVENTS: [&str; 7] = [
    "retransmission",
    "fast_retransmission",
    "spurious_retransmission",
    "out_of_order",
    "lost_segment",
    "duplicate_ack",
    "zero_window",
];

/// Seconds in decimal as ns.
fn nanoseconds(text: &str) -> i128 {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let part: i128 = format!("{part:0<9}")[..9].parse().unwrap();
    let whole_ns = whole.trim_start_matches('-').parse::<i128>().unwrap() * i128::from(SECOND) + part;
    if whole.starts_with('-') { -whole_ns } else { whole_ns }
}

impl Seen {
    /// The sequence number after the segment.
    pub fn end(&self) -> u32 {
        self.seq.wrapping_add(self.len + u32::from(self.flags & (SYN | FIN) != 0))
    }
}

/// The packets of a capture with TCP, as tshark sees them; of tunnels the innermost.
pub fn tshark(path: &Path) -> Vec<Seen> {
    let mut fields: Vec<String> = "frame.number frame.time_epoch tcp.stream ip.src ipv6.src tcp.srcport ip.dst ipv6.dst tcp.dstport tcp.seq_raw tcp.ack_raw \
                  tcp.len tcp.flags frame.protocols tcp.analysis.ack_rtt tcp.analysis.acks_frame"
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    fields.extend(EVENTS.map(|event| format!("tcp.analysis.{event}")));
    let output = Command::new("tshark")
        .args(["-n", "-Y", "tcp", "-T", "fields", "-E", "occurrence=l"])
        .args(fields.iter().flat_map(|field| ["-e", field]))
        .arg("-r")
        .arg(path)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let seen = text.lines().filter_map(|line| {
        let v: Vec<&str> = line.split('\t').collect();
        let end = |v4: &str, v6: &str, port: &str| {
            let ip: IpAddr = (if v6.is_empty() { v4 } else { v6 }).parse().ok()?;
            Some(SocketAddr::new(ip, port.parse().ok()?).to_string())
        };
        let mut events = [false; 7];
        events.iter_mut().zip(&v[16..]).for_each(|(event, value)| *event = !value.is_empty());
        Some(Seen {
            number: v[0].parse().ok()?,
            time: nanoseconds(v[1]),
            stream: v[2].to_owned(),
            from: end(v[3], v[4], v[5])?,
            to: end(v[6], v[7], v[8])?,
            seq: v[9].parse().ok()?,
            ack: v[10].parse().unwrap_or(0),
            len: v[11].parse().unwrap_or(0),
            flags: u16::from_str_radix(v[12].trim_start_matches("0x"), 16).ok()?.to_le_bytes()[0],
            protocols: v[13].to_owned(),
            rtt: (!v[14].is_empty()).then(|| nanoseconds(v[14])),
            acked: v[15].parse().unwrap_or(0),
            events,
        })
    });
    seen.collect()
}

/// The compared traces with TCP in them, with their names; none without tshark.
pub fn tcp_traces() -> Vec<(String, std::path::PathBuf)> {
    if Command::new("tshark").arg("--version").output().is_err() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: tshark is not installed");
        return Vec::new();
    }
    let traces = traces::compared().into_iter().filter(Trace::may_have_tcp);
    traces.map(|trace| (trace.name, trace.path)).collect()
}

fn is_below(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) > u32::MAX / 2
}

/// The reason why a sample of tshark is none of the module; "" if there is none. `stream` has the packets of its connection.
fn reason(stream: &[&Seen], answer: &Seen) -> &'static str {
    if ["ayiya", ":ah:", "arcnet", "vxlan", "geneve", "teredo", "gtp"]
        .iter()
        .any(|name| answer.protocols.contains(name))
    {
        return "encapsulation";
    }
    let Some(at) = stream.iter().position(|seen| seen.number == answer.acked) else { return "" };
    let (before, segment) = (&stream[..at], stream[at]);
    let between = stream[at + 1..].iter().take_while(|seen| seen.number < answer.number);
    let sent = |seen: &&&Seen| seen.from == segment.from && seen.end() != seen.seq;
    let highest = before
        .iter()
        .filter(|seen| seen.from == segment.from)
        .map(|seen| seen.end())
        .reduce(|a, b| if is_below(a, b) { b } else { a });
    let acked = before
        .iter()
        .rev()
        .find(|seen| seen.from == segment.to && seen.flags & ACK != 0)
        .map(|seen| seen.ack);
    if before.iter().chain(between.clone()).any(|seen| seen.flags & RST != 0) || answer.flags & RST != 0 {
        "reset"
    } else if highest.is_some_and(|highest| is_below(segment.seq, highest))
        || between.clone().filter(sent).any(|seen| is_below(seen.seq, segment.end()))
    {
        "sent again"
    } else if highest.is_some_and(|highest| is_below(highest, segment.seq)) {
        "behind a gap"
    } else if before
        .iter()
        .filter(sent)
        .filter(|seen| acked.is_none_or(|acked| is_below(acked, seen.end())))
        .count()
        >= 3
    {
        "three marks pending"
    } else if segment.flags & FIN != 0
        && segment.len == 0
        && !before.iter().any(|seen| seen.len != 0 || seen.flags & SYN != 0)
    {
        "first packet FIN"
    } else {
        ""
    }
}

/// Captures in which tshark sees other packets than weir: it reassembles fragments around tunnels, and takes damaged headers differently.
const OTHER_PACKETS: [&str; 4] = [
    "encap/erspan.pcap",
    "encap/pppoe-over-qinq.pcap",
    "robustness/nDPI/fuzz-2006-09-29-28586.pcap",
    "encap/gtp2-fragments.pcap",
];

#[test]
fn samples_of_traces_by_sequence_numbers_equal_those_of_tshark_but_for_known_reasons() {
    let (mut equal, mut ours_only, mut kinds) = (0, 0, HashMap::<&str, usize>::new());
    let traces = tcp_traces();
    for (name, path) in &traces {
        let seen = tshark(path);
        let mut ours: HashMap<(i128, String, String), Vec<i128>> = HashMap::new();
        for row in run_file(path, &["-m", &module("latency", ",interval=0s,timestamps=false")])
            .rows("latency", "samples")
        {
            let (from, to, rtt) = match row.number("server_samples") {
                1 => (row.end("dst"), row.end("src"), row.number("server_rtt_ns")),
                _ => (row.end("src"), row.end("dst"), row.number("client_rtt_ns")),
            };
            ours.entry((row.number("time"), from, to)).or_default().push(rtt);
        }
        let mut streams: HashMap<&str, Vec<&Seen>> = HashMap::new();
        seen.iter().for_each(|seen| streams.entry(&seen.stream).or_default().push(seen));
        for answer in &seen {
            let Some(rtt) = answer.rtt else { continue };
            let samples = ours.entry((answer.time, answer.from.clone(), answer.to.clone())).or_default();
            if let Some(at) = samples.iter().position(|sample| *sample == rtt) {
                samples.swap_remove(at);
                equal += 1;
                continue;
            }
            // A sample of another segment that the same acknowledgement covers.
            samples.pop();
            let kind = match reason(&streams[answer.stream.as_str()], answer) {
                "" if OTHER_PACKETS.contains(&name.as_str()) => "other packets",
                kind => kind,
            };
            assert_ne!(kind, "", "{name}: {answer:?}");
            *kinds.entry(kind).or_default() += 1;
        }
        ours_only += ours.values().map(Vec::len).sum::<usize>();
    }
    let _ = writeln!(
        std::io::stderr(),
        "{} traces: {equal} samples equal tshark's, {ours_only} more; tshark's others: {kinds:?}",
        traces.len()
    );
    if traces::are_all() {
        assert!(equal > 100_000 && ours_only * 100 < equal && kinds.values().sum::<usize>() * 20 < equal);
    }
}

/// The time stamps of a header in Ethernet.
fn stamps_of(seen: &ParsedPacket) -> Option<(u32, u32)> {
    seen.tcp()?.options_iterator().find_map(|option| match option {
        Ok(etherparse::TcpOptionElement::Timestamp(value, echo)) => Some((value, echo)),
        _ => None,
    })
}

#[test]
fn samples_by_time_stamps_are_those_of_an_unlimited_table() {
    for path in samples() {
        let mut marks: HashMap<(SocketAddr, SocketAddr, u32), u64> = HashMap::new();
        let mut highest: HashMap<(SocketAddr, SocketAddr), u32> = HashMap::new();
        let mut expected = std::collections::HashSet::new();
        for frame in &Capture::read(&path).frames {
            let Some(seen) = ParsedPacket::parse(&frame.bytes) else { continue };
            let Some(tcp) = seen.tcp() else { continue };
            if tcp.syn() && !tcp.ack() {
                // The ports may be used again.
                marks.retain(|(from, to, _), _| {
                    ![(seen.from, seen.to), (seen.to, seen.from)].contains(&(*from, *to))
                });
                highest.remove(&(seen.from, seen.to));
                highest.remove(&(seen.to, seen.from));
            }
            let Some((value, echo)) = stamps_of(&seen) else { continue };
            if let Some(time) = marks.remove(&(seen.to, seen.from, echo)) {
                expected.insert((
                    i128::from(frame.ts),
                    seen.from.to_string(),
                    i128::from(frame.ts) - i128::from(time),
                ));
            }
            let top = highest.get(&(seen.from, seen.to));
            if tcp.syn() || top.is_some_and(|top| !is_below(*top, value)) {
                continue;
            }
            highest.insert((seen.from, seen.to), value);
            if !seen.payload.is_empty() || tcp.fin() {
                marks.insert((seen.from, seen.to, value), frame.ts);
            }
        }
        let got = run_file(&path, &["-m", &module("latency", ",interval=0s")]).rows("latency", "samples");
        // The simple code does not look into tunnels.
        let is_wanted =
            |row: &&super::Row| row.text("method") == "timestamp" && row.text("tunnel").is_empty();
        let by_stamps: Vec<_> = got.iter().filter(is_wanted).collect();
        let mut others = 0;
        for row in &by_stamps {
            let is_server = row.number("server_samples") == 1;
            let (end, rtt) = if is_server { ("dst", "server_rtt_ns") } else { ("src", "client_rtt_ns") };
            others += usize::from(!expected.contains(&(row.number("time"), row.end(end), row.number(rtt))));
        }
        // A capture with packets of closed connections that were captured twice: the module measures them as new ones.
        assert!(others * 200 < by_stamps.len(), "{}: {others} samples are others", path.display());
        let share = by_stamps.len() as f64 / expected.len() as f64;
        let _ = writeln!(
            std::io::stderr(),
            "{}: {} of {} samples",
            path.display(),
            by_stamps.len(),
            expected.len()
        );
        assert!(by_stamps.len() > 20 && share > 0.9 && share <= 1.0, "{share}");
    }
}
