//! Patches, compared with etherparse's checksums.

use crate::exercise::described;
use etherparse::{Icmpv4Type, Icmpv6Type, NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use proptest::prelude::*;
use weir_abi::{Descriptor, flag};
use weir_units::Timestamp;
use weir_wire::patch::{apply, check};
use weir_wire::{LinkType, Meta, PatchError};

fn descriptor(packet: &[u8], link_type: LinkType) -> Descriptor {
    let cap_len = u32::try_from(packet.len()).expect("a small packet");
    described(
        packet,
        &Meta { ts: Timestamp(0), cap_len, wire_len: cap_len, link_type, interface: 0, number: 0, data: 0 },
    )
}

/// A checksum in a packet, and the one that etherparse computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sum {
    stored: u16,
    right: u16,
}

impl Sum {
    /// The error of the checksum in one's complement arithmetic, where 0 and 0xffff are equal.
    fn error(self) -> u32 {
        (u32::from(self.stored) + 0xffff - u32::from(self.right)) % 0xffff
    }
}

/// The checksums of the IPv4 header, if there is one, and above IP.
fn checksums(packet: &[u8]) -> (Option<Sum>, Sum) {
    let sliced = SlicedPacket::from_ethernet(packet).expect("still a packet");
    let (header, v4, v6) = match sliced.net.as_ref().expect("still IP") {
        NetSlice::Ipv4(ip) => {
            let header = ip.header().to_header();
            let sum = Sum { stored: header.header_checksum, right: header.calc_header_checksum() };
            (Some(sum), Some((header.source, header.destination)), None)
        }
        NetSlice::Ipv6(ip) => (None, None, Some((ip.header().source(), ip.header().destination()))),
        NetSlice::Arp(_) => panic!("still IP"),
    };
    let (stored, right) = match sliced.transport.as_ref().expect("still something above IP") {
        TransportSlice::Tcp(tcp) => {
            let right = match (v4, v6) {
                (Some((src, dst)), _) => tcp.calc_checksum_ipv4(src, dst),
                (_, Some((src, dst))) => tcp.calc_checksum_ipv6(src, dst),
                _ => panic!("still IP"),
            };
            (tcp.checksum(), right.expect("short enough"))
        }
        TransportSlice::Udp(udp) => {
            let right = match (v4, v6) {
                (Some((src, dst)), _) => udp.to_header().calc_checksum_ipv4_raw(src, dst, udp.payload()),
                (_, Some((src, dst))) => udp.to_header().calc_checksum_ipv6_raw(src, dst, udp.payload()),
                _ => panic!("still IP"),
            };
            (udp.checksum(), right.expect("short enough"))
        }
        TransportSlice::Icmpv4(icmp) => {
            let (type_u8, code_u8) = (icmp.type_u8(), icmp.code_u8());
            let as_bytes = Icmpv4Type::Unknown { type_u8, code_u8, bytes5to8: icmp.bytes5to8() };
            (icmp.checksum(), as_bytes.calc_checksum(&icmp.slice()[8..]))
        }
        TransportSlice::Icmpv6(icmp) => {
            let (type_u8, code_u8) = (icmp.type_u8(), icmp.code_u8());
            let as_bytes = Icmpv6Type::Unknown { type_u8, code_u8, bytes5to8: icmp.bytes5to8() };
            let (src, dst) = v6.expect("over IPv6");
            (icmp.checksum(), as_bytes.calc_checksum(src, dst, &icmp.slice()[8..]).expect("short enough"))
        }
        TransportSlice::Igmp(_) => panic!("not built here"),
    };
    (header, Sum { stored, right })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Tcp,
    Udp,
    Icmp,
}

