//! A sorted slice searched by `binary_search`: in classifiers.

#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]

#[path = "../.weir/module.rs"]
mod module;

use weir_guest::{Packet, Verdict};

const PORTS: [u16; 23] = [
    20, 21, 22, 23, 25, 53, 67, 68, 80, 110, 123, 143, 161, 389, 443, 445, 514, 587, 993, 995, 1433, 3306, 3389,
];

fn packet(_: &mut (), p: &Packet) -> Verdict {
    match PORTS.binary_search(&p.dst_port) {
        Ok(place) if place > 20 => Verdict::Drop,
        _ => Verdict::Pass,
    }
}

weir_guest::module! {
    state: () = ();
    packet: packet;
}
