//! Bounds compared with the real cost of packets, in the code of both back ends. The part `bounds` of the benchmark.

use crate::corpus::CorpusModule;
use crate::criterion::{self, Criterion};
use crate::error::{Context, LabError};
use crate::fuel_meter::FuelCounter;
use crate::module::Module;
use crate::packet_times::{PacketTimer, TimedPackets};
use crate::packets::{Packets, copy_packets};
use crate::paths;
use crate::sandboxed::BACK_ENDS;
use crate::statistics::{Sample, to_f64};
use crate::table::Table;
use crate::worst_case::{ETHERNET, Search, SearchOutcome, search};
use std::borrow::Borrow;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use weir_admission::{Calibration, VerifiedUse};
use weir_sandbox::BackEnd;

/// The promised limit of the ratio of bound to worst fuel found, in the median of the shipped modules.
const MEDIAN_RATIO_MAX: f64 = 2.0;
/// The promised limit of this ratio for every shipped module.
const RATIO_MAX: f64 = 3.0;

/// The number of packets of the capture that a search starts with.
const RECORDED: usize = 2000;
/// The number of packets that stay in the processor's cache.
const CACHED: usize = 4096;
/// The sets of packets whose times are compared with bounds, and the measurements of each packet.
const TIMED: [(&str, usize); 2] = [("in the processor's cache", 100), ("of the trace", 5)];
/// The quantile of the times of packets that is compared with the bound.
const QUANTILE: f64 = 0.999;

/// The packets of a capture that a search starts with.
pub fn recorded(capture: &Path) -> Result<Vec<Vec<u8>>, LabError> {
    Ok(copy_packets(capture, RECORDED)?.into_iter().map(|(packet, _)| packet).collect())
}

/// The measurements of modules in the code of one back end.
struct Measured<'a> {
    counter: FuelCounter,
    timer: PacketTimer<'a>,
    /// The sets of [`TIMED`].
    timed: [TimedPackets<'a>; 2],
    /// The median time of an empty module for each set, in ns; NaN if no module runs in the code of this back end.
    empty: [f64; 2],
    /// The times of fuel in the code of this back end; `None` if they were not measured.
    calibration: Option<Calibration>,
    /// The times of fuel in words.
    spread: String,
    /// The number of modules whose time exceeds the bound, for each set.
    exceeding: [usize; 2],
}

impl Borrow<FuelCounter> for Measured<'_> {
    fn borrow(&self) -> &FuelCounter {
        &self.counter
    }
}

impl<'a> Measured<'a> {
    fn new(back_end: BackEnd, trace: &'a Packets, calibration: &Calibration) -> Result<Self, LabError> {
        let counter = FuelCounter::new(back_end)?;
        let timer = PacketTimer::new(back_end, trace)?;
        let batches = [trace.first(CACHED), trace.batches()];
        let timed = std::array::from_fn(|set| TimedPackets {
            batches: batches.get(set).copied().unwrap_or_default(),
            measurements: TIMED.get(set).map_or(0, |(_, measurements)| *measurements),
        });
        let mut empty = [f64::NAN; 2];
        if counter.why_not_supported().is_none() {
            for (median, timed) in empty.iter_mut().zip(timed) {
                *median = timer.nanos(&Module::empty()?, timed, 0.5)?;
            }
        }
        let (calibration, spread) = times_of(back_end, calibration)?;
        Ok(Self { counter, timer, timed, empty, calibration, spread, exceeding: [0; 2] })
    }

    /// The cells of a module: its bound in time, and for each set the time and its ratio to the bound.
    fn time_cells(&mut self, module: &Module, found: &SearchOutcome) -> Result<String, LabError> {
        let bound = self.calibration.as_ref().filter(|_| found.bound.is_bounded()).map(|calibration| {
            calibration.time(found.bound.at(u64::try_from(ETHERNET).unwrap_or(0))).0 as f64
        });
        let mut cells = bound.map_or_else(|| "–".to_owned(), |bound| format!("{bound:.0}"));
        for (set, timed) in self.timed.into_iter().enumerate() {
            let nanos = (self.timer.nanos(module, timed, QUANTILE)? - self.empty[set]).max(0.0);
            self.exceeding[set] += usize::from(bound.is_some_and(|bound| nanos > bound));
            let ratio = bound.filter(|_| nanos >= 1.0).map(|bound| format!("{:.2}", bound / nanos));
            _ = write!(cells, " | {nanos:.0} | {}", ratio.as_deref().unwrap_or("–"));
        }
        Ok(cells)
    }
}

