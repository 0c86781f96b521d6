//! Module trajectory: a packet is sampled at every place that it passes, or at none.

use super::capture::{BEGIN, COOKED, Capture, ETHERNET, RAW_IP, sample, samples};
use super::packet::{ACK, Packet};
use super::weir::{Row, run, run_file, run_file_while};
use etherparse::{Ipv4HeaderSlice, LaxSlicedPacket};
use std::collections::{HashMap, HashSet};

/// The properties of samples that must agree everywhere: time, hash and flow.
fn samples_of(capture: &Capture, module: &str) -> Vec<(i128, i128, i128)> {
    let rows = run(capture, &["-m", module]).rows("trajectory", "samples");
    rows.iter().map(|row| (row.number("time"), row.number("packet"), row.number("flow"))).collect()
}

/// The offset of the IP header in an Ethernet frame.
fn ip_offset(frame: &[u8]) -> Option<usize> {
    let packet = LaxSlicedPacket::from_ethernet(frame).ok()?;
    let payload = packet.ether_payload()?;
    let at = payload.payload.as_ptr() as usize - frame.as_ptr() as usize;
    (packet.ip_payload().is_some()).then_some(at)
}

/// The packet after a router: TTL, class of service and header checksum changed.
fn routed(ip: &[u8]) -> Vec<u8> {
    let mut ip = ip.to_vec();
    if ip[0] >> 4 == 4 {
        ip[1] ^= 0xB8;
        ip[8] = ip[8].saturating_sub(1);
        let checksum =
            Ipv4HeaderSlice::from_slice(&ip).map(|header| header.to_header().calc_header_checksum());
        if let Ok(checksum) = checksum {
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
    } else {
        // Traffic class and flow label, hop limit.
        ip[0] ^= 0x05;
        ip[1] ^= 0xF3;
        ip[3] ^= 0x09;
        ip[7] = ip[7].saturating_sub(1);
    }
    ip
}

/// The IP packets of a capture as seen elsewhere: routed, with the link layer that `link` adds.
fn elsewhere(capture: &Capture, link_type: u32, link: impl Fn(&[u8], &[u8]) -> Vec<u8>) -> Capture {
    let mut moved = Capture::new(link_type);
    for frame in &capture.frames {
        if let Some(at) = ip_offset(&frame.bytes) {
            moved.push(frame.ts, link(&frame.bytes, &routed(&frame.bytes[at..])));
        }
    }
    moved
}

fn ether_type(ip: &[u8]) -> [u8; 2] {
    if ip[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xDD] }
}

#[test]
fn the_same_packets_are_sampled_behind_routers_and_on_other_links() {
    let here = Capture::read(&sample());
    let macs = [7; 12];
    let places = [
        ("raw IP", elsewhere(&here, RAW_IP, |_, ip| ip.to_vec())),
        ("Ethernet", elsewhere(&here, ETHERNET, |_, ip| [&macs[..], &ether_type(ip), ip].concat())),
        (
            "two VLAN tags",
            elsewhere(&here, ETHERNET, |_, ip| {
                [&macs[..], &[0x88, 0xA8, 0, 5, 0x81, 0, 0, 6], &ether_type(ip), ip].concat()
            }),
        ),
        (
            "padded",
            elsewhere(&here, ETHERNET, |_, ip| {
                [&macs[..], &ether_type(ip), ip, &[0xEE; 46][ip.len().min(46)..]].concat()
            }),
        ),
        (
            "cooked",
            elsewhere(&here, COOKED, |_, ip| {
                [&[0, 0, 0, 1, 0, 6][..], &macs[..8], &ether_type(ip), ip].concat()
            }),
        ),
    ];
    for module in ["trajectory,one-in=1", "trajectory,one-in=20,seed=42"] {
        let expected = samples_of(&here, module);
        assert!(expected.len() > 300, "{module} sampled {}", expected.len());
        for (place, capture) in &places {
            assert!(samples_of(capture, module) == expected, "{module}: other samples at: {place}");
        }
    }
}

#[test]
fn the_hash_covers_exactly_the_bytes_that_routers_do_not_change() {
    let packet =
        Packet::tcp("10.0.0.1:1000", "10.0.0.2:80", ACK).numbers(1, 1).payload("twenty bytes of data");
    let last = |bytes: usize| {
        let mut payload = packet.payload.clone();
        payload.resize(bytes, b'.');
        payload
    };
    let variants = vec![
        packet.clone(),
        Packet { identification: 8, ..packet.clone() },
        Packet { from: "10.0.0.1:1001".parse().unwrap(), ..packet.clone() },
        Packet { from: "10.0.0.3:1000".parse().unwrap(), ..packet.clone() },
        Packet { to: "10.0.0.3:80".parse().unwrap(), ..packet.clone() },
        packet.clone().numbers(2, 1),
        packet.clone().payload("Twenty bytes of data"),
        packet.clone().payload("twenty bytes of datA"),
        packet.clone().payload(last(21)),
        packet.clone().payload(last(500)),
        Packet { tcp_flags: None, ..packet.clone() },
    ];
    let count = variants.len();
    let samples = samples_of(&Capture::from_packets(&variants), "trajectory,one-in=1");
    let hashes: HashSet<i128> = samples.iter().map(|sample| sample.1).collect();
    assert_eq!((samples.len(), hashes.len()), (count, count));

    // Another seed gives other hashes.
    let others = samples_of(&Capture::from_packets(&variants), "trajectory,one-in=1,seed=1");
    assert!(others.iter().all(|sample| !hashes.contains(&sample.1)));
}

