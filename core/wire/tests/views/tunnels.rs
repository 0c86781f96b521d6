//! Packets in tunnels: the classifier finds exactly those that views show.

use super::nested::{Built, Carrier, Leaf, Values, framed};
use super::packets::{be, cat, ones_sum};
use super::{described, shown, transform};
use crate::exercise;
use weir_abi::{Descriptor, tunnel};
use weir_units::Timestamp;
use weir_wire::view::Transform;
use weir_wire::{LinkType, Meta, MoreHeader, PEEK_MAX, TUNNELS_MAX, classify};

/// The tunnel of a carrier, if it is one.
fn tunnel_of(carrier: Carrier) -> Option<u8> {
    match carrier {
        Carrier::Ip | Carrier::IpWithOptions | Carrier::FirstFragment => Some(tunnel::IP_IN_IP),
        Carrier::Gre | Carrier::GreWithSum | Carrier::FrameInGreWithSum => Some(tunnel::GRE),
        Carrier::TaggedFrameInGreWithSum | Carrier::LabelInGreWithSum => Some(tunnel::GRE),
        Carrier::LabelInIp => Some(tunnel::MPLS_IN_IP),
        Carrier::Vxlan => Some(tunnel::VXLAN),
        Carrier::FrameInGeneve | Carrier::Geneve | Carrier::LabelInGeneve => Some(tunnel::GENEVE),
        Carrier::GtpU | Carrier::GtpUWithExtension => Some(tunnel::GTP_U),
        Carrier::Teredo | Carrier::TeredoWithOrigin => Some(tunnel::TEREDO),
        Carrier::LaterFragment | Carrier::Error | Carrier::ErrorCut | Carrier::ErrorExtended => None,
        Carrier::RedirectMessage => None,
    }
}

fn meta(packet: &[u8], wire_len: usize) -> Meta {
    let length = |len: usize| u32::try_from(len).unwrap();
    let (cap_len, wire_len, link_type) = (length(packet.len()), length(wire_len), LinkType::Ethernet);
    Meta { ts: Timestamp(7), cap_len, wire_len, link_type, interface: 3, number: 5, data: 64 }
}

/// The innermost IP header in a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Inner {
    tunnel: u8,
    depth: u8,
    l3_offset: u16,
    flow_hash: u64,
}

impl Inner {
    fn of(d: &Descriptor) -> Option<Self> {
        let Descriptor { tunnel, tunnel_count: depth, inner_offset, inner_flow_hash, .. } = *d;
        (tunnel != tunnel::NONE).then_some(Self {
            tunnel,
            depth,
            l3_offset: inner_offset,
            flow_hash: inner_flow_hash,
        })
    }
}

/// The innermost IP header of a packet, found from heads of several lengths.
fn inner_of(packet: &[u8]) -> Option<Inner> {
    let meta = meta(packet, packet.len());
    let descriptor = exercise::described(packet, &meta);
    exercise::assert_consistent(&descriptor, &meta);
    Inner::of(&descriptor)
}

/// The flow hash of a packet without a tunnel around it.
fn hash_of(built: &Built) -> u64 {
    described(&built.bytes, built.bytes.len(), LinkType::Raw).flow_hash
}

#[test]
fn the_packet_in_every_tunnel_is_found_with_its_own_flow_hash() {
    let values = Values::from_seed(1);
    let mut found = Vec::new();
    for leaf in [Leaf::Tcp, Leaf::Udp, Leaf::Echo, Leaf::Esp] {
        for (inner_v6, outer_v6) in [(false, false), (false, true), (true, false), (true, true)] {
            let inner = leaf.build(&values, inner_v6).unwrap();
            for carrier in Carrier::ALL {
                let Some(built) = carrier.wrap(&values, outer_v6, &inner) else { continue };
                let packet = framed(&values, &built).bytes;
                let expected = tunnel_of(carrier).map(|tunnel| Inner {
                    tunnel,
                    depth: 1,
                    l3_offset: u16::try_from(packet.len() - inner.bytes.len()).unwrap(),
                    flow_hash: hash_of(&inner),
                });
                assert_eq!(inner_of(&packet), expected, "{}", built.name);
                found.extend(expected.map(|inner| inner.tunnel));
            }
        }
    }
    for tunnel in [tunnel::IP_IN_IP, tunnel::MPLS_IN_IP, tunnel::GRE, tunnel::VXLAN, tunnel::GENEVE] {
        assert!(found.contains(&tunnel), "{tunnel:?}");
    }
    assert!(found.contains(&tunnel::GTP_U) && found.contains(&tunnel::TEREDO));
}

