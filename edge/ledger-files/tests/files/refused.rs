//! Folders that are refused.

use crate::make::{options, start, used};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use weir_ledger::VerifyOptions;
use weir_ledger_files::{LedgerError, LedgerReadError, LedgerWriter, verify};
use weir_units::Timestamp;

/// The error of a ledger that is not opened; a check finds the same one.
#[track_caller]
fn refused(folder: &Path) -> LedgerError {
    let looked = weir_ledger_files::check(folder).expect_err("it is gone on with");
    let Err(error) = LedgerWriter::open(folder, start(50), options()) else { panic!("it is gone on with") };
    assert_eq!(looked.to_string(), error.to_string());
    error
}

#[test]
fn two_nodes_do_not_write_one_ledger() {
    let dir = tempfile::tempdir().unwrap();
    let (mut first, _) = LedgerWriter::open(dir.path(), start(0), options()).unwrap();
    assert!(weir_ledger_files::is_held(dir.path()).unwrap());
    let error = refused(dir.path()).to_string();
    assert!(
        error.contains("is being written by another node: stop the other node, or give this node"),
        "{error}"
    );
    // Reading needs no lock.
    assert_eq!(verify(dir.path(), VerifyOptions::default()).unwrap().entries, 2);
    first.stop(Timestamp(2)).unwrap();
    drop(first);
    let (_, opened) = LedgerWriter::open(dir.path(), start(3), options()).unwrap();
    assert!(!opened.crashed);
}

#[test]
fn a_changed_ledger_is_not_continued() {
    let dir = tempfile::tempdir().unwrap();
    let (mut ledger, _) = LedgerWriter::open(dir.path(), start(0), options()).unwrap();
    for n in 0..40 {
        ledger.push_at(Timestamp(n), used(n));
        ledger.commit().unwrap();
    }
    ledger.stop(Timestamp(40)).unwrap();
    drop(ledger);
    let last = weir_segments(dir.path()).len();
    assert!(last > 2);
    // In the last segment and in the one before; earlier changes are for `verify` to find.
    for segment in [last, last - 1] {
        let path = dir.path().join(format!("ledger-{segment:06}.jsonl"));
        let bytes = std::fs::read(&path).unwrap();
        let mut changed = bytes.clone();
        changed[100] ^= 1;
        std::fs::write(&path, &changed).unwrap();
        let error = refused(dir.path());
        assert!(matches!(error, LedgerError::Damaged(_)), "{error}");
        let says = format!("segment {segment}, line 1 (byte 0): the line was changed");
        assert!(
            error.to_string().contains(&says) && error.to_string().contains("keep its folder"),
            "{error}"
        );
        assert_eq!(std::fs::read(&path).unwrap(), changed);
        let error = verify(dir.path(), VerifyOptions::default()).unwrap_err();
        assert!(matches!(error, LedgerReadError::Damaged(wrong) if wrong.to_string().contains(&says)));
        std::fs::write(&path, &bytes).unwrap();
    }
    // A missing segment.
    let path = dir.path().join(format!("ledger-{:06}.jsonl", last - 1));
    std::fs::rename(&path, path.with_extension("away")).unwrap();
    let error = refused(dir.path());
    assert!(error.to_string().contains("are missing here"), "{error}");
    std::fs::rename(path.with_extension("away"), &path).unwrap();
    // A child that another test is just starting has the lock's descriptor until it executes its program.
    let again = || match LedgerWriter::open(dir.path(), start(50), options()) {
        Err(LedgerError::Busy(_)) => None,
        opened => Some(opened.unwrap()),
    };
    let opened = (0..1000).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(5));
        again()
    });
    opened.unwrap().0.stop(Timestamp(51)).unwrap();
    assert!(verify(dir.path(), VerifyOptions::default()).unwrap().stopped);
}

fn weir_segments(dir: &std::path::Path) -> Vec<String> {
    std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".jsonl"))
        .collect()
}

#[test]
fn links_are_not_followed_and_files_are_private() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let victim = elsewhere.path().join("victim");
    std::fs::write(&victim, "precious").unwrap();
    for name in ["lock", "ledger-000001.jsonl"] {
        symlink(&victim, dir.path().join(name)).unwrap();
        let error = refused(dir.path());
        assert!(matches!(error, LedgerError::Folder { .. } | LedgerError::Io(_)), "{error}");
        std::fs::remove_file(dir.path().join(name)).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");

    let folder = dir.path().join("a/b");
    // A check creates nothing.
    weir_ledger_files::check(&folder).unwrap();
    assert!(!weir_ledger_files::is_held(&folder).unwrap() && !dir.path().join("a").exists());
    LedgerWriter::open(&folder, start(0), options()).unwrap();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let segment = folder.join("ledger-000001.jsonl");
    assert_eq!((mode(&segment), mode(&folder.join("lock")), mode(&folder)), (0o600, 0o600, 0o700));
    // A second name may be in a folder where others can write; and a file of an earlier version loses its group's
    // rights.
    let second = dir.path().join("second");
    std::fs::hard_link(&segment, &second).unwrap();
    let error = refused(&folder);
    assert!(error.to_string().contains("ledger-000001.jsonl: it has 2 links"), "{error}");
    std::fs::remove_file(&second).unwrap();
    std::fs::set_permissions(&segment, std::fs::Permissions::from_mode(0o640)).unwrap();
    weir_ledger_files::check(&folder).unwrap();
    assert_eq!(mode(&segment), 0o640, "a look changes no mode");
    LedgerWriter::open(&folder, start(0), options()).unwrap();
    assert_eq!(mode(&segment), 0o600);
    std::fs::write(dir.path().join("file"), "").unwrap();
    let Err(error) = LedgerWriter::open(&dir.path().join("file/x"), start(0), options()) else {
        panic!("no folder")
    };
    assert!(error.to_string().contains("file/x: "), "{error}");
}
