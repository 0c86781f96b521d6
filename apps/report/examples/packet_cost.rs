//! Measures the time that a report adds to each packet of a run:
//! `cargo run --release -p weir-report --example packet_cost -- [CAPTURE]`. Without
//! a capture, for the most expensive packets.
#![expect(clippy::cast_precision_loss, reason = "numbers of packets and nanoseconds, for people to read")]

use std::time::Instant;
use weir_abi::{Descriptor, flag};
use weir_netio::{Capture, CaptureInput, CaptureNext};
use weir_report::RunReport;

/// Packets of each measurement, at least.
const PACKETS: usize = 4_000_000;
/// Measurements, of which the shortest counts.
const REPEATS: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Some(path) = std::env::args().nth(1) else {
        print_cost("random addresses", &spoofed());
        return Ok(());
    };
    let (mut packets, mut head) = (Vec::new(), Vec::new());
    let mut capture = Capture::open(CaptureInput::File(path.clone().into()))?;
    while let CaptureNext::Block(block) = capture.next_block()? {
        for (index, descriptor) in block.descriptors().iter().enumerate() {
            block.copy_head(index, RunReport::head_bytes(descriptor), &mut head);
            packets.push((*descriptor, head.clone()));
        }
    }
    print_cost(&path, &packets);
    Ok(())
}

/// Packets between random addresses, each of which is two hosts and a conversation of its own.
fn spoofed() -> Vec<(Descriptor, Vec<u8>)> {
    let mut random = 1u64;
    let packet = |_| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let flags = flag::IPV4 | flag::TCP | flag::L4;
        let descriptor =
            Descriptor { flags, ip_proto: 6, wire_len: 60, dst_port: 80, ..Descriptor::default() };
        let mut head = vec![0; 40];
        head[12..20].copy_from_slice(&random.to_be_bytes());
        (descriptor, head)
    };
    (0..500_000).map(packet).collect()
}

fn print_cost(name: &str, packets: &[(Descriptor, Vec<u8>)]) {
    let passes = PACKETS.div_ceil(packets.len().max(1));
    let measure = || {
        let mut report = RunReport::new();
        let begin = Instant::now();
        for (descriptor, head) in std::iter::repeat_n(packets, passes).flatten() {
            report.add_packet(descriptor, head);
        }
        begin.elapsed().as_nanos() as f64 / (passes * packets.len()) as f64
    };
    let least = (0..REPEATS).map(|_| measure()).fold(f64::INFINITY, f64::min);
    println!("{name}: {least:.1} ns per packet");
}
