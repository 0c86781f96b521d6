//! Honest sides, on good and on bad networks.

use super::network::{DELAY, Flight, MS, Network, SECOND};
use sha2::{Digest, Sha256};
use weir_trust::association::{CREDENTIALS_BYTES_MAX, HandshakeError};
use weir_trust::datagrams::{
    AttemptError, DatagramEvent, DatagramLimits, DownReason, PATH_BYTES_MIN, PacketError,
};
use weir_units::Nanos;

fn network(seed: u64) -> Network<'static> {
    Network::new(seed, DatagramLimits::default())
}

#[test]
fn both_sides_know_each_other_after_three_round_trips() {
    let mut network = network(1);
    network.connect(0, 1);
    network.run_until(SECOND + 6 * DELAY);
    assert_eq!((network.sides[0].ups(), network.sides[1].ups()), (1, 0));
    network.run_for(DELAY);
    network.assert_joined("no disorder");
    assert_eq!(network.credentials(0), network.sides[1].offers);
    assert_eq!(network.credentials(1), network.sides[0].offers);
    // Nothing was repeated, and each side has nothing half open.
    for side in &network.sides {
        assert_eq!((side.endpoint.counters().repeated, side.endpoint.sizes()), (0, [0, 0, 1]));
    }
}

#[test]
fn credentials_of_every_length_arrive() {
    for bytes in [0, 1, 1_024, 1_025, CREDENTIALS_BYTES_MAX] {
        let mut network = network(2);
        network.sides[0].offers = vec![7; bytes];
        network.sides[1].offers = (0..bytes).map(|at| u8::try_from(at % 251).unwrap()).collect();
        network.connect(0, 1);
        network.run_for(SECOND);
        network.assert_joined("lengths");
        assert_eq!(network.credentials(0), network.sides[1].offers);
        assert_eq!(network.credentials(1), network.sides[0].offers);
        // Every path carries the datagrams of a handshake. Both sides' first probes come after it.
        let lengths: Vec<usize> = network.log.iter().map(|flight| flight.bytes.len()).collect();
        let first_probe = lengths.iter().position(|length| *length == 1_372).unwrap();
        assert!(first_probe > 5 && lengths[..first_probe].iter().all(|length| *length <= PATH_BYTES_MIN));
    }
}

#[test]
fn a_network_that_loses_repeats_and_reorders_a_fifth_of_all_datagrams_is_enough() {
    for seed in 0..100 {
        let mut network = network(seed);
        network.disorder = 20;
        network.sides[0].offers = vec![1; 5_000];
        network.sides[1].offers = vec![2; CREDENTIALS_BYTES_MAX];
        network.connect(0, 1);
        let is_up = network.run(31 * SECOND, |network| network.sides.iter().all(super::network::Side::is_up));
        assert!(is_up, "seed {seed}: {:?}", network.events());
        network.run_for(SECOND);
        network.assert_joined(&format!("seed {seed}"));
        assert_eq!(network.credentials(0), [2; CREDENTIALS_BYTES_MAX]);
        assert_eq!(network.credentials(1), [1; 5_000]);
        for _ in 0..200 {
            network.send(0, 1, b"data").unwrap();
            network.run_for(MS);
        }
        network.run_for(SECOND);
        // The first packet is that of `assert_joined`. None arrives twice.
        let arrived = network.sides[1].packets.len() - 1;
        assert!((100..=200).contains(&arrived), "seed {seed}: {arrived}");
    }
}

#[test]
fn two_sides_that_open_at_the_same_time_have_one_association() {
    for seed in 0..100 {
        let mut network = network(seed);
        network.disorder = 20 * (seed % 2);
        network.connect(0, 1);
        network.run_for(seed % 10 * 7 * MS);
        network.connect(1, 0);
        network.run_for(40 * SECOND);
        network.assert_joined(&format!("seed {seed}"));
        // What was replaced is gone after its time.
        network.run_for(120 * SECOND);
        network.assert_joined(&format!("seed {seed}, later"));
        for side in &network.sides {
            assert_eq!(side.endpoint.sizes(), [0, 0, 1], "seed {seed}");
            let is_down = side.events.iter().any(|(_, event)| matches!(event, DatagramEvent::Down { .. }));
            assert!(!is_down, "seed {seed}");
        }
    }
}

#[test]
fn a_side_that_restarts_makes_a_new_association() {
    for restarted in 0..2 {
        let mut network = network(4);
        network.connect(0, 1);
        network.run_for(SECOND);
        network.assert_joined("before");
        let before = network.log.len();
        network.restart(restarted);
        // Old packets mean nothing to the new process.
        network.send(1 - restarted, restarted, b"lost").unwrap();
        network.run_for(SECOND);
        assert!(matches!(network.sides[restarted].refused[..], [PacketError::Unknown(_)]));
        network.connect(restarted, 1 - restarted);
        network.run_for(SECOND);
        network.assert_joined("after");
        let peer = &network.sides[1 - restarted];
        assert!(matches!(peer.events.last(), Some((_, DatagramEvent::Up { renews: true, .. }))));
        // No packet of the association before is accepted.
        let old: Vec<Flight> = network.log[..before].to_vec();
        let packets = network.sides[restarted].packets.len();
        old.iter().for_each(|flight| network.launch(flight.clone()));
        network.run_for(10 * SECOND);
        assert_eq!(network.sides[restarted].packets.len(), packets);
        network.assert_joined("after old packets");
    }
}

