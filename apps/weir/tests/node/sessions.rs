//! What sessions get.

use crate::limits::teller;
use crate::place::{Place, is_inside, udp};
use serde_json::json;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use weir_node::control::spec::PARTS_MAX;

const TWO: &str = r#"
[[session]]
name = "alice"
cpu = [{ period = "10ms", slice = "2ms" }]
channel = [{ interface = "b", filter = "udp port 53" }]
module = [{ module = "port-count", set = { ports = [53, 99] } }]
[[session]]
name = "bob"
channel = [{ interface = "b", filter = "udp", sees = "all" }]
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
fn each_gets_its_packets_and_its_bill() {
    if !is_inside("sessions::each_gets_its_packets_and_its_bill") {
        return;
    }
    let mut place = Place::new(TWO);
    let frames: Vec<Vec<u8>> =
        (0..3000u16).map(|i| udp(if i % 3 == 0 { 53 } else { 99 }, &i.to_be_bytes())).collect();
    place.send(&frames);
    place.until("all packets are there", |place| {
        place.count("alice", "port-count", "packets") == 1000
            && place.count("bob", "trajectory", "packets") == 3000
    });
    let channel = place.part("alice", "channels", "main");
    assert_eq!((&channel["packets"], &channel["drops"]), (&json!(1000), &json!({})));
    let emitted = place.count("bob", "trajectory", "records");
    assert!(emitted > 0);
    assert!(place.stop().success());

    assert_eq!(place.billed("alice", "packets_in"), 1000);
    assert_eq!(place.billed("bob", "packets_in"), 3000);
    let bytes: usize = frames.iter().map(Vec::len).sum();
    assert_eq!(place.billed("bob", "bytes_in"), bytes as u64);
    assert!(place.billed("alice", "cpu_ns") > 0);
    // What was emitted at the end is in the file, and on the bill.
    let written = rows(&place.path().join("state/records/bob/trajectory-0"));
    assert_eq!(place.billed("bob", "records_written"), u64::try_from(written).unwrap());
    assert_eq!(place.billed("bob", "records_emitted"), u64::try_from(written).unwrap());
}

