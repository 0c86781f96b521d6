//! Measures the time of a decision: the table of an `IPFilter`, its graph of tests, and rules one after another, as
//! conditions and as a program in C would have them.
//!
//! `cargo run --release -p weir-elements --example classify` prints nanoseconds for each packet, on packets that match one
//! of the last rules. The ratio is that of the table to the rules as in C.

#![allow(
    clippy::cast_possible_truncation,
    reason = "numbers of rules and random numbers are cut to the fields of packets"
)]

use std::hint::black_box;
use std::time::Instant;
use weir_elements::classification::{PacketParts, RuleSet, ip_filter};

/// The packets, more than the branches of a program that a processor can remember.
const PACKETS: usize = 1024;
/// The passes over all packets. A pass is short, so that some pass is not interrupted by other programs.
const PASSES: usize = 300;

/// A generator of numbers that repeats itself after 2^32.
fn next(state: &mut u32) -> u32 {
    *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    *state >> 8
}

/// Returns rules of a firewall: services of hosts and networks, and at the end everything else.
fn firewall(count: u32) -> Vec<String> {
    let mut rules = Vec::new();
    for rule in 0..count - 2 {
        let host = format!("10.{}.{}.{}", rule % 7, rule % 11, rule + 1);
        rules.push(match rule % 5 {
            0 => format!("deny src net 172.{}.0.0/16", 16 + rule % 16),
            1 => format!("allow dst host {host} && tcp dst port {}", 20 + rule),
            2 => format!("allow src {host} && tcp && src port {} && dst port > 1023 && ack", 20 + rule),
            3 => format!("allow dst net 192.168.{rule}.0/24 && udp && dst port {}", 50 + rule),
            _ => format!("deny src net 10.{rule}.0.0/16 && dst host {host}"),
        });
    }
    rules.push("allow tcp && dst port > 1023 && ack".to_owned());
    rules.push("deny all".to_owned());
    rules
}

/// Returns TCP packets between hosts of the rules that match the last two rules.
fn packets() -> Vec<Vec<u8>> {
    let mut state = 1;
    let packet = |_| {
        let mut bytes = vec![0x45, 0, 0, 60, 0, 1, 0, 0, 64, 6, 0, 0];
        bytes.extend([10, (next(&mut state) % 7) as u8, (next(&mut state) % 11) as u8, 200]);
        bytes.extend([192, 168, (100 + next(&mut state) % 90) as u8, next(&mut state) as u8]);
        bytes.extend([0x30, 0x39]);
        bytes.extend((1000 + (next(&mut state) % 60_000) as u16).to_be_bytes());
        bytes.extend([
            0,
            0,
            0,
            1,
            0,
            0,
            0,
            1,
            0x50,
            if next(&mut state).is_multiple_of(2) { 0x10 } else { 2 },
        ]);
        bytes.resize(60, 0);
        bytes
    };
    (0..PACKETS).map(packet).collect()
}

/// A rule as a program in C would have it: a structure whose fields are compared one after another.
struct PlainRule {
    source: (u32, u32),
    destination: (u32, u32),
    protocol: u8,
    source_ports: (u16, u16),
    destination_ports: (u16, u16),
    flags: u8,
    output: u16,
}

