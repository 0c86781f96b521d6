//! Metrics, status and the ledger agree.

use crate::module::{MANIFEST, assemble, text};
use crate::testbed::{Testbed, ip, is_inside, udp, with_ip_checksum};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use weir_ledger::{DropCause, Usage};

pub const NODE: &str = "metrics = \"127.0.0.1:9139\"\n";

/// Series with their values.
pub type Page = BTreeMap<String, f64>;

/// The current metrics page.
pub fn page() -> Page {
    let mut stream = std::net::TcpStream::connect("127.0.0.1:9139").unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9139\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (_, body) = text.split_once("\r\n\r\n").unwrap();
    let series = body.lines().filter(|line| !line.starts_with('#'));
    let value = |line: &str| {
        let (series, value) = line.rsplit_once(' ').unwrap();
        (series.to_owned(), value.parse().unwrap())
    };
    series.map(value).collect()
}

/// The series of a session's usage, each with its ledger field or cause of loss.
fn series(session: &str) -> Vec<(String, Vec<&'static str>, f64)> {
    let used = Usage::counters().map(|counter| {
        let unit = if counter.metric_unit.is_empty() { "" } else { "_" };
        let (metric, of) = (counter.metric, counter.metric_unit);
        let name = format!("weir_session_{metric}{unit}{of}_total{{session=\"{session}\"}}");
        (name, vec![counter.field], if of == "seconds" { 1e9 } else { 1.0 })
    });
    let lost = DropCause::ALL.iter().map(|cause| {
        let unit = cause.lost_unit().unit();
        let name =
            format!("weir_session_dropped_{unit}_total{{session=\"{session}\",cause=\"{}\"}}", cause.name());
        (name, vec!["drops", cause.name()], 1.0)
    });
    used.chain(lost).collect()
}

/// The sum of a counter over all usage entries of a session.
fn ledger_usage(ledger: &[Value], session: &str, field: &[&str]) -> f64 {
    let of = ledger.iter().filter(|entry| entry["kind"] == "usage" && entry["session"]["name"] == session);
    let value = |entry: &Value| field.iter().fold(&entry["usage"], |value, key| &value[*key]).as_f64();
    of.filter_map(value).sum()
}

#[test]
fn on_a_quiet_node_metrics_status_and_the_ledger_have_the_same_numbers() {
    if !is_inside("metrics::on_a_quiet_node_metrics_status_and_the_ledger_have_the_same_numbers") {
        return;
    }
    ip("link set dev lo up");
    let session = |name: &str, more: &str| {
        format!(
            "[[session]]\nname = \"{name}\"\ncpu = [{{ period = \"20ms\", slice = \"2ms\" }}]\n\
             channel = [{{ interface = \"b\", filter = \"udp\"{more} }}]\nmodule = [{{ module = \"trajectory\" }}]\n"
        )
    };
    let sessions = [("strict", ", checksum = \"verify\""), ("lax", ""), ("short", ", queue = 1")];
    let all: Vec<String> = sessions.iter().map(|(name, more)| session(name, more)).collect();
    let mut testbed = Testbed::with_node(NODE, &all.concat());
    // All series exist from the start, at zero.
    let begin = page();
    for (name, field, _) in sessions.iter().flat_map(|(name, _)| series(name)) {
        assert!(begin.contains_key(&name), "{name}");
        assert!(field[0] != "drops" || begin[&name] == 0.0, "{name}: {}", begin[&name]);
    }
    let good = with_ip_checksum(udp(53, b"x"));
    let mut bad = good.clone();
    bad[22] ^= 1;
    for _ in 0..20 {
        testbed.send(&[vec![good.clone(); 90], vec![bad.clone(); 10]].concat());
    }
    testbed.until("all packets have been checked", |testbed| {
        testbed.count("strict", "trajectory", "packets") == 1800
            && testbed.count("lax", "trajectory", "packets") == 2000
    });
    let mut differs = Vec::new();
    testbed.until("all sources agree", |testbed| {
        let (before, page, after) = (testbed.ledger(), page(), testbed.ledger());
        let status = testbed.snapshot();
        differs.clear();
        for (name, field, unit) in sessions.iter().flat_map(|(name, _)| series(name)) {
            let session = name.split('"').nth(1).unwrap();
            let (shown, billed) =
                ((page[&name] * unit).round(), [&before, &after].map(|it| ledger_usage(it, session, &field)));
            let there = status["sessions"].as_array().unwrap().iter().find(|it| it["name"] == session);
            let of = field.iter().fold(&there.unwrap()["used"], |value, key| &value[*key]);
            if billed != [shown; 2] || of.as_f64().unwrap_or(0.0) != shown {
                differs.push((name, shown, billed, of.clone()));
            }
        }
        if !differs.is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(500));
        }
        differs.is_empty()
    });
    let page = page();
    let of = |metric: &str, session: &str| page[&format!("weir_session_{metric}{{session=\"{session}\"}}")];
    let lost = |session: &str, cause: &str| {
        page[&format!("weir_session_dropped_packets_total{{session=\"{session}\",cause=\"{cause}\"}}")]
    };
    for (session, _) in &sessions {
        let (billed, receive) = (of("billed_seconds_total", session), of("receive_seconds_total", session));
        assert!(receive > 0.0 && billed > receive, "{session}: {billed} {receive}");
    }
    assert_eq!((of("received_packets_total", "strict"), lost("strict", "bad-checksum")), (1800.0, 200.0));
    assert_eq!((of("received_packets_total", "lax"), lost("lax", "queue-full")), (2000.0, 0.0));
    let (seen, full) = (of("received_packets_total", "short"), lost("short", "queue-full"));
    assert!(full > 0.0 && seen + full == 2000.0, "{seen} {full}");
    let channel =
        "weir_channel_dropped_packets_total{session=\"short\",channel=\"main\",cause=\"queue-full\"}";
    assert_eq!(page[channel], full);
    assert!(testbed.stop().success());
}

