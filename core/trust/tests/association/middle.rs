//! An attacker on the path, with or without an identity, who relays, withholds, replays or reflects messages.

use super::pair::{CREDENTIALS, OFFERS, Seeded, associated, guest, handshake, mallory, messages, node};
use weir_trust::association::{HandshakeError, HandshakeMessage, Initiator, Responder, VERSION};
use weir_trust::transport::TransportError;

#[test]
fn a_relay_with_its_own_keys_is_seen_as_itself() {
    // The relay answers the guest under its own identity, and connects to the node under its own identity.
    let (initiator, first) = Initiator::begin(Some(node().public()), &mut Seeded(1)).unwrap();
    let (_, second) = Responder::begin(&mallory(), &first, &mut Seeded(2)).unwrap();
    let unexpected = HandshakeError::Unexpected { expected: node().public(), found: mallory().public() };
    assert_eq!(
        initiator.read_second(&second).unwrap_err(),
        unexpected,
        "an initiator that expects the node tells the relay nothing"
    );

    // An initiator that expects no certain node finds the relay, not the node; its credentials name another key than
    // the relay's.
    let (initiator, first) = Initiator::begin(None, &mut Seeded(1)).unwrap();
    let (as_node, second) = Responder::begin(&mallory(), &first, &mut Seeded(2)).unwrap();
    let met = initiator.read_second(&second).unwrap();
    assert_eq!(met.node(), mallory().public());
    let (_, third) = met.introduce(&guest(), CREDENTIALS).unwrap();
    let stolen = as_node.read_third(&third).unwrap().peer().credentials.clone();
    let (as_guest, first) = Initiator::begin(Some(node().public()), &mut Seeded(3)).unwrap();
    let (responder, second) = Responder::begin(&node(), &first, &mut Seeded(4)).unwrap();
    let (_, third) = as_guest.read_second(&second).unwrap().introduce(&mallory(), &stolen).unwrap();
    let peer = responder.read_third(&third).unwrap().peer().clone();
    assert_eq!((peer.key, peer.credentials.as_slice()), (mallory().public(), CREDENTIALS));
}

#[test]
fn a_message_of_another_handshake_is_refused() {
    let recorded = messages(1);
    for message in 0..4 {
        let ends = handshake(None, 2, &mut |number, bytes| {
            if number == message { recorded[number].clone() } else { bytes }
        });
        assert!(ends.initiator.is_err(), "message {message}");
        assert_eq!(ends.responder.is_some_and(|end| end.is_ok()), message == 3, "message {message}");
    }
}

#[test]
fn a_recorded_handshake_cannot_be_replayed_to_either_side() {
    let recorded = messages(1);
    // To a fresh responder: it answers with new keys, and the recorded third message belongs to others.
    let (responder, second) = Responder::begin(&node(), &recorded[0], &mut Seeded(77)).unwrap();
    assert_ne!(second, recorded[1]);
    assert_eq!(
        responder.read_third(&recorded[2]).unwrap_err(),
        HandshakeError::Damaged(HandshakeMessage::Third)
    );
    // To a fresh initiator.
    let (initiator, _) = Initiator::begin(None, &mut Seeded(78)).unwrap();
    assert_eq!(
        initiator.read_second(&recorded[1]).unwrap_err(),
        HandshakeError::Damaged(HandshakeMessage::Second)
    );
    let (initiator, first) = Initiator::begin(None, &mut Seeded(78)).unwrap();
    let (_, second) = Responder::begin(&node(), &first, &mut Seeded(79)).unwrap();
    let (confirming, _) = initiator.read_second(&second).unwrap().introduce(&guest(), CREDENTIALS).unwrap();
    assert_eq!(
        confirming.read_fourth(&recorded[3]).unwrap_err(),
        HandshakeError::Damaged(HandshakeMessage::Fourth)
    );
}

#[test]
fn messages_in_each_others_places_are_refused() {
    let all = messages(1);
    for (place, other) in (0..4).flat_map(|place| (0..4).map(move |other| (place, other))) {
        if place == other {
            continue;
        }
        let ends =
            handshake(None, 1, &mut |number, bytes| if number == place { all[other].clone() } else { bytes });
        assert!(ends.initiator.is_err(), "{other} in place of {place}");
        assert_eq!(ends.responder.is_some_and(|end| end.is_ok()), place == 3, "{other} in place of {place}");
    }
}

