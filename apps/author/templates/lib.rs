//! {{name}}: counts packets and bytes by protocol. A working module to start from.

// The sandbox has no standard library. On your own machine it is used, so that `cargo check` and editors work.
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

    /// Called for every packet. weir has parsed the headers already. Headers and fields that may be missing are `Option`s, and bytes are
    /// slices that end where the packet ends.
    fn packet(&mut self, packet: &Packet) -> Verdict {
        if packet.is_ip() {
            let count = &mut self.by_protocol[usize::from(packet.ip_proto)];
            count.packets += 1;
            count.bytes += u64::from(packet.wire_len);
        }
        Verdict::Pass
    }

    /// Called when packet time has passed `now`, the end of an interval. After a gap without packets it is called once, and `periods`
    /// is the number of intervals that have ended; the counted packets are from the first. Parameters are constants of the
    /// running module: read them where they are used.
    fn tick(&mut self, now: u64, periods: u64) {
        self.report(now - periods * param::interval());
    }

    /// Called after the last packet, whose time stamp is `now`: the last interval has not ended, so it is reported here.
    fn stop(&mut self, now: u64) {
        self.report(now - now % param::interval());
    }

    /// The loop is bounded by the length of the table, so weir knows the maximum cost of a call, and runs the module without checks: see
    /// `weir check`. A parameter is as good a limit as a constant. For a loop without such a limit, use `.bounded::<MAX>()`.
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

// The entry points that weir calls, and their state. (Tables whose size is a parameter are allocated in `start`, which is called once, before the
// first packet; this module needs none.)
weir_guest::module! {
    state: Counter = Counter::new();
    packet: Counter::packet;
    tick: Counter::tick;
    stop: Counter::stop;
}
