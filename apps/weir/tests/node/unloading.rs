//! Modules and sessions that leave, and what is left of many that did.

use crate::limits::{shown, teller};
use crate::links;
use crate::module::{MANIFEST, assemble, text};
use crate::place::{Place, is_inside, udp};
use crate::remote::{Net, SESSION, modest, seconds_from_now};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use weir_trust::credential::Credential;
use weir_trust::grant::{Ceilings, CpuShare, Grant};
use weir_trust::revocation::RevocationList;
use weir_units::BitsPerSecond;

/// A stop that takes its time, and says at its end how many packets there were. Its packet function has no bound, so it is metered.
fn slow() -> Vec<u8> {
    let body = r#"(global $seen (mut i64) (i64.const 0))
        (func (export "weir_packet") (param $d i32) (result i32)
            (loop $l (br_if $l (i32.eq (i32.load (i32.const 72)) (i32.const 1))))
            (global.set $seen (i64.add (global.get $seen) (i64.const 1)))
            (i32.const 0))
        (func (export "weir_stop") (param i64) (local $i i32)
            (local.set $i (i32.const 20000000))
            (loop $next (br_if $next (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
            (i64.store (i32.const 64) (global.get $seen))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8))))"#;
    assemble(&text(body), Some(MANIFEST.replace("NAME", "slow").as_bytes()))
}

const TWO: &str = "[[session]]\nname = \"slow\"\ncpu = [{ period = \"20ms\", slice = \"1ms\" }]\n\
    channel = [{ interface = \"b\", filter = \"udp\" }]\n\
    [[session]]\nname = \"good\"\ncpu = [{ period = \"20ms\", slice = \"4ms\" }]\n\
    channel = [{ interface = \"b\", filter = \"udp\" }]\nmodule = [{ module = \"trajectory\" }]\n";

/// From now on `slow` has so much of the processor.
fn has(place: &Place, period: &str, slice: &str) {
    place.done(json!({"change": {"session": "slow", "cpu": [{"period": period, "slice": slice}]}}));
}

#[test]
fn a_module_stops_in_its_slices_and_nobody_waits_for_it() {
    if !is_inside("leaving::a_module_stops_in_its_slices_and_nobody_waits_for_it") {
        return;
    }
    let mut place = Place::new(TWO);
    assert!(place.load("slow", json!({"module": "slow.wasm"}), &slow()).get("done").is_some());
    place.send(&vec![udp(1, b"x"); 30]);
    place.until("both have seen them", |place| {
        place.count("slow", "slow", "packets") == 30 && place.count("good", "trajectory", "packets") == 30
    });
    let before = place.part("slow", "cpu", "main")["used_ns"].as_u64().unwrap();
    // So little of the processor that it does not stop before it has more, and does by then.
    has(&place, "1s", "100us");
    let mut unloads = place.connect();
    let ask = json!({"weir": 1, "ask": {"unload": {"session": "slow", "module": "slow"}}});
    writeln!(unloads, "{ask}").unwrap();
    // Others are answered, packets go on, and a session comes and goes, before it has stopped.
    let modules = |place: &Place| -> usize {
        let sessions = place.snapshot()["sessions"].as_array().unwrap().clone();
        sessions.iter().map(|session| session["modules"].as_array().unwrap().len()).sum()
    };
    place.until("it has been taken out", |place| modules(place) == 1);
    place.done(json!({"create": {"name": "bob", "channel": [{"interface": "b", "filter": "tcp"}]}}));
    place.send(&vec![udp(1, b"x"); 30]);
    place.until("they have come", |place| place.count("good", "trajectory", "packets") == 60);
    place.done(json!({"close": {"session": "bob"}}));
    unloads.set_nonblocking(true).unwrap();
    let early = std::io::Read::read(&mut unloads, &mut [0]).unwrap_err();
    assert_eq!(early.kind(), ErrorKind::WouldBlock, "it has stopped too soon for this test");
    unloads.set_nonblocking(false).unwrap();
    has(&place, "20ms", "4ms");
    let mut line = String::new();
    BufReader::new(unloads).read_line(&mut line).unwrap();
    assert!(line.contains("done"), "{line}");
    // It was its own time.
    let used = place.part("slow", "cpu", "main")["used_ns"].as_u64().unwrap() - before;
    assert!(used > 2_000_000, "{used}");
    assert!(place.stop().success());
    // What it said at its end is written, and on the bill, with the packets that it had seen.
    assert_eq!((place.billed("slow", "records_written"), place.billed("slow", "packets_in")), (1, 30));
}

