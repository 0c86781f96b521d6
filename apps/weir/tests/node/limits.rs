//! What all modules of a session together are held to, beside processor time and memory.

use crate::keeping::{keeper, to_keep};
use crate::links;
use crate::module::{MANIFEST, assemble, text};
use crate::place::{Place, is_inside, udp};
use serde_json::{Value, json};
use std::time::Instant;

/// Emits a row for each packet.
pub fn teller(name: &str) -> Vec<u8> {
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
            (i32.const 0))"#;
    assemble(&text(body), Some(MANIFEST.replace("NAME", name).as_bytes()))
}

/// A session as the node shows it.
pub fn shown(place: &Place, session: &str) -> Value {
    let snapshot = place.snapshot();
    let found = snapshot["sessions"].as_array().unwrap().iter().find(|shot| shot["name"] == session);
    found.unwrap_or_else(|| panic!("there is no {session}: {snapshot}")).clone()
}

fn load(place: &Place, session: &str, name: &str) {
    let reply = place.load(session, json!({"module": format!("{name}.wasm")}), &teller(name));
    assert!(reply.get("done").is_some(), "{reply}");
}

fn sum(place: &Place, session: &str, what: &str) -> u64 {
    let modules = shown(place, session)["modules"].as_array().unwrap().clone();
    modules.iter().map(|module| module[what].as_u64().unwrap()).sum()
}

#[test]
fn who_emits_more_records_than_are_taken_in_a_second_loses_them_and_nobody_else_does() {
    if !is_inside("limits::who_emits_more_records_than_are_taken_in_a_second_loses_them_and_nobody_else_does")
    {
        return;
    }
    let session = |name: &str, rest: &str| {
        format!(
            "[[session]]\nname = \"{name}\"\ncpu = [{{ period = \"20ms\", slice = \"4ms\" }}]\n\
             channel = [{{ interface = \"b\", queue = 10000 }}]\n{rest}\n"
        )
    };
    let begin = Instant::now();
    let mut place = Place::new(&(session("flood", "records_per_second = 3") + &session("good", "")));
    // Two modules share one rate.
    for name in ["one", "two"] {
        load(&place, "flood", name);
    }
    load(&place, "good", "one");
    let mut sent = 0;
    let mut send = |place: &mut Place| {
        place.send(&vec![udp(7, b"x"); 500]);
        sent += 500;
        place.until("all have been told of", |place| {
            sum(place, "flood", "records") + sum(place, "flood", "records_lost") == 2 * sent
                && sum(place, "good", "records") == sent
        });
    };
    send(&mut place);
    let limits = |place: &Place| shown(place, "flood")["limits"].clone();
    let lost = sum(&place, "flood", "records_lost");
    // However long that took: no more than came in the time since before the session was there.
    let seconds = begin.elapsed().as_secs() + 1;
    assert!(1000 - lost <= 3 * seconds, "{lost} lost in {seconds} s");
    let of = limits(&place);
    assert_eq!((&of["records_per_second"], &of["records_over_rate"]), (&json!(3), &json!(lost)));
    let of_good = shown(&place, "good")["limits"].clone();
    assert_eq!((sum(&place, "good", "records_lost"), of_good.get("records_per_second")), (0, None));

    // It changes while they run: none at all, and then as many as come in a while.
    place.done(json!({"change": {"session": "flood", "records_per_second": 0}}));
    let before = sum(&place, "flood", "records");
    send(&mut place);
    assert_eq!(sum(&place, "flood", "records"), before);
    place.done(json!({"change": {"session": "flood", "records_per_second": 1_000_000}}));
    place.until("some are taken again", |place| {
        send(place);
        sum(place, "flood", "records") > before
    });
    let lost = sum(&place, "flood", "records_lost");
    assert!(place.stop().success());
    let ledger = place.ledger();
    let drops = |session: &str| -> u64 {
        let its =
            ledger.iter().filter(|entry| entry["kind"] == "usage" && entry["session"]["name"] == session);
        its.filter_map(|entry| entry["usage"]["drops"]["record-rate"].as_u64()).sum()
    };
    assert_eq!((drops("flood"), drops("good")), (lost, 0));
}

