//! What one session does not do in time costs no other one anything, and what was refused or is gone leaves nothing behind.

use crate::module::{MANIFEST, assemble, text};
use crate::place::{Place, cut, ip, is_inside, udp};
use serde_json::{Value, json};
use std::process::Command;

fn module(name: &str, body: &str) -> Vec<u8> {
    assemble(&text(body), Some(MANIFEST.replace("NAME", name).as_bytes()))
}

/// A module that takes its time with each packet, within what can be proved.
fn slow() -> Vec<u8> {
    module(
        "slow",
        r#"(func (export "weir_packet") (param $d i32) (result i32)
            (local $i i32)
            (local.set $i (i32.const 100000))
            (loop $next (br_if $next (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
            (i32.const 0))"#,
    )
}

/// The same, within what it is charged for.
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

const QUICK: &str = "period = \"20ms\", slice = \"2ms\", spare = true";

fn drops(place: &Place, session: &str) -> Value {
    place.part(session, "channels", "main")["drops"].clone()
}

/// Sends packets one by one, each when `good` has seen the one before: so each is a block of its own.
fn send_one_by_one(place: &mut Place, count: u64) {
    let before = place.count("good", "trajectory", "packets");
    for sent in 1..=count {
        place.send(&[udp(1, b"x")]);
        place.until("the good one has seen it", |place| {
            place.count("good", "trajectory", "packets") == before + sent
        });
    }
}

#[test]
fn who_is_slow_costs_others_of_the_same_filter_nothing() {
    if !is_inside("fairness::who_is_slow_costs_others_of_the_same_filter_nothing") {
        return;
    }
    let channel = "filter = \"udp\", queue = 30000";
    let mut place = Place::new(
        &(session("good", QUICK, channel, "{ module = \"trajectory\" }")
            + &session("bad", "period = \"10s\", slice = \"100us\"", channel, ""))
            .replace("name =", "memory = \"128 MiB\"\nname ="),
    );
    ip("link set dev a mtu 65535");
    ip("link set dev b mtu 65535");
    assert!(place.load("bad", json!({"module": "slow.wasm"}), &slow())["done"].is_object());
    // More blocks than their common memory has pages of descriptors: however few packets they have, all of them wait.
    send_one_by_one(&mut place, 400);
    assert_eq!((drops(&place, "good"), drops(&place, "bad")), (json!({}), json!({})));
    // More than their common memory can hold, and than memory for packets of usual length.
    let frames = vec![udp(1, &[0; 14_000]); 100];
    while drops(&place, "bad") == json!({}) {
        let before = place.count("good", "trajectory", "packets");
        place.send(&frames);
        place.until("the good one has seen them", |place| {
            place.count("good", "trajectory", "packets") == before + 100
        });
    }
    assert_eq!(drops(&place, "good"), json!({}));
    let bad = drops(&place, "bad");
    assert!(bad["shed"].as_u64().unwrap() > 0 && bad.get("queue-full").is_none(), "{bad}");
}

#[test]
fn a_queue_holds_as_many_packets_as_its_channel_says_however_slowly_they_come() {
    if !is_inside("fairness::a_queue_holds_as_many_packets_as_its_channel_says_however_slowly_they_come") {
        return;
    }
    for kind in ["packet", "xdp"] {
        for sees in ["selected", "all"] {
            let channel = format!("filter = \"udp\", queue = 3000, sees = \"{sees}\"");
            let of_interface = format!("kind = \"{kind}\"\n");
            let mut place = Place::new(
                &(of_interface + &session("slow", "period = \"10s\", slice = \"100us\"", &channel, "")),
            );
            assert!(place.load("slow", json!({"module": "slow.wasm"}), &slow())["done"].is_object());
            // A few packets for each block, of which there are many more than there are pages of descriptors, and more than blocks in a ring.
            for _ in 0..1500 {
                place.send(&vec![udp(1, b"x"); 2]);
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            let channel = |place: &Place| place.part("slow", "channels", "main");
            let count = |value: &Value| value.as_u64().unwrap();
            // What the kernel has no room for never comes.
            let mut came = 0;
            place.until("all have come", |place| {
                came = count(&channel(place)["packets"]);
                came + count(&place.snapshot()["interfaces"][0]["missed"]) == 3000
            });
            assert!(came > 2900, "{kind} {sees}: {came}");
            let lost = channel(&place)["drops"].clone();
            assert_eq!(lost, json!({}), "{kind} {sees}: {}", channel(&place));
            // When there is time, all of them are seen.
            let cpu = json!([{"period": "20ms", "slice": "4ms", "spare": true}]);
            place.done(json!({"change": {"session": "slow", "cpu": cpu}}));
            place.until("all have been seen", |place| place.count("slow", "slow", "packets") == came);
            assert_eq!(channel(&place)["drops"], json!({}), "{kind} {sees}");
            assert!(place.stop().success());
            drop(place);
            ip("link del dev a");
        }
    }
}

/// Packets of 1,500 bytes, each with its number.
fn long(first: u32, count: u32) -> Vec<Vec<u8>> {
    (first..first + count).map(|number| udp(1, &[&number.to_be_bytes()[..], &[7; 1454]].concat())).collect()
}

#[test]
fn a_queue_that_is_longer_than_the_memory_of_its_selection_is_held_whole() {
    if !is_inside("fairness::a_queue_that_is_longer_than_the_memory_of_its_selection_is_held_whole") {
        return;
    }
    // 60,000 packets of 1,500 bytes are 90 MB; a selection has 64 MiB.
    let queue = 60_000;
    let session = |name: &str, cpu: &str| {
        session(name, cpu, &format!("filter = \"udp\", queue = {queue}"), "")
            .replace("[[session]]\n", "[[session]]\nmemory = \"256 MiB\"\n")
    };
    let mut place =
        Place::new(&(session("slow", "period = \"10s\", slice = \"100us\"") + &session("quick", QUICK)));
    assert!(place.load("slow", json!({"module": "slow.wasm"}), &slow())["done"].is_object());
    assert!(place.load("quick", json!({"module": "trajectory"}), &[])["done"].is_object());
    let count = |value: &Value| value.as_u64().unwrap();
    let (mut sent, came) = (0, u64::from(queue));
    while sent < queue {
        place.send(&long(sent, 2000));
        sent += 2000;
        // Each part is received before the next one is sent, so the interface misses nothing on a busy machine either.
        place.until("a part has come", |place| {
            count(&place.part("slow", "channels", "main")["packets"]) == u64::from(sent)
        });
    }
    assert_eq!((drops(&place, "slow"), drops(&place, "quick")), (json!({}), json!({})));
    // When there is time, all of them are seen.
    let cpu = json!([{"period": "20ms", "slice": "8ms", "spare": true}]);
    place.done(json!({"change": {"session": "slow", "cpu": cpu}}));
    place.until("all have been seen", |place| place.count("slow", "slow", "packets") == came);
    assert_eq!(drops(&place, "slow"), json!({}));
    assert!(place.stop().success());
}

#[test]
fn a_full_queue_of_a_slow_reader_takes_no_memory_from_what_comes() {
    if !is_inside("fairness::a_full_queue_of_a_slow_reader_takes_no_memory_from_what_comes") {
        return;
    }
    // The reader takes a packet now and then, so the packets that wait have come far apart, one in each part of the memory.
    let channel = "filter = \"udp\", queue = 200";
    let mut place = Place::new(&session("slow", "period = \"10ms\", slice = \"100us\"", channel, ""));
    assert!(place.load("slow", json!({"module": "slow.wasm"}), &slow())["done"].is_object());
    for round in 0..200 {
        place.send(&long(round * 1000, 1000));
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let all = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(all(&drops(&place, "slow")), ["queue-full"]);
    assert!(place.stop().success());
}

#[test]
fn a_queue_for_which_its_session_has_no_memory_is_refused() {
    if !is_inside("fairness::a_queue_for_which_its_session_has_no_memory_is_refused") {
        return;
    }
    let place = Place::new(&session("small", QUICK, "filter = \"udp\", queue = 40000", ""));
    let why = place.load("small", json!({"module": "trajectory"}), &[])["refused"]["why"].to_string();
    assert!(why.contains("channel `main` has a queue of 40000 packets, which takes "), "{why}");
}

#[test]
fn a_call_that_is_suspended_with_packets_of_the_interface_does_not_stop_it() {
    if !is_inside("fairness::a_call_that_is_suspended_with_packets_of_the_interface_does_not_stop_it") {
        return;
    }
    let mut place = Place::new(
        &(session("good", QUICK, "filter = \"udp\"", "{ module = \"trajectory\" }")
            + &session(
                "bad",
                "period = \"100ms\", slice = \"100us\"",
                "filter = \"udp\", sees = \"all\"",
                "",
            )),
    );
    assert!(place.load("bad", json!({"module": "slow.wasm"}), &slow_and_metered())["done"].is_object());
    // A whole batch, with which it is at work for half a minute, and meanwhile more blocks than the interface's memory has.
    place.send(&vec![udp(1, b"x"); 64]);
    place.until("the good one has seen them", |place| place.count("good", "trajectory", "packets") == 64);
    send_one_by_one(&mut place, 150);
    assert_eq!(drops(&place, "good"), json!({}));
    assert_eq!(place.snapshot()["interfaces"][0]["missed"], 0);
    // It is still there, and gets on with what comes.
    let seen = place.count("bad", "slow", "packets");
    place.until("it has seen more", |place| place.count("bad", "slow", "packets") > seen);
    assert_eq!((place.count("bad", "slow", "faults"), place.count("bad", "slow", "strikes")), (0, 0));
    assert!(place.stop().success());
    // What it did not come to the end of is on its bill.
    let bills = place.ledger();
    let of = bills.iter().filter(|entry| entry["session"]["name"] == "bad");
    let lost: u64 = of.filter_map(|entry| entry["usage"]["drops"]["module-fault"].as_u64()).sum();
    assert!(lost > 0);
}

#[test]
fn what_a_call_may_take_is_counted_for_the_longest_packet_that_can_come() {
    if !is_inside("fairness::what_a_call_may_take_is_counted_for_the_longest_packet_that_can_come") {
        return;
    }
    // Looks at each captured byte.
    let bytes = module(
        "bytes",
        r#"(func (export "weir_packet") (param $d i32) (result i32)
            (local $left i32)
            (local.set $left (i32.load offset=12 (local.get $d)))
            (if (local.get $left) (then
                (loop $next (br_if $next (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))))
            (i32.const 0))"#,
    );
    let mut place =
        Place::with_cpu("trace = \"PATH/trace\"\n", &session("alice", QUICK, "filter = \"udp\"", ""));
    ip("link set dev a mtu 65535");
    ip("link set dev b mtu 65535");
    assert!(place.load("alice", json!({"module": "bytes.wasm"}), &bytes)["done"].is_object());
    assert_eq!(place.part("alice", "modules", "bytes")["tier"], "proved");
    // Long ones among short ones, as a card that merges packets hands them over.
    let frames: Vec<Vec<u8>> =
        (0..200).map(|i| udp(1, &vec![7; if i % 3 == 0 { 60_000 } else { 10 }])).collect();
    for round in 1..=5 {
        place.send(&frames);
        place.until("it has seen them", |place| place.count("alice", "bytes", "packets") == 200 * round);
    }
    assert_eq!(drops(&place, "alice"), json!({}));
    assert!(place.stop().success());
    let mut overruns = Vec::new();
    for file in std::fs::read_dir(place.path().join("trace")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let terms =
            text.lines().filter_map(|line| line.split_once("reserved ").map(|(_, terms)| terms.to_owned()));
        overruns.extend(terms.filter_map(|terms| terms.split(' ').nth(3)?.parse::<u64>().ok()));
    }
    // A quarter of a nanosecond for each instruction, where nothing else was measured.
    assert!(overruns.iter().any(|overrun| *overrun > 65_535 / 4), "{overruns:?}");
}

#[test]
fn later_fragments_go_to_all_channels_of_a_filter() {
    if !is_inside("fairness::later_fragments_go_to_all_channels_of_a_filter") {
        return;
    }
    let create = |name: &str, filter: &str| json!({"create": {"name": name, "channel": [{"interface": "b", "filter": filter}]}});
    let mut place = Place::new("");
    let load = |place: &Place, name: &str| {
        assert!(place.load(name, json!({"module": "trajectory"}), &[])["done"].is_object());
    };
    for (name, filter) in [("first", "udp port 7"), ("old", "udp port 53")] {
        place.done(create(name, filter));
        load(&place, name);
    }
    for id in 0..6 {
        place.send(&cut(53, id, &[1; 1500])[..1]);
    }
    place.until("their beginnings are there", |place| place.count("old", "trajectory", "packets") == 6);
    // A channel of that filter, at a place before the other's.
    place.done(json!({"close": {"session": "first"}}));
    place.done(create("new", "udp port 53"));
    load(&place, "new");
    for id in 0..6 {
        let mut frames = cut(53, id, &[1; 1500]).split_off(1);
        frames.push(udp(53, b"x"));
        place.send(&frames);
    }
    place.until("all are there", |place| {
        place.count("old", "trajectory", "packets") == 24 && place.count("new", "trajectory", "packets") == 18
    });
    assert_eq!((drops(&place, "old"), drops(&place, "new")), (json!({}), json!({})));
    assert_eq!(place.part("new", "channels", "main")["packets"], 18);
}

#[test]
fn what_is_refused_leaves_nothing_and_who_asks_always_gets_an_answer() {
    if !is_inside("fairness::what_is_refused_leaves_nothing_and_who_asks_always_gets_an_answer") {
        return;
    }
    let limit = format!("--pid={}", std::process::id());
    assert!(Command::new("prlimit").args([&limit, "--nofile=256:256"]).status().unwrap().success());
    let mut place = Place::new("[[interface]]\nname = \"a\"\n");
    let create = |name: &str, filters: &[(&str, &str)], slice: &str| {
        let channels: Vec<Value> = filters
            .iter()
            .map(|(interface, filter)| json!({"name": interface, "interface": interface, "filter": filter}))
            .collect();
        let cpu = json!([{"period": "20ms", "slice": slice}]);
        json!({"create": {"name": name, "memory": "1 MiB", "channel": channels, "cpu": cpu}})
    };
    let before = place.holdings().0;
    for port in 0..300 {
        // More of a processor than there is.
        let why = place.refused(create("no", &[("b", &format!("udp port {port}"))], "20ms"));
        assert!(why.contains("virtual processor"), "{why}");
    }
    place.until("nothing is left of them", |place| place.holdings().0 <= before);

    // Filters that have to be interpreted, until another is one too many: of a session's two interfaces the first has taken its filter by then.
    let heavy = |number: usize| {
        let part =
            |at: usize| format!("(ether[{}] & 1 = 1 and ether[{}] & 2 = 2)", 20 + at % 40, 21 + number + at);
        (0..80).map(part).collect::<Vec<_>>().join(" or ")
    };
    let mut made = 0;
    while place.ask(create(&format!("heavy{made}"), &[("b", &heavy(made))], "1us")).get("done").is_some() {
        made += 1;
    }
    let before = place.holdings().0;
    let why = place.refused(create("no", &[("a", "udp port 7"), ("b", &heavy(made))], "1us"));
    assert!(why.contains("cannot be joined"), "{why}");
    place.until("nothing is left of it", |place| {
        place.snapshot();
        place.holdings().0 <= before
    });
    for number in 0..made {
        place.done(json!({"close": {"session": format!("heavy{number}")}}));
    }

    // As many as it can have, and it can still be asked to close them.
    let mut sessions = 0;
    let why = loop {
        let reply =
            place.ask(create(&format!("s{sessions}"), &[("b", &format!("udp port {sessions}"))], "1us"));
        match reply["refused"]["why"].as_str() {
            None => sessions += 1,
            Some(why) => break why.to_owned(),
        }
    };
    assert!(why.contains("as many files open as it may have (256)"), "{why}");
    for number in 0..sessions {
        place.done(json!({"close": {"session": format!("s{number}")}}));
    }
    place.done(create("again", &[("b", "udp")], "1us"));
}

#[test]
fn a_change_takes_no_reservation_from_what_is_not_proved() {
    if !is_inside("fairness::a_change_takes_no_reservation_from_what_is_not_proved") {
        return;
    }
    let place = Place::new(&session("alice", QUICK, "filter = \"udp\"", ""));
    assert!(place.load("alice", json!({"module": "slow.wasm"}), &slow_and_metered())["done"].is_object());
    let change = json!({"change": {"session": "alice", "cpu": [{"weight": 100}]}});
    let why = place.refused(change.clone());
    assert!(why.contains("is metered, and virtual processor `main` has no reservation"), "{why}");
    assert_eq!(place.part("alice", "cpu", "main")["slice_ns"], 2_000_000);
    place.done(json!({"unload": {"session": "alice", "module": "slow"}}));
    place.done(change);
}

#[test]
fn a_session_is_not_closed_for_one_of_its_name_that_is_gone() {
    if !is_inside("fairness::a_session_is_not_closed_for_one_of_its_name_that_is_gone") {
        return;
    }
    let endless = module(
        "endless",
        r#"(func (export "weir_packet") (param $d i32) (result i32)
            (loop $l (br_if $l (i32.ne (i32.load (i32.const 64)) (i32.const 1)))) (i32.const 0))"#,
    );
    let create = json!({"create": {"name": "lazy", "cpu": [{"period": "20ms", "slice": "100us"}], "channel": [{"interface": "b",
        "filter": "udp", "sees": "all", "lag": "64 KiB", "late": "terminate"}]}});
    let mut place = Place::new("");
    // Until its end is asked for before it is looked at who lags.
    for _ in 0..50 {
        place.done(create.clone());
        assert!(place.load("lazy", json!({"module": "endless.wasm"}), &endless)["done"].is_object());
        place.send(&vec![udp(1, &[7; 1000]); 200]);
        let mut lags = json!(null);
        while lags.is_null() && !place.snapshot()["sessions"].as_array().unwrap().is_empty() {
            lags = place.snapshot()["sessions"][0]["channels"][0]["drops"]["reader-ended"].clone();
        }
        if place.ask(json!({"close": {"session": "lazy"}})).get("done").is_some() {
            break;
        }
    }
    place.done(create);
    // Its interface says so after it has said who lags.
    ip("link set dev b down");
    place.until("that is heard", |place| place.said().contains("b is down"));
    assert_eq!(place.snapshot()["sessions"].as_array().unwrap().len(), 1, "{}", place.said());
}
