//! Entries of nodes in tests.

use weir_admission::Name;
use weir_ledger::{ByteSeconds, Digest, Idle, LedgerEntry, LedgerEvent, LedgerText, SessionId, Usage};
use weir_ledger_files::{LedgerOptions, NodeStart};
use weir_units::{Bytes, Nanos, Timestamp};

/// The number of sessions with usage in every interval.
pub const SESSIONS: u64 = 3;

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub fn session(id: u64) -> SessionId {
    SessionId { name: name(["alice", "bob", "carol"][(id % SESSIONS) as usize]), id }
}

pub fn start(at: u64) -> NodeStart {
    NodeStart {
        node: name("edge-1"),
        version: LedgerText::new("0.1.0"),
        configuration: Digest::of_bytes(b"configuration"),
        at: Timestamp(at),
    }
}

/// Segments of a few intervals, so that tests have many of them.
pub fn options() -> LedgerOptions {
    LedgerOptions { segment_bytes: Bytes(4_000), held_max: 64 }
}

/// A session's usage in interval `n`: a packet, and `n` of CPU time, which identifies the interval.
pub fn used(n: u64) -> LedgerEvent {
    let usage = Usage { cpu: Nanos(n), packets_in: 1, ..Usage::default() };
    LedgerEvent::Usage { session: session(n % SESSIONS), intervals: 1, usage: Box::new(usage) }
}

/// The usage of all sessions in interval `n`, with consecutive numbers: in every other interval most of them were
/// idle.
pub fn interval(n: u64) -> Vec<LedgerEvent> {
    let (first, others) = (n * SESSIONS, n * SESSIONS + 1..(n + 1) * SESSIONS);
    let mut events = vec![used(first)];
    if n.is_multiple_of(2) {
        events.extend(others.map(used));
    } else {
        let idle = Idle::entries(others.map(|n| (session(n % SESSIONS), memory(n))));
        events.extend(idle.into_iter().map(|idle| LedgerEvent::Idle { idle }));
    }
    events
}

/// The memory x time of an idle session, which identifies an interval even when merged with others.
fn memory(n: u64) -> ByteSeconds {
    ByteSeconds::held_for(Bytes(n << 20 | 1), Nanos::SECOND)
}

/// The number of sessions' intervals in a sum, and the sum of their numbers.
fn counted(usage: &Usage) -> (u64, u64) {
    let memory = usage.memory.whole();
    (usage.packets_in + (memory & 0xf_ffff), usage.cpu.0 + (memory >> 20))
}

/// As [`counted`], for each session in an entry.
pub fn numbers(entry: &LedgerEntry) -> Vec<(u64, u64)> {
    match &entry.event {
        LedgerEvent::Usage { usage, .. } | LedgerEvent::Backlog { others: usage, .. } => vec![counted(usage)],
        LedgerEvent::Idle { idle } => {
            idle.iter().map(|(_, memory)| counted(&Usage { memory, ..Usage::default() })).collect()
        }
        _ => Vec::new(),
    }
}

/// As [`counted`], over all entries, as in a bill.
pub fn sums<'a>(entries: impl IntoIterator<Item = &'a LedgerEntry>) -> (u64, u64) {
    let all = entries.into_iter().flat_map(numbers);
    all.fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1))
}
