//! Peers whose address changes, and attackers who claim so.

use super::network::{DELAY, Flight, Network, SECOND, address};
use weir_trust::datagrams::{DatagramEvent, DatagramLimits};

fn joined<'a>() -> Network<'a> {
    let mut network = Network::new(31, DatagramLimits::default());
    network.connect(0, 1);
    network.run_for(SECOND);
    network.assert_joined("before");
    network
}

fn address_at_second(network: &Network) -> core::net::SocketAddr {
    network.sides[1].endpoint.address(&network.sides[0].key()).unwrap()
}

#[test]
fn a_peer_that_moves_is_followed_when_it_answers_at_its_new_address() {
    let mut network = joined();
    network.sides[0].address = address(77);
    network.run_for(SECOND);
    assert_eq!(address_at_second(&network), address(1), "nothing was sent yet");
    network.send(0, 1, b"data").unwrap();
    network.run_for(2 * DELAY);
    assert_eq!(address_at_second(&network), address(1), "the challenge is not answered yet");
    network.run_for(2 * DELAY);
    assert_eq!(address_at_second(&network), address(77));
    let moved = DatagramEvent::Moved { peer: network.sides[0].key(), address: address(77) };
    assert_eq!(network.sides[1].events.last().unwrap().1, moved);
    network.assert_joined("after");
}

#[test]
fn a_copied_packet_redirects_nothing() {
    let mut network = joined();
    network.tamper = Box::new(|_, _| Vec::new());
    let genuine = network.send(0, 1, b"data").unwrap();
    network.tamper = Box::new(|_, flight| vec![flight]);
    let logged = network.log.len();
    // The attacker's copy arrives first, from the address of a victim.
    network.deliver(&Flight { from: address(99), ..genuine.clone() });
    network.deliver(&genuine);
    network.run_for(20 * SECOND);
    assert_eq!(address_at_second(&network), address(1));
    let to_victim: Vec<usize> = network.log[logged..]
        .iter()
        .filter(|flight| flight.to == address(99))
        .map(|f| f.bytes.len())
        .collect();
    assert!(to_victim.len() <= 4 && to_victim.iter().all(|bytes| *bytes < 64), "{to_victim:?}");
    network.assert_joined("after the copy");
}

#[test]
fn forged_packets_from_another_address_are_not_even_challenged() {
    let mut network = joined();
    network.tamper = Box::new(|_, _| Vec::new());
    let mut forged = network.send(0, 1, b"data").unwrap();
    network.tamper = Box::new(|_, flight| vec![flight]);
    *forged.bytes.last_mut().unwrap() ^= 1;
    let logged = network.log.len();
    network.deliver(&Flight { from: address(99), ..forged });
    network.run_for(20 * SECOND);
    assert!(network.log[logged..].iter().all(|flight| flight.to != address(99)));
}