/// The times of fuel of a measurement in the code of one back end, and minimum, median and maximum in words. `None` if the
/// measurement lacks this back end.
fn times_of(back_end: BackEnd, calibration: &Calibration) -> Result<(Option<Calibration>, String), LabError> {
    let (times, spread) = match back_end {
        BackEnd::Cranelift => {
            let [min, median, max] = calibration.cranelift();
            let processor = calibration.processor().unwrap_or_default();
            let times = Calibration::measured(min, median, max, processor).context("weir calibrate")?;
            (times, calibration.cranelift())
        }
        BackEnd::Llvm => match calibration.llvm() {
            Some(spread) => (calibration.clone().for_use(VerifiedUse::Only), spread),
            None => return Ok((None, format!("no time in code of {back_end}"))),
        },
    };
    let [min, median, max] = spread;
    Ok((Some(times), format!("{median} ns, {min} to {max}, in code of {back_end}")))
}

/// The table of the shipped modules in both back ends: bounds, the most expensive packets found, and the time of the packets
/// of a trace.
///
/// # Errors
/// A packet used more than its bound, or not the same fuel in both back ends.
pub fn shipped(
    modules: &[Module],
    sample: &Path,
    trace: &Packets,
    search_plan: Search,
) -> Result<String, LabError> {
    let recorded = recorded(sample)?;
    let calibration = calibrate()?;
    let mut measured = Vec::new();
    for back_end in BACK_ENDS {
        measured.push(Measured::new(back_end, trace, &calibration)?);
    }
    let mut table = Table::new(
        "module | back end | tier | bound, fuel | worst packet | bound ÷ worst | up to 1514 B | closest | bound at 1514 B, ns | cached, p99.9, ns | bound ÷ cached | trace, p99.9, ns | bound ÷ trace",
    );
    let mut ratios = Sample::default();
    let (mut packets, mut in_llvm, mut count) = (0, 0, 0);
    for module in modules.iter().filter(|module| module.name != "empty") {
        let tier = module.admit()?.tier();
        let outcomes = search_in_both(module, &measured, &recorded, search_plan)?;
        count += 1;
        for (measured, outcome) in measured.iter_mut().zip(outcomes) {
            let back_end = measured.counter.back_end();
            let found = match outcome {
                Ok(found) => found,
                Err(why) => {
                    table.row(format_args!("{} | not in {back_end}: {why} | {tier}", module.name));
                    continue;
                }
            };
            packets += found.packets;
            in_llvm += usize::from(back_end == BackEnd::Llvm);
            let is_bounded = found.bound.is_bounded();
            if is_bounded && back_end == BackEnd::Cranelift {
                ratios.push(found.worst_ratio());
            }
            let cell = |ratio: f64| if is_bounded { format!("{ratio:.2}") } else { "–".to_owned() };
            table.row(format_args!(
                "{} | {back_end} | {tier} | {} | {} ({} B) | {} | {} | {} | {}",
                module.name,
                found.bound,
                found.worst.fuel,
                found.worst.len,
                cell(found.ratio(found.worst)),
                cell(found.ratio(found.worst_on_ethernet)),
                cell(found.ratio(found.closest)),
                measured.time_cells(module, &found)?
            ));
        }
    }
    let mut criteria = vec![
        Criterion::at_most(
            "bound ÷ worst fuel found, median of the modules",
            ratios.median(),
            MEDIAN_RATIO_MAX,
            "",
        ),
        Criterion::at_most("bound ÷ worst fuel found, worst of the modules", ratios.max(), RATIO_MAX, ""),
        Criterion::at_least("modules in verified code of LLVM", to_f64(in_llvm), to_f64(count), ""),
    ];
    for (set, (packets, _)) in TIMED.into_iter().enumerate() {
        for Measured { counter, exceeding, .. } in &measured {
            let what = format!(
                "{}: modules with a larger time than the bound, packets {packets}",
                counter.back_end()
            );
            criteria.push(Criterion::at_most(what, to_f64(exceeding[set]), 0.0, ""));
        }
    }
    let spreads: Vec<&str> = measured.iter().map(|measured| measured.spread.as_str()).collect();
    Ok(format!(
        "{}\n{packets} packets were tried, and none used more than its bound. Each used the same fuel in the code of both back ends. \
         By `weir calibrate`, 1000 fuel take {}, on {}.\n\n{table}",
        criterion::table(&criteria),
        spreads.join(", and "),
        calibration.processor().unwrap_or("this machine")
    ))
}

