//! new-sources in Rust: source addresses that were not seen before.

#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]

#[path = "../.weir/module.rs"]
mod module;

use module::{Sources, Totals};
use weir_guest::containers::{Bloom, HyperLogLog, TokenBucket};
use weir_guest::{emit, Ip, Packet, Verdict};

const ROWS_PER_SECOND: u64 = 1000;
const ROWS_AT_ONCE: u64 = 10_000;

struct State {
    seen: Bloom<Ip, { 262_144 / 4 }>,
    distinct: HyperLogLog<Ip, 4096>,
    rows: TokenBucket,
    left_out: u64,
}

impl State {
    fn packet(&mut self, packet: &Packet) -> Verdict {
        let Some(source) = packet.src().filter(|source| self.seen.add(source)) else { return Verdict::Pass };
        self.distinct.add(&source);
        if self.rows.take(packet.ts_ns, ROWS_PER_SECOND, ROWS_AT_ONCE, 1) {
            emit(&Sources { time: packet.ts_ns, source, ttl: packet.ttl });
        } else {
            self.left_out += 1;
        }
        Verdict::Pass
    }

    fn stop(&mut self, now: u64) {
        emit(&Totals {
            time: now,
            sources: self.seen.len(),
            estimate: (self.distinct.count() + 0.5) as u64,
            rows_left_out: self.left_out,
        });
    }
}

weir_guest::module! {
    state: State = State {
        seen: Bloom::new(),
        distinct: HyperLogLog::new(),
        rows: TokenBucket::new(),
        left_out: 0,
    };
    packet: State::packet;
    stop: State::stop;
}
