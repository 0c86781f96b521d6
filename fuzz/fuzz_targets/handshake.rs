//! Sends arbitrary bytes to every state of a handshake and of an association, and edits the messages of an honest
//! handshake: whatever is changed, no association results, and no data that the peer has not sent.

#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;
use weir_trust::association::{Association, Initiator, InitiatorAwaitingAccept, Responder};
use weir_trust::key::Identity;
use weir_trust::transport::{BUFFERED_BYTES_MAX, SealedStream, StreamEvent};

#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../../core/trust/tests/association/pair.rs"]
mod pair;
use pair::Seeded;

fuzz_target!(|bytes: &[u8]| {
    let Some((which, bytes)) = bytes.split_first() else { return };
    match which % 6 {
        0 => assert!(answers_valid_first_message(bytes)),
        1 => assert!(initiator().0.read_second(bytes).is_err()),
        2 => assert!(responder().0.read_third(bytes).is_err()),
        3 => assert!(confirming().0.read_fourth(bytes).is_err()),
        4 => stream(bytes),
        _ => edits(bytes),
    }
});

fn initiator() -> (Initiator, Vec<u8>) {
    Initiator::begin(None, &mut Seeded(1)).expect("there is randomness")
}

fn responder() -> (Responder, Vec<u8>) {
    Responder::begin(&Identity::from_seed(&[1; 32]), &initiator().1, &mut Seeded(2))
        .expect("an honest message")
}

fn confirming() -> (InitiatorAwaitingAccept, Vec<u8>) {
    let met = initiator().0.read_second(&responder().1).expect("an honest message");
    met.introduce(&Identity::from_seed(&[2; 32]), b"credentials").expect("they are short")
}

/// A valid first message is answered, and then only the third message of its sender is accepted. Returns true.
fn answers_valid_first_message(bytes: &[u8]) -> bool {
    match Responder::begin(&Identity::from_seed(&[1; 32]), bytes, &mut Seeded(2)) {
        Ok((responder, second)) => {
            second.len() <= bytes.len()
                && responder.read_third(&confirming().1).is_err() != (bytes == initiator().1)
        }
        Err(_) => true,
    }
}

/// Performs an honest handshake with some bytes changed on the way. Returns the responder's association, if both
/// sides have one.
fn associated(edits: &[(u8, u16, u8)]) -> Option<Association> {
    let way = |number: u8, mut message: Vec<u8>| {
        for (_, at, by) in edits.iter().filter(|(of, ..)| *of == number) {
            let length = message.len();
            message[usize::from(*at) % length] ^= by;
        }
        message
    };
    let (initiator, first) = initiator();
    let node = Identity::from_seed(&[1; 32]);
    let (responder, second) = Responder::begin(&node, &way(0, first), &mut Seeded(2)).ok()?;
    let met = initiator.read_second(&way(1, second)).ok()?;
    let (confirming, third) = met.introduce(&Identity::from_seed(&[2; 32]), b"credentials").ok()?;
    let (association, fourth) = responder.read_third(&way(2, third)).ok()?.accept(b"offers").ok()?;
    confirming.read_fourth(&way(3, fourth)).ok()?;
    Some(association)
}

fn edits(bytes: &[u8]) {
    let edits: Vec<(u8, u16, u8)> = bytes
        .chunks_exact(4)
        .take(8)
        .map(|edit| (edit[0] % 4, u16::from_be_bytes([edit[1], edit[2]]), edit[3]))
        .collect();
    // Two edits can undo each other, so the received bytes are compared.
    let lengths = [initiator().1.len(), responder().1.len(), confirming().1.len(), 17 + b"offers".len()];
    let mut changes = std::collections::BTreeMap::new();
    for (message, at, by) in &edits {
        *changes.entry((message, usize::from(*at) % lengths[usize::from(*message)])).or_insert(0) ^= by;
    }
    let is_changed = changes.values().any(|by| *by != 0);
    assert_eq!(associated(&edits).is_some(), !is_changed);
}

/// Feeds unsealed bytes in pieces, after some sealed ones of the peer.
fn stream(bytes: &[u8]) {
    let (_, mut here) = associated(&[]).expect("nobody has changed anything").into_stream();
    let pieces = bytes.first().map_or(1, |piece| usize::from(*piece).max(1));
    for piece in bytes.chunks(pieces) {
        if !feed(&mut here, piece) {
            return;
        }
    }
    assert!(here.handle_close().is_err(), "the peer has not finished");
}

/// Feeds a piece. Returns whether the stream continues.
fn feed(stream: &mut SealedStream, mut piece: &[u8]) -> bool {
    loop {
        match stream.feed(&mut piece) {
            Ok(None) => {
                assert!(piece.is_empty() && stream.buffered() < BUFFERED_BYTES_MAX);
                return true;
            }
            Ok(Some(StreamEvent::Data(_) | StreamEvent::End)) => panic!("the peer has not sent that"),
            Err(_) => {
                assert!(stream.feed(&mut piece).is_err() && stream.buffered() == 0);
                return false;
            }
        }
    }
}
