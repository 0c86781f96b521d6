//! Tests of `weir follow` against a node that is a script, and that may be hostile. `node/` follows records of real nodes.

use crate::run::process::{Ended, ended, finish};
use crate::run::{rows_below, weir};
use parquet::file::reader::FileReader;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Instant;
use tempfile::TempDir;

const MANIFEST: &str = "name = 'm'\nversion = '1.2'\nabi = 2\nlicense = 'MIT'\nsummary = 'a test'\n\
    [[stream]]\nname = 'rows'\nsummary = 'rows of a test'\n\
    [[stream.field]]\nname = 'n'\ntype = 'u64'\n[[stream.field]]\nname = 'word'\ntype = 'string'\n\
    [[stream]]\nname = 'findings'\nsummary = 'what was found'\n";
const NAME: &str = "alice";

/// A node that accepts one connection, and answers its first request with these lines.
struct ScriptedNode {
    folder: TempDir,
    request: JoinHandle<Value>,
}

impl ScriptedNode {
    /// The node closes the connection after its lines, or if `stays`, when the client does.
    fn new(lines: &[String], stays: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("sock")).unwrap();
        let answer = lines.concat();
        let request = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let (mut reads, mut writes) = (BufReader::new(stream.try_clone().unwrap()), stream);
            let mut line = String::new();
            reads.read_line(&mut line).unwrap();
            // The client may close the connection before it has read all.
            let _ = writes.write_all(answer.as_bytes());
            if stays {
                let _ = reads.read_to_end(&mut Vec::new());
            }
            serde_json::from_str::<Value>(&line).unwrap()["request"]["follow"].clone()
        });
        Self { folder, request }
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = weir();
        command.args(["follow", NAME]).args(arguments).env("WEIR_SOCKET", self.folder.path().join("sock"));
        command
    }

    /// Runs `weir follow alice ARGUMENTS`, with `OUT` for the folder of the results. Returns the request.
    fn run(&self, arguments: &[&str]) -> Ended {
        let out = self.out();
        let arguments: Vec<String> =
            arguments.iter().map(|argument| argument.replace("OUT", out.to_str().unwrap())).collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        finish(&mut self.command(&arguments), None)
    }
}

fn line(reply: Value) -> String {
    json!({"weir": 1, "reply": reply}).to_string() + "\n"
}

fn followed(modules: &[(&str, &str)]) -> String {
    let module = |(name, manifest): &(&str, &str)| json!({"name": name, "digest": "ab".repeat(32), "manifest": manifest});
    let modules: Vec<Value> = modules.iter().map(module).collect();
    line(json!({"followed": {"node": "ix-1", "modules": modules}}))
}

fn record(module: u16, stream: u16, row: &[u8], tail: &[u8]) -> String {
    let (row, tail) = (weir_units::hex(row), weir_units::hex(tail));
    line(json!({"record": {"module": module, "stream": stream, "row": row, "tail": tail}}))
}

/// A row of the stream `rows`.
fn row(module: u16, number: u64, word: &str) -> String {
    let mut row = number.to_le_bytes().to_vec();
    row.extend(0u32.to_le_bytes());
    row.extend(u32::try_from(word.len()).unwrap().to_le_bytes());
    record(module, 0, &row, word.as_bytes())
}

/// A row of the stream `findings`.
fn finding(severity: u8, text: &str, filter: &str) -> String {
    let mut row = 1_700_000_000_123_456_789u64.to_le_bytes().to_vec();
    row.extend([severity, 0, 0, 0]);
    let mut at = 0;
    for text in [text, filter, "rows"] {
        let len = u32::try_from(text.len()).unwrap();
        row.extend([at, len].into_iter().flat_map(u32::to_le_bytes));
        at += len;
    }
    row.resize(40, 0);
    record(0, 1, &row, [text, filter, "rows"].concat().as_bytes())
}

fn missed(stream: u16, rows: u64) -> String {
    line(json!({"missed": {"module": 0, "stream": stream, "rows": rows}}))
}

fn done() -> String {
    line(json!({"done": {"notes": ["the records end here"]}}))
}

/// A module, some rows and findings, a gap, and the end.
fn session() -> Vec<String> {
    vec![
        followed(&[("m", MANIFEST)]),
        row(0, 7, "a b"),
        finding(4, "scan\u{1b}[2J of 10.0.0.0/8", "tcp port 80"),
        finding(9, "odd", ""),
        row(0, u64::MAX, "=1"),
        missed(0, 3),
        row(0, 9, "\u{202e}x"),
        done(),
    ]
}

/// The metadata of a Parquet file.
fn metadata(file: &Path, key: &str) -> Option<String> {
    let reader =
        parquet::file::serialized_reader::SerializedFileReader::new(fs::File::open(file).unwrap()).unwrap();
    let pairs = reader.metadata().file_metadata().key_value_metadata().cloned().unwrap_or_default();
    pairs.into_iter().find(|pair| pair.key == key)?.value
}

