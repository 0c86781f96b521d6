//! Reading a ledger, as for a bill.

use crate::make::{interval, name, options, start, sums};
use std::io::Write;
use std::path::Path;
use weir_ledger::{Damage, LedgerEntry, LedgerEvent, UsageSummary, VerifyOptions};
use weir_ledger_files::{EntryFilter, LedgerReadError, LedgerReader, LedgerWriter, verify};
use weir_units::Timestamp;

fn write(folder: &Path, intervals: u64) {
    let (mut ledger, _) = LedgerWriter::open(folder, start(0), options()).unwrap();
    for n in 0..intervals {
        for event in interval(n) {
            ledger.push(Timestamp(n * 10), Timestamp(n * 10 + 10), event);
        }
        ledger.commit().unwrap();
    }
    ledger.stop(Timestamp(intervals * 10)).unwrap();
}

fn read(folder: &Path, filter: EntryFilter) -> Vec<LedgerEntry> {
    LedgerReader::open(folder, filter, VerifyOptions::default()).unwrap().map(Result::unwrap).collect()
}

#[test]
fn entries_are_chosen_by_session_and_time() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 50);
    let (since, until) = (Timestamp(100), Timestamp(200));
    let alice = EntryFilter { session: Some(name("alice")), since, until };
    let entries = read(dir.path(), alice.clone());
    assert_eq!((entries.len(), entries[0].begin, entries[9].end), (10, since, until));
    // Of an entry about several sessions, only the requested part.
    let bob = read(dir.path(), EntryFilter { session: Some(name("bob")), ..alice.clone() });
    assert_eq!((bob.len(), sums(&bob).0), (10, 10));
    let of_bob = |entry: &&LedgerEntry| match &entry.event {
        LedgerEvent::Idle { idle } => idle.iter().all(|(session, _)| session.name == name("bob")),
        _ => false,
    };
    assert_eq!(bob.iter().filter(of_bob).count(), 5);
    let all = EntryFilter { session: None, ..alice.clone() };
    assert_eq!(sums(&read(dir.path(), all.clone())).0, 30);
    assert!(read(dir.path(), EntryFilter { session: Some(name("nobody")), ..all }).is_empty());

    // A summary over the whole ledger and one over the selection give the same bill.
    let (mut whole, mut chosen) = (UsageSummary::new(since, until), UsageSummary::default());
    read(dir.path(), EntryFilter::default()).iter().for_each(|entry| whole.add(entry));
    entries.iter().for_each(|entry| chosen.add(entry));
    let row = |summary: &UsageSummary, at| {
        summary.rows().nth(at).map(|(session, row)| (session.cloned(), row.clone()))
    };
    assert_eq!(row(&whole, 0), row(&chosen, 0));
    assert_eq!((whole.rows().count(), chosen.rows().count()), (3, 1));
    let mut chosen = UsageSummary::default();
    bob.iter().for_each(|entry| chosen.add(entry));
    assert_eq!((row(&whole, 1), chosen.rows().count()), (row(&chosen, 0), 1));
}

#[test]
fn a_ledger_can_be_read_while_it_is_written() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 50);
    let before = verify(dir.path(), VerifyOptions::default()).unwrap();
    let last = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .max()
        .unwrap();
    let mut file = std::fs::File::options().append(true).open(last).unwrap();
    file.write_all(b"{\"seq\":").unwrap();
    let now =
        verify(dir.path(), VerifyOptions { kept_head: before.head, ..VerifyOptions::default() }).unwrap();
    assert_eq!((now.head, now.torn.map(|torn| torn.bytes)), (before.head, Some(7)));
    assert_eq!(read(dir.path(), EntryFilter::default()).len() as u64, before.entries);
}

#[test]
fn reading_stops_at_the_first_error() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 50);
    let verified = verify(dir.path(), VerifyOptions::default()).unwrap();
    assert!(verified.segments > 5);
    let path = dir.path().join("ledger-000003.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    lines.swap(2, 3);
    std::fs::write(&path, lines.concat()).unwrap();
    let mut reader =
        LedgerReader::open(dir.path(), EntryFilter::default(), VerifyOptions::default()).unwrap();
    let read = reader.by_ref().take_while(Result::is_ok).count() as u64;
    assert!(reader.next().is_none());
    let Err(LedgerReadError::Damaged(wrong)) = verify(dir.path(), VerifyOptions::default()) else {
        panic!("nothing is wrong")
    };
    assert_eq!((wrong.position.segment, wrong.position.line), (3, 3));
    assert_eq!(wrong.damage, Damage::Reordered { expected: read + 1, found: read + 2 });

    // With the last segment removed, only the kept head shows the loss.
    std::fs::write(&path, text).unwrap();
    let last = dir.path().join(format!("ledger-{:06}.jsonl", verified.segments));
    std::fs::remove_file(last).unwrap();
    verify(dir.path(), VerifyOptions::default()).unwrap();
    let Err(LedgerReadError::Damaged(wrong)) =
        verify(dir.path(), VerifyOptions { kept_head: verified.head, ..VerifyOptions::default() })
    else {
        panic!("what was cut off is not missed")
    };
    assert!(matches!(wrong.damage, Damage::Truncated { .. }), "{wrong}");
}

#[test]
fn a_missing_ledger_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    for folder in [dir.path().to_owned(), dir.path().join("nowhere")] {
        let error = verify(&folder, VerifyOptions::default()).unwrap_err();
        assert!(error.to_string().starts_with("there is no ledger in "), "{error}");
    }
    let file = dir.path().join("ledger-000001.jsonl");
    std::fs::create_dir(&file).unwrap();
    let error = verify(dir.path(), VerifyOptions::default()).unwrap_err();
    assert!(error.to_string().contains("ledger-000001.jsonl: it is there and is not a file"), "{error}");
}
