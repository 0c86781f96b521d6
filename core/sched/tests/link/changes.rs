//! Channels open, close and change while others rely on their guarantees.

use crate::link::disciplines::Weir;
use crate::link::oracle::{self, Fraction};
use crate::link::properties::{FRAME_MAX, QUEUE};
use crate::link::simulator::{Event, Log, run};
use proptest::prelude::*;
use weir_sched::link::{
    Cap, ChannelRefused, ChannelTerms, Framing, LinkConfigError, LinkDecision, LinkReservation,
    LinkScheduler, LinkSchedulerConfig, RateRefused,
};
use weir_units::{BitsPerSecond, Bytes, Nanos};

const LINK: u64 = 100_000_000;
const MILLISECOND: u64 = 1_000_000;

fn even(permille: u64, weight: u16) -> ChannelTerms {
    let reservation = LinkReservation::rate(BitsPerSecond(LINK / 1_000 * permille));
    ChannelTerms { reservation, cap: None, weight: weight.max(u16::from(permille == 0)), queue: QUEUE }
}

fn in_period(permille: u64, micros: u64, weight: u16) -> ChannelTerms {
    let bytes = LINK / 1_000 * permille / 8 * micros / 1_000_000;
    let reservation = LinkReservation::per_period(Bytes(bytes), Nanos(micros * 1_000));
    ChannelTerms { reservation, ..even(0, weight.max(1)) }
}

fn longest() -> u32 {
    Framing::ETHERNET.on_wire(FRAME_MAX)
}

/// A change of another channel at a time in microseconds: it is closed, or opened or changed to new terms.
#[derive(Clone, Debug)]
struct Change {
    at: u64,
    who: usize,
    terms: Option<(u64, u64, u16, bool)>,
}

fn change() -> impl Strategy<Value = Change> {
    let terms = (0..700u64, prop_oneof![Just(0u64), 100..30_000u64], 0..5u16, prop::bool::weighted(0.2));
    (1..100_000u64, 1..5usize, prop::option::weighted(0.8, terms)).prop_map(|(at, who, terms)| Change {
        at,
        who,
        terms,
    })
}

