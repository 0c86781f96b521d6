//! All captures of the shared set. Nothing panics or hangs, the counts equal the index, and every way of reading
//! gives the same packets. Skipped if the set is not there.

use crate::exercise::{Reading, read};
use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use weir_netio::{CaptureFilter, CaptureInput, CaptureOptions};
use weir_units::Bytes;
use weir_wire::LinkType;

fn traces() -> Option<PathBuf> {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces"));
    let found = path.join("index.csv").is_file();
    if !found {
        let _ = writeln!(std::io::stderr(), "skipped: there are no captures in ../shared/traces");
    }
    found.then(|| path.to_owned())
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|e| e == "pcap" || e == "pcapng") {
            found.push(path);
        }
    }
}

/// Lines of the index, by file: packets, TCP, UDP, IPv6, SYN.
fn index(traces: &Path) -> HashMap<String, [u64; 5]> {
    let text = fs::read_to_string(traces.join("index.csv")).unwrap();
    let line = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |i: usize| fields[i].parse().unwrap();
        (fields[0].to_owned(), [number(1), number(4), number(5), number(6), number(7)])
    };
    text.lines().skip(1).map(line).collect()
}

fn counts(reading: &Reading) -> [u64; 5] {
    let t = &reading.totals;
    [t.packets, t.tcp, t.udp, t.ipv6, t.tcp_syn]
}

/// Files whose line in the index is wrong, with the right counts and the evidence.
const INDEX_IS_WRONG: &[(&str, [u64; 5], &str)] = &[(
    "formats/pcapng-11-interfaces.pcapng",
    [64, 32, 32, 0, 2],
    "packets 3 and 4 are UDP on interface 10, whose link type is NULL, not Ethernet: `tshark -Y udp` counts 32",
)];

