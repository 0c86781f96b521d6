//! Packets with recognisable addresses and payload wherever headers can contain any.

use weir_wire::LinkType;

/// Addresses that occur nowhere else: no four of their bytes occur in other fields of these packets.
pub const V4: [[u8; 4]; 2] = [[0xc6, 0x33, 0x64, 0x5a], [0xb9, 0x5d, 0xe2, 0x7c]];
pub const MAC: [[u8; 6]; 2] = [[0x08, 0x11, 0x22, 0x33, 0x44, 0x55], [0x0c, 0x9a, 0xab, 0xbc, 0xcd, 0xde]];
/// The first one has the first MAC address in its interface identifier (EUI-64).
pub const V6: [[u8; 16]; 2] = [
    [0x2a, 0x0b, 0xf4, 0xc5, 0x91, 0xe7, 0x6d, 0x38, 0x0a, 0x11, 0x22, 0xff, 0xfe, 0x33, 0x44, 0x55],
    [0x2a, 0x0d, 0x39, 0xe1, 0xa6, 0x5b, 0xc8, 0x74, 0x96, 0xd3, 0x4f, 0xb1, 0x7e, 0xca, 0x85, 0x6f],
];
/// The solicited-node group of the first address; the next constant is its MAC address.
pub const SOLICITED: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0x33, 0x44, 0x55];
pub const SOLICITED_MAC: [u8; 6] = [0x33, 0x33, 0xff, 0x33, 0x44, 0x55];
/// A payload of which no four bytes occur elsewhere.
pub const PAYLOAD: &[u8] = b"<somebody's secret: 4815162342>";

/// A packet and the facts about it.
pub struct Case {
    pub name: &'static str,
    pub link_type: LinkType,
    pub bytes: Vec<u8>,
    /// The offsets of checksums.
    pub sums: Vec<usize>,
    /// The offsets and link types of packets inside it.
    pub inner: Vec<(usize, LinkType)>,
}

pub fn ones_sum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0_u32;
    for part in parts {
        for pair in part.chunks(2) {
            sum += u32::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u32::from);
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}

pub fn be(value: usize) -> [u8; 2] {
    u16::try_from(value).unwrap().to_be_bytes()
}

pub fn cat(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

pub fn ethernet(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    cat(&[&MAC[0], &MAC[1], &ether_type.to_be_bytes(), payload])
}

/// An IPv4 packet with options and the given fragment word.
pub fn ipv4_with(protocol: u8, options: &[u8], fragment: u16, payload: &[u8]) -> Vec<u8> {
    let words = 5 + options.len() / 4;
    let mut header = cat(&[
        &[0x40 | u8::try_from(words).unwrap(), 0xba],
        &be(words * 4 + payload.len()),
        &[0x5e, 0x21],
        &fragment.to_be_bytes(),
        &[61, protocol, 0, 0],
        &V4[0],
        &V4[1],
        options,
    ]);
    let sum = ones_sum(&[&header]);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    cat(&[&header, payload])
}

pub fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    ipv4_with(protocol, &[], 0, payload)
}

pub fn ipv6_to(dst: &[u8; 16], next: u8, payload: &[u8]) -> Vec<u8> {
    cat(&[&[0x6b, 0xa4, 0x17, 0x2d], &be(payload.len()), &[next, 61], &V6[0], dst, payload])
}

pub fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    ipv6_to(&V6[1], next, payload)
}

/// The pseudo header of checksums above IP.
#[derive(Clone, Copy)]
pub enum Over {
    V4,
    V6([u8; 16]),
    Nothing,
}

