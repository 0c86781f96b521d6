//! An earlier build of weir against this one: the processor time of whole runs, interleaved, and the instructions of the
//! modules, counted by callgrind. The part `versus` of the benchmark.
//!
//! Each of the two uses its own build of the shipped modules. Because other processes disturb single rounds, the times of a
//! module count as longer only if their quartiles are above those of the earlier build.

use crate::error::LabError;
use crate::instructions::{self, CountedRun};
use crate::native::run_measured;
use crate::paths;
use crate::price::BuildKind;
use crate::statistics::{Quartiles, Sample};
use crate::table::{Table, yes_or_no};
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_admission::Tier;

/// The largest permitted increase in instructions, as a fraction of the old program's.
const INSTRUCTIONS_TOLERANCE: f64 = 0.01;

/// A comparison of two programs over the same captures.
#[derive(Clone, Debug)]
pub struct Versus<'a> {
    /// The path of the earlier `weir`. The program `bench` in the same folder counts the instructions of the modules of its
    /// own checkout.
    pub old: &'a Path,
    /// The capture of whole runs.
    pub capture: &'a Path,
    /// The capture over which callgrind counts instructions.
    pub counted: &'a Path,
    /// The names of the shipped modules, one for each row.
    pub modules: &'a [String],
    /// The number of runs of each program.
    pub rounds: usize,
    /// The number of packets whose instructions are counted.
    pub packets: usize,
}

/// The result of a comparison.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The table, as text.
    pub text: String,
    /// The names of the modules whose instructions or times exceed the limits.
    pub slower: Vec<String>,
}

impl Versus<'_> {
    /// Runs both programs over the captures, and compares them.
    pub fn measure(&self) -> Result<Verdict, LabError> {
        let new = paths::built_weir()?;
        if !self.old.is_file() {
            let why = "name the earlier weir: `bench versus --old PATH`";
            return Err(LabError::failed(self.old.display(), why));
        }
        let counters = [self.old.with_file_name("bench"), new.with_file_name("bench")];
        let can_count = has_valgrind() && counters.iter().all(|program| program.is_file());
        let mut table = Table::new(
            "module | old, ms | quartiles | new, ms | quartiles | time | old, instructions | new, instructions | instructions | within",
        );
        let mut slower = Vec::new();
        for module in self.modules {
            let samples = self.times(module, [self.old, &new])?;
            // Neighbouring runs suffer the same disturbances, so the ratio is taken round by round.
            let ratio = samples[1].ratio_to(&samples[0]).median();
            let [old, new] = samples.map(|sample| sample.quartiles());
            let counts = if can_count { Some(self.counts(module, &counters)?) } else { None };
            let is_within = quartiles_overlap(old, new)
                && counts.is_none_or(|[old, new]| is_within_one_percent(old, new));
            let count =
                |number: usize| counts.map_or_else(|| "–".to_owned(), |both| format!("{:.1}", both[number]));
            table.row(format_args!(
                "{module} | {} | {} | {} | {} | {} | {} | {}",
                old.cells(1),
                new.cells(1),
                difference(1.0, ratio),
                count(0),
                count(1),
                counts.map_or_else(|| "–".to_owned(), |[old, new]| difference(old, new)),
                yes_or_no(is_within)
            ));
            if !is_within {
                slower.push(module.clone());
            }
        }
        let note = if can_count {
            ""
        } else {
            "\nInstructions are not counted: counting needs valgrind and the program `bench` beside each `weir`.\n"
        };
        let (capture, rounds) = (paths::display(self.capture), self.rounds);
        let text = format!(
            "Processor time of `weir run -r {capture} --jobs 1 -m MODULE`, {rounds} runs of each program in turn; instructions a packet of the module alone.\n\n{table}{note}"
        );
        Ok(Verdict { text, slower })
    }

    /// Measures the processor time of whole runs in milliseconds. The two programs run in turn, and each is the first in every
    /// second round.
    fn times(&self, module: &str, programs: [&Path; 2]) -> Result<[Sample; 2], LabError> {
        let mut samples = [Sample::default(), Sample::default()];
        // The first round is not counted: it fills the page cache and weir's cache of compiled modules.
        for round in 0..=self.rounds {
            for turn in 0..2 {
                let number = (turn + round) % 2;
                let mut command = Command::new(programs[number]);
                command.args(["run", "--jobs", "1", "-m", module, "-r"]).arg(self.capture);
                let took = run_measured(&mut command)?.cpu.as_secs_f64() * 1000.0;
                if round > 0 {
                    samples[number].push(took);
                }
            }
        }
        Ok(samples)
    }

    /// Counts the instructions per packet of both builds of a module.
    fn counts(&self, module: &str, programs: &[PathBuf; 2]) -> Result<[f64; 2], LabError> {
        let counted = CountedRun {
            module: module.to_owned(),
            kind: BuildKind::Tier(Tier::Proved),
            packets: self.packets,
            passes: 2,
        };
        let [old, new] = programs;
        let count = |program: &Path| instructions::instructions_per_packet(program, &counted, self.counted);
        Ok([count(old)?, count(new)?])
    }
}

fn has_valgrind() -> bool {
    Command::new("valgrind").arg("--version").output().is_ok()
}

/// Returns true if the lower quartile of the new program is not above the upper quartile of the old one.
fn quartiles_overlap(old: Quartiles, new: Quartiles) -> bool {
    new.lower <= old.upper
}

/// Returns true if the new program has at most one percent more instructions.
fn is_within_one_percent(old: f64, new: f64) -> bool {
    new <= old * (1.0 + INSTRUCTIONS_TOLERANCE)
}

/// The difference in percent of the old value, with its sign.
fn difference(old: f64, new: f64) -> String {
    format!("{:+.1} %", (new / old - 1.0) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_instructions_or_times_above_the_quartiles_count_as_slower() {
        let quartiles = |lower, median, upper| Quartiles { lower, median, upper };
        let old = quartiles(9.0, 10.0, 11.0);
        for (new, expected) in [
            (quartiles(10.9, 12.0, 13.0), true),
            (quartiles(11.1, 12.0, 13.0), false),
            (quartiles(5.0, 6.0, 7.0), true),
        ] {
            assert_eq!(quartiles_overlap(old, new), expected, "{new:?}");
        }
        assert!(is_within_one_percent(100.0, 100.9) && is_within_one_percent(100.0, 50.0));
        assert!(!is_within_one_percent(100.0, 101.1));
        assert_eq!(
            (difference(100.0, 101.0), difference(200.0, 100.0)),
            ("+1.0 %".to_owned(), "-50.0 %".to_owned())
        );
    }
}
