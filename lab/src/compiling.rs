//! Other ways of compiling modules than the one that is kept.

use crate::BenchError;
use crate::contest::{Effort, Entry, contest};
use crate::module::{Class, Module};
use crate::packets::{Packets, Ready, ticks};
use crate::sandboxed::Sandboxed;
use crate::statistics::Sample;
use crate::table::Table;
use weir_sandbox::{Compiling, Control, Engine, Options};
use weir_session::Tier;

/// How each way is called in the table.
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

/// The time of each module by each way, divided by that of the way that is kept; the medians over the modules last.
///
/// # Errors
/// Where a module does not run, or does something else when it is compiled in another way.
pub fn table(
    modules: &[Module],
    packets: &Packets,
    batches: &[Ready],
    effort: Effort,
) -> Result<Table, BenchError> {
    let engine = |compiling, tier| {
        Engine::new(Options { control: Control::As(tier), compiling, ..Options::default() }, None)
    };
    let mut ways = vec![("kept", engine(None, Tier::Proved)?)];
    for compiling in Compiling::ALL {
        // There are hints where there are checks; that is shown for the meter.
        let tier = if compiling == Compiling::WithoutHints { Tier::Metered } else { Tier::Proved };
        if tier == Tier::Metered {
            ways.push(("metered", engine(None, tier)?));
        }
        ways.push((name(compiling), engine(Some(compiling), tier)?));
    }
    let mut head = vec!["module"];
    head.extend(ways.iter().map(|(name, _)| *name));
    let mut table = Table::new(&head);
    let mut all = vec![Sample::default(); ways.len()];
    for module in modules.iter().filter(|module| module.class != Class::Empty) {
        let mut entries = Vec::new();
        for (name, engine) in &ways {
            entries.push(Entry::new(
                *name,
                module,
                packets,
                Box::new(Sandboxed::start(engine, module, packets)?),
            ));
        }
        let ticks = ticks(batches, module.admit()?.tick());
        contest(&module.name, &mut entries, batches, &ticks, effort)?;
        let kept = entries.first().map(|entry| entry.nanos.clone()).unwrap_or_default();
        let mut row = vec![module.name.clone(), format!("{:.2} ns", kept.median())];
        for (entry, all) in entries.iter().zip(&mut all).skip(1) {
            let ratio = entry.nanos.over(&kept).median();
            all.push(ratio);
            row.push(format!("×{ratio:.2}"));
        }
        table.row(row);
    }
    let mut row = vec!["median".to_owned(), String::new()];
    row.extend(all.iter().skip(1).map(|ratios| format!("×{:.2}", ratios.median())));
    table.row(row);
    Ok(table)
}
