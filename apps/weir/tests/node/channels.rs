//! Preprocessing of packets, and the order in which sessions lose packets under overload.

use crate::module::{MANIFEST, assemble, text};
use crate::testbed::{Testbed, is_inside, udp, udp_fragments, with_ip_checksum};
use serde_json::{Value, json};

fn channel(testbed: &Testbed, session: &str) -> Value {
    testbed.part(session, "channels", "main")
}

#[test]
fn later_fragments_follow_the_first_one() {
    if !is_inside("channels::later_fragments_follow_the_first_one") {
        return;
    }
    let session = |name: &str, filter: &str| {
        format!(
            "[[session]]\nname = \"{name}\"\nchannel = [{{ interface = \"b\", filter = \"{filter}\" }}]\n\
             module = [{{ module = \"trajectory\" }}]\n"
        )
    };
    let mut testbed = Testbed::new(&(session("alice", "udp port 53") + &session("bob", "udp port 99")));
    for id in 0..50 {
        testbed.send(&udp_fragments(53, 2 * id, &[1; 1500]));
        testbed.send(&udp_fragments(99, 2 * id + 1, &[1; 900])[..1]);
        // Later fragments of a datagram whose first fragment never arrived.
        testbed.send(&udp_fragments(53, 1000 + id, &[1; 1500])[1..]);
    }
    testbed.until("each session has its own packets", |testbed| {
        testbed.count("alice", "trajectory", "packets") == 150
            && testbed.count("bob", "trajectory", "packets") == 50
    });
    // A channel at the index of a closed one gets no fragments of the other's datagrams.
    testbed.send(&udp_fragments(53, 5000, &[1; 1500])[..1]);
    testbed.until("the first part has arrived", |testbed| {
        testbed.count("alice", "trajectory", "packets") == 151
    });
    testbed.request(json!({"close": {"session": "alice"}}));
    testbed
        .request(json!({"create": {"name": "eve", "channel": [{"interface": "b", "filter": "udp port 7"}]}}));
    assert!(testbed.load("eve", json!({"module": "trajectory"}), &[])["done"].is_object());
    testbed.send(&udp_fragments(53, 5000, &[1; 1500])[1..]);
    testbed.send(&[udp(7, b"x")]);
    testbed.until("Eve's module has received the packet", |testbed| {
        testbed.count("eve", "trajectory", "packets") == 1
    });
}

#[test]
fn wrong_checksums_are_counted_and_dropped_on_request() {
    if !is_inside("channels::wrong_checksums_are_counted_and_dropped_on_request") {
        return;
    }
    let session = |name: &str, more: &str| {
        format!(
            "[[session]]\nname = \"{name}\"\n\
             channel = [{{ interface = \"b\", filter = \"udp\"{more} }}]\nmodule = [{{ module = \"trajectory\" }}]\n"
        )
    };
    let mut testbed = Testbed::new(&(session("strict", ", checksum = \"verify\"") + &session("lax", "")));
    let good = with_ip_checksum(udp(53, b"none is right, too"));
    let mut bad_udp = good.clone();
    bad_udp[40] ^= 1;
    let mut bad_ip = good.clone();
    bad_ip[22] ^= 1;
    for _ in 0..100 {
        testbed.send(&[good.clone(), bad_udp.clone(), bad_ip.clone(), good.clone()]);
    }
    testbed.until("all packets have been checked", |testbed| {
        testbed.count("strict", "trajectory", "packets") == 200
            && testbed.count("lax", "trajectory", "packets") == 400
    });
    assert_eq!(channel(&testbed, "strict")["findings"], json!({"bad-ipv4": 100, "bad-udp": 100}));
    assert_eq!(channel(&testbed, "strict")["drops"], json!({"bad-checksum": 200}));
    assert_eq!(channel(&testbed, "lax")["drops"], json!({}));
    assert!(testbed.stop().success());
    let bills = testbed.ledger();
    let of = bills.iter().filter(|entry| entry["session"]["name"] == "strict");
    let lost: u64 = of.filter_map(|entry| entry["usage"]["drops"]["bad-checksum"].as_u64()).sum();
    assert_eq!(lost, 200);
}