#[test]
fn a_session_is_closed_when_all_its_modules_have_stopped() {
    if !is_inside("leaving::a_session_is_closed_when_all_its_modules_have_stopped") {
        return;
    }
    let mut place = Place::new(TWO);
    assert!(place.load("slow", json!({"module": "slow.wasm"}), &slow()).get("done").is_some());
    has(&place, "1s", "100us");
    let mut unloads = place.connect();
    let ask = json!({"weir": 1, "ask": {"unload": {"session": "slow", "module": "slow"}}});
    writeln!(unloads, "{ask}").unwrap();
    place.until("it has been taken out", |place| {
        place.snapshot()["sessions"]
            .as_array()
            .unwrap()
            .iter()
            .all(|it| it["name"] != "slow" || it["modules"] == json!([]))
    });
    // Another of the same name is loaded while it stops, and both end with the session.
    assert!(place.load("slow", json!({"module": "slow.wasm"}), &slow()).get("done").is_some());
    has(&place, "20ms", "8ms");
    place.done(json!({"close": {"session": "slow"}}));
    let mut line = String::new();
    BufReader::new(unloads).read_line(&mut line).unwrap();
    assert!(line.contains("done"), "{line}");
    assert!(place.stop().success());
    assert_eq!(place.billed("slow", "records_written"), 2);
    let ledger = place.ledger();
    let kinds: Vec<_> = ledger
        .iter()
        .filter(|entry| entry["session"]["name"] == "slow")
        .map(|entry| &entry["kind"])
        .collect();
    assert_eq!(kinds.last().unwrap().as_str(), Some("session-closed"), "{kinds:?}");
}

#[test]
fn a_session_that_is_being_closed_takes_no_more_modules_and_its_name_is_free_afterwards() {
    if !is_inside(
        "leaving::a_session_that_is_being_closed_takes_no_more_modules_and_its_name_is_free_afterwards",
    ) {
        return;
    }
    let mut place = Place::new(TWO);
    assert!(place.load("slow", json!({"module": "slow.wasm"}), &slow()).get("done").is_some());
    // So little of the processor that it does not stop before it has more, and does by then.
    has(&place, "1s", "100us");
    let mut closes = place.connect();
    writeln!(closes, "{}", json!({"weir": 1, "ask": {"close": {"session": "slow"}}})).unwrap();
    place.until("its module has been taken out", |place| {
        let sessions = place.snapshot()["sessions"].as_array().unwrap().clone();
        sessions.iter().all(|it| it["name"] != "slow" || it["modules"] == json!([]))
    });
    // What came now would have to be waited for by all.
    let late = place.load("slow", json!({"module": "port-count", "set": {"ports": [1]}}), &[]);
    let why = late["refused"]["why"].as_str().unwrap_or_else(|| panic!("{late}"));
    assert!(why.contains("session `slow` is being closed"), "{why}");
    has(&place, "20ms", "8ms");
    let mut line = String::new();
    BufReader::new(closes).read_line(&mut line).unwrap();
    assert!(line.contains("done"), "{line}");
    place.done(json!({"create": {"name": "slow", "channel": [{"interface": "b", "filter": "udp"}]}}));
    let again =
        json!({"load": {"session": "slow", "module": {"module": "port-count", "set": {"ports": [1]}}}});
    place.done(again);
    assert!(place.stop().success());
    place.ledger();
}

