//! Instructions per packet, counted by valgrind's callgrind. The part `instructions` of the benchmark.
//!
//! Callgrind also counts code that is generated at run time, so the sandbox runs unchanged. Valgrind does not know
//! AVX-512, so no build here has `-march=native`. Only the passes over the packets are counted, as the instructions of
//! the compiler vary with its threads. Each build runs twice, with N and with 2N passes. The difference is the cost of
//! N passes over filled tables.

use crate::comparison::MeasuredBuild;
use crate::error::{Context, LabError};
use crate::module::Module;
use crate::packets::{Packets, packets_of, ticks};
use crate::paths;
use crate::price::{BuildKind, Builder};
use crate::table::Table;
use std::path::Path;
use std::process::Command;
use weir_admission::Tier;

/// The options by which callgrind counts only inside [`MeasuredBuild::pass`] and its callees. The second name is that of the
/// same function in earlier programs.
const COUNTED_FUNCTIONS: [&str; 2] = [
    "--toggle-collect=weir_lab::comparison::MeasuredBuild::pass*",
    "--toggle-collect=weir_lab::contest::Entry::pass*",
];

/// A run of this program under callgrind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedRun {
    /// The module's name.
    pub module: String,
    /// The kind of build.
    pub kind: BuildKind,
    /// The number of packets of the capture.
    pub packets: usize,
    /// The number of passes over these packets.
    pub passes: usize,
}

impl CountedRun {
    /// The run as one command-line argument.
    pub fn to_argument(&self) -> String {
        format!("{}:{}:{}:{}", self.module, self.kind.name(), self.packets, self.passes)
    }

    /// Parses the argument of [`to_argument`](Self::to_argument).
    pub fn from_argument(text: &str) -> Result<Self, LabError> {
        let parse = || {
            let mut parts = text.split(':');
            let module = parts.next()?.to_owned();
            let kind = BuildKind::named(parts.next()?)?;
            let mut number = || parts.next()?.parse().ok();
            Some(Self { module, kind, packets: number()?, passes: number()? })
        };
        parse().ok_or_else(|| {
            LabError::failed("--exercise", format!("`{text}` is not MODULE:BUILD:PACKETS:PASSES"))
        })
    }

    /// Runs the build over the packets.
    pub fn run(&self, capture: &Path) -> Result<(), LabError> {
        let packets = Packets::read(capture, self.packets)?;
        let module = Module::named(&self.module)?;
        let builder = Builder::open(&packets)?;
        let batches = packets.first(self.packets);
        let ticks = ticks(batches, module.admit()?.tick_period());
        let build = builder.make(&module, self.kind)?;
        let mut build = MeasuredBuild::new(self.kind.name(), &module, &packets, build).without_comparison();
        for _ in 0..self.passes {
            build.pass(batches, &ticks)?;
        }
        Ok(())
    }
}

/// The table of the instructions of all modules.
pub fn table(modules: &[Module], capture: &Path, packets: usize) -> Result<String, LabError> {
    let text = format!("The first {packets} packets of `{}`.\n\n", paths::display(capture));
    if Command::new("valgrind").arg("--version").output().is_err() {
        return Ok(text + "valgrind is not installed.\n");
    }
    let this = std::env::current_exe().context("finding this program")?;
    let mut table = Table::new(
        "module | proved | supervised | metered | metered ÷ proved | clang -O3 | gcc -O3 | proved ÷ clang -O3",
    );
    for Module { name, .. } in modules {
        let mut counts = Vec::new();
        for kind in BuildKind::COUNTED {
            let run = CountedRun { module: name.clone(), kind, packets, passes: 2 };
            counts.push(instructions_per_packet(&this, &run, capture)?);
        }
        let [proved, supervised, metered, clang, gcc] = counts[..] else { continue };
        table.row(format_args!(
            "{name} | {proved:.1} | {supervised:.1} | {metered:.1} | {:.2} | {clang:.1} | {gcc:.1} | {:.2}",
            metered / proved,
            proved / clang
        ));
    }
    Ok(text + &table.to_string() + "\n" + &call_table(&this, capture, packets)?)
}

/// The table of the instructions of one call of a host function: those of a module that calls it for each packet, less
/// those of the empty module. Bytes are read from the packets, rows and patches from the module's memory.
fn call_table(this: &Path, capture: &Path, packets: usize) -> Result<String, LabError> {
    let count = |module: &str| {
        let run =
            CountedRun { module: module.to_owned(), kind: BuildKind::Tier(Tier::Proved), packets, passes: 2 };
        instructions_per_packet(this, &run, capture)
    };
    let empty = count("empty")?;
    let mut table = Table::new("calls | instructions a call");
    for Module { name, .. } in Module::calling()? {
        table.row(format_args!("{} | {:.0}", name.trim_start_matches("call-"), count(&name)? - empty));
    }
    Ok(format!(
        "Calls of host functions: a row of 8 bytes, a search of 60 bytes of a packet, a hash of 16, a patch of 6, and a packet that is kept and released.\n\n{table}"
    ))
}

fn per_packet(instructions: u64, packets: u64) -> f64 {
    instructions as f64 / packets.max(1) as f64
}

/// The instructions per packet of a run, in the program `bench` at this path.
pub fn instructions_per_packet(program: &Path, run: &CountedRun, capture: &Path) -> Result<f64, LabError> {
    let passes = run.passes;
    let packets = packets_of(Packets::read(capture, run.packets)?.first(run.packets));
    let once = count_instructions(program, run, capture)?;
    let twice = count_instructions(program, &CountedRun { passes: 2 * passes, ..run.clone() }, capture)?;
    Ok(per_packet(twice.saturating_sub(once), packets.saturating_mul(passes as u64)))
}

/// Carries out a run under callgrind. Returns the number of counted instructions.
fn count_instructions(program: &Path, run: &CountedRun, capture: &Path) -> Result<u64, LabError> {
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(COUNTED_FUNCTIONS)
        .arg("--")
        .arg(program)
        .arg("--capture")
        .arg(capture)
        .arg("--exercise")
        .arg(run.to_argument());
    let output = command.output().context("valgrind")?;
    let output_text = String::from_utf8_lossy(&output.stderr);
    let count = output_text.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
    match count {
        // A count of zero means that the program has no function of the counted names.
        Some(count) if output.status.success() && count > 0 => Ok(count),
        _ => Err(LabError::failed(format_args!("{command:?}"), output_text.into_owned())),
    }
}
