//! The work for unauthenticated peers, in simulated time: a few that send much, many that send little, and an honest
//! one among them.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use proptest::prelude::{ProptestConfig, any, proptest};
use std::collections::{BTreeMap, BTreeSet};
use weir_trust::gate::{
    GateCounters, GateLimits, HalfOpenTicket, HandshakeGate, HandshakeRefusal, RateLimit,
};
use weir_units::Nanos;

const MS: u64 = Nanos::MILLISECOND.0;

fn v4(network: u32, host: u32) -> IpAddr {
    Ipv4Addr::from_bits((10 << 24) | (network << 8) | host).into()
}

fn honest() -> IpAddr {
    Ipv4Addr::new(192, 0, 2, 1).into()
}

/// Honest peers of different networks.
fn honest_number(number: usize) -> IpAddr {
    Ipv4Addr::new(192, 0, u8::try_from(number).unwrap(), 1).into()
}

/// A handshake among attackers' connections: each of its messages takes a round trip of 50 ms. A peer that is closed
/// tries again, as `weir` does.
struct Try {
    from: IpAddr,
    begin: u64,
    /// True if the peer's source has shown a valid credential before.
    is_known: bool,
}

const ROUND_TRIP: u64 = 50 * MS;
/// The time after which a client gives up, and the pauses between its tries.
const PATIENCE: u64 = 10_000 * MS;
const PAUSES: [u64; 3] = [200 * MS, 400 * MS, 800 * MS];

/// The step of one peer's try.
#[derive(Clone, Copy, Debug)]
enum Step {
    Begins { at: u64 },
    Connects { ticket: HalfOpenTicket, at: u64 },
    Waits { ticket: HalfOpenTicket },
    Introduces { ticket: HalfOpenTicket, at: u64 },
    Through { after: u64 },
    GivenUp,
}

/// An attack: connections every `every` ns, from the addresses of `from`. Of each `asks` connections one sends its
/// first message, and nothing else.
struct Attack<F> {
    every: u64,
    count: u32,
    asks: u32,
    from: F,
}

/// Simulates peers during an attack. Returns the time that each took, or `None`, and the gate's counters.
fn simulate<F: Fn(u32) -> IpAddr>(
    limits: GateLimits,
    attack: &Attack<F>,
    peers: &[Try],
) -> (Vec<Option<u64>>, GateCounters) {
    let mut gate = HandshakeGate::new(limits);
    for known in peers.iter().filter(|peer| peer.is_known) {
        gate.prove(known.from, Nanos(0));
    }
    let mut steps: Vec<(Step, usize)> =
        peers.iter().map(|peer| (Step::Begins { at: peer.begin }, 0)).collect();
    for number in 0..attack.count {
        let now = u64::from(number) * attack.every;
        let mut gone: Vec<HalfOpenTicket> = gate.expire(Nanos(now));
        for (peer, (step, tries)) in peers.iter().zip(&mut steps) {
            match *step {
                Step::Begins { at } if at > peer.begin + PATIENCE => *step = Step::GivenUp,
                Step::Begins { at } if at <= now => {
                    let admission = gate.admit(peer.from, Nanos(now));
                    gone.extend(admission.evicted);
                    *tries += 1;
                    *step = Step::Connects { ticket: admission.ticket, at: now + ROUND_TRIP };
                }
                Step::Connects { ticket, at } if at <= now => {
                    *step = match gate.first_message_arrived(ticket, Nanos(now)) {
                        Ok(()) => Step::Waits { ticket },
                        Err(_) => Step::Begins { at: now + PAUSES[(*tries - 1).min(2)] },
                    };
                }
                Step::Introduces { ticket, at } if at <= now => {
                    *step = if gate.leave(ticket, Nanos(now)) {
                        gate.prove(peer.from, Nanos(now));
                        Step::Through { after: now - peer.begin }
                    } else {
                        Step::Begins { at: now + PAUSES[(*tries - 1).min(2)] }
                    };
                }
                _ => {}
            }
        }
        let admission = gate.admit((attack.from)(number), Nanos(now));
        gone.extend(admission.evicted);
        if number % attack.asks == 0 {
            _ = gate.first_message_arrived(admission.ticket, Nanos(now));
        }
        while let Some(turn) = gate.next(Nanos(now)) {
            for (step, _) in &mut steps {
                if matches!(step, Step::Waits { ticket } if *ticket == turn.ticket) {
                    *step = Step::Introduces { ticket: turn.ticket, at: now + 2 * ROUND_TRIP };
                }
            }
        }
        assert!(gate.half_open() <= limits.half_open);
        for (step, tries) in &mut steps {
            if let Step::Connects { ticket, .. } | Step::Waits { ticket } | Step::Introduces { ticket, .. } =
                step
                && gone.contains(ticket)
            {
                *step = Step::Begins { at: now + PAUSES[(*tries - 1).min(2)] };
            }
        }
    }
    let through = |(step, _): &(Step, usize)| match step {
        Step::Through { after } => Some(*after),
        _ => None,
    };
    (steps.iter().map(through).collect(), gate.counters())
}

