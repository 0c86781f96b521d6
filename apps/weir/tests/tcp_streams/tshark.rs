//! The bytes of TCP streams, compared with those of tshark's "follow stream".

use super::module::{Direction, Run, Stream, events, streams};
use crate::modules::capture::Capture;
use crate::run::traces::{self, Trace};
use crate::run::{outside, sample};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use weir_abi::stream::{cause, state};

/// A packet of a stream, as tshark has it.
#[derive(Clone, Debug)]
struct Packet {
    number: usize,
    protocols: String,
    is_cut: bool,
    has_data: bool,
    is_reset: bool,
    is_fragment: bool,
}

/// A stream, as tshark has it.
#[derive(Clone, Debug)]
struct Followed {
    ends: [SocketAddr; 2],
    directions: [Direction; 2],
    packets: Vec<Packet>,
}

fn tshark(path: &Path, arguments: &[String]) -> String {
    let mut command = Command::new("tshark");
    command
        .args(["-n", "-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE", "-r"])
        .arg(path)
        .args(arguments);
    String::from_utf8_lossy(&command.output().unwrap().stdout).into_owned()
}

/// The packets of the streams with data.
fn packets(path: &Path) -> BTreeMap<u32, Vec<Packet>> {
    let fields = [
        "tcp.stream",
        "frame.number",
        "frame.protocols",
        "frame.len",
        "frame.cap_len",
        "tcp.len",
        "tcp.flags.reset",
    ];
    let fragments = ["ip.flags.mf", "ip.frag_offset", "ipv6.fraghdr.offset", "ipv6.fraghdr.more"];
    let mut arguments = ["-T", "fields", "-E", "separator=|"].map(str::to_owned).to_vec();
    arguments
        .extend(fields.iter().chain(&fragments).flat_map(|field| ["-e".to_owned(), (*field).to_owned()]));
    let mut streams: BTreeMap<u32, Vec<Packet>> = BTreeMap::new();
    for line in tshark(path, &arguments).lines() {
        let values: Vec<&str> = line.split('|').collect();
        let [streams_of_packet, number, protocols, len, captured, data, reset, fragment @ ..] = &values[..]
        else {
            continue;
        };
        let is_set = |value: &&str| value.split(',').any(|value| !["", "0", "False"].contains(&value));
        let packet = Packet {
            number: number.parse().unwrap(),
            protocols: (*protocols).to_owned(),
            is_cut: len != captured,
            has_data: is_set(data),
            is_reset: is_set(reset),
            is_fragment: fragment.iter().any(is_set),
        };
        for stream in streams_of_packet.split(',').filter(|stream| !stream.is_empty()) {
            streams.entry(stream.parse().unwrap()).or_default().push(packet.clone());
        }
    }
    streams.retain(|_, packets| packets.iter().any(|packet| packet.has_data));
    streams
}

/// Reads `[12 bytes missing in capture file]`.
fn missing(bytes: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(bytes).ok()?.trim_end_matches('\0');
    text.strip_prefix('[')?.strip_suffix(" bytes missing in capture file]")?.parse().ok()
}

/// The most streams that one process of tshark follows: it looks for each of them in each packet.
const FOLLOWED_MAX: usize = 256;

fn follow(path: &Path) -> Vec<Followed> {
    let packets = packets(path);
    if packets.len() > FOLLOWED_MAX && path.extension().is_some_and(|extension| extension == "pcap") {
        return follow_in_parts(path, &packets);
    }
    follow_all(path, packets)
}

/// Follows the streams of a large capture, some at a time, each in a capture of its own.
fn follow_in_parts(path: &Path, packets: &BTreeMap<u32, Vec<Packet>>) -> Vec<Followed> {
    let capture = Capture::read(path);
    let streams: Vec<&Vec<Packet>> = packets.values().collect();
    let part = |streams: &[&Vec<Packet>]| {
        let numbers: BTreeSet<usize> =
            streams.iter().flat_map(|stream| stream.iter().map(|packet| packet.number)).collect();
        let frames = numbers.into_iter().map(|number| capture.frames[number - 1].clone()).collect();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), Capture { frames, ..capture }.to_pcap()).unwrap();
        follow_all(file.path(), self::packets(file.path()))
    };
    streams.chunks(FOLLOWED_MAX).flat_map(part).collect()
}

