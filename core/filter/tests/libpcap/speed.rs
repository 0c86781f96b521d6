//! Programs are about as short as libpcap's optimised ones, and execute about as few instructions.

use crate::expressions::USUAL;
use crate::packets::sample;
use crate::programs::instructions;
use crate::{ours, theirs};
use weir_demux::Instruction;
use weir_wire::LinkType;

/// The number of instructions that a program executes for a packet.
fn steps(program: &[Instruction], packet: &[u8]) -> usize {
    let (mut a, mut x, mut words, mut at, mut steps) = (0_u32, 0_u32, [0_u32; 16], 0, 0);
    let load = |at: u32, width: u32| {
        let bytes = packet.get(at as usize..at as usize + width as usize)?;
        Some(bytes.iter().fold(0, |number, &byte| number << 8 | u32::from(byte)))
    };
    loop {
        let Instruction { code, jt, jf, k } = program[at];
        (at, steps) = (at + 1, steps + 1);
        let by = if code & 8 == 0 { k } else { x };
        let holds = |holds: bool| usize::from(if holds { jt } else { jf });
        let width = [4, 2, 1][usize::from(code >> 3 & 3) % 3];
        match code {
            0x20 | 0x28 | 0x30 | 0x40 | 0x48 | 0x50 => {
                let base = if code & 0x40 == 0 { 0 } else { x };
                match load(base.saturating_add(k), width) {
                    Some(value) => a = value,
                    None => return steps,
                }
            }
            0xb1 => match load(k, 1) {
                Some(value) => x = (value & 15) << 2,
                None => return steps,
            },
            0x00 => a = k,
            0x01 => x = k,
            0x80 => a = u32::try_from(packet.len()).unwrap(),
            0x81 => x = u32::try_from(packet.len()).unwrap(),
            0x60 => a = words[k as usize],
            0x61 => x = words[k as usize],
            0x02 => words[k as usize] = a,
            0x03 => words[k as usize] = x,
            0x07 => x = a,
            0x87 => a = x,
            0x84 => a = a.wrapping_neg(),
            0x05 => at += k as usize,
            0x15 | 0x1d => at += holds(a == by),
            0x25 | 0x2d => at += holds(a > by),
            0x35 | 0x3d => at += holds(a >= by),
            0x45 | 0x4d => at += holds(a & by != 0),
            0x06 | 0x16 => return steps,
            _ => match code & 0xf7 {
                0x04 => a = a.wrapping_add(by),
                0x14 => a = a.wrapping_sub(by),
                0x24 => a = a.wrapping_mul(by),
                0x34 if by != 0 => a /= by,
                0x94 if by != 0 => a %= by,
                0x34 | 0x94 => return steps,
                0x44 => a |= by,
                0x54 => a &= by,
                0xa4 => a ^= by,
                0x64 => a = a.checked_shl(by).unwrap_or(0),
                0x74 => a = a.checked_shr(by).unwrap_or(0),
                _ => panic!("{code:#x}"),
            },
        }
    }
}

/// Filters with many addresses or ports, such as watch lists.
fn lists() -> Vec<String> {
    let list =
        |count: usize, one: &dyn Fn(usize) -> String| (0..count).map(one).collect::<Vec<_>>().join(" or ");
    vec![
        list(30, &|i| format!("port {}", 100 + 7 * i)),
        list(30, &|i| format!("host 10.0.{}.{i}", i % 3)),
        list(20, &|i| format!("net 10.{i}.0.0/16")),
        list(10, &|i| format!("(host 10.0.0.{i} and tcp port {})", 80 + i)),
        list(20, &|i| format!("host fd00::{i:x}")),
    ]
}

#[test]
fn programs_are_about_as_long_and_as_fast_as_those_of_libpcap() {
    let packets: Vec<Vec<u8>> = sample().into_iter().step_by(10).collect();
    let (mut length, mut taken, mut count) = ([0; 2], [0; 2], 0);
    let texts: Vec<String> = USUAL.iter().map(|text| (*text).to_owned()).chain(lists()).collect();
    for text in texts {
        let (Ok(ours), Ok(theirs)) =
            (ours(&text, LinkType::Ethernet), theirs(&text, LinkType::Ethernet, true))
        else {
            continue;
        };
        if text.contains("geneve") {
            continue;
        }
        let programs = [ours.instructions().to_vec(), instructions(&theirs)];
        let all =
            programs.each_ref().map(|one| packets.iter().map(|packet| steps(one, packet)).sum::<usize>());
        if programs[0].len() > programs[1].len() || all[0] > all[1] {
            let shown: String = text.chars().take(70).collect();
            println!("{shown}: {} and {} instructions, {all:?} steps", programs[0].len(), programs[1].len());
        }
        for i in 0..2 {
            (length[i], taken[i]) = (length[i] + programs[i].len(), taken[i] + all[i]);
        }
        count += 1;
    }
    println!(
        "{count} filters, weir's and libpcap's: {length:?} instructions, {taken:?} steps for {} packets",
        packets.len()
    );
    assert!(count > 150);
    assert!(length[0] * 10 < length[1] * 11 && taken[0] * 10 < taken[1] * 11, "{length:?} {taken:?}");
}
