//! `weir calibrate`: how long this node takes for a unit of fuel, by pieces of work of every kind.

mod kernels;

use crate::Failure;
use crate::cli::Calibrate;
use crate::terms::calibration_file;
use indicatif::{ProgressBar, ProgressStyle};
use kernels::{KERNELS, Kernel};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use weir_bounds::EntryPoint;
use weir_datapath::seat::{BatchDriver, BatchError};
use weir_netio::{Block, Capture, CaptureInput, CaptureNext};
use weir_node::sessions::tables::alone;
use weir_os::private::PrivateFolder;
use weir_sandbox::{BatchInput, Engine, EngineOptions, Instance, InstanceContext, LoadError, thread_time};
use weir_units::{Nanos, Shown as _, Timestamp};
use {
    weir_admission::{Admitted, Calibration, CalibrationError},
    weir_session::Records,
};

/// How often each kernel is measured: in turn, so that what disturbs for a while disturbs all of them a little.
const ROUNDS: u32 = 200;
/// Rounds before those, which count for nothing: memory is touched, caches and clocks settle.
const WARM_UP: u32 = 5;

/// Where half of a kernel's rounds took more than so many times the least, others were using the processor's caches and memory.
const DISTURBED: u64 = 2;

/// Why nothing was measured, or nothing is kept.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// A kernel does not run: to blame is weir.
    #[error("the kernel `{name}` does not run: {why}")]
    Kernel {
        /// The kernel.
        name: &'static str,
        /// Why.
        why: String,
    },
    /// There is no packet to work on: to blame is the node.
    #[error("a packet in memory cannot be read: {0}")]
    Packet(#[from] weir_netio::OpenError),
    /// It is not there: to blame is weir.
    #[error("a packet that was put into memory is not there")]
    NoPacket,
    /// It cannot be shown to a kernel: to blame is the node.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// No sandbox: to blame is the node.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The figures make no sense: to blame is the node.
    #[error("this node's clock tells nothing: {0}")]
    Figures(#[from] CalibrationError),
    /// There is no place for it.
    #[error("the user has no home folder to keep the calibration in; XDG_STATE_HOME can name another")]
    NoHome,
    /// It cannot be written.
    #[error("{}: the calibration cannot be written: {source}", path.shown())]
    Keep {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// What kernels are called with: a packet in memory like that of an interface, in which packets can be kept.
struct Scene {
    capture: Capture,
    block: Block,
}

impl Scene {
    fn set() -> Result<Self, CalibrateError> {
        let mut bytes = Vec::new();
        // A pcap file with 60 bytes of nothing in it, of Ethernet.
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

/// A kernel at work.
struct Worker {
    kernel: &'static Kernel,
    seat: BatchDriver,
    /// The packet, for one that is called with it.
    batch: BatchInput,
    /// What a call of it uses.
    fuel: u64,
    /// Nanoseconds for 1000 units of fuel, in each round.
    rates: Vec<u64>,
}

/// Measures, shows what was measured, and keeps it.
pub fn calibrate(out: &mut impl Write, args: &Calibrate) -> Result<(), Failure> {
    let path = if args.dry_run { None } else { Some(calibration_file().ok_or(CalibrateError::NoHome)?) };
    let engine = Engine::new(EngineOptions::default(), None).map_err(CalibrateError::from)?;
    let scene = Scene::set()?;
    let mut workers =
        KERNELS.iter().map(|kernel| Worker::new(&engine, &scene, kernel)).collect::<Result<Vec<_>, _>>()?;
    measure(&mut workers, progress(!args.quiet))?;
    let medians: Vec<u64> = workers.iter_mut().map(|worker| worker.spread()[1]).collect();
    let [min, median, max] = spread(&mut medians.clone());
    let calibration = Calibration::measured(min, median, max, &processor()).map_err(CalibrateError::from)?;
    show(out, &mut workers, &calibration)?;
    if let Some(path) = path {
        keep(&path, &calibration).map_err(|source| CalibrateError::Keep { path: path.clone(), source })?;
        writeln!(out, "Kept in {}", path.shown())?;
    }
    Ok(())
}

impl Worker {
    fn new(engine: &Engine, scene: &Scene, kernel: &'static Kernel) -> Result<Self, CalibrateError> {
        let failed = |why: String| CalibrateError::Kernel { name: kernel.name, why };
        let bytes = wat::parse_str(kernel.text()).map_err(|error| failed(error.to_string()))?;
        let admitted = Admitted::admit(bytes, &[]).map_err(|refusal| failed(refusal.to_string()))?;
        let entry = admitted.analysis().entry(kernel.entry);
        let fuel = entry.map(|entry| entry.usage.fuel).filter(|fuel| fuel.is_bounded() && fuel.constant > 0);
        let fuel = fuel.ok_or_else(|| failed("it has no bound".to_owned()))?.constant;
        let press = alone(admitted.manifest()).map_err(|error| failed(error.to_string()))?;
        let means = InstanceContext { press: Some(press), ..InstanceContext::default() };
        let instance = Instance::start_with(engine, &engine.load(admitted)?, means)?;
        let mut seat = BatchDriver::new(instance, scene.capture.descriptors(), None)?;
        seat.face(&scene.block)?;
        let descriptors = scene.block.batch(0).guest_address;
        Ok(Self {
            kernel,
            seat,
            batch: BatchInput { descriptors, mask: 1, first: 0 },
            fuel,
            rates: Vec::new(),
        })
    }

    /// One call. What others do on the processor meanwhile does not count.
    fn work(&mut self) -> Result<Nanos, CalibrateError> {
        let instance = &mut self.seat.instance;
        instance.begin_block();
        let begin = thread_time();
        match self.kernel.entry {
            EntryPoint::Packet => _ = instance.run(self.batch),
            _ => instance.tick(Timestamp(0), 1, 0),
        }
        let took = Nanos(thread_time().0.saturating_sub(begin.0));
        drop(instance.take_records(Records::default()));
        drop(instance.take_frames(Records::default()));
        match instance.incidents().first() {
            Some(incident) => {
                Err(CalibrateError::Kernel { name: self.kernel.name, why: incident.fault.to_string() })
            }
            None => Ok(took),
        }
    }

    fn spread(&mut self) -> [u64; 3] {
        spread(&mut self.rates)
    }
}

fn measure(workers: &mut [Worker], progress: Option<ProgressBar>) -> Result<(), CalibrateError> {
    for round in 0..WARM_UP + ROUNDS {
        for worker in &mut *workers {
            let took = worker.work()?;
            if round >= WARM_UP {
                // Rounded, and never nothing.
                let rate = (took.0.saturating_mul(1000) + worker.fuel / 2) / worker.fuel;
                worker.rates.push(rate.max(1));
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

/// A bar on a terminal, and nothing elsewhere.
fn progress(wanted: bool) -> Option<ProgressBar> {
    let style = ProgressStyle::with_template("{bar:40} {percent:>3} %  {eta} left").ok()?;
    let is_shown = wanted && io::stderr().is_terminal();
    is_shown.then(|| ProgressBar::new(u64::from(WARM_UP + ROUNDS)).with_style(style))
}

/// The least, the middle and the most.
fn spread(figures: &mut [u64]) -> [u64; 3] {
    figures.sort_unstable();
    let at = |index: usize| figures.get(index).copied().unwrap_or(0);
    [at(0), at(figures.len() / 2), at(figures.len().saturating_sub(1))]
}

fn show(out: &mut impl Write, workers: &mut [Worker], calibration: &Calibration) -> io::Result<()> {
    const BAR: u64 = 20;
    let name_width = workers.iter().map(|worker| worker.kernel.name.len()).max().unwrap_or(0);
    let rates: Vec<_> = workers.iter_mut().map(|worker| (worker.kernel, worker.spread())).collect();
    let disturbed = rates
        .iter()
        .map(|(kernel, [least, median, _])| (kernel.name, *least, *median))
        .filter(|(_, least, median)| *median > least.saturating_mul(DISTURBED))
        .max_by_key(|(_, least, median)| median / least);
    let most = rates.iter().map(|(_, [_, median, _])| *median).max().unwrap_or(1).max(1);
    writeln!(out, "Nanoseconds for 1000 units of fuel, in {ROUNDS} rounds:\n")?;
    writeln!(out, "{:name_width$}  {:>6}  {:>6}  {:>6}", "KERNEL", "LEAST", "MEDIAN", "MOST")?;
    for (kernel, [least, median, most_of_it]) in rates {
        let filled = usize::try_from((median * BAR).div_ceil(most)).unwrap_or(0);
        let bar = format!("{:20}", "▇".repeat(filled));
        writeln!(
            out,
            "{:name_width$}  {least:6}  {median:6}  {most_of_it:6}  {bar}  {}",
            kernel.name, kernel.summary
        )?;
    }
    let [_, median, max] = calibration.spread();
    writeln!(out, "\n{calibration}.")?;
    let advice = "Of the kernels' medians, the least, the middle and the most; limits and bounds are converted by the most";
    writeln!(out, "{advice}: {max} ns, {} times the middle.", tenths(max, median))?;
    if let Some((name, least, median)) = disturbed {
        let advice = "the node was busy, and looks slower than it is; calibrate again when it is not";
        writeln!(out, "`{name}` took {median} ns in the middle, and {least} ns at least: {advice}.")?;
    }
    Ok(())
}

/// A ratio with one digit behind the point.
#[expect(clippy::cast_precision_loss, reason = "a ratio for people to read")]
fn tenths(of: u64, to: u64) -> String {
    format!("{:.1}", of as f64 / to.max(1) as f64)
}

/// What the kernel calls the processor; the architecture where it does not say.
fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or(std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

/// Writes the file so that whoever looks sees the old one or the new one, and nobody else can write it. Makes its folder.
fn keep(path: &Path, calibration: &Calibration) -> io::Result<()> {
    let folder = PrivateFolder::make(path.parent().unwrap_or(Path::new(".")))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Ok(folder.replace(&name, calibration.to_toml().as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use weir_admission::Tier;
    use weir_sandbox::Control;

    #[test]
    fn every_kernel_is_proved_and_does_its_work() {
        let (engine, scene) = (Engine::new(EngineOptions::default(), None).unwrap(), Scene::set().unwrap());
        for kernel in KERNELS {
            let admitted = Admitted::admit(wat::parse_str(kernel.text()).unwrap(), &[]).unwrap();
            assert_eq!(admitted.tier(), Tier::Proved, "{}: {:?}", kernel.name, admitted.why());
            let mut worker = Worker::new(&engine, &scene, kernel).unwrap();
            assert!(worker.work().unwrap() > Nanos(0), "{}", kernel.name);
            assert!(worker.fuel > 100_000, "{}: {}", kernel.name, worker.fuel);
        }
    }

    #[test]
    fn a_kernel_uses_what_it_is_taken_to_use() {
        let exact = EngineOptions { control: Control::Exact(u64::MAX), ..EngineOptions::default() };
        let (engine, scene) = (Engine::new(exact, None).unwrap(), Scene::set().unwrap());
        for kernel in KERNELS {
            let mut worker = Worker::new(&engine, &scene, kernel).unwrap();
            worker.work().unwrap();
            let used = worker.seat.instance.fuel_used().unwrap();
            assert!(
                used <= worker.fuel && used + used / 100 >= worker.fuel,
                "{}: {used} of {}",
                kernel.name,
                worker.fuel
            );
        }
    }

    #[test]
    fn the_middle_is_in_the_middle() {
        assert_eq!(spread(&mut [5, 1, 9]), [1, 5, 9]);
        assert_eq!(spread(&mut [7]), [7, 7, 7]);
        assert_eq!(spread(&mut []), [0, 0, 0]);
    }

    #[test]
    fn what_is_kept_is_the_owners_alone_and_replaces_what_was_there() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("state/weir/calibration.toml");
        for max in [300, 400] {
            let calibration = Calibration::measured(100, 200, max, "x").unwrap();
            keep(&path, &calibration).unwrap();
            assert_eq!(Calibration::parse(&std::fs::read_to_string(&path).unwrap()), Ok(calibration));
        }
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(path.parent().unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(path.parent().unwrap().read_dir().unwrap().count(), 1);
    }
}
