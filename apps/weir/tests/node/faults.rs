//! What goes wrong, and what is left of it.

use crate::place::{Place, cable, has_carrier, is_inside, udp};
use serde_json::json;
use std::io::{Read, Write};

const ONE: &str = r#"
[[session]]
name = "alice"
channel = [{ interface = "b", filter = "udp" }]
module = [{ module = "trajectory" }]
"#;

#[test]
fn after_a_kill_sessions_come_back_and_the_ledger_is_whole() {
    if !is_inside("faults::after_a_kill_sessions_come_back_and_the_ledger_is_whole") {
        return;
    }
    let mut place = Place::new(ONE);
    for round in 1..=3u64 {
        place.send(&vec![udp(1, b"x"); 500]);
        place.until("they are billed", |place| {
            place.count("alice", "trajectory", "packets") == 500
                && place.billed("alice", "packets_in") == 500 * round
        });
        place.kill();
        assert_eq!(place.billed("alice", "packets_in"), 500 * round);
        place.start();
    }
    let recovered = place.ledger().iter().filter(|entry| entry["kind"] == "recovered").count();
    assert_eq!(recovered, 3);
    assert!(place.stop().success());
    assert_eq!(place.ledger().last().unwrap()["kind"], "node-stop");
}

#[test]
fn all_threads_of_a_node_are_confined() {
    if !is_inside("faults::all_threads_of_a_node_are_confined") {
        return;
    }
    let mut place = Place::new(ONE);
    let threads = format!("/proc/{}/task", place.process());
    let mut seen = 0;
    for thread in std::fs::read_dir(threads).unwrap() {
        // One that has ended meanwhile says nothing.
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
    // And what it does for its sessions needs nothing more.
    place.send(&vec![udp(1, b"x"); 100]);
    place.until("it works", |place| place.count("alice", "trajectory", "packets") == 100);
}

#[test]
fn a_node_stops_in_order_though_the_file_of_its_socket_is_gone() {
    if !is_inside("faults::a_node_stops_in_order_though_the_file_of_its_socket_is_gone") {
        return;
    }
    let mut place = Place::new(ONE);
    place.send(&vec![udp(1, b"x"); 10]);
    place.until("it works", |place| place.count("alice", "trajectory", "packets") == 10);
    std::fs::remove_file(place.path().join("node.sock")).unwrap();
    assert!(place.stop().success());
    assert_eq!(place.billed("alice", "packets_in"), 10);
    let last = place.ledger().pop().unwrap();
    assert_eq!(last["kind"], "node-stop", "{last}");
}

#[test]
fn the_service_manager_hears_from_a_node_more_often_than_intervals_end() {
    if !is_inside("faults::the_service_manager_hears_from_a_node_more_often_than_intervals_end") {
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
    let mut place = Place::managed("interval = \"60s\"\n", ONE, &path);
    assert_eq!(heard(), "READY=1");
    assert_eq!((heard().as_str(), heard().as_str()), ("WATCHDOG=1", "WATCHDOG=1"));
    assert!(place.stop().success());
    let rest = std::iter::repeat_with(heard).find(|said| said != "WATCHDOG=1");
    assert_eq!(rest.as_deref(), Some("STOPPING=1"));
}

#[test]
fn a_reload_takes_effect_whole_or_not_at_all() {
    if !is_inside("faults::a_reload_takes_effect_whole_or_not_at_all") {
        return;
    }
    let mut place = Place::new(ONE);
    let names = |place: &Place| -> Vec<String> {
        let sessions = place.snapshot()["sessions"].as_array().unwrap().clone();
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
            std::fs::write(place.config(), bad).unwrap();
        } else {
            place.configure(&bad);
        }
        let why = place.refused(json!("reload"));
        assert!(why.contains(says), "{why}");
        assert_eq!(names(&place), ["alice"]);
    }
    // And by the signal that services know.
    place.configure(good);
    place.signal("HUP");
    place.until("bob is there", |place| names(place) == ["bob"]);
    place.configure(&format!("{good}{ONE}"));
    place.done(json!("reload"));
    assert_eq!(names(&place), ["alice", "bob"]);
    place.send(&vec![udp(1, b"x"); 10]);
    place.until("alice works again", |place| place.count("alice", "trajectory", "packets") == 10);
}

#[test]
fn clients_that_say_nothing_or_nonsense_disturb_nobody() {
    if !is_inside("faults::clients_that_say_nothing_or_nonsense_disturb_nobody") {
        return;
    }
    let mut place = Place::new(ONE);
    let mut silent: Vec<_> = (0..40).map(|_| place.connect()).collect();
    silent[0].write_all(b"{\"weir\": 1, \"ask\"").unwrap();
    for (line, says) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "this is no request"),
        (b"{\"weir\": 2, \"ask\": \"show\"}\n", "speaks version 1 of the protocol, not 2"),
        (b"{\"weir\": 1, \"ask\": {\"close\": {\"session\": \"../../etc\"}}}\n", "is not a name"),
        (b"\xff\xfe\n", "this is no request"),
        (b"{\"weir\": 1, \"ask\": \"show\", \"body\": 1}\n", "no file belongs to this request"),
        (b"{\"weir\": 1, \"ask\": {\"put-table\": {\"table\": \"t\"}}, \"body\": 4294967295}\n", "at most"),
    ] {
        let mut stream = place.connect();
        stream.write_all(line).unwrap();
        let mut answer = [0; 4096];
        let len = stream.read(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer[..len]);
        assert!(answer.contains(says), "{answer}");
    }
    let mut long = place.connect();
    // The node may have closed before all is written.
    let _ = long.write_all(&vec![b'x'; 3 << 20]);
    place.send(&vec![udp(1, b"x"); 10]);
    place.until("it works", |place| place.count("alice", "trajectory", "packets") == 10);
    assert!(place.stop().success());
}

