//! Patches by modules that may write some fields only.

use crate::exercise::described;
use etherparse::PacketBuilder;
use proptest::prelude::*;
use weir_abi::{Descriptor, limit};
use weir_units::Timestamp;
use weir_wire::patch::check;
use weir_wire::{LinkType, Meta, PatchError, WriteField, WriteFields};

fn descriptor(packet: &[u8], link_type: LinkType) -> Descriptor {
    let cap_len = u32::try_from(packet.len()).unwrap();
    described(
        packet,
        &Meta { ts: Timestamp(0), cap_len, wire_len: cap_len, link_type, interface: 0, number: 0, data: 0 },
    )
}

fn vlan() -> etherparse::PacketBuilderStep<etherparse::VlanHeader> {
    PacketBuilder::ethernet2([2; 6], [4; 6]).single_vlan(etherparse::VlanId::try_new(5).unwrap())
}

/// Ethernet, a tag, IPv4, TCP with 8 bytes of options, and 10 of payload.
fn tcp() -> Vec<u8> {
    let mut bytes = Vec::new();
    let tcp = vlan().ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).tcp(1000, 80, 1, 500);
    let options = [
        etherparse::TcpOptionElement::MaximumSegmentSize(1460),
        etherparse::TcpOptionElement::WindowScale(2),
    ];
    tcp.options(&options).unwrap().write(&mut bytes, b"0123456789").unwrap();
    bytes
}

fn udp_v6() -> Vec<u8> {
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv6([1; 16], [2; 16], 64)
        .udp(53, 5353)
        .write(&mut bytes, b"payload")
        .unwrap();
    // Behind the end of the IP packet.
    bytes.extend([0; 3]);
    bytes
}

fn icmp(request: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    let ip = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
    if request {
        ip.icmpv4_echo_request(7, 8).write(&mut bytes, b"ping").unwrap();
    } else {
        ip.icmpv4_raw(3, 1, [0; 4]).write(&mut bytes, b"what was sent").unwrap();
    }
    bytes
}

fn arp() -> Vec<u8> {
    let mut bytes = vec![2; 12];
    bytes.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    bytes.extend([3; 20]);
    bytes
}

/// Labels, PPPoE and cooked captures.
fn others() -> Vec<(LinkType, Vec<u8>)> {
    let ip = &udp_v6()[14..];
    let mpls = [&[2; 12][..], &[0x88, 0x47, 0, 1, 0x10, 64, 0, 2, 0x11, 64], ip].concat();
    let pppoe = [&[2; 12][..], &[0x88, 0x64, 0x11, 0, 0, 9, 0, 60, 0, 0x57], ip].concat();
    let sll = [&[0, 0, 0, 1, 0, 6, 2, 2, 2, 2, 2, 2, 0, 0, 0x86, 0xdd][..], ip].concat();
    let sll2 = [&[0x86, 0xdd, 0, 0, 0, 0, 0, 1, 0, 1, 0, 6, 2, 2, 2, 2, 2, 2, 0, 0][..], ip].concat();
    vec![
        (LinkType::Ethernet, mpls),
        (LinkType::Ethernet, pppoe),
        (LinkType::LinuxSll, sll),
        (LinkType::LinuxSll2, sll2),
        (LinkType::Raw, ip.to_vec()),
    ]
}

fn all() -> Vec<(LinkType, Vec<u8>)> {
    let ethernet = [tcp(), udp_v6(), icmp(true), icmp(false), arp()];
    ethernet.into_iter().map(|packet| (LinkType::Ethernet, packet)).chain(others()).collect()
}

/// The fields each of which alone allows a patch.
fn allowing(packet: &[u8], d: &Descriptor, offset: u32, bytes: &[u8]) -> Vec<WriteField> {
    let allows = |field: &WriteField| WriteFields::from(*field).check(packet, d, offset, bytes).is_ok();
    WriteField::ALL.iter().copied().filter(allows).collect()
}

