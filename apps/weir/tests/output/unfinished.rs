//! Tests of runs that fail, are killed or are refused: a file with its final name is complete, and every count is that of a file.

use super::{Bench, sender, verbose};
use crate::run::module::{at_packet, write};
use crate::run::net::wait_for;
use crate::run::packets::{Packet, pcap, pcapng, read_pcap, traffic};
use crate::run::process::{PROGRAM, ended, finish, number};
use crate::run::{contents, files_below, run, weir};
use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Returns the number of rows of a Parquet file, complete or not.
fn rows(path: &Path) -> u64 {
    let reader = SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap();
    u64::try_from(reader.metadata().file_metadata().num_rows()).unwrap()
}

/// Returns the packets of a capture, for which the disk may have had no room at all.
fn packets_in(path: &str) -> Vec<Packet> {
    let bytes = fs::read(path).unwrap();
    if bytes.is_empty() { Vec::new() } else { read_pcap(&bytes) }
}

/// Returns the relative paths of the files below a folder.
fn names(folder: &Path) -> Vec<String> {
    files_below(folder).into_iter().map(|(name, _)| name).collect()
}

/// Options for all kinds of output files, in the folder `all`.
fn all_outputs(bench: &Bench) -> Vec<String> {
    let module = sender(bench.folder.path(), "none");
    fs::create_dir_all(bench.path("all")).unwrap();
    let mut options = vec!["-m".to_owned(), module.to_str().unwrap().to_owned()];
    for (option, name) in
        [("--out", "out"), ("-w", "w.pcap"), ("--report", "r.html"), ("--summary", "s.json")]
    {
        options.extend([option.to_owned(), bench.path(&format!("all/{name}"))]);
    }
    options
}

const COMPLETE: [&str; 7] = [
    "out/sender/heads.pcap",
    "out/sender/rows.parquet",
    "out/sender/texts.parquet",
    "out/sender/udp.pcap",
    "r.html",
    "s.json",
    "w.pcap",
];

/// Asserts that a file is complete if it has a final name.
fn assert_complete(name: &str, path: &Path) {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("parquet") => _ = rows(path),
        Some("pcap") => _ = read_pcap(&fs::read(path).unwrap()),
        Some("html") => assert!(fs::read_to_string(path).unwrap().ends_with("</html>\n"), "{name}"),
        Some("json") => _ = serde_json::from_slice::<Value>(&fs::read(path).unwrap()).unwrap(),
        Some("part" | "wal") => {}
        _ => panic!("{name} is no output"),
    }
}

/// A run of a capture on standard input.
struct Piped(Child);

