//! One packet of each kind, byte by byte, and its descriptor.

use crate::exercise::described;
use weir_abi::{Descriptor, flag};
use weir_units::Timestamp;
use weir_wire::{LinkType, Meta};

/// Joins the layers of a packet.
fn packet(layers: &[&[u8]]) -> Vec<u8> {
    layers.concat()
}

fn meta(packet: &[u8], link_type: LinkType) -> Meta {
    let cap_len = u32::try_from(packet.len()).expect("a small packet");
    Meta {
        ts: Timestamp(5),
        cap_len,
        wire_len: cap_len,
        link_type,
        interface: 3,
        number: 1 << 32 | 9,
        data: 0x4000_0040,
    }
}

fn ethernet(packet: &[u8]) -> Descriptor {
    described(packet, &meta(packet, LinkType::Ethernet))
}

/// The first `captured` bytes of a packet.
fn cut(packet: &[u8], captured: usize) -> Descriptor {
    let whole = meta(packet, LinkType::Ethernet);
    described(
        &packet[..captured],
        &Meta { cap_len: u32::try_from(captured).expect("a small packet"), ..whole },
    )
}

const MACS: [u8; 12] = [0xaa, 0, 0, 0, 0, 1, 0xbb, 0, 0, 0, 0, 2];

/// An IPv4 header without options over `above` bytes: TTL 64, DSCP 46, from 10.0.0.1 to 10.0.0.2.
fn ipv4(protocol: u8, above: u16) -> [u8; 20] {
    let [high, low] = (20 + above).to_be_bytes();
    [0x45, 0xb8, high, low, 0, 7, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]
}

/// An IPv4 header with flags and fragment offset.
fn fragment(protocol: u8, above: u16, field: u16) -> [u8; 20] {
    let mut header = ipv4(protocol, above);
    header[6..8].copy_from_slice(&field.to_be_bytes());
    header
}

/// An IPv6 header over `above` bytes: hop limit 9, traffic class 0xb8, from fd00::1 to fd00::2.
fn ipv6(next: u8, above: u16) -> [u8; 40] {
    let mut header = [0; 40];
    header[..4].copy_from_slice(&[0x6b, 0x81, 0x23, 0x45]);
    header[4..6].copy_from_slice(&above.to_be_bytes());
    header[6..8].copy_from_slice(&[next, 9]);
    (header[8], header[23], header[24], header[39]) = (0xfd, 1, 0xfd, 2);
    header
}

/// TCP from port 1000 to 80 with SYN and CWR, without options.
const TCP: [u8; 20] = [3, 0xe8, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x82, 4, 0, 0, 0, 0, 0];
/// UDP from port 5000 to 53 with four bytes.
const UDP: [u8; 12] = [0x13, 0x88, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4];

#[track_caller]
fn assert_flags(d: &Descriptor, flags: u32) {
    assert_eq!(d.flags, flags, "flags {:#b} of {d:?}", d.flags);
}

#[test]
fn tcp_over_ipv4_over_ethernet_with_padding_is_described() {
    let bytes = packet(&[&MACS, &[8, 0], &ipv4(6, 22), &TCP, b"hi", &[0; 4]]);
    let d = ethernet(&bytes);
    let expected = Descriptor {
        ts_ns: 5,
        data: 0x4000_0040,
        cap_len: 60,
        wire_len: 60,
        flags: flag::IPV4 | flag::TCP | flag::L4,
        flow_hash: d.flow_hash,
        l3_offset: 14,
        l4_offset: 34,
        payload_offset: 54,
        ether_type: 0x0800,
        payload_len: 2,
        src_port: 1000,
        dst_port: 80,
        ip_proto: 6,
        tcp_flags: 0x82,
        ttl: 64,
        tos: 0xb8,
        interface: 3,
        link_type: 1,
        number: 9,
        ..Descriptor::default()
    };
    assert_eq!(d, expected);
}

#[test]
fn udp_over_ipv6_behind_two_tags_is_described() {
    let bytes = packet(&[&MACS, &[0x88, 0xa8, 0x20, 7, 0x81, 0, 0, 8, 0x86, 0xdd], &ipv6(17, 12), &UDP]);
    let d = ethernet(&bytes);
    assert_flags(&d, flag::IPV6 | flag::UDP | flag::L4 | flag::VLAN);
    assert_eq!((d.vlan_count, d.vlan_tci, d.ether_type), (2, 0x2007, 0x86dd));
    assert_eq!((d.l3_offset, d.l4_offset, d.payload_offset, d.payload_len), (22, 62, 70, 4));
    assert_eq!((d.src_port, d.dst_port, d.ttl, d.tos), (5000, 53, 9, 0xb8));
}

