//! Tests of the deletion of record files.

use super::disk::{StorageQuota, entries};
use super::*;
use crate::control::spec::SessionSpec;
use std::time::SystemTime;
use weir_trust::credential::DelegationId;

const MIB: usize = 1 << 20;

fn limits(bytes: u64) -> Arc<SessionLimits> {
    let mut spec = SessionSpec::new(Name::new("s").unwrap());
    spec.limits.set(Resource::RecordStorage, Some(bytes));
    Arc::new(SessionLimits::new(&spec, None))
}

fn session() -> Name {
    Name::new("s").unwrap()
}

/// Creates a file whose age follows from its number: the lowest is the oldest.
fn put(folder: &Path, path: &str, bytes: usize, number: u64) {
    let path = folder.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, vec![0; bytes]).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(number)).unwrap();
}

fn remaining(folder: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for (label, known) in entries(folder) {
        if known.is_dir() {
            all.extend(entries(&folder.join(&label)).map(|(name, _)| format!("{label}/{name}")));
        }
    }
    all.sort();
    all
}

#[test]
fn the_oldest_complete_files_are_deleted_first_and_open_files_stay() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("s");
    // Files of an earlier run, in no order of names.
    put(&folder, "m-7/rows.parquet", 3 * MIB, 1);
    put(&folder, "a-0/rows.parquet", 3 * MIB, 2);
    put(&folder, "a-0/rows.recovered-1.parquet", 3 * MIB, 3);
    put(&folder, "b-0/rows.parquet.part", 3 * MIB, 0);
    put(&folder, "m-8/rows.parquet.part", 3 * MIB, 0);
    let limits = limits(12 << 20);
    let all = RecordStorage::new(root.path().to_owned());
    all.scan();
    let storage = all.open(&session(), &limits, StorageHolder::default());
    storage.begin("m-8").unwrap();
    all.enforce(Instant::now());
    // 15 MiB were there, and 1/16 of the limit more than necessary may go.
    let left = ["a-0/rows.recovered-1.parquet", "b-0/rows.parquet.part", "m-8/rows.parquet.part"];
    assert_eq!(remaining(&folder), left);
    assert!(!folder.join("m-7").exists(), "a folder without files goes with them");
    let status = |limits: &SessionLimits| {
        let it = limits.status().of(Resource::RecordStorage);
        (it.in_use, it.refused)
    };
    assert_eq!(status(&limits), (9 << 20, 6 << 20));
    // The open file counts, and outgrows all others: it alone stays.
    put(&folder, "m-8/rows.parquet.part", 13 * MIB, 9);
    storage.update_bytes("m-8");
    all.enforce(Instant::now());
    assert_eq!(remaining(&folder), ["m-8/rows.parquet.part"]);
    assert_eq!(status(&limits), (13 << 20, 12 << 20));
    // It is completed, and another one is begun.
    std::fs::rename(folder.join("m-8/rows.parquet.part"), folder.join("m-8/rows.parquet")).unwrap();
    storage.end("m-8");
    storage.begin("m-9").unwrap();
    all.enforce(Instant::now());
    assert_eq!((remaining(&folder), status(&limits)), (Vec::new(), (0, 25 << 20)));
}

#[test]
fn only_record_files_of_the_session_are_deleted() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("s");
    put(root.path(), "elsewhere/rows.parquet", 3 * MIB, 0);
    put(root.path(), "elsewhere/m-1/rows.parquet", 3 * MIB, 0);
    for path in [
        "m-1/notes.txt",
        "m-1/rows.parquet.old",
        "notes/rows.parquet",
        "m-x/rows.parquet",
        "m-1/UPPER CASE.parquet",
    ] {
        put(&folder, path, 2 * MIB, 0);
    }
    put(&folder, "m-1/rows.parquet", 3 * MIB, 1);
    std::os::unix::fs::symlink(root.path().join("elsewhere"), folder.join("m-2")).unwrap();
    std::os::unix::fs::symlink(root.path().join("elsewhere/rows.parquet"), folder.join("m-1/link.parquet"))
        .unwrap();
    let all = RecordStorage::new(root.path().to_owned());
    all.scan();
    let _open = all.open(&session(), &limits(1), StorageHolder::default());
    all.enforce(Instant::now());
    assert!(!folder.join("m-1/rows.parquet").exists());
    for path in [
        "m-1/notes.txt",
        "m-1/rows.parquet.old",
        "notes/rows.parquet",
        "m-x/rows.parquet",
        "m-1/link.parquet",
        "m-2",
    ] {
        assert!(folder.join(path).symlink_metadata().is_ok(), "{path}");
    }
    for path in ["elsewhere/rows.parquet", "elsewhere/m-1/rows.parquet"] {
        assert!(root.path().join(path).exists(), "{path}");
    }
    // A linked folder is not the node's.
    let linked = root.path().join("linked");
    std::os::unix::fs::symlink(root.path().join("elsewhere"), &linked).unwrap();
    let all = RecordStorage::new(root.path().to_owned());
    all.scan();
    let _open = all.open(&Name::new("linked").unwrap(), &limits(1), StorageHolder::default());
    all.enforce(Instant::now());
    assert!(root.path().join("elsewhere/m-1/rows.parquet").exists());
}

