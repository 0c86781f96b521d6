//! Services between sessions, honest and hostile.

use crate::module::{MANIFEST, assemble, text};
use crate::place::{Place, is_inside, udp};
use serde_json::{Value, json};

const IMPORTS: &str = r#"(import "weir" "call" (func $call (param i32 i32 i32 i64) (result i64)))
    (import "weir" "message" (func $message (param i32 i32) (result i32)))
    (import "weir" "reply" (func $reply (param i64 i32 i32) (result i32)))
    (memory "#;

/// Offers `lookup`, and does this when it is called (`$call`); the message is at 128.
fn server(act: &str) -> Vec<u8> {
    let body = format!(
        r#"(func (export "weir_packet") (param i32) (result i32) (i32.const 0))
        (func (export "weir_serve") (param $call i64) (param $service i32) (param $len i32) (local $i i32)
            (drop (call $message (i32.const 128) (i32.const 16)))
            {act})"#
    );
    let manifest = MANIFEST.replace("NAME", "server")
        + "[[service]]\nname = 'lookup'\nrequest = '16 B'\nanswer = '16 B'\n";
    assemble(&text(&body).replacen("(memory ", IMPORTS, 1), Some(manifest.as_bytes()))
}

/// Calls `lookup` so often with each packet, with a number in so many bytes; emits a record for each answer that is the number's successor.
fn client(times: u32, bytes: u32, within: u64) -> Vec<u8> {
    let body = format!(
        r#"(func (export "weir_packet") (param i32) (result i32) (local $left i32)
            (local.set $left (i32.const {times}))
            (loop $next
                (i64.store (i32.const 64) (i64.const 41))
                (drop (call $call (i32.const 0) (i32.const 64) (i32.const {bytes}) (i64.const {within})))
                (br_if $next (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
            (i32.const 0))
        (func (export "weir_answer") (param $ticket i64) (param $status i32) (param $len i32)
            (if (local.get $status) (then (return)))
            (drop (call $message (i32.const 64) (i32.const 16)))
            (if (i64.ne (i64.load (i32.const 64)) (i64.const 42)) (then (return)))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8))))"#
    );
    let manifest = format!("calls = ['lookup']\n{}", MANIFEST.replace("NAME", "client"));
    assemble(&text(&body).replacen("(memory ", IMPORTS, 1), Some(manifest.as_bytes()))
}

/// Answers with the successor.
const ANSWER: &str = "(i64.store (i32.const 128) (i64.add (i64.load (i32.const 128)) (i64.const 1)))
    (drop (call $reply (local.get $call) (i32.const 128) (i32.const 8)))";

const SECOND: u64 = 1_000_000_000;

/// Sends these frames so often, each time when the module of a session has the answer to the last.
fn rounds(place: &mut Place, times: std::ops::RangeInclusive<u64>, frames: &[Vec<u8>], session: &str) {
    for round in times {
        place.send(frames);
        place.until("the answer has come", |place| place.count(session, "m", "records") == round);
    }
}

/// A session without packets that offers `lookup` to these.
fn offers(name: &str, callers: &str, more: &str) -> String {
    format!(
        "[[session]]\nname = \"{name}\"\nmemory = \"1 MiB\"\ncpu = [{{ period = \"20ms\", slice = \"1ms\" }}]\n\
         channel = [{{ interface = \"b\", filter = \"tcp\" }}]\n\
         offer = [{{ service = \"lookup\", callers = [{callers}]{more} }}]\n"
    )
}

/// A session that gets packets to this port, and uses what that one offers.
fn uses(name: &str, port: u16, of: &str, more: &str) -> String {
    format!(
        "[[session]]\nname = \"{name}\"\nmemory = \"8 MiB\"\nchannel = [{{ interface = \"b\", filter = \"udp port {port}\" }}]\n\
         use = [{{ service = \"lookup\", of = \"{of}\"{more} }}]\n"
    )
}

fn load(place: &Place, session: &str, module: &[u8]) {
    let reply = place.load(session, json!({"module": "m.wasm", "name": "m"}), module);
    assert!(reply.get("done").is_some(), "{session}: {reply}");
}

/// What a session did by services.
fn did(place: &Place, session: &str) -> Value {
    let snapshot = place.snapshot();
    let sessions = snapshot["sessions"].as_array().unwrap();
    sessions.iter().find(|shot| shot["name"] == session).unwrap()["services"].clone()
}

fn count(place: &Place, session: &str, what: &str) -> u64 {
    did(place, session)[what].as_u64().unwrap()
}

