//! A session of a node on an interface: the processor time of a packet beside that of tcpdump, and the latency that
//! forwarding adds. The part `session` of the benchmark.

use crate::criterion::{self, Criterion};
use crate::error::{Context, LabError};
use crate::figure::network::{Traffic, VethPair, segment};
use crate::figure::node::{NodeProcess, check_no_faults, find_session, parse_module};
use crate::machine::{CORE, OTHER_CORE, bind};
use crate::module::Module;
use crate::namespace;
use crate::native::process_time;
use crate::statistics::{Action, Sample, measure_values_in_turn};
use crate::table::Table;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_netio::{LiveOptions, LivePoll, LiveSink, LiveSource, SocketKind};
use weir_units::{Bytes, Nanos};

/// The length of packets in bytes.
const LENGTH: usize = 200;
/// The number of connections among which packets alternate.
const CONNECTIONS: u16 = 1024;
/// The lower of the two offered rates, in packets per second.
const MODERATE: u64 = 100_000;
/// An offered rate that the sender never reaches, so that it sends as fast as it can.
const FULL: u64 = 100_000_000;
/// The duration of a measurement of processor time.
const TIME: Duration = Duration::from_millis(1500);
/// The wait for a program to be ready, and for packets under way.
const SETTLE: Duration = Duration::from_millis(300);
/// The promised limits of processor time, as multiples of tcpdump's: at the moderate rate, and at the full rate.
const RATIOS_MAX: [f64; 2] = [1.5, 1.0];

/// The rates at which latency is measured, in packets per second.
const RATES: [u64; 3] = [1_000, 10_000, 100_000];
/// The duration of a measurement of latency.
const LATENCY_TIME: Duration = Duration::from_millis(1000);
/// The promised limits of the median and of the 99th percentile of latency, in microseconds.
const LATENCIES_MAX: [f64; 2] = [50.0, 200.0];
/// The offset in a packet of the time at which it was sent.
const SENT_AT: usize = 60;
/// All threads of a measured program run on one core, since the sender has the other one.
const CORES: &str = "[cpu]\ncores = [1]\nreceive_core = 1\n";
/// A pause of the sender up to this length is spent spinning, because a sleep could end late.
const SPIN_MAX: Duration = Duration::from_micros(120);

/// Measures processor time and latency, and returns their tables. Runs in a network namespace.
pub fn tables(rounds: usize) -> Result<String, LabError> {
    // Programs that are started later inherit the core. The sender's thread chooses the other core.
    bind(CORE)?;
    namespace::raise_priority();
    let (costs, cost_criteria) = cost_table(rounds)?;
    // The promised latency is one on an otherwise idle machine.
    namespace::use_real_time_priority();
    let (latencies, latency_criteria) = latency_table(rounds)?;
    let criteria = criterion::table(&[cost_criteria, latency_criteria].concat());
    Ok(format!("{criteria}\n{costs}\n{latencies}"))
}

/// Processor time and loss of a measurement.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// The processor time of the program for each packet sent, in ns.
    nanos_per_packet: f64,
    /// The share of packets that did not arrive, in percent.
    lost: f64,
    /// Packets sent per second.
    rate: f64,
}