#[test]
fn tunnels_are_followed_to_a_fixed_depth_and_no_deeper() {
    let values = Values::from_seed(3);
    let leaf = Leaf::Tcp.build(&values, false).unwrap();
    for carrier in [Carrier::Ip, Carrier::GreWithSum, Carrier::Vxlan, Carrier::GtpUWithExtension] {
        let mut built = vec![leaf.clone()];
        for depth in 1..=TUNNELS_MAX + 3 {
            let around = carrier.wrap(&values, false, built.last().unwrap()).unwrap();
            let packet = framed(&values, &around).bytes;
            let seen = depth.min(TUNNELS_MAX);
            let inner = &built[usize::from(depth - seen)];
            let found = inner_of(&packet).unwrap();
            assert_eq!((found.depth, found.flow_hash), (seen, hash_of(inner)), "{}", around.name);
            assert_eq!(usize::from(found.l3_offset), packet.len() - inner.bytes.len());
            built.push(around);
        }
    }
}

#[test]
fn a_head_of_any_length_gives_the_same_answer_or_asks_for_more() {
    let values = Values::from_seed(5);
    let leaf = Leaf::Udp.build(&values, false).unwrap();
    for carrier in Carrier::ALL.into_iter().filter(|carrier| tunnel_of(*carrier).is_some()) {
        let Some(built) = carrier.wrap(&values, true, &leaf) else { continue };
        let packet = framed(&values, &built).bytes;
        let complete = meta(&packet, packet.len());
        let whole = classify(&packet, &complete).unwrap();
        assert!(whole.tunnel != tunnel::NONE, "{}", built.name);
        let mut asked = 0;
        for len in 0..packet.len() {
            match classify(&packet[..len], &complete) {
                Ok(found) => assert_eq!(found, whole, "{len} bytes of {}", built.name),
                Err(MoreHeader) => asked += 1,
            }
        }
        assert!(asked > usize::from(whole.inner_offset), "{}", built.name);
        // A capture that ends anywhere is described by the bytes that it has.
        for len in 0..packet.len() {
            let cut = meta(&packet[..len], packet.len());
            exercise::assert_consistent(&exercise::described(&packet[..len], &cut), &cut);
        }
    }
}

/// An Ethernet frame with IPv4 and some protocol above it.
fn above_ipv4(protocol: u8, above: &[u8]) -> Vec<u8> {
    let mut header = cat(&[
        &[0x45, 0],
        &be(20 + above.len()),
        &[0, 1, 0, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 198, 51, 100, 2],
    ]);
    let sum = ones_sum(&[&header]);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    cat(&[&[2; 12], &[8, 0], &header, above])
}

fn udp(src: u16, dst: u16, data: &[u8]) -> Vec<u8> {
    let header = cat(&[&src.to_be_bytes(), &dst.to_be_bytes(), &be(8 + data.len()), &[0, 0]]);
    above_ipv4(17, &cat(&[&header, data]))
}

#[test]
fn a_port_or_a_protocol_alone_is_no_tunnel() {
    let values = Values::from_seed(7);
    let inner = Leaf::Tcp.build(&values, false).unwrap().bytes;
    let gtp = |flags: u8, message: u8, rest: &[u8]| {
        udp(9000, 2152, &cat(&[&[flags, message], &be(inner.len()), &[0, 0, 0, 9], rest, &inner]))
    };
    let gre = |head: &[u8]| above_ipv4(47, &cat(&[head, &inner]));
    assert_eq!(inner_of(&gtp(0x30, 255, &[])).map(|found| found.tunnel), Some(tunnel::GTP_U));
    assert_eq!(inner_of(&gtp(0x32, 255, &[0, 7, 0, 0xc0])).map(|found| found.depth), Some(1));
    assert_eq!(inner_of(&gre(&[0, 0, 8, 0])).map(|found| found.tunnel), Some(tunnel::GRE));
    for (what, packet) in [
        ("an echo request of GTP-U", gtp(0x32, 1, &[0, 7, 0, 0])),
        ("GTP'", gtp(0x20, 255, &[])),
        ("version 2", gtp(0x50, 255, &[])),
        ("an extension without a length", gtp(0x34, 255, &[0, 7, 0, 0xc0, 0, 0, 0, 0])),
        ("an extension beyond the packet", gtp(0x34, 255, &[0, 7, 0, 0xc0, 255, 0, 0, 0])),
        ("bytes that are no packet", udp(9000, 2152, &[0x55; 60])),
        ("a packet behind another port", udp(9000, 2153, &cat(&[&[0x30, 255, 0, 0, 0, 0, 0, 9], &inner]))),
        ("PPTP's GRE", gre(&[0x20, 1, 8, 0, 0, 0, 0, 1])),
        ("source routes in GRE", gre(&[0x40, 0, 8, 0])),
        ("an unknown protocol in GRE", gre(&[0, 0, 0x88, 0xcc])),
        (
            "a frame without IP in GRE",
            above_ipv4(47, &cat(&[&[0, 0, 0x65, 0x58], &[4; 12], &[8, 6], &[0; 40]])),
        ),
        ("no header in IP in IP", above_ipv4(4, &[0x35; 40])),
        ("nothing in IP in IP", above_ipv4(4, &[])),
    ] {
        assert_eq!(inner_of(&packet), None, "{what}");
    }
}