/// Peers that connect one after the other, each from a network of its own.
fn new_peers(count: usize, every: u64) -> Vec<Try> {
    let peer = |number| Try { from: honest_number(number), begin: number as u64 * every, is_known: false };
    (0..count).map(peer).collect()
}

#[test]
fn an_honest_handshake_gets_through_ten_thousand_half_open_ones_of_a_few_sources() {
    // 10,000 in a second, from one to two hundred sources in as many networks; an honest one begins every 40 ms.
    for sources in [1, 2, 8, 200] {
        let attack =
            Attack { every: MS / 10, count: 12_000, asks: 4, from: |number| v4(number % sources, 1) };
        let (through, _) = simulate(GateLimits::default(), &attack, &new_peers(20, 40 * MS));
        // Within its own round trips and the time between two answers: attackers delay it no more than that.
        assert!(
            through.iter().all(|age| age.is_some_and(|age| age <= 3 * ROUND_TRIP + 25 * MS)),
            "{sources}: {through:?}"
        );
    }
}

#[test]
fn a_flood_of_first_messages_is_answered_at_a_fixed_rate_and_new_sources_come_before_those_of_the_flood() {
    // 1,000 a second from 200 sources, each in a network of its own, or all in one, for a minute.
    for in_one in [false, true] {
        let from = |number: u32| if in_one { v4(1, number % 200) } else { v4(number % 200, 1) };
        let attack = Attack { every: MS, count: 60_000, asks: 1, from };
        let (through, counters) = simulate(GateLimits::default(), &attack, &new_peers(60, 900 * MS));
        assert!(
            through.iter().all(|age| age.is_some_and(|age| age <= 3 * ROUND_TRIP + 45 * MS)),
            "{in_one}: {through:?}"
        );
        // The burst, and 50 a second; nothing else costs arithmetic on the curve. Valid peers get the rate of proven
        // sources only later.
        assert!((3_000..=250 + 3_000 + 1).contains(&counters.answered), "{counters:?}");
        assert_eq!(counters.proven, 60);
        assert!(counters.unanswered > 50_000, "{counters:?}");
    }
}

#[test]
fn a_proven_source_is_answered_at_once_while_new_sources_use_up_their_rate() {
    // A new source for each message, none of which comes again: 200,000 networks, 2,000 a second.
    let attack = Attack { every: MS / 2, count: 40_000, asks: 1, from: |number| v4(number, 1) };
    let known = |number: usize| Try { is_known: true, ..new_peers(number + 1, 200 * MS).pop().unwrap() };
    let peers: Vec<Try> = (0..40).map(known).collect();
    let (through, counters) = simulate(GateLimits::default(), &attack, &peers);
    assert!(through.iter().all(|age| age.is_some_and(|age| age <= 3 * ROUND_TRIP + 5 * MS)), "{through:?}");
    // The answers to proven sources did not count against the rate for others.
    assert!((1_000 + 40..=250 + 1_000 + 40 + 1).contains(&counters.answered), "{counters:?}");
}

