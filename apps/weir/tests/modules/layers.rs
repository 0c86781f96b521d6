//! The modules about handshakes, floods, signatures, samples and ports on packets in tunnels: the innermost IP header counts, or with
//! `layer=outer` the outermost one.

use super::capture::{BEGIN, Capture, ETHERNET, MILLISECOND};
use super::latency::ip;
use super::packet::{ACK, PSH, Packet, SYN};
use super::weir::{Row, Run, refusal, run, run_file};
use std::net::IpAddr;

const ENDS: [&str; 2] = ["198.18.0.1", "198.18.0.2"];

/// The victim of a flood.
const VICTIM: &str = "2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff";

/// Packets at these times in ms.
type Packets = [(u64, Packet)];
/// Makes a frame of a packet.
type Link = fn(&Packet) -> Vec<u8>;

/// The number of bytes that the VXLAN tunnel adds to a frame.
const VXLAN_BYTES: i128 = 14 + 20 + 8 + 8;

/// The packet in VXLAN. The tunnel's ends depend on the direction.
fn in_vxlan(packet: &Packet) -> Packet {
    let [from, to] = if packet.from < packet.to { ENDS } else { [ENDS[1], ENDS[0]] };
    Packet::udp(&format!("{from}:50000"), &format!("{to}:4789"))
        .payload([&[8, 0, 0, 0, 0, 0, 7, 0][..], &packet.ethernet()].concat())
}

fn in_ip(protocol: u8, inner: &[u8]) -> Vec<u8> {
    let end = |number: u16| format!("2001:db8:1111:2222:3333:4444:5555:{number}").parse::<IpAddr>().unwrap();
    let [from, to] = [1111, 2222].map(end);
    [&[2; 12][..], &[0x86, 0xDD], &ip(from, to, protocol, inner)].concat()
}

fn plain(packet: &Packet) -> Vec<u8> {
    packet.ethernet()
}

fn vxlan(packet: &Packet) -> Vec<u8> {
    in_vxlan(packet).ethernet()
}

fn tagged_vxlan(packet: &Packet) -> Vec<u8> {
    in_vxlan(packet).tagged(7)
}

fn ip_in_ip(packet: &Packet) -> Vec<u8> {
    in_ip(if packet.from.is_ipv4() { 4 } else { 41 }, &packet.ip())
}

/// VXLAN in IPv6: the name of the tunnel is that of the innermost one.
fn vxlan_in_ip(packet: &Packet) -> Vec<u8> {
    in_ip(4, &in_vxlan(packet).ip())
}

const TUNNELS: [(Link, &str); 4] =
    [(vxlan, "vxlan"), (tagged_vxlan, "vxlan"), (ip_in_ip, "ip"), (vxlan_in_ip, "vxlan")];

fn capture_of(packets: &Packets, link: Link) -> Capture {
    let mut capture = Capture::new(ETHERNET);
    for (ms, packet) in packets {
        capture.push(BEGIN + ms * MILLISECOND, link(packet));
    }
    capture
}

/// Connections from 60 clients, IPv4 and IPv6, each of the packets that `connection` makes of client and server.
fn connections(connection: impl Fn(&str, &str) -> Vec<Packet>) -> Vec<(u64, Packet)> {
    let mut packets = Vec::new();
    for i in 0..60 {
        let (client, server) = if i % 3 == 0 {
            (format!("[2001:db8::{i:x}]:{}", 1024 + i), "[2001:db8:1::1]:80")
        } else {
            (format!("10.0.0.{i}:{}", 1024 + i), "10.1.0.1:80")
        };
        packets.extend((i..).step_by(7).zip(connection(&client, server)));
    }
    packets.sort_by_key(|(ms, _)| *ms);
    packets
}

/// Asserts that the rows of a stream are those of the packets without a tunnel, but for the column `tunnel` and the columns
/// `changed`; and that without tunnels the layer does not matter. Returns the run for each kind of tunnel.
fn assert_inner_rows(
    packets: &Packets,
    [module, parameters, stream]: [&str; 3],
    changed: &[&str],
) -> Vec<Run> {
    let rows = |ran: &Run| ran.rows(module, stream);
    let without = |rows: &[Row]| {
        let columns = [&["tunnel", "vlan"], changed].concat();
        rows.iter().map(|row| row.without(&columns)).collect::<Vec<_>>()
    };
    let named = |rows: &[Row], name| rows.iter().all(|row| row.text("tunnel") == name);
    let (inner, outer) = (format!("{module}{parameters}"), format!("{module}{parameters},layer=outer"));
    let outside = run(&capture_of(packets, plain), &["-m", &inner]);
    let expected = rows(&outside);
    assert!(expected.len() > 20 && named(&expected, ""), "{module}: {expected:?}");
    assert_eq!(rows(&run(&capture_of(packets, plain), &["-m", &outer])), expected);
    TUNNELS
        .iter()
        .map(|(link, name)| {
            let ran = run(&capture_of(packets, *link), &["-m", &inner]);
            assert_eq!(without(&rows(&ran)), without(&expected), "{module} in {name}");
            assert!(named(&rows(&ran), name), "{module} in {name}");
            ran
        })
        .collect()
}

