//! A link of 100 Mbit/s with greedy senders, of which the receiving kernel counts what comes from each.
//!
//! Each sender has a channel, and an interface of its own at the other end (macvlan), so that the kernel there counts for it alone.

use super::scene::{ASIDE, bind, cable, datagram, ip, received, settle};
use super::{Axis, Chart, Csv, FigureError, Mark};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_netio::{Kind, Sink};
use weir_sched::link::{
    Cap, ChannelId, ChannelTerms, Decision, Link, LinkConfig, Pacing, QueueLimit, Reservation,
};
use weir_units::{BitsPerSecond, Bytes, Nanos};

/// The link's rate.
pub const RATE: BitsPerSecond = BitsPerSecond(100_000_000);
/// Megabits per second that the link has.
pub const RATE_MBIT: f64 = 100.0;
/// Bytes of each frame, and what it costs on the wire beside them.
const FRAME: usize = 1514;
const OVERHEAD: u64 = 24;
/// Packets that a sender always has waiting.
const WAITING: u32 = 32;
/// What the sender's core is taken away for by others may be made up for, by the link and by who is capped: less than a hundredth of a second.
const BURST: Nanos = Nanos(5_000_000);
/// Between two looks at the counters.
const STEP: Duration = Duration::from_millis(20);
/// The core of the sender.
const SENDER: u16 = 1;
/// After a sender has come, gone or changed, rates are judged from so many seconds later on: until what was queued before is gone.
const SETTLED: f64 = 0.1;

/// What a sender's channel is granted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grant {
    /// Guaranteed, in Mbit/s; none: best effort.
    pub reserved: Option<f64>,
    /// Not more than that, in Mbit/s.
    pub cap: Option<f64>,
    /// Whether it takes part in what is left.
    pub takes_rest: bool,
}

impl Grant {
    /// What is left, and no more.
    pub const REST: Self = Self { reserved: None, cap: None, takes_rest: true };

    /// A guarantee without more.
    pub fn exactly(mbit: f64) -> Self {
        Self { reserved: Some(mbit), cap: None, takes_rest: false }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rates of this file, far below 2^53"
    )]
    fn terms(self, period: Nanos) -> Option<ChannelTerms> {
        let bits = |mbit: f64| BitsPerSecond((mbit * 1e6).round() as u64);
        let bytes = |mbit: f64, time: Nanos| Bytes((mbit * 1e6 / 8.0 * time.0 as f64 / 1e9).round() as u64);
        let reservation = match self.reserved {
            Some(mbit) => Some(Reservation::per_period(bytes(mbit, period), period)?),
            None => None,
        };
        let cap = match self.cap {
            Some(mbit) => Some(Cap::with_burst(bits(mbit), bytes(mbit, BURST))?),
            None => None,
        };
        let queue = QueueLimit { packets: WAITING, bytes: Bytes(1 << 20) };
        Some(ChannelTerms { reservation, cap, weight: self.takes_rest.into(), queue })
    }
}

/// What happens to a sender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Act {
    /// It begins to send as fast as it may.
    Start,
    /// It sends no more.
    Stop,
    /// It is granted something else.
    Change(Grant),
}

/// What is played: the senders with what they are granted, what happens when to which of them, and when it ends. Times in seconds.
#[derive(Clone, Debug)]
pub struct Script {
    /// Names and grants.
    pub senders: Vec<(&'static str, Grant)>,
    /// The period of reservations.
    pub period: Nanos,
    /// What happens: when, to which sender, what.
    pub acts: Vec<(f64, usize, Act)>,
    /// When all is over.
    pub end: f64,
}

/// How much has come from each sender up to a time, on the wire.
#[derive(Clone, Debug, PartialEq)]
pub struct Look {
    /// Seconds from the beginning.
    pub at: f64,
    /// Megabits.
    pub mbit: Vec<f64>,
}

/// A second in which nothing was changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// When it began.
    pub begin: f64,
    /// Rates, in Mbit/s.
    pub rates: Vec<f64>,
}

