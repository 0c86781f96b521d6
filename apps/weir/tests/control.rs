//! Tests of the commands that connect to a node, against a fake node with scripted replies; and of the ledger commands, which need no node.

use crate::run::process::{Ended, finish};
use crate::run::{run, weir};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

const DONE: &str = "{\"weir\":1,\"reply\":{\"done\":{\"notes\":[]}}}\n";

/// A fake node that accepts one connection, sends one reply per request, and ends.
pub struct FakeNode {
    folder: tempfile::TempDir,
    requests: JoinHandle<Vec<(Value, Vec<u8>)>>,
}

impl FakeNode {
    /// Starts a fake node with these replies.
    pub fn new(answers: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("sock")).unwrap();
        let answers: Vec<Vec<u8>> = answers.iter().map(|answer| answer.as_bytes().to_vec()).collect();
        let requests = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let (mut reads, mut writes) = (BufReader::new(stream.try_clone().unwrap()), stream);
            let mut requests = Vec::new();
            for answer in answers {
                let mut line = String::new();
                // The client may close the connection early.
                if reads.read_line(&mut line).unwrap_or(0) == 0 {
                    break;
                }
                let request: Value = serde_json::from_str(&line).unwrap();
                assert_eq!(request["weir"], 1, "{request}");
                let mut body = vec![0; usize::try_from(request["body"].as_u64().unwrap_or(0)).unwrap()];
                reads.read_exact(&mut body).unwrap();
                requests.push((request["request"].clone(), body));
                let _ = writes.write_all(&answer);
            }
            requests
        });
        Self { folder, requests }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("sock")
    }

    /// Runs `weir ARGUMENTS` with this node. Returns the requests that the node received.
    pub fn run(self, arguments: &[&str]) -> (Ended, Vec<(Value, Vec<u8>)>) {
        let ended = finish(weir().args(arguments).env("WEIR_SOCKET", self.socket()), None);
        (ended, self.requests.join().unwrap())
    }
}

/// Returns the request of a command for which the node answers "done".
fn request_of(arguments: &[&str]) -> Value {
    let (ended, mut requests) = FakeNode::new(&[DONE]).run(arguments);
    assert_eq!(ended.succeeds().text(), "");
    assert_eq!(requests.len(), 1);
    requests.remove(0).0
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn each_command_sends_its_request() {
    for (arguments, request) in [
        (&["reload"][..], r#""reload""#),
        (&["session", "close", "alice"], r#"{"close":{"session":"alice"}}"#),
        (&["unload", "alice", "rtt"], r#"{"unload":{"session":"alice","module":"rtt"}}"#),
        (&["table", "remove", "geo"], r#"{"remove-table":{"table":"geo"}}"#),
        (
            &["session", "create", "alice", "--publish", "a", "--publish", "b=c", "--read", "t=geo"],
            r#"{"create":{"name":"alice","memory":"67108864","priority":0,"cpu":[],"channel":[],"module":[],"publish":["a","b=c"],"read":["t=geo"]}}"#,
        ),
        (
            &["session", "create", "alice"],
            r#"{"create":{"name":"alice","memory":"67108864","priority":0,"cpu":[],"channel":[],"module":[]}}"#,
        ),
        (
            &[
                "session",
                "create",
                "alice",
                "--memory",
                "64KiB",
                "--cpu",
                "period=10ms,slice=2ms,borrow",
                "--cpu",
                "name=b,core=1,weight=7",
                "--channel",
                "interface=eth0,filter=\"tcp port 80, 81\",visibility=all,queue=16",
                "--priority",
                "3",
                "--profile",
                "strict",
            ],
            r#"{"create":{"name":"alice","memory":"65536","profile":"strict","priority":3,"cpu":[
                {"name":"main","period":"10000000ns","slice":"2000000ns","borrow":true,"weight":100},
                {"name":"b","core":1,"borrow":false,"weight":7}],
                "channel":[{"name":"main","interface":"eth0","filter":"tcp port 80, 81","queue":16,"visibility":"all","on_lag":"drop"}],"module":[]}}"#,
        ),
        (
            &[
                "session",
                "change",
                "alice",
                "--cpu",
                "period=10ms,slice=4ms",
                "--memory",
                "1MiB",
                "--priority",
                "9",
            ],
            r#"{"change":{"session":"alice","cpu":[{"name":"main","period":"10000000ns","slice":"4000000ns","borrow":false,"weight":100}],
                "memory":"1048576","priority":9}}"#,
        ),
        (
            &["load", "alice", "rtt,table-size=4096", "--channel", "web", "--cpu", "fast", "--name", "r"],
            r#"{"load":{"session":"alice","module":{"name":"r","module":"rtt","set":{"table-size":"4096"},"channel":"web","cpu":"fast"}}}"#,
        ),
        (
            &["load", "alice", "port-count,ports=53,123"],
            r#"{"load":{"session":"alice","module":{"module":"port-count","set":{"ports":["53","123"]},"channel":"main","cpu":"main"}}}"#,
        ),
    ] {
        assert_eq!(request_of(arguments), json(request), "{arguments:?}");
    }
}

