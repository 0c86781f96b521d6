//! Tests of `weir run -r` on valid and damaged captures of all formats, compared with the counts of other programs.

mod several;

use crate::run;
use crate::run::packets::{self, Packet, pcap, pcap_of, pcapng, read_pcap, traffic};
use crate::run::process::{counts, module as module_of, number, without_times};
use crate::run::traces::Trace;
use crate::run::{contents, files_below, outside, rows_below, run, run_with, traces};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Files with wrong counts in the index: the right counts, and the evidence.
const INDEX_IS_WRONG: &[(&str, [u64; 5], &str)] = &[(
    "formats/pcapng-11-interfaces.pcapng",
    [64, 32, 32, 0, 2],
    "packets 3 and 4 are UDP on interface 10, whose link type is NULL, not Ethernet: `tshark -Y udp` counts 32",
)];

/// Calls `act` for every item, on as many threads as there are processors.
fn in_parallel<T: Sync>(items: &[T], act: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    act(item);
                }
            });
        }
    });
}

#[test]
fn counts_of_traces_match_their_index() {
    in_parallel(&traces::compared(), |trace| {
        let (name, path) = (&trace.name, trace.path.to_str().unwrap());
        let ended = run(["run", "-r", path, "--json", "--jobs", "2"]);
        if trace.is_damaged() && !ended.status.success() {
            let reasons = ["link type", "is not a capture", "version", "is empty", "ends inside its header"];
            let ended = ended.fails(1, &[path]);
            assert!(reasons.iter().any(|reason| ended.stderr.contains(reason)), "{}", ended.stderr);
            return;
        }
        let document = ended.succeeds().json();
        for module in document["modules"].as_array().unwrap() {
            assert_eq!(number(module, "faults"), 0, "{name}: {module:#}");
            assert_eq!(module["packets"], document["capture"]["packets"], "{name}: {module:#}");
        }
        if !trace.is_damaged() {
            let known = INDEX_IS_WRONG.iter().find(|(file, _, _)| file == name);
            assert_eq!(counts(&document), known.map_or(trace.counts, |(_, right, _)| *right), "{name}");
            assert_eq!(document["capture"]["truncated"], false, "{name}");
        }
    });
}

/// Compares with tcpdump, which reads the files and compiles the filters itself.
#[test]
fn filters_select_the_same_packets_of_traces_as_tcpdump() {
    const FILTERS: &[&str] = &[
        "tcp[tcpflags] & tcp-syn != 0",
        "udp port 53 or icmp6",
        "greater 300",
        "vlan and ip",
        "ip[8] > 60 and not src net 10.0.0.0/8",
        "ip6 proto 6 or (ip and ip[6:2] & 0x3fff != 0)",
    ];
    let traces = traces::compared();
    if traces.is_empty() || !outside::has("tcpdump") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let look = run::module::write(folder.path(), "look", &run::module::answering("(i32.const 0)"));
    let pairs: Vec<_> =
        traces.iter().flat_map(|trace| FILTERS.iter().map(move |filter| (trace, filter))).collect();
    let (compared, selected_any) = (AtomicUsize::new(0), AtomicUsize::new(0));
    in_parallel(&pairs, |(Trace { name, path, .. }, filter)| {
        let module = look.to_str().unwrap();
        let ended = run(["run", "-r", path.to_str().unwrap(), "-m", module, "--json", "-j", "1", filter]);
        let mut tcpdump = Command::new("tcpdump");
        let tcpdump = tcpdump.args(["-nn", "-w", "-", "-r"]).arg(path).arg(filter).output().unwrap();
        if !ended.status.success() {
            // Both refuse an expression that has no meaning for the link type.
            let is_expected = !tcpdump.status.success() || name.starts_with("robustness/");
            assert!(is_expected, "{name}: {filter}: {}", ended.stderr);
            return;
        }
        // tcpdump does not read captures with several link types, or damaged ones.
        if tcpdump.stdout.is_empty() || !tcpdump.status.success() {
            return;
        }
        let theirs = read_pcap(&tcpdump.stdout).len();
        let document = ended.json();
        let ours = number(&document["modules"][0], "packets");
        assert_eq!(ours, u64::try_from(theirs).unwrap(), "{name}: {filter}");
        // The counts of the capture include packets that the filter rejects.
        assert!(ours <= number(&document["capture"], "packets"));
        compared.fetch_add(1, Ordering::Relaxed);
        selected_any.fetch_add(usize::from(ours > 0), Ordering::Relaxed);
    });
    let (compared, selected_any) = (compared.into_inner(), selected_any.into_inner());
    let _ = writeln!(
        std::io::stderr(),
        "{compared} of {} pairs compared, in {selected_any} something is selected",
        pairs.len()
    );
    assert!(compared > pairs.len() / 2 && selected_any > compared / 10, "{compared}, {selected_any}");
}

