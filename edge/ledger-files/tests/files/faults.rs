//! Every call of the disk fails once, for a while, or for ever; or the machine crashes there.

use crate::make::{SESSIONS, interval, options, start, sums, used};
use crate::memory_disk::MemoryDisk;
use proptest::prelude::*;
use std::io::ErrorKind;
use weir_ledger::{
    Digest, EntryRef, FORMAT, LedgerEntry, LedgerEvent, LedgerHead, LedgerProblem, LineResult,
    VerifiedLedger, Verifier, VerifyOptions, append_line,
};
use weir_ledger_files::{LedgerError, LedgerRecovery, LedgerWriter};
use weir_units::Timestamp;

const INTERVALS: u64 = 40;

fn verify(
    disk: &MemoryDisk,
    check: VerifyOptions,
) -> (Result<VerifiedLedger, LedgerProblem>, Vec<LedgerEntry>) {
    let (mut verifier, mut entries) = (Verifier::new(check), Vec::new());
    for (number, bytes) in disk.segments_bytes() {
        verifier.begin_segment(number);
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if let Ok(LineResult::Entry(entry)) = verifier.feed(line) {
                entries.push(*entry);
            }
        }
    }
    (verifier.finish(), entries)
}

fn open(disk: &MemoryDisk, at: u64) -> Result<(LedgerWriter<MemoryDisk>, LedgerRecovery), LedgerError> {
    LedgerWriter::with_storage(disk.clone(), start(at), options())
}

/// Runs a node for some intervals; uncommitted entries are continued with. Returns the number of failed commits, the
/// head, and the first interval that may not be on the disk.
fn run(
    ledger: &mut LedgerWriter<MemoryDisk>,
    intervals: std::ops::Range<u64>,
) -> (u64, Option<LedgerHead>, u64) {
    let (mut failed, mut safe) = (0, intervals.start);
    for n in intervals {
        for event in interval(n) {
            ledger.push(Timestamp(n * 10), Timestamp(n * 10 + 10), event);
        }
        match ledger.commit() {
            Ok(_) => safe = n + 1,
            Err(error) => {
                assert!(error.held as u64 >= SESSIONS, "{error}");
                failed += 1;
            }
        }
    }
    (failed, ledger.head(), safe)
}

/// The number of sessions' intervals, and the sum of their numbers, in all intervals up to this one.
fn expected(intervals: u64) -> (u64, u64) {
    let usages = intervals * SESSIONS;
    (usages, usages * usages.saturating_sub(1) / 2)
}

/// The number of calls of a run without faults.
fn calls() -> u64 {
    let disk = MemoryDisk::default();
    let (mut ledger, opened) = open(&disk, 0).unwrap();
    assert!(!opened.crashed && opened.held.is_none() && opened.head.is_none());
    run(&mut ledger, 0..INTERVALS);
    let head = ledger.stop(Timestamp(INTERVALS * 10)).unwrap();
    let (verified, entries) = verify(&disk, VerifyOptions { kept_head: head, ..VerifyOptions::default() });
    let verified = verified.unwrap();
    assert!(verified.stopped && verified.segments > 5, "{verified:?}");
    assert_eq!(sums(&entries), expected(INTERVALS));
    disk.calls()
}

#[test]
fn a_transient_failure_of_any_call_loses_nothing() {
    let calls = calls();
    for fault in 0..calls {
        for count in [1, 2, 5, 30] {
            let disk = MemoryDisk::default();
            disk.fail(fault, count, ErrorKind::StorageFull);
            let (mut ledger, opened) = open(&disk, 0).unwrap();
            let (failed, ..) = run(&mut ledger, 0..INTERVALS);
            let held_at_start = u64::from(opened.held.is_some());
            // Until the disk works again permanently.
            let mut head = ledger.commit();
            for _ in 0..count {
                head = ledger.commit();
            }
            let head = head.unwrap();
            let lost = ledger.held();
            assert_eq!((lost.entries, lost.merged, lost.lost), (0, 0, 0));
            let mut stopped = ledger.stop(Timestamp(INTERVALS * 10));
            for _ in 0..count {
                stopped = ledger.commit();
            }
            let (verified, entries) =
                verify(&disk, VerifyOptions { kept_head: head, ..VerifyOptions::default() });
            let verified = verified.unwrap_or_else(|wrong| panic!("fault {fault} x {count}: {wrong}"));
            assert!(stopped.is_ok() && verified.stopped && verified.torn.is_none());
            assert_eq!(sums(&entries), expected(INTERVALS), "fault {fault} x {count}");
            // The last calls are those of the stop: a segment, a write, a sync.
            assert!(failed + held_at_start > 0 || fault + 3 >= calls, "fault {fault} x {count}");
        }
    }
}

