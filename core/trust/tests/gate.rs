//! What is done for strangers, in simulated time: a few who send a lot, many who send a little, and an honest one among them.

#![forbid(unsafe_code)]

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use proptest::prelude::{ProptestConfig, any, proptest};
use std::collections::{BTreeMap, BTreeSet};
use weir_trust::gate::{Admission, Gate, GateCounters, Limits, Rate, Refusal, Ticket};
use weir_units::Nanos;

const MS: u64 = Nanos::MILLISECOND.0;

fn v4(network: u32, host: u32) -> IpAddr {
    Ipv4Addr::from_bits((10 << 24) | (network << 8) | host).into()
}

fn honest() -> IpAddr {
    Ipv4Addr::new(192, 0, 2, 1).into()
}

/// Honest ones who know nothing of each other.
fn honest_number(number: usize) -> IpAddr {
    Ipv4Addr::new(192, 0, u8::try_from(number).unwrap(), 1).into()
}

/// An honest handshake among strangers' connections: it takes three round trips of 50 ms, and is begun at some time during the attack. What
/// became of it.
struct Try {
    since: u64,
    admission: Admission,
    is_answered: bool,
    is_evicted: bool,
}

/// Strangers connect at `every` ns, from wherever `from` says. Every fourth one sends a first message, and asks for its answer. Honest ones
/// begin at `begins`. When each was through, or `None`.
fn simulate(
    limits: Limits,
    every: u64,
    count: u32,
    begins: &[u64],
    from: impl Fn(u32) -> IpAddr,
) -> Vec<Option<u64>> {
    const ROUND_TRIP: u64 = 50 * MS;
    let mut gate = Gate::new(limits);
    let mut begins = begins.iter().copied().peekable();
    let mut tries: Vec<Try> = Vec::new();
    let mut through = Vec::new();
    for number in 0..count {
        let now = u64::from(number) * every;
        let mut evicted: Vec<Ticket> = Vec::new();
        while begins.next_if(|begin| *begin <= now).is_some() {
            let admission = gate.admit(honest_number(tries.len()), Nanos(now));
            evicted.extend(admission.evicted);
            tries.push(Try { since: now, admission, is_answered: false, is_evicted: false });
            through.push(None);
        }
        for (honest, through) in tries.iter_mut().zip(&mut through) {
            let age = now - honest.since;
            if honest.is_evicted || through.is_some() {
                continue;
            }
            if !honest.is_answered && age >= ROUND_TRIP {
                assert_eq!(gate.answer(honest.admission.ticket, Nanos(now)), Ok(()));
                honest.is_answered = true;
            }
            if honest.is_answered && age >= 3 * ROUND_TRIP {
                assert!(gate.leave(honest.admission.ticket, Nanos(now)));
                *through = Some(age);
            }
        }
        let admission = gate.admit(from(number), Nanos(now));
        evicted.extend(admission.evicted);
        if number % 4 == 0 {
            _ = gate.answer(admission.ticket, Nanos(now));
        }
        gate.expire(Nanos(now));
        assert!(gate.half_open() <= limits.half_open);
        for honest in &mut tries {
            honest.is_evicted |= evicted.contains(&honest.admission.ticket);
        }
    }
    through
}

#[test]
fn an_honest_handshake_gets_through_ten_thousand_half_open_ones_of_a_few_sources() {
    // 10,000 in a second, from one to two hundred sources of as many networks; an honest one begins every 40 ms.
    let begins: Vec<u64> = (0..20).map(|number| number * 40 * MS).collect();
    for sources in [1, 2, 8, 200] {
        let through = simulate(Limits::default(), MS / 10, 10_000, &begins, |number| v4(number % sources, 1));
        assert_eq!(through.len(), begins.len());
        // Within its own round trips: strangers do not delay it by more than the step of this simulation.
        assert!(through.iter().all(|age| age.is_some_and(|age| age <= 151 * MS)), "{sources}: {through:?}");
    }
}

