//! Parties that follow the protocol, but make false statements in it.

use super::pair::{CREDENTIALS, OFFERS, Seeded, guest, mallory, messages, node};
use super::raw::{INITIATOR, RESPONDER, Raw, proof, seal, statement};
use weir_trust::association::{Association, HandshakeError, HandshakeMessage, Initiator, Responder, VERSION};
use weir_trust::key::Identity;
use weir_trust::transport::{StreamEvent, TransportError};

/// Points of small order, with their second encodings (RFC 7748, section 6.1; curve25519 and its twist).
const WEAK: [[u8; 32]; 7] = {
    let mut all = [[0; 32]; 7];
    all[1][0] = 1;
    all[2] = *b"\xe0\xeb\x7a\x7c\x3b\x41\xb8\xae\x16\x56\xe3\xfa\xf1\x9f\xc4\x6a\xda\x09\x8d\xeb\x9c\x32\xb1\xfd\x86\x62\x05\x16\x5f\x49\xb8\x00";
    all[3] = *b"\x5f\x9c\x95\xbc\xa3\x50\x8c\x24\xb1\xd0\xb1\x55\x9c\x83\xef\x5b\x04\x44\x5c\xc4\x58\x1c\x8e\x86\xd8\x22\x4e\xdd\xd0\x9f\x11\x57";
    // p - 1, p and p + 1.
    let ends = [0xec, 0xed, 0xee];
    let mut at = 0;
    while at < ends.len() {
        all[4 + at] = [0xff; 32];
        all[4 + at][0] = ends[at];
        all[4 + at][31] = 0x7f;
        at += 1;
    }
    all
};

/// Answers a guest as a responder with this payload.
fn answer(says: impl FnOnce(&Raw) -> Vec<u8>) -> HandshakeError {
    let (initiator, first) = Initiator::begin(None, &mut Seeded(1)).unwrap();
    let mut raw = Raw::responder(2);
    raw.read_first(&first);
    let payload = says(&raw);
    let second = raw.second(&payload);
    initiator.read_second(&second).unwrap_err()
}

/// Introduces an initiator with this payload to the node.
fn introduce(says: impl FnOnce(&Raw) -> Vec<u8>) -> Result<(), HandshakeError> {
    let mut raw = Raw::initiator(2);
    let (responder, second) = Responder::begin(&node(), &raw.first(), &mut Seeded(1)).unwrap();
    raw.read(&second[1..]);
    let payload = says(&raw);
    let third = raw.write(&payload);
    responder.read_third(&third).map(drop)
}

#[test]
fn true_statements_are_accepted() {
    // Otherwise the other tests would show nothing.
    let as_guest = |raw: &Raw| proof(&guest(), &statement(VERSION, INITIATOR, &raw.hash(), &raw.own));
    assert_eq!(introduce(as_guest), Ok(()));
    let (initiator, first) = Initiator::begin(Some(mallory().public()), &mut Seeded(1)).unwrap();
    let mut raw = Raw::responder(2);
    raw.read_first(&first);
    let payload = proof(&mallory(), &statement(VERSION, RESPONDER, &raw.hash(), &raw.own));
    assert_eq!(initiator.read_second(&raw.second(&payload)).unwrap().node(), mallory().public());
}

#[test]
fn an_initiator_that_repeats_itself_gets_other_keys_each_time() {
    let keys_with = |answer| {
        let mut raw = Raw::initiator(2);
        let (responder, second) = Responder::begin(&node(), &raw.first(), &mut Seeded(answer)).unwrap();
        raw.read(&second[1..]);
        let payload = proof(&guest(), &statement(VERSION, INITIATOR, &raw.hash(), &raw.own));
        let third = raw.write(&payload);
        responder.read_third(&third).unwrap();
        let keys = raw.keys.clone();
        raw.transport();
        let mut keys = keys.lock().unwrap().clone();
        keys.retain(|key| *key != [0; 32]);
        keys
    };
    let (one, other) = (keys_with(1), keys_with(3));
    assert!(one.len() >= 5, "three keys of the handshake, two of the association: {}", one.len());
    assert!(one.iter().all(|key| !other.contains(key)));
    assert_eq!(keys_with(1), one, "only the responder's randomness differs");
}

#[test]
fn an_x25519_key_that_the_identity_did_not_sign_is_refused() {
    // The guest's own statement of this handshake, beside another key than the one that it signed.
    let other = Raw::initiator(99).own;
    let forged = |identity: Identity, role| {
        move |raw: &Raw| proof(&identity, &statement(VERSION, role, &raw.hash(), &other))
    };
    assert_eq!(
        introduce(forged(guest(), INITIATOR)),
        Err(HandshakeError::Signature { key: guest().public() })
    );
    assert_eq!(answer(forged(node(), RESPONDER)), HandshakeError::Signature { key: node().public() });
}

