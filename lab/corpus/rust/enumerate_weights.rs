//! A weighted sum by `enumerate`: in rolling checksums and sketches.

#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]

#[path = "../.weir/module.rs"]
mod module;

use weir_guest::{Packet, Verdict};

fn packet(_: &mut (), p: &Packet) -> Verdict {
    let mut sum = 0u32;
    for (index, byte) in p.bytes().iter().enumerate() {
        sum = sum.wrapping_add((index as u32 + 1).wrapping_mul(u32::from(*byte)));
    }
    if sum % 65521 == 0 {
        Verdict::Drop
    } else {
        Verdict::Pass
    }
}

weir_guest::module! {
    state: () = ();
    packet: packet;
}
