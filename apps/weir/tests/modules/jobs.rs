//! The output does not depend on the number of threads.

use super::capture::{Capture, samples};
use super::packet::{ACK, PSH, Packet, SYN};
use super::weir::run_file;
use serde_json::Value;
use std::path::Path;

const JOBS: [&str; 5] = ["1", "2", "3", "5", "8"];

/// All shipped modules, some with small tables, as evictions must not depend on the number of instances either.
const MODULES: [&str; 14] = [
    "trajectory,one-in=3,table-size=256",
    "rtt,table-size=256",
    "rtt",
    r"worm,signatures=HTTP/1.,GET ,\r\n\r\n",
    "lrd,report=1s",
    "syn-flood,floor=1",
    "port-count",
    "payload-match,needle=e,last=1400",
    "dscp-mark,source=0.0.0.0/0",
    "flows",
    "dns",
    "http",
    "latency,interval=0s",
    "loss,all=true",
];

/// The summary without times, paths and memory, which differ between runs.
fn comparable(summary: &Value) -> Value {
    let mut summary = summary.clone();
    summary["written"]["path"].take();
    summary["written"]["files"][0]["path"].take();
    for module in summary["modules"].as_array_mut().unwrap() {
        for name in ["ns_per_packet", "cycles_per_packet", "memory_bytes"] {
            module[name].take();
        }
        for stream in module["streams"].as_array_mut().unwrap() {
            stream["path"].take();
        }
    }
    summary
}

/// All output of a run: summary, records and packets.
fn everything(path: &Path, jobs: &str, args: &[&str]) -> (Value, Vec<(std::path::PathBuf, Vec<u8>)>) {
    let written = tempfile::Builder::new().suffix(".pcap").tempfile().unwrap();
    let output = ["-j", jobs, "-w", written.path().to_str().unwrap()];
    let run = run_file(path, &[&output[..], args].concat());
    let mut files = run.files();
    files.push(("packets".into(), std::fs::read(written.path()).unwrap()));
    (comparable(&run.summary), files)
}

#[test]
fn summary_records_and_packets_are_identical_for_any_number_of_threads() {
    let modules: Vec<&str> = MODULES.iter().flat_map(|module| ["-m", module]).collect();
    let with_filter = [&modules[..], &["tcp or udp port 53 or vlan"]].concat();
    for path in samples() {
        for args in [&modules, &with_filter] {
            let (summary, files) = everything(&path, JOBS[0], args);
            assert_eq!(files.len(), 27, "a file for each stream, and the packets");
            for module in summary["modules"].as_array().unwrap() {
                assert_ne!(module["records"], 0, "{}: {} tests nothing", path.display(), module["name"]);
            }
            for jobs in &JOBS[1..] {
                let (other_summary, other) = everything(&path, jobs, args);
                assert_eq!(other_summary, summary, "--jobs {jobs}");
                for ((name, bytes), (other_name, other_bytes)) in files.iter().zip(&other) {
                    assert_eq!(name, other_name);
                    assert!(
                        bytes == other_bytes,
                        "{}: {} differs with --jobs {jobs}",
                        path.display(),
                        name.display()
                    );
                }
                assert_eq!(files.len(), other.len());
            }
        }
    }
}

/// Interleaved flows, many more than the smallest tables hold.
#[test]
fn full_tables_evict_the_same_entries_for_any_number_of_instances() {
    let client = |i: usize| format!("10.{}.{}.1:{}", i % 7, i % 251, 1024 + i);
    let mut packets = Vec::new();
    for i in 0..6000 {
        packets.push(Packet::tcp(&client(i), "192.0.2.1:80", SYN).numbers(1, 0));
        // Of 300 pending handshakes, the table holds 256.
        if let Some(earlier) = i.checked_sub(300) {
            packets.push(
                Packet::tcp(&client(earlier), "192.0.2.1:80", ACK | PSH).numbers(2, 1).payload("GET /bin/sh"),
            );
        }
    }
    // One file for all runs, because record files name their captures.
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), Capture::from_packets(&packets).to_pcap()).unwrap();
    let modules =
        ["-m", "rtt,table-size=256", "-m", "trajectory,one-in=2,table-size=256", "-m", "payload-match"];
    let one = run_file(file.path(), &[&modules[..], &["-j", "1"]].concat());
    let completed = one.rows("rtt", "rtts").len();
    assert!((100..5000).contains(&completed), "the table is too small, but not for all: {completed}");
    for jobs in &JOBS[1..] {
        let other = run_file(file.path(), &[&modules[..], &["-j", jobs]].concat());
        assert!(other.files() == one.files(), "--jobs {jobs}");
    }
}