/// The names of the files below a folder, sorted.
fn files(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder.join("m")).unwrap() {
        names.push(entry.unwrap().file_name().into_string().unwrap());
    }
    names.sort();
    names
}

#[test]
fn rows_are_printed_as_tables_and_findings_as_lines_of_their_own() {
    let node = ScriptedNode::new(&session(), false);
    let ended = node.run(&[]).succeeds();
    let lines: Vec<&str> = ended.text().lines().collect();
    let findings: Vec<&str> = lines.iter().copied().filter(|line| line.starts_with("finding  ")).collect();
    assert_eq!(
        findings,
        [
            "finding  2023-11-14 22:13:20.123456  HIGH      m: scan\\u{1b}[2J of 10.0.0.0/8  [filter: tcp port 80]",
            "finding  2023-11-14 22:13:20.123456  CRITICAL  m: odd",
        ]
    );
    // The titles of the table are repeated after findings, of which there can be some between the rows.
    assert!(lines[0] == "m.rows: rows of a test" && !ended.text().contains("m.findings"), "{lines:?}");
    let rows = lines.iter().filter(|line| !line.starts_with(['f', 'm']) && !line.is_empty());
    let mut rows: Vec<Vec<&str>> = rows.map(|line| line.split_whitespace().collect()).collect();
    rows.retain(|row| row != &["n", "word"]);
    assert_eq!(rows[..2], [vec!["7", "a", "b"], vec!["18446744073709551615", "=1"]]);
    // The column is as wide as the rows that had arrived for its title.
    assert!(rows[2][0] == "9" && rows[2][1].starts_with("\\u{"), "{rows:?}");
    assert!(ended.stderr.contains("3 records of m.rows were missed here: this client reads too slowly"));
    assert!(ended.stderr.contains("weir: the records end here"), "{}", ended.stderr);
    assert_eq!(node.request.join().unwrap(), json!({"session": "alice"}));
}

#[test]
fn rows_have_the_formats_of_weir_run() {
    let rows = |arguments: &[&str]| {
        let node = ScriptedNode::new(&session(), false);
        let text = node.run(arguments).succeeds().text().to_owned();
        (text, node.request.join().unwrap())
    };
    let (text, request) = rows(&["m", "--format", "json"]);
    assert_eq!(request, json!({"session": "alice", "module": "m"}));
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0], json!({"module": "m", "stream": "rows", "n": 7, "word": "a b"}));
    assert_eq!(lines[1]["severity"], 4);
    assert_eq!(lines[3]["n"], u64::MAX);
    let (text, request) = rows(&["--stream", "m.rows", "--format", "csv", "--rows", "2"]);
    assert_eq!(request, json!({"session": "alice", "streams": ["rows"]}));
    assert_eq!(text, "n,word\n7,a b\n18446744073709551615,'=1\n");
    let (text, _) = rows(&["--stream", "findings", "--local-time", "--rows", "1"]);
    assert!(text.starts_with("m.findings: what was found\n") && text.contains("… 1 more row"), "{text}");
}

#[test]
fn a_stream_that_several_modules_have_or_that_is_missing_is_wrong_usage() {
    let two = [followed(&[("a", MANIFEST), ("b", MANIFEST)]), row(1, 5, "x"), done()];
    for (arguments, says) in [
        (&["--stream", "rows"][..], "several modules have a stream `rows`: write one of a.rows, b.rows"),
        (&["--stream", "c.rows"], "stream `c.rows`; the streams are a.rows, a.findings, b.rows"),
        (&["--format", "csv"], "--format csv needs one stream"),
    ] {
        ScriptedNode::new(&two, false).run(arguments).fails(2, &[says]);
    }
    finish(weir().args(["follow", "a", "--stream", "../x"]).env("WEIR_SOCKET", "/nowhere"), None)
        .fails(2, &["`--stream ../x`"]);
    let text = ScriptedNode::new(&two, false).run(&["--stream", "b.rows"]).succeeds().text().to_owned();
    assert!(text.starts_with("b.rows: "), "{text}");
}

