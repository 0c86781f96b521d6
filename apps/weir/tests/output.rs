//! Tests of the output of `weir run`: the summary, record files, the report and packet captures, also when they cannot be written.

mod signals;
mod unfinished;

use crate::run;
use crate::run::module::{at_packet, write, write_as};
use crate::run::packets::{Packet, pcap, pcapng, read_pcap, traffic};
use crate::run::process::{counts, finish, module, number, without_times};
use crate::run::{contents, outside, run, run_with, traces, weir};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A temporary folder with a capture in it.
struct Bench {
    folder: TempDir,
    capture: String,
}

impl Bench {
    fn new(packets: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let capture = folder.path().join("capture.pcap");
        fs::write(&capture, pcap(&traffic(packets))).unwrap();
        Self { capture: capture.to_str().unwrap().to_owned(), folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// Runs `weir run -r CAPTURE ARGUMENTS`.
    fn run(&self, arguments: &[&str]) -> run::process::Ended {
        run(["run", "-r", &self.capture].iter().chain(arguments))
    }
}

fn keys(object: &Value) -> BTreeSet<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn the_json_document_has_the_documented_fields_and_no_others() {
    let bench = Bench::new(100);
    let ended =
        bench.run(&["--json", "-m", "port-count", "-m", "dscp-mark", "--out", &bench.path("out")]).succeeds();
    // The output of a filter is lost without -w.
    assert!(ended.stderr.starts_with("weir: warning: dscp-mark: ") && ended.stderr.contains("-w FILE"));
    assert_eq!(ended.stderr.lines().count(), 1);
    let marked = bench.run(&["--json", "-m", "dscp-mark", "-w", &bench.path("marked.pcap")]).succeeds();
    assert_eq!(marked.stderr, "");
    let written = &marked.json()["written"];
    assert_eq!(keys(written), ["path", "packets", "bytes", "times_out_of_range", "files"].into());
    assert_eq!(keys(&written["files"][0]), ["path", "packets", "bytes"].into());
    let document = ended.json();
    assert_eq!(keys(&document), ["schema_version", "weir_version", "failure", "capture", "modules"].into());
    let capture = [
        "files",
        "packets",
        "bytes",
        "duration_ns",
        "truncated",
        "interrupted",
        "tcp",
        "udp",
        "ipv6",
        "tcp_syn",
    ];
    assert_eq!(keys(&document["capture"]), capture.into());
    let of_module =
        ["name", "packets", "records", "dropped_records", "faults", "ns_per_packet", "cycles_per_packet"];
    let of_module: BTreeSet<&str> = of_module
        .into_iter()
        .chain(["memory_bytes", "ended", "streams", "tier", "tier_reason", "exceeded", "strikes"])
        .chain(["first_faults", "lost_packets", "back_end"])
        .collect();
    for module in document["modules"].as_array().unwrap() {
        assert_eq!(keys(module), of_module);
        for stream in module["streams"].as_array().unwrap() {
            assert_eq!(keys(stream), ["name", "rows", "times_out_of_range", "path"].into());
            assert!(Path::new(stream["path"].as_str().unwrap()).is_file());
        }
        let rows: u64 =
            module["streams"].as_array().unwrap().iter().map(|stream| number(stream, "rows")).sum();
        assert_eq!(rows, number(module, "records"));
        assert!(module["ns_per_packet"].as_f64().unwrap() > 0.0 && number(module, "memory_bytes") >= 65_536);
    }
    assert_eq!(counts(&document), [100, 20, 80, 0, 10]);
    let bytes: usize = traffic(100).iter().map(|packet| packet.bytes.len()).sum();
    assert_eq!(number(&document["capture"], "bytes"), u64::try_from(bytes).unwrap());
    assert_eq!(number(&document["capture"], "duration_ns"), 99_000_000);
    // Without --out, rows are counted, and `path` is null.
    let document = bench.run(&["--json", "-m", "port-count"]).succeeds().json();
    assert_eq!(module(&document, "port-count")["streams"][1]["path"], Value::Null);
    // With no packets, per-packet values are null.
    let document = bench.run(&["--json", "-m", "port-count", "icmp"]).succeeds().json();
    assert_eq!(module(&document, "port-count")["ns_per_packet"], Value::Null);
}

/// The last second of classic pcap is 2106-02-07T06:28:15Z, and the last timestamp of a record is 2262-04-11T23:47:16.854775807Z.
#[test]
fn times_that_a_file_cannot_hold_are_counted_in_the_summary_and_the_report() {
    const PCAP_ENDS: u64 = (1 << 32) * 1_000_000_000;
    const RECORDS_END: u64 = 1 << 63;
    let bench = Bench::new(1);
    let bytes = traffic(1)[0].bytes.clone();
    let packet = |ts_ns| (0, Packet { ts_ns, bytes: bytes.clone() });
    let times = [1, PCAP_ENDS - 1, PCAP_ENDS, RECORDS_END - 1, RECORDS_END, u64::MAX];
    let capture = bench.path("late.pcapng");
    fs::write(&capture, pcapng(&[1], &times.map(packet))).unwrap();
    // Emits the timestamp of each packet, and sends a copy of the packet.
    let module = write_as(
        bench.folder.path(),
        "times",
        r#"(func (export "weir_packet") (param $d i32) (result i32)
            (i64.store (i32.const 64) (i64.load (local.get $d)))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
            (drop (call $send (i32.const 0) (i32.const 0) (i32.const 60)))
            (i32.const 0))"#,
        "name = 'times'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\nmemory = '2 MiB'\n\
         [[stream]]\nname = 'rows'\n[[stream.field]]\nname = 'time'\ntype = 'timestamp'\n\
         [[output]]\nname = 'copies'\n",
    );
    let (module, out, page) = (module.to_str().unwrap(), bench.path("out"), bench.path("report.html"));
    let go = |written: &str, more: &[&str]| {
        _ = fs::remove_dir_all(&out);
        let arguments =
            ["run", "-r", &capture, "-m", module, "--out", &out, "-w", written, "--report", &page];
        run(arguments.iter().chain(more)).succeeds()
    };
    let in_rows = "weir: warning: times: 2 times in the rows of `rows` are after 2262-04-11";
    let sent = "weir: warning: times: 4 frames of output `copies` are later than 2106-02-07";
    for (name, late) in [("late.pcap", 4), ("late-too.pcapng", 0)] {
        let written = bench.path(name);
        let ended = go(&written, &["--json"]);
        let document = ended.json();
        let found = [
            &document["written"],
            &document["modules"][0]["streams"][0],
            &document["modules"][0]["outputs"][0],
        ];
        assert_eq!(found.map(|part| number(part, "times_out_of_range")), [late, 2, 4]);
        assert_eq!(number(&document["written"], "packets"), 6);
        let of_packets = format!("4 packets in {written} are later than 2106-02-07");
        let report = fs::read_to_string(&page).unwrap();
        for said in [ended.stderr.as_str(), report.as_str(), go(&written, &[]).stderr.as_str()] {
            assert_eq!(said.contains(&of_packets), late > 0, "{said}");
            let said = said.replace("&#39;", "'");
            let said = said.as_str();
            assert!(said.contains(in_rows.rsplit(": ").next().unwrap()), "{said}");
            assert!(said.contains(sent.rsplit(": ").next().unwrap()), "{said}");
        }
        assert!(ended.stderr.contains(in_rows) && ended.stderr.contains(sent), "{}", ended.stderr);
    }
    let written = read_pcap(&fs::read(bench.path("late.pcap")).unwrap());
    let seconds: Vec<u64> = written.iter().map(|packet| packet.ts_ns / 1_000_000_000).collect();
    let last = u64::from(u32::MAX);
    assert_eq!(seconds, [0, last, last, last, last, last]);
    // Without such a timestamp there is no warning.
    fs::remove_dir_all(&out).unwrap();
    let ended = run(["run", "-r", &bench.capture, "-m", module, "--out", &out]).succeeds();
    assert_eq!(ended.stderr, "");
}

#[test]
fn the_table_has_the_values_of_the_json_document() {
    let bench = Bench::new(1_000);
    let out = bench.path("out");
    let ended = bench.run(&["-m", "port-count", "-m", "rtt", "--out", &out]).succeeds();
    let text = ended.text();
    assert!(
        text.contains("1000 packets") && text.contains("(200 TCP, 800 UDP, 0 IPv6, 100 TCP SYN)"),
        "{text}"
    );
    let heading = "MODULE TIER PACKETS RECORDS NOT TAKEN FAULTS NS/PACKET CYCLES/PACKET MEMORY";
    let squeezed: Vec<String> =
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert!(squeezed.iter().any(|line| line == heading), "{text}");
    // The second column is the tier.
    let row = |name: &str| {
        let words = squeezed.iter().map(|line| line.split(' ').collect::<Vec<_>>());
        words.into_iter().find(|words| words[0] == name).unwrap()[2..].join(" ")
    };
    // port-count emits rows for one interval, and at the stop.
    assert!(row("port-count").starts_with("1000 4 0 0 "), "{text}");
    assert!(row("rtt").starts_with("1000 0 0 0 "), "{text}");
    assert!(text.contains(&format!("{out}/port-count/totals.parquet (3 rows)")), "{text}");
}

const PARQUET: &str = "
import json, sys
reader, path = sys.argv[1:]
if reader == 'pandas':
    import pandas
    rows = pandas.read_parquet(path)[['port', 'to_packets', 'to_bytes']].values.tolist()
elif reader == 'duckdb':
    import duckdb
    rows = duckdb.sql(f\"select port, to_packets, to_bytes from '{path}'\").fetchall()
elif reader == 'datafusion':
    import datafusion
    context = datafusion.SessionContext()
    context.register_parquet('t', path)
    table = context.sql('select port, to_packets, to_bytes from t').to_pydict()
    rows = list(zip(*table.values()))
else:
    import pyarrow.parquet
    schema = pyarrow.parquet.read_schema(path)
    rows = [[field.name, str(field.type), (field.metadata or {}).get(b'unit', b'').decode()] for field in schema]
print(json.dumps([list(row) for row in rows]))
";

#[test]
fn record_files_are_read_by_pandas_duckdb_and_datafusion() {
    let bench = Bench::new(10_000);
    let document = bench
        .run(&["-m", "port-count,ports=53,123,9", "--json", "--out", &bench.path("out")])
        .succeeds()
        .json();
    let path = |stream: usize| {
        module(&document, "port-count")["streams"][stream]["path"].as_str().unwrap().to_owned()
    };
    let read = |python: &PathBuf, reader: &str, path: &str| -> Value {
        let printed = outside::output(Command::new(python).args(["-c", PARQUET, reader, path]));
        serde_json::from_str(&printed).unwrap()
    };
    // Of every ten packets, 7 go to port 53 with 8 bytes of payload, and 1 to port 123 with 48.
    let expected = serde_json::json!([[53, 7_000, 7_000 * 50], [123, 1_000, 1_000 * 90], [9, 0, 0]]);
    let mut by_port: Vec<Value> = expected.as_array().unwrap().clone();
    by_port.sort_by_key(|row| row[0].as_u64());
    for (reader, needs) in
        [("pandas", &["pandas", "pyarrow"][..]), ("duckdb", &["duckdb"]), ("datafusion", &["datafusion"])]
    {
        if let Some(python) = outside::python(needs) {
            let mut rows = read(&python, reader, &path(1)).as_array().unwrap().clone();
            rows.sort_by_key(|row| row[0].as_u64());
            assert_eq!(rows, by_port, "{reader}");
        }
    }
    if let Some(python) = outside::python(&["pyarrow"]) {
        let fields = read(&python, "schema", &path(0));
        assert_eq!(fields[0], serde_json::json!(["time", "timestamp[ns, tz=UTC]", "ns"]));
        assert_eq!(fields[2], serde_json::json!(["to_packets", "uint64", "packets"]));
        assert_eq!(fields[3], serde_json::json!(["to_bytes", "uint64", "bytes"]));
    }
}

#[test]
fn the_report_is_one_page_that_loads_no_other_file() {
    let bench = Bench::new(5_000);
    let page = bench.path("report.html");
    bench.run(&["--report", &page]).succeeds();
    let sample = run::sample();
    for capture in [&bench.capture, sample.to_str().unwrap()] {
        run(["run", "-r", capture, "--report", &page]).succeeds();
        let html = fs::read_to_string(&page).unwrap();
        assert!(
            html.to_ascii_lowercase().starts_with("<!doctype html>") && html.trim_end().ends_with("</html>")
        );
        assert!(html.contains("<svg") && html.contains("flows") && html.contains("syn-flood"));
        // XML namespaces and the empty icon are the only URLs.
        let html =
            html.replace("http://www.w3.org/2000/svg", "").replace(r#"<link rel="icon" href="data:,">"#, "");
        for outside in
            ["http://", "https://", "src=", "<link", "@import", "url(http", "<script src", "<iframe", "file:"]
        {
            assert!(!html.contains(outside), "{outside} in the report of {capture}");
        }
    }
}

#[test]
fn the_traffic_tables_of_the_report_are_the_same_for_any_number_of_threads() {
    let bench = Bench::new(20_000);
    let page = bench.path("report.html");
    let sample = run::sample();
    for capture in [&bench.capture, sample.to_str().unwrap()] {
        let traffic_with = |jobs: &str| {
            run(["run", "-r", capture, "-m", "port-count", "--report", &page, "--jobs", jobs]).succeeds();
            let html = fs::read_to_string(&page).unwrap();
            let traffic = html.split_once(r#"<section id="traffic""#).unwrap().1;
            traffic.split_once(r#"<section id="modul"#).unwrap().0.to_owned()
        };
        let one = traffic_with("1");
        for table in
            ["Hosts with most bytes", "Packets and bytes by protocol", "Conversations with most bytes"]
        {
            assert!(one.contains(table), "{table} of {capture}");
        }
        for jobs in ["2", "5"] {
            assert!(one == traffic_with(jobs), "{capture} with {jobs} threads");
        }
    }
}

#[test]
fn the_written_capture_has_the_packets_of_the_one_read() {
    let bench = Bench::new(3_000);
    let (pcap, pcapng) = (bench.path("copy.pcap"), bench.path("copy.pcapng"));
    let ended = bench.run(&["-m", "port-count", "-w", &pcap]).succeeds();
    assert!(ended.text().contains("copy.pcap: 3000 packets written"), "{}", ended.text());
    assert!(read_pcap(&fs::read(&pcap).unwrap()) == traffic(3_000));
    bench.run(&["-m", "port-count", "-w", &pcapng]).succeeds();
    let mut captures = vec![run::sample()];
    if let Some(traces) = traces::folder() {
        let some = ["formats/linktype-sll.pcap", "encap/vlan-mixed.pcap"];
        captures.extend(some.iter().map(|name| traces.join(name)));
    }
    if outside::has("capinfos") {
        for (file, format) in [(&pcap, "nsecpcap"), (&pcapng, "pcapng")] {
            let facts = outside::output(Command::new("capinfos").args(["-T", "-r", "-t", "-c", "-E", file]));
            assert_eq!(facts.split('\t').skip(1).collect::<Vec<_>>(), [format, "ether", "3000\n"]);
        }
    }
    if !outside::has("tshark") {
        return;
    }
    let told = |path: &Path| {
        let mut tshark = Command::new("tshark");
        tshark.args([
            "-n",
            "-T",
            "fields",
            "-e",
            "frame.time_epoch",
            "-e",
            "frame.len",
            "-e",
            "frame.cap_len",
        ]);
        outside::output(tshark.args(["-e", "frame.protocols", "-e", "_ws.col.Info", "-r"]).arg(path))
    };
    for capture in captures {
        let original = told(&capture);
        for output in [&pcap, &pcapng] {
            run(["run", "-m", "port-count", "-w", output, "-r"]
                .map(Path::new)
                .into_iter()
                .chain([&*capture]))
            .succeeds();
            assert!(told(Path::new(output)) == original, "{} as {output}", capture.display());
        }
    }
}

#[test]
fn with_packets_on_standard_output_the_summary_is_on_standard_error() {
    let bench = Bench::new(2_000);
    let ended = bench.run(&["-m", "port-count", "-w", "-"]).succeeds();
    assert!(read_pcap(&ended.stdout) == traffic(2_000));
    assert!(ended.stderr.contains("MODULE") && ended.stderr.contains("port-count"));
    let ended = bench.run(&["-m", "port-count", "-w", "-", "--json"]).succeeds();
    assert!(read_pcap(&ended.stdout) == traffic(2_000));
    let document: Value = serde_json::from_str(&ended.stderr).unwrap();
    assert_eq!(counts(&document)[0], 2_000);
    // Reads from a pipe and writes to a pipe.
    let ended =
        run_with(&pcap(&traffic(2_000)), ["run", "-r", "-", "-m", "port-count", "-w", "-"]).succeeds();
    assert!(read_pcap(&ended.stdout) == traffic(2_000));
}

/// Writes a filter that drops the packets whose number is divisible by `drops`, and sets the TTL of the others.
fn marker(bench: &Bench, name: &str, drops: &str, ttl: u8) -> String {
    let body = format!(
        r#"(func (export "weir_packet") (param $d i32) (result i32)
            (i32.store8 (i32.const 64) (i32.const {ttl}))
            (if (call $patch (local.get $d) (i32.const 22) (i32.const 64) (i32.const 1)) (then (unreachable)))
            (i32.rem_u (i32.load offset=60 (local.get $d)) (i32.const {drops}))
            (i32.eqz))"#
    );
    let manifest = format!("kind = 'filter'\n{}", run::module::MANIFEST.replace("NAME", name));
    write_as(bench.folder.path(), name, &body, &manifest).to_str().unwrap().to_owned()
}

#[test]
fn patches_of_two_modules_are_applied_in_their_order() {
    let bench = Bench::new(1_200);
    let (even, third) = (marker(&bench, "even", "2", 7), marker(&bench, "third", "3", 9));
    let written = |first: &str, second: &str| {
        let output = bench.path("out.pcap");
        let ended = bench.run(&["-m", first, "-m", second, "-w", &output, "--json"]).succeeds();
        for module in ended.json()["modules"].as_array().unwrap() {
            // Each module gets all packets.
            assert_eq!((number(module, "packets"), number(module, "faults")), (1_200, 0));
        }
        read_pcap(&fs::read(output).unwrap())
    };
    let expected = |ttl: u8| -> Vec<Packet> {
        let kept = traffic(1_200).into_iter().enumerate().filter(|(i, _)| i % 2 != 0 && i % 3 != 0);
        let patch = |(_, mut packet): (usize, Packet)| {
            packet.bytes[22] = ttl;
            // Computes the header checksum from all words (RFC 1071).
            packet.bytes[24..26].fill(0);
            let words = packet.bytes[14..34].chunks(2).map(|c| u32::from(u16::from_be_bytes([c[0], c[1]])));
            let sum: u32 = words.sum();
            let checksum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
            packet.bytes[24..26].copy_from_slice(&checksum.to_be_bytes());
            packet
        };
        kept.map(patch).collect()
    };
    assert!(written(&even, &third) == expected(9), "the later one's write stays");
    assert!(written(&third, &even) == expected(7), "the later one's write stays");
    // dscp-mark sets Expedited Forwarding in every packet of 10.0.0.0/8.
    let output = bench.path("out.pcap");
    bench.run(&["-m", "dscp-mark,source=10.0.0.0/8,dscp=46", "-w", &output]).succeeds();
    let marked = read_pcap(&fs::read(&output).unwrap());
    assert!(marked.len() == 1_200 && marked.iter().all(|packet| packet.bytes[15] == 46 << 2));
}

#[test]
fn two_instances_of_a_module_get_different_names() {
    let bench = Bench::new(1_000);
    let out = bench.path("out");
    let ended = bench
        .run(&["-m", "port-count", "-m", "port-count,ports=123", "-m", "port-count", "--json", "--out", &out])
        .succeeds();
    let document = ended.json();
    let names: Vec<_> =
        document["modules"].as_array().unwrap().iter().map(|module| &module["name"]).collect();
    assert_eq!(names, ["port-count", "port-count-2", "port-count-3"]);
    assert_eq!(number(module(&document, "port-count-2"), "records"), 2);
    let files: Vec<String> = contents(Path::new(&out)).into_iter().map(|(name, _)| name).collect();
    let of = |label: &str| [format!("{label}/counts.parquet"), format!("{label}/totals.parquet")];
    assert_eq!(files, ["port-count-2", "port-count-3", "port-count"].map(of).concat());
}

#[test]
fn output_is_the_same_for_any_number_of_threads() {
    let bench = Bench::new(40_000);
    let marker = marker(&bench, "marker", "7", 3);
    let with = |jobs: &str| {
        let (out, written) = (bench.path("out"), bench.path("out.pcap"));
        let _ = fs::remove_dir_all(&out);
        let mut arguments = vec!["--json", "-j", jobs, "--out", &out, "-w", &written];
        for module in ["rtt", "trajectory", "syn-flood", "payload-match", &marker] {
            arguments.extend(["-m", module]);
        }
        let mut document = without_times(bench.run(&arguments).succeeds().json());
        for module in document["modules"].as_array_mut().unwrap() {
            // Memory depends on the number of instances.
            module.as_object_mut().unwrap().remove("memory_bytes");
        }
        (document, contents(Path::new(&out)), fs::read(&written).unwrap())
    };
    let one = with("1");
    for jobs in ["2", "3", "9"] {
        let other = with(jobs);
        assert_eq!(one.0, other.0, "--jobs {jobs}");
        assert!(one == other, "--jobs {jobs}");
    }
}

#[test]
fn a_full_disk_fails_the_run_with_a_message_that_names_the_file() {
    let bench = Bench::new(5_000);
    if !Path::new("/dev/full").exists() {
        let _ = writeln!(std::io::stderr(), "skipped: there is no /dev/full");
        return;
    }
    bench.run(&["-m", "port-count", "-w", "/dev/full"]).fails(1, &["/dev/full", "No space left"]);
    bench.run(&["-m", "port-count", "--report", "/dev/full"]).fails(1, &["/dev/full", "No space left"]);
    // The other output files are complete.
    let (out, page, written) = (bench.path("out"), bench.path("page.html"), bench.path("out.pcap"));
    let ended =
        bench.run(&["-m", "port-count", "--out", &out, "--report", "/dev/full", "-w", &written, "--json"]);
    let document = ended.fails(1, &["/dev/full"]).json();
    assert_eq!(number(module(&document, "port-count"), "packets"), 5_000);
    assert!(read_pcap(&fs::read(&written).unwrap()) == traffic(5_000));
    assert_eq!(contents(Path::new(&out)).len(), 2);
    let failed = bench.path("failed");
    let ended =
        bench.run(&["-m", "port-count", "-w", "/dev/full", "--out", &failed, "--report", &page, "--json"]);
    assert!(number(&ended.fails(1, &["/dev/full"]).json()["capture"], "packets") > 0);
    // The failed run keeps its records as unfinished files.
    let named =
        |end: &str| contents(Path::new(&failed)).iter().filter(|(name, _)| name.ends_with(end)).count();
    assert_eq!((named(".parquet"), named(".parquet.part")), (0, 2));
    assert!(contents(Path::new(&failed)).iter().all(|(_, bytes)| bytes.ends_with(b"PAR1")));
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("the run failed") && html.trim_end().ends_with("</html>"));
    let full = fs::File::create("/dev/full").unwrap();
    let status = weir().args(["run", "-r", &bench.capture, "-m", "rtt"]).stdout(full).output().unwrap();
    assert_eq!(status.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&status.stderr).contains("standard output: No space left"));
}

/// Writes a module that emits 64 incompressible rows per packet.
fn verbose(bench: &Bench) -> String {
    let body = r#"(global $n (mut i64) (i64.const 0))
        (func (export "weir_packet") (param $d i32) (result i32) (local $i i32)
            (local.set $i (i32.const 64))
            (loop
                (global.set $n (i64.add (global.get $n) (i64.const 1)))
                (i64.store (i32.const 64) (call $hash (i32.const 0) (i32.const 8) (global.get $n)))
                (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
                (br_if 0 (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
            (i32.const 0))"#;
    write(bench.folder.path(), "verbose", body).to_str().unwrap().to_owned()
}

#[test]
fn records_written_before_the_disk_was_full_can_be_read() {
    let bench = Bench::new(10_000);
    let (verbose, small, kept) = (verbose(&bench), bench.path("small"), bench.path("kept"));
    fs::create_dir(&small).unwrap();
    // Mounts 3 MiB of tmpfs in a private mount namespace, and copies its files out before the namespace ends.
    let script = r#"mount -t tmpfs -o size=3m none "$1" || exit 99
        "$2" run -r "$3" -m "$4" -m port-count --json --out "$1"; code=$?; cp -r "$1" "$5"; exit $code"#;
    let mut command = Command::new("unshare");
    command.args([
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        script,
        "sh",
        &small,
        env!("CARGO_BIN_EXE_weir"),
    ]);
    let ended = finish(command.args([&bench.capture, &verbose, &kept]), None);
    if ended.status.code() == Some(99) || ended.stderr.starts_with("unshare") {
        let _ = writeln!(std::io::stderr(), "skipped: no name spaces here: {}", ended.stderr);
        return;
    }
    let ended = ended.fails(1, &["verbose/rows.parquet", "the disk is full", "--out"]);
    assert!(number(module(&ended.json(), "verbose"), "records") > 128 << 10);
    // The other module's records are kept as unfinished files too, as the run did not read the whole capture.
    let others = contents(&Path::new(&kept).join("port-count"));
    assert!(others.len() == 2 && others.iter().all(|(name, _)| name.ends_with(".parquet.part")));
    let part = format!("{kept}/verbose/rows.parquet.part");
    assert!(Path::new(&part).is_file() && !Path::new(&format!("{kept}/verbose/rows.parquet")).exists());
    let Some(python) = outside::python(&["pyarrow"]) else { return };
    let count = "import sys, pyarrow.parquet as p; print(p.read_table(sys.argv[1]).num_rows)";
    let rows: u64 = outside::output(Command::new(python).args(["-c", count, &part])).trim().parse().unwrap();
    assert!(rows >= 128 << 10 && ended.stderr.contains(&rows.to_string()), "{rows}: {}", ended.stderr);
}

#[test]
fn a_limit_on_file_sizes_is_reported_like_a_full_disk() {
    let bench = Bench::new(50_000);
    let output = bench.path("out.pcap");
    // 4,096 blocks of 512 bytes. SIGXFSZ is ignored, as a shell may do.
    let script = r#"ulimit -f 4096; exec "$@""#;
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_weir"), "run", "--no-cache", "-r", &bench.capture]);
    let ended = finish(command.args(["-m", "port-count", "-w", &output]), None);
    ended.fails(1, &["out.pcap.part", "cannot be written at offset", "are a valid capture of"]);
    assert!(!Path::new(&output).exists(), "only what is complete has that name");
    let kept = read_pcap(&fs::read(format!("{output}.part")).unwrap());
    assert!(kept.len() > 1_000 && kept == traffic(50_000)[..kept.len()], "{}", kept.len());
}

#[test]
fn missing_output_folders_are_created() {
    let bench = Bench::new(10);
    let (page, out) = (bench.path("new/folder/page.html"), bench.path("another/new"));
    bench.run(&["-m", "port-count", "--report", &page, "--out", &out]).succeeds();
    assert!(fs::read_to_string(&page).unwrap().contains("port-count"));
    assert!(Path::new(&out).join("port-count/totals.parquet").is_file());
}

#[test]
fn outputs_that_cannot_be_written_are_refused_before_the_run() {
    let bench = Bench::new(10);
    let file = bench.path("file");
    fs::write(&file, b"mine").unwrap();
    let module = write(bench.folder.path(), "m", &at_packet(0, "")).to_str().unwrap().to_owned();
    let refused = |arguments: &[&str], says: &[&str]| {
        let ended = bench.run(&[&["-m", &module, "--json"], arguments].concat()).fails(1, says);
        assert_eq!(ended.text(), "", "nothing ran");
    };
    refused(&["--out", "/proc/nowhere"], &["/proc/nowhere", "--out"]);
    refused(&["--out", &file], &[&file, "--out"]);
    refused(&["-w", "/no/such/folder/out.pcap"], &["/no/such/folder/out.pcap", "cannot be created"]);
    refused(&["-w", bench.folder.path().to_str().unwrap()], &["cannot be created"]);
    // No records are begun when the capture or the report cannot be written.
    let out = bench.path("out");
    refused(&["--out", &out, "--report", "/proc/nowhere/page.html"], &["/proc/nowhere/page.html"]);
    refused(&["--out", &out, "-w", "/no/such/folder/out.pcap"], &["/no/such/folder/out.pcap"]);
    assert_eq!(contents(Path::new(&out)), []);
    // Files of an earlier run stay as they are.
    bench.run(&["-m", &module, "--out", &out]).succeeds();
    let before = contents(Path::new(&out));
    refused(&["--out", &out], &[&out, "results of an earlier run"]);
    assert!(contents(Path::new(&out)) == before);
    assert_eq!(fs::read(&file).unwrap(), b"mine");
}

#[test]
fn the_input_capture_is_never_overwritten() {
    let bench = Bench::new(10);
    let (hard, soft) = (bench.path("hard.pcap"), bench.path("soft.pcap"));
    fs::hard_link(&bench.capture, &hard).unwrap();
    std::os::unix::fs::symlink(&bench.capture, &soft).unwrap();
    let page = bench.path("page.html");
    bench
        .run(&["-m", "port-count", "-w", &page, "--report", &page])
        .fails(2, &[&page, "both -w and --report"]);
    for output in [&bench.capture, &hard, &soft] {
        let says = &[output, "is the capture that is being read"];
        bench.run(&["-m", "port-count", "--report", output]).fails(1, says);
        bench
            .run(&["-m", "port-count", "-w", output])
            .fails(1, &[output, "is the capture that is being read"]);
        assert!(read_pcap(&fs::read(&bench.capture).unwrap()) == traffic(10), "{output}");
    }
}

#[test]
fn a_killed_run_leaves_the_records_of_its_finished_row_groups() {
    let bench = Bench::new(20_000);
    let (verbose, out) = (verbose(&bench), bench.path("out"));
    let stuck = at_packet(9_000, "(loop (br 0))");
    let stuck = write(bench.folder.path(), "stuck", &stuck).to_str().unwrap().to_owned();
    let part = format!("{out}/verbose/rows.parquet.part");
    // Neither fuel nor the time limit ends the call early.
    let patient = bench.path("patient.toml");
    fs::write(&patient, "packet = '10m'").unwrap();
    let mut child = weir()
        .args([
            "run",
            "-r",
            &bench.capture,
            "-m",
            &verbose,
            "-m",
            &stuck,
            "--call-limit",
            "10m",
            "--profile",
            &patient,
            "--out",
            &out,
        ])
        .stderr(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    // 64 rows of 8 bytes for each of the 8,192 packets before the block in which the other module loops forever.
    let (mut len, mut since) = (0, Instant::now());
    while len < 2 << 20 || since.elapsed() < Duration::from_millis(300) {
        assert_eq!(child.try_wait().unwrap(), None, "it is over before it could be killed");
        let now = fs::metadata(&part).map_or(0, |part| part.len());
        if now != len {
            (len, since) = (now, Instant::now());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!Path::new(&format!("{out}/verbose/rows.parquet")).exists(), "only what is whole has that name");
    if let Some(python) = outside::python(&["pyarrow"]) {
        let count = "import sys, pyarrow.parquet as p; print(p.read_table(sys.argv[1]).num_rows)";
        let rows: u64 =
            outside::output(Command::new(python).args(["-c", count, &part])).trim().parse().unwrap();
        assert!((128 << 10..=8_192 * 64).contains(&rows), "{rows}");
    }
    // The next run can use the same folder.
    let again = ["-m", "port-count", "-m", &verbose, "--json", "--out", &out, "udp port 123"];
    let document = bench.run(&again).succeeds().json();
    assert_eq!(number(module(&document, "verbose"), "records"), 2_000 * 64);
    assert!(!Path::new(&part).exists() && Path::new(&format!("{out}/verbose/rows.parquet")).is_file());
}

/// Writes a module that sends the first 60 bytes of each UDP packet to one output, and the first 20 of every packet to another, twice. One call faults, and its frames are discarded.
pub fn sender(folder: &Path, parallel: &str) -> PathBuf {
    let manifest = format!(
        "kind = 'active'\nparallel = '{parallel}'\n{}[[output]]\nname = 'udp'\n[[output]]\nname = 'heads'\n",
        run::module::MANIFEST.replace("NAME", "sender")
    );
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
            (if (i32.and (i32.load offset=20 (local.get $d)) (i32.const 8))
                (then (drop (call $send (i32.const 0) (i32.load offset=8 (local.get $d)) (i32.load offset=12 (local.get $d))))))
            (drop (call $send (i32.const 1) (i32.load offset=8 (local.get $d)) (i32.const 20)))
            (drop (call $send (i32.const 1) (i32.load offset=8 (local.get $d)) (i32.const 20)))
            (if (i32.eq (i32.load offset=60 (local.get $d)) (i32.const 7)) (then (unreachable)))
            (i32.const 0))"#;
    write_as(folder, "sender", body, &manifest)
}

#[test]
fn frames_are_written_to_a_capture_per_output_for_any_number_of_threads() {
    let bench = Bench::new(1000);
    let sent = traffic(1000);
    let left: Vec<&Packet> =
        (0..).zip(&sent).filter(|(number, _)| *number != 7).map(|(_, packet)| packet).collect();
    let is_udp = |packet: &&&Packet| packet.bytes[23] == 17;
    for (jobs, parallel) in [("1", "none"), ("4", "none"), ("3", "flow")] {
        let module_path = sender(bench.folder.path(), parallel);
        let out = bench.path(&format!("out-{jobs}-{parallel}"));
        let arguments = ["--json", "-j", jobs, "-m", module_path.to_str().unwrap(), "--out", &out];
        let document = bench.run(&arguments).succeeds().json();
        let read = |name: &str| read_pcap(&fs::read(format!("{out}/sender/{name}.pcap")).unwrap());
        let udp: Vec<_> = left.iter().filter(is_udp).map(|packet| (packet.ts_ns, &packet.bytes)).collect();
        let found = read("udp");
        assert_eq!(found.iter().map(|packet| (packet.ts_ns, &packet.bytes)).collect::<Vec<_>>(), udp);
        let heads: Vec<_> = left.iter().flat_map(|packet| [&packet.bytes[..20]; 2]).collect();
        assert_eq!(read("heads").iter().map(|packet| packet.bytes.as_slice()).collect::<Vec<_>>(), heads);

        let outputs = module(&document, "sender")["outputs"].as_array().unwrap();
        assert_eq!(
            keys(&outputs[0]),
            ["name", "frames", "bytes", "times_out_of_range", "path", "interface"].into()
        );
        assert_eq!(number(&outputs[0], "frames"), udp.len() as u64);
        assert_eq!((number(&outputs[1], "frames"), number(&outputs[1], "bytes")), (2 * 999, 2 * 999 * 20));
        assert_eq!(number(module(&document, "sender"), "dropped_frames"), 0);
        assert!(!Path::new(&format!("{out}/sender/udp.pcap.part")).exists());
    }
}

#[test]
fn frames_that_are_not_sent_anywhere_are_counted_with_a_warning() {
    let bench = Bench::new(100);
    let path = sender(bench.folder.path(), "none");
    let ended = bench.run(&["-m", path.to_str().unwrap()]).succeeds();
    assert!(
        ended.stderr.contains("sender: 277 frames were not sent anywhere: --out DIR"),
        "{}",
        ended.stderr
    );
    assert!(ended.text().contains("sender, output heads: 198 frames, "), "{}", ended.text());
    // A symbolic link at the path where the capture is written first is not followed.
    let out = bench.path("out");
    let victim = bench.folder.path().join("victim");
    fs::create_dir_all(format!("{out}/sender")).unwrap();
    fs::write(&victim, "mine").unwrap();
    std::os::unix::fs::symlink(&victim, format!("{out}/sender/udp.pcap.part")).unwrap();
    bench.run(&["-m", path.to_str().unwrap(), "--out", &out]).succeeds();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
    let written = fs::symlink_metadata(format!("{out}/sender/udp.pcap")).unwrap();
    assert!(!written.is_symlink());
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&written) & 0o7777, 0o600);
}
