//! Gives arbitrary and edited datagrams to the two sides of an association, in every state of the handshake: whatever is
//! changed, each side has the credentials of its honest peer, and both have the association when the attack ends.

#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;
use weir_trust::datagrams::DatagramLimits;

mod association {
    pub(crate) use crate::pair;
}
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../../core/trust/tests/datagrams/network.rs"]
mod network;
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../../core/trust/tests/association/pair.rs"]
mod pair;
use network::{DELAY, Flight, Network, SECOND};

// The first byte selects the form of the rest: edits of the datagrams of a handshake, or datagrams to insert.
fuzz_target!(|bytes: &[u8]| {
    let Some((which, bytes)) = bytes.split_first() else { return };
    match which % 2 {
        0 => edits(bytes),
        _ => insertions(bytes),
    }
});

/// Each edit has the number of a datagram, an action, an offset and a byte.
fn edits(bytes: &[u8]) {
    let edits: Vec<[u8; 5]> = bytes.as_chunks().0.iter().take(16).copied().collect();
    let mut network = Network::new(1, DatagramLimits::default());
    network.tamper = Box::new(move |number, flight| {
        let mut flights = vec![flight];
        for [_, action, a, b, by] in edits.iter().filter(|edit| usize::from(edit[0]) == number) {
            edit(&mut flights, *action, usize::from(u16::from_be_bytes([*a, *b])), *by);
        }
        flights
    });
    network.connect(0, 1);
    finish(&mut network);
}

fn edit(flights: &mut Vec<Flight>, action: u8, at: usize, by: u8) {
    let Some(last) = flights.last_mut() else { return };
    let length = last.bytes.len().max(1);
    match action % 6 {
        0 => {
            if let Some(byte) = last.bytes.get_mut(at % length) {
                *byte ^= by;
            }
        }
        1 => last.bytes.truncate(at % length),
        2 => last.bytes.resize(length + at % 2_000, by),
        3 => flights.clear(),
        4 => {
            let back = Flight { from: last.to, to: last.from, bytes: last.bytes.clone() };
            flights.push(back);
        }
        _ => {
            let copy = last.clone();
            flights.push(copy);
        }
    }
}

/// Each insertion has a time, a length and the bytes of a datagram to the responder, or to the initiator.
fn insertions(bytes: &[u8]) {
    let mut network = Network::new(2, DatagramLimits::default());
    network.connect(0, 1);
    let mut rest = bytes;
    for _ in 0..32 {
        let Some(([to, time, length], after)) = rest.split_first_chunk() else { break };
        let (datagram, after) = after.split_at(usize::from(*length).min(after.len()));
        rest = after;
        network.run_for(u64::from(*time) * DELAY / 16);
        let to = usize::from(to % 2);
        let (to, from) = (network.sides[to].address, network.sides[1 - to].address);
        network.deliver(&Flight { from, to, bytes: datagram.to_vec() });
    }
    finish(&mut network);
}

/// Ends the attack, and checks that the sides have an association and the peer's credentials.
fn finish(network: &mut Network<'_>) {
    network.run_for(5 * SECOND);
    network.tamper = Box::new(|_, flight| vec![flight]);
    network.run_for(40 * SECOND);
    assert_eq!(network.credentials(0), b"what the second may do");
    assert_eq!(network.credentials(1), b"what the first may do");
    network.assert_joined("after the attack");
}
