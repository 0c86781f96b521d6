//! Files after a process was killed, or a machine lost power.

use crate::rows::manifest;
use crate::stopped::{noise, rows};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use weir_records::{Durability, ModuleFiles, RecordsError, Recovered, recover};

const DIR: &str = "WEIR_RECORDS_CRASH_DIR";
/// Rows between two flushes of the process that is killed.
const STEP: u64 = 1_000;
const PART: &str = "probe/small.parquet.part";
const WAL: &str = "probe/small.parquet.wal";
const WHOLE: &str = "probe/small.parquet";

fn create(dir: &Path) -> ModuleFiles {
    ModuleFiles::create(Some(dir), "probe", &manifest(), Durability::Seconds).unwrap()
}

/// In a process of its own: writes rows until it is killed, and prints after each flush the number of flushed rows.
#[test]
#[ignore = "started by other tests, which kill it"]
fn writer() {
    let dir = PathBuf::from(std::env::var_os(DIR).unwrap());
    let mut files = create(&dir);
    for step in 0.. {
        noise(&mut files, step * STEP, (step + 1) * STEP).unwrap();
        files.flush().unwrap();
        writeln!(std::io::stdout(), "flushed {}", (step + 1) * STEP).unwrap();
    }
}

/// Kills a process that writes to the folder after it has flushed `wanted` rows. Returns the last number that it
/// printed.
fn killed_at(dir: &Path, wanted: u64) -> u64 {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "--nocapture", "crashed::writer"]).env(DIR, dir);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut flushed = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        flushed = line.unwrap().strip_prefix("flushed ").map_or(flushed, |rows| rows.parse().unwrap());
        if flushed >= wanted {
            // Lines printed before the kill still arrive.
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(flushed >= wanted, "it ended by itself after {flushed} rows");
    flushed
}

/// Recovers the only file, whose rows are 0, 1, 2 … without a gap. Returns their number.
fn recovered(dir: &Path) -> u64 {
    let found: Vec<Recovered> = recover(&dir.join("probe")).into_iter().map(Result::unwrap).collect();
    let [Recovered { path, rows: recovered_rows }] = &found[..] else { panic!("{found:?}") };
    assert_eq!(*path, dir.join(WHOLE));
    assert_eq!(rows(path), *recovered_rows);
    assert!(!dir.join(PART).exists() && !dir.join(WAL).exists());
    *recovered_rows
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to.join("probe")).unwrap();
    for entry in fs::read_dir(from.join("probe")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join("probe").join(entry.file_name())).unwrap();
    }
}

#[test]
fn no_flushed_row_of_a_killed_process_is_lost() {
    // Before the first row group, in the middle of others, and after the first ones.
    for wanted in [1_000, 90_000, 131_000, 262_000, 400_000] {
        let dir = tempfile::tempdir().unwrap();
        let flushed = killed_at(dir.path(), wanted);
        let found = recovered(dir.path());
        assert!((flushed..=flushed + 2 * STEP).contains(&found), "{flushed} flushed, {found} found");
    }
}

