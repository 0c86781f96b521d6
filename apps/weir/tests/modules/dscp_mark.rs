//! Module dscp-mark: packets from a prefix get a code point, and nothing else changes.

use super::capture::{BEGIN, COOKED, Capture, ETHERNET, Frame, RAW_IP, sample};
use super::packet::{ACK, Packet};
use super::weir::{Row, refusal, run, run_file};
use etherparse::{
    EtherType, Ipv4HeaderSlice, LaxNetSlice, LaxSlicedPacket, NetSlice, SlicedPacket, TransportSlice,
};
use std::net::IpAddr;
use std::path::Path;

const EF: u8 = 46 << 2;

/// The packets that the module writes with these parameters, and its totals.
fn marked(capture: &Capture, parameters: &str) -> (Capture, Row) {
    let written = tempfile::Builder::new().suffix(".pcap").tempfile().unwrap();
    let module = format!("dscp-mark{parameters}");
    let run = run(capture, &["-m", &module, "-w", written.path().to_str().unwrap()]);
    (Capture::read(written.path()), run.rows("dscp-mark", "totals").pop().unwrap())
}

fn totals(row: &Row) -> [i128; 4] {
    ["matched_packets", "marked_packets", "already_packets", "refused_packets"].map(|name| row.number(name))
}

fn packet_from(source: &str, tos: u8) -> Packet {
    Packet { tos, ..Packet::tcp(source, "192.0.2.1:80", ACK).payload("data") }
}

/// Asserts that the packet's checksums equal those that etherparse computes.
fn assert_checksums(frame: &[u8]) {
    let packet = SlicedPacket::from_ethernet(frame).unwrap();
    let (source, destination) = match packet.net.unwrap() {
        NetSlice::Ipv4(ip) => {
            let header = ip.header().to_header();
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            (header.source, header.destination)
        }
        _ => return,
    };
    if let Some(TransportSlice::Tcp(tcp)) = packet.transport {
        assert_eq!(tcp.checksum(), tcp.calc_checksum_ipv4(source, destination).unwrap());
    }
}

#[test]
fn packets_from_the_prefix_get_the_code_point_and_keep_their_ecn_bits() {
    let capture = Capture::from_packets(&[
        packet_from("10.1.2.3:1000", 0),
        packet_from("10.255.0.1:1000", 3),
        packet_from("11.0.0.1:1000", 1),
        packet_from("10.0.0.1:1000", EF | 2),
        // To the prefix instead of from it.
        Packet::tcp("192.0.2.1:80", "10.1.2.3:1000", ACK),
    ]);
    let (written, row) = marked(&capture, "");
    assert_eq!(totals(&row), [3, 2, 1, 0]);
    let expected = Capture::from_packets(&[
        packet_from("10.1.2.3:1000", EF),
        packet_from("10.255.0.1:1000", EF | 3),
        packet_from("11.0.0.1:1000", 1),
        packet_from("10.0.0.1:1000", EF | 2),
        Packet::tcp("192.0.2.1:80", "10.1.2.3:1000", ACK),
    ]);
    assert_eq!(written.frames, expected.frames, "as if they had been sent like that, checksums included");
    written.frames.iter().for_each(|frame| assert_checksums(&frame.bytes));
}

#[test]
fn any_code_point_can_be_set_over_any_other() {
    let all: Vec<Packet> = (0..=255).map(|tos| packet_from("10.0.0.1:1000", tos)).collect();
    for dscp in [0, 1, 10, 63] {
        let (written, row) = marked(&Capture::from_packets(&all), &format!(",dscp={dscp}"));
        assert_eq!(totals(&row), [256, 252, 4, 0]);
        let expected: Vec<Packet> =
            (0..=255).map(|tos| packet_from("10.0.0.1:1000", dscp << 2 | tos & 3)).collect();
        assert_eq!(written.frames, Capture::from_packets(&expected).frames, "dscp={dscp}");
    }
    assert!(refusal(&Capture::from_packets(&all), &["-m", "dscp-mark,dscp=64"]).contains("dscp"));
}

