//! Bytes as hexadecimal text into an array, by `chunks_exact_mut` and `zip`: in loggers.

#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]

#[path = "../.weir/module.rs"]
mod module;

use weir_guest::{Packet, Verdict};

struct Text {
    digits: [u8; 64],
}

impl Text {
    fn packet(&mut self, p: &Packet) -> Verdict {
        for (to, byte) in self.digits.chunks_exact_mut(2).zip(p.bytes()) {
            to[0] = b"0123456789abcdef"[usize::from(byte >> 4)];
            to[1] = b"0123456789abcdef"[usize::from(byte & 15)];
        }
        if self.digits.starts_with(b"ffffffffffff") {
            Verdict::Drop
        } else {
            Verdict::Pass
        }
    }
}

weir_guest::module! {
    state: Text = Text { digits: [0; 64] };
    packet: Text::packet;
}
