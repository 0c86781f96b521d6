//! Modules that are unloaded and sessions that are closed, and the absence of leaks after many of them.

use crate::limits::{row_module, session_status};
use crate::links;
use crate::module::{MANIFEST, assemble, text};
use crate::remote::{Net, SESSION, modest_grant, seconds_from_now};
use crate::testbed::{Testbed, is_inside, udp};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use weir_trust::credential::Credential;
use weir_trust::grant::{Ceilings, CpuShare, Grant};
use weir_trust::revocation::RevocationList;
use weir_units::BitsPerSecond;

/// A module whose stop function takes long, and emits the number of its packets at the end. Its packet function has no
/// bound, so it is metered.
fn slow_stop_module() -> Vec<u8> {
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

/// Sets the reservation of the virtual CPU of `slow`.
fn set_cpu(testbed: &Testbed, period: &str, slice: &str) {
    testbed.request(json!({"change": {"session": "slow", "cpu": [{"period": period, "slice": slice}]}}));
}

#[test]
fn a_module_stops_in_its_own_slices_and_delays_no_other() {
    if !is_inside("unloading::a_module_stops_in_its_own_slices_and_delays_no_other") {
        return;
    }
    let mut testbed = Testbed::new(TWO);
    assert!(testbed.load("slow", json!({"module": "slow.wasm"}), &slow_stop_module()).get("done").is_some());
    testbed.send(&vec![udp(1, b"x"); 30]);
    testbed.until("both modules have received the packets", |testbed| {
        testbed.count("slow", "slow", "packets") == 30 && testbed.count("good", "trajectory", "packets") == 30
    });
    let before = testbed.part("slow", "cpu", "main")["used_ns"].as_u64().unwrap();
    // With so small a slice it does not stop before it gets a larger one.
    set_cpu(&testbed, "1s", "100us");
    let mut unloads = testbed.connect();
    let request = json!({"weir": 1, "request": {"unload": {"session": "slow", "module": "slow"}}});
    writeln!(unloads, "{request}").unwrap();
    // Meanwhile requests are answered, packets are forwarded, and a session is created and closed.
    let modules = |testbed: &Testbed| -> usize {
        let sessions = testbed.snapshot()["sessions"].as_array().unwrap().clone();
        sessions.iter().map(|session| session["modules"].as_array().unwrap().len()).sum()
    };
    testbed.until("the module gets no more packets", |testbed| modules(testbed) == 1);
    testbed.request(json!({"create": {"name": "bob", "channel": [{"interface": "b", "filter": "tcp"}]}}));
    testbed.send(&vec![udp(1, b"x"); 30]);
    testbed.until("the packets have arrived", |testbed| testbed.count("good", "trajectory", "packets") == 60);
    testbed.request(json!({"close": {"session": "bob"}}));
    unloads.set_nonblocking(true).unwrap();
    let early = std::io::Read::read(&mut unloads, &mut [0]).unwrap_err();
    assert_eq!(early.kind(), ErrorKind::WouldBlock, "it has stopped too soon for this test");
    unloads.set_nonblocking(false).unwrap();
    set_cpu(&testbed, "20ms", "4ms");
    let mut line = String::new();
    BufReader::new(unloads).read_line(&mut line).unwrap();
    assert!(line.contains("done"), "{line}");
    // Its stop function used its own slices.
    let used = testbed.part("slow", "cpu", "main")["used_ns"].as_u64().unwrap() - before;
    assert!(used > 2_000_000, "{used}");
    assert!(testbed.stop().success());
    // Its last row is written and charged, with the packets that it had received.
    assert_eq!(
        (testbed.ledger_usage("slow", "records_written"), testbed.ledger_usage("slow", "packets_in")),
        (1, 30)
    );
}

#[test]
fn a_session_is_closed_after_all_its_modules_have_stopped() {
    if !is_inside("unloading::a_session_is_closed_after_all_its_modules_have_stopped") {
        return;
    }
    let mut testbed = Testbed::new(TWO);
    assert!(testbed.load("slow", json!({"module": "slow.wasm"}), &slow_stop_module()).get("done").is_some());
    set_cpu(&testbed, "1s", "100us");
    let mut unloads = testbed.connect();
    let request = json!({"weir": 1, "request": {"unload": {"session": "slow", "module": "slow"}}});
    writeln!(unloads, "{request}").unwrap();
    testbed.until("the module gets no more packets", |testbed| {
        testbed.snapshot()["sessions"]
            .as_array()
            .unwrap()
            .iter()
            .all(|it| it["name"] != "slow" || it["modules"] == json!([]))
    });
    // Another module of the same name is loaded while it stops, and both end with the session.
    assert!(testbed.load("slow", json!({"module": "slow.wasm"}), &slow_stop_module()).get("done").is_some());
    set_cpu(&testbed, "20ms", "8ms");
    testbed.request(json!({"close": {"session": "slow"}}));
    let mut line = String::new();
    BufReader::new(unloads).read_line(&mut line).unwrap();
    assert!(line.contains("done"), "{line}");
    assert!(testbed.stop().success());
    assert_eq!(testbed.ledger_usage("slow", "records_written"), 2);
    let ledger = testbed.ledger();
    let kinds: Vec<_> = ledger
        .iter()
        .filter(|entry| entry["session"]["name"] == "slow")
        .map(|entry| &entry["kind"])
        .collect();
    assert_eq!(kinds.last().unwrap().as_str(), Some("session-closed"), "{kinds:?}");
}

#[test]
fn a_closing_session_accepts_no_modules_and_its_name_becomes_free() {
    if !is_inside("unloading::a_closing_session_accepts_no_modules_and_its_name_becomes_free") {
        return;
    }
    let mut testbed = Testbed::new(TWO);
    assert!(testbed.load("slow", json!({"module": "slow.wasm"}), &slow_stop_module()).get("done").is_some());
    // With so small a slice it does not stop before it gets a larger one.
    set_cpu(&testbed, "1s", "100us");
    let mut closes = testbed.connect();
    writeln!(closes, "{}", json!({"weir": 1, "request": {"close": {"session": "slow"}}})).unwrap();
    testbed.until("its module gets no more packets", |testbed| {
        let sessions = testbed.snapshot()["sessions"].as_array().unwrap().clone();
        sessions.iter().all(|it| it["name"] != "slow" || it["modules"] == json!([]))
    });
    // The close would have to wait for a module that is loaded now.
    let late = testbed.load("slow", json!({"module": "port-count", "set": {"ports": [1]}}), &[]);
    let why = late["refused"]["why"].as_str().unwrap_or_else(|| panic!("{late}"));
    assert!(why.contains("session `slow` is being closed"), "{why}");
    set_cpu(&testbed, "20ms", "8ms");
    let mut line = String::new();
    BufReader::new(closes).read_line(&mut line).unwrap();
    assert!(line.contains("done"), "{line}");
    testbed.request(json!({"create": {"name": "slow", "channel": [{"interface": "b", "filter": "udp"}]}}));
    let again =
        json!({"load": {"session": "slow", "module": {"module": "port-count", "set": {"ports": [1]}}}});
    testbed.request(again);
    assert!(testbed.stop().success());
    testbed.ledger();
}

/// A module whose stop function takes long, and emits nothing.
fn silent_slow_stop_module() -> Vec<u8> {
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
            (loop $l (br_if $l (i32.eq (i32.load (i32.const 72)) (i32.const 1))))
            (i32.const 0))
        (func (export "weir_stop") (param i64) (local $i i32)
            (local.set $i (i32.const 20000000))
            (loop $next (br_if $next (local.tee $i (i32.sub (local.get $i) (i32.const 1))))))"#;
    assemble(&text(body), Some(MANIFEST.replace("NAME", "lingering").as_bytes()))
}