/// Asserts that the filter of each finding selects all packets of a kind of tunnel.
fn assert_filters(packets: &Packets, module: &str, runs: &[Run]) {
    for ((link, name), ran) in TUNNELS.iter().zip(runs) {
        let findings = ran.rows(module, "findings");
        assert!(!findings.is_empty(), "{module} in {name}");
        let selected = |filter: &str| {
            let ran = run(&capture_of(packets, *link), &["-m", module, filter]);
            usize::try_from(ran.summary["capture"]["selected"].as_u64().unwrap()).unwrap()
        };
        // The same filter in all findings, as there is one tunnel; its direction does not matter.
        for finding in [&findings[0], &findings[findings.len() - 1]] {
            assert_eq!(selected(finding.text("filter")), packets.len(), "{name}: {finding:?}");
        }
    }
}

/// Asserts that all records are the same with one and with three threads, for both layers.
fn assert_same_for_any_number_of_threads(packets: &Packets, module: &str) {
    for (link, name) in TUNNELS {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), capture_of(packets, link).to_pcap()).unwrap();
        for layer in ["inner", "outer"] {
            let module = format!("{module},layer={layer}");
            let files = |jobs| run_file(file.path(), &["-m", &module, "-j", jobs]).files();
            assert!(files("1") == files("3"), "{module} in {name}");
        }
    }
}

#[test]
fn handshakes_in_tunnels_have_times() {
    let packets = connections(|client, server| {
        vec![
            Packet::tcp(client, server, SYN).numbers(100, 0),
            Packet::tcp(server, client, SYN | ACK).numbers(500, 101),
            Packet::tcp(client, server, ACK).numbers(101, 501),
        ]
    });
    let runs = assert_inner_rows(&packets, ["rtt", ",slow=1ms", "rtts"], &[]);
    assert_eq!(runs[0].rows("rtt", "rtts").len(), 60);
    assert!(runs[0].rows("rtt", "rtts").iter().all(|row| row.number("server_rtt_ns") == 7_000_000));
    assert_filters(&packets, "rtt", &runs);
    for (link, _) in TUNNELS {
        assert_eq!(run(&capture_of(&packets, link), &["-m", "rtt,layer=outer"]).rows("rtt", "rtts"), []);
    }
    assert_same_for_any_number_of_threads(&packets, "rtt,table-size=256,slow=1ms");
}

#[test]
fn signatures_in_tunnels_are_found() {
    let packets = connections(|client, server| {
        let segment = |payload: &str| Packet::tcp(client, server, ACK | PSH).payload(payload);
        vec![segment("GET /default.ida?NNNNNNNN%u9090%u6858%ucbd3%u7801"), segment("GET / HTTP/1.0")]
    });
    let runs = assert_inner_rows(&packets, ["worm", "", "hits"], &[]);
    assert_eq!((runs[0].rows("worm", "hits").len(), runs[0].rows("worm", "findings").len()), (120, 60));
    assert_filters(&packets, "worm", &runs);
    for (link, _) in TUNNELS {
        assert_eq!(run(&capture_of(&packets, link), &["-m", "worm,layer=outer"]).rows("worm", "hits"), []);
    }
    assert_same_for_any_number_of_threads(&packets, "worm,signatures=GET,NNN");
}

#[test]
fn strings_in_tunnels_are_found() {
    let packets = connections(|client, server| {
        let segment = |payload: &str| Packet::tcp(client, server, ACK | PSH).payload(payload);
        vec![segment("GET /bin/sh HTTP/1.0"), segment("GET / HTTP/1.0"), segment("xx/bin")]
    });
    let runs = assert_inner_rows(&packets, ["payload-match", "", "matches"], &[]);
    assert_eq!(runs[0].rows("payload-match", "matches").len(), 60);
    for (link, _) in TUNNELS {
        let ran = run(&capture_of(&packets, link), &["-m", "payload-match,layer=outer"]);
        assert_eq!(ran.rows("payload-match", "matches"), []);
    }
    assert_same_for_any_number_of_threads(&packets, "payload-match,needle=G,first=0");
}

#[test]
fn packets_in_tunnels_are_sampled_as_outside() {
    let packets = connections(|client, server| {
        let segment = |payload: &str| Packet::tcp(client, server, ACK).payload(payload);
        vec![segment("a"), segment(&"b".repeat(100)), Packet::udp(server, client).payload("answer")]
    });
    assert_inner_rows(&packets, ["trajectory", ",one-in=2", "samples"], &["wire_bytes"]);
    assert_inner_rows(&packets, ["trajectory", ",one-in=2", "flows"], &[]);
    // The outer headers: one flow for each direction.
    let ran = run(&capture_of(&packets, vxlan), &["-m", "trajectory,one-in=1,layer=outer"]);
    let flows = ran.rows("trajectory", "flows");
    assert_eq!((flows.len(), ran.rows("trajectory", "samples").len()), (2, packets.len()));
    assert!(flows.iter().all(|row| (row.number("dst_port"), row.text("tunnel")) == (4789, "")));
    assert_same_for_any_number_of_threads(&packets, "trajectory,one-in=2,table-size=256");
}

