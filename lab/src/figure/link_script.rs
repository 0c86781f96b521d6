//! Experiments with greedy senders that share a link of 100 Mbit/s of a running node: figures 12 of Price of Safety and 6
//! of SQoSH.
//!
//! Each sender is a session with an output channel and the shipped module `flood`. It starts to send when the module is
//! loaded, stops when the module is unloaded, and gets another grant by a change of its session. All of this goes
//! through the node's control socket while the others send. At the other end each sender has its own macvlan interface,
//! so that the kernel counts its traffic separately.

use super::network::{create_veth_pair, datagram_of, ip, received_counters, wait_for_carrier};
use super::node::{NodeProcess, check_no_faults, parse_module};
use super::{Chart, ChartAxis, Criterion, Csv, Figure, Mark, Outcome};
use crate::error::LabError;
use crate::machine::{OTHER_CORE, bind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_netio::{LiveSink, SocketKind};

/// The rate of the link in Mbit/s.
pub const RATE_MBIT: f64 = 100.0;
/// Bytes of a frame.
const FRAME: usize = 1514;
/// The overhead of a frame on the wire in bytes: preamble, check sequence and gap.
const OVERHEAD: u64 = 24;
/// The queue limit of a sender in frames.
const QUEUE: u32 = 64;
/// The number of frames that a sender makes per millisecond: far more than the link takes.
const FRAMES: u32 = 24;
/// The CPU reservation of a sender: several times the processor time of making its frames.
const CPU: &str = "{ period = \"4ms\", slice = \"1ms\" }";
/// The link's interface, where frames leave.
const LINK: &str = "a";
/// The longest delay of the link thread that is made up for.
const CATCH_UP: &str = "5ms";
/// The sampling interval of the counters.
const STEP: Duration = Duration::from_millis(20);
/// The seconds after an action until all packets that were queued before are sent. Rates are judged from then on.
const SETTLING_TIME: f64 = 0.1;

/// The grant of a sender's channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScriptGrant {
    /// The guarantee in Mbit/s. `None`: best effort.
    pub reserved: Option<f64>,
    /// The cap in Mbit/s.
    pub cap: Option<f64>,
}

impl ScriptGrant {
    /// A share of the unreserved rate, without a guarantee.
    pub const BEST_EFFORT: Self = Self { reserved: None, cap: None };

    /// A guarantee, without a share of the unreserved rate.
    pub fn exactly(mbit: f64) -> Self {
        Self { reserved: Some(mbit), cap: None }
    }

    /// The TOML text of an output channel with this grant, for the description of a session.
    fn output_toml(self, period: Duration) -> String {
        let mut text = format!("name = \"flood\", link = \"{LINK}\", queue = {QUEUE}");
        if let Some(mbit) = self.reserved {
            let bytes = mbit * 1e6 / 8.0 * period.as_secs_f64();
            text += &format!(", reserve_bytes = \"{bytes:.0}\", period = \"{}us\"", period.as_micros());
        }
        if let Some(mbit) = self.cap {
            text += &format!(", cap = \"{:.0} bit/s\"", mbit * 1e6);
        }
        format!("output = [{{ {text} }}]\n")
    }
}

/// A change of one sender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SenderAction {
    /// The sender starts to send at its full rate.
    Start,
    /// The sender stops.
    Stop,
    /// The sender gets another grant.
    Change(ScriptGrant),
}

/// The senders, and the actions on them. Times are in seconds.
#[derive(Clone, Debug)]
pub struct Script {
    /// Names and grants.
    pub senders: Vec<(&'static str, ScriptGrant)>,
    /// The period of reservations.
    pub period: Duration,
    /// The actions in order: time, sender, action.
    pub actions: Vec<(f64, usize, SenderAction)>,
    /// The end of the script.
    pub end: f64,
}

/// The traffic of each sender up to a time, as the receiving kernel counted it.
#[derive(Clone, Debug, PartialEq)]
pub struct CounterSample {
    /// Seconds since the start.
    pub at: f64,
    /// Megabits on the wire, one value for each sender.
    pub mbit: Vec<f64>,
}

/// The record of a script.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScriptRecord {
    /// The samples of the counters, in order of time.
    pub samples: Vec<CounterSample>,
    /// The times at which the node had completed the actions, in seconds since the start.
    pub done: Vec<f64>,
}