#[test]
fn shares_are_created_changed_and_refused_while_it_runs() {
    if !is_inside("sessions::shares_are_created_changed_and_refused_while_it_runs") {
        return;
    }
    let mut place = Place::new(TWO);
    let session = |name: &str, slice: &str| json!({"create": {"name": name, "cpu": [{"period": "10ms", "slice": slice}], "channel": [{"interface": "b"}]}});
    place.done(session("carol", "1ms"));
    assert!(place.refused(session("carol", "1ms")).contains("there is a session `carol` already"));
    let why = place.refused(session("dave", "9ms"));
    assert!(why.contains("more than this core has left; the largest slice in that period is"), "{why}");
    let why = place.refused(
        json!({"create": {"name": "dave", "channel": [{"interface": "b", "filter": "udp prt 53"}]}}),
    );
    assert!(why.contains("filter expression `udp prt 53`"), "{why}");
    let why = place.refused(json!({"create": {"name": "dave", "memory": "9 GiB"}}));
    assert!(why.contains("9 GiB of memory are more than is left"), "{why}");
    let why = place.refused(json!({"create": {"name": "dave", "cpu": [{"core": 999}]}}));
    assert!(why.contains("core 999 is none of the node's"), "{why}");
    // Nothing is left of what was refused.
    assert_eq!(place.snapshot()["sessions"].as_array().unwrap().len(), 3);

    let change = |slice: &str| json!({"change": {"session": "carol", "cpu": [{"name": "main", "period": "10ms", "slice": slice}]}});
    place.done(change("1500us"));
    assert!(place.refused(change("9900us")).contains("the largest slice"));
    assert_eq!(place.part("carol", "cpu", "main")["slice_ns"], 1_500_000);

    let spec = |module: &str| json!({"module": module});
    assert!(place.load("carol", spec("trajectory"), &[])["done"].is_object());
    let why = place.load("carol", spec("trajectory"), &[])["refused"]["why"].as_str().unwrap().to_owned();
    assert!(why.contains("has a module `trajectory` already"), "{why}");
    let why = place.load("carol", spec("nothing"), &[])["refused"]["why"].as_str().unwrap().to_owned();
    assert!(why.contains("there is no module `nothing`"), "{why}");
    let why =
        place.load("carol", spec("junk.wasm"), b"\0asm junk")["refused"]["why"].as_str().unwrap().to_owned();
    assert!(why.contains("module `junk.wasm`"), "{why}");
    place.send(&vec![udp(1, b"x"); 100]);
    place.until("carol sees them", |place| place.count("carol", "trajectory", "packets") == 100);
    place.done(json!({"unload": {"session": "carol", "module": "trajectory"}}));
    place.done(json!({"close": {"session": "carol"}}));
    assert!(place.refused(json!({"close": {"session": "carol"}})).contains("no session `carol`"));
    // Its slice is free again.
    place.until("there is room", |place| place.ask(session("erin", "1500us")).get("done").is_some());
    assert!(place.stop().success());
    let ledger = place.ledger();
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
fn a_stream_is_followed_while_it_comes() {
    if !is_inside("sessions::a_stream_is_followed_while_it_comes") {
        return;
    }
    let mut place = Place::new(TWO);
    let mut follower = place.connect();
    let ask = json!({"weir": 1, "ask": {"follow": {"session": "bob", "module": "trajectory", "stream": "samples"}}});
    writeln!(follower, "{ask}").unwrap();
    let mut lines = BufReader::new(follower).lines();
    assert!(lines.next().unwrap().unwrap().contains("done"));
    place.send(&(0..2000u16).map(|i| udp(i, &i.to_be_bytes())).collect::<Vec<_>>());
    let row: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert!(row["reply"]["record"].as_object().is_some_and(|fields| fields.len() > 2), "{row}");
    let why = place.refused(json!({"follow": {"session": "bob", "module": "trajectory", "stream": "no"}}));
    assert!(why.contains("has no stream `no`"), "{why}");
}

#[test]
fn metrics_say_what_the_sessions_got() {
    if !is_inside("sessions::metrics_say_what_the_sessions_got") {
        return;
    }
    let up = std::process::Command::new("ip").args(["link", "set", "dev", "lo", "up"]).status();
    assert!(up.unwrap().success());
    let mut place = Place::with_node("metrics = \"127.0.0.1:9137\"\n", TWO);
    place.send(&vec![udp(53, b"x"); 300]);
    place.until("they are there", |place| place.count("alice", "port-count", "packets") == 300);
    let mut stream = std::net::TcpStream::connect("127.0.0.1:9137").unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9137\r\n\r\n").unwrap();
    let mut said = String::new();
    std::io::Read::read_to_string(&mut stream, &mut said).unwrap();
    let line = said
        .lines()
        .find(|line| line.starts_with("weir_channel_packets_total") && line.contains("\"alice\""));
    assert!(line.is_some_and(|line| line.ends_with(" 300")), "{said}");
    assert!(place.stop().success());
}

#[test]
fn however_sessions_come_and_go_each_gets_its_own_packets_and_no_others() {
    if !is_inside("sessions::however_sessions_come_and_go_each_gets_its_own_packets_and_no_others") {
        return;
    }
    let mut place = Place::new("");
    let create = |place: &Place, port: u16| {
        let name = format!("s{port}");
        let filter = format!("udp dst port {port}");
        place.done(json!({"create": {"name": name, "memory": "2 MiB", "channel": [{"interface": "b", "filter": filter, "queue": 64}]}}));
        let reply = place.load(&name, json!({"module": "trajectory"}), &[]);
        assert!(reply.get("done").is_some(), "{reply}");
    };
    let seen = |place: &Place| -> std::collections::BTreeMap<String, u64> {
        let sessions = place.snapshot()["sessions"].as_array().unwrap().clone();
        let of = |session: &serde_json::Value| {
            (
                session["name"].as_str().unwrap().to_owned(),
                session["channels"][0]["packets"].as_u64().unwrap(),
            )
        };
        sessions.iter().map(of).collect()
    };
    // More than are kept apart, with packets for all that were and will be there between any two of them.
    let mut expected = std::collections::BTreeMap::new();
    let frames: Vec<Vec<u8>> = (1..=60).map(|port| udp(port, b"x")).collect();
    let all_get_theirs = |place: &mut Place, there: &mut std::collections::BTreeMap<String, u64>| {
        place.send(&frames);
        there.values_mut().for_each(|count| *count += 1);
        place.until("each has its own", |place| seen(place) == *there);
    };
    for port in 1..=40 {
        create(&place, port);
        expected.insert(format!("s{port}"), 0);
        all_get_theirs(&mut place, &mut expected);
    }
    for port in 41..=60 {
        // In the place of one that goes.
        let gone = format!("s{}", (port - 40) * 2);
        place.done(json!({"close": {"session": gone}}));
        expected.remove(&gone);
        all_get_theirs(&mut place, &mut expected);
        create(&place, port);
        expected.insert(format!("s{port}"), 0);
        all_get_theirs(&mut place, &mut expected);
    }
    // And when it has been quiet for so long that all filters are joined.
    std::thread::sleep(std::time::Duration::from_secs(1));
    all_get_theirs(&mut place, &mut expected);
    assert!(place.stop().success());
}

#[test]
fn a_session_has_no_more_modules_than_it_may_however_they_come() {
    if !is_inside("sessions::a_session_has_no_more_modules_than_it_may_however_they_come") {
        return;
    }
    let mut place = Place::new("");
    // On each of its virtual processors there would be room for as many.
    let cpu = json!([{"name": "one", "period": "20ms", "slice": "2ms"}, {"name": "two", "period": "20ms", "slice": "2ms"}]);
    let channel = json!([{"interface": "b", "filter": "udp"}]);
    place.done(json!({"create": {"name": "many", "memory": "128 MiB", "cpu": cpu, "channel": channel}}));
    let bytes = teller("teller");
    let load = |place: &Place, number: usize| {
        let cpu = if number.is_multiple_of(2) { "one" } else { "two" };
        place.load("many", json!({"module": "m.wasm", "name": format!("m{number}"), "cpu": cpu}), &bytes)
    };
    for number in 0..PARTS_MAX {
        let reply = load(&place, number);
        assert!(reply.get("done").is_some(), "{number}: {reply}");
    }
    let reply = load(&place, PARTS_MAX);
    let why = reply["refused"]["why"].as_str().unwrap_or_else(|| panic!("{reply}"));
    assert_eq!(why, "session `many` has 65 modules; 64 is the most");
    // In the place of one that goes.
    place.done(json!({"unload": {"session": "many", "module": "m7"}}));
    assert!(load(&place, PARTS_MAX).get("done").is_some());
    assert!(load(&place, 7).get("refused").is_some());
    assert!(place.stop().success());
}
