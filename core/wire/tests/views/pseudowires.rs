//! Behind labels nothing names the protocol: a frame of a pseudowire must not be taken for an IP packet because of
//! its first four bits.

use super::nested::{Carrier, Leaf, Values};
use super::packets::{self, MAC, Over, PAYLOAD, be, cat, ethernet, framed, ipv4, ones_sum, udp_to};
use super::{HIDING, shown, transform};
use weir_wire::LinkType;

/// First bytes of hardware addresses; each is also the beginning of IPv4 or IPv6.
const FIRST: [u8; 10] = [0x60, 0x64, 0x68, 0x6c, 0x40, 0x46, 0x48, 0x4a, 0x4c, 0x4e];
/// Values in place of IPv6's next header: hop-by-hop options, TCP, UDP, fragment, ICMPv6, destination options, and
/// none.
const NEXT: [u8; 7] = [0x00, 0x06, 0x11, 0x2c, 0x3a, 0x3c, 0x02];
/// Two labels, the second of which is the bottom of the stack.
const LABELS: [u8; 8] = [1, 2, 0x30, 60, 4, 5, 0x61, 59];
/// Views that hide a part of a frame of more than 40 bytes.
const PARTIAL: [&str; 5] =
    ["payload=none", "payload=40", "macs=zeroed", "ttl=zeroed,payload=40", "ports=zeroed,payload=none"];