#[test]
fn who_emits_more_bytes_of_records_than_are_taken_in_a_second_loses_them_and_nobody_else_does() {
    if !is_inside(
        "limits::who_emits_more_bytes_of_records_than_are_taken_in_a_second_loses_them_and_nobody_else_does",
    ) {
        return;
    }
    let session = |name: &str, rest: &str| {
        format!(
            "[[session]]\nname = \"{name}\"\ncpu = [{{ period = \"20ms\", slice = \"4ms\" }}]\n\
             channel = [{{ interface = \"b\", queue = 10000 }}]\n{rest}\n"
        )
    };
    let begin = Instant::now();
    // Ten rows of eight bytes a second, for two modules together.
    let mut place = Place::new(&(session("flood", "record_bytes = \"80 B/s\"") + &session("good", "")));
    for name in ["one", "two"] {
        load(&place, "flood", name);
    }
    load(&place, "good", "one");
    let mut sent = 0;
    let mut send = |place: &mut Place| {
        place.send(&vec![udp(7, b"x"); 500]);
        sent += 500;
        place.until("all have been told of", |place| {
            sum(place, "flood", "records") + sum(place, "flood", "records_lost") == 2 * sent
                && sum(place, "good", "records") == sent
        });
    };
    send(&mut place);
    let lost = sum(&place, "flood", "records_lost");
    let taken = 1000 - lost;
    // What a second brings is there from the beginning, and comes in each second from before the session was there.
    let seconds = begin.elapsed().as_secs() + 2;
    assert!((10..=10 * seconds).contains(&taken), "{taken} taken in {seconds} s");
    let limits = |place: &Place, session: &str| shown(place, session)["limits"].clone();
    let of = limits(&place, "flood");
    assert_eq!((&of["record_bytes"], &of["record_bytes_beyond"]), (&json!(80), &json!(8 * lost)));
    let of_good = limits(&place, "good");
    assert_eq!(
        (of_good["record_bytes"].clone(), of_good.get("record_bytes_beyond")),
        (json!(1_000_000), None)
    );

    // Another rate while they run, and none.
    place.done(json!({"change": {"session": "flood", "record_bytes": "0B/s"}}));
    let before = sum(&place, "flood", "records");
    send(&mut place);
    assert_eq!(sum(&place, "flood", "records"), before);
    let lost = sum(&place, "flood", "records_lost");
    place.done(json!({"change": {"session": "flood", "record_bytes": "unlimited"}}));
    send(&mut place);
    assert_eq!(
        (sum(&place, "flood", "records"), sum(&place, "flood", "records_lost")),
        (before + 1000, lost)
    );
    assert_eq!(limits(&place, "flood").get("record_bytes"), None);
    let why = place.refused(json!({"change": {"session": "flood", "record_bytes": "80"}}));
    assert!(why.contains("1 MB/s"), "{why}");
    assert!(place.stop().success());
    let ledger = place.ledger();
    let billed = |session: &str, of: fn(&Value) -> &Value| -> u64 {
        let its =
            ledger.iter().filter(|entry| entry["kind"] == "usage" && entry["session"]["name"] == session);
        its.filter_map(|entry| of(&entry["usage"]).as_u64()).sum()
    };
    let drops: fn(&Value) -> &Value = |usage| &usage["drops"]["record-bytes"];
    assert_eq!((billed("flood", drops), billed("good", drops)), (lost, 0));
    assert_eq!(billed("flood", |usage| &usage["record_bytes"]), 8 * (before + 1000));
    assert_eq!(billed("good", |usage| &usage["record_bytes"]), 8 * 1500);
}

/// Emits as many rows for each packet as it may, with numbers that do not compress.
pub fn flood() -> Vec<u8> {
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32) (local $i i32)
            (loop $more
                (i64.store (i32.const 64) (i64.add (i64.const 1442695040888963407)
                    (i64.mul (i64.load (i32.const 64)) (i64.const 6364136223846793005))))
                (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
                (local.set $i (i32.add (local.get $i) (i32.const 1)))
                (br_if $more (i32.lt_u (local.get $i) (i32.const 64))))
            (i32.const 0))"#;
    assemble(&text(body), Some(MANIFEST.replace("NAME", "flood").as_bytes()))
}

/// The record files of a session, with their sizes, in the order of their folders' numbers.
fn files(place: &Place, session: &str) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    for folder in
        std::fs::read_dir(place.disk().join("records").join(session)).into_iter().flatten().flatten()
    {
        let label = folder.file_name().into_string().unwrap();
        // Beside them is the file with the session's holder.
        let Some((_, number)) = label.rsplit_once('-') else { continue };
        let number = number.parse().unwrap();
        for file in std::fs::read_dir(folder.path()).into_iter().flatten().flatten() {
            found.extend(file.metadata().ok().map(|known| (number, known.len())));
        }
    }
    found.sort_unstable();
    found
}