impl Piped {
    fn start<S: AsRef<std::ffi::OsStr>>(options: impl IntoIterator<Item = S>) -> Self {
        let mut command = weir();
        command.args(["run", "-r", "-"]).args(options).stdin(Stdio::piped());
        Self(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_killed_run_leaves_only_part_files_with_whole_packets() {
    let bench = Bench::new(0);
    let options = all_outputs(&bench);
    let packets = traffic(20_000);
    let mut killed = Piped::start(&options);
    let mut pipe = killed.0.stdin.take().unwrap();
    pipe.write_all(&pcap(&packets)).unwrap();
    let all = bench.folder.path().join("all");
    let part = all.join("w.pcap.part");
    let kept = || fs::read(&part).map_or(0, |bytes| bytes.len());
    // The kernel may end a write in the middle when the process is killed, so the run must not be writing then.
    wait_for(|| {
        let before = kept();
        std::thread::sleep(Duration::from_millis(200));
        before > 100_000 && kept() == before
    });
    killed.kill();
    drop(pipe);
    let left = names(&all);
    assert!(left.len() == COMPLETE.len() && left.iter().all(|name| name.ends_with(".part")), "{left:?}");
    let kept = read_pcap(&fs::read(&part).unwrap());
    assert!(kept.len() > 1_000 && kept == packets[..kept.len()]);
    // The unfinished capture can be read, but not while it is replaced.
    let part = part.to_str().unwrap();
    let document = run(["run", "-r", part, "-m", "rtt", "--json"]).succeeds().json();
    assert_eq!(number(&document["capture"], "packets"), kept.len() as u64);
    for option in ["-w", "--report", "--summary"] {
        run(["run", "-r", part, "-m", "rtt", option, part.strip_suffix(".part").unwrap()])
            .fails(1, &[part, "is the capture that is being read"]);
    }
    // A later run replaces them.
    let mut again = Piped::start(&options);
    again.0.stdin.take().unwrap().write_all(&pcap(&packets[..100])).unwrap();
    ended(again.0, "weir run -r -", Instant::now()).succeeds();
    assert_eq!(names(&all), COMPLETE);
    assert!(read_pcap(&fs::read(all.join("w.pcap")).unwrap()) == packets[..100]);
}

/// Kills runs at many moments. Whatever the moment is, a file is complete or has another name, and an earlier file is there.
#[test]
fn a_run_that_is_killed_at_any_time_leaves_no_incomplete_file_and_loses_no_finished_one() {
    let bench = Bench::new(30_000);
    let options = all_outputs(&bench);
    let all = bench.folder.path().join("all");
    let begin = Instant::now();
    bench.run(&options.iter().map(String::as_str).collect::<Vec<_>>()).succeeds();
    let whole = begin.elapsed();
    let remove_records = || _ = fs::remove_dir_all(all.join("out"));
    for part in 0..24 {
        remove_records();
        let mut command = weir();
        command.args(["run", "-r", &bench.capture]).args(&options);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Not a synchronisation: the moments differ, and each is right.
        std::thread::sleep(whole * part / 20);
        child.kill().unwrap();
        child.wait().unwrap();
        let left = files_below(&all);
        left.iter().for_each(|(name, path)| assert_complete(name, path));
        for earlier in ["r.html", "s.json", "w.pcap"] {
            assert!(left.iter().any(|(name, _)| name == earlier), "{earlier} of an earlier run is gone");
        }
        assert_eq!(read_pcap(&fs::read(all.join("w.pcap")).unwrap()).len(), 30_000);
    }
    remove_records();
    bench.run(&options.iter().map(String::as_str).collect::<Vec<_>>()).succeeds();
    assert_eq!(names(&all), COMPLETE);
}

#[test]
fn a_run_that_fails_keeps_its_results_as_part_files_and_those_of_an_earlier_run() {
    // Two link types, of which classic pcap has one for all packets.
    let bench = Bench::new(0);
    let packets = traffic(5_000);
    let mut mixed: Vec<(u32, Packet)> = packets.iter().map(|packet| (0, packet.clone())).collect();
    let raw = Packet { bytes: packets[0].bytes[14..].to_vec(), ..packets[4_999] };
    mixed.push((1, raw));
    fs::write(&bench.capture, pcapng(&[1, 101], &mixed)).unwrap();
    let faulty = write(bench.folder.path(), "faulty", &at_packet(4_000, "(unreachable)"));
    let faulty = ["-m", faulty.to_str().unwrap(), "--strict"];
    let options = all_outputs(&bench);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let all = bench.folder.path().join("all");
    for (more, status, says) in [(&[][..], 1, "w.pcap.part"), (&faulty[..], 3, "faulty")] {
        _ = fs::remove_dir_all(all.join("out"));
        fs::write(all.join("w.pcap"), "earlier").unwrap();
        // The module of `all_outputs` has a fault of its own, which would end the strict run first.
        let options = if status == 3 { &options[2..] } else { &options[..] };
        bench.run(&[options, more].concat()).fails(status, &[says]);
        assert_eq!(fs::read_to_string(all.join("w.pcap")).unwrap(), "earlier");
        let kept = read_pcap(&fs::read(all.join("w.pcap.part")).unwrap());
        assert!(kept == packets[..kept.len()]);
        let document: Value = serde_json::from_slice(&fs::read(all.join("s.json")).unwrap()).unwrap();
        assert_eq!(number(&document["written"], "packets"), kept.len() as u64);
        assert_eq!(document["written"]["path"], all.join("w.pcap.part").to_str().unwrap());
        assert!(document["failure"].as_str().unwrap().contains(says));
        let records = names(&all.join("out"));
        assert!(!records.is_empty() && records.iter().all(|name| name.ends_with(".part")), "{records:?}");
        if status == 1 {
            assert_eq!(kept.len(), 5_000);
        }
    }
}

#[test]
fn a_refused_run_leaves_no_part_file_and_changes_none_of_an_earlier_run() {
    let bench = Bench::new(10);
    let options = all_outputs(&bench);
    let all = bench.folder.path().join("all");
    let refused = |change: &dyn Fn(&str) -> Option<String>, says: &str| {
        let mut arguments = vec!["run".to_owned(), "-r".to_owned(), bench.capture.clone()];
        for pair in options.chunks(2) {
            let value = change(&pair[0]).unwrap_or_else(|| pair[1].clone());
            arguments.extend([pair[0].clone(), value]);
        }
        run(&arguments).fails(1, &[says]);
        let left = names(&all);
        assert!(
            left.iter().all(|name| !name.ends_with(".part") && !name.ends_with(".wal")),
            "{says}: {left:?}"
        );
    };
    for option in ["-w", "--report", "--summary", "--out"] {
        let bad = "/proc/nowhere/x.pcap";
        refused(&|name| (name == option).then(|| bad.to_owned()), "/proc/nowhere");
    }
    // pcapng begins with a header.
    for option in ["--report", "--summary"] {
        let change = |name: &str| match name {
            "-w" => Some(bench.path("all/w.pcapng")),
            name => (name == option).then(|| "/proc/nowhere/x".to_owned()),
        };
        refused(&change, "/proc/nowhere/x");
    }
    // The folder of a later module cannot be made, nor that of its frames.
    let out = all.join("out");
    fs::create_dir_all(&out).unwrap();
    fs::write(out.join("sender"), "mine").unwrap();
    let mut arguments = vec!["run".to_owned(), "-r".to_owned(), bench.capture.clone()];
    arguments.extend(["-m".to_owned(), "port-count".to_owned()]);
    arguments.extend(options.iter().cloned());
    run(&arguments).fails(1, &["out/sender", "is there and is not a folder"]);
    assert_eq!(names(&all), ["out/sender"]);
    fs::remove_file(out.join("sender")).unwrap();
    // One of its files cannot be made: a folder is in its place.
    fs::create_dir_all(out.join("sender/texts.parquet")).unwrap();
    run(&arguments).fails(1, &["texts.parquet"]);
    fs::remove_dir(out.join("sender/texts.parquet")).unwrap();
    fs::create_dir_all(out.join("sender/heads.pcap.part")).unwrap();
    run(&arguments).fails(1, &["heads.pcap.part"]);
    fs::remove_dir(out.join("sender/heads.pcap.part")).unwrap();
    assert_eq!(names(&all), [""; 0]);
    // Another run holds a file.
    let mut holder = Piped::start(["-m", "rtt", "--report", &bench.path("held.html")]);
    // The outputs are opened when the capture has begun.
    let pipe = holder.0.stdin.as_mut().unwrap();
    pipe.write_all(&pcap(&[])).unwrap();
    wait_for(|| Path::new(&bench.path("held.html.part")).exists());
    refused(&|name| (name == "--report").then(|| bench.path("held.html")), "another run writes to this file");
    holder.kill();
    // The remains of a killed run are not touched by a run that is refused.
    fs::write(all.join("w.pcap.part"), "killed").unwrap();
    fs::write(all.join("r.html.part"), "killed").unwrap();
    let with_bad_summary = options.iter().map(|option| {
        if option.ends_with("s.json") { "/proc/nowhere/s.json".to_owned() } else { option.clone() }
    });
    let read = ["run", "-r", &bench.capture].map(str::to_owned);
    run(read.iter().cloned().chain(with_bad_summary)).fails(1, &["/proc/nowhere/s.json"]);
    assert_eq!(names(&all), ["r.html.part", "w.pcap.part"]);
    assert!(contents(&all).iter().all(|(_, bytes)| bytes == b"killed"));
}

#[test]
fn two_options_cannot_name_one_file() {
    let bench = Bench::new(10);
    let file = bench.path("file");
    let options = ["-w", "--report", "--summary"];
    for (first, second) in [(0, 1), (0, 2), (1, 2)] {
        let (first, second) = (options[first], options[second]);
        let both = format!("both {first} and {second}");
        bench.run(&["-m", "rtt", second, &file, first, &file]).fails(2, &[&file, &both]);
    }
}

#[test]
fn the_summary_names_every_file() {
    let bench = Bench::new(1_000);
    let options = all_outputs(&bench);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let all = bench.folder.path().join("all");
    let text = bench.run(&options).succeeds().text().to_owned();
    assert_eq!(names(&all), COMPLETE);
    let summary = fs::read_to_string(all.join("s.json")).unwrap();
    for (_, path) in files_below(&all) {
        let path = path.to_str().unwrap();
        assert!(text.lines().any(|line| line.contains(path)), "{path} is not in the text: {text}");
        assert!(summary.contains(&format!("\"{path}\"")), "{path} is not in the document: {summary}");
    }
    assert!(text.contains("r.html (report)") && text.contains("s.json (summary)"), "{text}");
    // Both documents are the same.
    fs::remove_dir_all(all.join("out")).unwrap();
    let printed = bench.run(&[&options[..], &["--json"]].concat()).succeeds();
    assert_eq!(printed.text(), fs::read_to_string(all.join("s.json")).unwrap());
}

/// Runs `weir ARGUMENTS` with a file system on the folder `disk`, and copies the files in it to `kept`. Returns `None` if that is not permitted.
fn on_disk(bench: &Bench, options: &str, arguments: &[&str]) -> Option<crate::run::process::Ended> {
    let (disk, kept) = (bench.path("disk"), bench.path("kept"));
    fs::create_dir_all(&disk).unwrap();
    _ = fs::remove_dir_all(&kept);
    let script = r#"mount -t tmpfs -o "$1" none "$2" || exit 99
        disk="$2"; kept="$3"; shift 3; "$@"; code=$?; cp -r "$disk" "$kept"; exit $code"#;
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", script, "sh", options, &disk, &kept, PROGRAM]);
    command.envs(weir().get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ended = finish(command.args(arguments), None);
    if ended.status.code() == Some(99) || ended.stderr.starts_with("unshare") {
        let _ = writeln!(std::io::stderr(), "skipped: no name spaces here: {}", ended.stderr);
        return None;
    }
    Some(ended)
}

#[test]
fn on_a_full_disk_every_count_is_that_of_the_file_and_every_failed_file_is_named() {
    let bench = Bench::new(20_000);
    let (verbose, sender) = (verbose(&bench), sender(bench.folder.path(), "none"));
    let at = |name: &str| bench.path(&format!("disk/{name}"));
    let (out, written, summary) = (at("out"), at("w.pcap"), bench.path("summary.json"));
    let arguments = ["run", "-r", &bench.capture, "-m", &verbose, "-m", "port-count", "-m"];
    let arguments = [&arguments[..], &[sender.to_str().unwrap(), "--out", &out, "-w", &written]].concat();
    let arguments = [&arguments[..], &["--summary", &summary]].concat();
    let mut failed_kinds = std::collections::BTreeSet::new();
    // Other files fill the disk first in each case.
    for size in ["200k", "300k", "700k", "1m", "1500k", "1600k", "1700k", "2m", "3m", "5m", "9m"] {
        let Some(ended) = on_disk(&bench, &format!("size={size}"), &arguments) else { return };
        let stderr = ended.stderr.clone();
        let text = ended.text().to_owned();
        ended.fails(1, &[&at("")]);
        if !Path::new(&summary).exists() {
            // Not even the beginnings of the files fit.
            assert_eq!(text, "", "{size}: nothing ran");
            continue;
        }
        let document: Value = serde_json::from_slice(&fs::read(&summary).unwrap()).unwrap();
        fs::remove_file(&summary).unwrap();
        let kept = |path: &Value| path.as_str().unwrap().replacen(&at(""), &bench.path("kept/"), 1);
        let mut listed = Vec::new();
        for module in document["modules"].as_array().unwrap() {
            for stream in module["streams"].as_array().unwrap() {
                let path = kept(&stream["path"]);
                assert_eq!(number(stream, "rows"), rows(Path::new(&path)), "{size}: {path}: {stderr}");
                let line = format!("{} ({} rows)", stream["path"].as_str().unwrap(), number(stream, "rows"));
                assert!(text.contains(&line), "{line}: {text}");
                listed.push(path);
            }
            for output in module["outputs"].as_array().into_iter().flatten() {
                let path = kept(&output["path"]);
                let frames = packets_in(&path);
                assert_eq!(number(output, "frames"), frames.len() as u64, "{size}: {path}");
                let bytes: usize = frames.iter().map(|frame| frame.bytes.len()).sum();
                assert_eq!(number(output, "bytes"), bytes as u64, "{size}: {path}");
                listed.push(path);
            }
        }
        let path = kept(&document["written"]["path"]);
        let packets = packets_in(&path);
        assert!(packets == traffic(20_000)[..packets.len()]);
        assert_eq!(number(&document["written"], "packets"), packets.len() as u64, "{size}");
        let bytes = fs::metadata(&path).unwrap().len();
        assert_eq!(number(&document["written"], "bytes"), bytes, "{size}");
        listed.push(path);
        // The failed files are named, and all files are listed.
        let failed = document["failed_files"].as_array().unwrap();
        assert!(!failed.is_empty());
        for file in failed {
            let (path, error) = (file["path"].as_str().unwrap(), file["error"].as_str().unwrap());
            assert!(
                error.contains(path) && stderr.contains(error) && text.contains(error),
                "{error}: {stderr}"
            );
            assert!(listed.contains(&kept(&file["path"])), "{path}");
            failed_kinds.insert(path.rsplit('/').next().unwrap().to_owned());
        }
        assert_eq!(document["failure"], failed[0]["error"]);
        let mut found: Vec<String> = files_below(Path::new(&bench.path("kept")))
            .into_iter()
            .map(|(_, path)| path.display().to_string())
            .collect();
        found.sort();
        listed.sort();
        assert_eq!(found, listed, "{size}");
    }
    assert!(failed_kinds.contains("rows.parquet.part"), "{failed_kinds:?}");
}

#[test]
fn a_report_or_summary_that_does_not_fit_on_the_disk_is_named() {
    let bench = Bench::new(5_000);
    let at = |name: &str| bench.path(&format!("disk/{name}"));
    for option in ["--report", "--summary"] {
        // All monitors, of which even the summary is longer than a page.
        let arguments = ["run", "-r", &bench.capture, "--json", option, &at("file")];
        let Some(ended) = on_disk(&bench, "size=4k,nr_inodes=4", &arguments) else { return };
        let ended = ended.fails(1, &[&at("file"), "No space left"]);
        let document = ended.json();
        assert!(document["failure"].as_str().unwrap().contains(&at("file")));
        assert_eq!(document["failed_files"][0]["path"], at("file"));
        assert_eq!(document[option.trim_start_matches('-')], Value::Null);
        assert_eq!(names(Path::new(&bench.path("kept"))), [""; 0], "a part of it is of no use");
    }
}

#[test]
fn in_a_read_only_folder_each_kind_of_output_is_refused_by_name() {
    let bench = Bench::new(10);
    let module = sender(bench.folder.path(), "none");
    for option in ["-w", "--report", "--summary", "--out"] {
        let path = bench.path("disk/x.pcap");
        let arguments = ["run", "-r", &bench.capture, "-m", module.to_str().unwrap(), option, &path];
        let Some(ended) = on_disk(&bench, "ro", &arguments) else { return };
        let ended = ended.fails(1, &[&path, "Read-only file system"]);
        assert_eq!(ended.text(), "", "{option}: nothing ran");
    }
}

#[test]
fn a_link_in_the_place_of_a_complete_file_is_replaced_and_one_in_the_place_of_a_part_file_is_refused() {
    let bench = Bench::new(100);
    let options = all_outputs(&bench);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let all = bench.folder.path().join("all");
    let victim = bench.folder.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    fs::create_dir_all(all.join("out/sender")).unwrap();
    let is_record = |name: &&str| name.ends_with(".parquet");
    // weir refuses a folder with complete records, so links in the place of these come separately, in edge/records.
    let others = || COMPLETE.into_iter().filter(|name| !is_record(name) && !name.starts_with("out/"));
    others().for_each(|name| symlink(&victim, all.join(name)).unwrap());
    bench.run(&options).succeeds();
    for (name, path) in files_below(&all) {
        assert!(path.symlink_metadata().unwrap().is_file(), "{name} is a link");
        assert_complete(&name, &path);
    }
    assert_eq!(names(&all), COMPLETE);
    // A link to a device is written through, and stays.
    let null = bench.path("null.pcap");
    symlink("/dev/null", &null).unwrap();
    bench.run(&["-m", "rtt", "-w", &null]).succeeds();
    assert!(fs::symlink_metadata(&null).unwrap().is_symlink());

    for name in COMPLETE {
        fs::remove_dir_all(&all).unwrap();
        fs::create_dir_all(all.join("out/sender")).unwrap();
        let part = format!("{name}.part");
        symlink(&victim, all.join(&part)).unwrap();
        let ended = bench.run(&options);
        if name.starts_with("out/") && name.ends_with(".pcap") {
            // In a folder of its own, weir replaces it.
            ended.succeeds();
            assert_eq!(names(&all), COMPLETE);
        } else {
            ended.fails(1, &[&part, "symbolic link"]);
            assert_eq!(names(&all), [part.as_str()]);
        }
    }
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
}

#[test]
fn a_fifo_is_written_in_place() {
    let bench = Bench::new(2_000);
    let fifo = bench.path("fifo.pcap");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let reader = std::thread::spawn({
        let fifo = fifo.clone();
        move || {
            let mut bytes = Vec::new();
            fs::File::open(fifo).and_then(|mut fifo| fifo.read_to_end(&mut bytes)).unwrap();
            bytes
        }
    });
    let ended = bench.run(&["-m", "rtt", "-w", &fifo, "--json"]).succeeds();
    assert!(read_pcap(&reader.join().unwrap()) == traffic(2_000));
    assert_eq!(ended.json()["written"]["path"], fifo.as_str());
    assert!(!Path::new(&format!("{fifo}.part")).exists());
}

#[test]
fn a_pipe_without_packets_does_not_keep_a_run_whose_reader_has_enough() {
    // The writer of the capture keeps the pipe open and writes nothing more.
    let header = pcap(&[]);
    let packets = pcap(&traffic(4_000));
    // Few packets do not fill a block, and are passed on nevertheless.
    let few = pcap(&traffic(3));
    for (input, reads_line) in [(&packets[..], true), (&few, true), (&header, false), (&[][..], false)] {
        for format in [&["--format", "json"][..], &[]] {
            let module = ["-m", "trajectory,one-in=1", "--stream", "samples", "-q"];
            let mut run = Piped::start(module.iter().chain(format));
            let mut pipe = run.0.stdin.take().unwrap();
            pipe.write_all(input).unwrap();
            let mut reader = run.0.stdout.take().unwrap();
            if reads_line {
                reader.read_exact(&mut [0; 10]).unwrap();
            }
            drop(reader);
            let ended = ended(run.0, "weir run -r - | head -1", Instant::now());
            assert_eq!((ended.status.code(), ended.stderr.as_str()), (Some(0), ""), "{format:?}");
            drop(pipe);
        }
    }
    // A run with other results goes on until the end of its input.
    let bench = Bench::new(0);
    let written = bench.path("w.pcap");
    let mut run = Piped::start(["-m", "rtt", "-w", &written]);
    drop(run.0.stdout.take());
    let mut pipe = run.0.stdin.take().unwrap();
    pipe.write_all(&packets[..1_000]).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    pipe.write_all(&packets[1_000..]).unwrap();
    drop(pipe);
    ended(run.0, "weir run -r - -w w.pcap | true", Instant::now()).succeeds();
    assert!(read_pcap(&fs::read(&written).unwrap()) == traffic(4_000));
}
