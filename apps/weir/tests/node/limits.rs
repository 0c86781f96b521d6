//! Limits for all modules of a session together, other than processor time and memory.

use crate::kept_packets::{keeping_module, packets_to_keep};
use crate::links;
use crate::module::{MANIFEST, assemble, text};
use crate::testbed::{Testbed, is_inside, udp};
use serde_json::{Value, json};
use std::time::Instant;

/// A module that emits a row for each packet.
pub fn row_module(name: &str) -> Vec<u8> {
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
            (i32.const 0))"#;
    assemble(&text(body), Some(MANIFEST.replace("NAME", name).as_bytes()))
}

/// A session's status.
pub fn session_status(testbed: &Testbed, session: &str) -> Value {
    let snapshot = testbed.snapshot();
    let found = snapshot["sessions"].as_array().unwrap().iter().find(|shot| shot["name"] == session);
    found.unwrap_or_else(|| panic!("there is no {session}: {snapshot}")).clone()
}

fn load(testbed: &Testbed, session: &str, name: &str) {
    let reply = testbed.load(session, json!({"module": format!("{name}.wasm")}), &row_module(name));
    assert!(reply.get("done").is_some(), "{reply}");
}

fn sum(testbed: &Testbed, session: &str, what: &str) -> u64 {
    let modules = session_status(testbed, session)["modules"].as_array().unwrap().clone();
    modules.iter().map(|module| module[what].as_u64().unwrap()).sum()
}

#[test]
fn records_beyond_a_sessions_rate_are_lost_and_no_others() {
    if !is_inside("limits::records_beyond_a_sessions_rate_are_lost_and_no_others") {
        return;
    }
    let session = |name: &str, rest: &str| {
        format!(
            "[[session]]\nname = \"{name}\"\ncpu = [{{ period = \"20ms\", slice = \"4ms\" }}]\n\
             channel = [{{ interface = \"b\", queue = 10000 }}]\n{rest}\n"
        )
    };
    let begin = Instant::now();
    let mut testbed = Testbed::new(&(session("flood", "records_per_second = 3") + &session("good", "")));
    // Two modules share one rate.
    for name in ["one", "two"] {
        load(&testbed, "flood", name);
    }
    load(&testbed, "good", "one");
    let mut sent = 0;
    let mut send = |testbed: &mut Testbed| {
        testbed.send(&vec![udp(7, b"x"); 500]);
        sent += 500;
        testbed.until("all rows are reported", |testbed| {
            sum(testbed, "flood", "records") + sum(testbed, "flood", "records_lost") == 2 * sent
                && sum(testbed, "good", "records") == sent
        });
    };
    send(&mut testbed);
    let limits = |testbed: &Testbed| session_status(testbed, "flood")["limits"].clone();
    let lost = sum(&testbed, "flood", "records_lost");
    // The maximum for the time since before the session was created.
    let seconds = begin.elapsed().as_secs() + 1;
    assert!(1000 - lost <= 3 * seconds, "{lost} lost in {seconds} s");
    let of = limits(&testbed);
    assert_eq!((&of["records_per_second"], &of["records_over_rate"]), (&json!(3), &json!(lost)));
    let of_good = session_status(&testbed, "good")["limits"].clone();
    assert_eq!((sum(&testbed, "good", "records_lost"), of_good.get("records_per_second")), (0, None));

    // The rate changes while they run: to zero, and then to more than they emit.
    testbed.request(json!({"change": {"session": "flood", "records_per_second": 0}}));
    let before = sum(&testbed, "flood", "records");
    send(&mut testbed);
    assert_eq!(sum(&testbed, "flood", "records"), before);
    testbed.request(json!({"change": {"session": "flood", "records_per_second": 1_000_000}}));
    testbed.until("some records are accepted again", |testbed| {
        send(testbed);
        sum(testbed, "flood", "records") > before
    });
    let lost = sum(&testbed, "flood", "records_lost");
    assert!(testbed.stop().success());
    let ledger = testbed.ledger();
    let drops = |session: &str| -> u64 {
        let its =
            ledger.iter().filter(|entry| entry["kind"] == "usage" && entry["session"]["name"] == session);
        its.filter_map(|entry| entry["usage"]["drops"]["record-rate"].as_u64()).sum()
    };
    assert_eq!((drops("flood"), drops("good")), (lost, 0));
}

