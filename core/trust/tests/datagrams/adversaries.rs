//! Attackers on the path: changed, cut, repeated and reflected datagrams, and forged hints.

use super::network::{DELAY, Flight, Network, SECOND};
use crate::association::pair::Seeded;
use weir_trust::association::{Initiator, Responder};
use weir_trust::datagrams::{AttemptError, DatagramEvent, DatagramLimits, PacketError, Spi};

fn network<'a>() -> Network<'a> {
    Network::new(21, DatagramLimits::default())
}

/// The datagrams of an undisturbed handshake, and those right after it.
fn handshake() -> Vec<Flight> {
    let mut network = network();
    network.connect(0, 1);
    network.run_for(7 * DELAY);
    network.assert_joined("undisturbed");
    network.log
}

/// Runs a handshake in which something happens to the datagram with this number. The sides join all the same, and neither
/// learns other credentials than the peer's.
fn assert_harmless(number: usize, what: &str, change: impl Fn(Flight) -> Vec<Flight>) {
    let mut network = network();
    network.tamper = Box::new(|sent, flight| if sent == number { change(flight) } else { vec![flight] });
    network.connect(0, 1);
    let is_up = network.run(31 * SECOND, |network| network.sides.iter().all(super::network::Side::is_up));
    assert!(is_up, "datagram {number}, {what}: {:?}", network.events());
    assert_eq!(network.credentials(0), network.sides[1].offers, "datagram {number}, {what}");
    assert_eq!(network.credentials(1), network.sides[0].offers, "datagram {number}, {what}");
    network.assert_joined(what);
}

/// The number of datagrams until both sides have an association.
const DATAGRAMS: usize = 8;

#[test]
fn no_bit_of_a_handshake_can_be_changed_with_effect() {
    for (number, flight) in handshake().iter().take(DATAGRAMS).enumerate() {
        for bit in 0..flight.bytes.len() * 8 {
            let flip = |mut flight: Flight| {
                flight.bytes[bit / 8] ^= 1 << (bit % 8);
                flight
            };
            assert_harmless(number, &format!("bit {bit}"), |flight| vec![flip(flight)]);
            // A forged copy that overtakes the genuine datagram; not all of them, as each takes a handshake.
            if bit % 8 == 0 {
                assert_harmless(number, &format!("bit {bit} before"), |flight| {
                    vec![flip(flight.clone()), flight]
                });
            }
        }
    }
}

#[test]
fn datagrams_that_are_cut_or_lengthened_have_no_effect() {
    for (number, flight) in handshake().iter().take(DATAGRAMS).enumerate() {
        for length in 0..flight.bytes.len() {
            assert_harmless(number, &format!("{length} bytes"), |mut flight| {
                flight.bytes.truncate(length);
                vec![flight]
            });
        }
        for more in [1, 16, 1_000] {
            assert_harmless(number, &format!("{more} bytes more"), |mut flight| {
                flight.bytes.resize(flight.bytes.len() + more, 0);
                vec![flight]
            });
        }
    }
}

#[test]
fn datagrams_that_are_lost_or_sent_back_do_no_harm() {
    for number in 0..DATAGRAMS {
        assert_harmless(number, "lost", |_| Vec::new());
        assert_harmless(number, "reflected", |flight| {
            let back = Flight { from: flight.to, to: flight.from, bytes: flight.bytes.clone() };
            vec![back, flight]
        });
        assert_harmless(number, "twenty times", |flight| vec![flight; 20]);
    }
}

/// The responder forgets a half-open handshake whose path is interrupted for longer than its deadline.
#[test]
fn an_interruption_in_the_middle_of_a_handshake_is_survived() {
    for (from, until) in [(5, 40), (6, 40), (7, 40), (8, 40), (7, 20)] {
        let mut network = network();
        network.sides[0].offers = vec![1; 9_000];
        network.sides[1].offers = vec![2; 9_000];
        network.tamper =
            Box::new(|sent, flight| if (from..until).contains(&sent) { Vec::new() } else { vec![flight] });
        network.connect(0, 1);
        let is_up = network.run(31 * SECOND, |network| network.sides.iter().all(super::network::Side::is_up));
        assert!(is_up, "from {from} to {until}: {:?}", network.events());
        network.assert_joined("after the interruption");
    }
}

