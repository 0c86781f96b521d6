//! Bounds compared with the real cost of packets. The part `bounds` of the benchmark.

use crate::comparison::ModuleBuild;
use crate::corpus::CorpusModule;
use crate::criterion::{self, Criterion};
use crate::error::{Context, LabError};
use crate::fuel_meter::FuelCounter;
use crate::module::Module;
use crate::packets::{BLOCK_BATCHES, Packets, copy_packets};
use crate::paths;
use crate::sandboxed::Sandboxed;
use crate::statistics::Sample;
use crate::table::Table;
use crate::worst_case::{ETHERNET, Search, SearchOutcome, search};
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use weir_admission::{Calibration, Tier};
use weir_sandbox::{BatchInput, CheckMode, Cycles, Engine, EngineOptions};

/// The promised limit of the ratio of bound to worst fuel found, in the median of the shipped modules.
const MEDIAN_RATIO_MAX: f64 = 2.0;
/// The promised limit of this ratio for every shipped module.
const RATIO_MAX: f64 = 3.0;

/// The number of packets of the capture that a search starts with.
const RECORDED: usize = 2000;
/// The number of measurements of each packet. The shortest counts, because other programs can only make one longer.
const MEASUREMENTS: usize = 5;

/// The packets of a capture that a search starts with.
pub fn recorded(capture: &Path) -> Result<Vec<Vec<u8>>, LabError> {
    Ok(copy_packets(capture, RECORDED)?.into_iter().map(|(packet, _)| packet).collect())
}

/// The table of the shipped modules: bounds, the most expensive packets found, and the time of the packets of a trace.
pub fn shipped(
    modules: &[Module],
    sample: &Path,
    trace: &Packets,
    search_plan: Search,
) -> Result<String, LabError> {
    let counter = FuelCounter::new()?;
    let recorded = recorded(sample)?;
    let clock = crate::comparison::Clock::calibrate();
    let calibration = calibrate()?;
    let empty = cycles_quantile(&Module::empty()?, trace, 0.5)?;
    let mut table = Table::new(
        "module | tier | bound, fuel | worst packet | bound ÷ worst | up to 1514 B | closest | bound at 1514 B, ns | p99.9, ns | bound ÷ p99.9",
    );
    let mut ratios = Sample::default();
    let mut packets = 0;
    for module in modules.iter().filter(|module| module.name != "empty") {
        let found = search_checked(module, &counter, &recorded, search_plan)?;
        packets += found.packets;
        let admitted = module.admit()?;
        let worst = found.ratio(found.worst).max(found.ratio(found.worst_on_ethernet));
        let is_bounded = found.bound.is_bounded();
        if is_bounded {
            ratios.push(worst);
        }
        let cell = |number: f64, digits: usize| {
            if is_bounded { format!("{number:.digits$}") } else { "–".to_owned() }
        };
        let measured = (cycles_quantile(module, trace, 0.999)? - empty).max(0.0) * clock.nanos_per_cycle;
        let bound = calibration.time(found.bound.at(u64::try_from(ETHERNET).unwrap_or(0))).0 as f64;
        table.row(format_args!(
            "{} | {} | {} | {} ({} B) | {} | {} | {} | {} | {measured:.0} | {}",
            module.name,
            admitted.tier().name(),
            found.bound,
            found.worst.fuel,
            found.worst.len,
            cell(found.ratio(found.worst), 2),
            cell(found.ratio(found.worst_on_ethernet), 2),
            cell(found.ratio(found.closest), 2),
            cell(bound, 0),
            if measured >= 1.0 { cell(bound / measured, 2) } else { "–".to_owned() }
        ));
    }
    let criteria = [
        Criterion::at_most(
            "bound ÷ worst fuel found, median of the modules",
            ratios.median(),
            MEDIAN_RATIO_MAX,
            "",
        ),
        Criterion::at_most("bound ÷ worst fuel found, worst of the modules", ratios.max(), RATIO_MAX, ""),
    ];
    Ok(format!(
        "{}\n{packets} packets were tried, and none used more than its bound. By `weir calibrate`: {calibration}.\n\n{table}",
        criterion::table(&criteria)
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

/// The summary of bounds and of the most expensive packets found, for modules of the corpus that have a bound.
pub fn corpus(modules: &[&CorpusModule], sample: &Path, search_plan: Search) -> Result<String, LabError> {
    let counter = FuelCounter::new()?;
    let recorded = recorded(sample)?;
    let mut ratios = Sample::default();
    let mut packets = 0;
    let mut exceeding = Vec::new();
    for module in modules {
        let found = search_checked(&module.module, &counter, &recorded, search_plan)?;
        packets += found.packets;
        let ratio = found.ratio(found.worst).max(found.ratio(found.worst_on_ethernet));
        ratios.push(ratio);
        if ratio > RATIO_MAX {
            exceeding.push((ratio, module.to_string()));
        }
    }
    exceeding.sort_by(|a, b| b.0.total_cmp(&a.0));
    let q = ratios.quartiles();
    let mut text = format!(
        "Of the corpus, the {} modules with a bound: bound ÷ worst fuel found {:.2} in the median, quartiles {:.2}–{:.2}, at most {:.2}; {packets} \
         packets were tried, and none used more than its bound.\n",
        modules.len(),
        q.median,
        q.lower,
        q.upper,
        ratios.max()
    );
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

/// Searches for the most expensive packets of a module. Fails if a packet exceeds the bound.
fn search_checked(
    module: &Module,
    counter: &FuelCounter,
    recorded: &[Vec<u8>],
    search_plan: Search,
) -> Result<SearchOutcome, LabError> {
    let found = search(module, &counter.load(module)?, recorded, search_plan)?;
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

/// A quantile (0 to 1) of the cycles per packet of a trace. Each packet is processed by a separate call, without run-time
/// checks.
fn cycles_quantile(module: &Module, trace: &Packets, quantile: f64) -> Result<f64, LabError> {
    let engine = Engine::new(
        EngineOptions { check_mode: CheckMode::As(Tier::Proved), ..EngineOptions::default() },
        None,
    )?;
    let mut cycles_min: Vec<u64> = Vec::new();
    let mut build = Sandboxed::start(&engine, module, trace)?;
    for pass in 0..=MEASUREMENTS {
        let ticks = crate::packets::ticks(trace.batches(), module.admit()?.tick_period());
        let mut ticks = ticks.iter().peekable();
        let mut index_of_packet = 0;
        for (index, ready) in trace.batches().iter().enumerate() {
            if index.is_multiple_of(BLOCK_BATCHES) {
                trace.write_descriptors(index / BLOCK_BATCHES)?;
            }
            for packet in (0..weir_abi::BATCH_PACKETS).filter(|packet| ready.batch.mask >> packet & 1 == 1) {
                let one = BatchInput { mask: 1 << packet, ..ready.batch };
                let begin = Cycles::now();
                build.run(one);
                let taken = Cycles::now().since(begin).0;
                // The first pass is not counted, because of the page faults of the module's memory.
                match cycles_min.get_mut(index_of_packet) {
                    Some(least) if pass > 0 => *least = taken.min(*least),
                    Some(_) => {}
                    None => cycles_min.push(u64::MAX),
                }
                index_of_packet += 1;
            }
            while let Some(tick) = ticks.next_if(|tick| tick.before <= index + 1) {
                build.tick(*tick);
            }
            build.take_output(weir_session::Records::default());
        }
    }
    cycles_min.sort_unstable();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index of the list")]
    let index = ((cycles_min.len().saturating_sub(1)) as f64 * quantile) as usize;
    Ok(cycles_min.get(index).copied().unwrap_or(0) as f64)
}
