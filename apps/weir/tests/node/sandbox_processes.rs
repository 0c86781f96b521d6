//! Modules in processes of their own: they do what they do in the node's, and have nothing of anybody else.

use crate::links::{linked, session};
use crate::module::{MANIFEST, assemble, text};
use crate::place::{Place, is_inside, udp};
use parquet::file::reader::FileReader;
use parquet::file::serialized_reader::SerializedFileReader;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Two sessions that differ in nothing but where their modules run.
fn both(more: &str) -> String {
    ["here", "apart"]
        .map(|name| {
            let process = if name == "apart" { "own" } else { "node" };
            format!(
                "[[session]]\nname = \"{name}\"\nprocess = \"{process}\"\nmemory = \"16 MiB\"\n\
                 cpu = [{{ period = \"20ms\", slice = \"4ms\", spare = true }}]\n\
                 channel = [{{ interface = \"b\", filter = \"udp port 53\" }}]\n{more}"
            )
        })
        .concat()
}

/// The processes of modules that a node has started.
pub fn wards(node: u32) -> BTreeSet<u32> {
    let processes = std::fs::read_dir("/proc").unwrap();
    let numbers =
        processes.filter_map(|entry| entry.unwrap().file_name().into_string().ok()?.parse::<u32>().ok());
    numbers
        .filter(|id| {
            // Those that end meanwhile are none.
            let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
            let command = std::fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
            status.contains(&format!("\nPPid:\t{node}\n")) && command.ends_with("\0ward\0")
        })
        .collect()
}

/// The memory files that a process has mapped, by their numbers.
fn memory_files(process: u32) -> BTreeSet<String> {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let files = maps.lines().filter(|line| line.contains("/memfd:"));
    files.map(|line| line.split_whitespace().nth(4).unwrap().to_owned()).collect()
}

/// All rows of the files in a folder.
pub fn rows(folder: &Path) -> Vec<String> {
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "parquet"));
    files.sort();
    let read = |path: &PathBuf| {
        let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect::<Vec<_>>()
    };
    files.iter().flat_map(read).collect()
}

/// Emits the length of each packet, and a text of it; loses the call with each packet whose payload begins with a 7; and emits how many it has seen when it
/// stops.
fn talker() -> Vec<u8> {
    let body = r#"(global $seen (mut i64) (i64.const 0))
        (data (i32.const 128) "a text of its own")
        (func (export "weir_packet") (param $d i32) (result i32)
            (global.set $seen (i64.add (global.get $seen) (i64.const 1)))
            (i64.store (i32.const 64) (i64.extend_i32_u (i32.load offset=12 (local.get $d))))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
            (i32.store (i32.const 80) (i32.const 128))
            (i32.store (i32.const 84) (i32.rem_u (i32.load offset=12 (local.get $d)) (i32.const 17)))
            (drop (call $emit (i32.const 1) (i32.const 80) (i32.const 8)))
            (if (i32.eq (i32.load8_u offset=42 (i32.load offset=8 (local.get $d))) (i32.const 7)) (then unreachable))
            (i32.const 0))
        (func (export "weir_stop") (param i64)
            (i64.store (i32.const 64) (global.get $seen))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8))))"#;
    assemble(&text(body), Some(MANIFEST.replace("NAME", "talker").as_bytes()))
}

