//! The graphs, rules, routes and packets of the measurements.

use crate::error::LabError;
use crate::paths;
use crate::random::Random;
use std::fmt::Write as _;
use std::path::PathBuf;

/// The hosts of the second network.
const HOSTS: std::ops::Range<u8> = 2..250;

/// The elements of an IP router with two interfaces and four routes, from the packets of its first interface on.
const ROUTER_COMMON: &str = "\
c :: Classifier(12/0806 20/0001, 12/0806 20/0002, 12/0800, -);
rt :: StaticIPLookup(10.0.0.1/32 0, 10.0.1.1/32 0, 10.0.0.0/24 1, 10.0.1.0/24 2);
arpq1 :: ARPQuerier(10.0.0.1, 02:00:00:00:00:01);
arpq2 :: ARPQuerier(10.0.1.1, 02:00:00:00:00:02);
q1 :: Queue(1024) -> Discard(BURST 64);
q2 :: Queue(1024) -> sent :: Discard(BURST 64);
c[0] -> ARPResponder(10.0.0.1 02:00:00:00:00:01) -> q1;
c[1] -> t :: Tee; t[0] -> [1] arpq1; t[1] -> [1] arpq2;
c[3] -> Discard;
rt[0] -> Discard;
arpq1 -> q1;
arpq2 -> q2;
";

/// A router whose elements do one thing each.
pub fn router(source: &str) -> String {
    let mut text = format!("{ROUTER_COMMON}{source} -> c;\n");
    text.push_str(
        "c[2] -> Paint(1) -> Strip(14) -> CheckIPHeader(INTERFACES 10.0.0.1/24 10.0.1.1/24) -> rt;\n",
    );
    for (port, address) in [(1, "10.0.0.1"), (2, "10.0.1.1")] {
        _ = write!(
            text,
            "rt[{port}] -> DropBroadcasts -> tee{port} :: PaintTee({port}) -> opt{port} :: IPGWOptions({address}) \
             -> FixIPSrc({address}) -> ttl{port} :: DecIPTTL -> frag{port} :: IPFragmenter(1500) -> arpq{port};\n\
             tee{port}[1] -> ICMPError({address}, redirect, host) -> rt;\n\
             opt{port}[1] -> ICMPError({address}, parameterproblem) -> rt;\n\
             ttl{port}[1] -> ICMPError({address}, timeexceeded) -> rt;\n\
             frag{port}[1] -> ICMPError({address}, unreachable, needfrag) -> rt;\n"
        );
    }
    text
}

/// The same router with the elements that Click's optimisers put in the place of several.
pub fn combined_router(source: &str) -> String {
    let mut text = format!("{ROUTER_COMMON}{source} -> c;\n");
    text.push_str("c[2] -> IPInputCombo(1, INTERFACES 10.0.0.1/24 10.0.1.1/24) -> rt;\n");
    for (port, address) in [(1, "10.0.0.1"), (2, "10.0.1.1")] {
        _ = write!(
            text,
            "rt[{port}] -> out{port} :: IPOutputCombo({port}, {address}, 1500) -> arpq{port};\n\
             out{port}[1] -> ICMPError({address}, redirect, host) -> rt;\n\
             out{port}[2] -> ICMPError({address}, parameterproblem) -> rt;\n\
             out{port}[3] -> ICMPError({address}, timeexceeded) -> rt;\n\
             out{port}[4] -> frag{port} :: IPFragmenter(1500) -> [0] arpq{port};\n\
             frag{port}[1] -> ICMPError({address}, unreachable, needfrag) -> rt;\n"
        );
    }
    text
}

/// The handlers that tell the router the Ethernet addresses of its neighbours.
pub fn neighbours() -> Vec<String> {
    HOSTS.map(|host| format!("arpq2.insert 10.0.1.{host} 02:00:00:00:01:{host:02x}")).collect()
}

/// A chain of Nulls.
pub fn nulls(count: usize) -> String {
    format!("FromDump(in) {} -> Discard;", "-> Null ".repeat(count))
}