fn cost_table(rounds: usize) -> Result<(String, Vec<Criterion>), LabError> {
    let syn_flood = Module::named("syn-flood")?.wasm;
    let mut actions: Vec<Action<'_, Cost>> = Vec::new();
    for rate in [MODERATE, FULL] {
        actions.push(Box::new(move || tcpdump_cost(rate)));
        let wasm = &syn_flood;
        actions.push(Box::new(move || session_cost(rate, wasm)));
    }
    let costs = measure_values_in_turn(rounds, &mut actions)?;
    let sample = |index: usize, value: fn(&Cost) -> f64| costs[index].iter().map(value).collect::<Sample>();
    let mut table = Table::new("packets/s | program | ns a packet | quartiles | lost, %");
    let mut criteria = Vec::new();
    let names = ["at 100,000 packets/s", "at the sender's full rate"];
    for (index, (name, limit)) in names.iter().zip(RATIOS_MAX).enumerate() {
        let nanos = |cost: &Cost| cost.nanos_per_packet;
        for (program, at) in [("`tcpdump -w /dev/null`", 2 * index), ("session", 2 * index + 1)] {
            let rate = sample(at, |cost| cost.rate).median();
            let lost = sample(at, |cost| cost.lost).median();
            table.row(format_args!("{rate:.0} | {program} | {} | {lost:.2}", sample(at, nanos).cells(0)));
        }
        let ratio = sample(2 * index + 1, nanos).ratio_to(&sample(2 * index, nanos));
        let spread = ratio.quartiles().spread(2);
        let what = format!("packet socket ÷ tcpdump, processor time a packet, {name} ({spread})");
        criteria.push(Criterion::at_most(what, ratio.median(), limit, ""));
    }
    let text = format!(
        "Processor time of all threads of a program that receives {LENGTH}-byte TCP packets of {CONNECTIONS} connections from a veth interface, on one core; the sender has the other core. A node with one session, which runs syn-flood without a filter; medians of {rounds} rounds in turn.\n\n{table}"
    );
    Ok((text, criteria))
}

/// Sends `rate` packets per second for [`TIME`], after a time in which the program `pid` adapts to the rate. Then calls
/// `count_received` with the number of all packets sent. That closure returns the number of packets that the program has
/// received in all, and may end the program. Returns the processor time and the loss of the program.
fn measure(
    pid: u32,
    rate: u64,
    count_received: impl FnOnce(u64) -> Result<u64, LabError>,
) -> Result<Cost, LabError> {
    let used = || process_time(pid).ok_or_else(|| LabError::NoData("the program has ended".to_owned()));
    let traffic =
        Traffic::start("a", (0..CONNECTIONS).map(|connection| segment(connection, LENGTH)).collect())?;
    traffic.set_rate(rate);
    std::thread::sleep(SETTLE);
    let (before, sent_before, begin) = (used()?, traffic.sent(), Instant::now());
    std::thread::sleep(TIME);
    let (cpu, sent, time) = (used()? - before, traffic.sent() - sent_before, begin.elapsed());
    traffic.set_rate(0);
    std::thread::sleep(SETTLE);
    let all = traffic.sent();
    let received = count_received(all)?;
    Ok(Cost {
        nanos_per_packet: cpu.as_secs_f64() * 1e9 / sent.max(1) as f64,
        lost: all.saturating_sub(received) as f64 / all.max(1) as f64 * 100.0,
        rate: sent as f64 / time.as_secs_f64(),
    })
}

/// Measures the cost of a node's session that runs syn-flood.
fn session_cost(rate: u64, module: &[u8]) -> Result<Cost, LabError> {
    let _veth_pair = VethPair::new("a", "b")?;
    let mut node = NodeProcess::start_on(
        CORES,
        "[[interface]]\nname = \"b\"\n[[session]]\nname = \"s\"\nmemory = \"256 MiB\"\nchannel = [{ interface = \"b\", queue = 16384 }]\n",
    )?;
    node.load("s", parse_module("module = \"syn-flood\"")?, module)?;
    node.wait_until("the start of the module", |snapshot| {
        find_session(snapshot, "s").is_some_and(|session| !session.modules.is_empty())
    })?;
    std::thread::sleep(SETTLE);
    let pid = node.pid();
    let cost = measure(pid, rate, |_| {
        let snapshot = node.snapshot()?;
        check_no_faults(&snapshot)?;
        let session = find_session(&snapshot, "s");
        Ok(session.map_or(0, |session| session.modules.iter().map(|module| module.packets).sum()))
    })?;
    node.stop()?;
    Ok(cost)
}