#[test]
fn a_module_does_the_same_in_a_process_of_its_own() {
    if !is_inside("wards::a_module_does_the_same_in_a_process_of_its_own") {
        return;
    }
    let mut place = Place::new(&both("module = [{ module = \"port-count\", set = { ports = [53] } }]\n"));
    for session in ["here", "apart"] {
        let reply = place.load(session, json!({"module": "talker.wasm"}), &talker());
        assert!(reply.get("done").is_some(), "{reply}");
    }
    let frames: Vec<Vec<u8>> = (0..3000u16)
        .map(|i| udp(if i % 3 == 0 { 53 } else { 99 }, &vec![i.to_be_bytes()[1] % 16; usize::from(i % 900)]))
        .collect();
    place.send(&frames);
    let count = |place: &Place, what: &str| {
        ["here", "apart"]
            .map(|session| ["port-count", "talker"].map(|module| place.count(session, module, what)))
    };
    place.until("all have seen all", |place| {
        let (seen, lost) = (count(place, "packets"), count(place, "faults"));
        (0..2).all(|s| (0..2).all(|m| seen[s][m] + lost[s][m] == 1000))
    });
    for what in ["packets", "faults"] {
        let [here, apart] = count(&place, what);
        assert_eq!(here, apart, "{what}");
    }
    assert!(place.count("apart", "talker", "faults") > 0);
    let fault = |session: &str| place.part(session, "modules", "talker")["last_fault"].clone();
    assert_eq!(fault("here"), fault("apart"));
    assert_eq!(wards(place.process()).len(), 2);
    assert!(place.stop().success());
    let of = |session: &str| {
        let folder = place.path().join("state/records").join(session);
        let mut folders = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        let talker = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("talker");
        rows(&folders.find(talker).unwrap())
    };
    let (here, apart) = (of("here"), of("apart"));
    assert!(here.len() > 1000);
    assert_eq!(here, apart);
    assert_eq!(place.billed("here", "packets_in"), place.billed("apart", "packets_in"));
    // What it took is its own, though it was another process that took it.
    assert!(place.billed("apart", "cpu_ns") > 0);
}

#[test]
fn a_process_of_its_own_has_nothing_of_others() {
    if !is_inside("wards::a_process_of_its_own_has_nothing_of_others") {
        return;
    }
    let one = |name: &str, port: u16| {
        format!(
            "[[session]]\nname = \"{name}\"\nprocess = \"own\"\nmemory = \"16 MiB\"\n\
             channel = [{{ interface = \"b\", filter = \"udp port {port}\" }}]\n\
             module = [{{ module = \"port-count\", set = {{ ports = [53] }} }}]\n"
        )
    };
    let raw = "[[session]]\nname = \"raw\"\nchannel = [{ interface = \"b\", sees = \"all\" }]\nmodule = [{ module = \"trajectory\" }]\n";
    let mut place = Place::new(&(one("alice", 53) + &one("bob", 99) + raw));
    place.send(&[udp(53, b"alice's"), udp(99, b"bob's"), udp(7, b"nobody's")]);
    place.until("they have seen theirs", |place| {
        place.count("alice", "port-count", "packets") == 1
            && place.count("bob", "port-count", "packets") == 1
            && place.count("raw", "trajectory", "packets") == 3
    });
    let node = place.process();
    let wards: Vec<u32> = wards(node).into_iter().collect();
    let [one, other] = wards[..] else { panic!("there are two: {wards:?}") };
    // Packets and descriptors of their own selection, and nothing in common.
    let (ones, others) = (memory_files(one), memory_files(other));
    assert_eq!((ones.len(), others.len()), (2, 2), "{ones:?} {others:?}");
    assert!(ones.is_disjoint(&others));
    // They are the node's; and it has more, of which they have nothing.
    let all = memory_files(node);
    assert!(all.is_superset(&ones) && all.is_superset(&others) && all.len() > 4);
    for ward in wards {
        let maps = std::fs::read_to_string(format!("/proc/{ward}/maps")).unwrap();
        // The memory of a packet socket is mapped under this name.
        assert!(!maps.contains("socket:"), "{maps}");
        let open = std::fs::read_dir(format!("/proc/{ward}/fd")).unwrap();
        for entry in open {
            let to = std::fs::read_link(entry.unwrap().path()).unwrap();
            let to = to.to_str().unwrap();
            assert!(to == "/dev/null" || to.starts_with("socket:"), "{to}");
        }
        let status = std::fs::read_to_string(format!("/proc/{ward}/status")).unwrap();
        for line in
            ["CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"]
        {
            assert!(status.contains(line), "{line}: {status}");
        }
    }
    assert!(std::fs::read_to_string(format!("/proc/{node}/maps")).unwrap().contains("socket:"));
    assert!(place.stop().success());
    // Nothing is left of them.
    for ward in [one, other] {
        assert!(!Path::new(&format!("/proc/{ward}")).exists());
    }
}