#[test]
fn a_kill_while_a_row_group_is_written_loses_nothing() {
    let crashed = tempfile::tempdir().unwrap();
    killed_at(crashed.path(), 300_000);
    let again = tempfile::tempdir().unwrap();
    copy(crashed.path(), again.path());
    let whole = recovered(again.path());
    // The last footer begins at the offset in the log. The next row group is written over it, up to any byte.
    let log = fs::read(crashed.path().join(WAL)).unwrap();
    let end = u64::from_le_bytes(log[16..24].try_into().unwrap());
    let part = fs::read(crashed.path().join(PART)).unwrap();
    let footer = part.len() as u64 - end;
    for written in [1, footer / 2, footer - 1, footer, footer + 1, footer + 100_000] {
        copy(crashed.path(), again.path());
        let mut torn = part.clone();
        torn.resize(torn.len().max(usize::try_from(end + written).unwrap()), 0);
        let from = usize::try_from(end).unwrap();
        torn[from..from + usize::try_from(written).unwrap()].fill(0x5a);
        fs::write(again.path().join(PART), torn).unwrap();
        assert_eq!(recovered(again.path()), whole, "{written} bytes were written");
    }
    // Until the new log replaces the old one, the file has rows that are in the log too.
    let (before, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut files = create(before.path());
    noise(&mut files, 0, 131_000).unwrap();
    files.flush().unwrap();
    copy(before.path(), after.path());
    noise(&mut files, 131_000, 140_000).unwrap();
    files.flush().unwrap();
    noise(&mut files, 140_000, 141_000).unwrap();
    fs::copy(before.path().join(PART), after.path().join(PART)).unwrap();
    let groups = rows(&after.path().join(PART));
    assert!(groups > 131_000, "a row group has ended: {groups}");
    assert_eq!(recovered(after.path()), groups);
}

#[test]
fn the_rows_before_the_damage_of_a_log_are_recovered() {
    let crashed = tempfile::tempdir().unwrap();
    killed_at(crashed.path(), 140_000);
    let again = tempfile::tempdir().unwrap();
    let groups = rows(&crashed.path().join(PART));
    assert!(groups > 100_000, "a row group has ended: {groups}");
    let log = fs::read(crashed.path().join(WAL)).unwrap();
    let footer = u32::from_le_bytes(log[..4].try_into().unwrap()) as usize;
    let mut last = u64::MAX;
    // From the end to the beginning, and at each of the first bytes.
    for len in (0..log.len()).rev().filter(|len| *len < 64 || len % 997 == 0) {
        copy(crashed.path(), again.path());
        fs::write(again.path().join(WAL), &log[..len]).unwrap();
        let found = recovered(again.path());
        assert!((groups..=last).contains(&found), "{len} bytes: {found} rows");
        last = found;
    }
    assert_eq!(last, groups);
    for at in (0..log.len()).filter(|at| *at < 8 || at % 1_009 == 0) {
        copy(crashed.path(), again.path());
        let mut damaged = log.clone();
        damaged[at] ^= 0x10;
        fs::write(again.path().join(WAL), &damaged).unwrap();
        let found = recovered(again.path());
        assert!(found >= groups && (at > footer || found == groups), "byte {at}: {found} rows");
    }
    // Zeros, as file systems leave them.
    for from in [0, 8, footer + 8, log.len() / 2] {
        copy(crashed.path(), again.path());
        let mut damaged = log.clone();
        damaged[from..].fill(0);
        fs::write(again.path().join(WAL), &damaged).unwrap();
        assert!(recovered(again.path()) >= groups);
    }
}

#[test]
fn files_that_cannot_be_completed_stay() {
    let dir = tempfile::tempdir().unwrap();
    killed_at(dir.path(), 140_000);
    // The file has lost row groups that the log continues.
    let part = fs::read(dir.path().join(PART)).unwrap();
    fs::write(dir.path().join(PART), &part[..1_000]).unwrap();
    let log = fs::read(dir.path().join(WAL)).unwrap();
    let error = recover(&dir.path().join("probe")).remove(0).unwrap_err();
    assert!(matches!(error, RecordsError::Recover { .. }), "{error}");
    assert!(error.to_string().contains("it is shorter than its complete row groups"), "{error}");
    assert_eq!(fs::read(dir.path().join(PART)).unwrap(), part[..1_000]);
    assert_eq!(fs::read(dir.path().join(WAL)).unwrap(), log);
    let error = ModuleFiles::create(Some(dir.path()), "probe", &manifest(), Durability::AtEnd).unwrap_err();
    assert!(matches!(error, RecordsError::Recover { .. }), "{error}");
    assert_eq!(fs::read(dir.path().join(WAL)).unwrap(), log);
}

#[test]
fn the_next_run_in_a_folder_keeps_the_rows_of_a_killed_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut flushed = Vec::new();
    for crash in 1..=2 {
        flushed.push(killed_at(dir.path(), 3_000 * crash));
    }
    let mut files = create(dir.path());
    assert_eq!(files.recovered().len(), 1);
    noise(&mut files, 0, 7).unwrap();
    files.finish().unwrap();
    for (number, flushed) in flushed.into_iter().enumerate() {
        let found = rows(&dir.path().join(format!("probe/small.recovered-{}.parquet", number + 1)));
        assert!((flushed..=flushed + 2 * STEP).contains(&found), "{flushed} flushed, {found} found");
    }
    assert_eq!(rows(&dir.path().join(WHOLE)), 7);
    let left: Vec<_> = fs::read_dir(dir.path().join("probe")).unwrap().flatten().collect();
    assert!(
        left.iter().all(|file| file.path().extension().is_some_and(|kind| kind == "parquet")),
        "{left:?}"
    );
}

#[test]
fn files_that_another_process_writes_are_not_recovered() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = create(dir.path());
    noise(&mut files, 0, 100).unwrap();
    files.flush().unwrap();
    assert!(recover(&dir.path().join("probe")).is_empty());
    noise(&mut files, 100, 200).unwrap();
    files.finish().unwrap();
    assert_eq!(rows(&dir.path().join(WHOLE)), 200);
    assert!(!dir.path().join(WAL).exists());
}
