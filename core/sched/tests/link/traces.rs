//! A recorded trace replays to the same decisions.

use crate::link::properties::scenario;
use crate::link::simulator::{Discipline, Event, Step, run};
use proptest::prelude::*;
use std::collections::BTreeMap;
use weir_sched::link::trace::{LinkReplayError, LinkTraceRecorder, Replay};
use weir_sched::link::{ChannelId, ChannelTerms, LinkClass, LinkConfigError, LinkDecision};
use weir_units::{BitsPerSecond, Nanos};

struct Recorded {
    link: LinkTraceRecorder<u64>,
    ids: BTreeMap<usize, ChannelId>,
}

impl Discipline for Recorded {
    fn arrive(&mut self, who: usize, length: u32, now: u64) -> bool {
        self.ids.get(&who).is_some_and(|id| self.link.enqueue(*id, now, length, Nanos(now)).is_ok())
    }

    fn next(&mut self, now: u64) -> Step {
        match self.link.next(Nanos(now)) {
            LinkDecision::Send { channel, packet, length, class } => {
                let who = self.ids.iter().find(|(_, id)| **id == channel).map(|(who, _)| *who);
                let reserved = class == LinkClass::Reserved;
                Step::Send { who: who.expect("a channel"), arrived: packet, length, reserved }
            }
            LinkDecision::Wait { until } => Step::Wait(until.0),
            LinkDecision::Idle => Step::Idle,
        }
    }

    fn terms(&mut self, who: usize, terms: Option<ChannelTerms>, now: u64) -> bool {
        match (self.ids.get(&who).copied(), terms) {
            (None, Some(terms)) => {
                self.link.open(terms, Nanos(now)).is_ok_and(|id| self.ids.insert(who, id).is_none())
            }
            (Some(id), Some(terms)) => self.link.change(id, terms, Nanos(now)).is_ok(),
            (Some(id), None) => {
                self.ids.remove(&who);
                self.link.close(id, Nanos(now)).is_some()
            }
            (None, None) => false,
        }
    }

    fn rate(&mut self, rate: u64, now: u64) -> bool {
        self.link.release_held(BitsPerSecond(rate / 4), Nanos(now));
        self.link.set_rate(BitsPerSecond(rate), BitsPerSecond(rate), Nanos(now)).is_ok()
    }
}

fn replay(trace: &str) -> Result<(), LinkReplayError> {
    let mut replay = Replay::default();
    trace.lines().try_for_each(|line| replay.feed(line))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Includes changes and closings in the middle. Any altered decision is detected at its line.
    #[test]
    fn a_recorded_run_replays(scenario in scenario(), at in 0..60_000_000u64, (first, second) in (0..7usize, 0..7usize), altered in any::<prop::sample::Index>()) {
        let link = LinkTraceRecorder::new(scenario.config()).expect("a link");
        let mut recorded = Recorded { link, ids: BTreeMap::new() };
        let mut events = scenario.events();
        let plan = &scenario.channels[second % scenario.channels.len()];
        events.push((at, Event::Terms { who: first % scenario.channels.len(), terms: None }));
        events.push((at + 1_000, Event::Terms { who: second % scenario.channels.len(), terms: Some(scenario.terms(plan)) }));
        events.push((at / 2, Event::Rate(scenario.rate * 2)));
        events.push((at + 2_000, Event::Rate(scenario.rate / 2)));
        run(&mut recorded, &events, 10_000_000_000);
        let trace = recorded.link.take();
        prop_assert_eq!(replay(&trace), Ok(()));

        let mut lines: Vec<String> = trace.lines().map(str::to_owned).collect();
        let sends: Vec<usize> = (0..lines.len()).filter(|line| lines[*line].contains(" > r ") || lines[*line].contains(" > x ")).collect();
        let line = sends[altered.index(sends.len())];
        lines[line] = if lines[line].contains(" > r ") { lines[line].replace(" > r ", " > x ") } else { lines[line].replace(" > x ", " > r ") };
        let found = matches!(replay(&lines.join("\n")), Err(LinkReplayError::Differs { line: at, .. }) if at == line + 1);
        prop_assert!(found, "line {} was altered", line + 1);
    }

    #[test]
    fn no_text_causes_a_panic_of_a_replay(lines in prop::collection::vec("[omcrenx>+.0-9/ -]{0,40}", 0..20)) {
        let mut replay = Replay::default();
        replay.feed("weir-link 1 1000000 1000000 24 60 1514 0 4").expect("a link");
        for line in lines {
            // Any line gives an answer or an error.
            let answer = replay.feed(&line);
            let is_of_link = matches!(answer, Err(LinkReplayError::Config { .. }));
            prop_assert!(!is_of_link, "{answer:?}");
        }
    }
}

#[test]
fn a_trace_can_be_read() {
    let trace = "\
weir-link 1 8000000 8000000 0 1 1000 0 2
o 0 3000/10000000 -/- 0 10 10000 > 0.0
";
    assert_eq!(replay(trace), Err(LinkReplayError::Malformed { line: 2 }), "no cap is a single dash");
    let trace = "\
weir-link 1 8000000 8000000 0 1 1000 0 2
o 0 3000/10000000 - 0 10 10000 > 0.0
o 5 - 800000/0 7 10 10000 > 1.0
o 0 - - 7 10 10000 > -
e 0 1.0 1000 > +
e 0 1.0 1001 > l
n 0 > x 1.0 1000
n 0 > i
e 0 1.0 500 > +
e 1000 0.0 800 > +
n 0 > w 999000
n 999000 > r 0.0 800
n 0 > w 9000000
m 0 1.0 - - 1 10 10000 > +
n 800000 > x 1.0 500
r 0 2000000 2000000 > -
r 0 4000000 8000000 > -
r 0 4000000 3000000 > +
e 0 1.0 500 > +
n 0 > w 1000000
c 0 1.0 > 1
c 0 1.0 > -
e 0 1.0 500 > n
";
    assert_eq!(replay(trace), Ok(()));
    assert_eq!(replay("weir-link 2 1 1 0 1 1 0 1"), Err(LinkReplayError::Malformed { line: 1 }));
    assert_eq!(
        replay("weir-link 1 0 0 0 1 1 0 1"),
        Err(LinkReplayError::Config { line: 1, error: LinkConfigError::NoRate })
    );
}
