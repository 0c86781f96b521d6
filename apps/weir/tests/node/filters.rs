//! Filters from untrusted clients: they cause no name lookups and no processes, and delay no other request.

use crate::testbed::{Testbed, cable, is_inside, udp};
use serde_json::{Value, json};
use std::path::Path;

/// A filter that takes nearly the maximum time to compile, and is different for each number.
fn slow_filter(number: usize) -> String {
    let nets: Vec<String> =
        (0..100).map(|net| format!("(src net 10.{net}.0.0/16 and port {})", 1000 + net + number)).collect();
    let text = nets.join(" or ");
    assert!((3500..=4096).contains(&text.len()), "{}", text.len());
    text
}

fn create(name: &str, filter: &str) -> Value {
    json!({"create": {"name": name, "channel": [{"interface": "b", "filter": filter}]}})
}

/// The node's child processes. The spawner is always among them; a compiler process would be another one.
fn children(testbed: &Testbed) -> Vec<u32> {
    let tasks =
        std::fs::read_dir(Path::new("/proc").join(testbed.process().to_string()).join("task")).unwrap();
    let of = |task: std::io::Result<std::fs::DirEntry>| {
        // A thread may have ended meanwhile.
        std::fs::read_to_string(task.ok()?.path().join("children")).ok()
    };
    let children: Vec<String> = tasks.filter_map(of).collect();
    children.iter().flat_map(|line| line.split_whitespace()).map(|id| id.parse().unwrap()).collect()
}

#[test]
fn host_names_and_invalid_filters_are_refused_everywhere() {
    if !is_inside("filters::host_names_and_invalid_filters_are_refused_everywhere") {
        return;
    }
    cable("c", "far");
    let link = "[[link]]\ninterface = \"c\"\nrate = \"100 Mbit/s\"\n";
    let session =
        "[[session]]\nname = \"alice\"\nchannel = [{ interface = \"b\", filter = \"udp port 53\" }]\n";
    let mut testbed = Testbed::new(&(link.to_owned() + session));
    let helpers = children(&testbed);
    let before = testbed.snapshot()["sessions"].as_array().unwrap().len();
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
        for (request, of) in [
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
            let why = testbed.request_refused(request);
            assert!(why.contains(of) && why.contains(says), "{filter}: {why}");
            assert!(why.len() < 1500 && !why.contains(char::is_control), "{why}");
        }
    }
    let why = testbed.request_refused(create("eve", &"udp or ".repeat(600)));
    assert!(why.contains("4096"), "{why}");
    // The same filter in the configuration: the reload is refused.
    testbed.configure(&(link.to_owned() + session + "[[session]]\nname = \"eve\"\nchannel = [{ interface = \"b\", filter = \"host example.com\" }]\n"));
    let why = testbed.request_refused(json!("reload"));
    assert!(why.contains("session `eve`") && why.contains("names are not looked up"), "{why}");
    assert_eq!(testbed.snapshot()["sessions"].as_array().unwrap().len(), before);
    assert_eq!(children(&testbed), helpers);
    testbed.load("alice", json!({"module": "port-count"}), &[]);
    testbed.send(&[udp(53, b"x")]);
    testbed.until("the old filter still selects", |testbed| {
        testbed.part("alice", "channels", "main")["packets"] == 1
    });
    assert!(testbed.stop().success());
}

#[test]
fn filters_are_compiled_in_the_node_without_delaying_it() {
    if !is_inside("filters::filters_are_compiled_in_the_node_without_delaying_it") {
        return;
    }
    let mut testbed = Testbed::new(
        "[[session]]\nname = \"alice\"\nchannel = [{ interface = \"b\", filter = \"udp port 53\" }]\n",
    );
    testbed.load("alice", json!({"module": "port-count"}), &[]);
    let helpers = children(&testbed);
    std::thread::scope(|scope| {
        let testbed = &testbed;
        let asked: Vec<_> = (0..6)
            .map(|who| {
                scope.spawn(move || {
                    for round in 0..10 {
                        let name = format!("eve{who}");
                        testbed.request(create(&name, &slow_filter(100 * who + round)));
                        testbed.request(json!({"close": {"session": name}}));
                    }
                })
            })
            .collect();
        let mut answers = 0;
        while !asked.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            assert!(testbed.snapshot()["sessions"].is_array());
            assert_eq!(children(testbed), helpers);
            answers += 1;
        }
        assert!(answers > 0);
    });
    testbed.send(&[udp(53, b"x")]);
    testbed.until("packets are forwarded as before", |testbed| {
        testbed.part("alice", "channels", "main")["packets"] == 1
    });
    assert!(testbed.stop().success());
}

#[test]
fn a_hundred_filter_compilations_leave_no_processes_and_descriptors() {
    if !is_inside("filters::a_hundred_filter_compilations_leave_no_processes_and_descriptors") {
        return;
    }
    let mut testbed = Testbed::new("");
    let helpers = children(&testbed);
    let round = |testbed: &Testbed, from: usize| {
        for port in from..from + 100 {
            testbed.request(create("guest", &format!("udp port {port}")));
            testbed.request(json!({"close": {"session": "guest"}}));
            let why = testbed.request_refused(create("guest", &format!("udp prt {port}")));
            assert!(why.contains("filter expression"), "{why}");
        }
    };
    round(&testbed, 1000);
    let before = testbed.descriptors_and_mappings();
    round(&testbed, 2000);
    assert_eq!(children(&testbed), helpers);
    testbed.wait_until_released(before, (0, 20));
    // An equivalent filter is in the cache, so nothing is compiled.
    testbed.request(create("guest", " udp port 2099\n"));
    assert!(testbed.stop().success());
}
