//! Packets that modules keep beyond a call.

use crate::module::{MANIFEST, assemble, text};
use crate::testbed::{Testbed, is_inside, udp};
use serde_json::{Value, json};

const IMPORTS: &str = r#"(import "weir" "keep" (func $keep (param i32) (result i32)))
    (import "weir" "release" (func $release (param i32) (result i32)))
    (memory "#;

/// A module that keeps the packets to port 1, and emits a row for each packet that it could keep. (A packet may cause 64 rows.)
/// At port 2 it emits a row for each kept packet that is unchanged, at port 3 it releases all, and at port 4 it loops forever.
pub fn keeping_module() -> Vec<u8> {
    let body = r#"(global $n (mut i32) (i32.const 0))
        (func $row (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8))))
        (func (export "weir_packet") (param $d i32) (result i32) (local $port i32) (local $i i32) (local $handle i32)
            (local.set $port (i32.load16_u offset=46 (local.get $d)))
            (if (i32.and (i32.eq (local.get $port) (i32.const 1)) (i32.lt_u (global.get $n) (i32.const 1000)))
                (then
                    (local.set $i (i32.mul (global.get $n) (i32.const 16)))
                    (local.set $handle (call $keep (local.get $d)))
                    (if (i32.ge_s (local.get $handle) (i32.const 0))
                        (then
                            (i32.store offset=8192 (local.get $i) (local.get $handle))
                            (i32.store offset=8196 (local.get $i) (i32.load offset=8 (local.get $d)))
                            (i64.store offset=8200 (local.get $i)
                                (i64.load offset=42 (i32.load offset=8 (local.get $d))))
                            (global.set $n (i32.add (global.get $n) (i32.const 1)))
                            (call $row)))))
            (local.set $i (i32.const 0))
            (if (i32.eq (local.get $port) (i32.const 2)) (then
                (block $end (loop $next
                    (br_if $end (i32.ge_u (local.get $i) (i32.mul (global.get $n) (i32.const 16))))
                    (if (i64.eq (i64.load offset=8200 (local.get $i))
                            (i64.load offset=42 (i32.load offset=8196 (local.get $i))))
                        (then (call $row)))
                    (local.set $i (i32.add (local.get $i) (i32.const 16)))
                    (br $next)))))
            (if (i32.eq (local.get $port) (i32.const 3)) (then
                (block $end (loop $next
                    (br_if $end (i32.ge_u (local.get $i) (i32.mul (global.get $n) (i32.const 16))))
                    (drop (call $release (i32.load offset=8192 (local.get $i))))
                    (local.set $i (i32.add (local.get $i) (i32.const 16)))
                    (br $next)))
                (global.set $n (i32.const 0))))
            (if (i32.eq (local.get $port) (i32.const 4)) (then
                (loop $l (br_if $l (i32.ne (i32.load (i32.const 72)) (i32.const 1))))))
            (i32.const 0))"#;
    let manifest = format!("keep = 1000\n{}", MANIFEST.replace("NAME", "keeper"));
    assemble(&text(body).replacen("(memory ", IMPORTS, 1), Some(manifest.as_bytes()))
}

pub fn packets_to_keep(count: u64) -> Vec<Vec<u8>> {
    (0..count).map(|number| udp(1, &number.to_le_bytes().repeat(4))).collect()
}

fn memory(testbed: &Testbed, session: &str) -> u64 {
    let snapshot = testbed.snapshot();
    let sessions = snapshot["sessions"].as_array().unwrap();
    sessions.iter().find(|shot| shot["name"] == session).unwrap()["memory_used"].as_u64().unwrap()
}

/// A session whose module keeps packets; `channel` has further keys of its channel.
fn keeping_session(name: &str, slice: &str, channel: Value) -> Value {
    let mut of = json!({"interface": "b", "filter": "udp", "queue": 20_000});
    of.as_object_mut().unwrap().extend(channel.as_object().unwrap().clone());
    json!({"create": {"name": name, "memory": "64 MiB", "cpu": [{"period": "20ms", "slice": slice}], "channel": [of]}})
}

/// A session that keeps nothing, and must lose no packets.
fn lossless_session(visibility: &str) -> String {
    format!(
        "[[session]]\nname = \"good\"\npriority = 9\ncpu = [{{ period = \"20ms\", slice = \"4ms\", borrow = true }}]\n\
         channel = [{{ interface = \"b\", filter = \"udp\", visibility = \"{visibility}\", queue = 20000 }}]\nmodule = [{{ module = \"trajectory\" }}]\n"
    )
}

