//! The guarantees over random links, channels and traffic; and counterexamples without the scheduler.

use crate::link::disciplines::{Plain, Weir};
use crate::link::oracle::{self, Fraction};
use crate::link::simulator::{Discipline, Event, Log, run};
use proptest::prelude::*;
use weir_sched::link::{Cap, ChannelTerms, Framing, LinkReservation, LinkSchedulerConfig, QueueLimit};
use weir_units::{BitsPerSecond, Bytes, Nanos};

pub const QUEUE: QueueLimit = QueueLimit { packets: 10_000, bytes: Bytes(1 << 30) };

/// A channel: the reserved permille of the link, with a period in microseconds (0: an even rate); a cap in permille
/// with its burst; a weight.
#[derive(Clone, Debug)]
pub struct Plan {
    pub reserved: u64,
    pub period: u64,
    pub cap: Option<(u64, u64)>,
    pub weight: u16,
    pub traffic: Vec<Traffic>,
}

/// Traffic at a time in microseconds: some packets at once, or a time during which packets always wait.
#[derive(Clone, Debug)]
pub enum Traffic {
    Burst { at: u64, count: usize, length: u32 },
    Greedy { from: u64, until: u64, length: u32 },
}

#[derive(Clone, Debug)]
pub struct Scenario {
    pub rate: u64,
    pub channels: Vec<Plan>,
}

pub const FRAME_MAX: u32 = 1_514;
const END: u64 = 10_000_000_000;

fn traffic() -> impl Strategy<Value = Vec<Traffic>> {
    let length = prop_oneof![1..=FRAME_MAX, Just(FRAME_MAX), Just(60)];
    let burst = (0..60_000u64, 1..40usize, length.clone()).prop_map(|(at, count, length)| Traffic::Burst {
        at,
        count,
        length,
    });
    let greedy = (0..60_000u64, 1..40_000u64, length).prop_map(|(from, time, length)| Traffic::Greedy {
        from,
        until: from + time,
        length,
    });
    prop::collection::vec(prop_oneof![3 => burst, 1 => greedy], 1..8)
}

/// Channels whose reservations add up to at most the link's rate, and often to all of it.
pub fn scenario() -> impl Strategy<Value = Scenario> {
    let rate = prop_oneof![Just(100_000_000u64), Just(10_000_000), 5_000_000..300_000_000u64];
    let period = prop_oneof![Just(0u64), 100..20_000u64];
    let cap = prop::option::weighted(
        0.3,
        (prop_oneof![Just(0u64), 0..500u64], prop_oneof![Just(0u64), Just(2 * 1_538), 0..20_000u64]),
    );
    let plan = (0..10u64, period, cap, prop_oneof![Just(0u16), 1..5u16, 1..1_000u16], traffic());
    (rate, prop::collection::vec(plan, 1..7), 1..=1_000u64).prop_map(|(rate, plans, load)| {
        let parts: u64 = plans.iter().map(|plan| plan.0).sum::<u64>().max(1);
        let channel =
            |(part, period, cap, weight, traffic): (u64, u64, Option<(u64, u64)>, u16, Vec<Traffic>)| {
                let reserved = part * load / parts;
                Plan {
                    reserved,
                    period,
                    cap: cap.map(|(over, burst)| ((reserved + over).max(1), burst)),
                    weight: if reserved == 0 { weight.max(1) } else { weight },
                    traffic,
                }
            };
        Scenario { rate, channels: plans.into_iter().map(channel).collect() }
    })
}

impl Scenario {
    pub fn config(&self) -> LinkSchedulerConfig {
        LinkSchedulerConfig::ethernet(BitsPerSecond(self.rate))
    }

    /// The reservation in the form of the scheduler, and in that of the oracle.
    pub fn reservation(&self, plan: &Plan) -> Option<(LinkReservation, Fraction, u64)> {
        let rate = self.rate / 1_000 * plan.reserved;
        if plan.period == 0 {
            let reservation = LinkReservation::rate(BitsPerSecond(rate))?;
            return Some((reservation, Fraction::of_rate(rate), 0));
        }
        let nanos = plan.period * 1_000;
        let bytes = u64::try_from(u128::from(rate) * u128::from(nanos) / 8_000_000_000).expect("bytes");
        let reservation = LinkReservation::per_period(Bytes(bytes), Nanos(nanos))?;
        Some((reservation, Fraction { bytes, nanos }, bytes))
    }

    pub fn terms(&self, plan: &Plan) -> ChannelTerms {
        let reservation = self.reservation(plan).map(|(reservation, ..)| reservation);
        let cap = plan.cap.and_then(|(permille, burst)| {
            Cap::with_burst(BitsPerSecond(self.rate / 1_000 * permille + 10), Bytes(burst))
        });
        // A reservation on a slow link can round to nothing.
        let weight = if reservation.is_none() { plan.weight.max(1) } else { plan.weight };
        ChannelTerms { reservation, cap, weight, queue: QUEUE }
    }

    pub fn events(&self) -> Vec<(u64, Event)> {
        let mut events = Vec::new();
        for (who, plan) in self.channels.iter().enumerate() {
            events.push((0, Event::Terms { who, terms: Some(self.terms(plan)) }));
            for traffic in &plan.traffic {
                match *traffic {
                    Traffic::Burst { at, count, length } => {
                        events.extend((0..count).map(|_| (at * 1_000, Event::Packet { who, length })));
                    }
                    Traffic::Greedy { from, until, length } => {
                        events.push((from * 1_000, Event::Greedy { who, length }));
                        events.push((until * 1_000, Event::Greedy { who, length: 0 }));
                    }
                }
            }
        }
        events
    }