/// Runs `weir calibrate`, and returns the calibration of this machine.
fn calibrate() -> Result<Calibration, LabError> {
    const WHAT: &str = "weir calibrate";
    let state = tempfile::tempdir().context(WHAT)?;
    let mut command = Command::new(paths::built_weir()?);
    command.args(["calibrate", "--quiet"]).env("XDG_STATE_HOME", state.path()).stdout(Stdio::null());
    let status = command.status().context(WHAT)?;
    if !status.success() {
        return Err(LabError::failed(WHAT, status.to_string()));
    }
    let text = std::fs::read_to_string(state.path().join("weir/calibration.toml")).context(WHAT)?;
    Calibration::parse(&text).context(WHAT)
}

/// The summary of bounds and of the most expensive packets found in both back ends, for modules of the corpus that have a bound.
///
/// # Errors
/// A packet used more than its bound, or not the same fuel in both back ends.
pub fn corpus(modules: &[&CorpusModule], sample: &Path, search_plan: Search) -> Result<String, LabError> {
    let mut counters = Vec::new();
    for back_end in BACK_ENDS {
        counters.push(FuelCounter::new(back_end)?);
    }
    let recorded = recorded(sample)?;
    let mut ratios = Sample::default();
    let mut packets = 0;
    let mut exceeding = Vec::new();
    let mut not_in_llvm = Vec::new();
    for module in modules {
        let outcomes = search_in_both(&module.module, &counters, &recorded, search_plan)?;
        for (counter, outcome) in counters.iter().zip(outcomes) {
            match outcome {
                Err(why) => not_in_llvm.push(format!("{module} ({why})")),
                Ok(found) => {
                    packets += found.packets;
                    if counter.back_end() == BackEnd::Cranelift {
                        ratios.push(found.worst_ratio());
                        if found.worst_ratio() > RATIO_MAX {
                            exceeding.push((found.worst_ratio(), module.to_string()));
                        }
                    }
                }
            }
        }
    }
    exceeding.sort_by(|a, b| b.0.total_cmp(&a.0));
    let q = ratios.quartiles();
    let mut text = format!(
        "Of the corpus, the {} modules with a bound: bound ÷ worst fuel found {:.2} in the median, quartiles {:.2}–{:.2}, at most {:.2}; {packets} \
         packets were tried, and none used more than its bound. {} of these modules ran in verified code of LLVM too, with the same fuel for each \
         packet.\n",
        modules.len(),
        q.median,
        q.lower,
        q.upper,
        ratios.max(),
        modules.len() - not_in_llvm.len()
    );
    if !not_in_llvm.is_empty() {
        _ = writeln!(text, "\nNot in verified code: {}.", not_in_llvm.join(", "));
    }
    if !exceeding.is_empty() {
        let list: Vec<String> =
            exceeding.iter().take(12).map(|(ratio, name)| format!("{name} {ratio:.1}")).collect();
        _ = writeln!(
            text,
            "\n{} of them are above {RATIO_MAX}; the largest: {}.",
            exceeding.len(),
            list.join(", ")
        );
    }
    Ok(text)
}

/// The outcomes of a search in the code of each back end, or the reason why the module has no such code.
type Outcomes = Vec<Result<SearchOutcome, String>>;

/// Searches for the most expensive packets of a module in the code of each back end.
///
/// # Errors
/// A packet exceeds the bound. The searches differ: they depend on fuel alone, so a packet used different fuel.
fn search_in_both<C: Borrow<FuelCounter>>(
    module: &Module,
    counters: &[C],
    recorded: &[Vec<u8>],
    search_plan: Search,
) -> Result<Outcomes, LabError> {
    let mut outcomes: Outcomes = Vec::new();
    for counter in counters {
        let outcome = match counter.borrow().load(module)? {
            Ok(counted) => Ok(within_bound(module, search(module, &counted, recorded, search_plan)?)?),
            Err(why) => Err(why),
        };
        if let (Some(Ok(first)), Ok(second)) = (outcomes.first(), &outcome)
            && first != second
        {
            let differ = format!("the back ends differ in fuel: {first:?} and {second:?}");
            return Err(LabError::failed(&module.name, differ));
        }
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

/// Returns an outcome in which no packet exceeds the bound.
fn within_bound(module: &Module, found: SearchOutcome) -> Result<SearchOutcome, LabError> {
    match &found.over {
        None => Ok(found),
        Some((cost, packet)) => Err(LabError::Bound {
            module: module.name.clone(),
            fuel: cost.fuel,
            bound: found.bound.to_string(),
            packet: Box::new(packet.clone()),
        }),
    }
}