/// Every writable bit belongs to a field, every other bit to none, and only in echoes do some bits belong to two.
fn every_bit_has_its_field(packet: &[u8], link_type: LinkType) {
    let d = descriptor(packet, link_type);
    for (offset, old) in (0u32..).zip(packet) {
        for bit in 0..8 {
            let new = [old ^ 1 << bit];
            let fields = allowing(packet, &d, offset, &new);
            let is_right = match check(packet, &d, offset, &new) {
                Ok(()) => {
                    fields.len() == 1
                        || [
                            &[WriteField::IcmpEcho, WriteField::Icmp][..],
                            &[WriteField::Payload, WriteField::Icmp],
                        ]
                        .contains(&&fields[..])
                }
                Err(_) => fields.is_empty(),
            };
            assert!(is_right, "byte {offset}, bit {bit} of {packet:x?} is of {fields:?}");
        }
    }
}

#[test]
fn every_writable_bit_belongs_to_one_field() {
    for (link_type, packet) in all() {
        every_bit_has_its_field(&packet, link_type);
    }
}

#[test]
fn bytes_behind_the_end_of_an_ip_packet_are_payload_also_inside_a_header() {
    // The offset of the length field, the length of the headers that it counts, and where the header above IP begins.
    for (packet, length_at, counted, upper) in
        [(tcp(), 20, 20, 38), (udp_v6(), 18, 0, 54), (icmp(true), 16, 20, 34), (icmp(false), 16, 20, 34)]
    {
        // An IPv6 length of 0 would state no end.
        for len in 1..packet.len() - upper {
            let mut packet = packet.clone();
            let stated = u16::try_from(counted + len).unwrap().to_be_bytes();
            packet[length_at..length_at + 2].copy_from_slice(&stated);
            every_bit_has_its_field(&packet, LinkType::Ethernet);
            let d = descriptor(&packet, LinkType::Ethernet);
            for at in upper + len..packet.len() {
                let fields = allowing(&packet, &d, u32::try_from(at).unwrap(), &[packet[at] ^ 1]);
                assert!(matches!(fields[..], [] | [WriteField::Payload]), "{at} of {packet:x?}: {fields:?}");
            }
        }
    }
}

