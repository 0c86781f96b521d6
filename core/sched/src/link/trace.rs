//! Traces of a link's inputs and decisions as lines of text, and their replay.
//!
//! A line is a request, ` > `, and the answer. Fields are separated by single spaces, numbers are decimal, and
//! `-` stands for "none". Times are nanoseconds since the line before. Lengths are without framing in requests, and on
//! the wire in answers. A channel is `slot.generation`.
//!
//! | request | answer |
//! |---|---|
//! | `weir-link 1 RATE RESERVABLE OVERHEAD LEAST FRAME_MAX CATCH_UP CHANNELS_MAX`, the first line; CATCH_UP `-`: the device paces | none, and no ` > ` |
//! | `o TIME TERMS`: open | the channel, or `-`: refused |
//! | `m TIME CHANNEL TERMS`: change | `+`, or `-`: refused |
//! | `c TIME CHANNEL`: close | the number of packets that waited, or `-`: no such channel |
//! | `r TIME RATE RESERVABLE`: change the link's rate | `+`, or `-`: refused |
//! | `f TIME RATE`: release held rate | `+` |
//! | `e TIME CHANNEL LENGTH`: enqueue | `+`, or the cause: `p`, `b` (the queue's packets, bytes), `l` (too long), `n` (no such channel) |
//! | `n TIME`: next | `r CHANNEL LENGTH` or `x CHANNEL LENGTH` (reserved, excess), `w TIME` (wait; relative to this line's time), or `i` (idle) |
//!
//! TERMS are `LIMIT/PERIOD RATE/BURST WEIGHT PACKETS BYTES`: the reservation (with PERIOD 0, LIMIT is a rate in bits
//! per second), the cap, the weight and the queue limits.

use super::admission::{ChannelRefused, LinkConfigError, RateRefused};
use super::config::{Cap, ChannelTerms, Framing, LinkReservation, LinkSchedulerConfig, Pacing, QueueLimit};
use super::counters::LinkDropCause;
use super::scheduler::{ChannelId, ClosedChannel, Dropped, LinkClass, LinkDecision, LinkScheduler};
use std::fmt::Display;
use std::str::SplitWhitespace;
use weir_units::{BitsPerSecond, Bytes, Nanos};

/// The first fields of a trace.
const MAGIC: [&str; 2] = ["weir-link", "1"];

/// A link scheduler whose calls can be recorded.
pub struct LinkTraceRecorder<P> {
    link: LinkScheduler<P>,
    /// The lines not taken yet; `None` if nothing is recorded.
    text: Option<String>,
    /// The time of the last line.
    last: Nanos,
}

impl<P> LinkTraceRecorder<P> {
    /// Creates a link without channels, as [`LinkScheduler::new`] does, and records it from the beginning.
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

    /// Creates a link that does not record.
    pub fn silent(config: LinkSchedulerConfig) -> Result<Self, LinkConfigError> {
        Ok(LinkTraceRecorder { link: LinkScheduler::new(config)?, text: None, last: Nanos(0) })
    }

