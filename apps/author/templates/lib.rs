//! {{name}}: counts packets and bytes by protocol. A module that works, to be changed.

// In the sandbox there is no standard library. On your own machine there is, so that `cargo check` and editors work.
#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]

// Made from weir.toml by `weir build`: a struct for each stream, a function for each parameter.
#[path = "../.weir/module.rs"]
mod module;

use module::{param, Protocols};
use weir_guest::{emit, Packet, Verdict};

#[derive(Clone, Copy)]
struct Count {
    packets: u64,
    bytes: u64,
}

/// What the module keeps from packet to packet.
struct Counter {
    /// In ns.
    interval: u64,
    by_protocol: [Count; 256],
}

impl Counter {
    const fn new() -> Self {
        Self { interval: 0, by_protocol: [Count { packets: 0, bytes: 0 }; 256] }
    }

    /// Called once, before the first packet: the place to read parameters. `false` says that the module does not want to run.
    fn start(&mut self) -> bool {
        self.interval = param::interval();
        true
    }

    /// Called for every packet. weir has parsed the headers already: the packet says what was found. What may not be there is an
    /// `Option`, and bytes are slices that end where the packet ends.
    fn packet(&mut self, packet: &Packet) -> Verdict {
        if packet.is_ip() {
            let count = &mut self.by_protocol[usize::from(packet.ip_proto)];
            count.packets += 1;
            count.bytes += u64::from(packet.wire_len);
        }
        Verdict::Pass
    }

    /// Called when packet time has passed `now`, the end of an interval. After a gap without packets it is called once, and `periods`
    /// says how many intervals have ended: the packets that were counted are from the first of them.
    fn tick(&mut self, now: u64, periods: u64) {
        self.report(now - periods * self.interval);
    }

    /// Called after the last packet, whose time stamp is `now`: the last interval has not ended, so it is reported here.
    fn stop(&mut self, now: u64) {
        self.report(now - now % self.interval);
    }

    fn report(&mut self, begin: u64) {
        for (protocol, count) in (0u8..=255).zip(&mut self.by_protocol) {
            if count.packets != 0 {
                emit(&Protocols { time: begin, protocol, packets: count.packets, bytes: count.bytes });
                *count = Count { packets: 0, bytes: 0 };
            }
        }
    }
}

// What weir calls, and with which state.
weir_guest::module! {
    state: Counter = Counter::new();
    start: Counter::start;
    packet: Counter::packet;
    tick: Counter::tick;
    stop: Counter::stop;
}