/// All datagrams of an association, again and again.
#[test]
fn replayed_datagrams_do_nothing() {
    let mut network = network();
    network.connect(0, 1);
    network.run_for(10 * SECOND);
    for number in 0..50_u8 {
        network.send(0, 1, &[number]).unwrap();
        network.send(1, 0, &[number]).unwrap();
    }
    network.run_for(SECOND);
    let log = network.log.clone();
    let state = |network: &Network| {
        let of = |side: usize| (network.sides[side].events.clone(), network.sides[side].packets.clone());
        (of(0), of(1))
    };
    let before = state(&network);
    let cookies = network.sides[1].endpoint.counters().cookies;
    for round in 0..3 {
        for flight in &log {
            network.deliver(flight);
            // Also back to the sender.
            network.deliver(&Flight { from: flight.to, to: flight.from, bytes: flight.bytes.clone() });
        }
        network.run_for(11 * SECOND);
        assert_eq!(state(&network), before, "round {round}");
        let sizes = network.sides.iter().map(|side| side.endpoint.sizes());
        assert!(sizes.eq([[0, 0, 1]; 2]), "round {round}");
    }
    assert!(network.sides[0].endpoint.counters().replayed > 100);
    // A hello is answered by a cookie at most, as long as its own cookie is too old.
    assert!(network.sides[1].endpoint.counters().cookies > cookies);
    network.assert_joined("after replays");
}

#[test]
fn every_change_of_a_packet_is_refused_and_the_packet_is_accepted_then() {
    let mut network = network();
    network.connect(0, 1);
    network.run_for(7 * DELAY);
    network.tamper = Box::new(|_, _| Vec::new());
    let genuine = network.send(0, 1, b"genuine data").unwrap();
    for bit in 8..genuine.bytes.len() * 8 {
        let mut forged = genuine.clone();
        forged.bytes[bit / 8] ^= 1 << (bit % 8);
        network.deliver(&forged);
    }
    for length in 13..genuine.bytes.len() {
        let mut cut = genuine.clone();
        cut.bytes.truncate(length);
        network.deliver(&cut);
    }
    assert_eq!(network.sides[1].packets, []);
    let refused = &network.sides[1].refused;
    assert!(refused.iter().any(|error| matches!(error, PacketError::Unknown(_))));
    assert!(refused.contains(&PacketError::Damaged));
    network.deliver(&genuine);
    assert_eq!(network.sides[1].packets.len(), 1);
    network.deliver(&genuine);
    assert!(matches!(network.sides[1].refused.last(), Some(PacketError::Again(_))));
    // The receiver of a reflected packet is its sender, which has no such index.
    network.deliver(&Flight { from: genuine.to, to: genuine.from, bytes: genuine.bytes.clone() });
    assert!(matches!(network.sides[0].refused[..], [PacketError::Unknown(_)]));
}

#[test]
fn packets_are_reordered_across_the_edge_of_the_window() {
    let mut network = network();
    network.connect(0, 1);
    network.run_for(7 * DELAY);
    network.tamper = Box::new(|_, _| Vec::new());
    let packets: Vec<Flight> = (0..1_100).map(|_| network.send(0, 1, b"data").unwrap()).collect();
    let newest = packets.last().unwrap();
    network.deliver(newest);
    // The newest packet and the 1,023 before it are within the window.
    let within = packets.len() - 1_024;
    for late in [within, within - 1] {
        network.deliver(&packets[late]);
    }
    assert_eq!(network.sides[1].packets.len(), 2);
    assert!(matches!(network.sides[1].refused[..], [PacketError::Again(_)]));
}

