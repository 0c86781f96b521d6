//! Packets that nearly match the filters, with every link header.

use proptest::prelude::*;
use std::path::{Path, PathBuf};
use weir_wire::LinkType;

/// A packet with the link header for `protocol` (an EtherType), for each link type.
pub(crate) fn with_link_header(link_type: LinkType, protocol: u16, rest: &[u8]) -> Vec<u8> {
    let [high, low] = protocol.to_be_bytes();
    let family: u32 = match protocol {
        0x0800 => 2,
        0x86dd => 10,
        other => u32::from(other),
    };
    let header: Vec<u8> = match link_type {
        LinkType::Ethernet => vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, high, low],
        LinkType::Null => family.to_le_bytes().to_vec(),
        LinkType::Loop => family.to_be_bytes().to_vec(),
        LinkType::LinuxSll => {
            vec![0, low & 4, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, high, low]
        }
        LinkType::LinuxSll2 => {
            vec![high, low, 0, 0, 0, 0, 0, 3, 0, 1, low & 4, 6, 2, 0, 0, 0, 0, 1, 0, 0]
        }
        LinkType::Raw | LinkType::Ipv4 | LinkType::Ipv6 => Vec::new(),
    };
    [header.as_slice(), rest].concat()
}

fn last_byte() -> impl Strategy<Value = u8> {
    prop_oneof![Just(1_u8), Just(2), any::<u8>()]
}

fn port() -> impl Strategy<Value = u16> {
    prop_oneof![5 => prop::sample::select(vec![53_u16, 80, 443, 22, 123, 5000, 6081]), 1 => any::<u16>()]
}

fn address() -> impl Strategy<Value = [u8; 4]> {
    let net = prop::sample::select(vec![[10, 0, 0], [10, 1, 1], [192, 168, 1], [172, 16, 0], [224, 0, 0]]);
    (net, last_byte()).prop_map(|([a, b, c], d)| [a, b, c, d])
}

/// A transport header with a payload.
fn transport() -> impl Strategy<Value = Vec<u8>> {
    (port(), port(), any::<u8>(), prop::collection::vec(any::<u8>(), 0..30)).prop_map(
        |(src, dst, flags, rest)| {
            let mut bytes = [src.to_be_bytes(), dst.to_be_bytes()].concat();
            bytes.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 1, 0, 0, 0, 0, 0]);
            bytes.extend(rest);
            bytes
        },
    )
}

fn ip4() -> impl Strategy<Value = Vec<u8>> {
    let protocol = prop::sample::select(vec![6_u8, 6, 17, 17, 1, 2, 47, 50, 103, 112, 132]);
    let fragment = prop_oneof![4 => Just(0_u16), 1 => Just(0x4000), 1 => Just(0x2000), 1 => any::<u16>()];
    (protocol, fragment, 0..8_u8, address(), address(), transport()).prop_map(
        |(protocol, fragment, options, src, dst, rest)| {
            let words = 5 + options / 4 * 2;
            let len = u16::try_from(usize::from(words) * 4 + rest.len()).unwrap();
            let mut bytes = vec![0x40 | words, 0];
            bytes.extend(len.to_be_bytes());
            bytes.extend([0, 7]);
            bytes.extend(fragment.to_be_bytes());
            bytes.extend([64, protocol, 0, 0]);
            bytes.extend(src);
            bytes.extend(dst);
            bytes.extend(vec![1; usize::from(words - 5) * 4]);
            bytes.extend(rest);
            bytes
        },
    )
}