impl Script {
    /// Every second, beginning at any look, in which and shortly before which nothing was changed.
    pub fn steady(&self, looks: &[Look]) -> Vec<Window> {
        let mut windows = Vec::new();
        for (place, one) in looks.iter().enumerate() {
            let Some(other) = looks.iter().skip(place).find(|look| look.at >= one.at + 1.0) else { break };
            let is_changed =
                self.acts.iter().any(|(at, ..)| *at + SETTLED > one.at && *at < other.at + SETTLED);
            if !is_changed {
                let span = other.at - one.at;
                let rates = other.mbit.iter().zip(&one.mbit).map(|(b, a)| (b - a) / span).collect();
                windows.push(Window { begin: one.at, rates });
            }
        }
        windows
    }

    /// What a sender is granted at a time; none while it does not send.
    pub fn granted(&self, sender: usize, at: f64) -> Option<Grant> {
        let mut grant = self.senders.get(sender)?.1;
        let mut is_sending = false;
        for (_, _, act) in self.acts.iter().filter(|(when, who, _)| *who == sender && *when <= at) {
            match act {
                Act::Start => is_sending = true,
                Act::Stop => is_sending = false,
                Act::Change(other) => grant = *other,
            }
        }
        is_sending.then_some(grant)
    }

    /// The rows of what was recorded.
    pub fn csv(&self, looks: &[Look]) -> Csv {
        let names: Vec<String> = self.senders.iter().map(|(name, _)| format!("{name}_mbit")).collect();
        let mut csv =
            Csv::new(&["time_s"].into_iter().chain(names.iter().map(String::as_str)).collect::<Vec<_>>());
        for look in looks {
            csv.row(std::iter::once(look.at).chain(look.mbit.iter().copied()).map(Into::into));
        }
        csv
    }

    /// Rates over time, each over so many looks.
    pub fn chart(&self, looks: &[Look], span: usize) -> Chart {
        let mut chart =
            Chart::new(Axis::linear("time, s", 0.0, self.end), Axis::linear("received, Mbit/s", 0.0, 105.0));
        for (sender, (name, _)) in self.senders.iter().enumerate() {
            let mut points = Vec::new();
            for (one, other) in looks.iter().zip(looks.iter().skip(span)) {
                points.push((other.at, (other.mbit[sender] - one.mbit[sender]) / (other.at - one.at)));
            }
            chart.add(&name.to_uppercase(), sender, Mark::Line(points));
        }
        chart
    }
}

/// Plays a script over a cable.
///
/// # Errors
/// There is no cable, or the link does not grant what the script wants.
pub fn play(script: &Script) -> Result<Vec<Look>, FigureError> {
    bind(ASIDE)?;
    cable("a", "b")?;
    let mut frames = Vec::new();
    for (number, (name, _)) in (1u8..).zip(&script.senders) {
        let address = [2, 0, 0, 0, 1, number];
        ip(&format!(
            "link add link b name to-{name} address 02:00:00:00:01:{number:02x} type macvlan mode bridge"
        ))?;
        ip(&format!("link set dev to-{name} up"))?;
        settle(&format!("to-{name}"))?;
        frames.push(datagram(address, (1000, u16::from(number)), FRAME));
    }
    let is_over = AtomicBool::new(false);
    let sink = Sink::open("a", Kind::Packet)?;
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            // Where it cannot be bound it runs where it is put.
            _ = bind(SENDER);
            send(script, sink, &frames, begin, &is_over)
        });
        let looks = watch(script, begin, &|| sender.is_finished());
        is_over.store(true, Ordering::Release);
        let sent =
            sender.join().unwrap_or_else(|_| Err(FigureError::Nothing("the sender panicked".to_owned())));
        sent.and(looks)
    })
}

