//! Private files, folders and sockets: their creation, and refusals. Files of other users take root to create.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use weir_os::private::{self, NamedOutput, PrivateError, PrivateFolder, PrivateKind};
use weir_os::socket::{self, SocketError};

/// A user that is neither root nor the tester.
const OTHER: u32 = 65534;

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().expect("it is there").mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
}

/// Returns true if the tests can create files of other users; otherwise prints that they cannot.
fn is_root() -> bool {
    let is_root = fs::metadata("/proc/self/status").expect("procfs is mounted").uid() == 0;
    if !is_root {
        _ = writeln!(std::io::stderr(), "skipped: files of other users take root");
    }
    is_root
}

/// Creates every kind of file and folder, in the folder that the environment names.
#[test]
#[ignore = "run by another test, as a process with a umask of its own"]
fn make_everything() {
    let Some(dir) = std::env::var_os("WEIR_TEST_FOLDER") else { return };
    let dir = Path::new(&dir);
    let folder = PrivateFolder::make(&dir.join("above/folder")).expect("it is made");
    folder.create("file").expect("it is made");
    folder.create_new("new").expect("it is made");
    folder.replace("whole", b"text").expect("it is made");
    folder.make_in("inner").expect("it is made");
    private::make_inside(&dir.join("named"), "label").expect("it is made");
    private::create_secret(&dir.join("secret")).expect("it is made");
    private::create_named(&dir.join("output")).expect("it is made");
    let (_listener, file) = socket::listen(&dir.join("run/node.sock")).expect("it is made");
    assert_eq!((mode(&dir.join("run")), mode(&dir.join("run/node.sock"))), (0o750, 0o660));
    assert_eq!(mode(&dir.join("run/node.sock.lock")), 0o600);
    drop(file);
}

#[test]
fn files_have_mode_600_and_folders_700_whatever_the_umask() {
    for umask in ["000", "022", "027", "077", "117"] {
        let dir = tempfile::tempdir().expect("a folder");
        let itself = std::env::current_exe().expect("this program");
        let script = format!("umask {umask}; exec \"$0\" --ignored --exact make_everything");
        let made = Command::new("sh")
            .args(["-c", &script])
            .arg(itself)
            .env("WEIR_TEST_FOLDER", dir.path())
            .output()
            .expect("there is a shell");
        let text = String::from_utf8_lossy(&made.stdout);
        assert!(made.status.success() && text.contains("1 passed"), "umask {umask}: {text}");
        for name in ["above/folder/file", "above/folder/new", "above/folder/whole", "secret", "output"] {
            assert_eq!(mode(&dir.path().join(name)), 0o600, "{name}, umask {umask}");
        }
        for name in ["above/folder", "above/folder/inner", "named/label"] {
            assert_eq!(mode(&dir.path().join(name)), 0o700, "{name}, umask {umask}");
        }
        for name in ["above", "named"] {
            assert_eq!(mode(&dir.path().join(name)) & 0o077, 0, "{name}, umask {umask}");
        }
    }
}

#[test]
fn an_existing_file_of_weirs_own_becomes_private_and_a_named_output_keeps_its_mode() {
    let dir = tempfile::tempdir().expect("a folder");
    fs::write(dir.path().join("old"), "before").expect("it is written");
    set_mode(&dir.path().join("old"), 0o644);
    let folder = PrivateFolder::open(dir.path()).expect("it is ours");
    let mut text = String::new();
    folder.create("old").expect("it is ours").read_to_string(&mut text).expect("it is read");
    assert_eq!((text.as_str(), mode(&dir.path().join("old"))), ("before", 0o600));

    set_mode(&dir.path().join("old"), 0o640);
    private::create_named(&dir.path().join("old")).expect("it is the user's choice");
    assert_eq!(mode(&dir.path().join("old")), 0o640);
    // An own folder that others could write in, as older versions created it under some umasks.
    let shared = dir.path().join("shared");
    fs::create_dir(&shared).expect("it is made");
    set_mode(&shared, 0o2775);
    PrivateFolder::open(&shared).expect("it is ours");
    assert_eq!(mode(&shared), 0o2755);
    // A folder such as /tmp is not accepted as an own one.
    set_mode(&shared, 0o1777);
    assert!(matches!(PrivateFolder::open(&shared), Err(PrivateError::Writable(0o1777))));
    assert_eq!(mode(&shared), 0o1777);
}

