//! Tests of several captures in one run: files, folders and patterns, merged by the times of their packets.

use crate::run::packets::{Packet, pcap, pcap_of, pcapng, read_pcap, traffic};
use crate::run::process::{counts, number};
use crate::run::{outside, run};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Writes packets to files by turns, so that the times of all files overlap.
fn deal(folder: &Path, packets: &[Packet], files: usize) -> Vec<String> {
    let of = |file: usize| packets.iter().skip(file).step_by(files).cloned().collect::<Vec<_>>();
    let write = |file: usize| {
        let path = folder.join(format!("{}.pcap", ["c", "a", "b"][file]));
        fs::write(&path, pcap(&of(file))).unwrap();
        path.to_str().unwrap().to_owned()
    };
    (0..files).map(write).collect()
}

#[test]
fn packets_of_several_captures_are_merged_by_their_times() {
    let folder = tempfile::tempdir().unwrap();
    let packets = traffic(20_000);
    let files = deal(folder.path(), &packets, 3);
    let whole = folder.path().join("whole");
    fs::create_dir(&whole).unwrap();
    let whole = whole.join("all.pcap");
    fs::write(&whole, pcap(&packets)).unwrap();
    let modules = ["-m", "trajectory,one-in=3", "-m", "port-count"];
    let all = ["run", "-r", whole.to_str().unwrap()];
    let rows = |run_and_captures: &[&str]| {
        run(run_and_captures.iter().chain(&modules).chain(&["--format", "json"])).succeeds().stdout
    };
    let (expected, expected_rows) =
        (run(all.iter().chain(&modules).chain(&["--json"])).succeeds().json(), rows(&all));
    assert!(expected_rows.len() > 100_000);
    let written = folder.path().join("written.pcap");
    for (name, arguments) in [
        ("options", files.iter().flat_map(|file| ["-r", file]).collect::<Vec<_>>()),
        ("folder", vec!["-r", folder.path().to_str().unwrap()]),
        ("pattern", vec!["-r", &format!("{}/?.pcap", folder.path().display())]),
    ] {
        let arguments = [&["run"][..], &arguments].concat();
        assert!(rows(&arguments) == expected_rows, "{name}: the rows are those of the whole capture");
        let more = ["--json", "-w", written.to_str().unwrap()];
        let ended = run(arguments.iter().chain(&modules).chain(&more)).succeeds();
        let document = ended.json();
        assert_eq!(counts(&document), counts(&expected), "{name}");
        assert_eq!(document["capture"]["files"].as_array().unwrap().len(), 3, "{name}");
        assert!(read_pcap(&fs::read(&written).unwrap()) == packets, "{name}");
        assert_eq!(ended.stderr, "", "{name}");
        fs::remove_file(&written).unwrap();
    }
}

#[test]
fn rotated_captures_of_several_formats_are_read_in_the_order_of_their_times() {
    let folder = tempfile::tempdir().unwrap();
    let packets = traffic(3_000);
    let at = |name: &str| folder.path().join(name);
    // Names in another order than times.
    fs::write(at("z.pcap"), pcap(&packets[..1_000])).unwrap();
    let second: Vec<(u32, Packet)> = packets[1_000..2_000].iter().map(|packet| (0, packet.clone())).collect();
    fs::write(at("y.pcapng"), pcapng(&[1], &second)).unwrap();
    fs::write(at("x.pcap"), pcap(&packets[2_000..])).unwrap();
    if outside::has("gzip") {
        assert!(Command::new("gzip").arg(at("x.pcap")).status().unwrap().success());
    }
    // A capture without packets does not matter.
    fs::write(at("w.pcap"), pcap(&[])).unwrap();
    let written = at("written");
    let folder = folder.path().to_str().unwrap();
    let ended = run(["run", "-r", folder, "-m", "rtt", "--json", "-w", written.to_str().unwrap()]).succeeds();
    assert_eq!(ended.stderr, "");
    assert!(read_pcap(&fs::read(&written).unwrap()) == packets);
}