/// A condition of a rule. Fields that are `None` are not compared.
#[derive(Clone, Copy, Debug, Default)]
pub struct MeasuredRule {
    source: Option<(u32, u32)>,
    protocol: Option<(&'static str, u32)>,
    destination_port: Option<u32>,
    /// The output; for a filter, 1 to pass packets.
    output: u32,
}

const TCP: (&str, u32) = ("tcp", 6);
const UDP: (&str, u32) = ("udp", 17);

impl MeasuredRule {
    fn condition(&self) -> String {
        let mut parts = Vec::new();
        if let Some((address, length)) = self.source {
            parts.push(format!("src net {}/{length}", std::net::Ipv4Addr::from_bits(address)));
        }
        match (self.protocol, self.destination_port) {
            (Some((name, _)), Some(port)) => parts.push(format!("dst {name} port {port}")),
            (Some((name, _)), None) => parts.push(format!("ip proto {name}")),
            _ => {}
        }
        if parts.is_empty() { "all".to_owned() } else { parts.join(" && ") }
    }

    /// The condition in the language of capture filters.
    fn expression(&self) -> String {
        let mut parts = vec!["ip".to_owned()];
        if let Some((address, length)) = self.source {
            parts.push(format!("src net {}/{length}", std::net::Ipv4Addr::from_bits(address)));
        }
        match (self.protocol, self.destination_port) {
            (Some((name, _)), Some(port)) => parts.push(format!("{name} dst port {port}")),
            (Some((name, _)), None) => parts.push(name.to_owned()),
            _ => {}
        }
        parts.join(" and ")
    }

