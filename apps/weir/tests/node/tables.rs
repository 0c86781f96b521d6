//! Named tables: the operator and sessions publish them, and sessions with a grant read them; with honest and hostile modules.

use crate::module::{MANIFEST, assemble, text};
use crate::testbed::{FollowedReplies, Testbed, is_inside, udp};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Output};

/// The address of the first table's window, as a literal in WebAssembly text.
pub const WINDOW: i32 = 0xC000_0000_u32.cast_signed();

/// A module that executes `act` with each packet. It emits the version of the table `t`, times a million, plus the
/// number in the table's first four bytes.
pub fn reader(act: &str) -> Vec<u8> {
    let body = format!(
        r#"(func (export "weir_packet") (param $d i32) (result i32)
            {act}
            (i64.store (i32.const 64) (i64.add
                (i64.mul (i64.const 1000000) (i64.load (i32.const {WINDOW})))
                (i64.load32_u (i32.const {}))))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
            (i32.const 0))"#,
        WINDOW + 64
    );
    let manifest =
        MANIFEST.replace("NAME", "reader") + "[[table]]\nname = 't'\naccess = 'read'\nbytes = '4 KiB'\n";
    assemble(&text(&body), Some(manifest.as_bytes()))
}

/// A module that publishes the table `t` with each packet, `times` times. The table has `bytes` bytes, which begin with
/// a counter. The module emits each result.
pub fn publisher(name: &str, times: u32, bytes: u32) -> Vec<u8> {
    let body = format!(
        r#"(func (export "weir_packet") (param $d i32) (result i32) (local $left i32)
            (local.set $left (i32.const {times}))
            (loop $next
                (i64.store (i32.const 128) (i64.add (i64.load (i32.const 128)) (i64.const 1)))
                (i64.store (i32.const 64)
                    (i64.extend_i32_s (call $publish (i32.const 0) (i32.const 128) (i32.const {bytes}))))
                (br_if $next (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
            (i32.const 0))"#
    );
    let manifest =
        MANIFEST.replace("NAME", name) + "[[table]]\nname = 't'\naccess = 'publish'\nbytes = '4 KiB'\n";
    let import = "(import \"weir\" \"publish\" (func $publish (param i32 i32 i32) (result i32)))\n(memory ";
    assemble(&text(&body).replacen("(memory ", import, 1), Some(manifest.as_bytes()))
}

/// A session that receives packets to this port, with these table grants.
pub fn session(name: &str, port: u16, grants: &str) -> String {
    format!(
        "[[session]]\nname = \"{name}\"\nmemory = \"4 MiB\"\ncpu = [{{ period = \"20ms\", slice = \"2ms\" }}]\n\
         channel = [{{ interface = \"b\", filter = \"udp port {port}\" }}]\n{grants}\n"
    )
}

pub fn load(testbed: &Testbed, session: &str, module: &[u8]) {
    let reply = testbed.load(session, json!({"module": "m.wasm", "name": "m"}), module);
    assert!(reply.get("done").is_some(), "{session}: {reply}");
}

/// The rows of a session's module, as they arrive.
pub fn follow(testbed: &Testbed, session: &str) -> FollowedReplies {
    FollowedReplies::new(testbed, session, "m", "rows")
}

pub fn next_value(rows: &mut FollowedReplies) -> u64 {
    let row = rows.next().unwrap();
    row["record"]["value"].as_u64().unwrap_or_else(|| panic!("{row}"))
}

/// The value that a reader emits for version `version` of a table that begins with `bytes`.
pub fn emitted_value(version: u64, bytes: &[u8; 4]) -> u64 {
    version * 1_000_000 + u64::from(u32::from_le_bytes(*bytes))
}

fn weir(testbed: &Testbed, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(arguments).env("WEIR_SOCKET", testbed.path().join("node.sock"));
    command.output().unwrap()
}

/// The output of a command, which has to succeed.
pub fn output_of(testbed: &Testbed, arguments: &[&str]) -> String {
    let output = weir(testbed, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The error of a command, which has to fail.
pub fn error_of(testbed: &Testbed, arguments: &[&str]) -> String {
    let output = weir(testbed, arguments);
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

pub fn table(testbed: &Testbed, name: &str) -> Option<Value> {
    let tables = testbed.snapshot()["tables"].clone();
    tables.as_array().into_iter().flatten().find(|table| table["name"] == name).cloned()
}

pub fn memory_used(testbed: &Testbed, session: &str) -> u64 {
    let snapshot = testbed.snapshot();
    let sessions = snapshot["sessions"].as_array().unwrap();
    sessions.iter().find(|shot| shot["name"] == session).unwrap()["memory_used"].as_u64().unwrap()
}

#[test]
fn the_operators_tables_are_read_with_a_grant_and_change_atomically() {
    if !is_inside("tables::the_operators_tables_are_read_with_a_grant_and_change_atomically") {
        return;
    }
    let sessions = |more: &str| {
        "[[table]]\nname = \"geo\"\nfile = \"geo.bin\"\n".to_owned()
            + &session("alice", 1, "read = [\"t=geo\"]")
            + &session("bob", 2, "read = [\"other\"]")
            + more
    };
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let mut testbed = Testbed::new("");
    let geo = testbed.path().join("geo.bin");
    std::fs::write(&geo, b"one and more").unwrap();
    testbed.configure(&sessions(""));
    testbed.request(json!("reload"));
    let reply = testbed.load("bob", json!({"module": "m.wasm", "name": "m"}), &reader(""));
    let why = reply["refused"]["why"].as_str().unwrap();
    let says = "module `m` reads table `t`, for which session `bob` has no grant: `weir session change bob --read t` grants it, or `--read t=NAME` if";
    assert!(why.starts_with(says), "{why}");
    load(&testbed, "alice", &reader(""));
    let mut rows = follow(&testbed, "alice");
    let mut look = |testbed: &mut Testbed| {
        testbed.send(&[udp(1, b"x")]);
        next_value(&mut rows)
    };
    assert_eq!(look(&mut testbed), emitted_value(1, b"one "));
    // At run time, with the command.
    output_of(&testbed, &["table", "put", "geo", &file("two", b"two")]);
    assert_eq!(look(&mut testbed), emitted_value(2, b"two\0"));
    assert_eq!(look(&mut testbed), emitted_value(2, b"two\0"));
    let list = output_of(&testbed, &["table", "list"]);
    let row: Vec<&str> =
        list.lines().find(|line| line.starts_with("geo")).unwrap().split_whitespace().collect();
    assert_eq!(row, ["geo", "the", "operator", "2", "3", "B", "alice/m"], "{list}");
    assert!(output_of(&testbed, &["session", "show", "alice"]).contains("\ntables: reads t=geo\n"));
    // By a file of the configuration; a reload applies all changes or none.
    std::fs::write(&geo, b"three").unwrap();
    testbed.configure(&sessions(&session("carol", 3, "publish = [\"geo\"]")));
    let why = testbed.request_refused(json!("reload"));
    assert!(why.ends_with("table `geo` has two publishers: the operator, and session `carol`"), "{why}");
    testbed.configure(&sessions(
        &session("carol", 3, "cpu = [{ period = \"20ms\", slice = \"20ms\" }]").replacen(
            "cpu = [{ period = \"20ms\", slice = \"2ms\" }]\n",
            "",
            1,
        ),
    ));
    assert!(testbed.request_refused(json!("reload")).contains("session `carol`"));
    assert_eq!(
        look(&mut testbed),
        emitted_value(2, b"two\0"),
        "what a reload that fails has put is taken back"
    );
    testbed.configure(&sessions(""));
    assert!(
        testbed.send_request(json!("reload"))["done"]["notes"]
            .to_string()
            .contains("table geo has a new version")
    );
    assert_eq!(look(&mut testbed) % 1_000_000, emitted_value(0, b"thre") % 1_000_000);
    // A version that is longer than the module's window: the module sees no version, and the operator gets a warning.
    output_of(&testbed, &["table", "put", "geo", &file("long", &[1; 4097])]);
    assert_eq!(look(&mut testbed), 0);
    let list = output_of(&testbed, &["table", "list"]);
    let trouble = "geo: shown as empty to alice/m: it has 4097 bytes, and the module declares 4096 at most";
    assert!(list.contains(trouble), "{list}");
    assert!(
        testbed.log().contains("alice/m: table geo is shown as empty: it has 4097 bytes"),
        "{}",
        testbed.log()
    );
    output_of(&testbed, &["table", "put", "geo", &file("exact", &[1; 4096])]);
    assert_eq!(look(&mut testbed) % 1_000_000, emitted_value(0, &[1; 4]) % 1_000_000);
    output_of(&testbed, &["table", "remove", "geo"]);
    assert_eq!(look(&mut testbed), 0);
    assert!(error_of(&testbed, &["table", "remove", "geo"]).contains("there is no table `geo`"));
    // A table without a publisher disappears with its last reader.
    testbed.request(json!({"close": {"session": "alice"}}));
    assert_eq!(table(&testbed, "geo"), None);
    assert!(testbed.stop().success());
}

#[test]
fn a_published_table_belongs_to_its_session_and_ends_with_it() {
    if !is_inside("tables::a_published_table_belongs_to_its_session_and_ends_with_it") {
        return;
    }
    let sessions = session("maker", 1, "publish = [\"t=counts\"]")
        + &session("alice", 2, "read = [\"t=counts\"]")
        + &session("bob", 2, "read = [\"t=counts\"]");
    let mut testbed = Testbed::new(&sessions);
    let before = memory_used(&testbed, "maker");
    load(&testbed, "maker", &publisher("publisher", 1, 100));
    assert!(memory_used(&testbed, "maker") >= before + 2 * 65_536, "it is taken twice");
    load(&testbed, "alice", &reader(""));
    load(&testbed, "bob", &reader(""));
    let mut all = ["maker", "alice", "bob"].map(|session| follow(&testbed, session));
    let number = |number: u32| number.to_le_bytes();
    for round in 1..=5 {
        testbed.send(&[udp(1, b"x")]);
        assert_eq!(next_value(&mut all[0]), 0);
        testbed.send(&[udp(2, b"x")]);
        assert_eq!(
            [next_value(&mut all[1]), next_value(&mut all[2])],
            [emitted_value(round.into(), &number(round)); 2]
        );
    }
    // No other session can publish it.
    let owned = "table `counts` is published by session maker; another publisher is possible only after it has been withdrawn";
    let create = ["session", "create", "thief", "--publish", "counts"];
    assert!(error_of(&testbed, &create).contains(owned));
    let geo = testbed.path().join("geo.bin");
    std::fs::write(&geo, b"mine").unwrap();
    assert!(error_of(&testbed, &["table", "put", "counts", geo.to_str().unwrap()]).contains(owned));
    assert!(error_of(&testbed, &["table", "remove", "counts"]).contains(owned));
    let second =
        testbed.load("maker", json!({"module": "m.wasm", "name": "second"}), &publisher("second", 1, 100));
    let why = second["refused"]["why"].as_str().unwrap();
    assert!(why.contains("session `maker` has another module that publishes table `t`"), "{why}");
    // When its module ends the table has no version, and its memory is released, even if no packet arrives.
    let used = memory_used(&testbed, "alice");
    testbed.request(json!({"unload": {"session": "maker", "module": "m"}}));
    testbed
        .until("the reader has released the table", |testbed| memory_used(testbed, "alice") == used - 65_536);
    testbed.send(&[udp(2, b"x")]);
    assert_eq!([next_value(&mut all[1]), next_value(&mut all[2])], [0, 0]);
    assert_eq!(memory_used(&testbed, "maker"), before);
    // The name still belongs to the session. When the session ends, other sessions can use it.
    assert!(error_of(&testbed, &create).contains(owned));
    testbed.request(json!({"close": {"session": "maker"}}));
    output_of(&testbed, &create);
    // An unloaded module is no reader.
    assert_eq!(table(&testbed, "counts").unwrap()["readers"], json!(["alice/m", "bob/m"]));
    testbed.request(json!({"close": {"session": "alice"}}));
    assert_eq!(table(&testbed, "counts").unwrap()["readers"], json!(["bob/m"]));
    assert!(testbed.stop().success());
}

#[test]
fn flooding_publishers_and_misbehaving_readers_leave_nothing_and_affect_no_other() {
    let name = "tables::flooding_publishers_and_misbehaving_readers_leave_nothing_and_affect_no_other";
    if !is_inside(name) {
        return;
    }
    let sessions = session("maker", 1, "publish = [\"t\"]")
        + &session("good", 2, "read = [\"t\"]")
        + &session("storing", 2, "read = [\"t\"]")
        + &session("beyond", 2, "read = [\"t\"]");
    let mut testbed = Testbed::new(&sessions);
    load(&testbed, "maker", &publisher("publisher", 20, 4096));
    load(&testbed, "good", &reader(""));
    load(&testbed, "storing", &reader(&format!("(i32.store (i32.const {}) (i32.const -1))", WINDOW + 64)));
    load(&testbed, "beyond", &reader(&format!("(drop (i32.load (i32.const {})))", WINDOW + 8192)));
    let mut good = follow(&testbed, "good");
    testbed.send(&[udp(1, b"x")]);
    testbed.until("the module has published once", |testbed| testbed.count("maker", "m", "packets") == 1);
    let before = testbed.descriptors_and_mappings();
    for round in 2..=60u32 {
        testbed.send(&[udp(1, b"x")]);
        testbed.until("the module has published the table", |testbed| {
            testbed.count("maker", "m", "packets") == u64::from(round)
        });
        testbed.send(&[udp(2, b"x")]);
        assert_eq!(next_value(&mut good), emitted_value(u64::from(round) * 20, &(round * 20).to_le_bytes()));
    }
    testbed.until("all other calls have failed", |testbed| {
        ["storing", "beyond"].iter().all(|session| testbed.count(session, "m", "faults") == 59)
    });
    assert_eq!((testbed.count("good", "m", "faults"), testbed.count("maker", "m", "faults")), (0, 0));
    testbed.wait_until_released(before, (4, 16));
    // The publisher is charged for its floods.
    let charged = |session: &str| testbed.part(session, "cpu", "main")["used_ns"].as_u64().unwrap();
    assert!(charged("maker") > charged("good"));
    assert!(testbed.stop().success());
}

#[test]
fn a_session_without_memory_for_a_table_is_refused() {
    if !is_inside("tables::a_session_without_memory_for_a_table_is_refused") {
        return;
    }
    let poor = |name: &str, memory: &str, port: u16, grants: &str| {
        session(name, port, grants).replace("4 MiB", memory)
    };
    // The record files of each module take 384 KiB.
    let sessions = poor("short", "484 KiB", 1, "publish = [\"t\"]")
        + &poor("maker", "1 MiB", 1, "publish = [\"t=other\"]")
        + &poor("reader", "484 KiB", 2, "read = [\"t=other\"]");
    let mut testbed = Testbed::new(&sessions);
    let reply =
        testbed.load("short", json!({"module": "m.wasm", "name": "m"}), &publisher("publisher", 1, 8));
    let why = reply["refused"]["why"].as_str().unwrap();
    assert!(
        why.contains("publishes table `t`, which takes 128 KiB of memory, twice the declared size"),
        "{why}"
    );
    load(&testbed, "maker", &publisher("publisher", 1, 8));
    // Memory for a page of its own, and none for the table.
    load(&testbed, "reader", &reader(""));
    let mut rows = follow(&testbed, "reader");
    testbed.send(&[udp(1, b"x")]);
    testbed.until("the table is published", |testbed| table(testbed, "other").unwrap()["version"] == 1);
    testbed.send(&[udp(2, b"x")]);
    assert_eq!(next_value(&mut rows), 0);
    let problems = table(&testbed, "other").unwrap()["problems"].to_string();
    assert!(problems.contains("it takes 64 KiB of memory, and the session has less left"), "{problems}");
    testbed.request(json!({"change": {"session": "reader", "memory": "584 KiB"}}));
    testbed.send(&[udp(1, b"x")]);
    testbed.until("it is published again", |testbed| table(testbed, "other").unwrap()["version"] == 2);
    testbed.send(&[udp(2, b"x")]);
    assert_eq!(next_value(&mut rows), emitted_value(2, &2u32.to_le_bytes()));
    assert!(testbed.stop().success());
}

#[test]
fn invalid_table_files_are_refused_with_the_reason() {
    if !is_inside("tables::invalid_table_files_are_refused_with_the_reason") {
        return;
    }
    let mut testbed = Testbed::new(&session("alice", 1, ""));
    let pipe = testbed.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let huge = testbed.path().join("huge");
    std::fs::File::create(&huge).unwrap().set_len(1 << 40).unwrap();
    for (path, says) in [
        ("/dev/zero", "/dev/zero: is not a regular file, from which a table is read"),
        (pipe.to_str().unwrap(), "pipe: is not a regular file"),
        ("/", "/: is not a regular file"),
        (huge.to_str().unwrap(), "huge: has 1099511627776 bytes, and 67108864 are the most for a table"),
        ("/nowhere/at/all", "/nowhere/at/all: No such file"),
    ] {
        let why = error_of(&testbed, &["table", "put", "t", path]);
        assert!(why.contains(says), "{why}");
        // The same file in the configuration: nothing changes.
        testbed.configure(&format!("[[table]]\nname = \"t\"\nfile = \"{path}\"\n{}", session("bob", 1, "")));
        let why = testbed.request_refused(json!("reload"));
        assert!(why.contains(says), "{why}");
    }
    assert_eq!(table(&testbed, "t"), None);
    assert_eq!(testbed.snapshot()["sessions"][0]["name"], "alice");
    // A client that uses the socket directly has the same limits.
    let mut stream = testbed.connect();
    writeln!(
        stream,
        "{}",
        json!({"weir": 1, "request": {"put-table": {"table": "t"}}, "body": (64 << 20) + 1})
    )
    .unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    assert!(line.contains("a table's file has at most 67108864 bytes"), "{line}");
    assert!(testbed.stop().success());
}

#[test]
fn a_publisher_leaves_the_reserved_descriptors_to_requests() {
    if !is_inside("tables::a_publisher_leaves_the_reserved_descriptors_to_requests") {
        return;
    }
    let mut testbed = Testbed::new(&session("maker", 1, "publish = [\"t\"]"));
    load(&testbed, "maker", &publisher("publisher", 1, 8));
    let mut rows = follow(&testbed, "maker");
    let mut answer = |testbed: &mut Testbed| {
        testbed.send(&[udp(1, b"x")]);
        rows.next().unwrap()["record"]["value"].clone()
    };
    assert_eq!(answer(&mut testbed), 0);
    let process = testbed.process().to_string();
    let may_have = |limit: usize| {
        let limit = format!("--nofile={limit}:");
        assert!(Command::new("prlimit").args(["--pid", &process, &limit]).status().unwrap().success());
    };
    // The publisher can use no reserved descriptors. Silent clients take the descriptors that become free meanwhile.
    let mut silent = Vec::new();
    testbed.until("there are some compilers", |testbed| {
        let open = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
        let open: BTreeSet<usize> =
            open.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect();
        let first = (0..).find(|fd| !open.contains(fd)).unwrap();
        let limit = first + first / 4;
        let are_enough = (first..limit).filter(|fd| !open.contains(fd)).count() >= 6;
        if are_enough {
            may_have(limit);
        } else {
            silent.push(testbed.connect());
        }
        are_enough
    });
    assert_eq!(answer(&mut testbed), u64::MAX, "there is no room for it: -1");
    // Requests are still answered, and publishing goes on when descriptors are free.
    assert_eq!(table(&testbed, "t").unwrap()["version"], 1);
    may_have(1024);
    assert_eq!(answer(&mut testbed), 0);
    assert!(testbed.stop().success());
}

#[test]
fn slow_request_bodies_take_no_more_than_the_upload_quota() {
    if !is_inside("tables::slow_request_bodies_take_no_more_than_the_upload_quota") {
        return;
    }
    let mut testbed = Testbed::new(&session("alice", 1, ""));
    let put = |len: u32| {
        json!({"weir": 1, "request": {"put-table": {"table": "t"}}, "body": len}).to_string() + "\n"
    };
    let begin = |testbed: &Testbed| {
        let mut stream = testbed.connect();
        stream.write_all(put(64 << 20).as_bytes()).unwrap();
        stream
    };
    let mut slow: Vec<UnixStream> = (0..4).map(|_| begin(&testbed)).collect();
    let short = |testbed: &Testbed| {
        let mut stream = testbed.connect();
        stream.write_all((put(1) + "x").as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line
    };
    testbed.until("all of them are being served", |testbed| {
        // A connection that was refused, because the short file took its memory for a moment, is replaced.
        for stream in &mut slow {
            stream.set_nonblocking(true).unwrap();
            if stream.read(&mut [0]).is_ok() {
                *stream = begin(testbed);
            }
        }
        short(testbed).contains("there is no room for this file")
    });
    // A request without a body needs no memory.
    testbed.request(json!({"close": {"session": "alice"}}));
    slow.pop();
    testbed.until("there is room again", |testbed| short(testbed).contains("done"));
    assert!(testbed.stop().success());
}

#[test]
fn a_thousand_table_versions_and_sessions_leave_nothing_behind() {
    if !is_inside("tables::a_thousand_table_versions_and_sessions_leave_nothing_behind") {
        return;
    }
    let mut testbed = Testbed::new(&session("alice", 1, "read = [\"t\"]"));
    load(&testbed, "alice", &reader(""));
    let put = |testbed: &Testbed, round: usize| {
        let reply =
            testbed.send_request_with_body(json!({"put-table": {"table": "t"}}), &vec![1; round * 4 % 4097]);
        assert!(reply.get("done").is_some(), "{reply}");
    };
    let create = |testbed: &Testbed, round: usize| {
        let name = format!("s{round}");
        testbed
            .request(json!({"create": {"name": name, "memory": "64 KiB", "publish": [name], "read": ["t"]}}));
        testbed.request(json!({"close": {"session": name}}));
    };
    (1..20).for_each(|round| (put(&testbed, round), create(&testbed, round)).1);
    let before = testbed.descriptors_and_mappings();
    for round in 20..1020 {
        put(&testbed, round);
        create(&testbed, round);
    }
    // Concurrent threads make the C library create heaps: two mappings each, and at most 8 heaps a core. On a busy
    // machine these are
    // more than 16 mappings. A leak would be a thousand.
    testbed.wait_until_released(before, (4, 64));
    // No table of these names is left.
    assert_eq!(testbed.snapshot()["tables"].as_array().unwrap().len(), 1);
    let mut rows = follow(&testbed, "alice");
    testbed.send(&[udp(1, b"x")]);
    assert_eq!(next_value(&mut rows), emitted_value(1019, &[1; 4]));
    assert!(testbed.stop().success());
}