/// A packet with right checksums, written by etherparse.
fn build(v6: bool, kind: Kind, addresses: [u8; 32], options: usize, payload: &[u8]) -> Vec<u8> {
    let [src, dst] = [0, 16].map(|from| <[u8; 16]>::try_from(&addresses[from..from + 16]).expect("16 bytes"));
    let four = |a: [u8; 16]| [a[0], a[1], a[2], a[3]];
    let ethernet = PacketBuilder::ethernet2([2; 6], [4; 6]);
    let ip = if v6 { ethernet.ipv6(src, dst, 9) } else { ethernet.ipv4(four(src), four(dst), 9) };
    let mut bytes = Vec::new();
    let written = match kind {
        Kind::Tcp => {
            let mut header = etherparse::TcpHeader::new(1000, 80, 0xdead_beef, 512);
            header.ack = true;
            header.set_options_raw(&vec![1; options * 4]).expect("at most 40 bytes");
            ip.tcp_header(header).write(&mut bytes, payload)
        }
        Kind::Udp => ip.udp(5000, 53).write(&mut bytes, payload),
        Kind::Icmp if v6 => ip.icmpv6_echo_request(1, 2).write(&mut bytes, payload),
        Kind::Icmp => ip.icmpv4_echo_request(1, 2).write(&mut bytes, payload),
    };
    written.expect("a small packet can be built");
    bytes
}

fn packets() -> impl Strategy<Value = (Kind, Vec<u8>)> {
    let kind = prop::sample::select(vec![Kind::Tcp, Kind::Udp, Kind::Icmp]);
    let payload = prop::collection::vec(any::<u8>(), 0..70);
    (any::<bool>(), kind, any::<[u8; 32]>(), 0..11_usize, payload).prop_map(
        |(v6, kind, addresses, options, payload)| (kind, build(v6, kind, addresses, options, &payload)),
    )
}

fn at(offset: usize) -> u32 {
    u32::try_from(offset).expect("a small packet")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8192, failure_persistence: None, ..ProptestConfig::default() })]

    /// A wrong checksum has to be wrong by the same amount after the patch.
    #[test]
    fn every_checksum_stays_as_right_or_wrong_as_it_was(
        (kind, mut packet) in packets(),
        patches in prop::collection::vec((0..150_usize, prop::collection::vec(any::<u8>(), 0..24)), 1..6),
        wrong_by in prop::option::of(any::<(u16, u16)>()),
    ) {
        let d = descriptor(&packet, LinkType::Ethernet);
        let upper_sum = usize::from(d.l4_offset) + match kind { Kind::Tcp => 16, Kind::Udp => 6, Kind::Icmp => 2 };
        if let Some((header, upper)) = wrong_by {
            if d.flags & flag::IPV4 != 0 {
                packet[24..26].copy_from_slice(&header.to_be_bytes());
            }
            // A UDP checksum of 0 has a test of its own.
            packet[upper_sum..upper_sum + 2].copy_from_slice(&upper.max(1).to_be_bytes());
        }
        let before = checksums(&packet);
        for (offset, bytes) in patches {
            let untouched = packet.clone();
            let checked = check(&packet[..packet.len().min(96)], &d, at(offset), &bytes);
            let applied = apply(&mut packet, &d, at(offset), &bytes);
            prop_assert_eq!(checked, applied);
            match applied {
                Ok(()) => prop_assert_eq!(&packet[offset..offset + bytes.len()], &bytes[..]),
                Err(_) => prop_assert_eq!(&packet, &untouched),
            }
            let within = offset + bytes.len() <= packet.len();
            prop_assert_eq!(matches!(applied, Err(PatchError::Range { .. })), !within);
        }
        // etherparse accepts an ICMP timestamp (types 13 and 14) only at its own length.
        let is_timestamp = |ty: u8| matches!(kind, Kind::Icmp) && matches!(ty, 13 | 14);
        prop_assume!(!is_timestamp(packet[usize::from(d.l4_offset)]));
        let after = checksums(&packet);
        prop_assert_eq!(before.0.map(Sum::error), after.0.map(Sum::error), "IPv4 header: {:?}, {:?}", before, after);
        prop_assert_eq!(before.1.error(), after.1.error(), "above IP: {:?}, {:?}", before, after);
        if wrong_by.is_none() {
            prop_assert_eq!(after.0.map(|sum| sum.stored), after.0.map(|sum| sum.right));
            prop_assert_eq!(after.1.stored, after.1.right, "right to the bit");
        }
    }

    #[test]
    fn addresses_ports_and_payload_can_be_rewritten_and_checksums_follow(
        (kind, mut packet) in packets(),
        new in any::<[u8; 32]>(),
    ) {
        let d = descriptor(&packet, LinkType::Ethernet);
        let v4 = d.flags & flag::IPV4 != 0;
        let (addresses, len) = if v4 { (26, 8) } else { (22, 32) };
        let (l4, payload) = (usize::from(d.l4_offset), usize::from(d.payload_offset));
        let payload_len = usize::try_from(d.payload_len).expect("small").min(31);
        prop_assert_eq!(apply(&mut packet, &d, addresses, &new[..len]), Ok(()));
        if kind != Kind::Icmp {
            prop_assert_eq!(apply(&mut packet, &d, at(l4), &new[..4]), Ok(()));
        }
        prop_assert_eq!(apply(&mut packet, &d, at(payload), &new[..payload_len]), Ok(()));
        let (header, upper) = checksums(&packet);
        prop_assert_eq!(header.map(Sum::error).unwrap_or(0), 0);
        prop_assert_eq!(upper.stored, upper.right);
        prop_assert_eq!(&packet[payload..payload + payload_len], &new[..payload_len]);
    }

    #[test]
    fn a_udp_checksum_of_zero_stays_zero_after_a_patch(v6 in any::<bool>(), addresses in any::<[u8; 32]>(), new in any::<[u8; 4]>()) {
        let mut packet = build(v6, Kind::Udp, addresses, 0, &[1, 2, 3]);
        let d = descriptor(&packet, LinkType::Ethernet);
        let sum = usize::from(d.l4_offset) + 6;
        packet[sum..sum + 2].fill(0);
        apply(&mut packet, &d, u32::from(d.l4_offset), &new).expect("ports can be written");
        prop_assert_eq!(&packet[sum..sum + 2], &[0, 0]);
    }
}

