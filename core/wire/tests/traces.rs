//! Real captures, compared with the counts of another reader (dpkt, checked with tshark).

use crate::exercise;
use crate::oracle;
use pcap::Capture;
use std::io::Write;
use std::path::{Path, PathBuf};
use weir_abi::flag;
use weir_units::Timestamp;
use weir_wire::{LinkType, Meta, PEEK, classify};

fn traces() -> Option<PathBuf> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces"));
    let there = folder.join("index.csv").exists();
    if !there {
        let _ = writeln!(std::io::stderr(), "skipped: {} is not there", folder.display());
    }
    there.then(|| folder.to_path_buf())
}

/// A line of the index: packets, TCP, UDP, IPv6, TCP SYN.
struct Expected {
    file: String,
    link: String,
    counts: [u64; 5],
}

fn index(folder: &Path) -> Vec<Expected> {
    let text = std::fs::read_to_string(folder.join("index.csv")).expect("the index can be read");
    let line = |line: &str| {
        let fields: Vec<&str> = line.splitn(9, ',').collect();
        let counts = [1, 4, 5, 6, 7].map(|column| fields[column].parse().expect("a count"));
        Expected { file: fields[0].to_owned(), link: fields[3].to_owned(), counts }
    };
    text.lines().skip(1).map(line).collect()
}

/// The index's names of supported link types.
const LINKS: [&str; 6] = ["Ethernet", "raw IP", "raw IPv4", "NULL", "Linux SLL", "Linux SLL2"];

/// Calls `packet` with every packet that libpcap reads from the file; `None` if libpcap or weir does not support the
/// capture.
fn each_packet(file: &Path, mut packet: impl FnMut(&[u8], &Meta)) -> Option<()> {
    let mut capture = Capture::from_file(file).ok()?;
    let link_type = LinkType::try_from(u32::try_from(capture.get_datalink().0).ok()?).ok()?;
    let mut number = 0;
    while let Ok(read) = capture.next_packet() {
        let cap_len = u32::try_from(read.data.len()).expect("a length in the file has 32 bits");
        let meta = Meta {
            ts: Timestamp(0),
            cap_len,
            wire_len: read.header.len,
            link_type,
            interface: 0,
            number,
            data: 0,
        };
        packet(read.data, &meta);
        number += 1;
    }
    Some(())
}

/// Captures that libpcap refuses, because their interfaces have different snapshot lengths, link types or
/// resolutions. (It opens some of them, and reports the difference at the first packet.)
const NOT_FOR_LIBPCAP: [&str; 4] = [
    "formats/pcapng-11-interfaces.pcapng",
    "formats/pcapng-126-interfaces.pcapng",
    "formats/pcapng-le-3if.pcapng",
    "formats/pcapng-be.pcapng",
];

/// The reason why a damaged capture, all in robustness/, is counted differently in the index.
fn why_it_differs(file: &str, link: &str) -> Option<&'static str> {
    Some(match file {
        "robustness/PcapPlusPlus/ipv4-malformed.pcap" => {
            "libpcap refuses it: its interfaces have different snapshot lengths"
        }
        "robustness/tcpdump/LINKTYPE_IPV4_invalid.pcap" => {
            "IPv6 in a link type that says IPv4: malformed here, and IPv6 for tshark and the index"
        }
        "robustness/nDPI/fuzz-2006-09-29-28586.pcap"
        | "robustness/tcpdump/kday3.pcap"
        | "robustness/tcpdump/ipv6-bad-version.pcap"
        | "robustness/zeek/383379789-decrypt-crash.pcap" => {
            "impossible IP version for its EtherType; tshark sees no TCP or UDP in those packets either"
        }
        "robustness/tcpdump/ipv4_invalid_hdr_length.pcap"
        | "robustness/tcpdump/ipv4_invalid_total_length_2.pcap"
        | "robustness/zeek/ipv4-truncated-broken-header.pcap" => {
            "impossible IPv4 length; tshark does not see TCP or UDP either"
        }
        _ if file.starts_with("robustness/tcpdump/") && link.starts_with("DLT ") => {
            "other bits of the link type field are set; libpcap takes them off, the index does not"
        }
        _ => return None,
    })
}

#[test]
fn every_trace_is_counted_as_in_the_index() {
    let Some(folder) = traces() else { return };
    let (mut read, mut packets, mut asked_for_more, mut wrong) = (0, 0_u64, 0_u64, Vec::new());
    for Expected { file, link, counts: expected } in index(&folder) {
        let mut counts = [0_u64; 5];
        let opened = each_packet(&folder.join(&file), |bytes, meta| {
            let d = exercise::described(bytes, meta);
            exercise::assert_consistent(&d, meta);
            asked_for_more += u64::from(classify(&bytes[..bytes.len().min(PEEK)], meta).is_err());
            let is_syn = d.tcp_flags & 0x12 == 0x02;
            let is =
                [true, d.flags & flag::TCP != 0, d.flags & flag::UDP != 0, d.flags & flag::IPV6 != 0, is_syn];
            for (count, is) in counts.iter_mut().zip(is) {
                *count += u64::from(is);
            }
        });
        if opened.is_none() || NOT_FOR_LIBPCAP.contains(&file.as_str()) {
            let unknown = LINKS.iter().all(|known| *known != link);
            let refused = NOT_FOR_LIBPCAP.contains(&file.as_str()) || file.contains("invalid-vers");
            assert!(unknown || refused, "{file} ({link}) cannot be read");
            continue;
        }
        read += 1;
        packets += counts[0];
        if counts != expected && why_it_differs(&file, &link).is_none() {
            wrong.push(format!(
                "{file} ({link}): packets, TCP, UDP, IPv6, SYN are {counts:?}, and in the index {expected:?}"
            ));
        }
    }
    let _ = writeln!(
        std::io::stderr(),
        "{read} files, {packets} packets, of which {asked_for_more} needed more than {PEEK} bytes"
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(read > 300 && asked_for_more * 50 < packets);
}

#[test]
fn etherparse_sees_the_same_in_every_trace() {
    let Some(folder) = traces() else { return };
    let (mut compared, mut skipped, mut wrong) = (0_u64, 0_u64, Vec::new());
    for Expected { file, .. } in index(&folder) {
        each_packet(&folder.join(&file), |bytes, meta| {
            let d = exercise::described(bytes, meta);
            if !oracle::comparable(&d, meta.link_type) {
                skipped += 1;
                return;
            }
            compared += 1;
            let (ours, theirs) = (oracle::ours(&d), oracle::etherparse(bytes, meta.link_type));
            if Some(&ours) != theirs.as_ref() {
                wrong.push(format!("{file}, packet {}: {ours:?}, etherparse: {theirs:?}", meta.number + 1));
            }
        });
    }
    let _ = writeln!(std::io::stderr(), "{compared} packets compared, {skipped} not");
    assert!(wrong.is_empty(), "{} packets:\n{}", wrong.len(), wrong[..wrong.len().min(40)].join("\n"));
    assert!(compared > 100_000);
}