#[test]
fn a_full_disk_loses_detail_but_no_usage() {
    let disk = MemoryDisk::default();
    let (mut ledger, _) = open(&disk, 0).unwrap();
    disk.fail(4, 10_000, ErrorKind::StorageFull);
    let (failed, _, safe) = run(&mut ledger, 0..1_000);
    assert!(failed > 900 && safe < 10);
    let held = ledger.held();
    assert!(held.entries <= options().held_max && held.merged > 2_000 && held.lost == 0, "{held:?}");
    let error = ledger.commit().unwrap_err().to_string();
    let says = format!(
        "the ledger's disk is full: free some space; {} entries wait in memory, {} were added to others",
        held.entries, held.merged
    );
    assert_eq!(error, says);
    // There is room again.
    disk.fail(0, 0, ErrorKind::StorageFull);
    ledger.stop(Timestamp(20_000)).unwrap();
    let (verified, entries) = verify(&disk, VerifyOptions::default());
    verified.unwrap();
    assert_eq!(sums(&entries), expected(1_000));
    let last = &entries[entries.len() - 1].event;
    assert!(
        matches!(last, LedgerEvent::Backlog { merged, lost: 0, .. } if *merged >= held.merged),
        "{last:?}"
    );
    let intervals = |entry: &LedgerEntry| match &entry.event {
        LedgerEvent::Usage { intervals, .. } => *intervals,
        LedgerEvent::Idle { idle } => idle.count() as u64,
        _ => 0,
    };
    assert_eq!(entries.iter().map(intervals).sum::<u64>(), 3_000);
}

#[test]
fn a_crash_at_any_call_loses_at_most_uncommitted_entries() {
    let calls = calls();
    for crash in 0..calls {
        for (tenths, zeros) in [(0, false), (3, false), (3, true), (7, false), (9, true), (10, false)] {
            let disk = MemoryDisk::default();
            disk.fail(crash, u64::MAX, ErrorKind::StorageFull);
            let (mut ledger, _) = open(&disk, 0).unwrap();
            let mut safe = 0;
            let mut head = ledger.head();
            for n in 0..INTERVALS {
                for event in interval(n) {
                    ledger.push(Timestamp(n * 10), Timestamp(n * 10 + 10), event);
                }
                if ledger.commit().is_err() {
                    break;
                }
                (safe, head) = (n + 1, ledger.head());
            }
            drop(ledger);

            let disk = disk.after_crash(tenths, zeros);
            let case = format!("crash {crash}, {tenths} tenths, zeros {zeros}");
            let before: usize = disk.segments_bytes().iter().map(|(_, bytes)| bytes.len()).sum();
            let (mut ledger, opened) = open(&disk, 1_000).unwrap_or_else(|error| panic!("{case}: {error}"));
            assert!(opened.held.is_none() && (opened.crashed || before == 0), "{case}");
            assert_eq!(opened.torn.0, disk.aside().len() as u64);
            ledger.stop(Timestamp(2_000)).unwrap();
            let (verified, entries) =
                verify(&disk, VerifyOptions { kept_head: head, ..VerifyOptions::default() });
            let verified = verified.unwrap_or_else(|wrong| panic!("{case}: {wrong}"));
            assert!(verified.torn.is_none() && verified.stopped, "{case}");
            let (packets, _) = sums(&entries);
            // All committed entries exist, and at most one interval beyond them.
            assert!(
                (safe * SESSIONS..=(safe + 1) * SESSIONS).contains(&packets),
                "{case}: {packets} of {safe}"
            );
            assert_eq!(
                sums(&entries).1,
                packets * packets.saturating_sub(1) / 2,
                "{case}: entries in order, without a gap"
            );
        }
    }
}

#[test]
fn a_fault_while_recovering_is_recovered_from() {
    let disk = MemoryDisk::default();
    let (mut ledger, _) = open(&disk, 0).unwrap();
    run(&mut ledger, 0..5);
    let head = ledger.head();
    disk.fail(0, 1, ErrorKind::StorageFull);
    ledger.push_at(Timestamp(99), used(99));
    ledger.commit().unwrap_err();
    drop(ledger);
    let torn = disk.after_crash(8, false);
    for crash in 0..6 {
        let disk = torn.after_crash(10, false);
        disk.fail(crash, u64::MAX, ErrorKind::StorageFull);
        let (ledger, opened) = open(&disk, 100).unwrap();
        assert!(opened.crashed && opened.torn.0 > 0);
        assert_eq!(opened.held.is_some(), crash < 5);
        drop(ledger);
        let disk = disk.after_crash(5, false);
        let (mut ledger, opened) = open(&disk, 200).unwrap();
        assert!(opened.crashed && opened.held.is_none());
        run(&mut ledger, 5..10);
        let (verified, entries) =
            verify(&disk, VerifyOptions { kept_head: head, ..VerifyOptions::default() });
        assert_eq!(verified.unwrap().torn, None);
        assert_eq!(sums(&entries), expected(10));
    }
}

