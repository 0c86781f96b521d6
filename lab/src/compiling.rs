//! Ways of compiling modules other than the one that weir uses.

use crate::contest::{Effort, Entry, contest};
use crate::error::LabError;
use crate::module::{Class, Module};
use crate::packets::{Packets, ticks};
use crate::place;
use crate::sandboxed::Sandboxed;
use crate::statistics::Sample;
use crate::table::Table;
use std::path::Path;
use weir_admission::Tier;
use weir_sandbox::{Compiling, Control, Engine, EngineOptions};

/// The name of a way in the table.
const fn name(compiling: Compiling) -> &'static str {
    match compiling {
        Compiling::WithoutHints => "no branch hints",
        Compiling::WithoutInlining => "no inlining",
        Compiling::SmallToo => "speed and size",
        Compiling::NotOptimised => "not optimised",
        Compiling::OnePassRegisters => "registers in one pass",
        Compiling::Aligned => "functions at 64 bytes",
    }
}

/// The time of each module in each way, divided by the time in the way that weir uses, and the medians over the modules.
pub fn table(modules: &[Module], trace: &Path, cached: usize, rounds: usize) -> Result<String, LabError> {
    let packets = Packets::read(trace, cached)?;
    let engine = |compiling, tier| {
        Engine::new(EngineOptions { control: Control::As(tier), compiling, ..EngineOptions::default() }, None)
    };
    let mut engines = vec![("kept", engine(None, Tier::Proved)?)];
    for compiling in Compiling::ALL {
        // Branch hints belong to checks, so the meter shows them.
        let tier = if compiling == Compiling::WithoutHints { Tier::Metered } else { Tier::Proved };
        if tier == Tier::Metered {
            engines.push(("metered", engine(None, tier)?));
        }
        engines.push((name(compiling), engine(Some(compiling), tier)?));
    }
    let names: Vec<&str> = engines.iter().map(|(name, _)| *name).collect();
    let mut table = Table::new(format_args!("module | {}", names.join(" | ")));
    let mut all = vec![Sample::default(); engines.len()];
    for module in modules.iter().filter(|module| module.class != Class::Empty) {
        let mut entries = Vec::new();
        for (name, engine) in &engines {
            let build = Box::new(Sandboxed::start(engine, module, &packets)?);
            entries.push(Entry::new(*name, module, &packets, build));
        }
        let ticks = ticks(packets.batches(), module.admit()?.tick());
        let effort = Effort { rounds, warm: true, passes: 4 };
        contest(&module.name, &mut entries, packets.batches(), &ticks, effort)?;
        let kept = entries.first().map(|entry| entry.nanos.clone()).unwrap_or_default();
        let mut row = format!("{} | {:.2} ns", module.name, kept.median());
        for (entry, all) in entries.iter().zip(&mut all).skip(1) {
            let ratio = entry.nanos.over(&kept).median();
            all.push(ratio);
            row += &format!(" | ×{ratio:.2}");
        }
        table.row(row);
    }
    let medians: Vec<String> = all.iter().skip(1).map(|ratios| format!("×{:.2}", ratios.median())).collect();
    table.row(format_args!("median | | {}", medians.join(" | ")));
    Ok(format!(
        "{cached} packets of `{}`, in the processor's cache; medians of {rounds} rounds.\n\n{table}",
        place::shown(trace)
    ))
}
