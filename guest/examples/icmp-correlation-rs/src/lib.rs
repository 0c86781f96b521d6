//! icmp-correlation in Rust: ICMP echo requests with the times of their replies.

#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]

#[path = "../.weir/module.rs"]
mod module;

use module::{param, Echoes, Totals};
use weir_guest::containers::{Histogram, Key, Map, Timer, TimerWheel};
use weir_guest::parse::{Cursor, ParseError};
use weir_guest::{emit, flag, Ip, Packet, Verdict};

weir_guest::key! {
    struct Echo {
        source: Ip,
        destination: Ip,
        id: u16,
        sequence: u16,
    }
}

#[derive(Clone, Copy)]
struct Waiting {
    time: u64,
    timer: Timer,
}

struct State {
    requests: Map<Echo, Waiting, 16384>,
    timeouts: TimerWheel<Echo, 16384, 256, 100_000_000>,
    rtts: Histogram,
    unanswered: u64,
}

fn report(echo: &Echo, time: u64, rtt: Option<u64>) {
    emit(&Echoes {
        time,
        source: echo.source,
        destination: echo.destination,
        id: echo.id,
        sequence: echo.sequence,
        rtt: rtt.map(|rtt| rtt as i64),
    });
}

/// Type, identifier and sequence number of an ICMP message.
fn header(bytes: &[u8]) -> Result<(u8, u16, u16), ParseError> {
    let mut cursor = Cursor::new(bytes);
    let ty = cursor.u8()?;
    cursor.bytes(3)?;
    Ok((ty, cursor.be16()?, cursor.be16()?))
}

impl State {
    fn packet(&mut self, packet: &Packet) -> Verdict {
        let now = packet.ts_ns;
        let (true, Some(bytes), Some(from), Some(to)) =
            (packet.has(flag::ICMP), packet.l4(), packet.src(), packet.dst())
        else {
            return Verdict::Pass;
        };
        let Ok((ty, id, sequence)) = header(bytes) else { return Verdict::Pass };
        let (request, reply) = if packet.has(flag::IPV4) { (8, 0) } else { (128, 129) };
        if ty == request {
            let echo = Echo { source: from, destination: to, id, sequence };
            let waiting = self.requests.add(echo).value;
            self.timeouts.cancel(waiting.timer);
            waiting.time = now;
            waiting.timer = self.timeouts.start(now, param::timeout(), echo).unwrap_or(Timer::NONE);
        } else if ty == reply {
            let echo = Echo { source: to, destination: from, id, sequence };
            if let Some(waiting) = self.requests.remove(&echo) {
                let rtt = now.saturating_sub(waiting.time);
                report(&echo, waiting.time, Some(rtt));
                self.rtts.add(rtt);
                self.timeouts.cancel(waiting.timer);
            }
        }
        Verdict::Pass
    }

    fn tick(&mut self, now: u64, _periods: u64) {
        for _ in 0..4096 {
            let Some(echo) = self.timeouts.expire(now) else { continue };
            if let Some(waiting) = self.requests.remove(&echo) {
                report(&echo, waiting.time, None);
                self.unanswered += 1;
            }
        }
    }

    fn stop(&mut self, now: u64) {
        emit(&Totals {
            time: now,
            answered: self.rtts.count(),
            unanswered: self.unanswered,
            evicted: self.requests.evictions(),
            open: self.requests.len() as u64,
            rtt_median: self.rtts.quantile(0.5) as i64,
            rtt_p99: self.rtts.quantile(0.99) as i64,
        });
    }
}

weir_guest::module! {
    state: State = State {
        requests: Map::new(Waiting { time: 0, timer: Timer::NONE }),
        timeouts: TimerWheel::new(Echo::ZERO),
        rtts: Histogram::new(),
        unanswered: 0,
    };
    packet: State::packet;
    tick: State::tick;
    stop: State::stop;
}