#[test]
fn headers_beyond_the_parsing_limit_are_not_followed() {
    let values = Values::from_seed(9);
    let mut built = Leaf::Tcp.build(&values, false).unwrap();
    // Each has up to 1,020 bytes of an extension in front of the packet.
    for _ in 0..2 {
        let extension = cat(&[&[200], &[0; 798], &[0]]);
        let front = cat(&[&[0x34, 255, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0xc0], &extension]);
        built.bytes = udp(9000, 2152, &cat(&[&front, &built.bytes]))[14..].to_vec();
    }
    let packet = framed(&values, &built).bytes;
    let found = inner_of(&packet).unwrap();
    assert_eq!(found.depth, 1, "the second header is within {PEEK_MAX} bytes, the third is not");
}

#[test]
fn an_authentication_of_teredo_is_followed_and_its_contents_are_never_shown() {
    const SECRET: &[u8] = b"nonce and keyed value!";
    let values = Values::from_seed(11);
    let inner = Leaf::Tcp.build(&values, true).unwrap();
    let [port, address] = [&[0x12, 0x34][..], &[203, 0, 113, 77]];
    let authentication = cat(&[&[0, 1, 3, 10], SECRET]);
    assert_eq!(authentication.len(), 4 + 3 + 10 + 8 + 1);
    for origin in [vec![], cat(&[&[0, 0], port, address])] {
        let packet = udp(3544, 40_001, &cat(&[&authentication, &origin, &inner.bytes]));
        let found = inner_of(&packet).unwrap();
        assert_eq!((found.tunnel, found.flow_hash), (tunnel::TEREDO, hash_of(&inner)));
        for view in ["payload=none", "payload=all,ttl=zeroed", "addresses=zeroed,payload=all"] {
            let (out, after) = shown(&mut transform(view), &packet, packet.len(), LinkType::Ethernet);
            assert!(out.len() > usize::from(found.l3_offset) + 40, "the packet inside is shown: {view}");
            for secret in SECRET.windows(3) {
                assert!(!out.windows(3).any(|part| part == secret), "{view}: {out:02x?}");
            }
            let hides = view != "payload=none";
            assert!(!hides || !out.windows(4).any(|part| part == address), "the origin: {view}");
            assert_eq!(out[42..46], packet[42..46], "the lengths, by which the packet inside is found");
            assert_eq!(Inner::of(&after).map(|inner| inner.l3_offset), Some(found.l3_offset), "{view}");
        }
    }
}

/// Fuzzing starts with a packet of every tunnel, made by `fuzz/seeds.py`.
#[test]
fn the_seeds_of_the_fuzzer_have_a_packet_of_every_tunnel() {
    for (name, tunnel, depth) in [
        ("ip-in-ip", tunnel::IP_IN_IP, 1),
        ("6in4", tunnel::IP_IN_IP, 1),
        ("mpls-in-ip", tunnel::MPLS_IN_IP, 1),
        ("gre", tunnel::GRE, 1),
        ("gre-all", tunnel::GRE, 1),
        ("vxlan", tunnel::VXLAN, 1),
        ("geneve", tunnel::GENEVE, 1),
        ("gtp-u", tunnel::GTP_U, 1),
        ("gtp-u-all", tunnel::GTP_U, 1),
        ("teredo", tunnel::TEREDO, 1),
        ("teredo-all", tunnel::TEREDO, 1),
        ("gre-in-gtp-u", tunnel::GRE, 2),
    ] {
        let path = format!("{}/../../fuzz/seeds/classify/{name}", env!("CARGO_MANIFEST_DIR"));
        let input = std::fs::read(path).unwrap();
        let found = inner_of(&input[exercise::CONTROL_BYTES..]).map(|inner| (inner.tunnel, inner.depth));
        assert_eq!(found, Some((tunnel, depth)), "{name}");
    }
}

fn fields(d: &Descriptor) -> (u8, u8, u16, u64) {
    (d.tunnel, d.tunnel_count, d.inner_offset, d.inner_flow_hash)
}

