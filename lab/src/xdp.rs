//! Receiving by AF_XDP, by weir's receive path and by a whole node, compared with a bare loop in C that wakes up at the
//! same times: processor time a packet, and the highest rate without loss. The part `xdp` of the benchmark.

use crate::criterion::{self, Criterion};
use crate::error::{Context, LabError};
use crate::figure::monitor::{Monitor, MonitorReceiving, PacketsPerCall, Wakeup, largest_good};
use crate::figure::network::{Traffic, VethPair, datagram_of};
use crate::figure::node::{NodeProcess, check_no_faults, find_session, parse_module};
use crate::machine::{OTHER_CORE, bind};
use crate::module::Module;
use crate::namespace::raise_priority;
use crate::native::{Compiler, compile_program, process_time};
use crate::paths;
use crate::statistics::{Action, Sample, measure_in_turn, measure_values_in_turn};
use crate::table::Table;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use weir_netio::SocketKind;
use weir_units::Bytes;

/// The cores of the node: its receive thread and its modules share the core that the bare loop has, since the sender and
/// the kernel's work for it take the other one.
const CORES: &str = "[cpu]\ncores = [1]\nreceive_core = 1\n";
/// The length of the packets, in bytes.
const LENGTH: usize = 200;
/// The memory for packets of each receiver. With frames of 2 KiB, the bare loop gets as many frames.
const MEMORY: Bytes = Bytes(64 << 20);
const FRAMES: u64 = MEMORY.0 / 2048;
/// The offered rates, in packets/s. The sender does not reach the second one: it is the full rate.
const RATES: [(&str, u64); 2] = [("100,000/s", 100_000), ("full rate", FULL_RATE)];
const FULL_RATE: u64 = 4_000_000;
/// The duration of a measurement of processor time.
const TIME: Duration = Duration::from_millis(800);
/// The duration of a trial in the search for the highest rate without loss.
const TRIAL_TIME: Duration = Duration::from_millis(300);
/// The number of bisections of that search.
const SEARCH_STEPS: usize = 6;
/// The time without a further packet after which all packets are received.
const DRAIN_TIME: Duration = Duration::from_millis(100);
/// The promised limit of processor time, as a multiple of the bare loop's.
const RATIO_MAX: f64 = 1.2;
/// The promised least rate without loss, as a multiple of the bare loop's.
const RATE_RATIO_MIN: f64 = 1.0;

/// A program that receives.
#[derive(Clone, Debug)]
enum Receiver {
    /// The bare loop.
    Bare(PathBuf),
    /// weir's receive path, without modules.
    Path,
    /// A node with one session that runs syn-flood.
    Node(Vec<u8>),
}

/// The counts of a trial.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    sent: u64,
    received: u64,
    /// Sent packets per second.
    rate: f64,
    cpu: Duration,
}

impl Outcome {
    fn nanos_a_packet(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e9 / self.received as f64
    }

    fn lost_percent(&self) -> f64 {
        self.sent.saturating_sub(self.received) as f64 * 100.0 / self.sent as f64
    }
}

