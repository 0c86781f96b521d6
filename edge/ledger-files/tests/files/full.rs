//! Full disks.

use crate::make::{SESSIONS, interval, options, start, sums};
use std::path::Path;
use std::process::Command;
use weir_ledger::{LedgerEvent, VerifyOptions};
use weir_ledger_files::{EntryFilter, LedgerReader, LedgerWriter, verify};
use weir_units::Timestamp;

const INTERVALS: u64 = 2_000;

/// A node on a disk that becomes full, until `make_room`.
fn node(folder: &Path, says: &str, make_room: impl FnOnce()) {
    let (mut ledger, _) = LedgerWriter::open(folder, start(0), options()).unwrap();
    let (mut failed, mut make_room) = (0, Some(make_room));
    for n in 0..INTERVALS {
        for event in interval(n) {
            ledger.push(Timestamp(n * 10), Timestamp(n * 10 + 10), event);
        }
        if let Err(error) = ledger.commit() {
            assert!(error.to_string().contains(says), "{error}");
            // Complete as far as it goes, and continued from there.
            if failed == 0 {
                verify(folder, VerifyOptions { kept_head: ledger.head(), ..VerifyOptions::default() })
                    .unwrap();
            }
            failed += 1;
        }
        if n == INTERVALS - 100
            && let Some(make_room) = make_room.take()
        {
            assert!(failed > 100, "the disk was full {failed} times");
            assert!(ledger.held().merged > 0 && ledger.held().entries <= options().held_max);
            make_room();
        }
    }
    let head = ledger.stop(Timestamp(INTERVALS * 10)).unwrap();
    let verified = verify(folder, VerifyOptions { kept_head: head, ..VerifyOptions::default() }).unwrap();
    assert!(verified.stopped && verified.torn.is_none() && verified.recoveries == 0);
    let entries: Vec<_> = LedgerReader::open(folder, EntryFilter::default(), VerifyOptions::default())
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let usages = INTERVALS * SESSIONS;
    assert_eq!(sums(&entries), (usages, usages * (usages - 1) / 2));
    let said = entries
        .iter()
        .filter(|entry| matches!(entry.event, LedgerEvent::Backlog { merged, lost: 0, .. } if merged > 0));
    assert_eq!(said.count(), 1);
}

/// Runs in a process of its own, with a limit on the file size: a write past it fails as on a full disk.
#[test]
fn a_ledger_at_a_file_size_limit_merges_and_continues_in_the_next_segment() {
    const DIR: &str = "WEIR_LEDGER_TEST_LIMITED_DIR";
    if let Some(dir) = std::env::var_os(DIR) {
        let pid = std::process::id().to_string();
        return node(Path::new(&dir), "the largest file size that is allowed here", || {
            let status =
                Command::new("prlimit").args(["--pid", &pid, "--fsize=unlimited:unlimited"]).status();
            assert!(status.unwrap().success());
        });
    }
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new("sh")
        .arg("-c")
        // An ignored signal stays ignored in executed programs. A shell's block has 512 or 1024 bytes. A segment is 4
        // kB and an interval.
        .arg("trap '' XFSZ; ulimit -S -f 4 && exec \"$0\" \"$@\"")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "full::a_ledger_at_a_file_size_limit_merges_and_continues_in_the_next_segment"])
        .env(DIR, dir.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// On a real full file system: a small one in memory, in a mount namespace of its own. That needs root, or a kernel
/// that gives users namespaces.
#[test]
fn on_a_full_disk_usage_is_merged_until_there_is_room() {
    const DIR: &str = "WEIR_LEDGER_TEST_SMALL_DIR";
    if let Some(dir) = std::env::var_os(DIR) {
        let dir = Path::new(&dir);
        let ballast = dir.join("ballast");
        std::fs::write(&ballast, vec![0; 600 << 10]).unwrap();
        return node(&dir.join("ledger"), "the ledger's disk is full: free some space", || {
            std::fs::remove_file(&ballast).unwrap();
            let _ = Command::new("mount").args(["-o", "remount,size=8m"]).arg(dir).status().unwrap();
        });
    }
    let dir = tempfile::tempdir().unwrap();
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--map-root-user"]);
    let can_mount = unshare
        .args(["sh", "-c", "mount -t tmpfs -o size=64k none \"$0\""])
        .arg(dir.path())
        .output()
        .is_ok_and(|output| output.status.success());
    if !can_mount {
        eprintln!("skipped: mounting a small disk needs root, or user namespaces");
        return;
    }
    let output = Command::new("unshare")
        .args(["--mount", "--map-root-user", "sh", "-c"])
        .arg("mount -t tmpfs -o size=1m none \"$WEIR_LEDGER_TEST_SMALL_DIR\" && exec \"$0\" \"$@\"")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "full::on_a_full_disk_usage_is_merged_until_there_is_room"])
        .env(DIR, dir.path())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "the small disk went with its namespace");
}
