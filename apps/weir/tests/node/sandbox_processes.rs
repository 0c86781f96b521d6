//! Sandbox processes: modules behave the same as in the node's process, and can access nothing of other sessions.

use crate::links::{linked, session};
use crate::module::{MANIFEST, assemble, text};
use crate::testbed::{Testbed, is_inside, udp};
use parquet::file::reader::FileReader;
use parquet::file::serialized_reader::SerializedFileReader;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Two sessions that differ only in the process of their modules.
fn two_sessions(more: &str) -> String {
    ["here", "apart"]
        .map(|name| {
            let process = if name == "apart" { "own" } else { "node" };
            format!(
                "[[session]]\nname = \"{name}\"\nprocess = \"{process}\"\nmemory = \"16 MiB\"\n\
                 cpu = [{{ period = \"20ms\", slice = \"4ms\", borrow = true }}]\n\
                 channel = [{{ interface = \"b\", filter = \"udp port 53\" }}]\n{more}"
            )
        })
        .concat()
}

/// The sandbox processes of a node.
pub fn sandbox_processes(node: u32) -> BTreeSet<u32> {
    let processes = std::fs::read_dir("/proc").unwrap();
    let numbers =
        processes.filter_map(|entry| entry.unwrap().file_name().into_string().ok()?.parse::<u32>().ok());
    numbers
        .filter(|id| {
            // A process that ends meanwhile is skipped.
            let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
            let command = std::fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
            status.contains(&format!("\nPPid:\t{node}\n")) && command.ends_with("\0sandbox\0")
        })
        .collect()
}

/// The inode numbers of the memory files that a process has mapped.
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

