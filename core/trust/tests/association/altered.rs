//! Messages that were changed, cut, lengthened or invented.

use super::pair::{CREDENTIALS, Ends, Seeded, guest, handshake, messages, node};
use proptest::prelude::{ProptestConfig, any, proptest};
use weir_trust::association::{Initiator, Responder};

/// No side has an association if the changed message, or the answer to it, makes a false statement. The responder has
/// one after the third message: only the initiator can detect a change of the fourth.
fn assert_none(ends: &Ends, message: usize, what: &str) {
    assert!(ends.initiator.is_err(), "message {message}: {what}");
    let responder_has = ends.responder.as_ref().is_some_and(Result::is_ok);
    assert_eq!(responder_has, message == 3, "message {message}: {what}");
}

fn changed(message: usize, change: impl Fn(&mut Vec<u8>)) -> Ends {
    handshake(None, 11, &mut |number, mut bytes| {
        if number == message {
            change(&mut bytes);
        }
        bytes
    })
}

#[test]
fn no_bit_of_any_message_can_be_changed() {
    for (message, bytes) in messages(11).iter().enumerate() {
        for bit in 0..bytes.len() * 8 {
            let ends = changed(message, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
            assert_none(&ends, message, &format!("bit {bit}"));
        }
    }
}

#[test]
fn messages_that_are_cut_or_lengthened_are_refused() {
    for (message, bytes) in messages(11).iter().enumerate() {
        for length in 0..bytes.len() {
            assert_none(
                &changed(message, |bytes| bytes.truncate(length)),
                message,
                &format!("{length} bytes"),
            );
        }
        for more in [1, 2, 16, 1000, 20_000, 65_535, 70_000] {
            let longer = changed(message, |bytes| bytes.resize(bytes.len() + more, 0));
            assert_none(&longer, message, &format!("{more} bytes more"));
            let at_the_front = changed(message, |bytes| drop(bytes.splice(..0, vec![0; more])));
            assert_none(&at_the_front, message, &format!("{more} bytes more at the front"));
        }
    }
}

#[test]
fn bytes_of_any_length_are_refused_by_every_state() {
    for length in (0..700).chain([16_000, 16_543, 16_544, 16_545, 65_535, 65_536, 1 << 20]) {
        for filler in [0, 0xff] {
            let bytes = vec![filler; length];
            assert!(Responder::begin(&node(), &bytes, &mut Seeded(1)).is_err());
            let (initiator, first) = Initiator::begin(None, &mut Seeded(1)).unwrap();
            assert!(initiator.read_second(&bytes).is_err());
            let (responder, second) = Responder::begin(&node(), &first, &mut Seeded(2)).unwrap();
            assert!(responder.read_third(&bytes).is_err());
            let (initiator, _) = Initiator::begin(None, &mut Seeded(1)).unwrap();
            let (confirming, _) =
                initiator.read_second(&second).unwrap().introduce(&guest(), CREDENTIALS).unwrap();
            assert!(confirming.read_fourth(&bytes).is_err());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Some bytes of a message are replaced by others.
    #[test]
    fn no_part_of_a_message_can_be_replaced(
        message in 0..4_usize, at in any::<usize>(), part in proptest::collection::vec(any::<u8>(), 1..64),
    ) {
        let whole = messages(11).swap_remove(message);
        let at = at % whole.len();
        let end = (at + part.len()).min(whole.len());
        if whole[at..end] != part[..end - at] {
            let ends = changed(message, |bytes| bytes[at..end].copy_from_slice(&part[..end - at]));
            assert_none(&ends, message, "a part");
        }
    }
}
