//! Named tables: an operator and sessions share them, granted sessions read them; honest and hostile.

use crate::module::{MANIFEST, assemble, text};
use crate::place::{Place, is_inside, udp};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Output};

/// Where the window on the first table begins, as a module writes it.
pub const WINDOW: i32 = 0xC000_0000_u32.cast_signed();

/// Emits with each packet a million times the version of the table `t`, and its first four bytes; does `act` before.
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

/// Publishes as table `t`, with each packet so often, so many bytes that begin with the number of times that it has done so; emits what it is answered.
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

/// A session that gets packets to this port, and these grants.
pub fn session(name: &str, port: u16, grants: &str) -> String {
    format!(
        "[[session]]\nname = \"{name}\"\nmemory = \"4 MiB\"\ncpu = [{{ period = \"20ms\", slice = \"2ms\" }}]\n\
         channel = [{{ interface = \"b\", filter = \"udp port {port}\" }}]\n{grants}\n"
    )
}

pub fn load(place: &Place, session: &str, module: &[u8]) {
    let reply = place.load(session, json!({"module": "m.wasm", "name": "m"}), module);
    assert!(reply.get("done").is_some(), "{session}: {reply}");
}

/// The rows of a session's module as they come.
pub fn follow(place: &Place, session: &str) -> Lines<BufReader<UnixStream>> {
    let mut stream = place.connect();
    let ask = json!({"weir": 1, "ask": {"follow": {"session": session, "module": "m", "stream": "rows"}}});
    writeln!(stream, "{ask}").unwrap();
    let mut lines = BufReader::new(stream).lines();
    assert!(lines.next().unwrap().unwrap().contains("done"));
    lines
}

pub fn next(rows: &mut Lines<BufReader<UnixStream>>) -> u64 {
    let row: Value = serde_json::from_str(&rows.next().unwrap().unwrap()).unwrap();
    row["reply"]["record"]["value"].as_u64().unwrap_or_else(|| panic!("{row}"))
}

/// What a reader sees of this version of these bytes.
pub fn seen(version: u64, bytes: &[u8; 4]) -> u64 {
    version * 1_000_000 + u64::from(u32::from_le_bytes(*bytes))
}

fn weir(place: &Place, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(arguments).env("WEIR_SOCKET", place.path().join("node.sock"));
    command.output().unwrap()
}