#[test]
fn plain_gzip_zstd_and_a_pipe_give_the_same_results() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("own.pcap");
    fs::write(&own, pcap(&traffic(50_000))).unwrap();
    let mut captures = vec![run::sample(), own];
    captures.extend(traces::folder().map(|traces| traces.join("tcp/alexa-app.pcapng")));
    for capture in captures {
        let of = |how: &str, file: &Path, input: Option<&[u8]>| {
            let out = folder.path().join(how);
            let arguments = ["run", "-r", file.to_str().unwrap(), "--json", "--out", out.to_str().unwrap()];
            let ended = input.map_or_else(|| run(arguments), |input| run_with(input, arguments)).succeeds();
            let mut document = without_times(ended.json());
            for stream in document["modules"].as_array_mut().unwrap() {
                for stream in stream["streams"].as_array_mut().unwrap() {
                    stream.as_object_mut().unwrap().remove("path").unwrap();
                }
            }
            let files = rows_below(&out);
            fs::remove_dir_all(&out).unwrap();
            (document, files)
        };
        let plain = of("plain", &capture, None);
        assert!(plain.1.iter().any(|(name, _)| name == "flows/closed.parquet"), "{:?}", plain.1);
        assert!(number(&plain.0["capture"], "packets") > 100);
        let same = |other: (Value, Vec<(String, Vec<String>)>), how: &str| {
            assert_eq!(plain.0, other.0, "{}: {how}", capture.display());
            assert!(plain.1 == other.1, "{}: {how}: other record files", capture.display());
        };
        let bytes = fs::read(&capture).unwrap();
        same(of("pipe", Path::new("-"), Some(&bytes)), "standard input");
        for program in ["gzip", "zstd"] {
            if outside::has(program) {
                let compressed = Command::new(program).arg("-c").arg(&capture).output().unwrap().stdout;
                // The format is detected from the content, not from the name.
                let file = folder.path().join("compressed");
                fs::write(&file, &compressed).unwrap();
                same(of(program, &file, None), program);
                same(of(program, Path::new("-"), Some(&compressed)), program);
            }
        }
    }
}

#[test]
fn a_file_that_is_not_a_capture_is_refused_with_its_name_and_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let refused = |path: &str, says: &[&str]| {
        let ended = run(["run", "-r", path, "--json", "-m", "port-count"]).fails(1, &[path]).fails(1, says);
        assert!(ended.stdout.is_empty());
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    };
    refused(&file("empty.pcap", b""), &["is empty", "header"]);
    refused(&file("notes.pcap", b"Dear diary,\n"), &["is not a capture", "Dear dia", "pcapng"]);
    refused(&file("short.pcap", &pcap(&[])[..20]), &["ends inside its header", "20 bytes"]);
    refused(&file("wifi.pcap", &pcap_of(105, &traffic(3))), &["offset 20", "link type 105", "Ethernet"]);
    refused(&file("modified.pcap", &[0x34, 0xcd, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0]), &["editcap"]);
    refused(&file("damaged.gz", b"\x1f\x8b\x08\x00 not deflate"), &["compressed data", "damaged"]);
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    refused(empty.to_str().unwrap(), &["the folder has no captures"]);
    refused("/no/such/file.pcap", &["No such file"]);
    run_with(b"", ["run", "-r", "-"]).fails(1, &["standard input is empty"]);

    let secret = file("secret.pcap", &pcap(&traffic(3)));
    fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    if fs::File::open(&secret).is_ok() {
        let _ = writeln!(std::io::stderr(), "skipped: permissions are not for this user");
    } else {
        refused(&secret, &["Permission denied"]);
    }
}

