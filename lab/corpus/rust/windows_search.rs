//! A string searched by `windows`: in simple intrusion detection.

#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]

#[path = "../.weir/module.rs"]
mod module;

use weir_guest::{Packet, Verdict};

const NEEDLE: &[u8] = b"/etc/passwd";

fn packet(_: &mut (), p: &Packet) -> Verdict {
    if p.payload().windows(NEEDLE.len()).any(|window| window == NEEDLE) {
        Verdict::Drop
    } else {
        Verdict::Pass
    }
}

weir_guest::module! {
    state: () = ();
    packet: packet;
}
