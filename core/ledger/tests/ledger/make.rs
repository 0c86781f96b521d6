//! Ledgers for tests.

use proptest::prelude::*;
use weir_admission::{Name, Tier};
use weir_ledger::{
    ByteSeconds, CloseReason, CredentialHolder, Decision, DecisionOutcome, Digest, DropCause, EntryRef,
    FORMAT, Idle, LedgerEntry, LedgerEvent, LedgerHead, LedgerProblem, LedgerText, LineResult, Reserved,
    ReservedLink, ReservedProcessor, SessionId, UnloadReason, Usage, VerifiedLedger, Verifier, VerifyOptions,
    VouchedObject,
};
use weir_units::{BitsPerSecond, Bytes, Nanos, Timestamp};

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub fn session(id: u64) -> SessionId {
    SessionId { name: name("alice"), id }
}

/// An entry as a line.
pub struct EncodedLine {
    /// The line with its line feed.
    pub line: Vec<u8>,
    pub hash: Digest,
}

pub fn encode_line(entry: &LedgerEntry, prev: Digest) -> EncodedLine {
    let mut line = Vec::new();
    let hash = weir_ledger::append_line(EntryRef::from(entry), prev, &mut line);
    EncodedLine { line, hash }
}

/// Some idle sessions, each with so many MiB for a second.
pub fn idle(sessions: &[(u64, u64)]) -> Idle {
    let of = |(id, mib): &(u64, u64)| {
        (session(*id), ByteSeconds::held_for(Bytes(mib << 20), Nanos(1_000_000_001)))
    };
    Idle::entries(sessions.iter().map(of)).pop().unwrap()
}

pub fn holder() -> CredentialHolder {
    let [key, credential] = ["weir-key:ab", "weir-id:cd"].map(LedgerText::new);
    CredentialHolder { called: name("study"), key, credentials: vec![credential] }
}

pub fn reserved() -> Reserved {
    let processor =
        ReservedProcessor { core: 1, period: Nanos(4_000_000), slice: Nanos(400_000), spare: false };
    let link = ReservedLink {
        channel: name("out"),
        interface: LedgerText::new("eth0"),
        period: Nanos(6_000_000),
        limit: Bytes(25_000),
        capped: true,
    };
    Reserved::new(vec![processor], Bytes(16 << 20), vec![link]).unwrap()
}

/// An event of every kind but [`LedgerEvent::Segment`], which stands where segments begin.
pub fn events() -> Vec<LedgerEvent> {
    let mut usage = Usage {
        cpu: Nanos(123_456_789),
        packets_in: 1_000,
        bytes_in: Bytes(64_000),
        memory: ByteSeconds::held_for(Bytes(16 << 20), Nanos(1_000_000_001)),
        records_emitted: 12,
        records_written: 10,
        ..Usage::default()
    };
    usage.drops.add(DropCause::QueueFull, 7);
    usage.drops.add(DropCause::DiskFull, 2);
    let (code, usage) = (Digest::of_bytes(b"wasm"), Box::new(usage));
    vec![
        LedgerEvent::NodeStart {
            version: LedgerText::new("0.1.0"),
            configuration: Digest::of_bytes(b"toml"),
        },
        LedgerEvent::SessionCreated {
            session: session(1),
            reserved: reserved(),
            holder: Some(Box::new(holder())),
        },
        LedgerEvent::ModuleLoaded {
            session: session(1),
            module: name("rtt"),
            code,
            tier: Tier::Proved,
            compiled: None,
        },
        LedgerEvent::Usage { session: session(1), intervals: 1, usage: usage.clone() },
        LedgerEvent::SessionChanged { session: session(1), reserved: Reserved::default() },
        LedgerEvent::Idle { idle: idle(&[(3, 16), (1, 1), (2, 16)]) },
        LedgerEvent::ModuleRefused {
            session: session(1),
            module: LedgerText::new("../x"),
            code,
            reason: LedgerText::new("no \"bound\"\n"),
        },
        LedgerEvent::Usage { session: session(2), intervals: 3, usage: usage.clone() },
        LedgerEvent::ModuleUnloaded {
            session: session(1),
            module: name("rtt"),
            reason: UnloadReason::Strikes,
        },
        LedgerEvent::SessionClosed { session: session(1), reason: CloseReason::Requested },
        LedgerEvent::NodeReconfigured { configuration: Digest::of_bytes(b"other") },
        LedgerEvent::LinkChanged {
            link: LedgerText::new("eth1"),
            rate: BitsPerSecond(60_000_000),
            reservable: 80,
        },
        LedgerEvent::Backlog { merged: 3, lost: 0, others: usage },
        LedgerEvent::Recovered { torn_bytes: 17 },
        LedgerEvent::Decision(Box::new(Decision {
            key: Some(LedgerText::new("weir-key:a")),
            credentials: vec![LedgerText::new("weir-id:a"), LedgerText::new("weir-id:b")],
            session: Some(LedgerText::new("study-a")),
            reason: Some(LedgerText::new("memory: \"1 GiB\"")),
            count: 7,
            ..Decision::new("create", DecisionOutcome::Refused)
        })),
        LedgerEvent::Decision(Box::new(Decision::new("show", DecisionOutcome::Allowed))),
        LedgerEvent::Unlisted { allowed: 0, refused: 3, handshakes: 1 },
        LedgerEvent::Requests {
            key: Some(LedgerText::new("weir-key:a")),
            credentials: vec![LedgerText::new("weir-id:a")],
            count: 9,
            refused: 2,
            cpu: Nanos(1_234),
        },
        LedgerEvent::Requests { key: None, credentials: Vec::new(), count: 1, refused: 0, cpu: Nanos(0) },
        LedgerEvent::Revoked { root: LedgerText::new("weir-key:r"), list: 2, ids: 1 },
        LedgerEvent::SessionClosed { session: session(2), reason: CloseReason::Parent },
        LedgerEvent::ModuleLoaded {
            session: session(1),
            module: name("dns"),
            code,
            tier: Tier::Proved,
            compiled: Some(Box::new(VouchedObject {
                object: code,
                semantics: vec![LedgerText::new("weir-key:a"), LedgerText::new("weir-key:b")],
                bounds: vec![LedgerText::new("weir-key:a")],
            })),
        },
        LedgerEvent::CodeWithdrawn {
            session: session(1),
            module: name("dns"),
            reason: LedgerText::new("weir-key:a is revoked"),
        },
        LedgerEvent::NodeStop,
    ]
}

