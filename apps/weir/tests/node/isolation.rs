//! Isolation between modules: what they can read, and how they can affect each other.

use crate::module::{MANIFEST, assemble, text};
use crate::testbed::{Testbed, is_inside, udp};
use serde_json::json;

/// Bytes of packets that only their recipient may read.
const SECRET: u64 = 0x5E_C2_E7_5E_C2_E7_00_11;

/// A module that searches all memory that it can read for eight bytes at every eighth address, a part with each packet.
fn searcher() -> Vec<u8> {
    let body = format!(
        r#"(global $at (mut i32) (i32.const 0))
        (func (export "weir_packet") (param $d i32) (result i32)
            (local $p i32) (local $left i32) (local $found i32)
            (local.set $p (i32.add (i32.const 0x40000000) (global.get $at)))
            (local.set $left (i32.const 32768))
            (loop $next
                (if (i64.eq (i64.load (local.get $p)) (i64.const {SECRET}))
                    (then (local.set $found (i32.const 1))))
                (local.set $p (i32.add (local.get $p) (i32.const 8)))
                (br_if $next (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
            (if (local.get $found) (then (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))))
            (global.set $at (i32.and (i32.add (global.get $at) (i32.const 262144)) (i32.const 0x7FFFFF)))
            (i32.const 0))"#
    );
    let manifest = MANIFEST.replace("NAME", "searcher");
    assemble(&text(&body), Some(manifest.as_bytes()))
}

/// Fills a frame with the secret at every eighth address, at any alignment of the frame.
fn secret() -> Vec<u8> {
    udp(99, &SECRET.to_le_bytes().repeat(100))
}

#[test]
fn a_module_that_searches_all_memory_finds_no_packet_of_other_sessions() {
    if !is_inside("isolation::a_module_that_searches_all_memory_finds_no_packet_of_other_sessions") {
        return;
    }
    let session = |name: &str, visibility: &str| {
        format!(
            "[[session]]\nname = \"{name}\"\nmemory = \"32 MiB\"\ncpu = [{{ period = \"50ms\", slice = \"15ms\" }}]\n\
             channel = [{{ interface = \"b\", filter = \"udp port 53\", visibility = \"{visibility}\" }}]\n"
        )
    };
    let mut testbed = Testbed::new(&(session("all", "all") + &session("some", "selected")));
    for name in ["all", "some"] {
        let reply = testbed.load(name, json!({"module": "searcher.wasm"}), &searcher());
        assert!(reply.get("done").is_some(), "{reply}");
    }
    // Packets with the secret at all eight alignments, among packets that both sessions may read.
    let mut sent = 0;
    for round in 0..40u64 {
        let mut frames: Vec<Vec<u8>> =
            (0..20).map(|i| udp(53, &vec![7; usize::try_from(i + round % 8).unwrap()])).collect();
        sent += frames.len() as u64;
        frames.extend((0..30).map(|shift| {
            let mut frame = secret();
            frame.splice(42..42, vec![0; shift % 8]);
            frame
        }));
        testbed.send(&frames);
        testbed.until("both modules have received the packets", |testbed| {
            ["all", "some"].iter().all(|name| testbed.count(name, "searcher", "packets") == sent)
        });
    }
    // The search works: a module that reads the whole memory of the interface finds the secret.
    assert!(testbed.count("all", "searcher", "records") > 0);
    // A module that reads a selection does not, though it has searched all its memory many times.
    assert_eq!(
        testbed.count("some", "searcher", "records") + testbed.count("some", "searcher", "records_lost"),
        0
    );
    assert_eq!(testbed.count("some", "searcher", "faults"), 0);
}

#[test]
fn a_module_that_traps_at_every_packet_costs_other_sessions_nothing() {
    if !is_inside("isolation::a_module_that_traps_at_every_packet_costs_other_sessions_nothing") {
        return;
    }
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32) unreachable)"#;
    let bytes = assemble(&text(body), Some(MANIFEST.replace("NAME", "bad").as_bytes()));
    let sessions = "[[session]]\nname = \"good\"\ncpu = [{ period = \"10ms\", slice = \"2ms\", borrow = true }]\n\
                    channel = [{ interface = \"b\", filter = \"udp\", queue = 20000 }]\nmodule = [{ module = \"trajectory\" }]\n\
                    [[session]]\nname = \"bad\"\nchannel = [{ interface = \"b\", filter = \"udp\" }]\n";
    let mut testbed = Testbed::new(sessions);
    assert!(testbed.load("bad", json!({"module": "bad.wasm"}), &bytes).get("done").is_some());
    for round in 1..=5u64 {
        testbed.send(&vec![udp(1, b"x"); 1000]);
        testbed.until("the good module has received all packets", |testbed| {
            testbed.count("good", "trajectory", "packets") == 1000 * round
        });
    }
    testbed.until("the bad module has lost all packets", |testbed| {
        let channel = testbed.part("bad", "channels", "main");
        let lost = channel["drops"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum::<u64>();
        testbed.count("bad", "bad", "faults") + lost == 5000
    });
    assert!(testbed.part("bad", "modules", "bad")["last_fault"].as_str().unwrap().contains("unreachable"));
    assert_eq!(testbed.part("good", "channels", "main")["drops"], json!({}));
}

#[test]
fn an_endless_module_is_suspended_and_unloaded_and_others_lose_nothing() {
    if !is_inside("isolation::an_endless_module_is_suspended_and_unloaded_and_others_lose_nothing") {
        return;
    }
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
        (loop $l (br_if $l (i32.ne (i32.load (i32.const 64)) (i32.const 1)))) (i32.const 0))"#;
    let bytes = assemble(&text(body), Some(MANIFEST.replace("NAME", "endless").as_bytes()));
    let sessions = "[[session]]\nname = \"good\"\ncpu = [{ period = \"20ms\", slice = \"2ms\", borrow = true }]\n\
                    channel = [{ interface = \"b\", filter = \"udp\", queue = 20000 }]\nmodule = [{ module = \"trajectory\" }]\n\
                    [[session]]\nname = \"bad\"\ncpu = [{ period = \"20ms\", slice = \"1ms\" }]\n\
                    channel = [{ interface = \"b\", filter = \"udp\" }]\n\
                    [[session]]\nname = \"poor\"\nchannel = [{ interface = \"b\", filter = \"udp\" }]\n";
    let mut testbed = Testbed::new(sessions);
    // A session without a CPU reservation can load only proved modules.
    let why = testbed.load("poor", json!({"module": "endless.wasm"}), &bytes)["refused"]["why"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(why.contains("is metered, and virtual CPU `main` has no reservation"), "{why}");
    assert!(testbed.load("bad", json!({"module": "endless.wasm"}), &bytes).get("done").is_some());
    testbed.send(&vec![udp(1, b"x"); 2000]);
    testbed.until("the good module has received all packets", |testbed| {
        testbed.count("good", "trajectory", "packets") == 2000
    });
    testbed.until("the bad module is unloaded", |testbed| {
        testbed.log().contains("it has exceeded its limits too often, so it is unloaded")
    });
    assert_eq!(testbed.part("good", "channels", "main")["drops"], json!({}));
    assert!(testbed.stop().success());
    let ledger = testbed.ledger();
    let unloaded =
        ledger.iter().find(|entry| entry["kind"] == "module-unloaded" && entry["module"] == "endless");
    assert_eq!(unloaded.unwrap()["reason"], "strikes");
}

#[test]
fn a_long_tick_is_executed_in_slices() {
    if !is_inside("isolation::a_long_tick_is_executed_in_slices") {
        return;
    }
    // The ticks may take longer than the node's longest blocking time of a core.
    let sessions = "[[session]]\nname = \"long\"\nmemory = \"256 MiB\"\ncpu = [{ period = \"20ms\", slice = \"2ms\" }]\n\
                    channel = [{ interface = \"b\", filter = \"udp\", queue = 10000 }]\n\
                    module = [{ module = \"lrd\" }, { module = \"syn-flood\" }]\n";
    let mut testbed = Testbed::new(sessions);
    for _ in 0..30 {
        testbed.send(&vec![udp(1, b"x"); 100]);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    testbed.until("both have seen all", |testbed| {
        ["lrd", "syn-flood"].iter().all(|module| testbed.count("long", module, "packets") == 3000)
    });
    assert_eq!(
        (testbed.count("long", "lrd", "faults"), testbed.count("long", "syn-flood", "faults")),
        (0, 0)
    );
    assert!(testbed.stop().success());
    assert_eq!(testbed.ledger_usage("long", "packets_in"), 6000);
}