#[test]
fn every_hashed_bit_changes_the_hash() {
    // 8 to 60 bytes above IP, unchanged and with each bit of the first 40 bytes flipped. The UDP checksum is zero, as it would change too.
    let mut capture = Capture::new(RAW_IP);
    for len in 0..52 {
        let payload: Vec<u8> = (0..len).map(|i: u8| i.wrapping_mul(37)).collect();
        let mut ip = Packet::udp("10.0.0.1:1000", "10.0.0.2:53").payload(payload).ip();
        ip[26..28].fill(0);
        capture.push(BEGIN, ip.clone());
        for (at, bit) in (20..ip.len().min(60)).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut other = ip.clone();
            other[at] ^= 1 << bit;
            capture.push(BEGIN, other);
        }
    }
    let samples = samples_of(&capture, "trajectory,one-in=1");
    let hashes: HashSet<i128> = samples.iter().map(|sample| sample.1).collect();
    assert_eq!((samples.len(), hashes.len()), (capture.frames.len(), capture.frames.len()));
}

#[test]
fn options_that_routers_change_are_not_hashed() {
    for len in 0..52u8 {
        let mut capture = Capture::new(RAW_IP);
        for route in [[7, 3, 4, 0], [7, 3, 8, 0], [1, 1, 1, 1]] {
            let mut ip = Packet::udp("10.0.0.1:1", "10.0.0.2:2").ip()[..20].to_vec();
            (ip[0], ip[3], ip[9]) = (0x46, 24 + len, 253);
            ip.extend_from_slice(&route);
            ip.extend(0..len);
            capture.push(BEGIN, ip);
        }
        let samples = samples_of(&capture, "trajectory,one-in=1");
        let hashes: HashSet<i128> = samples.iter().map(|sample| sample.1).collect();
        assert_eq!((samples.len(), hashes.len()), (3, 1), "{len} bytes");
    }
}

#[test]
fn the_sampling_rate_is_met_and_lower_rates_sample_subsets() {
    for path in samples() {
        let rows = |one_in: u32| {
            let rows = run_file(&path, &["-m", &format!("trajectory,one-in={one_in}")])
                .rows("trajectory", "samples");
            rows.iter().map(|row| row.number("packet")).collect::<Vec<_>>()
        };
        // Packets with equal content are sampled together, so the rate refers to distinct contents.
        let distinct = |hashes: Vec<i128>| hashes.into_iter().collect::<HashSet<i128>>();
        let all = distinct(rows(1));
        let mut more = all.clone();
        for one_in in [4, 20, 100] {
            let sampled = distinct(rows(one_in));
            let expected = all.len() as f64 / f64::from(one_in);
            let off = (sampled.len() as f64 - expected).abs() / expected.sqrt();
            assert!(off < 5.0, "one in {one_in}: {} samples, {off} standard deviations off", sampled.len());
            assert!(sampled.is_subset(&more));
            more = sampled;
        }
    }
}

#[test]
fn a_flow_is_described_once_and_its_samples_carry_its_label() {
    let one = |payload: &str| Packet::tcp("10.0.0.1:1000", "10.0.0.2:80", ACK).payload(payload);
    let back = |payload: &str| Packet::tcp("10.0.0.2:80", "10.0.0.1:1000", ACK).payload(payload);
    let v6 = Packet::udp("[2001:db8::1]:5353", "[ff02::fb]:5353").payload("mdns");
    let run = run(
        &Capture::from_packets(&[one("a"), one("b"), back("a"), v6, one("c"), back("b")]),
        &["-m", "trajectory,one-in=1"],
    );
    let flows = run.rows("trajectory", "flows");
    let described: Vec<_> =
        flows.iter().map(|row| (row.end("src"), row.end("dst"), row.number("protocol"))).collect();
    let flow = |from: &str, to: &str, protocol| (from.to_owned(), to.to_owned(), protocol);
    assert_eq!(
        described,
        [
            flow("10.0.0.1:1000", "10.0.0.2:80", 6),
            flow("10.0.0.2:80", "10.0.0.1:1000", 6),
            flow("[2001:db8::1]:5353", "[ff02::fb]:5353", 17)
        ]
    );
    let labels: Vec<i128> = flows.iter().map(|row| row.number("flow")).collect();
    let samples = run.rows("trajectory", "samples");
    let of_samples: Vec<i128> = samples.iter().map(|row| row.number("flow")).collect();
    assert_eq!(of_samples, [0, 0, 1, 2, 0, 1].map(|flow: usize| labels[flow]));
    let times: Vec<i128> = samples.iter().map(|row| row.number("time") - i128::from(BEGIN)).collect();
    assert_eq!(times, [0, 1000, 2000, 3000, 4000, 5000]);
    assert_eq!(samples[0].number("wire_bytes"), 14 + 20 + 20 + 1);
}

