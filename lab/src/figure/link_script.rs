//! A link of 100 Mbit/s of a running node, with greedy senders, of which the receiving kernel counts what comes from each.
//!
//! Each sender is a session with an output channel and the shipped module `flood`. It begins to send when the module is loaded, sends no more when that is
//! unloaded, and is granted something else by a change of its session: all by the node's control socket, while the others send. At the other end each
//! has an interface of its own (macvlan), so that the kernel there counts for it alone.

use super::network::{cable, datagram_of, ip, received, settle};
use super::node::{NodeProcess, is_sound, module};
use super::{Chart, ChartAxis, Criterion, Csv, Figure, Mark, Outcome};
use crate::error::LabError;
use crate::machine::{OTHER_CORE, bind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_netio::{LiveSink, SocketKind};

/// Megabits per second that the link has.
pub const RATE_MBIT: f64 = 100.0;
/// Bytes of each frame, and what it costs on the wire beside them.
const FRAME: usize = 1514;
const OVERHEAD: u64 = 24;
/// Frames that a sender has waiting at most, and how many it makes in each millisecond: far more than the link takes.
const WAITING: u32 = 64;
const FRAMES: u32 = 24;
/// The reservation of each sender: several times the processor time of making frames.
const CPU: &str = "{ period = \"4ms\", slice = \"1ms\" }";
/// The link's interface, where frames leave.
const LINK: &str = "a";
/// The most time that a late wakeup of the link's thread may make up for.
const CATCH_UP: &str = "5ms";
/// The interval of looks at the counters.
const STEP: Duration = Duration::from_millis(20);
/// Seconds after a change of a sender from which rates are judged: queued packets are gone by then.
const SETTLED: f64 = 0.1;

/// The grant of a sender's channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScriptGrant {
    /// Guaranteed, in Mbit/s; none: best effort.
    pub reserved: Option<f64>,
    /// Not more than that, in Mbit/s.
    pub cap: Option<f64>,
}

impl ScriptGrant {
    /// A part of what is left, and nothing for certain.
    pub const REST: Self = Self { reserved: None, cap: None };

    /// A guarantee, and nothing of what is left.
    pub fn exactly(mbit: f64) -> Self {
        Self { reserved: Some(mbit), cap: None }
    }

    /// The channel to the link with this grant, as a session's description has it.
    fn output(self, period: Duration) -> String {
        let mut text = format!("name = \"flood\", link = \"{LINK}\", queue = {WAITING}");
        if let Some(mbit) = self.reserved {
            let bytes = mbit * 1e6 / 8.0 * period.as_secs_f64();
            text += &format!(", limit = \"{bytes:.0}\", period = \"{}us\"", period.as_micros());
        }
        if let Some(mbit) = self.cap {
            text += &format!(", cap = \"{:.0} bit/s\"", mbit * 1e6);
        }
        format!("output = [{{ {text} }}]\n")
    }
}

/// An action on a sender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Act {
    /// It begins to send as fast as it may.
    Start,
    /// It sends no more.
    Stop,
    /// It is granted something else.
    Change(ScriptGrant),
}

/// The senders with their grants, the actions on them, and the end. Times in seconds.
#[derive(Clone, Debug)]
pub struct Script {
    /// Names and grants.
    pub senders: Vec<(&'static str, ScriptGrant)>,
    /// The period of reservations.
    pub period: Duration,
    /// The actions in order: time, sender, action.
    pub acts: Vec<(f64, usize, Act)>,
    /// The end of the script.
    pub end: f64,
}

/// The traffic from each sender up to a time, on the wire.
#[derive(Clone, Debug, PartialEq)]
pub struct Look {
    /// Seconds from the beginning.
    pub at: f64,
    /// Megabits.
    pub mbit: Vec<f64>,
}

/// The result of a script.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Played {
    /// The traffic at each look.
    pub looks: Vec<Look>,
    /// The times at which the node had done the actions, in seconds from the beginning.
    pub done: Vec<f64>,
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
    /// Every second, beginning at any look, without a change in it and shortly before it.
    pub fn steady(&self, played: &Played) -> Vec<Window> {
        let (looks, mut windows) = (&played.looks, Vec::new());
        for (place, one) in looks.iter().enumerate() {
            let Some(other) = looks.iter().skip(place).find(|look| look.at >= one.at + 1.0) else { break };
            let mut acts = self.acts.iter().zip(&played.done);
            if acts.all(|((asked, ..), done)| *done + SETTLED <= one.at || *asked >= other.at + SETTLED) {
                let span = other.at - one.at;
                let rates = other.mbit.iter().zip(&one.mbit).map(|(b, a)| (b - a) / span).collect();
                windows.push(Window { begin: one.at, rates });
            }
        }
        windows
    }

