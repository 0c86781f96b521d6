//! Files of a run that did not end in order.

use crate::round_trip::batches;
use crate::rows::manifest;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use std::path::Path;
use std::process::Command;
use weir_records::{Durability, ModuleFiles, RecordsError};
use weir_session::{Record, RecordOrder};

pub fn noise(files: &mut ModuleFiles, from: u64, to: u64) -> Result<(), RecordsError> {
    for n in from..to {
        let row = [n.to_le_bytes(), n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()].concat();
        files.write(&Record { order: RecordOrder::packet(0), stream: 2, row: &row, tail: &[] })?;
    }
    Ok(())
}

/// Reads the rows of a file of [`noise`], which must be 0, 1, 2 … without a gap. Returns their number.
pub fn rows(path: &Path) -> u64 {
    let mut next = 0;
    for batch in batches(path) {
        for n in batch.column(0).as_primitive::<UInt64Type>().values() {
            assert_eq!(*n, next);
            next += 1;
        }
    }
    next
}

#[test]
fn an_unfinished_file_keeps_its_rows_and_its_partial_name() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = ModuleFiles::create(Some(dir.path()), "probe", &manifest(), Durability::AtEnd).unwrap();
    noise(&mut files, 0, 300_000).unwrap();
    drop(files);
    assert!(!dir.path().join("probe/small.parquet").exists());
    assert_eq!(rows(&dir.path().join("probe/small.parquet.part")), 300_000);
}

#[test]
fn a_killed_run_leaves_its_row_groups_readable() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = ModuleFiles::create(Some(dir.path()), "probe", &manifest(), Durability::AtEnd).unwrap();
    let part = dir.path().join("probe/small.parquet.part");
    assert_eq!(rows(&part), 0);
    noise(&mut files, 0, 300_000).unwrap();
    // A killed process writes nothing more at this point.
    let left = rows(&part);
    assert!((100_000..300_000).contains(&left), "{left}");
    noise(&mut files, 300_000, 600_000).unwrap();
    assert!(rows(&part) >= left + 200_000);
    files.finish().unwrap();
    assert_eq!((rows(&dir.path().join("probe/small.parquet")), part.exists()), (600_000, false));
}

#[test]
fn the_rows_of_files_are_reported_at_their_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = ModuleFiles::create(Some(dir.path()), "probe", &manifest(), Durability::AtEnd).unwrap();
    noise(&mut files, 0, 1000).unwrap();
    // The file cannot be renamed, but holds its rows.
    std::fs::create_dir(dir.path().join("probe/small.parquet")).unwrap();
    let ended = files.end();
    assert!(matches!(ended.errors[..], [RecordsError::Rename { .. }]), "{ended:?}");
    assert_eq!((ended.kept, rows(&dir.path().join("probe/small.parquet.part"))), (1000, 1000));
}

/// Runs in a process of its own, with a limit on the file size: a write past it fails as on a full disk.
#[test]
fn on_a_full_disk_the_written_rows_stay_readable() {
    const DIR: &str = "WEIR_RECORDS_TEST_DIR";
    const FLUSHES: &str = "WEIR_RECORDS_TEST_FLUSHES";
    if let Some(dir) = std::env::var_os(DIR) {
        let dir = Path::new(&dir);
        let flushes = std::env::var_os(FLUSHES).is_some();
        let durability = if flushes { Durability::Seconds } else { Durability::AtEnd };
        let mut files = ModuleFiles::create(Some(dir), "probe", &manifest(), durability).unwrap();
        let mut written = (0..500)
            .map(|part| noise(&mut files, part * 10_000, (part + 1) * 10_000).and_then(|()| files.flush()));
        let error = written.find_map(Result::err).unwrap();
        let RecordsError::Write { kept: Some(kept), .. } = &error else { panic!("{error}") };
        assert!(error.to_string().contains("the largest file size that is allowed here"), "{error}");
        assert!(error.to_string().contains("small.parquet.part"), "{error}");
        assert!(*kept >= 500_000, "{error}");
        assert!(!dir.join("probe/small.parquet.wal").exists());
        assert_eq!(rows(&dir.join("probe/small.parquet.part")), *kept);
        assert!(matches!(noise(&mut files, 0, 1), Err(RecordsError::Stopped(_))));
        // The module's other streams are completed.
        let ended = files.end();
        assert!(ended.errors.is_empty() && ended.kept == *kept, "{ended:?}");
        let done = ended.streams;
        assert_eq!(done[1].path, Some(dir.join("probe/none.parquet")));
        assert_eq!(done[2].path, Some(dir.join("probe/small.parquet.part")));
        assert_eq!(rows(&dir.join("probe/small.parquet.part")), *kept);
        return;
    }
    for (blocks, flushes) in
        [20_000, 20_001, 20_007, 24_001].into_iter().flat_map(|b| [(b, false), (b, true)])
    {
        let dir = tempfile::tempdir().unwrap();
        let output = Command::new("sh")
            .arg("-c")
            // An ignored signal stays ignored in executed programs. A shell's block has 512 or 1024 bytes.
            .arg(format!("trap '' XFSZ; ulimit -f {blocks} && exec \"$0\" \"$@\""))
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "stopped::on_a_full_disk_the_written_rows_stay_readable"])
            .env(DIR, dir.path())
            .envs(flushes.then_some((FLUSHES, "yes")))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}
