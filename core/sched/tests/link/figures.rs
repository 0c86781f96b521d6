//! The papers' figures, in simulated time.

use crate::link::disciplines::{Plain, Weir};
use crate::link::oracle;
use crate::link::properties::QUEUE;
use crate::link::simulator::{Discipline, Event, Log, run};
use std::ops::Range;
use weir_sched::link::{Cap, ChannelTerms, LinkReservation, LinkSchedulerConfig};
use weir_units::{BitsPerSecond, Bytes, Nanos};

const LINK: BitsPerSecond = BitsPerSecond(100_000_000);
const SECOND: u64 = 1_000_000_000;
const LENGTH: u32 = 1_514;

fn terms(reservation: Option<LinkReservation>, weight: u16) -> ChannelTerms {
    ChannelTerms { reservation, cap: None, weight, queue: QUEUE }
}

fn megabits(rate: u64) -> Option<LinkReservation> {
    LinkReservation::rate(BitsPerSecond(rate * 1_000_000))
}

/// At `at` milliseconds.
fn at(at: u64, event: Event) -> (u64, Event) {
    (at * 1_000_000, event)
}

/// Checks that the rate of every second within the phase (in milliseconds) is within `tolerance` of `expected`, both
/// in Mbit/s.
fn holds(log: &Log, who: usize, phase: Range<u64>, expected: f64, tolerance: f64) -> Result<(), String> {
    let within = (phase.start * 1_000_000, phase.end * 1_000_000);
    let (low, high) = oracle::rates(&log.sent, who, within, SECOND, LINK.0);
    let is_within = low >= (expected - tolerance) * 1e6 && high <= (expected + tolerance) * 1e6;
    if is_within {
        Ok(())
    } else {
        Err(format!("{who} has {low} to {high} bit/s in {phase:?}, not {expected} M"))
    }
}

/// Price of Safety, figure 12: D has no guarantee, E 2 ms in 6 ms, F 25 %, from 20 s on 45 %, from 22 s 65 %, from 24 s 25 %.
fn figure_12(discipline: &mut dyn Discipline) -> Result<(), String> {
    const D: usize = 0;
    const E: usize = 1;
    const F: usize = 2;
    let slice = LinkReservation::slice(Nanos(2_000_000), Nanos(6_000_000), LINK);
    let mut events = vec![
        at(0, Event::Terms { who: D, terms: Some(terms(None, 1)) }),
        at(0, Event::Terms { who: E, terms: Some(terms(slice, 0)) }),
        at(0, Event::Terms { who: F, terms: Some(terms(megabits(25), 0)) }),
    ];
    for (time, rate) in [(20_000, 45), (22_000, 65), (24_000, 25)] {
        events.push(at(time, Event::Terms { who: F, terms: Some(terms(megabits(rate), 0)) }));
    }
    for (time, who) in [(0, D), (3_000, E), (6_000, F)] {
        events.push(at(time, Event::Greedy { who, length: LENGTH }));
    }
    let log = run(discipline, &events, 28 * SECOND);
    assert!(log.refused.is_empty(), "2 ms in 6 ms and 65 % are less than all");
    let third = 100.0 / 3.0;
    let phases: [(Range<u64>, [f64; 3]); 6] = [
        (0..3_000, [100.0, 0.0, 0.0]),
        (3_000..6_000, [100.0 - third, third, 0.0]),
        (6_000..20_000, [75.0 - third, third, 25.0]),
        (20_000..22_000, [55.0 - third, third, 45.0]),
        (22_000..24_000, [35.0 - third, third, 65.0]),
        (24_000..28_000, [75.0 - third, third, 25.0]),
    ];
    for (phase, expected) in phases {
        for who in [E, F] {
            holds(&log, who, phase.clone(), expected[who], 0.02 * expected[who])?;
        }
        // To the packet: at either end of the second, one packet of each channel is under way or due, and the first
        // 25,000 bytes of E are sent at once.
        holds(&log, D, phase, expected[D], 0.1 + 0.2)?;
    }
    Ok(())
}

#[test]
fn price_of_safety_12() {
    let config = LinkSchedulerConfig::ethernet(LINK);
    assert_eq!(figure_12(&mut Weir::new(config)), Ok(()));
    for turns in [false, true] {
        assert!(figure_12(&mut Plain::new(config, turns)).is_err(), "in turns: {turns}");
    }
}

/// SQoSH, figure 6: A takes all it can, B has a cap and a guarantee of 40 Mbit/s, C of 10 Mbit/s; they start and
/// stop.
fn figure_6(discipline: &mut dyn Discipline) -> Result<(), String> {
    const A: usize = 0;
    const B: usize = 1;
    const C: usize = 2;
    let config = LinkSchedulerConfig::ethernet(LINK);
    let burst = Bytes(2 * u64::from(config.framing.on_wire(config.frame_max)));
    let both = |rate: u64| {
        // The channels have a weight too, so that only the cap limits them.
        let cap = Cap::with_burst(BitsPerSecond(rate * 1_000_000), burst);
        ChannelTerms { cap, ..terms(megabits(rate), 1) }
    };
    let mut events = vec![
        at(0, Event::Terms { who: A, terms: Some(terms(None, 1)) }),
        at(0, Event::Terms { who: B, terms: Some(both(40)) }),
        at(0, Event::Terms { who: C, terms: Some(both(10)) }),
    ];
    for (time, who, length) in [
        (1_000, B, LENGTH),
        (5_000, A, LENGTH),
        (9_000, C, LENGTH),
        (15_000, B, 0),
        (20_000, A, 0),
        (29_000, C, 0),
    ] {
        events.push(at(time, Event::Greedy { who, length }));
    }
    let log = run(discipline, &events, 31 * SECOND);
    let phases: [(Range<u64>, [f64; 3]); 6] = [
        (1_000..5_000, [0.0, 40.0, 0.0]),
        (5_000..9_000, [60.0, 40.0, 0.0]),
        (9_000..15_000, [50.0, 40.0, 10.0]),
        // Two packets of each channel may still wait when it stops.
        (15_010..20_000, [90.0, 0.0, 10.0]),
        (20_010..29_000, [0.0, 0.0, 10.0]),
        (29_010..31_000, [0.0, 0.0, 0.0]),
    ];
    for (phase, expected) in phases {
        for who in [B, C] {
            holds(&log, who, phase.clone(), expected[who], 0.01 * expected[who])?;
        }
        holds(&log, A, phase, expected[A], 0.1)?;
    }
    Ok(())
}

#[test]
fn sqosh_6() {
    let config = LinkSchedulerConfig::ethernet(LINK);
    assert_eq!(figure_6(&mut Weir::new(config)), Ok(()));
    for turns in [false, true] {
        assert!(figure_6(&mut Plain::new(config, turns)).is_err(), "in turns: {turns}");
    }
}