/// Loads the module `a`, whose stop takes long, and the module `z`, which emits a row for each packet and stops at once, each
/// with its own virtual CPU. Both receive 30 packets, as `good` does. Then the slice of `a` is too small to stop.
fn load_slow_and_quick(testbed: &mut Testbed, session: &str) {
    for (name, cpu, bytes) in [("a", "main", silent_slow_stop_module()), ("z", "quick", row_module("teller"))]
    {
        let reply = testbed.load(session, json!({"module": "m.wasm", "name": name, "cpu": cpu}), &bytes);
        assert!(reply.get("done").is_some(), "{reply}");
    }
    testbed.send(&vec![udp(1, b"x"); 30]);
    testbed.until("all modules have received the packets", |testbed| {
        ["a", "z"].iter().all(|module| testbed.count(session, module, "packets") == 30)
            && testbed.count("good", "trajectory", "packets") == 30
    });
    testbed.request(
        json!({"change": {"session": session, "cpu": [{"name": "main", "period": "1s", "slice": "100us"}]}}),
    );
}

/// Waits until `a` gets no more packets, and sends 30 more, which `good` receives. Returns the session's status then.
fn wait_until_first_is_out(testbed: &mut Testbed, session: &str) -> Value {
    testbed.until("the first module gets no more packets", |testbed| {
        let modules = session_status(testbed, session)["modules"].as_array().unwrap().clone();
        modules.iter().all(|module| module["name"] != "a")
    });
    testbed.send(&vec![udp(1, b"x"); 30]);
    testbed.until("the packets have arrived", |testbed| testbed.count("good", "trajectory", "packets") == 60);
    session_status(testbed, session)
}