#[test]
fn files_and_report_are_complete_when_the_session_ends_and_state_the_missed_rows() {
    let node = ScriptedNode::new(&session(), false);
    let report = node.folder.path().join("report.html");
    let ended =
        node.run(&["--stream", "findings", "--out", "OUT", "--report", report.to_str().unwrap()]).succeeds();
    assert!(ended.stderr.contains("weir: m.rows: 3 rows, 3 missed: "), "{}", ended.stderr);
    // The files have all streams, whichever is printed.
    let request = node.request.join().unwrap();
    assert_eq!(request, json!({"session": "alice"}));
    let out = node.folder.path().join("out");
    assert_eq!(files(&out), ["findings.parquet", "rows.parquet"]);
    assert_eq!(rows_below(&out).iter().map(|(_, rows)| rows.len()).collect::<Vec<_>>(), [2, 3]);
    let of = |stream: &str, key: &str| metadata(&out.join("m").join(stream), key).unwrap_or_default();
    assert_eq!(
        (of("rows.parquet", "weir.missed_rows"), of("findings.parquet", "weir.missed_rows")),
        ("3".into(), "0".into())
    );
    assert_eq!(
        (of("rows.parquet", "weir.session"), of("rows.parquet", "weir.node")),
        ("alice".into(), "ix-1".into())
    );
    assert_eq!(of("rows.parquet", "weir.module_digest"), "ab".repeat(32));
    assert_eq!(of("rows.parquet", "weir.module_version"), "1.2");
    let page = fs::read_to_string(report).unwrap();
    assert!(page.contains("3 rows of m.rows were missed"), "the report says so");
    // Results of an earlier run are not mixed with new ones.
    let again = ScriptedNode::new(&session(), false);
    let out = out.to_str().unwrap();
    again.run(&["--out", out]).fails(1, &["the folder has results of an earlier run"]);
}

#[test]
fn files_are_complete_when_the_node_ends_the_records_and_partial_when_the_connection_breaks() {
    let begin = [followed(&[("m", MANIFEST)]), row(0, 7, "a")];
    let refused = line(json!({"refused": {"why": "the credential has expired"}}));
    let node = ScriptedNode::new(&[&begin[..], &[refused]].concat(), false);
    node.run(&["--out", "OUT"]).fails(1, &["the credential has expired", "m.rows: 1 rows: "]);
    assert_eq!(files(&node.out()), ["findings.parquet", "rows.parquet"]);
    let node = ScriptedNode::new(&begin, false);
    node.run(&["--out", "OUT"]).fails(1, &["the node closed the connection", "rows.parquet.part"]);
    assert_eq!(files(&node.out()), ["findings.parquet.part", "rows.parquet.part"]);
}

#[test]
fn replies_of_a_hostile_node_are_errors_without_a_panic_or_a_complete_file() {
    let module = |name: &str, manifest: &str| vec![followed(&[(name, manifest)])];
    let then = |more: String| vec![followed(&[("m", MANIFEST)]), row(0, 1, "x"), more];
    let short = &[0; 15][..];
    let beyond = [&[0; 8][..], &1u32.to_le_bytes(), &u32::MAX.to_le_bytes()].concat();
    let text = |text: &str| line(json!({"record": {"module": 0, "stream": 0, "row": text}}));
    for (lines, says) in [
        (module("../x", MANIFEST), "the node sent the name `../x`"),
        (module("a\u{1b}[2J", MANIFEST), "the node sent the name `a\\u{1b}[2J`"),
        (vec![followed(&[("m", MANIFEST), ("m", MANIFEST)])], "two modules with the name m"),
        (module("m", "name = 1\u{1b}"), "a manifest of module m that is not valid"),
        (module("m", &"x".repeat(70_000)), "a manifest of module m that is not valid"),
        (
            vec![line(json!({"followed": {"node": "A\u{7}", "modules": []}}))],
            "the node sent the name `A\\u{7}`",
        ),
        (vec![row(0, 1, "x")], "does not fit the request"),
        (then(record(0, 0, short, b"")), "row of m.rows that does not fit the module's manifest"),
        (then(record(0, 0, &[0; 17], b"")), "row of m.rows that does not fit"),
        (then(record(0, 0, &beyond, b"tail")), "row of m.rows that does not fit"),
        (then(record(0, 1, &[0; 16], b"")), "row of m.findings that does not fit"),
        (then(record(0, 2, &[0; 16], b"")), "records of module 0, stream 2"),
        (then(record(1, 0, &[0; 16], b"")), "records of module 1, stream 0"),
        (then(record(u16::MAX, u16::MAX, &[], b"")), "records of module 65535, stream 65535"),
        (then(line(json!({"missed": {"module": 3, "stream": 0, "rows": 1}}))), "records of module 3"),
        (then(text("0")), "not written in hexadecimal digits"),
        (then(text("é")), "not written in hexadecimal digits"),
        (then(text(&"0".repeat(2 << 20))), "longer than 1 MiB"),
        (then(line(json!({"uploaded": {"bytes": 1}}))), "does not fit the request"),
        (then("{\"weir\":1,\n".to_owned()), "not that of a node"),
    ] {
        let node = ScriptedNode::new(&lines, false);
        node.run(&["--out", "OUT"]).fails(1, &[says]);
        if node.out().join("m").exists() {
            assert_eq!(files(&node.out()), ["findings.parquet.part", "rows.parquet.part"], "{says}");
        }
    }
    // Numbers of missed rows that overflow together.
    let lines = [followed(&[("m", MANIFEST)]), missed(0, u64::MAX), missed(0, 2), done()];
    let node = ScriptedNode::new(&lines, false);
    node.run(&["--out", "OUT"]).succeeds();
    let file = node.out().join("m/rows.parquet");
    assert_eq!(metadata(&file, "weir.missed_rows"), Some(u64::MAX.to_string()));
}

