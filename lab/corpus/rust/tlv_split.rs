//! Type, length, value by `split_at_checked`: in parsers of RADIUS, DHCP and routing protocols.

#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]

#[path = "../.weir/module.rs"]
mod module;

use weir_guest::{Packet, Verdict};

struct Counter {
    values: u64,
}

fn next(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (head, rest) = bytes.split_at_checked(2)?;
    let (value, rest) = rest.split_at_checked(usize::from(head[1]))?;
    Some((head[0], value, rest))
}

impl Counter {
    fn packet(&mut self, p: &Packet) -> Verdict {
        let mut rest = p.payload();
        while let Some((kind, value, after)) = next(rest) {
            if kind == 0xff && value.is_empty() {
                return Verdict::Drop;
            }
            self.values += 1;
            rest = after;
        }
        Verdict::Pass
    }

    fn stop(&mut self, _now: u64) {
        weir_guest::emit(&module::Seen { value: self.values });
    }
}

weir_guest::module! {
    state: Counter = Counter { values: 0 };
    packet: Counter::packet;
    stop: Counter::stop;
}