#[test]
fn all_modules_of_a_closing_session_get_no_packets_before_the_first_has_stopped() {
    if !is_inside("unloading::all_modules_of_a_closing_session_get_no_packets_before_the_first_has_stopped") {
        return;
    }
    let with_two = TWO.replacen(
        "cpu = [{ period = \"20ms\", slice = \"1ms\" }]",
        "cpu = [{ period = \"20ms\", slice = \"1ms\" }, { name = \"quick\", period = \"20ms\", slice = \"2ms\" }]",
        1,
    );
    assert_ne!(with_two, TWO);
    let mut testbed = Testbed::new(&with_two);
    load_slow_and_quick(&mut testbed, "slow");
    let mut closes = testbed.connect();
    writeln!(closes, "{}", json!({"weir": 1, "request": {"close": {"session": "slow"}}})).unwrap();
    let shot = wait_until_first_is_out(&mut testbed, "slow");
    assert_eq!(shot["modules"], json!([]), "{shot}");
    // No module can be loaded in their place.
    let why = testbed.request_refused(
        json!({"change": {"session": "slow", "channel": [{"name": "more", "interface": "b"}]}}),
    );
    assert!(why.contains("session `slow` is being closed"), "{why}");
    set_cpu(&testbed, "20ms", "4ms");
    let mut line = String::new();
    BufReader::new(closes).read_line(&mut line).unwrap();
    assert!(line.contains("done"), "{line}");
    assert!(testbed.stop().success());
    assert_eq!(testbed.ledger_usage("slow", "records_written"), 30);
    let ledger = testbed.ledger();
    let of_slow = ledger.iter().filter(|entry| entry["session"]["name"] == "slow");
    let kinds: Vec<_> = of_slow.filter_map(|entry| entry["kind"].as_str()).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "module-unloaded").count(), 2, "{kinds:?}");
    assert_eq!(kinds.last(), Some(&"session-closed"), "{kinds:?}");
}

