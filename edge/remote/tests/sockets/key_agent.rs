//! A private key in a process of its own: what it signs, and what becomes of those who need it when it ends.

use crate::node::PATIENCE;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use weir_os::Launcher;
use weir_remote::{AgentError, KeyAgent};
use weir_trust::association::{HandshakeRole, KeyStatement, Signer, Unsigned};
use weir_trust::key::{Identity, KeyFile};

fn file(folder: &Path, identity: &Identity, mode: u32) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join("node.key");
    std::fs::write(&path, KeyFile::plain(identity).as_bytes()).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    path
}

/// This program once more: the test harness takes the path for one more filter.
fn keeper(file: &Path) -> Result<KeyAgent, AgentError> {
    let arguments = ["--ignored", "--nocapture", "--exact", "keeper::keep_as_a_process_of_its_own"];
    let arguments = arguments.map(PathBuf::from).into_iter().chain([file.to_owned()]).collect();
    KeyAgent::start(Launcher::Direct(std::env::current_exe().unwrap()), arguments, |_| {})
}

/// What the other process does.
#[test]
#[ignore = "run by the other tests, as a process of its own"]
fn keep_as_a_process_of_its_own() {
    if let Some(file) = std::env::args().next_back().filter(|last| last.ends_with(".key")) {
        weir_remote::keep(Path::new(&file)).unwrap();
    }
}

#[test]
fn a_keeper_signs_what_a_node_says_of_itself_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let identity = Identity::from_seed(&[7; 32]);
    let keeper = keeper(&file(folder.path(), &identity, 0o600)).unwrap();
    assert_eq!(Signer::public(&keeper), identity.public());
    let own = KeyStatement::new(HandshakeRole::Responder, &[1; 32], &[2; 32]);
    let signature = keeper.sign_statement(&own).unwrap();
    assert_eq!(own.verify(identity.public(), &signature), Ok(()));
    // Who has the node cannot be it elsewhere; and being refused costs the keeper nothing.
    let before = keeper.id();
    let client = KeyStatement::new(HandshakeRole::Initiator, &[1; 32], &[2; 32]);
    assert_eq!(keeper.sign_statement(&client), Err(Unsigned));
    assert_eq!(keeper.sign_statement(&own), Ok(signature));
    assert_eq!(keeper.id(), before);
}

#[test]
fn a_keeper_that_is_killed_has_a_successor_and_one_whose_file_is_another_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let identity = Identity::from_seed(&[7; 32]);
    let path = file(folder.path(), &identity, 0o600);
    let keeper = keeper(&path).unwrap();
    let own = KeyStatement::new(HandshakeRole::Responder, &[1; 32], &[2; 32]);
    let kill = || {
        let id = keeper.id().unwrap();
        assert!(Command::new("kill").args(["-9", &id.to_string()]).status().unwrap().success());
        id
    };
    let first = kill();
    let signature = keeper.sign_statement(&own).unwrap();
    assert_eq!(own.verify(identity.public(), &signature), Ok(()));
    assert_ne!(keeper.id(), Some(first));

    // A node is who it was.
    file(folder.path(), &Identity::from_seed(&[8; 32]), 0o600);
    kill();
    assert_eq!(keeper.sign_statement(&own), Err(Unsigned));
    assert_eq!(keeper.id(), None);
    // And goes on when the key is there again.
    file(folder.path(), &identity, 0o600);
    let begin = Instant::now();
    while keeper.sign_statement(&own).is_err() {
        assert!(begin.elapsed() < PATIENCE, "no keeper is started any more");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn a_key_that_cannot_be_used_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let identity = Identity::from_seed(&[7; 32]);
    let why = |path: &Path| keeper(path).unwrap_err().to_string();
    let path = file(folder.path(), &identity, 0o640);
    assert!(why(&path).contains("others than its owner can read it"), "{}", why(&path));
    file(folder.path(), &identity, 0o600);
    let second = folder.path().join("second.key");
    std::fs::hard_link(&path, &second).unwrap();
    assert!(why(&path).contains("it has 2 links"), "{}", why(&path));
    std::fs::remove_file(&second).unwrap();
    std::os::unix::fs::symlink(&path, &second).unwrap();
    assert!(why(&second).contains("it is a symbolic link"), "{}", why(&second));
    // Only root can make a file of another user.
    if std::os::unix::fs::chown(&path, Some(54321), None).is_ok() {
        assert!(why(&path).contains("it belongs to user 54321"), "{}", why(&path));
    }
    let gone = folder.path().join("gone.key");
    assert!(why(&gone).contains("No such file"), "{}", why(&gone));
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&gone, "something else").unwrap();
    std::fs::set_permissions(&gone, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert!(why(&gone).contains("this is not the file of a private key"), "{}", why(&gone));
}
