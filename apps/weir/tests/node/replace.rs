//! Replacement of a module by a newer version: its queue and state, its trial, and the return of the older version.

use crate::module::{MANIFEST, assemble, text};
use crate::testbed::{FollowedReplies, Testbed, is_inside, udp};
use serde_json::{Value, json};

/// A port whose packets are a fault for a version that faults.
const FATAL: u16 = 66;
const STATE: &str = "[[state]]\nname = 'count'\nversion = 1\nbytes = 8\n";

/// Version `version` of a module that counts packets in its state, and emits `version * 1000000` plus the count for each packet.
/// With `faults` it traps at a packet to [`FATAL`].
fn counter(version: u32, faults: bool, state: &str) -> Vec<u8> {
    let export = if state.is_empty() { "" } else { r#"(export "weir_state_count")"# };
    let body = format!(
        r#"(global {export} i32 (i32.const 1024))
        (func (export "weir_packet") (param $d i32) (result i32)
            (if (i32.and (i32.const {faults}) (i32.eq (i32.load16_u offset=46 (local.get $d)) (i32.const {FATAL})))
                (then (unreachable)))
            (i64.store (i32.const 1024) (i64.add (i64.load (i32.const 1024)) (i64.const 1)))
            (i64.store (i32.const 64) (i64.add (i64.load (i32.const 1024)) (i64.const {millions})))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
            (i32.const 0))
        (func (export "weir_stop") (param i64)
            (i64.store (i32.const 64) (i64.const {stop}))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8))))"#,
        faults = u32::from(faults),
        millions = u64::from(version) * 1_000_000,
        stop = u64::from(version) * 1_000_000_000,
    );
    let manifest = MANIFEST.replace("NAME", "m").replace("version = '1'", &format!("version = '{version}'"));
    assemble(&text(&body), Some((manifest + state).as_bytes()))
}

const SESSION: &str = "[[session]]\nname = \"s\"\nmemory = \"64 MiB\"\ncpu = [{ period = \"20ms\", slice = \"2ms\" }]\n\
    channel = [{ interface = \"b\", filter = \"udp\", queue = 1024 }]\n";

fn load(testbed: &Testbed, module: &[u8]) {
    let reply = testbed.load("s", json!({"module": "m.wasm"}), module);
    assert!(reply.get("done").is_some(), "{reply}");
}

/// The reply to a replacement of the session's module `m`.
fn replace(testbed: &Testbed, module: &[u8], trial: &str) -> Value {
    let load = json!({"load": {"session": "s", "module": {"module": "m.wasm"}, "replace": trial}});
    testbed.send_request_with_body(load, module)
}

fn replaced(testbed: &Testbed, module: &[u8], trial: &str) -> String {
    let reply = replace(testbed, module, trial);
    reply["done"]["notes"][0].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned()
}

fn title(testbed: &Testbed) -> Value {
    testbed.part("s", "modules", "m")["module"].clone()
}

fn waiting(testbed: &Testbed) -> u64 {
    testbed.part("s", "channels", "main")["waiting"].as_u64().unwrap()
}

fn value_of(reply: Value) -> Option<u64> {
    reply["record"]["value"].as_u64()
}

/// The title of the module; null if it is not loaded yet.
fn title_if_loaded(testbed: &Testbed) -> Value {
    testbed.snapshot()["sessions"][0]["modules"][0]["module"].clone()
}

/// The values of the next rows.
fn values(rows: &mut FollowedReplies, count: usize) -> Vec<u64> {
    rows.filter_map(value_of).take(count).collect()
}

#[test]
fn a_newer_version_goes_on_with_the_queue_and_the_state_of_the_older_one() {
    if is_inside("replace::a_newer_version_goes_on_with_the_queue_and_the_state_of_the_older_one") {
        replace_five_times("");
    }
}

#[test]
fn a_newer_version_takes_over_the_state_of_another_process() {
    if is_inside("replace::a_newer_version_takes_over_the_state_of_another_process") {
        replace_five_times("process = \"own\"\n");
    }
}

