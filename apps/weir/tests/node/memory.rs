//! The memory of sessions.

use crate::module::{MANIFEST, assemble, text};
use crate::place::{Place, is_inside, udp};
use crate::remote::{Net, modest};
use serde_json::{Value, json};
use weir_ledger::parse_time;

const PAGE: u64 = 65_536;

/// Grows by a page with each packet. Told that memory is low it emits what was left, and asks for the double of what is reserved.
fn grower(name: &str, asks: bool) -> Vec<u8> {
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

fn of(place: &Place, session: &str, what: &str) -> u64 {
    let snapshot = place.snapshot();
    let sessions = snapshot["sessions"].as_array().unwrap();
    sessions.iter().find(|shot| shot["name"] == session).unwrap()[what].as_u64().unwrap()
}

#[test]
fn a_session_has_what_it_reserved_is_told_when_it_is_low_and_pays_for_what_it_reserves_itself() {
    if !is_inside(
        "memory::a_session_has_what_it_reserved_is_told_when_it_is_low_and_pays_for_what_it_reserves_itself",
    ) {
        return;
    }
    let session = |name: &str, max: &str| {
        format!(
            "[[session]]\nname = \"{name}\"\nmemory = \"1 MiB\"\n{max}cpu = [{{ period = \"20ms\", slice = \"4ms\" }}]\n\
             channel = [{{ interface = \"b\", filter = \"udp\" }}]\n"
        )
    };
    let sessions = session("modest", "") + &session("greedy", "memory_max = \"4 MiB\"\n");
    let mut place = Place::new(&sessions);
    for (name, asks) in [("modest", false), ("greedy", true)] {
        let reply = place.load(name, json!({"module": "grower.wasm"}), &grower("grower", asks));
        assert!(reply.get("done").is_some(), "{reply}");
    }
    // A second one in the same session has the same memory, and hears of it too.
    let reply =
        place.load("modest", json!({"module": "second.wasm", "name": "second"}), &grower("grower", false));
    assert!(reply.get("done").is_some(), "{reply}");
    for round in 1..=100u64 {
        place.send(&[udp(1, b"x")]);
        place.until("all have seen it", |place| {
            let seen = |(name, module): (&str, &str)| place.count(name, module, "packets") == round;
            [("modest", "grower"), ("modest", "second"), ("greedy", "grower")].into_iter().all(seen)
        });
    }
    // Nobody has more than was reserved, and nobody was lost for wanting it.
    place.until("both of one session have heard of it", |place| {
        place.count("modest", "grower", "records") > 0 && place.count("modest", "second", "records") > 0
    });
    assert_eq!(
        (of(&place, "modest", "memory_reserved"), of(&place, "modest", "memory_used")),
        (16 * PAGE, 16 * PAGE)
    );
    assert!(of(&place, "modest", "memory_refused") > 0);
    // The other has doubled its own twice, and may not have more.
    place.until("it has asked", |place| of(place, "greedy", "memory_reserved") == 64 * PAGE);
    assert_eq!(of(&place, "greedy", "memory_used"), 64 * PAGE);
    assert_eq!(place.count("greedy", "grower", "faults") + place.count("modest", "grower", "faults"), 0);

    // The operator gives it more, and cannot take what is used.
    let change = |memory: &str| json!({"change": {"session": "modest", "memory": memory}});
    assert!(place.refused(change("960 KiB")).contains("it uses 1 MiB"));
    place.done(change("2 MiB"));
    place.send(&vec![udp(1, b"x"); 2]);
    place.until("it grows again", |place| of(place, "modest", "memory_used") > 16 * PAGE);
    // Where nothing is left, a module is not started.
    place.until("it is all used", |place| {
        place.send(&[udp(1, b"x")]);
        of(place, "greedy", "memory_refused") > 0
    });
    let reply = place.load("greedy", json!({"module": "x.wasm", "name": "third"}), &grower("grower", false));
    let why = reply["refused"]["why"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned();
    assert!(
        why.contains("wants 64 KiB of memory at its start, and session `greedy` has 0 B left of its 4 MiB"),
        "{why}"
    );
    assert!(place.stop().success());

    // What it reserved itself is in the ledger, and on the bill.
    let ledger = place.ledger();
    let changed = |name: &str| {
        let of = ledger.iter().filter(|e| e["kind"] == "session-changed" && e["session"]["name"] == name);
        of.map(|e| e["reserved"]["memory_bytes"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(
        (changed("greedy").last(), changed("modest").last()),
        (Some(&(64 * PAGE)), Some(&(32 * PAGE)))
    );
}

/// What an entry says of a session's memory x time, in bytes x ns.
fn held(entry: &Value, session: &str) -> Option<u128> {
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
fn idle_sessions_pay_for_their_memory_in_lines_that_they_share() {
    if !is_inside("memory::idle_sessions_pay_for_their_memory_in_lines_that_they_share") {
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
    let mut place = Place::new(&sessions);
    let is_shared =
        |entry: &Value| entry["kind"] == "idle" && memory.iter().all(|(name, _)| held(entry, name).is_some());
    let shared = |place: &Place| place.ledger().iter().filter(|entry| is_shared(entry)).count();
    place.until("they share a line", |place| shared(place) > 0);
    let reply = place.load("alice", json!({"module": "grower.wasm"}), &grower("grower", false));
    assert!(reply.get("done").is_some(), "{reply}");
    place.send(&[udp(1, b"x")]);
    place.until("what one used is on its bill", |place| place.billed("alice", "packets_in") == 1);
    let before = shared(&place);
    place.until("they are all idle again", |place| shared(place) > before);
    assert!(place.stop().success());

    let ledger = place.ledger();
    let at = |entry: &Value, key: &str| parse_time(entry[key].as_str().unwrap()).unwrap().0;
    // Before that, all may have had their filters compiled.
    let idle = ledger.iter().find(|entry| is_shared(entry)).map(|entry| at(entry, "begin")).unwrap();
    // All sessions of a line pay for the same time.
    for entry in ledger.iter().filter(|entry| is_shared(entry)) {
        let times = memory.map(|(name, mib)| held(entry, name).map(|held| held / (mib << 20)));
        assert!(times.iter().all(|time| *time == times[0]), "{entry}");
    }
    for (name, mib) in memory {
        let bills: Vec<&Value> = ledger.iter().filter(|entry| held(entry, name).is_some()).collect();
        for entry in &bills {
            // The bill goes by the monotonic clock, and lines have the time of day.
            let time = u128::from(at(entry, "end") - at(entry, "begin"));
            let (held, bytes) = (held(entry, name).unwrap_or(0), mib << 20);
            assert!(held % bytes == 0 && (held / bytes).abs_diff(time) <= time / 10, "{name}: {entry}");
        }
        // No time is missing, and none is billed twice.
        assert!(bills.windows(2).all(|pair| pair[0]["end"] == pair[1]["begin"]), "{bills:?}");
        let own = bills.iter().any(|entry| entry["kind"] == "usage" && at(entry, "begin") >= idle);
        assert_eq!(own, name == "alice", "{bills:?}");
    }
}

#[test]
fn what_a_session_gives_back_by_itself_and_can_have_again_is_not_granted_to_another() {
    if !is_inside("memory::what_a_session_gives_back_by_itself_and_can_have_again_is_not_granted_to_another")
    {
        return;
    }
    let mut net = Net::new();
    let researcher = net.granted("researcher", modest());
    // All of what was granted; with the first packet its module gives nearly all of it back.
    let cpu = ["--cpu", "period=10ms,slice=100us"];
    net.done(
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
    net.done(&researcher, &["load", "study", file.to_str().unwrap()]);
    net.place.send(&[udp(1, b"x")]);
    let study = researcher.name_of("study");
    net.place.until("it has given it back, and that is known", |place| {
        let ledger = place.ledger();
        let changed = |e: &&Value| e["kind"] == "session-changed" && e["session"]["name"] == *study;
        ledger.iter().filter(changed).any(|e| e["reserved"]["memory_bytes"] == 16 * PAGE)
    });
    // It could ask for it again at any time.
    let more = |memory: &'static str| [&["session", "create", "more", "--memory", memory], &cpu[..]].concat();
    net.refused(&researcher, &more("1 MiB"), "memory: asked for 1 MiB; of the 16 MiB given to");
    // Where it cannot any more, another one can have it.
    net.done(&researcher, &["session", "change", "study", "--memory", "8 MiB"]);
    net.done(&researcher, &more("8 MiB"));
    assert!(net.place.stop().success());
}
