//! Faults: crashes, removed files and interfaces, and invalid input.

use crate::testbed::{Testbed, cable, has_carrier, is_inside, udp};
use serde_json::json;
use std::io::{Read, Write};

const ONE: &str = r#"
[[session]]
name = "alice"
channel = [{ interface = "b", filter = "udp" }]
module = [{ module = "trajectory" }]
"#;

#[test]
fn after_a_kill_sessions_are_restored_and_the_ledger_is_valid() {
    if !is_inside("faults::after_a_kill_sessions_are_restored_and_the_ledger_is_valid") {
        return;
    }
    let mut testbed = Testbed::new(ONE);
    for round in 1..=3u64 {
        testbed.send(&vec![udp(1, b"x"); 500]);
        testbed.until("the records are charged", |testbed| {
            testbed.count("alice", "trajectory", "packets") == 500
                && testbed.ledger_usage("alice", "packets_in") == 500 * round
        });
        testbed.kill();
        assert_eq!(testbed.ledger_usage("alice", "packets_in"), 500 * round);
        testbed.start();
    }
    let recovered = testbed.ledger().iter().filter(|entry| entry["kind"] == "recovered").count();
    assert_eq!(recovered, 3);
    assert!(testbed.stop().success());
    assert_eq!(testbed.ledger().last().unwrap()["kind"], "node-stop");
}

#[test]
fn all_threads_of_a_node_are_confined() {
    if !is_inside("faults::all_threads_of_a_node_are_confined") {
        return;
    }
    let mut testbed = Testbed::new(ONE);
    let threads = format!("/proc/{}/task", testbed.process());
    let mut seen = 0;
    for thread in std::fs::read_dir(threads).unwrap() {
        // A thread that has ended meanwhile is skipped.
        let Ok(status) = std::fs::read_to_string(thread.unwrap().path().join("status")) else { continue };
        let has =
            |line: &str| status.lines().any(|there| there.split_whitespace().eq(line.split_whitespace()));
        assert!(has("NoNewPrivs: 1") && has("Seccomp: 2"), "a thread that was started before: {status}");
        let privileges = status.lines().find_map(|line| line.strip_prefix("CapPrm:")).unwrap();
        // CAP_SETUID 7, CAP_SYS_MODULE 16, CAP_SYS_PTRACE 19, CAP_SYS_ADMIN 21.
        let given_up = 1 << 7 | 1 << 16 | 1 << 19 | 1 << 21;
        assert_eq!(u64::from_str_radix(privileges.trim(), 16).unwrap() & given_up, 0, "{status}");
        seen += 1;
    }
    assert!(seen > 3, "only {seen} threads");
    // The node needs no further privileges for its sessions' work.
    testbed.send(&vec![udp(1, b"x"); 100]);
    testbed.until("the module has received all packets", |testbed| {
        testbed.count("alice", "trajectory", "packets") == 100
    });
}

#[test]
fn a_node_without_its_socket_file_stops_in_order() {
    if !is_inside("faults::a_node_without_its_socket_file_stops_in_order") {
        return;
    }
    let mut testbed = Testbed::new(ONE);
    testbed.send(&vec![udp(1, b"x"); 10]);
    testbed.until("the module has received all packets", |testbed| {
        testbed.count("alice", "trajectory", "packets") == 10
    });
    std::fs::remove_file(testbed.path().join("node.sock")).unwrap();
    assert!(testbed.stop().success());
    assert_eq!(testbed.ledger_usage("alice", "packets_in"), 10);
    let last = testbed.ledger().pop().unwrap();
    assert_eq!(last["kind"], "node-stop", "{last}");
}

#[test]
fn the_service_manager_gets_watchdog_messages_during_long_intervals() {
    if !is_inside("faults::the_service_manager_gets_watchdog_messages_during_long_intervals") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("manager.sock");
    let manager = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(std::time::Duration::from_secs(300))).unwrap();
    let heard = || {
        let mut bytes = [0; 64];
        let len = manager.recv(&mut bytes).expect("it says something within five minutes");
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    };
    let mut testbed = Testbed::managed("ledger_interval = \"60s\"\n", ONE, &path);
    assert_eq!(heard(), "READY=1");
    assert_eq!((heard().as_str(), heard().as_str()), ("WATCHDOG=1", "WATCHDOG=1"));
    assert!(testbed.stop().success());
    let rest = std::iter::repeat_with(heard).find(|said| said != "WATCHDOG=1");
    assert_eq!(rest.as_deref(), Some("STOPPING=1"));
}

#[test]
fn a_reload_is_applied_as_a_whole_or_not_at_all() {
    if !is_inside("faults::a_reload_is_applied_as_a_whole_or_not_at_all") {
        return;
    }
    let mut testbed = Testbed::new(ONE);
    let names = |testbed: &Testbed| -> Vec<String> {
        let sessions = testbed.snapshot()["sessions"].as_array().unwrap().clone();
        sessions.iter().map(|session| session["name"].as_str().unwrap().to_owned()).collect()
    };
    let good = "[[session]]\nname = \"bob\"\nchannel = [{ interface = \"b\" }]\n";
    for (bad, says) in [
        (format!("{good}[[session]]\nname = \"bob\"\n"), "two sessions called `bob`"),
        (format!("{good}[[session]]\nname = \"eve\"\nmemory = \"900 GiB\"\n"), "more than is left"),
        (
            format!(
                "{good}[[session]]\nname = \"eve\"\nchannel = [{{ interface = \"b\" }}]\nmodule = [{{ module = \"none\" }}]\n"
            ),
            "No such file",
        ),
        (format!("{good}[[interface]]\nname = \"c\"\n"), "[interface] has changed"),
        ("[node".to_owned(), "line 1"),
    ] {
        if bad == "[node" {
            std::fs::write(testbed.config(), bad).unwrap();
        } else {
            testbed.configure(&bad);
        }
        let why = testbed.request_refused(json!("reload"));
        assert!(why.contains(says), "{why}");
        assert_eq!(names(&testbed), ["alice"]);
    }
    // Also by the signal of service managers.
    testbed.configure(good);
    testbed.signal("HUP");
    testbed.until("bob is there", |testbed| names(testbed) == ["bob"]);
    testbed.configure(&format!("{good}{ONE}"));
    testbed.request(json!("reload"));
    assert_eq!(names(&testbed), ["alice", "bob"]);
    testbed.send(&vec![udp(1, b"x"); 10]);
    testbed.until("alice works again", |testbed| testbed.count("alice", "trajectory", "packets") == 10);
}