#[test]
fn a_signature_for_the_other_role_is_refused() {
    for role in (0..=u8::MAX).filter(|role| *role != INITIATOR) {
        let says = |raw: &Raw| proof(&guest(), &statement(VERSION, role, &raw.hash(), &raw.own));
        assert_eq!(introduce(says), Err(HandshakeError::Signature { key: guest().public() }), "{role}");
    }
    for role in (0..=u8::MAX).filter(|role| *role != RESPONDER) {
        let says = |raw: &Raw| proof(&node(), &statement(VERSION, role, &raw.hash(), &raw.own));
        assert_eq!(answer(says), HandshakeError::Signature { key: node().public() }, "{role}");
    }
}

#[test]
fn a_signature_for_another_version_or_handshake_is_refused() {
    let bad_guest = Err(HandshakeError::Signature { key: guest().public() });
    let bad_node = HandshakeError::Signature { key: node().public() };
    let other_version = |who: Identity, role| {
        move |raw: &Raw| proof(&who, &statement(VERSION + 1, role, &raw.hash(), &raw.own))
    };
    assert_eq!(introduce(other_version(guest(), INITIATOR)), bad_guest);
    assert_eq!(answer(other_version(node(), RESPONDER)), bad_node);
    let other_handshake = |who: Identity, role| {
        move |raw: &Raw| {
            let mut hash = raw.hash();
            hash[0] ^= 1;
            proof(&who, &statement(VERSION, role, &hash, &raw.own))
        }
    };
    assert_eq!(introduce(other_handshake(guest(), INITIATOR)), bad_guest);
    assert_eq!(answer(other_handshake(node(), RESPONDER)), bad_node);
}

#[test]
fn a_peers_signature_from_one_handshake_is_useless_in_another() {
    // The guest connects to Mallory, who relays its statements to the node, with its own keys.
    let (initiator, first) = Initiator::begin(None, &mut Seeded(1)).unwrap();
    let mut as_node = Raw::responder(2);
    as_node.read_first(&first);
    let payload = proof(&mallory(), &statement(VERSION, RESPONDER, &as_node.hash(), &as_node.own));
    let second = as_node.second(&payload);
    let (_, third) = initiator.read_second(&second).unwrap().introduce(&guest(), CREDENTIALS).unwrap();
    let said = as_node.read(&third);
    assert!(said.ends_with(CREDENTIALS), "the guest has shown them to Mallory");
    assert_eq!(introduce(|_| said.clone()), Err(HandshakeError::Signature { key: guest().public() }));
}

#[test]
fn identities_without_a_private_key_are_refused() {
    let mut identity = [0; 32];
    identity[0] = 1;
    let says = |raw: &Raw| {
        let honest = proof(&guest(), &statement(VERSION, INITIATOR, &raw.hash(), &raw.own));
        [identity.as_slice(), &honest[32..]].concat()
    };
    assert_eq!(introduce(says), Err(HandshakeError::NoIdentity(HandshakeMessage::Third)));
    assert_eq!(answer(says), HandshakeError::NoIdentity(HandshakeMessage::Second));
}

#[test]
fn another_identity_beside_a_signature_is_refused() {
    let says = |raw: &Raw| {
        let own = proof(&mallory(), &statement(VERSION, INITIATOR, &raw.hash(), &raw.own));
        [guest().public().as_bytes().as_slice(), &own[32..]].concat()
    };
    assert_eq!(introduce(says), Err(HandshakeError::Signature { key: guest().public() }));
}

#[test]
fn payloads_that_are_cut_anywhere_are_refused() {
    for length in 0..96 {
        let says = |raw: &Raw| {
            proof(&guest(), &statement(VERSION, INITIATOR, &raw.hash(), &raw.own))[..length].to_vec()
        };
        assert!(
            matches!(introduce(says), Err(HandshakeError::Length { message: HandshakeMessage::Third, .. })),
            "{length}"
        );
    }
    // The second message has one length.
    for length in (0..200).filter(|length| *length != 96) {
        assert!(matches!(
            answer(|_| vec![0; length]),
            HandshakeError::Length { message: HandshakeMessage::Second, .. }
        ));
    }
}

