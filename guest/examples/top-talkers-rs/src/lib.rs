//! top-talkers in Rust: hosts that send the most bytes in each interval.

#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]

#[path = "../.weir/module.rs"]
mod module;

use module::{param, Talkers};
use weir_guest::containers::Top;
use weir_guest::{emit, Ip, Packet, Verdict};

struct State {
    talkers: Top<Ip, 1024>,
}

impl State {
    fn packet(&mut self, packet: &Packet) -> Verdict {
        if let Some(source) = packet.src() {
            self.talkers.add(source, packet.wire_len.into());
        }
        Verdict::Pass
    }

    fn report(&mut self, begin: u64) {
        let total = self.talkers.total() as f64;
        self.talkers.each::<100>(param::top() as usize, |rank, entry| {
            emit(&Talkers {
                time: begin,
                rank,
                host: entry.key,
                bytes: entry.count,
                error_bytes: entry.error,
                share: entry.count as f64 / total,
            });
        });
        self.talkers.clear();
    }

    fn tick(&mut self, now: u64, periods: u64) {
        self.report(now.wrapping_sub(periods.wrapping_mul(param::interval())));
    }

    fn stop(&mut self, now: u64) {
        self.report(now - now % param::interval().max(1));
    }
}

weir_guest::module! {
    state: State = State { talkers: Top::new() };
    packet: State::packet;
    tick: State::tick;
    stop: State::stop;
}
