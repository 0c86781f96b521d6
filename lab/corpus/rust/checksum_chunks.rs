//! The Internet checksum by `chunks_exact` and its remainder: in packet libraries.

#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]

#[path = "../.weir/module.rs"]
mod module;

use weir_guest::{flag, Packet, Verdict};

fn checksum(data: &[u8]) -> u16 {
    let words = data.chunks_exact(2);
    let odd = words.remainder().first().map_or(0, |byte| u32::from(*byte) << 8);
    let mut sum = odd + words.map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum::<u32>();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn packet(_: &mut (), p: &Packet) -> Verdict {
    if p.has(flag::L4) && checksum(p.payload()) == 0 {
        return Verdict::Drop;
    }
    Verdict::Pass
}

weir_guest::module! {
    state: () = ();
    packet: packet;
}