fn load(testbed: &Testbed, session: &str) {
    let reply = testbed.load(session, json!({"module": "keeper.wasm"}), &keeping_module());
    assert!(reply.get("done").is_some(), "{reply}");
}

#[test]
fn kept_packets_stay_unchanged_and_are_charged_until_their_release() {
    if !is_inside("kept_packets::kept_packets_stay_unchanged_and_are_charged_until_their_release") {
        return;
    }
    let mut testbed = Testbed::new(&lossless_session("selected"));
    testbed.request(keeping_session("alice", "2ms", json!({})));
    load(&testbed, "alice");
    let empty = memory(&testbed, "alice");
    let rows = |testbed: &Testbed| testbed.count("alice", "keeper", "records");
    let mut sent = 0;
    for round in 1..=3 {
        testbed.send(&packets_to_keep(50));
        testbed.until("the packets are kept", |testbed| rows(testbed) == (2 * round - 1) * 50);
        assert!(memory(&testbed, "alice") > empty, "the memory is its session's");
        // Much more than one block of memory passes both sessions, which share a selection.
        for _ in 0..20 {
            testbed.send(&vec![udp(7, &[9; 1000]); 200]);
            sent += 200;
            testbed.until("the packets have passed", |testbed| {
                testbed.count("good", "trajectory", "packets") >= sent
                    && testbed.part("alice", "channels", "main")["waiting"] == 0
            });
        }
        testbed.send(&[udp(2, b"x")]);
        testbed.until("all kept packets are unchanged", |testbed| rows(testbed) == 2 * round * 50);
        testbed.send(&[udp(3, b"x")]);
        testbed.until("the packets are released", |testbed| memory(testbed, "alice") == empty);
    }
    for session in ["alice", "good"] {
        assert_eq!(testbed.part(session, "channels", "main")["drops"], json!({}), "{session}");
    }
    assert_eq!(testbed.count("alice", "keeper", "faults"), 0);
}

#[test]
fn a_closed_or_unloaded_module_keeps_no_packets() {
    if !is_inside("kept_packets::a_closed_or_unloaded_module_keeps_no_packets") {
        return;
    }
    // With AF_XDP the frames of kept packets are missing for all other sessions.
    let mut testbed = Testbed::new(&format!("kind = \"xdp\"\n{}", lossless_session("all")));
    let seen = |testbed: &Testbed| {
        let lost = testbed.part("good", "channels", "main")["drops"].clone();
        let lost: u64 = lost.as_object().unwrap().values().filter_map(Value::as_u64).sum();
        testbed.count("good", "trajectory", "packets") + lost
    };
    let mut sent = 0;
    let mut send = |testbed: &mut Testbed, frames: &[Vec<u8>]| {
        testbed.send(frames);
        sent += frames.len() as u64;
        testbed.until("the good module has received the packets", |testbed| seen(testbed) >= sent);
    };
    let visibility = |on_lag: &str| json!({"visibility": "all", "lag_max": "64 KiB", "on_lag": on_lag});
    // Each time the maximum that one module may keep of the interface's memory: four times that exceeds the memory.
    for round in 0..6 {
        let (on_lag, slice) = if round % 3 == 2 { ("close", "100us") } else { ("drop", "2ms") };
        testbed.request(keeping_session("greedy", slice, visibility(on_lag)));
        load(&testbed, "greedy");
        for at in 1..=9u64 {
            send(&mut testbed, &packets_to_keep(100));
            testbed.until("the packets are kept", |testbed| {
                testbed.count("greedy", "keeper", "records") == at * 100
            });
        }
        match round % 3 {
            0 => testbed.request(json!({"close": {"session": "greedy"}})),
            1 => {
                testbed.request(json!({"unload": {"session": "greedy", "module": "keeper"}}));
                testbed.request(json!({"close": {"session": "greedy"}}));
            }
            _ => {
                // With this packet the module does not return for a long time, and lags.
                send(&mut testbed, &[udp(4, b"x")]);
                while testbed.snapshot()["sessions"].as_array().unwrap().len() > 1 {
                    send(&mut testbed, &vec![udp(7, &[9; 1000]); 100]);
                }
            }
        }
        // The other session has lost nothing.
        assert_eq!(testbed.part("good", "channels", "main")["drops"], json!({}), "round {round}");
    }
    assert_eq!(testbed.log().matches("session greedy lags further behind").count(), 2, "{}", testbed.log());
    // As many packets as the whole memory of the interface holds pass again.
    for _ in 0..60 {
        send(&mut testbed, &vec![udp(7, &[9; 1000]); 200]);
    }
    assert_eq!(testbed.part("good", "channels", "main")["drops"], json!({}));
    assert!(testbed.stop().success());
}
