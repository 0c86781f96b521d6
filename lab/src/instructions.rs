//! Instructions a packet, counted by valgrind's callgrind, which counts code made at run time too: the sandbox runs unchanged, with its 4 GiB of
//! reserved addresses and its signal handlers. Valgrind does not know AVX-512, so no build here has `-march=native`.
//!
//! Only passes over the packets are counted, in the thread that makes them: compiling takes threads and tables with random seeds, so its instructions vary. A
//! program runs twice, with once and twice as many passes. The difference is the cost of the passes once the module has its tables.

use crate::contest::Entry;
use crate::error::{Doing, LabError};
use crate::module::Module;
use crate::packets::{Packets, packets_of, ticks};
use crate::place;
use crate::price::{Builder, How};
use crate::table::Table;
use std::path::Path;
use std::process::Command;

/// The function whose instructions are counted, with all that it calls: [`Entry::pass`]. Earlier programs have it by the same name.
const COUNTED: &str = "--toggle-collect=weir_lab::contest::Entry::pass*";

/// The work of this program under callgrind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exercise {
    /// The module's name.
    pub module: String,
    /// Its build.
    pub how: How,
    /// Packets of the capture.
    pub packets: usize,
    /// Passes over these packets.
    pub passes: usize,
}

impl Exercise {
    /// The exercise as one argument of a command line.
    pub fn to_argument(&self) -> String {
        format!("{}:{}:{}:{}", self.module, self.how.name(), self.packets, self.passes)
    }

    /// The exercise of such an argument.
    pub fn from_argument(text: &str) -> Result<Self, LabError> {
        let parse = || {
            let mut parts = text.split(':');
            let module = parts.next()?.to_owned();
            let how = How::named(parts.next()?)?;
            let mut number = || parts.next()?.parse().ok();
            Some(Self { module, how, packets: number()?, passes: number()? })
        };
        parse().ok_or_else(|| {
            LabError::failed("--exercise", format!("`{text}` is not MODULE:BUILD:PACKETS:PASSES"))
        })
    }

    /// Does the work.
    pub fn run(&self, capture: &Path) -> Result<(), LabError> {
        let packets = Packets::read(capture, self.packets)?;
        let module = Module::named(&self.module)?;
        let builder = Builder::open(&packets)?;
        let batches = packets.first(self.packets);
        let ticks = ticks(batches, module.admit()?.tick());
        let build = builder.make(&module, self.how)?;
        let mut entry = Entry::new(self.how.name(), &module, &packets, build).without_comparison();
        for _ in 0..self.passes {
            entry.pass(batches, &ticks)?;
        }
        Ok(())
    }
}

/// The instructions of all modules.
pub fn table(modules: &[Module], capture: &Path, packets: usize) -> Result<String, LabError> {
    let text = format!("The first {packets} packets of `{}`.\n\n", place::shown(capture));
    if Command::new("valgrind").arg("--version").output().is_err() {
        return Ok(text + "valgrind is not installed.\n");
    }
    let this = std::env::current_exe().doing("finding this program")?;
    let mut table = Table::new(
        "module | unmetered | proved | more | supervised | metered | metered ÷ proved | clang -O3 | gcc -O3 | proved ÷ clang -O3",
    );
    for Module { name, .. } in modules {
        let mut each = Vec::new();
        for how in How::COUNTED {
            let exercise = Exercise { module: name.clone(), how, packets, passes: 2 };
            each.push(of_program(&this, &exercise, capture)?);
        }
        let [proved, reference, supervised, metered, clang, gcc] = each[..] else { continue };
        table.row(format_args!(
            "{name} | {reference:.1} | {proved:.1} | {:+.1} | {supervised:.1} | {metered:.1} | {:.2} | {clang:.1} | {gcc:.1} | {:.2}",
            proved - reference,
            metered / proved,
            proved / clang
        ));
    }
    Ok(text + &table.to_string())
}

fn per_packet(instructions: u64, packets: u64) -> f64 {
    instructions as f64 / packets.max(1) as f64
}

/// Instructions a packet of an exercise in another build of this program.
pub fn of_program(program: &Path, exercise: &Exercise, capture: &Path) -> Result<f64, LabError> {
    let passes = exercise.passes;
    let packets = packets_of(Packets::read(capture, exercise.packets)?.first(exercise.packets));
    let once = collected(program, exercise, capture)?;
    let twice = collected(program, &Exercise { passes: 2 * passes, ..exercise.clone() }, capture)?;
    Ok(per_packet(twice.saturating_sub(once), packets.saturating_mul(passes as u64)))
}

/// The number of instructions of a build of this program under callgrind.
fn collected(program: &Path, exercise: &Exercise, capture: &Path) -> Result<u64, LabError> {
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", COUNTED, "--"])
        .arg(program)
        .arg("--capture")
        .arg(capture)
        .arg("--exercise")
        .arg(exercise.to_argument());
    let output = command.output().doing("valgrind")?;
    let said = String::from_utf8_lossy(&output.stderr);
    let count = said.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
    match count {
        // Without the function nothing is counted.
        Some(count) if output.status.success() && count > 0 => Ok(count),
        _ => Err(LabError::failed(format_args!("{command:?}"), said.into_owned())),
    }
}
