//! Tests of rows in the formats of other tools, which these tools read back: zat for Zeek's logs, Suricata's schema for
//! eve.json, tshark and nfdump for IPFIX. The values are compared with the JSON rows of the same run.

mod collectors;
mod eve;
mod ipfix;
mod zeek;

use crate::run::module::write_as;
use crate::run::packets::{pcap, traffic};
use crate::run::{run, sample, traces};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The captures of these tests: the sample, and if they are there, captures with TLS, QUIC and IPv6.
fn captures() -> Vec<PathBuf> {
    let more = ["tcp/tls-73-ciphers.pcap", "udp/quic-chromium-google.pcap", "tcp/tls-ipv6-wan.pcap"];
    let beside = traces::folder().into_iter().flat_map(|folder| more.map(|name| folder.join(name)));
    std::iter::once(sample()).chain(beside).collect()
}

/// The JSON rows of the default modules over a capture.
fn json_rows(capture: &Path) -> Vec<Value> {
    let ended =
        run([Path::new("run"), "-q".as_ref(), "-r".as_ref(), capture, "--format".as_ref(), "json".as_ref()]);
    ended.succeeds().text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The rows of one stream.
fn rows_of<'a>(rows: &'a [Value], module: &str, stream: &str) -> Vec<&'a Value> {
    rows.iter().filter(|row| row["module"] == module && row["stream"] == stream).collect()
}

/// The sum of a field; null counts as 0.
fn sum(rows: &[&Value], field: &str) -> u64 {
    rows.iter().map(|row| row[field].as_u64().unwrap_or(0)).sum()
}

/// The texts of a field, sorted, without null.
fn texts(rows: &[&Value], field: &str) -> Vec<String> {
    let mut texts: Vec<String> =
        rows.iter().filter_map(|row| row[field].as_str()).map(str::to_owned).collect();
    texts.sort();
    texts
}

/// Runs the default modules over a capture, and writes their rows in a format to a new folder.
fn exported(capture: &Path, format: &str) -> TempDir {
    let out = tempfile::tempdir().unwrap();
    let arguments = [Path::new("run"), "-q".as_ref(), "-r".as_ref(), capture, "--out".as_ref(), out.path()];
    run(arguments.into_iter().chain([Path::new("--format"), Path::new(format)])).succeeds();
    assert!(fs::read_dir(out.path()).unwrap().all(|entry| entry.unwrap().file_type().unwrap().is_file()));
    out
}

/// The bytes of texts that would break a format if they were not escaped.
const HOSTILE: [&[u8]; 6] =
    [b"a\tb\nc\rd", b"\x1b[31m\x00\x85", b"\xff\xfe\xc3(", b"\"},{\"x\":\"", b"\\x09 \\", b"-"];

/// A capture, and a module that emits a row with one of these texts for each of its packets, as an HTTP request.
fn hostile_module(folder: &Path) -> (PathBuf, PathBuf) {
    let fields = "[[stream]]\nname = 'requests'\nfield = [\n\
        { name = 'time', type = 'timestamp', semantic = 'time' },\n\
        { name = 'src', type = 'ip', semantic = 'source.ip' },\n\
        { name = 'dst', type = 'ip', semantic = 'destination.ip' },\n\
        { name = 'method', type = 'string', semantic = 'http.request.method' },\n\
        { name = 'note', type = 'string' },\n]\n";
    let manifest = format!(
        "name = 'hostile'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\nmemory = '2 MiB'\n{fields}"
    );
    let data = |text: &[u8]| text.iter().map(|byte| format!("\\{byte:02x}")).collect::<String>();
    let place = |index: usize| 512 + 32 * index;
    let segments: String = HOSTILE
        .iter()
        .enumerate()
        .map(|(index, text)| format!("(data (i32.const {}) \"{}\")\n", place(index), data(text)))
        .collect();
    let emits: String = HOSTILE
        .iter()
        .enumerate()
        .map(|(index, text)| {
            let (at, len) = (place(index), text.len());
            // The two texts of a row: offset and length of each.
            format!(
                "(if (i32.eq (global.get $seen) (i32.const {index})) (then
                    (i32.store (i32.const 104) (i32.const {at})) (i32.store (i32.const 108) (i32.const {len}))
                    (i32.store (i32.const 112) (i32.const {at})) (i32.store (i32.const 116) (i32.const {len}))
                    (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 56)))))\n"
            )
        })
        .collect();
    let body = format!(
        "(global $seen (mut i32) (i32.const 0))
        {segments}
        (func (export \"weir_packet\") (param $d i32) (result i32)
            {emits}
            (global.set $seen (i32.add (global.get $seen) (i32.const 1)))
            (i32.const 0))"
    );
    let capture = folder.join("capture.pcap");
    fs::write(&capture, pcap(&traffic(HOSTILE.len() as u64))).unwrap();
    (capture, write_as(folder, "hostile", &body, &manifest))
}