/// A stop that takes its time, and says nothing.
fn lingering() -> Vec<u8> {
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
            (loop $l (br_if $l (i32.eq (i32.load (i32.const 72)) (i32.const 1))))
            (i32.const 0))
        (func (export "weir_stop") (param i64) (local $i i32)
            (local.set $i (i32.const 20000000))
            (loop $next (br_if $next (local.tee $i (i32.sub (local.get $i) (i32.const 1))))))"#;
    assemble(&text(body), Some(MANIFEST.replace("NAME", "lingering").as_bytes()))
}

/// Loads a module that takes long to stop, by the name `a`, and `z`, which says something of each packet and stops at once; each has its virtual processor. Both get 30 packets, as
/// `good` does. Then there is so little left of the first one's processor that it does not stop before it has more.
fn two_of_which_one_lingers(place: &mut Place, session: &str) {
    for (name, cpu, bytes) in [("a", "main", lingering()), ("z", "quick", teller("teller"))] {
        let reply = place.load(session, json!({"module": "m.wasm", "name": name, "cpu": cpu}), &bytes);
        assert!(reply.get("done").is_some(), "{reply}");
    }
    place.send(&vec![udp(1, b"x"); 30]);
    place.until("all have seen them", |place| {
        ["a", "z"].iter().all(|module| place.count(session, module, "packets") == 30)
            && place.count("good", "trajectory", "packets") == 30
    });
    place.done(
        json!({"change": {"session": session, "cpu": [{"name": "main", "period": "1s", "slice": "100us"}]}}),
    );
}

/// Waits until `a` has been taken out, and sends 30 more, which `good` gets. What the session is then.
fn goes_on_without(place: &mut Place, session: &str) -> Value {
    place.until("the first has been taken out", |place| {
        let modules = shown(place, session)["modules"].as_array().unwrap().clone();
        modules.iter().all(|module| module["name"] != "a")
    });
    place.send(&vec![udp(1, b"x"); 30]);
    place.until("they have come", |place| place.count("good", "trajectory", "packets") == 60);
    shown(place, session)
}

#[test]
fn all_modules_of_a_session_that_ends_are_out_before_the_first_has_stopped() {
    if !is_inside("leaving::all_modules_of_a_session_that_ends_are_out_before_the_first_has_stopped") {
        return;
    }
    let with_two = TWO.replacen(
        "cpu = [{ period = \"20ms\", slice = \"1ms\" }]",
        "cpu = [{ period = \"20ms\", slice = \"1ms\" }, { name = \"quick\", period = \"20ms\", slice = \"2ms\" }]",
        1,
    );
    assert_ne!(with_two, TWO);
    let mut place = Place::new(&with_two);
    two_of_which_one_lingers(&mut place, "slow");
    let mut closes = place.connect();
    writeln!(closes, "{}", json!({"weir": 1, "ask": {"close": {"session": "slow"}}})).unwrap();
    let shot = goes_on_without(&mut place, "slow");
    assert_eq!(shot["modules"], json!([]), "{shot}");
    // Nor does anything come in their place.
    let why = place
        .refused(json!({"change": {"session": "slow", "channel": [{"name": "more", "interface": "b"}]}}));
    assert!(why.contains("session `slow` is being closed"), "{why}");
    has(&place, "20ms", "4ms");
    let mut line = String::new();
    BufReader::new(closes).read_line(&mut line).unwrap();
    assert!(line.contains("done"), "{line}");
    assert!(place.stop().success());
    assert_eq!(place.billed("slow", "records_written"), 30);
    let ledger = place.ledger();
    let of_slow = ledger.iter().filter(|entry| entry["session"]["name"] == "slow");
    let kinds: Vec<_> = of_slow.filter_map(|entry| entry["kind"].as_str()).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "module-unloaded").count(), 2, "{kinds:?}");
    assert_eq!(kinds.last(), Some(&"session-closed"), "{kinds:?}");
}

