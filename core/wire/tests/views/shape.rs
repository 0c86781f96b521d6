//! The output of a view is a packet: parsed as before, with right checksums, and everything that is not hidden
//! unchanged.

use super::packets::{self, Over, PAYLOAD, V4, V6};
use super::{HIDING, described, key, shown, transform};
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use proptest::prelude::*;
use weir_abi::{Descriptor, flag};
use weir_wire::view::{Addresses, Exposure, Payload, Transform, ZeroedField, ZeroedFields};
use weir_wire::{LinkType, PacketView, verify};

#[test]
fn the_visible_part_is_parsed_as_before() {
    for view in HIDING.into_iter().filter(|view| view.contains("payload=all")) {
        let mut transform = transform(view);
        for case in packets::plain().into_iter().chain(packets::control()).chain(packets::tunnels()) {
            let before = described(&case.bytes, case.bytes.len(), case.link_type);
            let (_, after) = shown(&mut transform, &case.bytes, case.bytes.len(), case.link_type);
            let structure = |d: &Descriptor| {
                (
                    d.l3_offset,
                    d.l4_offset,
                    d.payload_offset,
                    d.ether_type,
                    d.ip_proto,
                    d.vlan_count,
                    d.mpls_count,
                    d.flags & !flag::CUT,
                )
            };
            assert_eq!(structure(&after), structure(&before), "{}, {view}", case.name);
            assert_eq!((after.ts_ns, after.interface, after.number, after.data), (7, 3, 5, 64));
        }
    }
}

#[test]
fn checksums_are_right_outside_and_inside() {
    for view in HIDING {
        let mut transform = transform(view);
        for case in packets::cases() {
            let (out, after) = shown(&mut transform, &case.bytes, case.bytes.len(), case.link_type);
            assert_eq!(verify(&out, &after), Ok(()), "{}, {view}: {out:02x?}", case.name);
            for &(inner, link_type) in case.inner.iter().filter(|(inner, _)| *inner < out.len()) {
                let inner = &out[inner..];
                let wire_len = case.bytes.len() - (out.len() - inner.len());
                assert_eq!(
                    verify(inner, &described(inner, wire_len, link_type)),
                    Ok(()),
                    "in {}, {view}",
                    case.name
                );
            }
        }
    }
}

#[test]
fn the_test_packets_have_right_checksums() {
    for case in packets::plain().into_iter().chain(packets::tunnels()) {
        let before = described(&case.bytes, case.bytes.len(), case.link_type);
        assert_eq!(verify(&case.bytes, &before), Ok(()), "{}", case.name);
    }
}

#[test]
fn a_packet_with_all_payload_keeps_nonzero_right_checksums() {
    let mut transform = transform("addresses=anonymised,payload=all");
    for case in packets::plain() {
        let (out, after) = shown(&mut transform, &case.bytes, case.bytes.len(), case.link_type);
        let end = usize::from(after.payload_offset) + after.payload_len as usize;
        assert_eq!(out.len(), end, "{}: all of it, and no padding", case.name);
        assert_eq!(out[usize::from(after.payload_offset)..], *PAYLOAD, "{}", case.name);
        let field = usize::from(after.l4_offset) + if after.flags & flag::TCP != 0 { 16 } else { 6 };
        assert_ne!(out[field..field + 2], [0, 0], "{}", case.name);
    }
}

