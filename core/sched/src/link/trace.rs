//! What a link was asked and what it decided, as lines of text; a replay decides the same.
//!
//! A line is a question, ` > `, and the answer. Fields are parted by single spaces, numbers are decimal, `-` is "none". Times are
//! nanoseconds since the line before; lengths are without framing in questions, on the wire in answers. A channel is `slot.generation`.
//!
//! | question | answer |
//! |---|---|
//! | `weir-link 1 RATE RESERVABLE OVERHEAD LEAST FRAME_MAX CATCH_UP CHANNELS_MAX`, the first line; CATCH_UP `-`: the device paces | none, nor ` > ` |
//! | `o TIME TERMS`: open | the channel, or `-`: refused |
//! | `m TIME CHANNEL TERMS`: change | `+`, or `-`: refused |
//! | `c TIME CHANNEL`: close | how many packets waited, or `-`: no such channel |
//! | `r TIME RATE RESERVABLE`: another rate of the link | `+`, or `-`: refused |
//! | `f TIME RATE`: forgive | `+` |
//! | `e TIME CHANNEL LENGTH`: enqueue | `+`, or the cause: `p`, `b` (the queue's packets, bytes), `l` (too long), `n` (no such channel) |
//! | `n TIME`: next | `r CHANNEL LENGTH` or `x CHANNEL LENGTH` (reserved, excess), `w TIME` (wait; since this line's time), or `i` (idle) |
//!
//! TERMS are `LIMIT/PERIOD RATE/BURST WEIGHT PACKETS BYTES`: the reservation (PERIOD 0: LIMIT is a rate in bits per second), the cap, the
//! weight and the queue.

use super::admission::{ChannelRefused, LinkConfigError, RateRefused};
use super::counters::LinkDropCause;
use super::scheduler::{ChannelId, ClosedChannel, Dropped, LinkClass, LinkDecision, LinkScheduler};
use super::terms::{Cap, ChannelTerms, Framing, LinkReservation, LinkSchedulerConfig, Pacing, QueueLimit};
use std::fmt::Display;
use std::str::SplitWhitespace;
use weir_units::{BitsPerSecond, Bytes, Nanos};

/// What a trace begins with.
const MAGIC: [&str; 2] = ["weir-link", "1"];

/// A link that can write down what it does.
pub struct LinkTraceRecorder<P> {
    link: LinkScheduler<P>,
    /// The lines; none where nothing is written down.
    text: Option<String>,
    last: Nanos,
}

impl<P> LinkTraceRecorder<P> {
    /// A link without channels, as [`LinkScheduler::new`].
    pub fn new(config: LinkSchedulerConfig) -> Result<Self, LinkConfigError> {
        let LinkSchedulerConfig { rate, reservable, framing, frame_max, pacing, channels_max } = config;
        let catch_up = match pacing {
            Pacing::Link { catch_up } => catch_up.0.to_string(),
            Pacing::Device => "-".to_owned(),
        };
        let (overhead, least, [name, version]) = (framing.overhead, framing.least, MAGIC);
        let text = format!(
            "{name} {version} {} {} {overhead} {least} {frame_max} {catch_up} {channels_max}\n",
            rate.0, reservable.0
        );
        Ok(LinkTraceRecorder { text: Some(text), ..Self::silent(config)? })
    }

    /// The same link, of which nothing is written down.
    pub fn silent(config: LinkSchedulerConfig) -> Result<Self, LinkConfigError> {
        Ok(LinkTraceRecorder { link: LinkScheduler::new(config)?, text: None, last: Nanos(0) })
    }

