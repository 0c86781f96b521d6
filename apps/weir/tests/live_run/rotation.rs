//! Tests of the files of live runs while the runs go on: rotation, and runs that are killed.

use super::{BackgroundRun, EMITTER, bytes};
use crate::run::module::{MANIFEST, write, write_as};
use crate::run::net::{cables, interrupt, send, wait_for};
use crate::run::packets::{Packet, read_pcap, traffic};
use crate::run::process::{module, number};
use crate::run::{files_below, rows_below, run};
use serde_json::Value;
use std::fs;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

#[test]
fn record_files_of_a_live_run_are_rotated_and_complete_while_it_goes_on() {
    if !cables(&[("a", "b")]) {
        return;
    }
    let modules = tempfile::tempdir().unwrap();
    let emitter = write(modules.path(), "emitter", EMITTER);
    let out = tempfile::tempdir().unwrap();
    let arguments =
        ["-i", "b", "-m", emitter.to_str().unwrap(), "--rotate", "1s", "--out", out.path().to_str().unwrap()];
    let run = BackgroundRun::start(&arguments);
    send("a", bytes(&traffic(100)));
    let first = out.path().join("emitter-0/rows.parquet");
    wait_for(|| first.exists());
    let rows = || rows_below(out.path()).iter().map(|(_, rows)| rows.len()).sum::<usize>();
    // Files that are complete can be read while the run goes on.
    let complete = rows();
    assert!((1..=100).contains(&complete), "{complete}");
    send("a", bytes(&traffic(50)));
    interrupt(&run.child);
    let (ended, _) = run.end();
    let text = ended.succeeds().text().to_owned();
    assert!(text.contains("emitter-0/rows.parquet ("), "{text}");
    assert_eq!(rows(), 150);
    // A later run goes on counting, and leaves the earlier files as they are.
    let before = rows_below(out.path());
    let again = BackgroundRun::start(&arguments);
    send("a", bytes(&traffic(7)));
    interrupt(&again.child);
    again.end().0.succeeds();
    let after = rows_below(out.path());
    assert!(before.iter().all(|file| after.contains(file)) && after.len() > before.len());
    assert_eq!(rows(), 157);
}

#[test]
fn logs_of_a_live_run_are_rotated_and_complete_while_it_goes_on() {
    if !cables(&[("a", "b")]) {
        return;
    }
    let modules = tempfile::tempdir().unwrap();
    let emitter = write(modules.path(), "emitter", EMITTER);
    for (format, name) in [("zeek", "emitter_rows"), ("eve", "eve")] {
        let out = tempfile::tempdir().unwrap();
        let (emitter, dir) = (emitter.to_str().unwrap(), out.path().to_str().unwrap());
        let arguments = ["-i", "b", "-m", emitter, "--rotate", "1s", "--out", dir, "--format", format];
        let run = BackgroundRun::start(&arguments);
        let logs = || {
            let is_log = |path: &str| path.starts_with(name) && !path.ends_with(".part");
            files_below(out.path())
                .into_iter()
                .filter(|(path, _)| is_log(path))
                .map(|(_, path)| path)
                .collect::<Vec<_>>()
        };
        let rows = |logs: &[PathBuf]| {
            let texts: Vec<String> = logs.iter().map(|log| fs::read_to_string(log).unwrap()).collect();
            texts.iter().flat_map(|text| text.lines()).filter(|line| !line.starts_with('#')).count()
        };
        send("a", bytes(&traffic(100)));
        wait_for(|| !logs().is_empty());
        let complete = logs();
        assert!((1..=100).contains(&rows(&complete)), "{complete:?}");
        let first = complete[0].file_name().unwrap().to_str().unwrap();
        assert!(first.starts_with(&format!("{name}_00001_20")), "{first}");
        let is_closed =
            |log: &PathBuf| fs::read_to_string(log).unwrap().lines().last().unwrap().starts_with("#close");
        assert!(format == "eve" || complete.iter().all(is_closed), "{complete:?}");
        send("a", bytes(&traffic(50)));
        interrupt(&run.child);
        let text = run.end().0.succeeds().text().to_owned();
        assert!(text.contains(&format!("{name}_00001_")), "{text}");
        assert_eq!(rows(&logs()), 150);
        // A later run goes on counting, and leaves the earlier files as they are.
        let before = logs();
        let again = BackgroundRun::start(&arguments);
        send("a", bytes(&traffic(7)));
        interrupt(&again.child);
        again.end().0.succeeds();
        let after = logs();
        assert!(before.iter().all(|log| after.contains(log)) && after.len() > before.len());
        assert_eq!(rows(&after), 157);
    }
}

/// Returns the captures in a folder whose names have this beginning and end, in the order of the names.
fn captures(folder: &Path, begin: &str, end: &str) -> Vec<PathBuf> {
    let is_meant = |name: &str| name.starts_with(begin) && name.ends_with(end);
    files_below(folder).into_iter().filter(|(name, _)| is_meant(name)).map(|(_, path)| path).collect()
}

