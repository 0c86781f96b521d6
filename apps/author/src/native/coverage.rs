//! The coverage of a module's source, from clang's profiles.

use crate::BuildError;
use crate::tools::run;
use std::ffi::OsStr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The coverage of a module's sources by tests.
#[derive(Clone, Debug)]
pub struct Coverage {
    /// The files of the module's folder, without generated ones.
    pub files: Vec<FileCoverage>,
    /// Writes the report: the program of LLVM, the profile, and the program with the coverage map.
    report: [PathBuf; 3],
    dir: PathBuf,
}

/// The coverage of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileCoverage {
    /// The name of the file in the module's folder.
    pub name: String,
    /// The number of lines with code.
    pub lines: usize,
    /// The number of these lines that have run.
    pub covered: usize,
    /// The lines that have not run.
    pub missed: Vec<RangeInclusive<u32>>,
}

impl Coverage {
    /// Merges the profiles in the folder `scratch`, and reads the coverage of the module in `dir`.
    pub(super) fn read(
        [profdata, cov]: [&Path; 2],
        program: &Path,
        scratch: &Path,
        dir: &Path,
    ) -> Result<Self, BuildError> {
        let profiles = std::fs::read_dir(scratch).map_err(BuildError::file(scratch))?.flatten();
        let profiles = profiles.map(|entry| entry.path());
        let profiles: Vec<_> =
            profiles.filter(|path| path.extension() == Some(OsStr::new("profraw"))).collect();
        if profiles.is_empty() {
            // Sanitizers have ended each run before its profile was written.
            let report = [cov.to_owned(), PathBuf::new(), program.to_owned()];
            return Ok(Self { files: Vec::new(), report, dir: dir.to_owned() });
        }
        let merged = scratch.join("merged.profdata");
        // A program that a sanitizer ended may have written half a profile.
        succeed(
            Command::new(profdata)
                .args(["merge", "-sparse", "-failure-mode=all"])
                .args(profiles)
                .arg("-o")
                .arg(&merged),
            dir,
        )?;
        let mut export = Command::new(cov);
        export
            .args(["export", "-format=lcov"])
            .arg(program)
            .arg("-instr-profile")
            .arg(&merged)
            .current_dir(dir);
        let lcov = succeed(&mut export, dir)?;
        let report = [cov.to_owned(), merged, program.to_owned()];
        Ok(Self { files: read_lcov(&lcov, dir), report, dir: dir.to_owned() })
    }

    /// Writes a report in HTML into a folder: the sources, with the number of times that each line has run.
    ///
    /// # Errors
    /// The program of LLVM fails.
    pub fn write_html(&self, to: &Path) -> Result<PathBuf, BuildError> {
        let to = std::path::absolute(to).map_err(BuildError::file(to))?;
        let [cov, profile, program] = &self.report;
        if self.files.is_empty() {
            return Err(BuildError::Replay("no run has a profile".to_owned()));
        }
        let mut show = Command::new(cov);
        show.args(["show", "-format=html", "-show-line-counts-or-regions"]).arg(program);
        show.arg("-instr-profile").arg(profile).arg("-output-dir").arg(&to);
        show.args(self.files.iter().map(|file| self.dir.join(&file.name))).current_dir(&self.dir);
        succeed(&mut show, &self.dir)?;
        Ok(to.join("index.html"))
    }
}

/// Runs a program of LLVM, and returns its standard output.
fn succeed(command: &mut Command, dir: &Path) -> Result<String, BuildError> {
    let output = run(command)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let tool =
        Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let output = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(BuildError::Compiler { tool, dir: dir.to_owned(), output })
}

/// Reads the lines with code, and those of them that have run, from a trace file of lcov.
fn read_lcov(text: &str, dir: &Path) -> Vec<FileCoverage> {
    let mut files = Vec::new();
    let mut current: Option<FileCoverage> = None;
    for line in text.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            let path = Path::new(path);
            let path = path.strip_prefix(dir).unwrap_or(path);
            let name = path.strip_prefix(".").unwrap_or(path).to_string_lossy().into_owned();
            // weir's own headers are in a folder, and the module's sources in C are not.
            let is_own = !name.contains('/') || (name.starts_with("src/") && name.ends_with(".rs"));
            current = is_own.then(|| FileCoverage { name, lines: 0, covered: 0, missed: Vec::new() });
        } else if let (Some(count), Some(file)) = (line.strip_prefix("DA:"), current.as_mut()) {
            let mut numbers = count.split(',').map(|number| number.parse::<u64>().unwrap_or(0));
            let (number, runs) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
            file.lines += 1;
            file.covered += usize::from(runs > 0);
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            match file.missed.last_mut() {
                _ if runs > 0 => {}
                Some(range) if *range.end() + 1 == number => *range = *range.start()..=number,
                _ => file.missed.push(number..=number),
            }
        } else if line == "end_of_record" {
            files.extend(current.take());
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_did_not_run_are_ranges() {
        let text = "SF:/m/a.c\nDA:1,4\nDA:2,0\nDA:3,0\nDA:5,0\nDA:7,1\nend_of_record\n\
                    SF:/m/.weir/weir.h\nDA:1,0\nend_of_record\nSF:./b.c\nDA:9,2\nend_of_record\n";
        let files = read_lcov(text, Path::new("/m"));
        let expected = FileCoverage { name: "a.c".into(), lines: 5, covered: 2, missed: vec![2..=3, 5..=5] };
        assert_eq!(
            files,
            [expected, FileCoverage { name: "b.c".into(), lines: 1, covered: 1, missed: vec![] }]
        );
    }
}