#[test]
fn a_revoked_session_gets_no_packets_at_once_however_long_its_module_stops() {
    if !is_inside("unloading::a_revoked_session_gets_no_packets_at_once_however_long_its_module_stops") {
        return;
    }
    links::far_cable();
    let mut net =
        Net::with_interface_lines("outgoing = false\n[[link]]\ninterface = \"c\"\nrate = \"100 Mbit/s\"\n");
    let ceilings = Ceilings {
        cpu: Some(CpuShare(500_000)),
        bandwidth: Some(BitsPerSecond(10_000_000)),
        ..modest_grant().ceilings
    };
    let guest = net.granted("guest", Grant { ceilings, ..modest_grant() });
    let processors = ["--cpu", "period=20ms,slice=1ms", "--cpu", "name=quick,period=20ms,slice=2ms"];
    let channels = ["--channel", "interface=b,filter=udp", "--output", "name=up,link=c,cap=1 Mbit/s"];
    let create = ["session", "create", "s", "--memory", "8 MiB"];
    net.run(&guest, &[&create[..], &processors, &channels].concat());
    let name = guest.name_of("s");
    net.testbed.request(json!({"create": {"name": "good", "channel": [{"interface": "b", "filter": "udp"}],
        "cpu": [{"period": "20ms", "slice": "4ms"}], "module": [{"module": "trajectory"}]}}));
    load_slow_and_quick(&mut net.testbed, &name);
    assert_eq!(session_status(&net.testbed, &name)["outputs"][0]["name"], "up");
    let credential: Credential = std::fs::read_to_string(&guest.credential).unwrap().parse().unwrap();
    let ids = [credential.claimed_blocks().last().unwrap().id].into();
    let list = RevocationList::sign(&net.operator.identity, 1, seconds_from_now(0), ids).unwrap();
    let reply = net.testbed.send_request_with_body(json!("revoke"), list.to_string().as_bytes());
    assert!(reply.get("done").is_some(), "{reply}");
    // The session receives and forwards nothing while its first module has not stopped yet.
    let shot = wait_until_first_is_out(&mut net.testbed, &name);
    assert_eq!((&shot["modules"], &shot["outputs"]), (&json!([]), &Value::Null), "{shot}");
    net.testbed.request(
        json!({"change": {"session": name, "cpu": [{"name": "main", "period": "20ms", "slice": "4ms"}]}}),
    );
    net.testbed
        .until("it is closed", |testbed| testbed.snapshot()["sessions"].as_array().unwrap().len() == 1);
    assert!(net.testbed.stop().success());
    assert_eq!(net.testbed.ledger_usage(&name, "records_written"), 30);
    let ledger = net.testbed.ledger();
    let last = ledger.iter().rfind(|entry| entry["session"]["name"] == name.as_str()).unwrap();
    assert_eq!((&last["kind"], &last["reason"]), (&json!("session-closed"), &json!("revoked")));
}

#[test]
fn a_revocation_during_a_reload_takes_effect_at_once() {
    if !is_inside("unloading::a_revocation_during_a_reload_takes_effect_at_once") {
        return;
    }
    let names = ["s1", "s2", "s3"];
    let session = |name: &str| {
        format!(
            "[[session]]\nname = \"{name}\"\ncpu = [{{ period = \"20ms\", slice = \"1ms\" }}]\nchannel = [{{ interface = \"b\" }}]\n"
        )
    };
    let sessions = names.map(session).concat();
    let mut net = Net::with_interface_lines(&sessions);
    let file = net.folder.path().join("revoked");
    let list = |number, ids: &[_]| {
        let ids = ids.iter().copied().collect();
        let list = RevocationList::sign(&net.operator.identity, number, seconds_from_now(0), ids).unwrap();
        let new = file.with_extension("new");
        std::fs::write(&new, list.to_string()).unwrap();
        std::fs::rename(&new, &file).unwrap();
    };
    list(1, &[]);
    let config = std::fs::read_to_string(net.testbed.config()).unwrap();
    let named = format!("[remote]\nrevocations = [\"{}\"]\n", file.display());
    let config = config.replace("[remote]\n", &named);
    std::fs::write(net.testbed.config(), &config).unwrap();
    net.testbed.request(json!("reload"));
    let guest = net.granted("guest", modest_grant());
    net.run(&guest, &SESSION);
    let credential: Credential = std::fs::read_to_string(&guest.credential).unwrap().parse().unwrap();
    let set_session_cpu = |testbed: &Testbed, name: &str, period: &str| {
        let cpu = json!([{"period": period, "slice": "100us"}]);
        testbed.send_request(json!({"change": {"session": name, "cpu": cpu}}))
    };
    for name in names {
        let reply = net.testbed.load(name, json!({"module": "m.wasm"}), &silent_slow_stop_module());
        assert!(reply.get("done").is_some(), "{reply}");
        assert!(set_session_cpu(&net.testbed, name, "1s").get("done").is_some());
    }
    // All of these sessions are removed, and each takes long to stop.
    let without = config.replace(&sessions, "");
    assert_ne!(without, config);
    std::fs::write(net.testbed.config(), without).unwrap();
    let mut reloads = net.testbed.connect();
    writeln!(reloads, "{}", json!({"weir": 1, "request": "reload"})).unwrap();
    net.testbed.until("the first of them is closing", |testbed| {
        testbed.snapshot()["sessions"][0]["modules"].as_array().unwrap().is_empty()
    });
    list(2, &[credential.claimed_blocks().last().unwrap().id]);
    let name = guest.name_of("study");
    net.testbed.until("the guest's session has ended", |testbed| {
        testbed.snapshot()["sessions"]
            .as_array()
            .unwrap()
            .iter()
            .all(|session| session["name"] != name.as_str())
    });
    reloads.set_nonblocking(true).unwrap();
    let early = std::io::Read::read(&mut reloads, &mut [0]).unwrap_err();
    assert_eq!(early.kind(), ErrorKind::WouldBlock, "it was read again too soon for this test");
    reloads.set_nonblocking(false).unwrap();
    // The remaining sessions.
    names.iter().for_each(|name| _ = set_session_cpu(&net.testbed, name, "1ms"));
    let mut line = String::new();
    BufReader::new(reloads).read_line(&mut line).unwrap();
    assert!(line.contains("session s3 is closed"), "{line}");
    assert!(net.testbed.stop().success());
}