#[test]
fn when_a_process_of_its_own_is_killed_the_module_has_ended_and_nobody_else_has() {
    if !is_inside("wards::when_a_process_of_its_own_is_killed_the_module_has_ended_and_nobody_else_has") {
        return;
    }
    let mut place = Place::new(&both("module = [{ module = \"port-count\", set = { ports = [53] } }]\n"));
    place.send(&vec![udp(53, b"x"); 10]);
    let seen = |place: &Place, session: &str| place.count(session, "port-count", "packets");
    place.until("both have seen them", |place| seen(place, "here") == 10 && seen(place, "apart") == 10);
    let ward = wards(place.process()).into_iter().next().unwrap();
    assert!(Command::new("kill").args(["-9", &ward.to_string()]).status().unwrap().success());
    place.send(&vec![udp(53, b"x"); 10]);
    place.until("one goes on", |place| seen(place, "here") == 20);
    place.until("the other one is unloaded", |place| {
        let snapshot = place.snapshot();
        let sessions: Vec<Value> = snapshot["sessions"].as_array().unwrap().clone();
        let apart = sessions.iter().find(|session| session["name"] == "apart").unwrap();
        apart["modules"].as_array().unwrap().is_empty()
    });
    place.until("it is said", |place| place.said().contains("has no process any more, and is unloaded"));
    // There can be another one.
    let reply = place.load("apart", json!({"module": "port-count", "set": {"ports": [53]}}), &[]);
    assert!(reply.get("done").is_some(), "{reply}");
    place.send(&vec![udp(53, b"x"); 10]);
    place.until("it sees what comes", |place| seen(place, "apart") == 10 && seen(place, "here") == 30);
    assert!(place.stop().success());
    let ledger = place.ledger();
    let unloaded = ledger.iter().find(|entry| entry["kind"] == "module-unloaded").unwrap();
    assert_eq!(
        (&unloaded["session"]["name"], &unloaded["reason"]),
        (&json!("apart"), &json!("process-ended"))
    );
}

#[test]
fn a_module_that_never_ends_keeps_to_its_share_in_a_process_of_its_own() {
    if !is_inside("wards::a_module_that_never_ends_keeps_to_its_share_in_a_process_of_its_own") {
        return;
    }
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
        (loop $l (br_if $l (i32.ne (i32.load (i32.const 64)) (i32.const 1)))) (i32.const 0))"#;
    let bytes = assemble(&text(body), Some(MANIFEST.replace("NAME", "endless").as_bytes()));
    let sessions = "[[session]]\nname = \"good\"\ncpu = [{ period = \"20ms\", slice = \"2ms\", spare = true }]\n\
                    channel = [{ interface = \"b\", filter = \"udp\", queue = 10000 }]\nmodule = [{ module = \"trajectory\" }]\n\
                    [[session]]\nname = \"bad\"\nprocess = \"own\"\ncpu = [{ period = \"20ms\", slice = \"1ms\" }]\n\
                    channel = [{ interface = \"b\", filter = \"udp\" }]\n";
    let mut place = Place::new(sessions);
    assert!(place.load("bad", json!({"module": "endless.wasm"}), &bytes).get("done").is_some());
    place.send(&vec![udp(1, b"x"); 2000]);
    place.until("the good one has seen all", |place| place.count("good", "trajectory", "packets") == 2000);
    place.until("the bad one is unloaded", |place| {
        place.said().contains("was over its limits too often, and is unloaded")
    });
    assert_eq!(place.part("good", "channels", "main")["drops"], json!({}));
    assert!(wards(place.process()).is_empty());
    assert!(place.stop().success());
}

