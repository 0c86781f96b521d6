//! IPFIX files, read by tshark.

use super::{HOSTILE, captures, export_hostile, exported, json_rows, rows_of};
use crate::run::outside;
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::Command;

pub(super) fn has_tshark() -> bool {
    let found = Command::new("tshark").arg("--version").output().is_ok();
    if !found {
        let _ = writeln!(std::io::stderr(), "SKIPPED: tshark is not installed");
    }
    found
}

/// The values of fields in all records of an IPFIX file, by the order of the records, separated by `|`. A record without a
/// field has none, so fields are compared as wholes.
pub(super) fn fields(file: &Path, names: &[&str]) -> Vec<Vec<String>> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(["-T", "fields", "-E", "separator=/t", "-E", "aggregator=|"]);
    for name in names {
        command.args(["-e", name]);
    }
    let text = outside::output(&mut command);
    let mut columns = vec![Vec::new(); names.len()];
    for line in text.lines() {
        for (column, values) in columns.iter_mut().zip(line.split('\t')) {
            column.extend(values.split('|').filter(|value| !value.is_empty()).map(str::to_owned));
        }
    }
    columns
}

/// Checks that a file of flows has the same addresses, amounts and times as JSON rows.
pub(super) fn check_flows(file: &Path, rows: &[&Value]) {
    let names = [
        "cflow.octets",
        "cflow.packets",
        "cflow.protocol",
        "cflow.srcport",
        "cflow.abstimestart",
        "cflow.srcaddr",
        "cflow.srcaddrv6",
    ];
    let found = fields(file, &names);
    // Each record has two values: those of both directions.
    let flat = |fields: [&str; 2]| {
        rows.iter().flat_map(|row| fields.map(|field| row[field].to_string())).collect::<Vec<String>>()
    };
    assert_eq!(found[0], flat(["source_bytes", "destination_bytes"]));
    assert_eq!(found[1], flat(["source_packets", "destination_packets"]));
    let one = |field: &str| {
        rows.iter()
            .map(|row| if row[field].is_null() { "0".to_owned() } else { row[field].to_string() })
            .collect::<Vec<String>>()
    };
    assert_eq!((&found[2], &found[3]), (&one("protocol"), &one("src_port")));
    let of_version = |is_ipv6: bool| {
        let of = |row: &&&Value| {
            ["src", "dst"].iter().any(|side| row[*side].as_str().unwrap().contains(':')) == is_ipv6
        };
        rows.iter().filter(of).map(|row| row["src"].as_str().unwrap().to_owned()).collect::<Vec<String>>()
    };
    assert_eq!((&found[5], &found[6]), (&of_version(false), &of_version(true)));
    // tshark shows milliseconds and nanoseconds of the begin.
    let nanoseconds = found[4].iter().filter(|time| time.contains('.')).count();
    assert!(nanoseconds >= rows.len(), "{nanoseconds} times of {} flows", rows.len());
}

#[test]
fn tshark_reads_the_same_flows_from_files_as_json_rows_have() {
    if !has_tshark() {
        return;
    }
    for capture in captures() {
        let json = json_rows(&capture);
        let out = exported(&capture, "ipfix");
        check_flows(&out.path().join("conn.ipfix"), &rows_of(&json, "flows", "closed"));
        let requests = rows_of(&json, "http", "requests");
        let names = ["cflow.http_request_method", "cflow.http_request_host", "cflow.http_request_target"];
        let found = fields(&out.path().join("http.ipfix"), &names);
        for (found, field) in found.iter().zip(["method", "host", "path"]) {
            let expected: Vec<&str> = requests.iter().filter_map(|row| row[field].as_str()).collect();
            let shown: Vec<&str> = found.iter().map(String::as_str).collect();
            assert_eq!(shown, expected, "{field}");
        }
    }
}

#[test]
fn tshark_finds_no_fault_in_messages_with_hostile_texts() {
    if !has_tshark() {
        return;
    }
    let folder = export_hostile("ipfix");
    let file = folder.path().join("out/http.ipfix");
    let text = outside::output(Command::new("tshark").arg("-r").arg(&file).arg("-V"));
    assert!(!text.contains("Malformed") && !text.contains("Expert Info (Error"), "{text}");
    assert_eq!(text.matches("HTTP Request Method: ").count(), HOSTILE.len(), "{text}");
}
