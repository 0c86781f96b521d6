//! Filters that strangers ask for are compiled in processes of their own: nobody waits for them, and nothing is looked up for them.

use crate::place::{Place, cable, is_inside, udp};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// Takes libpcap several times as long as it is given, on any machine.
fn hard() -> String {
    let ranges: Vec<String> = (0..170).map(|number| format!("portrange {number}-65535")).collect();
    let text = ranges.join(" or ");
    assert!((3500..=4096).contains(&text.len()), "{}", text.len());
    text
}

fn create(name: &str, filter: &str) -> Value {
    json!({"create": {"name": name, "channel": [{"interface": "b", "filter": filter}]}})
}

/// The node's children: processes that compile.
fn children(place: &Place) -> Vec<u32> {
    let tasks = std::fs::read_dir(Path::new("/proc").join(place.process().to_string()).join("task")).unwrap();
    let of = |task: std::io::Result<std::fs::DirEntry>| {
        // A thread can have ended meanwhile.
        std::fs::read_to_string(task.ok()?.path().join("children")).ok()
    };
    let children: Vec<String> = tasks.filter_map(of).collect();
    children.iter().flat_map(|line| line.split_whitespace()).map(|id| id.parse().unwrap()).collect()
}

fn signal(child: u32, name: &str) -> bool {
    Command::new("kill").args(["-s", name, &child.to_string()]).status().unwrap().success()
}

#[test]
fn names_and_nonsense_are_refused_wherever_a_filter_can_be_said() {
    if !is_inside("filters::names_and_nonsense_are_refused_wherever_a_filter_can_be_said") {
        return;
    }
    cable("c", "far");
    let link = "[[link]]\ninterface = \"c\"\nrate = \"100 Mbit/s\"\n";
    let session =
        "[[session]]\nname = \"alice\"\nchannel = [{ interface = \"b\", filter = \"udp port 53\" }]\n";
    let mut place = Place::new(&(link.to_owned() + session));
    let before = place.snapshot()["sessions"].as_array().unwrap().len();
    for (filter, says) in [
        ("host example.com", "names are not looked up: write the address"),
        ("port http", "names are not looked up: write the address"),
        ("net loopback", "names are not looked up: write the address"),
        ("ether host somename", "names are not looked up: write the address"),
        // A name of every machine's files; libpcap takes one that it cannot look up to be 0.
        ("ip proto \\tcp", "names are not looked up: write the address"),
        ("proto foo", "names are not looked up: write the address"),
        (") or (", "syntax error"),
        ("udp) or (tcp", "syntax error"),
        ("ip6 protochain 6", "leads out of the program"),
        (&hard(), "was given up"),
    ] {
        let channel = json!([{"interface": "b", "filter": filter}]);
        let output = json!([{"link": "c", "filter": filter}]);
        for (ask, of) in [
            (create("eve", filter), "channel `main`: filter expression"),
            (
                json!({"create": {"name": "eve", "output": output}}),
                "output channel `main`: filter expression",
            ),
            (
                json!({"change": {"session": "alice", "channel": channel}}),
                "channel `main`: filter expression",
            ),
            (
                json!({"change": {"session": "alice", "output": output}}),
                "output channel `main`: filter expression",
            ),
        ] {
            let why = place.refused(ask);
            assert!(why.contains(of) && why.contains(says), "{filter}: {why}");
            assert!(why.len() < 1500 && !why.contains(char::is_control), "{why}");
        }
    }
    let why = place.refused(create("eve", &"udp or ".repeat(600)));
    assert!(why.contains("at most 4096"), "{why}");
    // The same in the configuration: it stays as it was.
    place.configure(&(link.to_owned() + session + "[[session]]\nname = \"eve\"\nchannel = [{ interface = \"b\", filter = \"host example.com\" }]\n"));
    let why = place.refused(json!("reload"));
    assert!(why.contains("session `eve`") && why.contains("names are not looked up"), "{why}");
    assert_eq!(place.snapshot()["sessions"].as_array().unwrap().len(), before);
    assert!(children(&place).is_empty(), "{:?}", children(&place));
    place.load("alice", json!({"module": "port-count"}), &[]);
    place.send(&[udp(53, b"x")]);
    place.until("the filter that was there still selects", |place| {
        place.part("alice", "channels", "main")["packets"] == 1
    });
    assert!(place.stop().success());
}

