//! The first line found by `position`, split at spaces: in parsers of HTTP and SIP.

#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]

#[path = "../.weir/module.rs"]
mod module;

use weir_guest::{Packet, Verdict};

fn packet(_: &mut (), p: &Packet) -> Verdict {
    let text = p.payload();
    let Some(end) = text.iter().position(|byte| *byte == b'\r') else { return Verdict::Pass };
    let mut words = text[..end].split(|byte| *byte == b' ');
    let (Some(method), Some(path)) = (words.next(), words.next()) else { return Verdict::Pass };
    if method == b"GET" && path.starts_with(b"/admin") {
        return Verdict::Drop;
    }
    Verdict::Pass
}

weir_guest::module! {
    state: () = ();
    packet: packet;
}