pub fn on_disk(place: &Place, session: &str) -> u64 {
    files(place, session).iter().map(|(_, bytes)| bytes).sum()
}

#[test]
fn the_oldest_records_of_a_session_go_when_it_keeps_as_many_as_it_may_also_those_of_earlier_lives() {
    if !is_inside(
        "limits::the_oldest_records_of_a_session_go_when_it_keeps_as_many_as_it_may_also_those_of_earlier_lives",
    ) {
        return;
    }
    const MB: u64 = 1_000_000;
    let session = |name: &str, rest: &str| {
        format!(
            "[[session]]\nname = \"{name}\"\ncpu = [{{ period = \"20ms\", slice = \"4ms\" }}]\n\
             channel = [{{ interface = \"b\", queue = 10000 }}]\n{rest}\n"
        )
    };
    let sessions = |most: &str| {
        session("flood", &format!("record_bytes = \"2 MB/s\"\nrecord_storage = \"{most}\""))
            + &session("good", "")
    };
    let mut place = Place::new(&sessions("4 MB"));
    let load_flood = |place: &Place| {
        let reply = place.load("flood", json!({"module": "flood.wasm"}), &flood());
        assert!(reply.get("done").is_some(), "{reply}");
    };
    load_flood(&place);
    load(&place, "good", "one");
    // The limit, what comes between two looks, and files that are being written: of at most 1 MiB of rows, with their log.
    let most = |limit: u64| limit + 2 * MB + 3 * MB;
    let mut sent = 0;
    let storage = |place: &Place, key: &str| shown(place, "flood")["limits"][key].as_u64().unwrap_or(0);
    place.until("files are deleted", |place| {
        place.send(&vec![udp(7, b"x"); 500]);
        sent += 500;
        let there = on_disk(place, "flood");
        assert!(there <= most(4 * MB), "{there} bytes are kept");
        storage(place, "record_storage_deleted") >= 3 * MB
    });
    place.until("the others' records have all been taken", |place| sum(place, "good", "records") == sent);
    assert_eq!(sum(&place, "good", "records_lost"), 0);
    assert!(files(&place, "flood")[0].0 > 0, "the oldest is gone: {:?}", files(&place, "flood"));
    assert!(files(&place, "good").iter().any(|(number, _)| *number == 0));
    let of = shown(&place, "flood")["limits"].clone();
    assert_eq!(of["record_storage"], json!(4 * MB));
    assert!(storage(&place, "record_storage_now") > 0, "{of}");

    // A lower limit holds for what there is already, also without anything new.
    place.configure(&sessions("2 MB"));
    assert_eq!(place.ask(json!("reload"))["done"]["notes"], json!(["session flood is changed"]));
    load_flood(&place);
    place.until("it keeps less", |place| on_disk(place, "flood") <= 2 * MB);
    let left = files(&place, "flood");
    assert!(!left.is_empty());
    assert!(place.stop().success());
    let (files_deleted, bytes_deleted) =
        (place.billed("flood", "record_files_deleted"), place.billed("flood", "record_bytes_deleted"));
    assert!(files_deleted >= 3 && bytes_deleted >= 3 * MB, "{files_deleted} files, {bytes_deleted} bytes");
    assert_eq!(place.billed("good", "record_files_deleted"), 0);

    // The node's next life counts what the one before has left.
    place.configure(&sessions("10 kB"));
    place.start();
    load_flood(&place);
    place.until("next to nothing is kept", |place| on_disk(place, "flood") <= 10_000);
    assert!(place.stop().success());
}