#[test]
fn labels_and_flows_of_whole_captures_match() {
    for path in samples() {
        let run = run_file(&path, &["-m", "trajectory,one-in=1,table-size=1048576"]);
        let flows = run.rows("trajectory", "flows");
        let key = |row: &Row| (row.end("src"), row.end("dst"), row.number("protocol"));
        let by_label: HashMap<i128, _> = flows.iter().map(|row| (row.number("flow"), key(row))).collect();
        let ends: HashSet<_> = by_label.values().collect();
        assert_eq!(by_label.len(), ends.len(), "one label for each flow");
        assert_eq!(
            flows.len(),
            by_label.len(),
            "the table is large enough, so that each flow is described once"
        );
        for row in run.rows("trajectory", "samples") {
            assert!(by_label.contains_key(&row.number("flow")));
        }
    }
}

#[test]
fn fragments_have_one_flow_and_are_sampled_individually() {
    let whole = Packet::udp("10.0.0.1:1000", "10.0.0.2:2000").payload([b'x'; 64]).ip();
    let fragment = |from: usize, to: usize, is_last: bool| {
        let mut ip = [&whole[..20], &whole[20 + from..20 + to]].concat();
        let len = u16::try_from(ip.len()).unwrap();
        ip[2..4].copy_from_slice(&len.to_be_bytes());
        let offset = u16::try_from(from / 8).unwrap() | if is_last { 0 } else { 0x2000 };
        ip[6..8].copy_from_slice(&offset.to_be_bytes());
        ip
    };
    let mut capture = Capture::new(RAW_IP);
    capture.push(BEGIN, fragment(0, 40, false));
    capture.push(BEGIN + 1, fragment(40, 72, true));
    let run = run(&capture, &["-m", "trajectory,one-in=1"]);
    let flows = run.rows("trajectory", "flows");
    assert_eq!(flows.len(), 1);
    assert_eq!((flows[0].end("src"), flows[0].end("dst")), ("10.0.0.1:0".into(), "10.0.0.2:0".into()));
    let samples = run.rows("trajectory", "samples");
    assert_eq!(samples.len(), 2);
    assert_ne!(samples[0].number("packet"), samples[1].number("packet"));
}

/// Every packet is sampled, so each packet that is read has a row. The file is truncated at any time of the run. The
/// rows are then those of the first packets, whose number the warning states, and no row is computed from zeros in
/// place of lost bytes.
#[test]
fn truncating_the_file_during_the_run_gives_no_row_from_lost_bytes() {
    const PACKETS: u32 = 100_000;
    const RUNS: u32 = 16;
    let packet = |i: u32| {
        let from = format!("10.{}.{}.{}:999", i >> 16, i >> 8 & 255, i & 255);
        Packet::udp(&from, "192.0.2.1:53").payload(i.to_le_bytes().repeat(8)).ethernet()
    };
    let mut capture = Capture::new(ETHERNET);
    (0..PACKETS).for_each(|i| capture.push(BEGIN + u64::from(i) * 1000, packet(i)));
    let whole = capture.to_pcap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let args = ["-m", "trajectory,one-in=1", "--jobs", "1"];
    let hashes = |run: &super::weir::Run| {
        let rows = run.rows("trajectory", "samples");
        rows.iter().map(|row| row.number("packet")).collect::<Vec<_>>()
    };
    std::fs::write(file.path(), &whole).unwrap();
    let begin = std::time::Instant::now();
    let expected = hashes(&run_file(file.path(), &args));
    let whole_run = begin.elapsed();
    assert_eq!(expected.len(), PACKETS as usize);
    let mut cut = 0;
    for i in 1..=RUNS {
        std::fs::write(file.path(), &whole).unwrap();
        // To one packet, to the middle of a page, or to a page boundary.
        let left = [100, whole.len() / 3 + 1000, (whole.len() / 2) & !4095][i as usize % 3];
        let (run, said) = run_file_while(file.path(), &args, || {
            std::thread::sleep(whole_run * i / RUNS);
            let file = std::fs::OpenOptions::new().write(true).open(file.path()).unwrap();
            file.set_len(left as u64).unwrap();
        });
        let rows = hashes(&run);
        let processed = said
            .split_once("the first ")
            .map(|(_, rest)| rest.split_once(" packets were processed").unwrap().0.parse::<usize>().unwrap());
        assert!(rows == expected[..rows.len()], "rows of lost bytes: {said}");
        // Truncated before it was opened.
        if said.contains("it ends inside a record; everything before that was processed") {
            continue;
        }
        assert_eq!(run.summary["capture"]["truncated"], processed.is_some());
        assert_eq!(rows.len(), processed.unwrap_or(PACKETS as usize), "{said}");
        cut += usize::from(processed.is_some());
    }
    assert!(cut > 0, "no run was cut");
}