#[test]
fn valid_peers_behind_the_same_address_as_an_attacker_are_served() {
    // 36 handshakes a second, and a valid peer every 200 ms, all from one address.
    let from = |_| honest();
    let attack = Attack { every: MS / 10, count: 120_000, asks: 1, from };
    let attack = Attack { every: 1_000 * MS / 36, count: 36 * 12, ..attack };
    let peers: Vec<Try> =
        (0..49).map(|number| Try { from: honest(), begin: number * 200 * MS, is_known: false }).collect();
    let (through, counters) = simulate(GateLimits::default(), &attack, &peers);
    assert!(through.iter().all(Option::is_some), "{through:?}");
    assert_eq!(counters.refused_source, 0);
}

#[test]
fn a_network_counts_as_one_however_many_addresses_it_has() {
    // An IPv4 /24 with all of its addresses, and an IPv6 /48 with a new /64 for each connection.
    let of_v4 = |number: u32| v4(7, number % 256);
    let of_v6 = |number: u32| {
        IpAddr::from(Ipv6Addr::from_bits((0x2001_0db8_0007 << 80) | (u128::from(number) << 64) | 1))
    };
    let limits = GateLimits { unproven: GENEROUS, ..GateLimits::default() };
    let peers = new_peers(20, 40 * MS);
    for (through, _) in [
        simulate(limits, &Attack { every: MS / 10, count: 10_000, asks: 4, from: of_v4 }, &peers),
        simulate(limits, &Attack { every: MS / 10, count: 10_000, asks: 4, from: of_v6 }, &peers),
    ] {
        assert!(through.iter().all(Option::is_some), "{through:?}");
    }
}

const GENEROUS: RateLimit = RateLimit { every: Nanos(1_000), burst: 100_000 };

#[test]
fn attackers_with_more_networks_than_places_can_evict_unproven_peers() {
    let limits = GateLimits { unproven: GENEROUS, ..GateLimits::default() };
    // 256 places, and 10,000 connections in a second from different networks each: all 256 are new within 26 ms.
    let mut gate = HandshakeGate::new(limits);
    let first = gate.admit(honest(), Nanos(0)).ticket;
    let evicted: Vec<u32> = (0..1000)
        .filter(|number| {
            gate.admit(v4(*number, 1), Nanos(u64::from(*number) * MS / 10)).evicted == Some(first)
        })
        .collect();
    assert_eq!(evicted, [255], "only after all others are newer");
    // A proven source stays.
    gate.prove(honest(), Nanos(0));
    let proven = gate.admit(honest(), Nanos(0)).ticket;
    assert!((1000..2000).all(|number| gate.admit(v4(number, 1), Nanos(0)).evicted != Some(proven)));
    // If they connect more slowly than an honest handshake takes, it gets through.
    let attack = Attack { every: MS, count: 2_000, asks: 4, from: |number| v4(number, 1) };
    let (through, _) = simulate(limits, &attack, &new_peers(20, 40 * MS));
    assert!(through.iter().all(Option::is_some), "{through:?}");
}

#[test]
fn a_proven_source_keeps_a_few_places_and_no_more() {
    let mut gate = HandshakeGate::new(GateLimits { half_open: 32, ..GateLimits::default() });
    gate.prove(honest(), Nanos(0));
    // A flood from the proven source itself: beyond its few places it is treated as any other.
    let flood: Vec<HalfOpenTicket> = (0..32).map(|_| gate.admit(honest(), Nanos(0)).ticket).collect();
    let evicted: Vec<Option<HalfOpenTicket>> =
        (0..64).map(|number| gate.admit(v4(number, 1), Nanos(0)).evicted).collect();
    let lost = flood.iter().filter(|ticket| evicted.contains(&Some(**ticket))).count();
    assert_eq!(lost, 24);
}

#[test]
fn the_source_with_the_most_handshakes_gives_way_and_of_those_the_oldest() {
    let mut gate = HandshakeGate::new(GateLimits { half_open: 4, ..GateLimits::default() });
    let mut admit = |from| gate.admit(from, Nanos(0));
    let alone = admit(v4(1, 1));
    let few = [admit(v4(2, 1)), admit(v4(2, 2)), admit(v4(2, 1))];
    assert!([alone, few[0], few[1], few[2]].iter().all(|admission| admission.evicted.is_none()));
    // In network 2, host 1 has two handshakes.
    let third = admit(v4(3, 1));
    assert_eq!(third.evicted, Some(few[0].ticket));
    // Now both hosts have one: the older one is evicted.
    assert_eq!(admit(v4(4, 1)).evicted, Some(few[1].ticket));
    // All have one: the oldest is evicted. A host that is there already takes another place.
    let again = admit(v4(3, 1));
    assert_eq!(again.evicted, Some(third.ticket));
    assert_eq!(admit(v4(5, 1)).evicted, Some(alone.ticket));
}

