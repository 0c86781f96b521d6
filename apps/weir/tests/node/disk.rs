//! A full disk under records and ledger.

use crate::module::{MANIFEST, assemble, text};
use crate::place::{Place, is_inside, udp};
use serde_json::json;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Emits a row with each packet.
const BODY: &str = r#"(func (export "weir_packet") (param $d i32) (result i32)
    (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
    (i32.const 0))"#;
const ALICE: &str =
    "[[session]]\nname = \"alice\"\nchannel = [{ interface = \"b\", filter = \"udp\", queue = 10000 }]\n";

/// Takes all room that there is.
fn fill(disk: &Path) {
    let mut filler = File::create(disk.join("filler")).unwrap();
    while filler.write_all(&[7; 4096]).is_ok() {}
}

/// Rows that readers find in all files, also in those that are not complete.
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
fn on_a_full_disk_records_are_lost_and_counted_and_the_node_goes_on_when_there_is_room() {
    if !is_inside("disk::on_a_full_disk_records_are_lost_and_counted_and_the_node_goes_on_when_there_is_room")
    {
        return;
    }
    let Some(mut place) = Place::with_disk("4m", "records_time = \"1s\"\n", ALICE) else { return };
    let bytes = assemble(&text(BODY), Some(MANIFEST.replace("NAME", "emitter").as_bytes()));
    assert!(place.load("alice", json!({"module": "emitter.wasm"}), &bytes).get("done").is_some());
    let mut sent = 0;
    let mut send = |place: &mut Place| {
        place.send(&vec![udp(1, b"x"); 50]);
        sent += 50;
        place.until("all are seen", |place| place.count("alice", "emitter", "packets") == sent);
        sent
    };
    let billed = |place: &Place| place.billed("alice", "records_written");
    send(&mut place);
    place.until("they are in a file", |place| billed(place) == 50);

    fill(&place.disk());
    place.until("records are lost, and counted", |place| {
        send(place);
        place.count("alice", "emitter", "records_lost") > 0
    });
    place.until("the ledger waits, too", |place| place.said().contains("the ledger is kept in memory"));
    place.until("it is said why", |place| {
        let said = place.said();
        said.contains("session alice, module emitter: records are lost") && said.contains("the disk is full")
    });
    let said = place.said();
    assert_eq!(said.matches("records are lost").count(), 1, "it is said once: {said}");
    // Nobody is held up by it, and sessions come and go.
    for name in ["bob", "carol"] {
        place.done(json!({"create": {"name": name, "channel": [{"interface": "b", "filter": "tcp"}]}}));
        place.done(json!({"close": {"session": name}}));
    }
    let why = place.load("alice", json!({"module": "trajectory"}), &[])["refused"]["why"].to_string();
    assert!(why.contains("trajectory") && why.contains("the disk is full"), "{why}");
    send(&mut place);

    std::fs::remove_file(place.disk().join("filler")).unwrap();
    place.until("the ledger is written again", |place| place.said().contains("the ledger is written again"));
    let before = billed(&place);
    place.until("records are, too", |place| {
        send(place);
        place.said().contains("records are written again") && billed(place) > before
    });
    let sent = send(&mut place);
    assert!(place.stop().success());
    // Nothing is missing on the bill, and each row is in a file or counted.
    assert_eq!((place.billed("alice", "packets_in"), place.billed("alice", "records_emitted")), (sent, sent));
    let ledger = place.ledger();
    let usages = ledger.iter().filter(|entry| entry["kind"] == "usage");
    let lost: u64 = usages.filter_map(|entry| entry["usage"]["drops"]["write-failed"].as_u64()).sum();
    let written = place.billed("alice", "records_written");
    assert_eq!(written + lost, sent);
    assert_eq!(rows(&place.disk().join("records/alice")), written);
    assert!(lost > 0 && written > 50, "{written} and {lost}");
}
