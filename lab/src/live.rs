//! What receiving from an interface costs, beside the least that it can cost, and what it costs that modules are called.

use crate::figure::FigureError;
use crate::figure::monitor::{Calls, Look, Monitor, ROOM, Way};
use crate::figure::scene::{ANYBODY, ASIDE, Traffic, bind, cable, datagram, unplug};
use crate::module::Module;
use crate::native::{Compiler, compile_program};
use crate::statistics::Sample;
use crate::table::{Table, yes_or_no};
use crate::{BenchError, namespace, place};
use std::fmt;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use weir_netio::Kind;

/// Packets offered each second, in both.
const RATE: u64 = 150_000;
const TIME: Duration = Duration::from_millis(800);
/// Modules that do nothing, over which the cost of one is measured.
const MODULES: usize = 32;
/// How many times as much as a bare loop receiving may take.
const PROMISE: f64 = 1.1;
/// Cycles of the framework for a packet and module: at most, and aimed at.
const FRAMEWORK: (f64, f64) = (60.0, 20.0);
const WAY: Way = Way { kind: Kind::Xdp, look: Look::Woken, room: ROOM };

/// What was measured, a value for each round.
#[derive(Clone, Debug, Default)]
pub struct Costs {
    /// The bare loop, in ns of processor time a packet.
    bare: Sample,
    /// The same by weir.
    weir: Sample,
    /// Cycles for a packet in each of many modules that do nothing.
    framework: Sample,
}

/// What the live path costs, measured by this program in a network namespace.
///
/// # Errors
/// Namespaces cannot be made, or something does not run there.
pub fn table(rounds: usize) -> Result<String, BenchError> {
    let text = namespace::measure(&["--live", &rounds.to_string()])?;
    let costs = parse(&text).ok_or_else(|| namespace::failed(&["--live"], text))?;
    // Round by round: what disturbs one of the two disturbs the other, and then the next round.
    let ratio = costs.weir.over(&costs.bare);
    let mut table = Table::new(&["promise", "at most", "measured", "quartiles", "kept"]);
    table.row([
        "receiving by AF_XDP ÷ a bare loop, processor time a packet".to_owned(),
        format!("{PROMISE:.2}"),
        format!("{:.2}", ratio.median()),
        ratio.quartiles().spread(2),
        yes_or_no(ratio.median() <= PROMISE),
    ]);
    table.row([
        "framework, cycles a packet and module".to_owned(),
        format!("{:.0} (aim {:.0})", FRAMEWORK.0, FRAMEWORK.1),
        format!("{:.1}", costs.framework.median()),
        costs.framework.quartiles().spread(1),
        yes_or_no(costs.framework.median() <= FRAMEWORK.0),
    ]);
    Ok(format!(
        "{table}\nAt {RATE} packets/s of 60 bytes, medians of {rounds} rounds in turn: the bare loop (`lab/native/receive.c`) {:.0} ns ({}), weir {:.0} ns ({}) of its \
thread's processor time a packet, with waiting and waking up. The framework is measured with {MODULES} modules that do nothing, with all that is between two packets of a module.\n",
        costs.bare.median(),
        costs.bare.quartiles().spread(0),
        costs.weir.median(),
        costs.weir.quartiles().spread(0),
    ))
}

impl fmt::Display for Costs {
    /// A line for each round.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((bare, weir), framework) in
            self.bare.values().iter().zip(self.weir.values()).zip(self.framework.values())
        {
            writeln!(f, "{bare} {weir} {framework}")?;
        }
        Ok(())
    }
}

/// What [`child`] has said.
fn parse(text: &str) -> Option<Costs> {
    let mut costs = Costs::default();
    for line in text.lines() {
        let values: Vec<f64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let [bare, weir, framework] = values.try_into().ok()?;
        costs.bare.push(bare);
        costs.weir.push(weir);
        costs.framework.push(framework);
    }
    (!costs.bare.values().is_empty()).then_some(costs)
}

