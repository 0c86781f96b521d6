//! Tests of `weir run -i` on live interfaces, in network namespaces that the tests create. They need root.

mod rotation;

use crate::offload;
use crate::run;
use crate::run::module::{answering, write, write_as};
use crate::run::net::{cables, interrupt, received_bytes, send, shell, wait_for, wait_until_it_reads};
use crate::run::packets::{Packet, pcap, read_pcap, traffic};
use crate::run::process::{Ended, counts, ended, module, number, without_times};
use crate::run::{files_below, rows_below, run, sample, weir};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use tempfile::TempDir;

/// The functions of a module that emits a row for each packet.
const EMITTER: &str = r#"(func (export "weir_packet") (param $d i32) (result i32)
    (i64.store (i32.const 64) (i64.const 7))
    (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
    (i32.const 0))"#;

/// A run in the background.
pub struct BackgroundRun {
    child: Child,
    begin: Instant,
    folder: TempDir,
}

impl BackgroundRun {
    /// Starts `weir run ARGUMENTS`, where `DIR` in an argument stands for a new folder, and waits until it reads packets.
    pub fn start(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().to_str().unwrap();
        let arguments = arguments.iter().map(|argument| argument.replace("DIR", dir));
        let begin = Instant::now();
        let child = weir()
            .arg("run")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait_until_it_reads(&child);
        Self { child, begin, folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// Waits for the end of the run.
    pub fn end(self) -> (Ended, TempDir) {
        (ended(self.child, "weir run -i", self.begin), self.folder)
    }
}

fn bytes(packets: &[Packet]) -> Vec<&[u8]> {
    packets.iter().map(|packet| packet.bytes.as_slice()).collect()
}

fn frames(path: &Path) -> Vec<Vec<u8>> {
    read_pcap(&fs::read(path).unwrap()).into_iter().map(|packet| packet.bytes).collect()
}

/// Runs `weir run -r` on these packets with these arguments. Returns its summary and output folder.
fn run_on_file(packets: &[Packet], arguments: &[&str]) -> (Value, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("capture.pcap");
    fs::write(&capture, pcap(packets)).unwrap();
    let dir = folder.path().to_str().unwrap();
    let arguments = arguments.iter().map(|argument| argument.replace("DIR", dir));
    let document = run(["run", "-r", capture.to_str().unwrap(), "--json"]
        .map(str::to_owned)
        .into_iter()
        .chain(arguments))
    .succeeds()
    .json();
    (document, folder)
}

#[test]
fn results_of_an_interface_and_of_a_file_with_the_same_packets_are_equal() {
    if !cables(&[("a", "b")]) {
        return;
    }
    let packets = read_pcap(&fs::read(sample()).unwrap());
    let count = packets.len().to_string();
    // The interface is silent before the first packet, which a capture does not show: no period ends in that time.
    let modules = "trajectory rtt worm payload-match lrd,bin=1h syn-flood,interval=1h port-count,interval=1h";
    let modules: Vec<_> = modules.split(' ').flat_map(|module| ["-m", module]).collect();
    let rest =
        ["-i", "b", "-c", &count, "--json", "--out", "DIR/out", "-w", "DIR/live.pcap", "--ring", "64MiB"];
    let background = BackgroundRun::start(&[&rest[..], &modules].concat());
    send("a", bytes(&packets));
    let (ended, folder) = background.end();
    let live = ended.succeeds().json();
    assert_eq!(number(&live["interface"], "lost_ring_full"), 0);
    assert_eq!(live["sent"], Value::Null);

    // The packets are those sent, and the results are those of the capture.
    let written = read_pcap(&fs::read(folder.path().join("live.pcap")).unwrap());
    assert!(bytes(&written) == bytes(&packets));
    let (file, _) = run_on_file(&packets, &modules);
    assert_eq!(counts(&live), counts(&file));
    assert_eq!(live["capture"]["bytes"], file["capture"]["bytes"]);
    for name in ["worm", "payload-match", "trajectory"] {
        assert_eq!(number(module(&live, name), "records"), number(module(&file, name), "records"), "{name}");
    }
    // With equal timestamps, all records are equal.
    let (again, other) = run_on_file(&written, &[&["--out", "DIR/out"][..], &modules].concat());
    assert_eq!(counts(&again), counts(&live));
    let (one, two) = (rows_below(&folder.path().join("out")), rows_below(&other.path().join("out")));
    assert!(one.len() > 8, "{}", one.len());
    let differ = one.iter().filter(|file| !two.contains(file)).map(|(name, _)| name);
    assert!(one == two, "these differ: {:?}", differ.collect::<Vec<_>>());
}

#[test]
fn rows_of_a_killed_live_run_are_recovered_by_the_next_run() {
    if !cables(&[("a", "b")]) {
        return;
    }
    let modules = tempfile::tempdir().unwrap();
    let emitter = write(modules.path(), "emitter", EMITTER);
    let out = tempfile::tempdir().unwrap();
    let arguments = ["-i", "b", "-m", emitter.to_str().unwrap(), "--out", out.path().to_str().unwrap()];
    let packets = traffic(1_000);
    let mut killed = BackgroundRun::start(&arguments);
    send("a", bytes(&packets));
    let folder = out.path().join("emitter");
    // Copies the files to recover as they are now, and again if they were written meanwhile.
    let safe = || {
        let copy = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            _ = fs::copy(entry.path(), copy.path().join(entry.file_name()));
        }
        weir_records::recover(copy.path()).into_iter().flatten().map(|found| found.rows).sum::<u64>()
    };
    wait_for(|| safe() == 1_000);
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();

    let next = BackgroundRun::start(&arguments);
    interrupt(&next.child);
    let (ended, _) = next.end();
    let printed = ended.succeeds().stderr;
    assert!(printed.contains("an earlier run ended without warning; its 1000 rows are in"), "{printed}");
    let mut left = files_below(&folder).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    left.sort();
    assert_eq!(left, ["rows.parquet", "rows.recovered-1.parquet", "texts.parquet"]);
}

#[test]
fn a_packet_limit_ends_runs_of_an_interface_and_of_a_file_after_the_same_packet() {
    let packets = traffic(3_000);
    for (filter, wanted, total) in [("", "1500", 1_500), ("udp port 123", "150", 1_498), ("tcp", "1", 9)] {
        let rest = ["-c", wanted, "-m", "port-count,ports=53:123", "-w", "DIR/out.pcap", filter];
        let rest: Vec<String> = rest
            .iter()
            .filter(|word| !word.is_empty())
            .map(|word| word.replace("53:123", "53,123"))
            .collect();
        let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
        let (document, folder) = run_on_file(&packets, &rest);
        assert_eq!(number(&document["capture"], "packets"), total, "{filter}");
        let seen = if filter.is_empty() { total } else { wanted.parse().unwrap() };
        assert_eq!(number(module(&document, "port-count"), "packets"), seen);
        let (document_before, _) = run_on_file(&packets[..usize::try_from(total).unwrap()], &rest[2..]);
        assert_eq!(without_times(document.clone())["capture"], without_times(document_before)["capture"]);
        let written = frames(&folder.path().join("out.pcap"));
        assert!(written == bytes(&packets[..usize::try_from(total).unwrap()]));

        if !cables(&[("a", "b")]) {
            continue;
        }
        let background = BackgroundRun::start(&[&["-i", "b", "--json"], &rest[..]].concat());
        send("a", bytes(&packets));
        let (ended, folder) = background.end();
        let live = ended.succeeds().json();
        assert_eq!(counts(&live), counts(&document), "{filter}");
        assert_eq!(number(module(&live, "port-count"), "packets"), seen);
        assert!(frames(&folder.path().join("out.pcap")) == written);
    }
}

#[test]
fn ctrl_c_ends_a_run_after_all_packets_received_before_it() {
    for signal in ["INT", "TERM", "HUP"] {
        if !cables(&[("a", "b")]) {
            return;
        }
        let packets = traffic(1_000);
        let modules =
            ["flows", "talkers", "trajectory", "rtt", "syn-flood", "port-count"].map(|module| ["-m", module]);
        let modules = modules.as_flattened();
        let arguments = ["-i", "b", "--json", "--out", "DIR/out", "--report", "DIR/report.html"];
        let background = BackgroundRun::start(&[&arguments[..], modules].concat());
        send("a", bytes(&packets));
        shell(&format!("kill -{signal} {}", background.child.id()));
        let (ended, folder) = background.end();
        let document = ended.succeeds().json();
        let (file, _) = run_on_file(&packets, modules);
        assert_eq!(counts(&document), counts(&file), "{signal}");
        // All files are complete, and the modules were stopped: these rows are emitted at the stop only.
        let files = files_below(&folder.path().join("out"));
        assert!(files.len() > 8 && files.iter().all(|(name, _)| name.ends_with(".parquet")), "{files:?}");
        let streams = module(&document, "port-count")["streams"].as_array().unwrap();
        assert_eq!(number(&streams[1], "rows"), 3);
        assert!(fs::read_to_string(folder.path().join("report.html")).unwrap().ends_with("</html>\n"));
    }
}

#[test]
fn counts_are_the_same_for_packets_taken_from_the_host_and_for_copies() {
    if !cables(&[("a", "b")]) {
        return;
    }
    let packets = traffic(300);
    let (file, _) = run_on_file(&packets, &[]);
    // AF_XDP does not receive packets longer than a page.
    shell("ip link set dev a mtu 1500 && ip link set dev b mtu 1500");
    for kind in ["packet", "xdp"] {
        for jobs in ["1", "3"] {
            let background =
                BackgroundRun::start(&["-i", "b", "--kind", kind, "-j", jobs, "-c", "300", "--json"]);
            send("a", bytes(&packets));
            let document = background.end().0.succeeds().json();
            assert_eq!(counts(&document), counts(&file), "{kind} on {jobs}");
        }
    }
}

#[test]
fn a_time_limit_ends_a_run_without_packets() {
    if !cables(&[("a", "b")]) {
        return;
    }
    let document =
        BackgroundRun::start(&["-i", "b", "--duration", "300ms", "--json"]).end().0.succeeds().json();
    assert_eq!(counts(&document), [0; 5]);
}

#[test]
fn changes_of_the_interface_are_reported_and_its_removal_ends_the_run() {
    if !cables(&[("a", "b")]) {
        return;
    }
    let packets = traffic(500);
    let mut background =
        BackgroundRun::start(&["-i", "b", "--duration", "600s", "--out", "DIR/out", "--json"]);
    send("a", bytes(&packets));
    let mut lines = BufReader::new(background.child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut told = |what: &str| {
        assert!(lines.by_ref().any(|line| line == format!("weir: {what}")), "it never says that {what}");
    };
    shell("ip link set dev a down");
    told("b is down");
    shell("ip link set dev a up");
    told("b is up");
    // Older kernels rename an interface only while it is down.
    shell("ip link set dev b down && ip link set dev b name other && ip link set dev other up");
    told("b is now called other");
    shell("ip link del other");
    told("other was removed");
    let out = background.path("out");
    let (ended, _folder) = background.end();
    let document = ended.succeeds().json();
    assert_eq!(number(&document["capture"], "packets"), 500);
    assert!(files_below(Path::new(&out)).iter().all(|(name, _)| name.ends_with(".parquet")));
}

#[test]
fn ticks_are_called_without_packets() {
    if !cables(&[("a", "b")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let body = format!(
        r#"{} (data (i32.const 64) "tick")
        (func (export "weir_tick") (param i64 i64)
            (drop (call $log (i32.const 2) (i32.const 64) (i32.const 4))))"#,
        answering("(i32.const 0)")
    );
    let manifest = format!("tick = '50ms'\n{}", run::module::MANIFEST.replace("NAME", "ticking"));
    let path = write_as(folder.path(), "ticking", &body, &manifest);
    let mut background =
        BackgroundRun::start(&["-i", "b", "--duration", "600s", "-m", path.to_str().unwrap()]);
    let mut lines = BufReader::new(background.child.stderr.take().unwrap()).lines().map(Result::unwrap);
    for _ in 0..5 {
        assert_eq!(lines.next().as_deref(), Some("weir: ticking info: tick"));
    }
    interrupt(&background.child);
    drop(lines);
    background.end().0.succeeds();
}

#[test]
fn packets_lost_to_slow_modules_are_counted() {
    const SENT: u64 = 20_000;
    if !cables(&[("a", "b")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let slow = answering(
        r#"(local $n i32)
        (loop (br_if 0 (i32.ne (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 100000))))
        (i32.const 0)"#,
    );
    let slow = write(folder.path(), "slow", &slow);
    let background = BackgroundRun::start(&[
        "-i",
        "b",
        "--json",
        "--ring",
        "256KiB",
        "-m",
        slow.to_str().unwrap(),
        "--out",
        "DIR",
    ]);
    let packets = traffic(SENT);
    send("a", bytes(&packets));
    interrupt(&background.child);
    let (ended, _folder) = background.end();
    let ended = ended.succeeds().reports("were lost before modules could see them");
    let document = ended.json();
    let (got, lost) =
        (number(&document["capture"], "packets"), number(&document["interface"], "lost_ring_full"));
    assert!(got > 0 && lost > 0 && got + lost <= SENT, "{got} and {lost} of {SENT}");
    assert_eq!(number(module(&document, "slow"), "packets"), got);
}

#[test]
fn patched_packets_are_forwarded_to_an_interface_as_they_are_written_to_a_file() {
    if !cables(&[("a", "b"), ("c", "d")]) {
        return;
    }
    let packets = traffic(2_000);
    let mark = "dscp-mark,source=10.0.0.0/8,dscp=46";
    // A filter that drops every packet to port 123.
    let folder = tempfile::tempdir().unwrap();
    let drops = "(i32.eq (i32.load16_u offset=46 (local.get $d)) (i32.const 123))";
    let dropping = write(folder.path(), "dropping", &answering(drops));
    let modules = ["-m", mark, "-m", dropping.to_str().unwrap()];
    let (_, by_file) = run_on_file(&packets, &[&modules[..], &["-w", "DIR/out.pcap"]].concat());
    let expected = frames(&by_file.path().join("out.pcap"));

    let count = expected.len().to_string();
    let receiving =
        BackgroundRun::start(&["-i", "d", "-c", &count, "-w", "DIR/out.pcap", "-m", "port-count"]);
    let background =
        BackgroundRun::start(&[&["-i", "b", "--send", "c", "-c", "2000", "--json"], &modules[..]].concat());
    send("a", bytes(&packets));
    let (ended, _) = background.end();
    let document = ended.succeeds().json();
    assert_eq!(number(&document["sent"], "packets"), expected.len() as u64, "{document:#}");
    assert_eq!(document["sent"]["interface"], "c");
    assert!(document["sent"]["lost"].as_object().unwrap().values().all(|lost| lost == 0), "{document:#}");
    let (ended, folder) = receiving.end();
    ended.succeeds();
    let arrived = frames(&folder.path().join("out.pcap"));
    assert!(arrived == expected, "{} arrived, {} expected", arrived.len(), expected.len());
    assert!(arrived != bytes(&packets));
}

/// Two hosts with a run per direction between them, and a capture of what arrives at the second host.
struct TwoWayForwarding {
    hosts: [offload::Host; 2],
    runs: [BackgroundRun; 2],
    far: offload::Arrivals,
}

/// The number of packets that were not sent, for any cause.
fn not_sent(sent: &Value) -> u64 {
    sent["lost"].as_object().unwrap().values().filter_map(Value::as_u64).sum()
}

impl TwoWayForwarding {
    fn start(arguments: &[&str]) -> Self {
        shell("for i in b c; do ip link set dev $i mtu 1500; done");
        let hosts = offload::hosts("a", "d");
        let run =
            |from, to| BackgroundRun::start(&[&["-i", from, "--send", to, "--json"], arguments].concat());
        Self { runs: [run("b", "c"), run("c", "b")], far: hosts[1].arrivals(), hosts }
    }

    /// Stops both runs, and returns their counters of sent packets. Asserts that they processed all packets that they read.
    fn end(self) -> [Value; 2] {
        self.runs.iter().for_each(|background| interrupt(&background.child));
        self.runs.map(|background| {
            let ended = background.end().0.succeeds();
            let document = ended.json();
            let is_too_long = number(&document["sent"]["lost"], "too_long") > 0;
            assert_eq!(ended.stderr.contains("gro off lro off"), is_too_long, "{}", ended.stderr);
            let captured = number(&document["capture"], "packets");
            assert_eq!(
                number(&document["sent"], "packets") + not_sent(&document["sent"]),
                captured,
                "{document:#}"
            );
            document
        })
    }
}

#[test]
fn offloaded_checksums_are_completed_in_forwarded_packets() {
    if !cables(&[("a", "b"), ("c", "d")]) {
        return;
    }
    let mut between = TwoWayForwarding::start(&["-m", "port-count"]);
    let mut near = offload::Arrivals::capture("b");
    between.hosts.iter().for_each(|host| host.leaves_segments_to_the_card(false));
    let [one, other] = &between.hosts;
    offload::datagrams(one, other);
    offload::streams(one, other);
    let tagged = offload::tagged(one, other);
    // The hosts really send packets without checksums.
    let (wrong, right) = offload::checksums(&near.until("all have come", |frames| frames.len() > tagged));
    // An incomplete checksum is correct by chance in one packet of 65,536.
    assert!(wrong > tagged && right < 5, "{wrong} wrong and {right} right ones leave the host");
    let all = wrong + right;
    // On a busy machine, TCP repeats segments, also after the first frames were counted: so more can arrive.
    let arrived = between.far.until("all have arrived", |frames| offload::checksums(frames).1 >= all);
    assert_eq!(offload::checksums(&arrived).0, 0, "frames with incomplete checksums");
    for document in between.end() {
        let lost = document["sent"]["lost"].as_object().unwrap();
        assert!(lost.values().all(|lost| lost == 0), "{document:#}");
    }
}

#[test]
fn checksums_of_patched_packets_are_correct() {
    if !cables(&[("a", "b"), ("c", "d")]) {
        return;
    }
    // Patches the source port.
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
        (i32.store (i32.const 64) (i32.const 0x37135713))
        (drop (call $patch (local.get $d) (i32.load16_u offset=34 (local.get $d)) (i32.const 64) (i32.const 2)))
        (i32.const 0))"#;
    let folder = tempfile::tempdir().unwrap();
    let patching = write(folder.path(), "patching", body);
    shell("for i in b c; do ip link set dev $i mtu 1500; done");
    let hosts = offload::hosts("a", "d");
    let module = patching.to_str().unwrap();
    let background = BackgroundRun::start(&["-i", "b", "-m", module, "-w", "DIR/out.pcap", "--json", "udp"]);
    let count = offload::send_datagrams(&hosts[0], &hosts[1]);
    interrupt(&background.child);
    let (ended, folder) = background.end();
    let document = ended.succeeds().json();
    let patched: Vec<_> = frames(&folder.path().join("out.pcap"))
        .into_iter()
        .filter(|frame| offload::source_port(frame) == Some(0x1357))
        .collect();
    assert_eq!(offload::checksums(&patched), (0, count), "{document:#}");
}

#[test]
fn a_wrong_checksum_that_the_kernel_marks_complete_is_forwarded_unchanged() {
    if !cables(&[("a", "b"), ("c", "d")]) {
        return;
    }
    let mut between = TwoWayForwarding::start(&["-m", "port-count"]);
    let sent = offload::finished(&between.hosts[0]);
    let is_there = |frames: &[Vec<u8>]| sent.iter().all(|frame| frames.contains(frame));
    between.far.until("all have arrived unchanged", is_there);
    between.runs.iter().for_each(|background| interrupt(&background.child));
    for background in between.runs {
        background.end().0.succeeds();
    }
}

#[test]
fn checksums_of_frames_that_modules_send_are_correct() {
    if !cables(&[("a", "b"), ("c", "d")]) {
        return;
    }
    // Drops each packet, and sends a copy of it as a new frame.
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
        (drop (call $send (i32.const 0) (i32.load offset=8 (local.get $d)) (i32.load offset=12 (local.get $d))))
        (i32.const 1))"#;
    let manifest = run::module::MANIFEST.replace("NAME", "sending");
    let manifest = format!("kind = 'active'\n{manifest}[[output]]\nname = 'up'\n");
    let folder = tempfile::tempdir().unwrap();
    let module = write_as(folder.path(), "sending", body, &manifest);
    let between = TwoWayForwarding::start(&["-m", module.to_str().unwrap()]);
    between.hosts.iter().for_each(|host| host.leaves_segments_to_the_card(false));
    let [one, other] = &between.hosts;
    offload::datagrams(one, other);
    offload::streams(one, other);
    between.runs.iter().for_each(|background| interrupt(&background.child));
    for background in between.runs {
        let document = background.end().0.succeeds().json();
        let frames = number(&run::process::module(&document, "sending")["outputs"][0], "frames");
        // On a busy machine the queue of the link can be full, and the loss is counted.
        assert_eq!(
            number(&document["sent"], "packets") + not_sent(&document["sent"]),
            frames,
            "{document:#}"
        );
    }
}

#[test]
fn offloaded_checksums_inside_a_tunnel_are_completed() {
    if !cables(&[("a", "b"), ("c", "d")]) {
        return;
    }
    let mut between = TwoWayForwarding::start(&["-m", "port-count"]);
    between.hosts.iter().for_each(|host| host.leaves_segments_to_the_card(false));
    if !offload::tunnel(&mut between.hosts) {
        return;
    }
    let [one, other] = &between.hosts;
    offload::datagrams(one, other);
    offload::streams(one, other);
    for document in between.end() {
        let lost = document["sent"]["lost"].as_object().unwrap();
        assert!(lost.values().all(|lost| lost == 0), "{document:#}");
    }
}

#[test]
fn segments_longer_than_the_mtu_are_counted_and_the_others_are_forwarded() {
    if !cables(&[("a", "b"), ("c", "d")]) {
        return;
    }
    let between = TwoWayForwarding::start(&["-m", "port-count"]);
    between.hosts.iter().for_each(|host| host.leaves_segments_to_the_card(true));
    let [one, other] = &between.hosts;
    offload::too_long(one, other, &mut offload::Arrivals::capture("b"));
    let [there, _] = between.end();
    let lost = &there["sent"]["lost"];
    assert!(number(lost, "too_long") > 0, "{there:#}");
    assert!(
        lost.as_object().unwrap().iter().all(|(cause, lost)| cause == "too_long" || lost == 0),
        "{there:#}"
    );
}

#[test]
fn a_rate_limit_is_never_exceeded_and_excess_packets_are_counted() {
    const RATE: u64 = 10_000_000;
    const SENT: u64 = 10_000;
    if !cables(&[("a", "b"), ("c", "d")]) {
        return;
    }
    let frame = run::packets::udp(1, 53, &[7; 958]);
    let on_wire = frame.len() as u64 + 24;
    let background =
        BackgroundRun::start(&["-i", "b", "--send", "c", "--rate", "10Mbit/s", "-m", "port-count", "--json"]);
    let (begin, before) = (Instant::now(), received_bytes("d"));
    // A burst of 80 Mbit: sending takes more than two seconds unless packets are lost.
    let mut arrived = 0;
    for part in 0..10 {
        send("a", (0..SENT / 10).map(|_| frame.as_slice()));
        wait_for(|| begin.elapsed().as_millis() >= (part + 1) * 220);
        arrived = received_bytes("d") - before;
        let elapsed = begin.elapsed().as_secs_f64();
        // The burst allowance is two milliseconds and two frames.
        let most = 10e6 / 8.0 * (elapsed + 0.002) + 2.0 * 1024.0;
        let got = f64::from(u32::try_from(arrived / frame.len() as u64 * on_wire).unwrap());
        assert!(got <= most, "{got} bytes on the wire in {elapsed} s at {RATE} bit/s");
    }
    assert!(arrived > 0);
    interrupt(&background.child);
    let document = background.end().0.succeeds().json();
    let (sent, lost) = (&document["sent"], document["sent"]["lost"].as_object().unwrap());
    let lost_all: u64 = lost.values().map(|count| count.as_u64().unwrap()).sum();
    let got = number(&document["capture"], "packets");
    assert_eq!(number(sent, "packets") + lost_all, got, "{document:#}");
    assert!(number(&document["sent"]["lost"], "queue_full") > 0, "{document:#}");
    assert_eq!(got + number(&document["interface"], "lost_ring_full"), SENT);
}

#[test]
fn an_input_that_cannot_be_opened_has_a_hint() {
    let usage = |arguments: &[&str], says: &str| {
        run(["run"].iter().chain(arguments)).fails(2, &[says]);
    };
    usage(&["-m", "rtt"], "--read");
    usage(&["-i", "b", "-r", "x.pcap"], "cannot be used with");
    for live in
        [["--duration", "1s"], ["--send", "c"], ["--rate", "1Mbit/s"], ["--ring", "1MiB"], ["--kind", "xdp"]]
    {
        usage(&[&["-r", "x.pcap"], &live[..]].concat(), "cannot be used with");
    }
    usage(&["-r", "x.pcap", "-p"], "cannot be used with");
    usage(&["-i", "b", "--rate", "1Mbit/s"], "--send");
    usage(&["-i", "b", "--send", "c", "--rate", "1000"], "40Mbit/s");
    if !cables(&[("a", "b")]) {
        return;
    }
    run(["run", "-i", "eth7"]).fails(1, &["there is no interface `eth7`", "lo", "a", "b"]);
    run(["run", "-i", "b", "--send", "eth7"]).fails(1, &["there is no interface `eth7`"]);
    usage(&["-i", "b", "--send", "b"], "another interface");
    usage(&["-i", "b", "--send", "a", "--rate", "0bit/s"], "--rate");
    usage(&["-i", "b", "ether proto 5 and"], "syntax error");
    // Root without capabilities.
    let mut command = Command::new("setpriv");
    command
        .args(["--bounding-set=-all", "--inh-caps=-all", "--"])
        .arg(run::process::PROGRAM)
        .args(["run", "-i", "b", "-c", "1"]);
    run::process::finish(&mut command, None).fails(1, &["needs cap_net_raw", "run it as root", "setcap"]);
}
