//! Talkers, protocols and conversations of the sample capture, compared with sums that a parser in this test computes.

use super::html::elements;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use weir_netio::{Capture, CaptureInput, CaptureNext};
use weir_report::{CaptureInfo, RunReport};
use weir_units::Bytes;

type Counts = (u64, u64);

fn sample() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../lab/sample/sample.pcap")
}

/// The sums of a capture with Ethernet frames.
#[derive(Default)]
struct Sums {
    sent: BTreeMap<IpAddr, Counts>,
    received: BTreeMap<IpAddr, Counts>,
    conversations: BTreeMap<(IpAddr, IpAddr), Counts>,
    arp: Counts,
    ipv4: Counts,
    ipv4_udp: Counts,
    ipv6_icmp: Counts,
    dns: Counts,
}

/// Reads the sample, which is a pcap file with nanoseconds in little-endian order.
fn sums() -> Sums {
    let file = std::fs::read(sample()).unwrap();
    assert_eq!(file[..4], [0x4d, 0x3c, 0xb2, 0xa1]);
    let mut sums = Sums::default();
    let mut rest = &file[24..];
    while !rest.is_empty() {
        let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
        let (captured, wire_len) = (word(8) as usize, u64::from(word(12)));
        add_frame(&mut sums, &rest[16..16 + captured], wire_len);
        rest = &rest[16 + captured..];
    }
    sums
}

fn add_frame(sums: &mut Sums, frame: &[u8], wire_len: u64) {
    let mut at = 12;
    while frame[at..at + 2] == [0x81, 0x00] {
        at += 4;
    }
    let ip = &frame[at + 2..];
    let add = |counts: &mut Counts| *counts = (counts.0 + 1, counts.1 + wire_len);
    let (from, to): (IpAddr, IpAddr) = match [frame[at], frame[at + 1]] {
        [0x08, 0x00] => {
            add(&mut sums.ipv4);
            if ip[9] == 17 {
                add(&mut sums.ipv4_udp);
                let (header, is_first) = (usize::from(ip[0] & 15) * 4, ip[6] & 0x1f == 0 && ip[7] == 0);
                if is_first && (ip[header..header + 2] == [0, 53] || ip[header + 2..header + 4] == [0, 53]) {
                    add(&mut sums.dns);
                }
            }
            let at = |i: usize| <[u8; 4]>::try_from(&ip[i..i + 4]).unwrap().into();
            (at(12), at(16))
        }
        [0x86, 0xdd] => {
            // Hop-by-hop options precede reports of multicast listeners; fragments have a header, too.
            let next = if matches!(ip[6], 0 | 44) { ip[40] } else { ip[6] };
            if next == 58 {
                add(&mut sums.ipv6_icmp);
            }
            let at = |i: usize| <[u8; 16]>::try_from(&ip[i..i + 16]).unwrap().into();
            (at(8), at(24))
        }
        [0x08, 0x06] => return add(&mut sums.arp),
        other => panic!("EtherType {other:?}"),
    };
    add(sums.sent.entry(from).or_default());
    add(sums.received.entry(to).or_default());
    add(sums.conversations.entry((from, to)).or_default());
}

/// The rows of the table with this name, as texts of cells.
fn rows(page: &str, name: &str) -> Vec<Vec<String>> {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut inside = false;
    for element in elements(page) {
        match element.tag.as_str() {
            "div" => inside = element.attribute("aria-label") == Some(name),
            "tr" if inside => rows.push(Vec::new()),
            "td" | "th" if inside => rows.last_mut().unwrap().push(element.text),
            _ => {}
        }
    }
    assert!(rows.len() > 1, "{name}");
    rows.split_off(1)
}

fn shown((packets, bytes): Counts) -> [String; 2] {
    [weir_rows::text::grouped(packets), Bytes(bytes).to_string()]
}

#[test]
fn the_tables_of_the_sample_equal_sums_computed_by_another_parser() {
    let mut capture = Capture::open(CaptureInput::File(sample())).unwrap();
    let (mut report, mut head) = (RunReport::new(), Vec::new());
    while let CaptureNext::Block(block) = capture.next_block().unwrap() {
        for (index, descriptor) in block.descriptors().iter().enumerate() {
            block.copy_head(index, RunReport::head_bytes(descriptor), &mut head);
            report.add_packet(descriptor, &head);
        }
    }
    let page = report.render(&CaptureInfo::default(), &[]);
    let sums = sums();

    let hosts = rows(&page, "Hosts with most bytes");
    let of = |map: &BTreeMap<IpAddr, Counts>, host: &IpAddr| map.get(host).copied().unwrap_or_default();
    let all: std::collections::BTreeSet<IpAddr> =
        sums.sent.keys().chain(sums.received.keys()).copied().collect();
    let total = |host: &IpAddr| of(&sums.sent, host).1 + of(&sums.received, host).1;
    let mut heaviest: Vec<IpAddr> = all.into_iter().collect();
    heaviest.sort_by_key(|host| std::cmp::Reverse(total(host)));
    assert_eq!(hosts.len(), 20);
    for (row, host) in hosts.iter().zip(&heaviest) {
        let expected = [shown(of(&sums.sent, host)), shown(of(&sums.received, host))].concat();
        assert_eq!(row[0], host.to_string());
        assert_eq!(row[1..5], expected, "{host}");
    }

    let conversations = rows(&page, "Conversations with most bytes");
    let way = |a: &str, b: &str| {
        let pair = (a.parse().unwrap(), b.parse().unwrap());
        sums.conversations.get(&pair).copied().unwrap_or_default()
    };
    assert_eq!(conversations.len(), 20);
    let mut before = u64::MAX;
    for row in &conversations {
        let (forth, back) = (way(&row[0], &row[1]), way(&row[1], &row[0]));
        assert_eq!(row[2..6], [shown(forth), shown(back)].concat(), "{row:?}");
        assert!(forth.1 + back.1 <= before);
        before = forth.1 + back.1;
    }

    let protocols = rows(&page, "Packets and bytes by protocol");
    for (name, counts) in [
        ("ARP", sums.arp),
        ("IPv4", sums.ipv4),
        ("UDP", sums.ipv4_udp),
        ("53 (domain)", sums.dns),
        ("ICMPv6", sums.ipv6_icmp),
    ] {
        let row = protocols.iter().find(|row| row[0] == name).unwrap_or_else(|| panic!("{name}"));
        let [packets, bytes] = shown(counts);
        assert_eq!((&row[1], &row[3]), (&packets, &bytes), "{name}");
    }
}