/// Replaces a module five times while packets wait, in a session with this further key.
fn replace_five_times(key: &str) {
    let mut testbed = Testbed::new(&format!("{SESSION}{key}"));
    load(&testbed, &counter(1, false, STATE));
    let packets: Vec<_> = (0..300).map(|_| udp(9, b"x")).collect();
    // Some of these packets are still in the queue when the next version is loaded.
    for version in 2..=6 {
        testbed.send(&packets);
        let note = replaced(&testbed, &counter(version, true, STATE), "60s");
        assert!(note.contains("with the state of the version before"), "{note}");
        assert_eq!(title(&testbed), format!("m {version}"));
    }
    let rows = FollowedReplies::new(&testbed, "s", "m", "rows");
    testbed.until("no packet waits", |testbed| waiting(testbed) == 0);
    testbed.send(&packets[..1]);
    // No packet was lost, and none was counted twice: each packet is in the state once.
    let last = rows.filter_map(value_of).find(|value| value % 1_000_000 == 1501);
    assert_eq!(last, Some(6_001_501));
    assert!(testbed.stop().success());
    let entries = testbed.ledger();
    let of_kind = |kind: &str| entries.iter().filter(|entry| entry["kind"] == kind).collect::<Vec<_>>();
    assert_eq!(of_kind("module-loaded").len(), 6);
    let reasons: Vec<_> = of_kind("module-unloaded").iter().map(|entry| entry["reason"].clone()).collect();
    assert_eq!(reasons[..5], vec![json!("replaced"); 5]);
    assert_eq!(testbed.ledger_usage("s", "packets_in"), 1501);
}

#[test]
fn the_older_version_returns_at_a_fault_of_the_newer_one_and_loses_no_later_packet() {
    if !is_inside("replace::the_older_version_returns_at_a_fault_of_the_newer_one_and_loses_no_later_packet")
    {
        return;
    }
    let mut testbed = Testbed::new(SESSION);
    load(&testbed, &counter(1, false, STATE));
    testbed.send(&vec![udp(9, b"x"); 10]);
    testbed.until("ten packets are processed", |testbed| testbed.count("s", "m", "packets") == 10);
    replaced(&testbed, &counter(2, true, STATE), "1h");
    testbed.send(&vec![udp(9, b"x"); 5]);
    testbed.until("the newer version has five", |testbed| testbed.count("s", "m", "packets") == 5);
    assert_eq!(title(&testbed), "m 2");
    // The packets behind the fatal one wait for the older version.
    testbed.send(&[udp(FATAL, b"x")]);
    testbed.send(&vec![udp(9, b"x"); 300]);
    testbed.until("the older version is back", |testbed| title_if_loaded(testbed) == "m 1");
    // At most the rest of the fatal packet's batch is the newer version's. The older version has its own state again.
    testbed.until("no packet waits", |testbed| waiting(testbed) == 0);
    testbed
        .until("the older version has the others", |testbed| testbed.count("s", "m", "packets") >= 310 - 63);
    let mut rows = FollowedReplies::new(&testbed, "s", "m", "rows");
    testbed.send(&[udp(FATAL, b"x")]);
    // Rows of earlier packets can still be on their way to the follower.
    let last = rows.by_ref().filter_map(value_of).find(|value| *value > 1_000_000 + 310 - 63).unwrap();
    let own = testbed.count("s", "m", "packets");
    assert!(last <= 1_000_000 + own && own <= 311, "{last} of {own}");
    assert!(
        testbed
            .log()
            .contains("the newer version had a fault in its trial, so the version before runs again")
    );
    assert!(testbed.stop().success());
    let entries = testbed.ledger();
    let reasons: Vec<_> = entries
        .iter()
        .filter(|entry| entry["kind"] == "module-unloaded")
        .map(|entry| entry["reason"].clone())
        .collect();
    assert_eq!(reasons[..2], [json!("replaced"), json!("trial-failed")]);
    let loaded: Vec<_> = entries
        .iter()
        .filter(|entry| entry["kind"] == "module-loaded")
        .map(|entry| entry["code"].clone())
        .collect();
    assert_eq!((loaded.len(), &loaded[0]), (3, &loaded[2]));
}