#[test]
fn datagrams_are_reassembled_and_overlapping_fragments_are_dropped() {
    if !is_inside("channels::datagrams_are_reassembled_and_overlapping_fragments_are_dropped") {
        return;
    }
    let mut testbed = Testbed::new(
        "[[session]]\nname = \"alice\"\ncpu = [{ period = \"10ms\", slice = \"2ms\" }]\n\
         channel = [{ interface = \"b\", filter = \"udp port 53\", reassemble = true, checksum = \"verify\" }]\n",
    );
    // Emits the length of each packet.
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
        (i64.store (i32.const 64) (i64.load32_u offset=12 (local.get $d)))
        (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
        (i32.const 0))"#;
    let bytes = assemble(&text(body), Some(MANIFEST.replace("NAME", "lengths").as_bytes()));
    let reply = testbed.load("alice", json!({"module": "lengths.wasm"}), &bytes);
    assert!(reply.get("done").is_some(), "{reply}");
    for id in 0..40 {
        let parts = udp_fragments(53, id, &[1; 1500]);
        testbed.send(&[
            with_ip_checksum(udp(53, b"in between")),
            parts[0].clone(),
            parts[2].clone(),
            parts[1].clone(),
        ]);
    }
    // Overlapping fragments with different bytes, and then the rest of the datagram.
    let (mut parts, other) = (udp_fragments(53, 99, &[1; 1500]), udp_fragments(53, 99, &[2; 1500]));
    parts.insert(1, other[0].clone());
    testbed.send(&parts);
    testbed.until("all packets are counted", |testbed| {
        testbed.count("alice", "lengths", "packets") == 80
            && channel(testbed, "alice")["drops"] == json!({"reassembly": 4})
    });
    let findings = channel(&testbed, "alice")["findings"].clone();
    assert_eq!(findings, json!({"reassembled": 40, "fragments-overlapping": 4}));
    // The fates of fragments are counted at the interface, for operators and metrics.
    let of = |testbed: &Testbed, what: &str| testbed.snapshot()["interfaces"][0]["fragments"][what].as_u64();
    testbed.until("all are counted", |testbed| {
        (of(testbed, "followed"), of(testbed, "first")) == (Some(82), Some(42))
    });
    let show = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["session", "show", "alice"])
        .env("WEIR_SOCKET", testbed.path().join("node.sock"))
        .output()
        .unwrap();
    let text = String::from_utf8(show.stdout).unwrap();
    assert!(text.contains("main: found 4 fragments-overlapping, 40 reassembled"), "{text}");
    assert!(text.contains("b: fragments: "), "{text}");
    assert!(testbed.stop().success());
    // Forty short frames of 60 bytes, and forty of 14 + 20 + 8 + 1500.
    assert_eq!(testbed.ledger_usage("alice", "bytes_in"), 40 * 60 + 40 * 1542);
}

/// The memory of the record files of a module with two streams of one field.
const RECORD_MEMORY: u64 = 384 << 10;

