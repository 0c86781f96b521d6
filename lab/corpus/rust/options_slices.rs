//! TCP options by slice patterns: in parsers of headers.

#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]

#[path = "../.weir/module.rs"]
mod module;

use weir_guest::{tcp, Packet, Verdict};

fn window_scale(mut options: &[u8]) -> Option<u8> {
    loop {
        options = match options {
            [] | [0, ..] => return None,
            [1, rest @ ..] => rest,
            [3, 3, shift, ..] => return Some(*shift),
            [_, len, ..] if *len >= 2 => options.get(usize::from(*len)..)?,
            _ => return None,
        };
    }
}

fn packet(_: &mut (), p: &Packet) -> Verdict {
    if p.tcp_flags & tcp::SYN == 0 {
        return Verdict::Pass;
    }
    let Some(header) = p.l4() else { return Verdict::Pass };
    let len = header.get(12).map_or(0, |byte| usize::from(byte >> 4) * 4);
    match header.get(20..len).and_then(window_scale) {
        Some(shift) if shift > 14 => Verdict::Drop,
        _ => Verdict::Pass,
    }
}

weir_guest::module! {
    state: () = ();
    packet: packet;
}
