//! heavy-hitters in Rust: pairs of hosts that exceed a number of bytes in an interval.

#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]

#[path = "../.weir/module.rs"]
mod module;

use module::{param, Hitters};
use weir_guest::containers::CountMin;
use weir_guest::{emit, Ip, Packet, Verdict};

const WIDTH: usize = 16384;

weir_guest::key! {
    struct Pair {
        source: Ip,
        destination: Ip,
    }
}

struct State {
    bytes: CountMin<Pair, WIDTH>,
}

impl State {
    fn packet(&mut self, packet: &Packet) -> Verdict {
        let (Some(source), Some(destination)) = (packet.src(), packet.dst()) else { return Verdict::Pass };
        let len = u64::from(packet.wire_len);
        let bytes = self.bytes.add(&Pair { source, destination }, len);
        if bytes > param::threshold() && bytes.wrapping_sub(len) <= param::threshold() {
            let error_bytes = (2.72 * self.bytes.total() as f64 / WIDTH as f64) as u64;
            emit(&Hitters { time: packet.ts_ns, source, destination, bytes, error_bytes });
        }
        Verdict::Pass
    }

    fn tick(&mut self, _now: u64, _periods: u64) {
        self.bytes.clear();
    }
}

weir_guest::module! {
    state: State = State { bytes: CountMin::new() };
    packet: State::packet;
    tick: State::tick;
}
