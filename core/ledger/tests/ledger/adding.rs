//! The sum of usage does not depend on how it is split.

use crate::ledger::make::{any_usage, name, session};
use proptest::prelude::*;
use weir_ledger::{
    ByteSeconds, DropCause, Idle, LedgerCell, LedgerEntry, LedgerEvent, LedgerText, SessionId, Usage,
    UsageSummary,
};
use weir_units::{Bytes, Nanos, Timestamp};

fn sum(parts: &[&Usage]) -> Usage {
    parts.iter().copied().sum()
}

fn idle<const N: usize>(sessions: [(SessionId, ByteSeconds); N]) -> LedgerEvent {
    LedgerEvent::Idle { idle: Idle::entries(sessions).pop().unwrap() }
}

fn interval(session: SessionId, begin: u64, end: u64, usage: Usage) -> LedgerEntry {
    let event = LedgerEvent::Usage { session, intervals: 1, usage: Box::new(usage) };
    LedgerEntry { sequence: 1, node: name("n"), begin: Timestamp(begin), end: Timestamp(end), event }
}

proptest! {
    #[test]
    fn merging_is_associative_and_commutative_and_nothing_is_neutral(a in any_usage(), b in any_usage(), c in any_usage()) {
        prop_assert_eq!(sum(&[&sum(&[&a, &b]), &c]), sum(&[&a, &sum(&[&b, &c])]));
        prop_assert_eq!(sum(&[&a, &b]), sum(&[&b, &a]));
        prop_assert_eq!(sum(&[&a, &Usage::default()]), a);
    }

    #[test]
    fn memory_held_adds_up_over_any_split_of_the_time(memory in 0..1u64 << 44, times in proptest::collection::vec(0..1u64 << 40, 0..20)) {
        let parts = times.iter().fold(ByteSeconds::default(), |sum, time| {
            sum.saturating_add(ByteSeconds::held_for(Bytes(memory), Nanos(*time)))
        });
        prop_assert_eq!(parts, ByteSeconds::held_for(Bytes(memory), Nanos(times.iter().sum())));
    }

    #[test]
    fn ranges_that_follow_one_another_add_up_to_the_whole(
        usages in proptest::collection::vec((0..3u64, 0..1_000u64, 1..100u64, any_usage(), any::<bool>()), 0..30),
        mut cuts in proptest::collection::vec(0..1_200u64, 0..5),
    ) {
        let entries: Vec<LedgerEntry> = usages
            .into_iter()
            .map(|(id, begin, long, usage, is_idle)| {
                let memory = usage.memory;
                let mut entry = interval(session(id), begin, begin + long, usage);
                if is_idle {
                    entry.event = idle([(session(id), memory)]);
                }
                entry
            })
            .collect();
        cuts.extend([0, u64::MAX]);
        cuts.sort_unstable();
        let of = |since, until| {
            let mut summary = UsageSummary::new(Timestamp(since), Timestamp(until));
            entries.iter().for_each(|entry| summary.add(entry));
            summary
        };
        let whole = of(0, u64::MAX);
        let parts: Vec<UsageSummary> = cuts.windows(2).map(|pair| of(pair[0], pair[1])).collect();
        let totals: Vec<Usage> = parts.iter().map(UsageSummary::total).collect();
        prop_assert_eq!(totals.iter().sum::<Usage>(), whole.total());
        let intervals = |summary: &UsageSummary| summary.rows().map(|(_, row)| row.intervals).sum::<u64>();
        prop_assert_eq!(parts.iter().map(intervals).sum::<u64>(), entries.len() as u64);
        prop_assert_eq!(intervals(&whole), entries.len() as u64);
    }
}

