//! The scheduler under test, and two disciplines without guarantees.

use crate::link::simulator::{Discipline, Step};
use std::collections::{BTreeMap, VecDeque};
use weir_sched::link::{
    ChannelId, ChannelTerms, LinkClass, LinkDecision, LinkScheduler, LinkSchedulerConfig,
};
use weir_units::{BitsPerSecond, Nanos};

/// The scheduler under test. A packet is represented by its arrival time.
pub struct Weir {
    pub link: LinkScheduler<u64>,
    pub ids: BTreeMap<usize, ChannelId>,
}

impl Weir {
    pub fn new(config: LinkSchedulerConfig) -> Weir {
        Weir { link: LinkScheduler::new(config).expect("a link"), ids: BTreeMap::new() }
    }
}

impl Discipline for Weir {
    fn arrive(&mut self, who: usize, length: u32, now: u64) -> bool {
        self.ids.get(&who).is_some_and(|id| self.link.enqueue(*id, now, length, Nanos(now)).is_ok())
    }

    fn next(&mut self, now: u64) -> Step {
        match self.link.next(Nanos(now)) {
            LinkDecision::Send { channel, packet, length, class } => {
                let who = self.ids.iter().find(|(_, id)| **id == channel).map(|(who, _)| *who);
                let who = who.expect("an open channel");
                Step::Send { who, arrived: packet, length, reserved: class == LinkClass::Reserved }
            }
            LinkDecision::Wait { until } => Step::Wait(until.0),
            LinkDecision::Idle => Step::Idle,
        }
    }

    fn terms(&mut self, who: usize, terms: Option<ChannelTerms>, now: u64) -> bool {
        match (self.ids.get(&who), terms) {
            (Some(id), Some(terms)) => self.link.change(*id, terms, Nanos(now)).is_ok(),
            (None, Some(terms)) => match self.link.open(terms, Nanos(now)) {
                Ok(id) => self.ids.insert(who, id).is_none(),
                Err(_) => false,
            },
            (Some(id), None) => {
                self.link.close(*id, Nanos(now)).expect("an open channel");
                self.ids.remove(&who).is_some()
            }
            (None, None) => false,
        }
    }

    fn rate(&mut self, rate: u64, now: u64) -> bool {
        self.link.set_rate(BitsPerSecond(rate), BitsPerSecond(rate), Nanos(now)).is_ok()
    }
}

/// First come first served, or with `turns` one packet of each channel in turn.
pub struct Plain {
    pub turns: bool,
    config: LinkSchedulerConfig,
    queues: BTreeMap<usize, VecDeque<(u64, u64, u32)>>,
    arrivals: u64,
    last: usize,
    free: u64,
}

impl Plain {
    pub fn new(config: LinkSchedulerConfig, turns: bool) -> Plain {
        Plain { turns, config, queues: BTreeMap::new(), arrivals: 0, last: 0, free: 0 }
    }
}

impl Discipline for Plain {
    fn arrive(&mut self, who: usize, length: u32, now: u64) -> bool {
        self.arrivals += 1;
        let length = self.config.framing.on_wire(length);
        self.queues.entry(who).or_default().push_back((self.arrivals, now, length));
        true
    }

    fn next(&mut self, now: u64) -> Step {
        let heads = self.queues.iter().filter_map(|(who, queue)| queue.front().map(|head| (*who, *head)));
        let (turns, last) = (self.turns, self.last);
        let first = heads.min_by_key(
            |(who, (arrival, ..))| if turns { (*who <= last, *who as u64) } else { (false, *arrival) },
        );
        match first {
            None => Step::Idle,
            Some(_) if now < self.free => Step::Wait(self.free),
            Some((who, (_, arrived, length))) => {
                self.last = who;
                self.queues.get_mut(&who).expect("it has a head").pop_front();
                self.free = now + u64::from(length) * 8_000_000_000 / self.config.rate.0;
                Step::Send { who, arrived, length, reserved: false }
            }
        }
    }

    fn terms(&mut self, _: usize, _: Option<ChannelTerms>, _: u64) -> bool {
        true
    }

    fn rate(&mut self, rate: u64, _: u64) -> bool {
        self.config.rate.0 = rate;
        true
    }
}
