//! Tests of datagrams, which arrive in any order, twice, or not at all.

use super::pair::associated;
use proptest::prelude::{ProptestConfig, proptest};
use std::collections::BTreeSet;
use weir_trust::transport::{DATAGRAM_BYTES_MAX, DatagramError, ReplayWindow, SealedDatagrams, WINDOW};

fn datagrams() -> (SealedDatagrams, SealedDatagrams) {
    let (here, there) = associated(5);
    (here.into_datagrams().1, there.into_datagrams().1)
}

#[test]
fn datagrams_arrive_in_any_order_and_once() {
    let (mut here, mut there) = datagrams();
    let sent: Vec<Vec<u8>> = (0..100_u8).map(|number| here.seal(&[number]).unwrap()).collect();
    // Every third one is lost, the others arrive in another order.
    let order: Vec<usize> =
        (0..100).map(|number| number * 37 % 100).filter(|number| number % 3 != 0).collect();
    for number in &order {
        assert_eq!(there.open(&sent[*number]), Ok(vec![u8::try_from(*number).unwrap()]));
        assert_eq!(there.open(&sent[*number]), Err(DatagramError::Again(*number as u64)));
    }
    for number in order {
        assert_eq!(there.open(&sent[number]), Err(DatagramError::Again(number as u64)));
    }
    let back = there.seal(b"answer").unwrap();
    assert_eq!(here.open(&back), Ok(b"answer".to_vec()));
    let (mut here, _) = datagrams();
    let own = [here.seal(b"turned round").unwrap(), here.seal(b"turned round").unwrap()];
    assert_eq!(own.map(|own| here.open(&own)), [Err(DatagramError::Again(0)), Err(DatagramError::Damaged)]);
}

#[test]
fn a_datagram_of_another_party_changes_nothing() {
    let (mut here, mut there) = datagrams();
    let genuine = here.seal(b"hello").unwrap();
    for bit in 0..genuine.len() * 8 {
        let mut forged = genuine.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(there.open(&forged), Err(DatagramError::Damaged), "bit {bit}");
    }
    for length in 0..genuine.len() {
        assert!(there.open(&genuine[..length]).is_err());
    }
    assert_eq!(there.open(&[0xff; 8 + 17]), Err(DatagramError::Damaged));
    assert!(matches!(there.open(&vec![0; 1 << 17]), Err(DatagramError::Length(_))));
    // The window has not moved.
    assert_eq!(there.open(&genuine), Ok(b"hello".to_vec()));
}

#[test]
fn a_datagram_that_comes_very_late_is_refused() {
    let (mut here, mut there) = datagrams();
    let first = here.seal(b"first").unwrap();
    let second = here.seal(b"second").unwrap();
    for _ in 0..WINDOW - 1 {
        let next = here.seal(b"next").unwrap();
        there.open(&next).unwrap();
    }
    assert_eq!(there.open(&first), Err(DatagramError::Again(0)));
    assert_eq!(there.open(&second), Ok(b"second".to_vec()));
}

#[test]
fn datagrams_have_a_longest_length_and_may_be_empty() {
    let (mut here, mut there) = datagrams();
    for bytes in [0, 1, 1400, DATAGRAM_BYTES_MAX] {
        let sealed = here.seal(&vec![7; bytes]).unwrap();
        assert_eq!(there.open(&sealed), Ok(vec![7; bytes]));
    }
    let long = DATAGRAM_BYTES_MAX + 1;
    assert_eq!(here.seal(&vec![7; long]), Err(DatagramError::Length(long)));
}

#[test]
fn a_message_of_the_handshake_is_no_datagram() {
    let fourth = super::pair::messages(5).swap_remove(3);
    let (mut here, _) = datagrams();
    let forged = [0_u64.to_be_bytes().as_slice(), &fourth].concat();
    assert_eq!(here.open(&forged), Err(DatagramError::Again(0)));
}

#[test]
fn the_last_number_of_all_is_never_new() {
    let mut window = ReplayWindow::default();
    assert!(!window.accept(u64::MAX));
    assert!(window.accept(u64::MAX - 1) && !window.accept(u64::MAX - 1) && window.accept(u64::MAX - 2));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Compares the window with the set of all numbers that were accepted.
    #[test]
    fn a_window_remembers_exactly_what_it_accepted(
        steps in proptest::collection::vec((0..4_u8, 0..2_500_u64), 1..400),
    ) {
        let mut window = ReplayWindow::default();
        let mut taken: BTreeSet<u64> = BTreeSet::new();
        for (kind, by) in steps {
            let highest = taken.last().copied().unwrap_or(0);
            // A little or far ahead, or behind.
            let number = match kind {
                0 => highest + 1,
                1 => highest + by,
                2 => highest.saturating_sub(by % 80),
                _ => highest.saturating_sub(by),
            };
            let is_new = !taken.contains(&number) && (taken.is_empty() || highest < WINDOW + number);
            assert_eq!(window.is_new(number), is_new, "{number} after {highest}");
            assert_eq!(window.accept(number), is_new, "{number} after {highest}");
            if is_new {
                taken.insert(number);
            }
        }
    }
}
