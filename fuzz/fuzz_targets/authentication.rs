//! Gives arbitrary and edited packets to the receiver of an association: only what the peer has sealed is accepted, once
//! and unchanged. Fragments that a hostile peer seals are bounded in memory, and make no other packets than its own.

#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;
use weir_anep::{
    AnepHeader, AnepOption, AnepPacket, AnepReceiver, FragmentLimits, FragmentNumber, OptionKind, Protection, seal,
};
use weir_trust::datagrams::DatagramLimits;
use weir_units::Nanos;

mod association {
    pub(crate) use crate::pair;
}
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../../core/trust/tests/datagrams/network.rs"]
mod network;
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../../core/trust/tests/association/pair.rs"]
mod pair;
use network::{DELAY, Network};

const HEADER: AnepHeader = AnepHeader { flags: 0x80, type_id: 7 };

// The first byte selects the form of the rest: a datagram, edits of a sealed packet, or fragments to seal.
fuzz_target!(|bytes: &[u8]| {
    let Some((which, bytes)) = bytes.split_first() else { return };
    let mut network = Network::new(3, DatagramLimits::default());
    network.connect(0, 1);
    network.run_for(7 * DELAY);
    let mut receiver = AnepReceiver::new(FragmentLimits::default());
    match which % 3 {
        0 => assert!(receive(&mut network, &mut receiver, bytes).is_none()),
        1 => edits(&mut network, &mut receiver, bytes),
        _ => fragments(&mut network, &mut receiver, bytes),
    }
});

/// Gives a datagram to the receiver. Returns the accepted packet.
fn receive(network: &mut Network<'_>, receiver: &mut AnepReceiver, datagram: &[u8]) -> Option<Vec<u8>> {
    let (from, now) = (network.sides[0].address, Nanos(network.now));
    let received = receiver.handle(&mut network.sides[1].endpoint, now, from, datagram).ok()??;
    assert_eq!(received.peer, network.sides[0].key());
    Some(received.packet)
}

/// Each edit has an offset and a byte.
fn edits(network: &mut Network<'_>, receiver: &mut AnepReceiver, bytes: &[u8]) {
    let packet = HEADER.write(&[], b"the payload").expect("a short packet");
    let (peer, now) = (network.sides[1].key(), Nanos(network.now));
    for protection in [Protection::Authenticated, Protection::Encrypted] {
        let mut number = FragmentNumber::default();
        let endpoint = &mut network.sides[0].endpoint;
        let sealed = seal(endpoint, now, &peer, protection, &packet, &mut number).expect("there are keys");
        let [sealed] = &sealed[..] else { panic!("the packet is short") };
        let mut edited = sealed.clone();
        for [at, by] in bytes.as_chunks().0 {
            let length = edited.len();
            edited[usize::from(*at) % length] ^= by;
        }
        if edited != *sealed {
            assert_eq!(receive(network, receiver, &edited), None);
        }
        assert_eq!(receive(network, receiver, sealed).as_ref(), Some(&packet));
        assert_eq!(receive(network, receiver, sealed), None);
    }
}

/// Each fragment has the number of its packet, the packet's length, an offset, and its own length.
fn fragments(network: &mut Network<'_>, receiver: &mut AnepReceiver, bytes: &[u8]) {
    let peer = network.sides[1].key();
    for [number, a, b, c, d, e, f] in bytes.as_chunks().0.iter().take(64) {
        let value = [0, 0, 0, number % 8, *a, *b, *c, *d];
        let data = vec![1; usize::from(u16::from_be_bytes([*e, *f]) % 4_096)];
        let endpoint = &mut network.sides[0].endpoint;
        let seal = endpoint.seal_packet(Nanos(network.now), &peer).expect("there are keys");
        let numbers = [&seal.spi().to_bytes()[..], &seal.counter().to_be_bytes(), &[0; 16]].concat();
        let kinds = [(OptionKind::Fragment, &value[..]), (OptionKind::Authentication, &numbers)];
        let options = kinds.map(|(kind, value)| AnepOption::known(kind, value));
        let mut packet = HEADER.write(&options, &data).expect("a short packet");
        let mut tag = [0; 16];
        assert!(seal.seal(&packet, &[], &mut tag));
        packet[36..52].copy_from_slice(&tag);
        if let Some(packet) = receive(network, receiver, &packet) {
            assert!(AnepPacket::read(&packet).is_ok());
        }
        assert!(receiver.stored().0 <= 4 * usize::from(u16::MAX));
    }
}
