//! Suricata's eve.json, validated against its published schema.

use super::{HOSTILE, captures, export_hostile, exported, json_rows, rows_of, texts};
use crate::run::{outside, root, run, sample};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names the file with Suricata's `etc/schema.json`. Its licence keeps it out of this repository; `lab/setup --tests` fetches it.
const VARIABLE: &str = "WEIR_EVE_SCHEMA";

/// Validates the lines of the second file by the schema in the first, and prints the number of lines.
const VALIDATE: &str = "
import json, sys
from jsonschema.validators import validator_for
schema = json.load(open(sys.argv[1]))
validator = validator_for(schema)(schema)
lines = 0
for line in open(sys.argv[2], encoding='utf-8', newline='\\n'):
    for error in validator.iter_errors(json.loads(line)):
        sys.exit(error.message + ': ' + line)
    lines += 1
print(lines)
";

fn schema() -> Option<PathBuf> {
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    let found = named.unwrap_or_else(|| root().join("target/suricata/schema.json"));
    if found.is_file() {
        return Some(found);
    }
    let _ = writeln!(
        std::io::stderr(),
        "SKIPPED: no schema of eve.json: put etc/schema.json of Suricata at target/suricata, or name it in {VARIABLE}"
    );
    None
}

fn validate(file: &Path) {
    let (Some(schema), Some(python)) = (schema(), outside::python(&["jsonschema"])) else { return };
    let lines = outside::output(Command::new(python).args(["-c", VALIDATE]).arg(schema).arg(file));
    assert_eq!(lines.trim().parse::<usize>().unwrap(), fs::read_to_string(file).unwrap().lines().count());
}

fn events(file: &Path) -> Vec<Value> {
    fs::read_to_string(file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn events_are_valid_by_the_schema_of_suricata_and_have_the_values_of_json_rows() {
    for capture in captures() {
        let json = json_rows(&capture);
        let out = exported(&capture, "eve");
        let file = out.path().join("eve.json");
        validate(&file);
        let events = events(&file);
        assert_eq!(events.len(), json.len());
        let of_type =
            |name: &str| events.iter().filter(|event| event["event_type"] == name).collect::<Vec<_>>();
        let flows = rows_of(&json, "flows", "closed");
        let pairs = [
            ("source_packets", "pkts_toserver"),
            ("source_bytes", "bytes_toserver"),
            ("destination_packets", "pkts_toclient"),
            ("destination_bytes", "bytes_toclient"),
        ];
        for (event, flow) in of_type("flow").iter().zip(&flows) {
            for (field, member) in pairs {
                assert_eq!(event["flow"][member], flow[field]);
            }
            assert_eq!((&event["src_ip"], &event["dest_ip"]), (&flow["src"], &flow["dst"]));
            // Suricata has microseconds.
            let start = flow["start_time"].as_str().unwrap();
            assert_eq!(event["flow"]["start"].as_str().unwrap(), format!("{}+0000", &start[..26]));
            assert_eq!(event["metadata"]["flowints"]["rtt_ns"], flow["rtt_ns"]);
        }
        let compare = |name: &str, (module, stream): (&str, &str), pairs: &[(&str, &str)]| {
            let (rows, events) = (rows_of(&json, module, stream), of_type(name));
            assert_eq!(events.len(), rows.len(), "{name}");
            let details: Vec<&Value> = events.iter().map(|event| &event[name]).collect();
            for (field, member) in pairs {
                assert_eq!(texts(&details, member), texts(&rows, field), "{name}.{member}");
            }
        };
        compare("flow", ("flows", "closed"), &[]);
        compare("dns", ("dns", "queries"), &[("name", "rrname"), ("type", "rrtype"), ("code", "rcode")]);
        compare(
            "http",
            ("http", "requests"),
            &[("host", "hostname"), ("path", "url"), ("method", "http_method")],
        );
        compare(
            "tls",
            ("tls", "handshakes"),
            &[("server_name", "sni"), ("version", "version"), ("ja4", "ja4")],
        );
        compare("quic", ("quic", "connections"), &[("server_name", "sni"), ("ja4", "ja4")]);
    }
}

#[test]
fn hostile_texts_are_in_valid_events_of_one_line_each() {
    let folder = export_hostile("eve");
    let file = folder.path().join("out/eve.json");
    validate(&file);
    let events = events(&file);
    assert_eq!(events.len(), HOSTILE.len());
    for (event, text) in events.iter().zip(HOSTILE) {
        let shown = String::from_utf8_lossy(text);
        assert_eq!(event["http"]["http_method"], *shown);
        assert_eq!(event["metadata"]["flowvars"][0]["note"], *shown);
    }
}

#[test]
fn events_are_printed_without_a_folder() {
    let capture = sample();
    let out = exported(&capture, "eve");
    let printed = run(["run", "-q", "-r", capture.to_str().unwrap(), "--format", "eve"]).succeeds();
    // The order of events on standard output is that of the packets, as in the file.
    assert!(printed.text() == fs::read_to_string(out.path().join("eve.json")).unwrap());
    let some = [
        "run",
        "-q",
        "-r",
        capture.to_str().unwrap(),
        "--format",
        "eve",
        "--stream",
        "queries",
        "--rows",
        "3",
    ];
    assert_eq!(run(some).succeeds().text().lines().count(), 3);
}