#[test]
fn reflected_messages_are_refused() {
    // The initiator's first message as its answer.
    let (initiator, first) = Initiator::begin(None, &mut Seeded(1)).unwrap();
    assert!(matches!(initiator.read_second(&first), Err(HandshakeError::NotOffered(_))));
    let (initiator, first) = Initiator::begin(None, &mut Seeded(1)).unwrap();
    let mut turned = first.clone();
    turned[0] = VERSION;
    assert_eq!(
        initiator.read_second(&turned).unwrap_err(),
        HandshakeError::Damaged(HandshakeMessage::Second)
    );
    // The responder's answer as a first message, and as a third.
    let (_, second) = Responder::begin(&node(), &first, &mut Seeded(2)).unwrap();
    assert_eq!(Responder::begin(&node(), &second, &mut Seeded(3)).unwrap_err(), HandshakeError::NotWeir);
    let (responder, second) = Responder::begin(&node(), &first, &mut Seeded(2)).unwrap();
    assert!(responder.read_third(&second).is_err());
    // The initiator's third message as the fourth.
    let (initiator, first) = Initiator::begin(None, &mut Seeded(1)).unwrap();
    let (_, second) = Responder::begin(&node(), &first, &mut Seeded(2)).unwrap();
    let (confirming, third) =
        initiator.read_second(&second).unwrap().introduce(&guest(), CREDENTIALS).unwrap();
    assert_eq!(
        confirming.read_fourth(&third).unwrap_err(),
        HandshakeError::Damaged(HandshakeMessage::Fourth)
    );
    // After the handshake, a side's messages are reflected to it.
    let (here, there) = associated(4);
    for mut side in [here.into_stream().1, there.into_stream().1] {
        let mut sent = Vec::new();
        side.send(b"open the door", &mut sent).unwrap();
        assert_eq!(side.feed(&mut sent.as_slice()), Err(TransportError::Damaged));
    }
}

#[test]
fn two_responders_or_two_initiators_make_no_association() {
    // Two responders, or two initiators, are connected with each other: neither has anything to answer.
    let (one, first) = Initiator::begin(None, &mut Seeded(1)).unwrap();
    let (two, other) = Initiator::begin(None, &mut Seeded(2)).unwrap();
    assert!(one.read_second(&other).is_err() && two.read_second(&first).is_err());
    let (one, second) = Responder::begin(&node(), &first, &mut Seeded(3)).unwrap();
    let (two, other) = Responder::begin(&guest(), &first, &mut Seeded(4)).unwrap();
    assert!(one.read_third(&other).is_err() && two.read_third(&second).is_err());
}

#[test]
fn a_third_message_that_comes_twice_ends_the_association() {
    let all = messages(6);
    let (_, responder) = associated(6);
    let (_, mut stream) = responder.into_stream();
    let framed = weir_trust::association::frame::framed(&all[2]).unwrap();
    assert_eq!(stream.feed(&mut framed.as_slice()), Err(TransportError::Damaged));
    assert_eq!(stream.feed(&mut [].as_slice()), Err(TransportError::Over));
}

#[test]
fn versions_cannot_be_changed_on_the_path() {
    let (lowest, highest) = (4, 5);
    // The offered range is widened: the responder still chooses this version, and the initiator finds that something
    // else was offered.
    for (byte, value) in [(lowest, 0), (highest, VERSION + 1), (highest, u8::MAX)] {
        let ends = handshake(None, 1, &mut |number, mut bytes| {
            if number == 0 {
                bytes[byte] = value;
            }
            bytes
        });
        assert_eq!(ends.initiator.unwrap_err(), HandshakeError::Damaged(HandshakeMessage::Second));
        assert!(ends.responder.is_none());
    }
    // The offered range no longer has this version: the responder does not answer.
    for (low, high) in [(0, 0), (VERSION + 1, VERSION + 1), (VERSION + 1, VERSION), (u8::MAX, u8::MAX)] {
        let ends = handshake(None, 1, &mut |number, mut bytes| {
            if number == 0 {
                (bytes[lowest], bytes[highest]) = (low, high);
            }
            bytes
        });
        let refused = HandshakeError::NoCommonVersion { lowest: low, highest: high };
        assert_eq!(ends.responder.unwrap().unwrap_err(), refused);
        assert!(ends.initiator.is_err());
    }
    // The chosen version is changed.
    for version in (0..=u8::MAX).filter(|version| *version != VERSION) {
        let ends = handshake(None, 1, &mut |number, mut bytes| {
            if number == 1 {
                bytes[0] = version;
            }
            bytes
        });
        assert_eq!(ends.initiator.unwrap_err(), HandshakeError::NotOffered(version));
    }
    // A later version may have a longer first message; its head identifies it, whatever follows.
    let future = [b"weir\x02\x07".as_slice(), &[7; 900]].concat();
    let refused = Responder::begin(&node(), &future, &mut Seeded(1)).unwrap_err();
    assert_eq!(refused, HandshakeError::NoCommonVersion { lowest: 2, highest: 7 });
}

#[test]
fn a_peer_without_weirs_protocol_is_recognised_by_its_first_bytes() {
    for bytes in [
        b"GET / HTTP/1.1\r\n\r\n".as_slice(),
        b"SSH-2.0-OpenSSH_9\r\n",
        b"WEIR\x01\x01",
        &[0x16, 3, 1, 2, 0, 1, 0],
    ] {
        assert_eq!(Responder::begin(&node(), bytes, &mut Seeded(1)).unwrap_err(), HandshakeError::NotWeir);
    }
}

#[test]
fn an_eavesdropper_reads_nothing_that_was_shown() {
    let all = messages(1).concat();
    for hidden in [OFFERS, CREDENTIALS, node().public().as_bytes(), guest().public().as_bytes()] {
        assert!(!all.windows(hidden.len()).any(|part| part == hidden));
    }
}
