//! Sessions: packets, usage, creation and changes.

use crate::limits::row_module;
use crate::testbed::{FollowedReplies, Testbed, is_inside, udp};
use serde_json::json;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use weir_node::control::spec::LIST_ENTRIES_MAX;

const TWO: &str = r#"
[[session]]
name = "alice"
cpu = [{ period = "10ms", slice = "2ms" }]
channel = [{ interface = "b", filter = "udp port 53" }]
module = [{ module = "port-count", set = { ports = [53, 99] } }]
[[session]]
name = "bob"
channel = [{ interface = "b", filter = "udp", visibility = "all" }]
module = [{ module = "trajectory" }]
"#;

fn rows(folder: &Path) -> i64 {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let count =
        files.filter(|path| path.extension().is_some_and(|extension| extension == "parquet")).map(|path| {
            let reader =
                parquet::file::serialized_reader::SerializedFileReader::new(File::open(path).unwrap())
                    .unwrap();
            parquet::file::reader::FileReader::metadata(&reader).file_metadata().num_rows()
        });
    count.sum()
}

#[test]
fn each_session_gets_its_packets_and_is_charged_for_its_own_usage() {
    if !is_inside("sessions::each_session_gets_its_packets_and_is_charged_for_its_own_usage") {
        return;
    }
    let mut testbed = Testbed::new(TWO);
    let frames: Vec<Vec<u8>> =
        (0..3000u16).map(|i| udp(if i % 3 == 0 { 53 } else { 99 }, &i.to_be_bytes())).collect();
    testbed.send(&frames);
    testbed.until("all packets are there", |testbed| {
        testbed.count("alice", "port-count", "packets") == 1000
            && testbed.count("bob", "trajectory", "packets") == 3000
    });
    let channel = testbed.part("alice", "channels", "main");
    assert_eq!((&channel["packets"], &channel["drops"]), (&json!(1000), &json!({})));
    let emitted = testbed.count("bob", "trajectory", "records");
    assert!(emitted > 0);
    assert!(testbed.stop().success());

    assert_eq!(testbed.ledger_usage("alice", "packets_in"), 1000);
    assert_eq!(testbed.ledger_usage("bob", "packets_in"), 3000);
    let bytes: usize = frames.iter().map(Vec::len).sum();
    assert_eq!(testbed.ledger_usage("bob", "bytes_in"), bytes as u64);
    assert!(testbed.ledger_usage("alice", "cpu_ns") > 0);
    // Rows that were emitted at the end are in the file, and charged.
    let written = rows(&testbed.path().join("state/records/bob/trajectory-0"));
    assert_eq!(testbed.ledger_usage("bob", "records_written"), u64::try_from(written).unwrap());
    assert_eq!(testbed.ledger_usage("bob", "records_emitted"), u64::try_from(written).unwrap());
}