#[test]
fn a_truncated_one_of_several_captures_loses_only_its_own_rest() {
    let folder = tempfile::tempdir().unwrap();
    let packets = traffic(3_000);
    let files = deal(folder.path(), &packets, 3);
    let bytes = fs::read(&files[1]).unwrap();
    // 500 of its 1,000 packets, and a part of the next.
    let kept = pcap(&packets.iter().skip(1).step_by(3).take(500).cloned().collect::<Vec<_>>()).len();
    fs::write(&files[1], &bytes[..kept + 20]).unwrap();
    let ended = run(["run", "-r", folder.path().to_str().unwrap(), "-m", "rtt", "--json"]).succeeds();
    let document = ended.json();
    assert_eq!(number(&document["capture"], "packets"), 2_500);
    assert_eq!(document["capture"]["truncated"], true);
    ended.reports("a.pcap: truncated at offset").reports("its packets before that were processed");
}

#[test]
fn captures_that_cannot_be_read_together_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("a.pcap"), pcap(&traffic(10))).unwrap();
    fs::write(at("b.pcap"), b"this is no capture").unwrap();
    fs::create_dir(at("empty")).unwrap();
    let (a, b, empty) = (at("a.pcap"), at("b.pcap"), at("empty"));
    run(["run", "-r", &a, "-r", &b]).fails(1, &["b.pcap", "is not a capture"]);
    run(["run", "-r", &a, "-r", "-"]).fails(2, &["standard input can only be read alone"]);
    run(["run", "-r", &empty]).fails(1, &["empty", "no captures"]);
    run(["run", "-r", &at("c*.pcap")]).fails(1, &["c*.pcap", "none matches"]);
    run(["run", "-r", &a, &b]).fails(2, &["b.pcap", "where the filter belongs", "quote the pattern"]);
    run(["run", "-r", &a, "-r", &at("none.pcap")]).fails(1, &["none.pcap", "No such file"]);
    // No output replaces any of the captures.
    fs::write(at("b.pcap"), pcap(&traffic(10))).unwrap();
    run(["run", "-r", &a, "-r", &b, "-m", "rtt", "-w", &b]).fails(1, &["b.pcap", "that is being read"]);
    // A pipe is refused before it is opened, which would wait for a writer.
    assert!(Command::new("mkfifo").arg(at("fifo.pcap")).status().unwrap().success());
    run(["run", "-r", &a, "-r", &at("fifo.pcap")]).fails(1, &["fifo.pcap", "can be read only alone"]);
}

#[test]
fn captures_of_different_link_types_are_read_together_and_the_filter_must_fit_both() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let packets = traffic(100);
    fs::write(at("ethernet.pcap"), pcap(&packets)).unwrap();
    // The same packets as raw IP (LINKTYPE_RAW), without their Ethernet headers, an hour later.
    let raw = packets
        .iter()
        .map(|packet| Packet { ts_ns: packet.ts_ns + 3_600_000_000_000, bytes: packet.bytes[14..].to_vec() });
    fs::write(at("raw.pcap"), pcap_of(101, &raw.collect::<Vec<_>>())).unwrap();
    let both = ["run", "-r", &at("ethernet.pcap"), "-r", &at("raw.pcap")].map(str::to_owned);
    let with = |more: &[&str]| {
        both.iter().cloned().chain(more.iter().map(|word| (*word).to_owned())).collect::<Vec<_>>()
    };
    let document = run(with(&["-m", "port-count", "--json", "udp port 53"])).succeeds().json();
    let totals = counts(&document);
    assert_eq!((totals[0], number(&document["capture"], "selected")), (200, 140));
    run(with(&["-m", "rtt", "ether host 02:00:00:00:00:01"])).fails(2, &["link type 101 (raw IP)"]);
}
