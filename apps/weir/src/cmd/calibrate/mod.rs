//! `weir calibrate`: measures the time of a unit of fuel on this machine, in the code of each back end, and stores it. Each
//! kind of work that is measured has a kernel: a small module that repeats the work.

mod kernels;
mod runs;
mod show;

use crate::Failure;
use crate::calibrated_profile::calibration_file;
use crate::cli::CalibrateArgs;
use indicatif::{ProgressBar, ProgressStyle};
use kernels::KERNELS;
use runs::{BackEndEngines, KernelInput, KernelRuns, spread};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use weir_admission::{Calibration, CalibrationError};
use weir_datapath::driver::BatchError;
use weir_os::private::PrivateFolder;
use weir_sandbox::{EngineOptions, LoadError};
use weir_units::Escape as _;

/// Number of rounds. Each round measures every kernel once in the code of each back end, so that a temporary
/// disturbance affects all of them alike.
const ROUNDS: u32 = 200;
/// Number of rounds before the measured rounds. They touch the memory, fill the caches and let the processor's clock
/// rate settle.
const WARM_UP: u32 = 5;

/// Errors of `weir calibrate`.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// A kernel does not run, which is a bug in weir.
    #[error("the kernel `{name}` does not run: {why}")]
    Kernel {
        /// The kernel.
        name: &'static str,
        /// The cause.
        why: String,
    },
    /// The packet on which the kernels are called cannot be read.
    #[error("a packet in memory cannot be read: {0}")]
    Packet(#[from] weir_netio::OpenError),
    /// The packet on which the kernels are called is missing, which is a bug in weir.
    #[error("the capture in memory, on which the kernels are called, contains no packet")]
    NoPacket,
    /// A kernel cannot be run on the packet.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// A sandbox cannot be started.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The measured times are not plausible.
    #[error("the measured times are not plausible: {0}")]
    Implausible(#[from] CalibrationError),
    /// There is no folder for the calibration.
    #[error("the user has no home folder to store the calibration in: name a folder with XDG_STATE_HOME")]
    NoHome,
    /// The calibration cannot be written.
    #[error("{}: the calibration cannot be written: {source}", path.escaped())]
    Store {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Measures the kernels, shows the results, and stores the calibration.
pub fn calibrate(out: &mut impl Write, args: &CalibrateArgs) -> Result<(), Failure> {
    let path = if args.dry_run { None } else { Some(calibration_file().ok_or(CalibrateError::NoHome)?) };
    let engines = BackEndEngines::create(EngineOptions::default())?;
    let input = KernelInput::create()?;
    let mut runs = KERNELS
        .iter()
        .map(|kernel| KernelRuns::start(&engines, &input, kernel))
        .collect::<Result<Vec<_>, _>>()?;
    measure(&mut runs, progress(!args.quiet))?;
    let calibration = calibration(&mut runs).map_err(CalibrateError::from)?;
    show::show(out, &mut runs, &calibration, engines.llvm.err().as_deref())?;
    if let Some(path) = path {
        store(&path, &calibration).map_err(|source| CalibrateError::Store { path: path.clone(), source })?;
        writeln!(out, "Kept in {}", path.escaped())?;
    }
    Ok(())
}

/// Calls every kernel in each round, and stores the rates of the rounds after the warm-up.
fn measure(runs: &mut [KernelRuns], progress: Option<ProgressBar>) -> Result<(), CalibrateError> {
    for round in 0..WARM_UP + ROUNDS {
        for kernel in &mut *runs {
            kernel.measure(round >= WARM_UP)?;
        }
        if let Some(bar) = &progress {
            bar.inc(1);
        }
    }
    if let Some(bar) = &progress {
        bar.finish_and_clear();
    }
    Ok(())
}

/// Returns the calibration that follows from the runs: for each back end, the minimum, median and maximum of the kernels'
/// medians, in ns for 1000 units of fuel.
fn calibration(runs: &mut [KernelRuns]) -> Result<Calibration, CalibrationError> {
    let mut cranelift: Vec<u64> = runs.iter_mut().map(|runs| runs.cranelift.rate_spread()[1]).collect();
    let llvm = runs.iter_mut().filter_map(KernelRuns::in_llvm);
    let mut llvm: Vec<u64> = llvm.map(|run| run.rate_spread()[1]).collect();
    let [min, median, max] = spread(&mut cranelift);
    let calibration = Calibration::measured(min, median, max, &processor())?;
    if llvm.is_empty() {
        return Ok(calibration);
    }
    let [min, median, max] = spread(&mut llvm);
    calibration.with_llvm(min, median, max)
}

/// Returns a progress bar if one is wanted and standard error is a terminal.
fn progress(wanted: bool) -> Option<ProgressBar> {
    let style = ProgressStyle::with_template("{bar:40} {percent:>3} %  {eta} left").ok()?;
    let is_shown = wanted && io::stderr().is_terminal();
    is_shown.then(|| ProgressBar::new(u64::from(WARM_UP + ROUNDS)).with_style(style))
}

/// Returns the processor's model name from /proc/cpuinfo; the architecture if that file has no model name.
fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or(std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

/// Replaces the calibration's file atomically, with write permission for its owner only. Creates the folder if it is
/// missing.
fn store(path: &Path, calibration: &Calibration) -> io::Result<()> {
    let folder = PrivateFolder::make(path.parent().unwrap_or(Path::new(".")))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Ok(folder.replace(&name, calibration.to_toml().as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::runs::KernelRun;
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use weir_admission::{Admitted, Tier};
    use weir_sandbox::CheckMode;
    use weir_units::Nanos;

    /// Calls `test` with the run of each kernel in Cranelift's code, and in LLVM's if modules run in it here.
    fn for_each_run(options: EngineOptions, test: impl Fn(&str, &mut KernelRun)) {
        let (engines, input) = (BackEndEngines::create(options).unwrap(), KernelInput::create().unwrap());
        if let Err(why) = &engines.llvm {
            _ = writeln!(io::stderr(), "SKIPPED: no verified code of LLVM here: {why}");
        }
        for kernel in KERNELS {
            let mut runs = KernelRuns::start(&engines, &input, kernel).unwrap();
            test(kernel.name, &mut runs.cranelift);
            assert_eq!(runs.llvm.is_some(), engines.llvm.is_ok());
            if let Some(llvm) = &mut runs.llvm {
                let llvm = llvm.as_mut().unwrap_or_else(|why| panic!("{}: {why}", kernel.name));
                test(kernel.name, llvm);
            }
        }
    }

    #[test]
    fn every_kernel_is_proved_and_runs_in_the_code_of_each_back_end() {
        for kernel in KERNELS {
            let admitted = Admitted::admit(wat::parse_str(kernel.text()).unwrap(), &[]).unwrap();
            assert_eq!(admitted.tier(), Tier::Proved, "{}: {:?}", kernel.name, admitted.reason_for_tier());
        }
        for_each_run(EngineOptions::default(), |name, run| {
            assert!(run.call().unwrap() > Nanos(0), "{name}");
            assert!(run.fuel > 100_000, "{name}: {}", run.fuel);
        });
    }

    #[test]
    fn a_kernel_uses_the_fuel_of_its_bound_in_the_code_of_each_back_end() {
        let exact = EngineOptions { check_mode: CheckMode::Exact(u64::MAX), ..EngineOptions::default() };
        for_each_run(exact, |name, run| {
            run.call().unwrap();
            let used = run.driver.instance.fuel_used().unwrap();
            assert!(used <= run.fuel && used + used / 100 >= run.fuel, "{name}: {used} of {}", run.fuel);
        });
    }

    /// Measures a few kernels once, and returns the output and the calibration.
    fn printed(engines: &BackEndEngines, why_not_llvm: Option<&str>, without_llvm: &str) -> String {
        let input = KernelInput::create().unwrap();
        let kernels = KERNELS.iter().take(4);
        let mut runs: Vec<_> =
            kernels.map(|kernel| KernelRuns::start(engines, &input, kernel).unwrap()).collect();
        for runs in &mut runs {
            if runs.llvm.is_some() && runs.kernel.name == without_llvm {
                runs.llvm = Some(Err("a reason".to_owned()));
            }
            runs.measure(true).unwrap();
        }
        let calibration = calibration(&mut runs).unwrap();
        assert_eq!(calibration.llvm().is_some(), engines.llvm.is_ok());
        let mut out = Vec::new();
        show::show(&mut out, &mut runs, &calibration, why_not_llvm).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_output_says_what_was_not_measured_in_llvms_code_and_why() {
        let mut engines = BackEndEngines::create(EngineOptions::default()).unwrap();
        if engines.llvm.is_ok() {
            let text = printed(&engines, None, "multiply");
            assert!(text.contains("CRANELIFT") && text.contains("LLVM") && text.contains("alone"), "{text}");
            let row = text.lines().find(|line| line.starts_with("multiply")).unwrap();
            assert_eq!(row.matches('–').count(), 3, "{row}");
            let why = "`multiply` was measured in Cranelift's code only. LLVM's cannot run: a reason.";
            assert!(text.contains(why), "{text}");
        }
        engines.llvm = Err("no compiler".to_owned());
        let text = printed(&engines, Some("no compiler"), "");
        let why = "Only Cranelift's code was measured. No module runs in LLVM's code here: no compiler.";
        assert!(text.lines().any(|line| line == why), "{text}");
        assert!(!text.contains("CRANELIFT") && !text.contains("alone"), "{text}");
    }

    #[test]
    fn the_spread_is_minimum_median_and_maximum() {
        assert_eq!(spread(&mut [5, 1, 9]), [1, 5, 9]);
        assert_eq!(spread(&mut [7]), [7, 7, 7]);
        assert_eq!(spread(&mut []), [0, 0, 0]);
    }

    #[test]
    fn the_calibration_file_is_private_and_replaces_an_earlier_one() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("state/weir/calibration.toml");
        for max in [300, 400] {
            let calibration = Calibration::measured(100, 200, max, "x").unwrap();
            store(&path, &calibration).unwrap();
            assert_eq!(Calibration::parse(&std::fs::read_to_string(&path).unwrap()), Ok(calibration));
        }
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(path.parent().unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(path.parent().unwrap().read_dir().unwrap().count(), 1);
    }
}