fn others(changes: &[Change], lengths: &[u32]) -> Vec<(u64, Event)> {
    let mut events = Vec::new();
    for change in changes {
        let terms = change.terms.map(|(permille, micros, weight, is_capped)| {
            let terms =
                if micros == 0 { even(permille, weight) } else { in_period(permille, micros, weight) };
            let reserved = terms.reservation.map_or(0, |reservation| reservation.bits_per_second().0);
            let cap =
                Cap::with_burst(BitsPerSecond(reserved + 1_000_000), Bytes(5_000)).filter(|_| is_capped);
            ChannelTerms { cap, ..terms }
        });
        events.push((change.at * 1_000, Event::Terms { who: change.who, terms }));
        // A greedy source of a closed channel starts again with the next one.
        let length = lengths[change.who % lengths.len()];
        events.push((change.at * 1_000, Event::Greedy { who: change.who, length: 0 }));
        events.push((change.at * 1_000, Event::Greedy { who: change.who, length }));
    }
    events
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// However the other channels open, change and close, always greedy: a channel that keeps its terms keeps its
    /// guarantee.
    #[test]
    fn a_guarantee_outlives_the_changes_of_others(
        changes in prop::collection::vec(change(), 1..80),
        lengths in prop::collection::vec(1..=FRAME_MAX, 1..5),
        (permille, micros, length) in (50..600u64, prop_oneof![Just(0u64), 500..10_000u64], 1..=FRAME_MAX),
    ) {
        let terms = if micros == 0 { even(permille, 0) } else { in_period(permille, micros, 0) };
        let rate = if micros == 0 {
            Fraction::of_rate(LINK / 1_000 * permille)
        } else {
            Fraction { bytes: LINK / 1_000 * permille / 8 * micros / 1_000_000, nanos: micros * 1_000 }
        };
        let mut events = vec![(0, Event::Terms { who: 0, terms: Some(terms) }), (0, Event::Greedy { who: 0, length })];
        events.extend(others(&changes, &lengths));
        let mut weir = Weir::new(LinkSchedulerConfig::ethernet(BitsPerSecond(LINK)));
        let log = run(&mut weir, &events, 150 * MILLISECOND);
        let own = u64::from(Framing::ETHERNET.on_wire(length));
        prop_assert_eq!(oracle::lag(&log.sent, 0, rate, longest(), rate_limit(micros, rate).max(own)), Ok(()));
        prop_assert_eq!(oracle::delay(&log.sent, 0, rate, Fraction::of_rate(LINK), longest()), Ok(()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// The same while the link's rate goes up and down, at any rates that it accepts; the guarantee then counts with
    /// the lowest of them.
    #[test]
    fn a_guarantee_outlives_changes_of_the_rate(
        changes in prop::collection::vec(change(), 1..40),
        rates in prop::collection::vec((1..100_000u64, 50..2_000u64), 1..40),
        lengths in prop::collection::vec(1..=FRAME_MAX, 1..5),
        (permille, micros, length) in (50..600u64, prop_oneof![Just(0u64), 500..10_000u64], 1..=FRAME_MAX),
    ) {
        let terms = if micros == 0 { even(permille, 0) } else { in_period(permille, micros, 0) };
        let rate = if micros == 0 {
            Fraction::of_rate(LINK / 1_000 * permille)
        } else {
            Fraction { bytes: LINK / 1_000 * permille / 8 * micros / 1_000_000, nanos: micros * 1_000 }
        };
        let mut events = vec![(0, Event::Terms { who: 0, terms: Some(terms) }), (0, Event::Greedy { who: 0, length })];
        events.extend(others(&changes, &lengths));
        events.extend(rates.iter().map(|(at, permille)| (at * 1_000, Event::Rate(LINK / 1_000 * permille))));
        let mut weir = Weir::new(LinkSchedulerConfig::ethernet(BitsPerSecond(LINK)));
        let log = run(&mut weir, &events, 150 * MILLISECOND);
        let accepted = (0..events.len()).filter(|event| !log.refused.contains(event));
        let lowest = accepted.filter_map(|event| if let Event::Rate(rate) = events[event].1 { Some(rate) } else { None }).min();
        let lowest = Fraction::of_rate(lowest.unwrap_or(LINK).min(LINK));
        let own = u64::from(Framing::ETHERNET.on_wire(length));
        prop_assert_eq!(oracle::lag(&log.sent, 0, rate, longest(), rate_limit(micros, rate).max(own)), Ok(()));
        prop_assert_eq!(oracle::delay(&log.sent, 0, rate, lowest, longest()), Ok(()));
    }
}

/// A rate is refused if the reservations would not fit, held rates included. The rest of the frame under way takes
/// its time at the new rate.
#[test]
fn a_rate_change_is_limited_by_reservations_and_holds() {
    let config = LinkSchedulerConfig {
        framing: Framing::NONE,
        ..LinkSchedulerConfig::ethernet(BitsPerSecond(8_000_000))
    };
    let mut link = LinkScheduler::new(config).expect("a link");
    let rate = |link: &mut LinkScheduler<u32>, rate: u64, reservable: u64, now: u64| {
        link.set_rate(BitsPerSecond(rate), BitsPerSecond(reservable), Nanos(now))
    };
    let terms = ChannelTerms { weight: 1, ..even(50, 0) };
    let id = link.open(terms, Nanos(0)).expect("5 Mbit/s");
    let promised = |reserved, held, until| {
        Err(RateRefused::OverReserved {
            reservable: BitsPerSecond(4_000_000),
            reserved: BitsPerSecond(reserved),
            held: BitsPerSecond(held),
            until: Nanos(until),
        })
    };
    assert_eq!(rate(&mut link, 8_000_000, 4_000_000, 0), promised(5_000_000, 0, 0));
    assert_eq!(rate(&mut link, 0, 0, 0), Err(LinkConfigError::NoRate.into()));
    let over = LinkConfigError::ReservableOverRate { reservable: BitsPerSecond(2), rate: BitsPerSecond(1) };
    assert_eq!(rate(&mut link, 1, 2, 0), Err(over.into()));
    assert_eq!(link.config().rate, BitsPerSecond(8_000_000), "nothing has changed");

    // 1,000 bytes take 1 ms of the link and 1.6 ms of the clock; half way through, the rate is halved.
    for packet in 0..2 {
        assert_eq!(link.enqueue(id, packet, 1_000, Nanos(0)), Ok(()));
    }
    assert!(matches!(link.next(Nanos(0)), LinkDecision::Send { .. }));
    assert_eq!(link.change(id, even(25, 1), Nanos(500_000)), Ok(()));
    // The second packet is queued and keeps its tags, so the rest of the old rate is held as long.
    assert_eq!(rate(&mut link, 4_000_000, 4_000_000, 500_000), promised(2_500_000, 2_500_000, 3_200_000));
    assert_eq!(rate(&mut link, 5_000_000, 5_000_000, 500_000), Ok(()));
    assert_eq!(link.next(Nanos(500_000)), LinkDecision::Wait { until: Nanos(500_000 + 800_000) });
    assert_eq!(rate(&mut link, 10_000_000, 5_000_000, 700_000), Ok(()));
    assert_eq!(link.next(Nanos(700_000)), LinkDecision::Wait { until: Nanos(700_000 + 300_000) });
    assert_eq!(link.unreserved(Nanos(3_200_000)), BitsPerSecond(2_500_000));
    assert_eq!(rate(&mut link, 4_000_000, 4_000_000, 3_200_000), Ok(()));
    assert_eq!(
        (link.unreserved(Nanos(3_200_000)), link.reserved()),
        (BitsPerSecond(1_500_000), BitsPerSecond(2_500_000))
    );
}

fn rate_limit(micros: u64, rate: Fraction) -> u64 {
    if micros == 0 { 0 } else { rate.bytes }
}

/// If a closed channel's rate were free at once, a channel that is opened, sends its limit, and is closed in a loop
/// would take the link from others.
#[test]
fn reopening_gives_no_credit() {
    let victim = even(500, 0);
    let burst = in_period(500, 20_000, 0);
    let burst = ChannelTerms { weight: 0, ..burst };
    let mut weir = Weir::new(LinkSchedulerConfig::ethernet(BitsPerSecond(LINK)));
    let mut events = vec![
        (0, Event::Terms { who: 0, terms: Some(victim) }),
        (0, Event::Greedy { who: 0, length: FRAME_MAX }),
    ];
    let mut reopened = Vec::new();
    for at in (1..200).map(|at| at * MILLISECOND) {
        reopened.push(events.len() + 1);
        events.push((at, Event::Terms { who: 1, terms: None }));
        events.push((at, Event::Terms { who: 1, terms: Some(burst) }));
        events.extend((0..82).map(|_| (at, Event::Packet { who: 1, length: FRAME_MAX })));
    }
    let log = run(&mut weir, &events, 200 * MILLISECOND);
    let rate = Fraction::of_rate(LINK / 2);
    assert_eq!(oracle::lag(&log.sent, 0, rate, longest(), u64::from(longest())), Ok(()));
    assert!(reopened.iter().any(|event| log.refused.contains(event)), "some openings had to wait");
    let others: u64 = log.sent.iter().filter(|sent| sent.who == 1).map(|sent| u64::from(sent.length)).sum();
    assert!(others > 500_000, "{others} bytes: it was let in again when its clock was due");
}

/// A channel whose head waited for its cap has no credit once the cap is lifted (found by the test above).
#[test]
fn a_lifted_cap_leaves_no_credit() {
    let change = |at, who, permille, weight, is_capped| Change {
        at,
        who,
        terms: Some((permille, 0, weight, is_capped)),
    };
    let changes = [
        change(27_426, 4, 21, 0, false),
        change(48_519, 4, 43, 0, false),
        change(55_582, 4, 57, 1, true),
        change(63_986, 2, 48, 0, false),
        change(72_090, 4, 456, 1, false),
    ];
    let mut events = vec![
        (0, Event::Terms { who: 0, terms: Some(even(50, 0)) }),
        (0, Event::Greedy { who: 0, length: 1 }),
    ];
    events.extend(others(&changes, &[1_232]));
    let mut weir = Weir::new(LinkSchedulerConfig::ethernet(BitsPerSecond(LINK)));
    let log = run(&mut weir, &events, 150 * MILLISECOND);
    let rate = Fraction::of_rate(LINK / 1_000 * 50);
    assert_eq!(oracle::delay(&log.sent, 0, rate, Fraction::of_rate(LINK), longest()), Ok(()));
}

/// A refusal states the unreserved rate exactly, and when held rate becomes free.
#[test]
fn a_refusal_states_the_unreserved_rate() {
    let mut link = LinkScheduler::new(LinkSchedulerConfig::ethernet(BitsPerSecond(LINK))).expect("a link");
    let id = link.open(even(600, 0), Nanos(0)).expect("60 %");
    let over = |held, until| {
        Err(ChannelRefused::OverReserved {
            wanted: BitsPerSecond(50_000_000),
            unreserved: BitsPerSecond(40_000_000),
            held: BitsPerSecond(held),
            until: Nanos(until),
        })
    };
    assert_eq!(link.open(even(500, 0), Nanos(0)), over(0, 0));
    // 1,538 bytes at 60 Mbit/s are 205,066.7 ns: one packet is under way, and the clock is ahead by it.
    assert!(link.enqueue(id, 0, FRAME_MAX, Nanos(0)).is_ok());
    assert!(matches!(link.next(Nanos(0)), LinkDecision::Send { .. }));
    assert_eq!(link.change(id, even(300, 0), Nanos(0)), Ok(()));
    assert_eq!(link.open(even(500, 0), Nanos(1)), over(30_000_000, 205_067));
    assert!(link.open(even(500, 0), Nanos(205_067)).is_ok());
    assert_eq!(link.unreserved(Nanos(205_067)), BitsPerSecond(20_000_000));
    let capped = ChannelTerms { cap: Cap::strict(BitsPerSecond(1_000)), ..even(1, 0) };
    let refused =
        ChannelRefused::CapUnderReservation { reserved: BitsPerSecond(100_000), cap: BitsPerSecond(1_000) };
    assert_eq!(link.open(capped, Nanos(0)), Err(refused));
    let nothing = ChannelTerms { reservation: None, weight: 0, ..capped };
    assert_eq!(link.open(nothing, Nanos(0)), Err(ChannelRefused::NeitherReservationNorWeight));
}

/// The bytes that `who` began to send from `from` to `until`.
fn begun(log: &Log, who: usize, from: u64, until: u64) -> u64 {
    let within = log.sent.iter().filter(|sent| sent.who == who && (from..until).contains(&sent.begin));
    within.map(|sent| u64::from(sent.length)).sum()
}

/// A new rate holds from the change on, also if the old one was so low that its next packet would be due in seconds.
#[test]
fn a_new_rate_holds_at_once() {
    for (old, new) in [(1, 500), (500, 100), (250, 650), (0, 400), (400, 0)] {
        let mut weir = Weir::new(LinkSchedulerConfig::ethernet(BitsPerSecond(LINK)));
        let changed = 50 * MILLISECOND;
        let events = [
            (0, Event::Terms { who: 0, terms: Some(ChannelTerms { weight: 1, ..even(old, 1) }) }),
            (0, Event::Terms { who: 1, terms: Some(ChannelTerms { weight: 50_000, ..even(0, 1) }) }),
            (0, Event::Greedy { who: 0, length: FRAME_MAX }),
            (0, Event::Greedy { who: 1, length: FRAME_MAX }),
            (changed, Event::Terms { who: 0, terms: Some(even(new, 1)) }),
        ];
        let log = run(&mut weir, &events, 150 * MILLISECOND);
        for (permille, from, until) in [(old, 0, changed), (new, changed, 150 * MILLISECOND)] {
            let due = LINK / 8_000 * permille * ((until - from) / MILLISECOND) / 1_000;
            let got = begun(&log, 0, from, until);
            // One longest frame of lag, one of lead, and one of the weight's share.
            let packets = 3 * u64::from(longest());
            assert!(
                (due.saturating_sub(packets)..=due + packets).contains(&got),
                "{old} to {new}: {got} of {due}"
            );
        }
    }
}