/// An address has the same pseudonym in all places, and the two endpoints of a packet have different ones.
#[test]
fn an_address_has_the_same_pseudonym_everywhere() {
    let mut transform = transform("addresses=anonymised,payload=all");
    let mut show = |bytes: &[u8]| shown(&mut transform, bytes, bytes.len(), LinkType::Ethernet).0;
    let plain = show(&packets::framed(&packets::ipv4(6, &packets::tcp(Over::V4))));
    let (src, dst) = (plain[26..30].to_vec(), plain[30..34].to_vec());
    assert_ne!(src, dst);
    let plain = show(&packets::framed(&packets::ipv6(17, &packets::udp(packets::TO_V6))));
    let (src6, dst6) = (plain[22..38].to_vec(), plain[38..54].to_vec());
    let cases = |name: &str| packets::cases().into_iter().find(|case| case.name == name).unwrap().bytes;
    let arp = show(&cases("ARP"));
    assert_eq!((&arp[28..32], &arp[38..42]), (&src[..], &dst[..]));
    let quoting = show(&cases("unreachable"));
    assert_eq!(quoting[42 + 12..42 + 20], [src.clone(), dst.clone()].concat());
    let redirect = show(&cases("redirect"));
    assert_eq!(redirect[38..42], dst);
    let solicitation = show(&cases("neighbour solicitation"));
    assert_eq!(solicitation[62..78], dst6);
    let vxlan = show(&cases("VXLAN"));
    assert_eq!(vxlan[50 + 26..50 + 34], [src.clone(), dst].concat());
    let tunnel = show(&cases("IPv6 in IPv4"));
    assert_eq!(tunnel[34 + 8..34 + 40], [src6.clone(), dst6].concat());
    // A prefix becomes that of the addresses' pseudonyms.
    let advertisement = show(&cases("router advertisement"));
    let prefix = advertisement.windows(2).position(|option| option == [3, 4]).unwrap() + 16;
    assert_eq!(advertisement[prefix..prefix + 16], [&src6[..8], &[0; 8]].concat());
    let report = show(&cases("IGMPv3 report"));
    assert_eq!(report[50..54], src, "the first source of the first record");
}

/// Addresses that do not identify a host stay unchanged. Otherwise a holder would learn their pseudonyms, and those
/// of their neighbours.
#[test]
fn broadcasts_and_probes_stay_unchanged() {
    let mut transform = transform("addresses=anonymised");
    let mut packet = packets::framed(&packets::ipv4(17, &packets::udp(Over::V4)));
    packet[26..34].copy_from_slice(&[0, 0, 0, 0, 255, 255, 255, 255]);
    let (out, after) = shown(&mut transform, &packet, packet.len(), LinkType::Ethernet);
    assert_eq!(out[26..34], packet[26..34]);
    assert_eq!(verify(&out, &after), Ok(()));
}

#[test]
fn flow_hashes_follow_the_visible_part_and_differ_between_views() {
    let packet = packets::framed(&packets::ipv4(17, &packets::udp(Over::V4)));
    let mut turned = packet.clone();
    turned[26..34].copy_from_slice(&[V4[1], V4[0]].concat());
    turned[34..38].copy_from_slice(&[packet[36], packet[37], packet[34], packet[35]]);
    let hash = |view: &str, label: &[u8], packet: &[u8]| {
        let key = weir_wire::view::ViewKey::derive(&[1; 32], label);
        shown(&mut Transform::new(view.parse().unwrap(), &key), packet, packet.len(), LinkType::Ethernet)
            .1
            .flow_hash
    };
    for view in HIDING {
        assert_eq!(hash(view, b"a", &packet), hash(view, b"a", &turned), "both directions: {view}");
        assert_ne!(hash(view, b"a", &packet), hash(view, b"b", &packet), "{view}");
    }
    // If addresses and ports are zeroed, they do not change the hash.
    let mut other = packet.clone();
    other[28] ^= 1;
    other[35] ^= 1;
    let zeroed = "addresses=zeroed,ports=zeroed";
    assert_eq!(hash(zeroed, b"a", &packet), hash(zeroed, b"a", &other));
}

