//! A ledger with an entry of every kind.

use std::path::Path;
use weir_admission::{Name, Tier};
use weir_ledger::{
    ByteSeconds, CloseReason, CredentialHolder, Decision, DecisionOutcome, Digest, Idle, LedgerEvent,
    LedgerText, Reserved, ReservedLink, ReservedProcessor, SessionId, UnloadReason, Usage, VouchedObject,
    parse_time,
};
use weir_ledger_files::{LedgerOptions, LedgerWriter, NodeStart};
use weir_units::{BitsPerSecond, Bytes, Nanos, Timestamp};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn text() -> LedgerText {
    LedgerText::new("a \"text\"\u{1b}[2J")
}

fn texts() -> Vec<LedgerText> {
    vec![text(), text()]
}

fn session(id: u64) -> SessionId {
    SessionId { name: name("alice"), id }
}

fn reserved() -> Reserved {
    let processor =
        ReservedProcessor { core: 1, period: Nanos(4_000_000), slice: Nanos(400_000), spare: false };
    let link = ReservedLink {
        channel: name("out"),
        interface: text(),
        period: Nanos(6_000_000),
        limit: Bytes(25_000),
        capped: true,
    };
    Reserved::new(vec![processor], Bytes(16 << 20), vec![link]).unwrap()
}

fn idle() -> Idle {
    let memory = |nanos| ByteSeconds::held_for(Bytes(1), Nanos(nanos));
    let sessions = [(session(1), memory(1)), (session(2), memory(0)), (session(3), memory(2_000_000_000))];
    Idle::entries(sessions).remove(0)
}

fn decisions() -> [Decision; 2] {
    let all = Decision {
        key: Some(text()),
        credentials: texts(),
        claims: texts(),
        request: text(),
        session: Some(text()),
        called: Some(text()),
        outcome: DecisionOutcome::Refused,
        reason: Some(text()),
        count: u64::MAX,
    };
    [all, Decision::new("show", DecisionOutcome::Allowed)]
}

/// Events of every kind, with all fields and without those that may be absent. The ledger writes segments and starts itself.
fn events(usage: &Usage) -> Vec<LedgerEvent> {
    let (code, session) = (Digest::of_bytes(b"wasm"), session(1));
    let mut events: Vec<LedgerEvent> =
        decisions().map(|decision| LedgerEvent::Decision(Box::new(decision))).into();
    for holder in [None, Some(CredentialHolder { called: name("study"), key: text(), credentials: texts() })]
    {
        let holder = holder.map(Box::new);
        events.push(LedgerEvent::SessionCreated { session: session.clone(), reserved: reserved(), holder });
    }
    for compiled in [None, Some(VouchedObject { object: code, semantics: texts(), bounds: Vec::new() })] {
        let (module, compiled) = (name("rtt"), compiled.map(Box::new));
        events.push(LedgerEvent::ModuleLoaded {
            session: session.clone(),
            module,
            code,
            tier: Tier::Unmetered,
            compiled,
        });
    }
    for (intervals, usage) in [(1, usage.clone()), (7, Usage::default())] {
        let usage = Box::new(usage);
        events.push(LedgerEvent::Usage { session: session.clone(), intervals, usage: usage.clone() });
        events.push(LedgerEvent::Backlog { merged: 1, lost: 2, others: usage });
    }
    for (key, refused) in [(Some(text()), 1), (None, 0)] {
        events.push(LedgerEvent::Requests {
            key,
            credentials: texts(),
            count: 9,
            refused,
            cpu: Nanos(1_234),
        });
    }
    for (allowed, refused, handshakes) in [(1, 0, 0), (0, 2, 3)] {
        events.push(LedgerEvent::Unlisted { allowed, refused, handshakes });
    }
    events.extend([
        LedgerEvent::NodeReconfigured { configuration: code },
        LedgerEvent::LinkChanged { link: text(), rate: BitsPerSecond(u64::MAX), reservable: 100 },
        LedgerEvent::Recovered { torn_bytes: 17 },
        LedgerEvent::ClockSet { before: Timestamp(u64::MAX) },
        LedgerEvent::SessionChanged { session: session.clone(), reserved: Reserved::default() },
        LedgerEvent::Idle { idle: idle() },
        LedgerEvent::ModuleRefused { session: session.clone(), module: text(), code, reason: text() },
        LedgerEvent::CodeWithdrawn { session: session.clone(), module: name("rtt"), reason: text() },
        LedgerEvent::ModuleUnloaded {
            session: session.clone(),
            module: name("rtt"),
            reason: UnloadReason::Replaced,
        },
        LedgerEvent::SessionClosed { session: session.clone(), reason: CloseReason::Parent },
        LedgerEvent::Revoked { root: text(), list: 2, ids: 1 },
    ]);
    for event in &events {
        assert_is_written(event);
    }
    events
}

/// Lists every kind of event: a new one is added here, to [`events`], and to the schema.
fn assert_is_written(event: &LedgerEvent) {
    match event {
        LedgerEvent::Decision(_)
        | LedgerEvent::SessionCreated { .. }
        | LedgerEvent::ModuleLoaded { .. }
        | LedgerEvent::Usage { .. }
        | LedgerEvent::Backlog { .. }
        | LedgerEvent::Requests { .. }
        | LedgerEvent::Unlisted { .. }
        | LedgerEvent::NodeReconfigured { .. }
        | LedgerEvent::LinkChanged { .. }
        | LedgerEvent::Recovered { .. }
        | LedgerEvent::ClockSet { .. }
        | LedgerEvent::SessionChanged { .. }
        | LedgerEvent::Idle { .. }
        | LedgerEvent::ModuleRefused { .. }
        | LedgerEvent::CodeWithdrawn { .. }
        | LedgerEvent::ModuleUnloaded { .. }
        | LedgerEvent::SessionClosed { .. }
        | LedgerEvent::Revoked { .. } => {}
        // By the writer.
        LedgerEvent::Segment { .. } | LedgerEvent::NodeStart { .. } | LedgerEvent::NodeStop => unreachable!(),
    }
}

/// Writes a ledger to STATE/ledger.
pub fn write(state: &Path, usage: &Usage) {
    let at = parse_time("2026-11-20").unwrap();
    let start = NodeStart { node: name("ix-1"), version: text(), configuration: Digest::of_bytes(b""), at };
    let (mut ledger, _) = LedgerWriter::open(&state.join("ledger"), start, LedgerOptions::default()).unwrap();
    events(usage).into_iter().for_each(|event| ledger.push_at(at, event));
    ledger.stop(at).unwrap();
}