/// A ledger in two segments, each a list of lines.
pub fn ledger() -> Vec<Vec<Vec<u8>>> {
    let (mut segments, mut prev, mut sequence) = (Vec::new(), Digest::NONE, 0);
    for segment in [1, 2] {
        let first = LedgerEvent::Segment { format: FORMAT, segment };
        let mut lines = Vec::new();
        for event in std::iter::once(first).chain(events()) {
            sequence += 1;
            let at = Timestamp(1_795_263_005_000_000_000 + sequence * 1_000_000_000);
            let entry = LedgerEntry { sequence, node: name("edge-1"), begin: at, end: at, event };
            let encoded = encode_line(&entry, prev);
            prev = encoded.hash;
            lines.push(encoded.line);
        }
        segments.push(lines);
    }
    segments
}

/// The result of verifying segments that consist of these bytes, and the entries that were read.
pub fn verify(
    segments: &[Vec<u8>],
    check: VerifyOptions,
) -> (Result<VerifiedLedger, LedgerProblem>, Vec<LedgerEntry>) {
    let (mut verifier, mut entries) = (Verifier::new(check), Vec::new());
    for (number, bytes) in (1..).zip(segments) {
        verifier.begin_segment(number);
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if let Ok(LineResult::Entry(entry)) = verifier.feed(line) {
                entries.push(*entry);
            }
        }
    }
    (verifier.finish(), entries)
}

pub fn joined(segments: &[Vec<Vec<u8>>]) -> Vec<Vec<u8>> {
    segments.iter().map(|lines| lines.concat()).collect()
}

/// A ledger's last line.
pub fn head(segments: &[Vec<Vec<u8>>]) -> LedgerHead {
    verify(&joined(segments), VerifyOptions::default()).0.unwrap().head.unwrap()
}

/// Any usage: mostly small numbers, some that overflow when added.
pub fn any_usage() -> impl Strategy<Value = Usage> {
    let count = || prop_oneof![8 => 0..1_000u64, 1 => any::<u64>(), 1 => Just(u64::MAX)];
    let counts = proptest::collection::vec(count(), 14);
    let drops = proptest::collection::vec((0..DropCause::ALL.len(), count()), 0..4);
    (counts, count(), count(), drops).prop_map(|(counts, memory, time, drops)| {
        let mut usage = Usage {
            cpu: Nanos(counts[0]),
            stolen: Nanos(counts[1]),
            packets_in: counts[2],
            bytes_in: Bytes(counts[3]),
            packets_out: counts[4],
            bytes_out: Bytes(counts[5]),
            memory: ByteSeconds::held_for(Bytes(memory), Nanos(time)),
            records_emitted: counts[6],
            records_written: counts[7],
            faults: counts[8],
            strikes: counts[9],
            refusals: counts[10],
            compile: Nanos(counts[11]),
            receive: Nanos(counts[12]),
            periods_missed: counts[13],
            ..Usage::default()
        };
        for (cause, count) in drops {
            usage.drops.add(DropCause::ALL[cause], count);
        }
        usage
    })
}