#[test]
fn a_network_counts_as_one_however_many_addresses_it_has() {
    let begins: Vec<u64> = (0..20).map(|number| number * 40 * MS).collect();
    // An IPv4 /24 with all of its addresses, and an IPv6 /48 with a new /64 for each connection.
    let of_v4 = |number: u32| v4(7, number % 256);
    let of_v6 = |number: u32| {
        IpAddr::from(Ipv6Addr::from_bits((0x2001_0db8_0007 << 80) | (u128::from(number) << 64) | 1))
    };
    for through in [
        simulate(Limits { overall: GENEROUS, ..Limits::default() }, MS / 10, 10_000, &begins, of_v4),
        simulate(Limits { overall: GENEROUS, ..Limits::default() }, MS / 10, 10_000, &begins, of_v6),
    ] {
        assert!(through.iter().all(Option::is_some), "{through:?}");
    }
}

const GENEROUS: Rate = Rate { every: Nanos(1_000), burst: 100_000 };

#[test]
fn strangers_with_more_networks_than_places_can_push_others_out_and_no_more_is_promised() {
    let limits = Limits { overall: GENEROUS, ..Limits::default() };
    // 256 places, and 10,000 connections in a second from different networks each: all 256 are new within 26 ms.
    let begins: Vec<u64> = (0..20).map(|number| number * 40 * MS).collect();
    let mut gate = Gate::new(limits);
    let first = gate.admit(honest(), Nanos(0)).ticket;
    let evicted: Vec<u32> = (0..1000)
        .filter(|number| {
            gate.admit(v4(*number, 1), Nanos(u64::from(*number) * MS / 10)).evicted == Some(first)
        })
        .collect();
    assert_eq!(evicted, [255], "not before all others are newer");
    // Where they come more slowly than an honest handshake takes, it gets through.
    let through = simulate(limits, MS, 2_000, &begins, |number| v4(number, 1));
    assert!(through.iter().all(Option::is_some), "{through:?}");
}

#[test]
fn who_has_most_gives_way_and_of_those_the_oldest() {
    let mut gate = Gate::new(Limits { half_open: 4, ..Limits::default() });
    let mut admit = |from| gate.admit(from, Nanos(0));
    let alone = admit(v4(1, 1));
    let few = [admit(v4(2, 1)), admit(v4(2, 2)), admit(v4(2, 1))];
    assert!([alone, few[0], few[1], few[2]].iter().all(|admission| admission.evicted.is_none()));
    // Of network 2 host 1 has two.
    let third = admit(v4(3, 1));
    assert_eq!(third.evicted, Some(few[0].ticket));
    // Now both have one: the older one goes.
    assert_eq!(admit(v4(4, 1)).evicted, Some(few[1].ticket));
    // All have one: the oldest goes. And who is there already takes a place of his own.
    let again = admit(v4(3, 1));
    assert_eq!(again.evicted, Some(third.ticket));
    assert_eq!(admit(v4(5, 1)).evicted, Some(alone.ticket));
}

#[test]
fn a_handshake_is_over_when_its_time_is() {
    let limits = Limits { deadline: Nanos(100 * MS), ..Limits::default() };
    let mut gate = Gate::new(limits);
    let [one, two, three] = [0, 10, 20].map(|ms| gate.admit(honest(), Nanos(ms * MS)));
    assert_eq!(one.until, Nanos(100 * MS));
    assert_eq!(gate.next_deadline(), Some(one.until));
    assert_eq!(gate.answer(two.ticket, Nanos(50 * MS)), Ok(()));
    assert_eq!(gate.expire(Nanos(99 * MS)), []);
    assert_eq!(gate.expire(Nanos(110 * MS)), [one.ticket, two.ticket]);
    // Whoever was on the way with them is told.
    assert!(!gate.leave(two.ticket, Nanos(110 * MS)));
    assert_eq!(gate.answer(one.ticket, Nanos(110 * MS)), Err(Refusal::Gone));
    // Also where nobody has looked.
    assert_eq!(gate.answer(three.ticket, Nanos(120 * MS)), Err(Refusal::Late));
    let late = gate.admit(honest(), Nanos(200 * MS));
    assert!(!gate.leave(late.ticket, Nanos(300 * MS)));
    assert_eq!((gate.half_open(), gate.next_deadline()), (0, None));
    assert_eq!(
        gate.counters(),
        GateCounters { admitted: 4, late: 4, answered: 1, ..GateCounters::default() }
    );
}