    /// Takes the whole lines written since the last call.
    pub fn take(&mut self) -> String {
        self.text.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The link scheduler, for reading.
    pub fn link(&self) -> &LinkScheduler<P> {
        &self.link
    }

    /// Calls and records [`LinkScheduler::open`].
    pub fn open(&mut self, terms: ChannelTerms, now: Nanos) -> Result<ChannelId, ChannelRefused> {
        let answer = self.link.open(terms, now);
        self.record(now, |time, _| {
            let shown = answer.map_or_else(|_| "-".to_owned(), show_channel);
            format!("o {time} {} > {shown}", show_terms(&terms))
        });
        answer
    }

    /// Calls and records [`LinkScheduler::change`].
    pub fn change(&mut self, id: ChannelId, terms: ChannelTerms, now: Nanos) -> Result<(), ChannelRefused> {
        let answer = self.link.change(id, terms, now);
        let shown = if answer.is_ok() { '+' } else { '-' };
        self.record(now, |time, _| format!("m {time} {} {} > {shown}", show_channel(id), show_terms(&terms)));
        answer
    }

    /// Calls and records [`LinkScheduler::close`].
    pub fn close(&mut self, id: ChannelId, now: Nanos) -> Option<ClosedChannel<P>> {
        let answer = self.link.close(id, now);
        self.record(now, |time, _| {
            let shown =
                answer.as_ref().map_or_else(|| "-".to_owned(), |closed| closed.unsent.len().to_string());
            format!("c {time} {} > {shown}", show_channel(id))
        });
        answer
    }

    /// Calls and records [`LinkScheduler::set_rate`].
    pub fn set_rate(
        &mut self,
        rate: BitsPerSecond,
        reservable: BitsPerSecond,
        now: Nanos,
    ) -> Result<(), RateRefused> {
        let answer = self.link.set_rate(rate, reservable, now);
        let shown = if answer.is_ok() { '+' } else { '-' };
        self.record(now, |time, _| format!("r {time} {} {} > {shown}", rate.0, reservable.0));
        answer
    }

    /// Calls and records [`LinkScheduler::release_held`].
    pub fn release_held(&mut self, wanted: BitsPerSecond, now: Nanos) {
        self.link.release_held(wanted, now);
        self.record(now, |time, _| format!("f {time} {} > +", wanted.0));
    }

    /// Calls and records [`LinkScheduler::enqueue`].
    pub fn enqueue(&mut self, id: ChannelId, packet: P, length: u32, now: Nanos) -> Result<(), Dropped<P>> {
        let answer = self.link.enqueue(id, packet, length, now);
        let shown = match answer.as_ref().map_err(|dropped| dropped.cause) {
            Ok(()) => '+',
            Err(LinkDropCause::QueuePackets) => 'p',
            Err(LinkDropCause::QueueBytes) => 'b',
            Err(LinkDropCause::TooLong) => 'l',
            Err(LinkDropCause::NoSuchChannel) => 'n',
        };
        self.record(now, |time, _| format!("e {time} {} {length} > {shown}", show_channel(id)));
        answer
    }

    /// Calls and records [`LinkScheduler::next`].
    pub fn next(&mut self, now: Nanos) -> LinkDecision<P> {
        let answer = self.link.next(now);
        self.record(now, |time, last| match &answer {
            LinkDecision::Send { channel, length, class, .. } => {
                let class = if *class == LinkClass::Reserved { 'r' } else { 'x' };
                format!("n {time} > {class} {} {length}", show_channel(*channel))
            }
            LinkDecision::Wait { until } => format!("n {time} > w {}", until.0.saturating_sub(last.0)),
            LinkDecision::Idle => format!("n {time} > i"),
        });
        answer
    }

    /// Adds a line, which `line` writes from the time since the previous line and the time of this line. As in the
    /// link, a time before that of the previous line counts as that of the previous line.
    fn record(&mut self, now: Nanos, line: impl FnOnce(u64, Nanos) -> String) {
        let Some(text) = &mut self.text else { return };
        let time = now.0.saturating_sub(self.last.0);
        self.last.0 += time;
        text.push_str(&line(time, self.last));
        text.push('\n');
    }
}

/// The reason why a trace could not be replayed. Line numbers start at 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkReplayError {
    /// The line is not in the format of this module's documentation.
    #[error("line {line} is not a line of a link trace")]
    Malformed {
        /// The line's number.
        line: usize,
    },
    /// The trace starts with an invalid configuration of a link.
    #[error("line {line}: {error}")]
    Config {
        /// The line's number.
        line: usize,
        /// The reason why the configuration is refused.
        error: LinkConfigError,
    },
    /// The link gives an answer that differs from the recorded one.
    #[error("line {line} of the trace was recorded as `{recorded}`; the replay gives `{replayed}`")]
    Differs {
        /// The line's number.
        line: usize,
        /// The recorded line.
        recorded: String,
        /// The line of the replay.
        replayed: String,
    },
}

/// A replay of a trace on a new link, line by line, which compares the answers with the recorded ones. It needs
/// the memory of the recorded link without its packets.
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
        let request = recorded.split(" > ").next().unwrap_or_default();
        let mut fields = RequestFields(request.split_whitespace());
        let Some(link) = self.link.as_mut() else {
            let config =
                fields.config().filter(|_| fields.is_empty()).ok_or(LinkReplayError::Malformed { line })?;
            let link =
                LinkTraceRecorder::new(config).map_err(|error| LinkReplayError::Config { line, error })?;
            return compare(self.link.insert(link), recorded, line);
        };
        apply_line(link, &mut self.now, &mut fields).ok_or(LinkReplayError::Malformed { line })?;
        compare(link, recorded, line)
    }

    /// The link after the lines so far; `None` before the first line.
    pub fn link(&self) -> Option<&LinkScheduler<()>> {
        self.link.as_ref().map(LinkTraceRecorder::link)
    }
}

/// Makes the request of a line; the recorder writes the answer. `None` if the line is not a request.
fn apply_line(
    link: &mut LinkTraceRecorder<()>,
    now: &mut Nanos,
    fields: &mut RequestFields<'_>,
) -> Option<()> {
    let kind = fields.text()?;
    *now = Nanos(now.0.checked_add(fields.number()?)?);
    match kind {
        "o" => _ = link.open(fields.last(RequestFields::terms)?, *now),
        "m" => {
            let id = fields.channel()?;
            _ = link.change(id, fields.last(RequestFields::terms)?, *now);
        }
        "c" => _ = link.close(fields.last(RequestFields::channel)?, *now),
        "r" => {
            let rate = BitsPerSecond(fields.number()?);
            _ = link.set_rate(rate, BitsPerSecond(fields.last(RequestFields::number)?), *now);
        }
        "f" => link.release_held(BitsPerSecond(fields.last(RequestFields::number)?), *now),
        "e" => {
            let id = fields.channel()?;
            _ = link.enqueue(id, (), fields.last(RequestFields::number)?, *now);
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

/// The fields of a request that have not been read yet.
struct RequestFields<'a>(SplitWhitespace<'a>);

impl<'a> RequestFields<'a> {
    fn text(&mut self) -> Option<&'a str> {
        self.0.next()
    }

    fn number<T: std::str::FromStr>(&mut self) -> Option<T> {
        self.text()?.parse().ok()
    }

    fn is_empty(&self) -> bool {
        self.0.clone().next().is_none()
    }

    /// Reads one value, and returns it if no field follows.
    fn last<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        read(self).filter(|_| self.is_empty())
    }

    fn channel(&mut self) -> Option<ChannelId> {
        let (slot, generation) = self.text()?.split_once('.')?;
        Some(ChannelId::from_parts(slot.parse().ok()?, generation.parse().ok()?))
    }

    /// Reads `A/B`, made into a value by `make`, or `-`.
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