#[test]
fn a_udp_checksum_that_becomes_0_is_stored_as_ffff() {
    let mut packet = build(false, Kind::Udp, [1; 32], 0, &[0; 2]);
    let d = descriptor(&packet, LinkType::Ethernet);
    let (_, sum) = checksums(&packet);
    // The rest to a sum of 0xffff, written over zeros of the payload, makes the checksum ~0xffff = 0.
    apply(&mut packet, &d, 42, &sum.stored.to_be_bytes()).expect("payload can be written");
    assert_eq!(packet[40..42], [0xff, 0xff]);
    assert_eq!(checksums(&packet).1, Sum { stored: 0xffff, right: 0xffff });
}

/// The changes allowed for each byte of the packet: every bit, some bits, or none.
fn map(packet: &[u8], link_type: LinkType) -> String {
    let d = descriptor(packet, link_type);
    let changeable = |offset: usize| {
        let bits = (0..8).filter(|bit| check(packet, &d, at(offset), &[packet[offset] ^ 1 << bit]).is_ok());
        match bits.count() {
            0 => '-',
            8 => 'w',
            _ => 'b',
        }
    };
    (0..packet.len()).map(changeable).collect()
}

#[test]
fn exactly_the_documented_bytes_are_denied() {
    let tcp = build(false, Kind::Tcp, [1; 32], 1, b"ab");
    let ethernet = "wwwwwwwwwwww--";
    let ipv4 = "-w--ww--w---wwwwwwww";
    let ipv6 = "bwww---wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww";
    assert_eq!(map(&tcp, LinkType::Ethernet), format!("{ethernet}{ipv4}wwwwwwwwwwwwbwww--wwwwwwww"));
    let udp = build(true, Kind::Udp, [1; 32], 0, b"ab");
    assert_eq!(map(&udp, LinkType::Ethernet), format!("{ethernet}{ipv6}wwww----ww"));
    let icmp = build(true, Kind::Icmp, [1; 32], 0, b"ab");
    assert_eq!(map(&icmp, LinkType::Ethernet), format!("{ethernet}{ipv6}ww--wwwwww"));
    assert_eq!(map(&icmp[14..], LinkType::Raw), format!("{ipv6}ww--wwwwww"));

    let inner = &tcp[14..];
    let behind = |layers: &[u8]| [&tcp[..12], layers, inner].concat();
    let above = format!("{ipv4}wwwwwwwwwwwwbwww--wwwwwwww");
    let tagged = behind(&[0x81, 0, 0, 5, 0x88, 0x47, 0, 1, 0x11, 64]);
    assert_eq!(map(&tagged, LinkType::Ethernet), format!("{ethernet}ww--wwbw{above}"));
    let pppoe = behind(&[0x88, 0x64, 0x11, 0, 0, 7, 0, 50, 0, 0x21]);
    assert_eq!(map(&pppoe, LinkType::Ethernet), format!("{ethernet}--ww----{above}"));
    let snap = behind(&[0, 54, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0]);
    assert_eq!(map(&snap, LinkType::Ethernet), format!("{ethernet}--------{above}"));
    let arp = [&tcp[..12], &[8, 6], &[0; 4]].concat();
    assert_eq!(map(&arp, LinkType::Ethernet), format!("{ethernet}wwww"));
    let cooked = [&[0, 0, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, 8, 0], inner].concat();
    assert_eq!(map(&cooked, LinkType::LinuxSll), format!("------wwwwwwww--{above}"));
    let cooked2 = [&[8, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0], inner].concat();
    assert_eq!(map(&cooked2, LinkType::LinuxSll2), format!("------------wwwwwwww{above}"));
    let null = [&[2, 0, 0, 0], inner].concat();
    assert_eq!(map(&null, LinkType::Null), format!("----{above}"));
}

