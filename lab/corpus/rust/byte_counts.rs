//! A histogram of bytes and its largest entry by `max_by_key`: in entropy estimators.

#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]

#[path = "../.weir/module.rs"]
mod module;

use weir_guest::{Packet, Verdict};

fn packet(_: &mut (), p: &Packet) -> Verdict {
    let payload = p.payload();
    let mut counts = [0u16; 256];
    for byte in payload {
        let count = &mut counts[usize::from(*byte)];
        *count = count.saturating_add(1);
    }
    let most = counts.iter().enumerate().max_by_key(|(_, count)| **count).map_or(0, |(byte, _)| byte);
    let distinct = counts.iter().filter(|count| **count > 0).count();
    if distinct == 1 && most == 0x90 {
        Verdict::Drop
    } else {
        Verdict::Pass
    }
}

weir_guest::module! {
    state: () = ();
    packet: packet;
}
