//! Single components of views: each is hidden wherever it occurs. Also the limits of long lists.

use super::packets::{
    self, Over, PAYLOAD, TO_V6, be, cat, ethernet, framed, icmp, ipv4, ipv4_with, ipv6, tcp_with,
};
use super::{shown, transform};
use weir_wire::LinkType;

/// The visible part of a frame.
fn show(view: &str, bytes: &[u8]) -> Vec<u8> {
    shown(&mut transform(view), bytes, bytes.len(), LinkType::Ethernet).0
}

#[test]
fn without_ports_no_port_of_another_address_is_shown() {
    // ADD_ADDR of multipath TCP (RFC 8684, 3.4.1) with a port, and MP_PRIO, which has none.
    let add = cat(&[&[30, 10, 0x30, 5], &packets::V4[0], &[0xbe, 0xef]]);
    let prio = [30, 3, 0x50, 1, 1, 1];
    let bytes = framed(&ipv4(6, &tcp_with(Over::V4, &cat(&[&add, &prio]), PAYLOAD)));
    let out = show("ports=zeroed", &bytes);
    assert_eq!(out[34..38], [0; 4]);
    assert_eq!(out[54..64], [1; 10], "no operation instead");
    assert_eq!(out[64..70], prio);
    assert_eq!(show("ttl=zeroed", &bytes)[54..70], bytes[54..70], "it stays where ports are shown");
}

#[test]
fn the_ttl_and_the_class_of_labels_are_hidden_with_those_of_ip() {
    let labels = [0x12, 0x34, 0x5e, 60, 0x67, 0x89, 0xab, 59];
    let inner = cat(&[&labels, &ipv4(17, &packets::udp(Over::V4))]);
    for (bytes, at) in [(ethernet(0x8847, &inner), 14), (framed(&ipv4(137, &inner)), 34)] {
        for (view, expected) in [
            ("ttl=zeroed", [0x12, 0x34, 0x5e, 0, 0x67, 0x89, 0xab, 0]),
            ("dscp=zeroed", [0x12, 0x34, 0x50, 60, 0x67, 0x89, 0xa1, 59]),
            ("dscp=zeroed,ttl=zeroed", [0x12, 0x34, 0x50, 0, 0x67, 0x89, 0xa1, 0]),
            ("mpls=zeroed", [0, 0, 0, 0, 0, 0, 1, 0]),
            ("mpls=zeroed,dscp=zeroed", [0, 0, 0, 0, 0, 0, 1, 0]),
            ("ip-id=zeroed", labels),
        ] {
            assert_eq!(show(view, &bytes)[at..at + 8], expected, "{view}");
        }
        let (out, expected) = (show("ttl=zeroed", &bytes), &bytes[at + 8..]);
        assert_eq!((out[at + 8 + 8], out[at + 8..at + 16].to_vec()), (0, expected[..8].to_vec()));
    }
}

/// OSPF, PIM, VRRP, RSVP and EIGRP have checksums over all of their data, which would reveal the bytes behind the
/// first ones. The test also uses unknown protocols.
#[test]
fn unknown_data_are_shown_completely_or_not_at_all() {
    let body = cat(&[PAYLOAD, PAYLOAD]);
    for protocol in [89, 103, 112, 46, 88, 115, 97, 51, 33, 253] {
        let mut transform = transform("payload=16");
        let mut of = |bytes: &[u8], wire_len: usize| {
            shown(&mut transform, bytes, wire_len, LinkType::Ethernet).0.len()
        };
        for (len, expected) in [(60, 34), (17, 34), (16, 50), (9, 43)] {
            let bytes = framed(&ipv4(protocol, &body[..len]));
            assert_eq!(of(&bytes, bytes.len()), expected, "{protocol}, {len} bytes");
            // Padding is not shown.
            let padded = cat(&[&bytes, &[0; 7]]);
            assert_eq!(of(&padded, padded.len()), expected, "{protocol}, {len} bytes and padding");
            // The original data may be longer than the captured ones.
            assert_eq!(of(&bytes[..bytes.len() - 1], bytes.len()), 34, "{protocol}, {len} bytes, cut");
        }
        let first = framed(&ipv4_with(protocol, &[], 0x2000, &body[..16]));
        assert_eq!(of(&first, first.len()), 34, "{protocol}, a first fragment");
        let v6 = framed(&ipv6(protocol, &body));
        assert!(of(&v6, v6.len()) <= 54, "{protocol} over IPv6");
    }
    let sealed = |protocol: u8, field: usize, len: usize| {
        let out = show("payload=16", &framed(&ipv4(protocol, &body)));
        assert_eq!(out.len(), 50, "{protocol}");
        assert_eq!(out[34 + field..34 + field + len], vec![0; len], "{protocol}");
        assert_eq!(out[34..34 + field], body[..field], "{protocol}");
    };
    // UDP-Lite and SCTP have one checksum, at a known offset; ESP has none. DCCP can have another one over its data
    // in an option (RFC 4340, 9.3).
    for (protocol, field, len) in [(136, 6, 2), (132, 8, 4), (50, 16, 0)] {
        sealed(protocol, field, len);
    }
}

