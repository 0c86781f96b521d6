//! Files of an earlier version of weir: the state folder, the ledger, the calibration, keys and a credential.
//! `data/README.md` tells how they were made.

use crate::remote::AT;
use crate::testbed::{Testbed, ip, is_inside};
use serde_json::Value;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_admission::Calibration;

/// Copies a folder with the modes that weir sets, which version control does not keep.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    std::fs::set_permissions(to, Permissions::from_mode(0o700)).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let copied = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &copied);
        } else {
            std::fs::copy(&path, &copied).unwrap();
            std::fs::set_permissions(&copied, Permissions::from_mode(0o600)).unwrap();
        }
    }
}

fn weir(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Returns the folder with the files of an earlier version.
fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// The keys of `data/format-0`: paths of files, the operator's public key, and the node's address with its public key.
struct Keys {
    node: String,
    holder: String,
    credential: String,
    root: String,
    at: String,
}

impl Keys {
    fn of(folder: &Path) -> Self {
        let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        let [operator, node, holder, credential] =
            ["operator.key", "node.key", "holder.key", "holder.credential"].map(file);
        let (root, key) = (weir(&["key", "show", &operator]), weir(&["key", "show", &node]));
        Self { node, holder, credential, root, at: format!("{key}@{AT}") }
    }
}

#[test]
fn the_state_of_an_earlier_version_is_read_and_continued() {
    if !is_inside("earlier_versions::the_state_of_an_earlier_version_is_read_and_continued") {
        return;
    }
    ip("link set dev lo up");
    let mut testbed = Testbed::prepared("", "", None);
    copy(&data("format-0"), testbed.path());
    let Keys { node, holder, credential, root, at } = Keys::of(testbed.path());
    let calibration = std::fs::read_to_string(testbed.path().join("calibration.toml")).unwrap();
    assert_eq!(Calibration::parse(&calibration).unwrap().spread(), [12, 63, 260]);
    let secret = std::fs::read(testbed.disk().join("views.secret")).unwrap();
    let records = testbed.disk().join("records/alice/trajectory-0");
    let before = testbed.ledger();
    let ends_with = |ledger: &[Value]| ledger.last().map(|entry| entry["kind"].clone());
    assert!(before.len() > 10 && ends_with(&before).unwrap() == "node-stop", "{:?}", before.last());

    testbed.configure(&format!(
        "[remote]\nlisten = \"{AT}\"\nkey = \"{node}\"\nname = \"ix-1.example\"\nroots = [\"{root}\"]\n\
         [[session]]\nname = \"alice\"\ncpu = [{{ period = \"20ms\", slice = \"4ms\" }}]\nchannel = [{{ interface = \"b\" }}]\n\
         module = [{{ module = \"trajectory\" }}]\n"
    ));
    // The folder is from a time before it had a version.
    assert!(!testbed.disk().join("version").exists());
    testbed.start();
    let version = std::fs::read_to_string(testbed.disk().join("version")).unwrap();
    assert_eq!(version, format!("weir state 1\nweir {}\n", env!("CARGO_PKG_VERSION")));
    let by = ["--node", &at, "--credential", &credential, "--key", &holder];
    let session = ["session", "create", "s", "--memory", "1 MiB", "--cpu", "period=10ms,slice=100us"];
    let rest = ["--channel", "interface=b,filter=udp"];
    weir(&[&session[..], &rest, &by].concat());
    assert_eq!(testbed.snapshot()["sessions"].as_array().unwrap().len(), 2);
    assert!(testbed.stop().success());

    // The ledger is one chain, the secret of views is unchanged, and new records are beside the old ones.
    let after = testbed.ledger();
    assert_eq!(after[..before.len()], before);
    assert_eq!((after.len() > before.len(), ends_with(&after).unwrap()), (true, "node-stop".into()));
    assert_eq!(std::fs::read(testbed.disk().join("views.secret")).unwrap(), secret);
    assert!(records.join("flows.parquet").is_file());
    assert!(testbed.disk().join("records/alice/trajectory-1").is_dir());
}

/// Returns the sessions of a node, each with the names of its running modules. The name of a holder's session is without
/// its part for the holder.
fn running_modules(testbed: &Testbed) -> Vec<(String, Vec<String>)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let snapshot = testbed.snapshot();
    let mut sessions = Vec::new();
    for session in snapshot["sessions"].as_array().unwrap() {
        let modules = session["modules"].as_array().unwrap().iter();
        let running = modules.filter(|module| module["state"] == "running");
        let mut names: Vec<String> = running.map(|module| text(&module["name"])).collect();
        names.sort();
        sessions.push((text(&session["name"]).split('-').next().unwrap().to_owned(), names));
    }
    sessions.sort();
    sessions
}

#[test]
fn sessions_that_an_earlier_version_saved_come_back() {
    if !is_inside("earlier_versions::sessions_that_an_earlier_version_saved_come_back") {
        return;
    }
    ip("link set dev lo up");
    let mut testbed = Testbed::prepared("", "", None);
    copy(&data("format-0"), testbed.path());
    let state = testbed.disk();
    std::fs::remove_dir_all(&state).unwrap();
    copy(&data("format-1/state"), &state);
    let Keys { node, holder, credential, root, at } = Keys::of(testbed.path());
    testbed.configure(&format!(
        "[remote]\nlisten = \"{AT}\"\nkey = \"{node}\"\nname = \"ix-1.example\"\nroots = [\"{root}\"]\n"
    ));
    let by = ["--node", &at, "--credential", &credential, "--key", &holder];
    let before = testbed.ledger();
    testbed.start();
    let expected = [("own", vec!["first"]), ("study", vec!["mine", "port-count"])];
    let expected =
        expected.map(|(name, modules)| (name.to_owned(), modules.into_iter().map(str::to_owned).collect()));
    testbed.until("the sessions are back with their modules", |testbed| running_modules(testbed) == expected);
    // The holder still commands the session.
    weir(&[&["unload", "study", "mine"][..], &by].concat());
    assert!(testbed.stop().success());
    assert_eq!(testbed.ledger()[..before.len()], before);
}
