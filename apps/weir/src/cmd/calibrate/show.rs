//! The output of `weir calibrate`.

use super::ROUNDS;
use super::runs::{KernelRun, KernelRuns};
use std::io::{self, Write};
use weir_admission::{Calibration, VerifiedUse};
use weir_sandbox::BackEnd;
use weir_units::escaped;

/// The machine is reported as busy if a kernel's median is more than this many times its minimum.
const BUSY_RATIO: u64 = 2;
/// Only kernels whose calls take at least this many ns count for [`BUSY_RATIO`]. A kernel that LLVM computes in advance
/// ends within a microsecond, of which reading the clock is a large part.
const CALL_NS_MIN: u64 = 10_000;
/// The longest bar, in columns.
const BAR_WIDTH: u64 = 12;
/// The width of the three columns of a back end together, in characters.
const SPREAD_WIDTH: usize = 22;

/// The times of a kernel in the code of a back end.
struct KernelRate {
    /// The name of the kernel.
    kernel: &'static str,
    /// The back end.
    back_end: BackEnd,
    /// Minimum, median and maximum of the rates of all rounds, in ns for 1000 units of fuel.
    spread: [u64; 3],
    /// The fuel of a call.
    fuel: u64,
}

impl KernelRate {
    fn of(kernel: &'static str, back_end: BackEnd, run: &mut KernelRun) -> Self {
        Self { kernel, back_end, spread: run.rate_spread(), fuel: run.fuel }
    }

    /// Returns true if the median is far above the minimum, which shows that the machine was busy.
    fn is_disturbed(&self) -> bool {
        let [least, median, _] = self.spread;
        median > least.saturating_mul(BUSY_RATIO) && least.saturating_mul(self.fuel) / 1000 >= CALL_NS_MIN
    }
}

/// Formats the three columns of a spread.
fn columns([least, median, most]: [impl std::fmt::Display; 3]) -> String {
    format!("{least:>6}  {median:>6}  {most:>6}")
}

/// Prints the rates of the kernels, in ns for 1000 units of fuel, and the calibration. `why_not_llvm` is the reason why no module runs in LLVM's code
/// here.
pub fn show(
    out: &mut impl Write,
    runs: &mut [KernelRuns],
    calibration: &Calibration,
    why_not_llvm: Option<&str>,
) -> io::Result<()> {
    let name_width = runs.iter().map(|runs| runs.kernel.name.len()).max().unwrap_or(0);
    let mut rates = Vec::new();
    for kernel in &mut *runs {
        let name = kernel.kernel.name;
        let cranelift = KernelRate::of(name, BackEnd::Cranelift, &mut kernel.cranelift);
        let llvm = kernel.in_llvm().map(|run| KernelRate::of(name, BackEnd::Llvm, run));
        rates.push((kernel.kernel, cranelift, llvm));
    }
    let has_llvm = calibration.llvm().is_some();
    let slower = |cranelift: &KernelRate, llvm: &Option<KernelRate>| {
        cranelift.spread[1].max(llvm.as_ref().map_or(0, |rate| rate.spread[1]))
    };
    let slowest = rates.iter().map(|(_, cranelift, llvm)| slower(cranelift, llvm)).max().unwrap_or(1).max(1);
    writeln!(out, "Nanoseconds for 1000 units of fuel, in {ROUNDS} rounds:\n")?;
    let head = columns(["LEAST", "MEDIAN", "MOST"]);
    if has_llvm {
        writeln!(out, "{:name_width$}  {:SPREAD_WIDTH$}  LLVM", "", "CRANELIFT")?;
        writeln!(out, "{:name_width$}  {head}  {head}", "KERNEL")?;
    } else {
        writeln!(out, "{:name_width$}  {head}", "KERNEL")?;
    }
    for (kernel, cranelift, llvm) in &rates {
        write!(out, "{:name_width$}  {}", kernel.name, columns(cranelift.spread))?;
        match llvm {
            Some(llvm) => write!(out, "  {}", columns(llvm.spread))?,
            None if has_llvm => write!(out, "  {}", columns(["–"; 3]))?,
            None => {}
        }
        let filled =
            usize::try_from((slower(cranelift, llvm) * BAR_WIDTH).div_ceil(slowest)).unwrap_or_default();
        writeln!(out, "  {:12}  {}", "▇".repeat(filled), kernel.summary)?;
    }
    show_calibration(out, calibration)?;
    if let Some(why) = why_not_llvm {
        writeln!(
            out,
            "Only Cranelift's code was measured. No module runs in LLVM's code here: {}.",
            escaped(why)
        )?;
    }
    for runs in runs {
        if let Some(Err(why)) = &runs.llvm {
            let name = runs.kernel.name;
            writeln!(
                out,
                "`{name}` was measured in Cranelift's code only. LLVM's cannot run: {}.",
                escaped(why)
            )?;
        }
    }
    let disturbed = rates
        .iter()
        .flat_map(|(_, cranelift, llvm)| [Some(cranelift), llvm.as_ref()])
        .flatten()
        .filter(|rate| rate.is_disturbed())
        .max_by_key(|rate| rate.spread[1] / rate.spread[0]);
    if let Some(KernelRate { kernel, back_end, spread: [least, median, _], .. }) = disturbed {
        let advice = "the machine was busy, which makes it look slower; calibrate again when it is idle";
        writeln!(
            out,
            "1000 units of fuel of `{kernel}` in code of {back_end} took {median} ns in the median, but {least} ns in the fastest round: {advice}."
        )?;
    }
    Ok(())
}

/// Prints the times that are stored, and the time by which limits and bounds are converted.
fn show_calibration(out: &mut impl Write, calibration: &Calibration) -> io::Result<()> {
    let [_, median, max] = calibration.spread();
    let (Some([llvm_min, llvm_median, llvm_max]), Some(processor)) =
        (calibration.llvm(), calibration.processor())
    else {
        writeln!(out, "\n{calibration}.")?;
        let explanation = "Minimum, median and maximum of the kernels' medians; limits and bounds are converted by the maximum";
        return writeln!(out, "{explanation}: {max} ns, {} times the median.", ratio(max, median));
    };
    let [cranelift_min, cranelift_median, cranelift_max] = calibration.cranelift();
    let [_, _, only] = calibration.clone().for_use(VerifiedUse::Only).spread();
    writeln!(
        out,
        "\n1000 fuel take {cranelift_median} ns, {cranelift_min} to {cranelift_max}, in code of Cranelift, and {llvm_median} ns, {llvm_min} to {llvm_max}, in code of LLVM, on {processor}."
    )?;
    writeln!(out, "These are minimum, median and maximum of the kernels' medians.")?;
    writeln!(
        out,
        "Limits and bounds are converted by the larger maximum: {max} ns, {} times the median.",
        ratio(max, median)
    )?;
    writeln!(
        out,
        "For modules that run in verified code alone, they are converted by that of LLVM: {only} ns."
    )
}

/// Formats a ratio with one decimal.
#[expect(clippy::cast_precision_loss, reason = "a ratio for people to read")]
fn ratio(numerator: u64, denominator: u64) -> String {
    format!("{:.1}", numerator as f64 / denominator.max(1) as f64)
}