/// Runs the module with hostile texts, and writes its rows in a format to `folder`/out.
fn export_hostile(format: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let (capture, module) = hostile_module(folder.path());
    let (capture, module) = (capture.to_str().unwrap(), module.to_str().unwrap());
    let out = folder.path().join("out");
    run(["run", "-q", "-r", capture, "-m", module, "--format", format, "--out", out.to_str().unwrap()])
        .succeeds();
    folder
}

#[test]
fn a_format_without_a_destination_is_refused_with_what_to_do() {
    let capture = sample();
    let run =
        |arguments: &[&str]| run(["run", "-q", "-r", capture.to_str().unwrap()].iter().chain(arguments));
    run(&["--format", "zeek"]).fails(2, &["--format zeek writes files: add --out DIR"]);
    run(&["--format", "ipfix"]).fails(2, &["add --out DIR, or --collector udp://HOST:PORT"]);
    run(&["-m", "dns", "--collector", "udp://127.0.0.1"])
        .fails(2, &["add -m flows, or name other streams with --stream"]);
    let address = ["--collector", "http://127.0.0.1"];
    run(&address).fails(2, &["write udp://HOST:PORT or tcp://HOST:PORT"]);
    run(&["--format", "zeek", "--out", "x", "--stream", "flows.open"])
        .fails(2, &["no module of this run has a stream"]);
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let arguments = ["-m", "syn-flood", "--format", "ipfix", "--stream", "syn-flood.intervals", "--out", out];
    run(&arguments).fails(2, &["no stream here has fields whose semantics are elements of IPFIX"]);
    assert!(fs::read_dir(out).unwrap().next().is_none());
    // Results of an earlier run stay.
    run(&["-m", "flows", "--format", "zeek", "--out", out]).succeeds();
    let before = fs::read(folder.path().join("conn.log")).unwrap();
    run(&["-m", "flows", "--format", "zeek", "--out", out])
        .fails(1, &["conn.log", "choose another folder for --out"]);
    assert_eq!(fs::read(folder.path().join("conn.log")).unwrap(), before);
}

#[test]
fn the_summary_has_the_files_and_standard_output_is_as_without_a_format() {
    let capture = sample();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let arguments = ["run", "-q", "-r", capture.to_str().unwrap(), "-m", "dns", "-m", "flows"];
    let ended = run(arguments
        .into_iter()
        .map(str::to_owned)
        .chain(["--format".to_owned(), "zeek".to_owned(), "--out".to_owned(), at("out")])
        .chain(["--summary".to_owned(), at("summary.json")]));
    let text = ended.succeeds().text().to_owned();
    assert!(text.contains(&format!("{} (149 rows)\n", at("out/dns.log"))), "{text}");
    assert!(text.contains("MODULE"), "the summary is on standard output: {text}");
    let summary: Value = serde_json::from_slice(&fs::read(at("summary.json")).unwrap()).unwrap();
    let stream = &summary["modules"][1]["streams"][0];
    assert_eq!(
        (&stream["rows"], stream["path"].as_str()),
        (&Value::from(1592), Some(at("out/conn.log").as_str()))
    );
}

#[test]
fn exported_files_do_not_depend_on_the_number_of_threads() {
    let capture = sample();
    for format in ["zeek", "eve", "ipfix"] {
        let files = ["1", "4"].map(|jobs| {
            let out = tempfile::tempdir().unwrap();
            let capture = capture.to_str().unwrap();
            let out_path = out.path().to_str().unwrap();
            run(["run", "-q", "-r", capture, "-j", jobs, "--format", format, "--out", out_path]).succeeds();
            crate::run::contents(out.path())
        });
        assert!(files[0].len() == files[1].len() && !files[0].is_empty());
        for (one, other) in files[0].iter().zip(&files[1]) {
            assert!(one == other, "{format}: {} differs from {}", one.0, other.0);
        }
    }
}