/// A second without an action.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// The start in seconds.
    pub begin: f64,
    /// The rate of each sender in Mbit/s.
    pub rates: Vec<f64>,
}

impl Script {
    /// All windows of a second without an action in the window or shortly before it. A window starts at each sample.
    pub fn steady_windows(&self, record: &ScriptRecord) -> Vec<Window> {
        let (samples, mut windows) = (&record.samples, Vec::new());
        for (index, first) in samples.iter().enumerate() {
            let Some(last) = samples.iter().skip(index).find(|sample| sample.at >= first.at + 1.0) else {
                break;
            };
            let mut actions = self.actions.iter().zip(&record.done);
            if actions.all(|((planned, ..), done)| {
                *done + SETTLING_TIME <= first.at || *planned >= last.at + SETTLING_TIME
            }) {
                let span = last.at - first.at;
                let rates = last.mbit.iter().zip(&first.mbit).map(|(b, a)| (b - a) / span).collect();
                windows.push(Window { begin: first.at, rates });
            }
        }
        windows
    }

    /// The record of a node that completes each action at once.
    #[cfg(test)]
    pub fn on_time(&self, samples: Vec<CounterSample>) -> ScriptRecord {
        ScriptRecord { samples, done: self.actions.iter().map(|(at, ..)| *at).collect() }
    }

    /// The grant of a sender at a time, or `None` while it does not send.
    pub fn grant_at(&self, sender: usize, at: f64) -> Option<ScriptGrant> {
        let mut grant = self.senders.get(sender)?.1;
        let mut is_sending = false;
        for (_, _, action) in self.actions.iter().filter(|(time, acting, _)| *acting == sender && *time <= at)
        {
            match action {
                SenderAction::Start => is_sending = true,
                SenderAction::Stop => is_sending = false,
                SenderAction::Change(other) => grant = *other,
            }
        }
        is_sending.then_some(grant)
    }

    /// The samples as rows of a table.
    pub fn csv(&self, samples: &[CounterSample]) -> Csv {
        let names: Vec<String> = self.senders.iter().map(|(name, _)| format!("{name}_mbit")).collect();
        let mut csv =
            Csv::new(&["time_s"].into_iter().chain(names.iter().map(String::as_str)).collect::<Vec<_>>());
        for sample in samples {
            csv.row(std::iter::once(sample.at).chain(sample.mbit.iter().copied()).map(Into::into));
        }
        csv
    }

    /// The chart of rates over time. Each rate is the mean over `span` samples.
    pub fn chart(&self, samples: &[CounterSample], span: usize) -> Chart {
        let mut chart = Chart::new(
            ChartAxis::linear("time, s", 0.0, self.end),
            ChartAxis::linear("received, Mbit/s", 0.0, 105.0),
        );
        for (sender, (name, _)) in self.senders.iter().enumerate() {
            let mut points = Vec::new();
            for (one, other) in samples.iter().zip(samples.iter().skip(span)) {
                points.push((other.at, (other.mbit[sender] - one.mbit[sender]) / (other.at - one.at)));
            }
            chart.add(&name.to_uppercase(), sender, Mark::Line(points));
        }
        chart
    }
}

/// Runs a script, and judges its record with `judge`. The chart shows mean rates over `span` samples.
pub fn run_and_judge(
    figure: &Figure,
    script: &Script,
    span: u32,
    judge: impl FnOnce(&ScriptRecord) -> Result<Vec<Criterion>, LabError>,
) -> Result<Outcome, LabError> {
    let record = run_script(script)?;
    let remarks = format!("The chart shows mean rates over {} ms.", (STEP * span).as_millis());
    let (csv, chart) = (script.csv(&record.samples), script.chart(&record.samples, span as usize));
    Ok(Outcome::new(figure, csv, chart, judge(&record)?, remarks))
}