#[test]
fn what_was_taken_back_is_over_at_once_however_long_a_module_takes_to_stop() {
    if !is_inside("leaving::what_was_taken_back_is_over_at_once_however_long_a_module_takes_to_stop") {
        return;
    }
    links::far_cable();
    let mut net = Net::with("outgoing = false\n[[link]]\ninterface = \"c\"\nrate = \"100 Mbit/s\"\n");
    let ceilings = Ceilings {
        cpu: Some(CpuShare(500_000)),
        bandwidth: Some(BitsPerSecond(10_000_000)),
        ..modest().ceilings
    };
    let guest = net.granted("guest", Grant { ceilings, ..modest() });
    let processors = ["--cpu", "period=20ms,slice=1ms", "--cpu", "name=quick,period=20ms,slice=2ms"];
    let channels = ["--channel", "interface=b,filter=udp", "--output", "name=up,link=c,cap=1 Mbit/s"];
    let create = ["session", "create", "s", "--memory", "8 MiB"];
    net.done(&guest, &[&create[..], &processors, &channels].concat());
    let name = guest.name_of("s");
    net.place.done(json!({"create": {"name": "good", "channel": [{"interface": "b", "filter": "udp"}],
        "cpu": [{"period": "20ms", "slice": "4ms"}], "module": [{"module": "trajectory"}]}}));
    two_of_which_one_lingers(&mut net.place, &name);
    assert_eq!(shown(&net.place, &name)["outputs"][0]["name"], "up");
    let credential: Credential = std::fs::read_to_string(&guest.credential).unwrap().parse().unwrap();
    let ids = [credential.claimed_links().last().unwrap().id].into();
    let list = RevocationList::sign(&net.operator.identity, 1, seconds_from_now(0), ids).unwrap();
    let reply = net.place.ask_with(json!("revoke"), list.to_string().as_bytes());
    assert!(reply.get("done").is_some(), "{reply}");
    // Nothing comes to it any more, and nothing goes out, while the first of its modules has not stopped.
    let shot = goes_on_without(&mut net.place, &name);
    assert_eq!((&shot["modules"], &shot["outputs"]), (&json!([]), &Value::Null), "{shot}");
    net.place.done(
        json!({"change": {"session": name, "cpu": [{"name": "main", "period": "20ms", "slice": "4ms"}]}}),
    );
    net.place.until("it is closed", |place| place.snapshot()["sessions"].as_array().unwrap().len() == 1);
    assert!(net.place.stop().success());
    assert_eq!(net.place.billed(&name, "records_written"), 30);
    let ledger = net.place.ledger();
    let last = ledger.iter().rfind(|entry| entry["session"]["name"] == name.as_str()).unwrap();
    assert_eq!((&last["kind"], &last["reason"]), (&json!("session-closed"), &json!("revoked")));
}

