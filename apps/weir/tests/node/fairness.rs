//! Isolation of performance: a slow session costs others nothing, and refused or closed sessions leave nothing behind.

use crate::module::{MANIFEST, assemble, text};
use crate::testbed::{Testbed, ip, is_inside, udp, udp_fragments};
use serde_json::{Value, json};
use std::process::Command;

fn module(name: &str, body: &str) -> Vec<u8> {
    assemble(&text(body), Some(MANIFEST.replace("NAME", name).as_bytes()))
}

/// A proved module that takes long for each packet.
fn slow_module() -> Vec<u8> {
    module(
        "slow",
        r#"(func (export "weir_packet") (param $d i32) (result i32)
            (local $i i32)
            (local.set $i (i32.const 100000))
            (loop $next (br_if $next (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
            (i32.const 0))"#,
    )
}

/// A metered module that takes long for each packet, as `slow_module` does.
fn slow_and_metered() -> Vec<u8> {
    module(
        "slow",
        r#"(func (export "weir_packet") (param $d i32) (result i32)
            (i32.store (i32.const 64) (i32.const 200000))
            (loop $next
                (i32.store (i32.const 64) (i32.sub (i32.load (i32.const 64)) (i32.const 1)))
                (br_if $next (i32.load (i32.const 64))))
            (i32.const 0))"#,
    )
}

fn session(name: &str, cpu: &str, channel: &str, modules: &str) -> String {
    format!(
        "[[session]]\nname = \"{name}\"\ncpu = [{{ {cpu} }}]\nchannel = [{{ interface = \"b\", {channel} }}]\n\
         module = [{modules}]\n"
    )
}

const QUICK: &str = "period = \"20ms\", slice = \"2ms\", borrow = true";

fn drops(testbed: &Testbed, session: &str) -> Value {
    testbed.part(session, "channels", "main")["drops"].clone()
}

/// Sends packets one by one, each after `good` has received the last one, so each is in a block of its own.
fn send_one_by_one(testbed: &mut Testbed, count: u64) {
    let before = testbed.count("good", "trajectory", "packets");
    for sent in 1..=count {
        testbed.send(&[udp(1, b"x")]);
        testbed.until("the good module has received the packet", |testbed| {
            testbed.count("good", "trajectory", "packets") == before + sent
        });
    }
}

#[test]
fn a_slow_session_costs_others_of_the_same_filter_nothing() {
    if !is_inside("fairness::a_slow_session_costs_others_of_the_same_filter_nothing") {
        return;
    }
    let channel = "filter = \"udp\", queue = 30000";
    let mut testbed = Testbed::new(
        &(session("good", QUICK, channel, "{ module = \"trajectory\" }")
            + &session("bad", "period = \"10s\", slice = \"100us\"", channel, ""))
            .replace("name =", "memory = \"128 MiB\"\nname ="),
    );
    ip("link set dev a mtu 65535");
    ip("link set dev b mtu 65535");
    assert!(testbed.load("bad", json!({"module": "slow.wasm"}), &slow_module())["done"].is_object());
    // More blocks than the shared memory has pages of descriptors: with so few packets in each, all can still wait.
    send_one_by_one(&mut testbed, 400);
    assert_eq!((drops(&testbed, "good"), drops(&testbed, "bad")), (json!({}), json!({})));
    // More than the shared memory can hold, as these packets are long.
    let frames = vec![udp(1, &[0; 14_000]); 100];
    while drops(&testbed, "bad") == json!({}) {
        let before = testbed.count("good", "trajectory", "packets");
        testbed.send(&frames);
        testbed.until("the good module has received the packets", |testbed| {
            testbed.count("good", "trajectory", "packets") == before + 100
        });
    }
    assert_eq!(drops(&testbed, "good"), json!({}));
    let bad = drops(&testbed, "bad");
    assert!(bad["shed"].as_u64().unwrap() > 0 && bad.get("queue-full").is_none(), "{bad}");
}

#[test]
fn a_queue_holds_its_configured_number_of_packets_at_any_rate() {
    if !is_inside("fairness::a_queue_holds_its_configured_number_of_packets_at_any_rate") {
        return;
    }
    for kind in ["packet", "xdp"] {
        for visibility in ["selected", "all"] {
            let channel = format!("filter = \"udp\", queue = 3000, visibility = \"{visibility}\"");
            let of_interface = format!("kind = \"{kind}\"\n");
            let mut testbed = Testbed::new(
                &(of_interface + &session("slow", "period = \"10s\", slice = \"100us\"", &channel, "")),
            );
            assert!(testbed.load("slow", json!({"module": "slow.wasm"}), &slow_module())["done"].is_object());
            // A few packets in each block, and more blocks than there are pages of descriptors or blocks in a ring.
            for _ in 0..1500 {
                testbed.send(&vec![udp(1, b"x"); 2]);
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            let channel = |testbed: &Testbed| testbed.part("slow", "channels", "main");
            let count = |value: &Value| value.as_u64().unwrap();
            // Packets that the kernel has dropped never arrive.
            let mut came = 0;
            testbed.until("all packets have arrived", |testbed| {
                came = count(&channel(testbed)["packets"]);
                came + count(&testbed.snapshot()["interfaces"][0]["missed"]) == 3000
            });
            assert!(came > 2900, "{kind} {visibility}: {came}");
            let lost = channel(&testbed)["drops"].clone();
            assert_eq!(lost, json!({}), "{kind} {visibility}: {}", channel(&testbed));
            // With enough processor time all of them are received.
            let cpu = json!([{"period": "20ms", "slice": "4ms", "borrow": true}]);
            testbed.request(json!({"change": {"session": "slow", "cpu": cpu}}));
            testbed.until("all packets have been received", |testbed| {
                testbed.count("slow", "slow", "packets") == came
            });
            assert_eq!(channel(&testbed)["drops"], json!({}), "{kind} {visibility}");
            assert!(testbed.stop().success());
            drop(testbed);
            ip("link del dev a");
        }
    }
}

/// Packets of 1,500 bytes, each with its number as the first four bytes of its payload.
fn long_packets(first: u32, count: u32) -> Vec<Vec<u8>> {
    (first..first + count).map(|number| udp(1, &[&number.to_be_bytes()[..], &[7; 1454]].concat())).collect()
}

#[test]
fn a_queue_can_be_longer_than_the_memory_of_its_selection() {
    if !is_inside("fairness::a_queue_can_be_longer_than_the_memory_of_its_selection") {
        return;
    }
    // 60,000 packets of 1,500 bytes are 90 MB; a selection's memory has 64 MiB.
    let queue = 60_000;
    let session = |name: &str, cpu: &str| {
        session(name, cpu, &format!("filter = \"udp\", queue = {queue}"), "")
            .replace("[[session]]\n", "[[session]]\nmemory = \"256 MiB\"\n")
    };
    let mut testbed =
        Testbed::new(&(session("slow", "period = \"10s\", slice = \"100us\"") + &session("quick", QUICK)));
    assert!(testbed.load("slow", json!({"module": "slow.wasm"}), &slow_module())["done"].is_object());
    assert!(testbed.load("quick", json!({"module": "trajectory"}), &[])["done"].is_object());
    let count = |value: &Value| value.as_u64().unwrap();
    let (mut sent, came) = (0, u64::from(queue));
    while sent < queue {
        testbed.send(&long_packets(sent, 2000));
        sent += 2000;
        // Each part is received before the next one is sent, so the interface loses nothing on a busy machine.
        testbed.until("a part has arrived", |testbed| {
            count(&testbed.part("slow", "channels", "main")["packets"]) == u64::from(sent)
        });
    }
    assert_eq!((drops(&testbed, "slow"), drops(&testbed, "quick")), (json!({}), json!({})));
    // With enough processor time all of them are received.
    let cpu = json!([{"period": "20ms", "slice": "8ms", "borrow": true}]);
    testbed.request(json!({"change": {"session": "slow", "cpu": cpu}}));
    testbed
        .until("all packets have been received", |testbed| testbed.count("slow", "slow", "packets") == came);
    assert_eq!(drops(&testbed, "slow"), json!({}));
    assert!(testbed.stop().success());
}

#[test]
fn a_full_queue_of_a_slow_reader_takes_no_memory_from_new_packets() {
    if !is_inside("fairness::a_full_queue_of_a_slow_reader_takes_no_memory_from_new_packets") {
        return;
    }
    // The reader handles a packet now and then, so the waiting packets are spread over the whole memory.
    let channel = "filter = \"udp\", queue = 200";
    let mut testbed = Testbed::new(&session("slow", "period = \"10ms\", slice = \"100us\"", channel, ""));
    assert!(testbed.load("slow", json!({"module": "slow.wasm"}), &slow_module())["done"].is_object());
    for round in 0..200 {
        testbed.send(&long_packets(round * 1000, 1000));
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let all = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(all(&drops(&testbed, "slow")), ["queue-full"]);
    assert!(testbed.stop().success());
}

#[test]
fn a_queue_for_which_its_session_has_no_memory_is_refused() {
    if !is_inside("fairness::a_queue_for_which_its_session_has_no_memory_is_refused") {
        return;
    }
    let testbed = Testbed::new(&session("small", QUICK, "filter = \"udp\", queue = 40000", ""));
    let why = testbed.load("small", json!({"module": "trajectory"}), &[])["refused"]["why"].to_string();
    assert!(why.contains("channel `main` has a queue of 40000 packets, which takes "), "{why}");
}

#[test]
fn a_call_that_is_suspended_with_packets_of_the_interface_does_not_stop_it() {
    if !is_inside("fairness::a_call_that_is_suspended_with_packets_of_the_interface_does_not_stop_it") {
        return;
    }
    let mut testbed = Testbed::new(
        &(session("good", QUICK, "filter = \"udp\"", "{ module = \"trajectory\" }")
            + &session(
                "bad",
                "period = \"100ms\", slice = \"100us\"",
                "filter = \"udp\", visibility = \"all\"",
                "",
            )),
    );
    assert!(testbed.load("bad", json!({"module": "slow.wasm"}), &slow_and_metered())["done"].is_object());
    // A whole batch keeps the module busy for half a minute; meanwhile more blocks arrive than the interface's memory has.
    testbed.send(&vec![udp(1, b"x"); 64]);
    testbed.until("the good module has received the packets", |testbed| {
        testbed.count("good", "trajectory", "packets") == 64
    });
    send_one_by_one(&mut testbed, 150);
    assert_eq!(drops(&testbed, "good"), json!({}));
    assert_eq!(testbed.snapshot()["interfaces"][0]["missed"], 0);
    // The module still runs, and handles new packets.
    let seen = testbed.count("bad", "slow", "packets");
    testbed.until("the module has received more packets", |testbed| {
        testbed.count("bad", "slow", "packets") > seen
    });
    assert_eq!((testbed.count("bad", "slow", "faults"), testbed.count("bad", "slow", "strikes")), (0, 0));
    assert!(testbed.stop().success());
    // Packets that it did not handle are charged as lost.
    let bills = testbed.ledger();
    let of = bills.iter().filter(|entry| entry["session"]["name"] == "bad");
    let lost: u64 = of.filter_map(|entry| entry["usage"]["drops"]["over-limit"].as_u64()).sum();
    assert!(lost > 0);
}

#[test]
fn the_time_of_a_call_is_reserved_for_the_longest_possible_packet() {
    if !is_inside("fairness::the_time_of_a_call_is_reserved_for_the_longest_possible_packet") {
        return;
    }
    // A module that reads each captured byte.
    let bytes = module(
        "bytes",
        r#"(func (export "weir_packet") (param $d i32) (result i32)
            (local $left i32)
            (local.set $left (i32.load offset=12 (local.get $d)))
            (if (local.get $left) (then
                (loop $next (br_if $next (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))))
            (i32.const 0))"#,
    );
    let mut testbed =
        Testbed::with_cpu("trace = \"PATH/trace\"\n", &session("alice", QUICK, "filter = \"udp\"", ""));
    ip("link set dev a mtu 65535");
    ip("link set dev b mtu 65535");
    assert!(testbed.load("alice", json!({"module": "bytes.wasm"}), &bytes)["done"].is_object());
    assert_eq!(testbed.part("alice", "modules", "bytes")["tier"], "proved");
    // Long packets among short ones, as a network card with receive offload merges them.
    let frames: Vec<Vec<u8>> =
        (0..200).map(|i| udp(1, &vec![7; if i % 3 == 0 { 60_000 } else { 10 }])).collect();
    for round in 1..=5 {
        testbed.send(&frames);
        testbed.until("the module has received the packets", |testbed| {
            testbed.count("alice", "bytes", "packets") == 200 * round
        });
    }
    assert_eq!(drops(&testbed, "alice"), json!({}));
    assert!(testbed.stop().success());
    let mut overruns = Vec::new();
    for file in std::fs::read_dir(testbed.path().join("trace")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let terms =
            text.lines().filter_map(|line| line.split_once("reserved ").map(|(_, terms)| terms.to_owned()));
        overruns.extend(terms.filter_map(|terms| terms.split(' ').nth(3)?.parse::<u64>().ok()));
    }
    // The default calibration is a quarter of a nanosecond for each instruction.
    assert!(overruns.iter().any(|overrun| *overrun > 65_535 / 4), "{overruns:?}");
}

#[test]
fn later_fragments_go_to_all_channels_of_a_filter() {
    if !is_inside("fairness::later_fragments_go_to_all_channels_of_a_filter") {
        return;
    }
    let create = |name: &str, filter: &str| json!({"create": {"name": name, "channel": [{"interface": "b", "filter": filter}]}});
    let mut testbed = Testbed::new("");
    let load = |testbed: &Testbed, name: &str| {
        assert!(testbed.load(name, json!({"module": "trajectory"}), &[])["done"].is_object());
    };
    for (name, filter) in [("first", "udp port 7"), ("old", "udp port 53")] {
        testbed.request(create(name, filter));
        load(&testbed, name);
    }
    for id in 0..6 {
        testbed.send(&udp_fragments(53, id, &[1; 1500])[..1]);
    }
    testbed.until("the first parts are stored", |testbed| testbed.count("old", "trajectory", "packets") == 6);
    // A channel with the same filter, at a lower index than the other's.
    testbed.request(json!({"close": {"session": "first"}}));
    testbed.request(create("new", "udp port 53"));
    load(&testbed, "new");
    for id in 0..6 {
        let mut frames = udp_fragments(53, id, &[1; 1500]).split_off(1);
        frames.push(udp(53, b"x"));
        testbed.send(&frames);
    }
    testbed.until("all packets are counted", |testbed| {
        testbed.count("old", "trajectory", "packets") == 24
            && testbed.count("new", "trajectory", "packets") == 18
    });
    assert_eq!((drops(&testbed, "old"), drops(&testbed, "new")), (json!({}), json!({})));
    assert_eq!(testbed.part("new", "channels", "main")["packets"], 18);
}

#[test]
fn refused_requests_leave_nothing_behind_and_every_request_is_answered() {
    if !is_inside("fairness::refused_requests_leave_nothing_behind_and_every_request_is_answered") {
        return;
    }
    let limit = format!("--pid={}", std::process::id());
    assert!(Command::new("prlimit").args([&limit, "--nofile=256:256"]).status().unwrap().success());
    let mut testbed = Testbed::new("[[interface]]\nname = \"a\"\n");
    let create = |name: &str, filters: &[(&str, &str)], slice: &str| {
        let channels: Vec<Value> = filters
            .iter()
            .map(|(interface, filter)| json!({"name": interface, "interface": interface, "filter": filter}))
            .collect();
        let cpu = json!([{"period": "20ms", "slice": slice}]);
        json!({"create": {"name": name, "memory": "1 MiB", "channel": channels, "cpu": cpu}})
    };
    let before = testbed.descriptors_and_mappings().0;
    for port in 0..300 {
        // More processor time than a core has.
        let why = testbed.request_refused(create("no", &[("b", &format!("udp port {port}"))], "20ms"));
        assert!(why.contains("virtual CPU"), "{why}");
    }
    testbed.until("their descriptors are closed", |testbed| testbed.descriptors_and_mappings().0 <= before);

    // Filters that are interpreted, until one exceeds the limit: the first interface of the session has accepted its
    // filter by then.
    let heavy = |number: usize| {
        let part =
            |at: usize| format!("(ether[{}] & 1 = 1 and ether[{}] & 2 = 2)", 20 + at % 40, 21 + number + at);
        (0..80).map(part).collect::<Vec<_>>().join(" or ")
    };
    let mut made = 0;
    while testbed
        .send_request(create(&format!("heavy{made}"), &[("b", &heavy(made))], "1us"))
        .get("done")
        .is_some()
    {
        made += 1;
    }
    let before = testbed.descriptors_and_mappings().0;
    let why = testbed.request_refused(create("no", &[("a", "udp port 7"), ("b", &heavy(made))], "1us"));
    assert!(why.contains("cannot be joined"), "{why}");
    testbed.until("its descriptors are closed", |testbed| {
        testbed.snapshot();
        testbed.descriptors_and_mappings().0 <= before
    });
    for number in 0..made {
        testbed.request(json!({"close": {"session": format!("heavy{number}")}}));
    }

    // As many sessions as possible; the node can still be asked to close them.
    let mut sessions = 0;
    let why = loop {
        let reply = testbed.send_request(create(
            &format!("s{sessions}"),
            &[("b", &format!("udp port {sessions}"))],
            "1us",
        ));
        match reply["refused"]["why"].as_str() {
            None => sessions += 1,
            Some(why) => break why.to_owned(),
        }
    };
    assert!(why.contains("its limit of open files (256)"), "{why}");
    for number in 0..sessions {
        testbed.request(json!({"close": {"session": format!("s{number}")}}));
    }
    testbed.request(create("again", &[("b", "udp")], "1us"));
}

#[test]
fn a_reservation_of_a_module_that_is_not_proved_cannot_be_removed() {
    if !is_inside("fairness::a_reservation_of_a_module_that_is_not_proved_cannot_be_removed") {
        return;
    }
    let testbed = Testbed::new(&session("alice", QUICK, "filter = \"udp\"", ""));
    assert!(testbed.load("alice", json!({"module": "slow.wasm"}), &slow_and_metered())["done"].is_object());
    let change = json!({"change": {"session": "alice", "cpu": [{"weight": 100}]}});
    let why = testbed.request_refused(change.clone());
    assert!(why.contains("is metered, and virtual CPU `main` has no reservation"), "{why}");
    assert_eq!(testbed.part("alice", "cpu", "main")["slice_ns"], 2_000_000);
    testbed.request(json!({"unload": {"session": "alice", "module": "slow"}}));
    testbed.request(change);
}

#[test]
fn a_new_session_is_not_closed_because_of_an_old_one_of_its_name() {
    if !is_inside("fairness::a_new_session_is_not_closed_because_of_an_old_one_of_its_name") {
        return;
    }
    let endless = module(
        "endless",
        r#"(func (export "weir_packet") (param $d i32) (result i32)
            (loop $l (br_if $l (i32.ne (i32.load (i32.const 64)) (i32.const 1)))) (i32.const 0))"#,
    );
    let create = json!({"create": {"name": "lazy", "cpu": [{"period": "20ms", "slice": "100us"}], "channel": [{"interface": "b",
        "filter": "udp", "visibility": "all", "lag_max": "64 KiB", "on_lag": "close"}]}});
    let mut testbed = Testbed::new("");
    // Until the session is replaced between the report of its lag and its close.
    for _ in 0..50 {
        testbed.request(create.clone());
        assert!(testbed.load("lazy", json!({"module": "endless.wasm"}), &endless)["done"].is_object());
        testbed.send(&vec![udp(1, &[7; 1000]); 200]);
        let mut lags = json!(null);
        while lags.is_null() && !testbed.snapshot()["sessions"].as_array().unwrap().is_empty() {
            lags = testbed.snapshot()["sessions"][0]["channels"][0]["drops"]["reader-ended"].clone();
        }
        if testbed.send_request(json!({"close": {"session": "lazy"}})).get("done").is_some() {
            break;
        }
    }
    testbed.request(create);
    // The interface's state is reported after the lag.
    ip("link set dev b down");
    testbed.until("the message has arrived", |testbed| testbed.log().contains("b is down"));
    assert_eq!(testbed.snapshot()["sessions"].as_array().unwrap().len(), 1, "{}", testbed.log());
}
