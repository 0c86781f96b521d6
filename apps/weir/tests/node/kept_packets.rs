//! Packets that modules keep, in a node that runs.

use crate::module::{MANIFEST, assemble, text};
use crate::place::{Place, is_inside, udp};
use serde_json::{Value, json};

const IMPORTS: &str = r#"(import "weir" "keep" (func $keep (param i32) (result i32)))
    (import "weir" "release" (func $release (param i32) (result i32)))
    (memory "#;

/// Keeps what is sent to port 1, and emits a row for each packet that it could keep. (A packet may cause 64.) At port 2 it emits a row for each that is still what it was, at port 3
/// it lets go of all, at port 4 it never ends.
pub fn keeper() -> Vec<u8> {
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

pub fn to_keep(count: u64) -> Vec<Vec<u8>> {
    (0..count).map(|number| udp(1, &number.to_le_bytes().repeat(4))).collect()
}

fn memory(place: &Place, session: &str) -> u64 {
    let snapshot = place.snapshot();
    let sessions = snapshot["sessions"].as_array().unwrap();
    sessions.iter().find(|shot| shot["name"] == session).unwrap()["memory_used"].as_u64().unwrap()
}

/// A session that keeps; `sees` and the like are its channel's.
fn keeping(name: &str, slice: &str, channel: Value) -> Value {
    let mut of = json!({"interface": "b", "filter": "udp", "queue": 20_000});
    of.as_object_mut().unwrap().extend(channel.as_object().unwrap().clone());
    json!({"create": {"name": name, "memory": "64 MiB", "cpu": [{"period": "20ms", "slice": slice}], "channel": [of]}})
}

/// A session that keeps nothing, and has to have everything.
fn good(sees: &str) -> String {
    format!(
        "[[session]]\nname = \"good\"\npriority = 9\ncpu = [{{ period = \"20ms\", slice = \"4ms\", spare = true }}]\n\
         channel = [{{ interface = \"b\", filter = \"udp\", sees = \"{sees}\", queue = 20000 }}]\nmodule = [{{ module = \"trajectory\" }}]\n"
    )
}

fn load(place: &Place, session: &str) {
    let reply = place.load(session, json!({"module": "keeper.wasm"}), &keeper());
    assert!(reply.get("done").is_some(), "{reply}");
}

#[test]
fn what_is_kept_stays_as_it_is_and_is_paid_for_until_it_is_let_go_of() {
    if !is_inside("keeping::what_is_kept_stays_as_it_is_and_is_paid_for_until_it_is_let_go_of") {
        return;
    }
    let mut place = Place::new(&good("selected"));
    place.done(keeping("alice", "2ms", json!({})));
    load(&place, "alice");
    let empty = memory(&place, "alice");
    let rows = |place: &Place| place.count("alice", "keeper", "records");
    let mut sent = 0;
    for round in 1..=3 {
        place.send(&to_keep(50));
        place.until("they are kept", |place| rows(place) == (2 * round - 1) * 50);
        assert!(memory(&place, "alice") > empty, "the memory is its session's");
        // Much more than a piece of memory goes by, for both of them: they share what the filter selects.
        for _ in 0..20 {
            place.send(&vec![udp(7, &[9; 1000]); 200]);
            sent += 200;
            place.until("they have gone by", |place| {
                place.count("good", "trajectory", "packets") >= sent
                    && place.part("alice", "channels", "main")["waiting"] == 0
            });
        }
        place.send(&[udp(2, b"x")]);
        place.until("all are what they were", |place| rows(place) == 2 * round * 50);
        place.send(&[udp(3, b"x")]);
        place.until("they are let go of", |place| memory(place, "alice") == empty);
    }
    for session in ["alice", "good"] {
        assert_eq!(place.part(session, "channels", "main")["drops"], json!({}), "{session}");
    }
    assert_eq!(place.count("alice", "keeper", "faults"), 0);
}

#[test]
fn who_keeps_and_is_closed_or_ended_holds_nothing_any_more() {
    if !is_inside("keeping::who_keeps_and_is_closed_or_ended_holds_nothing_any_more") {
        return;
    }
    // By AF_XDP the frames of packets that are kept are missing for all others.
    let mut place = Place::new(&format!("kind = \"xdp\"\n{}", good("all")));
    let seen = |place: &Place| {
        let lost = place.part("good", "channels", "main")["drops"].clone();
        let lost: u64 = lost.as_object().unwrap().values().filter_map(Value::as_u64).sum();
        place.count("good", "trajectory", "packets") + lost
    };
    let mut sent = 0;
    let mut send = |place: &mut Place, frames: &[Vec<u8>]| {
        place.send(frames);
        sent += frames.len() as u64;
        place.until("the good one has had them", |place| seen(place) >= sent);
    };
    let sees = |late: &str| json!({"sees": "all", "lag": "64 KiB", "late": late});
    // Each time as many as one module may keep of the interface's memory: four times that is more than there is.
    for round in 0..6 {
        let (late, slice) = if round % 3 == 2 { ("terminate", "100us") } else { ("lose", "2ms") };
        place.done(keeping("greedy", slice, sees(late)));
        load(&place, "greedy");
        for at in 1..=9u64 {
            send(&mut place, &to_keep(100));
            place.until("they are kept", |place| place.count("greedy", "keeper", "records") == at * 100);
        }
        match round % 3 {
            0 => place.done(json!({"close": {"session": "greedy"}})),
            1 => {
                place.done(json!({"unload": {"session": "greedy", "module": "keeper"}}));
                place.done(json!({"close": {"session": "greedy"}}));
            }
            _ => {
                // With this one it does not come to an end for long, and lags.
                send(&mut place, &[udp(4, b"x")]);
                while place.snapshot()["sessions"].as_array().unwrap().len() > 1 {
                    send(&mut place, &vec![udp(7, &[9; 1000]); 100]);
                }
            }
        }
        // The good one has lost nothing.
        assert_eq!(place.part("good", "channels", "main")["drops"], json!({}), "round {round}");
    }
    assert_eq!(place.said().matches("session greedy lags further behind").count(), 2, "{}", place.said());
    // As much as all of the interface's memory goes through it again.
    for _ in 0..60 {
        send(&mut place, &vec![udp(7, &[9; 1000]); 200]);
    }
    assert_eq!(place.part("good", "channels", "main")["drops"], json!({}));
    assert!(place.stop().success());
}