#[test]
fn symbolic_and_hard_links_are_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    fs::write(at("victim"), "precious").expect("it is written");
    set_mode(&at("victim"), 0o600);
    symlink(at("victim"), at("link")).expect("a link");
    fs::create_dir(at("real")).expect("it is made");
    symlink(at("real"), at("folder-link")).expect("a link");
    let folder = PrivateFolder::open(dir.path()).expect("it is ours");

    let is_link = |error: PrivateError| matches!(error, PrivateError::Link(PrivateKind::File));
    assert!(is_link(folder.create("link").expect_err("a link")));
    assert!(is_link(folder.open_file("link").expect_err("a link")));
    assert!(is_link(folder.open_secret("link").expect_err("a link")));
    assert!(is_link(private::open_secret(&at("link")).expect_err("a link")));
    for path in [at("folder-link"), at("folder-link/"), at("folder-link/.")] {
        // Root's links are followed for others; these are the tester's own, or root's for root.
        let error = PrivateFolder::make(&path).expect_err("a link");
        assert!(matches!(error, PrivateError::Link(PrivateKind::Folder)), "{}: {error}", path.display());
    }
    assert!(folder.make_in("folder-link").is_err());
    assert!(private::make_inside(dir.path(), "folder-link").is_err());
    // A folder that a user names may be a link: the checks are on the folder in it.
    private::make_inside(&at("folder-link"), "label").expect("the link is the user's choice");
    assert!(at("real/label").is_dir());

    fs::hard_link(at("victim"), at("second")).expect("a link");
    for name in ["victim", "second"] {
        let error = private::open_secret(&at(name)).expect_err("two links");
        assert!(matches!(error, PrivateError::Links(2)), "{error}");
        assert!(matches!(folder.create(name), Err(PrivateError::Links(2))));
        assert!(matches!(folder.open_secret(name), Err(PrivateError::Links(2))));
    }
    // A replacement is a file of its own, and other names of the old file are unchanged.
    folder.replace("second", b"other").expect("it is replaced");
    symlink(at("victim"), at("link2")).expect("a link");
    folder.replace("link2", b"other").expect("it is replaced");
    assert_eq!(fs::read_to_string(at("victim")).expect("it is there"), "precious");
    assert!(at("link2").symlink_metadata().expect("it is there").is_file());
}

#[test]
fn a_secret_that_others_can_read_or_write_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("key");
    fs::write(&path, "secret").expect("it is written");
    for given in [0o640, 0o604, 0o620, 0o602, 0o610] {
        set_mode(&path, given);
        let error = private::open_secret(&path).expect_err("others have rights").to_string();
        assert!(error.contains("`chmod 600`"), "{error}");
    }
    for given in [0o600, 0o400] {
        set_mode(&path, given);
        private::open_secret(&path).expect("only its owner reads it");
    }
    let error = private::open_secret(dir.path()).expect_err("a folder");
    assert!(matches!(error, PrivateError::Type(PrivateKind::File)), "{error}");
    let missing = private::open_secret(&dir.path().join("missing")).expect_err("nothing is there");
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert_eq!(private::create_secret(&path).expect_err("it is there").kind(), ErrorKind::AlreadyExists);
}

#[test]
fn files_of_another_user_are_refused() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let folder = PrivateFolder::open(dir.path()).expect("it is ours");
    let path = dir.path().join("key");
    fs::write(&path, "secret").expect("it is written");
    set_mode(&path, 0o600);
    chown(&path, Some(OTHER), None).expect("root may");
    let is_foreign = |error: &PrivateError| matches!(error, PrivateError::Owner { owner: OTHER, wanted: 0 });
    let error = private::open_secret(&path).expect_err("another user's");
    assert!(is_foreign(&error) && error.to_string().contains("`chown 0` it"), "{error}");
    assert!(is_foreign(&folder.create("key").expect_err("another user's")));
    assert!(is_foreign(&folder.open_secret("key").expect_err("another user's")));
    assert_eq!(fs::read_to_string(&path).expect("it is there"), "secret");
    let theirs = dir.path().join("folder");
    fs::create_dir(&theirs).expect("it is made");
    chown(&theirs, Some(OTHER), None).expect("root may");
    assert!(is_foreign(&PrivateFolder::make(&theirs).expect_err("another user's")));
    assert!(is_foreign(&folder.make_in("folder").expect_err("another user's")));
}

#[test]
fn a_file_name_cannot_lead_outside_its_folder() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = PrivateFolder::make(&dir.path().join("inner")).expect("it is made");
    for name in ["", ".", "..", "../x", "a/b", "/etc/x", "a/", "a\0b"] {
        let error = folder.create(name).expect_err("it is no name");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{name:?}");
    }
    assert_eq!(fs::read_dir(dir.path()).expect("it is there").count(), 1);
}