#[test]
fn the_traffic_class_of_ipv6_is_set_between_version_and_flow_label() {
    let packet = |source: &str, tos| Packet {
        tos,
        flow_label: 0xA_BCDE,
        ..Packet::udp(source, "[2001:db8::99]:53").payload("query")
    };
    let capture = Capture::from_packets(&[
        packet("[2001:db8::1]:9", 0xFD),
        packet("[2001:db8::2]:9", 0),
        packet("[2001:db8::1]:9", 0x28),
    ]);
    let (written, row) = marked(&capture, ",source=2001:db8::1/128,dscp=10");
    assert_eq!(totals(&row), [2, 1, 1, 0]);
    let expected = Capture::from_packets(&[
        packet("[2001:db8::1]:9", 0x29),
        packet("[2001:db8::2]:9", 0),
        packet("[2001:db8::1]:9", 0x28),
    ]);
    assert_eq!(written.frames, expected.frames);
    // An IPv4 prefix does not match IPv6 packets, and vice versa.
    assert_eq!(totals(&marked(&capture, ",source=0.0.0.0/0").1), [0; 4]);
    assert_eq!(totals(&marked(&capture, ",source=2001:db8::/127").1), [2, 2, 0, 0]);
}

#[test]
fn a_prefix_matches_only_its_own_address_family() {
    let capture = Capture::from_packets(
        &[
            packet_from("10.0.0.1:1000", 0),
            packet_from("[2001:db8::1]:1000", 0),
            // Adjacent to the IPv4-mapped addresses.
            packet_from("[::fffe:a00:1]:1000", 0),
        ]
        .map(|packet| {
            if packet.from.is_ipv4() {
                packet
            } else {
                Packet { to: "[2001:db8::99]:80".parse().unwrap(), ..packet }
            }
        }),
    );
    for (prefix, expected) in [
        ("0.0.0.0/0", [EF, 0, 0]),
        ("10.0.0.1", [EF, 0, 0]),
        ("::/0", [0, EF, EF]),
        ("::/8", [0, 0, EF]),
        ("::/80", [0, 0, EF]),
        ("::fffe:0:0/95", [0, 0, EF]),
        ("::/96", [0, 0, 0]),
        ("2000::/3", [0, EF, 0]),
    ] {
        let (written, row) = marked(&capture, &format!(",source={prefix}"));
        let found = [0, 1, 2].map(|at: usize| match &written.frames[at].bytes[14..16] {
            [first, tos] if first >> 4 == 4 => *tos,
            [first, second] => first << 4 | second >> 4,
            _ => unreachable!(),
        });
        assert_eq!(found, expected, "source={prefix}");
        let matched = expected.iter().filter(|tos| **tos == EF).count() as i128;
        assert_eq!(totals(&row), [matched, matched, 0, 0], "source={prefix}");
    }
    for prefix in ["::ffff:0:0/96", "::ffff:10.0.0.1"] {
        let refusal = refusal(&capture, &["-m", &format!("dscp-mark,source={prefix}")]);
        assert!(refusal.contains("an IP prefix such as 10.0.0.0/8 or 2001:db8::/32"), "{refusal}");
    }
}

#[test]
fn missing_and_wrong_checksums_are_preserved() {
    let udp = Packet::udp("10.0.0.1:1000", "192.0.2.1:53").payload("query").ethernet();
    let with = |at: usize, value: u16| {
        let mut frame = udp.clone();
        frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
        frame
    };
    let mut capture = Capture::new(ETHERNET);
    // No UDP checksum, a wrong one, and a wrong one of the IPv4 header.
    let (ip_at, udp_at) = (14 + 10, 14 + 20 + 6);
    for frame in [with(udp_at, 0), with(udp_at, 0x1234), with(ip_at, 0x1234)] {
        capture.push(BEGIN, frame);
    }
    let (written, row) = marked(&capture, "");
    assert_eq!(totals(&row), [3, 3, 0, 0]);
    let at =
        |i: usize, at: usize| u16::from_be_bytes(written.frames[i].bytes[at..at + 2].try_into().unwrap());
    assert_eq!((at(0, udp_at), at(1, udp_at)), (0, 0x1234), "DSCP is not in UDP's checksum");
    // The error is preserved: one's complement arithmetic (RFC 1624).
    let right = |i: usize| {
        Ipv4HeaderSlice::from_slice(&written.frames[i].bytes[14..34])
            .unwrap()
            .to_header()
            .calc_header_checksum()
    };
    let was_right = u16::from_be_bytes([udp[ip_at], udp[ip_at + 1]]);
    let off = |wrong: u16, right: u16| (u32::from(wrong) + 0xFFFF - u32::from(right)) % 0xFFFF;
    assert_eq!(at(0, ip_at), right(0));
    assert_eq!(off(at(2, ip_at), right(2)), off(0x1234, was_right));
    assert_ne!(at(2, ip_at), right(2));
}

