//! A node that is killed during writes.

use crate::make::{SESSIONS, interval, name, numbers, options, start, used};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weir_ledger::{LedgerEvent, LedgerHead, VerifyOptions};
use weir_ledger_files::{EntryFilter, LedgerReader, LedgerWriter, verify};
use weir_units::Timestamp;

const DIR: &str = "WEIR_LEDGER_TEST_DIR";
const FIRST: &str = "WEIR_LEDGER_TEST_FIRST";
const KILLS: u32 = 50;

/// The node: writes intervals until it is killed, and prints each committed one.
fn node(folder: &str, first: u64) {
    let (mut ledger, opened) = LedgerWriter::open(folder.as_ref(), start(first * 10), options()).unwrap();
    println!("opened {} {}", opened.crashed, opened.torn.0);
    for n in first.. {
        for event in interval(n) {
            ledger.push(Timestamp(n * 10), Timestamp(n * 10 + 10), event);
        }
        let head = ledger.commit().unwrap().unwrap();
        println!("committed {n} {head}");
    }
}

#[test]
fn a_node_killed_at_any_time_loses_at_most_an_interval() {
    if let (Ok(folder), Ok(first)) = (std::env::var(DIR), std::env::var(FIRST)) {
        return node(&folder, first.parse().unwrap());
    }
    let dir = tempfile::tempdir().unwrap();
    let (mut next, mut torn) = (0, 0);
    let mut random = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos() | 1;
    println!("moments from {random}");
    for kill in 0..KILLS {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed::a_node_killed_at_any_time_loses_at_most_an_interval", "--nocapture"])
            .env(DIR, dir.path())
            .env(FIRST, next.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let opened = lines.find(|line| line.contains("opened ")).unwrap();
        assert_eq!(opened.contains("opened true"), kill > 0, "{opened}");
        torn += u32::from(!opened.ends_with(" 0"));
        std::thread::sleep(Duration::from_micros(u64::from(random % 20_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        // Its output before the kill is still in the pipe; the last line may be incomplete.
        let said: Vec<String> = lines.filter(|line| line.starts_with("committed ")).collect();
        let committed = said.iter().rev().find_map(|line| {
            let mut words = line.split(' ').skip(1);
            let n: u64 = words.next()?.parse().ok()?;
            Some((n, words.next()?.parse::<LedgerHead>().ok()?))
        });

        let kept_head = committed.map(|(_, head)| head);
        let verified = verify(dir.path(), VerifyOptions { kept_head, ..VerifyOptions::default() }).unwrap();
        assert_eq!(verified.recoveries, u64::from(kill));
        let entries: Vec<_> =
            LedgerReader::open(dir.path(), EntryFilter::default(), VerifyOptions::default())
                .unwrap()
                .collect::<Result<_, _>>()
                .unwrap();
        let safe = committed.map_or(next, |(n, _)| n + 1);
        let usages: Vec<(u64, u64)> = entries.iter().flat_map(numbers).collect();
        assert!(usages.iter().all(|(intervals, _)| *intervals == 1), "none was added to another");
        let usages: Vec<u64> = usages.into_iter().map(|(_, number)| number).collect();
        let said: Vec<u64> = usages.iter().copied().filter(|n| *n < safe * SESSIONS).collect();
        assert_eq!(
            said.iter().filter(|n| **n >= next * SESSIONS).count() as u64,
            (safe - next) * SESSIONS,
            "an interval that was committed is there"
        );
        let beyond = usages.iter().filter(|n| **n >= safe * SESSIONS).count() as u64;
        assert!(beyond <= SESSIONS, "{beyond} entries after those of the last interval that was committed");
        next = safe + 1;
    }
    println!("{torn} of {KILLS} lines were torn, {next} intervals");
    let (mut ledger, opened) = LedgerWriter::open(dir.path(), start(next * 10), options()).unwrap();
    assert!(opened.crashed);
    ledger.stop(Timestamp(next * 10 + 1)).unwrap();
    let verified = verify(dir.path(), VerifyOptions::default()).unwrap();
    assert_eq!((verified.recoveries, verified.stopped, verified.torn), (u64::from(KILLS), true, None));
    assert_eq!(
        verified.segments,
        std::fs::read_dir(dir.path())
            .unwrap()
            .filter(|entry| {
                entry.as_ref().unwrap().path().extension().is_some_and(|extension| extension == "jsonl")
            })
            .count() as u64
    );
}

#[test]
fn a_torn_line_is_put_aside() {
    let dir = tempfile::tempdir().unwrap();
    let (mut ledger, _) = LedgerWriter::open(dir.path(), start(0), options()).unwrap();
    ledger.push_at(Timestamp(1), used(1));
    let head = ledger.commit().unwrap();
    ledger.push_at(Timestamp(2), used(2));
    ledger.commit().unwrap();
    drop(ledger);
    let path = dir.path().join("ledger-000001.jsonl");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 40]).unwrap();
    let verified = verify(dir.path(), VerifyOptions { kept_head: head, ..VerifyOptions::default() }).unwrap();
    let torn = verified.torn.unwrap();
    assert_eq!((verified.head, torn.position.line), (head, 4));

    let (mut ledger, opened) = LedgerWriter::open(dir.path(), start(3), options()).unwrap();
    assert_eq!((opened.crashed, opened.torn.0, opened.head), (true, torn.bytes, head));
    assert_eq!(ledger.stop(Timestamp(4)).unwrap().map(|head| head.sequence), Some(6));
    let aside = std::fs::read(dir.path().join("ledger-000001.torn")).unwrap();
    assert_eq!(
        [&bytes[..usize::try_from(torn.position.offset).unwrap()], &aside].concat(),
        &bytes[..bytes.len() - 40]
    );
    let filter = EntryFilter { session: Some(name("bob")), ..EntryFilter::default() };
    assert_eq!(LedgerReader::open(dir.path(), filter, VerifyOptions::default()).unwrap().count(), 1);
    let all: Vec<_> = LedgerReader::open(dir.path(), EntryFilter::default(), VerifyOptions::default())
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(all[3].event, LedgerEvent::Recovered { torn_bytes: torn.bytes });
}
