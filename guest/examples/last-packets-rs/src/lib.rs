//! last-packets in Rust: the packets before a TCP reset.

#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]

#[path = "../.weir/module.rs"]
mod module;

use module::{param, Packets};
use weir_guest::containers::{Key, Ring, TokenBucket};
use weir_guest::{emit, flag, tcp, Ip, Packet, Verdict};

const SECOND: u64 = 1_000_000_000;

struct State {
    recent: Ring<Packets, 16>,
    reports: TokenBucket,
}

const UNUSED: Packets = Packets {
    time: 0,
    reset: 0,
    packet: 0,
    source: Ip::ZERO,
    destination: Ip::ZERO,
    source_port: 0,
    destination_port: 0,
    flags: 0,
};

impl State {
    fn packet(&mut self, packet: &Packet) -> Verdict {
        let (true, Some(source), Some(destination)) =
            (packet.has(flag::TCP | flag::L4), packet.src(), packet.dst())
        else {
            return Verdict::Pass;
        };
        self.recent.push(Packets {
            time: packet.ts_ns,
            packet: packet.number,
            source,
            destination,
            source_port: packet.src_port,
            destination_port: packet.dst_port,
            flags: packet.tcp_flags,
            ..UNUSED
        });
        // A token for each ns, so that a report costs an interval.
        let interval = param::interval();
        if packet.tcp_flags & tcp::RST != 0 && self.reports.take(packet.ts_ns, SECOND, interval, interval) {
            self.recent.each(|row| {
                row.reset = packet.number;
                emit(row);
            });
        }
        Verdict::Pass
    }
}

weir_guest::module! {
    state: State = State { recent: Ring::new(UNUSED), reports: TokenBucket::new() };
    packet: State::packet;
}