#[test]
fn datagrams_in_tunnels_count_with_the_ports_inside() {
    let packets = connections(|client, server| {
        let server = server.replace(":80", ":53");
        vec![
            Packet::udp(client, &server).payload("query"),
            Packet::udp(&server, client).payload("a longer answer"),
            Packet::tcp(client, &server, SYN),
        ]
    });
    let counts = |link: Link, parameters: &str| {
        let module = format!("port-count,ports=53,4789{parameters}");
        let totals = run(&capture_of(&packets, link), &["-m", &module]).rows("port-count", "totals");
        let names = ["to_packets", "to_bytes", "from_packets", "from_bytes"];
        [&totals[0], &totals[1]].map(|row| names.map(|name| row.number(name)))
    };
    let [[to, to_bytes, from, from_bytes], none] = counts(plain, "");
    assert_eq!(([to, from], none), ([60; 2], [0; 4]));
    assert_eq!(counts(plain, ",layer=outer"), counts(plain, ""));
    let more = 60 * VXLAN_BYTES;
    assert_eq!(counts(vxlan, ""), [[60, to_bytes + more, 60, from_bytes + more], [0; 4]]);
    let all: i128 = capture_of(&packets, vxlan).frames.iter().map(|frame| i128::from(frame.wire_len)).sum();
    assert_eq!(counts(vxlan, ",layer=outer"), [[0; 4], [180, all, 0, 0]]);
    // No UDP outside.
    assert_eq!(counts(ip_in_ip, "")[0][..1], [60]);
    assert_eq!(counts(ip_in_ip, ",layer=outer"), [[0; 4]; 2]);
    assert_same_for_any_number_of_threads(&packets, "port-count,ports=53,4789");
}

#[test]
fn floods_in_tunnels_are_findings_whose_filters_select_them() {
    // Addresses of the greatest length, so that filters are of the greatest length too.
    let flood = |i: u64| (format!("[2001:db8::{i:x}]:999"), format!("[{VICTIM}]:443"));
    let scan = |i: u64| ("192.0.2.1:999".to_owned(), format!("10.9.{}.{}:22", i / 200, i % 200 + 1));
    type Ends = fn(u64) -> (String, String);
    let cases: [(Ends, &str); 2] =
        [(flood, "SYN flood on 2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff: "), (scan, "Port scan of ")];
    for (ends, text) in cases {
        let packets: Vec<_> = (0..900)
            .map(|i| {
                let (from, to) = ends(i);
                (i, Packet::tcp(&from, &to, SYN))
            })
            .collect();
        let module = ["syn-flood", "syn-flood,layer=outer"];
        let outside = run(&capture_of(&packets, plain), &["-m", module[0]]);
        let expected = outside.rows("syn-flood", "intervals");
        assert_eq!(expected[0].number("syn_packets"), 900);
        let mut runs = Vec::new();
        for (link, name) in TUNNELS {
            let capture = capture_of(&packets, link);
            let ran = run(&capture, &["-m", module[0]]);
            assert_eq!(ran.rows("syn-flood", "intervals"), expected, "{name}");
            assert_eq!(ran.rows("syn-flood", "top"), outside.rows("syn-flood", "top"), "{name}");
            let findings = ran.rows("syn-flood", "findings");
            assert!(findings[0].text("text").starts_with(text), "{name}: {findings:?}");
            runs.push(ran);
            let outer = run(&capture, &["-m", module[1]]);
            assert_eq!(outer.rows("syn-flood", "intervals")[0].number("syn_packets"), 0, "{name}");
            assert_eq!(outer.rows("syn-flood", "findings"), [], "{name}");
        }
        assert_filters(&packets, "syn-flood", &runs);
        // With packets of the same attack outside the tunnel, too.
        let mut mixed = capture_of(&packets, vxlan);
        for (frame, (_, packet)) in mixed.frames.iter_mut().zip(&packets).step_by(3) {
            *frame = super::capture::Frame { bytes: plain(packet), ..frame.clone() };
            frame.wire_len = u32::try_from(frame.bytes.len()).unwrap();
        }
        let filter =
            run(&mixed, &["-m", module[0]]).rows("syn-flood", "findings")[0].text("filter").to_owned();
        assert_eq!(run(&mixed, &["-m", module[0], &filter]).summary["capture"]["selected"], 900);
        assert_same_for_any_number_of_threads(&packets, "syn-flood");
    }
}

#[test]
fn other_layers_are_refused() {
    for module in ["rtt", "syn-flood", "worm", "trajectory", "port-count", "payload-match"] {
        let said = refusal(&Capture::new(ETHERNET), &["-m", &format!("{module},layer=both")]);
        assert!(said.contains("parameter `layer`"), "{said}");
    }
}