/// Returns the packets of the captures that a pattern names, as `weir run` reads them.
fn read_back(folder: &TempDir, pattern: &str) -> Vec<Packet> {
    let (pattern, all) = (folder.path().join(pattern), folder.path().join("read-back"));
    run(["run", "-m", "rtt", "-r"].map(Path::new).into_iter().chain([&*pattern, Path::new("-w"), &*all]))
        .succeeds();
    let packets = read_pcap(&fs::read(&all).unwrap());
    fs::remove_file(&all).unwrap();
    packets
}

fn are_in_order(packets: &[Packet]) -> bool {
    packets.is_sorted_by_key(|packet| packet.ts_ns)
}

#[test]
fn captures_of_a_live_run_are_rotated_and_complete_while_it_goes_on() {
    if !cables(&[("a", "b")]) {
        return;
    }
    let packets = traffic(300);
    let start =
        || BackgroundRun::start(&["-i", "b", "-m", "rtt", "--rotate", "1s", "--json", "-w", "DIR/x.pcap"]);
    let live = start();
    let folder = live.folder.path().to_owned();
    send("a", bytes(&packets[..100]));
    wait_for(|| !captures(&folder, "x_00001_", ".pcap").is_empty());
    let first = captures(&folder, "x_00001_", ".pcap").remove(0);
    // The number, and the time at which the file was begun.
    let name = first.file_name().unwrap().to_str().unwrap().to_owned();
    let time = name.strip_prefix("x_00001_").unwrap().strip_suffix(".pcap").unwrap();
    assert!(
        time.len() == 14 && time.starts_with("20") && time.bytes().all(|byte| byte.is_ascii_digit()),
        "{name}"
    );
    let complete = read_pcap(&fs::read(&first).unwrap());
    assert!((1..=100).contains(&complete.len()) && bytes(&complete) == bytes(&packets[..complete.len()]));
    // A pattern stands for the complete files, although the next one is being written.
    assert!(read_back(&live.folder, "x_*") == complete);
    send("a", bytes(&packets[100..]));
    interrupt(&live.child);
    let (ended, folder) = live.end();
    let document = ended.succeeds().json();
    let all = read_back(&folder, "x_*");
    assert!(bytes(&all) == bytes(&packets) && are_in_order(&all));
    // The summary has each file with its packets, and the sums.
    let files = document["written"]["files"].as_array().unwrap();
    let on_disk = captures(folder.path(), "x", "");
    assert_eq!(files.len(), on_disk.len());
    for (file, path) in files.iter().zip(&on_disk) {
        assert_eq!(file["path"], path.to_str().unwrap());
        assert_eq!(number(file, "packets"), read_pcap(&fs::read(path).unwrap()).len() as u64);
        assert_eq!(number(file, "bytes"), fs::metadata(path).unwrap().len());
    }
    assert_eq!(document["written"]["path"], folder.path().join("x.pcap").to_str().unwrap());
    assert_eq!(number(&document["written"], "packets"), 300);
}