#[test]
fn sessions_are_created_changed_and_refused_while_the_node_runs() {
    if !is_inside("sessions::sessions_are_created_changed_and_refused_while_the_node_runs") {
        return;
    }
    let mut testbed = Testbed::new(TWO);
    let session = |name: &str, slice: &str| json!({"create": {"name": name, "cpu": [{"period": "10ms", "slice": slice}], "channel": [{"interface": "b"}]}});
    testbed.request(session("carol", "1ms"));
    assert!(testbed.request_refused(session("carol", "1ms")).contains("there is a session `carol` already"));
    let why = testbed.request_refused(session("dave", "9ms"));
    assert!(why.contains("more than this core has left; the largest slice in that period is"), "{why}");
    let why = testbed.request_refused(
        json!({"create": {"name": "dave", "channel": [{"interface": "b", "filter": "udp prt 53"}]}}),
    );
    assert!(why.contains("filter expression `udp prt 53`"), "{why}");
    let why = testbed.request_refused(json!({"create": {"name": "dave", "memory": "9 GiB"}}));
    assert!(why.contains("9 GiB of memory are more than is left"), "{why}");
    let why = testbed.request_refused(json!({"create": {"name": "dave", "cpu": [{"core": 999}]}}));
    assert!(why.contains("core 999 is none of the node's"), "{why}");
    // The refused session has left nothing.
    assert_eq!(testbed.snapshot()["sessions"].as_array().unwrap().len(), 3);

    let change = |slice: &str| json!({"change": {"session": "carol", "cpu": [{"name": "main", "period": "10ms", "slice": slice}]}});
    testbed.request(change("1500us"));
    assert!(testbed.request_refused(change("9900us")).contains("the largest slice"));
    assert_eq!(testbed.part("carol", "cpu", "main")["slice_ns"], 1_500_000);

    let spec = |module: &str| json!({"module": module});
    assert!(testbed.load("carol", spec("trajectory"), &[])["done"].is_object());
    let why = testbed.load("carol", spec("trajectory"), &[])["refused"]["why"].as_str().unwrap().to_owned();
    assert!(why.contains("has a module `trajectory` already"), "{why}");
    let why = testbed.load("carol", spec("nothing"), &[])["refused"]["why"].as_str().unwrap().to_owned();
    assert!(why.contains("there is no module `nothing`"), "{why}");
    let why = testbed.load("carol", spec("junk.wasm"), b"\0asm junk")["refused"]["why"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(why.contains("module `junk.wasm`"), "{why}");
    testbed.send(&vec![udp(1, b"x"); 100]);
    testbed.until("carol sees them", |testbed| testbed.count("carol", "trajectory", "packets") == 100);
    testbed.request(json!({"unload": {"session": "carol", "module": "trajectory"}}));
    testbed.request(json!({"close": {"session": "carol"}}));
    assert!(testbed.request_refused(json!({"close": {"session": "carol"}})).contains("no session `carol`"));
    // The slice of the closed session is free again.
    testbed.until("the slice is free", |testbed| {
        testbed.send_request(session("erin", "1500us")).get("done").is_some()
    });
    assert!(testbed.stop().success());
    let ledger = testbed.ledger();
    let kinds = |name: &str| -> Vec<String> {
        let of = ledger.iter().filter(|entry| entry["session"]["name"] == name && entry["kind"] != "usage");
        of.map(|entry| entry["kind"].as_str().unwrap().to_owned()).collect()
    };
    let refused = ["module-refused"; 3];
    let expected: Vec<&str> = ["session-created", "session-changed", "module-loaded"]
        .into_iter()
        .chain(refused)
        .chain(["module-unloaded", "session-closed"])
        .collect();
    assert_eq!(kinds("carol"), expected);
}

#[test]
fn a_stream_can_be_followed_while_it_is_emitted() {
    if !is_inside("sessions::a_stream_can_be_followed_while_it_is_emitted") {
        return;
    }
    let mut testbed = Testbed::new(TWO);
    let mut replies = FollowedReplies::new(&testbed, "bob", "trajectory", "samples");
    testbed.send(&(0..2000u16).map(|i| udp(i, &i.to_be_bytes())).collect::<Vec<_>>());
    let row = replies.next().unwrap();
    assert!(row["record"].as_object().is_some_and(|fields| fields.len() > 2), "{row}");
    let why = testbed
        .request_refused(json!({"follow": {"session": "bob", "module": "trajectory", "streams": ["no"]}}));
    assert!(why.contains("has no stream `no`"), "{why}");
}

#[test]
fn metrics_have_the_usage_of_sessions() {
    if !is_inside("sessions::metrics_have_the_usage_of_sessions") {
        return;
    }
    let up = std::process::Command::new("ip").args(["link", "set", "dev", "lo", "up"]).status();
    assert!(up.unwrap().success());
    let mut testbed = Testbed::with_node("metrics = \"127.0.0.1:9137\"\n", TWO);
    testbed.send(&vec![udp(53, b"x"); 300]);
    testbed.until("they are there", |testbed| testbed.count("alice", "port-count", "packets") == 300);
    let mut stream = std::net::TcpStream::connect("127.0.0.1:9137").unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9137\r\n\r\n").unwrap();
    let mut said = String::new();
    std::io::Read::read_to_string(&mut stream, &mut said).unwrap();
    let line = said
        .lines()
        .find(|line| line.starts_with("weir_channel_packets_total") && line.contains("\"alice\""));
    assert!(line.is_some_and(|line| line.ends_with(" 300")), "{said}");
    assert!(testbed.stop().success());
}

#[test]
fn each_session_gets_only_its_packets_while_others_are_created_and_closed() {
    if !is_inside("sessions::each_session_gets_only_its_packets_while_others_are_created_and_closed") {
        return;
    }
    let mut testbed = Testbed::new("");
    let create = |testbed: &Testbed, port: u16| {
        let name = format!("s{port}");
        let filter = format!("udp dst port {port}");
        testbed.request(json!({"create": {"name": name, "memory": "2 MiB", "channel": [{"interface": "b", "filter": filter, "queue": 64}]}}));
        let reply = testbed.load(&name, json!({"module": "trajectory"}), &[]);
        assert!(reply.get("done").is_some(), "{reply}");
    };
    let seen = |testbed: &Testbed| -> std::collections::BTreeMap<String, u64> {
        let sessions = testbed.snapshot()["sessions"].as_array().unwrap().clone();
        let of = |session: &serde_json::Value| {
            (
                session["name"].as_str().unwrap().to_owned(),
                session["channels"][0]["packets"].as_u64().unwrap(),
            )
        };
        sessions.iter().map(of).collect()
    };
    // More sessions than the demultiplexer keeps apart, with packets for all earlier and later sessions between each two steps.
    let mut expected = std::collections::BTreeMap::new();
    let frames: Vec<Vec<u8>> = (1..=60).map(|port| udp(port, b"x")).collect();
    let all_get_theirs = |testbed: &mut Testbed, there: &mut std::collections::BTreeMap<String, u64>| {
        testbed.send(&frames);
        there.values_mut().for_each(|count| *count += 1);
        testbed.until("each session has its own packets", |testbed| seen(testbed) == *there);
    };
    for port in 1..=40 {
        create(&testbed, port);
        expected.insert(format!("s{port}"), 0);
        all_get_theirs(&mut testbed, &mut expected);
    }
    for port in 41..=60 {
        // In the place of a closed session.
        let gone = format!("s{}", (port - 40) * 2);
        testbed.request(json!({"close": {"session": gone}}));
        expected.remove(&gone);
        all_get_theirs(&mut testbed, &mut expected);
        create(&testbed, port);
        expected.insert(format!("s{port}"), 0);
        all_get_theirs(&mut testbed, &mut expected);
    }
    // Also after a quiet period, when all filters have been joined.
    std::thread::sleep(std::time::Duration::from_secs(1));
    all_get_theirs(&mut testbed, &mut expected);
    assert!(testbed.stop().success());
}

#[test]
fn the_number_of_a_sessions_modules_is_limited_for_every_kind_of_request() {
    if !is_inside("sessions::the_number_of_a_sessions_modules_is_limited_for_every_kind_of_request") {
        return;
    }
    let mut testbed = Testbed::new("");
    // Each virtual CPU has room for all of these modules.
    let cpu = json!([{"name": "one", "period": "20ms", "slice": "2ms"}, {"name": "two", "period": "20ms", "slice": "2ms"}]);
    let channel = json!([{"interface": "b", "filter": "udp"}]);
    testbed.request(json!({"create": {"name": "many", "memory": "128 MiB", "cpu": cpu, "channel": channel}}));
    let bytes = row_module("teller");
    let load = |testbed: &Testbed, number: usize| {
        let cpu = if number.is_multiple_of(2) { "one" } else { "two" };
        testbed.load("many", json!({"module": "m.wasm", "name": format!("m{number}"), "cpu": cpu}), &bytes)
    };
    for number in 0..LIST_ENTRIES_MAX {
        let reply = load(&testbed, number);
        assert!(reply.get("done").is_some(), "{number}: {reply}");
    }
    let reply = load(&testbed, LIST_ENTRIES_MAX);
    let why = reply["refused"]["why"].as_str().unwrap_or_else(|| panic!("{reply}"));
    assert_eq!(why, "session `many` has 65 modules; 64 is the most");
    // In the place of an unloaded module.
    testbed.request(json!({"unload": {"session": "many", "module": "m7"}}));
    assert!(load(&testbed, LIST_ENTRIES_MAX).get("done").is_some());
    assert!(load(&testbed, 7).get("refused").is_some());
    assert!(testbed.stop().success());
}