#[test]
fn fragments_wait_in_memory_that_their_session_has_reserved() {
    if !is_inside("channels::fragments_wait_in_memory_that_their_session_has_reserved") {
        return;
    }
    let mut testbed = Testbed::new(
        "[[session]]\nname = \"alice\"\nmemory = \"4 MiB\"\n\
         channel = [{ interface = \"b\", filter = \"udp\", reassemble = true }]\n\
         [[session]]\nname = \"poor\"\nmemory = \"1 MiB\"\n\
         channel = [{ interface = \"b\", filter = \"udp\", reassemble = true }, { name = \"plain\", interface = \"b\", filter = \"udp\" }]\n",
    );
    let used = |testbed: &Testbed| -> Vec<u64> {
        let sessions = testbed.snapshot()["sessions"].as_array().unwrap().clone();
        sessions.iter().map(|session| session["memory_used"].as_u64().unwrap()).collect()
    };
    let module = assemble(
        &text("(func (export \"weir_packet\") (param i32) (result i32) (i32.const 0))"),
        Some(MANIFEST.replace("NAME", "small").as_bytes()),
    );
    for name in ["one", "two"] {
        let reply = testbed.load("alice", json!({"module": "small.wasm", "name": name}), &module);
        assert!(reply.get("done").is_some(), "{reply}");
    }
    // For each module a page, the memory of its record files, and 1 MiB for waiting fragments.
    assert_eq!(used(&testbed)[0], 2 * (65_536 + RECORD_MEMORY + (1 << 20)));
    let why = testbed.load("poor", json!({"module": "small.wasm"}), &module)["refused"]["why"].to_string();
    assert!(why.contains("channel `main` reassembles datagrams, in 1 MiB of the session's memory"), "{why}");
    assert_eq!(used(&testbed)[1], 0);
    let plain = testbed.load("poor", json!({"module": "small.wasm", "channel": "plain"}), &module);
    assert!(plain.get("done").is_some(), "{plain}");
    // The memory is released even while fragments wait in it.
    testbed.send(&udp_fragments(53, 7, &[1; 1500])[..2]);
    testbed.until("the packets have arrived", |testbed| channel(testbed, "alice")["packets"] == 2);
    for name in ["one", "two"] {
        testbed.request(json!({"unload": {"session": "alice", "module": name}}));
    }
    assert_eq!(used(&testbed)[0], 0);
    assert!(testbed.stop().success());
}

#[test]
fn sub_flows_are_served_in_turn_without_loss() {
    if !is_inside("channels::sub_flows_are_served_in_turn_without_loss") {
        return;
    }
    let mut testbed = Testbed::new(
        "[[session]]\nname = \"alice\"\n\
         channel = [{ interface = \"b\", filter = \"udp\", queue = 16384, subflows = { by = [\"dst_port\", \"src_addr\"], queues = 16 } }]\n\
         module = [{ module = \"trajectory\" }]\n",
    );
    testbed.send(&(0..3000).map(|i: u16| udp(i % 300, b"x")).collect::<Vec<_>>());
    testbed
        .until("all packets are counted", |testbed| testbed.count("alice", "trajectory", "packets") == 3000);
    assert_eq!(channel(&testbed, "alice")["drops"], json!({}));
}