#[test]
fn a_check_refuses_what_a_start_refuses_and_changes_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    assert!(PrivateFolder::open_read_only(&at("a/b")).expect("it can be made").is_none());
    assert_eq!(fs::read_dir(dir.path()).expect("it is there").count(), 0);
    fs::write(at("file"), "").expect("it is written");
    fs::create_dir(at("real")).expect("it is made");
    fs::create_dir(at("shared")).expect("it is made");
    set_mode(&at("shared"), 0o1777);
    symlink(at("real"), at("link")).expect("a link");
    symlink(at("nowhere"), at("dangling")).expect("a link");
    for name in ["file", "link", "dangling", "shared"] {
        let looked = PrivateFolder::open_read_only(&at(name)).expect_err(name).to_string();
        assert_eq!(looked, PrivateFolder::open(&at(name)).expect_err(name).to_string(), "{name}");
    }
    for name in ["file/inner", "dangling/inner"] {
        assert!(
            PrivateFolder::open_read_only(&at(name)).is_err() && PrivateFolder::make(&at(name)).is_err(),
            "{name}"
        );
    }
    // Modes that a start would change, and a file that it would create.
    set_mode(&at("real"), 0o775);
    fs::write(at("real/file"), "").expect("it is written");
    set_mode(&at("real/file"), 0o644);
    let folder = PrivateFolder::open_read_only(&at("real")).expect("it is ours").expect("it is there");
    folder.create("file").expect("it is looked at");
    assert_eq!(folder.create("new").expect_err("it is not made").kind(), ErrorKind::NotFound);
    assert_eq!((mode(&at("real")), mode(&at("real/file"))), (0o775, 0o644));
    fs::hard_link(at("real/file"), at("real/second")).expect("a link");
    assert!(matches!(folder.open_file("file"), Err(PrivateError::Links(2))));
    if is_root() {
        chown(at("real"), Some(OTHER), None).expect("root may");
        assert!(matches!(
            PrivateFolder::open_read_only(&at("real")),
            Err(PrivateError::Owner { owner: OTHER, .. })
        ));
    }
}

#[test]
fn only_a_stale_socket_is_removed() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    fs::write(at("file"), "precious").expect("it is written");
    fs::create_dir(at("folder")).expect("it is made");
    symlink(at("nowhere"), at("link")).expect("a link");
    for (name, what) in [("file", "regular file"), ("folder", "folder"), ("link", "symbolic link")] {
        let error = socket::listen(&at(name)).expect_err("no socket");
        assert!(matches!(&error, SocketError::Taken(found) if *found == what), "{name}: {error}");
        assert!(error.to_string().contains(what) && error.to_string().contains("left as it is"), "{error}");
        assert_eq!(socket::check(&at(name)).expect_err("no socket").to_string(), error.to_string());
        assert!(at(name).symlink_metadata().is_ok());
        assert!(!at(&format!("{name}.lock")).exists());
    }
    assert_eq!(fs::read_to_string(at("file")).expect("it is there"), "precious");

    // A server that is not a node, and so holds no lock.
    let server = UnixListener::bind(at("server")).expect("it is bound");
    assert!(matches!(socket::listen(&at("server")), Err(SocketError::Answered)));
    assert!(matches!(socket::check(&at("server")), Err(SocketError::Answered)));
    UnixStream::connect(at("server")).expect("it answers still");
    drop(server);
    let datagrams = UnixDatagram::bind(at("datagrams")).expect("it is bound");
    let error = socket::listen(&at("datagrams")).expect_err("a server of another kind");
    assert!(matches!(error, SocketError::Foreign(_)), "{error}");
    assert!(matches!(socket::check(&at("datagrams")), Err(SocketError::Foreign(_))));
    UnixDatagram::unbound().and_then(|from| from.connect(at("datagrams"))).expect("it is there still");
    drop(datagrams);
}

#[test]
fn a_replacement_that_fails_leaves_no_file_behind() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = PrivateFolder::make(&dir.path().join("folder")).expect("it is made");
    // A folder in the file's place.
    fs::create_dir(folder.path().join("name")).expect("it is made");
    folder.replace("name", b"text").expect_err("a folder is not replaced by a file");
    assert!(!folder.path().join("name.new").exists());
}

#[test]
fn a_stale_socket_is_replaced_and_a_running_nodes_is_not() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("run/node.sock");
    fs::create_dir(dir.path().join("run")).expect("it is made");
    // The state after a node was killed.
    drop(UnixListener::bind(&path).expect("it is bound"));
    fs::write(dir.path().join("run/node.sock.lock"), "").expect("it is written");
    // The child of another test holds the listener until it executes its program.
    let is_stale = (0..1000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(1));
        socket::check(&path).is_ok()
    });
    assert!(is_stale, "{:?}", socket::check(&path));
    assert!(path.exists(), "a check removes nothing");
    let (listener, file) = socket::listen(&path).expect("the stale socket is replaced");
    assert!(matches!(socket::listen(&path), Err(SocketError::Locked(_))));
    assert!(matches!(socket::check(&path), Err(SocketError::Locked(_))));
    UnixStream::connect(&path).expect("it listens");
    listener.accept().expect("it was connected to");
    drop(file);
    drop(listener);
    assert_eq!(fs::read_dir(dir.path().join("run")).expect("it is there").count(), 0);
    socket::check(&dir.path().join("later/node.sock")).expect("its folder can be made");
    assert!(!dir.path().join("later").exists());
}