fn views() -> impl Strategy<Value = PacketView> {
    let addresses = prop::sample::select(vec![
        Addresses::Zeroed,
        Addresses::Anonymised,
        Addresses::CryptoPan,
        Addresses::Visible,
    ]);
    let exposure = || prop::sample::select(vec![Exposure::Zeroed, Exposure::Visible]);
    let payload = prop_oneof![Just(Payload::All), (0..40u32).prop_map(Payload::First)];
    let fields = prop::collection::vec(prop::sample::select(ZeroedField::ALL), 0..5);
    (payload, addresses, exposure(), exposure(), fields).prop_map(
        |(payload, addresses, macs, ports, fields)| {
            let zeroed: ZeroedFields = fields.into_iter().collect();
            PacketView { payload, addresses, macs, ports, zeroed }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// Packets written by etherparse, under any view, compared field by field as etherparse reads them.
    #[test]
    fn everything_that_is_not_hidden_stays_unchanged(
        view in views(), is_v6: bool, is_tcp: bool, tag in prop::option::of(1..4000u16), payload in prop::collection::vec(any::<u8>(), 0..60),
        ports: (u16, u16), ttl in 1u8..,
    ) {
        // Behind ports of tunnels there is no payload; those have tests of their own.
        let port = |port: u16| if weir_wire::is_tunnel_port(port) { 9 } else { port };
        let ports = (port(ports.0), port(ports.1));
        let link = PacketBuilder::ethernet2([2, 1, 1, 1, 1, 1], [2, 2, 2, 2, 2, 2]);
        let (src6, dst6) = (V6[0], V6[1]);
        let mut bytes = Vec::new();
        macro_rules! finish { ($ip:expr) => {
            if is_tcp {
                $ip.tcp(ports.0, ports.1, 77, 512).ack(99).options_raw(&[8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1]).unwrap().write(&mut bytes, &payload).unwrap()
            } else {
                $ip.udp(ports.0, ports.1).write(&mut bytes, &payload).unwrap()
            }
        } }
        match (tag, is_v6) {
            (None, false) => finish!(link.ipv4(V4[0], V4[1], ttl)),
            (None, true) => finish!(link.ipv6(src6, dst6, ttl)),
            (Some(tag), false) => finish!(link.single_vlan(tag.try_into().unwrap()).ipv4(V4[0], V4[1], ttl)),
            (Some(tag), true) => finish!(link.single_vlan(tag.try_into().unwrap()).ipv6(src6, dst6, ttl)),
        }
        let mut transform = Transform::new(view, &key());
        let (out, after) = shown(&mut transform, &bytes, bytes.len(), LinkType::Ethernet);
        prop_assert_eq!(verify(&out, &after), Ok(()));
        let granted = match view.payload { Payload::All => payload.len(), Payload::First(n) => payload.len().min(n as usize) };
        prop_assert_eq!(out.len(), bytes.len() - payload.len() + granted);
        prop_assert_eq!(&out[out.len() - granted..], &payload[..granted]);
        // etherparse requires complete packets.
        let mut whole = out.clone();
        whole.resize(bytes.len(), 0);
        let (seen, original) = (SlicedPacket::from_ethernet(&whole).unwrap(), SlicedPacket::from_ethernet(&bytes).unwrap());
        let hidden = |field: ZeroedField| view.zeroed.has(field);
        let zero_if = |hidden: bool, value: u32| if hidden { 0 } else { value };
        let mac_hidden = view.macs == Exposure::Zeroed;
        prop_assert_eq!(&whole[..12], if mac_hidden { &[0; 12][..] } else { &bytes[..12] });
        if let Some(tag) = tag {
            prop_assert_eq!(u32::from(after.vlan_tci), zero_if(hidden(ZeroedField::Vlan), tag.into()));
        }
        let addresses = |slice: &NetSlice<'_>| match slice {
            NetSlice::Ipv4(ip) => (ip.header().source().to_vec(), ip.header().destination().to_vec(), ip.header().ttl(), u32::from(ip.header().identification())),
            NetSlice::Ipv6(ip) => (ip.header().source().to_vec(), ip.header().destination().to_vec(), ip.header().hop_limit(), ip.header().flow_label().value()),
            NetSlice::Arp(_) => panic!("no ARP was written"),
        };
        let (now, before) = (addresses(seen.net.as_ref().unwrap()), addresses(original.net.as_ref().unwrap()));
        match view.addresses {
            Addresses::Visible => prop_assert_eq!((&now.0, &now.1), (&before.0, &before.1)),
            Addresses::Zeroed => prop_assert!(now.0.iter().chain(&now.1).all(|byte| *byte == 0)),
            Addresses::Anonymised | Addresses::CryptoPan => {
                prop_assert!(now.0 != before.0 && now.1 != before.1);
                let common = |a: &[u8], b: &[u8]| a.iter().zip(b).position(|(a, b)| a != b).map(|i| i * 8 + (a[i] ^ b[i]).leading_zeros() as usize);
                prop_assert_eq!(common(&now.0, &now.1), common(&before.0, &before.1));
            }
        }
        prop_assert_eq!(u32::from(now.2), zero_if(hidden(ZeroedField::Ttl), ttl.into()));
        prop_assert_eq!(now.3, zero_if(hidden(if is_v6 { ZeroedField::FlowLabel } else { ZeroedField::IpId }), before.3));
        let ports_hidden = view.ports == Exposure::Zeroed;
        match (seen.transport.unwrap(), original.transport.unwrap()) {
            (TransportSlice::Tcp(now), TransportSlice::Tcp(before)) => {
                prop_assert_eq!((now.source_port(), now.destination_port()), if ports_hidden { (0, 0) } else { ports });
                prop_assert_eq!(now.sequence_number(), zero_if(hidden(ZeroedField::TcpSequence), 77));
                prop_assert_eq!(now.acknowledgment_number(), zero_if(hidden(ZeroedField::TcpAcknowledgement), 99));
                prop_assert_eq!(u32::from(now.window_size()), zero_if(hidden(ZeroedField::TcpWindow), 512));
                prop_assert_eq!(now.slice()[13], before.slice()[13]);
                let options: &[u8] = if hidden(ZeroedField::TcpOptions) { &[0; 12] } else if hidden(ZeroedField::TcpTimestamps) { &[8, 10, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1] } else { before.options() };
                prop_assert_eq!(now.options(), options);
                if granted < payload.len() { prop_assert_eq!(now.checksum(), 0); }
            }
            (TransportSlice::Udp(now), TransportSlice::Udp(before)) => {
                prop_assert_eq!((now.source_port(), now.destination_port()), if ports_hidden { (0, 0) } else { ports });
                prop_assert_eq!(now.length(), before.length());
                if granted < payload.len() { prop_assert_eq!(now.checksum(), 0); }
            }
            _ => prop_assert!(false, "another protocol"),
        }
    }

    /// Compared with a view that shows more, a view that shows less gives the same bytes or zeros.
    #[test]
    fn a_view_that_shows_less_reveals_no_other_bytes(a in views(), b in views(), which: prop::sample::Index) {
        let cases = packets::plain();
        let case = which.get(&cases);
        let of = |view: PacketView| shown(&mut Transform::new(view, &key()), &case.bytes, case.bytes.len(), case.link_type).0;
        let (less, more) = (of(a.meet(&b)), of(a));
        prop_assert!(less.len() <= more.len(), "{}", case.name);
    }
}

#[test]
fn a_missing_udp_checksum_stays_missing() {
    let mut packet = packets::framed(&packets::ipv4(17, &packets::udp(Over::V4)));
    packet[40..42].fill(0);
    for view in HIDING {
        let (out, _) = shown(&mut transform(view), &packet, packet.len(), LinkType::Ethernet);
        assert_eq!(out[40..42], [0, 0], "{view}");
    }
}

/// The error of a wrong checksum could reveal information.
#[test]
fn a_wrong_checksum_becomes_right() {
    let mut packet = packets::framed(&packets::ipv4(6, &packets::tcp(Over::V4)));
    packet[24] ^= 0x40;
    packet[50] ^= 0x40;
    let (out, after) =
        shown(&mut transform("addresses=anonymised,payload=all"), &packet, packet.len(), LinkType::Ethernet);
    assert_eq!(verify(&out, &after), Ok(()));
}