/// Runs a script on a new node with a veth pair as its link.
fn run_script(script: &Script) -> Result<ScriptRecord, LabError> {
    bind(OTHER_CORE)?;
    create_veth_pair(LINK, "b")?;
    // A module learns the time from its first packet, so each sender gets a packet at its start, on the link's interface.
    let mut far = LiveSink::open("b", SocketKind::Packet)?;
    let mut node = NodeProcess::start(&format!(
        "blocking = \"200us\"\n[[interface]]\nname = \"{LINK}\"\narena = \"8 MiB\"\noutgoing = false\n\
         [[link]]\ninterface = \"{LINK}\"\nrate = \"{RATE_MBIT:.0} Mbit/s\"\nreservable = 100\nframe_max = {FRAME}\ncatch_up = \"{CATCH_UP}\""
    ))?;
    for (number, (name, grant)) in (1u8..).zip(&script.senders) {
        ip(&format!(
            "link add link b name to-{name} address 02:00:00:00:01:{number:02x} type macvlan mode bridge"
        ))?;
        ip(&format!("link set dev to-{name} up"))?;
        wait_for_carrier(&format!("to-{name}"))?;
        let output = grant.output_toml(script.period);
        node.create(&format!(
            "name = \"{name}\"\nprofile = \"long\"\ncpu = [{CPU}]\nchannel = [{{ interface = \"{LINK}\" }}]\n{output}"
        ))?;
        // The module is loaded once, so that it is compiled before any sender starts.
        load(&mut node, script, usize::from(number) - 1)?;
        node.unload(name, "flood")?;
    }
    let (before, begin) = (traffic(script)?, Instant::now());
    let is_over = AtomicBool::new(false);
    let (samples, done) = std::thread::scope(|scope| {
        let sampler = scope.spawn(|| sample_counters(script, &before, begin, &is_over));
        let done = perform_actions(script, &mut node, &mut far, begin);
        is_over.store(true, Ordering::Release);
        let panicked = || LabError::NoData("the thread that reads the counters panicked".to_owned());
        (sampler.join().unwrap_or_else(|_| Err(panicked())), done)
    });
    let record = ScriptRecord { samples: samples?, done: done? };
    check_no_faults(&node.snapshot()?)?;
    Ok(record)
}

/// Loads a sender's module.
fn load(node: &mut NodeProcess, script: &Script, sender: usize) -> Result<(), LabError> {
    let Some((name, _)) = script.senders.get(sender) else { return Ok(()) };
    let flood = format!(
        "module = \"flood\"\nset = {{ size = {FRAME}, per-tick = {FRAMES}, interval = \"1ms\", destination = {} }}",
        0x0200_0000_0101 + sender
    );
    node.load(name, parse_module(&flood)?, &[])
}

/// Performs the actions of a script, and waits for its end. Returns the completion times of the actions.
fn perform_actions(
    script: &Script,
    node: &mut NodeProcess,
    far: &mut LiveSink,
    begin: Instant,
) -> Result<Vec<f64>, LabError> {
    let packet = datagram_of(60);
    let wait = |at: f64| std::thread::sleep(Duration::from_secs_f64(at).saturating_sub(begin.elapsed()));
    let mut done = Vec::new();
    for (at, sender, action) in &script.actions {
        wait(*at);
        let Some((name, _)) = script.senders.get(*sender) else { continue };
        match action {
            SenderAction::Start => {
                load(node, script, *sender)?;
                far.send(&[packet.as_slice()]);
            }
            SenderAction::Stop => node.unload(name, "flood")?,
            SenderAction::Change(grant) => {
                node.change(&format!("session = \"{name}\"\n{}", grant.output_toml(script.period)))?;
            }
        }
        done.push(begin.elapsed().as_secs_f64());
    }
    wait(script.end);
    Ok(done)
}

