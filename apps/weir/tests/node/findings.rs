//! Findings of modules: in the session's status, the metrics, and on the terminals of those who follow.

use crate::metrics::{NODE, page};
use crate::module::{MANIFEST, assemble, text};
use crate::tables::output_of;
use crate::testbed::{Testbed, ip, is_inside, udp};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;

/// A module that reports a finding for each packet: of high severity, with a long text that begins with an escape sequence.
fn finder() -> Vec<u8> {
    let body = format!(
        r#"(data (i32.const 8192) "\1b[2J{}udp port 7rows")
        (func (export "weir_packet") (param i32) (result i32)
            (i64.store (i32.const 64) (i64.const 1700000000123456789))
            (i32.store8 (i32.const 72) (i32.const 4))
            (i32.store (i32.const 76) (i32.const 8192)) (i32.store (i32.const 80) (i32.const 1004))
            (i32.store (i32.const 84) (i32.const 9196)) (i32.store (i32.const 88) (i32.const 10))
            (i32.store (i32.const 92) (i32.const 9206)) (i32.store (i32.const 96) (i32.const 4))
            (drop (call $emit (i32.const 2) (i32.const 64) (i32.const 40)))
            (i32.const 0))"#,
        "x".repeat(1000)
    );
    let stream = "[[stream]]\nname = 'findings'\n";
    assemble(&text(&body), Some((MANIFEST.replace("NAME", "finder") + stream).as_bytes()))
}

fn session(name: &str, port: u16, more: &str) -> String {
    format!(
        "[[session]]\nname = \"{name}\"\nrecord_bytes = \"unlimited\"\ncpu = [{{ period = \"20ms\", slice = \"4ms\" }}]\n\
         channel = [{{ interface = \"b\", filter = \"udp port {port}\" }}]\n{more}\n"
    )
}

fn of<'a>(snapshot: &'a Value, name: &str) -> &'a Value {
    snapshot["sessions"].as_array().unwrap().iter().find(|session| session["name"] == name).unwrap()
}

#[test]
fn a_flood_of_findings_costs_what_records_cost() {
    if !is_inside("findings::a_flood_of_findings_costs_what_records_cost") {
        return;
    }
    ip("link set dev lo up");
    let sessions = session("alice", 1, "") + &session("limited", 2, "records_per_second = 3");
    let mut testbed = Testbed::with_node(NODE, &sessions);
    for name in ["alice", "limited"] {
        let reply = testbed.load(name, json!({"module": "finder.wasm"}), &finder());
        assert!(reply.get("done").is_some(), "{reply}");
    }
    // The series exist before the first finding.
    let series = |session: &str, severity: &str| {
        page()[&format!(
            "weir_findings_total{{session=\"{session}\",module=\"finder\",severity=\"{severity}\"}}"
        )]
    };
    assert_eq!((series("alice", "high"), series("limited", "critical")), (0.0, 0.0));
    let log = testbed.log().lines().count();
    for port in [1, 2] {
        testbed.send(&vec![udp(port, b"x"); 200]);
    }
    let total = |testbed: &Testbed, name: &str| {
        of(&testbed.snapshot(), name)["findings"]["counts"]["high"].as_u64().unwrap_or(0)
    };
    testbed.until("all are counted", |testbed| {
        ["alice", "limited"].iter().all(|name| {
            let [records, lost] = ["records", "records_lost"].map(|what| testbed.count(name, "finder", what));
            records + lost == 200 && total(testbed, name) == records
        })
    });
    let snapshot = testbed.snapshot();
    let (alice, limited) = (of(&snapshot, "alice"), of(&snapshot, "limited"));
    assert_eq!(alice["findings"]["counts"], json!({"high": 200}));
    assert_eq!(alice["modules"][0]["findings"]["high"], 200);
    let over_rate = limited["limits"]["records_over_rate"].as_u64().unwrap();
    assert_eq!(limited["findings"]["counts"]["high"].as_u64().unwrap_or(0) + over_rate, 200);
    assert!(over_rate > 0, "findings count for the limits of records");
    // The status has a few short texts, whatever the module emits.
    let latest = alice["findings"]["latest"].as_array().unwrap();
    assert_eq!(latest.len(), 8);
    for finding in latest {
        let text = finding["text"].as_str().unwrap();
        assert!(text.starts_with("\u{1b}[2Jxxx") && text.ends_with('…') && text.len() <= 256, "{text}");
        assert_eq!((&finding["filter"], &finding["evidence"]), (&json!("udp port 7"), &json!("rows")));
        assert_eq!((&finding["module"], &finding["severity"]), (&json!("finder"), &json!(4)));
    }
    // The page of metrics is renewed from time to time.
    testbed.until("the metrics have all findings", |_| series("alice", "high") == 200.0);
    assert_eq!(series("alice", "critical"), 0.0);
    assert_eq!(testbed.log().lines().count(), log, "{}", testbed.log());
    for arguments in [&["session", "show", "alice"][..], &["top", "--once"]] {
        let shown = output_of(&testbed, arguments);
        assert!(shown.contains("findings: 200 high"), "{shown}");
        assert!(shown.contains("HIGH      finder: \\u{1b}[2Jxxx") && !shown.contains('\u{1b}'), "{shown}");
    }
    // The counts stay when the module goes.
    testbed.request(json!({"unload": {"session": "alice", "module": "finder"}}));
    assert_eq!(total(&testbed, "alice"), 200);
    assert!(testbed.stop().success());
}

#[test]
fn a_follower_of_a_session_gets_findings_on_lines_of_their_own() {
    if !is_inside("findings::a_follower_of_a_session_gets_findings_on_lines_of_their_own") {
        return;
    }
    let mut testbed = Testbed::new(&session("alice", 1, ""));
    let reply = testbed.load("alice", json!({"module": "finder.wasm"}), &finder());
    assert!(reply.get("done").is_some(), "{reply}");
    let out = testbed.path().join("followed");
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["follow", "alice", "--out", out.to_str().unwrap()])
        .env("WEIR_SOCKET", testbed.path().join("node.sock"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = child.stdout.take().unwrap();
    let (tell, told) = channel();
    let reading = std::thread::spawn(move || {
        BufReader::new(stdout).lines().map_while(Result::ok).for_each(|line| tell.send(line).unwrap());
    });
    let mut lines = Vec::new();
    testbed.until("it prints a finding", |testbed| {
        testbed.send(&[udp(1, b"x")]);
        lines.extend(told.try_iter());
        !lines.is_empty()
    });
    testbed.request(json!({"unload": {"session": "alice", "module": "finder"}}));
    // The end of the followed modules is an orderly end.
    assert!(child.wait().unwrap().success());
    reading.join().unwrap();
    lines.extend(told.try_iter());
    for line in &lines {
        let begin = "finding  2023-11-14 22:13:20.123456  HIGH      finder: \\u{1b}[2Jxxx";
        assert!(line.starts_with(begin) && line.ends_with("x  [filter: udp port 7]"), "{line}");
    }
    assert!(out.join("finder/findings.parquet").is_file());
    assert!(testbed.stop().success());
}