#[test]
fn a_truncated_capture_is_read_up_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let whole = pcap(&traffic(1_000));
    // 800 packets, and part of the next.
    let end = pcap(&traffic(800)).len();
    let path = folder.path().join("cut.pcap");
    for (cut, is_cut) in [(end + 7, true), (end + 30, true), (end, false)] {
        fs::write(&path, &whole[..cut]).unwrap();
        let out = folder.path().join("out");
        _ = fs::remove_dir_all(&out);
        let arguments = ["-m", "port-count", "--json", "--out", out.to_str().unwrap()];
        let ended = run(["run", "-r", path.to_str().unwrap()].iter().chain(&arguments)).succeeds();
        let document = ended.json();
        assert_eq!(
            (number(&document["capture"], "packets"), &document["capture"]["truncated"]),
            (800, &is_cut.into())
        );
        if is_cut {
            let ended =
                ended.reports("warning").reports("cut.pcap").reports(&format!("truncated at offset {end}"));
            ended.reports("everything before that was processed");
        } else {
            assert_eq!(ended.stderr, "");
        }
        // The records equal those of a capture that ends there.
        let cut_short = contents(&out);
        fs::remove_dir_all(&out).unwrap();
        fs::write(&path, &whole[..end]).unwrap();
        run(["run", "-r", path.to_str().unwrap()].iter().chain(&arguments)).succeeds();
        assert!(cut_short == contents(&out) && cut_short.len() == 2);
    }
}

#[test]
fn a_truncated_or_damaged_compressed_capture_is_read_up_to_the_damage() {
    if !outside::has("gzip") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain.pcap");
    fs::write(&plain, pcap(&traffic(20_000))).unwrap();
    let whole = Command::new("gzip").arg("-c").arg(&plain).output().unwrap().stdout;
    let path = folder.path().join("cut.pcap.gz");
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let ended = run(["run", "-r", path.to_str().unwrap(), "--json", "-m", "port-count"]).succeeds();
    let packets = number(&ended.json()["capture"], "packets");
    assert!(packets > 5_000 && packets < 19_000, "{packets}");
    assert_eq!(ended.json()["capture"]["truncated"], true);
    ended.reports("truncated at offset");
}

#[test]
fn invalid_lengths_end_the_capture_at_their_offset() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("absurd.pcap");
    let good = pcap(&traffic(100));
    for (cap_len, wire_len, packets, says) in [
        (
            0xffff_ffff,
            0xffff_ffff,
            100,
            format!("truncated at offset {}: a record states 4294967295", good.len()),
        ),
        (0x7fff_ffff, 60, 100, format!("truncated at offset {}", good.len())),
        // A captured length above the original length is odd, but readable.
        (60, 10, 101, String::new()),
        (0, 0, 101, String::new()),
        (0, 0xffff_ffff, 101, String::new()),
    ] {
        let mut bytes = good.clone();
        packets::record(&mut bytes, packets::BEGIN_NS, cap_len, wire_len);
        bytes.extend_from_slice(&vec![
            0x45;
            if cap_len < 100 { usize::try_from(cap_len).unwrap() } else { 60 }
        ]);
        fs::write(&path, &bytes).unwrap();
        let ended = run(["run", "-r", path.to_str().unwrap(), "--json"]).succeeds().reports(&says);
        let capture = &ended.json()["capture"];
        assert_eq!(number(capture, "packets"), packets, "{cap_len} {wire_len}");
        assert_eq!(capture["truncated"], packets == 100, "{cap_len} {wire_len}");
    }
    // A pcapng block with a length beyond the end of the file.
    let mut bytes = pcapng(&[1], &[(0, traffic(1).remove(0))]);
    let end = bytes.len();
    bytes.extend_from_slice(&[6, 0, 0, 0, 0xf0, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    fs::write(&path, &bytes).unwrap();
    let ended = run(["run", "-r", path.to_str().unwrap(), "--json"]).succeeds();
    assert_eq!((counts(&ended.json())[0], &ended.json()["capture"]["truncated"]), (1, &true.into()));
    ended.reports(&format!("truncated at offset {end}"));
}

#[test]
fn timestamps_that_go_backwards_are_a_warning_and_every_packet_counts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("backwards.pcap");
    let mut packets = traffic(5_000);
    packets.reverse();
    packets.push(Packet { ts_ns: 0, bytes: packets[0].bytes.clone() });
    packets.push(Packet { ts_ns: u64::from(u32::MAX) * 1_000_000_000, bytes: packets[0].bytes.clone() });
    fs::write(&path, pcap(&packets)).unwrap();
    let ended = run(["run", "-r", path.to_str().unwrap(), "--json"]).succeeds();
    let ended = ended.reports("warning").reports("time goes backwards 5000 times");
    let document = ended.json();
    assert_eq!(counts(&document)[0], 5_002);
    for module in document["modules"].as_array().unwrap() {
        assert_eq!((number(module, "packets"), number(module, "faults")), (5_002, 0), "{module:#}");
    }
    // The duration ends at the latest packet and is never negative.
    let duration = number(&document["capture"], "duration_ns");
    assert_eq!(duration, packets[5_001].ts_ns - packets[0].ts_ns);
}

