//! The cost of `classify_into` and `patch::apply`: `cargo run -p weir-wire --release --example cost`.
//!
//! Classifies 4096 packets of different flows in turn and writes their descriptors to a ring of 64, as a source does.
//! Prints the median of 41 rounds, so that interrupted rounds do not count.

#![allow(clippy::print_stdout, reason = "that is its output")]

use etherparse::PacketBuilder;
use std::hint::black_box;
use std::time::Instant;
use weir_abi::{BATCH_PACKETS, Descriptor};
use weir_units::Timestamp;
use weir_wire::{LinkType, Meta, PEEK, classify, classify_into, patch};

const PACKETS: usize = 4096;

fn median_ns(packets: &[Vec<u8>]) -> f64 {
    let mut ring = [Descriptor::default(); BATCH_PACKETS];
    let mut rounds: Vec<f64> = (0..41)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..16 {
                for (number, packet) in packets.iter().enumerate() {
                    let mut head = [0; PEEK];
                    let len = packet.len().min(PEEK);
                    if let Some(whole) = packet.first_chunk() {
                        head = *whole;
                    } else {
                        head[..len].copy_from_slice(packet);
                    }
                    let cap_len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
                    let meta = Meta {
                        ts: Timestamp(1),
                        cap_len,
                        wire_len: cap_len,
                        link_type: LinkType::Ethernet,
                        interface: 0,
                        number: 1,
                        // The packet's address in a module's memory, which the classifier only copies.
                        data: 64,
                    };
                    let _ = black_box(classify_into(
                        black_box(&head[..len]),
                        &meta,
                        &mut ring[number % BATCH_PACKETS],
                    ));
                }
                black_box(&ring);
            }
            start.elapsed().as_secs_f64() * 1e9 / 16.0 / f64::from(u32::try_from(packets.len()).unwrap_or(1))
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

fn main() {
    let of = |make: &dyn Fn([u8; 4], u16) -> Vec<u8>| -> Vec<Vec<u8>> {
        (0..PACKETS)
            .map(|i| {
                let [.., high, low] = u32::try_from(i).unwrap_or(0).wrapping_mul(2_654_435_761).to_be_bytes();
                make([10, 0, high, low], u16::from_be_bytes([low, high]))
            })
            .collect()
    };
    let write = |builder: etherparse::PacketBuilderStep<etherparse::TcpHeader>, payload: usize| {
        let mut bytes = Vec::new();
        builder.write(&mut bytes, &vec![7; payload]).expect("the packet is small");
        bytes
    };
    let ether = || PacketBuilder::ethernet2([1; 6], [2; 6]);
    let v6 = |ip: [u8; 4]| [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, ip[0], ip[1], ip[2], ip[3]];
    let cases: [(&str, Vec<Vec<u8>>); 4] = [
        (
            "Ethernet, IPv4, TCP, 200 bytes payload",
            of(&|ip, port| write(ether().ipv4(ip, [10, 1, 1, 1], 64).tcp(port, 80, 1, 1024), 200)),
        ),
        (
            "Ethernet, IPv4, TCP, no payload (54 bytes)",
            of(&|ip, port| write(ether().ipv4(ip, [10, 1, 1, 1], 64).tcp(port, 80, 1, 1024), 0)),
        ),
        (
            "Ethernet, VLAN, IPv4, TCP",
            of(&|ip, port| {
                write(
                    ether()
                        .single_vlan(etherparse::VlanId::ZERO)
                        .ipv4(ip, [10, 1, 1, 1], 64)
                        .tcp(port, 80, 1, 1024),
                    200,
                )
            }),
        ),
        (
            "Ethernet, IPv6, TCP",
            of(&|ip, port| write(ether().ipv6(v6(ip), v6([9; 4]), 64).tcp(port, 80, 1, 1024), 200)),
        ),
    ];
    let mut packet = cases[0].1[0].clone();
    let cap_len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
    let meta = Meta {
        ts: Timestamp(1),
        cap_len,
        wire_len: cap_len,
        link_type: LinkType::Ethernet,
        interface: 0,
        number: 1,
        data: 64,
    };
    let descriptor = classify(&packet, &meta).expect("all bytes are there");
    let start = Instant::now();
    for round in 0..1_000_000_u32 {
        let dscp = if round & 1 == 0 { 0xb8 } else { 0 };
        let _ = black_box(patch::apply(black_box(&mut packet), &descriptor, 15, &[dscp]));
    }
    println!(
        "{:6.1} ns  patching the type of service of an IPv4 packet",
        start.elapsed().as_secs_f64() * 1e3
    );
    for (name, packets) in cases {
        println!("{:6.1} ns  {name}", median_ns(&packets));
    }
}