/// Returns the rules of [`firewall`] in that form.
fn plain(count: u32) -> Vec<PlainRule> {
    let any = || PlainRule {
        source: (0, 0),
        destination: (0, 0),
        protocol: 0,
        source_ports: (0, u16::MAX),
        destination_ports: (0, u16::MAX),
        flags: 0,
        output: 0,
    };
    let mut rules = Vec::new();
    for rule in 0..count - 2 {
        let host = (10 << 24 | (rule % 7) << 16 | (rule % 11) << 8 | (rule + 1), u32::MAX);
        let port = |from: u32| (from as u16 + rule as u16, from as u16 + rule as u16);
        let high = (1024, u16::MAX);
        rules.push(match rule % 5 {
            0 => PlainRule {
                source: (172 << 24 | (16 + rule % 16) << 16, 0xffff_0000),
                output: u16::MAX,
                ..any()
            },
            1 => PlainRule { destination: host, protocol: 6, destination_ports: port(20), ..any() },
            2 => PlainRule {
                source: host,
                protocol: 6,
                source_ports: port(20),
                destination_ports: high,
                flags: 16,
                ..any()
            },
            3 => PlainRule {
                destination: (192 << 24 | 168 << 16 | rule << 8, 0xffff_ff00),
                protocol: 17,
                destination_ports: port(50),
                ..any()
            },
            _ => PlainRule {
                source: (10 << 24 | rule << 16, 0xffff_0000),
                destination: host,
                output: u16::MAX,
                ..any()
            },
        });
    }
    rules.push(PlainRule { protocol: 6, destination_ports: (1024, u16::MAX), flags: 16, ..any() });
    rules
}

fn decide_plainly(rules: &[PlainRule], parts: &PacketParts<'_>) -> u16 {
    let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|byte| parts.main[at + byte]));
    let port = |at: usize| u16::from_be_bytes([parts.transport[at], parts.transport[at + 1]]);
    let (source, destination, protocol) = (word(12), word(16), parts.main[9]);
    let is_first = word(4) & 0x1fff == 0;
    let (from, to, flags) = (port(0), port(2), parts.transport[13]);
    let matches = |rule: &&PlainRule| {
        source & rule.source.1 == rule.source.0
            && destination & rule.destination.1 == rule.destination.0
            && (rule.protocol == 0 || (rule.protocol == protocol && is_first))
            && (rule.source_ports.0..=rule.source_ports.1).contains(&from)
            && (rule.destination_ports.0..=rule.destination_ports.1).contains(&to)
            && flags & rule.flags == rule.flags
    };
    rules.iter().find(matches).map_or(u16::MAX, |rule| rule.output)
}

fn measure(packets: &[Vec<u8>], decide: impl Fn(&PacketParts<'_>) -> u16) -> f64 {
    let pass = || {
        let begin = Instant::now();
        for packet in packets {
            let parts = PacketParts { main: packet, transport: &packet[20..], link: &[] };
            black_box(decide(black_box(&parts)));
        }
        begin.elapsed().as_nanos() as f64 / packets.len() as f64
    };
    // The least of all: other programs only add to the time.
    (0..PASSES).map(|_| pass()).fold(f64::INFINITY, f64::min)
}

fn main() -> Result<(), String> {
    let packets = packets();
    for count in [10, 50, 200] {
        let rules = firewall(count);
        if std::env::args().any(|argument| argument == "--rules") {
            println!("IPFilter({})", rules.join(", "));
        }
        let texts: Vec<&str> = rules.iter().map(String::as_str).collect();
        let begin = Instant::now();
        let set: RuleSet = ip_filter(&texts, 1)?;
        let compiled = begin.elapsed();
        let table = measure(&packets, |parts| set.decide(parts));
        let tests = measure(&packets, |parts| set.decide_by_tests(parts));
        let sequential = measure(&packets, |parts| set.decide_one_by_one(parts));
        let structures = plain(count);
        for packet in &packets {
            let parts = PacketParts { main: packet, transport: &packet[20..], link: &[] };
            if decide_plainly(&structures, &parts) != set.decide(&parts) {
                return Err(format!("the structures are not the rules: {packet:?}"));
            }
        }
        let plain = measure(&packets, |parts| decide_plainly(&structures, parts));
        println!(
            "{count} rules, compiled in {compiled:.1?}: {} {table:.1} ns, graph of tests {tests:.1} ns, conditions one \
             after another {sequential:.1} ns, structures as in C one after another {plain:.1} ns, ratio {:.2}",
            if set.is_table() { "table" } else { "no table" },
            table / plain,
        );
    }
    Ok(())
}