/// All tunnels with TCP inside, by name.
fn tunnelled(values: &Values) -> Vec<(u8, Vec<u8>)> {
    let mut packets = Vec::new();
    for (inner_v6, outer_v6) in [(false, false), (true, true)] {
        let inner = Leaf::Tcp.build(values, inner_v6).unwrap();
        for carrier in Carrier::ALL {
            let built = carrier.wrap(values, outer_v6, &inner);
            if let (Some(tunnel), Some(built)) = (tunnel_of(carrier), built) {
                packets.push((tunnel, framed(values, &built).bytes));
            }
        }
    }
    packets
}

/// A holder reads descriptors as well as bytes. An unkeyed flow hash would let them test guesses of addresses and
/// ports of the packet inside.
#[test]
fn the_hash_of_the_packet_inside_is_keyed_by_view_and_reveals_no_hidden_address() {
    let (values, other) = (Values::from_seed(13), Values::from_seed(14));
    let moved = Values { v4: other.v4, v6: other.v6, ..values.clone() };
    for view in super::HIDING.into_iter().chain(["payload=none", "all"]) {
        let (mut one, mut two) = (
            transform(view),
            Transform::new(view.parse().unwrap(), &weir_wire::view::ViewKey::derive(&[0x52; 32], b"views")),
        );
        let mut found = 0;
        for ((_, packet), (_, elsewhere)) in tunnelled(&values).iter().zip(&tunnelled(&moved)) {
            let plain = described(packet, packet.len(), LinkType::Ethernet);
            let (out, seen) = shown(&mut one, packet, packet.len(), LinkType::Ethernet);
            // The same bytes, described by the parser alone.
            let bare = classify(&out, &meta(&out, packet.len())).unwrap();
            assert_eq!((seen.tunnel, seen.inner_offset), (bare.tunnel, bare.inner_offset), "{view}");
            if seen.tunnel == tunnel::NONE {
                continue;
            }
            found += 1;
            assert_eq!(seen.inner_flow_hash, one.flow_hash(bare.inner_flow_hash), "{view}");
            assert!(![plain.inner_flow_hash, bare.inner_flow_hash].contains(&seen.inner_flow_hash), "{view}");
            let (_, with_other_key) = shown(&mut two, packet, packet.len(), LinkType::Ethernet);
            assert_ne!(seen.inner_flow_hash, with_other_key.inner_flow_hash, "{view}");
            if view.starts_with("addresses=zeroed") {
                let (_, moved) = shown(&mut one, elsewhere, elsewhere.len(), LinkType::Ethernet);
                assert_eq!(fields(&seen), fields(&moved), "{view}");
            }
        }
        // Ports identify most tunnels, so without ports those are not found.
        assert!(found >= if view.contains("ports=zeroed") { 10 } else { 25 }, "{view}: {found}");
    }
}

/// The descriptor of the whole packet is given when the visible bytes are described, but nothing about tunnels is
/// taken from it.
#[test]
fn the_descriptor_reveals_nothing_of_a_packet_inside_that_is_not_shown() {
    let values = Values::from_seed(15);
    for (kind, packet) in tunnelled(&values) {
        let whole = described(&packet, packet.len(), LinkType::Ethernet);
        assert_eq!(whole.tunnel, kind);
        let mut all = transform("payload=none");
        for room in 0..packet.len() {
            let mut out = vec![0; room];
            let len = all.apply(&packet, &whole, &mut out).len;
            let seen = all.describe(&out[..len], &whole);
            let is_there = len >= usize::from(whole.inner_offset) + 20;
            assert!(is_there || fields(&seen) == (0, 0, 0, 0), "{room} bytes: {seen:?}");
        }
        let over_udp = ![tunnel::IP_IN_IP, tunnel::MPLS_IN_IP, tunnel::GRE].contains(&kind);
        let (_, seen) = shown(&mut transform("ports=zeroed"), &packet, packet.len(), LinkType::Ethernet);
        let expected = if over_udp { 0 } else { kind };
        assert_eq!(seen.tunnel, expected, "the kind would say which port is hidden");
        assert!(!over_udp || fields(&seen) == (0, 0, 0, 0));
    }
    // ESP around a tunnel, and a tunnel that is not opened, hide the packet from the classifier as well.
    let inner = Leaf::Tcp.build(&values, false).unwrap();
    for packet in [above_ipv4(50, &inner.bytes), udp(9000, 4790, &inner.bytes)] {
        let (_, seen) = shown(&mut transform("payload=none"), &packet, packet.len(), LinkType::Ethernet);
        assert_eq!(fields(&seen), (0, 0, 0, 0));
    }
}