#[test]
fn bytes_whose_checksum_cannot_be_updated_are_denied() {
    let udp = build(false, Kind::Udp, [1; 32], 0, b"abcdef");
    let (link, fixed, addresses) = ("wwwwwwwwwwww--", "-w--ww--w---", "wwwwwwww");
    let with = |at: usize, value: u8| {
        let mut packet = udp.clone();
        packet[at] = value;
        packet
    };
    // A later fragment, SCTP, UDP-Lite (whose checksum covers the addresses) and an authentication header.
    let nothing = "-".repeat(14);
    assert_eq!(map(&with(21, 1), LinkType::Ethernet), format!("{link}{fixed}{addresses}{nothing}"));
    assert_eq!(map(&with(23, 132), LinkType::Ethernet), format!("{link}{fixed}{addresses}{nothing}"));
    assert_eq!(map(&with(23, 136), LinkType::Ethernet), format!("{link}{fixed}--------{nothing}"));
    assert_eq!(map(&with(23, 51), LinkType::Ethernet), format!("{link}{fixed}--------{nothing}"));
    // From an impossible header on.
    assert_eq!(map(&with(14, 0x44), LinkType::Ethernet), format!("{link}{}", "-".repeat(34)));
    // If the IP packet ends before the checksum, there is padding in its place.
    let mut short = build(false, Kind::Tcp, [1; 32], 0, b"");
    short[17] = 37;
    assert_eq!(map(&short, LinkType::Ethernet), format!("{link}{fixed}{addresses}wwwwwwwwwwwwbwwwwwww"));
    // Options can contain a source route.
    let mut options = [&udp[..34], &[1, 1, 1, 0], &udp[34..]].concat();
    options[14] = 0x46;
    options[17] += 4;
    assert_eq!(map(&options, LinkType::Ethernet), format!("{link}{fixed}wwww--------wwww----wwwwww"));
    // Bytes beyond the UDP length are in no checksum.
    let surplus = with(39, 10);
    assert_eq!(map(&surplus, LinkType::Ethernet), format!("{link}{fixed}{addresses}wwww----wwwwww"));
    let mut patched = surplus.clone();
    let d = descriptor(&surplus, LinkType::Ethernet);
    apply(&mut patched, &d, 46, b"z").expect("no checksum, no harm");
    assert_eq!(patched[40..42], surplus[40..42]);
}

#[test]
fn extension_headers_are_denied_and_some_deny_the_addresses() {
    let udp = build(true, Kind::Udp, [1; 32], 0, b"ab");
    let (link, fixed, address) = ("wwwwwwwwwwww--", "bwww---w", "wwwwwwwwwwwwwwww");
    let (same, none, header, above) = (address, "-".repeat(16), "-".repeat(8), "wwww----ww");
    let hop_by_hop = format!("{link}{fixed}{same}{same}{header}{above}");
    let home_address = format!("{link}{fixed}{none}{same}{header}{above}");
    let checksum_of_its_own = format!("{link}{fixed}{none}{none}{header}{above}");
    let authenticated = format!("{link}{fixed}{none}{none}{header}{}", "-".repeat(10));
    let cases = [
        (0, hop_by_hop),
        (60, home_address),
        (135, checksum_of_its_own.clone()),
        (139, checksum_of_its_own.clone()),
        (140, checksum_of_its_own),
        (51, authenticated),
    ];
    for (extension, expected) in cases {
        let mut packet = [&udp[..54], &[17, 0, 1, 4, 0, 0, 0, 0], &udp[54..]].concat();
        (packet[19], packet[20]) = (10 + 8, extension);
        assert_eq!(map(&packet, LinkType::Ethernet), expected, "extension header {extension}");
    }
}