fn follow_all(path: &Path, mut packets: BTreeMap<u32, Vec<Packet>>) -> Vec<Followed> {
    if packets.is_empty() {
        return Vec::new();
    }
    let mut arguments = vec!["-q".to_owned()];
    arguments.extend(packets.keys().flat_map(|stream| ["-z".to_owned(), format!("follow,tcp,raw,{stream}")]));
    let text = tshark(path, &arguments);
    let mut streams: BTreeMap<u32, Followed> = BTreeMap::new();
    for part in text.split("Follow: tcp,raw\nFilter: tcp.stream eq ").skip(1) {
        let mut lines = part.lines();
        let number: u32 = lines.next().unwrap().parse().unwrap();
        // "Node 0: 10.0.0.1:80"
        let mut node = || lines.next().and_then(|line| line.split_once(": ")?.1.parse().ok());
        let (Some(first), Some(second)) = (node(), node()) else { continue };
        let mut followed = Followed {
            ends: [first, second],
            directions: Default::default(),
            packets: packets.remove(&number).unwrap_or_default(),
        };
        for line in lines.take_while(|line| !line.starts_with('=')) {
            let side = usize::from(line.starts_with('\t'));
            let hex = line.trim_start_matches('\t');
            let bytes: Vec<u8> = (0..hex.len() / 2)
                .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
                .collect();
            match missing(&bytes) {
                Some(missing) => followed.directions[side].push_missing(missing),
                None => followed.directions[side].push_bytes(&bytes),
            }
        }
        streams.insert(number, followed);
    }
    streams.into_values().collect()
}

/// A stream for the comparison: directions in the order of the sorted ends.
#[derive(Clone, Debug)]
struct Compared {
    directions: [Direction; 2],
    /// For each direction, true if its SYN was captured.
    has_syn: [bool; 2],
    was_reset: bool,
}

type Ends = [SocketAddr; 2];

fn sorted<T>(ends: Ends, mut both: [T; 2]) -> (Ends, [T; 2]) {
    if ends[0] <= ends[1] {
        return (ends, both);
    }
    both.swap(0, 1);
    ([ends[1], ends[0]], both)
}

/// Returns the runs of `whole` behind those of `part`, if it begins with them.
fn rest(whole: &Direction, part: &Direction) -> Option<Direction> {
    let mut rest = whole.0.clone();
    for (at, run) in part.0.iter().enumerate() {
        let is_last = at + 1 == part.0.len();
        let first = rest.first()?.clone();
        rest.remove(0);
        match (&first, run) {
            _ if first == *run => {}
            (Run::Bytes(bytes), Run::Bytes(begin)) if is_last && bytes.starts_with(begin) => {
                rest.insert(0, Run::Bytes(bytes[begin.len()..].to_vec()));
            }
            (Run::Missing(all), Run::Missing(some)) if is_last && all > some => {
                rest.insert(0, Run::Missing(all - some));
            }
            _ => return None,
        }
    }
    Some(Direction(rest))
}

/// The runs from the last to the first.
fn reversed(direction: &Direction) -> Direction {
    let run = |run: &Run| match run {
        Run::Bytes(bytes) => Run::Bytes(bytes.iter().rev().copied().collect()),
        Run::Missing(missing) => Run::Missing(*missing),
    };
    Direction(direction.0.iter().rev().map(run).collect())
}

fn without_first_hole(direction: &Direction) -> Direction {
    let begins_with_hole = matches!(direction.0.first(), Some(Run::Missing(_)));
    Direction(direction.0[usize::from(begins_with_hole)..].to_vec())
}

/// Packets that weir takes for another protocol: AYIYA, IEEE 802.11 in GRE, and AH with IPComp.
const UNPARSED: [&str; 3] = ["ah", "ayiya", "wlan"];