#[test]
fn files_are_completed_before_they_fill_the_limit() {
    let root = tempfile::tempdir().unwrap();
    let storage = RecordStorage::new(root.path().to_owned()).open(
        &session(),
        &limits(80 << 20),
        StorageHolder::default(),
    );
    storage.begin("m-0").unwrap();
    assert_eq!(storage.file_bytes_max(), 10 << 20);
    storage.begin("m-1").unwrap();
    assert_eq!(storage.file_bytes_max(), 5 << 20);
    storage.set_limits(&limits(1));
    assert_eq!(storage.file_bytes_max(), 1 << 20);
    storage.set_limits(&limits(u64::MAX));
    assert_eq!(storage.file_bytes_max(), u64::MAX);
}

/// A chain of one link with these digits and this limit.
fn holder(digits: &str, most: StorageQuota) -> StorageHolder {
    chain(&[(digits, Some(most))])
}

/// A chain of links with these digits, root first.
fn chain(links: &[(&str, Option<StorageQuota>)]) -> StorageHolder {
    let id = |digits: &str| format!("weir-id:{}", digits.repeat(32)).parse::<DelegationId>().unwrap();
    StorageHolder(links.iter().map(|(digits, allowance)| (id(digits), *allowance)).collect())
}

fn write_session(all: &Arc<RecordStorage>, name: &str, most: u64, whose: &StorageHolder, folder: &Path) {
    let name = Name::new(name).unwrap();
    let open = all.open(&name, &limits(most), whose.clone());
    for number in 0..2 {
        let label = format!("m-{number}");
        open.begin(&label).unwrap();
        put(folder, &format!("{name}/{label}/rows.parquet"), MIB, 0);
        open.end(&label);
        all.enforce(Instant::now());
    }
}

fn all_there(folder: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for session in super::disk::sessions(folder) {
        let files = remaining(&folder.join(session.as_str()));
        all.extend(files.iter().map(|file| format!("{session}/{file}")));
    }
    all.retain(|path| path.ends_with(".parquet"));
    all.sort();
    all
}

#[test]
fn files_of_closed_sessions_count_for_their_holder_also_after_a_restart() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path();
    let (mine, others) =
        (holder("a", StorageQuota::Stated(5 << 20)), holder("b", StorageQuota::Stated(5 << 20)));
    let all = RecordStorage::new(folder.to_owned());
    all.scan();
    write_session(&all, "other", 5 << 20, &others, folder);
    // The operator's session counts for its own limit alone.
    write_session(&all, "own", 5 << 20, &StorageHolder::default(), folder);
    for name in ["c", "b"] {
        write_session(&all, name, 3 << 20, &mine, folder);
    }
    assert_eq!(all_there(folder).len(), 8);
    drop(all);
    // After a restart, the node knows the holder of the closed sessions, and the order of their files.
    let all = RecordStorage::new(folder.to_owned());
    all.scan();
    let mut left: Vec<String> = ["other/m-0", "other/m-1", "own/m-0", "own/m-1"]
        .iter()
        .map(|label| format!("{label}/rows.parquet"))
        .collect();
    for (name, of_mine) in
        [("a", &["a/m-0", "a/m-1", "b/m-0", "b/m-1"][..]), ("d", &["a/m-0", "a/m-1", "d/m-0", "d/m-1"])]
    {
        write_session(&all, name, 3 << 20, &mine, folder);
        let mut expected = left.clone();
        expected.extend(of_mine.iter().map(|label| format!("{label}/rows.parquet")));
        expected.sort();
        assert_eq!(all_there(folder), expected);
    }
    assert!(!folder.join("c").exists() && !folder.join("b").exists(), "empty folders of sessions go");
    // Without a ceiling, as much stays as the open sessions may keep together, and the default limit at least.
    let tiny = all.open(&Name::new("tiny").unwrap(), &limits(1), holder("a", StorageQuota::OfSessions));
    all.enforce(Instant::now());
    left.extend(["a/m-0", "a/m-1", "d/m-0", "d/m-1"].map(|label| format!("{label}/rows.parquet")));
    left.sort();
    assert_eq!(all_there(folder), left);
    drop(tiny);
}