#[test]
fn data_that_could_contain_checksums_are_not_shown_in_part() {
    let body = cat(&[PAYLOAD, PAYLOAD]);
    let tcp = ipv4(6, &packets::tcp(Over::V4));
    let deep = (0..6).fold(tcp.clone(), |inner, _| ipv4(4, &inner));
    let mut wrong = packets::tcp(Over::V4);
    wrong[12] = 0x40;
    // So many tags that the data behind them are not parsed.
    let tags = [0, 7, 0x81, 0].repeat(300);
    for (name, bytes, expected) in [
        ("another EtherType", ethernet(0x88cc, &body), 14),
        ("a later fragment", framed(&ipv4_with(6, &[], 3, &body)), 34),
        ("a short later fragment", framed(&ipv4_with(6, &[], 3, &body[..8])), 34),
        ("a tunnel that is not opened", framed(&ipv4(17, &packets::udp_to(Over::V4, 1701, &body))), 42),
        (
            "a fragment of a tunnel that is not opened",
            framed(&ipv4_with(17, &[], 0x2000, &packets::udp_to(Over::V4, 1701, &body))),
            42,
        ),
        ("five packets deep", framed(&deep), 14 + 5 * 20),
        ("a message that is unknown", framed(&ipv4(1, &icmp(Over::Nothing, 40, &body))), 42),
    ] {
        assert_eq!(show("payload=32", &bytes).len(), expected, "{name}");
        let all = show("payload=4000", &bytes).len();
        assert_eq!(all, if name.contains("fragment") { expected } else { bytes.len() }, "{name}");
    }
    let out = show("payload=32", &framed(&ipv4(6, &wrong)));
    assert_eq!((out.len(), &out[50..52]), (34 + 32, &[0, 0][..]), "TCP with an impossible length");
    let beyond = ethernet(0x8100, &cat(&[&tags, &[0, 7, 8, 0], &tcp]));
    let out = show("payload=64", &beyond);
    assert!(out.len() <= 1024, "{} bytes behind more tags than are looked at", out.len());
}