    /// The line of the rule for `chain`.
    fn line(&self) -> String {
        let (address, mask) =
            self.source.map_or((0, 0), |(address, length)| (address, u32::MAX << (32 - length)));
        let protocol = self.protocol.map_or(0, |(_, number)| number);
        let (first, last) = self.destination_port.map_or((0, 0x10000), |port| (port, port));
        format!("{address} {mask} 0 0 {protocol} 0 65536 {first} {last} {}\n", self.output)
    }
}

/// Rules, and the forms in which they are needed.
pub struct Rules {
    /// The arguments of the element.
    pub arguments: Vec<String>,
    /// The element with its connections.
    pub element: String,
    /// The conditions as capture filters.
    pub expressions: Vec<String>,
    /// The lines for `chain`.
    pub lines: String,
}

/// Firewall rules, of which the last one passes all packets of the measurement.
pub fn filter(count: u32) -> Rules {
    let mut rules: Vec<MeasuredRule> = (1..count)
        .map(|index| match index % 3 {
            0 => MeasuredRule { source: Some((0xac10_0000 + (index << 8), 24)), ..MeasuredRule::default() },
            1 => MeasuredRule {
                protocol: Some(TCP),
                destination_port: Some(2000 + index),
                ..MeasuredRule::default()
            },
            _ => MeasuredRule {
                source: Some((0x0a00_0000 + (index << 16), 16)),
                protocol: Some(UDP),
                destination_port: Some(3000 + index),
                ..MeasuredRule::default()
            },
        })
        .collect();
    rules.push(MeasuredRule { protocol: Some(UDP), output: 1, ..MeasuredRule::default() });
    let argument = |rule: &MeasuredRule| {
        format!("{} {}", if rule.output == 1 { "allow" } else { "deny" }, rule.condition())
    };
    let arguments: Vec<String> = rules.iter().map(argument).collect();
    Rules {
        element: format!("IPFilter({}) -> passed :: Discard", arguments.join(", ")),
        arguments,
        expressions: rules.iter().map(MeasuredRule::expression).collect(),
        lines: rules.iter().map(MeasuredRule::line).collect(),
    }
}

/// Patterns with an output each, of which the last one matches all packets of the measurement.
pub fn classifier(count: u32) -> Rules {
    let mut rules: Vec<MeasuredRule> = (0..count - 1)
        .map(|output| match output % 2 {
            0 => MeasuredRule {
                source: Some((0xac10_0000 + (output << 16), 16)),
                output,
                ..MeasuredRule::default()
            },
            _ => MeasuredRule {
                protocol: Some(TCP),
                destination_port: Some(20 + output),
                output,
                ..MeasuredRule::default()
            },
        })
        .collect();
    rules.push(MeasuredRule { output: count - 1, ..MeasuredRule::default() });
    let arguments: Vec<String> = rules.iter().map(MeasuredRule::condition).collect();
    let mut element = format!("classes :: IPClassifier({})", arguments.join(", "));
    for output in 0..count - 1 {
        _ = write!(element, "; classes[{output}] -> Discard");
    }
    _ = write!(element, "; classes[{}] -> passed :: Discard", count - 1);
    let expressions = rules.iter().map(MeasuredRule::expression).collect();
    Rules { element, arguments, expressions, lines: rules.iter().map(MeasuredRule::line).collect() }
}

/// A route: prefix, length and output.
#[derive(Clone, Copy, Debug)]
pub struct GeneratedRoute(u32, u32, u32);

/// The outputs of the routes.
pub const ROUTE_OUTPUTS: u32 = 4;

/// Routes whose lengths are spread about as in a routing table of the Internet, and a default route.
pub fn routes(count: usize) -> Vec<GeneratedRoute> {
    const LENGTHS: [u32; 20] =
        [24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 23, 22, 22, 21, 20, 19, 16, 25, 28];
    let mut random = Random::new(28);
    let mut seen = std::collections::HashSet::new();
    let mut routes = vec![GeneratedRoute(0, 0, 0)];
    while routes.len() < count {
        let length = *random.choose(&LENGTHS);
        let [a, b, c, d, output, ..] = random.word().to_le_bytes();
        // Unicast addresses.
        let prefix = u32::from_be_bytes([1 + a % 223, b, c, d]) & (u32::MAX << (32 - length));
        if seen.insert((prefix, length)) {
            routes.push(GeneratedRoute(prefix, length, u32::from(output) % ROUTE_OUTPUTS));
        }
    }
    // Shorter prefixes first: Click's DirectIPLookup refuses some tables in another order.
    routes.sort_by_key(|GeneratedRoute(prefix, length, _)| (*length, *prefix));
    routes
}

/// A lookup element whose routes have one output and different gateways.
pub fn lookup_of_gateways(class: &str, routes: &[GeneratedRoute]) -> String {
    let arguments: Vec<String> = routes
        .iter()
        .map(|GeneratedRoute(prefix, length, gateway)| {
            format!("{}/{length} 10.0.0.{} 0", std::net::Ipv4Addr::from_bits(*prefix), gateway + 1)
        })
        .collect();
    format!("{class}({})", arguments.join(", "))
}

/// A lookup element with routes, and its connections.
pub fn lookup(class: &str, routes: &[GeneratedRoute]) -> String {
    let arguments: Vec<String> = routes
        .iter()
        .map(|GeneratedRoute(prefix, length, output)| {
            format!("{}/{length} {output}", std::net::Ipv4Addr::from_bits(*prefix))
        })
        .collect();
    let mut text = format!("rt :: {class}({})", arguments.join(", "));
    for output in 0..ROUTE_OUTPUTS {
        _ = write!(text, "; rt[{output}] -> d{output} :: Discard");
    }
    text
}

/// The lines of routes for `chain`.
pub fn route_lines(routes: &[GeneratedRoute]) -> String {
    routes
        .iter()
        .map(|GeneratedRoute(prefix, length, output)| format!("{prefix} {length} {output}\n"))
        .collect()
}

/// A configuration of this many bytes: classifiers, queues, and compound elements with parameters.
pub fn large(bytes: usize) -> String {
    let mut text =
        String::from("elementclass Limit { $rate | input -> Queue(200) -> Shaper($rate) -> output }\n");
    let mut index = 0;
    while text.len() < bytes {
        _ = write!(
            text,
            "// Interface {index}\nfrom{index} :: FromDevice(eth{index}, PROMISC true);\n\
             c{index} :: Classifier(12/0806 20/0001, 12/0800, -);\nfrom{index} -> c{index};\n\
             c{index} [0-1] => Paint({index}), Limit(1000) -> Discard;\n\
             c{index} [2] -> q{index} :: Queue(64) -> ToDevice(eth{index});\n"
        );
        index += 1;
    }
    text
}

/// Writes a capture of frames with 64 bytes (60 without the check sequence) from the router's first network to its second
/// one, as many as asked for. Addresses and ports are random.
pub fn make_frames(name: &str, count: usize) -> Result<PathBuf, LabError> {
    make_frames_to(name, count, |random| {
        let ends = FrameEnds::random(random);
        let host = HOSTS.start + random.byte() % (HOSTS.end - HOSTS.start);
        FrameEnds { to: [10, 0, 1, host], ..ends }
    })
}

/// Writes a capture as [`make_frames`] does, whose frames belong to this number of flows. Each flow has frames.
pub fn make_flow_frames(name: &str, count: usize, flows: usize) -> Result<PathBuf, LabError> {
    let mut all: Vec<FrameEnds> = Vec::new();
    make_frames_to(name, count, |random| {
        if all.len() < flows {
            // Destinations differ, so that flows do.
            let [a, b, ..] = u32::try_from(all.len()).unwrap_or(0).to_le_bytes();
            all.push(FrameEnds { to: [10, 1, b, a], ..FrameEnds::random(random) });
            return all[all.len() - 1];
        }
        *random.choose(&all)
    })
}

/// The graph of the translation of addresses.
pub const TRANSLATION: &str =
    "MarkIPHeader(14) -> nat :: IPRewriter(pattern 198.51.100.1 1024-65535# - - 0 0)";

/// The ends of a frame.
#[derive(Clone, Copy)]
struct FrameEnds {
    /// The last byte of the source.
    source: u8,
    to: [u8; 4],
    ports: [u8; 4],
}

impl FrameEnds {
    /// Random ends without a destination: source ports from 32,768 on, destination ports below 1,024.
    fn random(random: &mut Random) -> Self {
        let [source, a, b, c, ..] = random.word().to_le_bytes();
        let source = HOSTS.start + source % (HOSTS.end - HOSTS.start);
        Self { source, to: [0; 4], ports: [0x80 | a, b, a & 3, c] }
    }
}

/// Writes a capture as [`make_frames`] does, to random addresses within routes.
pub fn make_routed_frames(name: &str, count: usize, routes: &[GeneratedRoute]) -> Result<PathBuf, LabError> {
    make_frames_to(name, count, |random| {
        let ends = FrameEnds::random(random);
        let GeneratedRoute(prefix, length, _) = *random.choose(routes);
        let host = u32::try_from(random.word() >> 32).unwrap_or(0);
        let to = (prefix | host & u32::MAX.checked_shr(length).unwrap_or(0)).to_be_bytes();
        FrameEnds { to, ..ends }
    })
}

fn make_frames_to(
    name: &str,
    count: usize,
    mut ends: impl FnMut(&mut Random) -> FrameEnds,
) -> Result<PathBuf, LabError> {
    const FRAME: usize = 60;
    const HEADER: [u8; 24] =
        [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];
    let mut random = Random::new(4);
    let mut bytes = HEADER.to_vec();
    for number in 0..count {
        let FrameEnds { source, to, ports } = ends(&mut random);
        let mut frame = [0; FRAME];
        frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, source, 8, 0]);
        frame[14..34].copy_from_slice(&[
            0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, source, to[0], to[1], to[2], to[3],
        ]);
        let sum: u32 = frame[14..34].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap_or(0);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame[34..38].copy_from_slice(&ports);
        frame[38..42].copy_from_slice(&[0, 26, 0, 0]);
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        for word in [1_700_000_000 + number / 1_000_000, number % 1_000_000, 60, 60] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(frame);
    }
    let path = paths::scratch().join(name);
    std::fs::create_dir_all(paths::scratch()).map_err(LabError::file(&path))?;
    std::fs::write(&path, bytes).map_err(LabError::file(&path))?;
    Ok(path)
}