    /// The result of a script where the node acts at once.
    #[cfg(test)]
    pub fn on_time(&self, looks: Vec<Look>) -> Played {
        Played { looks, done: self.acts.iter().map(|(at, ..)| *at).collect() }
    }

    /// The grant of a sender at a time; nothing while it does not send.
    pub fn granted(&self, sender: usize, at: f64) -> Option<ScriptGrant> {
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
        let mut chart = Chart::new(
            ChartAxis::linear("time, s", 0.0, self.end),
            ChartAxis::linear("received, Mbit/s", 0.0, 105.0),
        );
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

/// Plays a script, and judges the result. The chart shows rates over a number of looks.
///
/// # Errors
/// As of [`play`] and of `judge`.
pub fn shown(
    figure: &Figure,
    script: &Script,
    span: u32,
    judge: impl FnOnce(&Played) -> Result<Vec<Criterion>, LabError>,
) -> Result<Outcome, LabError> {
    let played = play(script)?;
    let found = format!("Drawn are rates over {} ms.", (STEP * span).as_millis());
    let (csv, chart) = (script.csv(&played.looks), script.chart(&played.looks, span as usize));
    Ok(Outcome::new(figure, csv, chart, judge(&played)?, found))
}

/// Plays a script over a cable.
fn play(script: &Script) -> Result<Played, LabError> {
    bind(OTHER_CORE)?;
    cable(LINK, "b")?;
    // The first packet tells a module the time, so each starting sender gets one on the link's own interface.
    let mut far = LiveSink::open("b", SocketKind::Packet)?;
    let mut node = NodeProcess::start(&format!(
        "blocking = \"200us\"\n[[interface]]\nname = \"{LINK}\"\narena = \"8 MiB\"\noutgoing = false\n\
         [[link]]\ninterface = \"{LINK}\"\nrate = \"{RATE_MBIT:.0} Mbit/s\"\nreservable = 100\nframe = {FRAME}\ncatch_up = \"{CATCH_UP}\""
    ))?;
    for (number, (name, grant)) in (1u8..).zip(&script.senders) {
        ip(&format!(
            "link add link b name to-{name} address 02:00:00:00:01:{number:02x} type macvlan mode bridge"
        ))?;
        ip(&format!("link set dev to-{name} up"))?;
        settle(&format!("to-{name}"))?;
        let output = grant.output(script.period);
        node.create(&format!(
            "name = \"{name}\"\nprofile = \"long\"\ncpu = [{CPU}]\nchannel = [{{ interface = \"{LINK}\" }}]\n{output}"
        ))?;
        // The module is compiled here, and not while others send.
        load(&mut node, script, usize::from(number) - 1)?;
        node.unload(name, "flood")?;
    }
    let (before, begin) = (count(script)?, Instant::now());
    let is_over = AtomicBool::new(false);
    let (looks, done) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(script, &before, begin, &is_over));
        let done = conduct(script, &mut node, &mut far, begin);
        is_over.store(true, Ordering::Release);
        let panicked = || LabError::Nothing("the thread that reads the counters panicked".to_owned());
        (watcher.join().unwrap_or_else(|_| Err(panicked())), done)
    });
    let played = Played { looks: looks?, done: done? };
    is_sound(&node.snapshot()?)?;
    Ok(played)
}

/// Loads a sender's module.
fn load(node: &mut NodeProcess, script: &Script, sender: usize) -> Result<(), LabError> {
    let Some((name, _)) = script.senders.get(sender) else { return Ok(()) };
    let flood = format!(
        "module = \"flood\"\nset = {{ size = {FRAME}, per-tick = {FRAMES}, interval = \"1ms\", destination = {} }}",
        0x0200_0000_0101 + sender
    );
    node.load(name, module(&flood)?, &[])
}