#[test]
fn silent_and_invalid_clients_affect_no_other() {
    if !is_inside("faults::silent_and_invalid_clients_affect_no_other") {
        return;
    }
    let mut testbed = Testbed::new(ONE);
    let mut silent: Vec<_> = (0..40).map(|_| testbed.connect()).collect();
    silent[0].write_all(b"{\"weir\": 1, \"request\"").unwrap();
    for (line, says) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "the line is not a request"),
        (b"{\"weir\": 2, \"request\": \"show\"}\n", "speaks version 1 of the protocol, not 2"),
        (b"{\"weir\": 1, \"request\": {\"close\": {\"session\": \"../../etc\"}}}\n", "is not a name"),
        (b"\xff\xfe\n", "the line is not a request"),
        (b"{\"weir\": 1, \"request\": \"show\", \"body\": 1}\n", "this request has no file"),
        (
            b"{\"weir\": 1, \"request\": {\"put-table\": {\"table\": \"t\"}}, \"body\": 4294967295}\n",
            "at most",
        ),
    ] {
        let mut stream = testbed.connect();
        stream.write_all(line).unwrap();
        let mut answer = [0; 4096];
        let len = stream.read(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer[..len]);
        assert!(answer.contains(says), "{answer}");
    }
    let mut long = testbed.connect();
    // The node may close the connection before all is written.
    let _ = long.write_all(&vec![b'x'; 3 << 20]);
    testbed.send(&vec![udp(1, b"x"); 10]);
    testbed.until("the module has received all packets", |testbed| {
        testbed.count("alice", "trajectory", "packets") == 10
    });
    assert!(testbed.stop().success());
}

#[test]
fn an_interface_that_disappears_and_returns_works_again() {
    if !is_inside("faults::an_interface_that_disappears_and_returns_works_again") {
        return;
    }
    let mut testbed = Testbed::new(ONE);
    let set = |what: &str| {
        let done = std::process::Command::new("ip").args(["link", "set", "dev", "b", what]).status();
        assert!(done.unwrap().success());
    };
    set("down");
    testbed.until("the log has the message", |testbed| testbed.log().contains("b is down"));
    assert_ne!(testbed.snapshot()["interfaces"][0]["state"], "up");
    set("up");
    testbed.until("the interface is up", |testbed| testbed.snapshot()["interfaces"][0]["state"] == "up");
    testbed.until("the far end of the cable has a carrier, too", |_| has_carrier("a"));
    testbed.send(&vec![udp(1, b"x"); 10]);
    testbed.until("packets arrive", |testbed| testbed.count("alice", "trajectory", "packets") >= 10);
}

#[test]
fn a_node_waits_for_an_interface_that_appears_after_its_start() {
    if !is_inside("faults::a_node_waits_for_an_interface_that_appears_after_its_start") {
        return;
    }
    let session = ONE.replace("interface = \"b\"", "interface = \"late\"");
    let mut testbed = Testbed::new(&format!("[[interface]]\nname = \"late\"\narena = \"8 MiB\"\n{session}"));
    assert!(
        testbed.log().contains("there is no interface `late` on this machine now: the node will wait for it")
    );
    let state = |testbed: &Testbed| testbed.snapshot()["interfaces"][1]["state"].clone();
    assert_ne!(state(&testbed), "up");
    cable("late", "other");
    testbed.until("the interface is up", |testbed| state(testbed) == "up");
    let mut sink = weir_netio::LiveSink::open("other", weir_netio::SocketKind::Packet).unwrap();
    let frames = vec![udp(1, b"x"); 10];
    let taken = sink.send(&frames.iter().map(Vec::as_slice).collect::<Vec<_>>()).consumed;
    assert_eq!(taken, 10);
    testbed.until("packets arrive", |testbed| testbed.count("alice", "trajectory", "packets") == 10);
    assert!(testbed.stop().success());
}

#[test]
fn the_log_can_be_written_as_json() {
    if !is_inside("faults::the_log_can_be_written_as_json") {
        return;
    }
    let mut testbed = Testbed::with_node("log = \"json\"\n", ONE);
    let set = std::process::Command::new("ip").args(["link", "set", "dev", "b", "down"]).status();
    assert!(set.unwrap().success());
    testbed.until("the log has the message", |testbed| testbed.log().contains("b is down"));
    assert!(testbed.stop().success());
    let said = testbed.log();
    let lines: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect();
    let of = |message: &str| {
        let line =
            lines.iter().find(|line| line["message"].as_str().is_some_and(|text| text.contains(message)));
        line.unwrap_or_else(|| panic!("{said}"))
    };
    let line = of("node test is running");
    assert_eq!((&line["level"], &line["node"]), (&json!("info"), &json!("test")));
    assert!(weir_ledger::parse_time(line["time"].as_str().unwrap()).is_ok(), "{line}");
    assert_eq!(of("b is down")["interface"], "b");
}