#[test]
fn mpls_labels_end_at_the_bottom_of_the_stack() {
    let labels = [0, 1, 0x10, 64, 0, 2, 0x21, 64];
    let v4 = ethernet(&packet(&[&MACS, &[0x88, 0x47], &labels, &ipv4(17, 12), &UDP]));
    assert_flags(&v4, flag::IPV4 | flag::UDP | flag::L4 | flag::MPLS);
    assert_eq!((v4.mpls_count, v4.l3_offset, v4.ether_type), (2, 22, 0x0800));
    let v6 = ethernet(&packet(&[&MACS, &[0x88, 0x48], &labels, &ipv6(17, 12), &UDP]));
    assert_eq!((v6.flags & flag::IPV6, v6.mpls_count, v6.ether_type), (flag::IPV6, 2, 0x86dd));
    let pseudowire = ethernet(&packet(&[&MACS, &[0x88, 0x47], &labels, &[0, 0, 0, 0], &MACS]));
    assert_flags(&pseudowire, flag::MPLS);
    assert_eq!(pseudowire.ether_type, 0x8847);
}

#[test]
fn pppoe_sessions_carry_ip_and_other_things() {
    let pppoe = |ppp: [u8; 2]| [&[0x88, 0x64, 0x11, 0, 0, 1, 0, 34][..], &ppp].concat();
    let v4 = ethernet(&packet(&[&MACS, &pppoe([0, 0x21]), &ipv4(17, 12), &UDP]));
    assert_flags(&v4, flag::IPV4 | flag::UDP | flag::L4 | flag::PPPOE);
    assert_eq!((v4.l3_offset, v4.ether_type), (22, 0x0800));
    let v6 = ethernet(&packet(&[&MACS, &pppoe([0, 0x57]), &ipv6(17, 12), &UDP]));
    assert_flags(&v6, flag::IPV6 | flag::UDP | flag::L4 | flag::PPPOE);
    let lcp = ethernet(&packet(&[&MACS, &pppoe([0xc0, 0x21]), &[1, 1, 0, 4]]));
    assert_flags(&lcp, flag::PPPOE);
    let not_a_session = ethernet(&packet(&[&MACS, &[0x88, 0x64, 0x11, 9, 0, 0, 0, 4, 1, 1, 0, 0]]));
    assert_flags(&not_a_session, flag::PPPOE | flag::MALFORMED);
}

