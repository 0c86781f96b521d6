//! Tests of byte streams, and of changes to their bytes.

use super::pair::{CREDENTIALS, Seeded, associated, node};
use super::raw::{INITIATOR, Raw, proof, seal, statement};
use proptest::prelude::{ProptestConfig, any, proptest};
use weir_trust::association::{Responder, VERSION, frame};
use weir_trust::transport::{
    BUFFERED_BYTES_MAX, MESSAGE_BYTES_MAX, REKEY_MESSAGES, SealedStream, StreamEvent, TransportError,
};

fn streams() -> (SealedStream, SealedStream) {
    let (here, there) = associated(5);
    (here.into_stream().1, there.into_stream().1)
}

fn sealed(side: &mut SealedStream, mut data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while !data.is_empty() {
        let taken = side.send(data, &mut out).unwrap();
        data = &data[taken..];
    }
    out
}

/// The data read from these bytes, and the reason for the end.
fn received(side: &mut SealedStream, mut bytes: &[u8]) -> (Vec<u8>, Result<(), TransportError>) {
    let mut data = Vec::new();
    loop {
        match side.feed(&mut bytes) {
            Ok(Some(StreamEvent::Data(more))) => data.extend(more),
            Ok(Some(StreamEvent::End)) => {}
            Ok(None) => return (data, Ok(())),
            Err(error) => return (data, Err(error)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 50, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sent_bytes_arrive_in_whatever_pieces_they_come(
        data in proptest::collection::vec(any::<u8>(), 0..60_000),
        pieces in proptest::collection::vec(1..9_000_usize, 1..20),
    ) {
        let (mut here, mut there) = streams();
        let mut bytes = sealed(&mut here, &data);
        here.finish(&mut bytes).unwrap();
        let (mut arrived, mut at, mut piece) = (Vec::new(), 0, pieces.iter().cycle());
        while at < bytes.len() {
            let end = (at + piece.next().unwrap()).min(bytes.len());
            let (more, result) = received(&mut there, &bytes[at..end]);
            assert_eq!(result, Ok(()));
            assert!(there.buffered() < BUFFERED_BYTES_MAX);
            arrived.extend(more);
            at = end;
        }
        assert_eq!(arrived, data);
        assert!(there.is_ended());
        assert_eq!(there.handle_close(), Ok(()));
    }
}

#[test]
fn no_bit_can_be_changed_and_nothing_is_read_after_a_changed_one() {
    for bit in 0..(2 + 1 + 5 + 16) * 8 {
        let (mut here, mut there) = streams();
        let before = sealed(&mut here, b"before");
        let mut bytes = sealed(&mut here, b"hello");
        bytes[bit / 8] ^= 1 << (bit % 8);
        // Enough bytes for a longer length.
        let after: Vec<u8> = (0..5).flat_map(|_| sealed(&mut here, &[0; MESSAGE_BYTES_MAX])).collect();
        let (data, result) = received(&mut there, &[before, bytes, after].concat());
        assert_eq!(data, b"before");
        assert!(
            matches!(result, Err(TransportError::Damaged | TransportError::Length(_))),
            "bit {bit}: {result:?}"
        );
        let again = sealed(&mut here, b"again");
        assert_eq!(received(&mut there, &again).1, Err(TransportError::Over));
        assert_eq!(there.send(b"x", &mut Vec::new()), Err(TransportError::Over));
        assert_eq!(there.finish(&mut Vec::new()), Err(TransportError::Over));
        assert_eq!(there.buffered(), 0);
    }
}

#[test]
fn messages_that_are_repeated_left_out_or_moved_do_not_open() {
    for order in [&[0, 0][..], &[1], &[0, 2], &[0, 1, 1], &[0, 1, 0], &[1, 0], &[0, 2, 1]] {
        let (mut here, mut there) = streams();
        let messages = [b"one".as_slice(), b"two", b"three"].map(|says| sealed(&mut here, says));
        let bytes: Vec<u8> = order.iter().flat_map(|number| messages[*number].clone()).collect();
        let (data, result) = received(&mut there, &bytes);
        assert_eq!(result, Err(TransportError::Damaged), "{order:?}");
        assert!(b"onetwo".starts_with(&data), "{order:?}");
    }
}

#[test]
fn messages_of_another_association_do_not_open() {
    let (mut here, _) = streams();
    let (_, mut other) = associated(6).0.into_stream();
    let (_, mut there) = streams();
    let bytes = sealed(&mut other, b"hello");
    assert_eq!(received(&mut there, &bytes).1, Err(TransportError::Damaged));
    assert_ne!(sealed(&mut here, b"hello"), bytes);
}

#[test]
fn a_stream_that_is_cut_anywhere_differs_from_one_that_ended() {
    let (mut here, _) = streams();
    let mut bytes = sealed(&mut here, b"first");
    let first = bytes.len();
    bytes.extend(sealed(&mut here, b"second"));
    let second = bytes.len();
    here.finish(&mut bytes).unwrap();
    for length in 0..=bytes.len() {
        let (_, mut there) = streams();
        let (data, result) = received(&mut there, &bytes[..length]);
        assert_eq!(result, Ok(()));
        let whole = [b"".as_slice(), b"first", b"firstsecond"];
        assert_eq!(data, whole[usize::from(length >= first) + usize::from(length >= second)]);
        let is_whole = length == bytes.len();
        assert_eq!(there.is_ended(), is_whole);
        assert_eq!(
            there.handle_close(),
            if is_whole { Ok(()) } else { Err(TransportError::Cut) },
            "{length}"
        );
        if !is_whole {
            assert_eq!(there.feed(&mut &bytes[length..]), Err(TransportError::Over), "a cut is final");
        }
    }
}

#[test]
fn after_the_end_nothing_is_accepted() {
    let (mut here, mut there) = streams();
    let mut bytes = Vec::new();
    here.finish(&mut bytes).unwrap();
    assert_eq!(here.send(b"more", &mut bytes), Err(TransportError::Finished));
    assert_eq!(here.finish(&mut bytes), Err(TransportError::Finished));
    assert_eq!(received(&mut there, &bytes), (Vec::new(), Ok(())));
    // The other direction is still open.
    let answer = sealed(&mut there, b"bye");
    assert_eq!(received(&mut here, &answer), (b"bye".to_vec(), Ok(())));
    assert_eq!(received(&mut there, &bytes).1, Err(TransportError::AfterEnd));
    assert_eq!(there.handle_close(), Err(TransportError::Cut), "an error is no end");
}

#[test]
fn lengths_that_no_message_has_are_refused_before_anything_is_buffered() {
    for length in (0..17_u16).chain([0x4012, 0x8000, u16::MAX]) {
        let (_, mut there) = streams();
        let bytes = length.to_be_bytes();
        assert_eq!(there.feed(&mut bytes.as_slice()), Err(TransportError::Length(usize::from(length))));
    }
    // The longest legal one.
    let (mut here, mut there) = streams();
    let bytes = sealed(&mut here, &[1; MESSAGE_BYTES_MAX]);
    assert_eq!(bytes.len(), BUFFERED_BYTES_MAX);
    assert_eq!(received(&mut there, &bytes), (vec![1; MESSAGE_BYTES_MAX], Ok(())));
}

#[test]
fn empty_input_sends_nothing() {
    let (mut here, _) = streams();
    let mut out = Vec::new();
    assert_eq!(here.send(&[], &mut out), Ok(0));
    assert!(out.is_empty());
}

#[test]
fn keys_are_renewed_by_both_sides_at_the_same_message_in_each_direction() {
    let (mut here, mut there) = streams();
    // The fourth message of the handshake was the responder's first one.
    assert_eq!((here.counts(), there.counts()), ((0, 1), (1, 0)));
    let mut counter = 0_u32;
    let mut say = |from: &mut SealedStream, to: &mut SealedStream| {
        counter += 1;
        let says = counter.to_be_bytes();
        let bytes = sealed(from, &says);
        assert_eq!(received(to, &bytes), (says.to_vec(), Ok(())));
    };
    for number in 0..2 * REKEY_MESSAGES + 2 {
        say(&mut here, &mut there);
        // The other direction is slower, and passes its own boundary.
        if number % 2 == 0 {
            say(&mut there, &mut here);
        }
    }
    let (sent, back) = (2 * REKEY_MESSAGES + 2, REKEY_MESSAGES + 2);
    assert_eq!((here.counts(), there.counts()), ((sent, back), (back, sent)));
}

#[test]
fn a_side_that_does_not_renew_its_key_is_refused() {
    let mut raw = Raw::initiator(2);
    let (responder, second) = Responder::begin(&node(), &raw.first(), &mut Seeded(1)).unwrap();
    raw.read(&second[1..]);
    let mut payload = proof(&super::pair::guest(), &statement(VERSION, INITIATOR, &raw.hash(), &raw.own));
    payload.extend_from_slice(CREDENTIALS);
    let (association, _) = responder.read_third(&raw.write(&payload)).unwrap().accept(&[]).unwrap();
    let (_, mut stream) = association.into_stream();
    let mut keys = raw.transport();
    for number in 0..REKEY_MESSAGES {
        let framed = frame::framed(&seal(&keys, number, b"\x00x")).unwrap();
        assert_eq!(received(&mut stream, &framed), (b"x".to_vec(), Ok(())));
    }
    let stale = frame::framed(&seal(&keys, REKEY_MESSAGES, b"\x00x")).unwrap();
    keys.rekey_outgoing();
    let renewed = frame::framed(&seal(&keys, REKEY_MESSAGES, b"\x00x")).unwrap();
    assert_ne!(stale, renewed);
    assert_eq!(received(&mut stream, &renewed), (b"x".to_vec(), Ok(())));
    keys.rekey_outgoing();
    let early = frame::framed(&seal(&keys, REKEY_MESSAGES + 1, b"\x00x")).unwrap();
    assert_eq!(received(&mut stream, &early).1, Err(TransportError::Damaged));
}
