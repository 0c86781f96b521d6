//! The key agent: the statements that it signs, and its restart.

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

/// Starts this program again as a key agent: the test harness takes the path for one more filter.
fn key_agent(file: &Path) -> Result<KeyAgent, AgentError> {
    let arguments = ["--ignored", "--nocapture", "--exact", "key_agent::keep_as_a_process_of_its_own"];
    let arguments = arguments.map(PathBuf::from).into_iter().chain([file.to_owned()]).collect();
    KeyAgent::start(Launcher::Direct(std::env::current_exe().unwrap()), arguments, |_| {})
}

/// The other process.
#[test]
#[ignore = "run by the other tests, as a process of its own"]
fn keep_as_a_process_of_its_own() {
    if let Some(file) = std::env::args().next_back().filter(|last| last.ends_with(".key")) {
        weir_remote::run_key_agent(Path::new(&file)).unwrap();
    }
}

#[test]
fn a_key_agent_signs_only_a_nodes_own_handshake_statements() {
    let folder = tempfile::tempdir().unwrap();
    let identity = Identity::from_seed(&[7; 32]);
    let key_agent = key_agent(&file(folder.path(), &identity, 0o600)).unwrap();
    assert_eq!(Signer::public(&key_agent), identity.public());
    let own = KeyStatement::new(HandshakeRole::Responder, &[1; 32], &[2; 32]);
    let signature = key_agent.sign_statement(&own).unwrap();
    assert_eq!(own.verify(identity.public(), &signature), Ok(()));
    // An attacker in the node cannot use its identity elsewhere, and refusals do not end the agent.
    let before = key_agent.id();
    let client = KeyStatement::new(HandshakeRole::Initiator, &[1; 32], &[2; 32]);
    assert_eq!(key_agent.sign_statement(&client), Err(Unsigned));
    assert_eq!(key_agent.sign_statement(&own), Ok(signature));
    assert_eq!(key_agent.id(), before);
}

#[test]
fn a_killed_key_agent_is_restarted_unless_its_file_has_another_key() {
    let folder = tempfile::tempdir().unwrap();
    let identity = Identity::from_seed(&[7; 32]);
    let path = file(folder.path(), &identity, 0o600);
    let key_agent = key_agent(&path).unwrap();
    let own = KeyStatement::new(HandshakeRole::Responder, &[1; 32], &[2; 32]);
    let kill = || {
        let id = key_agent.id().unwrap();
        assert!(Command::new("kill").args(["-9", &id.to_string()]).status().unwrap().success());
        id
    };
    let first = kill();
    let signature = key_agent.sign_statement(&own).unwrap();
    assert_eq!(own.verify(identity.public(), &signature), Ok(()));
    assert_ne!(key_agent.id(), Some(first));

    // The node keeps its identity.
    file(folder.path(), &Identity::from_seed(&[8; 32]), 0o600);
    kill();
    assert_eq!(key_agent.sign_statement(&own), Err(Unsigned));
    assert_eq!(key_agent.id(), None);
    // It continues when the key is there again.
    file(folder.path(), &identity, 0o600);
    let begin = Instant::now();
    while key_agent.sign_statement(&own).is_err() {
        assert!(begin.elapsed() < PATIENCE, "no key agent is started any more");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn an_unusable_key_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let identity = Identity::from_seed(&[7; 32]);
    let why = |path: &Path| key_agent(path).unwrap_err().to_string();
    let path = file(folder.path(), &identity, 0o640);
    assert!(why(&path).contains("others than its owner can read it"), "{}", why(&path));
    file(folder.path(), &identity, 0o600);
    let second = folder.path().join("second.key");
    std::fs::hard_link(&path, &second).unwrap();
    assert!(why(&path).contains("it has 2 links"), "{}", why(&path));
    std::fs::remove_file(&second).unwrap();
    std::os::unix::fs::symlink(&path, &second).unwrap();
    assert!(why(&second).contains("it is a symbolic link"), "{}", why(&second));
    // Only root can create a file of another user.
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