#[test]
fn points_of_small_order_are_refused() {
    for (number, key) in WEAK.into_iter().enumerate() {
        // In the clear, as ephemeral keys.
        let mut first = messages(1).swap_remove(0);
        first[6..38].copy_from_slice(&key);
        let refused = Responder::begin(&node(), &first, &mut Seeded(1)).unwrap_err();
        assert_eq!(refused, HandshakeError::WeakKey(HandshakeMessage::First), "{number}");
        let (initiator, first) = Initiator::begin(None, &mut Seeded(1)).unwrap();
        let (_, mut second) = Responder::begin(&node(), &first, &mut Seeded(2)).unwrap();
        second[1..33].copy_from_slice(&key);
        assert_eq!(
            initiator.read_second(&second).unwrap_err(),
            HandshakeError::WeakKey(HandshakeMessage::Second),
            "{number}"
        );
        // Encrypted, as signed keys.
        let (initiator, first) = Initiator::begin(None, &mut Seeded(1)).unwrap();
        let mut raw = Raw::with_key(2, false, key);
        raw.read_first(&first);
        let payload = proof(&mallory(), &statement(VERSION, RESPONDER, &raw.hash(), &key));
        let second = raw.second(&payload);
        assert_eq!(
            initiator.read_second(&second).unwrap_err(),
            HandshakeError::WeakKey(HandshakeMessage::Second),
            "{number}"
        );
        let mut raw = Raw::with_key(2, true, key);
        let (responder, second) = Responder::begin(&node(), &raw.first(), &mut Seeded(1)).unwrap();
        raw.read(&second[1..]);
        let payload = proof(&mallory(), &statement(VERSION, INITIATOR, &raw.hash(), &key));
        let third = raw.write(&payload);
        assert_eq!(
            responder.read_third(&third).unwrap_err(),
            HandshakeError::WeakKey(HandshakeMessage::Third),
            "{number}"
        );
    }
}

/// An initiator's association with a node that sends an arbitrary fourth message, and that node's keys.
fn with_liar(fourth: &[u8]) -> (Result<Association, HandshakeError>, snow::StatelessTransportState) {
    let (initiator, first) = Initiator::begin(None, &mut Seeded(1)).unwrap();
    let mut raw = Raw::responder(2);
    raw.read_first(&first);
    let payload = proof(&mallory(), &statement(VERSION, RESPONDER, &raw.hash(), &raw.own));
    let second = raw.second(&payload);
    let (confirming, third) =
        initiator.read_second(&second).unwrap().introduce(&guest(), CREDENTIALS).unwrap();
    raw.read(&third);
    let keys = raw.transport();
    let fourth = seal(&keys, 0, fourth);
    (confirming.read_fourth(&fourth), keys)
}

#[test]
fn only_a_fourth_message_accepts_the_initiator() {
    assert_eq!(with_liar(&[&[2], OFFERS].concat()).0.unwrap().peer().credentials, OFFERS);
    for plain in [b"\x00data".as_slice(), b"\x01", b"\x01end", b"\x03other", b"\xff"] {
        assert_eq!(with_liar(plain).0.unwrap_err(), HandshakeError::Damaged(HandshakeMessage::Fourth));
    }
    let damaged = HandshakeError::Length { message: HandshakeMessage::Fourth, bytes: 16 };
    assert_eq!(with_liar(&[]).0.unwrap_err(), damaged);
}

#[test]
fn a_peer_that_speaks_out_of_turn_ends_the_association() {
    for plain in [b"".as_slice(), b"\x00", b"\x01more", b"\x02again", b"\x07unknown"] {
        let (association, keys) = with_liar(b"\x02");
        let (_, mut stream) = association.unwrap().into_stream();
        let message = seal(&keys, 1, plain);
        let framed = weir_trust::association::frame::framed(&message).unwrap();
        let error = stream.feed(&mut framed.as_slice()).unwrap_err();
        let is_short = plain.is_empty();
        let is_unknown = plain == b"\x07unknown";
        let expected = if is_short {
            TransportError::Length(16)
        } else if is_unknown {
            TransportError::Damaged
        } else {
            TransportError::Misplaced
        };
        assert_eq!(error, expected, "{plain:?}");
        assert_eq!(stream.send(b"x", &mut Vec::new()), Err(TransportError::Over));
    }
    let (association, keys) = with_liar(b"\x02");
    let (_, mut stream) = association.unwrap().into_stream();
    let framed = weir_trust::association::frame::framed(&seal(&keys, 1, b"\x00fine")).unwrap();
    assert_eq!(stream.feed(&mut framed.as_slice()), Ok(Some(StreamEvent::Data(b"fine".to_vec()))));
}