#[test]
fn a_version_with_other_state_begins_anew_and_the_older_one_stops_after_the_trial() {
    if !is_inside("replace::a_version_with_other_state_begins_anew_and_the_older_one_stops_after_the_trial") {
        return;
    }
    let other = STATE.replace("version = 1", "version = 2");
    let mut testbed = Testbed::new(SESSION);
    load(&testbed, &counter(1, false, STATE));
    testbed.send(&vec![udp(9, b"x"); 10]);
    testbed.until("ten packets are processed", |testbed| testbed.count("s", "m", "packets") == 10);
    let mut before = FollowedReplies::new(&testbed, "s", "m", "rows");
    let note = replaced(&testbed, &counter(2, true, &other), "1s");
    assert!(note.contains("from an empty state"), "{note}");
    let mut rows = FollowedReplies::new(&testbed, "s", "m", "rows");
    testbed.send(&[udp(9, b"x")]);
    assert_eq!(values(&mut rows, 1), [2_000_001]);
    // Its stop function is called once it will not return any more.
    assert_eq!(values(&mut before, 1), [1_000_000_000]);
    testbed.until("the trial is over", |testbed| testbed.log().contains("has passed its trial"));
    // A fault after the trial brings nothing back.
    testbed.send(&[udp(FATAL, b"x")]);
    testbed.until("the fault is counted", |testbed| testbed.count("s", "m", "faults") == 1);
    testbed.send(&[udp(9, b"x")]);
    assert_eq!(values(&mut rows, 1), [2_000_002]);
    assert_eq!(title(&testbed), "m 2");
    assert!(testbed.stop().success());
}

#[test]
fn a_version_that_is_refused_leaves_the_older_one_running() {
    if !is_inside("replace::a_version_that_is_refused_leaves_the_older_one_running") {
        return;
    }
    let mut testbed = Testbed::new(SESSION);
    let refused = |testbed: &Testbed, module: &[u8], trial: &str, why: &str| {
        let reply = replace(testbed, module, trial);
        let message = reply["refused"].to_string();
        assert!(message.contains(why), "{why}: {reply}");
    };
    refused(&testbed, &counter(2, false, STATE), "60s", "no module");
    load(&testbed, &counter(1, false, STATE));
    refused(&testbed, b"\0asm\x01\0\0\0", "60s", "exported as `memory`");
    refused(&testbed, &counter(2, false, STATE), "2h", "a trial of 7200 s is too long");
    let without_export = assemble(
        &text(r#"(func (export "weir_packet") (param i32) (result i32) (i32.const 0))"#),
        Some((MANIFEST.replace("NAME", "m") + STATE).as_bytes()),
    );
    refused(&testbed, &without_export, "60s", "the state `count` of the manifest");
    let fails = text(
        r#"(func (export "weir_start") (result i32) (unreachable)) (func (export "weir_packet") (param i32) (result i32) (i32.const 0))"#,
    );
    let fails = assemble(&fails, Some(MANIFEST.replace("NAME", "m").as_bytes()));
    refused(&testbed, &fails, "60s", "start");
    testbed.send(&vec![udp(9, b"x"); 10]);
    testbed.until("the older version goes on", |testbed| testbed.count("s", "m", "packets") == 10);
    assert_eq!((title(&testbed), testbed.count("s", "m", "faults")), (json!("m 1"), 0));
    // Unloading the newer version ends both.
    replaced(&testbed, &counter(2, false, STATE), "1h");
    testbed.request(json!({"unload": {"session": "s", "module": "m"}}));
    testbed.until("no module is left", |testbed| {
        testbed.snapshot()["sessions"][0]["modules"].as_array().unwrap().is_empty()
    });
    load(&testbed, &counter(1, false, STATE));
    replaced(&testbed, &counter(2, false, STATE), "1h");
    testbed.request(json!({"close": {"session": "s"}}));
    assert!(testbed.stop().success());
}

#[test]
fn a_restart_brings_back_the_version_that_has_passed_its_trial() {
    if !is_inside("replace::a_restart_brings_back_the_version_that_has_passed_its_trial") {
        return;
    }
    let mut testbed = Testbed::new("");
    let spec = json!({"name": "s", "memory": "16 MiB", "channel": [{"interface": "b", "filter": "udp"}]});
    testbed.request(json!({"create": spec}));
    load(&testbed, &counter(1, false, STATE));
    replaced(&testbed, &counter(2, false, STATE), "1h");
    assert!(testbed.stop().success());
    testbed.start();
    testbed.until("the module is restored", |testbed| title_if_loaded(testbed) == "m 1");
    replaced(&testbed, &counter(2, false, STATE), "0s");
    testbed.until("the trial is over", |testbed| testbed.log().contains("has passed its trial"));
    assert!(testbed.stop().success());
    testbed.start();
    testbed.until("the newer version is restored", |testbed| title_if_loaded(testbed) == "m 2");
    assert!(testbed.stop().success());
}

/// Version `version` of a module that publishes the table `t` with each packet: `version * 1000000` plus the number of its packets.
/// With `faults` it traps at a packet to [`FATAL`], before it publishes. It emits the result of `publish`.
fn publisher(version: u32, faults: bool) -> Vec<u8> {
    let body = format!(
        r#"(func (export "weir_packet") (param $d i32) (result i32)
            (if (i32.and (i32.const {faults}) (i32.eq (i32.load16_u offset=46 (local.get $d)) (i32.const {FATAL})))
                (then (unreachable)))
            (i64.store (i32.const 1024) (i64.add (i64.load (i32.const 1024)) (i64.const 1)))
            (i32.store (i32.const 128) (i32.add (i32.wrap_i64 (i64.load (i32.const 1024))) (i32.const {millions})))
            (i64.store (i32.const 64) (i64.extend_i32_s (call $publish (i32.const 0) (i32.const 128) (i32.const 4))))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
            (i32.const 0))"#,
        faults = u32::from(faults),
        millions = version * 1_000_000,
    );
    let manifest = MANIFEST.replace("NAME", "m").replace("version = '1'", &format!("version = '{version}'"))
        + "[[table]]\nname = 't'\naccess = 'publish'\nbytes = '4 KiB'\n";
    let import = "(import \"weir\" \"publish\" (func $publish (param i32 i32 i32) (result i32)))\n(memory ";
    assemble(&text(&body).replacen("(memory ", import, 1), Some(manifest.as_bytes()))
}

