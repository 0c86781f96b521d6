//! Handshakes of honest parties.

use super::pair::{CREDENTIALS, OFFERS, Seeded, associated, guest, handshake, messages, node};
use sha2::{Digest, Sha256};
use weir_trust::association::{
    CREDENTIALS_BYTES_MAX, FIRST_BYTES, FOURTH_BYTES_MAX, HandshakeError, HandshakeMessage, Initiator,
    Responder, SECOND_BYTES, THIRD_BYTES_MAX, frame,
};
use weir_trust::transport::StreamEvent;

#[test]
fn both_sides_know_each_other_and_their_messages_arrive() {
    let (here, there) = associated(7);
    assert_eq!(here.peer().key, node().public());
    assert_eq!(here.peer().credentials, OFFERS);
    assert_eq!(there.peer().key, guest().public());
    assert_eq!(there.peer().credentials, CREDENTIALS);
    assert_eq!(here.binding(), there.binding());

    let ((_, mut here), (_, mut there)) = (here.into_stream(), there.into_stream());
    for (from, to, says) in [(0, 1, b"ask".as_slice()), (1, 0, b"answer"), (1, 0, b"more"), (0, 1, b"thanks")]
    {
        let sides = [&mut here, &mut there];
        let mut bytes = Vec::new();
        assert_eq!(sides[from].send(says, &mut bytes), Ok(says.len()));
        assert!(!bytes.windows(says.len()).any(|part| part == says));
        let mut rest = bytes.as_slice();
        assert_eq!(sides[to].feed(&mut rest), Ok(Some(StreamEvent::Data(says.to_vec()))));
        assert!(rest.is_empty());
    }
}

#[test]
fn each_handshake_has_keys_of_its_own() {
    let bindings: std::collections::BTreeSet<[u8; 32]> =
        (0..20).map(|seed| *associated(seed).0.binding()).collect();
    assert_eq!(bindings.len(), 20);
    // Two handshakes have nothing in common in the clear, except the head of the first message and the version in the
    // second.
    let (one, two) = (messages(1), messages(2));
    assert_eq!(one[0][..6], two[0][..6]);
    assert_eq!(one[1][0], two[1][0]);
    let public = node().public();
    for (message, from) in [(0, 6), (1, 1), (2, 0), (3, 0)] {
        let (one, two) = (&one[message][from..], &two[message][from..]);
        let is_padding = message == 0;
        let end = if is_padding { 32 } else { one.len() };
        assert!(
            !one[..end].windows(8).any(|part| two[..end].windows(8).any(|other| part == other)),
            "{message}"
        );
        assert!(!one.windows(32).any(|part| part == public.as_bytes()));
    }
}

#[test]
fn an_expected_node_is_found_and_no_other() {
    let ends = handshake(Some(guest().public()), 3, &mut |_, message| message);
    let unexpected = HandshakeError::Unexpected { expected: guest().public(), found: node().public() };
    assert_eq!(ends.initiator.unwrap_err(), unexpected);
    assert!(ends.responder.is_none(), "the initiator sent nothing more");
}

#[test]
fn credentials_have_a_longest_length() {
    for bytes in [0, 1, 1000, CREDENTIALS_BYTES_MAX] {
        let credentials = vec![0x5a; bytes];
        let (initiator, first) = Initiator::begin(None, &mut Seeded(1)).unwrap();
        let (responder, second) = Responder::begin(&node(), &first, &mut Seeded(2)).unwrap();
        let (confirming, third) =
            initiator.read_second(&second).unwrap().introduce(&guest(), &credentials).unwrap();
        let authenticated = responder.read_third(&third).unwrap();
        assert_eq!(authenticated.peer().credentials, credentials);
        let (_, fourth) = authenticated.accept(&credentials).unwrap();
        assert_eq!(confirming.read_fourth(&fourth).unwrap().peer().credentials, credentials);
        assert_eq!((first.len(), second.len()), (FIRST_BYTES, SECOND_BYTES));
        if bytes == CREDENTIALS_BYTES_MAX {
            assert_eq!((third.len(), fourth.len()), (THIRD_BYTES_MAX, FOURTH_BYTES_MAX));
        }
    }
    let long = vec![0; CREDENTIALS_BYTES_MAX + 1];
    let (initiator, first) = Initiator::begin(None, &mut Seeded(1)).unwrap();
    let (_, second) = Responder::begin(&node(), &first, &mut Seeded(2)).unwrap();
    let too_long = HandshakeError::Credentials(long.len());
    assert_eq!(initiator.read_second(&second).unwrap().introduce(&guest(), &long).unwrap_err(), too_long);
}

#[test]
fn the_answer_to_an_unauthenticated_peer_is_no_longer_than_its_message() {
    let messages = messages(5);
    assert!(messages[1].len() <= messages[0].len());
}

#[test]
fn lengths_are_sent_before_the_messages_and_checked_first() {
    let all = [
        HandshakeMessage::First,
        HandshakeMessage::Second,
        HandshakeMessage::Third,
        HandshakeMessage::Fourth,
    ];
    for (which, message) in all.into_iter().zip(messages(5)) {
        let framed = frame::framed(&message).unwrap();
        let said = *framed.first_chunk().unwrap();
        assert_eq!(frame::length(which, said), Ok(message.len()));
        assert_eq!(framed[frame::LENGTH_BYTES..], message);
        for bytes in [0_u16, 1, 16, u16::MAX] {
            let refused = HandshakeError::Length { message: which, bytes: usize::from(bytes) };
            assert_eq!(frame::length(which, bytes.to_be_bytes()), Err(refused));
        }
    }
    assert_eq!(frame::framed(&vec![0; 1 << 16]), None);
}

/// Checks that docs/WIRE.md describes these bytes: another implementation with the same randomness writes the same.
#[test]
fn the_bytes_of_a_handshake_are_those_of_version_1() {
    let hash = Sha256::digest(messages(42).concat());
    let text: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(text, "f7af63f9f081aca7c50d93d22099c37fbb0236769c8713b257029199dd16be88");
}