#[test]
fn interfaces_of_a_pcapng_file_may_have_different_link_types() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mixed.pcapng");
    let ethernet = traffic(10);
    let raw = |i: usize| Packet { ts_ns: ethernet[i].ts_ns, bytes: ethernet[i].bytes[14..].to_vec() };
    let packets: Vec<(u32, Packet)> =
        (0..10).map(|i| if i % 2 == 0 { (0, ethernet[i].clone()) } else { (1, raw(i)) }).collect();
    fs::write(&path, pcapng(&[1, 101], &packets)).unwrap();
    let read = || run(["run", "-r", path.to_str().unwrap(), "--json", "-m", "port-count"]);
    assert_eq!(counts(&read().succeeds().json()), [10, 2, 8, 0, 1]);
    // Filters work on both link types.
    let ended = run(["run", "-r", path.to_str().unwrap(), "--json", "-m", "port-count", "udp", "port", "53"]);
    assert_eq!(number(module_of(&ended.succeeds().json(), "port-count"), "packets"), 7);
    // An interface of unknown link type is an error at its first packet, and earlier packets are kept.
    let unknown = [packets[..4].to_vec(), vec![(2, ethernet[4].clone())]].concat();
    fs::write(&path, pcapng(&[1, 101, 105], &packets)).unwrap();
    assert_eq!(counts(&read().succeeds().json())[0], 10);
    fs::write(&path, pcapng(&[1, 101, 105], &unknown)).unwrap();
    let ended =
        read().fails(1, &["mixed.pcapng", "packet 5", "interface 2", "link type 105", "frame.interface_id"]);
    assert_eq!(counts(&ended.json())[0], 4);
    // Classic pcap has one link type, so the error of -w suggests pcapng, which keeps all.
    fs::write(&path, pcapng(&[1, 101], &packets)).unwrap();
    let (one, all) = (folder.path().join("one.pcap"), folder.path().join("all.pcapng"));
    let write = |to: &Path| {
        run(["run", "-r", path.to_str().unwrap(), "-m", "port-count", "-w", to.to_str().unwrap()])
    };
    write(&one).fails(1, &["one.pcap", "link type 101", ".pcapng"]);
    write(&all).succeeds();
    let again = run(["run", "-r", all.to_str().unwrap(), "--json", "-m", "port-count"]).succeeds();
    assert_eq!(counts(&again.json()), [10, 2, 8, 0, 1]);
}