#[test]
fn what_is_taken_back_while_the_configuration_is_read_again_does_not_wait_for_that() {
    if !is_inside("leaving::what_is_taken_back_while_the_configuration_is_read_again_does_not_wait_for_that")
    {
        return;
    }
    let names = ["s1", "s2", "s3"];
    let session = |name: &str| {
        format!(
            "[[session]]\nname = \"{name}\"\ncpu = [{{ period = \"20ms\", slice = \"1ms\" }}]\nchannel = [{{ interface = \"b\" }}]\n"
        )
    };
    let sessions = names.map(session).concat();
    let mut net = Net::with(&sessions);
    let file = net.folder.path().join("revoked");
    let list = |number, ids: &[_]| {
        let ids = ids.iter().copied().collect();
        let list = RevocationList::sign(&net.operator.identity, number, seconds_from_now(0), ids).unwrap();
        let new = file.with_extension("new");
        std::fs::write(&new, list.to_string()).unwrap();
        std::fs::rename(&new, &file).unwrap();
    };
    list(1, &[]);
    let config = std::fs::read_to_string(net.place.config()).unwrap();
    let named = format!("[remote]\nrevocations = [\"{}\"]\n", file.display());
    let config = config.replace("[remote]\n", &named);
    std::fs::write(net.place.config(), &config).unwrap();
    net.place.done(json!("reload"));
    let guest = net.granted("guest", modest());
    net.done(&guest, &SESSION);
    let credential: Credential = std::fs::read_to_string(&guest.credential).unwrap().parse().unwrap();
    let has = |place: &Place, name: &str, period: &str| {
        let cpu = json!([{"period": period, "slice": "100us"}]);
        place.ask(json!({"change": {"session": name, "cpu": cpu}}))
    };
    for name in names {
        let reply = net.place.load(name, json!({"module": "m.wasm"}), &lingering());
        assert!(reply.get("done").is_some(), "{reply}");
        assert!(has(&net.place, name, "1s").get("done").is_some());
    }
    // They are to go, and each takes its time.
    let without = config.replace(&sessions, "");
    assert_ne!(without, config);
    std::fs::write(net.place.config(), without).unwrap();
    let mut reloads = net.place.connect();
    writeln!(reloads, "{}", json!({"weir": 1, "ask": "reload"})).unwrap();
    net.place.until("the first of them is closing", |place| {
        place.snapshot()["sessions"][0]["modules"].as_array().unwrap().is_empty()
    });
    list(2, &[credential.claimed_links().last().unwrap().id]);
    let name = guest.name_of("study");
    net.place.until("the guest's session has ended", |place| {
        place.snapshot()["sessions"]
            .as_array()
            .unwrap()
            .iter()
            .all(|session| session["name"] != name.as_str())
    });
    reloads.set_nonblocking(true).unwrap();
    let early = std::io::Read::read(&mut reloads, &mut [0]).unwrap_err();
    assert_eq!(early.kind(), ErrorKind::WouldBlock, "it was read again too soon for this test");
    reloads.set_nonblocking(false).unwrap();
    // Those that there are still.
    names.iter().for_each(|name| _ = has(&net.place, name, "1ms"));
    let mut line = String::new();
    BufReader::new(reloads).read_line(&mut line).unwrap();
    assert!(line.contains("session s3 is closed"), "{line}");
    assert!(net.place.stop().success());
}

/// What is left in a node after this was done a thousand times: no more than after it was done a hundred times, and the last hundred took no longer than
/// the first, in processor time.
fn leaves_nothing(place: &mut Place, act: impl Fn(&Place)) {
    let hundred = |place: &Place| {
        let begin = place.processor();
        (0..100).for_each(|_| act(place));
        place.processor() - begin
    };
    let first = hundred(place);
    let before = (place.holdings(), place.memory());
    let all: Vec<u64> = (0..9).map(|_| hundred(place)).collect();
    let (holdings, memory) = before;
    place.holds_no_more(holdings, (4, 40));
    place.until(&format!("it has no more memory than {memory} and a little"), |place| {
        place.memory() <= memory + (4 << 20)
    });
    // A clock tick is a hundredth of a second; what grows with each time would have grown tenfold.
    let last = all.iter().rev().take(3).min().unwrap();
    assert!(*last <= 3 * first + 20, "processor time of each hundred: {first}, {all:?}");
}

#[test]
fn a_thousand_sessions_that_come_and_go_leave_nothing_behind() {
    if !is_inside("leaving::a_thousand_sessions_that_come_and_go_leave_nothing_behind") {
        return;
    }
    let mut place = Place::new(TWO);
    leaves_nothing(&mut place, |place| {
        place
            .done(json!({"create": {"name": "bob", "channel": [{"interface": "b", "filter": "tcp port 80"}],
            "cpu": [{"period": "10ms", "slice": "1us"}], "memory": "8 MiB"}}));
        place.done(json!({"close": {"session": "bob"}}));
    });
    assert!(place.stop().success());
    place.ledger();
}

#[test]
fn a_thousand_modules_that_come_and_go_leave_nothing_behind() {
    if !is_inside("leaving::a_thousand_modules_that_come_and_go_leave_nothing_behind") {
        return;
    }
    let mut place = Place::new(TWO);
    leaves_nothing(&mut place, |place| {
        place.done(
            json!({"load": {"session": "slow", "module": {"module": "port-count", "set": {"ports": [1]}}}}),
        );
        place.done(json!({"unload": {"session": "slow", "module": "port-count"}}));
    });
    place.send(&vec![udp(1, b"x"); 30]);
    place.until("it works", |place| place.count("good", "trajectory", "packets") == 30);
    assert!(place.stop().success());
    place.ledger();
}