#[test]
fn a_shared_limit_takes_files_from_the_holder_with_the_most_bytes_whatever_their_age() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path();
    let all = RecordStorage::new(folder.to_owned());
    let of = |digits| chain(&[("r", Some(StorageQuota::Stated(7 << 20))), (digits, None)]);
    write_session(&all, "modest", 1 << 30, &of("a"), folder);
    for name in ["greedy-1", "greedy-2", "greedy-3"] {
        write_session(&all, name, 1 << 30, &of("b"), folder);
    }
    // Eight files of 1 MiB remain once its last session is closed. The limit is for seven, and a sixteenth of it goes
    // beyond that.
    let open = all.open(&Name::new("new").unwrap(), &limits(1 << 30), of("c"));
    all.enforce(Instant::now());
    let left = ["greedy-2/m-0", "greedy-2/m-1", "greedy-3/m-0", "greedy-3/m-1", "modest/m-0", "modest/m-1"];
    assert_eq!(all_there(folder), left.map(|label| format!("{label}/rows.parquet")));
    drop(open);
}

#[test]
fn sessions_of_delegates_count_for_their_delegator() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path();
    let usual = Resource::RecordStorage.definition().limit.as_ref().and_then(|limit| limit.default).unwrap();
    let all = RecordStorage::new(folder.to_owned());
    let below = |digits| chain(&[("r", None), ("a", Some(StorageQuota::OfSessions)), (digits, None)]);
    // Sparse files: each closed session has 3/4 of the default limit.
    for (name, digits) in [("one", "b"), ("two", "c")] {
        let session = Name::new(name).unwrap();
        let open = all.open(&session, &limits(u64::MAX), below(digits));
        open.begin("m-0").unwrap();
        put(folder, &format!("{name}/m-0/rows.parquet"), 0, 0);
        let file = folder.join(name).join("m-0/rows.parquet");
        std::fs::File::options().write(true).open(&file).unwrap().set_len(usual / 4 * 3).unwrap();
        open.end("m-0");
    }
    assert_eq!(all_there(folder).len(), 2);
    let open = all.open(&Name::new("three").unwrap(), &limits(1), below("b"));
    all.enforce(Instant::now());
    assert_eq!(all_there(folder).len(), 1, "together they keep as much as is usual for a session");
    drop(open);
}

#[test]
fn a_folder_without_files_is_not_remembered() {
    let root = tempfile::tempdir().unwrap();
    holder("a", StorageQuota::Stated(1)).write(root.path(), &session()).unwrap();
    assert!(root.path().join("s").exists());
    let all = RecordStorage::new(root.path().to_owned());
    all.scan();
    assert!(!root.path().join("s").exists() && all.lock().sessions.is_empty());
}

#[test]
fn files_are_deleted_in_the_order_of_completion_although_the_clock_was_set_back() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("s");
    // From a time when the clock was a day ahead. The second file came after it was set back, as its number tells.
    let tomorrow = super::disk::nanos(SystemTime::now()) / 1_000_000_000 + 86_400;
    put(&folder, "a-0/rows.parquet", 2 * MIB, tomorrow);
    put(&folder, "a-1/rows.parquet", 2 * MIB, 1);
    let begin = |limits: &Arc<SessionLimits>| {
        let all = RecordStorage::new(root.path().to_owned());
        all.scan();
        let open = all.open(&session(), limits, StorageHolder::default());
        (all, open)
    };
    let ample = limits(1 << 30);
    let (all, open) = begin(&ample);
    for label in ["c-0", "b-0"] {
        open.begin(label).unwrap();
        put(&folder, &format!("{label}/rows.parquet"), 2 * MIB, 2);
        open.end(label);
    }
    drop((all, open));
    // The same holds after a restart.
    for left in [&["a-1", "b-0", "c-0"][..], &["b-0", "c-0"], &["b-0"], &[]] {
        let most = limits(left.len() as u64 * (2 << 20) + (left.len() as u64 * (2 << 20)) / 15);
        let (all, open) = begin(&most);
        all.enforce(Instant::now());
        let expected: Vec<String> = left.iter().map(|label| format!("{label}/rows.parquet")).collect();
        assert_eq!(remaining(&folder), expected);
        drop((all, open));
    }
}