#[test]
fn among_equals_the_source_whose_handshakes_failed_gives_way() {
    let mut gate = HandshakeGate::new(GateLimits { half_open: 2, ..GateLimits::default() });
    let bad = gate.admit(v4(1, 1), Nanos(0)).ticket;
    assert_eq!(gate.first_message_arrived(bad, Nanos(0)), Ok(()));
    assert_eq!(gate.next(Nanos(0)).map(|turn| turn.ticket), Some(bad));
    assert!(gate.leave(bad, Nanos(1)));
    // Both have one connection, and the other's is older.
    let (other, again) = (gate.admit(v4(2, 1), Nanos(2)).ticket, gate.admit(v4(1, 1), Nanos(3)).ticket);
    assert_eq!(gate.admit(v4(3, 1), Nanos(4)).evicted, Some(again));
    // After ten minutes it is as any other source.
    let mut gate_later = |from| gate.admit(from, Nanos(700_000 * MS));
    assert_eq!(gate_later(v4(1, 1)).evicted, Some(other));
}

#[test]
fn a_handshake_ends_at_its_deadline() {
    let limits = GateLimits { deadline: Nanos(100 * MS), ..GateLimits::default() };
    let mut gate = HandshakeGate::new(limits);
    let [one, two, three] = [0, 10, 20].map(|ms| gate.admit(honest(), Nanos(ms * MS)).ticket);
    assert_eq!(gate.next_event(Nanos(20 * MS)), Some(Nanos(100 * MS)));
    assert_eq!(gate.first_message_arrived(two, Nanos(50 * MS)), Ok(()));
    // An answer extends its deadline.
    let turn = gate.next(Nanos(50 * MS)).unwrap();
    assert_eq!((turn.ticket, turn.until), (two, Nanos(150 * MS)));
    assert_eq!(gate.expire(Nanos(99 * MS)), []);
    assert_eq!(gate.expire(Nanos(110 * MS)), [one]);
    assert_eq!(gate.first_message_arrived(one, Nanos(110 * MS)), Err(HandshakeRefusal::Evicted));
    assert_eq!(gate.expire(Nanos(150 * MS)), [two, three]);
    // The caller learns which handshakes are over.
    assert!(!gate.leave(two, Nanos(150 * MS)));
    // Also without a call of `expire`.
    let late = gate.admit(honest(), Nanos(200 * MS)).ticket;
    assert_eq!(gate.first_message_arrived(late, Nanos(300 * MS)), Err(HandshakeRefusal::Late));
    let late = gate.admit(honest(), Nanos(200 * MS)).ticket;
    assert!(!gate.leave(late, Nanos(300 * MS)));
    assert_eq!((gate.half_open(), gate.next_event(Nanos(0))), (0, None));
    assert_eq!(
        gate.counters(),
        GateCounters { admitted: 5, late: 5, answered: 1, ..GateCounters::default() }
    );
}