/// A proved module that runs a loop of `rounds` iterations for each packet.
fn slow_module(rounds: u32) -> Vec<u8> {
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
fn under_overload_the_highest_priority_loses_nothing() {
    if !is_inside("channels::under_overload_the_highest_priority_loses_nothing") {
        return;
    }
    let session = |name: &str, priority: u8| {
        format!(
            "[[session]]\nname = \"{name}\"\npriority = {priority}\nchannel = [{{ interface = \"b\", filter = \"udp\", queue = 1024 }}]\n"
        )
    };
    let mut testbed = Testbed::new(&(session("low", 1) + &session("high", 5)));
    for name in ["low", "high"] {
        let reply = testbed.load(name, json!({"module": "slow.wasm"}), &slow_module(200_000));
        assert!(reply.get("done").is_some(), "{reply}");
    }
    // Repeatedly more than half of the capacity of the highest-priority queue, but never more than its capacity.
    let shed = |testbed: &Testbed| channel(testbed, "low")["drops"]["shed"].as_u64().unwrap_or(0);
    let mut sent = 0;
    while sent < 8000 || shed(&testbed) == 0 {
        assert!(sent < 200_000, "no module makes way: {}", channel(&testbed, "low"));
        // Received packets are counted before they are in the queue, so the margin is large.
        testbed.until("the queue has room", |testbed| sent - received_or_lost(testbed, "high", "slow") < 300);
        testbed.send(&vec![udp(1, b"x"); 600]);
        sent += 600;
    }
    testbed.until("the highest priority has received all packets", |testbed| {
        testbed.count("high", "slow", "packets") == sent
    });
    assert_eq!(channel(&testbed, "high")["drops"], json!({}));
    assert!(shed(&testbed) > 0);
    // After the overload all waiting packets are handled.
    testbed.until("the lowest priority has received all packets", |testbed| {
        received_or_lost(testbed, "low", "slow") == sent
    });
    let before = testbed.count("low", "slow", "packets");
    testbed.send(&vec![udp(1, b"x"); 50]);
    testbed.until("the lowest priority is served again", |testbed| {
        testbed.count("low", "slow", "packets") == before + 50
    });
}

#[test]
fn when_an_xdp_interfaces_memory_is_full_the_lowest_priority_is_shed_even_if_the_highest_has_older_packets() {
    let name = "channels::when_an_xdp_interfaces_memory_is_full_the_lowest_priority_is_shed_even_if_the_highest_has_older_packets";
    if !is_inside(name) {
        return;
    }
    // A tiny slice, and queues for more packets than the interface has frames.
    let session = |name: &str, priority: u8, port: u16| {
        format!(
            "[[session]]\nname = \"{name}\"\npriority = {priority}\ncpu = [{{ period = \"10s\", slice = \"100us\" }}]\n\
             channel = [{{ interface = \"b\", filter = \"udp port {port}\", visibility = \"all\", queue = 100000 }}]\n"
        )
    };
    let mut testbed =
        Testbed::new(&("kind = \"xdp\"\n".to_owned() + &session("low", 1, 2) + &session("high", 5, 1)));
    for name in ["low", "high"] {
        let reply = testbed.load(name, json!({"module": "slow.wasm"}), &slow_module(400_000));
        assert!(reply.get("done").is_some(), "{reply}");
    }
    // Fewer packets than blocks, in case each is a block of its own.
    testbed.send(&vec![udp(1, b"x"); 100]);
    testbed.until("the packets have arrived", |testbed| channel(testbed, "high")["packets"] == 100);
    let lost = |testbed: &Testbed, name: &str| -> u64 {
        channel(testbed, name)["drops"].as_object().unwrap().values().filter_map(Value::as_u64).sum()
    };
    let shed = |testbed: &Testbed| channel(testbed, "low")["drops"]["shed"].as_u64().unwrap_or(0);
    // Packets that the lowest-priority session does not handle fill the memory repeatedly.
    testbed.until("the lowest priority has lost more packets than the memory holds", |testbed| {
        testbed.send(&vec![udp(2, b"x"); 200]);
        shed(testbed) > 5000
    });
    assert_eq!(channel(&testbed, "high")["drops"], json!({}));
    assert!(testbed.count("high", "slow", "packets") < 100, "it still holds the oldest ones");

    // Now the priorities are exchanged while both run.
    testbed.request(json!({"change": {"session": "high", "priority": 0}}));
    let before = shed(&testbed);
    testbed.until("it loses packets", |testbed| {
        testbed.send(&vec![udp(2, b"x"); 50]);
        let of_low = shed(testbed);
        let has_lost = lost(testbed, "high") > 0;
        assert!(has_lost || of_low == before, "{of_low} {before}");
        has_lost
    });
    // With enough processor time all waiting packets are handled.
    for name in ["low", "high"] {
        let cpu = json!([{"period": "20ms", "slice": "4ms", "borrow": true}]);
        testbed.request(json!({"change": {"session": name, "cpu": cpu}}));
    }
    testbed.until("all have been seen or lost", |testbed| {
        channel(testbed, "low")["waiting"] == 0
            && testbed.count("high", "slow", "packets") + lost(testbed, "high") == 100
    });
    assert!(testbed.stop().success());
}

/// The number of packets that a module has received, or that its channel has lost.
fn received_or_lost(testbed: &Testbed, session: &str, module: &str) -> u64 {
    let lost = channel(testbed, session)["drops"]
        .as_object()
        .unwrap()
        .values()
        .filter_map(Value::as_u64)
        .sum::<u64>();
    testbed.count(session, module, "packets") + lost
}

#[test]
fn a_session_that_lags_too_far_is_closed_and_its_memory_released() {
    if !is_inside("channels::a_session_that_lags_too_far_is_closed_and_its_memory_released") {
        return;
    }
    let mut testbed = Testbed::new(
        "[[session]]\nname = \"good\"\npriority = 1\ncpu = [{ period = \"20ms\", slice = \"4ms\", borrow = true }]\n\
         channel = [{ interface = \"b\", filter = \"udp\", visibility = \"all\", queue = 100000, lag_max = \"7 MiB\" }]\nmodule = [{ module = \"trajectory\" }]\n",
    );
    let endless = r#"(func (export "weir_packet") (param $d i32) (result i32)
        (loop $l (br_if $l (i32.ne (i32.load (i32.const 64)) (i32.const 1)))) (i32.const 0))"#;
    let bytes = assemble(&text(endless), Some(MANIFEST.replace("NAME", "endless").as_bytes()));
    let mut sent = 0;
    let mut holdings = Vec::new();
    for _ in 0..4 {
        testbed.request(json!({"create": {"name": "lazy", "cpu": [{"period": "20ms", "slice": "100us"}], "channel": [{"interface": "b",
            "filter": "udp", "visibility": "all", "queue": 100_000, "lag_max": "64 KiB", "on_lag": "close"}]}}));
        assert!(testbed.load("lazy", json!({"module": "endless.wasm"}), &bytes).get("done").is_some());
        let closed = testbed.log().matches("session lazy lags further behind").count();
        testbed.until("the module is unloaded", |testbed| {
            // More packets than the lag limit, long before the module exceeds its limits too often.
            testbed.send(&vec![udp(1, &[7; 1000]); 200]);
            sent += 200;
            testbed.until("the good module has received the packets", |testbed| {
                received_or_lost(testbed, "good", "trajectory") == sent
            });
            testbed.log().matches("session lazy lags further behind").count() > closed
        });
        testbed.until("the session is closed", |testbed| {
            testbed.snapshot()["sessions"].as_array().unwrap().len() == 1
        });
        holdings.push(testbed.descriptors_and_mappings());
    }
    // Nothing of the session is left, and as many packets pass as the interface's whole memory holds.
    testbed.wait_until_released(holdings[1], (2, 8));
    let before = channel(&testbed, "good")["drops"].clone();
    for _ in 0..100 {
        testbed.send(&vec![udp(1, &[7; 1000]); 200]);
        sent += 200;
        testbed.until("the good module has received the packets", |testbed| {
            received_or_lost(testbed, "good", "trajectory") == sent
        });
    }
    assert_eq!(channel(&testbed, "good")["drops"], before);
}

