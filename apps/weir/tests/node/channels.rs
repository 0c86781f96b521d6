//! What is done with packets on their way to sessions, and who makes way when there are too many.

use crate::module::{MANIFEST, assemble, text};
use crate::place::{Place, cut, is_inside, sealed, udp};
use serde_json::{Value, json};

fn channel(place: &Place, session: &str) -> Value {
    place.part(session, "channels", "main")
}

#[test]
fn later_fragments_go_where_their_first_one_went() {
    if !is_inside("channels::later_fragments_go_where_their_first_one_went") {
        return;
    }
    let session = |name: &str, filter: &str| {
        format!(
            "[[session]]\nname = \"{name}\"\nchannel = [{{ interface = \"b\", filter = \"{filter}\" }}]\n\
             module = [{{ module = \"trajectory\" }}]\n"
        )
    };
    let mut place = Place::new(&(session("alice", "udp port 53") + &session("bob", "udp port 99")));
    for id in 0..50 {
        place.send(&cut(53, 2 * id, &[1; 1500]));
        place.send(&cut(99, 2 * id + 1, &[1; 900])[..1]);
        // Of a datagram whose first fragment never came.
        place.send(&cut(53, 1000 + id, &[1; 1500])[1..]);
    }
    place.until("each has its own", |place| {
        place.count("alice", "trajectory", "packets") == 150
            && place.count("bob", "trajectory", "packets") == 50
    });
    // A channel that comes to a place where another one was gets nothing of the other's datagrams.
    place.send(&cut(53, 5000, &[1; 1500])[..1]);
    place.until("it has the first part", |place| place.count("alice", "trajectory", "packets") == 151);
    place.done(json!({"close": {"session": "alice"}}));
    place.done(json!({"create": {"name": "eve", "channel": [{"interface": "b", "filter": "udp port 7"}]}}));
    assert!(place.load("eve", json!({"module": "trajectory"}), &[])["done"].is_object());
    place.send(&cut(53, 5000, &[1; 1500])[1..]);
    place.send(&[udp(7, b"x")]);
    place.until("eve has hers", |place| place.count("eve", "trajectory", "packets") == 1);
}

#[test]
fn wrong_checksums_are_counted_and_dropped_where_it_is_asked_for() {
    if !is_inside("channels::wrong_checksums_are_counted_and_dropped_where_it_is_asked_for") {
        return;
    }
    let session = |name: &str, more: &str| {
        format!(
            "[[session]]\nname = \"{name}\"\n\
             channel = [{{ interface = \"b\", filter = \"udp\"{more} }}]\nmodule = [{{ module = \"trajectory\" }}]\n"
        )
    };
    let mut place = Place::new(&(session("strict", ", checksum = \"verify\"") + &session("lax", "")));
    let good = sealed(udp(53, b"none is right, too"));
    let mut bad_udp = good.clone();
    bad_udp[40] ^= 1;
    let mut bad_ip = good.clone();
    bad_ip[22] ^= 1;
    for _ in 0..100 {
        place.send(&[good.clone(), bad_udp.clone(), bad_ip.clone(), good.clone()]);
    }
    place.until("all have been looked at", |place| {
        place.count("strict", "trajectory", "packets") == 200
            && place.count("lax", "trajectory", "packets") == 400
    });
    assert_eq!(channel(&place, "strict")["findings"], json!({"bad-ipv4": 100, "bad-udp": 100}));
    assert_eq!(channel(&place, "strict")["drops"], json!({"bad-checksum": 200}));
    assert_eq!(channel(&place, "lax")["drops"], json!({}));
    assert!(place.stop().success());
    let bills = place.ledger();
    let of = bills.iter().filter(|entry| entry["session"]["name"] == "strict");
    let lost: u64 = of.filter_map(|entry| entry["usage"]["drops"]["bad-checksum"].as_u64()).sum();
    assert_eq!(lost, 200);
}