    /// What was written since this was last called: whole lines.
    pub fn take(&mut self) -> String {
        self.text.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The link.
    pub fn link(&self) -> &LinkScheduler<P> {
        &self.link
    }

    /// As [`LinkScheduler::open`].
    pub fn open(&mut self, terms: ChannelTerms, now: Nanos) -> Result<ChannelId, ChannelRefused> {
        let answer = self.link.open(terms, now);
        self.line(now, |time, _| {
            let shown = answer.map_or_else(|_| "-".to_owned(), show_channel);
            format!("o {time} {} > {shown}", show_terms(&terms))
        });
        answer
    }

    /// As [`LinkScheduler::change`].
    pub fn change(&mut self, id: ChannelId, terms: ChannelTerms, now: Nanos) -> Result<(), ChannelRefused> {
        let answer = self.link.change(id, terms, now);
        let shown = if answer.is_ok() { '+' } else { '-' };
        self.line(now, |time, _| format!("m {time} {} {} > {shown}", show_channel(id), show_terms(&terms)));
        answer
    }

    /// As [`LinkScheduler::close`].
    pub fn close(&mut self, id: ChannelId, now: Nanos) -> Option<ClosedChannel<P>> {
        let answer = self.link.close(id, now);
        self.line(now, |time, _| {
            let shown =
                answer.as_ref().map_or_else(|| "-".to_owned(), |closed| closed.unsent.len().to_string());
            format!("c {time} {} > {shown}", show_channel(id))
        });
        answer
    }

    /// As [`LinkScheduler::set_rate`].
    pub fn set_rate(
        &mut self,
        rate: BitsPerSecond,
        reservable: BitsPerSecond,
        now: Nanos,
    ) -> Result<(), RateRefused> {
        let answer = self.link.set_rate(rate, reservable, now);
        let shown = if answer.is_ok() { '+' } else { '-' };
        self.line(now, |time, _| format!("r {time} {} {} > {shown}", rate.0, reservable.0));
        answer
    }

    /// As [`LinkScheduler::forgive`].
    pub fn forgive(&mut self, wanted: BitsPerSecond, now: Nanos) {
        self.link.forgive(wanted, now);
        self.line(now, |time, _| format!("f {time} {} > +", wanted.0));
    }

    /// As [`LinkScheduler::enqueue`].
    pub fn enqueue(&mut self, id: ChannelId, packet: P, length: u32, now: Nanos) -> Result<(), Dropped<P>> {
        let answer = self.link.enqueue(id, packet, length, now);
        let shown = match answer.as_ref().map_err(|dropped| dropped.cause) {
            Ok(()) => '+',
            Err(LinkDropCause::QueuePackets) => 'p',
            Err(LinkDropCause::QueueBytes) => 'b',
            Err(LinkDropCause::TooLong) => 'l',
            Err(LinkDropCause::NoSuchChannel) => 'n',
        };
        self.line(now, |time, _| format!("e {time} {} {length} > {shown}", show_channel(id)));
        answer
    }

    /// As [`LinkScheduler::next`].
    pub fn next(&mut self, now: Nanos) -> LinkDecision<P> {
        let answer = self.link.next(now);
        self.line(now, |time, last| match &answer {
            LinkDecision::Send { channel, length, class, .. } => {
                let class = if *class == LinkClass::Reserved { 'r' } else { 'x' };
                format!("n {time} > {class} {} {length}", show_channel(*channel))
            }
            LinkDecision::Wait { until } => format!("n {time} > w {}", until.0.saturating_sub(last.0)),
            LinkDecision::Idle => format!("n {time} > i"),
        });
        answer
    }

    /// Adds a line, made from the time since the last one and the time of this one. A time that goes back counts as the last, as for the link.
    fn line(&mut self, now: Nanos, line: impl FnOnce(u64, Nanos) -> String) {
        let Some(text) = &mut self.text else { return };
        let time = now.0.saturating_sub(self.last.0);
        self.last.0 += time;
        text.push_str(&line(time, self.last));
        text.push('\n');
    }
}

/// What is wrong with a trace, at the line of this number, from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkReplayError {
    /// Not as this module's documentation says.
    #[error("line {line} is no line of a link's trace")]
    Malformed {
        /// Where.
        line: usize,
    },
    /// A link that cannot be.
    #[error("line {line}: {error}")]
    Config {
        /// Where.
        line: usize,
        /// What is wrong with it.
        error: LinkConfigError,
    },
    /// The link decided otherwise.
    #[error("line {line}: was recorded as `{recorded}`, is now `{replayed}`")]
    Differs {
        /// Where.
        line: usize,
        /// The line.
        recorded: String,
        /// What it would have to be.
        replayed: String,
    },
}

/// Asks a new link what a trace asked, line by line, and compares the answers. The memory that it takes is what the recorded link took,
/// without the packets.
#[derive(Default)]
pub struct Replay {
    link: Option<LinkTraceRecorder<()>>,
    now: Nanos,
    line: usize,
}

impl Replay {
    /// Replays one line.
    pub fn feed(&mut self, recorded: &str) -> Result<(), LinkReplayError> {
        self.line += 1;
        let line = self.line;
        let question = recorded.split(" > ").next().unwrap_or_default();
        let mut fields = Fields(question.split_whitespace());
        let Some(link) = self.link.as_mut() else {
            let config =
                fields.config().filter(|_| fields.is_empty()).ok_or(LinkReplayError::Malformed { line })?;
            let link =
                LinkTraceRecorder::new(config).map_err(|error| LinkReplayError::Config { line, error })?;
            return compare(self.link.insert(link), recorded, line);
        };
        ask(link, &mut self.now, &mut fields).ok_or(LinkReplayError::Malformed { line })?;
        compare(link, recorded, line)
    }

    /// The link as the lines so far have left it; None before the first.
    pub fn link(&self) -> Option<&LinkScheduler<()>> {
        self.link.as_ref().map(LinkTraceRecorder::link)
    }
}