fn watch(script: &Script, begin: Instant, is_over: &dyn Fn() -> bool) -> Result<Vec<Look>, FigureError> {
    let (mut looks, mut due) = (Vec::new(), begin);
    while begin.elapsed().as_secs_f64() < script.end && !is_over() {
        let mut mbit = Vec::new();
        for (name, _) in &script.senders {
            let (packets, bytes) = received(&format!("to-{name}"))?;
            mbit.push(megabits(bytes + packets * OVERHEAD));
        }
        looks.push(Look { at: begin.elapsed().as_secs_f64(), mbit });
        due += STEP;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    Ok(looks)
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn megabits(bytes: u64) -> f64 {
    bytes as f64 * 8.0 / 1e6
}

/// A sender's channel, and whether it has something to send.
struct Source {
    channel: ChannelId,
    is_sending: bool,
}

fn send(
    script: &Script,
    mut sink: Sink,
    frames: &[Vec<u8>],
    begin: Instant,
    is_over: &AtomicBool,
) -> Result<(), FigureError> {
    let refused = |why: &dyn std::fmt::Display| FigureError::Nothing(format!("the link refuses: {why}"));
    let terms = |grant: Grant| grant.terms(script.period).ok_or_else(|| refused(&"a rate of nothing"));
    let config = LinkConfig { pacing: Pacing::Link { catch_up: BURST }, ..LinkConfig::ethernet(RATE) };
    let mut link: Link<usize> = Link::new(config).map_err(|error| refused(&error))?;
    let now = || Nanos(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX));
    let mut sources = Vec::new();
    for (_, grant) in &script.senders {
        let channel = link.open(terms(*grant)?, now()).map_err(|error| refused(&error))?;
        sources.push(Source { channel, is_sending: false });
    }
    let length = u32::try_from(FRAME).unwrap_or(0);
    let mut acts = script.acts.iter().peekable();
    while !is_over.load(Ordering::Acquire) {
        while let Some((_, who, act)) = acts.next_if(|(at, ..)| *at <= begin.elapsed().as_secs_f64()) {
            let Some(source) = sources.get_mut(*who) else { continue };
            match act {
                Act::Start => source.is_sending = true,
                Act::Stop => source.is_sending = false,
                Act::Change(grant) => {
                    link.change(source.channel, terms(*grant)?, now()).map_err(|error| refused(&error))?;
                }
            }
        }
        for (number, source) in sources.iter().enumerate().filter(|(_, source)| source.is_sending) {
            while link.waiting(source.channel).is_some_and(|(packets, _)| packets < WAITING as usize) {
                if link.enqueue(source.channel, number, length, now()).is_err() {
                    break;
                }
            }
        }
        match link.next(now()) {
            Decision::Send { packet, .. } => {
                // What the interface does not take is lost, as on any link.
                sink.send(&[frames[packet].as_slice()]);
            }
            // A frame of full length takes 123 us: a sleep would end too late.
            Decision::Wait { .. } => std::hint::spin_loop(),
            Decision::Idle => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script() -> Script {
        Script {
            senders: vec![("a", Grant::REST), ("b", Grant::exactly(40.0))],
            period: Nanos(6_000_000),
            acts: vec![(0.0, 0, Act::Start), (2.0, 1, Act::Start), (5.0, 1, Act::Stop)],
            end: 8.0,
        }
    }

    #[test]
    fn seconds_in_which_something_changes_are_left_out() {
        let looks: Vec<Look> = (0..160u32)
            .map(|i| f64::from(i) * 0.05)
            .map(|at| Look { at, mbit: vec![at * 60.0, at * 40.0] })
            .collect();
        let windows = script().steady(&looks);
        let begins: Vec<f64> = windows.iter().map(|window| window.begin).collect();
        for begin in &begins {
            for act in [0.0, 2.0, 5.0] {
                assert!(*begin >= act + SETTLED || begin + 1.0 <= act, "{begin}");
            }
        }
        assert!(begins.iter().any(|begin| *begin < 1.0) && begins.iter().any(|begin| *begin > 6.0));
        assert!(windows.iter().all(|window| (window.rates[0] - 60.0).abs() < 1e-6));
    }

    #[test]
    fn what_is_granted_depends_on_who_sends_when() {
        let mut script = script();
        script.acts.push((3.0, 1, Act::Change(Grant::exactly(65.0))));
        let at = |at| script.granted(1, at).and_then(|grant| grant.reserved);
        assert_eq!([at(1.0), at(2.5), at(4.0), at(6.0)], [None, Some(40.0), Some(65.0), None]);
        assert_eq!(script.granted(0, 0.5), Some(Grant::REST));
    }
}
