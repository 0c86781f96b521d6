//! The distance of bounds from the real cost of packets.

use crate::contest::Contestant;
use crate::corpus::CorpusModule as Member;
use crate::criterion::{self, Criterion};
use crate::error::{Doing, LabError};
use crate::gauge::Counter;
use crate::module::Module;
use crate::packets::{BLOCK_BATCHES, Packets};
use crate::place;
use crate::sandboxed::Sandboxed;
use crate::statistics::Sample;
use crate::table::Table;
use crate::worst::{ETHERNET, Search, WorstOutcome, search};
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use weir_admission::{Calibration, Tier};
use weir_netio::{Capture, CaptureInput, CaptureNext};
use weir_sandbox::{BatchInput, Control, Cycles, Engine, EngineOptions};

/// Promises: bound / worst fuel, of the shipped modules.
const MEDIAN: f64 = 2.0;
const WORST: f64 = 3.0;

/// Packets of a capture from which a search begins.
const RECORDED: usize = 2000;
/// Measurements of each packet. The shortest counts, because other programs never make one faster.
const TIMED: usize = 5;

/// The packets that a search begins with.
pub fn recorded(capture: &Path) -> Result<Vec<Vec<u8>>, LabError> {
    let mut reader = Capture::open(CaptureInput::File(capture.to_owned()))?;
    let mut packets = Vec::new();
    while let CaptureNext::Block(block) = reader.next_block()? {
        for index in 0..block.len().min(RECORDED.saturating_sub(packets.len())) {
            let mut packet = Vec::new();
            block.copy_packet(index, &mut packet);
            packets.push(packet);
        }
        if packets.len() >= RECORDED {
            break;
        }
    }
    Ok(packets)
}

/// Bounds of the shipped modules beside what a search finds, and beside the time that packets of a trace take.
pub fn shipped(modules: &[Module], sample: &Path, trace: &Packets, how: Search) -> Result<String, LabError> {
    let counter = Counter::new()?;
    let recorded = recorded(sample)?;
    let clock = crate::contest::Clock::calibrate();
    let calibration = calibrated()?;
    let empty = slow(&Module::empty()?, trace, 0.5)?;
    let mut table = Table::new(
        "module | tier | bound, fuel | worst packet | bound ÷ worst | up to 1514 B | closest | bound at 1514 B, ns | p99.9, ns | bound ÷ p99.9",
    );
    let mut ratios = Sample::default();
    let mut packets = 0;
    for module in modules.iter().filter(|module| module.name != "empty") {
        let found = checked(module, &counter, &recorded, how)?;
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
        Criterion::at_most("bound ÷ worst fuel found, worst of the modules", ratios.most(), WORST, ""),
    ];
    Ok(format!(
        "{}\n{packets} packets were tried, and none used more than its bound. By `weir calibrate`: {calibration}.\n\n{table}",
        criterion::table(&criteria)
    ))
}

/// The calibration of this machine by `weir calibrate`.
fn calibrated() -> Result<Calibration, LabError> {
    const WHAT: &str = "weir calibrate";
    let state = tempfile::tempdir().doing(WHAT)?;
    let mut command = Command::new(place::built()?);
    command.args(["calibrate", "--quiet"]).env("XDG_STATE_HOME", state.path()).stdout(Stdio::null());
    let status = command.status().doing(WHAT)?;
    if !status.success() {
        return Err(LabError::failed(WHAT, status.to_string()));
    }
    let text = std::fs::read_to_string(state.path().join("weir/calibration.toml")).doing(WHAT)?;
    Calibration::parse(&text).doing(WHAT)
}

/// The same for the functions of the corpus that have a bound, in a few lines.
pub fn corpus(members: &[&Member], sample: &Path, how: Search) -> Result<String, LabError> {
    let counter = Counter::new()?;
    let recorded = recorded(sample)?;
    let mut ratios = Sample::default();
    let mut packets = 0;
    let mut far = Vec::new();
    for member in members {
        let found = checked(&member.module, &counter, &recorded, how)?;
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
        ratios.most()
    );
    if !far.is_empty() {
        let list: Vec<String> =
            far.iter().take(12).map(|(ratio, name)| format!("{name} {ratio:.1}")).collect();
        _ = writeln!(text, "\n{} of them are above {WORST}; the furthest: {}.", far.len(), list.join(", "));
    }
    Ok(text)
}

/// A search whose packets all keep to the bound.
fn checked(
    module: &Module,
    counter: &Counter,
    recorded: &[Vec<u8>],
    how: Search,
) -> Result<WorstOutcome, LabError> {
    let found = search(module, &counter.load(module)?, recorded, how)?;
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

/// A quantile of the cycles of a trace's packets, each in a call of its own, without checks.
fn slow(module: &Module, trace: &Packets, part: f64) -> Result<f64, LabError> {
    let engine =
        Engine::new(EngineOptions { control: Control::As(Tier::Proved), ..EngineOptions::default() }, None)?;
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
                // In the first pass the kernel gives the module its memory.
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
