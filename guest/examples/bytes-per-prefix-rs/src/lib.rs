//! bytes-per-prefix in Rust: packets and bytes from each of a list of prefixes.

#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]

#[path = "../.weir/module.rs"]
mod module;

use module::{param, Prefixes};
use weir_guest::containers::Lpm;
use weir_guest::{emit, Level, Packet, Verdict};

const PREFIXES: usize = 64;
const PREFIX_BYTES: usize = 17;

#[derive(Clone, Copy)]
struct Count {
    packets: u64,
    bytes: u64,
}

struct State {
    table: Lpm<962>, // a prefix needs at most 15 nodes, and two are there from the start
    counts: [Count; PREFIXES],
}

impl State {
    fn start(&mut self) -> bool {
        match param::networks(&mut [0; PREFIXES * PREFIX_BYTES]) {
            Ok(networks) => self.table.load(&networks),
            Err(_) => {
                weir_guest::log(Level::Error, "networks: at most 64");
                false
            }
        }
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
        let mut room = [0; PREFIXES * PREFIX_BYTES];
        let Ok(networks) = param::networks(&mut room) else { return };
        for ((prefix, count), number) in networks.iter().zip(&self.counts).zip(1..) {
            let is_v4 = prefix.bits() >= 96 && prefix.address().to_v4().is_some();
            emit(&Prefixes {
                time: now,
                number,
                prefix: prefix.address(),
                length: if is_v4 { prefix.bits() - 96 } else { prefix.bits() },
                packets: count.packets,
                bytes: count.bytes,
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
