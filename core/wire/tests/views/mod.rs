//! Views: the bytes that they show, and those that they do not.

mod captures;
mod interference;
mod leaks;
mod nested;
mod packets;
mod parts;
mod pseudonyms;
mod pseudowires;
mod shape;
mod tunnels;

use weir_abi::Descriptor;
use weir_units::Timestamp;
use weir_wire::view::{Transform, ViewKey};
use weir_wire::{LinkType, Meta, PacketView, classify};

/// The descriptor of a packet whose captured bytes are given.
fn described(packet: &[u8], wire_len: usize, link_type: LinkType) -> Descriptor {
    let meta = Meta {
        ts: Timestamp(7),
        cap_len: u32::try_from(packet.len()).unwrap(),
        wire_len: u32::try_from(wire_len).unwrap(),
        link_type,
        interface: 3,
        number: 5,
        data: 64,
    };
    classify(packet, &meta).unwrap()
}

fn key() -> ViewKey {
    ViewKey::derive(&[0x51; 32], b"views")
}

fn transform(view: &str) -> Transform {
    Transform::new(view.parse().unwrap(), &key())
}

/// The visible part of a packet and its descriptor. The buffer is longer than the packet, and the bytes behind it
/// stay unchanged.
fn shown(
    transform: &mut Transform,
    packet: &[u8],
    wire_len: usize,
    link_type: LinkType,
) -> (Vec<u8>, Descriptor) {
    let descriptor = described(packet, wire_len, link_type);
    let mut out = vec![0xd7; packet.len() + 40];
    let shown = transform.apply(packet, &descriptor, &mut out);
    assert!(shown.len <= packet.len());
    assert!(out[packet.len()..].iter().all(|byte| *byte == 0xd7), "behind the packet");
    assert_eq!(shown.wire_len, descriptor.wire_len);
    out.truncate(shown.len);
    let described = transform.describe(&out, &descriptor);
    assert_eq!((described.cap_len as usize, described.wire_len), (out.len(), descriptor.wire_len));
    (out, described)
}

/// Views that hide addresses, in several combinations.
const HIDING: [&str; 7] = [
    "addresses=anonymised",
    "addresses=zeroed",
    "addresses=anonymised,payload=all",
    "addresses=crypto-pan,payload=all",
    "addresses=zeroed,payload=all,ports=zeroed,ip-options=zeroed,tcp-options=zeroed",
    "addresses=anonymised,payload=all,macs=visible",
    "addresses=anonymised,payload=9,ip-id=zeroed,ttl=zeroed,dscp=zeroed,vlan=zeroed,mpls=zeroed,icmp-echo=zeroed",
];

#[test]
fn the_view_all_shows_everything() {
    let mut all = Transform::new(PacketView::ALL, &key());
    for case in packets::cases() {
        let (out, described) = shown(&mut all, &case.bytes, case.bytes.len(), case.link_type);
        assert_eq!(out, case.bytes, "{}", case.name);
        let plain = self::described(&case.bytes, case.bytes.len(), case.link_type);
        let unhashed = |descriptor| Descriptor { flow_hash: 0, inner_flow_hash: 0, ..descriptor };
        assert_eq!(unhashed(described), unhashed(plain));
        assert_ne!(described.flow_hash, plain.flow_hash, "an unkeyed hash could be linked with other views");
    }
}