/// Does the actions of a script, and waits for its end. Returns the times of the actions.
fn conduct(
    script: &Script,
    node: &mut NodeProcess,
    far: &mut LiveSink,
    begin: Instant,
) -> Result<Vec<f64>, LabError> {
    let packet = datagram_of(60);
    let wait = |at: f64| std::thread::sleep(Duration::from_secs_f64(at).saturating_sub(begin.elapsed()));
    let mut done = Vec::new();
    for (at, sender, act) in &script.acts {
        wait(*at);
        let Some((name, _)) = script.senders.get(*sender) else { continue };
        match act {
            Act::Start => {
                load(node, script, *sender)?;
                far.send(&[packet.as_slice()]);
            }
            Act::Stop => node.unload(name, "flood")?,
            Act::Change(grant) => {
                node.change(&format!("session = \"{name}\"\n{}", grant.output(script.period)))?;
            }
        }
        done.push(begin.elapsed().as_secs_f64());
    }
    wait(script.end);
    Ok(done)
}

fn watch(
    script: &Script,
    before: &[f64],
    begin: Instant,
    is_over: &AtomicBool,
) -> Result<Vec<Look>, LabError> {
    let (mut looks, mut due) = (Vec::new(), begin);
    while !is_over.load(Ordering::Acquire) {
        let at = begin.elapsed().as_secs_f64();
        let mbit = count(script)?.iter().zip(before).map(|(now, before)| now - before).collect();
        looks.push(Look { at, mbit });
        due += STEP;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    Ok(looks)
}

/// The traffic from each sender so far, in megabits on the wire.
fn count(script: &Script) -> Result<Vec<f64>, LabError> {
    let of = |(name, _): &(&str, ScriptGrant)| {
        let (packets, bytes) = received(&format!("to-{name}"))?;
        Ok(megabits(bytes + packets * OVERHEAD))
    };
    script.senders.iter().map(of).collect()
}

fn megabits(bytes: u64) -> f64 {
    bytes as f64 * 8.0 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script() -> Script {
        Script {
            senders: vec![("a", ScriptGrant::REST), ("b", ScriptGrant::exactly(40.0))],
            period: Duration::from_millis(6),
            acts: vec![(0.0, 0, Act::Start), (2.0, 1, Act::Start), (5.0, 1, Act::Stop)],
            end: 8.0,
        }
    }

    #[test]
    fn seconds_with_a_change_are_left_out() {
        let looks: Vec<Look> = (0..160u32)
            .map(|i| f64::from(i) * 0.05)
            .map(|at| Look { at, mbit: vec![at * 60.0, at * 40.0] })
            .collect();
        let mut played = script().on_time(looks);
        let windows = script().steady(&played);
        let begins: Vec<f64> = windows.iter().map(|window| window.begin).collect();
        for begin in &begins {
            for act in [0.0, 2.0, 5.0] {
                assert!(*begin >= act + SETTLED || begin + 1.0 <= act, "{begin}");
            }
        }
        assert!(begins.iter().any(|begin| *begin < 1.0) && begins.iter().any(|begin| *begin > 6.0));
        assert!(windows.iter().all(|window| (window.rates[0] - 60.0).abs() < 1e-6));
        // A late action delays the next window.
        played.done[1] = 2.6;
        let later = script().steady(&played);
        assert!(later.len() < windows.len());
        assert!(later.iter().all(|window| window.begin + 1.0 <= 2.0 || window.begin >= 2.6 + SETTLED));
    }

    #[test]
    fn a_grant_is_an_output_channel_as_the_node_reads_it() {
        let read = |grant: ScriptGrant| {
            let text = format!("name = \"a\"\n{}", grant.output(Duration::from_millis(6)));
            let spec: weir_node::control::spec::SessionSpec = toml::from_str(&text).unwrap();
            let output = spec.outputs.into_iter().next().unwrap();
            (
                output.reservation().map(|it| it.bits_per_second().0),
                output.cap.map(|cap| cap.0),
                output.share(),
            )
        };
        assert_eq!(read(ScriptGrant::REST), (None, None, 100));
        let capped = ScriptGrant { cap: Some(45.0), ..ScriptGrant::exactly(45.0) };
        assert_eq!(read(capped), (Some(45_000_000), Some(45_000_000), 0));
        assert_eq!(read(ScriptGrant::exactly(100.0 / 3.0)), (Some(33_333_334), None, 0));
    }

    #[test]
    fn the_grant_depends_on_sender_and_time() {
        let mut script = script();
        script.acts.push((3.0, 1, Act::Change(ScriptGrant::exactly(65.0))));
        let at = |at| script.granted(1, at).and_then(|grant| grant.reserved);
        assert_eq!([at(1.0), at(2.5), at(4.0), at(6.0)], [None, Some(40.0), Some(65.0), None]);
        assert_eq!(script.granted(0, 0.5), Some(ScriptGrant::REST));
    }
}