    fn run(&self, discipline: &mut dyn Discipline) -> Log {
        let log = run(discipline, &self.events(), END);
        assert!(log.refused.is_empty(), "all of a link can be reserved");
        assert_eq!(log.dropped, 0);
        log
    }

    fn longest(&self) -> u32 {
        Framing::ETHERNET.on_wire(FRAME_MAX)
    }

    /// Lag and delay of channels with a reservation and without a cap; or with a cap whose burst is two longest
    /// frames, and no weight.
    fn guarantees(&self, log: &Log) -> Result<(), String> {
        let is_loose = |plan: &Plan| {
            plan.cap.is_none_or(|(_, burst)| burst >= 2 * u64::from(self.longest()) && plan.weight == 0)
        };
        for (who, plan) in self.channels.iter().enumerate().filter(|(_, plan)| is_loose(plan)) {
            if let Some((_, rate, limit)) = self.reservation(plan) {
                let own =
                    log.sent.iter().filter(|sent| sent.who == who).map(|sent| sent.length).max().unwrap_or(0);
                oracle::lag(&log.sent, who, rate, self.longest(), limit.max(u64::from(own)))?;
                oracle::delay(&log.sent, who, rate, Fraction::of_rate(self.rate), self.longest())?;
            }
        }
        Ok(())
    }

    fn caps(&self, log: &Log) -> Result<(), String> {
        for (who, plan) in self.channels.iter().enumerate() {
            if let Some(cap) = self.terms(plan).cap {
                oracle::cap(&log.sent, who, Fraction::of_rate(cap.bits_per_second().0), cap.burst().0)?;
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// A virtual clock never lags its reservation by more than one longest frame, whatever others send and however much spare capacity the
    /// channel has used before; and its packets leave in time.
    #[test]
    fn reservations_are_kept(scenario in scenario()) {
        let log = scenario.run(&mut Weir::new(scenario.config()));
        prop_assert_eq!(scenario.guarantees(&log), Ok(()));
    }

    #[test]
    fn caps_are_kept(scenario in scenario()) {
        let log = scenario.run(&mut Weir::new(scenario.config()));
        prop_assert_eq!(scenario.caps(&log), Ok(()));
    }

    /// The link is never idle while a packet waits that may be sent; and all that came is sent.
    #[test]
    fn no_time_is_lost(scenario in scenario()) {
        let log = scenario.run(&mut Weir::new(scenario.config()));
        let terms: Vec<ChannelTerms> = scenario.channels.iter().map(|plan| scenario.terms(plan)).collect();
        let free: Vec<usize> = (0..terms.len()).filter(|who| terms[*who].weight > 0 && terms[*who].cap.is_none()).collect();
        prop_assert_eq!(oracle::work(&log.sent, &free, Fraction::of_rate(scenario.rate)), Ok(()));
    }

    /// Unreserved time is shared by the channels with weights, by weight.
    #[test]
    fn unreserved_time_is_shared_by_weight(
        lengths in prop::collection::vec((1..=FRAME_MAX, 1..2_000u16, 0..200u64), 2..7),
    ) {
        let config = LinkSchedulerConfig::ethernet(BitsPerSecond(1_000_000));
        let mut weir = Weir::new(config);
        let mut events = Vec::new();
        for (who, (length, weight, permille)) in lengths.iter().copied().enumerate() {
            let reservation = LinkReservation::rate(BitsPerSecond(permille * 800));
            let terms = ChannelTerms { reservation, cap: None, weight, queue: QUEUE };
            events.push((0, Event::Terms { who, terms: Some(terms) }));
            events.push((0, Event::Greedy { who, length }));
        }
        let log = run(&mut weir, &events, 20_000_000_000);
        for (a, of_a) in lengths.iter().enumerate() {
            for (b, of_b) in lengths.iter().enumerate().skip(a + 1) {
                let longest = [of_a.0, of_b.0].map(|length| config.framing.on_wire(length));
                prop_assert_eq!(oracle::fairness(&log.sent, (a, of_a.1), (b, of_b.1), longest), Ok(()));
            }
        }
    }
}

/// Two senders, of which one is greedy: what the first is guaranteed it gets only from the scheduler.
#[test]
fn without_the_scheduler_nothing_is_guaranteed() {
    let plan = |reserved, cap, weight, length, count| Plan {
        reserved,
        period: 0,
        cap,
        weight,
        traffic: vec![Traffic::Burst { at: 0, count, length }],
    };
    let scenario = Scenario {
        rate: 100_000_000,
        channels: vec![plan(0, Some((300, 0)), 1, 1_514, 400), plan(600, None, 0, 300, 400)],
    };
    let log = scenario.run(&mut Weir::new(scenario.config()));
    assert_eq!((scenario.guarantees(&log), scenario.caps(&log)), (Ok(()), Ok(())));
    for turns in [false, true] {
        let log = run(&mut Plain::new(scenario.config(), turns), &scenario.events(), END);
        assert_eq!(log.sent.len(), 800);
        assert!(scenario.guarantees(&log).is_err(), "in turns: {turns}");
        assert!(scenario.caps(&log).is_err(), "in turns: {turns}");
    }
}
