//! bytes-per-prefix in Rust: packets and bytes from each of four prefixes.

#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]

#[path = "../.weir/module.rs"]
mod module;

use module::{param, Prefixes};
use weir_guest::containers::Lpm;
use weir_guest::{emit, Packet, Verdict};

const PREFIXES: usize = 4;

#[derive(Clone, Copy)]
struct Count {
    packets: u64,
    bytes: u64,
}

struct State {
    table: Lpm<66>, // a prefix needs at most 15 nodes, and two are there from the start
    counts: [Count; PREFIXES],
}

fn prefixes() -> [weir_guest::Prefix; PREFIXES] {
    [param::net1(), param::net2(), param::net3(), param::net4()]
}

impl State {
    fn start(&mut self) -> bool {
        prefixes().iter().zip(0..).all(|(prefix, i)| self.table.add(prefix, i))
    }

    fn packet(&mut self, packet: &Packet) -> Verdict {
        if let Some(i) = packet.src().and_then(|source| self.table.find(source)) {
            if let Some(count) = self.counts.get_mut(i as usize) {
                count.packets += 1;
                count.bytes += u64::from(packet.wire_len);
            }
        }
        Verdict::Pass
    }

    fn stop(&mut self, now: u64) {
        for (i, prefix) in prefixes().iter().enumerate() {
            let is_v4 = prefix.bits() >= 96 && prefix.address().to_v4().is_some();
            emit(&Prefixes {
                time: now,
                number: i as u8 + 1,
                prefix: prefix.address(),
                length: if is_v4 { prefix.bits() - 96 } else { prefix.bits() },
                packets: self.counts[i].packets,
                bytes: self.counts[i].bytes,
            });
        }
    }
}

weir_guest::module! {
    state: State = State { table: Lpm::new(), counts: [Count { packets: 0, bytes: 0 }; PREFIXES] };
    start: State::start;
    packet: State::packet;
    stop: State::stop;
}