#[test]
fn modules_of_a_session_keep_no_more_packets_together_than_it_may() {
    if !is_inside("limits::modules_of_a_session_keep_no_more_packets_together_than_it_may") {
        return;
    }
    let mut place = Place::new("");
    let cpu = json!([{"period": "20ms", "slice": "4ms"}]);
    place.done(
        json!({"create": {"name": "alice", "kept_packets": 5, "cpu": cpu, "channel": [{"interface": "b"}]}}),
    );
    for name in ["one", "two"] {
        let reply = place.load("alice", json!({"module": "keeper.wasm", "name": name}), &keeper());
        assert!(reply.get("done").is_some(), "{reply}");
    }
    let mut sent = 0;
    let mut send = |place: &mut Place, frames: &[Vec<u8>]| {
        place.send(frames);
        sent += 2 * frames.len() as u64;
        place.until("both have seen them", |place| sum(place, "alice", "packets") == sent);
    };
    let limits = |place: &Place, kept: u64, now: u64, refused: u64| {
        let expected = [json!(kept), json!(now), json!(refused)];
        let of = shown(place, "alice")["limits"].clone();
        let number = |key: &str| of.get(key).cloned().unwrap_or(json!(0));
        assert_eq!(["kept_packets", "kept_now", "keeping_refused"].map(number), expected);
    };
    send(&mut place, &to_keep(20));
    place.until("those that they keep are told of", |place| sum(place, "alice", "records") == 5);
    limits(&place, 5, 5, 35);
    // Fewer than are kept cannot be all that are.
    let fewer = json!({"change": {"session": "alice", "kept_packets": 4, "priority": 3}});
    let why = place.refused(fewer.clone());
    assert!(why.contains("its modules keep 5 packets now, and 4 is less"), "{why}");
    assert_eq!(shown(&place, "alice")["priority"], 0, "nothing of it was done");
    send(&mut place, &to_keep(1));
    limits(&place, 5, 5, 37);
    // What one lets go of another may keep.
    send(&mut place, &[udp(3, b"x")]);
    limits(&place, 5, 0, 37);
    place.done(fewer);
    send(&mut place, &to_keep(10));
    limits(&place, 4, 4, 53);
    // A module that is gone keeps nothing.
    for name in ["one", "two"] {
        place.done(json!({"unload": {"session": "alice", "module": name}}));
    }
    place.until("nothing is kept", |place| shown(place, "alice")["limits"].get("kept_now").is_none());
    assert!(place.stop().success());
    let ledger = place.ledger();
    let usages = ledger.iter().filter(|entry| entry["kind"] == "usage");
    let drops: u64 = usages.filter_map(|entry| entry["usage"]["drops"]["frame-limit"].as_u64()).sum();
    assert_eq!(drops, 53);
}

/// Writes 7 as the TTL of each packet, and two stars into its payload, or tries to.
pub fn writer() -> Vec<u8> {
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
            (i32.store8 (i32.const 64) (i32.const 7))
            (i32.store16 (i32.const 66) (i32.const 0x2a2a))
            (drop (call $patch (local.get $d) (i32.const 22) (i32.const 64) (i32.const 1)))
            (drop (call $patch (local.get $d) (i32.const 42) (i32.const 66) (i32.const 2)))
            (i32.const 0))"#;
    assemble(&text(body), Some(MANIFEST.replace("NAME", "writer").as_bytes()))
}

/// Datagrams, and what they look like where the TTL was written, or the payload, or nothing; but for the checksum of the IP header.
pub fn written(count: u16, ttl: bool, payload: bool) -> Vec<Vec<u8>> {
    let frame = |port: u16| {
        let mut frame = udp(port, &port.to_be_bytes().repeat(20));
        if ttl {
            frame[22] = 7;
        }
        if payload {
            frame[42..44].copy_from_slice(b"**");
        }
        frame
    };
    (0..count).map(frame).collect()
}

/// What has arrived, without the checksums of IP headers.
pub fn arrived(far: &mut links::Far, count: usize) -> Vec<Vec<u8>> {
    let mut frames = far.datagrams(count);
    frames.iter_mut().for_each(|frame| frame[24..26].fill(0));
    frames
}

#[test]
fn a_field_that_may_not_be_written_stays_as_it_is() {
    if !is_inside("limits::a_field_that_may_not_be_written_stays_as_it_is") {
        return;
    }
    let sessions = links::session(", forward = \"up\"") + "writes = [\"ttl\", \"dscp\"]\n";
    let (mut place, mut far) = links::linked(&sessions);
    let reply = place.load("alice", json!({"module": "writer.wasm"}), &writer());
    assert!(reply.get("done").is_some(), "{reply}");
    place.send(&written(100, false, false));
    assert_eq!(arrived(&mut far, 100), written(100, true, false));
    let limits = |place: &Place| shown(place, "alice")["limits"].clone();
    let of = limits(&place);
    assert_eq!((&of["writes"], &of["writes_refused"]), (&json!(["dscp", "ttl"]), &json!(100)));
    // It changes while the module runs.
    for (fields, ttl, payload) in [(json!(["payload"]), false, true), (json!([]), false, false)] {
        place.done(json!({"change": {"session": "alice", "writes": fields}}));
        place.send(&written(100, false, false));
        assert_eq!(arrived(&mut far, 100), written(100, ttl, payload));
        assert_eq!(limits(&place)["writes"], fields);
    }
    assert_eq!(limits(&place)["writes_refused"], 400);
    assert_eq!(place.count("alice", "writer", "faults"), 0);
    assert!(place.stop().success());
}