/// Starts a command, and waits for the first line on its standard output.
fn started(command: &mut Command) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert!(line.contains("\"n\":7"), "{line}");
    (child, out)
}

#[test]
fn a_signal_completes_the_files() {
    for signal in ["INT", "TERM"] {
        let node = ScriptedNode::new(&[followed(&[("m", MANIFEST)]), row(0, 7, "a")], true);
        let out = node.out();
        let (child, rows) = started(&mut node.command(&["--format", "json", "--out", out.to_str().unwrap()]));
        let process = child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{signal}"), &process]).status().unwrap().success());
        ended(child, "weir follow", Instant::now()).succeeds();
        drop(rows);
        assert_eq!(rows_below(&out).len(), 2, "{signal}");
        assert_eq!(files(&out), ["findings.parquet", "rows.parquet"], "{signal}");
    }
}

#[test]
fn the_end_of_the_reader_ends_the_command_even_if_no_more_rows_come() {
    let node = ScriptedNode::new(&[followed(&[("m", MANIFEST)]), row(0, 7, "a")], true);
    let (child, rows) = started(&mut node.command(&["--format", "json"]));
    drop(rows);
    ended(child, "weir follow", Instant::now()).succeeds();
}

#[test]
fn rows_are_written_in_the_formats_of_other_tools() {
    let node = ScriptedNode::new(&session(), false);
    let ended = node.run(&["--out", "OUT", "--format", "zeek"]).succeeds();
    ended.reports("m.rows: 3 rows, 3 missed: ");
    let read = |name: &str| fs::read_to_string(node.out().join(name)).unwrap();
    let rows: Vec<String> =
        read("m_rows.log").lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
    assert_eq!(rows, ["7\ta b", "18446744073709551615\t=1", "9\t\\xe2\\x80\\xaex"]);
    let notices = read("notice.log");
    assert_eq!(notices.lines().filter(|line| line.contains("\tWeir::m\t")).count(), 2, "{notices}");
    assert!(notices.contains("scan\\x1b[2J of 10.0.0.0/8"), "{notices}");

    let node = ScriptedNode::new(&session(), false);
    node.run(&["--out", "OUT", "--format", "eve", "--stream", "findings"]).succeeds();
    let events = fs::read_to_string(node.out().join("eve.json")).unwrap();
    let alerts: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(alerts.len(), 2, "{events}");
    assert_eq!(alerts[0]["alert"]["signature"], "scan\u{1b}[2J of 10.0.0.0/8");
    // Without a folder, events are printed.
    let node = ScriptedNode::new(&session(), false);
    assert_eq!(node.run(&["--format", "eve"]).succeeds().text().lines().count(), 5);
}

#[test]
fn a_format_that_the_records_cannot_have_is_refused() {
    let node = ScriptedNode::new(&session(), false);
    node.run(&["--format", "zeek"]).fails(2, &["--format zeek writes files: add --out DIR"]);
    let arguments = ["--out", "OUT", "--format", "ipfix"];
    node.run(&arguments).fails(2, &["no stream here has fields whose semantics are elements of IPFIX"]);
    let node = ScriptedNode::new(&session(), false);
    node.run(&["--collector", "udp://127.0.0.1:9"]).fails(2, &["--collector sends the rows of flows"]);
}

#[test]
fn the_files_of_records_are_rotated() {
    for (arguments, first) in [(&["--format", "zeek"][..], "m_rows_00001_20"), (&[], "m-0")] {
        let mut lines = session();
        lines.pop();
        let node = ScriptedNode::new(&lines, true);
        let out = node.out();
        let mut command = node.command(&["--rotate", "1s", "--out", out.to_str().unwrap()]);
        let child =
            command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (child, begin) = (child.spawn().unwrap(), Instant::now());
        let complete = |name: &str| name.starts_with(first) && !name.ends_with(".part");
        let is_complete = || {
            let names = fs::read_dir(&out).into_iter().flatten().flatten().map(|entry| entry.file_name());
            let found: Vec<String> =
                names.map(|name| name.into_string().unwrap()).filter(|name| complete(name)).collect();
            found.iter().any(|name| name.ends_with(".log") || out.join(name).join("rows.parquet").exists())
        };
        crate::run::net::wait_for(is_complete);
        crate::run::net::interrupt(&child);
        let text = ended(child, "weir follow --rotate", begin).succeeds();
        text.reports("m.rows: 3 rows, 3 missed: ");
    }
}