#[test]
fn an_unloaded_module_stays_in_metrics_and_status_until_its_name_is_used_again() {
    if !is_inside("metrics::an_unloaded_module_stays_in_metrics_and_status_until_its_name_is_used_again") {
        return;
    }
    ip("link set dev lo up");
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
        (loop $l (br_if $l (i32.ne (i32.load (i32.const 64)) (i32.const 1)))) (i32.const 0))"#;
    let bytes = assemble(&text(body), Some(MANIFEST.replace("NAME", "endless").as_bytes()));
    let sessions = "[[session]]\nname = \"bad\"\ncpu = [{ period = \"20ms\", slice = \"1ms\" }]\n\
                    channel = [{ interface = \"b\", filter = \"udp\" }]\n";
    let mut testbed = Testbed::with_node(NODE, sessions);
    let load = |testbed: &Testbed| {
        assert!(testbed.load("bad", json!({"module": "endless.wasm"}), &bytes).get("done").is_some());
    };
    let running = "weir_module_running{session=\"bad\",module=\"endless\"}";
    let strikes = "weir_module_strikes_total{session=\"bad\",module=\"endless\"}";
    let end = |testbed: &mut Testbed, times: usize| {
        load(testbed);
        assert_eq!(testbed.snapshot()["sessions"][0]["ended"], Value::Null);
        testbed.until("the module runs", |_| page().get(running) == Some(&1.0));
        testbed.send(&vec![udp(1, b"x"); 200]);
        testbed.until("it is unloaded", |testbed| {
            testbed.log().matches("it has exceeded its limits too often, so it is unloaded").count() == times
        });
        testbed.until("the metrics show the unload", |_| page().get(running) == Some(&0.0));
        assert!(page()[strikes] >= 1.0);
        let session = &testbed.snapshot()["sessions"][0];
        assert_eq!((&session["modules"], &session["ended"][0]["name"]), (&json!([]), &json!("endless")));
    };
    end(&mut testbed, 1);
    // The name is used again, and so the operator has acknowledged the end.
    end(&mut testbed, 2);
    testbed.request(json!({"unload": {"session": "bad", "module": "endless"}}));
    testbed.until("the series is gone", |_| !page().contains_key(running));
    testbed.request_refused(json!({"unload": {"session": "bad", "module": "endless"}}));
    assert!(testbed.stop().success());
}
