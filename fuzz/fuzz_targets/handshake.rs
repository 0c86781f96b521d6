//! Sends arbitrary bytes to every state of a handshake and of an association, and edits the messages of an honest one: whatever was
//! changed, there is no association and no data that the peer has not sent.

#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;
use rand_core::{CryptoRng, Error, RngCore, impls};
use weir_trust::association::{Association, Confirming, Initiator, Responder};
use weir_trust::key::Identity;
use weir_trust::transport::{BUFFERED_BYTES_MAX, Event, SealedStream};

fuzz_target!(|bytes: &[u8]| {
    let Some((which, bytes)) = bytes.split_first() else { return };
    match which % 7 {
        0 => assert!(begin_or_answered(bytes)),
        1 => assert!(initiator().0.second(bytes).is_err()),
        2 => assert!(responder().0.third(bytes).is_err()),
        3 => assert!(confirming().0.fourth(bytes).is_err()),
        4 => stream(bytes),
        5 => {
            let (_, mut datagrams) = associated(&[]).expect("nobody has changed anything").into_datagrams();
            assert!(datagrams.open(bytes).is_err());
        }
        _ => edits(bytes),
    }
});

/// Randomness that is the same every time (splitmix64).
struct Seeded(u64);

impl RngCore for Seeded {
    fn next_u32(&mut self) -> u32 {
        impls::next_u32_via_fill(self)
    }
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
    fn fill_bytes(&mut self, dest: &mut [u8]) {
        impls::fill_bytes_via_next(self, dest);
    }
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), Error> {
        self.fill_bytes(dest);
        Ok(())
    }
}

impl CryptoRng for Seeded {}

fn initiator() -> (Initiator, Vec<u8>) {
    Initiator::begin(None, &mut Seeded(1)).expect("there is randomness")
}

fn responder() -> (Responder, Vec<u8>) {
    Responder::begin(&Identity::from_seed(&[1; 32]), &initiator().1, &mut Seeded(2)).expect("an honest message")
}

fn confirming() -> (Confirming, Vec<u8>) {
    let met = initiator().0.second(&responder().1).expect("an honest message");
    met.introduce(&Identity::from_seed(&[2; 32]), b"credentials").expect("they are short")
}

/// A first message that is one is answered, and then nothing but the third of its sender is taken.
fn begin_or_answered(bytes: &[u8]) -> bool {
    match Responder::begin(&Identity::from_seed(&[1; 32]), bytes, &mut Seeded(2)) {
        Ok((responder, second)) => second.len() <= bytes.len() && responder.third(&confirming().1).is_err() != (bytes == initiator().1),
        Err(_) => true,
    }
}

/// An honest handshake in which some bytes were changed on the way: the responder's association, where both sides have one.
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
    let met = initiator.second(&way(1, second)).ok()?;
    let (confirming, third) = met.introduce(&Identity::from_seed(&[2; 32]), b"credentials").ok()?;
    let (association, fourth) = responder.third(&way(2, third)).ok()?.accept(b"offers").ok()?;
    confirming.fourth(&way(3, fourth)).ok()?;
    Some(association)
}

fn edits(bytes: &[u8]) {
    let edits: Vec<(u8, u16, u8)> =
        bytes.chunks_exact(4).take(8).map(|edit| (edit[0] % 4, u16::from_be_bytes([edit[1], edit[2]]), edit[3])).collect();
    // Two edits can undo each other: what counts is what arrives.
    let lengths = [initiator().1.len(), responder().1.len(), confirming().1.len(), 17 + b"offers".len()];
    let mut changes = std::collections::BTreeMap::new();
    for (message, at, by) in &edits {
        *changes.entry((message, usize::from(*at) % lengths[usize::from(*message)])).or_insert(0) ^= by;
    }
    let is_changed = changes.values().any(|by| *by != 0);
    assert_eq!(associated(&edits).is_some(), !is_changed);
}

/// Bytes that nobody has sealed, in pieces, after some that the peer has.
fn stream(bytes: &[u8]) {
    let (_, mut here) = associated(&[]).expect("nobody has changed anything").into_stream();
    let pieces = bytes.first().map_or(1, |piece| usize::from(*piece).max(1));
    for piece in bytes.chunks(pieces) {
        if !feed(&mut here, piece) {
            return;
        }
    }
    assert!(here.cut().is_err(), "nobody has said that this is the end");
}

/// Whether it goes on.
fn feed(stream: &mut SealedStream, mut piece: &[u8]) -> bool {
    loop {
        match stream.feed(&mut piece) {
            Ok(None) => {
                assert!(piece.is_empty() && stream.buffered() < BUFFERED_BYTES_MAX);
                return true;
            }
            Ok(Some(Event::Data(_) | Event::End)) => panic!("nobody has sent that"),
            Err(_) => {
                assert!(stream.feed(&mut piece).is_err() && stream.buffered() == 0);
                return false;
            }
        }
    }
}