/// A child process that is ended when this value is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Measures the cost of tcpdump, which writes packets to /dev/null.
fn tcpdump_cost(rate: u64) -> Result<Cost, LabError> {
    let _veth_pair = VethPair::new("a", "b")?;
    let mut command = Command::new("tcpdump");
    command.args(["-n", "-i", "b", "-w", "/dev/null"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut program = Running(command.spawn().context("starting tcpdump")?);
    std::thread::sleep(2 * SETTLE);
    let pid = program.0.id();
    measure(pid, rate, |all| {
        // tcpdump delivers the last packets after a second, and prints its counters at its end.
        std::thread::sleep(Duration::from_secs(1));
        Command::new("kill").args(["-INT", &pid.to_string()]).status().context("ending tcpdump")?;
        let mut text = String::new();
        if let Some(errors) = program.0.stderr.take() {
            std::io::Read::read_to_string(&mut { errors }, &mut text).context("reading from tcpdump")?;
        }
        let count = |what: &str| {
            let line = text.lines().find(|line| line.contains(what))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        let dropped = count("packets dropped by kernel")
            .ok_or_else(|| LabError::NoData(format!("the output of tcpdump is not understood: {text}")))?;
        Ok(all.saturating_sub(dropped))
    })
}

/// Latency and loss of a measurement.
#[derive(Clone, Copy, Debug)]
struct Latency {
    /// The median, in microseconds.
    median: f64,
    /// The 99th percentile, in microseconds.
    percentile_99: f64,
    /// The share of packets that did not arrive, in percent.
    lost: f64,
    /// The processor time of the node, in percent of a core.
    cpu: f64,
}

/// The ways of forwarding that are measured: the kind of socket, and true if a module decides.
const WAYS: [(&str, bool); 4] = [("packet", false), ("packet", true), ("xdp", false), ("xdp", true)];

fn latency_table(rounds: usize) -> Result<(String, Vec<Criterion>), LabError> {
    let module = Module::named("syn-flood")?.wasm;
    let mut cases = Vec::new();
    let mut actions: Vec<Action<'_, Latency>> = Vec::new();
    for (kind, has_module) in WAYS {
        for rate in RATES {
            let module = has_module.then_some(module.as_slice());
            cases.push((kind, has_module, rate));
            actions.push(Box::new(move || forwarding_latency(kind, module, rate)));
        }
    }
    let values = measure_values_in_turn(rounds, &mut actions)?;
    let mut table = Table::new(
        "kind | module | packets/s | p50, µs | quartiles | p99, µs | quartiles | lost, % | node, % of a core",
    );
    let mut worst = [0.0_f64; 2];
    for ((kind, has_module, rate), values) in cases.iter().zip(&values) {
        let sample = |value: fn(&Latency) -> f64| values.iter().map(value).collect::<Sample>();
        let (median, high) = (sample(|latency| latency.median), sample(|latency| latency.percentile_99));
        let (lost, cpu) = (sample(|latency| latency.lost).median(), sample(|latency| latency.cpu).median());
        let module = if *has_module { "syn-flood" } else { "none" };
        table.row(format_args!(
            "{kind} | {module} | {rate} | {} | {} | {lost:.2} | {cpu:.0}",
            median.cells(0),
            high.cells(0)
        ));
        if *kind == "packet" {
            worst = [worst[0].max(median.median()), worst[1].max(high.median())];
        }
    }
    let names = ["p50", "p99"];
    let criteria = names.iter().zip(worst).zip(LATENCIES_MAX).map(|((name, worst), limit)| {
        Criterion::at_most(
            format!("latency of forwarding, packet socket, {name}, worst row"),
            worst,
            limit,
            "µs",
        )
    });
    let text = format!(
        "Latency of forwarding through one session: from before the sender's system call on one veth pair until the kernel receives the forwarded packet at the far end of another pair, so the time of two sends is included. Packets of {LENGTH} bytes at equal distances; all threads of the node share one core, and the sender has the other. Both have real-time priority, because the promise is about an idle machine. Medians of {rounds} rounds in turn of {} s each.\n\n{table}",
        LATENCY_TIME.as_secs()
    );
    Ok((text, criteria.collect()))
}

/// The time of day in ns.
fn time_of_day() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// Sends packets through a node that forwards them, and returns their latencies.
fn forwarding_latency(kind: &str, module: Option<&[u8]>, rate: u64) -> Result<Latency, LabError> {
    let _veth_pairs = [VethPair::new("a", "b")?, VethPair::new("c", "d")?];
    let mut node = NodeProcess::start_on(
        CORES,
        &format!(
            "[[interface]]\nname = \"b\"\nkind = \"{kind}\"\noutgoing = false\nlatency = \"low\"\n\
             [[link]]\ninterface = \"c\"\nrate = \"10 Gbit/s\"\n\
             [[session]]\nname = \"s\"\nchannel = [{{ interface = \"b\", queue = 4096, forward = \"up\" }}]\n\
             output = [{{ name = \"up\", link = \"c\", queue = 4096 }}]\n"
        ),
    )?;
    if let Some(module) = module {
        node.load("s", parse_module("module = \"syn-flood\"")?, module)?;
        node.wait_until("the start of the module", |snapshot| {
            find_session(snapshot, "s").is_some_and(|session| !session.modules.is_empty())
        })?;
    }
    // The packets are read after the last one was sent, so the ring must hold all of them. It does if the kernel hands over
    // full blocks only. So the time after which it hands over any block is that of the whole measurement.
    let whole_measurement = Nanos(u64::try_from(LATENCY_TIME.as_nanos()).unwrap_or(u64::MAX));
    let options = LiveOptions {
        kind: SocketKind::Packet,
        ring: Bytes(256 << 20),
        latency: whole_measurement,
        retire: whole_measurement,
        ..LiveOptions::default()
    };
    let mut far = LiveSource::open("d", options)?;
    std::thread::sleep(SETTLE);
    let used = || process_time(node.pid()).unwrap_or_default();
    let before = used();
    let sender = std::thread::spawn(move || send_evenly(rate));
    let sent = sender.join().map_err(|_| LabError::NoData("the sender has failed".to_owned()))??;
    let cpu = (used() - before).as_secs_f64() / LATENCY_TIME.as_secs_f64() * 100.0;
    let mut latencies = Vec::new();
    loop {
        match far.next_block(Nanos(2 * Nanos::SECOND.0))? {
            LivePoll::Block(block) => {
                let mut bytes = Vec::new();
                // The descriptors before `lead` belong to earlier blocks.
                for (place, descriptor) in block.descriptors().iter().enumerate().skip(block.lead()) {
                    block.copy_packet(place, &mut bytes);
                    let stamp = bytes.get(SENT_AT..).and_then(|rest| rest.first_chunk());
                    if bytes.len() == LENGTH
                        && let Some(stamp) = stamp
                    {
                        latencies.push(descriptor.ts_ns.saturating_sub(u64::from_le_bytes(*stamp)));
                    }
                }
            }
            LivePoll::Quiet | LivePoll::End => break,
            LivePoll::Event(_) | LivePoll::Full => {}
        }
    }
    node.stop()?;
    latencies.sort_unstable();
    let at = |thousandths: usize| {
        let place = latencies.len() * thousandths / 1000;
        latencies.get(place).copied().map_or(f64::NAN, |nanos| nanos as f64 / 1e3)
    };
    let lost = sent.saturating_sub(latencies.len() as u64) as f64 / sent.max(1) as f64 * 100.0;
    Ok(Latency { median: at(500), percentile_99: at(990), lost, cpu })
}

/// Sends packets at equal distances, each with its time of sending. Returns their number.
fn send_evenly(rate: u64) -> Result<u64, LabError> {
    bind(OTHER_CORE)?;
    let mut sink = LiveSink::open("a", SocketKind::Packet)?;
    let mut frame = segment(0, LENGTH);
    let distance = Duration::from_nanos(1_000_000_000 / rate);
    let (begin, mut next, mut sent) = (Instant::now(), Duration::ZERO, 0);
    while next < LATENCY_TIME {
        let wait = next.saturating_sub(begin.elapsed());
        if wait > SPIN_MAX {
            std::thread::sleep(wait - SPIN_MAX);
        }
        while begin.elapsed() < next {
            std::hint::spin_loop();
        }
        if let Some(stamp) = frame.get_mut(SENT_AT..SENT_AT + 8) {
            stamp.copy_from_slice(&time_of_day().to_le_bytes());
        }
        sent += sink.send(&[&frame]).sent as u64;
        next += distance;
    }
    Ok(sent)
}
