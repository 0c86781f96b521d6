//! {{name}}: counts packets and bytes by protocol. A working module to start from.

// A sandbox has no standard library. Other targets use the library, so that `cargo check` and editors work.
#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]

// Generated from weir.toml by `weir build`: a struct for each stream, a function for each parameter.
#[path = "../.weir/module.rs"]
mod module;

use module::{param, Protocols};
use weir_guest::{emit, Packet, Verdict};

#[derive(Clone, Copy)]
struct Count {
    packets: u64,
    bytes: u64,
}

/// The module's state, kept from packet to packet.
struct Counter {
    by_protocol: [Count; 256],
}

impl Counter {
    const fn new() -> Self {
        Self { by_protocol: [Count { packets: 0, bytes: 0 }; 256] }
    }

    /// Called for every packet. weir has parsed the headers already. Headers and fields that may be missing are `Option`s, and
    /// bytes are slices that end where the packet ends.
    fn packet(&mut self, packet: &Packet) -> Verdict {
        if packet.is_ip() {
            let count = &mut self.by_protocol[usize::from(packet.ip_proto)];
            count.packets += 1;
            count.bytes += u64::from(packet.wire_len);
        }
        Verdict::Pass
    }

    /// Called when packet time has passed `now`, the end of an interval. After a gap without packets this function is called
    /// once: `periods` is the number of intervals that have ended, and the counted packets are from the first of them.
    /// Parameters are constants of the running module, so read them where they are used.
    fn tick(&mut self, now: u64, periods: u64) {
        self.report(now - periods * param::interval());
    }

    /// Called after the last packet, whose time stamp is `now`: the last interval has not ended, so it is reported here.
    fn stop(&mut self, now: u64) {
        self.report(now - now % param::interval());
    }

    /// The length of the table bounds the loop, so weir knows the maximum cost of a call, and runs the module without checks:
    /// see `weir check`. A constant or a parameter can also bound a loop. For other loops, use `.bounded::<MAX>()`.
    fn report(&mut self, begin: u64) {
        for (protocol, count) in self.by_protocol.iter_mut().enumerate() {
            if count.packets != 0 {
                let protocol = protocol as u8;
                emit(&Protocols { time: begin, protocol, packets: count.packets, bytes: count.bytes });
                *count = Count { packets: 0, bytes: 0 };
            }
        }
    }
}

// The entry points that weir calls, and their state. (A module whose tables have a size given by a parameter allocates them in
// `start`, which is called once, before the first packet. This module needs no such table.)
weir_guest::module! {
    state: Counter = Counter::new();
    packet: Counter::packet;
    tick: Counter::tick;
    stop: Counter::stop;
}
