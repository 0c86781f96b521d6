//! The median of a window by `sort_unstable`: in jitter monitors.

#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]

#[path = "../.weir/module.rs"]
mod module;

use weir_guest::{Packet, Verdict};

struct Window {
    lengths: [u32; 15],
    at: usize,
}

impl Window {
    fn packet(&mut self, p: &Packet) -> Verdict {
        self.lengths[self.at] = p.wire_len;
        self.at = (self.at + 1) % self.lengths.len();
        let mut sorted = self.lengths;
        sorted.sort_unstable();
        if sorted[7] > 1400 {
            Verdict::Drop
        } else {
            Verdict::Pass
        }
    }
}

weir_guest::module! {
    state: Window = Window { lengths: [0; 15], at: 0 };
    packet: Window::packet;
}