#[test]
fn one_source_is_answered_so_often_and_takes_nothing_from_others() {
    let limits = Limits {
        source: Rate { every: Nanos(100 * MS), burst: 3 },
        overall: Rate { every: Nanos(10 * MS), burst: 10 },
        ..Limits::default()
    };
    let mut gate = Gate::new(limits);
    let mut ask = |from, now| {
        let ticket = gate.admit(from, Nanos(now)).ticket;
        let answer = gate.answer(ticket, Nanos(now));
        assert_eq!(gate.leave(ticket, Nanos(now)), answer.is_ok(), "who is refused is out");
        answer
    };
    let flood: Vec<_> = (0..1000).map(|_| ask(v4(1, 1), 0)).collect();
    assert_eq!(flood.iter().filter(|answer| answer.is_ok()).count(), 3);
    assert!(flood[3..].iter().all(|answer| *answer == Err(Refusal::Source)));
    // Of the ten for all, seven are left, whatever that one did.
    let others: Vec<_> = (2..20).map(|number| ask(v4(number, 1), 0)).collect();
    assert_eq!(others.iter().filter(|answer| answer.is_ok()).count(), 7);
    assert_eq!(others[7], Err(Refusal::Overall));
    // And who was refused because of all has lost nothing of his own.
    assert_eq!(
        (0..4).map(|_| ask(v4(9, 1), 200 * MS).is_ok()).collect::<Vec<_>>(),
        [true, true, true, false]
    );
    assert_eq!(gate.counters().refused_source, 998);
    assert_eq!(gate.counters().refused_overall, 11);
}

#[test]
fn a_first_message_is_answered_once() {
    let mut gate = Gate::new(Limits::default());
    let ticket = gate.admit(honest(), Nanos(0)).ticket;
    assert_eq!(gate.answer(ticket, Nanos(0)), Ok(()));
    assert_eq!(gate.answer(ticket, Nanos(0)), Err(Refusal::Again));
    assert_eq!(gate.half_open(), 0);
}

#[test]
fn sources_without_end_take_no_memory_without_end_and_cost_a_newcomer_nothing() {
    let limits = Limits { overall: GENEROUS, sources: 64, half_open: 8, ..Limits::default() };
    let mut gate = Gate::new(limits);
    for number in 0..10_000 {
        let ticket = gate.admit(v4(number / 200, number % 200), Nanos(u64::from(number))).ticket;
        assert_eq!(gate.answer(ticket, Nanos(u64::from(number))), Ok(()));
    }
    assert_eq!(gate.counters().forgotten, 10_000 - 64);
}

#[test]
fn limits_of_nothing_still_let_somebody_in() {
    let never = Rate { every: Nanos(0), burst: 0 };
    let mut gate =
        Gate::new(Limits { half_open: 0, deadline: Nanos(1), source: never, overall: never, sources: 0 });
    let ticket = gate.admit(honest(), Nanos(u64::MAX - 1)).ticket;
    assert_eq!(gate.answer(ticket, Nanos(u64::MAX - 1)), Ok(()));
    assert!(gate.leave(ticket, Nanos(u64::MAX - 1)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Against a model: nobody is lost, nobody is there twice, and who is evicted was of the source and the network that had most.
    #[test]
    fn everybody_is_let_in_gives_way_is_late_or_leaves(steps in proptest::collection::vec((any::<u8>(), 0..4_u8), 1..300)) {
        let limits = Limits { half_open: 8, deadline: Nanos(50), ..Limits::default() };
        let mut gate = Gate::new(limits);
        let mut open: BTreeMap<Ticket, (u32, u64)> = BTreeMap::new();
        let mut all: BTreeSet<Ticket> = BTreeSet::new();
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
