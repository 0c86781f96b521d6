//! The cost of receiving from an interface, compared with a bare loop in C, and the cost of calling modules. The part
//! `live` of the benchmark.

use crate::criterion::{self, Criterion};
use crate::error::{Context, LabError};
use crate::figure::monitor::{BUFFER, Monitor, MonitorReceiving, PacketsPerCall, Wakeup};
use crate::figure::network::{Traffic, VethPair, datagram_of};
use crate::machine::{OTHER_CORE, bind};
use crate::module::Module;
use crate::native::{Compiler, compile_program};
use crate::paths;
use crate::statistics::{measure_all_in_turn, to_f64};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use weir_netio::SocketKind;

/// Offered packets per second.
const RATE: u64 = 150_000;
/// The duration of a measurement.
const TIME: Duration = Duration::from_millis(800);
/// The number of empty modules that are run at once. The framework's cost is that of one of them.
const MODULES: usize = 32;
/// The promised limit of the time of receiving, as a multiple of the bare loop's.
const RATIO_MAX: f64 = 1.1;
/// The promised limit of the framework's cycles per packet and module.
const FRAMEWORK_CYCLES_MAX: f64 = 60.0;
/// The aim for the framework's cycles per packet and module.
const FRAMEWORK_CYCLES_AIM: f64 = 20.0;
/// The number of frames of the bare loop: as many as weir's buffer has.
const FRAMES: u64 = BUFFER.0 / 2048;
const RECEIVING: MonitorReceiving =
    MonitorReceiving { kind: SocketKind::Xdp, wakeup: Wakeup::Woken, buffer: BUFFER };

/// The table of the costs. Runs in a network namespace.
pub fn table(rounds: usize) -> Result<String, LabError> {
    bind(OTHER_CORE)?;
    let compiler = Compiler::clang().or_else(Compiler::gcc);
    let compiler = compiler.ok_or_else(|| LabError::failed("clang-19 or gcc", "not installed"))?;
    let program = compile_program(&paths::root().join("lab/native/receive.c"), &compiler)?;
    let many = vec![Module::empty()?.wasm; MODULES];
    let [bare, weir, framework] = measure_all_in_turn(
        rounds,
        [
            Box::new(|| bare_loop(&program)),
            Box::new(|| Ok(measure_monitor(&[])?.0)),
            Box::new(|| Ok(measure_monitor(&many)?.1 / to_f64(MODULES))),
        ],
    )?;
    let ratio = weir.ratio_to(&bare);
    let criteria = [
        Criterion::at_most(
            format!(
                "receiving by AF_XDP ÷ a bare loop, processor time a packet ({})",
                ratio.quartiles().spread(2)
            ),
            ratio.median(),
            RATIO_MAX,
            "",
        ),
        Criterion::at_most(
            format!(
                "framework, cycles a packet and module ({}; aim {:.0})",
                framework.quartiles().spread(1),
                FRAMEWORK_CYCLES_AIM
            ),
            framework.median(),
            FRAMEWORK_CYCLES_MAX,
            "",
        ),
    ];
    Ok(format!(
        "{}\nAt {RATE} packets/s of 60 bytes, medians of {rounds} rounds in turn: the bare loop (`lab/native/receive.c`) {:.0} ns ({}), weir {:.0} ns ({}) of its \
thread's processor time a packet, including waiting and waking up. The framework's cycles are all those between two packets of a module, measured with {MODULES} modules that do nothing.\n",
        criterion::table(&criteria),
        bare.median(),
        bare.quartiles().spread(0),
        weir.median(),
        weir.quartiles().spread(0),
    ))
}

/// A sender of short packets.
fn traffic() -> Result<Traffic, LabError> {
    Traffic::start("a", vec![datagram_of(60)])
}

/// Nanoseconds per packet of the bare loop.
fn bare_loop(program: &Path) -> Result<f64, LabError> {
    let _veth_pair = VethPair::new("a", "b")?;
    let seconds = (TIME + Duration::from_millis(200)).as_secs_f64();
    let mut command = Command::new(program);
    command.args(["b", &seconds.to_string(), &FRAMES.to_string()]).stdout(Stdio::piped());
    let mut child = command.spawn().context("starting the bare loop")?;
    let text = child.stdout.take().map(BufReader::new).map_or(Ok(String::new()), |mut output| {
        let mut line = String::new();
        output.read_line(&mut line)?;
        let traffic = traffic().map_err(std::io::Error::other)?;
        traffic.set_rate(RATE);
        std::thread::sleep(TIME);
        traffic.set_rate(0);
        output.read_to_string(&mut line)?;
        Ok::<_, std::io::Error>(line)
    });
    _ = child.wait();
    let text = text.context("reading from the bare loop")?;
    let mut numbers = text.split_whitespace().skip(1).filter_map(|word| word.parse::<f64>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(packets), Some(nanos)) if packets > 0.0 => Ok(nanos / packets),
        _ => Err(LabError::NoData(format!("the output of the bare loop is not understood: {text}"))),
    }
}

/// Nanoseconds per packet of weir's thread, and cycles per packet in these modules.
fn measure_monitor(modules: &[Vec<u8>]) -> Result<(f64, f64), LabError> {
    let _veth_pair = VethPair::new("a", "b")?;
    let mut monitor = Monitor::start("b", RECEIVING, modules, PacketsPerCall::Batch)?;
    let trial = monitor.trial(&traffic()?, RATE, TIME)?;
    let (processed, cpu) = monitor.finish()?;
    if processed == 0 {
        return Err(LabError::NoData("no packet arrived".to_owned()));
    }
    Ok((cpu.as_secs_f64() * 1e9 / processed as f64, trial.cycles_a_packet()))
}
