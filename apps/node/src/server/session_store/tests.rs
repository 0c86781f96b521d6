use super::*;
use crate::control::authority::tests::chain;
use crate::sessions::saved::{SAVED_FORMAT, SavedModule, SavedOwner};
use std::os::unix::fs::symlink;
use weir_trust::credential::Credential;
use weir_trust::grant::Grant;

fn store(folder: &Path) -> SessionStore {
    SessionStore::open(folder).unwrap()
}

/// A session of the operator, or of the last holder of a chain of this length.
fn session(name: &str, holders: usize, modules: &[&[u8]]) -> SavedSession {
    let name = Name::new(name).unwrap();
    let owner = (holders > 0).then(|| {
        let credential = chain(&vec![Grant::default(); holders]);
        let credential = Credential::parse(credential.as_bytes()).unwrap().to_string();
        SavedOwner { credential, called: name.clone(), parents: Vec::new() }
    });
    let module = |(number, bytes): (usize, &&[u8])| SavedModule {
        module: toml::from_str(&format!("module = \"m.wasm\"\nname = \"m{number}\"")).unwrap(),
        file: Some(ModuleHash::of_bytes(bytes)),
        signatures: Vec::new(),
    };
    let modules = modules.iter().enumerate().map(module).collect();
    let number = u64::try_from(name.as_str().len()).unwrap();
    let session = crate::control::spec::SessionSpec::new(name);
    SavedSession { weir_session: SAVED_FORMAT, number, owner, session, modules }
}

fn add(store: &mut SessionStore, saved: &SavedSession, bytes: &[u8]) -> Result<(), StoreError> {
    store.add_module(&saved.session.name, &saved.claimed_chain(), ModuleHash::of_bytes(bytes), bytes)
}

fn files(folder: &Path) -> usize {
    std::fs::read_dir(folder.join(FOLDER)).unwrap().count()
}

#[test]
fn sessions_come_back_in_order_and_module_files_live_as_long_as_a_session_uses_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut before = store(folder.path());
    let (one, other) = (session("bb", 2, &[b"same", b"own"]), session("a", 0, &[b"same"]));
    for (saved, bytes) in [(&one, &b"same"[..]), (&one, b"own"), (&other, b"same")] {
        add(&mut before, saved, bytes).unwrap();
    }
    before.write(one.clone()).unwrap();
    before.write(other.clone()).unwrap();
    assert_eq!(files(folder.path()), 4);

    let mut after = store(folder.path());
    let (found, wrong) = after.find().unwrap();
    assert!(wrong.is_empty());
    let read: Vec<SavedSession> = found.iter().map(|found| after.read(found).unwrap()).collect();
    assert_eq!(read, [other.clone(), one.clone()]);
    after.remove_all_unused_modules();
    assert_eq!(after.read_module(&ModuleHash::of_bytes(b"own")).unwrap(), b"own");
    // A module that was unloaded.
    after.write(SavedSession { modules: one.modules[..1].to_vec(), ..one.clone() }).unwrap();
    assert_eq!(files(folder.path()), 3);
    after.remove(&one.session.name).unwrap();
    assert_eq!(files(folder.path()), 2);
    after.remove(&other.session.name).unwrap();
    assert_eq!(files(folder.path()), 0);
    after.remove(&other.session.name).unwrap();
}

#[test]
fn files_are_limited_under_each_link_of_a_chain() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = store(folder.path());
    let big = |number: u8| vec![number; 8 << 20];
    let (parent, child) = (session("parent", 1, &[]), session("child", 2, &[]));
    for number in 0..8 {
        let saved = if number % 2 == 0 { &parent } else { &child };
        add(&mut store, saved, &big(number)).unwrap();
    }
    // Each file counts once.
    add(&mut store, &child, &big(0)).unwrap();
    for saved in [&parent, &child] {
        let error = add(&mut store, saved, &big(9)).unwrap_err();
        assert!(matches!(error, StoreError::Full("under this credential", _)), "{error}");
    }
    // The operator has room of their own.
    add(&mut store, &session("own", 0, &[]), &big(9)).unwrap();
    // A session without room leaves no file behind.
    let long = "x".repeat(SESSION_BYTES_MAX);
    let mut wide = session("wide", 0, &[]);
    wide.modules.push(SavedModule {
        module: toml::from_str("module = \"m\"\nname = \"m\"").unwrap(),
        file: None,
        signatures: vec![long],
    });
    store.write(session("wide", 0, &[])).unwrap();
    let before = files(folder.path());
    assert!(matches!(store.write(wide), Err(StoreError::TooLong)));
    assert_eq!(files(folder.path()), before - 1);
}

