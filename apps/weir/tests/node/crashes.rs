//! Records survive the end of a process that nobody expected: the node's own, and a module's.

use crate::module::{MANIFEST, assemble, text};
use crate::place::{Place, is_inside, udp};
use crate::wards::{rows, wards};
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

/// A node with a session in its own process and one with a process for its module, which have emitted a row for each of these packets.
fn emitted() -> Place {
    let mut place = Place::new(&(session("here", "node") + &session("apart", "own")));
    let bytes = assemble(&text(BODY), Some(MANIFEST.replace("NAME", "emitter").as_bytes()));
    for session in ["here", "apart"] {
        let reply = place.load(session, json!({"module": "emitter.wasm"}), &bytes);
        assert!(reply.get("done").is_some(), "{reply}");
    }
    let frames: Vec<Vec<u8>> = (0..PACKETS).map(|i| udp(53, &i.to_le_bytes())).collect();
    place.send(&frames);
    place.until("all have seen all", |place| {
        ["here", "apart"]
            .iter()
            .all(|session| place.count(session, "emitter", "records") == u64::from(PACKETS))
    });
    place
}

/// The folder of a session's module.
fn folder(place: &Place, session: &str) -> PathBuf {
    let folders = fs::read_dir(place.path().join("state/records").join(session)).unwrap();
    let mut folders: Vec<PathBuf> = folders.map(|entry| entry.unwrap().path()).collect();
    folders.retain(|path| path.file_name().unwrap().to_str().unwrap().starts_with("emitter-0"));
    folders.pop().unwrap()
}

/// The rows that would be recovered if the process were killed now.
fn safe(folder: &Path) -> usize {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        // A file may have another name by now.
        let copied = fs::copy(entry.path(), copy.path().join(entry.file_name()));
        assert!(
            copied.as_ref().map_or_else(|error| error.kind() == ErrorKind::NotFound, |_| true),
            "{copied:?}"
        );
    }
    // Copied while it was written: it is looked at again.
    if weir_records::recover(copy.path()).iter().any(Result::is_err) { 0 } else { rows(copy.path()).len() }
}

/// Each row is there once.
fn complete(folder: &Path) -> bool {
    let rows = rows(folder);
    rows.len() == usize::from(PACKETS) && rows.iter().collect::<BTreeSet<_>>().len() == rows.len()
}

#[test]
fn rows_of_a_node_that_is_killed_are_complete_after_the_next_start() {
    if !is_inside("crashes::rows_of_a_node_that_is_killed_are_complete_after_the_next_start") {
        return;
    }
    let mut place = emitted();
    let folders = ["here", "apart"].map(|session| folder(&place, session));
    place.until("all rows are in the log", |_| {
        folders.iter().all(|folder| safe(folder) == usize::from(PACKETS))
    });
    // Nothing is complete yet: there is one file for an hour.
    assert!(folders.iter().all(|folder| rows(folder).is_empty()));
    place.kill();
    place.start();
    place.until("they are complete", |_| folders.iter().all(|folder| complete(folder)));
    for folder in &folders {
        place.until("nothing else is left", |_| {
            let left: Vec<_> =
                fs::read_dir(folder).unwrap().flatten().map(|entry| entry.file_name()).collect();
            left == ["rows.parquet"]
        });
        place.until("it is said", |place| {
            place.said().contains(&format!("the {PACKETS} rows that it had written to {}", folder.display()))
        });
    }
    assert!(place.stop().success());
}

#[test]
fn rows_of_a_module_whose_process_is_killed_stay() {
    if !is_inside("crashes::rows_of_a_module_whose_process_is_killed_stay") {
        return;
    }
    let mut place = emitted();
    let folder = folder(&place, "apart");
    let processes = wards(place.process());
    assert_eq!(processes.len(), 1);
    for process in processes {
        let status = std::process::Command::new("kill").args(["-KILL", &process.to_string()]).status();
        assert!(status.unwrap().success());
    }
    place.send(&[udp(53, b"that it does not see")]);
    place.until("its end is noticed", |place| {
        place.said().contains("has no process any more, and is unloaded")
    });
    assert!(place.stop().success());
    assert!(complete(&folder));
}
