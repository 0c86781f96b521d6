//! Measures the time of a decision: the table of an `IPFilter`, its graph of tests, and rules one after another.
//!
//! `cargo run --release -p weir-elements --example classify` prints nanoseconds for each packet, on packets that match one
//! of the last rules. The last line of each set has the ratio of the table to the rules one after another.

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
        bytes.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, if next(&mut state) % 2 == 0 { 0x10 } else { 2 }]);
        bytes.resize(60, 0);
        bytes
    };
    (0..PACKETS).map(packet).collect()
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
        println!(
            "{count} rules, compiled in {compiled:.1?}: {} {table:.1} ns, graph of tests {tests:.1} ns, one after \
             another {sequential:.1} ns, ratio {:.2}",
            if set.is_table() { "table" } else { "no table" },
            table / sequential,
        );
    }
    Ok(())
}
