//! Memory reservations of sessions.

use crate::module::{MANIFEST, assemble, text};
use crate::remote::{Net, modest_grant};
use crate::testbed::{Testbed, is_inside, udp};
use serde_json::{Value, json};
use weir_ledger::parse_time;

const PAGE: u64 = 65_536;

/// A module that grows by a page with each packet. When the host reports low memory it emits the free memory, and
/// doubles the reservation if `asks` is true.
fn growing_module(name: &str, asks: bool) -> Vec<u8> {
    let ask = "(drop (call $reserve (i64.mul (i64.const 2) (call $reserve (i64.const 0)))))";
    let body = format!(
        r#"(func (export "weir_packet") (param $d i32) (result i32)
            (drop (memory.grow (i32.const 1)))
            (i32.const 0))
        (func (export "weir_low_memory") (param $left i64)
            {}
            (i64.store (i32.const 64) (local.get $left))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8))))"#,
        if asks { ask } else { "" }
    );
    let import = "(import \"weir\" \"reserve\" (func $reserve (param i64) (result i64)))\n(memory ";
    let text = text(&body).replacen("(memory ", import, 1);
    assemble(&text, Some(MANIFEST.replace("NAME", name).replace("2 MiB", "64 MiB").as_bytes()))
}

/// Returns the number `what` of a session's status.
fn status_field(testbed: &Testbed, session: &str, what: &str) -> u64 {
    let snapshot = testbed.snapshot();
    let sessions = snapshot["sessions"].as_array().unwrap();
    sessions.iter().find(|shot| shot["name"] == session).unwrap()[what].as_u64().unwrap()
}