#[test]
fn a_module_file_is_sent_with_the_request() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("theirs.wasm");
    fs::write(&file, b"\0asm\n{}").unwrap();
    let (ended, requests) = FakeNode::new(&[DONE]).run(&["load", "alice", file.to_str().unwrap()]);
    ended.succeeds();
    assert_eq!(requests[0].0["load"]["module"]["module"], "theirs.wasm");
    assert_eq!(requests[0].1, b"\0asm\n{}");
    // A bundle is sent as a whole.
    let bundle = folder.path().join("theirs.weir");
    let bytes = weir_compilation::bundle::Bundle::new(b"\0asm\n{}".to_vec()).to_bytes();
    fs::write(&bundle, &bytes).unwrap();
    let (ended, requests) = FakeNode::new(&[DONE]).run(&["load", "alice", bundle.to_str().unwrap()]);
    ended.succeeds();
    assert_eq!(requests[0].1, bytes);
    // Errors in local files are found before the node is asked.
    run(["load", "alice", "no-such", "--socket", "/nowhere"]).fails(2, &["there is no module `no-such`"]);
    run(["load", "alice", "./no-such.wasm", "--socket", "/nowhere"]).fails(1, &["no-such.wasm"]);
}

#[test]
fn a_session_from_a_file_is_created_with_all_its_modules_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("carol.toml");
    let text = "memory = \"1 MiB\"\ncpu = [{ weight = 5 }]\nchannel = [{ interface = \"eth0\" }]\n\
        [[module]]\nmodule = \"mine.wasm\"\nset = { n = 3 }\n[[module]]\nmodule = \"rtt\"\n";
    fs::write(&file, text).unwrap();
    fs::write(folder.path().join("mine.wasm"), b"bytes").unwrap();
    let create = ["session", "create", "carol", "--priority", "2", "--from", file.to_str().unwrap()];
    let note = "{\"weir\":1,\"reply\":{\"done\":{\"notes\":[\"on core 1\"]}}}\n";
    let (ended, requests) = FakeNode::new(&[note, DONE, DONE]).run(&create);
    assert_eq!(ended.succeeds().text(), "on core 1\n");
    let created = &requests[0].0["create"];
    assert_eq!(
        (&created["name"], &created["memory"], &created["priority"]),
        (&"carol".into(), &"1048576".into(), &2.into())
    );
    assert_eq!(created["module"], json("[]"));
    let load =
        r#"{"session":"carol","module":{"module":"mine.wasm","set":{"n":3},"channel":"main","cpu":"main"}}"#;
    assert_eq!((&requests[1].0["load"], &requests[1].1[..]), (&json(load), &b"bytes"[..]));
    assert_eq!(
        (requests[2].0["load"]["module"]["module"].as_str(), &requests[2].1[..]),
        (Some("rtt"), &b""[..])
    );

    let refused = "{\"weir\":1,\"reply\":{\"refused\":{\"why\":\"it is not WebAssembly\"}}}\n";
    let (ended, requests) = FakeNode::new(&[DONE, refused, DONE]).run(&create);
    ended.fails(
        1,
        &["session `carol` was not created, because of its module mine.wasm: it is not WebAssembly"],
    );
    assert_eq!(requests[2].0, json(r#"{"close":{"session":"carol"}}"#));
    let (ended, _) = FakeNode::new(&[DONE, refused, refused]).run(&create);
    ended.fails(1, &["session `carol` was created without its module mine.wasm", "cannot be closed again"]);

    fs::write(&file, "memory = \"1 MiB\"\ncolour = 1\n").unwrap();
    run(create).fails(1, &["carol.toml: line 2: unknown field `colour`"]);
    fs::write(&file, "name = \"carol\"\nmemory = \"much\"\n").unwrap();
    run(create).fails(1, &["carol.toml: line 2: `much` is not a number of bytes"]);
    fs::remove_file(&file).unwrap();
    run(create).fails(1, &["carol.toml"]);
}

fn snapshot() -> String {
    let shot = json(include_str!("../../node/tests/snapshot.json"));
    serde_json::json!({ "weir": 1, "reply": { "snapshot": shot } }).to_string() + "\n"
}

#[test]
fn sessions_are_listed_and_shown() {
    let snapshot = snapshot();
    let (ended, requests) = FakeNode::new(&[&snapshot]).run(&["session", "list"]);
    let text = ended.succeeds().text().to_owned();
    assert!(text.starts_with("SESSION") && text.contains("greedy") && text.contains("20.0 %"), "{text}");
    assert_eq!(requests[0].0, json("\"show\""));
    let (ended, _) = FakeNode::new(&[&snapshot]).run(&["session", "show", "modest"]);
    assert!(ended.succeeds().text().contains("tcp port 80"));
    let (ended, _) = FakeNode::new(&[&snapshot]).run(&["session", "show", "modest", "--json"]);
    assert_eq!(ended.succeeds().json()["modules"][0]["name"], "rtt");
    let (ended, _) = FakeNode::new(&[&snapshot]).run(&["session", "show", "bob"]);
    ended.fails(1, &["there is no session `bob`; there is greedy, modest"]);
}

#[test]
fn a_table_is_sent_as_the_bytes_of_its_file_and_listed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("geo.bin");
    fs::write(&file, b"bytes").unwrap();
    let (ended, requests) = FakeNode::new(&[DONE]).run(&["table", "put", "geo", file.to_str().unwrap()]);
    ended.succeeds();
    assert_eq!(
        (&requests[0].0, &requests[0].1[..]),
        (&json(r#"{"put-table":{"table":"geo"}}"#), &b"bytes"[..])
    );
    let (ended, _) = FakeNode::new(&[&snapshot()]).run(&["table", "list"]);
    let text = ended.succeeds().text().to_owned();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["TABLE", "PUBLISHER", "VERSION", "BYTES", "READERS"]);
    assert_eq!(rows[1], ["blocked", "session", "greedy", "12", "3", "KiB", "modest/rtt"]);
    assert_eq!(rows[2], ["geo", "-", "-", "-", "modest/rtt"]);
    assert_eq!(text.lines().last(), Some("blocked: shown as empty to modest/rtt: it has 3 KiB, and so on"));
    let (ended, _) = FakeNode::new(&[&snapshot()]).run(&["session", "show", "modest"]);
    assert!(ended.succeeds().text().contains("\ntables: reads blocked, t=geo\n"));
}

#[test]
fn top_without_a_terminal_prints_one_table_from_two_snapshots() {
    let mut later = json(&snapshot());
    let shot = &mut later["reply"]["snapshot"];
    shot["uptime_ns"] = (shot["uptime_ns"].as_u64().unwrap() + 1_000_000_000).into();
    let used = &mut shot["sessions"][1]["cpu"][0]["used_ns"];
    *used = (used.as_u64().unwrap() + 200_000_000).into();
    let (ended, requests) = FakeNode::new(&[&(snapshot() + &later.to_string() + "\n")]).run(&["top"]);
    assert_eq!(requests[0].0, json(r#"{"watch":{"every":"1000000000ns"}}"#));
    let ended = ended.succeeds();
    let modest = ended.text().lines().find(|line| line.contains("modest")).unwrap().to_owned();
    assert!(modest.contains(" 20.0 ") && !ended.text().contains('\u{1b}'), "{}", ended.text());
}

#[test]
fn a_refused_request_exits_with_1_and_the_reason() {
    let refused =
        "{\"weir\":1,\"reply\":{\"refused\":{\"why\":\"core 1 has 12.0 % left; 20.0 % were asked for\"}}}\n";
    for arguments in [
        &["session", "create", "alice", "--cpu", "period=10ms,slice=2ms"][..],
        &["session", "change", "alice", "--memory", "1MiB"],
        &["session", "close", "alice"],
        &["session", "list"],
        &["session", "show", "alice"],
        &["load", "alice", "rtt"],
        &["unload", "alice", "rtt"],
        &["follow", "alice", "rtt", "--stream", "rtts"],
        &["reload"],
        &["top", "--once"],
    ] {
        let (ended, _) = FakeNode::new(&[refused]).run(arguments);
        let ended = ended.fails(1, &["weir: core 1 has 12.0 % left; 20.0 % were asked for"]);
        assert_eq!(ended.text(), "", "{arguments:?}");
    }
}

#[test]
fn invalid_replies_cause_no_panic_and_have_a_hint() {
    let deep = "[".repeat(100_000) + "\n";
    let long = "x".repeat(weir_node::control::protocol::ANSWER_BYTES_MAX + 1);
    for (answer, says) in [
        ("", "closed the connection"),
        ("\n", "not that of a node"),
        ("\0\u{1b}[2J\n", "not that of a node"),
        ("{\"weir\":1,\"reply\":{\"snapshot\":{}}}\n", "missing field"),
        (
            "{\"weir\":1,\"reply\":{\"missed\":{\"module\":0,\"stream\":0,\"rows\":1}}}\n",
            "does not fit the request",
        ),
        (
            "{\"weir\":9,\"reply\":\"x\"}\n",
            "speaks version 9 of the protocol, but this weir speaks version 1",
        ),
        ("{\"weir\":1,\"reply\":{\"done\":", "closed the connection"),
        (&deep, "not that of a node"),
        (&long, "longer than 64 MiB"),
    ] {
        for arguments in [&["session", "list"][..], &["reload"], &["top", "--once"]] {
            let (ended, _) = FakeNode::new(&[answer]).run(arguments);
            let ended = ended.fails(1, &[says]);
            assert!(!ended.stderr.contains('\u{1b}'), "{:?}", ended.stderr);
        }
    }
    run(["session", "list", "--socket", "/nowhere/sock"])
        .fails(1, &["no node listens at /nowhere/sock", "weir node -c"]);
    run(["top", "--socket", "/nowhere/sock"]).fails(1, &["no node listens at /nowhere/sock"]);
}

#[test]
fn usage_errors_exit_with_2() {
    for (arguments, says) in [
        (&["session", "create", "A b"][..], "is not a name"),
        (&["session", "create", "a", "--memory", "much"], "`much` is not a number of bytes"),
        (&["session", "create", "a", "--cpu", "perod=1ms"], "`--cpu perod=1ms`: unknown field `perod`"),
        (&["session", "create", "a", "--channel", "filter=tcp"], "missing field `interface`"),
        (&["session", "change", "a"], "--memory"),
        (&["session"], "Usage: weir session"),
        (&["load", "a"], "MODULE"),
        (&["load", "a", "rtt,a=1,a=2"], "`a` is set twice for rtt"),
        (&["follow", "a", "rtt", "rtts"], "unexpected argument 'rtts'"),
        (&["ledger", "--since", "yesterday"], "not a time"),
        (&["ledger", "--head", "1:2"], "not a ledger's head"),
        (&["ledger", "--csv", "--json"], "cannot be used with"),
    ] {
        let ended = run(arguments).fails(2, &[says]);
        assert_eq!(ended.text(), "");
    }
}

mod ledger {
    use super::*;
    use weir_admission::Name;
    use weir_ledger::{
        ByteSeconds, CloseReason, Digest, DropCause, Idle, LedgerEvent, LedgerText, Reserved, SessionId,
        Usage, parse_time,
    };
    use weir_ledger_files::{LedgerOptions, LedgerWriter, NodeStart};
    use weir_units::{Bytes, Nanos, Timestamp};

    fn timestamp(time: &str) -> Timestamp {
        parse_time(time).unwrap()
    }

    /// Writes a ledger to STATE/ledger with two sessions' usage of two days, including an hour in which they were idle.
    fn write_ledger(state: &Path) {
        let start = NodeStart {
            node: Name::new("ix-1").unwrap(),
            version: LedgerText::new("0.1.0"),
            configuration: Digest::of_bytes(b""),
            at: timestamp("2026-11-20"),
        };
        let (mut ledger, _) =
            LedgerWriter::open(&state.join("ledger"), start, LedgerOptions::default()).unwrap();
        let session = |name: &str, id| SessionId { name: Name::new(name).unwrap(), id };
        let reserved = Reserved::new(Vec::new(), Bytes(64 << 20), Vec::new()).unwrap();
        ledger.push_at(
            timestamp("2026-11-20"),
            LedgerEvent::SessionCreated { session: session("alice", 1), reserved, holder: None },
        );
        for (begin, end, seconds) in [
            ("2026-11-20T10:00:00Z", "2026-11-20T11:00:00Z", 900),
            ("2026-11-21T10:00:00Z", "2026-11-21T11:00:00Z", 450),
        ] {
            for (name, id) in [("alice", 1), ("bob", 2)] {
                let mut usage = Usage {
                    cpu: Nanos(seconds * id * 1_000_000_000),
                    packets_in: 1_000,
                    bytes_in: Bytes(1_500_000),
                    memory: ByteSeconds::held_for(Bytes(64 << 20), Nanos(3_600_000_000_000)),
                    ..Usage::default()
                };
                usage.drops.add(DropCause::QueueFull, 7);
                let event =
                    LedgerEvent::Usage { session: session(name, id), intervals: 1, usage: Box::new(usage) };
                ledger.push(timestamp(begin), timestamp(end), event);
            }
        }
        let memory = ByteSeconds::held_for(Bytes(64 << 20), Nanos(3_600_000_000_000));
        for idle in Idle::entries([("alice", 1), ("bob", 2)].map(|(name, id)| (session(name, id), memory))) {
            ledger.push(
                timestamp("2026-11-21T11:00:00Z"),
                timestamp("2026-11-21T12:00:00Z"),
                LedgerEvent::Idle { idle },
            );
        }
        let closed =
            LedgerEvent::SessionClosed { session: session("alice", 1), reason: CloseReason::Requested };
        ledger.push_at(timestamp("2026-11-21T12:00:00Z"), closed);
        ledger.stop(timestamp("2026-11-21T13:00:00Z")).unwrap();
    }

    #[test]
    fn usage_is_computed_from_the_ledger_files() {
        let folder = tempfile::tempdir().unwrap();
        write_ledger(folder.path());
        let state = folder.path().to_str().unwrap();
        let bill = run(["ledger", state]).succeeds();
        let lines: Vec<&str> = bill.text().lines().collect();
        assert!(lines[0].starts_with("session") && lines[0].contains("CPU time"), "{}", bill.text());
        let alice: Vec<&str> = lines[2].split_whitespace().collect();
        assert_eq!(alice[..2], ["alice", "1"], "{}", bill.text());
        assert!(
            lines[2].contains("1350 s") && lines[2].contains("192.00") && lines[2].contains("2.9 MiB"),
            "{}",
            bill.text()
        );
        // The folder can also be given directly, or by the configuration.
        assert_eq!(run(["ledger", &format!("{state}/ledger")]).succeeds().text(), bill.text());
        let config = folder.path().join("node.toml");
        fs::write(&config, format!("[node]\nstate = \"{state}\"\n")).unwrap();
        assert_eq!(run([Path::new("ledger"), Path::new("-c"), &config]).succeeds().text(), bill.text());

        let csv = run(["ledger", state, "--csv", "--session", "bob", "--since", "2026-11-21"]).succeeds();
        let rows: Vec<&str> = csv.text().lines().collect();
        assert!(
            rows.len() == 2 && rows[0].starts_with("session,id,begin,end,intervals,cpu_s"),
            "{}",
            csv.text()
        );
        assert!(rows[1].starts_with(
            "bob,2,2026-11-21T10:00:00.000000000Z,2026-11-21T12:00:00.000000000Z,2,900.000000000"
        ));
        let json = run(["ledger", state, "--json", "--until", "2026-11-21"]).succeeds().json();
        assert_eq!((json.as_array().unwrap().len(), json[0]["queue-full"].as_u64()), (2, Some(7)));
        let none = run(["ledger", state, "--session", "carol"]).succeeds();
        assert_eq!(none.text(), "no session used anything in this time\n");
        let entries = run(["ledger", state, "--entries", "--session", "alice"]).succeeds();
        let kinds: Vec<Value> =
            entries.text().lines().map(|line| super::json(line)["kind"].clone()).collect();
        assert_eq!(kinds, ["session-created", "usage", "usage", "idle", "session-closed"]);
        // Other idle sessions are not listed.
        assert!(
            entries.text().contains(r#"[["alice",1]]"#) && !entries.text().contains("bob"),
            "{}",
            entries.text()
        );
    }

    #[test]
    fn usage_is_not_computed_from_a_modified_ledger() {
        let folder = tempfile::tempdir().unwrap();
        write_ledger(folder.path());
        let state = folder.path().to_str().unwrap();
        let whole = run(["ledger", state, "--verify"]).succeeds();
        assert!(whole.text().contains("is whole: 10 entries in 1 files, 0 crashes"), "{}", whole.text());
        let head = whole.text().lines().last().unwrap().strip_prefix("head ").unwrap().to_owned();
        let kept = run(["ledger", state, "--verify", "--head", &head]).succeeds();
        assert!(kept.text().contains("contains the given head"), "{}", kept.text());
        let other = format!("10:{}", "0".repeat(64));
        run(["ledger", state, "--verify", "--head", &other])
            .fails(1, &["differs from the head that was kept"]);

        let file = folder.path().join("ledger/ledger-000001.jsonl");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("450000000000", "950000000000")).unwrap();
        for option in ["--verify", "--csv", "--json"] {
            run(["ledger", state, option]).fails(1, &["the ledger was changed: segment 1, line 6"]);
        }
        let bill = run(["ledger", state]).fails(1, &["the ledger was changed"]);
        assert_eq!(bill.text(), "");
        run(["ledger", "/nowhere"]).fails(1, &["there is no ledger in /nowhere"]);
        // Local files cannot be combined with the name of a node, which may be on another machine.
        for variable in ["WEIR_NODE", "WEIR_SOCKET"] {
            let ended = finish(weir().args(["ledger", "--verify"]).env(variable, "ix-1.example"), None);
            ended.fails(1, &["can only be verified from its files"]);
        }
    }
}

#[test]
fn a_configuration_is_checked_without_a_node() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let check = |path: &Path| run([Path::new("config"), Path::new("check"), path]);
    let parts = "[[interface]]\nname = \"lo\"\n[[profile]]\nname = \"p\"\nfile = \"p.toml\"\n[[session]]\nname = \"alice\"\nprofile = \"p\"\n\
        cpu = [{ period = \"10ms\", slice = \"2ms\" }]\nchannel = [{ interface = \"lo\" }]\n";
    let good = write("good.toml", &(parts.to_owned() + "module = [{ module = \"rtt\" }]\n"));
    write("p.toml", "packet = \"1ms\"\n");
    let ended = check(&good).succeeds();
    assert!(ended.text().contains("session alice  20.0 % of a core"), "{}", ended.text());
    assert!(ended.text().ends_with("a node can be started with this configuration\n"));

    let bad = write(
        "bad.toml",
        &(parts.to_owned() + "module = [{ module = \"gone.wasm\" }]\n[cpu]\ncores = [4095]\n"),
    );
    write("p.toml", "paket = \"1ms\"\n");
    let ended = check(&bad).fails(1, &["p.toml", "line 1: a profile has no key `paket`"]);
    assert_eq!(ended.text(), "");
    write("p.toml", "packet = \"1ms\"\n");
    check(&bad).fails(1, &["there is no core 4095", "bad.toml:6: session `alice`", "gone.wasm", "2 errors"]);
    check(&write("typo.toml", "[node]\n\nnmae = \"x\"\n"))
        .fails(1, &["typo.toml: line 3: unknown field `nmae`"]);
    check(&write("half.toml", "[[session]]\nname = \"a\"\ncpu = [{ period = \"1ms\" }]\n"))
        .fails(1, &["half.toml: line 1: session `a`", "belong together"]);
    check(Path::new("/nowhere.toml")).fails(1, &["/nowhere.toml: No such file"]);
}

#[test]
fn every_command_has_help() {
    for command in ["config", "session", "load", "unload", "follow", "reload", "table", "ledger", "top"] {
        let ended = run([command, "--help"]).succeeds();
        assert!(ended.text().contains(&format!("Usage: weir {command}")), "{}", ended.text());
    }
    for act in ["create", "change", "close", "list", "show"] {
        let ended = run(["session", act, "--help"]).succeeds();
        assert!(ended.text().contains("--socket") && ended.text().contains(&format!("weir session {act}")));
    }
}