/// Samples the counters at intervals until `is_over`.
fn sample_counters(
    script: &Script,
    before: &[f64],
    begin: Instant,
    is_over: &AtomicBool,
) -> Result<Vec<CounterSample>, LabError> {
    let (mut samples, mut due) = (Vec::new(), begin);
    while !is_over.load(Ordering::Acquire) {
        let at = begin.elapsed().as_secs_f64();
        let mbit = traffic(script)?.iter().zip(before).map(|(now, before)| now - before).collect();
        samples.push(CounterSample { at, mbit });
        due += STEP;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    Ok(samples)
}

/// The traffic of each sender so far, in megabits on the wire.
fn traffic(script: &Script) -> Result<Vec<f64>, LabError> {
    let of_sender = |(name, _): &(&str, ScriptGrant)| {
        let (packets, bytes) = received_counters(&format!("to-{name}"))?;
        Ok(megabits(bytes + packets * OVERHEAD))
    };
    script.senders.iter().map(of_sender).collect()
}

fn megabits(bytes: u64) -> f64 {
    bytes as f64 * 8.0 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script() -> Script {
        Script {
            senders: vec![("a", ScriptGrant::BEST_EFFORT), ("b", ScriptGrant::exactly(40.0))],
            period: Duration::from_millis(6),
            actions: vec![
                (0.0, 0, SenderAction::Start),
                (2.0, 1, SenderAction::Start),
                (5.0, 1, SenderAction::Stop),
            ],
            end: 8.0,
        }
    }

    #[test]
    fn seconds_with_an_action_are_left_out() {
        let samples: Vec<CounterSample> = (0..160u32)
            .map(|i| f64::from(i) * 0.05)
            .map(|at| CounterSample { at, mbit: vec![at * 60.0, at * 40.0] })
            .collect();
        let mut record = script().on_time(samples);
        let windows = script().steady_windows(&record);
        let begins: Vec<f64> = windows.iter().map(|window| window.begin).collect();
        for begin in &begins {
            for action in [0.0, 2.0, 5.0] {
                assert!(*begin >= action + SETTLING_TIME || begin + 1.0 <= action, "{begin}");
            }
        }
        assert!(begins.iter().any(|begin| *begin < 1.0) && begins.iter().any(|begin| *begin > 6.0));
        assert!(windows.iter().all(|window| (window.rates[0] - 60.0).abs() < 1e-6));
        // A late action delays the next window.
        record.done[1] = 2.6;
        let later = script().steady_windows(&record);
        assert!(later.len() < windows.len());
        assert!(later.iter().all(|window| window.begin + 1.0 <= 2.0 || window.begin >= 2.6 + SETTLING_TIME));
    }

    #[test]
    fn a_grant_becomes_an_output_channel_that_the_node_reads() {
        let read = |grant: ScriptGrant| {
            let text = format!("name = \"a\"\n{}", grant.output_toml(Duration::from_millis(6)));
            let spec: weir_node::control::spec::SessionSpec = toml::from_str(&text).unwrap();
            let output = spec.outputs.into_iter().next().unwrap();
            (
                output.reservation().map(|it| it.bits_per_second().0),
                output.cap.map(|cap| cap.0),
                output.effective_weight(),
            )
        };
        assert_eq!(read(ScriptGrant::BEST_EFFORT), (None, None, 100));
        let capped = ScriptGrant { cap: Some(45.0), ..ScriptGrant::exactly(45.0) };
        assert_eq!(read(capped), (Some(45_000_000), Some(45_000_000), 0));
        assert_eq!(read(ScriptGrant::exactly(100.0 / 3.0)), (Some(33_333_334), None, 0));
    }

    #[test]
    fn the_grant_depends_on_sender_and_time() {
        let mut script = script();
        script.actions.push((3.0, 1, SenderAction::Change(ScriptGrant::exactly(65.0))));
        let at = |at| script.grant_at(1, at).and_then(|grant| grant.reserved);
        assert_eq!([at(1.0), at(2.5), at(4.0), at(6.0)], [None, Some(40.0), Some(65.0), None]);
        assert_eq!(script.grant_at(0, 0.5), Some(ScriptGrant::BEST_EFFORT));
    }
}