#[test]
fn one_source_is_answered_at_its_rate_and_takes_nothing_from_others() {
    let limits = GateLimits {
        source: RateLimit { every: Nanos(100 * MS), burst: 3 },
        waiting: 0,
        unproven: RateLimit { every: Nanos(10 * MS), burst: 10 },
        ..GateLimits::default()
    };
    let mut gate = HandshakeGate::new(limits);
    let mut ask = |from, now| {
        let ticket = gate.admit(from, Nanos(now)).ticket;
        let first = gate.first_message_arrived(ticket, Nanos(now));
        let answered = gate.next(Nanos(now)).map(|turn| turn.ticket);
        assert_eq!(gate.leave(ticket, Nanos(now)), first.is_ok(), "a refused handshake is over");
        (first, answered == Some(ticket))
    };
    let flood: Vec<_> = (0..1000).map(|_| ask(v4(1, 1), 0)).collect();
    assert_eq!(flood.iter().filter(|answer| **answer == (Ok(()), true)).count(), 3);
    assert!(flood[3..].iter().all(|answer| *answer == (Err(HandshakeRefusal::Source), false)));
    // Of the common burst of ten, seven are left, whatever that source did.
    let others: Vec<_> = (2..20).map(|number| ask(v4(number, 1), 0)).collect();
    assert_eq!(others.iter().filter(|answer| answer.1).count(), 7);
    assert_eq!(others[7], (Ok(()), false));
    // A source that waited for the common rate has lost nothing of its own rate.
    assert_eq!((0..4).map(|_| ask(v4(9, 1), 200 * MS).1).collect::<Vec<_>>(), [true, true, true, false]);
    assert_eq!((gate.counters().refused_source, gate.counters().unanswered), (998, 11));
}

#[test]
fn a_peer_behind_the_address_of_attackers_has_its_turn_after_those_that_wait() {
    let mut gate = HandshakeGate::new(GateLimits::default());
    // Seven attackers share an address, and each connects again as soon as it was answered. The address has used up its
    // burst, and asks for all of its rate.
    let come = |gate: &mut HandshakeGate, now| {
        let ticket = gate.admit(honest(), Nanos(now)).ticket;
        assert_eq!(gate.first_message_arrived(ticket, Nanos(now)), Ok(()));
        ticket
    };
    let mut attackers: Vec<HalfOpenTicket> = (0..7).map(|_| come(&mut gate, 0)).collect();
    let (mut valid, mut waits) = (None, Vec::new());
    for now in (0..20_000 * MS).step_by(usize::try_from(MS).unwrap()) {
        while let Some(turn) = gate.next(Nanos(now)) {
            assert!(gate.leave(turn.ticket, Nanos(now)));
            match (attackers.iter_mut().find(|ticket| **ticket == turn.ticket), valid) {
                (Some(attacker), _) => *attacker = come(&mut gate, now),
                (None, Some((_, since))) => {
                    waits.push(now - since);
                    valid = None;
                }
                (None, None) => unreachable!("only these connect"),
            }
        }
        if now % (500 * MS) == 0 && now > 5_000 * MS {
            assert_eq!(valid, None, "it still waits");
            valid = Some((come(&mut gate, now), now));
        }
    }
    assert_eq!((waits.len(), gate.counters().refused_source), (29, 0), "{waits:?}");
    assert!(waits.iter().all(|wait| *wait <= 8 * 20 * MS), "{waits:?}");
    // A flood from there is refused at once, beyond the few that wait.
    while gate.next(Nanos(20_000 * MS)).is_some() {}
    let flood = (0..100).filter(|_| {
        let ticket = gate.admit(honest(), Nanos(20_000 * MS)).ticket;
        gate.first_message_arrived(ticket, Nanos(20_000 * MS)).is_err()
    });
    assert!(flood.count() > 60);
}

#[test]
fn a_first_message_is_answered_once() {
    let mut gate = HandshakeGate::new(GateLimits::default());
    let ticket = gate.admit(honest(), Nanos(0)).ticket;
    assert_eq!(gate.next(Nanos(0)), None);
    assert_eq!(gate.first_message_arrived(ticket, Nanos(0)), Ok(()));
    assert_eq!(gate.next(Nanos(0)).map(|turn| turn.ticket), Some(ticket));
    assert_eq!(gate.next(Nanos(0)), None);
    assert_eq!(gate.first_message_arrived(ticket, Nanos(0)), Err(HandshakeRefusal::Again));
    assert_eq!(gate.half_open(), 0);
}