/// Asks what a line asks; the answer is in what the recorder writes. None if the line is no question.
fn ask(link: &mut LinkTraceRecorder<()>, now: &mut Nanos, fields: &mut Fields<'_>) -> Option<()> {
    let kind = fields.text()?;
    *now = Nanos(now.0.checked_add(fields.number()?)?);
    match kind {
        "o" => _ = link.open(fields.last(Fields::terms)?, *now),
        "m" => {
            let id = fields.channel()?;
            _ = link.change(id, fields.last(Fields::terms)?, *now);
        }
        "c" => _ = link.close(fields.last(Fields::channel)?, *now),
        "r" => {
            let rate = BitsPerSecond(fields.number()?);
            _ = link.set_rate(rate, BitsPerSecond(fields.last(Fields::number)?), *now);
        }
        "f" => link.forgive(BitsPerSecond(fields.last(Fields::number)?), *now),
        "e" => {
            let id = fields.channel()?;
            _ = link.enqueue(id, (), fields.last(Fields::number)?, *now);
        }
        "n" if fields.is_empty() => _ = link.next(*now),
        _ => return None,
    }
    Some(())
}

fn compare(link: &mut LinkTraceRecorder<()>, recorded: &str, line: usize) -> Result<(), LinkReplayError> {
    let replayed = link.take();
    if replayed.trim_end() == recorded.trim_end() {
        return Ok(());
    }
    Err(LinkReplayError::Differs {
        line,
        recorded: recorded.trim_end().to_owned(),
        replayed: replayed.trim_end().to_owned(),
    })
}

/// The fields of a question that are still to be read.
struct Fields<'a>(SplitWhitespace<'a>);

impl<'a> Fields<'a> {
    fn text(&mut self) -> Option<&'a str> {
        self.0.next()
    }

    fn number<T: std::str::FromStr>(&mut self) -> Option<T> {
        self.text()?.parse().ok()
    }

    fn is_empty(&self) -> bool {
        self.0.clone().next().is_none()
    }

    /// What `read` reads, if nothing comes after it.
    fn last<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        read(self).filter(|_| self.is_empty())
    }

    fn channel(&mut self) -> Option<ChannelId> {
        let (slot, generation) = self.text()?.split_once('.')?;
        Some(ChannelId::from_parts(slot.parse().ok()?, generation.parse().ok()?))
    }

    /// `A/B`, made into a value by `make`, or `-`.
    fn pair<T>(&mut self, make: impl FnOnce(u64, u64) -> Option<T>) -> Option<Option<T>> {
        match self.text()? {
            "-" => Some(None),
            text => {
                let (a, b) = text.split_once('/')?;
                make(a.parse().ok()?, b.parse().ok()?).map(Some)
            }
        }
    }

    fn terms(&mut self) -> Option<ChannelTerms> {
        Some(ChannelTerms {
            reservation: self.pair(|amount, period| LinkReservation::from_parts(amount, Nanos(period)))?,
            cap: self.pair(|rate, burst| Cap::with_burst(BitsPerSecond(rate), Bytes(burst)))?,
            weight: self.number()?,
            queue: QueueLimit { packets: self.number()?, bytes: Bytes(self.number()?) },
        })
    }

    fn config(&mut self) -> Option<LinkSchedulerConfig> {
        for magic in MAGIC {
            self.text().filter(|text| *text == magic)?;
        }
        Some(LinkSchedulerConfig {
            rate: BitsPerSecond(self.number()?),
            reservable: BitsPerSecond(self.number()?),
            framing: Framing { overhead: self.number()?, least: self.number()? },
            frame_max: self.number()?,
            pacing: match self.text()? {
                "-" => Pacing::Device,
                catch_up => Pacing::Link { catch_up: Nanos(catch_up.parse().ok()?) },
            },
            channels_max: self.number()?,
        })
    }
}

fn show_channel(id: ChannelId) -> String {
    let (slot, generation) = id.parts();
    format!("{slot}.{generation}")
}

fn show_pair(pair: Option<(impl Display, impl Display)>) -> String {
    pair.map_or_else(|| "-".to_owned(), |(a, b)| format!("{a}/{b}"))
}

fn show_terms(terms: &ChannelTerms) -> String {
    let reservation =
        terms.reservation.map(LinkReservation::parts).map(|(amount, period)| (amount, period.0));
    let cap = terms.cap.map(|cap| (cap.bits_per_second().0, cap.burst().0));
    let (weight, QueueLimit { packets, bytes }) = (terms.weight, terms.queue);
    format!("{} {} {weight} {packets} {}", show_pair(reservation), show_pair(cap), bytes.0)
}