#[test]
fn captures_are_rotated_by_size_and_a_later_run_goes_on_counting_after_a_killed_one() {
    if !cables(&[("a", "b")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("x.pcapng");
    let arguments = ["-i", "b", "-m", "rtt", "--rotate", "1MiB", "-w", base.to_str().unwrap()];
    let frames: Vec<Vec<u8>> = (0..4_000_u32)
        .map(|number| crate::run::packets::udp(1, 53, &[&number.to_le_bytes()[..], &[7; 996]].concat()))
        .collect();
    let mut killed = BackgroundRun::start(&arguments);
    // With pauses, so that the ring never fills on a busy machine.
    for part in frames.chunks(100) {
        send("a", part.iter().map(Vec::as_slice));
        std::thread::sleep(Duration::from_millis(10));
    }
    let complete = || captures(folder.path(), "x_", ".pcapng");
    wait_for(|| complete().len() >= 3);
    // Gathered packets are written within seconds, although their buffer is not full.
    let part =
        || captures(folder.path(), "x_", ".part").first().map_or(0, |part| fs::metadata(part).unwrap().len());
    let size = |path: &PathBuf| fs::metadata(path).unwrap().len();
    let packets_below = |bytes: u64| bytes / 1_078;
    wait_for(|| packets_below(complete().iter().map(size).sum::<u64>() + part()) >= 3_900);
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    let before = complete();
    // A file has at least the size, and at most a block of packets more.
    assert!(before.iter().all(|path| (1 << 20..3 << 20).contains(&size(path))), "{before:?}");
    let contents: Vec<Vec<u8>> = before.iter().map(|path| fs::read(path).unwrap()).collect();
    let unfinished = captures(folder.path(), "x_", ".part").len();
    let live = BackgroundRun::start(&arguments);
    send("a", [frames[0].as_slice()]);
    interrupt(&live.child);
    let text = live.end().0.succeeds().text().to_owned();
    // Files of the killed run stay as they are, and the next has a higher number.
    assert!(before.iter().zip(&contents).all(|(path, bytes)| fs::read(path).unwrap() == *bytes));
    assert_eq!(captures(folder.path(), "x_", ".part").len(), unfinished);
    let all = complete();
    assert_eq!(all.len(), before.len() + 1);
    let last = all.last().unwrap().to_str().unwrap();
    assert!(last.contains(&format!("x_{:05}_", before.len() + unfinished + 1)), "{last}");
    assert!(text.contains(&format!("{last}: 1 packets written")), "{text}");
}

#[test]
fn captures_of_sent_frames_are_rotated_with_the_records_of_their_module() {
    if !cables(&[("a", "b")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
        (drop (call $send (i32.const 0) (i32.load offset=8 (local.get $d)) (i32.load offset=12 (local.get $d))))
        (i32.const 0))"#;
    let manifest =
        format!("kind = 'active'\n{}[[output]]\nname = 'all'\n", MANIFEST.replace("NAME", "copier"));
    let path = write_as(folder.path(), "copier", body, &manifest);
    let out = folder.path().join("out");
    let arguments =
        ["-i", "b", "-m", path.to_str().unwrap(), "--rotate", "1s", "--json", "--out", out.to_str().unwrap()];
    let packets = traffic(150);
    let frames_in = |document: &Value| -> u64 {
        let outputs = module(document, "copier")["outputs"].as_array().unwrap();
        outputs
            .iter()
            .map(|output| {
                let path = output["path"].as_str().unwrap();
                assert_eq!(
                    number(output, "frames"),
                    read_pcap(&fs::read(path).unwrap()).len() as u64,
                    "{path}"
                );
                number(output, "frames")
            })
            .sum()
    };
    let live = BackgroundRun::start(&arguments);
    send("a", bytes(&packets[..100]));
    wait_for(|| out.join("copier-0/all.pcap").exists());
    send("a", bytes(&packets[100..]));
    interrupt(&live.child);
    assert_eq!(frames_in(&live.end().0.succeeds().json()), 150);
    // A later run replaces none of the captures.
    let before: Vec<(String, Vec<u8>)> = crate::run::contents(&out);
    let again = BackgroundRun::start(&arguments);
    send("a", bytes(&packets[..7]));
    interrupt(&again.child);
    assert_eq!(frames_in(&again.end().0.succeeds().json()), 7);
    let after = crate::run::contents(&out);
    assert!(before.iter().all(|file| after.contains(file)));
}

#[test]
fn a_pipe_or_a_device_is_not_rotated() {
    let folder = tempfile::tempdir().unwrap();
    for place in ["-", "/dev/null"] {
        run(["run", "-i", "lo", "-m", "rtt", "--rotate", "1s", "-w", place])
            .fails(2, &["--rotate applies to files"]);
    }
    run(["run", "-i", "lo", "-m", "rtt", "--rotate", "1s"]).fails(2, &["--write", "--out"]);
    drop(folder);
}

#[test]
fn packets_of_a_killed_live_run_are_in_its_part_files() {
    if !cables(&[("a", "b")]) {
        return;
    }
    let packets = traffic(100);
    let mut killed = BackgroundRun::start(&["-i", "b", "-m", "rtt", "-w", "DIR/x.pcap"]);
    send("a", bytes(&packets));
    // Far less than a buffer, on an interface that is quiet from now on.
    let part = killed.folder.path().join("x.pcap.part");
    wait_for(|| fs::read(&part).is_ok_and(|file| !file.is_empty() && read_pcap(&file).len() == 100));
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    assert!(bytes(&read_pcap(&fs::read(&part).unwrap())) == bytes(&packets));
    assert!(!killed.folder.path().join("x.pcap").exists());
}

#[test]
fn a_quiet_interface_does_not_keep_a_run_whose_reader_has_enough() {
    if !cables(&[("a", "b")]) {
        return;
    }
    for format in [&["--format", "json"][..], &[]] {
        let module = ["-i", "b", "-q", "-m", "trajectory,one-in=1", "--stream", "samples"];
        let mut live = BackgroundRun::start(&[&module[..], format].concat());
        send("a", bytes(&traffic(20)));
        let mut line = String::new();
        let mut reader = std::io::BufReader::new(live.child.stdout.take().unwrap());
        reader.read_line(&mut line).unwrap();
        assert!(!line.is_empty());
        drop(reader);
        let ended = live.end().0;
        assert_eq!((ended.status.code(), ended.stderr.as_str()), (Some(0), ""), "{format:?}");
    }
}
