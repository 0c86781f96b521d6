//! `weir calibrate`: measures the time of a unit of fuel on this machine and stores it. Each kind of work that is
//! measured has a kernel: a small module that repeats the work.

mod kernels;

use crate::Failure;
use crate::calibrated_profile::calibration_file;
use crate::cli::CalibrateArgs;
use indicatif::{ProgressBar, ProgressStyle};
use kernels::{KERNELS, Kernel};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use weir_bounds::EntryPoint;
use weir_datapath::driver::{BatchDriver, BatchError};
use weir_netio::{Block, Capture, CaptureInput, CaptureNext};
use weir_node::sessions::tables::publisher_without_readers;
use weir_os::private::PrivateFolder;
use weir_sandbox::{BatchInput, Engine, EngineOptions, Instance, InstanceContext, LoadError, thread_time};
use weir_units::{Escape as _, Nanos, Timestamp};
use {
    weir_admission::{Admitted, Calibration, CalibrationError},
    weir_session::Records,
};

/// Number of rounds. Each round measures every kernel once, so that a temporary disturbance affects all kernels alike.
const ROUNDS: u32 = 200;
/// Number of rounds before the measured rounds. They touch the memory, fill the caches and let the processor's clock
/// rate settle.
const WARM_UP: u32 = 5;

/// Ratio of a kernel's median to its minimum above which the machine is reported as busy.
const BUSY_RATIO: u64 = 2;

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

/// The input of the kernels: one packet in an arena, so that a kernel can keep the packet.
struct KernelInput {
    capture: Capture,
    block: Block,
}

impl KernelInput {
    fn create() -> Result<Self, CalibrateError> {
        let mut bytes = Vec::new();
        // A pcap file with one Ethernet frame of 60 zero bytes.
        bytes.extend([0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0]);
        [1, 0, 60, 60].iter().for_each(|field: &u32| bytes.extend(field.to_le_bytes()));
        bytes.resize(bytes.len() + 60, 0);
        let as_stream = weir_netio::CaptureOptions { stream: true, ..weir_netio::CaptureOptions::default() };
        let mut capture = Capture::open_with(CaptureInput::Bytes(bytes), as_stream)?;
        match capture.next_block() {
            Ok(CaptureNext::Block(block)) => Ok(Self { capture, block }),
            _ => Err(CalibrateError::NoPacket),
        }
    }
}

/// A kernel with the sandbox that runs it and its measurements.
struct KernelRun {
    kernel: &'static Kernel,
    driver: BatchDriver,
    /// The packet, for a kernel whose entry point gets packets.
    batch: BatchInput,
    /// The fuel of one call.
    fuel: u64,
    /// Nanoseconds per 1000 units of fuel, for each round.
    rates: Vec<u64>,
}

/// Measures the kernels, shows the results, and stores the calibration.
pub fn calibrate(out: &mut impl Write, args: &CalibrateArgs) -> Result<(), Failure> {
    let path = if args.dry_run { None } else { Some(calibration_file().ok_or(CalibrateError::NoHome)?) };
    let engine = Engine::new(EngineOptions::default(), None).map_err(CalibrateError::from)?;
    let input = KernelInput::create()?;
    let mut runs = KERNELS
        .iter()
        .map(|kernel| KernelRun::new(&engine, &input, kernel))
        .collect::<Result<Vec<_>, _>>()?;
    measure(&mut runs, progress(!args.quiet))?;
    let medians: Vec<u64> = runs.iter_mut().map(|run| run.rate_spread()[1]).collect();
    let [min, median, max] = spread(&mut medians.clone());
    let calibration = Calibration::measured(min, median, max, &processor()).map_err(CalibrateError::from)?;
    show(out, &mut runs, &calibration)?;
    if let Some(path) = path {
        store(&path, &calibration).map_err(|source| CalibrateError::Store { path: path.clone(), source })?;
        writeln!(out, "Kept in {}", path.escaped())?;
    }
    Ok(())
}

impl KernelRun {
    fn new(engine: &Engine, input: &KernelInput, kernel: &'static Kernel) -> Result<Self, CalibrateError> {
        let failed = |why: String| CalibrateError::Kernel { name: kernel.name, why };
        let bytes = wat::parse_str(kernel.text()).map_err(|error| failed(error.to_string()))?;
        let admitted = Admitted::admit(bytes, &[]).map_err(|refusal| failed(refusal.to_string()))?;
        let entry = admitted.analysis().entry(kernel.entry);
        let fuel = entry.map(|entry| entry.usage.fuel).filter(|fuel| fuel.is_bounded() && fuel.constant > 0);
        let fuel = fuel.ok_or_else(|| failed("it has no bound".to_owned()))?.constant;
        let publisher =
            publisher_without_readers(admitted.manifest()).map_err(|error| failed(error.to_string()))?;
        let context = InstanceContext { publisher: Some(publisher), ..InstanceContext::default() };
        let instance = Instance::start_with(engine, &engine.load(admitted)?, context)?;
        let mut driver = BatchDriver::new(instance, input.capture.descriptors(), None)?;
        driver.map_block(&input.block)?;
        let descriptors = input.block.batch(0).guest_address;
        Ok(Self {
            kernel,
            driver,
            batch: BatchInput { descriptors, mask: 1, first: 0 },
            fuel,
            rates: Vec::new(),
        })
    }