/// Checks that an action leaks nothing: after a thousand times there are no more descriptors and mappings than after a hundred,
/// and the last hundred took no more processor time than the first.
fn assert_no_leak(testbed: &mut Testbed, act: impl Fn(&Testbed)) {
    let hundred = |testbed: &Testbed| {
        let begin = testbed.processor();
        (0..100).for_each(|_| act(testbed));
        testbed.processor() - begin
    };
    let first = hundred(testbed);
    let before = (testbed.descriptors_and_mappings(), testbed.memory());
    let all: Vec<u64> = (0..9).map(|_| hundred(testbed)).collect();
    let (holdings, memory) = before;
    testbed.wait_until_released(holdings, (4, 40));
    testbed.until(&format!("it has no more memory than {memory} and a little"), |testbed| {
        testbed.memory() <= memory + (4 << 20)
    });
    // A clock tick is 10 ms; an action that grows with each time would have grown tenfold.
    let last = all.iter().rev().take(3).min().unwrap();
    assert!(*last <= 3 * first + 20, "processor time of each hundred: {first}, {all:?}");
}

#[test]
fn a_thousand_created_and_closed_sessions_leave_nothing_behind() {
    if !is_inside("unloading::a_thousand_created_and_closed_sessions_leave_nothing_behind") {
        return;
    }
    let mut testbed = Testbed::new(TWO);
    assert_no_leak(&mut testbed, |testbed| {
        testbed.request(
            json!({"create": {"name": "bob", "channel": [{"interface": "b", "filter": "tcp port 80"}],
            "cpu": [{"period": "10ms", "slice": "1us"}], "memory": "8 MiB"}}),
        );
        testbed.request(json!({"close": {"session": "bob"}}));
    });
    assert!(testbed.stop().success());
    testbed.ledger();
}

#[test]
fn a_thousand_loaded_and_unloaded_modules_leave_nothing_behind() {
    if !is_inside("unloading::a_thousand_loaded_and_unloaded_modules_leave_nothing_behind") {
        return;
    }
    let mut testbed = Testbed::new(TWO);
    assert_no_leak(&mut testbed, |testbed| {
        testbed.request(
            json!({"load": {"session": "slow", "module": {"module": "port-count", "set": {"ports": [1]}}}}),
        );
        testbed.request(json!({"unload": {"session": "slow", "module": "port-count"}}));
    });
    testbed.send(&vec![udp(1, b"x"); 30]);
    testbed.until("the module has received all packets", |testbed| {
        testbed.count("good", "trajectory", "packets") == 30
    });
    assert!(testbed.stop().success());
    testbed.ledger();
}
