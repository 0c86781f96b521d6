//! Padding counted from the end by `rev` and `take_while`: in link-layer code.

#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]

#[path = "../.weir/module.rs"]
mod module;

use weir_guest::{Packet, Verdict};

fn packet(_: &mut (), p: &Packet) -> Verdict {
    let padding = p.bytes().iter().rev().take_while(|byte| **byte == 0).count();
    if padding > 32 {
        Verdict::Drop
    } else {
        Verdict::Pass
    }
}

weir_guest::module! {
    state: () = ();
    packet: packet;
}