#[test]
fn a_socket_that_replaced_the_nodes_own_is_not_removed() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("node.sock");
    let (listener, file) = socket::listen(&path).expect("nothing is there");
    fs::remove_file(&path).expect("it is ours");
    let other = UnixListener::bind(&path).expect("the place is free");
    drop(file);
    UnixStream::connect(&path).expect("the other one is there still");
    drop((listener, other));
}

#[test]
fn one_of_many_nodes_started_at_once_listens() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("node.sock");
    for round in 0..20 {
        // Every other time in the state after a node was killed.
        if round % 2 == 1 {
            drop(UnixListener::bind(&path).expect("nothing is there"));
        }
        let started: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| socket::listen(&path))).collect();
            threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
        });
        let bound: Vec<_> = started.into_iter().filter_map(Result::ok).collect();
        assert_eq!(bound.len(), 1);
        UnixStream::connect(&path).expect("it listens");
    }
}

#[test]
fn a_named_output_has_another_name_until_it_is_complete_and_leaves_nothing_if_it_never_begins() {
    let home = tempfile::tempdir().unwrap();
    let (path, part) = (home.path().join("out"), home.path().join("out.part"));
    let create = || NamedOutput::create(&path).unwrap();
    // Not begun: nothing stays, and the remains of an earlier process do.
    drop(create().unwrap());
    assert!(!part.exists() && !path.exists());
    fs::write(&part, "killed").unwrap();
    drop(create().unwrap());
    assert_eq!(fs::read_to_string(&part).unwrap(), "killed");
    // Locked: a second one is refused, and does not remove the first.
    let mut first = create().unwrap();
    assert!(create().is_none());
    assert_eq!(first.present_path(), part);
    first.open().unwrap().write_all(b"new").unwrap();
    assert_eq!(fs::read_to_string(&part).unwrap(), "new");
    assert!(!path.exists());
    first.complete().unwrap();
    assert_eq!((first.present_path(), part.exists()), (path.clone(), false));
    drop(first);
    assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("new", 0o600));
    // Begun and not complete: the earlier file stays beside it.
    let mut failed = create().unwrap();
    failed.open().unwrap().write_all(b"half").unwrap();
    drop(failed);
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    assert_eq!(fs::read_to_string(&part).unwrap(), "half");
    // A file that its owner made readable stays so; another user's mode does not count.
    set_mode(&path, 0o644);
    create().unwrap().write(b"next").unwrap();
    assert_eq!(mode(&path), 0o644);
    if is_root() {
        chown(&path, Some(OTHER), None).unwrap();
        create().unwrap().write(b"mine").unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("mine", 0o600));
    }
    // The path of the cause is that of the file beside it.
    symlink("elsewhere", &part).unwrap();
    let error = NamedOutput::create(&path).unwrap_err();
    assert!(error.path == part && matches!(error.error, PrivateError::Link(_)), "{error}");
}

#[test]
fn a_link_to_an_open_file_is_written_in_place_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    let (target, link) = (folder.path().join("target"), folder.path().join("stdout"));
    let open = fs::File::create(&target).unwrap();
    symlink(format!("/proc/self/fd/{}", open.as_raw_fd()), &link).unwrap();
    let output = NamedOutput::create(&link).unwrap().unwrap();
    assert!(output.is_in_place());
    output.write(b"text").unwrap();
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert_eq!(fs::read(&target).unwrap(), b"text");
    assert!(!folder.path().join("stdout.part").exists());
}

#[test]
fn the_unfinished_file_of_another_output_is_neither_an_output_nor_completed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let refused = NamedOutput::create(&folder.path().join("x.part")).unwrap_err().to_string();
    assert!(refused.contains("x.part: names that end in .part"), "{refused}");
    let mut output = NamedOutput::create(&path).unwrap().unwrap();
    output.open().unwrap();
    let other = folder.path().join("other");
    fs::write(&other, "another process").unwrap();
    fs::rename(&other, folder.path().join("x.part")).unwrap();
    assert!(output.complete().unwrap_err().to_string().contains("another process"));
    assert!(!path.exists());
}