#[test]
fn unlimited_sources_take_bounded_memory_and_cost_a_new_source_nothing() {
    let limits = GateLimits { unproven: GENEROUS, sources: 64, half_open: 8, ..GateLimits::default() };
    let mut gate = HandshakeGate::new(limits);
    for number in 0..10_000 {
        let ticket = gate.admit(v4(number / 200, number % 200), Nanos(u64::from(number))).ticket;
        assert_eq!(gate.first_message_arrived(ticket, Nanos(u64::from(number))), Ok(()));
        assert_eq!(gate.next(Nanos(u64::from(number))).map(|turn| turn.ticket), Some(ticket));
    }
    // Two entries for each source: its rate and its debt.
    assert_eq!(gate.counters().forgotten, 2 * (10_000 - 64));
}

#[test]
fn limits_of_zero_still_admit_one_handshake() {
    let never = RateLimit { every: Nanos(0), burst: 0 };
    let nothing = GateLimits {
        half_open: 0,
        deadline: Nanos(1),
        source: never,
        waiting: 0,
        unproven: never,
        proven: never,
        sources: 0,
        proven_sources: 0,
        proven_for: Nanos(0),
    };
    let mut gate = HandshakeGate::new(nothing);
    let now = Nanos(u64::MAX - 1);
    let ticket = gate.admit(honest(), now).ticket;
    assert_eq!(gate.first_message_arrived(ticket, now), Ok(()));
    assert_eq!(gate.next(now).map(|turn| turn.ticket), Some(ticket));
    assert!(gate.leave(ticket, now));
    gate.prove(honest(), now);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Against a model: no handshake is lost or duplicate, and an evicted one was of the source and the network that
    /// had most.
    #[test]
    fn every_handshake_is_admitted_evicted_late_or_left(steps in proptest::collection::vec((any::<u8>(), 0..5_u8), 1..300)) {
        let limits = GateLimits { half_open: 8, deadline: Nanos(50), source: GENEROUS, unproven: GENEROUS, ..GateLimits::default() };
        let mut gate = HandshakeGate::new(limits);
        let mut open: BTreeMap<HalfOpenTicket, (u32, u64)> = BTreeMap::new();
        let (mut all, mut answered): (BTreeSet<HalfOpenTicket>, BTreeSet<HalfOpenTicket>) = Default::default();
        for (now, (choice, kind)) in (0_u64..).zip(steps) {
            match kind {
                0 | 1 => {
                    let network = u32::from(choice % 5);
                    let admission = gate.admit(v4(network, u32::from(choice / 5)), Nanos(now));
                    assert_eq!(admission.evicted.is_some(), open.len() == 8);
                    if let Some(evicted) = admission.evicted {
                        let (from, _) = open.remove(&evicted).unwrap();
                        let others = |network: u32| open.values().filter(|(other, _)| *other == network).count();
                        let had = others(from) + 1 + usize::from(from == network);
                        assert!((0..5).filter(|other| *other != from).all(|other| others(other) <= had));
                    }
                    assert!(all.insert(admission.ticket));
                    open.insert(admission.ticket, (network, now));
                }
                2 => {
                    if let Some((ticket, (_, since))) = open.iter().nth(usize::from(choice) % 8).map(|(k, v)| (*k, *v)) {
                        open.remove(&ticket);
                        assert_eq!(gate.leave(ticket, Nanos(now)), now < since + 50);
                        assert!(!gate.leave(ticket, Nanos(now)));
                    }
                }
                3 => {
                    if let Some(ticket) = open.keys().nth(usize::from(choice) % 8).copied() {
                        let (_, since) = open[&ticket];
                        match gate.first_message_arrived(ticket, Nanos(now)) {
                            Ok(()) => {
                                // Rates are generous: a waiting handshake is answered at once, which extends its
                                // deadline.
                                let turn = gate.next(Nanos(now)).unwrap();
                                assert_eq!(turn.ticket, ticket);
                                open.insert(ticket, (open[&ticket].0, now));
                            }
                            Err(_) => {
                                assert!(now >= since + 50 || answered.contains(&ticket));
                                open.remove(&ticket);
                            }
                        }
                        answered.insert(ticket);
                    }
                }
                _ => {
                    for late in gate.expire(Nanos(now)) {
                        let (_, since) = open.remove(&late).unwrap();
                        assert!(now >= since + 50);
                    }
                    assert!(open.values().all(|(_, since)| now < since + 50));
                }
            }
            assert_eq!(gate.half_open(), open.len());
        }
    }
}