#[test]
fn a_peer_that_stops_is_noticed_and_an_idle_one_is_kept() {
    let mut network = network(5);
    network.connect(0, 1);
    network.run_for(600 * SECOND);
    network.assert_joined("idle");
    network.restart(1);
    network.sides[1].accepts = false;
    network.run_for(90 * SECOND);
    let down = DatagramEvent::Down { peer: network.sides[1].key(), reason: DownReason::Silent };
    assert_eq!(network.sides[0].events.last().unwrap().1, down);
    assert_eq!(network.sides[0].endpoint.sizes(), [0, 0, 0]);
    assert_eq!(network.send(0, 1, b"data"), Err(PacketError::NoAssociation));
}

#[test]
fn a_closed_association_is_over_on_both_sides() {
    let mut network = network(5);
    network.connect(0, 1);
    network.run_for(SECOND);
    let (here, there) = (network.sides[0].key(), network.sides[1].key());
    network.sides[0].endpoint.close(&there).unwrap();
    network.collect(0);
    network.run_for(SECOND);
    let down = DatagramEvent::Down { peer: here, reason: DownReason::Closed };
    assert_eq!(network.sides[1].events.last().unwrap().1, down);
    assert!(network.sides.iter().all(|side| side.endpoint.sizes() == [0, 0, 0]));
    assert!(network.sides[0].endpoint.close(&there).is_err());
}

/// The error of the only failed attempt.
fn failure(network: &Network) -> AttemptError {
    match &network.sides[0].events[..] {
        [(_, DatagramEvent::Failed { error, .. })] => error.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_attempt_that_fails_says_why() {
    // The peer refuses.
    let mut refusing = network(6);
    refusing.sides[1].accepts = false;
    refusing.connect(0, 1);
    refusing.run_for(SECOND);
    assert_eq!(failure(&refusing), AttemptError::Refused);
    assert_eq!(refusing.sides[1].endpoint.sizes(), [0, 0, 0]);

    // No datagram arrives.
    let mut silent = network(6);
    silent.disorder = 100;
    silent.connect(0, 1);
    silent.run_for(40 * SECOND);
    assert_eq!(failure(&silent), AttemptError::Late);
    // The intervals double from 250 ms to 4 s.
    assert_eq!(silent.log.len(), 11);

    // Another party answers.
    let mut wrong = network(6);
    let (address, own) = (wrong.sides[1].address, wrong.sides[0].key());
    let other = weir_trust::key::Identity::from_seed(&[9; 32]).public();
    let side = &mut wrong.sides[0];
    side.endpoint.connect(Nanos(SECOND), address, Some(other), b"secret", &mut side.random).unwrap();
    wrong.collect(0);
    wrong.run_for(40 * SECOND);
    let found = wrong.sides[1].key();
    let unexpected = HandshakeError::Unexpected { expected: other, found };
    assert_eq!(failure(&wrong), AttemptError::Handshake(unexpected));
    // It has learned nothing of the initiator.
    assert!(wrong.sides[1].events.is_empty());
    let has_own = |flight: &Flight| flight.bytes.windows(32).any(|part| part == own.as_bytes());
    assert!(!wrong.log.iter().any(has_own));
}

#[test]
fn the_longest_datagram_of_a_path_is_found() {
    for (carries, found) in [(1_300, PATH_BYTES_MIN), (1_450, 1_432), (1_472, 1_472)] {
        let mut network = network(7);
        network.carries = carries;
        network.connect(0, 1);
        network.run_for(30 * SECOND);
        for (side, peer) in [(0, 1), (1, 0)] {
            let peer = network.sides[peer].key();
            assert_eq!(network.sides[side].endpoint.path_bytes(&peer), Some(found));
        }
    }
}

/// Checks that docs/WIRE.md describes these bytes: another implementation with the same randomness writes the same.
#[test]
fn the_bytes_of_the_datagrams_are_those_of_version_1() {
    let mut network = network(42);
    network.connect(0, 1);
    network.run_for(7 * DELAY);
    let lengths: Vec<usize> = network.log.iter().take(9).map(|flight| flight.bytes.len()).collect();
    assert_eq!(lengths[..5], [221, 44, 221, 209, 172], "{lengths:?}");
    let bytes: Vec<u8> = network.log.iter().take(9).flat_map(|flight| flight.bytes.clone()).collect();
    let text: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(text, "f5d7a2ce016021b7da690a063dc34e85197becac2740fd07c3d4bb90c9509979");
}