#[test]
fn a_session_has_its_reservation_is_told_of_low_memory_and_is_charged_for_growth() {
    if !is_inside("memory::a_session_has_its_reservation_is_told_of_low_memory_and_is_charged_for_growth") {
        return;
    }
    let session = |name: &str, max: &str| {
        format!(
            "[[session]]\nname = \"{name}\"\nmemory = \"1 MiB\"\n{max}cpu = [{{ period = \"20ms\", slice = \"4ms\" }}]\n\
             channel = [{{ interface = \"b\", filter = \"udp\" }}]\n"
        )
    };
    let sessions = session("modest", "") + &session("greedy", "memory_max = \"4 MiB\"\n");
    let mut testbed = Testbed::new(&sessions);
    for (name, asks) in [("modest", false), ("greedy", true)] {
        let reply = testbed.load(name, json!({"module": "grower.wasm"}), &growing_module("grower", asks));
        assert!(reply.get("done").is_some(), "{reply}");
    }
    // A second module in the same session shares its memory, and is told of low memory, too.
    let reply = testbed.load(
        "modest",
        json!({"module": "second.wasm", "name": "second"}),
        &growing_module("grower", false),
    );
    assert!(reply.get("done").is_some(), "{reply}");
    for round in 1..=100u64 {
        testbed.send(&[udp(1, b"x")]);
        testbed.until("all modules have received it", |testbed| {
            let seen = |(name, module): (&str, &str)| testbed.count(name, module, "packets") == round;
            [("modest", "grower"), ("modest", "second"), ("greedy", "grower")].into_iter().all(seen)
        });
    }
    // No session has more than it reserved, and no module was unloaded because of a refused growth.
    testbed.until("both modules of the session have been told", |testbed| {
        testbed.count("modest", "grower", "records") > 0 && testbed.count("modest", "second", "records") > 0
    });
    assert_eq!(
        (
            status_field(&testbed, "modest", "memory_reserved"),
            status_field(&testbed, "modest", "memory_used")
        ),
        (16 * PAGE, 16 * PAGE)
    );
    assert!(status_field(&testbed, "modest", "memory_refused") > 0);
    // The other session has doubled its reservation twice, which is its maximum.
    testbed.until("the module has asked for memory", |testbed| {
        status_field(testbed, "greedy", "memory_reserved") == 64 * PAGE
    });
    assert_eq!(status_field(&testbed, "greedy", "memory_used"), 64 * PAGE);
    assert_eq!(testbed.count("greedy", "grower", "faults") + testbed.count("modest", "grower", "faults"), 0);

    // The operator can increase a reservation, but not reduce it below the used memory.
    let change = |memory: &str| json!({"change": {"session": "modest", "memory": memory}});
    assert!(testbed.request_refused(change("960 KiB")).contains("it uses 1 MiB"));
    testbed.request(change("2 MiB"));
    testbed.send(&vec![udp(1, b"x"); 2]);
    testbed.until("the module grows again", |testbed| {
        status_field(testbed, "modest", "memory_used") > 16 * PAGE
    });
    // A module does not start if no memory is left.
    testbed.until("all memory is used", |testbed| {
        testbed.send(&[udp(1, b"x")]);
        status_field(testbed, "greedy", "memory_refused") > 0
    });
    let reply = testbed.load(
        "greedy",
        json!({"module": "x.wasm", "name": "third"}),
        &growing_module("grower", false),
    );
    let why = reply["refused"]["why"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned();
    assert!(
        why.contains("take 384 KiB of the session's memory, for 2 streams with 2 fields, and session `greedy` has 0 B left of its 4 MiB"),
        "{why}"
    );
    assert!(testbed.stop().success());

    // Memory that a session has reserved itself is in the ledger, and charged.
    let ledger = testbed.ledger();
    let changed = |name: &str| {
        let of = ledger.iter().filter(|e| e["kind"] == "session-changed" && e["session"]["name"] == name);
        of.map(|e| e["reserved"]["memory_bytes"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(
        (changed("greedy").last(), changed("modest").last()),
        (Some(&(64 * PAGE)), Some(&(32 * PAGE)))
    );
}

/// The memory x time of a session in an entry, in bytes x ns.
fn memory_time(entry: &Value, session: &str) -> Option<u128> {
    let used = match entry["kind"].as_str()? {
        "usage" if entry["session"]["name"] == session => &entry["usage"],
        "idle" => {
            let has =
                |group: &&Value| group["sessions"].as_array().unwrap().iter().any(|it| it[0] == session);
            entry["idle"].as_array()?.iter().find(has)?
        }
        _ => return None,
    };
    let part = |key: &str| u128::from(used[key].as_u64().unwrap_or(0));
    Some(part("memory_byte_s") * 1_000_000_000 + part("memory_byte_ns"))
}

#[test]
fn idle_sessions_are_charged_for_memory_in_shared_ledger_entries() {
    if !is_inside("memory::idle_sessions_are_charged_for_memory_in_shared_ledger_entries") {
        return;
    }
    let session = |name: &str, memory: &str, port: u16| {
        format!(
            "[[session]]\nname = \"{name}\"\nmemory = \"{memory}\"\ncpu = [{{ period = \"20ms\", slice = \"4ms\" }}]\n\
             channel = [{{ interface = \"b\", filter = \"udp port {port}\" }}]\n"
        )
    };
    let memory = [("alice", 1u128), ("bob", 1), ("carol", 2)];
    let sessions = session("alice", "1 MiB", 1) + &session("bob", "1 MiB", 2) + &session("carol", "2 MiB", 3);
    let mut testbed = Testbed::new(&sessions);
    let is_shared = |entry: &Value| {
        entry["kind"] == "idle" && memory.iter().all(|(name, _)| memory_time(entry, name).is_some())
    };
    let shared = |testbed: &Testbed| testbed.ledger().iter().filter(|entry| is_shared(entry)).count();
    testbed.until("the sessions share an entry", |testbed| shared(testbed) > 0);
    let reply = testbed.load("alice", json!({"module": "grower.wasm"}), &growing_module("grower", false));
    assert!(reply.get("done").is_some(), "{reply}");
    testbed.send(&[udp(1, b"x")]);
    testbed.until("the usage is in the ledger", |testbed| testbed.ledger_usage("alice", "packets_in") == 1);
    let before = shared(&testbed);
    testbed.until("all sessions are idle again", |testbed| shared(testbed) > before);
    assert!(testbed.stop().success());

    let ledger = testbed.ledger();
    let at = |entry: &Value, key: &str| parse_time(entry[key].as_str().unwrap()).unwrap().0;
    // Before the first shared entry the compilation of filters may have been charged.
    let idle = ledger.iter().find(|entry| is_shared(entry)).map(|entry| at(entry, "begin")).unwrap();
    // All sessions of a shared entry are charged for the same time.
    for entry in ledger.iter().filter(|entry| is_shared(entry)) {
        let times = memory.map(|(name, mib)| memory_time(entry, name).map(|used| used / (mib << 20)));
        assert!(times.iter().all(|time| *time == times[0]), "{entry}");
    }
    for (name, mib) in memory {
        let bills: Vec<&Value> = ledger.iter().filter(|entry| memory_time(entry, name).is_some()).collect();
        for entry in &bills {
            // Usage is measured by the monotonic clock, while entries have wall-clock times.
            let time = u128::from(at(entry, "end") - at(entry, "begin"));
            let (used, bytes) = (memory_time(entry, name).unwrap_or(0), mib << 20);
            assert!(used % bytes == 0 && (used / bytes).abs_diff(time) <= time / 10, "{name}: {entry}");
        }
        // The entries of a session have no gap and no overlap.
        assert!(bills.windows(2).all(|pair| pair[0]["end"] == pair[1]["begin"]), "{bills:?}");
        let own = bills.iter().any(|entry| entry["kind"] == "usage" && at(entry, "begin") >= idle);
        assert_eq!(own, name == "alice", "{bills:?}");
    }
}

#[test]
fn memory_that_a_session_can_reserve_again_is_not_granted_to_another() {
    if !is_inside("memory::memory_that_a_session_can_reserve_again_is_not_granted_to_another") {
        return;
    }
    let mut net = Net::new();
    let researcher = net.granted("researcher", modest_grant());
    // The session reserves all of the grant; with the first packet its module releases nearly all of it.
    let cpu = ["--cpu", "period=10ms,slice=100us"];
    net.run(
        &researcher,
        &[
            &["session", "create", "study", "--memory", "16 MiB", "--channel", "interface=b,filter=udp"],
            &cpu[..],
        ]
        .concat(),
    );
    let body = r#"(func (export "weir_packet") (param i32) (result i32)
        (drop (call $reserve (i64.const 1048576))) (i32.const 0))"#;
    let import = "(import \"weir\" \"reserve\" (func $reserve (param i64) (result i64)))\n(memory ";
    let module = assemble(
        &text(body).replacen("(memory ", import, 1),
        Some(MANIFEST.replace("NAME", "shrinker").as_bytes()),
    );
    let file = net.folder.path().join("shrinker.wasm");
    std::fs::write(&file, module).unwrap();
    net.run(&researcher, &["load", "study", file.to_str().unwrap()]);
    net.testbed.send(&[udp(1, b"x")]);
    let study = researcher.name_of("study");
    net.testbed.until("the memory is returned and counted", |testbed| {
        let ledger = testbed.ledger();
        let changed = |e: &&Value| e["kind"] == "session-changed" && e["session"]["name"] == *study;
        ledger.iter().filter(changed).any(|e| e["reserved"]["memory_bytes"] == 16 * PAGE)
    });
    // The session can reserve it again at any time, so it is not free for another one.
    let more = |memory: &'static str| [&["session", "create", "more", "--memory", memory], &cpu[..]].concat();
    net.run_refused(&researcher, &more("1 MiB"), "memory: asked for 1 MiB; of the 16 MiB given to");
    // After the maximum is reduced, another session can have the memory.
    net.run(&researcher, &["session", "change", "study", "--memory", "8 MiB"]);
    net.run(&researcher, &more("8 MiB"));
    assert!(net.testbed.stop().success());
}
