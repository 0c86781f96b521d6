//! The soundness oracle: a running module never uses more than the bound of the analysis.
//!
//! [`plain`] runs the module unchanged and counts by wasmtime's own fuel, which shares nothing with weir's cost
//! table.

#![allow(dead_code, reason = "each user of the oracle uses a part")]

pub mod exact;
#[path = "../../../../core/bounds/tests/generate/mod.rs"]
pub mod generate;
pub mod plain;
pub mod space;

use plain::{Given as Answer, Plain, Used};
use std::fmt;
use weir_bounds::{Analysis, CostTable, EntryPoint, Environment, ParamBound, ParsedModule, analyse};

/// The environment that all generated modules are analysed with: the parameters' values, as in their manifest.
pub fn environment() -> Environment {
    Environment {
        parameters: vec![
            ParamBound::Int { min: 9, max: 9 },
            ParamBound::Bytes { min: 3, max: 3 },
            ParamBound::Float,
            ParamBound::Int { min: 4_294_967_299, max: 4_294_967_299 },
        ],
        string_bytes: vec![0, 4096],
        packet_max: 16 << 20,
        pages_max: 16,
    }
}

/// A module that exceeded its bound.
#[derive(Debug)]
pub struct Violation {
    pub entry: EntryPoint,
    pub what: &'static str,
    pub used: u64,
    pub bound: u64,
    pub packet_bytes: u64,
    /// True if the call ended because no fuel was left.
    pub exhausted: bool,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entry, what, used, bound, packet_bytes, .. } = self;
        write!(
            f,
            "{entry}: used {used} of {what}, and the bound is {bound} for a packet of {packet_bytes} bytes"
        )
    }
}

/// Counts of the tested modules and calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Modules that were run.
    pub modules: u64,
    /// Entry points of them.
    pub entries: u64,
    /// Those with a bound.
    pub bounded: u64,
    /// Calls of entry points.
    pub calls: u64,
    /// Calls that ended in a trap.
    pub traps: u64,
    /// Calls that used at least half of the bound.
    pub tight: u64,
    /// Calls without a bound that used up all the fuel that there was.
    pub exhausted: u64,
}

impl Tally {
    pub fn add(&mut self, other: Self) {
        self.modules += other.modules;
        self.entries += other.entries;
        self.bounded += other.bounded;
        self.calls += other.calls;
        self.traps += other.traps;
        self.tight += other.tight;
        self.exhausted += other.exhausted;
    }
}

/// Fuel after which a call is ended: far above most bounds, and no more than a millisecond.
pub const FUEL: u64 = 400_000;

/// The engines that run modules.
pub struct Oracle {
    plain: Plain,
    without_bulk: Plain,
}

impl Oracle {
    pub fn new() -> Self {
        Self { plain: Plain::new(true), without_bulk: Plain::new(false) }
    }

    /// Runs a valid module on packets of all lengths. `choices` seeds the packets and the host's results.
    ///
    /// # Errors
    /// The call that exceeded its bound.
    pub fn check(&self, module: &[u8], choices: u64) -> Result<Tally, Violation> {
        match check(&self.plain, module, choices) {
            // A bulk instruction with an impossible length is charged and then traps without effect. That is no work.
            Err(violation) if violation.exhausted => check(&self.without_bulk, module, choices),
            outcome => outcome,
        }
    }
}

fn check(plain: &Plain, module: &[u8], choices: u64) -> Result<Tally, Violation> {
    let parsed = ParsedModule::parse(module.to_vec());
    let analysis = parsed.and_then(|parsed| analyse(&parsed, &environment(), &CostTable::unit()));
    let analysis = analysis.unwrap_or_else(|error| panic!("{error}"));
    let mut tally = Tally { modules: 1, ..Tally::default() };
    tally.entries = analysis.entries.len() as u64;
    tally.bounded = analysis.entries.iter().filter(|entry| entry.is_bounded()).count() as u64;
    let answer = Answer { seed: choices };
    let Some(module) = plain.compile(module) else { return Ok(tally) };
    let Some(mut running) = plain.start(&module, answer) else { return Ok(tally) };
    for entry in [EntryPoint::StartFunction, EntryPoint::Initialize, EntryPoint::Start] {
        if let Some(used) = running.call(entry, 0) {
            compare(&analysis, entry, 0, &used, &mut tally)?;
            if used.trapped {
                return Ok(tally);
            }
        }
    }
    for packet in 0..plain::PACKETS {
        for entry in [EntryPoint::Packet, EntryPoint::Batch, EntryPoint::Tick] {
            let Some(used) = running.call(entry, packet) else { continue };
            let bytes = if entry == EntryPoint::Tick { 0 } else { used.packet_bytes };
            compare(&analysis, entry, bytes, &used, &mut tally)?;
            if used.trapped {
                // weir repairs the state after a trap; here the module is instantiated again.
                let Some(fresh) = plain.start(&module, answer) else { return Ok(tally) };
                running = fresh;
            }
        }
    }
    use EntryPoint as E;
    for entry in [E::LowMemory, E::Serve, E::Answer, E::Lost, E::Stop] {
        if let Some(used) = running.call(entry, 0) {
            compare(&analysis, entry, 0, &used, &mut tally)?;
            if used.trapped {
                break;
            }
        }
    }
    Ok(tally)
}

fn compare(
    analysis: &Analysis,
    entry: EntryPoint,
    packet_bytes: u64,
    used: &Used,
    tally: &mut Tally,
) -> Result<(), Violation> {
    tally.calls += 1;
    tally.traps += u64::from(used.trapped);
    let Some(found) = analysis.entry(entry) else {
        let what = "an entry point that was not analysed";
        return Err(Violation { entry, what, used: 1, bound: 0, packet_bytes, exhausted: false });
    };
    let bound = found.usage.fuel.at(packet_bytes);
    tally.exhausted += u64::from(used.exhausted && bound == u64::MAX);
    tally.tight += u64::from(used.fuel >= bound / 2);
    // wasmtime counts one unit for each function that begins. For called functions the unit table has that in the
    // call.
    let amounts = [
        ("fuel", used.fuel, bound.saturating_add(1)),
        ("records", used.records, found.usage.records.at(packet_bytes)),
        ("patches", used.patches, found.usage.patches.at(packet_bytes)),
        ("frames", used.frames, found.usage.frames.at(packet_bytes)),
        ("pages", used.pages, found.usage.pages.at(packet_bytes)),
    ];
    let exhausted = used.exhausted;
    for (what, used, bound) in amounts {
        if used > bound && found.is_bounded() {
            return Err(Violation { entry, what, used, bound, packet_bytes, exhausted });
        }
    }
    Ok(())
}

/// The smallest input that a few thousand attempts find for which `fails` still holds.
pub fn smallest(input: &[u8], mut fails: impl FnMut(&[u8]) -> bool) -> Vec<u8> {
    let mut best = input.to_vec();
    let mut size = best.len() / 2;
    while size > 0 {
        let mut at = 0;
        while at < best.len() {
            let end = (at + size).min(best.len());
            let without = [&best[..at], &best[end..]].concat();
            let mut zeroed = best.clone();
            zeroed[at..end].fill(0);
            if fails(&without) {
                best = without;
            } else if zeroed != best && fails(&zeroed) {
                best = zeroed;
                at = end;
            } else {
                at = end;
            }
        }
        size /= 2;
    }
    best
}