#[test]
fn packets_with_vlan_tags_and_on_other_link_types_are_marked() {
    let (before, after) = (packet_from("10.0.0.1:1000", 1), packet_from("10.0.0.1:1000", EF | 1));
    let cooked =
        |packet: &Packet| [&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 8, 0][..], &packet.ip()].concat();
    type Link<'a> = &'a dyn Fn(&Packet) -> Vec<u8>;
    let links: [(u32, Link<'_>); 3] =
        [(ETHERNET, &|packet| packet.tagged(20)), (RAW_IP, &Packet::ip), (COOKED, &cooked)];
    for (link_type, link) in links {
        let mut capture = Capture::new(link_type);
        capture.push(BEGIN, link(&before));
        let (written, row) = marked(&capture, "");
        assert_eq!((written.link_type, totals(&row)), (link_type, [1, 1, 0, 0]));
        assert_eq!(written.frames[0].bytes, link(&after));
    }
}

#[test]
fn without_an_output_packets_are_only_counted() {
    let rows = run(&Capture::from_packets(&[packet_from("10.0.0.1:1000", 0)]), &["-m", "dscp-mark"])
        .rows("dscp-mark", "totals");
    assert_eq!(totals(&rows[0]), [1, 1, 0, 0]);
}

/// The offset of the IP header, and the source address.
fn source_of(frame: &[u8]) -> Option<(usize, IpAddr)> {
    let packet = LaxSlicedPacket::from_ethernet(frame).ok()?;
    let ip = packet.ether_payload()?;
    let source = match packet.net.as_ref()? {
        LaxNetSlice::Ipv4(v4) if ip.ether_type == EtherType::IPV4 => IpAddr::V4(v4.header().source_addr()),
        LaxNetSlice::Ipv6(v6) if ip.ether_type == EtherType::IPV6 => IpAddr::V6(v6.header().source_addr()),
        _ => return None,
    };
    Some((ip.payload.as_ptr() as usize - frame.as_ptr() as usize, source))
}

/// The expected frame.
fn by_hand(frame: &Frame, is_guest: impl Fn(IpAddr) -> bool) -> Frame {
    let mut bytes = frame.bytes.clone();
    match source_of(&frame.bytes) {
        Some((at, source @ IpAddr::V4(_))) if is_guest(source) => {
            bytes[at + 1] = EF | bytes[at + 1] & 3;
            let checksum =
                Ipv4HeaderSlice::from_slice(&bytes[at..]).unwrap().to_header().calc_header_checksum();
            bytes[at + 10..at + 12].copy_from_slice(&checksum.to_be_bytes());
        }
        Some((at, source)) if is_guest(source) => {
            let ecn = bytes[at + 1] >> 4 & 3;
            bytes[at] = 0x60 | EF >> 4;
            bytes[at + 1] = (EF | ecn) << 4 | bytes[at + 1] & 0x0F;
        }
        _ => {}
    }
    Frame { bytes, ..frame.clone() }
}

#[test]
fn every_packet_of_the_sample_is_marked_as_by_an_independent_implementation() {
    let before = Capture::read(&sample());
    type IsGuest = fn(IpAddr) -> bool;
    let guests: [(&str, IsGuest); 2] = [
        ("203.0.113.0/24", |ip| matches!(ip, IpAddr::V4(ip) if ip.octets()[..3] == [203, 0, 113])),
        ("2001:db8::/32", |ip| matches!(ip, IpAddr::V6(ip) if ip.segments()[..2] == [0x2001, 0xDB8])),
    ];
    for (prefix, is_guest) in guests {
        let written = tempfile::Builder::new().suffix(".pcap").tempfile().unwrap();
        let path: &Path = written.path();
        let run =
            run_file(&sample(), &["-m", &format!("dscp-mark,source={prefix}"), "-w", path.to_str().unwrap()]);
        let expected: Vec<Frame> = before.frames.iter().map(|frame| by_hand(frame, is_guest)).collect();
        let after = Capture::read(path);
        assert_eq!(after.frames.len(), expected.len());
        for (number, (after, expected)) in after.frames.iter().zip(&expected).enumerate() {
            assert!(after == expected, "{prefix}: packet {number}: {after:?}, expected {expected:?}");
        }
        let changed = before.frames.iter().zip(&expected).filter(|(before, after)| before != after).count();
        let [matched, marked, already, refused] = totals(&run.rows("dscp-mark", "totals")[0]);
        assert_eq!((marked, matched - already, refused), (changed as i128, changed as i128, 0));
        assert!(changed > 500, "{prefix}: {changed} packets changed");
    }
}
