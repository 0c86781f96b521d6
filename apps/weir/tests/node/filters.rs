//! Filters that strangers ask for: nothing is looked up for them, no process is started, and no other request waits for them.

use crate::place::{Place, cable, is_inside, udp};
use serde_json::{Value, json};
use std::path::Path;

/// Takes the compiler as long as hardly anything else, and is used for the number: each is another filter.
fn hard(number: usize) -> String {
    let nets: Vec<String> =
        (0..100).map(|net| format!("(src net 10.{net}.0.0/16 and port {})", 1000 + net + number)).collect();
    let text = nets.join(" or ");
    assert!((3500..=4096).contains(&text.len()), "{}", text.len());
    text
}

fn create(name: &str, filter: &str) -> Value {
    json!({"create": {"name": name, "channel": [{"interface": "b", "filter": filter}]}})
}

/// The node's child processes. It has its spawner from the start on; a process that compiles would be another one.
fn children(place: &Place) -> Vec<u32> {
    let tasks = std::fs::read_dir(Path::new("/proc").join(place.process().to_string()).join("task")).unwrap();
    let of = |task: std::io::Result<std::fs::DirEntry>| {
        // A thread can have ended meanwhile.
        std::fs::read_to_string(task.ok()?.path().join("children")).ok()
    };
    let children: Vec<String> = tasks.filter_map(of).collect();
    children.iter().flat_map(|line| line.split_whitespace()).map(|id| id.parse().unwrap()).collect()
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
    let helpers = children(&place);
    let before = place.snapshot()["sessions"].as_array().unwrap().len();
    for (filter, says) in [
        ("host example.com", "names are not looked up: write the address"),
        ("port no-such-service", "names are not looked up: write the address"),
        ("net loopback", "names are not looked up: write the address"),
        ("ether host somename", "names are not looked up: write the address"),
        ("ip proto \\nonsense", "names are not looked up: write the address"),
        ("proto foo", "names are not looked up: write the address"),
        (") or (", "syntax error"),
        ("udp) or (tcp", "syntax error"),
        ("vlan 5000", "over the limit 4095"),
        (&("(".repeat(101) + "udp" + &")".repeat(101)), "more than 100 levels"),
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
    assert!(why.contains("4096"), "{why}");
    // The same in the configuration: it stays as it was.
    place.configure(&(link.to_owned() + session + "[[session]]\nname = \"eve\"\nchannel = [{ interface = \"b\", filter = \"host example.com\" }]\n"));
    let why = place.refused(json!("reload"));
    assert!(why.contains("session `eve`") && why.contains("names are not looked up"), "{why}");
    assert_eq!(place.snapshot()["sessions"].as_array().unwrap().len(), before);
    assert_eq!(children(&place), helpers);
    place.load("alice", json!({"module": "port-count"}), &[]);
    place.send(&[udp(53, b"x")]);
    place.until("the filter that was there still selects", |place| {
        place.part("alice", "channels", "main")["packets"] == 1
    });
    assert!(place.stop().success());
}

#[test]
fn filters_are_compiled_in_the_node_while_it_goes_on() {
    if !is_inside("filters::filters_are_compiled_in_the_node_while_it_goes_on") {
        return;
    }
    let mut place = Place::new(
        "[[session]]\nname = \"alice\"\nchannel = [{ interface = \"b\", filter = \"udp port 53\" }]\n",
    );
    place.load("alice", json!({"module": "port-count"}), &[]);
    let helpers = children(&place);
    std::thread::scope(|scope| {
        let place = &place;
        let asked: Vec<_> = (0..6)
            .map(|who| {
                scope.spawn(move || {
                    for round in 0..10 {
                        let name = format!("eve{who}");
                        place.done(create(&name, &hard(100 * who + round)));
                        place.done(json!({"close": {"session": name}}));
                    }
                })
            })
            .collect();
        let mut answers = 0;
        while !asked.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            assert!(place.snapshot()["sessions"].is_array());
            assert_eq!(children(place), helpers);
            answers += 1;
        }
        assert!(answers > 0);
    });
    place.send(&[udp(53, b"x")]);
    place
        .until("packets go where they went", |place| place.part("alice", "channels", "main")["packets"] == 1);
    assert!(place.stop().success());
}

#[test]
fn a_hundred_compilations_leave_no_processes_and_no_descriptors() {
    if !is_inside("filters::a_hundred_compilations_leave_no_processes_and_no_descriptors") {
        return;
    }
    let mut place = Place::new("");
    let helpers = children(&place);
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
    assert_eq!(children(&place), helpers);
    place.holds_no_more(before, (0, 20));
    // What was compiled before is at hand: there is nothing to be waited for.
    place.done(create("guest", " udp port 2099\n"));
    assert!(place.stop().success());
}