#[test]
fn a_newer_version_takes_over_the_table_that_the_older_one_publishes() {
    if !is_inside("replace::a_newer_version_takes_over_the_table_that_the_older_one_publishes") {
        return;
    }
    let mut testbed = Testbed::new("");
    let reading = crate::tables::session("z-reader", 2, "read = [\"t=own\"]");
    testbed.configure(
        &(SESSION.replace("filter = \"udp\"", "filter = \"udp and not port 2\"")
            + "publish = [\"t=own\"]\n"
            + &reading),
    );
    testbed.request(json!("reload"));
    load(&testbed, &publisher(1, false));
    crate::tables::load(&testbed, "z-reader", &crate::tables::reader(""));
    let mut results = FollowedReplies::new(&testbed, "s", "m", "rows");
    let mut read = crate::tables::follow(&testbed, "z-reader");
    // The version of the table, and its number, that the reader sees.
    let mut seen = |testbed: &mut Testbed| {
        testbed.send(&[udp(2, b"x")]);
        crate::tables::next_value(&mut read)
    };
    let shows = |version: u64, number: u32| crate::tables::emitted_value(version, &number.to_le_bytes());
    testbed.send(&[udp(1, b"x")]);
    assert_eq!(values(&mut results, 1), [0]);
    assert_eq!(seen(&mut testbed), shows(1, 1_000_001));
    // The table keeps its contents at the switch, and the newer version publishes the next ones.
    replaced(&testbed, &publisher(2, true), "1h");
    assert_eq!(title(&testbed), "m 2");
    assert_eq!(seen(&mut testbed), shows(1, 1_000_001));
    let mut results = FollowedReplies::new(&testbed, "s", "m", "rows");
    testbed.send(&[udp(1, b"x")]);
    assert_eq!(values(&mut results, 1), [0]);
    assert_eq!(seen(&mut testbed), shows(2, 2_000_001));
    // The older version returns at the fault, and publishes again.
    testbed.send(&[udp(FATAL, b"x")]);
    testbed.until("the older version is back", |testbed| title_if_loaded(testbed) == "m 1");
    let mut results = FollowedReplies::new(&testbed, "s", "m", "rows");
    assert_eq!(seen(&mut testbed), shows(2, 2_000_001));
    testbed.send(&[udp(1, b"x")]);
    assert_eq!(values(&mut results, 1), [0]);
    assert_eq!(seen(&mut testbed), shows(3, 1_000_002));
    // Another module of the session still cannot publish the table.
    let reply = testbed.load("s", json!({"module": "m.wasm", "name": "other"}), &publisher(1, false));
    assert!(reply["refused"]["why"].as_str().unwrap().contains("publishes"), "{reply}");
}