#[test]
fn datagrams_are_put_together_and_what_overlaps_is_dropped() {
    if !is_inside("channels::datagrams_are_put_together_and_what_overlaps_is_dropped") {
        return;
    }
    let mut place = Place::new(
        "[[session]]\nname = \"alice\"\ncpu = [{ period = \"10ms\", slice = \"2ms\" }]\n\
         channel = [{ interface = \"b\", filter = \"udp port 53\", reassemble = true, checksum = \"verify\" }]\n",
    );
    // Emits the length of what it sees.
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
        (i64.store (i32.const 64) (i64.load32_u offset=12 (local.get $d)))
        (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
        (i32.const 0))"#;
    let bytes = assemble(&text(body), Some(MANIFEST.replace("NAME", "lengths").as_bytes()));
    let reply = place.load("alice", json!({"module": "lengths.wasm"}), &bytes);
    assert!(reply.get("done").is_some(), "{reply}");
    for id in 0..40 {
        let parts = cut(53, id, &[1; 1500]);
        place.send(&[sealed(udp(53, b"in between")), parts[0].clone(), parts[2].clone(), parts[1].clone()]);
    }
    // The same place with other bytes, and then the rest of it.
    let (mut parts, other) = (cut(53, 99, &[1; 1500]), cut(53, 99, &[2; 1500]));
    parts.insert(1, other[0].clone());
    place.send(&parts);
    place.until("all are there", |place| {
        place.count("alice", "lengths", "packets") == 80
            && channel(place, "alice")["drops"] == json!({"reassembly": 4})
    });
    let findings = channel(&place, "alice")["findings"].clone();
    assert_eq!(findings, json!({"reassembled": 40, "fragments-overlapping": 4}));
    // Where they went is counted at the interface, for operators and Prometheus.
    let of = |place: &Place, what: &str| place.snapshot()["interfaces"][0]["fragments"][what].as_u64();
    place.until("all are counted", |place| {
        (of(place, "followed"), of(place, "first")) == (Some(82), Some(42))
    });
    let show = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["session", "show", "alice"])
        .env("WEIR_SOCKET", place.path().join("node.sock"))
        .output()
        .unwrap();
    let text = String::from_utf8(show.stdout).unwrap();
    assert!(text.contains("main: found 4 fragments-overlapping, 40 reassembled"), "{text}");
    assert!(text.contains("b: fragments: "), "{text}");
    assert!(place.stop().success());
    // Forty of 60 bytes, as short frames are, and forty of 14 + 20 + 8 + 1500.
    assert_eq!(place.billed("alice", "bytes_in"), 40 * 60 + 40 * 1542);
}

#[test]
fn fragments_wait_in_memory_that_their_session_has_reserved() {
    if !is_inside("channels::fragments_wait_in_memory_that_their_session_has_reserved") {
        return;
    }
    let mut place = Place::new(
        "[[session]]\nname = \"alice\"\nmemory = \"4 MiB\"\n\
         channel = [{ interface = \"b\", filter = \"udp\", reassemble = true }]\n\
         [[session]]\nname = \"poor\"\nmemory = \"1 MiB\"\n\
         channel = [{ interface = \"b\", filter = \"udp\", reassemble = true }, { name = \"plain\", interface = \"b\", filter = \"udp\" }]\n",
    );
    let used = |place: &Place| -> Vec<u64> {
        let sessions = place.snapshot()["sessions"].as_array().unwrap().clone();
        sessions.iter().map(|session| session["memory_used"].as_u64().unwrap()).collect()
    };
    let module = assemble(
        &text("(func (export \"weir_packet\") (param i32) (result i32) (i32.const 0))"),
        Some(MANIFEST.replace("NAME", "small").as_bytes()),
    );
    for name in ["one", "two"] {
        let reply = place.load("alice", json!({"module": "small.wasm", "name": name}), &module);
        assert!(reply.get("done").is_some(), "{reply}");
    }
    // A page for each, and a mebibyte in which fragments can wait.
    assert_eq!(used(&place)[0], 2 * (65_536 + (1 << 20)));
    let why = place.load("poor", json!({"module": "small.wasm"}), &module)["refused"]["why"].to_string();
    assert!(
        why.contains("channel `main` puts datagrams together, in 1 MiB of the session's memory"),
        "{why}"
    );
    assert_eq!(used(&place)[1], 0);
    let plain = place.load("poor", json!({"module": "small.wasm", "channel": "plain"}), &module);
    assert!(plain.get("done").is_some(), "{plain}");
    // It is given back, also where fragments wait in it.
    place.send(&cut(53, 7, &[1; 1500])[..2]);
    place.until("they have come", |place| channel(place, "alice")["packets"] == 2);
    for name in ["one", "two"] {
        place.done(json!({"unload": {"session": "alice", "module": name}}));
    }
    assert_eq!(used(&place)[0], 0);
    assert!(place.stop().success());
}