/// A module that emits the length and a text of each packet, traps if the payload begins with 7, and emits the number of its
/// packets when it stops.
fn talking_module() -> Vec<u8> {
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
fn a_module_behaves_the_same_in_a_sandbox_process() {
    if !is_inside("sandbox_processes::a_module_behaves_the_same_in_a_sandbox_process") {
        return;
    }
    let mut testbed =
        Testbed::new(&two_sessions("module = [{ module = \"port-count\", set = { ports = [53] } }]\n"));
    for session in ["here", "apart"] {
        let reply = testbed.load(session, json!({"module": "talker.wasm"}), &talking_module());
        assert!(reply.get("done").is_some(), "{reply}");
    }
    let frames: Vec<Vec<u8>> = (0..3000u16)
        .map(|i| udp(if i % 3 == 0 { 53 } else { 99 }, &vec![i.to_be_bytes()[1] % 16; usize::from(i % 900)]))
        .collect();
    testbed.send(&frames);
    let count = |testbed: &Testbed, what: &str| {
        ["here", "apart"]
            .map(|session| ["port-count", "talker"].map(|module| testbed.count(session, module, what)))
    };
    testbed.until("all modules have received all packets", |testbed| {
        let (seen, lost) = (count(testbed, "packets"), count(testbed, "faults"));
        (0..2).all(|s| (0..2).all(|m| seen[s][m] + lost[s][m] == 1000))
    });
    for what in ["packets", "faults"] {
        let [here, apart] = count(&testbed, what);
        assert_eq!(here, apart, "{what}");
    }
    assert!(testbed.count("apart", "talker", "faults") > 0);
    let fault = |session: &str| testbed.part(session, "modules", "talker")["last_fault"].clone();
    assert_eq!(fault("here"), fault("apart"));
    assert_eq!(sandbox_processes(testbed.process()).len(), 2);
    assert!(testbed.stop().success());
    let of = |session: &str| {
        let folder = testbed.path().join("state/records").join(session);
        let mut folders = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        let is_talkers = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("talker");
        rows(&folders.find(is_talkers).unwrap())
    };
    let (here, apart) = (of("here"), of("apart"));
    assert!(here.len() > 1000);
    assert_eq!(here, apart);
    assert_eq!(testbed.ledger_usage("here", "packets_in"), testbed.ledger_usage("apart", "packets_in"));
    // The session is charged for the sandbox process's time.
    assert!(testbed.ledger_usage("apart", "cpu_ns") > 0);
}

/// A module that emits more rows at its end than a call may emit.
fn large_module() -> Vec<u8> {
    let body = r#"(global $calls (mut i32) (i32.const 0))
        (func $emit_many (param $n i32)
            (loop $next (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
                (br_if $next (local.tee $n (i32.sub (local.get $n) (i32.const 1))))))
        (func (export "weir_packet") (param i32) (result i32) (i32.const 0))
        (func (export "weir_stop") (param i64) (call $emit_many (i32.const 5)))
        (func (export "weir_rest") (param i64) (result i32)
            (call $emit_many (i32.const 60000))
            (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
            (i32.lt_u (global.get $calls) (i32.const 3)))"#;
    assemble(&text(body), Some(MANIFEST.replace("NAME", "large").as_bytes()))
}

#[test]
fn a_stop_in_parts_loses_no_row() {
    if !is_inside("sandbox_processes::a_stop_in_parts_loses_no_row") {
        return;
    }
    let mut testbed = Testbed::new(&two_sessions("record_bytes = \"unlimited\"\n"));
    for session in ["here", "apart"] {
        let reply = testbed.load(session, json!({"module": "large.wasm"}), &large_module());
        assert!(reply.get("done").is_some(), "{reply}");
    }
    testbed.send(&[udp(53, b"x")]);
    testbed.until("both have received the packet", |testbed| {
        ["here", "apart"].iter().all(|session| testbed.count(session, "large", "packets") == 1)
    });
    assert!(testbed.stop().success());
    for session in ["here", "apart"] {
        assert_eq!(testbed.ledger_usage(session, "records_written"), 5 + 3 * 60_000, "{session}");
    }
}

#[test]
fn a_sandbox_process_has_no_memory_of_other_sessions() {
    if !is_inside("sandbox_processes::a_sandbox_process_has_no_memory_of_other_sessions") {
        return;
    }
    let one = |name: &str, port: u16| {
        format!(
            "[[session]]\nname = \"{name}\"\nprocess = \"own\"\nmemory = \"16 MiB\"\n\
             channel = [{{ interface = \"b\", filter = \"udp port {port}\" }}]\n\
             module = [{{ module = \"port-count\", set = {{ ports = [53] }} }}]\n"
        )
    };
    let raw = "[[session]]\nname = \"raw\"\nchannel = [{ interface = \"b\", visibility = \"all\" }]\nmodule = [{ module = \"trajectory\" }]\n";
    let mut testbed = Testbed::new(&(one("alice", 53) + &one("bob", 99) + raw));
    testbed.send(&[udp(53, b"alice's"), udp(99, b"bob's"), udp(7, b"nobody's")]);
    testbed.until("the modules have received their packets", |testbed| {
        testbed.count("alice", "port-count", "packets") == 1
            && testbed.count("bob", "port-count", "packets") == 1
            && testbed.count("raw", "trajectory", "packets") == 3
    });
    let node = testbed.process();
    let processes: Vec<u32> = sandbox_processes(node).into_iter().collect();
    let [one, other] = processes[..] else { panic!("there are two: {processes:?}") };
    // Packets and descriptors of their own selections, which they do not share.
    let (ones, others) = (memory_files(one), memory_files(other));
    assert_eq!((ones.len(), others.len()), (2, 2), "{ones:?} {others:?}");
    assert!(ones.is_disjoint(&others));
    // The files are the node's, which has further ones that the sandbox processes do not have.
    let all = memory_files(node);
    assert!(all.is_superset(&ones) && all.is_superset(&others) && all.len() > 4);
    for process in processes {
        let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
        // The memory of a packet socket is mapped by this name.
        assert!(!maps.contains("socket:"), "{maps}");
        let open = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
        for entry in open {
            let to = std::fs::read_link(entry.unwrap().path()).unwrap();
            let to = to.to_str().unwrap();
            assert!(to == "/dev/null" || to.starts_with("socket:"), "{to}");
        }
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        for line in
            ["CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"]
        {
            assert!(status.contains(line), "{line}: {status}");
        }
    }
    assert!(std::fs::read_to_string(format!("/proc/{node}/maps")).unwrap().contains("socket:"));
    assert!(testbed.stop().success());
    // Neither process is left.
    for process in [one, other] {
        assert!(!Path::new(&format!("/proc/{process}")).exists());
    }
}

#[test]
fn a_killed_sandbox_process_ends_only_its_own_module() {
    if !is_inside("sandbox_processes::a_killed_sandbox_process_ends_only_its_own_module") {
        return;
    }
    let mut testbed =
        Testbed::new(&two_sessions("module = [{ module = \"port-count\", set = { ports = [53] } }]\n"));
    testbed.send(&vec![udp(53, b"x"); 10]);
    let seen = |testbed: &Testbed, session: &str| testbed.count(session, "port-count", "packets");
    testbed.until("both modules have received the packets", |testbed| {
        seen(testbed, "here") == 10 && seen(testbed, "apart") == 10
    });
    let process = sandbox_processes(testbed.process()).into_iter().next().unwrap();
    assert!(Command::new("kill").args(["-9", &process.to_string()]).status().unwrap().success());
    testbed.send(&vec![udp(53, b"x"); 10]);
    testbed.until("the other module has received the packets", |testbed| seen(testbed, "here") == 20);
    testbed.until("the other module is unloaded", |testbed| {
        let snapshot = testbed.snapshot();
        let sessions: Vec<Value> = snapshot["sessions"].as_array().unwrap().clone();
        let apart = sessions.iter().find(|session| session["name"] == "apart").unwrap();
        apart["modules"].as_array().unwrap().is_empty()
    });
    testbed.until("the log has the message", |testbed| {
        testbed.log().contains("its process has ended, so it is unloaded")
    });
    // A new module can be loaded.
    let reply = testbed.load("apart", json!({"module": "port-count", "set": {"ports": [53]}}), &[]);
    assert!(reply.get("done").is_some(), "{reply}");
    testbed.send(&vec![udp(53, b"x"); 10]);
    testbed.until("the module receives packets", |testbed| {
        seen(testbed, "apart") == 10 && seen(testbed, "here") == 30
    });
    assert!(testbed.stop().success());
    let ledger = testbed.ledger();
    let unloaded = ledger.iter().find(|entry| entry["kind"] == "module-unloaded").unwrap();
    assert_eq!(
        (&unloaded["session"]["name"], &unloaded["reason"]),
        (&json!("apart"), &json!("process-ended"))
    );
}

#[test]
fn an_endless_module_in_a_sandbox_process_keeps_to_its_share() {
    if !is_inside("sandbox_processes::an_endless_module_in_a_sandbox_process_keeps_to_its_share") {
        return;
    }
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
        (loop $l (br_if $l (i32.ne (i32.load (i32.const 64)) (i32.const 1)))) (i32.const 0))"#;
    let bytes = assemble(&text(body), Some(MANIFEST.replace("NAME", "endless").as_bytes()));
    let sessions = "[[session]]\nname = \"good\"\ncpu = [{ period = \"20ms\", slice = \"2ms\", borrow = true }]\n\
                    channel = [{ interface = \"b\", filter = \"udp\", queue = 10000 }]\nmodule = [{ module = \"trajectory\" }]\n\
                    [[session]]\nname = \"bad\"\nprocess = \"own\"\ncpu = [{ period = \"20ms\", slice = \"1ms\" }]\n\
                    channel = [{ interface = \"b\", filter = \"udp\" }]\n";
    let mut testbed = Testbed::new(sessions);
    assert!(testbed.load("bad", json!({"module": "endless.wasm"}), &bytes).get("done").is_some());
    testbed.send(&vec![udp(1, b"x"); 2000]);
    testbed.until("the good module has received all packets", |testbed| {
        testbed.count("good", "trajectory", "packets") == 2000
    });
    testbed.until("the bad module is unloaded", |testbed| {
        testbed.log().contains("it has exceeded its limits too often, so it is unloaded")
    });
    assert_eq!(testbed.part("good", "channels", "main")["drops"], json!({}));
    assert!(sandbox_processes(testbed.process()).is_empty());
    assert!(testbed.stop().success());
}

#[test]
fn packets_and_verdicts_of_a_module_in_a_sandbox_process_take_effect() {
    if !is_inside("sandbox_processes::packets_and_verdicts_of_a_module_in_a_sandbox_process_take_effect") {
        return;
    }
    let apart =
        session(", forward = \"up\"").replace("name = \"alice\"", "name = \"alice\"\nprocess = \"own\"");
    let (mut testbed, mut far) = linked(&apart);
    // A module that drops packets to even ports, and sends a copy of packets to port 5 before them.
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
            (if (i32.eq (i32.load16_u offset=46 (local.get $d)) (i32.const 5))
                (then (if (call $send (i32.const 0) (i32.load offset=8 (local.get $d)) (i32.load offset=12 (local.get $d))) (then unreachable))))
            (i32.eqz (i32.and (i32.load16_u offset=46 (local.get $d)) (i32.const 1))))"#;
    let manifest = format!("kind = 'active'\n{}[[output]]\nname = 'up'\n", MANIFEST.replace("NAME", "sieve"));
    let bytes = assemble(&text(body), Some(manifest.as_bytes()));
    let reply = testbed.load("alice", json!({"module": "sieve.wasm"}), &bytes);
    assert!(reply.get("done").is_some(), "{reply}");
    let frames: Vec<Vec<u8>> = (0..1000u16).map(|port| udp(port, &port.to_be_bytes().repeat(20))).collect();
    testbed.send(&frames);
    testbed.until("all packets have been sent", |testbed| {
        testbed.part("alice", "outputs", "up")["packets"] == 501
    });
    let odd = (0..).zip(&frames).filter(|(port, _)| port % 2 == 1).map(|(_, frame)| frame.clone());
    let mut expected: Vec<Vec<u8>> = odd.chain([frames[5].clone()]).collect();
    let mut arrived = far.datagrams(501);
    expected.sort();
    arrived.sort();
    assert_eq!(arrived, expected);
    assert!(testbed.stop().success());
}

#[test]
fn features_without_support_in_sandbox_processes_are_refused_with_the_reason() {
    if !is_inside(
        "sandbox_processes::features_without_support_in_sandbox_processes_are_refused_with_the_reason",
    ) {
        return;
    }
    let mut testbed = Testbed::new(&two_sessions(""));
    let why = testbed.request_refused(
        json!({"create": {"name": "c", "process": "own", "channel": [{"interface": "b", "visibility": "all"}]}}),
    );
    assert!(why.contains("there are no channels that see all"), "{why}");
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32) i32.const 0)"#;
    let keeps = MANIFEST.replace("NAME", "keeper").replace("memory =", "keep = 4\nmemory =");
    let bytes = assemble(&text(body), Some(keeps.as_bytes()));
    let load = |session: &str| testbed.load(session, json!({"module": "keeper.wasm"}), &bytes);
    assert!(load("here").get("done").is_some());
    let reply = load("apart");
    assert!(reply["refused"]["why"].as_str().unwrap().contains("keeps packets"), "{reply}");
    // The whole memory of a module is allocated at its load.
    let large = MANIFEST.replace("NAME", "large").replace("2 MiB", "17 MiB");
    let bytes = assemble(&text(body), Some(large.as_bytes()));
    assert!(testbed.load("here", json!({"module": "large.wasm"}), &bytes).get("done").is_some());
    let reply = testbed.load("apart", json!({"module": "large.wasm"}), &bytes);
    assert!(reply["refused"]["why"].as_str().unwrap().contains("memory"), "{reply}");
    // A module whose start function refuses: the error arrives from the sandbox process.
    let declines = format!("{body}(func (export \"weir_start\") (result i32) i32.const 3)");
    let bytes = assemble(&text(&declines), Some(MANIFEST.replace("NAME", "unwilling").as_bytes()));
    let reply = testbed.load("apart", json!({"module": "unwilling.wasm"}), &bytes);
    assert!(reply["refused"]["why"].as_str().unwrap().contains("`weir_start` returned 3"), "{reply}");
    assert!(sandbox_processes(testbed.process()).is_empty());
    assert!(testbed.stop().success());
}
