//! `weir test`: runs a module over captures, and compares what the module does with what its author expects.
//!
//! Each test runs in the sandbox. The module then gets the same calls in a native build of its source, in which the compiler counts
//! the lines that run. In C, sanitizers look for undefined behaviour, and for reads outside of packets and memory; in Rust, the
//! compiler's checks look for overflow. A second native run has packets that are cut short.

pub(crate) mod args;
mod case;
mod cut_packets;
mod diff;
mod native_run;
mod sandbox_run;

use crate::calibrated_profile::{ProfileFileError, calibrated_profile};
use crate::cmd::build;
use crate::cmd::run::RunError;
use crate::cmd::run::tables::TableArgError;
use crate::module_arg::{ModuleArg, ModuleArgError};
use args::TestArgs;
use case::{TESTS, TestCase};
use cut_packets::CutPackets;
use sandbox_run::{SandboxRun, tracing_engine};
use serde::Serialize;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_admission::{CalibratedProfile, ModuleRefusal, NameError, ValueError};
use weir_author::native::{Coverage, NativeBuild};
use weir_author::{BuildError, BuiltModule};
use weir_datapath::driver::BatchError;
use weir_netio::{CaptureReadError, OpenError, WriteError};
use weir_sandbox::{Engine, LoadError, LoadedModule};
use weir_units::{Escape as _, escaped_lines};