fn ip6() -> impl Strategy<Value = Vec<u8>> {
    let protocol = prop::sample::select(vec![6_u8, 17, 58, 132, 103, 0, 44, 60]);
    (protocol, last_byte(), last_byte(), prop::sample::select(vec![0xfd_u8, 0xff]), 0..3_usize, transport())
        .prop_map(|(protocol, src, dst, first, extensions, rest)| {
            let mut bytes = vec![0x60, 0, 0, 0, 0, 60, protocol, 64];
            for (first, last) in [(0xfd, src), (first, dst)] {
                bytes.extend([first, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
            }
            for i in 0..extensions {
                bytes.extend([if i == 0 { 43 } else { 6 }, 0, 0, 0, 0, 0, 0, 0]);
            }
            bytes.extend(rest);
            bytes
        })
}

fn arp() -> impl Strategy<Value = Vec<u8>> {
    (address(), address(), 1..3_u8).prop_map(|(src, dst, operation)| {
        let mut bytes = vec![0, 1, 8, 0, 6, 4, 0, operation, 2, 0, 0, 0, 0, 2];
        bytes.extend(src);
        bytes.extend([2, 0, 0, 0, 0, 1]);
        bytes.extend(dst);
        bytes
    })
}

/// A protocol and its packet.
fn network() -> impl Strategy<Value = (u16, Vec<u8>)> {
    let plain = prop_oneof![
        6 => ip4().prop_map(|packet| (0x0800, packet)),
        4 => ip6().prop_map(|packet| (0x86dd, packet)),
        2 => (prop::sample::select(vec![0x0806_u16, 0x8035]), arp()),
        2 => (any::<u16>(), prop::collection::vec(any::<u8>(), 0..60)),
        2 => (prop::sample::select(vec![4_u16, 1, 60, 0x8137, 0x809b, 0x6003]), llc()),
    ];
    plain.prop_recursive(3, 8, 1, |inner| {
        prop_oneof![
            (0..4_u8, prop::sample::select(vec![0x8100_u16, 0x88a8, 0x9100]), inner.clone()).prop_map(
                |(id, tag, (protocol, rest))| {
                    (tag, [&[0, id][..], &protocol.to_be_bytes(), &rest].concat())
                }
            ),
            (0..4_u8, any::<bool>(), inner.clone()).prop_map(|(label, is_last, (_, rest))| {
                (0x8847, [&[0, 0, label << 4 | u8::from(is_last), 64][..], &rest].concat())
            }),
            (0..4_u8, inner.clone()).prop_map(|(session, (protocol, rest))| {
                let ppp = if protocol == 0x86dd { 0x57_u16 } else { 0x21 };
                (0x8864, [&[0x11, 0, 0, session, 0, 40][..], &ppp.to_be_bytes(), &rest].concat())
            }),
            (0..2_u8, 0..3_u8, any::<bool>(), inner).prop_map(
                |(options, vni, is_frame, (protocol, rest))| {
                    let carried = if is_frame { 0x6558 } else { protocol };
                    let mut bytes = vec![0x45, 0, 0, 100, 0, 7, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
                    bytes.extend([0x30, 0, 0x17, 0xc1, 0, 80, 0, 0, options, 0]);
                    bytes.extend(carried.to_be_bytes());
                    bytes.extend([0, 0, vni, 0]);
                    bytes.extend(vec![0; usize::from(options) * 4]);
                    if is_frame {
                        bytes.extend(with_link_header(LinkType::Ethernet, protocol, &rest));
                    } else {
                        bytes.extend(rest);
                    }
                    (0x0800, bytes)
                }
            ),
        ]
    })
}

/// 802.2 headers.
fn llc() -> impl Strategy<Value = Vec<u8>> {
    let head = prop::sample::select(vec![
        vec![0xaa, 0xaa, 3, 0, 0, 0, 0x81, 0x37],
        vec![0xaa, 0xaa, 3, 8, 0, 7, 0x80, 0x9b],
        vec![0xe0, 0xe0, 3],
        vec![0xff, 0xff, 0],
        vec![0xfe, 0xfe, 3, 0x83, 0, 0, 0, 15],
        vec![0x42, 0x42, 3],
        vec![0xf0, 0xf0, 0x7f],
        vec![0x81, 0x06, 0x02, 0x28, 4],
        vec![0xfe, 0xfe, 1],
    ]);
    (head, prop::collection::vec(any::<u8>(), 0..30)).prop_map(|(head, rest)| [head, rest].concat())
}

/// A packet of a link type, sometimes truncated, sometimes with one byte changed.
pub(crate) fn packet(link_type: LinkType) -> impl Strategy<Value = Vec<u8>> {
    let cut = prop_oneof![3 => Just(usize::MAX), 1 => 0..90_usize];
    let change = prop_oneof![3 => Just(None), 1 => (4..80_usize, any::<u8>()).prop_map(Some)];
    (network(), cut, change).prop_map(move |((protocol, rest), cut, change)| {
        let mut bytes = with_link_header(link_type, protocol, &rest);
        if let Some((at, byte)) = change
            && let Some(place) = bytes.get_mut(at)
        {
            *place = byte;
        }
        bytes.truncate(cut);
        bytes
    })
}

/// NULL and LOOP headers that weir accepts and libpcap does not: other systems' numbers of IPv6, and NULL headers in
/// the other byte order.
pub(crate) fn is_beyond_libpcap(link_type: LinkType, packet: &[u8]) -> bool {
    let Some(&head) = packet.first_chunk::<4>() else { return false };
    let number = u32::from_be_bytes(head);
    match link_type {
        LinkType::Null => {
            [2, 10, 24, 28, 30].contains(&number) || [24, 28, 30].contains(&number.swap_bytes())
        }
        LinkType::Loop => [24, 28, 30].contains(&number),
        _ => false,
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The packets of a capture file, with their link type.
pub(crate) fn of_file(path: &Path) -> Option<(LinkType, Vec<Vec<u8>>)> {
    let mut capture = pcap::Capture::from_file(path).ok()?;
    let number = u32::try_from(capture.get_datalink().0).ok()?;
    let link_type = LinkType::try_from(number).ok()?;
    let mut packets = Vec::new();
    while let Ok(packet) = capture.next_packet() {
        packets.push(packet.data.to_vec());
    }
    Some((link_type, packets))
}

pub(crate) fn sample() -> Vec<Vec<u8>> {
    let (link_type, packets) = of_file(&root().join("lab/sample/sample.pcap")).unwrap();
    assert_eq!(link_type, LinkType::Ethernet);
    packets
}

/// The captures of the shared set, if it is present: their link types and first packets.
pub(crate) fn traces() -> Vec<(PathBuf, LinkType, Vec<Vec<u8>>)> {
    let folder = root().join("../shared/traces");
    let (mut folders, mut found) = (vec![folder], Vec::new());
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "pcap" || e == "pcapng")
                && let Some((link_type, mut packets)) = of_file(&path)
            {
                packets.truncate(2000);
                found.push((path, link_type, packets));
            }
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}