#[test]
fn a_disk_that_cannot_be_written_is_reported_at_once() {
    let disk = MemoryDisk::default();
    disk.fail(0, u64::MAX, ErrorKind::PermissionDenied);
    let Err(error) = open(&disk, 0) else { panic!("a ledger that cannot be written was opened") };
    assert!(matches!(error, LedgerError::Io(_)), "{error}");
}

#[test]
fn a_ledger_of_an_earlier_format_is_continued_in_a_new_segment() {
    let (mut bytes, mut prev) = (Vec::new(), Digest::NONE);
    for (sequence, event) in
        (1..).zip([LedgerEvent::Segment { format: 1, segment: 1 }, used(0), used(1), used(2)])
    {
        let (node, begin, end) = (&start(0).node, Timestamp(0), Timestamp(10));
        prev = append_line(EntryRef { sequence, node, begin, end, event: &event }, prev, &mut bytes);
    }
    // Complete, with a torn line at its end, and torn in its first line, so that nothing has the earlier format.
    for (cut, torn) in [(bytes.len(), 0), (bytes.len() - 40, 1), (40, 4)] {
        let disk = MemoryDisk::with(&[bytes[..cut].to_vec()]);
        let (mut ledger, opened) = open(&disk, 20).unwrap();
        assert!(opened.crashed && opened.held.is_none());
        run(&mut ledger, 1..3);
        ledger.stop(Timestamp(99)).unwrap();
        let (verified, entries) = verify(&disk, VerifyOptions::default());
        let verified = verified.unwrap();
        assert!(verified.stopped);
        let formats: Vec<u64> = entries
            .iter()
            .filter_map(|entry| {
                if let LedgerEvent::Segment { format, .. } = entry.event { Some(format) } else { None }
            })
            .collect();
        let expected = if torn == 4 { vec![FORMAT] } else { vec![1, FORMAT] };
        assert_eq!(formats, expected);
        assert_eq!(sums(&entries).0, 3 - torn.min(3) + 2 * SESSIONS);
        // The old segment is unchanged except for the torn bytes.
        let (_, old) = &disk.segments_bytes()[0];
        assert!(torn == 4 || bytes.starts_with(old) && old.ends_with(b"\n"));
        assert!(entries.iter().any(|entry| matches!(entry.event, LedgerEvent::Idle { .. })));
    }
}

#[test]
fn the_clock_may_be_set_back() {
    let disk = MemoryDisk::default();
    let (mut ledger, _) = open(&disk, 1_000_000).unwrap();
    run(&mut ledger, 0..30);
    ledger.stop(Timestamp(5)).unwrap();
    let (mut ledger, opened) = open(&disk, 0).unwrap();
    assert!(!opened.crashed);
    ledger.stop(Timestamp(7)).unwrap();
    let (verified, entries) = verify(&disk, VerifyOptions::default());
    assert!(verified.unwrap().stopped);
    let set: Vec<_> =
        entries.iter().filter(|entry| matches!(entry.event, LedgerEvent::ClockSet { .. })).collect();
    assert_eq!(set.iter().map(|entry| entry.end.0).collect::<Vec<_>>(), [10, 5, 0]);
    assert_eq!(sums(&entries), expected(30));
}

proptest! {
    /// A complete ledger with some bytes changed, or one of arbitrary bytes.
    #[test]
    fn any_folder_is_continued_as_a_valid_ledger_or_left_unchanged(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 0..3),
        cut in any::<prop::sample::Index>(),
        garbage in proptest::collection::vec(any::<u8>(), 0..200),
        is_all_garbage in any::<bool>(),
    ) {
        let disk = MemoryDisk::default();
        let (mut ledger, _) = open(&disk, 0).unwrap();
        run(&mut ledger, 0..10);
        let mut segments: Vec<Vec<u8>> = disk.segments_bytes().into_iter().map(|(_, bytes)| bytes).collect();
        for (segment, at, byte) in changes {
            let place = segment.index(segments.len());
            let at = at.index(segments[place].len());
            segments[place][at] = byte;
        }
        let last = segments.last_mut().unwrap();
        last.truncate(cut.index(last.len()));
        last.extend_from_slice(&garbage);
        let disk = MemoryDisk::with(if is_all_garbage { std::slice::from_ref(&garbage) } else { &segments });
        match open(&disk, 1_000) {
            Ok((mut ledger, _)) => {
                ledger.stop(Timestamp(2_000)).unwrap();
                // Changes before the last two segments are for a verifier to find.
                let verdict = verify(&disk, VerifyOptions::default()).0;
                let is_further_back = |wrong: &LedgerProblem| wrong.position.segment + 1 < segments.len() as u64;
                prop_assert!(verdict.as_ref().is_ok_and(|found| found.stopped) || is_further_back(&verdict.unwrap_err()));
            }
            Err(error) => {
                prop_assert!(matches!(error, LedgerError::Damaged(_)), "{}", error);
                let now: Vec<Vec<u8>> = disk.segments_bytes().into_iter().map(|(_, bytes)| bytes).collect();
                prop_assert!(is_all_garbage || now == segments);
            }
        }
    }
}
