//! `RED`: drops packets at random before queues are full.
//!
//! - S. Floyd, V. Jacobson: "Random Early Detection Gateways for Congestion Avoidance", IEEE/ACM Transactions on
//!   Networking 1(4), 1993.

use crate::values::{BinaryFraction, binary_fraction};
use std::fmt::Write as _;
use weir_graph::arguments::text::split_words;
use weir_graph::arguments::{ArgumentValue as _, ElementReference, RawArgument};
use weir_graph::engine::{
    BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement, GraphPacket,
    OrderDependence, Reason,
};
use weir_graph::{handlers, reconfigured_fields};
use weir_units::Nanos;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "RED",
    ports: "1/1-2",
    processing: "a/ah",
    flow: "x/x",
    cost: ElementCost::E5,
    effects: Effects::CONTROL.and(Effects::RANDOM),
    order: OrderDependence::Ordered,
    manual: "\
drops packets at random before queues are full

RED(MIN_THRESH, MAX_THRESH, MAX_P [, keywords QUEUES, STABILITY, GENTLE])

RED passes packets on, and drops some of them by the average number of packets in queues: none up to MIN_THRESH, from there \
on more and more, and the part MAX_P at MAX_THRESH. Dropped packets go to output 1, or are discarded if there is none. The \
queues are the next ones behind output 0 if it pushes, else those before the input.

Arguments:
  MIN_THRESH  up to this average no packet is dropped
  MAX_THRESH  at this average packets are dropped with the probability MAX_P; from MIN_THRESH to 65535
  MAX_P       a probability
  QUEUES      the names of other queues, with spaces between them
  STABILITY   from 0 to 16: a new length has the weight 1/2^STABILITY in the average. Default 4; 9 for a fast link.
  GENTLE      true: from MAX_THRESH to twice as much the probability grows to 1. false: above MAX_THRESH all packets are \
dropped. Default true.

Handlers:
  min_thresh      rw  the argument
  max_thresh      rw  the argument
  max_p           rw  the argument
  drops           r   the number of dropped packets
  queues          r   the names of the queues
  avg_queue_size  r   the average number of packets
  stats           r   lengths and drops in words",
    build: |cx| {
        let mut args = cx.arguments();
        let parameters = Thresholds {
            low: args.either("MIN_THRESH").required(),
            high: args.either("MAX_THRESH").required(),
            probability: args.either("MAX_P").checked(BinaryFraction::check_probability).required(),
            is_gentle: args.keyword("GENTLE").or(true),
        };
        let stability = args.keyword("STABILITY").within(0..=STABILITY_MAX).or(4_u32);
        let queues: Option<RawArgument> = args.keyword("QUEUES").optional();
        let mut named = Vec::new();
        for name in split_words(queues.as_ref().map_or("", |queues| &queues.0)) {
            match ElementReference::parse_argument(name, cx.argument_context()) {
                Ok(ElementReference(queue)) => named.push(queue),
                Err(fault) => args.error("QUEUES", format!("{name}: {fault}")),
            }
        }
        if let Err(reason) = parameters.check() {
            args.error("", reason);
        }
        args.end()?;
        Ok(BuiltElement::emitting(Red {
            parameters,
            average: LengthAverage { stability, scaled: 0, empty_since: None },
            queues: named,
            since_drop: -1,
            threshold: 0,
            drops: 0,
        }))
    },
};

const STABILITY_MAX: u32 = 16;

/// The bits behind the point of probabilities.
const PROBABILITY_BITS: u32 = 16;

/// The bits behind the point of average lengths.
const LENGTH_BITS: u32 = 10;

/// The time in which an empty queue counts as an arrival at an empty queue.
const EMPTY_STEP: Nanos = Nanos(20_000_000);

/// After so many steps the average is 0.
const EMPTY_STEPS_MAX: u64 = 100;

/// The arguments that state the probability of a drop.
#[derive(Clone, Copy, Debug)]
struct Thresholds {
    low: u32,
    high: u32,
    /// At `high`.
    probability: BinaryFraction<PROBABILITY_BITS>,
    is_gentle: bool,
}