#[test]
fn a_service_is_called_and_who_agreed_to_pay_pays() {
    if !is_inside("services::a_service_is_called_and_who_agreed_to_pay_pays") {
        return;
    }
    let sessions = offers("asn", "\"alice\", \"bob\"", ", pays = \"caller\"")
        + &uses("alice", 1, "asn", ", pays = \"1ms\"")
        + &uses("bob", 1, "asn", "")
        + &uses("eve", 1, "asn", ", pays = \"1ms\"");
    let mut place = Place::new(&sessions);
    let work = "(local.set $i (i32.const 20000))
        (loop $l (br_if $l (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))";
    load(&place, "asn", &server(&format!("{work}{ANSWER}")));
    for session in ["alice", "bob", "eve"] {
        load(&place, session, &client(1, 8, 30 * SECOND));
    }
    rounds(&mut place, 1..=40, &[udp(1, b"x")], "alice");
    // Bob has not agreed to pay, and eve is not named.
    place.until("all have tried", |place| {
        ["bob", "eve"].iter().all(|session| count(place, session, "refused") == 40)
    });
    let alice = did(&place, "alice");
    assert_eq!((&alice["calls"], &alice["answered"], &alice["refused"]), (&json!(40), &json!(40), &json!(0)));
    assert_eq!(count(&place, "asn", "served"), 40);
    place.until("it is paid", |place| {
        let (owed, earned) = (count(place, "alice", "owed_ns"), count(place, "asn", "earned_ns"));
        owed == earned && owed > 40 * 1000
    });
    let owed = count(&place, "alice", "owed_ns");
    assert!(owed <= 40_000_000, "no call costs more than was agreed to: {owed}");
    assert!(place.stop().success());
    assert!(place.billed("alice", "cpu_ns") >= owed);
}

#[test]
fn hostile_callees_make_nobody_wait_and_trap_nobody() {
    if !is_inside("services::hostile_callees_make_nobody_wait_and_trap_nobody") {
        return;
    }
    let endless = "(loop $l (br_if $l (i32.ne (i32.load (i32.const 256)) (i32.const 1))))";
    let flood = format!(
        "{ANSWER} (local.set $i (i32.const 200))
        (loop $l
            (drop (call $reply (i64.extend_i32_u (local.get $i)) (i32.const 128) (i32.const 8)))
            (drop (call $reply (local.get $call) (i32.const 128) (i32.const 8)))
            (drop (call $reply (local.get $call) (i32.const 128) (i32.const 17)))
            (br_if $l (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))"
    );
    let kinds = [("silent", ""), ("endless", endless), ("trap", "unreachable"), ("flood", flood.as_str())];
    let mut sessions = String::new();
    for (at, (name, _)) in (1..).zip(kinds) {
        sessions += &offers(name, &format!("\"of-{name}\""), "");
        sessions += &uses(&format!("of-{name}"), at, name, "");
    }
    sessions += &offers("leaving", "\"of-leaving\"", "");
    sessions += &uses("of-leaving", 5, "leaving", "");
    let mut place = Place::new(&sessions);
    for (name, act) in kinds {
        load(&place, name, &server(act));
        // Who is answered, or told that nobody will, is in time also on a slow machine.
        let within = if ["silent", "endless"].contains(&name) { SECOND / 5 } else { 60 * SECOND };
        load(&place, &format!("of-{name}"), &client(1, 8, within));
    }
    load(&place, "leaving", &server(""));
    load(&place, "of-leaving", &client(1, 8, 60 * SECOND));
    for _ in 0..5 {
        place.send(&(1..=5u16).map(|port| udp(port, b"x")).collect::<Vec<_>>());
    }
    place.until("what waits for nobody is told that nobody comes", |place| {
        count(place, "of-leaving", "calls") == 5 && count(place, "leaving", "served") == 5
    });
    place.done(json!({"unload": {"session": "leaving", "module": "m"}}));
    let ends = |place: &Place, name: &str| {
        let it = did(place, &format!("of-{name}"));
        ["answered", "late", "failed"].map(|what| it[what].as_u64().unwrap())
    };
    place.until("each call has an end", |place| {
        kinds.iter().all(|(name, _)| ends(place, name).iter().sum::<u64>() == 5)
            && ends(place, "leaving") == [0, 0, 5]
    });
    assert_eq!(
        (ends(&place, "silent"), ends(&place, "trap"), ends(&place, "flood")),
        ([0, 5, 0], [0, 0, 5], [5, 0, 0])
    );
    // One that never ends is abandoned in the end, before or after the deadline.
    assert_eq!(ends(&place, "endless")[0], 0);
    // Others may have their turn before a call has come to its end.
    place.until("all have been served", |place| {
        count(place, "flood", "discarded") == 5 * 3 * 200 && place.count("of-flood", "m", "records") == 5
    });
    // Nobody who called has lost anything.
    for (name, _) in kinds {
        let session = format!("of-{name}");
        assert_eq!((place.count(&session, "m", "packets"), place.count(&session, "m", "faults")), (5, 0));
    }
    // What is not there any more is not waited for.
    place.send(&[udp(5, b"x")]);
    place.until("it is refused", |place| count(place, "of-leaving", "refused") == 1);
    assert!(place.stop().success());
    // Calls that had no answer are on the bills of those who called.
    let bills = place.ledger();
    let lost = |name: &str, cause: &str| -> u64 {
        let of = bills.iter().filter(|entry| entry["session"]["name"] == format!("of-{name}"));
        of.filter_map(|entry| entry["usage"]["drops"][cause].as_u64()).sum()
    };
    let of = |name| [lost(name, "deadline"), lost(name, "service-gone")];
    assert_eq!(["silent", "trap", "leaving", "flood"].map(of), [[5, 0], [0, 5], [0, 5], [0, 0]]);
}

#[test]
fn a_caller_that_floods_is_refused_and_costs_others_no_call() {
    if !is_inside("services::a_caller_that_floods_is_refused_and_costs_others_no_call") {
        return;
    }
    let sessions = offers("asn", "\"greedy\", \"modest\", \"wordy\"", ", queue = 4")
        + &uses("greedy", 1, "asn", "")
        + &uses("modest", 2, "asn", "")
        + &uses("wordy", 2, "asn", "");
    let mut place = Place::new(&sessions);
    load(&place, "asn", &server(ANSWER));
    load(&place, "greedy", &client(200, 8, 30 * SECOND));
    load(&place, "modest", &client(1, 8, 30 * SECOND));
    // Its message is longer than the service takes.
    load(&place, "wordy", &client(1, 17, 30 * SECOND));
    rounds(&mut place, 1..=20, &[udp(1, b"x"), udp(2, b"x")], "modest");
    place.until("all is answered that was accepted", |place| {
        let greedy = did(place, "greedy");
        greedy["calls"].as_u64().unwrap() + greedy["refused"].as_u64().unwrap() == 20 * 200
            && greedy["calls"] == greedy["answered"]
    });
    place.until("all have called", |place| count(place, "wordy", "refused") == 20);
    assert!(count(&place, "greedy", "refused") > 3000, "{}", did(&place, "greedy"));
    assert_eq!((count(&place, "modest", "calls"), count(&place, "modest", "refused")), (20, 0));
    assert_eq!((count(&place, "wordy", "calls"), count(&place, "wordy", "refused")), (0, 20));
    assert!(place.stop().success());
}

/// Calls the shipped hog's `make` with each packet, with these words, and emits a record for each answer.
fn asking(wish: [u32; 3]) -> Vec<u8> {
    let stores = [64, 68, 72].into_iter().zip(wish);
    let stores: String =
        stores.map(|(at, word)| format!("(i32.store (i32.const {at}) (i32.const {word}))")).collect();
    let body = format!(
        r#"(func (export "weir_packet") (param i32) (result i32)
            {stores}
            (drop (call $call (i32.const 0) (i32.const 64) (i32.const 12) (i64.const {})))
            (i32.const 0))
        (func (export "weir_answer") (param $ticket i64) (param $status i32) (param $len i32)
            (if (i32.or (local.get $status) (local.get $len)) (then (return)))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8))))"#,
        30 * SECOND
    );
    let manifest = format!("calls = ['make']\n{}", MANIFEST.replace("NAME", "asking"));
    assemble(&text(&body).replacen("(memory ", IMPORTS, 1), Some(manifest.as_bytes()))
}