#[test]
fn nobody_waits_for_a_strangers_filter_and_its_process_can_be_killed() {
    if !is_inside("filters::nobody_waits_for_a_strangers_filter_and_its_process_can_be_killed") {
        return;
    }
    let mut place = Place::new(
        "[[session]]\nname = \"alice\"\nchannel = [{ interface = \"b\", filter = \"udp port 53\" }]\n",
    );
    let node = place.connect();
    std::thread::scope(|scope| {
        let stream = node;
        let asked = scope.spawn(move || {
            use std::io::{BufRead, BufReader, Write};
            writeln!(&stream, "{}", json!({"weir": 1, "ask": create("eve", &hard()), "body": 0})).unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            serde_json::from_str::<Value>(&line).unwrap()["reply"]["refused"]["why"]
                .as_str()
                .unwrap()
                .to_owned()
        });
        // Held where it is, as if it took for ever.
        let mut child = None;
        place.until("it is being compiled", |place| {
            child = children(place).first().copied();
            child.is_some_and(|child| signal(child, "STOP"))
        });
        for port in 1..20 {
            let name = format!("guest{port}");
            place.done(create(&name, &format!("udp port {port}")));
            place.done(json!({"change": {"session": name, "channel": [{"interface": "b", "filter": format!("tcp port {port}")}]}}));
            place.done(json!({"close": {"session": name}}));
        }
        place.load("alice", json!({"module": "port-count"}), &[]);
        place.send(&[udp(53, b"x")]);
        place.until("packets go where they went", |place| {
            place.part("alice", "channels", "main")["packets"] == 1
        });
        assert!(!asked.is_finished(), "nobody has compiled it");
        assert!(signal(child.unwrap(), "KILL"));
        let why = asked.join().unwrap();
        assert!(why.contains("was killed by signal 9"), "{why}");
    });
    // Many at a time wait for each other, and for nobody else.
    std::thread::scope(|scope| {
        let place = &place;
        let asked: Vec<_> = (0..6)
            .map(|number| scope.spawn(move || place.refused(create(&format!("eve{number}"), &hard()))))
            .collect();
        while !asked.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            assert!(place.snapshot()["sessions"].is_array());
            assert!(children(place).len() <= 4, "{:?}", children(place));
        }
        for why in asked {
            let why = why.join().unwrap();
            assert!(why.contains("was given up"), "{why}");
        }
    });
    assert!(children(&place).is_empty());
    assert!(place.stop().success());
}

#[test]
fn a_hundred_compilations_leave_no_processes_and_no_descriptors() {
    if !is_inside("filters::a_hundred_compilations_leave_no_processes_and_no_descriptors") {
        return;
    }
    let mut place = Place::new("");
    let round = |place: &Place, from: usize| {
        for port in from..from + 100 {
            place.done(create("guest", &format!("udp port {port}")));
            place.done(json!({"close": {"session": "guest"}}));
            let why = place.refused(create("guest", &format!("udp prt {port}")));
            assert!(why.contains("filter expression"), "{why}");
        }
    };
    round(&place, 1000);
    let before = place.holdings();
    round(&place, 2000);
    assert!(children(&place).is_empty(), "{:?}", children(&place));
    place.holds_no_more(before, (0, 20));
    // What was compiled before is at hand: there is nothing to be waited for.
    place.done(create("guest", " udp port 2099\n"));
    assert!(place.stop().success());
}