#[test]
fn sub_flows_are_served_in_turn_and_nothing_is_missing() {
    if !is_inside("channels::sub_flows_are_served_in_turn_and_nothing_is_missing") {
        return;
    }
    let mut place = Place::new(
        "[[session]]\nname = \"alice\"\n\
         channel = [{ interface = \"b\", filter = \"udp\", queue = 16384, subflows = { by = [\"dst_port\", \"src_addr\"], queues = 16 } }]\n\
         module = [{ module = \"trajectory\" }]\n",
    );
    place.send(&(0..3000).map(|i: u16| udp(i % 300, b"x")).collect::<Vec<_>>());
    place.until("all are there", |place| place.count("alice", "trajectory", "packets") == 3000);
    assert_eq!(channel(&place, "alice")["drops"], json!({}));
}

/// A module that takes its time with each packet, within what can be proved.
fn slow(rounds: u32) -> Vec<u8> {
    let body = format!(
        r#"(func (export "weir_packet") (param $d i32) (result i32)
            (local $i i32)
            (local.set $i (i32.const {rounds}))
            (loop $next (br_if $next (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
            (i32.const 0))"#
    );
    assemble(&text(&body), Some(MANIFEST.replace("NAME", "slow").as_bytes()))
}

#[test]
fn under_overload_the_highest_loses_nothing() {
    if !is_inside("channels::under_overload_the_highest_loses_nothing") {
        return;
    }
    let session = |name: &str, priority: u8| {
        format!(
            "[[session]]\nname = \"{name}\"\npriority = {priority}\nchannel = [{{ interface = \"b\", filter = \"udp\", queue = 1024 }}]\n"
        )
    };
    let mut place = Place::new(&(session("low", 1) + &session("high", 5)));
    for name in ["low", "high"] {
        let reply = place.load(name, json!({"module": "slow.wasm"}), &slow(200_000));
        assert!(reply.get("done").is_some(), "{reply}");
    }
    // More at once than half of what the highest has room for, again and again, and never more than it has room for.
    let shed = |place: &Place| channel(place, "low")["drops"]["shed"].as_u64().unwrap_or(0);
    let mut sent = 0;
    while sent < 8000 || shed(&place) == 0 {
        assert!(sent < 200_000, "nobody makes way: {}", channel(&place, "low"));
        // What waits is known less well: packets that have come are counted before they are in the queue.
        place.until("there is room", |place| sent - had(place, "high", "slow") < 300);
        place.send(&vec![udp(1, b"x"); 600]);
        sent += 600;
    }
    place.until("the highest has seen all", |place| place.count("high", "slow", "packets") == sent);
    assert_eq!(channel(&place, "high")["drops"], json!({}));
    assert!(shed(&place) > 0);
    // When it is over, all are served.
    place.until("the lowest has had all", |place| had(place, "low", "slow") == sent);
    let before = place.count("low", "slow", "packets");
    place.send(&vec![udp(1, b"x"); 50]);
    place.until("the lowest is served again", |place| place.count("low", "slow", "packets") == before + 50);
}

#[test]
fn when_the_memory_of_an_xdp_interface_is_full_the_lowest_makes_way_though_the_highest_holds_older_packets() {
    let name = "channels::when_the_memory_of_an_xdp_interface_is_full_the_lowest_makes_way_though_the_highest_holds_older_packets";
    if !is_inside(name) {
        return;
    }
    // Hardly any time, and room for more packets than the interface has frames.
    let session = |name: &str, priority: u8, port: u16| {
        format!(
            "[[session]]\nname = \"{name}\"\npriority = {priority}\ncpu = [{{ period = \"10s\", slice = \"100us\" }}]\n\
             channel = [{{ interface = \"b\", filter = \"udp port {port}\", sees = \"all\", queue = 100000 }}]\n"
        )
    };
    let mut place =
        Place::new(&("kind = \"xdp\"\n".to_owned() + &session("low", 1, 2) + &session("high", 5, 1)));
    for name in ["low", "high"] {
        let reply = place.load(name, json!({"module": "slow.wasm"}), &slow(400_000));
        assert!(reply.get("done").is_some(), "{reply}");
    }
    // Fewer than there can be blocks, should each of them be one.
    place.send(&vec![udp(1, b"x"); 100]);
    place.until("they have come", |place| channel(place, "high")["packets"] == 100);
    let lost = |place: &Place, name: &str| -> u64 {
        channel(place, name)["drops"].as_object().unwrap().values().filter_map(Value::as_u64).sum()
    };
    let shed = |place: &Place| channel(place, "low")["drops"]["shed"].as_u64().unwrap_or(0);
    // What the lowest does not look at fills the memory again and again.
    place.until("the lowest has made way for more than there is room for", |place| {
        place.send(&vec![udp(2, b"x"); 200]);
        shed(place) > 5000
    });
    assert_eq!(channel(&place, "high")["drops"], json!({}));
    assert!(place.count("high", "slow", "packets") < 100, "it still holds the oldest ones");

    // Now the other one is the lowest, while they run, and the first to make way.
    place.done(json!({"change": {"session": "high", "priority": 0}}));
    let before = shed(&place);
    place.until("it makes way", |place| {
        place.send(&vec![udp(2, b"x"); 50]);
        let of_low = shed(place);
        let has_lost = lost(place, "high") > 0;
        assert!(has_lost || of_low == before, "{of_low} {before}");
        has_lost
    });
    // When there is time all that waits is served.
    for name in ["low", "high"] {
        let cpu = json!([{"period": "20ms", "slice": "4ms", "spare": true}]);
        place.done(json!({"change": {"session": name, "cpu": cpu}}));
    }
    place.until("all have been seen or lost", |place| {
        channel(place, "low")["waiting"] == 0
            && place.count("high", "slow", "packets") + lost(place, "high") == 100
    });
    assert!(place.stop().success());
}

/// What a module has seen, and what its channel lost.
fn had(place: &Place, session: &str, module: &str) -> u64 {
    let lost =
        channel(place, session)["drops"].as_object().unwrap().values().filter_map(Value::as_u64).sum::<u64>();
    place.count(session, module, "packets") + lost
}

#[test]
fn who_lags_too_far_is_ended_and_gives_back_what_it_held() {
    if !is_inside("channels::who_lags_too_far_is_ended_and_gives_back_what_it_held") {
        return;
    }
    let mut place = Place::new(
        "[[session]]\nname = \"good\"\npriority = 1\ncpu = [{ period = \"20ms\", slice = \"4ms\", spare = true }]\n\
         channel = [{ interface = \"b\", filter = \"udp\", sees = \"all\", queue = 100000, lag = \"7 MiB\" }]\nmodule = [{ module = \"trajectory\" }]\n",
    );
    let endless = r#"(func (export "weir_packet") (param $d i32) (result i32)
        (loop $l (br_if $l (i32.ne (i32.load (i32.const 64)) (i32.const 1)))) (i32.const 0))"#;
    let bytes = assemble(&text(endless), Some(MANIFEST.replace("NAME", "endless").as_bytes()));
    let mut sent = 0;
    let mut holdings = Vec::new();
    for _ in 0..4 {
        place.done(json!({"create": {"name": "lazy", "cpu": [{"period": "20ms", "slice": "100us"}], "channel": [{"interface": "b",
            "filter": "udp", "sees": "all", "queue": 100_000, "lag": "64 KiB", "late": "terminate"}]}}));
        assert!(place.load("lazy", json!({"module": "endless.wasm"}), &bytes).get("done").is_some());
        let closed = place.said().matches("session lazy lags further behind").count();
        place.until("it is ended", |place| {
            // More than it may lag behind, long before it is over its limits too often.
            place.send(&vec![udp(1, &[7; 1000]); 200]);
            sent += 200;
            place.until("the good one has had them", |place| had(place, "good", "trajectory") == sent);
            place.said().matches("session lazy lags further behind").count() > closed
        });
        place.until("it is gone", |place| place.snapshot()["sessions"].as_array().unwrap().len() == 1);
        holdings.push(place.holdings());
    }
    // Nothing is left of it, and as much as the interface's whole memory goes through it again and again.
    place.holds_no_more(holdings[1], (2, 8));
    let before = channel(&place, "good")["drops"].clone();
    for _ in 0..100 {
        place.send(&vec![udp(1, &[7; 1000]); 200]);
        sent += 200;
        place.until("the good one has had them", |place| had(place, "good", "trajectory") == sent);
    }
    assert_eq!(channel(&place, "good")["drops"], before);
}

#[test]
fn what_others_threads_do_for_a_session_is_on_its_bill_and_a_recorded_run_replays() {
    if !is_inside("channels::what_others_threads_do_for_a_session_is_on_its_bill_and_a_recorded_run_replays")
    {
        return;
    }
    let mut place = Place::with_cpu(
        "trace = \"PATH/trace\"\n",
        "[[session]]\nname = \"alice\"\ncpu = [{ period = \"10ms\", slice = \"2ms\" }]\n\
         channel = [{ interface = \"b\", filter = \"udp\" }]\nmodule = [{ module = \"trajectory\" }]\n\
         [[session]]\nname = \"bob\"\nchannel = [{ interface = \"b\", filter = \"udp\" }]\nmodule = [{ module = \"trajectory\" }]\n\
         [[session]]\nname = \"idle\"\nchannel = [{ interface = \"b\", filter = \"tcp\" }]\nmodule = [{ module = \"trajectory\" }]\n",
    );
    for round in 1..=10 {
        place.send(&vec![udp(1, &[7; 1000]); 300]);
        place.until("both have seen them", |place| {
            ["alice", "bob"].iter().all(|name| place.count(name, "trajectory", "packets") == 300 * round)
        });
    }
    let cpu = |place: &Place, name: &str| place.part(name, "cpu", "main");
    let used = ["alice", "bob"].map(|name| {
        let cpu = cpu(&place, name);
        let debited = cpu["debited_ns"].as_u64().unwrap();
        assert!(debited > 0, "{cpu}");
        cpu["used_ns"].as_u64().unwrap() + debited
    });
    assert_eq!(cpu(&place, "idle")["debited_ns"], 0, "nothing was received for it");
    assert!(place.stop().success());
    for (name, used) in ["alice", "bob"].into_iter().zip(used) {
        assert!(place.billed(name, "cpu_ns") >= used, "{name}");
    }
    let mut replayed = 0;
    for file in std::fs::read_dir(place.path().join("trace")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        assert!(
            text.contains(" imposed -> left ") && text.contains("-> run "),
            "{}",
            text.lines().take(50).collect::<String>()
        );
        let core = weir_sched::cpu::trace::replay(text.lines()).unwrap();
        assert!(core.totals().runs > 0);
        replayed += 1;
    }
    assert_eq!(replayed, 1, "one core");
}
