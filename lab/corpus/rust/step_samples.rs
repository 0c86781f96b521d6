//! Every sixteenth byte by `step_by`: in classifiers that look at samples of a payload.

#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]

#[path = "../.weir/module.rs"]
mod module;

use weir_guest::{Packet, Verdict};

fn packet(_: &mut (), p: &Packet) -> Verdict {
    let payload = p.payload();
    let mut printable = 0;
    let mut all = 0;
    for at in (0..payload.len()).step_by(16) {
        all += 1;
        if payload[at].is_ascii_graphic() {
            printable += 1;
        }
    }
    if all > 8 && printable * 10 < all {
        Verdict::Drop
    } else {
        Verdict::Pass
    }
}

weir_guest::module! {
    state: () = ();
    packet: packet;
}