    /// Calls the kernel once, and returns the CPU time that the call took.
    fn call(&mut self) -> Result<Nanos, CalibrateError> {
        let instance = &mut self.driver.instance;
        instance.begin_block();
        let begin = thread_time();
        match self.kernel.entry {
            EntryPoint::Packet => _ = instance.run(self.batch),
            _ => instance.tick(Timestamp(0), 1, 0),
        }
        let cpu_time = Nanos(thread_time().0.saturating_sub(begin.0));
        drop(instance.take_records(Records::default()));
        drop(instance.take_frames(Records::default()));
        match instance.incidents().first() {
            Some(incident) => {
                Err(CalibrateError::Kernel { name: self.kernel.name, why: incident.fault.to_string() })
            }
            None => Ok(cpu_time),
        }
    }

    fn rate_spread(&mut self) -> [u64; 3] {
        spread(&mut self.rates)
    }
}

/// Calls every kernel in each round, and stores the rates of the rounds after the warm-up.
fn measure(runs: &mut [KernelRun], progress: Option<ProgressBar>) -> Result<(), CalibrateError> {
    for round in 0..WARM_UP + ROUNDS {
        for run in &mut *runs {
            let cpu_time = run.call()?;
            if round >= WARM_UP {
                // Rounded to nearest, at least 1.
                let rate = (cpu_time.0.saturating_mul(1000) + run.fuel / 2) / run.fuel;
                run.rates.push(rate.max(1));
            }
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

/// Returns a progress bar if one is wanted and standard error is a terminal.
fn progress(wanted: bool) -> Option<ProgressBar> {
    let style = ProgressStyle::with_template("{bar:40} {percent:>3} %  {eta} left").ok()?;
    let is_shown = wanted && io::stderr().is_terminal();
    is_shown.then(|| ProgressBar::new(u64::from(WARM_UP + ROUNDS)).with_style(style))
}

/// Returns the minimum, median and maximum of measured values, and sorts them.
fn spread(values: &mut [u64]) -> [u64; 3] {
    values.sort_unstable();
    let at = |index: usize| values.get(index).copied().unwrap_or(0);
    [at(0), at(values.len() / 2), at(values.len().saturating_sub(1))]
}

/// Prints the rates of the kernels and the calibration.
fn show(out: &mut impl Write, runs: &mut [KernelRun], calibration: &Calibration) -> io::Result<()> {
    const BAR_WIDTH: u64 = 20;
    let name_width = runs.iter().map(|run| run.kernel.name.len()).max().unwrap_or(0);
    let rates: Vec<_> = runs.iter_mut().map(|run| (run.kernel, run.rate_spread())).collect();
    let disturbed = rates
        .iter()
        .map(|(kernel, [least, median, _])| (kernel.name, *least, *median))
        .filter(|(_, least, median)| *median > least.saturating_mul(BUSY_RATIO))
        .max_by_key(|(_, least, median)| median / least);
    let median_max = rates.iter().map(|(_, [_, median, _])| *median).max().unwrap_or(1).max(1);
    writeln!(out, "Nanoseconds for 1000 units of fuel, in {ROUNDS} rounds:\n")?;
    writeln!(out, "{:name_width$}  {:>6}  {:>6}  {:>6}", "KERNEL", "LEAST", "MEDIAN", "MOST")?;
    for (kernel, [least, median, max_rate]) in rates {
        let filled = usize::try_from((median * BAR_WIDTH).div_ceil(median_max)).unwrap_or(0);
        let bar = format!("{:20}", "▇".repeat(filled));
        writeln!(
            out,
            "{:name_width$}  {least:6}  {median:6}  {max_rate:6}  {bar}  {}",
            kernel.name, kernel.summary
        )?;
    }
    let [_, median, max] = calibration.spread();
    writeln!(out, "\n{calibration}.")?;
    let explanation =
        "Minimum, median and maximum of the kernels' medians; limits and bounds are converted by the maximum";
    writeln!(out, "{explanation}: {max} ns, {} times the median.", ratio(max, median))?;
    if let Some((name, least, median)) = disturbed {
        let advice = "the machine was busy, which makes it look slower; calibrate again when it is idle";
        writeln!(
            out,
            "1000 units of fuel of `{name}` took {median} ns in the median, but {least} ns in the fastest round: {advice}."
        )?;
    }
    Ok(())
}

/// Formats a ratio with one decimal.
#[expect(clippy::cast_precision_loss, reason = "a ratio for people to read")]
fn ratio(numerator: u64, denominator: u64) -> String {
    format!("{:.1}", numerator as f64 / denominator.max(1) as f64)
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
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use weir_admission::Tier;
    use weir_sandbox::CheckMode;

    #[test]
    fn every_kernel_is_proved_and_runs() {
        let (engine, input) =
            (Engine::new(EngineOptions::default(), None).unwrap(), KernelInput::create().unwrap());
        for kernel in KERNELS {
            let admitted = Admitted::admit(wat::parse_str(kernel.text()).unwrap(), &[]).unwrap();
            assert_eq!(admitted.tier(), Tier::Proved, "{}: {:?}", kernel.name, admitted.reason_for_tier());
            let mut run = KernelRun::new(&engine, &input, kernel).unwrap();
            assert!(run.call().unwrap() > Nanos(0), "{}", kernel.name);
            assert!(run.fuel > 100_000, "{}: {}", kernel.name, run.fuel);
        }
    }

    #[test]
    fn a_kernel_uses_the_fuel_of_its_bound() {
        let exact = EngineOptions { check_mode: CheckMode::Exact(u64::MAX), ..EngineOptions::default() };
        let (engine, input) = (Engine::new(exact, None).unwrap(), KernelInput::create().unwrap());
        for kernel in KERNELS {
            let mut run = KernelRun::new(&engine, &input, kernel).unwrap();
            run.call().unwrap();
            let used = run.driver.instance.fuel_used().unwrap();
            assert!(
                used <= run.fuel && used + used / 100 >= run.fuel,
                "{}: {used} of {}",
                kernel.name,
                run.fuel
            );
        }
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
