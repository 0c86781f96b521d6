//! Many senders with forged addresses, while a valid peer is served.

use super::network::{DELAY, Flight, Network, SECOND};
use core::net::SocketAddr;
use weir_trust::datagrams::{DatagramEvent, DatagramLimits};

fn network() -> Network<'static> {
    Network::new(11, DatagramLimits::default())
}

/// A hello of an honest initiator.
fn hello() -> Flight {
    let mut network = network();
    network.connect(0, 1);
    network.log.swap_remove(0)
}

fn spoofed(number: u32) -> SocketAddr {
    SocketAddr::new(core::net::Ipv4Addr::from_bits(0x0a00_0000 + number).into(), 40_000)
}

#[test]
fn ten_thousand_forged_sources_cost_no_state_and_no_operation_on_the_curve() {
    let (mut network, template) = (network(), hello());
    let mut longest_answers = 0;
    for number in 0..10_000_u32 {
        let mut bytes = template.bytes.clone();
        bytes[8..12].copy_from_slice(&(number + 1).to_be_bytes());
        // Another ephemeral key, and for one half a forged cookie.
        bytes[40..44].copy_from_slice(&number.to_be_bytes());
        bytes[12..28].fill(u8::from(number % 2 == 0));
        let flight = Flight { from: spoofed(number), to: network.sides[1].address, bytes };
        let logged = network.log.len();
        network.deliver(&flight);
        let answers: usize = network.log[logged..].iter().map(|answer| answer.bytes.len()).sum();
        assert!(answers <= flight.bytes.len(), "{answers} bytes in answer to {}", flight.bytes.len());
        longest_answers = longest_answers.max(answers);
        assert_eq!(network.sides[1].endpoint.sizes(), [0, 0, 0]);
        if number == 5_000 {
            network.connect(0, 1);
        }
    }
    assert!(longest_answers > 0);
    assert_eq!(network.sides[1].endpoint.counters().curve_steps, 0);
    // The valid peer, which began in between, takes as long as without the flood.
    network.run_until(SECOND + 7 * DELAY);
    network.assert_joined("after the flood");
    let counters = network.sides[1].endpoint.counters();
    assert_eq!((counters.cookies, counters.curve_steps), (10_001, 2));
}

/// A cookie is worth nothing at another address, for another hello, or later.
#[test]
fn a_cookie_of_another_address_opens_nothing() {
    let mut network = network();
    network.connect(0, 1);
    network.run_for(2 * DELAY);
    let with_cookie = network.log[2].clone();
    assert_eq!(with_cookie.bytes.len(), 221);
    let before = network.sides[1].endpoint.counters();
    for number in 0..1_000 {
        network.deliver(&Flight { from: spoofed(number), ..with_cookie.clone() });
    }
    let counters = network.sides[1].endpoint.counters();
    assert_eq!((counters.cookies, counters.curve_steps), (before.cookies + 1_000, before.curve_steps));
    network.run_for(60 * SECOND);
    let before = network.sides[1].endpoint.counters();
    network.deliver(&with_cookie);
    assert_eq!(network.sides[1].endpoint.counters().cookies, before.cookies + 1);
}

/// Attackers with real addresses use up the gate's rate, but no more than that.
#[test]
fn attackers_who_receive_their_cookies_are_limited_by_the_gate() {
    let (mut network, template) = (network(), hello());
    let limits = DatagramLimits::default().gate;
    for number in 0..4_000_u32 {
        let mut bytes = template.bytes.clone();
        bytes[40..44].copy_from_slice(&number.to_be_bytes());
        let from = spoofed(number * 256);
        let logged = network.log.len();
        network.deliver(&Flight { from, to: template.to, bytes: bytes.clone() });
        let cookie = network.log[logged].bytes[12..28].to_vec();
        bytes[12..28].copy_from_slice(&cookie);
        network.deliver(&Flight { from, to: template.to, bytes });
        assert!(network.sides[1].endpoint.sizes()[0] <= limits.half_open);
    }
    let steps = network.sides[1].endpoint.counters().curve_steps;
    assert!((1..=u64::from(limits.unproven.burst)).contains(&steps), "{steps}");
    network.run_for(60 * SECOND);
    assert_eq!(network.sides[1].endpoint.sizes(), [0, 0, 0]);
    // A peer that comes then is served.
    network.connect(0, 1);
    network.run_for(SECOND);
    network.assert_joined("after the attack");
    let ups = network.sides[1].events.iter().filter(|(_, event)| matches!(event, DatagramEvent::Up { .. }));
    assert_eq!(ups.count(), 1);
}