/// Sets the right checksum of a header above IP.
fn summed(over: Over, protocol: u8, mut segment: Vec<u8>, field: usize) -> Vec<u8> {
    let len = be(segment.len());
    let sum = match over {
        Over::V4 => ones_sum(&[&V4[0], &V4[1], &[0, protocol], &len, &segment]),
        Over::V6(dst) => ones_sum(&[&V6[0], &dst, &[0, protocol], &len, &segment]),
        Over::Nothing => ones_sum(&[&segment]),
    };
    segment[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    segment
}

pub const TO_V6: Over = Over::V6(V6[1]);

pub fn tcp_with(over: Over, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let words = u8::try_from(5 + options.len() / 4).unwrap();
    let header = [
        &[0x9c, 0x41, 0x01, 0xbb, 0xd1, 0xd2, 0xd3, 0xd4, 0xe1, 0xe2, 0xe3, 0xe4][..],
        &[words << 4, 0x18],
        &[0x7f, 0x31, 0, 0, 0, 0],
    ]
    .concat();
    summed(over, 6, cat(&[&header, options, payload]), 16)
}

/// A TCP segment with timestamps.
pub fn tcp(over: Over) -> Vec<u8> {
    tcp_with(over, &[1, 1, 8, 10, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8], PAYLOAD)
}

pub fn udp_to(over: Over, port: u16, payload: &[u8]) -> Vec<u8> {
    summed(over, 17, cat(&[&[0x9c, 0x41], &port.to_be_bytes(), &be(8 + payload.len()), &[0, 0], payload]), 6)
}

pub fn udp(over: Over) -> Vec<u8> {
    udp_to(over, 53, PAYLOAD)
}

/// ICMP or ICMPv6: type, code, and everything after the checksum.
pub fn icmp(over: Over, kind: u8, body: &[u8]) -> Vec<u8> {
    summed(over, 58, cat(&[&[kind, 0, 0, 0], body]), 2)
}

/// The two addresses, one after the other.
fn both_v6() -> Vec<u8> {
    cat(&[&V6[0], &V6[1]])
}

fn both_v4() -> Vec<u8> {
    cat(&[&V4[0], &V4[1]])
}

/// Ethernet with IPv4, or with IPv6, by the first four bits.
pub fn framed(ip: &[u8]) -> Vec<u8> {
    ethernet(if ip[0] >> 4 == 4 { 0x0800 } else { 0x86dd }, ip)
}

fn case(name: &'static str, bytes: Vec<u8>, sums: &[usize], inner: &[(usize, LinkType)]) -> Case {
    Case { name, link_type: LinkType::Ethernet, bytes, sums: sums.to_vec(), inner: inner.to_vec() }
}

/// All packets.
pub fn cases() -> Vec<Case> {
    let mut all = plain();
    all.extend(options());
    all.extend(control());
    all.extend(tunnels());
    all.extend(unknown());
    all
}

/// Each link layer, with the most common headers above it.
pub fn plain() -> Vec<Case> {
    let v4_tcp = ipv4(6, &tcp(Over::V4));
    let v6_udp = ipv6(17, &udp(TO_V6));
    let linked =
        |name, link_type, bytes| Case { name, link_type, bytes, sums: Vec::new(), inner: Vec::new() };
    let sll = |protocol: u16, hardware: u8, ip: &[u8]| {
        cat(&[&[0, 0, 0, hardware, 0, 6], &MAC[0], &[0, 0], &protocol.to_be_bytes(), ip])
    };
    vec![
        case("IPv4, TCP", framed(&v4_tcp), &[24, 50], &[]),
        case("IPv4, UDP", framed(&ipv4(17, &udp(Over::V4))), &[24, 40], &[]),
        case("IPv6, TCP", framed(&ipv6(6, &tcp(TO_V6))), &[70], &[]),
        case("IPv6, UDP", framed(&v6_udp), &[60], &[]),
        case("padding", cat(&[&framed(&v4_tcp), &both_v4(), &MAC[0], PAYLOAD]), &[24, 50], &[]),
        case("VLAN", ethernet(0x8100, &cat(&[&[0xa0, 0x64, 0x08, 0x00], &v4_tcp])), &[28, 54], &[]),
        case(
            "two VLANs",
            ethernet(0x88a8, &cat(&[&[0x20, 7, 0x81, 0, 0x20, 9, 0x86, 0xdd], &v6_udp])),
            &[68],
            &[],
        ),
        case("MPLS", ethernet(0x8847, &cat(&[&[1, 2, 0x30, 60, 4, 5, 0x61, 59], &v4_tcp])), &[32, 58], &[]),
        case(
            "PPPoE",
            ethernet(0x8864, &cat(&[&[0x11, 0, 0x4d, 0x21], &be(v4_tcp.len() + 2), &[0, 0x21], &v4_tcp])),
            &[32, 58],
            &[],
        ),
        case(
            "SNAP",
            cat(&[&MAC[0], &MAC[1], &be(v4_tcp.len() + 8), &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &v4_tcp]),
            &[32, 58],
            &[],
        ),
        case(
            "solicited node",
            cat(&[
                &SOLICITED_MAC,
                &MAC[1],
                &[0x86, 0xdd],
                &ipv6_to(&SOLICITED, 17, &udp(Over::V6(SOLICITED))),
            ]),
            &[60],
            &[],
        ),
        linked("raw", LinkType::Raw, v4_tcp.clone()),
        linked("raw IPv6", LinkType::Ipv6, v6_udp.clone()),
        linked("NULL", LinkType::Null, cat(&[&[2, 0, 0, 0], &v4_tcp])),
        linked("SLL", LinkType::LinuxSll, sll(0x0800, 1, &v4_tcp)),
        Case {
            name: "SLL2",
            link_type: LinkType::LinuxSll2,
            bytes: cat(&[&[0x86, 0xdd, 0, 0, 0, 0, 0, 3, 0, 1, 0, 6], &MAC[0], &[0, 0], &v6_udp]),
            sums: vec![66],
            inner: Vec::new(),
        },
    ]
}

/// Options and extension headers with addresses.
pub fn options() -> Vec<Case> {
    let v4 = |name, options: &[u8]| {
        let tcp_at = 34 + options.len();
        case(name, framed(&ipv4_with(6, options, 0, &tcp(Over::V4))), &[24, tcp_at + 16], &[])
    };
    let v6 = |name, kind: u8, body: &[u8]| {
        let words = u8::try_from((body.len() + 2) / 8 - 1).unwrap();
        let upper = cat(&[&[6, words], body, &tcp(TO_V6)]);
        case(name, framed(&ipv6(kind, &upper)), &[54 + body.len() + 2 + 16], &[])
    };
    let mptcp = cat(&[&[30, 8, 0x31, 5], &V4[0], &[253, 8, 9, 9], &V4[1], &[19, 18], &V6[0], &[1, 1]]);
    let routed = cat(&[&[43, 2, 0, 1, 0, 0, 0, 0], &V6[0]]);
    vec![
        v4("record route", &cat(&[&[1, 7, 11, 12], &both_v4()])),
        v4("loose source route", &cat(&[&[131, 7, 4], &V4[1], &[0]])),
        v4("strict source route", &cat(&[&[137, 11, 4], &both_v4(), &[0]])),
        v4("timestamps with addresses", &cat(&[&[68, 12, 5, 1], &V4[1], &[1, 2, 3, 4]])),
        v4("an option that is unknown", &cat(&[&[82, 12, 0, 1, 0, 2, 0, 3], &V4[0]])),
        v4("options that do not end", &cat(&[&[7, 200, 4, 0], &V4[0]])),
        v4("after the end of options", &cat(&[&[0, 0, 0, 0], &V4[0]])),
        v6("routing header of type 0", 43, &cat(&[&[0, 1, 0, 0, 0, 0], &V6[0]])),
        v6("segment routing", 43, &cat(&[&[4, 1, 1, 0, 0, 0], &both_v6()])),
        v6("home address", 60, &cat(&[&[1, 2, 0, 0, 0xc9, 16], &V6[1]])),
        v6("an IPv6 option that is unknown", 0, &cat(&[&[0x1e, 20, 0, 0, 0, 0], &V6[1]])),
        v6("an IPv6 option that does not end", 0, &cat(&[&[0x1e, 200, 0, 0, 0, 0], &V6[1]])),
        v6("mobility header", 135, &cat(&[&[5, 0, 0xaa, 0xbb, 0, 0], &V6[1]])),
        case(
            "authentication header",
            framed(&ipv6(51, &cat(&[&[6, 5, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1], &V6[0], &tcp(TO_V6)]))),
            &[54 + 28 + 16],
            &[],
        ),
        case(
            "routing header in a later header",
            framed(&ipv6(
                0,
                &cat(&[&[43, 0, 5, 2, 0, 0, 1, 0], &routed[1..2], &[2, 0, 1, 0, 0, 0, 0], &V6[0], PAYLOAD]),
            )),
            &[],
            &[],
        ),
        case(
            "TCP options with addresses",
            framed(&ipv4(6, &tcp_with(Over::V4, &mptcp, PAYLOAD))),
            &[24, 50],
            &[],
        ),
        case(
            "TCP options that do not end",
            framed(&ipv4(6, &tcp_with(Over::V4, &cat(&[&[2, 4, 5, 180, 253, 200, 0, 0], &V4[0]]), PAYLOAD))),
            &[24, 50],
            &[],
        ),
    ]
}

/// ARP, neighbour discovery, groups, and messages that quote packets.
pub fn control() -> Vec<Case> {
    let arp = |kind: u8| cat(&[&[0, 1, 8, 0, 6, 4, 0, kind], &MAC[0], &V4[0], &MAC[1], &V4[1], PAYLOAD]);
    let v4 = |name, kind: u8, body: &[u8], inner: &[(usize, LinkType)]| {
        case(name, framed(&ipv4(1, &icmp(Over::Nothing, kind, body))), &[24, 36], inner)
    };
    let v6 = |name, kind: u8, body: &[u8], inner: &[(usize, LinkType)]| {
        case(name, framed(&ipv6(58, &icmp(TO_V6, kind, body))), &[56], inner)
    };
    let igmp = |name, body: &[u8]| {
        case(name, framed(&ipv4(2, &icmp(Over::Nothing, body[0], &body[1..]))), &[24, 36], &[])
    };
    let (quote4, quote6) = (ipv4(6, &tcp(Over::V4)), ipv6(17, &udp(TO_V6)));
    let (in4, in6) = ((42, LinkType::Ipv4), (62, LinkType::Ipv6));
    let link_option = |kind: u8| cat(&[&[kind, 1], &MAC[1]]);
    let prefix = cat(&[&[3, 4, 64, 0xc0, 0, 0, 0, 9, 0, 0, 0, 8, 0, 0, 0, 0], &V6[0]]);
    let route = cat(&[&[24, 3, 64, 0, 0, 0, 0, 9], &V6[1]]);
    let servers = cat(&[&[25, 3, 0, 0, 0, 0, 0, 9], &V6[0], &[25, 5, 0, 0, 0, 0, 0, 9], &both_v6()]);
    let redirected = cat(&[
        &[4, u8::try_from(1 + quote6.len().div_ceil(8)).unwrap(), 0, 0, 0, 0, 0, 0],
        &quote6,
        &vec![0; quote6.len().next_multiple_of(8) - quote6.len()],
    ]);
    vec![
        case("ARP", ethernet(0x0806, &arp(1)), &[], &[]),
        case("RARP", ethernet(0x8035, &arp(3)), &[], &[]),
        case("ARP in a VLAN", ethernet(0x8100, &cat(&[&[0, 100, 8, 6], &arp(2)])), &[], &[]),
        v4("echo", 8, &cat(&[&[0xb1, 0xb2, 0xb3, 0xb4], PAYLOAD]), &[]),
        v4("unreachable", 3, &cat(&[&[0; 4], &quote4]), &[in4]),
        // A header with a right checksum adds nothing to the sum over it, so the checksum of this message is the same
        // for all addresses.
        Case {
            sums: vec![24],
            ..v4("unreachable, quoting 8 bytes", 3, &cat(&[&[0; 4], &quote4[..28]]), &[in4])
        },
        v4(
            "time exceeded, with an extension",
            11,
            &cat(&[&[0, 32, 0, 0], &quote4, &[0; 36], &V4[0], &V4[1]]),
            &[in4],
        ),
        v4(
            "an error about an error",
            3,
            &cat(&[&[0; 4], &ipv4(1, &icmp(Over::Nothing, 11, &cat(&[&[0; 4], &quote4])))]),
            &[in4, (70, LinkType::Ipv4)],
        ),
        v4("redirect", 5, &cat(&[&V4[1], &quote4]), &[in4]),
        v4("router advertisement of IPv4", 9, &cat(&[&[2, 2, 0, 9], &V4[0], &[0; 4], &V4[1], &[0; 4]]), &[]),
        v4("a message that is unknown", 40, &cat(&[&V4[0], &V4[1]]), &[]),
        v6("too big", 2, &cat(&[&[0, 0, 5, 0], &quote6]), &[in6]),
        v6("unreachable of IPv6", 1, &cat(&[&[0; 4], &quote6[..60]]), &[in6]),
        v6("router solicitation", 133, &cat(&[&[0; 4], &link_option(1)]), &[]),
        v6(
            "router advertisement",
            134,
            &cat(&[
                &[64, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 2],
                &link_option(1),
                &[5, 1, 0, 0, 0, 0, 5, 0],
                &prefix,
                &route,
                &servers,
                &[31, 3],
                &V6[0],
                &[0; 6],
            ]),
            &[],
        ),
        v6("neighbour solicitation", 135, &cat(&[&[0; 4], &V6[1], &link_option(1)]), &[]),
        v6(
            "neighbour advertisement",
            136,
            &cat(&[&[0x60, 0, 0, 0], &V6[0], &link_option(2), &[99, 3, 0, 0], &V6[1], &[0; 4]]),
            &[],
        ),
        v6("redirect of IPv6", 137, &cat(&[&[0; 4], &both_v6(), &link_option(2), &redirected]), &[]),
        v6("listener query", 130, &cat(&[&[0; 4], &V6[1], &[2, 9, 0, 2], &both_v6()]), &[]),
        v6("listener report", 131, &cat(&[&[0; 4], &V6[1]]), &[]),
        v6(
            "listener report, version 2",
            143,
            &cat(&[&[0, 0, 0, 2, 4, 0, 0, 2], &V6[1], &both_v6(), &[3, 0, 0, 0], &V6[0]]),
            &[],
        ),
        v6(
            "listener report with something else",
            143,
            &cat(&[&[0, 0, 0, 1, 4, 4, 0, 0], &V6[1], &V6[0]]),
            &[],
        ),
        v6("a message of IPv6 that is unknown", 200, &cat(&[&V4[0], &V6[0]]), &[]),
        igmp("IGMPv2", &cat(&[&[0x16], &V4[1]])),
        igmp("IGMPv3 query", &cat(&[&[0x11], &V4[1], &[2, 9, 0, 2], &both_v4()])),
        igmp(
            "IGMPv3 report",
            &cat(&[&[0x22], &[0, 0, 0, 2, 4, 0, 0, 2], &V4[1], &both_v4(), &[3, 0, 0, 0], &V4[0]]),
        ),
    ]
}

/// Packets inside packets.
pub fn tunnels() -> Vec<Case> {
    let (v4, v6) = (ipv4(6, &tcp(Over::V4)), ipv6(17, &udp(TO_V6)));
    let frame = framed(&v4);
    let (raw4, raw6) = (LinkType::Ipv4, LinkType::Ipv6);
    // An inner packet with right checksums compensates the outer addresses in the sum, so the checksum is the same
    // for all addresses.
    let over_udp = |name, port: u16, header: &[u8], inner: &[u8], link: LinkType| {
        let bytes = framed(&ipv4(17, &udp_to(Over::V4, port, &cat(&[header, inner]))));
        case(name, bytes, &[24], &[(42 + header.len(), link)])
    };
    let gre = |name, header: &[u8], inner: &[u8], link: LinkType| {
        case(name, framed(&ipv4(47, &cat(&[header, inner]))), &[24], &[(34 + header.len(), link)])
    };
    let mut summed_gre = cat(&[&[0xb0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1], &v4]);
    let sum = ones_sum(&[&summed_gre]);
    summed_gre[4..6].copy_from_slice(&sum.to_be_bytes());
    let deep = (0..6).fold(v4.clone(), |inner, _| ipv4(4, &inner));
    let arp = ethernet(0x0806, &cat(&[&[0, 1, 8, 0, 6, 4, 0, 1], &MAC[0], &V4[0], &MAC[1], &V4[1]]));
    vec![
        case("IPv4 in IPv4", framed(&ipv4(4, &v4)), &[24, 44], &[(34, raw4)]),
        case("IPv6 in IPv4", framed(&ipv4(41, &v6)), &[24], &[(34, raw6)]),
        case("IPv4 in IPv6", framed(&ipv6(4, &v4)), &[64], &[(54, raw4)]),
        case("IPv4 in IPv4, six times", framed(&deep), &[24, 44, 64], &[(34, raw4)]),
        case("MPLS in IPv4", framed(&ipv4(137, &cat(&[&[1, 2, 0x31, 60], &v4]))), &[24, 48], &[(38, raw4)]),
        gre("GRE", &[0, 0, 8, 0], &v4, raw4),
        gre("GRE with a key", &[0x20, 0, 0x86, 0xdd, 0, 0, 0, 7], &v6, raw6),
        gre("Ethernet in GRE", &[0, 0, 0x65, 0x58], &frame, LinkType::Ethernet),
        case("GRE with a checksum", framed(&ipv4(47, &summed_gre)), &[24, 38], &[(50, raw4)]),
        over_udp("VXLAN", 4789, &[8, 0, 0, 0, 0, 1, 2, 0], &frame, LinkType::Ethernet),
        over_udp("ARP in VXLAN", 4789, &[8, 0, 0, 0, 0, 1, 2, 0], &arp, LinkType::Ethernet),
        over_udp(
            "Geneve",
            6081,
            &cat(&[&[5, 0, 0x65, 0x58, 0, 1, 2, 0, 1, 2, 3, 4], &V6[0]]),
            &frame,
            LinkType::Ethernet,
        ),
        over_udp("GTP-U", 2152, &[0x30, 255, 0, 0, 1, 2, 3, 4], &v4, raw4),
        over_udp(
            "GTP-U with an extension",
            2152,
            &cat(&[&[0x34, 255, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0x85, 2, 0], &V4[0], &[0, 0]]),
            &v6,
            raw6,
        ),
        over_udp("Teredo", 3544, &cat(&[&[0, 0, 0x12, 0x34], &V4[0]]), &v6, raw6),
    ]
}

/// Data that are not understood, but would have to be.
pub fn unknown() -> Vec<Case> {
    let inner = cat(&[&both_v4(), &both_v6(), &MAC[0], PAYLOAD]);
    let over_ip = |name, protocol: u8| case(name, framed(&ipv4(protocol, &inner)), &[24], &[]);
    let over_udp =
        |name, port: u16| case(name, framed(&ipv4(17, &udp_to(Over::V4, port, &inner))), &[24, 40], &[]);
    vec![
        over_ip("ESP", 50),
        over_ip("SCTP", 132),
        over_ip("EtherIP", 97),
        over_ip("OSPF", 89),
        over_ip("an authentication header of IPv4", 51),
        over_ip("IPv4 in IPv4 that is none", 4),
        over_ip("GRE with routing", 47),
        over_ip("IGMP of an unknown kind", 2),
        over_udp("L2TP", 1701),
        over_udp("VXLAN that is none", 4789),
        over_udp("GTP-U that is none", 2152),
        over_udp("Geneve that is none", 6081),
        over_udp("Teredo that is none", 3544),
        case("later fragment", framed(&ipv4_with(17, &[], 3, &inner)), &[24], &[]),
        case("first fragment", framed(&ipv4_with(17, &[], 0x2000, &udp(Over::V4))), &[24, 40], &[]),
        case(
            "first fragment of a tunnel",
            framed(&ipv4_with(4, &[], 0x2000, &ipv4(6, &tcp(Over::V4)))),
            &[24, 44],
            &[(34, LinkType::Ipv4)],
        ),
        case(
            "later fragment of IPv6",
            framed(&ipv6(44, &cat(&[&[17, 0, 0, 9, 0xaa, 0xbb, 0xcc, 0xdd], &inner]))),
            &[],
            &[],
        ),
        case("LLDP", ethernet(0x88cc, &inner), &[], &[]),
        case(
            "spanning tree",
            cat(&[&MAC[0], &MAC[1], &be(inner.len() + 3), &[0x42, 0x42, 3], &inner]),
            &[],
            &[],
        ),
        case("an IPv4 header that is none", ethernet(0x0800, &cat(&[&[0x41], &inner])), &[], &[]),
        case("ARP of something else", ethernet(0x0806, &cat(&[&[0, 6, 8, 0, 6, 4, 0, 1], &inner])), &[], &[]),
    ]
}
