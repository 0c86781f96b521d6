//! Tests of the rows that `weir run` prints: tables, JSON lines and CSV, their streams, and readers that stop early.

use crate::run::module::{at_packet, write};
use crate::run::packets::{BEGIN_NS, Packet, pcap, tcp, traffic, udp};
use crate::run::process::{Ended, ended, has_controls, module, number};
use crate::run::{contents, run, run_with, sample, weir};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use tempfile::TempDir;

/// A folder with a capture of `packets` packets at intervals of 1 ms.
fn capture(packets: u64) -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("capture.pcap");
    fs::write(&path, pcap(&traffic(packets))).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

/// Writes a module that emits a row for each packet with this text, of 3 bytes.
fn texts(folder: &TempDir, name: &str, text: &str) -> String {
    let body = format!(
        r#"(data (i32.const 512) "{text}")
        (func (export "weir_packet") (param $d i32) (result i32)
            (i32.store (i32.const 64) (i32.const 512))
            (i32.store (i32.const 68) (i32.const 3))
            (drop (call $emit (i32.const 1) (i32.const 64) (i32.const 8)))
            (i32.const 0))"#
    );
    write(folder.path(), name, &body).to_str().unwrap().to_owned()
}

/// Starts a command with all its streams as pipes.
fn piped(command: &mut Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn lines(ended: &Ended) -> Vec<String> {
    ended.text().lines().map(str::to_owned).collect()
}

#[test]
fn findings_come_below_the_tables_the_most_severe_first() {
    let capture = sample();
    let ended = run(["run", "-r", capture.to_str().unwrap(), "-m", "rtt,slow=50ms", "-m", "worm"]).succeeds();
    let lines = lines(&ended);
    let title = lines.iter().position(|line| line == "findings, the most severe first:").unwrap();
    assert!(lines[..title].iter().any(|line| line.starts_with("worm.hits: ")), "{lines:?}");
    assert_eq!(lines[title - 1], "");
    let end = title + lines[title..].iter().position(String::is_empty).unwrap();
    let findings = &lines[title + 1..end];
    let severities: Vec<&str> = findings.iter().filter_map(|line| line.split_whitespace().nth(2)).collect();
    let is_severe = |word: &&&str| **word == "HIGH";
    assert_eq!(severities.iter().take_while(is_severe).count(), 3, "one for each worm: {findings:?}");
    assert_eq!(severities.iter().filter(is_severe).count(), 3);
    assert!(
        findings[0].contains("worm: Signature of a worm")
            && findings[0].contains("[filter: vlan and tcp and host ")
    );
    assert!(findings.len() > 3 && findings.len() <= 21, "{findings:?}");
    // Tables of findings are printed if they are asked for.
    let ended =
        run(["run", "-r", capture.to_str().unwrap(), "-m", "worm", "--stream", "findings"]).succeeds();
    assert!(ended.text().starts_with("worm.findings: "), "{}", ended.text());
    // With all rows, findings come as they are found.
    let ended = run(["run", "-r", capture.to_str().unwrap(), "-m", "worm", "--rows", "all"]).succeeds();
    assert_eq!(
        ended.text().lines().filter(|line| line.starts_with("finding  ")).count(),
        3,
        "{}",
        ended.text()
    );
}

#[test]
fn the_first_rows_of_a_stream_come_before_the_summary() {
    let (_folder, capture) = capture(20_000);
    let ended = run(["run", "-r", &capture, "-m", "port-count,ports=53"]).succeeds();
    let lines = lines(&ended);
    // 20 s of packets, and one row for each second.
    assert!(lines[0].starts_with("port-count.counts: one row for each interval"), "{lines:?}");
    assert!(lines[1].contains("to packets") && lines[1].contains("to bytes"), "{lines:?}");
    assert!(lines[2].starts_with("2023-11-14 22:13:20.000000") && lines[2].contains("  53  "), "{lines:?}");
    assert_eq!(lines[12], "… 10 more rows, --rows all or --out DIR");
    assert!(lines[14].starts_with("port-count.totals: "), "{lines:?}");
    assert!(lines[16].trim_start().starts_with("53  "), "{lines:?}");
    assert_eq!(lines[17], "");
    assert!(lines[18].contains("20000 packets"), "{lines:?}");
    assert!(lines.iter().all(|line| line.trim_end() == line));
}

#[test]
fn rows_and_stream_choose_what_is_printed() {
    let (_folder, capture) = capture(5_000);
    let count = |arguments: &[&str]| {
        let ended =
            run(["run", "-r", &capture, "-m", "trajectory,one-in=2"].iter().chain(arguments)).succeeds();
        let lines = lines(&ended);
        let rows = |title: &str| {
            let start = lines.iter().position(|line| line.starts_with(title))?;
            Some(lines[start + 2..].iter().take_while(|line| line.starts_with("2023-")).count())
        };
        (rows("trajectory.samples: "), rows("trajectory.flows: "))
    };
    assert_eq!(count(&[]), (Some(10), Some(10)));
    assert_eq!(count(&["--rows", "3"]), (Some(3), Some(3)));
    assert_eq!(count(&["--rows", "3", "--stream", "flows"]), (None, Some(3)));
    assert_eq!(count(&["--rows", "0"]), (None, None));
    let all =
        run(["run", "-r", &capture, "-m", "trajectory,one-in=2", "--rows", "all", "--stream", "samples"]);
    let document = run(["run", "-r", &capture, "-m", "trajectory,one-in=2", "--json"]).succeeds().json();
    let samples = number(&module(&document, "trajectory")["streams"][0], "rows");
    let printed = lines(&all.succeeds()).iter().filter(|line| line.starts_with("2023-")).count();
    assert!(samples > 1_000 && printed as u64 == samples, "{printed} of {samples}");
}

#[test]
fn many_streams_give_way_to_the_overview_or_are_printed_by_five_rows_of_the_first_of_each_module() {
    let (_folder, capture) = capture(20_000);
    let overview = lines(&run(["run", "-r", &capture]).succeeds());
    assert!(!overview.iter().any(|line| line.starts_with("flows.closed")), "{overview:?}");
    assert!(overview.iter().any(|line| line.starts_with("talkers, by their share")), "{overview:?}");
    // These modules feed no overview.
    let modules = ["port-count", "trajectory", "rtt", "worm"].iter().flat_map(|name| ["-m", name]);
    let lines = lines(&run(["run", "-r", &capture].into_iter().chain(modules)).succeeds());
    let titles: Vec<&str> = lines.iter().filter_map(|line| Some(line.split_once(": ")?.0)).collect();
    for title in ["port-count.counts", "trajectory.samples"] {
        assert!(titles.contains(&title), "{titles:?}");
    }
    assert!(!titles.contains(&"port-count.totals") && !titles.contains(&"trajectory.flows"), "{titles:?}");
    let start = lines.iter().position(|line| line.starts_with("trajectory.samples")).unwrap();
    assert!(lines[start + 6].starts_with("2023-") && lines[start + 7].starts_with("… "), "{lines:?}");
}

#[test]
fn json_lines_and_csv_have_the_rows_of_the_record_files_and_nothing_else() {
    let (folder, capture) = capture(20_000);
    let out = folder.path().join("out").to_str().unwrap().to_owned();
    let arguments = ["run", "-r", &capture, "-m", "port-count,ports=53,ports=123", "--out", &out];
    let ended = run(arguments.iter().chain(&["--format", "json"])).succeeds();
    let rows: Vec<Value> = lines(&ended).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(ended.stderr.contains("20000 packets"), "the summary is on standard error: {}", ended.stderr);
    let of = |stream: &str| rows.iter().filter(|row| row["stream"] == stream).count();
    assert_eq!((of("counts"), of("totals"), rows.len()), (40, 2, 42));
    assert_eq!(rows[0]["module"], "port-count");
    assert_eq!(rows[0]["time"], "2023-11-14T22:13:20.000000000Z");
    // The same rows by pyarrow, where it is installed.
    if let Some(python) = crate::run::outside::python(&["pyarrow"]) {
        let script = "import sys, json, pyarrow.parquet as p\n\
            for r in p.read_table(sys.argv[1]).drop_columns(['time']).to_pylist(): print(json.dumps(r))";
        let file = format!("{out}/port-count/counts.parquet");
        let theirs = crate::run::outside::output(Command::new(python).args(["-c", script, &file]));
        let theirs: Vec<Value> = theirs.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let ours: Vec<Value> = rows.iter().filter(|row| row["stream"] == "counts").cloned().collect();
        for (ours, theirs) in ours.iter().zip(&theirs) {
            for (name, value) in theirs.as_object().unwrap() {
                assert_eq!(&ours[name], value, "{name}");
            }
        }
        assert_eq!(ours.len(), theirs.len());
    }
    let arguments = ["run", "-r", &capture, "-m", "port-count,ports=53,ports=123", "--format", "csv"];
    let csv = lines(&run(arguments.iter().chain(&["--stream", "port-count.totals"])).succeeds());
    assert_eq!(csv[0], "port,to_packets,to_bytes,from_packets,from_bytes");
    assert_eq!(csv.len(), 3);
    assert!(csv[1].starts_with("53,14000,"), "{csv:?}");
    // A summary file takes the place of the summary on standard error.
    let file = folder.path().join("summary.json").to_str().unwrap().to_owned();
    let ended = run(arguments.iter().chain(&["--stream", "totals", "--summary", &file])).succeeds();
    assert_eq!(ended.stderr, "");
    let summary: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(summary["capture"]["packets"], 20_000);
}

#[test]
fn wrong_choices_of_rows_are_usage_errors_that_name_the_streams() {
    let (_folder, capture) = capture(10);
    let wrong = |arguments: &[&str], says: &[&str]| {
        let ended = run(["run", "-r", &capture].iter().chain(arguments)).fails(2, says);
        assert_eq!(ended.text(), "");
    };
    let both = ["-m", "port-count", "-m", "rtt", "--format", "csv"];
    wrong(&both, &["one stream", "port-count.counts, port-count.totals, rtt.rtts"]);
    wrong(&["-m", "rtt", "--stream", "rttx"], &["no module", "`rttx`", "rtt.rtts"]);
    wrong(&["-m", "rtt", "--stream", "rtt.x"], &["no module", "`rtt.x`"]);
    wrong(&["-m", "rtt", "-m", "rtt", "--stream", "rtts"], &["several modules", "rtt.rtts, rtt-2.rtts"]);
    wrong(&["-m", "rtt", "--rows", "some"], &["a number of rows, or all"]);
    wrong(&["-m", "rtt", "--format", "xml"], &["table, json, csv"]);
    wrong(&["-m", "rtt", "--format", "json", "--json"], &["--json", "--format"]);
    wrong(&["-m", "rtt", "--format", "json", "-w", "-"], &["-w -", "--format"]);
}

#[test]
fn standard_input_and_a_packet_count_work_with_rows() {
    let packets = pcap(&traffic(5_000));
    let arguments = ["run", "-r", "-", "-m", "trajectory,one-in=1", "--format", "csv", "--stream", "samples"];
    let all = run_with(&packets, arguments).succeeds();
    assert_eq!(lines(&all).len(), 5_001);
    let some = run_with(&packets, arguments.iter().chain(&["-c", "100", "udp"])).succeeds();
    assert_eq!(lines(&some).len(), 101);
}

/// Texts that would set a colour, begin a new line, change the direction of writing, begin markup or a formula.
#[test]
fn hostile_texts_of_modules_stay_on_their_line_in_every_format() {
    let (folder, capture) = capture(10);
    for (index, text) in
        [r"\1b[m", r"a\0ab", r"\e2\80\ae", r"<b>", r"=1+", r"\ff\fe\00", r"a\9bm", r#"a\22,"#]
            .into_iter()
            .enumerate()
    {
        let module = texts(&folder, &format!("m{index}"), text);
        for format in ["table", "json", "csv"] {
            let arguments = ["run", "-r", &capture, "-m", &module, "--stream", "texts", "--format", format];
            let ended = run(arguments).succeeds();
            let out = String::from_utf8(ended.stdout.clone()).unwrap();
            assert!(!has_controls(&out), "{text} as {format}: {out:?}");
            let heading = if format == "table" { 2 } else { usize::from(format == "csv") };
            assert_eq!(out.lines().count(), 10 + heading, "{text} as {format}: {out:?}");
            if format == "json" {
                let row: Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
                assert!(row["text"].is_string());
            }
        }
    }
}

#[test]
fn a_run_ends_quietly_when_the_reader_of_its_rows_has_enough() {
    // The writer of the capture never ends, so only the reader can end the run.
    for format in ["table", "json", "csv"] {
        let mut child = piped(weir().args([
            "run",
            "-r",
            "-",
            "-m",
            "trajectory,one-in=1",
            "--stream",
            "samples",
            "--format",
            format,
        ]));
        let mut input = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || {
            let packet = |i: u64| Packet { ts_ns: BEGIN_NS, bytes: udp(1, 53, &i.to_le_bytes()) };
            let packets: Vec<Packet> = (0..1_000).map(packet).collect();
            let whole = pcap(&packets);
            let (header, body) = whole.split_at(24);
            let mut written = input.write_all(header);
            while written.is_ok() {
                written = input.write_all(body);
            }
        });
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(!line.is_empty());
        drop(reader);
        let ended = ended(child, "weir run | head -1", Instant::now());
        writer.join().unwrap();
        assert_eq!((ended.status.code(), ended.stderr.as_str()), (Some(0), ""), "{format}");
    }
}

#[test]
fn a_run_with_other_results_goes_on_without_the_reader_of_its_rows() {
    let (folder, capture) = capture(50_000);
    let out = folder.path().join("out");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = weir()
        .args(["run", "-r", &capture, "-m", "trajectory,one-in=1", "--format", "json", "--out"])
        .arg(&out)
        .stdout(writer)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let all = folder.path().join("all");
    run(["run", "-r", &capture, "-m", "trajectory,one-in=1", "--out", all.to_str().unwrap()]).succeeds();
    assert!(contents(&out) == contents(&all), "the files are complete");
}

#[test]
fn rows_that_standard_output_cannot_take_fail_the_run() {
    let Ok(full) = fs::OpenOptions::new().write(true).open("/dev/full") else { return };
    let (_folder, capture) = capture(5_000);
    let output = weir()
        .args(["run", "-r", &capture, "-m", "trajectory,one-in=1", "--format", "json"])
        .stdout(full)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("standard output: No space left"), "{stderr}");
}