/// What the program prints when it does what it is asked.
pub fn said(place: &Place, arguments: &[&str]) -> String {
    let output = weir(place, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Why it does not.
pub fn refused(place: &Place, arguments: &[&str]) -> String {
    let output = weir(place, arguments);
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

pub fn table(place: &Place, name: &str) -> Option<Value> {
    let tables = place.snapshot()["tables"].clone();
    tables.as_array().into_iter().flatten().find(|table| table["name"] == name).cloned()
}

pub fn memory_used(place: &Place, session: &str) -> u64 {
    let snapshot = place.snapshot();
    let sessions = snapshot["sessions"].as_array().unwrap();
    sessions.iter().find(|shot| shot["name"] == session).unwrap()["memory_used"].as_u64().unwrap()
}

#[test]
fn what_the_operator_shares_is_read_by_those_who_may_and_changes_as_a_whole() {
    if !is_inside("tables::what_the_operator_shares_is_read_by_those_who_may_and_changes_as_a_whole") {
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
    let mut place = Place::new("");
    let geo = place.path().join("geo.bin");
    std::fs::write(&geo, b"one and more").unwrap();
    place.configure(&sessions(""));
    place.done(json!("reload"));
    let reply = place.load("bob", json!({"module": "m.wasm", "name": "m"}), &reader(""));
    let why = reply["refused"]["why"].as_str().unwrap();
    let says = "module `m` reads table `t`, and session `bob` may not: `weir session change bob --read t` grants it, or `--read t=NAME` where";
    assert!(why.starts_with(says), "{why}");
    load(&place, "alice", &reader(""));
    let mut rows = follow(&place, "alice");
    let mut look = |place: &mut Place| {
        place.send(&[udp(1, b"x")]);
        next(&mut rows)
    };
    assert_eq!(look(&mut place), seen(1, b"one "));
    // At run time, by the program.
    said(&place, &["table", "put", "geo", &file("two", b"two")]);
    assert_eq!(look(&mut place), seen(2, b"two\0"));
    assert_eq!(look(&mut place), seen(2, b"two\0"));
    let list = said(&place, &["table", "list"]);
    let row: Vec<&str> =
        list.lines().find(|line| line.starts_with("geo")).unwrap().split_whitespace().collect();
    assert_eq!(row, ["geo", "the", "operator", "2", "3", "B", "alice/m"], "{list}");
    assert!(said(&place, &["session", "show", "alice"]).contains("\ntables: reads t=geo\n"));
    // By the file, with the rest of the configuration; all or nothing.
    std::fs::write(&geo, b"three").unwrap();
    place.configure(&sessions(&session("carol", 3, "publish = [\"geo\"]")));
    let why = place.refused(json!("reload"));
    assert!(why.ends_with("table `geo` has two publishers: the operator, and session `carol`"), "{why}");
    place.configure(&sessions(
        &session("carol", 3, "cpu = [{ period = \"20ms\", slice = \"20ms\" }]").replacen(
            "cpu = [{ period = \"20ms\", slice = \"2ms\" }]\n",
            "",
            1,
        ),
    ));
    assert!(place.refused(json!("reload")).contains("session `carol`"));
    assert_eq!(look(&mut place), seen(2, b"two\0"), "what a reload that fails has put is taken back");
    place.configure(&sessions(""));
    assert!(place.ask(json!("reload"))["done"]["notes"].to_string().contains("table geo has a new version"));
    assert_eq!(look(&mut place) % 1_000_000, seen(0, b"thre") % 1_000_000);
    // Longer than the module declares: it sees none, and the operator is told.
    said(&place, &["table", "put", "geo", &file("long", &[1; 4097])]);
    assert_eq!(look(&mut place), 0);
    let list = said(&place, &["table", "list"]);
    let trouble = "geo: shown as empty to alice/m: it has 4097 bytes, and the module declares 4096 at most";
    assert!(list.contains(trouble), "{list}");
    assert!(
        place.said().contains("alice/m: table geo is shown as empty: it has 4097 bytes"),
        "{}",
        place.said()
    );
    said(&place, &["table", "put", "geo", &file("exact", &[1; 4096])]);
    assert_eq!(look(&mut place) % 1_000_000, seen(0, &[1; 4]) % 1_000_000);
    said(&place, &["table", "remove", "geo"]);
    assert_eq!(look(&mut place), 0);
    assert!(refused(&place, &["table", "remove", "geo"]).contains("there is no table `geo`"));
    // A table that is gone with its reader is nothing any more.
    place.done(json!({"close": {"session": "alice"}}));
    assert_eq!(table(&place, "geo"), None);
    assert!(place.stop().success());
}

#[test]
fn what_a_session_publishes_is_its_own_and_gone_with_it() {
    if !is_inside("tables::what_a_session_publishes_is_its_own_and_gone_with_it") {
        return;
    }
    let sessions = session("maker", 1, "publish = [\"t=counts\"]")
        + &session("alice", 2, "read = [\"t=counts\"]")
        + &session("bob", 2, "read = [\"t=counts\"]");
    let mut place = Place::new(&sessions);
    let before = memory_used(&place, "maker");
    load(&place, "maker", &publisher("publisher", 1, 100));
    assert!(memory_used(&place, "maker") >= before + 2 * 65_536, "it is taken twice");
    load(&place, "alice", &reader(""));
    load(&place, "bob", &reader(""));
    let mut all = ["maker", "alice", "bob"].map(|session| follow(&place, session));
    let number = |number: u32| number.to_le_bytes();
    for round in 1..=5 {
        place.send(&[udp(1, b"x")]);
        assert_eq!(next(&mut all[0]), 0);
        place.send(&[udp(2, b"x")]);
        assert_eq!([next(&mut all[1]), next(&mut all[2])], [seen(round.into(), &number(round)); 2]);
    }
    // Nobody else publishes it.
    let owned = "table `counts` is published by session maker; nobody else can do that as long as it is";
    let create = ["session", "create", "thief", "--publish", "counts"];
    assert!(refused(&place, &create).contains(owned));
    let geo = place.path().join("geo.bin");
    std::fs::write(&geo, b"mine").unwrap();
    assert!(refused(&place, &["table", "put", "counts", geo.to_str().unwrap()]).contains(owned));
    assert!(refused(&place, &["table", "remove", "counts"]).contains(owned));
    let second =
        place.load("maker", json!({"module": "m.wasm", "name": "second"}), &publisher("second", 1, 100));
    let why = second["refused"]["why"].as_str().unwrap();
    assert!(why.contains("session `maker` has another module that publishes table `t`"), "{why}");
    // Its module ends: nobody sees it any more, and nobody holds its memory, also where no packet comes.
    let used = memory_used(&place, "alice");
    place.done(json!({"unload": {"session": "maker", "module": "m"}}));
    place.until("who reads has let go", |place| memory_used(place, "alice") == used - 65_536);
    place.send(&[udp(2, b"x")]);
    assert_eq!([next(&mut all[1]), next(&mut all[2])], [0, 0]);
    assert_eq!(memory_used(&place, "maker"), before);
    // The name is still its own. Then its session ends, and the name is anybody's.
    assert!(refused(&place, &create).contains(owned));
    place.done(json!({"close": {"session": "maker"}}));
    said(&place, &create);
    // Who reads and ends is a reader no longer.
    assert_eq!(table(&place, "counts").unwrap()["readers"], json!(["alice/m", "bob/m"]));
    place.done(json!({"close": {"session": "alice"}}));
    assert_eq!(table(&place, "counts").unwrap()["readers"], json!(["bob/m"]));
    assert!(place.stop().success());
}

#[test]
fn a_publisher_that_floods_and_readers_that_misbehave_leave_nothing_and_disturb_nobody() {
    let name = "tables::a_publisher_that_floods_and_readers_that_misbehave_leave_nothing_and_disturb_nobody";
    if !is_inside(name) {
        return;
    }
    let sessions = session("maker", 1, "publish = [\"t\"]")
        + &session("good", 2, "read = [\"t\"]")
        + &session("storing", 2, "read = [\"t\"]")
        + &session("beyond", 2, "read = [\"t\"]");
    let mut place = Place::new(&sessions);
    load(&place, "maker", &publisher("publisher", 20, 4096));
    load(&place, "good", &reader(""));
    load(&place, "storing", &reader(&format!("(i32.store (i32.const {}) (i32.const -1))", WINDOW + 64)));
    load(&place, "beyond", &reader(&format!("(drop (i32.load (i32.const {})))", WINDOW + 8192)));
    let mut good = follow(&place, "good");
    place.send(&[udp(1, b"x")]);
    place.until("it has begun", |place| place.count("maker", "m", "packets") == 1);
    let before = place.holdings();
    for round in 2..=60u32 {
        place.send(&[udp(1, b"x")]);
        place.until("it has published", |place| place.count("maker", "m", "packets") == u64::from(round));
        place.send(&[udp(2, b"x")]);
        assert_eq!(next(&mut good), seen(u64::from(round) * 20, &(round * 20).to_le_bytes()));
    }
    place.until("the others have failed each time", |place| {
        ["storing", "beyond"].iter().all(|session| place.count(session, "m", "faults") == 59)
    });
    assert_eq!((place.count("good", "m", "faults"), place.count("maker", "m", "faults")), (0, 0));
    place.holds_no_more(before, (4, 16));
    // It is the maker who is charged for what it does.
    let charged = |session: &str| place.part(session, "cpu", "main")["used_ns"].as_u64().unwrap();
    assert!(charged("maker") > charged("good"));
    assert!(place.stop().success());
}

#[test]
fn who_has_no_memory_for_a_table_is_told_so() {
    if !is_inside("tables::who_has_no_memory_for_a_table_is_told_so") {
        return;
    }
    let poor = |name: &str, memory: &str, port: u16, grants: &str| {
        session(name, port, grants).replace("4 MiB", memory)
    };
    let sessions = poor("short", "100 KiB", 1, "publish = [\"t\"]")
        + &poor("maker", "1 MiB", 1, "publish = [\"t=other\"]")
        + &poor("reader", "100 KiB", 2, "read = [\"t=other\"]");
    let mut place = Place::new(&sessions);
    let reply = place.load("short", json!({"module": "m.wasm", "name": "m"}), &publisher("publisher", 1, 8));
    let why = reply["refused"]["why"].as_str().unwrap();
    assert!(
        why.contains("publishes table `t`, which takes 128 KiB of memory, twice what it declares"),
        "{why}"
    );
    load(&place, "maker", &publisher("publisher", 1, 8));
    // It has room for its own page, and for no other.
    load(&place, "reader", &reader(""));
    let mut rows = follow(&place, "reader");
    place.send(&[udp(1, b"x")]);
    place.until("it is published", |place| table(place, "other").unwrap()["version"] == 1);
    place.send(&[udp(2, b"x")]);
    assert_eq!(next(&mut rows), 0);
    let troubles = table(&place, "other").unwrap()["troubles"].to_string();
    assert!(troubles.contains("it takes 64 KiB of memory, and the session has less left"), "{troubles}");
    place.done(json!({"change": {"session": "reader", "memory": "200 KiB"}}));
    place.send(&[udp(1, b"x")]);
    place.until("it is published again", |place| table(place, "other").unwrap()["version"] == 2);
    place.send(&[udp(2, b"x")]);
    assert_eq!(next(&mut rows), seen(2, &2u32.to_le_bytes()));
    assert!(place.stop().success());
}

#[test]
fn files_that_are_no_tables_are_refused_with_words() {
    if !is_inside("tables::files_that_are_no_tables_are_refused_with_words") {
        return;
    }
    let mut place = Place::new(&session("alice", 1, ""));
    let pipe = place.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let huge = place.path().join("huge");
    std::fs::File::create(&huge).unwrap().set_len(1 << 40).unwrap();
    for (path, says) in [
        ("/dev/zero", "/dev/zero: is no regular file; a table is made of one"),
        (pipe.to_str().unwrap(), "pipe: is no regular file"),
        ("/", "/: is no regular file"),
        (huge.to_str().unwrap(), "huge: has 1099511627776 bytes, and 67108864 are the most for a table"),
        ("/nowhere/at/all", "/nowhere/at/all: No such file"),
    ] {
        let why = refused(&place, &["table", "put", "t", path]);
        assert!(why.contains(says), "{why}");
        // In the configuration it is the same, and nothing changes.
        place.configure(&format!("[[table]]\nname = \"t\"\nfile = \"{path}\"\n{}", session("bob", 1, "")));
        let why = place.refused(json!("reload"));
        assert!(why.contains(says), "{why}");
    }
    assert_eq!(table(&place, "t"), None);
    assert_eq!(place.snapshot()["sessions"][0]["name"], "alice");
    // Whoever speaks with the node itself gains nothing by saying more.
    let mut stream = place.connect();
    writeln!(stream, "{}", json!({"weir": 1, "ask": {"put-table": {"table": "t"}}, "body": (64 << 20) + 1}))
        .unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    assert!(line.contains("a table's file has at most 67108864 bytes"), "{line}");
    assert!(place.stop().success());
}

#[test]
fn who_publishes_leaves_the_last_descriptors_to_those_who_ask_for_something() {
    if !is_inside("tables::who_publishes_leaves_the_last_descriptors_to_those_who_ask_for_something") {
        return;
    }
    let mut place = Place::new(&session("maker", 1, "publish = [\"t\"]"));
    load(&place, "maker", &publisher("publisher", 1, 8));
    let mut rows = follow(&place, "maker");
    let mut answer = |place: &mut Place| {
        place.send(&[udp(1, b"x")]);
        let row: Value = serde_json::from_str(&rows.next().unwrap().unwrap()).unwrap();
        row["reply"]["record"]["value"].clone()
    };
    assert_eq!(answer(&mut place), 0);
    let process = place.process().to_string();
    let may_have = |limit: usize| {
        let limit = format!("--nofile={limit}:");
        assert!(Command::new("prlimit").args(["--pid", &process, &limit]).status().unwrap().success());
    };
    // Only those are free that are not for publishing, and some of them are. Clients that say nothing take others that are in between.
    let mut silent = Vec::new();
    place.until("there are some", |place| {
        let open = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
        let open: BTreeSet<usize> =
            open.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect();
        let first = (0..).find(|fd| !open.contains(fd)).unwrap();
        let limit = first + first / 4;
        let are_enough = (first..limit).filter(|fd| !open.contains(fd)).count() >= 6;
        if are_enough {
            may_have(limit);
        } else {
            silent.push(place.connect());
        }
        are_enough
    });
    assert_eq!(answer(&mut place), u64::MAX.to_string(), "there is no room for it: -1");
    // Others are answered all the same, and it goes on when there are more.
    assert_eq!(table(&place, "t").unwrap()["version"], 1);
    may_have(1024);
    assert_eq!(answer(&mut place), 0);
    assert!(place.stop().success());
}

#[test]
fn files_that_clients_send_slowly_take_no_more_memory_than_there_is_for_them() {
    if !is_inside("tables::files_that_clients_send_slowly_take_no_more_memory_than_there_is_for_them") {
        return;
    }
    let mut place = Place::new(&session("alice", 1, ""));
    let put =
        |len: u32| json!({"weir": 1, "ask": {"put-table": {"table": "t"}}, "body": len}).to_string() + "\n";
    let begin = |place: &Place| {
        let mut stream = place.connect();
        stream.write_all(put(64 << 20).as_bytes()).unwrap();
        stream
    };
    let mut slow: Vec<UnixStream> = (0..4).map(|_| begin(&place)).collect();
    let short = |place: &Place| {
        let mut stream = place.connect();
        stream.write_all((put(1) + "x").as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line
    };
    place.until("all of them are being served", |place| {
        // One that came while a short one was being served was refused for its sake.
        for stream in &mut slow {
            stream.set_nonblocking(true).unwrap();
            if stream.read(&mut [0]).is_ok() {
                *stream = begin(place);
            }
        }
        short(place).contains("there is no room for this file")
    });
    // Who sends nothing needs no room.
    place.done(json!({"close": {"session": "alice"}}));
    slow.pop();
    place.until("there is room again", |place| short(place).contains("done"));
    assert!(place.stop().success());
}

#[test]
fn a_thousand_versions_and_sessions_leave_nothing_behind() {
    if !is_inside("tables::a_thousand_versions_and_sessions_leave_nothing_behind") {
        return;
    }
    let mut place = Place::new(&session("alice", 1, "read = [\"t\"]"));
    load(&place, "alice", &reader(""));
    let put = |place: &Place, round: usize| {
        let reply = place.ask_with(json!({"put-table": {"table": "t"}}), &vec![1; round * 4 % 4097]);
        assert!(reply.get("done").is_some(), "{reply}");
    };
    let create = |place: &Place, round: usize| {
        let name = format!("s{round}");
        place.done(json!({"create": {"name": name, "memory": "64 KiB", "publish": [name], "read": ["t"]}}));
        place.done(json!({"close": {"session": name}}));
    };
    (1..20).for_each(|round| (put(&place, round), create(&place, round)).1);
    let before = place.holdings();
    for round in 20..1020 {
        put(&place, round);
        create(&place, round);
    }
    // Threads that run at the same time make the C library begin arenas: two areas each, and at most 8 arenas a core. On a busy machine these are more than
    // 16 areas. A leak would be a thousand.
    place.holds_no_more(before, (4, 64));
    // Of all these names none is left.
    assert_eq!(place.snapshot()["tables"].as_array().unwrap().len(), 1);
    let mut rows = follow(&place, "alice");
    place.send(&[udp(1, b"x")]);
    assert_eq!(next(&mut rows), seen(1019, &[1; 4]));
    assert!(place.stop().success());
}
