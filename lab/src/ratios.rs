//! Bounds compared with the real cost of packets.

use crate::comparison::ModuleBuild;
use crate::corpus::CorpusModule as Member;
use crate::criterion::{self, Criterion};
use crate::error::{Context, LabError};
use crate::fuel_meter::FuelCounter;
use crate::module::Module;
use crate::packets::{BLOCK_BATCHES, Packets, copies};
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

/// The promised limits of bound ÷ worst fuel: the median and the maximum over the shipped modules.
const MEDIAN: f64 = 2.0;
const WORST: f64 = 3.0;

/// Packets of the capture that a search starts with.
const RECORDED: usize = 2000;
/// Measurements of each packet. The shortest counts, as other programs can only slow one down.
const TIMED: usize = 5;

/// The packets of a capture that a search starts with.
pub fn recorded(capture: &Path) -> Result<Vec<Vec<u8>>, LabError> {
    Ok(copies(capture, RECORDED)?.into_iter().map(|(packet, _)| packet).collect())
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
    let calibration = calibrated()?;
    let empty = slow(&Module::empty()?, trace, 0.5)?;
    let mut table = Table::new(
        "module | tier | bound, fuel | worst packet | bound ÷ worst | up to 1514 B | closest | bound at 1514 B, ns | p99.9, ns | bound ÷ p99.9",
    );
    let mut ratios = Sample::default();
    let mut packets = 0;
    for module in modules.iter().filter(|module| module.name != "empty") {
        let found = checked(module, &counter, &recorded, search_plan)?;
        packets += found.packets;
        let admitted = module.admit()?;
        let worst = found.ratio(found.worst).max(found.ratio(found.worst_on_ethernet));
        let bounded = found.bound.is_bounded();
        if bounded {
            ratios.push(worst);
        }
        let shown = |number: f64, digits: usize| {
            if bounded { format!("{number:.digits$}") } else { "–".to_owned() }
        };
        let measured = (slow(module, trace, 0.999)? - empty).max(0.0) * clock.nanos_per_cycle;
        let bound = calibration.time(found.bound.at(u64::try_from(ETHERNET).unwrap_or(0))).0 as f64;
        table.row(format_args!(
            "{} | {} | {} | {} ({} B) | {} | {} | {} | {} | {measured:.0} | {}",
            module.name,
            admitted.tier().name(),
            found.bound,
            found.worst.fuel,
            found.worst.len,
            shown(found.ratio(found.worst), 2),
            shown(found.ratio(found.worst_on_ethernet), 2),
            shown(found.ratio(found.closest), 2),
            shown(bound, 0),
            if measured >= 1.0 { shown(bound / measured, 2) } else { "–".to_owned() }
        ));
    }
    let criteria = [
        Criterion::at_most("bound ÷ worst fuel found, median of the modules", ratios.median(), MEDIAN, ""),
        Criterion::at_most("bound ÷ worst fuel found, worst of the modules", ratios.max(), WORST, ""),
    ];
    Ok(format!(
        "{}\n{packets} packets were tried, and none used more than its bound. By `weir calibrate`: {calibration}.\n\n{table}",
        criterion::table(&criteria)
    ))
}

/// The calibration of this machine by `weir calibrate`.
fn calibrated() -> Result<Calibration, LabError> {
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

/// A summary of the same for the modules of the corpus that have a bound.
pub fn corpus(members: &[&Member], sample: &Path, search_plan: Search) -> Result<String, LabError> {
    let counter = FuelCounter::new()?;
    let recorded = recorded(sample)?;
    let mut ratios = Sample::default();
    let mut packets = 0;
    let mut far = Vec::new();
    for member in members {
        let found = checked(&member.module, &counter, &recorded, search_plan)?;
        packets += found.packets;
        let ratio = found.ratio(found.worst).max(found.ratio(found.worst_on_ethernet));
        ratios.push(ratio);
        if ratio > WORST {
            far.push((ratio, member.to_string()));
        }
    }
    far.sort_by(|a, b| b.0.total_cmp(&a.0));
    let q = ratios.quartiles();
    let mut text = format!(
        "Of the corpus, the {} modules with a bound: bound ÷ worst fuel found {:.2} in the median, quartiles {:.2}–{:.2}, at most {:.2}; {packets} \
         packets were tried, and none used more than its bound.\n",
        members.len(),
        q.median,
        q.lower,
        q.upper,
        ratios.max()
    );
    if !far.is_empty() {
        let list: Vec<String> =
            far.iter().take(12).map(|(ratio, name)| format!("{name} {ratio:.1}")).collect();
        _ = writeln!(text, "\n{} of them are above {WORST}; the furthest: {}.", far.len(), list.join(", "));
    }
    Ok(text)
}

/// Searches, and fails if a packet exceeds its bound.
fn checked(
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

/// A quantile of the cycles per packet of a trace, each packet in a separate call, without run-time checks.
fn slow(module: &Module, trace: &Packets, part: f64) -> Result<f64, LabError> {
    let engine = Engine::new(
        EngineOptions { check_mode: CheckMode::As(Tier::Proved), ..EngineOptions::default() },
        None,
    )?;
    let mut least: Vec<u64> = Vec::new();
    let mut build = Sandboxed::start(&engine, module, trace)?;
    for pass in 0..=TIMED {
        let ticks = crate::packets::ticks(trace.batches(), module.admit()?.tick());
        let mut ticks = ticks.iter().peekable();
        let mut place = 0;
        for (index, ready) in trace.batches().iter().enumerate() {
            if index.is_multiple_of(BLOCK_BATCHES) {
                trace.show(index / BLOCK_BATCHES)?;
            }
            for packet in (0..weir_abi::BATCH_PACKETS).filter(|packet| ready.batch.mask >> packet & 1 == 1) {
                let one = BatchInput { mask: 1 << packet, ..ready.batch };
                let begin = Cycles::now();
                build.run(one);
                let taken = Cycles::now().since(begin).0;
                // The first pass has the page faults of the module's memory.
                match least.get_mut(place) {
                    Some(least) if pass > 0 => *least = taken.min(*least),
                    Some(_) => {}
                    None => least.push(u64::MAX),
                }
                place += 1;
            }
            while let Some(tick) = ticks.next_if(|tick| tick.before <= index + 1) {
                build.tick(*tick);
            }
            build.take(weir_session::Records::default());
        }
    }
    least.sort_unstable();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in a list")]
    let place = ((least.len().saturating_sub(1)) as f64 * part) as usize;
    Ok(least.get(place).copied().unwrap_or(0) as f64)
}