#[test]
fn an_802_3_frame_can_carry_an_ether_type_in_snap() {
    let snap = ethernet(&packet(&[&MACS, &[0, 40, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &ipv4(17, 12), &UDP]));
    assert_flags(&snap, flag::IPV4 | flag::UDP | flag::L4);
    assert_eq!((snap.l3_offset, snap.ether_type), (22, 0x0800));
    let spanning_tree = ethernet(&packet(&[&MACS, &[0, 7, 0x42, 0x42, 3, 0, 0, 0, 0]]));
    assert_flags(&spanning_tree, 0);
    assert_eq!(spanning_tree.ether_type, 0);
    let other_organisation =
        ethernet(&packet(&[&MACS, &[0, 40, 0xaa, 0xaa, 3, 0, 0, 0xc, 8, 0], &ipv4(17, 12), &UDP]));
    assert_flags(&other_organisation, 0);
}

#[test]
fn every_link_type_leads_to_ip() {
    let udp = packet(&[&ipv4(17, 12), &UDP]);
    let sll = [0, 0, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, 8, 0];
    let sll2 = [8, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0];
    let cases: [(LinkType, &[u8], u16); 8] = [
        (LinkType::Ethernet, &[&MACS[..], &[8, 0]].concat(), 0x0800),
        (LinkType::Raw, &[], 0),
        (LinkType::Ipv4, &[], 0),
        (LinkType::Null, &[2, 0, 0, 0], 0),
        (LinkType::Null, &[0, 0, 0, 2], 0),
        (LinkType::Loop, &[0, 0, 0, 2], 0),
        (LinkType::LinuxSll, &sll, 0x0800),
        (LinkType::LinuxSll2, &sll2, 0x0800),
    ];
    for (link_type, header, ether_type) in cases {
        let bytes = packet(&[header, &udp]);
        let d = described(&bytes, &meta(&bytes, link_type));
        assert_flags(&d, flag::IPV4 | flag::UDP | flag::L4);
        assert_eq!(
            (usize::from(d.l3_offset), d.ether_type, d.link_type),
            (header.len(), ether_type, link_type.number())
        );
    }
    let udp = packet(&[&ipv6(17, 12), &UDP]);
    for (link_type, header) in [
        (LinkType::Raw, &[][..]),
        (LinkType::Ipv6, &[]),
        (LinkType::Null, &[30, 0, 0, 0]),
        (LinkType::Loop, &[0, 0, 0, 24]),
    ] {
        let bytes = packet(&[header, &udp]);
        let d = described(&bytes, &meta(&bytes, link_type));
        assert_flags(&d, flag::IPV6 | flag::UDP | flag::L4);
    }
}

#[test]
fn a_netlink_message_is_no_ip_packet() {
    let sll = [0, 0, 0x03, 0x38, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0];
    let bytes = packet(&[&sll, &ipv4(17, 12), &UDP]);
    assert_flags(&described(&bytes, &meta(&bytes, LinkType::LinuxSll)), 0);
    let sll2 = [8, 0, 0, 0, 0, 0, 0, 2, 0x03, 0x38, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let bytes = packet(&[&sll2, &ipv4(17, 12), &UDP]);
    assert_flags(&described(&bytes, &meta(&bytes, LinkType::LinuxSll2)), 0);
}

#[test]
fn fragments_of_ipv4_name_their_protocol_and_only_the_first_has_its_header() {
    let first = ethernet(&packet(&[&MACS, &[8, 0], &fragment(17, 12, 0x2000), &UDP]));
    assert_flags(&first, flag::IPV4 | flag::UDP | flag::L4 | flag::FRAGMENT);
    assert_eq!((first.src_port, first.payload_len), (5000, 4));
    let later = ethernet(&packet(&[&MACS, &[8, 0], &fragment(17, 12, 0x0002), &UDP]));
    assert_flags(&later, flag::IPV4 | flag::FRAGMENT | flag::LATER_FRAGMENT);
    assert_eq!((later.ip_proto, later.src_port, later.flow_hash), (17, 0, first.flow_hash));
    let whole = ethernet(&packet(&[&MACS, &[8, 0], &fragment(17, 12, 0x4000), &UDP]));
    assert_flags(&whole, flag::IPV4 | flag::UDP | flag::L4);
    assert_ne!(whole.flow_hash, first.flow_hash, "ports count where every packet has them");
    // The first fragment of the tiny-fragment attack (RFC 1858): the TCP flags are in the next one.
    let tiny = ethernet(&packet(&[&MACS, &[8, 0], &fragment(6, 8, 0x2000), &TCP[..8]]));
    assert_flags(&tiny, flag::IPV4 | flag::TCP | flag::FRAGMENT);
    assert_eq!((tiny.dst_port, tiny.tcp_flags), (80, 0));
    // Padding to the shortest Ethernet frame is not part of the header.
    let padded = ethernet(&packet(&[&MACS, &[8, 0], &fragment(6, 8, 0x2000), &TCP, &[0; 6]]));
    assert_eq!((padded.flags, padded.dst_port, padded.tcp_flags), (tiny.flags, 80, 0));
}

#[test]
fn ipv6_extension_headers_are_followed() {
    let hop_by_hop = [43, 0, 5, 2, 0, 0, 1, 0];
    let routing = [60, 2, 0, 1, 0, 0, 0, 0, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
    let destination = [51, 0, 1, 4, 0, 0, 0, 0];
    let authentication = [135, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
    let mobility = [6, 0, 0, 0, 0, 0, 0, 0];
    let above: Vec<u8> = packet(&[&hop_by_hop, &routing, &destination, &authentication, &mobility, &TCP]);
    let d = ethernet(&packet(&[&MACS, &[0x86, 0xdd], &ipv6(0, 92), &above]));
    assert_flags(&d, flag::IPV6 | flag::TCP | flag::L4 | flag::OPTIONS);
    assert_eq!((d.ip_proto, d.l4_offset, d.dst_port), (6, 54 + 72, 80));
}

#[test]
fn fragments_of_ipv6_hash_alike_even_with_headers_behind_the_fragment_header() {
    let destination = [17, 0, 1, 4, 0, 0, 0, 0];
    let fragment = |field: [u8; 2]| [60, 0, field[0], field[1], 0, 0, 0, 9];
    let first =
        ethernet(&packet(&[&MACS, &[0x86, 0xdd], &ipv6(44, 28), &fragment([0, 1]), &destination, &UDP]));
    assert_flags(&first, flag::IPV6 | flag::UDP | flag::L4 | flag::OPTIONS | flag::FRAGMENT);
    assert_eq!((first.ip_proto, first.dst_port), (17, 53));
    let later = ethernet(&packet(&[&MACS, &[0x86, 0xdd], &ipv6(44, 20), &fragment([0, 8]), &UDP]));
    assert_flags(&later, flag::IPV6 | flag::OPTIONS | flag::FRAGMENT | flag::LATER_FRAGMENT);
    assert_eq!(later.flow_hash, first.flow_hash);
    let atomic =
        ethernet(&packet(&[&MACS, &[0x86, 0xdd], &ipv6(44, 28), &fragment([0, 0]), &destination, &UDP]));
    assert_flags(&atomic, flag::IPV6 | flag::UDP | flag::L4 | flag::OPTIONS);
}

#[test]
fn offloaded_and_jumbo_packets_reach_as_far_as_the_link_says() {
    let mut tso = ipv4(6, 0);
    tso[2..4].copy_from_slice(&[0, 0]);
    let d = ethernet(&packet(&[&MACS, &[8, 0], &tso, &TCP, &[1; 100]]));
    assert_flags(&d, flag::IPV4 | flag::TCP | flag::L4);
    assert_eq!(d.payload_len, 100);

    let length = 70_000_u32;
    let jumbo = packet(&[&[6, 0, 0xc2, 4][..], &length.to_be_bytes()]);
    let big = packet(&[&MACS, &[0x86, 0xdd], &ipv6(0, 0), &jumbo, &TCP, &[1; 69_972]]);
    let d = ethernet(&big);
    assert_flags(&d, flag::IPV6 | flag::TCP | flag::L4 | flag::OPTIONS);
    assert_eq!((d.l4_offset, d.payload_len), (62, 69_972));

    let big_udp =
        packet(&[&MACS, &[0x86, 0xdd], &ipv6(17, 0), &[0x13, 0x88, 0, 53, 0, 0, 0, 0], &[1; 69_992]]);
    let d = ethernet(&big_udp);
    assert_flags(&d, flag::IPV6 | flag::UDP | flag::L4);
    assert_eq!(d.payload_len, 69_992);

    let nothing = ethernet(&packet(&[&MACS, &[0x86, 0xdd], &ipv6(59, 0), &[0; 6]]));
    assert_flags(&nothing, flag::IPV6 | flag::L4);
    assert_eq!((nothing.payload_offset, nothing.payload_len), (54, 0), "what follows is padding");
}

#[test]
fn a_snapshot_length_removes_the_headers_it_cuts_and_nothing_else() {
    let bytes =
        packet(&[&MACS, &[8, 0], &ipv4(6, 40), &[&TCP[..12], &[0xa0, 0x12], &TCP[14..]].concat(), &[1; 20]]);
    let base = flag::CUT;
    assert_flags(&cut(&bytes, 60), base | flag::IPV4 | flag::TCP);
    let options_cut = cut(&bytes, 54);
    assert_eq!(
        (options_cut.tcp_flags, options_cut.dst_port, options_cut.flow_hash),
        (0x12, 80, ethernet(&bytes).flow_hash)
    );
    assert_flags(&cut(&bytes, 38), base | flag::IPV4 | flag::TCP);
    assert_eq!((cut(&bytes, 38).src_port, cut(&bytes, 38).tcp_flags), (1000, 0));
    assert_eq!(cut(&bytes, 37).src_port, 0);
    assert_flags(&cut(&bytes, 33), base);
    assert_flags(&cut(&bytes, 13), base);
    assert_eq!(cut(&bytes, 33).ether_type, 0x0800);
}

#[test]
fn headers_that_contradict_themselves_are_malformed() {
    let with = |at: usize, value: u8| {
        let mut bytes = packet(&[&MACS, &[8, 0], &ipv4(6, 22), &TCP, b"hi"]);
        bytes[at] = value;
        ethernet(&bytes)
    };
    for (what, d) in [
        ("version 5", with(14, 0x55)),
        ("header of 16 bytes", with(14, 0x44)),
        ("total length 19", with(17, 19)),
    ] {
        assert_eq!(d.flags, flag::MALFORMED, "{what}");
    }
    assert_flags(&with(17, 43), flag::MALFORMED | flag::IPV4 | flag::TCP | flag::L4);
    assert_flags(&with(17, 39), flag::MALFORMED | flag::IPV4 | flag::TCP);
    assert_flags(&with(46, 0x40), flag::MALFORMED | flag::IPV4 | flag::TCP);
    assert_flags(&with(46, 0xf0), flag::MALFORMED | flag::IPV4 | flag::TCP);

    let tiny = |protocol: u8| ethernet(&packet(&[&MACS, &[8, 0], &ipv4(protocol, 2), &TCP, &[0; 6]]));
    assert_flags(&tiny(6), flag::MALFORMED | flag::IPV4 | flag::TCP);
    assert_flags(&tiny(17), flag::MALFORMED | flag::IPV4 | flag::UDP);
    assert_flags(&tiny(1), flag::MALFORMED | flag::IPV4 | flag::ICMP);
    assert_eq!((tiny(6).src_port, tiny(6).tcp_flags, tiny(17).src_port), (0, 0, 0));
    let frame = packet(&[&MACS, &[8, 0], &ipv4(6, 20), &TCP]);
    assert_flags(&ethernet(&frame[..24]), flag::MALFORMED);
    assert_flags(&ethernet(&frame[..13]), flag::MALFORMED);
    assert_flags(&ethernet(&frame[..40]), flag::MALFORMED | flag::IPV4 | flag::TCP);

    let udp = |length: u8| {
        let mut bytes = packet(&[&MACS, &[8, 0], &ipv4(17, 12), &UDP]);
        bytes[39] = length;
        ethernet(&bytes)
    };
    for length in [0, 7, 13] {
        assert_flags(&udp(length), flag::MALFORMED | flag::IPV4 | flag::UDP | flag::L4);
    }
    assert_flags(&udp(10), flag::IPV4 | flag::UDP | flag::L4);
    assert_eq!(udp(10).payload_len, 2, "the rest are UDP options (RFC 9868), not payload");

    let chain = ethernet(&packet(&[&MACS, &[0x86, 0xdd], &ipv6(0, 8), &[6, 1, 0, 0, 0, 0, 0, 0], &TCP]));
    assert_flags(&chain, flag::MALFORMED | flag::IPV6 | flag::OPTIONS);
    let version = ethernet(&packet(&[&MACS, &[0x86, 0xdd], &ipv4(6, 20), &TCP, &[0; 20]]));
    assert_flags(&version, flag::MALFORMED);
}

#[test]
fn icmp_and_other_protocols_and_packets_without_ip_are_described() {
    let ping = ethernet(&packet(&[&MACS, &[8, 0], &ipv4(1, 10), &[8, 0, 0, 0, 0, 1, 0, 1, 7, 7]]));
    assert_flags(&ping, flag::IPV4 | flag::ICMP | flag::L4);
    assert_eq!((ping.l4_offset, ping.payload_offset, ping.payload_len, ping.src_port), (34, 42, 2, 0));
    let neighbour = ethernet(&packet(&[&MACS, &[0x86, 0xdd], &ipv6(58, 8), &[135, 0, 0, 0, 0, 0, 0, 0]]));
    assert_flags(&neighbour, flag::IPV6 | flag::ICMP | flag::L4);
    let gre = ethernet(&packet(&[&MACS, &[8, 0], &ipv4(47, 24), &[0, 0, 8, 0], &ipv4(6, 0)]));
    assert_flags(&gre, flag::IPV4 | flag::L4);
    assert_eq!((gre.ip_proto, gre.l4_offset, gre.payload_offset, gre.payload_len), (47, 34, 34, 24));

    let arp = |sender: &[u8; 12]| ethernet(&packet(&[sender, &[8, 6], &[0; 28]]));
    let mut turned = MACS;
    turned.rotate_left(6);
    assert_flags(&arp(&MACS), 0);
    assert_eq!(arp(&MACS).ether_type, 0x0806);
    assert_eq!(arp(&MACS).flow_hash, arp(&turned).flow_hash);
    assert_ne!(arp(&MACS).flow_hash, arp(&[9; 12]).flow_hash);
}