/// The number of differences that no rule explains, by trace, and their reason.
const OTHERS: [(&str, usize, &str); 8] = [
    (
        "attack/dns-amplification-fragmented.pcap",
        1,
        "data below the number of an earlier segment without data, which tshark takes for repeated",
    ),
    ("encap/pppoe-over-qinq.pcap", 1, "an IP length beyond the length of PPPoE"),
    ("formats/bigtcp-ipv6-80k.pcap", 1, "jumbograms, whose payload length of 0 tshark takes for no payload"),
    (
        "robustness/nDPI/fuzz-2006-09-29-28586.pcap",
        1,
        "damaged sequence numbers, of which weir and tshark believe different ones",
    ),
    (
        "robustness/nDPI/reasm_crash_anon.pcapng",
        1,
        "a damaged acknowledgement beyond a hole, and a damaged reset",
    ),
    (
        "robustness/suricata-verify/tcp-session-decode-malformed-ipv4.pcap",
        1,
        "a packet with a malformed IP header, which tshark does not dissect",
    ),
    ("robustness/tcpdump/of10_s4810.pcap", 1, "a segment with OpenFlow at which tshark's dissector gives up"),
    (
        "robustness/zeek/fuzz-72.pcap",
        2,
        "damaged numbers and lengths, of which weir and tshark believe different ones",
    ),
];

/// The reason why a direction is not the same; `None` if there is none. Each rule says exactly what may differ.
///
/// Two kinds of difference cannot occur here: tshark has no time after which a stream ends, so neither have the streams of the test; and
/// the buffer is so large that no bytes are given up for lack of memory.
fn reason(
    ours: &Direction,
    theirs: &Direction,
    stream: &Compared,
    side: usize,
    packets: &[Packet],
) -> Option<&'static str> {
    let ends_at_hole = |ours: &Direction, theirs: &Direction| {
        rest(ours, theirs).is_some_and(|rest| matches!(rest.0.first(), None | Some(Run::Missing(_))))
    };
    if ends_at_hole(ours, theirs) {
        return Some("tshark gives no bytes behind a hole that no acknowledgement covers");
    }
    if stream.was_reset && rest(theirs, ours).is_some() {
        return Some("data behind a reset");
    }
    if !stream.has_syn[side] && !theirs.0.is_empty() {
        let (ours, theirs) = (without_first_hole(ours), without_first_hole(theirs));
        if ends_at_hole(&ours, &theirs) {
            return Some("without a SYN: where a direction begins follows from other packets");
        }
        let (ours, theirs) = (reversed(&ours), reversed(&theirs));
        if rest(&theirs, &ours).or_else(|| rest(&ours, &theirs)).is_some() {
            return Some("without a SYN: data that were acknowledged before are old");
        }
    }
    if packets.iter().any(|packet| packet.is_cut) && ours.bytes().starts_with(&theirs.bytes()) {
        return Some("tshark leaves no hole for bytes beyond the snap length");
    }
    if packets.iter().any(|packet| packet.is_fragment) {
        return Some("tshark gives the part of a segment that is in the first fragment");
    }
    None
}

/// The reason why weir has another number of connections between two ends.
fn reason_for_number(ours: &[Compared], theirs: &[Compared], packets: &[Packet]) -> Option<&'static str> {
    if ours.is_empty() {
        let is_unparsed =
            |packet: &Packet| packet.protocols.split(':').any(|layer| UNPARSED.contains(&layer));
        let are_resets = packets.iter().all(|packet| packet.is_reset || !packet.has_data);
        return packets
            .iter()
            .all(is_unparsed)
            .then_some("a protocol that weir does not parse")
            .or_else(|| are_resets.then_some("data in a reset"));
    }
    // tshark takes a connection with the numbers of the one before for repeated segments.
    let is_prefix = |side| distinct(ours, side).concat().starts_with(&distinct(theirs, side).concat());
    (!theirs.is_empty() && is_prefix(0) && is_prefix(1)).then_some("ports are used again")
}

fn shown(direction: &Direction) -> String {
    let run = |run: &Run| match run {
        Run::Bytes(bytes) => bytes.len().to_string(),
        Run::Missing(missing) => format!("{missing} missing"),
    };
    direction.0.iter().map(run).collect::<Vec<_>>().join(", ")
}

/// The distinct bytes of a direction of several streams.
fn distinct(streams: &[Compared], side: usize) -> Vec<Vec<u8>> {
    let mut distinct: Vec<Vec<u8>> = Vec::new();
    for stream in streams {
        let bytes = stream.directions[side].bytes();
        if !bytes.is_empty() && !distinct.contains(&bytes) {
            distinct.push(bytes);
        }
    }
    distinct
}