#[test]
fn hog_makes_objects_for_whoever_calls_and_its_garbage_is_collected() {
    if !is_inside("services::hog_makes_objects_for_whoever_calls_and_its_garbage_is_collected") {
        return;
    }
    let uses = |name: &str, port: u16| uses(name, port, "heap", "").replace("lookup", "make");
    let heap = "[[session]]\nname = \"heap\"\nmemory = \"64 MiB\"\ncpu = [{ period = \"20ms\", slice = \"5ms\", spare = true }]\n\
        channel = [{ interface = \"b\", filter = \"tcp\" }]\n\
        offer = [{ service = \"make\", callers = [\"alice\", \"bob\", \"carol\"] }]\n";
    let mut place = Place::new(&(heap.to_owned() + &uses("alice", 1) + &uses("bob", 1) + &uses("carol", 1)));
    let set = json!({"per-tick": 0, "size": 1000, "live": 2000});
    let reply = place.load("heap", json!({"module": "hog", "name": "m", "set": set}), &[]);
    assert!(reply.get("done").is_some(), "{reply}");
    load(&place, "alice", &asking([500, 100, 1000]));
    // More than there are places, and no places at all; and only that garbage is collected.
    load(&place, "bob", &asking([3, u32::MAX, u32::MAX]));
    load(&place, "carol", &asking([0, 1, 0]));
    for round in 1..=200u64 {
        place.send(&[udp(1, b"x")]);
        place.until("all have an answer", |place| {
            ["alice", "bob", "carol"].iter().all(|session| place.count(session, "m", "records") == round)
        });
    }
    assert_eq!((count(&place, "heap", "served"), place.count("heap", "m", "faults")), (600, 0));
    // A hundred million bytes were made, of which a million lives.
    let snapshot = place.snapshot();
    let shots = snapshot["sessions"].as_array().unwrap();
    let used = shots.iter().find(|shot| shot["name"] == "heap").unwrap()["memory_used"].as_u64().unwrap();
    assert!((1_000_000..16_000_000).contains(&used), "{used}");
    assert!(place.stop().success());
}

