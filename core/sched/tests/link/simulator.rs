//! A link in simulated time: sources, a discipline, and a log of transmissions.

use std::collections::BTreeMap;
use weir_sched::link::ChannelTerms;

/// A discipline: the scheduler under test, or one without guarantees.
pub trait Discipline {
    /// Handles the arrival of a packet. Returns false if it was dropped.
    fn arrive(&mut self, who: usize, length: u32, now: u64) -> bool;
    /// Decides what to do next.
    fn next(&mut self, now: u64) -> Step;
    /// Opens or changes a channel, or closes it (`None`). Returns false if refused.
    fn terms(&mut self, who: usize, terms: Option<ChannelTerms>, now: u64) -> bool;
    /// Changes the link's rate, all of which can be reserved. Returns false if refused.
    fn rate(&mut self, rate: u64, now: u64) -> bool;
}

/// A decision.
#[derive(Debug)]
pub enum Step {
    Send { who: usize, arrived: u64, length: u32, reserved: bool },
    Wait(u64),
    Idle,
}

/// An event of a simulation.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A packet.
    Packet { who: usize, length: u32 },
    /// From now on the channel always has a packet of this length waiting; 0 ends that.
    Greedy { who: usize, length: u32 },
    /// New terms, as for [`Discipline::terms`].
    Terms { who: usize, terms: Option<ChannelTerms> },
    /// Another rate, as for [`Discipline::rate`].
    Rate(u64),
}

/// A transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    pub who: usize,
    pub arrived: u64,
    pub begin: u64,
    pub length: u32,
    pub reserved: bool,
}

/// The log of a run.
pub struct Log {
    pub sent: Vec<Sent>,
    /// The indices of events with terms or rates that were refused, in order of time.
    pub refused: Vec<usize>,
    pub dropped: usize,
}

/// The number of packets that a greedy source keeps waiting.
const GREEDY_WAITING: usize = 2;

/// Runs `events` (time, event), and then until nothing waits or until `end`. The discipline paces itself.
pub fn run(discipline: &mut dyn Discipline, events: &[(u64, Event)], end: u64) -> Log {
    let mut log = Log { sent: Vec::new(), refused: Vec::new(), dropped: 0 };
    let mut greedy: BTreeMap<usize, u32> = BTreeMap::new();
    let mut order: Vec<usize> = (0..events.len()).collect();
    order.sort_by_key(|event| events[*event].0);
    let mut due = order.iter().copied().peekable();
    let mut wake = None;
    loop {
        let next_event = due.peek().map(|event| events[*event].0);
        let Some(now) = [next_event, wake].into_iter().flatten().min().filter(|now| *now <= end) else {
            return log;
        };
        while let Some(event) = due.next_if(|event| events[*event].0 <= now) {
            match events[event].1 {
                Event::Packet { who, length } => {
                    log.dropped += usize::from(!discipline.arrive(who, length, now));
                }
                Event::Greedy { who, length: 0 } => _ = greedy.remove(&who),
                Event::Greedy { who, length } => {
                    if greedy.insert(who, length).is_none() {
                        (0..GREEDY_WAITING).for_each(|_| _ = discipline.arrive(who, length, now));
                    }
                }
                Event::Terms { who, terms } => {
                    if !discipline.terms(who, terms, now) {
                        log.refused.push(event);
                    }
                }
                Event::Rate(rate) => {
                    if !discipline.rate(rate, now) {
                        log.refused.push(event);
                    }
                }
            }
        }
        wake = loop {
            match discipline.next(now) {
                Step::Send { who, arrived, length, reserved } => {
                    log.sent.push(Sent { who, arrived, begin: now, length, reserved });
                    if let Some(length) = greedy.get(&who) {
                        discipline.arrive(who, *length, now);
                    }
                }
                Step::Wait(until) => {
                    assert!(until > now, "waiting for {until} at {now} would not end");
                    break Some(until);
                }
                Step::Idle => break None,
            }
        };
    }
}