/// The connections with bytes between two ends.
#[derive(Default)]
struct Pair {
    ours: Vec<Compared>,
    theirs: Vec<Compared>,
    packets: Vec<Vec<Packet>>,
}

/// The connections of a capture by their ends; `None` if weir does not read the capture.
fn pairs(path: &Path) -> Option<BTreeMap<Ends, Pair>> {
    let (events, _) = events(path, "streams = 65536\nbuffer = '16 MiB'\nidle = '100000h'\n")?;
    let mut pairs: BTreeMap<Ends, Pair> = BTreeMap::new();
    for Stream { client, server, directions, cause, state } in streams(&events) {
        let syns = [state & state::SYN != 0, state & state::SYN_ACK != 0];
        let (ends, directions) = sorted([client, server], directions);
        let (_, has_syn) = sorted([client, server], syns);
        if directions.iter().any(|direction| !direction.0.is_empty()) {
            let compared = Compared { directions, has_syn, was_reset: cause == cause::RST };
            pairs.entry(ends).or_default().ours.push(compared);
        }
    }
    for Followed { ends, directions, packets } in follow(path) {
        let (ends, directions) = sorted(ends, directions);
        if directions.iter().any(|direction| !direction.0.is_empty()) {
            let pair = pairs.entry(ends).or_default();
            pair.theirs.push(Compared { directions, has_syn: [false; 2], was_reset: false });
            pair.packets.push(packets);
        }
    }
    Some(pairs)
}

/// Compares the connections between two ends. Calls `differ` with the reason and a description of each difference. Returns the number of
/// equal directions.
fn compare(pair: &Pair, differ: &mut dyn FnMut(Option<&'static str>, String)) -> usize {
    let Pair { ours, theirs, packets } = pair;
    let sizes = |all: &[Compared]| -> Vec<_> {
        all.iter().map(|stream| stream.directions.each_ref().map(shown)).collect()
    };
    // tshark has no connection whose bytes are all behind a hole.
    let nothing = [Compared { directions: Default::default(), has_syn: [false; 2], was_reset: false }];
    let no_packets = [Vec::new()];
    let (theirs, packets) = if theirs.is_empty() && ours.len() == 1 {
        (&nothing[..], &no_packets[..])
    } else {
        (&theirs[..], &packets[..])
    };
    if ours.len() != theirs.len() {
        let kind = reason_for_number(ours, theirs, &packets.concat());
        differ(kind, format!("{:?}, tshark {:?}", sizes(ours), sizes(theirs)));
        return 0;
    }
    let mut equal = 0;
    for ((our, their), packets) in ours.iter().zip(theirs).zip(packets) {
        for side in [0, 1] {
            let (a, b) = (&our.directions[side], &their.directions[side]);
            if a == b {
                equal += 1;
            } else {
                let kind = reason(a, b, our, side, packets);
                differ(kind, format!("direction {side}: {}; tshark {}", shown(a), shown(b)));
            }
        }
    }
    equal
}

#[test]
fn bytes_of_traces_are_those_of_tshark() {
    if !outside::has("tshark") {
        return;
    }
    let (mut equal, mut kinds) = (0, BTreeMap::<&str, usize>::new());
    let sample = Trace { name: "sample".to_owned(), path: sample(), counts: [0; 5] };
    for Trace { name, path, .. } in std::iter::once(sample).chain(traces::compared()) {
        let Some(pairs) = pairs(&path) else { continue };
        let mut others = Vec::new();
        for (ends, pair) in &pairs {
            equal += compare(pair, &mut |kind, what| match kind {
                Some(kind) => *kinds.entry(kind).or_default() += 1,
                None => others.push(format!("{ends:?}: {what}")),
            });
        }
        let known = OTHERS.iter().find(|(trace, ..)| *trace == name).map_or(0, |(_, count, _)| *count);
        assert_eq!(others.len(), known, "{name}: {others:#?}");
    }
    let _ = writeln!(std::io::stderr(), "{equal} directions as tshark has them; differences {kinds:#?}");
    assert!(equal > if traces::are_all() { 13_000 } else { 100 }, "{equal}");
    assert!(kinds.values().sum::<usize>() * 10 < equal, "{equal}; {kinds:#?}");
}