#[test]
fn a_bill_has_a_row_for_each_session_and_exact_numbers() {
    let second = 1_000_000_000;
    let mut usage = Usage {
        cpu: Nanos(1_500_000_001),
        memory: ByteSeconds::held_for(Bytes(64 << 20), Nanos(1_800 * second)),
        records_emitted: 5,
        records_written: 3,
        packets_in: 10,
        ..Usage::default()
    };
    usage.drops.add(DropCause::Lagged, 4);
    usage.drops.add(DropCause::LinkQueueFull, 1);
    usage.drops.add(DropCause::DiskFull, 2);
    let bob = SessionId { name: name("bob"), id: 2 };
    let mut summary = UsageSummary::default();
    for (session, begin) in [(bob, 10), (session(1), 0), (session(1), 10)] {
        summary.add(&interval(session, begin * second, (begin + 10) * second, usage.clone()));
    }
    let mut lost = interval(session(1), 0, 1, Usage::default());
    lost.event = LedgerEvent::Backlog { merged: 1, lost: 0, others: Box::new(usage) };
    summary.add(&lost);
    // Two of the sessions then were idle.
    let half = ByteSeconds::held_for(Bytes(64 << 20), Nanos(900 * second));
    let mut nothing = interval(session(1), 20 * second, 30 * second, Usage::default());
    nothing.event = idle([(session(1), half), (SessionId { name: name("carol"), id: 3 }, half)]);
    summary.add(&nothing);

    let table = summary.table();
    let csv = table.without_empty_columns().to_csv();
    assert_eq!(
        csv,
        "session,id,begin,end,intervals,cpu_s,packets_in,memory_mib_h,records_emitted,records_written,records_lost,packets_dropped,lagged,link-queue-full,disk-full\n\
         ,,1970-01-01T00:00:00.000000000Z,1970-01-01T00:00:00.000000001Z,1,1.500000001,10,32.000000,5,3,2,5,4,1,2\n\
         alice,1,1970-01-01T00:00:00.000000000Z,1970-01-01T00:00:30.000000000Z,3,3.000000002,20,80.000000,10,6,4,10,8,2,4\n\
         bob,2,1970-01-01T00:00:10.000000000Z,1970-01-01T00:00:20.000000000Z,1,1.500000001,10,32.000000,5,3,2,5,4,1,2\n\
         carol,3,1970-01-01T00:00:20.000000000Z,1970-01-01T00:00:30.000000000Z,1,0.000000000,0,16.000000,0,0,0,0,0,0,0\n"
    );
    let rows: serde_json::Value = serde_json::from_str(&table.to_json()).unwrap();
    assert_eq!((&rows[1]["session"], &rows[1]["cpu_s"]), (&"alice".into(), &3.000_000_002.into()));
    assert_eq!((&rows[0]["session"], &rows[2]["shed"]), (&serde_json::Value::Null, &0.into()));
    // Every column has its own name, and every row a cell for each.
    let keys: std::collections::BTreeSet<_> = table.columns().iter().map(|column| column.key).collect();
    assert_eq!(keys.len(), table.columns().len());
    assert!(table.rows().iter().all(|row| row.len() == keys.len()));
    assert!(table.rows().iter().all(|row| row.last() == Some(&LedgerCell::Count(0))));
}

#[test]
fn the_cost_of_requests_has_a_row_for_each_holder_beside_those_of_sessions() {
    let requests = |end: u64, key: &str, count: u64, refused: u64, cpu: u64| LedgerEntry {
        sequence: 1,
        node: name("n"),
        begin: Timestamp(end - 1),
        end: Timestamp(end),
        event: LedgerEvent::Requests {
            key: Some(LedgerText::new(key)),
            credentials: vec![LedgerText::new("weir-id:a")],
            count,
            refused,
            cpu: Nanos(cpu),
        },
    };
    let mut summary = UsageSummary::default();
    summary.add(&interval(session(1), 1, 2, Usage { cpu: Nanos(5), ..Usage::default() }));
    for entry in [
        requests(2, "weir-key:a", 3, 1, 10),
        requests(3, "weir-key:b", 1, 0, 7),
        requests(4, "weir-key:a", 2, 2, 20),
    ] {
        summary.add(&entry);
    }
    // Bills of sessions do not change by requests.
    assert_eq!((summary.count(), summary.total().cpu), (1, Nanos(5)));
    let rows: Vec<_> = summary
        .requests()
        .map(|(key, row)| {
            (
                key.map(LedgerText::as_str),
                row.count,
                row.row.usage.refusals,
                row.row.usage.cpu,
                row.row.intervals,
            )
        })
        .collect();
    assert_eq!(rows, [(Some("weir-key:a"), 5, 3, Nanos(30), 2), (Some("weir-key:b"), 1, 0, Nanos(7), 1)]);
    let table = summary.table();
    let names: Vec<String> = table.rows().iter().map(|row| row[0].to_string()).collect();
    assert_eq!(names, ["alice", "(requests of weir-key:a)", "(requests of weir-key:b)"]);
    let mut late = UsageSummary::new(Timestamp(3), Timestamp(9));
    late.add(&requests(3, "weir-key:a", 3, 1, 10));
    assert_eq!(late.requests().count(), 0);
}