#[test]
fn record_bytes_beyond_a_sessions_rate_are_lost_and_no_others() {
    if !is_inside("limits::record_bytes_beyond_a_sessions_rate_are_lost_and_no_others") {
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
    let mut testbed = Testbed::new(&(session("flood", "record_bytes = \"80 B/s\"") + &session("good", "")));
    for name in ["one", "two"] {
        load(&testbed, "flood", name);
    }
    load(&testbed, "good", "one");
    let mut sent = 0;
    let mut send = |testbed: &mut Testbed| {
        testbed.send(&vec![udp(7, b"x"); 500]);
        sent += 500;
        testbed.until("all rows are reported", |testbed| {
            sum(testbed, "flood", "records") + sum(testbed, "flood", "records_lost") == 2 * sent
                && sum(testbed, "good", "records") == sent
        });
    };
    send(&mut testbed);
    let lost = sum(&testbed, "flood", "records_lost");
    let taken = 1000 - lost;
    // The burst of one second is available at once, and the rate counts from before the session was created.
    let seconds = begin.elapsed().as_secs() + 2;
    assert!((10..=10 * seconds).contains(&taken), "{taken} taken in {seconds} s");
    let limits = |testbed: &Testbed, session: &str| session_status(testbed, session)["limits"].clone();
    let of = limits(&testbed, "flood");
    assert_eq!((&of["record_bytes"], &of["record_bytes_over_rate"]), (&json!(80), &json!(8 * lost)));
    let of_good = limits(&testbed, "good");
    assert_eq!(
        (of_good["record_bytes"].clone(), of_good.get("record_bytes_over_rate")),
        (json!(1_000_000), None)
    );

    // The rate changes while they run, also to zero.
    testbed.request(json!({"change": {"session": "flood", "record_bytes": "0B/s"}}));
    let before = sum(&testbed, "flood", "records");
    send(&mut testbed);
    assert_eq!(sum(&testbed, "flood", "records"), before);
    let lost = sum(&testbed, "flood", "records_lost");
    testbed.request(json!({"change": {"session": "flood", "record_bytes": "unlimited"}}));
    send(&mut testbed);
    assert_eq!(
        (sum(&testbed, "flood", "records"), sum(&testbed, "flood", "records_lost")),
        (before + 1000, lost)
    );
    assert_eq!(limits(&testbed, "flood").get("record_bytes"), None);
    let why = testbed.request_refused(json!({"change": {"session": "flood", "record_bytes": "80"}}));
    assert!(why.contains("1 MB/s"), "{why}");
    assert!(testbed.stop().success());
    let ledger = testbed.ledger();
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

/// A module that emits the maximum number of rows for each packet, with incompressible numbers.
pub fn flood_module() -> Vec<u8> {
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

/// The record files of a session with their sizes, in the order of their folders' numbers.
fn files(testbed: &Testbed, session: &str) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    for folder in
        std::fs::read_dir(testbed.disk().join("records").join(session)).into_iter().flatten().flatten()
    {
        let label = folder.file_name().into_string().unwrap();
        // Beside them is the file that names the session's holder.
        let Some((_, number)) = label.rsplit_once('-') else { continue };
        let number = number.parse().unwrap();
        for file in std::fs::read_dir(folder.path()).into_iter().flatten().flatten() {
            found.extend(file.metadata().ok().map(|known| (number, known.len())));
        }
    }
    found.sort_unstable();
    found
}

pub fn on_disk(testbed: &Testbed, session: &str) -> u64 {
    files(testbed, session).iter().map(|(_, bytes)| bytes).sum()
}

#[test]
fn the_oldest_records_are_deleted_at_the_storage_limit_also_those_of_earlier_runs() {
    if !is_inside("limits::the_oldest_records_are_deleted_at_the_storage_limit_also_those_of_earlier_runs") {
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
    let mut testbed = Testbed::new(&sessions("4 MB"));
    let load_flood = |testbed: &Testbed| {
        let reply = testbed.load("flood", json!({"module": "flood.wasm"}), &flood_module());
        assert!(reply.get("done").is_some(), "{reply}");
    };
    load_flood(&testbed);
    load(&testbed, "good", "one");
    // The limit, the records between two checks, and unfinished files: each of at most 1 MiB of rows, with its log.
    let most = |limit: u64| limit + 2 * MB + 3 * MB;
    let mut sent = 0;
    let storage =
        |testbed: &Testbed, key: &str| session_status(testbed, "flood")["limits"][key].as_u64().unwrap_or(0);
    testbed.until("files are deleted", |testbed| {
        testbed.send(&vec![udp(7, b"x"); 500]);
        sent += 500;
        let there = on_disk(testbed, "flood");
        assert!(there <= most(4 * MB), "{there} bytes are kept");
        storage(testbed, "record_storage_deleted") >= 3 * MB
    });
    testbed.until("all other records have been accepted", |testbed| sum(testbed, "good", "records") == sent);
    assert_eq!(sum(&testbed, "good", "records_lost"), 0);
    assert!(files(&testbed, "flood")[0].0 > 0, "the oldest is gone: {:?}", files(&testbed, "flood"));
    assert!(files(&testbed, "good").iter().any(|(number, _)| *number == 0));
    let of = session_status(&testbed, "flood")["limits"].clone();
    assert_eq!(of["record_storage"], json!(4 * MB));
    assert!(storage(&testbed, "record_storage_used") > 0, "{of}");

    // A lower limit is applied to existing files, even without new records.
    testbed.configure(&sessions("2 MB"));
    assert_eq!(testbed.send_request(json!("reload"))["done"]["notes"], json!(["session flood is changed"]));
    load_flood(&testbed);
    testbed.until("less is stored", |testbed| on_disk(testbed, "flood") <= 2 * MB);
    let left = files(&testbed, "flood");
    assert!(!left.is_empty());
    assert!(testbed.stop().success());
    let (files_deleted, bytes_deleted) = (
        testbed.ledger_usage("flood", "record_files_deleted"),
        testbed.ledger_usage("flood", "record_bytes_deleted"),
    );
    assert!(files_deleted >= 3 && bytes_deleted >= 3 * MB, "{files_deleted} files, {bytes_deleted} bytes");
    assert_eq!(testbed.ledger_usage("good", "record_files_deleted"), 0);

    // After a restart the node counts the files of the earlier run.
    testbed.configure(&sessions("10 kB"));
    testbed.start();
    load_flood(&testbed);
    testbed.until("almost nothing is stored", |testbed| on_disk(testbed, "flood") <= 10_000);
    assert!(testbed.stop().success());
}

#[test]
fn a_sessions_modules_together_keep_at_most_its_limit_of_packets() {
    if !is_inside("limits::a_sessions_modules_together_keep_at_most_its_limit_of_packets") {
        return;
    }
    let mut testbed = Testbed::new("");
    let cpu = json!([{"period": "20ms", "slice": "4ms"}]);
    testbed.request(
        json!({"create": {"name": "alice", "kept_packets": 5, "cpu": cpu, "channel": [{"interface": "b"}]}}),
    );
    for name in ["one", "two"] {
        let reply = testbed.load("alice", json!({"module": "keeper.wasm", "name": name}), &keeping_module());
        assert!(reply.get("done").is_some(), "{reply}");
    }
    let mut sent = 0;
    let mut send = |testbed: &mut Testbed, frames: &[Vec<u8>]| {
        testbed.send(frames);
        sent += 2 * frames.len() as u64;
        testbed.until("both modules have received the packets", |testbed| {
            sum(testbed, "alice", "packets") == sent
        });
    };
    let limits = |testbed: &Testbed, kept: u64, now: u64, refused: u64| {
        let expected = [json!(kept), json!(now), json!(refused)];
        let of = session_status(testbed, "alice")["limits"].clone();
        let number = |key: &str| of.get(key).cloned().unwrap_or(json!(0));
        assert_eq!(["kept_packets", "kept_packets_used", "kept_packets_refused"].map(number), expected);
    };
    send(&mut testbed, &packets_to_keep(20));
    testbed.until("the kept packets are reported", |testbed| sum(testbed, "alice", "records") == 5);
    limits(&testbed, 5, 5, 35);
    // The limit cannot be reduced below the number of kept packets.
    let fewer = json!({"change": {"session": "alice", "kept_packets": 4, "priority": 3}});
    let why = testbed.request_refused(fewer.clone());
    assert!(why.contains("its modules keep 5 packets now, which is more than the new limit, 4"), "{why}");
    assert_eq!(session_status(&testbed, "alice")["priority"], 0, "nothing of it was done");
    send(&mut testbed, &packets_to_keep(1));
    limits(&testbed, 5, 5, 37);
    // When one module releases a packet, another one can keep one.
    send(&mut testbed, &[udp(3, b"x")]);
    limits(&testbed, 5, 0, 37);
    testbed.request(fewer);
    send(&mut testbed, &packets_to_keep(10));
    limits(&testbed, 4, 4, 53);
    // An unloaded module keeps nothing.
    for name in ["one", "two"] {
        testbed.request(json!({"unload": {"session": "alice", "module": name}}));
    }
    testbed.until("nothing is kept", |testbed| {
        session_status(testbed, "alice")["limits"].get("kept_packets_used").is_none()
    });
    assert!(testbed.stop().success());
    let ledger = testbed.ledger();
    let usages = ledger.iter().filter(|entry| entry["kind"] == "usage");
    let drops: u64 = usages.filter_map(|entry| entry["usage"]["drops"]["frame-limit"].as_u64()).sum();
    assert_eq!(drops, 53);
}

/// A module that tries to write 7 as the TTL of each packet, and two stars into its payload.
pub fn patching_module() -> Vec<u8> {
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
            (i32.store8 (i32.const 64) (i32.const 7))
            (i32.store16 (i32.const 66) (i32.const 0x2a2a))
            (drop (call $patch (local.get $d) (i32.const 22) (i32.const 64) (i32.const 1)))
            (drop (call $patch (local.get $d) (i32.const 42) (i32.const 66) (i32.const 2)))
            (i32.const 0))"#;
    assemble(&text(body), Some(MANIFEST.replace("NAME", "writer").as_bytes()))
}

/// Datagrams as they leave if writing the TTL, or the payload, is allowed; without IP header checksums.
pub fn expected_frames(count: u16, ttl: bool, payload: bool) -> Vec<Vec<u8>> {
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

/// The received datagrams, without IP header checksums.
pub fn received_frames(far: &mut links::FarEnd, count: usize) -> Vec<Vec<u8>> {
    let mut frames = far.datagrams(count);
    frames.iter_mut().for_each(|frame| frame[24..26].fill(0));
    frames
}

#[test]
fn a_field_without_the_right_to_write_stays_unchanged() {
    if !is_inside("limits::a_field_without_the_right_to_write_stays_unchanged") {
        return;
    }
    let sessions = links::session(", forward = \"up\"") + "writes = [\"ttl\", \"dscp\"]\n";
    let (mut testbed, mut far) = links::linked(&sessions);
    let reply = testbed.load("alice", json!({"module": "writer.wasm"}), &patching_module());
    assert!(reply.get("done").is_some(), "{reply}");
    testbed.send(&expected_frames(100, false, false));
    assert_eq!(received_frames(&mut far, 100), expected_frames(100, true, false));
    let limits = |testbed: &Testbed| session_status(testbed, "alice")["limits"].clone();
    let of = limits(&testbed);
    assert_eq!((&of["writes"], &of["writes_refused"]), (&json!(["dscp", "ttl"]), &json!(100)));
    // The allowed fields change while the module runs.
    for (fields, ttl, payload) in [(json!(["payload"]), false, true), (json!([]), false, false)] {
        testbed.request(json!({"change": {"session": "alice", "writes": fields}}));
        testbed.send(&expected_frames(100, false, false));
        assert_eq!(received_frames(&mut far, 100), expected_frames(100, ttl, payload));
        assert_eq!(limits(&testbed)["writes"], fields);
    }
    assert_eq!(limits(&testbed)["writes_refused"], 400);
    assert_eq!(testbed.count("alice", "writer", "faults"), 0);
    assert!(testbed.stop().success());
}

#[test]
fn a_profile_limits_the_fields_that_a_session_may_write() {
    if !is_inside("limits::a_profile_limits_the_fields_that_a_session_may_write") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let profile = |name: &str, writes: &str| {
        let file = folder.path().join(name);
        std::fs::write(&file, writes).unwrap();
        format!("[[profile]]\nname = \"{name}\"\nfile = \"{}\"\n", file.display())
    };
    let profiles = profile("hops", "writes = ['ttl', 'dscp']") + &profile("looking", "writes = []");
    let session = links::session(", forward = \"up\"") + "profile = \"hops\"\nprocess = \"own\"\n";
    let (mut testbed, mut far) = links::linked(&(session + &profiles));
    let reply = testbed.load("alice", json!({"module": "writer.wasm"}), &patching_module());
    assert!(reply.get("done").is_some(), "{reply}");
    let mut refused = 0;
    // The session may write everything; then nothing that the profile allows; then one of its fields.
    for (fields, ttl, denied) in [
        (json!(null), true, 100),
        (json!(["ecn", "payload"]), false, 200),
        (json!(["ttl", "payload"]), true, 100),
    ] {
        if !fields.is_null() {
            testbed.request(json!({"change": {"session": "alice", "writes": fields}}));
        }
        testbed.send(&expected_frames(100, false, false));
        assert_eq!(received_frames(&mut far, 100), expected_frames(100, ttl, false));
        refused += denied;
        let limits = &session_status(&testbed, "alice")["limits"];
        assert_eq!((&limits["writes"], &limits["writes_refused"]), (&fields, &json!(refused)));
    }
    assert_eq!(testbed.count("alice", "writer", "faults"), 0);
    // Under a profile without writable fields such a module is not loaded, whatever the session may write.
    testbed.request(json!({"change": {"session": "alice", "profile": "looking"}}));
    let asked = json!({"module": "writer.wasm", "name": "again"});
    let why = testbed.load("alice", asked, &patching_module())["refused"]["why"].to_string();
    assert!(why.contains("it calls `weir.patch` in ") && why.contains("(`writes`)"), "{why}");
    assert!(testbed.stop().success());
}