/// The measurement itself: in a namespace of its own.
///
/// # Errors
/// There is no compiler, no cable, or nothing arrives.
pub fn child(rounds: usize) -> Result<Costs, FigureError> {
    bind(ASIDE)?;
    let compiler = Compiler::clang().or_else(Compiler::gcc);
    let missing = || BenchError::Program {
        program: "clang-19 or gcc".to_owned(),
        source: std::io::ErrorKind::NotFound.into(),
    };
    let compiler = compiler.ok_or_else(missing)?;
    let program = compile_program(&place::root().join("lab/native/receive.c"), &compiler)?;
    let many = vec![Module::empty()?.wasm; MODULES];
    let mut costs = Costs::default();
    for round in 0..rounds.max(1) {
        let mut bare = || on_cable(|| bare_loop(&program)).map(|value| costs.bare.push(value));
        let mut weir = || on_cable(|| monitor(&[])).map(|(value, _)| costs.weir.push(value));
        // Neither is always the first.
        if round % 2 == 0 {
            bare()?;
            weir()?;
        } else {
            weir()?;
            bare()?;
        }
        let (_, cycles) = on_cable(|| monitor(&many))?;
        costs.framework.push(cycles / f64::from(u32::try_from(MODULES).unwrap_or(1)));
    }
    Ok(costs)
}

fn on_cable<R>(work: impl FnOnce() -> Result<R, FigureError>) -> Result<R, FigureError> {
    cable("a", "b")?;
    let result = work();
    unplug("a")?;
    result
}

fn traffic() -> Result<Traffic, FigureError> {
    Traffic::start("a", vec![datagram(ANYBODY, (1000, 53), 60)])
}

/// Nanoseconds a packet of the bare loop.
fn bare_loop(program: &Path) -> Result<f64, FigureError> {
    let seconds = (TIME + Duration::from_millis(200)).as_secs_f64();
    let mut command = Command::new(program);
    command.args(["b", &seconds.to_string()]).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(FigureError::system("starting the bare loop"))?;
    let text = child.stdout.take().map(BufReader::new).map_or(Ok(String::new()), |mut said| {
        let mut line = String::new();
        said.read_line(&mut line)?;
        let traffic = traffic().map_err(std::io::Error::other)?;
        traffic.set(RATE);
        std::thread::sleep(TIME);
        traffic.set(0);
        said.read_to_string(&mut line)?;
        Ok(line)
    });
    _ = child.wait();
    let text = text.map_err(FigureError::system("hearing of the bare loop"))?;
    let mut numbers = text.split_whitespace().skip(1).filter_map(|word| word.parse::<f64>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(packets), Some(nanos)) if packets > 0.0 => Ok(nanos / packets),
        _ => Err(FigureError::Nothing(format!("the bare loop said: {text}"))),
    }
}

/// Nanoseconds a packet of weir's thread, and cycles a packet in these modules.
#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn monitor(modules: &[Vec<u8>]) -> Result<(f64, f64), FigureError> {
    let mut monitor = Monitor::start("b", WAY, modules, Calls::Batches)?;
    let trial = monitor.trial(&traffic()?, RATE, TIME)?;
    let (seen, cpu) = monitor.finish()?;
    if seen == 0 {
        return Err(FigureError::Nothing("no packet arrived".to_owned()));
    }
    Ok((cpu.as_secs_f64() * 1e9 / seen as f64, trial.cycles_a_packet()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_child_says_is_read_whole_or_not() {
        let text = "200 210.5 12\n100 120 13\n300 315 11\n";
        let costs = parse(text).unwrap();
        assert_eq!(costs.to_string(), text);
        assert_eq!((costs.bare.median(), costs.framework.median()), (200.0, 12.0));
        for bad in ["", "200 210.5\n", "200 210.5 12\n100\n", "experiments need root"] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }
}