#[test]
fn what_is_offered_and_used_changes_while_it_runs() {
    if !is_inside("services::what_is_offered_and_used_changes_while_it_runs") {
        return;
    }
    // Neither offers, names or uses anything yet.
    let none = |name: &str| {
        format!(
            "[[session]]\nname = \"{name}\"\ncpu = [{{ period = \"20ms\", slice = \"1ms\" }}]\n\
             channel = [{{ interface = \"b\", filter = \"udp port 1\" }}]\n"
        )
    };
    let mut place = Place::new(&(none("asn") + &none("alice")));
    load(&place, "asn", &server(ANSWER));
    load(&place, "alice", &client(1, 8, 30 * SECOND));
    let mut refused = 0;
    let mut is_refused = |place: &mut Place| {
        refused += 1;
        place.send(&[udp(1, b"x")]);
        place.until("it is refused", |place| count(place, "alice", "refused") == refused);
    };
    is_refused(&mut place);
    let uses = |pays: &str| json!({"change": {"session": "alice", "use": [{"service": "lookup", "of": "asn", "pays": pays}]}});
    place.done(uses("1ms"));
    is_refused(&mut place);
    let offers = |callers: &[&str]| json!({"change": {"session": "asn", "offer": [{"service": "lookup", "callers": callers, "pays": "caller"}]}});
    place.done(offers(&["alice"]));
    rounds(&mut place, 1..=10, &[udp(1, b"x")], "alice");
    place.until("alice pays", |place| count(place, "alice", "owed_ns") > 0);
    let snapshot = place.snapshot();
    assert_eq!(snapshot["sessions"][0]["use"][0]["of"], "asn", "{snapshot}");
    assert_eq!(snapshot["sessions"][1]["offer"][0]["callers"], json!(["alice"]), "{snapshot}");
    // For somebody else, for alice again, and for nobody.
    place.done(offers(&["bob"]));
    is_refused(&mut place);
    place.done(offers(&["bob", "alice"]));
    rounds(&mut place, 11..=12, &[udp(1, b"x")], "alice");
    place.done(json!({"change": {"session": "asn", "withdraw": ["lookup"]}}));
    is_refused(&mut place);
    place.done(offers(&["alice"]));
    place.done(json!({"change": {"session": "alice", "forgo": ["lookup"]}}));
    is_refused(&mut place);
    let why = place.refused(json!({"change": {"session": "alice", "forgo": ["lookup"]}}));
    assert!(why.contains("there is no use `lookup`; there are none"), "{why}");
    // What is refused as a whole has changed nothing.
    let both = json!({"change": {"session": "asn", "withdraw": ["lookup"], "memory": "900 GiB"}});
    assert!(place.refused(both).contains("more than is left"));
    place.done(uses("1ms"));
    rounds(&mut place, 13..=14, &[udp(1, b"x")], "alice");
    assert_eq!(place.count("alice", "m", "faults") + place.count("asn", "m", "faults"), 0);
    assert!(place.stop().success());
}