#[test]
fn work_of_other_threads_is_charged_to_its_session_and_a_recorded_run_replays() {
    if !is_inside("channels::work_of_other_threads_is_charged_to_its_session_and_a_recorded_run_replays") {
        return;
    }
    let mut testbed = Testbed::with_cpu(
        "trace = \"PATH/trace\"\n",
        "[[session]]\nname = \"alice\"\ncpu = [{ period = \"10ms\", slice = \"2ms\" }]\n\
         channel = [{ interface = \"b\", filter = \"udp\" }]\nmodule = [{ module = \"trajectory\" }]\n\
         [[session]]\nname = \"bob\"\nchannel = [{ interface = \"b\", filter = \"udp\" }]\nmodule = [{ module = \"trajectory\" }]\n\
         [[session]]\nname = \"idle\"\nchannel = [{ interface = \"b\", filter = \"tcp\" }]\nmodule = [{ module = \"trajectory\" }]\n",
    );
    for round in 1..=10 {
        testbed.send(&vec![udp(1, &[7; 1000]); 300]);
        testbed.until("both modules have received the packets", |testbed| {
            ["alice", "bob"].iter().all(|name| testbed.count(name, "trajectory", "packets") == 300 * round)
        });
    }
    let cpu = |testbed: &Testbed, name: &str| testbed.part(name, "cpu", "main");
    let used = ["alice", "bob"].map(|name| {
        let cpu = cpu(&testbed, name);
        let debited = cpu["debited_ns"].as_u64().unwrap();
        assert!(debited > 0, "{cpu}");
        cpu["used_ns"].as_u64().unwrap() + debited
    });
    assert_eq!(cpu(&testbed, "idle")["debited_ns"], 0, "nothing was received for it");
    assert!(testbed.stop().success());
    for (name, used) in ["alice", "bob"].into_iter().zip(used) {
        assert!(testbed.ledger_usage(name, "cpu_ns") >= used, "{name}");
    }
    let mut replayed = 0;
    for file in std::fs::read_dir(testbed.path().join("trace")).unwrap() {
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