/// A forged answer about versions ends no attempt, and the true one is told at the deadline.
#[test]
fn versions_are_not_negotiated_by_datagrams_that_prove_nothing() {
    let versions = |flight: &Flight, lowest, highest| {
        let mut bytes = flight.bytes[..12].to_vec();
        bytes[4] = 3;
        bytes.extend([lowest, highest]);
        bytes.extend(&flight.bytes[34..50]);
        Flight { from: flight.to, to: flight.from, bytes }
    };
    let mut forged = network();
    forged.tamper = Box::new(move |sent, flight| match sent {
        0 => vec![versions(&flight, 7, 9), flight],
        _ => vec![flight],
    });
    forged.connect(0, 1);
    forged.run_for(SECOND);
    forged.assert_joined("a forged answer");
    assert_eq!(forged.sides[0].endpoint.counters().unexpected, 0);

    // A responder of other versions: it gets hellos that offer only those.
    let mut newer = network();
    newer.tamper = Box::new(|_, mut flight| {
        if flight.bytes[4] == 1 {
            flight.bytes[32..34].copy_from_slice(&[2, 3]);
        }
        vec![flight]
    });
    newer.connect(0, 1);
    newer.run_for(40 * SECOND);
    let error = AttemptError::NoCommonVersion { lowest: 1, highest: 1 };
    assert!(
        matches!(&newer.sides[0].events[..], [(_, DatagramEvent::Failed { error: found, .. })] if *found == error)
    );
    assert_eq!(newer.sides[1].endpoint.counters().curve_steps, 0);
}

/// The messages of a handshake over a stream are invalid in datagrams.
#[test]
fn messages_of_the_other_carrier_are_refused() {
    let (_, first) = Initiator::begin(None, &mut Seeded(1)).unwrap();
    let mut network = network();
    network.tamper = Box::new(move |_, mut flight| {
        if flight.bytes[4] == 1 {
            flight.bytes[28..].copy_from_slice(&first);
        }
        vec![flight]
    });
    network.connect(0, 1);
    network.run_for(40 * SECOND);
    let replies: Vec<&Flight> = network.log.iter().filter(|flight| flight.bytes.len() == 209).collect();
    assert!(network.sides[0].ups() == 0 && replies.is_empty(), "the echo is another one");
    // The second message over a stream answers no first message in datagrams.
    let hello = handshake().swap_remove(0);
    let (_, second) =
        Responder::begin(&crate::association::pair::node(), &hello.bytes[28..], &mut Seeded(2)).unwrap();
    let mut mixed = self::network();
    mixed.tamper = Box::new(move |_, mut flight| {
        if flight.bytes.len() == 209 {
            flight.bytes[16..].copy_from_slice(&second);
        }
        vec![flight]
    });
    mixed.connect(0, 1);
    mixed.run_for(40 * SECOND);
    assert_eq!(mixed.sides[0].ups(), 0);
    assert!(mixed.sides[0].endpoint.counters().damaged > 0);
}

/// An index that differs on both sides gives different keys.
#[test]
fn the_index_of_the_responder_cannot_be_changed() {
    let mut network = network();
    network.tamper = Box::new(|_, mut flight| {
        match flight.bytes.len() {
            // The initiator learns another index; on its datagrams the attacker writes the true one again.
            209 => flight.bytes[15] ^= 1,
            _ if flight.bytes[4] == 5
                || (flight.bytes[4] == 6 && flight.from == super::network::address(1)) =>
            {
                flight.bytes[11] ^= 1;
            }
            _ => {}
        }
        vec![flight]
    });
    network.connect(0, 1);
    network.run_for(60 * SECOND);
    assert_eq!([network.sides[0].ups(), network.sides[1].ups()], [0, 0]);
    assert!(network.sides[1].endpoint.counters().damaged > 0);
}

#[test]
fn a_wrong_index_is_unknown() {
    let mut network = network();
    network.connect(0, 1);
    network.run_for(7 * DELAY);
    let before = network.sides[1].endpoint.counters().unknown;
    let genuine = network.send(0, 1, b"data").unwrap();
    let spi = u32::from_be_bytes(genuine.bytes[1..5].try_into().unwrap());
    for other in [1, spi.wrapping_add(1), !spi] {
        let mut wrong = genuine.clone();
        wrong.bytes[1..5].copy_from_slice(&other.to_be_bytes());
        network.deliver(&wrong);
        assert_eq!(network.sides[1].refused.last(), Some(&PacketError::Unknown(Spi::new(other).unwrap())));
    }
    assert_eq!(network.sides[1].endpoint.counters().unknown, before + 3);
}
