//! What nodes write in tests.

use weir_ledger::{Options, Start};
use weir_session::Name;
use weir_session::ledger::{Digest, Entry, Event, Session, Text, Usage};
use weir_units::{Bytes, Nanos, Timestamp};

/// Sessions that use something in every interval.
pub const SESSIONS: u64 = 3;

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub fn session(id: u64) -> Session {
    Session { name: name(["alice", "bob", "carol"][(id % SESSIONS) as usize]), id }
}

pub fn start(at: u64) -> Start {
    Start {
        node: name("edge-1"),
        version: Text::new("0.1.0"),
        configuration: Digest::of(b"configuration"),
        at: Timestamp(at),
    }
}

/// Segments of a few intervals, so that tests see many of them.
pub fn options() -> Options {
    Options { segment_bytes: Bytes(4_000), held_max: 64 }
}

/// What a session used in interval `n`: a packet, and `n` of CPU time, by which the interval is known again.
pub fn used(n: u64) -> Event {
    let usage = Usage { cpu: Nanos(n), packets_in: 1, ..Usage::default() };
    Event::Usage { session: session(n % SESSIONS), intervals: 1, usage: Box::new(usage) }
}

/// Packets and CPU time over all entries, as a bill would have them.
pub fn sums<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> (u64, u64) {
    let of = |entry: &Entry| match &entry.event {
        Event::Usage { usage, .. } | Event::Backlog { others: usage, .. } => (usage.packets_in, usage.cpu.0),
        _ => (0, 0),
    };
    entries.into_iter().map(of).fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1))
}
