//! Instructions a packet, counted by valgrind's callgrind. It counts code that was made at run time too: valgrind runs the sandbox as it is, with
//! its 4 GiB of reserved addresses and its signal handlers. What it does not know is AVX-512, so nothing is built with `-march=native` here.
//!
//! Only passes over the packets are counted, in the thread that makes them. Compiling takes threads and tables with random seeds, so it takes other instructions
//! each time. A program is run twice, with once and twice as many passes: the difference is what passes cost once the module has its tables.

use crate::BenchError;
use crate::contest::Entry;
use crate::module::Module;
use crate::packets::{Packets, packets_of, ticks};
use crate::price::{How, Workshop};
use crate::table::Table;
use std::path::Path;
use std::process::Command;

/// The function whose instructions are counted, with all that it calls: [`Entry::pass`]. An earlier program has it by the same name.
const COUNTED: &str = "--toggle-collect=weir_lab::contest::Entry::pass*";

/// What this program is to do under callgrind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exercise {
    /// The module's name.
    pub module: String,
    /// How it is built.
    pub how: How,
    /// Packets of the capture to use.
    pub packets: usize,
    /// Passes over them.
    pub passes: usize,
}

impl Exercise {
    /// As one argument of a command line.
    pub fn to_argument(&self) -> String {
        format!("{}:{}:{}:{}", self.module, self.how.name(), self.packets, self.passes)
    }

    /// From such an argument.
    pub fn from_argument(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let module = parts.next()?.to_owned();
        let how = How::named(parts.next()?)?;
        let mut number = || parts.next()?.parse().ok();
        Some(Self { module, how, packets: number()?, passes: number()? })
    }

    /// Does it.
    ///
    /// # Errors
    /// Where the module cannot be built, or the capture not be read.
    pub fn run(&self, capture: &Path) -> Result<(), BenchError> {
        let packets = Packets::read(capture, self.packets)?;
        let module = Module::named(&self.module)?;
        let workshop = Workshop::open(&packets)?;
        let batches = packets.first(self.packets);
        let ticks = ticks(batches, module.admit()?.tick());
        let mut entry = Entry::new(self.how.name(), &module, &packets, workshop.make(&module, self.how)?)
            .without_comparison();
        for _ in 0..self.passes {
            entry.pass(batches, &ticks)?;
        }
        Ok(())
    }
}

/// Counts the instructions of all modules. Nothing where valgrind is not installed.
///
/// # Errors
/// Where a counted run fails.
pub fn table(modules: &[Module], capture: &Path, packets: usize) -> Result<Option<Table>, BenchError> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return Ok(None);
    }
    let failed = |source| BenchError::Program { program: "bench".to_owned(), source };
    let this = std::env::current_exe().map_err(failed)?;
    let mut table = Table::new(&[
        "module",
        "unmetered",
        "proved",
        "more",
        "supervised",
        "metered",
        "metered ÷ proved",
        "clang -O3",
        "gcc -O3",
        "proved ÷ clang -O3",
    ]);
    for module in modules {
        let mut each = Vec::new();
        for how in How::COUNTED {
            let exercise = Exercise { module: module.name.clone(), how, packets, passes: 2 };
            each.push(of_program(&this, &exercise, capture)?);
        }
        let [proved, reference, supervised, metered, clang, gcc] = each[..] else { continue };
        let number = |number: f64| format!("{number:.1}");
        table.row([
            module.name.clone(),
            number(reference),
            number(proved),
            format!("{:+.1}", proved - reference),
            number(supervised),
            number(metered),
            format!("{:.2}", metered / proved),
            number(clang),
            number(gcc),
            format!("{:.2}", proved / clang),
        ]);
    }
    Ok(Some(table))
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn per_packet(instructions: u64, packets: u64) -> f64 {
    instructions as f64 / packets.max(1) as f64
}

/// Instructions a packet of an exercise, as another build of this program does it.
///
/// # Errors
/// Where it fails there.
pub fn of_program(program: &Path, exercise: &Exercise, capture: &Path) -> Result<f64, BenchError> {
    let passes = exercise.passes;
    let packets = packets_of(Packets::read(capture, exercise.packets)?.first(exercise.packets));
    let once = collected(program, exercise, capture)?;
    let twice = collected(program, &Exercise { passes: 2 * passes, ..exercise.clone() }, capture)?;
    Ok(per_packet(twice.saturating_sub(once), packets.saturating_mul(passes as u64)))
}

/// Runs a build of this program under callgrind; the number of instructions.
fn collected(program: &Path, exercise: &Exercise, capture: &Path) -> Result<u64, BenchError> {
    let failed = |source| BenchError::Program { program: "valgrind".to_owned(), source };
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", COUNTED, "--"])
        .arg(program)
        .arg("--capture")
        .arg(capture)
        .arg("--exercise")
        .arg(exercise.to_argument());
    let output = command.output().map_err(failed)?;
    let said = String::from_utf8_lossy(&output.stderr);
    let count = said.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
    match count {
        // Without the function nothing is counted.
        Some(count) if output.status.success() && count > 0 => Ok(count),
        _ => Err(BenchError::Failed { command: format!("{command:?}"), said: said.into_owned() }),
    }
}
