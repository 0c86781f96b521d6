//! No hidden bytes are in the output: not elsewhere, not in part, and not in a checksum.

use super::packets::{self, Case, MAC, PAYLOAD, V4, V6};
use super::{HIDING, key, shown, transform};
use crate::exercise;
use proptest::prelude::*;
use weir_wire::PacketView;
use weir_wire::view::{Exposure, Payload, Transform};

/// Returns true if four consecutive bytes of `secret` are in `bytes`.
fn tells(bytes: &[u8], secret: &[u8]) -> bool {
    secret.windows(4).any(|part| bytes.windows(4).any(|window| window == part))
}

/// Checks one packet, captured completely or not, under one view that hides addresses.
fn check(transform: &mut Transform, case: &Case, captured: usize, wire_len: usize) {
    let view = *transform.view();
    let packet = &case.bytes[..captured];
    let (out, _) = shown(transform, packet, wire_len, case.link_type);
    let what =
        || format!("{}, {captured} of {wire_len} bytes, {view}: {out:02x?} of {packet:02x?}", case.name);
    for address in V4 {
        assert!(!tells(&out, &address), "an IPv4 address: {}", what());
    }
    for address in V6 {
        // The interface identifier of the first address contains a MAC address, which may be shown where it is one.
        let secret = if view.macs == Exposure::Visible { &address[..11] } else { &address };
        assert!(!tells(&out, secret), "an IPv6 address: {}", what());
    }
    if view.macs == Exposure::Zeroed {
        for address in MAC {
            assert!(!tells(&out, &address), "a MAC address: {}", what());
        }
    }
    if view.payload == Payload::NONE {
        assert!(!tells(&out, PAYLOAD), "payload: {}", what());
    }
    // The first link address is not the group's.
    let group = [0xff, 0x33, 0x44, 0x55];
    assert!(!out.windows(4).any(|window| window == group), "the end of an address: {}", what());
    // The checksum of an IPv4 echo covers no address, so it stays if the payload stays.
    let stays = |sum: usize| case.name == "echo" && sum == 36 && view.payload == Payload::All;
    for &sum in case.sums.iter().filter(|sum| **sum + 2 <= out.len() && !stays(**sum)) {
        assert_ne!(out[sum..sum + 2], packet[sum..sum + 2], "a checksum at {sum}: {}", what());
    }
}

#[test]
fn no_address_no_payload_and_no_checksum_is_left_at_any_place_for_any_captured_length() {
    for view in HIDING {
        let mut transform = transform(view);
        for case in packets::cases() {
            for captured in 0..=case.bytes.len() {
                check(&mut transform, &case, captured, case.bytes.len());
                check(&mut transform, &case, captured, captured);
            }
        }
    }
}

#[test]
fn the_packets_contain_the_bytes_that_are_looked_for() {
    for case in packets::cases() {
        let has = |secret: &[u8]| tells(&case.bytes, secret);
        assert!(
            V4.iter().any(|address| has(address)) || V6.iter().any(|address| has(address)),
            "{}",
            case.name
        );
    }
    let all: Vec<u8> = packets::cases().into_iter().flat_map(|case| case.bytes).collect();
    assert!(tells(&all, PAYLOAD) && MAC.iter().all(|mac| tells(&all, mac)));
}

#[test]
fn hardware_addresses_alone_are_hidden_wherever_they_stand() {
    let mut transform = transform("macs=zeroed");
    for case in packets::cases() {
        let (out, _) = shown(&mut transform, &case.bytes, case.bytes.len(), case.link_type);
        for (mac, other) in [(MAC[1], MAC[0]), (MAC[0], MAC[1])] {
            // The first address stays as part of a visible IPv6 address.
            let inside = V6.iter().any(|address| tells(address, &mac[2..]));
            assert!(inside || !tells(&out, &mac), "{}: {other:02x?}", case.name);
            assert!(!out.windows(6).any(|window| window == mac), "{}", case.name);
        }
    }
}

#[test]
fn without_payload_no_byte_of_it_is_shown_and_no_checksum_over_it() {
    for view in ["payload=none", "payload=none,ttl=zeroed", "payload=none,macs=zeroed,ports=zeroed"] {
        let mut transform = transform(view);
        for case in packets::cases() {
            let (out, _) = shown(&mut transform, &case.bytes, case.bytes.len(), case.link_type);
            for byte in 0..PAYLOAD.len() - 2 {
                let part = &PAYLOAD[byte..byte + 3];
                assert!(!out.windows(3).any(|window| window == part), "{}: {out:02x?}", case.name);
            }
            // The last checksum covers the payload, if there is any above an understood header.
            if let Some(&sum) =
                case.sums.get(1).filter(|_| case.inner.is_empty() && case.bytes.ends_with(PAYLOAD))
            {
                assert_eq!(out[sum..sum + 2], [0, 0], "{}", case.name);
            }
        }
    }
}

#[test]
fn as_much_payload_is_shown_as_was_granted() {
    for case in packets::plain() {
        let Some(begin) = case.bytes.windows(PAYLOAD.len()).position(|part| part == PAYLOAD) else {
            continue;
        };
        for granted in 0..PAYLOAD.len() + 3 {
            let mut transform = Transform::new(
                PacketView { payload: Payload::First(u32::try_from(granted).unwrap()), ..PacketView::ALL },
                &key(),
            );
            let (out, _) = shown(&mut transform, &case.bytes, case.bytes.len(), case.link_type);
            let end = begin + granted.min(PAYLOAD.len());
            assert_eq!(out.len(), end, "{}, {granted}", case.name);
            assert_eq!(out[begin..], PAYLOAD[..end - begin], "{}, {granted}", case.name);
        }
    }
}

#[test]
fn a_shorter_output_buffer_gets_fewer_bytes() {
    let mut transform = transform("addresses=anonymised,payload=all");
    for case in packets::cases() {
        let descriptor = super::described(&case.bytes, case.bytes.len(), case.link_type);
        for room in 0..case.bytes.len() {
            let mut out = vec![0; room];
            assert!(transform.apply(&case.bytes, &descriptor, &mut out).len <= room, "{}", case.name);
            assert!(
                !V4.iter()
                    .chain(V6.map(|v6| [v6[0], v6[1], v6[2], v6[3]]).iter())
                    .any(|secret| tells(&out, secret))
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// With arbitrary bytes nothing panics, and a planted address is found nowhere.
    #[test]
    fn views_of_arbitrary_bytes_reveal_nothing(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        exercise::view(&bytes);
    }

    /// Well-formed packets with some bytes changed.
    #[test]
    fn views_of_packets_with_changed_bytes_reveal_nothing(
        which: prop::sample::Index, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        control in prop::array::uniform16(any::<u8>()),
    ) {
        let cases = packets::cases();
        let case = which.get(&cases);
        let mut packet = case.bytes.clone();
        for (place, byte) in &changes {
            *place.get_mut(&mut packet) = *byte;
        }
        exercise::view(&[&control[..], &packet].concat());
    }
}