#[test]
fn two_runs_into_one_folder_never_mix_their_results() {
    let (folder, capture) = capture(1_000);
    let out = folder.path().join("out").to_str().unwrap().to_owned();
    run(["run", "-r", &capture, "-m", "port-count", "--out", &out]).succeeds();
    let before = contents(Path::new(&out));
    // Another module's files would lie beside those of the first run.
    for name in ["port-count", "rtt"] {
        let says = [out.as_str(), "results of an earlier run", ".parquet", "choose another folder"];
        run(["run", "-r", &capture, "-m", name, "--out", &out]).fails(1, &says);
        assert!(contents(Path::new(&out)) == before);
    }
    // A run that waits for its input holds the folder.
    let other = folder.path().join("other").to_str().unwrap().to_owned();
    let arguments =
        ["run", "-r", "-", "-m", "port-count,ports=53", "--stream", "counts", "--format", "json", "--out"];
    let mut child = piped(weir().args(arguments).arg(&other));
    let mut input = child.stdin.take().unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    // A pipe is read in blocks, so there is enough for several.
    let packet = |i: u64| Packet { ts_ns: BEGIN_NS + i * 1_000_000, bytes: tcp(1, 2, &[0; 1_000]) };
    let begin: Vec<Packet> = traffic(3_000).into_iter().chain((3_000..9_000).map(packet)).collect();
    let feeding = std::thread::spawn(move || input.write_all(&pcap(&begin)).map(|()| input).unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let says = [other.as_str(), "another run writes its results to this folder"];
    run(["run", "-r", &capture, "-m", "rtt", "--out", &other]).fails(1, &says);
    drop(feeding.join().unwrap());
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut reader, &mut rest).unwrap();
    ended(child, "weir run -r -", Instant::now()).succeeds();
    assert!(Path::new(&other).join("port-count/counts.parquet").is_file());
}

