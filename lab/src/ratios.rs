//! How far bounds are from what packets can really cost.

use crate::BenchError;
use crate::contest::Contestant;
use crate::corpus::Sample as Member;
use crate::gauge::Counter;
use crate::module::Module;
use crate::packets::{BLOCK_BATCHES, Packets};
use crate::place;
use crate::sandboxed::Sandboxed;
use crate::statistics::Sample;
use crate::table::{Table, yes_or_no};
use crate::worst::{ETHERNET, Found, Search, search};
use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use weir_netio::{Capture, Input, Next};
use weir_sandbox::{Batch, Control, Cycles, Engine, Options};
use weir_session::{Calibration, Tier};

/// Promises: bound / worst fuel, of the shipped modules.
const MEDIAN: f64 = 2.0;
const WORST: f64 = 3.0;

/// Packets of a capture from which a search begins.
const RECORDED: usize = 2000;
/// Times that each packet is timed; the shortest counts, because others disturb and never make one faster.
const TIMED: usize = 5;

/// The packets that a search begins with.
///
/// # Errors
/// Where the capture cannot be read.
pub fn recorded(capture: &Path) -> Result<Vec<Vec<u8>>, BenchError> {
    let mut reader = Capture::open(Input::File(capture.to_owned()))?;
    let mut packets = Vec::new();
    while let Next::Block(block) = reader.next_block()? {
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
///
/// # Errors
/// Where a module cannot be run; [`BenchError::Bound`] where a packet used more than its bound.
pub fn shipped(
    modules: &[Module],
    sample: &Path,
    trace: &Packets,
    how: Search,
) -> Result<String, BenchError> {
    let counter = Counter::new()?;
    let recorded = recorded(sample)?;
    let clock = crate::contest::Clock::calibrate();
    let calibration = calibrated()?;
    let empty = slow(&Module::empty()?, trace, 0.5)?;
    let mut table = Table::new(&[
        "module",
        "tier",
        "bound, fuel",
        "worst packet",
        "bound ÷ worst",
        "up to 1514 B",
        "closest",
        "bound at 1514 B, ns",
        "p99.9, ns",
        "bound ÷ p99.9",
    ]);
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
        let ratio = |ratio: f64| if bounded { format!("{ratio:.2}") } else { "–".to_owned() };
        let measured = (slow(module, trace, 0.999)? - empty).max(0.0) * clock.nanos_per_cycle;
        let bound = calibration.time(found.bound.at(u64::try_from(ETHERNET).unwrap_or(0)));
        #[expect(clippy::cast_precision_loss, reason = "for people to read")]
        let bound = bound.0 as f64;
        table.row([
            module.name.clone(),
            admitted.tier().name().to_owned(),
            found.bound.to_string(),
            format!("{} ({} B)", found.worst.fuel, found.worst.len),
            ratio(found.ratio(found.worst)),
            ratio(found.ratio(found.worst_on_ethernet)),
            ratio(found.ratio(found.closest)),
            if bounded { format!("{bound:.0}") } else { "–".to_owned() },
            format!("{measured:.0}"),
            if measured >= 1.0 { ratio(bound / measured) } else { "–".to_owned() },
        ]);
    }
    let q = ratios.quartiles();
    let most = ratios.most();
    let mut promises = Table::new(&["bound ÷ worst fuel found", "at most", "measured", "kept"]);
    promises.row([
        "median of the modules".into(),
        format!("{MEDIAN}"),
        format!("{:.2}", q.median),
        yes_or_no(q.median <= MEDIAN),
    ]);
    promises.row([
        "worst of the modules".into(),
        format!("{WORST}"),
        format!("{most:.2}"),
        yes_or_no(most <= WORST),
    ]);
    Ok(format!(
        "{promises}\n{packets} packets were tried, and none used more than its bound. By `weir calibrate`: {calibration}.\n\n{table}"
    ))
}

/// What `weir calibrate` says of this machine, now.
fn calibrated() -> Result<Calibration, BenchError> {
    let program = place::built()?;
    let failed = |source| BenchError::Program { program: program.display().to_string(), source };
    let state = tempfile::tempdir().map_err(failed)?;
    let status = Command::new(&program)
        .args(["calibrate", "--quiet"])
        .env("XDG_STATE_HOME", state.path())
        .stdout(Stdio::null())
        .status()
        .map_err(failed)?;
    if !status.success() {
        return Err(failed(io::Error::other(format!("`weir calibrate` ended with {status}"))));
    }
    let text = std::fs::read_to_string(state.path().join("weir/calibration.toml")).map_err(failed)?;
    Calibration::parse(&text).map_err(|error| failed(io::Error::other(error)))
}

/// The same for the functions of the corpus that have a bound, in a few lines.
///
/// # Errors
/// As [`shipped`].
pub fn corpus(members: &[&Member], sample: &Path, how: Search) -> Result<String, BenchError> {
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
) -> Result<Found, BenchError> {
    let found = search(module, &counter.load(module)?, recorded, how)?;
    match &found.over {
        None => Ok(found),
        Some((cost, packet)) => Err(BenchError::Bound {
            module: module.name.clone(),
            fuel: cost.fuel,
            bound: found.bound.to_string(),
            packet: Box::new(packet.clone()),
        }),
    }
}

/// Cycles that the packet of a trace takes that is slower than this part of all, each in a call of its own, without checks.
fn slow(module: &Module, trace: &Packets, part: f64) -> Result<f64, BenchError> {
    let engine = Engine::new(Options { control: Control::As(Tier::Proved), ..Options::default() }, None)?;
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
                let one = Batch { mask: 1 << packet, ..ready.batch };
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
            build.take_records(weir_session::Records::default());
            build.take_patches();
        }
    }
    least.sort_unstable();
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a place in a list"
    )]
    let place = ((least.len().saturating_sub(1)) as f64 * part) as usize;
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    Ok(least.get(place).copied().unwrap_or(0) as f64)
}