#[test]
fn what_a_module_in_a_process_of_its_own_sends_and_decides_goes_out() {
    if !is_inside("wards::what_a_module_in_a_process_of_its_own_sends_and_decides_goes_out") {
        return;
    }
    let apart =
        session(", forward = \"up\"").replace("name = \"alice\"", "name = \"alice\"\nprocess = \"own\"");
    let (mut place, mut far) = linked(&apart);
    // Drops what is for even ports, and sends a copy of what is for port 5 in front of it.
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
            (if (i32.eq (i32.load16_u offset=46 (local.get $d)) (i32.const 5))
                (then (if (call $send (i32.const 0) (i32.load offset=8 (local.get $d)) (i32.load offset=12 (local.get $d))) (then unreachable))))
            (i32.eqz (i32.and (i32.load16_u offset=46 (local.get $d)) (i32.const 1))))"#;
    let manifest = format!("kind = 'active'\n{}[[output]]\nname = 'up'\n", MANIFEST.replace("NAME", "sieve"));
    let bytes = assemble(&text(body), Some(manifest.as_bytes()));
    let reply = place.load("alice", json!({"module": "sieve.wasm"}), &bytes);
    assert!(reply.get("done").is_some(), "{reply}");
    let frames: Vec<Vec<u8>> = (0..1000u16).map(|port| udp(port, &port.to_be_bytes().repeat(20))).collect();
    place.send(&frames);
    place.until("all have gone", |place| place.part("alice", "outputs", "up")["packets"] == 501);
    let odd = (0..).zip(&frames).filter(|(port, _)| port % 2 == 1).map(|(_, frame)| frame.clone());
    let mut expected: Vec<Vec<u8>> = odd.chain([frames[5].clone()]).collect();
    let mut arrived = far.datagrams(501);
    expected.sort();
    arrived.sort();
    assert_eq!(arrived, expected);
    assert!(place.stop().success());
}

#[test]
fn what_is_not_for_processes_of_their_own_is_refused_with_its_reason() {
    if !is_inside("wards::what_is_not_for_processes_of_their_own_is_refused_with_its_reason") {
        return;
    }
    let mut place = Place::new(&both(""));
    let why = place.refused(
        json!({"create": {"name": "c", "process": "own", "channel": [{"interface": "b", "sees": "all"}]}}),
    );
    assert!(why.contains("there are no channels that see all"), "{why}");
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32) i32.const 0)"#;
    let keeps = MANIFEST.replace("NAME", "keeper").replace("memory =", "keep = 4\nmemory =");
    let bytes = assemble(&text(body), Some(keeps.as_bytes()));
    let load = |session: &str| place.load(session, json!({"module": "keeper.wasm"}), &bytes);
    assert!(load("here").get("done").is_some());
    let reply = load("apart");
    assert!(reply["refused"]["why"].as_str().unwrap().contains("keeps packets"), "{reply}");
    // All of its memory is taken when it comes.
    let large = MANIFEST.replace("NAME", "large").replace("2 MiB", "17 MiB");
    let bytes = assemble(&text(body), Some(large.as_bytes()));
    assert!(place.load("here", json!({"module": "large.wasm"}), &bytes).get("done").is_some());
    let reply = place.load("apart", json!({"module": "large.wasm"}), &bytes);
    assert!(reply["refused"]["why"].as_str().unwrap().contains("memory"), "{reply}");
    // One that does not want to start says so from there.
    let declines = format!("{body}(func (export \"weir_start\") (result i32) i32.const 3)");
    let bytes = assemble(&text(&declines), Some(MANIFEST.replace("NAME", "unwilling").as_bytes()));
    let reply = place.load("apart", json!({"module": "unwilling.wasm"}), &bytes);
    assert!(reply["refused"]["why"].as_str().unwrap().contains("`weir_start` returned 3"), "{reply}");
    assert!(wards(place.process()).is_empty());
    assert!(place.stop().success());
}