/// Runs a slow module on 60,000 packets, and calls `act` on the file when the module logs its first message, before most
/// packets are read. Returns the summary.
fn modify_during_run(folder: &Path, act: impl FnOnce(&Path) + Send) -> Value {
    // Logs a message at packet 10, and loops in every packet.
    let slow = run::module::at_packet(10, r#"(drop (call $log (i32.const 2) (i32.const 0) (i32.const 4)))"#);
    let slow = slow.replace(
        "(global.set $seen",
        "(local.set $n (i32.const 12000))
         (loop (br_if 0 (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
         (global.set $seen",
    );
    let slow =
        slow.replace("(result i32)\n", "(result i32) (local $n i32)\n") + r#"(data (i32.const 0) "here")"#;
    let module = run::module::write(folder, "slow", &slow);
    let path = folder.join("changing.pcap");
    fs::write(&path, pcap(&traffic(60_000))).unwrap();
    let mut child = run::weir()
        .args(["run", "--json", "-j", "1", "-m", module.to_str().unwrap(), "-m", "payload-match", "-r"])
        .arg(&path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(line.contains("here"), "{line}");
    assert_eq!(child.try_wait().unwrap(), None, "it is over before anything could happen");
    act(&path);
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && !rest.contains("panicked"), "{}: {rest}", output.status);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let is_cut = rest.contains("truncated at offset") || rest.contains(" packets were processed");
    assert_eq!(is_cut, document["capture"]["truncated"] == true, "{rest}");
    for name in ["slow", "payload-match"] {
        assert_eq!(number(module_of(&document, name), "faults"), 0, "{document:#}");
        // From a file that was truncated, a module gets the packets that are still complete.
        let (seen, all) =
            (number(module_of(&document, name), "packets"), number(&document["capture"], "packets"));
        assert!(if is_cut { seen <= all } else { seen == all }, "{document:#}");
    }
    document
}

#[test]
fn a_file_that_changes_while_it_is_read_does_not_crash_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let open = |path: &Path| fs::OpenOptions::new().read(true).write(true).open(path).unwrap();

    let cut = modify_during_run(folder.path(), |path| open(path).set_len(100_000).unwrap());
    assert_eq!(cut["capture"]["truncated"], true);
    assert!(counts(&cut)[0] < 60_000);

    let emptied = modify_during_run(folder.path(), |path| open(path).set_len(0).unwrap());
    assert_eq!(emptied["capture"]["truncated"], true);

    // Overwritten with records of invalid lengths: they are not taken for packets.
    let overwritten = modify_during_run(folder.path(), |path| {
        let len = fs::metadata(path).unwrap().len();
        let garbage = vec![0x41; usize::try_from(len).unwrap()];
        std::os::unix::fs::FileExt::write_all_at(&open(path), &garbage, 0).unwrap();
    });
    assert_eq!(overwritten["capture"]["truncated"], true);
    assert!(counts(&overwritten)[0] < 60_000);

    // Appended packets are not read.
    let appended = modify_during_run(folder.path(), |path| {
        let more = &pcap(&traffic(1_000))[24..];
        std::io::Write::write_all(&mut fs::OpenOptions::new().append(true).open(path).unwrap(), more)
            .unwrap();
    });
    assert_eq!((counts(&appended)[0], &appended["capture"]["truncated"]), (60_000, &false.into()));

    // Removed and replaced: the run keeps reading the open file.
    let replaced = modify_during_run(folder.path(), |path| {
        fs::remove_file(path).unwrap();
        fs::write(path, b"").unwrap();
    });
    assert_eq!((counts(&replaced)[0], &replaced["capture"]["truncated"]), (60_000, &false.into()));

    // Truncated and extended repeatedly: pages disappear and reappear while modules read.
    modify_during_run(folder.path(), |path| {
        let file = open(path);
        let len = file.metadata().unwrap().len();
        for i in 0..300 {
            file.set_len(len * (i % 7) / 7).unwrap();
            std::thread::sleep(std::time::Duration::from_micros(500));
            file.set_len(len).unwrap();
        }
    });
}

#[test]
fn both_byte_orders_and_both_time_units_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("order.pcap");
    let nano = pcap(&traffic(100));
    // Swap the bytes of all header fields, and keep the packets.
    let mut swapped = Vec::new();
    let mut at = 0;
    while at < nano.len() {
        let header = if at == 0 { 24 } else { 16 };
        for field in nano[at..at + header].chunks(4) {
            let is_version = at == 0 && swapped.len() == 4;
            let parts: Vec<u8> =
                if is_version { vec![0, 2, 0, 4] } else { field.iter().rev().copied().collect() };
            swapped.extend(parts);
        }
        let body = if at == 0 { 0 } else { usize::from(u16::from_le_bytes([nano[at + 8], nano[at + 9]])) };
        swapped.extend_from_slice(&nano[at + header..at + header + body]);
        at += header + body;
    }
    let mut micro = nano.clone();
    micro[..4].copy_from_slice(&0xa1b2_c3d4u32.to_le_bytes());
    for (bytes, duration) in [(nano, 99_000_000), (swapped, 99_000_000), (micro, 99_000_000_000)] {
        fs::write(&path, &bytes).unwrap();
        let document = run(["run", "-r", path.to_str().unwrap(), "--json", "-m", "rtt"]).succeeds().json();
        assert_eq!(counts(&document), [100, 20, 80, 0, 10]);
        assert_eq!(number(&document["capture"], "duration_ns"), duration);
    }
}

#[test]
fn the_index_lists_all_files_of_the_folder() {
    let Some(folder) = traces::folder() else { return };
    let known: Vec<String> = traces::index(&folder).into_iter().map(|trace| trace.name).collect();
    let captures = files_below(&folder).into_iter().map(|(name, _)| name);
    let unknown: Vec<String> =
        captures.filter(|name| name.contains(".pcap") && !known.contains(name)).collect();
    assert_eq!(unknown, Vec::<String>::new());
}