impl Thresholds {
    fn check(&self) -> Result<(), Reason> {
        if self.high > u32::from(u16::MAX) {
            return Err(format!("MAX_THRESH must be <= {}", u16::MAX));
        }
        if self.low > self.high {
            return Err("MIN_THRESH must be <= MAX_THRESH".to_owned());
        }
        Ok(())
    }

    /// Returns the probability of a drop at an average above `low`; `None` if all packets are dropped.
    fn drop_probability(&self, average: u64) -> Option<u64> {
        const WHOLE: u64 = 1 << LENGTH_BITS;
        let rounded = (average + WHOLE / 2) >> LENGTH_BITS;
        let (low, high, most) = (u64::from(self.low), u64::from(self.high), self.probability.0);
        let one = BinaryFraction::<PROBABILITY_BITS>::ONE.0;
        let all_above = if self.is_gentle && most < one { high * 2 } else { high };
        if rounded > all_above {
            return None;
        }
        let part = |from: u64, length: u64, least: u64, most: u64| {
            let above = average.saturating_sub(from << LENGTH_BITS);
            least + (most - least) * above / (length << LENGTH_BITS).max(1)
        };
        Some(match rounded <= high {
            true => part(low, high - low, 0, most),
            false => part(high, high, most, one),
        })
    }
}

/// The moving average of the length of queues.
#[derive(Clone, Copy, Debug)]
struct LengthAverage {
    stability: u32,
    scaled: u64,
    /// The step of time at which a packet came to empty queues.
    empty_since: Option<u64>,
}

impl LengthAverage {
    fn observe(&mut self, length: u64) {
        let half = (1_u64 << self.stability) / 2;
        let change = ((length << LENGTH_BITS) + half).cast_signed() - self.scaled.cast_signed();
        self.scaled = self.scaled.saturating_add_signed(change >> self.stability);
    }

    /// Adds the length at the arrival of a packet. Time with empty queues counts as arrivals.
    fn add(&mut self, length: usize, step: u64) {
        let length = length as u64;
        if self.stability == 0 {
            self.scaled = length << LENGTH_BITS;
        } else if length > 0 {
            self.empty_since = None;
            self.observe(length);
        } else {
            let steps = self.empty_since.map_or(1, |since| step.saturating_sub(since));
            self.empty_since = Some(step);
            if steps >= EMPTY_STEPS_MAX {
                self.scaled = 0;
            } else {
                (0..steps).for_each(|_| self.observe(0));
            }
        }
    }
}

struct Red {
    parameters: Thresholds,
    average: LengthAverage,
    /// The indices of the queues.
    queues: Vec<usize>,
    /// The packets since the latest drop; -1 while the average is outside of the thresholds.
    since_drop: i64,
    /// A random number of [`PROBABILITY_BITS`]: the next packet is dropped if `since_drop` is above its quotient by the
    /// probability.
    threshold: u64,
    drops: u64,
}

impl Red {
    fn length(&self, cx: &mut ElementContext<'_>) -> usize {
        self.queues.iter().filter_map(|queue| cx.stored_packets(*queue)).sum()
    }

    fn must_drop(&mut self, cx: &mut ElementContext<'_>) -> bool {
        let length = self.length(cx);
        let step = cx.services.coarse_now().0 / EMPTY_STEP.0;
        self.average.add(length, step);
        let average = self.average.scaled;
        let is_low = average < (u64::from(self.parameters.low) << LENGTH_BITS) + (1 << (LENGTH_BITS - 1));
        let probability = self.parameters.drop_probability(average);
        let (false, Some(probability)) = (is_low, probability) else {
            self.since_drop = -1;
            return !is_low;
        };
        self.since_drop += 1;
        let since = u64::try_from(self.since_drop).unwrap_or(0);
        let is_drop = since > 0 && probability > 0 && since > self.threshold / probability;
        if is_drop {
            self.since_drop = 0;
        }
        if self.since_drop == 0 {
            self.threshold = cx.services.random() & ((1 << PROBABILITY_BITS) - 1);
        }
        is_drop
    }