#[test]
fn damaged_files_are_dropped_unreadable_ones_stay_and_the_others_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut before = store(folder.path());
    let good = session("good", 1, &[b"module"]);
    add(&mut before, &good, b"module").unwrap();
    before.write(good.clone()).unwrap();
    let path = |name: &str| folder.path().join(FOLDER).join(name);
    let text = std::fs::read(path(&format!("{}.{SESSION}", stem_of(&good.session.name)))).unwrap();
    let other = |number: usize| format!("{number:064x}.{SESSION}");
    std::fs::write(path(&other(0)), &text).unwrap();
    std::fs::write(path(&other(1)), &text[..text.len() / 2]).unwrap();
    std::fs::write(path(&other(2)), vec![b'['; SESSION_BYTES_MAX]).unwrap();
    std::fs::write(path(&other(3)), vec![b' '; SESSION_BYTES_MAX + 1]).unwrap();
    std::fs::write(path(&other(4)), b"").unwrap();
    symlink("/dev/zero", path(&other(5))).unwrap();
    std::fs::hard_link(path(&other(0)), path(&other(6))).unwrap();
    std::fs::create_dir(path(&other(7))).unwrap();
    std::fs::write(path("half.session.new"), b"{").unwrap();
    std::fs::write(path("stranger"), b"").unwrap();
    symlink("/dev/zero", path(&format!("{}.{MODULE}", ModuleHash([1; 32])))).unwrap();
    std::fs::write(path(&format!("{}.{MODULE}", ModuleHash([2; 32]))), b"other bytes").unwrap();

    let mut after = store(folder.path());
    let (found, wrong) = after.find().unwrap();
    assert!(wrong.len() >= 6, "{wrong:?}");
    let read: Vec<_> = found.iter().filter_map(|found| after.read(found).ok()).collect();
    assert_eq!(read, std::slice::from_ref(&good));
    for hash in [ModuleHash([1; 32]), ModuleHash([2; 32]), ModuleHash([3; 32])] {
        assert!(after.read_module(&hash).is_err());
    }
    after.remove_all_unused_modules();
    // The session, its module, the file of another name; and, as the system refuses to read some of the sessions, those (two
    // links, a symbolic link and a folder) and the other files of modules.
    assert_eq!(files(folder.path()), 3 + 4 + 2);
    for kept in [0, 5, 6, 7] {
        assert!(path(&other(kept)).symlink_metadata().is_ok(), "{kept}");
    }
    // A folder in a file's place does not stop a write of others.
    after.write(good).unwrap();
}

#[test]
fn a_session_whose_file_has_a_second_link_stays_with_its_modules_and_comes_back_without_the_link() {
    let folder = tempfile::tempdir().unwrap();
    let mut before = store(folder.path());
    let (linked, other) = (session("linked", 1, &[b"module"]), session("other", 0, &[b"same"]));
    for (saved, bytes) in [(&linked, &b"module"[..]), (&other, b"same")] {
        add(&mut before, saved, bytes).unwrap();
        before.write(saved.clone()).unwrap();
    }
    // A backup with hard links.
    let file = format!("{}.{SESSION}", stem_of(&linked.session.name));
    let backup = folder.path().join("backup");
    std::fs::hard_link(folder.path().join(FOLDER).join(&file), &backup).unwrap();

    let mut after = store(folder.path());
    let (found, wrong) = after.find().unwrap();
    assert!(matches!(wrong[..], [StoreError::File(PrivateError::Links(2))]), "{wrong:?}");
    assert_eq!(
        found.iter().map(|found| after.read(found).unwrap()).collect::<Vec<_>>(),
        std::slice::from_ref(&other)
    );
    after.remove_all_unused_modules();
    assert_eq!(files(folder.path()), 4);
    // The same holds after the other session is removed.
    after.remove(&other.session.name).unwrap();
    assert_eq!(after.read_module(&ModuleHash::of_bytes(b"module")).unwrap(), b"module");

    std::fs::remove_file(backup).unwrap();
    let mut later = store(folder.path());
    let (found, wrong) = later.find().unwrap();
    assert!(wrong.is_empty());
    assert_eq!(found.iter().map(|found| later.read(found).unwrap()).collect::<Vec<_>>(), [linked]);
    later.remove_all_unused_modules();
    assert_eq!(files(folder.path()), 2);
}

#[test]
fn a_session_that_cannot_be_written_has_no_earlier_file_and_keeps_its_modules() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = store(folder.path());
    let before = session("s", 0, &[b"module"]);
    add(&mut store, &before, b"module").unwrap();
    store.write(before.clone()).unwrap();
    let file = folder.path().join(FOLDER).join(format!("{}.{SESSION}", stem_of(&before.session.name)));
    // A folder in the way of the new file.
    let obstacle = file.with_extension("session.new");
    std::fs::create_dir(&obstacle).unwrap();
    let changed = SavedSession { number: 7, ..before };
    let error = store.write(changed.clone()).unwrap_err();
    assert!(error.is_transient() && !file.exists(), "{error}");
    std::fs::remove_dir(&obstacle).unwrap();
    store.write(changed.clone()).unwrap();
    let text = std::fs::read(&file).unwrap();
    assert_eq!(serde_json::from_slice::<SavedSession>(&text).unwrap(), changed);
    assert_eq!(files(folder.path()), 2);
}