#[test]
fn behind_a_routing_header_the_destination_is_not_in_the_checksum() {
    let udp = build(true, Kind::Udp, [1; 32], 0, b"ab");
    let routing = |segments_left: u8| {
        [17, 2, 0, segments_left, 0, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9]
    };
    for (segments_left, changes) in [(1, false), (0, true)] {
        let mut packet = [&udp[..54], &routing(segments_left), &udp[54..]].concat();
        (packet[19], packet[20]) = (10 + 24, 43);
        let d = descriptor(&packet, LinkType::Ethernet);
        let sum = usize::from(d.l4_offset) + 6;
        let before = packet[sum..sum + 2].to_vec();
        apply(&mut packet, &d, 38, &[7; 16]).expect("the destination can be written");
        assert_eq!(packet[sum..sum + 2] != before[..], changes, "{segments_left} segments left");
        let before = packet[sum..sum + 2].to_vec();
        apply(&mut packet, &d, 22, &[8; 16]).expect("the source can be written");
        assert_ne!(packet[sum..sum + 2], before[..]);
    }
}

#[test]
fn a_checksum_that_is_not_captured_is_not_updated() {
    let whole = build(false, Kind::Tcp, [1; 32], 0, b"payload");
    let meta = |cap_len: u32| Meta {
        ts: Timestamp(0),
        cap_len,
        wire_len: 61,
        link_type: LinkType::Ethernet,
        interface: 0,
        number: 0,
        data: 0,
    };
    for captured in [35, 49, 50, 51, 52] {
        let mut cut = whole[..captured].to_vec();
        let d = described(&cut, &meta(at(captured)));
        apply(&mut cut, &d, 26, &[10, 0, 0, 1]).expect("the source address can be written");
        let mut patched = whole.clone();
        let d = descriptor(&whole, LinkType::Ethernet);
        apply(&mut patched, &d, 26, &[10, 0, 0, 1]).expect("the source address can be written");
        let before_sum = captured.min(50);
        assert_eq!(cut[..before_sum], patched[..before_sum], "IPv4 header checksum");
        if captured >= 52 {
            assert_eq!(cut[50..52], patched[50..52], "TCP checksum");
        } else {
            assert_eq!(
                cut.get(50..).unwrap_or_default(),
                whole.get(50..captured).unwrap_or_default(),
                "half a checksum"
            );
        }
    }
}

#[test]
fn patches_end_at_the_captured_bytes_and_at_other_packets() {
    let mut packet = build(false, Kind::Tcp, [1; 32], 0, b"payload");
    let d = descriptor(&packet, LinkType::Ethernet);
    let range = |offset, len| Err(PatchError::Range { offset, len, captured: 61 });
    assert_eq!(apply(&mut packet, &d, 60, b"x"), Ok(()));
    assert_eq!(apply(&mut packet, &d, 60, b"xy"), range(60, 2));
    assert_eq!(apply(&mut packet, &d, 61, b""), Ok(()));
    assert_eq!(apply(&mut packet, &d, 62, b""), range(62, 0));
    assert_eq!(apply(&mut packet, &d, u32::MAX, b"x"), range(u32::MAX, 1));
    assert_eq!(
        apply(&mut packet, &d, 12, &[8, 0]),
        Err(PatchError::Denied { at: 12 }),
        "not even its own value"
    );

    // The bytes are no longer those that were described: now they are UDP.
    packet[23] = 17;
    assert_eq!(apply(&mut packet, &d, 0, b"x"), Err(PatchError::Denied { at: 0 }));
    assert_eq!(apply(&mut packet[..20], &d, 0, b"x"), Err(PatchError::Denied { at: 0 }));
    assert_eq!(apply(&mut [], &d, 0, b""), Err(PatchError::Denied { at: 0 }));
}