/// The tables. Runs in a network namespace.
pub fn table(rounds: usize) -> Result<String, LabError> {
    raise_priority();
    bind(OTHER_CORE)?;
    let compiler = Compiler::clang().or_else(Compiler::gcc);
    let compiler = compiler.ok_or_else(|| LabError::failed("clang-19 or gcc", "not installed"))?;
    let program = compile_program(&paths::root().join("lab/native/receive.c"), &compiler)?;
    let receivers =
        [Receiver::Bare(program), Receiver::Path, Receiver::Node(Module::named("syn-flood")?.wasm)];
    let names = ["bare loop", "receive path", "node with syn-flood"];
    let mut table = Table::new(
        "offered | receiver | ns a packet | quartiles | ÷ bare loop | quartiles | packets/s sent | lost",
    );
    let mut criteria = Vec::new();
    for (offered, rate) in RATES {
        let mut actions: Vec<Action<'_, Outcome>> = receivers
            .iter()
            .map(|receiver| Box::new(move || receiver.trial(rate, TIME)) as Action<'_, Outcome>)
            .collect();
        let outcomes = measure_values_in_turn(rounds, &mut actions)?;
        let sample = |value: fn(&Outcome) -> f64| -> Vec<Sample> {
            outcomes.iter().map(|outcomes| outcomes.iter().map(value).collect()).collect()
        };
        let (times, rates) = (sample(Outcome::nanos_a_packet), sample(|outcome| outcome.rate));
        let losses = sample(Outcome::lost_percent);
        let Some(bare) = times.first() else { continue };
        for (((name, time), rate), lost) in names.iter().zip(&times).zip(&rates).zip(&losses) {
            let ratio = time.ratio_to(bare);
            table.row(format_args!(
                "{offered} | {name} | {} | {} | {:.0} | {:.2} %",
                time.cells(0),
                ratio.cells(2),
                rate.median(),
                lost.median(),
            ));
            if *name != "bare loop" {
                criteria.push(Criterion::at_most(
                    format!(
                        "{name} ÷ bare loop, processor time a packet at {offered} ({})",
                        ratio.quartiles().spread(2)
                    ),
                    ratio.median(),
                    RATIO_MAX,
                    "",
                ));
            }
        }
    }
    let mut searches: Vec<Action<'_>> = receivers
        .iter()
        .map(|receiver| Box::new(move || receiver.highest_rate_without_loss()) as Action<'_>)
        .collect();
    let highest = measure_in_turn(rounds.div_ceil(2), &mut searches)?;
    let mut rates =
        Table::new("receiver | highest rate without loss, packets/s | quartiles | ÷ bare loop | quartiles");
    if let Some(bare) = highest.first() {
        for (name, rate) in names.iter().zip(&highest) {
            let ratio = rate.ratio_to(bare);
            rates.row(format_args!("{name} | {} | {}", rate.cells(0), ratio.cells(2)));
            if *name != "bare loop" {
                criteria.push(Criterion::at_least(
                    format!("{name} ÷ bare loop, rate without loss ({})", ratio.quartiles().spread(2)),
                    ratio.median(),
                    RATE_RATIO_MIN,
                    "",
                ));
            }
        }
    }
    Ok(format!(
        "{}\nUDP packets of {LENGTH} bytes over a veth pair from one sending thread, medians of {rounds} rounds in turn. The sender and the kernel's work for it are on \
one core, the receiver's threads on the other. The bare loop (`lab/native/receive.c`) has as many frames, and sleeps at the same times. The full rate is what the sender reaches.\n\n\
{table}\nThe highest rate without loss is searched by bisection, in trials of {} ms.\n\n{rates}",
        criterion::table(&criteria),
        TRIAL_TIME.as_millis(),
    ))
}

impl Receiver {
    /// Sends packets at a rate for some time, and receives them.
    fn trial(&self, rate: u64, time: Duration) -> Result<Outcome, LabError> {
        let _veth_pair = VethPair::new("a", "b")?;
        let outcome = match self {
            Self::Bare(program) => bare_loop(program, rate, time),
            Self::Path => receive_path(rate, time),
            Self::Node(module) => node(module, rate, time),
        }?;
        if outcome.received == 0 {
            return Err(LabError::NoData("no packet arrived".to_owned()));
        }
        Ok(outcome)
    }

    /// The highest rate, in packets/s, at which all packets are received.
    fn highest_rate_without_loss(&self) -> Result<f64, LabError> {
        let mut reached = 0.0;
        let found = largest_good(FULL_RATE as f64 / 2.0, SEARCH_STEPS, |rate| {
            if rate == 0.0 {
                return Ok(true);
            }
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive rate")]
            let outcome = self.trial(rate as u64, TRIAL_TIME)?;
            let is_good = outcome.received == outcome.sent;
            if is_good && outcome.rate > reached {
                reached = outcome.rate;
            }
            Ok::<_, LabError>(is_good)
        })?;
        // The sender may not reach the offered rate.
        Ok(found.unwrap_or(0.0).min(reached))
    }
}

/// Sends at a rate for some time. Returns the packets sent, and the achieved rate.
fn send(rate: u64, time: Duration) -> Result<(u64, f64), LabError> {
    let traffic = Traffic::start("a", vec![datagram_of(LENGTH)])?;
    let begin = Instant::now();
    traffic.set_rate(rate);
    std::thread::sleep(time);
    traffic.set_rate(0);
    let elapsed = begin.elapsed();
    // The thread may still be sending its last burst.
    std::thread::sleep(Duration::from_millis(5));
    let sent = traffic.sent();
    Ok((sent, sent as f64 / elapsed.as_secs_f64()))
}

/// A trial of the bare loop.
fn bare_loop(program: &Path, rate: u64, time: Duration) -> Result<Outcome, LabError> {
    let seconds = (time + Duration::from_millis(250)).as_secs_f64();
    let mut command = Command::new(program);
    command.args(["b", &seconds.to_string(), &FRAMES.to_string()]).stdout(Stdio::piped());
    let mut child = command.spawn().context("starting the bare loop")?;
    let output = child.stdout.take().map(BufReader::new);
    let mut output = output.ok_or_else(|| LabError::NoData("the bare loop has no output".to_owned()))?;
    let mut text = String::new();
    output.read_line(&mut text).context("reading from the bare loop")?;
    let (sent, rate) = send(rate, time)?;
    text.clear();
    output.read_to_string(&mut text).context("reading from the bare loop")?;
    _ = child.wait();
    let mut numbers = text.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(received), Some(nanos)) => {
            Ok(Outcome { sent, received, rate, cpu: Duration::from_nanos(nanos) })
        }
        _ => Err(LabError::NoData(format!("the output of the bare loop is not understood: {text}"))),
    }
}

/// A trial of the receive path.
fn receive_path(rate: u64, time: Duration) -> Result<Outcome, LabError> {
    let receiving = MonitorReceiving { kind: SocketKind::Xdp, wakeup: Wakeup::Woken, buffer: MEMORY };
    let monitor = Monitor::start("b", receiving, &[], PacketsPerCall::Batch)?;
    let (sent, rate) = send(rate, time)?;
    std::thread::sleep(DRAIN_TIME);
    let (received, cpu) = monitor.finish()?;
    Ok(Outcome { sent, received, rate, cpu })
}

/// A trial of a node with a session that runs syn-flood.
fn node(module: &[u8], rate: u64, time: Duration) -> Result<Outcome, LabError> {
    let mut node =
        NodeProcess::start_on(CORES, "[[interface]]\nname = \"b\"\nkind = \"xdp\"\narena = \"64 MiB\"\n")?;
    node.create("name = \"watch\"\nchannel = [{ interface = \"b\", queue = 16384 }]\n")?;
    node.load("watch", parse_module("module = \"syn-flood.wasm\"")?, module)?;
    let ended = || LabError::NoData("the node has ended".to_owned());
    let before = process_time(node.pid()).ok_or_else(ended)?;
    let (sent, rate) = send(rate, time)?;
    std::thread::sleep(DRAIN_TIME);
    let cpu = process_time(node.pid()).ok_or_else(ended)?.saturating_sub(before);
    let snapshot = node.snapshot()?;
    check_no_faults(&snapshot)?;
    let session = find_session(&snapshot, "watch");
    let received = session.map_or(0, |session| session.modules.iter().map(|module| module.packets).sum());
    node.stop()?;
    Ok(Outcome { sent, received, rate, cpu })
}
