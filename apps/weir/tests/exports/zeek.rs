//! Zeek's logs, read by zat.

use super::{HOSTILE, captures, export_hostile, exported, json_rows, rows_of, sum, texts};
use crate::run::outside;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Prints the rows of a log as a JSON array, each value as zat reads it.
const READ: &str = "
import json, sys
from zat.zeek_log_reader import ZeekLogReader
def plain(value):
    if hasattr(value, 'total_seconds'):
        return value.total_seconds()
    if hasattr(value, 'timestamp'):
        return value.timestamp()
    return value
reader = ZeekLogReader(sys.argv[1])
print(json.dumps([{name: plain(value) for name, value in row.items()} for row in reader.readrows()]))
";

/// Prints the number of rows and the sums of the columns after the first argument, as pandas has them from zat.
const FRAME: &str = "
import json, sys
from zat.log_to_dataframe import LogToDataFrame
frame = LogToDataFrame().create_dataframe(sys.argv[1], ts_index=False)
print(json.dumps([len(frame)] + [int(frame[name].astype('float').fillna(0).sum()) for name in sys.argv[2:]]))
";

fn read(python: &Path, log: &Path) -> Vec<Value> {
    let text = outside::output(Command::new(python).args(["-W", "ignore", "-c", READ]).arg(log));
    // zat can print notes before the last line.
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

fn frame(python: &Path, log: &Path, columns: &[&str]) -> Vec<u64> {
    let command = &mut Command::new(python);
    let text = outside::output(command.args(["-W", "ignore", "-c", FRAME]).arg(log).args(columns));
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

#[test]
fn zat_reads_the_same_values_from_the_logs_as_json_rows_have() {
    let Some(python) = outside::python(&["zat", "pandas"]) else { return };
    let mut seen = [0; 5];
    for capture in captures() {
        let json = json_rows(&capture);
        let out = exported(&capture, "zeek");
        let log = |name: &str| read(&python, &out.path().join(name));
        let refs = |rows: &'_ [Value]| rows.to_vec();

        let (flows, conn) = (rows_of(&json, "flows", "closed"), refs(&log("conn.log")));
        let conn: Vec<&Value> = conn.iter().collect();
        assert_eq!(conn.len(), flows.len());
        let amounts = ["source_packets", "source_bytes", "destination_packets", "destination_bytes"];
        let columns = ["orig_pkts", "orig_ip_bytes", "resp_pkts", "resp_ip_bytes"];
        for (field, column) in amounts.iter().zip(columns) {
            assert_eq!(sum(&conn, column), sum(&flows, field), "{column}");
        }
        for (field, column) in [("src", "id.orig_h"), ("dst", "id.resp_h"), ("community_id", "community_id")]
        {
            let found: Vec<String> = texts(&conn, column).into_iter().filter(|text| text != "-").collect();
            assert_eq!(found, texts(&flows, field), "{column}");
        }
        for (row, flow) in conn.iter().zip(&flows) {
            let micros = |seconds: &Value| (seconds.as_f64().unwrap_or(0.0) * 1e6).round();
            let duration = flow["duration_ns"].as_u64().unwrap() / 1000;
            assert!((micros(&row["duration"]) - duration as f64).abs() < 1.0, "{row} {flow}");
            assert_eq!(row["id.orig_p"].as_u64(), Some(flow["src_port"].as_u64().unwrap_or(0)));
            if flow["protocol"] == 6 {
                assert_eq!((&row["proto"], &row["conn_state"]), (&Value::from("tcp"), &flow["conn_state"]));
            }
        }
        if !flows.is_empty() {
            let mut expected = vec![flows.len() as u64];
            expected.extend(amounts.iter().map(|field| sum(&flows, field)));
            assert_eq!(frame(&python, &out.path().join("conn.log"), &columns), expected);
        }

        let mut compare = |at: usize, name: &str, (module, stream): (&str, &str), pairs: &[(&str, &str)]| {
            let (rows, log) = (rows_of(&json, module, stream), log(name));
            let log: Vec<&Value> = log.iter().collect();
            assert_eq!(log.len(), rows.len(), "{name}");
            for (field, column) in pairs {
                let found: Vec<String> = texts(&log, column).into_iter().filter(|text| text != "-").collect();
                assert_eq!(found, texts(&rows, field), "{name}: {column}");
            }
            // Rows about one connection have its identifier in all logs.
            let uids = texts(&conn, "uid");
            let known = log.iter().filter(|row| uids.iter().any(|uid| row["uid"] == uid.as_str())).count();
            assert!(known * 10 >= log.len() * 9, "{name}: {known} of {} rows have a connection", log.len());
            seen[at] += log.len();
        };
        compare(
            0,
            "dns.log",
            ("dns", "queries"),
            &[("name", "query"), ("type", "qtype_name"), ("code", "rcode_name")],
        );
        compare(
            1,
            "http.log",
            ("http", "requests"),
            &[("method", "method"), ("host", "host"), ("path", "uri")],
        );
        let tls =
            [("server_name", "server_name"), ("cipher", "cipher"), ("ja4", "ja4"), ("alpn", "next_protocol")];
        compare(2, "ssl.log", ("tls", "handshakes"), &tls);
        compare(
            3,
            "quic.log",
            ("quic", "connections"),
            &[("server_name", "server_name"), ("version", "version")],
        );
        let notices = log("notice.log");
        let findings: Vec<&Value> = json.iter().filter(|row| row["stream"] == "findings").collect();
        assert_eq!(notices.len(), findings.len());
        assert_eq!(texts(&notices.iter().collect::<Vec<_>>(), "msg"), texts(&findings, "text"));
        seen[4] += notices.len();
    }
    // The sample has no TLS and no QUIC.
    let has_traces = captures().len() > 1;
    for (at, seen) in seen.into_iter().enumerate() {
        assert!(seen > 0 || [2, 3].contains(&at) && !has_traces, "log {at} had no rows");
    }
}

#[test]
fn zat_reads_rows_with_hostile_texts_each_as_one_row() {
    let Some(python) = outside::python(&["zat", "pandas"]) else { return };
    let folder = export_hostile("zeek");
    let rows = read(&python, &folder.path().join("out/http.log"));
    let expected =
        [r"a\x09b\x0ac\x0dd", r"\x1b[31m\x00\x85", r"\xff\xfe\xc3(", "\"},{\"x\":\"", r"\\x09 \\", r"\x2d"];
    assert_eq!(rows.len(), HOSTILE.len());
    for (row, text) in rows.iter().zip(expected) {
        assert_eq!((&row["method"], &row["note"]), (&Value::from(text), &Value::from(text)));
        assert_eq!(row["uid"].as_str().unwrap().len(), 17);
    }
}
