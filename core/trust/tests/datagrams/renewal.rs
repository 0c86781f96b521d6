//! New keys before the limits of old ones, and the limits themselves.

use super::network::{DELAY, MS, Network, SECOND};
use weir_trust::datagrams::{DatagramEvent, DatagramLimits, DownReason, PacketError};
use weir_units::Nanos;

#[test]
fn keys_are_renewed_without_a_gap() {
    for (seed, disorder) in [(1, 0), (2, 0), (3, 20), (4, 20), (5, 20)] {
        let limits = DatagramLimits { renew_packets: 500, packets_max: 20_000, ..DatagramLimits::default() };
        let mut network = Network::new(seed, limits);
        network.connect(0, 1);
        network.run_for(SECOND);
        network.disorder = disorder;
        let count = 5_000;
        for _ in 0..count {
            network.send(0, 1, b"there").unwrap();
            network.send(1, 0, b"back").unwrap();
            network.run_for(MS);
        }
        network.run_for(SECOND);
        for side in &network.sides {
            assert!(side.ups() >= 4, "{} associations", side.ups());
            // Only copies are refused, and no packet for want of a key.
            assert!(
                side.refused.iter().all(|error| matches!(error, PacketError::Again(_))),
                "{:?}",
                side.refused
            );
            if disorder == 0 {
                assert_eq!((side.packets.len(), side.refused.len()), (count, 0));
            }
            assert!(!side.events.iter().any(|(_, event)| matches!(event, DatagramEvent::Down { .. })));
        }
        network.disorder = 0;
        network.run_for(120 * SECOND);
        network.assert_joined("after renewals");
        assert!(network.sides.iter().all(|side| side.endpoint.sizes()[2] == 1));
    }
}

#[test]
fn keys_are_renewed_by_their_age_with_and_without_traffic() {
    let limits = DatagramLimits::default();
    let mut network = Network::new(6, limits);
    network.connect(0, 1);
    network.run_for(5 * limits.renew_age.0 + 60 * SECOND);
    assert_eq!((network.sides[0].ups(), network.sides[1].ups()), (6, 6));
    network.assert_joined("after five hours");
}

/// The path carries packets, but no handshake.
fn without_renewal(limits: DatagramLimits) -> Network<'static> {
    let mut network = Network::new(7, limits);
    network.connect(0, 1);
    network.run_for(7 * DELAY);
    network.assert_joined("before");
    network.tamper = Box::new(|_, flight| {
        let is_hello = flight.bytes[0] == b'w' && flight.bytes[4] == 1;
        if is_hello { Vec::new() } else { vec![flight] }
    });
    network
}

#[test]
fn no_key_encrypts_more_packets_than_its_limit() {
    let limits = DatagramLimits { renew_packets: 50, packets_max: 100, ..DatagramLimits::default() };
    let mut network = without_renewal(limits);
    let mut sent = 0;
    while network.send(0, 1, b"data").is_ok() {
        sent += 1;
        assert!(sent < 100);
    }
    assert!(sent > 80, "{sent}");
    assert_eq!(network.send(0, 1, b"data"), Err(PacketError::UsedUp));
    // The other direction has a counter of its own.
    network.send(1, 0, b"data").unwrap();
    network.run_for(SECOND);
    // When handshakes are possible again, there are new keys.
    network.tamper = Box::new(|_, flight| vec![flight]);
    network.run_for(40 * SECOND);
    network.assert_joined("with new keys");
}

#[test]
fn a_receiver_refuses_counters_beyond_the_limit() {
    let limits = DatagramLimits { packets_max: 100, ..DatagramLimits::default() };
    let mut network = without_renewal(limits);
    network.tamper = Box::new(|_, _| Vec::new());
    let genuine = network.send(0, 1, b"data").unwrap();
    for counter in [100, 101, u64::MAX - 1, u64::MAX] {
        let mut forged = genuine.clone();
        forged.bytes[5..13].copy_from_slice(&u64::to_be_bytes(counter));
        network.deliver(&forged);
        assert_eq!(network.sides[1].refused.last(), Some(&PacketError::UsedUp));
    }
    assert_eq!(network.sides[1].endpoint.counters().used_up, 4);
}

#[test]
fn old_keys_are_neither_used_nor_accepted() {
    let limits = DatagramLimits {
        renew_age: Nanos(60 * SECOND),
        age_max: Nanos(120 * SECOND),
        ..DatagramLimits::default()
    };
    let mut network = without_renewal(limits);
    network.run_for(119 * SECOND - 10 * DELAY);
    network.assert_joined("just before the limit");
    let late = network.send(0, 1, b"late").unwrap();
    network.run_for(2 * SECOND);
    let down = DatagramEvent::Down { peer: network.sides[1].key(), reason: DownReason::UsedUp };
    assert!(network.sides[0].events.iter().any(|(_, event)| *event == down));
    assert_eq!(network.send(0, 1, b"data"), Err(PacketError::NoAssociation));
    let packets = network.sides[1].packets.len();
    network.deliver(&late);
    assert_eq!(network.sides[1].packets.len(), packets);
}

#[test]
fn a_peer_that_renews_again_and_again_has_few_associations() {
    let mut network = Network::new(8, DatagramLimits { associations: 1, ..DatagramLimits::default() });
    for round in 0..60 {
        network.connect(round % 2, 1 - round % 2);
        network.run_for(100 * MS);
        let sizes = network.sides.iter().map(|side| side.endpoint.sizes()[2]);
        assert!(sizes.max().unwrap() <= 5, "round {round}");
        network.assert_joined(&format!("round {round}"));
    }
    // Another peer has no place.
    let limits = DatagramLimits::default();
    let identity = weir_trust::key::Identity::from_seed(&[3; 32]);
    network.join(identity, super::network::address(3), limits, 9);
    network.connect(2, 1);
    network.run_for(SECOND);
    assert!(matches!(network.sides[2].events[..], [(_, DatagramEvent::Failed { .. })]));
    network.assert_joined("with a third side");
}