/// Errors of `weir test`.
#[derive(Debug, thiserror::Error)]
pub enum TestError {
    /// The module cannot be built, or its native build cannot be made or run.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The module is not admitted, or a parameter is wrong.
    #[error(transparent)]
    Module(#[from] ModuleArgError),
    /// The profile cannot be used.
    #[error(transparent)]
    Profile(#[from] ProfileFileError),
    /// A table cannot be used.
    #[error(transparent)]
    Tables(#[from] TableArgError),
    /// The name of a table in the settings cannot be one.
    #[error("{}: table `{}`: {error}", path.escaped(), name.escape_debug())]
    Table {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
        /// The reason.
        error: NameError,
    },
    /// The module cannot be loaded.
    #[error("the module cannot be loaded: {0}")]
    Load(LoadError),
    /// The sandbox cannot be prepared.
    #[error(transparent)]
    Sandbox(#[from] BatchError),
    /// The capture cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The capture cannot be read.
    #[error(transparent)]
    Read(#[from] CaptureReadError),
    /// The packets of a test cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The filter is wrong.
    #[error(transparent)]
    Filter(Box<RunError>),
    /// The filter does not apply to the link type of the packets.
    #[error("{0}")]
    FilterOfCapture(String),
    /// The filter selects nothing.
    #[error("{}: no packet matches `{}`", capture.escaped(), filter.escaped())]
    NoPacket {
        /// The capture.
        capture: PathBuf,
        /// The filter.
        filter: String,
    },
    /// The capture is too long.
    #[error("{}: a test takes at most 256 MiB of packets and of what the module does with them: cut the capture, as with `weir run -r … -c 1000 -w …`, or add the test with a filter", .0.escaped())]
    TooLong(PathBuf),
    /// The module has no tests.
    #[error("{}: there are no tests; add one with `weir test {} --add NAME -r CAPTURE`", .0.escaped(), .0.escaped())]
    NoTests(PathBuf),
    /// There is no test of a name.
    #[error("there is no test `{}`; the tests are {}", name.escape_debug(), known.escaped())]
    Unknown {
        /// The name.
        name: String,
        /// The names of all tests.
        known: String,
    },
    /// The name cannot be that of a test.
    #[error("`{}` cannot be the name of a test: {error}", name.escape_debug())]
    Name {
        /// The name.
        name: String,
        /// The reason.
        error: NameError,
    },
    /// A test of the name exists.
    #[error("{} exists already: choose another name, or remove it", .0.escaped())]
    Exists(PathBuf),
    /// The folder of a test has no capture.
    #[error("{}: there is no capture: put a .pcap or .pcapng file there, or name one in test.toml, as in capture = \"../other.pcap\"", .0.escaped())]
    NoCapture(PathBuf),
    /// The folder of a test has several captures.
    #[error("{}: there are several captures: name one in test.toml, as in capture = \"a.pcap\"", .0.escaped())]
    SeveralCaptures(PathBuf),
    /// The settings of a test are wrong.
    #[error("{}: {error}", path.escaped())]
    Settings {
        /// The file.
        path: PathBuf,
        /// The parser's error.
        error: Box<toml::de::Error>,
    },
    /// A parameter's value in the settings is none.
    #[error("{}: the value of parameter `{}` is not a text, a number, a truth value, or a list of these", path.escaped(), key.escape_debug())]
    Parameter {
        /// The file.
        path: PathBuf,
        /// The parameter.
        key: String,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", path.escaped())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Tests have failed.
    #[error("{failed} of {all} tests failed{}", if *differ { "; `weir test --update` takes what the module does now as right" } else { "" })]
    Failed {
        /// The number of failed tests.
        failed: usize,
        /// The number of tests that ran.
        all: usize,
        /// True if a module does something else than expected.
        differ: bool,
    },
    /// Standard output cannot be written.
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
}

impl TestError {
    /// Returns true if the command line or a test's settings are wrong.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Module(error) => error.is_usage(),
            Self::Profile(_)
            | Self::Tables(_)
            | Self::Filter(_)
            | Self::FilterOfCapture(_)
            | Self::NoPacket { .. }
            | Self::Table { .. }
            | Self::NoTests(_)
            | Self::Unknown { .. }
            | Self::Name { .. }
            | Self::Exists(_)
            | Self::NoCapture(_)
            | Self::SeveralCaptures(_)
            | Self::Settings { .. }
            | Self::Parameter { .. } => true,
            _ => false,
        }
    }

    /// Returns a function for `map_err` that adds this path to a system error.
    fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { path: path.to_owned(), source }
    }
}

/// The result of a test.
#[derive(Debug, Serialize)]
struct Outcome {
    name: String,
    packets: u64,
    /// Lines of what the module does.
    lines: usize,
    /// Differences from what the test expects.
    #[serde(skip_serializing_if = "Option::is_none")]
    differences: Option<String>,
    /// A fault in the native build, or a difference from the sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    native: Option<String>,
    /// The reason why the test did not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// True if the expected lines were written.
    updated: bool,
}

impl Outcome {
    /// A test that did not run.
    fn not_run(case: &TestCase, error: String) -> Self {
        let name = case.name.clone();
        let (differences, native) = (None, None);
        Self { name, packets: 0, lines: 0, differences, native, error: Some(error), updated: false }
    }

    fn has_failed(&self) -> bool {
        self.differences.is_some() || self.native.is_some() || self.error.is_some()
    }
}

/// The parts that all tests of a module share.
struct Suite {
    module: PathBuf,
    profile: CalibratedProfile,
    engine: Engine,
    /// The native build, or the reason why there is none.
    native: Result<NativeBuild, String>,
    limit: Duration,
    updates: bool,
    paints: bool,
}

/// Returns the folder of the module, and its file if that was named instead.
fn folder_of(named: &Path) -> (&Path, Option<&Path>) {
    if named.is_dir() || named.extension().is_none_or(|extension| extension != "wasm") {
        return (named, None);
    }
    let folder = named.parent().filter(|folder| !folder.as_os_str().is_empty());
    (folder.unwrap_or(Path::new(".")), Some(named))
}

/// Builds the module, runs its tests and prints the results.
pub fn test(out: &mut impl Write, args: &TestArgs) -> Result<(), TestError> {
    let (dir, file) = folder_of(&args.dir);
    if args.add.is_none() {
        // Before the build, which can take long.
        TestCase::find(dir, &args.names)?;
    }
    let color = io::stderr().is_terminal();
    let packed = match file {
        Some(file) => Some(weir_author::module_file(file)?),
        None => weir_author::packed(dir)?,
    };
    let is_packed = packed.is_some();
    let built = match packed {
        Some(module) => module,
        None => weir_author::build(dir, &build::options(color))?,
    };
    write!(io::stderr(), "{}", escaped_lines(&built.messages))?;
    let native = if is_packed {
        Err("alone: a native run needs a source in C or Rust".to_owned())
    } else if args.no_native {
        Err("alone".to_owned())
    } else {
        NativeBuild::new(dir, &build::options(color))?.map_err(|why| format!("alone: {why}"))
    };
    if let Ok(native) = &native {
        write!(io::stderr(), "{}", escaped_lines(&native.messages))?;
    }
    let names = match (&args.add, &args.read) {
        (Some(name), Some(read)) => vec![TestCase::add(dir, name, read, &args.names)?],
        _ => args.names.clone(),
    };
    let cases = TestCase::find(dir, &names)?;
    let suite = Suite {
        module: built.path.clone(),
        profile: calibrated_profile(args.profile.as_deref())?,
        engine: tracing_engine()?,
        native,
        limit: Duration::from_nanos(args.limit.0),
        updates: args.update || args.add.is_some(),
        paints: !args.json && io::stdout().is_terminal(),
    };
    if !args.json {
        suite.print_head(out, &built)?;
    }
    let width = cases.iter().map(|case| case.name.len()).max().unwrap_or(0);
    let mut outcomes = Vec::new();
    for case in &cases {
        let outcome = suite.run(case)?;
        if !args.json {
            suite.print_outcome(out, &outcome, width)?;
            out.flush()?;
        }
        outcomes.push(outcome);
    }
    let coverage = suite.native.as_ref().ok().map(NativeBuild::coverage).transpose()?;
    if args.json {
        print_json(out, &built, &outcomes, coverage.as_ref())?;
    } else if let Some(coverage) = &coverage {
        print_coverage(out, coverage)?;
    }
    if let (Some(dir), Some(Ok(coverage))) = (&args.coverage, &coverage) {
        let index = coverage.write_html(dir)?;
        writeln!(io::stderr(), "weir: coverage: {}", index.escaped())?;
    }
    let failed = outcomes.iter().filter(|outcome| outcome.has_failed()).count();
    if failed > 0 {
        let differ = outcomes.iter().any(|outcome| outcome.differences.is_some());
        return Err(TestError::Failed { failed, all: outcomes.len(), differ });
    }
    if let (Some(name), false) = (&args.add, args.json) {
        let dir = dir.join(TESTS).join(name);
        writeln!(out, "\nRead {}: it says what the test expects.", dir.join("expected.jsonl").escaped())?;
    }
    Ok(())
}

impl Suite {
    fn run(&self, case: &TestCase) -> Result<Outcome, TestError> {
        let spec =
            ModuleArg { name: self.module.to_string_lossy().into_owned(), settings: case.settings.clone() };
        let admitted = match spec.admit(&self.profile) {
            Ok(admitted) => admitted,
            Err(ModuleArgError::Refused { refusal: ModuleRefusal::Setting(error), .. }) => {
                let advice = match error {
                    ValueError::Missing { .. } => "write it into",
                    _ => "change it in",
                };
                let file = case.settings_file.escaped();
                let name = case.name.escaped();
                let text = format!("test {name}: {error}; {advice} {file}, below [parameters]");
                return Ok(Outcome::not_run(case, text));
            }
            Err(error) => return Err(error.into()),
        };
        let program = self.engine.load(admitted).map_err(TestError::Load)?;
        let run = SandboxRun::run(&self.engine, &program, case, self.native.is_ok())?;
        let native = match &self.native {
            Ok(native) => match native_run::replay(native, program.admitted(), &run, None, self.limit)? {
                None => self.replay_cut(native, &program, case, run.packets)?,
                fault => fault,
            },
            Err(_) => None,
        };
        let expected = case.expected()?;
        let updated = self.updates && expected.as_ref() != Some(&run.lines);
        let differences = match expected {
            _ if updated => {
                case.write_expected(&run.lines)?;
                None
            }
            Some(expected) => diff::diff(&expected, &run.lines, self.paints),
            None => Some(format!(
                "{}: it is missing: `weir test --update` writes what the module does now",
                case.expected.escaped()
            )),
        };
        let (name, packets, lines) = (case.name.clone(), run.packets, run.lines.len());
        Ok(Outcome { name, packets, lines, differences, native, error: None, updated })
    }

    /// Runs the module over packets of a test that are cut short: in the sandbox, whose answers the native run gets, and
    /// natively.
    fn replay_cut(
        &self,
        native: &NativeBuild,
        program: &LoadedModule,
        case: &TestCase,
        packets: u64,
    ) -> Result<Option<String>, TestError> {
        let cut = CutPackets::write(&case.capture, packets)?;
        if cut.is_empty() {
            return Ok(None);
        }
        let cut_case = TestCase { capture: cut.path(), ..case.clone() };
        let run = SandboxRun::run(&self.engine, program, &cut_case, true)?;
        native_run::replay(native, program.admitted(), &run, Some(&cut), self.limit)
    }

    fn print_head(&self, out: &mut impl Write, built: &BuiltModule) -> io::Result<()> {
        let how = match &self.native {
            Ok(native) => format!(", and natively {}", native.toolchain),
            Err(why) => format!(" {why}"),
        };
        writeln!(out, "{} {}: in the sandbox{how}", built.manifest.name, built.manifest.version)
    }

    fn print_outcome(&self, out: &mut impl Write, outcome: &Outcome, width: usize) -> io::Result<()> {
        let Outcome { name, packets, lines, differences, native, error, updated } = outcome;
        let verdict = match (outcome.has_failed(), updated) {
            (true, _) if self.paints => "\u{1b}[31mFAILED\u{1b}[0m",
            (true, _) => "FAILED",
            (false, true) => "written",
            (false, false) => "ok",
        };
        let name = name.escaped().to_string();
        let [packets, lines] = [(*packets, "packet"), (*lines as u64, "line")].map(|(number, what)| {
            format!("{number:>7} {:<width$}", plural(number, what), width = what.len() + 1)
        });
        writeln!(out, "  {name:<width$}  {packets}  {lines}  {verdict}")?;
        if let Some(error) = error {
            print_indented(out, error)?;
        } else if outcome.lines == 0 && self.updates {
            let advice = "This capture has nothing for the module: add one that has, with `weir test … --add NAME -r CAPTURE`.";
            print_indented(out, advice)?;
        }
        if let Some(differences) = differences {
            writeln!(out, "    Differences (- expected, + now):")?;
            print_indented(out, differences)?;
        }
        if let Some(native) = native {
            writeln!(out, "    Natively:")?;
            print_indented(out, &escaped_lines(native).to_string())?;
        }
        Ok(())
    }
}

/// Returns a noun in the number that fits.
fn plural(number: u64, noun: &str) -> String {
    format!("{noun}{}", if number == 1 { "" } else { "s" })
}

fn print_indented(out: &mut impl Write, text: &str) -> io::Result<()> {
    text.lines().try_for_each(|line| writeln!(out, "    {line}"))
}

fn print_coverage(out: &mut impl Write, coverage: &Result<Coverage, String>) -> io::Result<()> {
    let coverage = match coverage {
        Ok(coverage) => coverage,
        Err(why) => return writeln!(out, "no coverage: {why}"),
    };
    for file in &coverage.files {
        let missed: Vec<String> = file
            .missed
            .iter()
            .map(|range| match (range.start(), range.end()) {
                (start, end) if start == end => start.to_string(),
                (start, end) => format!("{start}-{end}"),
            })
            .collect();
        let percent = (100 * file.covered).checked_div(file.lines).unwrap_or(100);
        write!(
            out,
            "coverage  {}: {} of {} lines ({percent} %)",
            file.name.escaped(),
            file.covered,
            file.lines
        )?;
        match missed.is_empty() {
            true => writeln!(out)?,
            false => writeln!(out, "; not run: {}", missed.join(", "))?,
        }
    }
    Ok(())
}

fn print_json(
    out: &mut impl Write,
    built: &BuiltModule,
    outcomes: &[Outcome],
    coverage: Option<&Result<Coverage, String>>,
) -> io::Result<()> {
    let files: Option<Vec<_>> = coverage.and_then(|coverage| coverage.as_ref().ok()).map(|coverage| {
        coverage
            .files
            .iter()
            .map(|file| {
                let missed: Vec<_> = file.missed.iter().map(|range| [range.start(), range.end()]).collect();
                serde_json::json!({
                    "name": file.name, "lines": file.lines, "covered": file.covered, "missed": missed,
                })
            })
            .collect()
    });
    let document = serde_json::json!({
        "module": built.manifest.name.as_str(),
        "version": built.manifest.version.to_string(),
        "tests": outcomes,
        "failed": outcomes.iter().filter(|outcome| outcome.has_failed()).count(),
        "coverage": files,
    });
    crate::json::document(out, &document)
}