#[test]
fn a_file_that_cannot_be_deleted_is_counted_and_tried_again_later() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("s");
    put(&folder, "a-0/rows.parquet", 2 * MIB, 1);
    put(&folder, "a-1/rows.parquet", 2 * MIB, 2);
    let limits = limits(1);
    let all = RecordStorage::new(root.path().to_owned());
    all.scan();
    let open = all.open(&session(), &limits, StorageHolder::default());
    // Both folders are links now, and links are not followed.
    for label in ["a-0", "a-1"] {
        std::fs::rename(folder.join(label), root.path().join(label)).unwrap();
        std::os::unix::fs::symlink(root.path().join(label), folder.join(label)).unwrap();
    }
    let now = Instant::now();
    (0..5).for_each(|_| _ = all.enforce(now));
    assert_eq!(all.failed(), 2, "both were tried once, and not each time");
    let taken = || limits.status().of(Resource::RecordStorage).in_use;
    assert_eq!(taken(), 4 << 20, "they count as long as they are there");
    (0..5).for_each(|_| _ = all.enforce(now + RETRY));
    assert_eq!(all.failed(), 4);
    std::fs::remove_file(folder.join("a-1")).unwrap();
    std::fs::rename(root.path().join("a-1"), folder.join("a-1")).unwrap();
    (0..5).for_each(|_| _ = all.enforce(now + 2 * RETRY));
    assert!(!folder.join("a-1").exists() && root.path().join("a-0/rows.parquet").exists());
    assert_eq!(taken(), 2 << 20);
    assert_eq!(limits.status().of(Resource::RecordStorage).refused, 2 << 20);
    drop(open);
}

#[test]
fn the_folders_are_searched_once() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("s");
    put(&folder, "a-0/rows.parquet", 2 * MIB, 1);
    let limits = limits(3 << 20);
    let all = RecordStorage::new(root.path().to_owned());
    all.scan();
    let open = all.open(&session(), &limits, StorageHolder::default());
    // Unknown to the node: created after the search, and not by a module of the node.
    put(&folder, "b-0/rows.parquet", 2 * MIB, 0);
    for label in ["c-0", "c-1", "c-2"] {
        open.begin(label).unwrap();
        put(&folder, &format!("{label}/rows.parquet"), MIB, 3);
        open.end(label);
        all.enforce(Instant::now());
    }
    // The oldest known file was deleted for the newer ones, and the unknown one stays.
    let left = ["b-0", "c-0", "c-1", "c-2"].map(|label| format!("{label}/rows.parquet"));
    assert_eq!(remaining(&folder), left);
}

#[test]
fn stored_files_are_read_by_their_exact_names_and_by_a_share_only_those_of_the_open_session() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("s");
    put(&folder, "m-7/rows.parquet", 100, 1);
    put(&folder, "b-0/rows.parquet.part", 100, 1);
    let all = RecordStorage::new(root.path().to_owned());
    all.scan();
    let storage = all.open(&session(), &limits(12 << 20), StorageHolder::default());
    storage.begin("m-8").unwrap();
    put(&folder, "m-8/rows.parquet.part", 100, 2);
    let stored = StoredRecords::of(&all);
    let opened = stored.session(&session()).unwrap().opened;
    assert!(opened.is_some());
    let folders = |written_by| -> Vec<String> {
        stored.files(&session(), written_by).iter().map(|file| file.folder.to_string()).collect()
    };
    assert_eq!((folders(None), folders(opened)), (vec!["m-7".to_owned()], Vec::new()));
    std::fs::rename(folder.join("m-8/rows.parquet.part"), folder.join("m-8/rows.parquet")).unwrap();
    storage.end("m-8");
    assert_eq!(
        (folders(None), folders(opened)),
        (vec!["m-7".to_owned(), "m-8".to_owned()], vec!["m-8".to_owned()])
    );
    let open = |place: (&str, &str), written_by| stored.open(&session(), place, written_by).unwrap();
    let place = ("m-7", "rows.parquet");
    assert!(open(place, opened).is_none() && open(("m-8", "rows.parquet"), opened).is_some());
    for other in [("b-0", "rows.parquet.part"), ("m-7", "../m-8/rows.parquet"), ("..", "s"), ("m-7", "")] {
        assert!(open(other, None).is_none(), "{other:?}");
    }
    // A hash is remembered until the file changes or is deleted.
    let file = open(place, None).unwrap();
    assert_eq!((file.bytes, file.digest), (100, None));
    let digest = weir_ledger::Digest::of_bytes(&[0; 100]);
    stored.set_digest(&session(), place, &file, digest);
    assert_eq!(open(place, None).unwrap().digest, Some(digest));
    put(&folder, "m-7/rows.parquet", 101, 3);
    assert_eq!(open(place, None).unwrap().digest, None);
    std::fs::remove_file(folder.join("m-7/rows.parquet")).unwrap();
    assert!(open(place, None).is_none());
}
