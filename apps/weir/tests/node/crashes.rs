//! Records survive a crash of the node's process and of a sandbox process.

use crate::module::{MANIFEST, assemble, text};
use crate::sandbox_processes::{rows, sandbox_processes};
use crate::testbed::{Testbed, is_inside, udp};
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Emits the first two bytes of the payload of each packet.
const BODY: &str = r#"(func (export "weir_packet") (param $d i32) (result i32)
    (i64.store (i32.const 64) (i64.load16_u offset=42 (i32.load offset=8 (local.get $d))))
    (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
    (i32.const 0))"#;
const PACKETS: u16 = 4000;

fn session(name: &str, process: &str) -> String {
    format!(
        "[[session]]\nname = \"{name}\"\nprocess = \"{process}\"\nmemory = \"64 MiB\"\n\
         channel = [{{ interface = \"b\", filter = \"udp port 53\", queue = 10000 }}]\n"
    )
}

/// A node with one session in its own process and one in a sandbox process, which have emitted a row for each of the packets.
fn testbed_with_rows() -> Testbed {
    let mut testbed = Testbed::new(&(session("here", "node") + &session("apart", "own")));
    let bytes = assemble(&text(BODY), Some(MANIFEST.replace("NAME", "emitter").as_bytes()));
    for session in ["here", "apart"] {
        let reply = testbed.load(session, json!({"module": "emitter.wasm"}), &bytes);
        assert!(reply.get("done").is_some(), "{reply}");
    }
    let frames: Vec<Vec<u8>> = (0..PACKETS).map(|i| udp(53, &i.to_le_bytes())).collect();
    testbed.send(&frames);
    testbed.until("all modules have received all packets", |testbed| {
        ["here", "apart"]
            .iter()
            .all(|session| testbed.count(session, "emitter", "records") == u64::from(PACKETS))
    });
    testbed
}

/// The record folder of a session's module.
fn folder(testbed: &Testbed, session: &str) -> PathBuf {
    let folders = fs::read_dir(testbed.path().join("state/records").join(session)).unwrap();
    let mut folders: Vec<PathBuf> = folders.map(|entry| entry.unwrap().path()).collect();
    folders.retain(|path| path.file_name().unwrap().to_str().unwrap().starts_with("emitter-0"));
    folders.pop().unwrap()
}

/// The number of rows that would be recovered if the process were killed now.
fn recoverable_rows(folder: &Path) -> usize {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        // A file may be renamed meanwhile.
        let copied = fs::copy(entry.path(), copy.path().join(entry.file_name()));
        assert!(
            copied.as_ref().map_or_else(|error| error.kind() == ErrorKind::NotFound, |_| true),
            "{copied:?}"
        );
    }
    // An incomplete copy, made while the file was written, counts as 0: the caller tries again.
    if weir_records::recover(copy.path()).iter().any(Result::is_err) { 0 } else { rows(copy.path()).len() }
}

/// Returns true if each row is there exactly once.
fn has_each_row_once(folder: &Path) -> bool {
    let rows = rows(folder);
    rows.len() == usize::from(PACKETS) && rows.iter().collect::<BTreeSet<_>>().len() == rows.len()
}

#[test]
fn rows_of_a_killed_node_are_complete_after_the_next_start() {
    if !is_inside("crashes::rows_of_a_killed_node_are_complete_after_the_next_start") {
        return;
    }
    let mut testbed = testbed_with_rows();
    let folders = ["here", "apart"].map(|session| folder(&testbed, session));
    testbed.until("all rows are in the log", |_| {
        folders.iter().all(|folder| recoverable_rows(folder) == usize::from(PACKETS))
    });
    // No file is complete yet, as each covers an hour.
    assert!(folders.iter().all(|folder| rows(folder).is_empty()));
    testbed.kill();
    testbed.start();
    testbed.until("they are complete", |_| folders.iter().all(|folder| has_each_row_once(folder)));
    for folder in &folders {
        testbed.until("only complete files are left", |_| {
            let left: Vec<_> =
                fs::read_dir(folder).unwrap().flatten().map(|entry| entry.file_name()).collect();
            left == ["rows.parquet"]
        });
        testbed.until("the log has the message", |testbed| {
            testbed.log().contains(&format!("its {PACKETS} rows are complete in {}", folder.display()))
        });
    }
    assert!(testbed.stop().success());
}

#[test]
fn rows_of_a_killed_sandbox_process_are_complete() {
    if !is_inside("crashes::rows_of_a_killed_sandbox_process_are_complete") {
        return;
    }
    let mut testbed = testbed_with_rows();
    let folder = folder(&testbed, "apart");
    let processes = sandbox_processes(testbed.process());
    assert_eq!(processes.len(), 1);
    for process in processes {
        let status = std::process::Command::new("kill").args(["-KILL", &process.to_string()]).status();
        assert!(status.unwrap().success());
    }
    testbed.send(&[udp(53, b"that it does not see")]);
    testbed.until("the end of the process is noticed", |testbed| {
        testbed.log().contains("its process has ended, so it is unloaded")
    });
    assert!(testbed.stop().success());
    assert!(has_each_row_once(&folder));
}