/// Under views that hide payload or anything else, unknown options are not shown, and the checksum above is right
/// again.
#[test]
fn unknown_options_and_headers_are_zeroed_and_known_ones_stay() {
    let v6 = |first: u8, header: &[u8]| framed(&ipv6(first, &cat(&[header, &tcp_with(TO_V6, &[], b"")])));
    let advertisement = |options: &[u8]| {
        let body = cat(&[&[64, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 2], options]);
        framed(&ipv6(58, &icmp(TO_V6, 134, &body)))
    };
    let known = [5, 1, 0, 0, 0, 0, 5, 0];
    let portal = cat(&[&[37, 3], b"https://portal.a/?id=1"]);
    let search = cat(&[&[31, 3, 0, 0, 0, 0, 0, 9], b"\x07example\x03org\0\0\0\0"]);
    let empty = |kind: u8| cat(&[&[kind, 3], &[0; 22]]);
    let cases = [
        (
            "neighbour discovery",
            advertisement(&cat(&[&known, &portal, &search])),
            70,
            cat(&[&known, &empty(37), &empty(31)]),
        ),
        (
            "TCP",
            framed(&ipv4(6, &tcp_with(Over::V4, &[2, 4, 5, 180, 253, 6, 1, 2, 3, 4, 8, 9, 1, 2, 3, 4], b""))),
            54,
            cat(&[&[2, 4, 5, 180], &[1; 6], &[0; 6]]),
        ),
        (
            "IPv4",
            framed(&ipv4_with(6, &[148, 4, 0, 0, 82, 6, 1, 2, 3, 4, 1, 0], 0, &tcp_with(Over::V4, &[], b""))),
            34,
            cat(&[&[148, 4, 0, 0], &[1; 7], &[0]]),
        ),
        (
            "IPv6",
            v6(0, &[6, 1, 5, 2, 0, 0, 0x1e, 4, 1, 2, 3, 4, 1, 2, 9, 9]),
            54,
            vec![6, 1, 5, 2, 0, 0, 1, 4, 0, 0, 0, 0, 1, 2, 0, 0],
        ),
        (
            "routing",
            v6(43, &[6, 1, 200, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
            54,
            cat(&[&[6, 1, 200, 3], &[0; 12]]),
        ),
    ];
    for view in ["payload=none", "payload=1000", "macs=zeroed", "payload=none,ports=zeroed"] {
        for (name, bytes, at, expected) in &cases {
            let (out, described) = shown(&mut transform(view), bytes, bytes.len(), LinkType::Ethernet);
            assert_eq!(out[*at..at + expected.len()], expected[..], "{name}, {view}");
            assert_eq!(weir_wire::verify(&out, &described), Ok(()), "{name}, {view}");
            assert_eq!(out.len(), bytes.len(), "{name}, {view}");
        }
    }
    for (name, bytes, ..) in &cases {
        assert_eq!(show("all", bytes), *bytes, "{name}");
    }
}

/// Source routes, recorded routes and home addresses are known, and stay as long as addresses are visible.
#[test]
fn options_with_addresses_stay_where_addresses_are_visible() {
    let [a, b] = packets::V4;
    let tcp = || tcp_with(Over::V4, &[], b"");
    let tcp6 = || tcp_with(TO_V6, &[], b"");
    for bytes in [
        framed(&ipv4_with(6, &cat(&[&[7, 11, 12], &a, &b, &[0]]), 0, &tcp())),
        framed(&ipv4_with(6, &cat(&[&[131, 7, 8], &b, &[0]]), 0, &tcp())),
        framed(&ipv4_with(6, &cat(&[&[68, 12, 13, 1], &a, &[1, 2, 3, 4]]), 0, &tcp())),
        framed(&ipv6(60, &cat(&[&[6, 2, 1, 2, 0, 0, 0xc9, 16], &packets::V6[1], &tcp6()]))),
        framed(&ipv6(43, &cat(&[&[6, 2, 2, 0, 0, 0, 0, 0], &packets::V6[1], &tcp6()]))),
        framed(&ipv6(43, &cat(&[&[6, 2, 4, 0, 0, 0, 0, 9], &packets::V6[1], &tcp6()]))),
    ] {
        assert_eq!(show("payload=none", &bytes), bytes);
        assert_ne!(show("addresses=zeroed", &bytes)[34..], bytes[34..]);
    }
}

/// A data sequence signal without checksum, with numbers of eight bytes, and every other option of RFC 8684.
#[test]
fn options_of_multipath_tcp_stay_without_checksums_over_payload() {
    let signal =
        |flags: u8, len: usize| cat(&[&[30, u8::try_from(len).unwrap(), 0x20, flags], &vec![7; len - 4]]);
    let other =
        |subtype: u8, len: usize| cat(&[&[30, u8::try_from(len).unwrap(), subtype << 4], &vec![7; len - 3]]);
    let options = [
        (signal(0, 4), Some(4)),
        (signal(1, 8), Some(8)),
        (signal(3, 12), Some(12)),
        (signal(4, 14), Some(14)),
        (signal(4, 16), Some(14)),
        (signal(0x0f, 26), Some(26)),
        (signal(0x0f, 28), Some(26)),
        (signal(5, 20), Some(18)),
        // Lengths that contradict its flags.
        (signal(1, 12), None),
        (signal(1, 10), None),
        (signal(4, 18), None),
        (other(0, 24), Some(22)),
        (other(0, 22), Some(22)),
        (other(0, 21), None),
        (other(1, 12), Some(12)),
        (other(4, 5), Some(5)),
        (other(6, 12), Some(12)),
        (other(7, 12), Some(12)),
        (other(8, 4), Some(4)),
        (other(9, 4), None),
        (other(15, 12), None),
    ];
    for (option, kept) in options {
        let padding = vec![1; option.len().next_multiple_of(4) - option.len()];
        let bytes = framed(&ipv4(6, &tcp_with(Over::V4, &cat(&[&option, &padding]), PAYLOAD)));
        for view in ["payload=none", "ttl=zeroed", "addresses=zeroed"] {
            let out = show(view, &bytes);
            let expected = match kept {
                Some(kept) => cat(&[&option[..kept], &vec![0; option.len() - kept]]),
                None => vec![1; option.len()],
            };
            assert_eq!(out[54..54 + option.len()], expected, "{view}: {option:02x?}");
        }
    }
}

/// An inner packet claims to be longer than its outer packet: bytes behind the outer one belong to neither.
#[test]
fn a_packet_inside_another_shows_no_byte_behind_the_outer_packet() {
    let trailer = cat(&[PAYLOAD, PAYLOAD]);
    for is_v6 in [false, true] {
        let udp = if is_v6 {
            ipv6(17, &packets::udp_to(TO_V6, 53, &[9; 8]))
        } else {
            ipv4(17, &packets::udp_to(Over::V4, 53, &[9; 8]))
        };
        let tcp = if is_v6 {
            ipv6(6, &tcp_with(TO_V6, &[], &[9; 8]))
        } else {
            ipv4(6, &tcp_with(Over::V4, &[], &[9; 8]))
        };
        let unknown = if is_v6 { ipv6(253, &[9; 8]) } else { ipv4(253, &[9; 8]) };
        let options =
            if is_v6 { ipv6(0, &[6, 0, 5, 2, 0, 0, 1, 0]) } else { ipv4_with(6, &[148, 4, 0, 0], 0, &[]) };
        for (name, mut inner) in [("UDP", udp), ("TCP", tcp), ("unknown", unknown), ("options", options)] {
            // It claims the trailer as payload, as its header, and as options.
            let claimed = inner.len() + trailer.len() - if is_v6 { 40 } else { 0 };
            let field = if is_v6 { 4 } else { 2 };
            inner[field..field + 2].copy_from_slice(&be(claimed));
            if name == "options" && is_v6 {
                inner[41] = 5;
            } else if name == "options" {
                inner[0] = 0x4f;
            }
            let kind: [u8; 2] = if is_v6 { [0x86, 0xdd] } else { [8, 0] };
            for (carrier, bytes) in [
                ("IP", framed(&ipv4(if is_v6 { 41 } else { 4 }, &inner))),
                ("GRE", framed(&ipv4(47, &cat(&[&[0, 0], &kind, &inner])))),
                ("frame", framed(&ipv4(47, &cat(&[&[0, 0, 0x65, 0x58], &framed(&inner)])))),
            ] {
                let end = bytes.len();
                for view in [
                    "payload=1000",
                    "addresses=anonymised,payload=all",
                    "payload=1000,ttl=zeroed",
                    "payload=none",
                ] {
                    let out = show(view, &cat(&[&bytes, &trailer]));
                    assert!(out.len() <= end, "{name} in {carrier}, {view}: {:02x?}", &out[end..]);
                }
            }
        }
        // ARP that is cut off by the packet around it.
        let arp = cat(&[&[0, 1, 8, 0, 6, 4, 0, 1], &[7; 12]]);
        let frame = framed(&ipv4(47, &cat(&[&[0, 0, 0x65, 0x58], &ethernet(0x0806, &arp)])));
        let out = show("payload=none", &cat(&[&frame, &trailer]));
        assert!(out.len() <= frame.len());
    }
}

/// A list of `count` addresses.
fn many<const N: usize>(count: usize) -> Vec<u8> {
    let address = |number: usize| {
        let mut address = [0x5b; N];
        address[N - 2..].copy_from_slice(&be(number));
        address[0] = 0x2a;
        address
    };
    (0..count).flat_map(address).collect()
}

#[test]
fn the_first_64_hidden_addresses_in_lists_are_shown_and_the_rest_is_not() {
    let query = icmp(Over::Nothing, 0x11, &cat(&[&packets::V4[0], &[2, 9], &be(300), &many::<4>(300)]));
    let report = icmp(Over::Nothing, 0x22, &cat(&[&[0, 0, 0, 1, 4, 0], &be(300), &many::<4>(301)]));
    let reports =
        icmp(Over::Nothing, 0x22, &cat(&[&[0, 0], &be(100), &[4, 0, 0, 0, 9, 9, 9, 9].repeat(100)]));
    let report6 = cat(&[&[0, 0, 0, 1, 4, 0], &be(80), &many::<16>(81)]);
    let query6 = cat(&[&[0; 4], &packets::V6[0], &[2, 9], &be(80), &many::<16>(80)]);
    let routers: Vec<u8> = many::<4>(200).chunks(4).flat_map(|router| cat(&[router, &[0; 4]])).collect();
    let routers = icmp(Over::Nothing, 9, &cat(&[&[200, 2, 0, 9], &routers]));
    for (name, bytes, expected) in [
        ("an IGMPv3 query", framed(&ipv4(2, &query)), 34 + 12 + 64 * 4),
        ("an IGMPv3 report", framed(&ipv4(2, &report)), 34 + 12 + 64 * 4),
        ("many records", framed(&ipv4(2, &reports)), 34 + 8 + 64 * 8 + 4),
        ("a listener report", framed(&ipv6(58, &icmp(TO_V6, 143, &report6))), 54 + 12 + 64 * 16),
        ("a listener query", framed(&ipv6(58, &icmp(TO_V6, 130, &query6))), 54 + 28 + 64 * 16),
        ("routers", framed(&ipv4(1, &routers)), 34 + 8 + 64 * 8),
        // A list in a tunnelled packet is like one in an outer packet.
        ("a tunnel", framed(&ipv4(4, &ipv4(2, &report))), 54 + 12 + 64 * 4),
    ] {
        for view in ["addresses=anonymised", "addresses=zeroed", "addresses=anonymised,payload=all"] {
            assert_eq!(show(view, &bytes).len(), expected, "{name}, {view}");
        }
        assert_eq!(show("macs=zeroed", &bytes), cat(&[&[0; 12], &bytes[12..]]), "{name}: nothing to replace");
    }
}

/// The options of a router advertisement are shown as far as possible, with zeros for further addresses.
#[test]
fn neighbour_discovery_lists_no_more_addresses_than_others() {
    let one = |kind: u8, body: &[u8]| {
        cat(&[&[kind, u8::try_from(1 + body.len() / 8).unwrap(), 64, 0, 0, 0, 0, 9], body])
    };
    let servers = |count: usize| one(25, &many::<16>(count));
    let advertisement = |options: &[u8]| {
        let body = cat(&[&[64, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 2], options]);
        framed(&ipv6(58, &icmp(TO_V6, 134, &body)))
    };
    let replaced = |options: &[Vec<u8>]| {
        let bytes = advertisement(&options.concat());
        let out = show("addresses=anonymised,payload=all", &bytes);
        assert_eq!(out.len(), bytes.len());
        out[70..].chunks(8).filter(|part| part[0] != 0).count()
    };
    // Eight bytes of each option are its own fields; the ends of the addresses are not zero either.
    assert_eq!(replaced(&[servers(64)]), 1 + 2 * 64);
    assert_eq!(replaced(&[servers(65)]), 1);
    assert_eq!(replaced(&[servers(60), servers(4), servers(1)]), 2 + 2 * 64 + 1);
    let routes: Vec<_> =
        (0..100).map(|number| one(24, &many::<16>(number + 1)[number * 16..][..8])).collect();
    assert_eq!(replaced(&routes), 100 + 64);
}