#[test]
fn an_aborted_run_leaves_no_report_under_its_name() {
    let (folder, capture) = capture(1_000);
    let report = folder.path().join("report.html");
    fs::write(&report, "mine").unwrap();
    let spin = write(folder.path(), "spin", &at_packet(10, "(loop (br 0))")).to_str().unwrap().to_owned();
    let patient = folder.path().join("patient.toml");
    fs::write(&patient, "packet = '10m'").unwrap();
    let mut child = weir()
        .args(["run", "-r", &capture, "-m", &spin, "--call-limit", "10m", "--profile"])
        .arg(&patient)
        .arg("--report")
        .arg(&report)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let part = folder.path().join("report.html.part");
    while !part.exists() {
        assert_eq!(child.try_wait().unwrap(), None);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    // Another run cannot write the same report.
    let says = ["report.html", "another run writes to this file"];
    run(["run", "-r", &capture, "-m", "rtt", "--report", report.to_str().unwrap()]).fails(1, &says);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(fs::read_to_string(&report).unwrap(), "mine");
    // The next run takes over the unfinished file. A link in the report's place is replaced, and not followed.
    let target = folder.path().join("target");
    fs::write(&target, "theirs").unwrap();
    fs::remove_file(&report).unwrap();
    std::os::unix::fs::symlink(&target, &report).unwrap();
    let ended = run(["run", "-r", &capture, "-m", "rtt", "--report", report.to_str().unwrap()]).succeeds();
    assert!(ended.text().ends_with("report.html (report)\n"), "{}", ended.text());
    assert!(fs::read_to_string(&report).unwrap().ends_with("</html>\n"));
    assert_eq!(fs::read_to_string(&target).unwrap(), "theirs");
    assert!(!part.exists());
}