/// Makes the beginning of a frame a consistent IP header.
fn look_like_ip(frame: &mut [u8]) {
    if frame[0] >> 4 == 6 {
        let len = be(frame.len() - 40);
        frame[4..6].copy_from_slice(&len);
        return;
    }
    let header = frame[0] & 15;
    let header = usize::from(header.max(5)) * 4;
    frame[0] = 0x40 | u8::try_from(header / 4).unwrap();
    let len = be(frame.len());
    frame[2..4].copy_from_slice(&len);
    frame[10..12].fill(0);
    let sum = ones_sum(&[&frame[..header]]);
    frame[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Frames with all packets, between addresses that begin with these bytes; unchanged, and made to look like an IP
/// packet.
fn frames(first: u8, next: u8) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for case in packets::plain().into_iter().filter(|case| case.link_type == LinkType::Ethernet) {
        // For SNAP, the length alone would indicate a frame.
        let mut frame = case.bytes;
        frame[0] = first;
        frame[6] = next;
        frames.push(frame.clone());
        look_like_ip(&mut frame);
        frames.push(frame);
    }
    let others = [0x0806, 0x8035, 0x8847, 0x8863, 0x888e, 0x88cc, 0x88e5, 0x88f7];
    for mut frame in others.map(|ether_type| ethernet(ether_type, &cat(&[PAYLOAD, PAYLOAD]))) {
        frame[0] = first;
        frame[6] = next;
        look_like_ip(&mut frame);
        frames.push(frame);
    }
    frames
}

/// Packets that carry these bytes, each with their offset.
fn carriages(inner: &[u8]) -> Vec<(&'static str, Vec<u8>, usize)> {
    let labelled = cat(&[&LABELS, inner]);
    let gtp = cat(&[&[0x30, 255], &be(inner.len()), &[1, 2, 3, 4], inner]);
    let all = [
        ("labels", ethernet(0x8847, &labelled)),
        ("labels from upstream", ethernet(0x8848, &labelled)),
        ("labels in a VLAN", ethernet(0x8100, &cat(&[&[0, 9, 0x88, 0x47], &labelled]))),
        ("labels in SNAP", ethernet_llc(&cat(&[&[0xaa, 0xaa, 3, 0, 0, 0, 0x88, 0x47], &labelled]))),
        ("labels in GRE", framed(&ipv4(47, &cat(&[&[0, 0, 0x88, 0x47], &labelled])))),
        ("labels in IP", framed(&ipv4(137, &labelled))),
        ("labels in IPv6", framed(&packets::ipv6(137, &labelled))),
        (
            "labels in a frame in GRE",
            framed(&ipv4(47, &cat(&[&[0, 0, 0x65, 0x58], &ethernet(0x8847, &labelled)]))),
        ),
        (
            "labels in Geneve",
            framed(&ipv4(17, &udp_to(Over::V4, 6081, &cat(&[&[0, 0, 0x88, 0x47, 0, 0, 1, 0], &labelled])))),
        ),
        ("GTP-U", framed(&ipv4(17, &udp_to(Over::V4, 2152, &gtp)))),
    ];
    all.map(|(name, bytes)| {
        let begin = bytes.len() - inner.len();
        (name, bytes, begin)
    })
    .to_vec()
}

/// A frame of IEEE 802.3.
fn ethernet_llc(llc: &[u8]) -> Vec<u8> {
    cat(&[&MAC[0], &MAC[1], &be(llc.len()), llc])
}

/// Over UDP (RFC 7510), which is not opened; and with a control word (RFC 4385).
fn closed(frame: &[u8]) -> Vec<(&'static str, Vec<u8>, usize)> {
    let over_udp = framed(&ipv4(17, &udp_to(Over::V4, 6635, &cat(&[&LABELS, frame]))));
    let with_word = ethernet(0x8847, &cat(&[&LABELS, &[0; 4], frame]));
    vec![("labels over UDP", over_udp, 42), ("a control word", with_word, 22)]
}

/// Neither bytes of the frame are shown, nor do the length and the descriptor of the output reveal anything: they are
/// those of a packet with zeros instead.
#[test]
fn a_frame_behind_labels_is_not_shown_whatever_its_addresses_begin_with() {
    for view in HIDING.into_iter().chain(PARTIAL) {
        let mut transform = transform(view);
        for (first, next) in FIRST.iter().flat_map(|first| NEXT.map(|next| (*first, next))) {
            for frame in frames(first, next) {
                for (name, mut bytes, begin) in carriages(&frame).into_iter().chain(closed(&frame)) {
                    let len = bytes.len();
                    let (out, described) = shown(&mut transform, &bytes, len, LinkType::Ethernet);
                    assert!(out.len() <= begin, "{view}, {name}: {out:02x?} of {bytes:02x?}");
                    let inside = len - frame.len();
                    // As much as both readings need, and less.
                    for captured in [inside + 18, inside + 22, inside + 33, inside + 41, inside + 54] {
                        let (out, _) = shown(&mut transform, &bytes[..captured], len, LinkType::Ethernet);
                        assert!(
                            out.len() <= begin,
                            "{view}, {name}: {out:02x?}, {captured} bytes of {bytes:02x?}"
                        );
                    }
                    bytes[inside..].fill(0);
                    let empty = shown(&mut transform, &bytes, len, LinkType::Ethernet);
                    assert_eq!((out, described), empty, "{view}, {name}: {frame:02x?}");
                }
            }
        }
    }
}

#[test]
fn ip_behind_labels_is_shown() {
    let packets = [
        ipv4(6, &packets::tcp(Over::V4)),
        ipv4(17, &packets::udp(Over::V4)),
        packets::ipv6(6, &packets::tcp(packets::TO_V6)),
        packets::ipv6(17, &packets::udp(packets::TO_V6)),
    ];
    for view in HIDING.into_iter().filter(|view| view.contains("payload=all")).chain(["payload=1400"]) {
        let mut transform = transform(view);
        for packet in &packets {
            for (name, bytes, begin) in carriages(packet) {
                let (out, _) = shown(&mut transform, &bytes, bytes.len(), LinkType::Ethernet);
                assert_eq!(out.len(), bytes.len(), "{view}, {name}");
                // Its header is shown, if the capture ends behind it.
                let header = begin + if packet[0] >> 4 == 4 { 20 } else { 40 };
                let (out, _) = shown(&mut transform, &bytes[..header], bytes.len(), LinkType::Ethernet);
                assert_eq!(out.len(), header, "{view}, {name}, cut");
            }
        }
    }
}

/// The number of bytes shown of a packet behind labels.
fn shown_of(packet: &[u8], behind: usize) -> usize {
    let bytes = ethernet(0x8847, &cat(&[&LABELS, packet, &vec![0; behind]]));
    let mut transform = transform("addresses=anonymised,payload=all");
    let (out, _) = shown(&mut transform, &bytes, bytes.len(), LinkType::Ethernet);
    // With other data behind the labels, only the first label is shown.
    if out.len() == 14 + 4 { 0 } else { out.len() - 14 - LABELS.len() }
}

/// Without a bottom of the stack, the packet behind it reads as labels, up to a bit of an address or a checksum that
/// looks like one.
#[test]
fn only_the_first_label_of_a_stack_without_a_bottom_is_shown() {
    let mut bottoms = [0; 16];
    for view in HIDING.into_iter().chain(PARTIAL) {
        let mut transform = transform(view);
        let mut of = |labels: &[u8], packet: &[u8]| {
            let bytes = ethernet(0x8847, &cat(&[labels, packet]));
            let out = shown(&mut transform, &bytes, bytes.len(), LinkType::Ethernet);
            assert_eq!(out.0.len(), 14 + 4, "{view}: {:02x?} of {bytes:02x?}", out.0);
            out
        };
        for seed in 0..40 {
            let values = Values::from_seed(seed);
            for is_v6 in [false, true] {
                let inner = Leaf::Tcp.build(&values, is_v6).unwrap();
                let tunnel = Carrier::Ip.wrap(&values, is_v6, &inner).unwrap();
                for packet in [&inner.bytes, &tunnel.bytes] {
                    let bottom =
                        packet.chunks(4).position(|word| word.get(2).is_some_and(|byte| byte & 1 == 1));
                    bottoms[bottom.unwrap_or(15).min(15)] += 1;
                    for labels in [&[1, 2, 0x30, 60][..], &[1, 2, 0x30, 60, 4, 5, 0x60, 59]] {
                        let shown = of(labels, packet);
                        // Length and descriptor are those of another packet, too.
                        assert_eq!(shown, of(labels, &vec![0; packet.len()]), "{view}");
                    }
                }
            }
        }
    }
    assert!(bottoms.iter().filter(|count| **count > 0).count() > 5, "{bottoms:?}");
}

/// Labels with a bottom are shown with the packet behind them, even if words of the packet look like a bottom as
/// well.
#[test]
fn all_labels_of_a_stack_with_a_bottom_are_shown() {
    let mut transform = transform("payload=none");
    for depth in 1..12 {
        let mut labels = [0x12, 0x34, 0x50, 60].repeat(depth);
        labels[depth * 4 - 2] |= 1;
        let bytes = ethernet(0x8847, &cat(&[&labels, &ipv4(17, &packets::udp(Over::V4))]));
        let (out, described) = shown(&mut transform, &bytes, bytes.len(), LinkType::Ethernet);
        assert_eq!(out[14..14 + depth * 4], labels);
        assert_eq!((out.len(), usize::from(described.mpls_count)), (14 + depth * 4 + 28, depth));
    }
}

#[test]
fn behind_labels_only_a_consistent_ip_packet_counts_as_ip() {
    let v4 = ipv4(17, &packets::udp(Over::V4));
    let v6 = packets::ipv6(17, &packets::udp(packets::TO_V6));
    assert_eq!((shown_of(&v4, 0), shown_of(&v6, 0)), (v4.len(), v6.len()));
    assert_eq!((shown_of(&v4, 1), shown_of(&v6, 1)), (0, 0), "something behind it");
    let changed = |packet: &[u8], at: usize, bytes: [u8; 2]| {
        let mut packet = packet.to_vec();
        packet[at..at + 2].copy_from_slice(&bytes);
        shown_of(&packet, 0)
    };
    assert_eq!(changed(&v4, 10, [1, 2]), 0, "another checksum");
    assert_eq!(changed(&v4, 2, [0, 0]), 0, "no length");
    assert_eq!(changed(&v4, 2, be(v4.len() + 1)), 0, "more than there is");
    for len in [0, v6.len() - 41, v6.len() - 39] {
        assert_eq!(changed(&v6, 4, be(len)), 0, "{len} bytes of IPv6");
    }
    // The shortest Ethernet frame has 46 bytes behind its header.
    let short = ipv4(17, &udp_to(Over::V4, 53, b"ping"));
    for padding in 0..=46 - short.len() {
        assert_eq!(shown_of(&short, padding), short.len(), "{padding} bytes of padding");
    }
    assert_eq!(shown_of(&short, 47 - short.len()), 0);
    // A header that names another protocol.
    assert_eq!(shown_of(&[0x45, 0], 0), 0);
    assert_eq!(shown_of(&[0x41; 40], 0), 0);
}

/// From 8.0.69.0 an IPv4 packet reads as a frame with another one inside. Hiding too much is the lesser harm.
#[test]
fn bytes_that_can_be_a_frame_or_an_ip_packet_are_not_parsed() {
    let mut packet = ipv4(17, &packets::udp(Over::V4));
    packet[12..16].copy_from_slice(&[8, 0, 69, 7]);
    packet[10..12].fill(0);
    let sum = ones_sum(&[&packet[..20]]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(shown_of(&packet, 0), 0);
    // From elsewhere in 8.0.0.0/16 it does not.
    packet[14] = 9;
    packet[10..12].fill(0);
    let sum = ones_sum(&[&packet[..20]]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(shown_of(&packet, 0), packet.len());
}