    fn drop_packet(&mut self, packet: GraphPacket, cx: &mut ElementContext<'_>) {
        self.drops += 1;
        cx.emit_or_discard(1, packet);
    }

    /// Changes a threshold, unless they do not fit then.
    fn change(&mut self, change: impl FnOnce(&mut Thresholds)) -> Result<String, Reason> {
        let mut parameters = self.parameters;
        change(&mut parameters);
        parameters.check()?;
        self.parameters = parameters;
        Ok(String::new())
    }

    fn average_text(&self) -> String {
        binary_fraction(self.average.scaled, LENGTH_BITS)
    }
}

impl Element for Red {
    reconfigured_fields!(parameters);

    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        let named = std::mem::take(&mut self.queues);
        self.queues = match named.is_empty() {
            true => cx.nearest_stores(0),
            false => {
                for queue in &named {
                    // The queue has to be on the same thread.
                    _ = cx.shared_state(*queue);
                }
                named
            }
        };
        if self.queues.is_empty() {
            return Err("no nearby Queues: name some by QUEUES".to_owned());
        }
        for queue in self.queues.clone() {
            if cx.stored_packets(queue).is_none() {
                return Err(format!("'{}' is no queue", cx.element_name(queue).unwrap_or_default()));
            }
        }
        Ok(())
    }

    fn take_state(&mut self, earlier: &mut dyn std::any::Any, _: &mut ElementContext<'_>) {
        if let Some(earlier) = earlier.downcast_ref::<Red>() {
            let stability = self.average.stability;
            self.average = LengthAverage { stability, ..earlier.average };
            self.drops = earlier.drops;
        }
    }

    handlers! {
        "min_thresh": "the average up to which no packet is dropped",
            read |this, _, _| Ok(this.parameters.low.to_string()),
            write |this, value, _| {
                let low = crate::values::read(value)?;
                this.change(|it| it.low = low)
            };
        "max_thresh": "the average at which packets are dropped with the probability MAX_P",
            read |this, _, _| Ok(this.parameters.high.to_string()),
            write |this, value, _| {
                let high = crate::values::read(value)?;
                this.change(|it| it.high = high)
            };
        "max_p": "the probability of a drop at MAX_THRESH",
            read |this, _, _| Ok(this.parameters.probability.to_string()),
            write |this, value, _| {
                let probability: BinaryFraction<PROBABILITY_BITS> = crate::values::read(value)?;
                probability.check_probability().map_err(|fault| fault.to_string())?;
                this.change(|it| it.probability = probability)
            };
        "drops": counter "the number of dropped packets", read |this, _, _| Ok(this.drops.to_string());
        "queues": "the names of the queues",
            read |this, _, cx| Ok(this.queues.iter().fold(String::new(), |mut text, queue| {
                _ = writeln!(text, "{}", cx.element_name(*queue).unwrap_or_default());
                text
            }));
        "avg_queue_size": "the average number of packets", read |this, _, _| Ok(this.average_text());
        "stats": "lengths and drops in words",
            read |this, _, cx| Ok(format!(
                "{} current queue\n{} avg queue\n{} drops\n",
                this.length(cx),
                this.average_text(),
                this.drops
            ));
    }
}

impl EmittingElement for Red {
    fn push(&mut self, _: usize, packet: GraphPacket, cx: &mut ElementContext<'_>) {
        if self.must_drop(cx) {
            self.drop_packet(packet, cx);
        } else {
            cx.emit(0, packet);
        }
    }

    fn pull(&mut self, _: usize, cx: &mut ElementContext<'_>) -> Option<GraphPacket> {
        for _ in 0..PULLS_MAX {
            let packet = cx.pull(0)?;
            if !self.must_drop(cx) {
                return Some(packet);
            }
            self.drop_packet(packet, cx);
        }
        None
    }
}

/// The most packets that are dropped for one that is pulled. Above it, the next pull goes on.
const PULLS_MAX: usize = 1024;
