//! What others' modules see, and what they can do to others.

use crate::module::{MANIFEST, assemble, text};
use crate::place::{Place, is_inside, udp};
use serde_json::json;

/// What nobody but its addressee may see.
const SECRET: u64 = 0x5E_C2_E7_5E_C2_E7_00_11;

/// A module that goes through all the memory that it can read, a piece with each packet, looking for eight bytes, at every eighth address.
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

/// Fills the frame's eighth addresses with the secret, wherever the frame itself begins.
fn secret() -> Vec<u8> {
    udp(99, &SECRET.to_le_bytes().repeat(100))
}

#[test]
fn a_module_that_searches_all_memory_finds_no_packet_of_others() {
    if !is_inside("isolation::a_module_that_searches_all_memory_finds_no_packet_of_others") {
        return;
    }
    let session = |name: &str, sees: &str| {
        format!(
            "[[session]]\nname = \"{name}\"\nmemory = \"32 MiB\"\ncpu = [{{ period = \"50ms\", slice = \"15ms\" }}]\n\
             channel = [{{ interface = \"b\", filter = \"udp port 53\", sees = \"{sees}\" }}]\n"
        )
    };
    let mut place = Place::new(&(session("all", "all") + &session("some", "selected")));
    for name in ["all", "some"] {
        let reply = place.load(name, json!({"module": "searcher.wasm"}), &searcher());
        assert!(reply.get("done").is_some(), "{reply}");
    }
    // Secrets among packets that both may see, at all eight alignments.
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
        place.send(&frames);
        place.until("both have seen them", |place| {
            ["all", "some"].iter().all(|name| place.count(name, "searcher", "packets") == sent)
        });
    }
    // The search itself finds what is there: who sees all of the interface's memory finds the secret …
    assert!(place.count("all", "searcher", "records") > 0);
    // … and who sees a selection does not, though it has gone through all of its memory many times.
    assert_eq!(
        place.count("some", "searcher", "records") + place.count("some", "searcher", "records_lost"),
        0
    );
    assert_eq!(place.count("some", "searcher", "faults"), 0);
}

#[test]
fn a_module_that_traps_at_every_packet_costs_others_nothing() {
    if !is_inside("isolation::a_module_that_traps_at_every_packet_costs_others_nothing") {
        return;
    }
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32) unreachable)"#;
    let bytes = assemble(&text(body), Some(MANIFEST.replace("NAME", "bad").as_bytes()));
    let sessions = "[[session]]\nname = \"good\"\ncpu = [{ period = \"10ms\", slice = \"2ms\", spare = true }]\n\
                    channel = [{ interface = \"b\", filter = \"udp\", queue = 20000 }]\nmodule = [{ module = \"trajectory\" }]\n\
                    [[session]]\nname = \"bad\"\nchannel = [{ interface = \"b\", filter = \"udp\" }]\n";
    let mut place = Place::new(sessions);
    assert!(place.load("bad", json!({"module": "bad.wasm"}), &bytes).get("done").is_some());
    for round in 1..=5u64 {
        place.send(&vec![udp(1, b"x"); 1000]);
        place.until("the good one has seen all", |place| {
            place.count("good", "trajectory", "packets") == 1000 * round
        });
    }
    place.until("the bad one has lost all", |place| {
        let channel = place.part("bad", "channels", "main");
        let lost = channel["drops"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum::<u64>();
        place.count("bad", "bad", "faults") + lost == 5000
    });
    assert!(place.part("bad", "modules", "bad")["last_fault"].as_str().unwrap().contains("unreachable"));
    assert_eq!(place.part("good", "channels", "main")["drops"], json!({}));
}

#[test]
fn a_module_that_never_ends_is_suspended_and_at_last_unloaded_and_others_lose_nothing() {
    if !is_inside(
        "isolation::a_module_that_never_ends_is_suspended_and_at_last_unloaded_and_others_lose_nothing",
    ) {
        return;
    }
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
        (loop $l (br_if $l (i32.ne (i32.load (i32.const 64)) (i32.const 1)))) (i32.const 0))"#;
    let bytes = assemble(&text(body), Some(MANIFEST.replace("NAME", "endless").as_bytes()));
    let sessions = "[[session]]\nname = \"good\"\ncpu = [{ period = \"20ms\", slice = \"2ms\", spare = true }]\n\
                    channel = [{ interface = \"b\", filter = \"udp\", queue = 20000 }]\nmodule = [{ module = \"trajectory\" }]\n\
                    [[session]]\nname = \"bad\"\ncpu = [{ period = \"20ms\", slice = \"1ms\" }]\n\
                    channel = [{ interface = \"b\", filter = \"udp\" }]\n\
                    [[session]]\nname = \"poor\"\nchannel = [{ interface = \"b\", filter = \"udp\" }]\n";
    let mut place = Place::new(sessions);
    // Who has reserved nothing runs only what is proved.
    let why = place.load("poor", json!({"module": "endless.wasm"}), &bytes)["refused"]["why"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(why.contains("is metered, and virtual processor `main` has no reservation"), "{why}");
    assert!(place.load("bad", json!({"module": "endless.wasm"}), &bytes).get("done").is_some());
    place.send(&vec![udp(1, b"x"); 2000]);
    place.until("the good one has seen all", |place| place.count("good", "trajectory", "packets") == 2000);
    place.until("the bad one is unloaded", |place| {
        place.said().contains("was over its limits too often, and is unloaded")
    });
    assert_eq!(place.part("good", "channels", "main")["drops"], json!({}));
    assert!(place.stop().success());
    let ledger = place.ledger();
    let unloaded =
        ledger.iter().find(|entry| entry["kind"] == "module-unloaded" && entry["module"] == "endless");
    assert_eq!(unloaded.unwrap()["reason"], "strikes");
}

#[test]
fn a_tick_that_takes_long_is_done_in_parts() {
    if !is_inside("isolation::a_tick_that_takes_long_is_done_in_parts") {
        return;
    }
    // Their ticks can take longer than anybody may keep the core here.
    let sessions = "[[session]]\nname = \"long\"\nmemory = \"256 MiB\"\ncpu = [{ period = \"20ms\", slice = \"2ms\" }]\n\
                    channel = [{ interface = \"b\", filter = \"udp\", queue = 10000 }]\n\
                    module = [{ module = \"lrd\" }, { module = \"syn-flood\" }]\n";
    let mut place = Place::new(sessions);
    for _ in 0..30 {
        place.send(&vec![udp(1, b"x"); 100]);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    place.until("both have seen all", |place| {
        ["lrd", "syn-flood"].iter().all(|module| place.count("long", module, "packets") == 3000)
    });
    assert_eq!((place.count("long", "lrd", "faults"), place.count("long", "syn-flood", "faults")), (0, 0));
    assert!(place.stop().success());
    assert_eq!(place.billed("long", "packets_in"), 6000);
}
