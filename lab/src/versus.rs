//! Two builds of weir against each other: processor time of whole runs, interleaved, and instructions of the modules by callgrind.
//!
//! Each program uses its own build of the shipped modules. Single rounds are disturbed by other programs, so a row is outside only where the quartiles of the two do not meet.

use crate::error::LabError;
use crate::instructions::{self, Exercise};
use crate::native::run_measured;
use crate::place;
use crate::price::How;
use crate::statistics::{Quartiles, Sample};
use crate::table::{Table, yes_or_no};
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_admission::Tier;

/// The instructions of the new program may be more by this part.
const INSTRUCTIONS_MORE: f64 = 0.01;

/// The two programs, and the work that both do.
#[derive(Clone, Debug)]
pub struct Versus<'a> {
    /// The earlier `weir`. The `bench` beside it counts its instructions, over the modules of the checkout that it was built in.
    pub old: &'a Path,
    /// The capture of whole runs.
    pub capture: &'a Path,
    /// The capture of which packets are counted.
    pub counted: &'a Path,
    /// The shipped modules, one a row.
    pub modules: &'a [String],
    /// Runs of each program.
    pub rounds: usize,
    /// Packets under callgrind.
    pub packets: usize,
}

/// The rows, as text, and the names of those that are outside.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The table.
    pub text: String,
    /// Modules with more instructions or more time.
    pub outside: Vec<String>,
}

impl Versus<'_> {
    /// Runs both programs.
    pub fn measure(&self) -> Result<Verdict, LabError> {
        let new = place::built()?;
        if !self.old.is_file() {
            let why = "name the earlier weir: `bench versus --old PATH`";
            return Err(LabError::failed(self.old.display(), why));
        }
        let counters = [self.old.with_file_name("bench"), new.with_file_name("bench")];
        let can_count = has_valgrind() && counters.iter().all(|program| program.is_file());
        let mut table = Table::new(
            "module | old, ms | quartiles | new, ms | quartiles | time | old, instructions | new, instructions | instructions | within",
        );
        let mut outside = Vec::new();
        for module in self.modules {
            let samples = self.times(module, [self.old, &new])?;
            // Round by round: what disturbs one run disturbs the other one beside it, too.
            let ratio = samples[1].over(&samples[0]).median();
            let [old, new] = samples.map(|sample| sample.quartiles());
            let counts = if can_count { Some(self.counts(module, &counters)?) } else { None };
            let is_within = times_meet(old, new) && counts.is_none_or(|[old, new]| is_about_as_few(old, new));
            let count =
                |number: usize| counts.map_or_else(|| "–".to_owned(), |of| format!("{:.1}", of[number]));
            table.row(format_args!(
                "{module} | {} | {} | {} | {} | {} | {} | {}",
                old.cells(1),
                new.cells(1),
                more(1.0, ratio),
                count(0),
                count(1),
                counts.map_or_else(|| "–".to_owned(), |[old, new]| more(old, new)),
                yes_or_no(is_within)
            ));
            if !is_within {
                outside.push(module.clone());
            }
        }
        let without = if can_count {
            ""
        } else {
            "\nNo instructions are counted: that takes valgrind, and the program `bench` beside each `weir`.\n"
        };
        let (capture, rounds) = (place::shown(self.capture), self.rounds);
        let text = format!(
            "Processor time of `weir run -r {capture} --jobs 1 -m MODULE`, {rounds} runs of each program in turn; instructions a packet of the module alone.\n\n{table}{without}"
        );
        Ok(Verdict { text, outside })
    }

    /// The processor time of whole runs, in milliseconds, of both programs in turn: each is first in every other round.
    fn times(&self, module: &str, programs: [&Path; 2]) -> Result<[Sample; 2], LabError> {
        let mut samples = [Sample::default(), Sample::default()];
        // Once without measuring: the capture comes into the page cache, the module into that of weir.
        for round in 0..=self.rounds {
            for place in 0..2 {
                let number = (place + round) % 2;
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

    /// The instructions a packet of both builds of a module.
    fn counts(&self, module: &str, programs: &[PathBuf; 2]) -> Result<[f64; 2], LabError> {
        let exercise = Exercise {
            module: module.to_owned(),
            how: How::Tier(Tier::Proved),
            packets: self.packets,
            passes: 2,
        };
        let [old, new] = programs;
        let count = |program: &Path| instructions::of_program(program, &exercise, self.counted);
        Ok([count(old)?, count(new)?])
    }
}

fn has_valgrind() -> bool {
    Command::new("valgrind").arg("--version").output().is_ok()
}

/// Returns true if the new program's times are not all above those of the old one, as far as the quartiles go.
fn times_meet(old: Quartiles, new: Quartiles) -> bool {
    new.lower <= old.upper
}

fn is_about_as_few(old: f64, new: f64) -> bool {
    new <= old * (1.0 + INSTRUCTIONS_MORE)
}

/// The difference as a signed part of the old value.
fn more(old: f64, new: f64) -> String {
    format!("{:+.1} %", (new / old - 1.0) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_instructions_or_times_beyond_the_quartiles_are_outside() {
        let of = |lower, median, upper| Quartiles { lower, median, upper };
        let old = of(9.0, 10.0, 11.0);
        for (new, meets) in
            [(of(10.9, 12.0, 13.0), true), (of(11.1, 12.0, 13.0), false), (of(5.0, 6.0, 7.0), true)]
        {
            assert_eq!(times_meet(old, new), meets, "{new:?}");
        }
        assert!(is_about_as_few(100.0, 100.9) && is_about_as_few(100.0, 50.0));
        assert!(!is_about_as_few(100.0, 101.1));
        assert_eq!((more(100.0, 101.0), more(200.0, 100.0)), ("+1.0 %".to_owned(), "-50.0 %".to_owned()));
    }
}