#[test]
fn fields_are_at_their_offsets() {
    let field = |packet: &[u8], offset: u32, bit: u8| {
        let new = [packet[offset as usize] ^ 1 << bit];
        let fields = allowing(packet, &descriptor(packet, LinkType::Ethernet), offset, &new);
        fields.iter().map(|field| field.name()).collect::<Vec<_>>().join(" ")
    };
    let found = |packet: &[u8]| {
        let mut found: Vec<(usize, String)> = Vec::new();
        for at in 0..packet.len() {
            let name = field(packet, u32::try_from(at).unwrap(), 0);
            if found.last().is_none_or(|(_, last)| *last != name) {
                found.push((at, name));
            }
        }
        found.into_iter().map(|(at, name)| format!("{at} {name}")).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(
        found(&tcp()),
        "0 macs; 12 ; 14 vlan; 16 ; 19 ecn; 20 ; 22 ip-id; 24 ; 26 ttl; 27 ; 30 addresses; 38 ports; 42 tcp-seq; \
         46 tcp-ack; 50 tcp-flags; 52 tcp-window; 54 ; 56 tcp-urgent; 58 tcp-options; 66 payload"
    );
    assert_eq!(
        found(&udp_v6()),
        "0 macs; 12 ; 14 dscp; 15 flow-label; 18 ; 21 ttl; 22 addresses; 54 ports; 58 ; 62 payload"
    );
    assert_eq!(
        (field(&tcp(), 19, 2), field(&udp_v6(), 15, 4), field(&udp_v6(), 15, 6)),
        ("dscp".into(), "ecn".into(), "dscp".into())
    );
    assert_eq!(
        (field(&icmp(true), 34, 0), field(&icmp(true), 38, 0)),
        ("icmp".into(), "icmp-echo icmp".into())
    );
    assert_eq!((field(&icmp(true), 42, 0), field(&icmp(false), 42, 0)), ("payload".into(), "icmp".into()));
    assert_eq!((field(&arp(), 13, 0), field(&arp(), 14, 0)), (String::new(), "other-protocols".into()));
}

#[test]
fn whole_bytes_of_other_fields_are_denied_even_unchanged_and_shared_bytes_keep_their_other_bits() {
    let packet = tcp();
    let d = descriptor(&packet, LinkType::Ethernet);
    let may = |fields: &str, offset: u32, bytes: &[u8]| {
        let mut patched = packet.clone();
        let fields: WriteFields = fields.parse().unwrap();
        let applied = fields.apply(&mut patched, &d, offset, bytes);
        assert_eq!(applied.is_err(), patched == packet, "what is refused changes nothing, what is not does");
        assert_eq!(applied, fields.check(&packet, &d, offset, bytes));
        applied
    };
    // Type of service: DSCP 46 with the same ECN, and with another one.
    assert_eq!(may("dscp", 19, &[46 << 2]), Ok(()));
    assert_eq!(may("dscp", 19, &[46 << 2 | 1]), Err(PatchError::Withheld { at: 19 }));
    assert_eq!(may("dscp,ecn", 19, &[46 << 2 | 1]), Ok(()));
    // TTL and the protocol behind it, which cannot be written; identification, where only the TTL may be.
    assert_eq!(may("ttl", 26, &[63]), Ok(()));
    assert_eq!(may("all", 26, &[63, 6]), Err(PatchError::Denied { at: 27 }));
    assert_eq!(may("ttl", 22, &packet[22..24]), Err(PatchError::Withheld { at: 22 }));
    assert_eq!(may("none", 26, &[63]), Err(PatchError::Withheld { at: 26 }));
    // A patch of sequence and acknowledgement numbers needs both fields.
    assert_eq!(may("tcp-seq", 42, &[9; 8]), Err(PatchError::Withheld { at: 46 }));
    assert_eq!(may("tcp-seq,tcp-ack", 42, &[9; 8]), Ok(()));
    assert_eq!(may("none", 66, b"x"), Err(PatchError::Withheld { at: 66 }));
    assert_eq!(may("payload", 66, b"x"), Ok(()));
    // An empty patch needs no field.
    let mut patched = packet.clone();
    assert_eq!(WriteFields::NONE.apply(&mut patched, &d, 66, b""), Ok(()));
    assert!(matches!(may("payload", 76, b"x"), Err(PatchError::Range { .. })));
}

#[test]
fn a_patch_that_is_longer_than_modules_make_them_is_not_granted_in_part() {
    let mut packet = udp_v6();
    packet.extend([0; 400]);
    let d = descriptor(&packet, LinkType::Ethernet);
    let most = limit::PATCH_BYTES as usize;
    let long = vec![1; most + 1];
    let payload = WriteFields::from(WriteField::Payload);
    assert_eq!(payload.check(&packet, &d, 62, &long[..most]), Ok(()));
    assert_eq!(payload.check(&packet, &d, 62, &long), Err(PatchError::Withheld { at: 62 + most }));
    assert_eq!(check(&packet, &d, 62, &long), Ok(()));
}

proptest! {
    /// For arbitrary bytes.
    #[test]
    fn every_writable_bit_of_any_bytes_belongs_to_one_field(
        link_type in prop::sample::select(&LinkType::ALL[..]),
        which in 0..10usize,
        changes in prop::collection::vec((0..120usize, any::<u8>()), 0..6),
        cut in 0..120usize,
    ) {
        let (own, mut packet) = all().swap_remove(which);
        for (at, byte) in changes {
            if let Some(place) = packet.get_mut(at) {
                *place = byte;
            }
        }
        packet.truncate(packet.len().saturating_sub(cut / 3));
        every_bit_has_its_field(&packet, if cut % 3 == 0 { link_type } else { own });
    }
}
