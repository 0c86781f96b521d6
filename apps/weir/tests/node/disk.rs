//! A full disk under record files and the ledger.

use crate::module::{MANIFEST, assemble, text};
use crate::testbed::{Testbed, is_inside, udp};
use serde_json::json;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Emits a row for each packet.
const BODY: &str = r#"(func (export "weir_packet") (param $d i32) (result i32)
    (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
    (i32.const 0))"#;
const ALICE: &str =
    "[[session]]\nname = \"alice\"\nchannel = [{ interface = \"b\", filter = \"udp\", queue = 10000 }]\n";

/// Fills the file system.
fn fill(disk: &Path) {
    let mut filler = File::create(disk.join("filler")).unwrap();
    while filler.write_all(&[7; 4096]).is_ok() {}
}

/// The rows that readers find in all files, including incomplete ones.
fn rows(folder: &Path) -> u64 {
    let mut found = 0;
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        if entry.path().is_dir() {
            found += rows(&entry.path());
        } else if let Ok(reader) =
            parquet::file::serialized_reader::SerializedFileReader::new(File::open(entry.path()).unwrap())
        {
            let metadata = parquet::file::reader::FileReader::metadata(&reader);
            found += u64::try_from(metadata.file_metadata().num_rows()).unwrap();
        }
    }
    found
}

#[test]
fn a_full_disk_loses_only_counted_records_and_the_node_recovers() {
    if !is_inside("disk::a_full_disk_loses_only_counted_records_and_the_node_recovers") {
        return;
    }
    let Some(mut testbed) = Testbed::with_disk("4m", "record_file_age = \"1s\"\n", ALICE) else { return };
    let bytes = assemble(&text(BODY), Some(MANIFEST.replace("NAME", "emitter").as_bytes()));
    assert!(testbed.load("alice", json!({"module": "emitter.wasm"}), &bytes).get("done").is_some());
    let mut sent = 0;
    let mut send = |testbed: &mut Testbed| {
        testbed.send(&vec![udp(1, b"x"); 50]);
        sent += 50;
        testbed.until("all are seen", |testbed| testbed.count("alice", "emitter", "packets") == sent);
        sent
    };
    let charged_rows = |testbed: &Testbed| testbed.ledger_usage("alice", "records_written");
    send(&mut testbed);
    testbed.until("the rows are in a file", |testbed| charged_rows(testbed) == 50);

    fill(&testbed.disk());
    testbed.until("records are lost, and counted", |testbed| {
        send(testbed);
        testbed.count("alice", "emitter", "records_lost") > 0
    });
    testbed.until("the ledger cannot be written either", |testbed| {
        testbed.log().contains("the ledger cannot be written, and is kept in memory")
    });
    testbed.until("the log has the reason", |testbed| {
        let said = testbed.log();
        said.contains("session alice, module emitter: records are lost") && said.contains("the disk is full")
    });
    let said = testbed.log();
    assert_eq!(said.matches("records are lost").count(), 1, "it is said once: {said}");
    // No session is delayed, and sessions can be created and closed.
    for name in ["bob", "carol"] {
        testbed.request(json!({"create": {"name": name, "channel": [{"interface": "b", "filter": "tcp"}]}}));
        testbed.request(json!({"close": {"session": name}}));
    }
    let why = testbed.load("alice", json!({"module": "trajectory"}), &[])["refused"]["why"].to_string();
    assert!(why.contains("trajectory") && why.contains("the disk is full"), "{why}");
    send(&mut testbed);

    std::fs::remove_file(testbed.disk().join("filler")).unwrap();
    testbed.until("the ledger is written again", |testbed| {
        testbed.log().contains("the ledger is written again")
    });
    let before = charged_rows(&testbed);
    testbed.until("records are lost, too", |testbed| {
        send(testbed);
        testbed.log().contains("records are written again") && charged_rows(testbed) > before
    });
    let sent = send(&mut testbed);
    assert!(testbed.stop().success());
    // All rows are charged, and each is either in a file or counted as lost.
    assert_eq!(
        (testbed.ledger_usage("alice", "packets_in"), testbed.ledger_usage("alice", "records_emitted")),
        (sent, sent)
    );
    let ledger = testbed.ledger();
    let usages = ledger.iter().filter(|entry| entry["kind"] == "usage");
    let lost: u64 = usages.filter_map(|entry| entry["usage"]["drops"]["disk-full"].as_u64()).sum();
    let written = testbed.ledger_usage("alice", "records_written");
    assert_eq!(written + lost, sent);
    assert_eq!(rows(&testbed.disk().join("records/alice")), written);
    assert!(lost > 0 && written > 50, "{written} and {lost}");
}
