//! FNV-1a by `fold` over everything: in sampling.

#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]

#[path = "../.weir/module.rs"]
mod module;

use weir_guest::{Packet, Verdict};

fn packet(_: &mut (), p: &Packet) -> Verdict {
    let hash = p.bytes().iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    if hash & 1023 == 0 {
        Verdict::Drop
    } else {
        Verdict::Pass
    }
}

weir_guest::module! {
    state: () = ();
    packet: packet;
}