#[test]
fn every_file_has_the_counts_of_its_index() {
    let Some(traces) = traces() else { return };
    let index = index(&traces);
    let mut all = Vec::new();
    files(&traces, &mut all);
    let (mut checked, mut wrong) = (0, Vec::new());
    for path in &all {
        let name = path.strip_prefix(&traces).unwrap().to_str().unwrap();
        let reading = read(CaptureInput::File(path.clone()), CaptureOptions::default());
        if name.starts_with("robustness/") {
            if let Ok(reading) = reading
                && reading.error.is_none()
                && counts(&reading)[0] != index[name][0]
            {
                println!("{name}: {:?}, index {:?}", counts(&reading), index[name]);
            }
            continue;
        }
        let known = INDEX_IS_WRONG.iter().find(|(file, _, _)| *file == name);
        let expected = known.map_or(index[name], |(_, right, _)| *right);
        let reading = reading.unwrap();
        if counts(&reading) != expected || reading.error.is_some() || reading.totals.truncated.is_some() {
            wrong.push((name, expected, counts(&reading), reading.error, reading.totals.truncated));
        }
        checked += 1;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(checked >= 40, "{checked} files of {}", all.len());
}

#[test]
fn a_file_gives_the_same_packets_in_every_way_of_reading() {
    let Some(traces) = traces() else { return };
    let mut all = Vec::new();
    files(&traces, &mut all);
    let folder = tempfile::tempdir().unwrap();
    for path in all.iter().filter(|path| fs::metadata(path).unwrap().len() < 3_000_000) {
        let bytes = fs::read(path).unwrap();
        let plain = read(CaptureInput::File(path.clone()), CaptureOptions::default());
        let name = path.display();
        let same = |other: Result<Reading, String>, how: &str| match (&plain, &other) {
            // The messages name different files.
            (Err(_), Err(_)) => {}
            (Ok(plain), Ok(other)) => {
                assert!(plain.packets == other.packets, "{name}: {how}");
                assert_eq!((&plain.blocks, &plain.totals), (&other.blocks, &other.totals), "{name}: {how}");
                assert_eq!(plain.error.is_some(), other.error.is_some(), "{name}: {how}");
            }
            _ => panic!("{name}: {how}: {plain:?}, but {other:?}"),
        };
        same(
            read(
                CaptureInput::File(path.clone()),
                CaptureOptions { stream: true, ..CaptureOptions::default() },
            ),
            "as a stream",
        );

        // Two members, the second of which begins inside a record.
        let (left, right) = bytes.split_at(bytes.len() / 2);
        let member = |part: &[u8]| {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(part).unwrap();
            encoder.finish().unwrap()
        };
        let file = folder.path().join("capture.gz");
        fs::write(&file, [member(left), member(right)].concat()).unwrap();
        same(read(CaptureInput::File(file.clone()), CaptureOptions::default()), "gzip");

        let frame = |part: &[u8]| zstd::encode_all(part, 1).unwrap();
        fs::write(&file, [frame(left), frame(right)].concat()).unwrap();
        same(read(CaptureInput::File(file.clone()), CaptureOptions::default()), "zstd");

        let windows = read(
            CaptureInput::File(path.clone()),
            CaptureOptions { window: Bytes(16_384), ..CaptureOptions::default() },
        );
        if let (Ok(plain), Ok(windows)) = (&plain, &windows) {
            assert!(plain.packets == windows.packets && plain.totals == windows.totals, "{name}: windows");
        }
    }
}

#[test]
fn a_pipe_gives_the_same_packets_as_the_file() {
    let Some(traces) = traces() else { return };
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for name in ["attack/synscan.pcap", "tcp/alexa-app.pcapng", "formats/bigtcp-ipv6-80k.pcap"] {
        let bytes = fs::read(traces.join(name)).unwrap();
        let to = fifo.clone();
        let writer = std::thread::spawn(move || {
            let mut pipe = fs::OpenOptions::new().write(true).open(to).unwrap();
            bytes.chunks(7777).for_each(|part| pipe.write_all(part).unwrap());
        });
        let piped = read(CaptureInput::File(fifo.clone()), CaptureOptions::default()).unwrap();
        writer.join().unwrap();
        let plain = read(CaptureInput::File(traces.join(name)), CaptureOptions::default()).unwrap();
        assert!(piped == plain, "{name}");
    }
}

/// tcpdump reads the files and compiles the filters independently.
#[test]
fn filters_select_as_many_packets_as_in_tcpdump() {
    let Some(traces) = traces() else { return };
    if std::process::Command::new("tcpdump").arg("--version").output().is_err() {
        let _ = writeln!(std::io::stderr(), "skipped: tcpdump is not installed");
        return;
    }
    for (name, expression) in [
        ("attack/synscan.pcap", "tcp[tcpflags] & tcp-syn != 0"),
        ("tcp/alexa-app.pcapng", "greater 500"),
        ("formats/linktype-sll.pcap", "udp or icmp6"),
        ("formats/linktype-null-http.pcap", "tcp[13] & 8 != 0"),
        ("tcp/banners-rawip.pcap", "src net 0.0.0.0/1"),
        ("encap/vlan-mixed.pcap", "vlan and ip"),
        ("formats/pcap-big-endian-nfs.pcap", "ip[8] > 60"),
    ] {
        let path = traces.join(name);
        let output = std::process::Command::new("tcpdump")
            .arg("-nnr")
            .arg(&path)
            .arg(expression)
            .args(["-w", "-"])
            .output();
        let selected = read(CaptureInput::Bytes(output.unwrap().stdout), CaptureOptions::default())
            .unwrap()
            .packets
            .len();
        let filter = CaptureFilter::new(expression).unwrap();
        let ours = read(CaptureInput::File(path), CaptureOptions::default()).unwrap().packets;
        let matching = ours.iter().filter(|(d, bytes)| {
            let link_type = LinkType::try_from(u32::from(d.link_type)).unwrap();
            filter.matches(link_type, d.wire_len, bytes).unwrap()
        });
        assert_eq!(matching.count(), selected, "{name}: {expression}");
        assert!(selected > 0, "{name}: {expression}");
    }
}
