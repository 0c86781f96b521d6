//! Folders and files that are refused.

use crate::rows::{manifest, write_extremes};
use std::os::unix::fs::symlink;
use weir_records::{Durability, ModuleFiles, RecordsError};
use weir_session::{Record, RecordOrder};

#[test]
fn a_label_cannot_leave_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    for label in ["", "..", "a/b", "/etc", "A", "a\n", &"x".repeat(65)] {
        let error = ModuleFiles::create(Some(dir.path()), label, &manifest(), Durability::AtEnd).unwrap_err();
        assert!(matches!(error, RecordsError::Label(_)), "{label:?}: {error}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn links_inside_the_folder_are_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let out = dir.path();
    symlink(elsewhere.path(), out.join("probe")).unwrap();
    let error = ModuleFiles::create(Some(out), "probe", &manifest(), Durability::AtEnd).unwrap_err();
    assert!(matches!(error, RecordsError::NotAFolder(_)), "{error}");

    let victim = elsewhere.path().join("victim");
    std::fs::write(&victim, "precious").unwrap();
    std::fs::create_dir(out.join("probe-2")).unwrap();
    symlink(&victim, out.join("probe-2/all.parquet.part")).unwrap();
    let error = ModuleFiles::create(Some(out), "probe-2", &manifest(), Durability::AtEnd).unwrap_err();
    assert!(matches!(error, RecordsError::Create { .. }), "{error}");

    // A link in the place of the complete file is replaced.
    std::fs::create_dir(out.join("probe-3")).unwrap();
    symlink(&victim, out.join("probe-3/all.parquet")).unwrap();
    ModuleFiles::create(Some(out), "probe-3", &manifest(), Durability::AtEnd).unwrap().finish().unwrap();
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
    assert!(out.join("probe-3/all.parquet").symlink_metadata().unwrap().is_file());
}

#[test]
fn two_runs_do_not_write_the_same_file() {
    let dir = tempfile::tempdir().unwrap();
    let first = ModuleFiles::create(Some(dir.path()), "probe", &manifest(), Durability::AtEnd).unwrap();
    let error = ModuleFiles::create(Some(dir.path()), "probe", &manifest(), Durability::AtEnd).unwrap_err();
    assert!(error.to_string().contains("is being written by another run"), "{error}");
    first.finish().unwrap();
}

#[test]
fn an_older_file_stays_until_a_complete_one_takes_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = write_extremes(dir.path());
    let rows = || crate::round_trip::batches(&path).iter().map(|b| b.num_rows()).sum::<usize>();
    let create = || ModuleFiles::create(Some(dir.path()), "probe", &manifest(), Durability::AtEnd).unwrap();
    let (older, part) = (rows(), path.with_extension("parquet.part"));
    assert!(older > 0);
    // A failed run does not change it, and the failed run's file is beside it.
    let kept = create().keep();
    assert_eq!((kept.streams[0].path.as_ref(), rows()), (Some(&part), older));
    assert!(crate::round_trip::batches(&part).is_empty());
    let files = create();
    assert_eq!(rows(), older);
    files.finish().unwrap();
    assert_eq!((rows(), part.exists()), (0, false));
}

#[test]
fn a_folder_in_the_place_of_a_file_is_reported_before_there_are_rows() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("probe/small.parquet")).unwrap();
    let error = ModuleFiles::create(Some(dir.path()), "probe", &manifest(), Durability::AtEnd).unwrap_err();
    assert!(error.to_string().contains("small.parquet: "), "{error}");
}

#[test]
fn an_error_names_a_folder_that_cannot_be_created() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let error =
        ModuleFiles::create(Some(&dir.path().join("file/x")), "probe", &manifest(), Durability::AtEnd)
            .unwrap_err();
    assert!(
        error.to_string().contains("file/x: ") && error.to_string().contains("choose another one"),
        "{error}"
    );
}

#[test]
fn a_row_of_another_layout_is_refused_whole() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = ModuleFiles::create(Some(dir.path()), "probe", &manifest(), Durability::AtEnd).unwrap();
    let record = |stream, row| Record { order: RecordOrder::packet(0), stream, row, tail: &[] };
    let error = files.write(&record(2, &[0; 15])).unwrap_err();
    assert!(error.to_string().contains("field `noise`"), "{error}");
    assert!(matches!(files.write(&record(3, &[])), Err(RecordsError::NoStream { index: 3, .. })));
    files.write(&record(2, &[0; 16])).unwrap();
    let done = files.finish().unwrap();
    let read = crate::round_trip::batches(done[2].path.as_ref().unwrap());
    assert_eq!(read.iter().map(|b| b.num_rows()).sum::<usize>(), 1);
}
