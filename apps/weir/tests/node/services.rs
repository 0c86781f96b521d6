//! Services between sessions, with honest and hostile callers and callees.

use crate::module::{MANIFEST, assemble, text};
use crate::testbed::{Testbed, is_inside, udp};
use serde_json::{Value, json};

const IMPORTS: &str = r#"(import "weir" "call" (func $call (param i32 i32 i32 i64) (result i64)))
    (import "weir" "message" (func $message (param i32 i32) (result i32)))
    (import "weir" "reply" (func $reply (param i64 i32 i32) (result i32)))
    (memory "#;

/// A module that offers `lookup`, and executes `act` when it is called. The message is at address 128.
fn service_module(act: &str) -> Vec<u8> {
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

/// A module that calls `lookup` `times` times with each packet, with a number in a message of this length. It emits a
/// record for each reply that is the number's successor.
fn caller_module(times: u32, bytes: u32, within: u64) -> Vec<u8> {
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

/// Replies with the successor of the number.
const ANSWER: &str = "(i64.store (i32.const 128) (i64.add (i64.load (i32.const 128)) (i64.const 1)))
    (drop (call $reply (local.get $call) (i32.const 128) (i32.const 8)))";

const SECOND: u64 = 1_000_000_000;

/// Sends these frames repeatedly, each time after the session's module has the replies to the last ones.
fn send_rounds(
    testbed: &mut Testbed,
    times: std::ops::RangeInclusive<u64>,
    frames: &[Vec<u8>],
    session: &str,
) {
    for round in times {
        testbed.send(frames);
        testbed.until("the reply has arrived", |testbed| testbed.count(session, "m", "records") == round);
    }
}

/// A session without packets that offers `lookup` to these callers.
fn offering_session(name: &str, callers: &str, more: &str) -> String {
    format!(
        "[[session]]\nname = \"{name}\"\nmemory = \"1 MiB\"\ncpu = [{{ period = \"20ms\", slice = \"1ms\" }}]\n\
         channel = [{{ interface = \"b\", filter = \"tcp\" }}]\n\
         offer = [{{ service = \"lookup\", callers = [{callers}]{more} }}]\n"
    )
}

/// A session that receives packets to this port, and uses the service of session `of`.
fn calling_session(name: &str, port: u16, of: &str, more: &str) -> String {
    format!(
        "[[session]]\nname = \"{name}\"\nmemory = \"8 MiB\"\nchannel = [{{ interface = \"b\", filter = \"udp port {port}\" }}]\n\
         use = [{{ service = \"lookup\", session = \"{of}\"{more} }}]\n"
    )
}

fn load(testbed: &Testbed, session: &str, module: &[u8]) {
    let reply = testbed.load(session, json!({"module": "m.wasm", "name": "m"}), module);
    assert!(reply.get("done").is_some(), "{session}: {reply}");
}

/// The service counters of a session.
fn service_counters(testbed: &Testbed, session: &str) -> Value {
    let snapshot = testbed.snapshot();
    let sessions = snapshot["sessions"].as_array().unwrap();
    sessions.iter().find(|shot| shot["name"] == session).unwrap()["services"].clone()
}

fn count(testbed: &Testbed, session: &str, what: &str) -> u64 {
    service_counters(testbed, session)[what].as_u64().unwrap()
}

#[test]
fn a_service_call_is_charged_to_the_session_that_agreed_to_pay() {
    if !is_inside("services::a_service_call_is_charged_to_the_session_that_agreed_to_pay") {
        return;
    }
    let sessions = offering_session("asn", "\"alice\", \"bob\"", ", payer = \"caller\"")
        + &calling_session("alice", 1, "asn", ", cost_max = \"1ms\"")
        + &calling_session("bob", 1, "asn", "")
        + &calling_session("eve", 1, "asn", ", cost_max = \"1ms\"");
    let mut testbed = Testbed::new(&sessions);
    let work = "(local.set $i (i32.const 20000))
        (loop $l (br_if $l (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))";
    load(&testbed, "asn", &service_module(&format!("{work}{ANSWER}")));
    for session in ["alice", "bob", "eve"] {
        load(&testbed, session, &caller_module(1, 8, 30 * SECOND));
    }
    send_rounds(&mut testbed, 1..=40, &[udp(1, b"x")], "alice");
    // Bob has not agreed to pay, and Eve is not among the callers.
    testbed.until("all calls were made", |testbed| {
        ["bob", "eve"].iter().all(|session| count(testbed, session, "refused") == 40)
    });
    let alice = service_counters(&testbed, "alice");
    assert_eq!((&alice["calls"], &alice["answered"], &alice["refused"]), (&json!(40), &json!(40), &json!(0)));
    assert_eq!(count(&testbed, "asn", "served"), 40);
    testbed.until("the caller is charged", |testbed| {
        let (owed, earned) = (count(testbed, "alice", "debit_ns"), count(testbed, "asn", "credit_ns"));
        owed == earned && owed > 40 * 1000
    });
    let owed = count(&testbed, "alice", "debit_ns");
    assert!(owed <= 40_000_000, "no call costs more than was agreed to: {owed}");
    assert!(testbed.stop().success());
    assert!(testbed.ledger_usage("alice", "cpu_ns") >= owed);
}

#[test]
fn hostile_callees_delay_and_trap_no_caller() {
    if !is_inside("services::hostile_callees_delay_and_trap_no_caller") {
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
        sessions += &offering_session(name, &format!("\"of-{name}\""), "");
        sessions += &calling_session(&format!("of-{name}"), at, name, "");
    }
    sessions += &offering_session("leaving", "\"of-leaving\"", "");
    sessions += &calling_session("of-leaving", 5, "leaving", "");
    let mut testbed = Testbed::new(&sessions);
    for (name, act) in kinds {
        load(&testbed, name, &service_module(act));
        // Only calls without a reply need a short deadline, so that slow machines do not fail the test.
        let within = if ["silent", "endless"].contains(&name) { SECOND / 5 } else { 60 * SECOND };
        load(&testbed, &format!("of-{name}"), &caller_module(1, 8, within));
    }
    load(&testbed, "leaving", &service_module(""));
    load(&testbed, "of-leaving", &caller_module(1, 8, 60 * SECOND));
    for _ in 0..5 {
        testbed.send(&(1..=5u16).map(|port| udp(port, b"x")).collect::<Vec<_>>());
    }
    testbed.until("the call without a callee has failed", |testbed| {
        count(testbed, "of-leaving", "calls") == 5 && count(testbed, "leaving", "served") == 5
    });
    testbed.request(json!({"unload": {"session": "leaving", "module": "m"}}));
    let ends = |testbed: &Testbed, name: &str| {
        let it = service_counters(testbed, &format!("of-{name}"));
        ["answered", "timed_out", "failed"].map(|what| it[what].as_u64().unwrap())
    };
    testbed.until("each call has ended", |testbed| {
        kinds.iter().all(|(name, _)| ends(testbed, name).iter().sum::<u64>() == 5)
            && ends(testbed, "leaving") == [0, 0, 5]
    });
    assert_eq!(
        (ends(&testbed, "silent"), ends(&testbed, "trap"), ends(&testbed, "flood")),
        ([0, 5, 0], [0, 0, 5], [5, 0, 0])
    );
    // An endless call is aborted, before or after the deadline.
    assert_eq!(ends(&testbed, "endless")[0], 0);
    // Other calls may be served before the aborted call has ended.
    testbed.until("all have been served", |testbed| {
        count(testbed, "flood", "discarded") == 5 * 3 * 200 && testbed.count("of-flood", "m", "records") == 5
    });
    // The callers have lost nothing.
    for (name, _) in kinds {
        let session = format!("of-{name}");
        assert_eq!((testbed.count(&session, "m", "packets"), testbed.count(&session, "m", "faults")), (5, 0));
    }
    // A call to an unloaded module fails at once.
    testbed.send(&[udp(5, b"x")]);
    testbed.until("the call is refused", |testbed| count(testbed, "of-leaving", "refused") == 1);
    assert!(testbed.stop().success());
    // Calls without a reply are charged to the callers.
    let entries = testbed.ledger();
    let lost = |name: &str, cause: &str| -> u64 {
        let of = entries.iter().filter(|entry| entry["session"]["name"] == format!("of-{name}"));
        of.filter_map(|entry| entry["usage"]["drops"][cause].as_u64()).sum()
    };
    let of = |name| [lost(name, "deadline"), lost(name, "service-gone")];
    assert_eq!(["silent", "trap", "leaving", "flood"].map(of), [[5, 0], [0, 5], [0, 5], [0, 0]]);
}

#[test]
fn a_flooding_caller_is_refused_and_costs_others_no_call() {
    if !is_inside("services::a_flooding_caller_is_refused_and_costs_others_no_call") {
        return;
    }
    let sessions = offering_session("asn", "\"greedy\", \"modest\", \"wordy\"", ", queue = 4")
        + &calling_session("greedy", 1, "asn", "")
        + &calling_session("modest", 2, "asn", "")
        + &calling_session("wordy", 2, "asn", "");
    let mut testbed = Testbed::new(&sessions);
    load(&testbed, "asn", &service_module(ANSWER));
    load(&testbed, "greedy", &caller_module(200, 8, 30 * SECOND));
    load(&testbed, "modest", &caller_module(1, 8, 30 * SECOND));
    // The message of this session is longer than the service accepts.
    load(&testbed, "wordy", &caller_module(1, 17, 30 * SECOND));
    send_rounds(&mut testbed, 1..=20, &[udp(1, b"x"), udp(2, b"x")], "modest");
    testbed.until("all accepted requests are answered", |testbed| {
        let greedy = service_counters(testbed, "greedy");
        greedy["calls"].as_u64().unwrap() + greedy["refused"].as_u64().unwrap() == 20 * 200
            && greedy["calls"] == greedy["answered"]
    });
    testbed.until("all have called", |testbed| count(testbed, "wordy", "refused") == 20);
    assert!(count(&testbed, "greedy", "refused") > 3000, "{}", service_counters(&testbed, "greedy"));
    assert_eq!((count(&testbed, "modest", "calls"), count(&testbed, "modest", "refused")), (20, 0));
    assert_eq!((count(&testbed, "wordy", "calls"), count(&testbed, "wordy", "refused")), (0, 20));
    assert!(testbed.stop().success());
}

/// A module that calls `make` of the shipped module hog with each packet, with these arguments, and emits a record for
/// each reply.
fn hog_caller(wish: [u32; 3]) -> Vec<u8> {
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
fn hog_allocates_objects_for_its_callers_and_its_garbage_is_collected() {
    if !is_inside("services::hog_allocates_objects_for_its_callers_and_its_garbage_is_collected") {
        return;
    }
    let heap_user = |name: &str, port: u16| calling_session(name, port, "heap", "").replace("lookup", "make");
    let heap = "[[session]]\nname = \"heap\"\nmemory = \"64 MiB\"\ncpu = [{ period = \"20ms\", slice = \"5ms\", borrow = true }]\n\
        channel = [{ interface = \"b\", filter = \"tcp\" }]\n\
        offer = [{ service = \"make\", callers = [\"alice\", \"bob\", \"carol\"] }]\n";
    let mut testbed = Testbed::new(
        &(heap.to_owned() + &heap_user("alice", 1) + &heap_user("bob", 1) + &heap_user("carol", 1)),
    );
    let set = json!({"per-tick": 0, "size": 1000, "live": 2000});
    let reply = testbed.load("heap", json!({"module": "hog", "name": "m", "set": set}), &[]);
    assert!(reply.get("done").is_some(), "{reply}");
    load(&testbed, "alice", &hog_caller([500, 100, 1000]));
    // More slots than there are, and none at all; only garbage of this caller is collected.
    load(&testbed, "bob", &hog_caller([3, u32::MAX, u32::MAX]));
    load(&testbed, "carol", &hog_caller([0, 1, 0]));
    for round in 1..=200u64 {
        testbed.send(&[udp(1, b"x")]);
        testbed.until("all have an answer", |testbed| {
            ["alice", "bob", "carol"].iter().all(|session| testbed.count(session, "m", "records") == round)
        });
    }
    assert_eq!((count(&testbed, "heap", "served"), testbed.count("heap", "m", "faults")), (600, 0));
    // A hundred million bytes were allocated, of which a million is live.
    let snapshot = testbed.snapshot();
    let shots = snapshot["sessions"].as_array().unwrap();
    let used = shots.iter().find(|shot| shot["name"] == "heap").unwrap()["memory_used"].as_u64().unwrap();
    assert!((1_000_000..16_000_000).contains(&used), "{used}");
    assert!(testbed.stop().success());
}

#[test]
fn offers_and_uses_of_services_can_change_while_modules_run() {
    if !is_inside("services::offers_and_uses_of_services_can_change_while_modules_run") {
        return;
    }
    // At first neither session offers or uses anything.
    let none = |name: &str| {
        format!(
            "[[session]]\nname = \"{name}\"\ncpu = [{{ period = \"20ms\", slice = \"1ms\" }}]\n\
             channel = [{{ interface = \"b\", filter = \"udp port 1\" }}]\n"
        )
    };
    let mut testbed = Testbed::new(&(none("asn") + &none("alice")));
    load(&testbed, "asn", &service_module(ANSWER));
    load(&testbed, "alice", &caller_module(1, 8, 30 * SECOND));
    let mut refused = 0;
    let mut is_refused = |testbed: &mut Testbed| {
        refused += 1;
        testbed.send(&[udp(1, b"x")]);
        testbed.until("the call is refused", |testbed| count(testbed, "alice", "refused") == refused);
    };
    is_refused(&mut testbed);
    let change_use = |cost_max: &str| json!({"change": {"session": "alice", "use": [{"service": "lookup", "session": "asn", "cost_max": cost_max}]}});
    testbed.request(change_use("1ms"));
    is_refused(&mut testbed);
    let change_offer = |callers: &[&str]| json!({"change": {"session": "asn", "offer": [{"service": "lookup", "callers": callers, "payer": "caller"}]}});
    testbed.request(change_offer(&["alice"]));
    send_rounds(&mut testbed, 1..=10, &[udp(1, b"x")], "alice");
    testbed.until("alice pays", |testbed| count(testbed, "alice", "debit_ns") > 0);
    let snapshot = testbed.snapshot();
    assert_eq!(snapshot["sessions"][0]["use"][0]["session"], "asn", "{snapshot}");
    assert_eq!(snapshot["sessions"][1]["offer"][0]["callers"], json!(["alice"]), "{snapshot}");
    // Offered to Bob, then to Alice again, then to no session.
    testbed.request(change_offer(&["bob"]));
    is_refused(&mut testbed);
    testbed.request(change_offer(&["bob", "alice"]));
    send_rounds(&mut testbed, 11..=12, &[udp(1, b"x")], "alice");
    testbed.request(json!({"change": {"session": "asn", "remove_offer": ["lookup"]}}));
    is_refused(&mut testbed);
    testbed.request(change_offer(&["alice"]));
    testbed.request(json!({"change": {"session": "alice", "remove_use": ["lookup"]}}));
    is_refused(&mut testbed);
    let why = testbed.request_refused(json!({"change": {"session": "alice", "remove_use": ["lookup"]}}));
    assert!(why.contains("there is no use `lookup`; there are none"), "{why}");
    // A refused change has changed nothing.
    let both = json!({"change": {"session": "asn", "remove_offer": ["lookup"], "memory": "900 GiB"}});
    assert!(testbed.request_refused(both).contains("more than is left"));
    testbed.request(change_use("1ms"));
    send_rounds(&mut testbed, 13..=14, &[udp(1, b"x")], "alice");
    assert_eq!(testbed.count("alice", "m", "faults") + testbed.count("asn", "m", "faults"), 0);
    assert!(testbed.stop().success());
}