#[test]
fn an_interface_that_goes_and_comes_back_is_survived() {
    if !is_inside("faults::an_interface_that_goes_and_comes_back_is_survived") {
        return;
    }
    let mut place = Place::new(ONE);
    let set = |what: &str| {
        let done = std::process::Command::new("ip").args(["link", "set", "dev", "b", what]).status();
        assert!(done.unwrap().success());
    };
    set("down");
    place.until("it is said", |place| place.said().contains("b is down"));
    assert_ne!(place.snapshot()["interfaces"][0]["state"], "up");
    set("up");
    place.until("it is up", |place| place.snapshot()["interfaces"][0]["state"] == "up");
    place.until("the other end of its cable is, too", |_| has_carrier("a"));
    place.send(&vec![udp(1, b"x"); 10]);
    place.until("packets come", |place| place.count("alice", "trajectory", "packets") >= 10);
}

#[test]
fn an_interface_that_comes_after_the_start_is_waited_for() {
    if !is_inside("faults::an_interface_that_comes_after_the_start_is_waited_for") {
        return;
    }
    let session = ONE.replace("interface = \"b\"", "interface = \"late\"");
    let mut place = Place::new(&format!("[[interface]]\nname = \"late\"\narena = \"8 MiB\"\n{session}"));
    assert!(place.said().contains("there is no interface `late` on this machine now: the node waits for it"));
    let state = |place: &Place| place.snapshot()["interfaces"][1]["state"].clone();
    assert_ne!(state(&place), "up");
    cable("late", "other");
    place.until("it is up", |place| state(place) == "up");
    let mut sink = weir_netio::LiveSink::open("other", weir_netio::SocketKind::Packet).unwrap();
    let frames = vec![udp(1, b"x"); 10];
    let taken = sink.send(&frames.iter().map(Vec::as_slice).collect::<Vec<_>>()).taken;
    assert_eq!(taken, 10);
    place.until("packets come", |place| place.count("alice", "trajectory", "packets") == 10);
    assert!(place.stop().success());
}

#[test]
fn what_a_node_says_is_for_programs_where_that_is_asked_for() {
    if !is_inside("faults::what_a_node_says_is_for_programs_where_that_is_asked_for") {
        return;
    }
    let mut place = Place::with_node("log = \"json\"\n", ONE);
    let set = std::process::Command::new("ip").args(["link", "set", "dev", "b", "down"]).status();
    assert!(set.unwrap().success());
    place.until("it is said", |place| place.said().contains("b is down"));
    assert!(place.stop().success());
    let said = place.said();
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
