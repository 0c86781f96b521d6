//! The cost of receiving from an interface, compared with a bare loop, and the cost of calling modules.

use crate::criterion::{self, Criterion};
use crate::error::{Context, LabError};
use crate::figure::monitor::{BUFFER, Calls, Monitor, MonitorReceiving, Wakeup};
use crate::figure::network::{Cable, Traffic, datagram_of};
use crate::machine::{OTHER_CORE, bind};
use crate::module::Module;
use crate::native::{Compiler, compile_program};
use crate::paths;
use crate::statistics::{all_in_turn, count};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use weir_netio::SocketKind;

/// Offered packets per second.
const RATE: u64 = 150_000;
const TIME: Duration = Duration::from_millis(800);
/// The number of empty modules. The framework's cost is that of one of them.
const MODULES: usize = 32;
/// The promised limit of the time of receiving, as a multiple of the bare loop's.
const PROMISE: f64 = 1.1;
/// Cycles of the framework per packet and module: the promised limit, and the aim.
const FRAMEWORK: (f64, f64) = (60.0, 20.0);
const RECEIVING: MonitorReceiving =
    MonitorReceiving { kind: SocketKind::Xdp, wakeup: Wakeup::Woken, buffer: BUFFER };

/// The table of the costs. Runs in a network namespace.
pub fn table(rounds: usize) -> Result<String, LabError> {
    bind(OTHER_CORE)?;
    let compiler = Compiler::clang().or_else(Compiler::gcc);
    let compiler = compiler.ok_or_else(|| LabError::failed("clang-19 or gcc", "not installed"))?;
    let program = compile_program(&paths::root().join("lab/native/receive.c"), &compiler)?;
    let many = vec![Module::empty()?.wasm; MODULES];
    let [bare, weir, framework] = all_in_turn(
        rounds,
        [
            Box::new(|| bare_loop(&program)),
            Box::new(|| Ok(monitor(&[])?.0)),
            Box::new(|| Ok(monitor(&many)?.1 / count(MODULES))),
        ],
    )?;
    let ratio = weir.over(&bare);
    let criteria = [
        Criterion::at_most(
            format!(
                "receiving by AF_XDP ÷ a bare loop, processor time a packet ({})",
                ratio.quartiles().spread(2)
            ),
            ratio.median(),
            PROMISE,
            "",
        ),
        Criterion::at_most(
            format!(
                "framework, cycles a packet and module ({}; aim {:.0})",
                framework.quartiles().spread(1),
                FRAMEWORK.1
            ),
            framework.median(),
            FRAMEWORK.0,
            "",
        ),
    ];
    Ok(format!(
        "{}\nAt {RATE} packets/s of 60 bytes, medians of {rounds} rounds in turn: the bare loop (`lab/native/receive.c`) {:.0} ns ({}), weir {:.0} ns ({}) of its \
thread's processor time a packet, with waiting and waking up. The framework is measured with {MODULES} modules that do nothing, with all that is between two packets of a module.\n",
        criterion::table(&criteria),
        bare.median(),
        bare.quartiles().spread(0),
        weir.median(),
        weir.quartiles().spread(0),
    ))
}

fn traffic() -> Result<Traffic, LabError> {
    Traffic::start("a", vec![datagram_of(60)])
}

/// Nanoseconds a packet of the bare loop.
fn bare_loop(program: &Path) -> Result<f64, LabError> {
    let _cable = Cable::new("a", "b")?;
    let seconds = (TIME + Duration::from_millis(200)).as_secs_f64();
    let mut command = Command::new(program);
    command.args(["b", &seconds.to_string()]).stdout(Stdio::piped());
    let mut child = command.spawn().context("starting the bare loop")?;
    let text = child.stdout.take().map(BufReader::new).map_or(Ok(String::new()), |mut said| {
        let mut line = String::new();
        said.read_line(&mut line)?;
        let traffic = traffic().map_err(std::io::Error::other)?;
        traffic.set(RATE);
        std::thread::sleep(TIME);
        traffic.set(0);
        said.read_to_string(&mut line)?;
        Ok::<_, std::io::Error>(line)
    });
    _ = child.wait();
    let text = text.context("reading from the bare loop")?;
    let mut numbers = text.split_whitespace().skip(1).filter_map(|word| word.parse::<f64>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(packets), Some(nanos)) if packets > 0.0 => Ok(nanos / packets),
        _ => Err(LabError::NoData(format!("the bare loop said: {text}"))),
    }
}

/// Nanoseconds per packet of weir's thread, and cycles per packet in these modules.
fn monitor(modules: &[Vec<u8>]) -> Result<(f64, f64), LabError> {
    let _cable = Cable::new("a", "b")?;
    let mut monitor = Monitor::start("b", RECEIVING, modules, Calls::Batches)?;
    let trial = monitor.trial(&traffic()?, RATE, TIME)?;
    let (seen, cpu) = monitor.finish()?;
    if seen == 0 {
        return Err(LabError::NoData("no packet arrived".to_owned()));
    }
    Ok((cpu.as_secs_f64() * 1e9 / seen as f64, trial.cycles_a_packet()))
}
