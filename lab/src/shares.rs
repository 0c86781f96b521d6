//! The share of the corpus that gets a bound, and the reasons why the rest gets none. The part `corpus` of the benchmark.

use crate::corpus::{Corpus, CorpusModule};
use crate::error::LabError;
use crate::table::Table;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use weir_admission::{Admitted, Tier};
use weir_author::{ModuleLanguage, OptLevel};
use weir_bounds::EntryBound;

/// The result of the admission of a module of the corpus.
struct Admission {
    tier: Tier,
    /// The bound of the packet function, as text; empty if it has none.
    packet_bound: String,
    /// The reason for a missing bound: the name of the cause, and the full text.
    reason: Option<(String, String)>,
}

/// The tables: shares by language and level, the result of each source at each level, and the reasons.
pub fn tables(corpus: &Corpus, levels: &[OptLevel]) -> Result<String, LabError> {
    let mut admissions = BTreeMap::new();
    for module in &corpus.modules {
        let admitted = module.module.admit()?;
        admissions.insert(
            (module.lang == ModuleLanguage::Rust, module.source.as_str(), module.level),
            inspect(&admitted),
        );
    }
    let mut text = String::new();
    for skipped in &corpus.skipped {
        _ = writeln!(text, "Not built here: {skipped}\n");
    }
    _ = writeln!(text, "{}\n{}", shares(&admissions, levels), results(&admissions, levels));
    let reasons = reasons(&admissions);
    if !reasons.is_empty() {
        _ = writeln!(text, "The reasons for missing bounds, as shown to a module's author:\n\n{reasons}");
    }
    Ok(text)
}

/// The admissions by language (true for Rust), source, and optimisation level.
type Admissions<'a> = BTreeMap<(bool, &'a str, OptLevel), Admission>;

/// Extracts the result of an admission.
fn inspect(admitted: &Admitted) -> Admission {
    let analysis = admitted.analysis();
    let reasons = analysis.entries.iter().flat_map(|entry| &entry.unbounded);
    let reason = reasons.clone().next().map(|reason| {
        // Without the source line: the corpus is compiled without debug information.
        (variant_name(&format!("{:?}", reason.cause)), reason.cause.to_string())
    });
    let packet = analysis.entry(weir_bounds::EntryPoint::Packet).filter(|entry| entry.is_bounded());
    let bound = |entry: &EntryBound| entry.usage.fuel.to_string();
    Admission { tier: admitted.tier(), packet_bound: packet.map_or_else(String::new, bound), reason }
}

/// The name of an enum variant without its fields, from its `Debug` text.
fn variant_name(debug: &str) -> String {
    debug.split(['(', ' ']).next().unwrap_or_default().to_owned()
}

/// Returns true if every entry point has a bound.
fn is_bounded(admission: &Admission) -> bool {
    admission.reason.is_none() && !admission.packet_bound.is_empty()
}

/// The names of levels as table cells.
fn names(levels: &[OptLevel]) -> String {
    levels.iter().map(|level| format!("-O{}", level.name())).collect::<Vec<_>>().join(" | ")
}

/// The table of shares by language and level.
fn shares(all: &Admissions<'_>, levels: &[OptLevel]) -> Table {
    let mut table = Table::new(format_args!("language | functions | {} | all", names(levels)));
    for (name, langs) in [("C", &[false][..]), ("Rust", &[true]), ("both", &[false, true])] {
        let of_level = |level: Option<OptLevel>| -> Vec<&Admission> {
            let is_counted = |(rust, _, found): &(bool, &str, OptLevel)| {
                langs.contains(rust) && level.is_none_or(|level| level == *found)
            };
            all.iter().filter(|(key, _)| is_counted(key)).map(|(_, found)| found).collect()
        };
        let share = |found: &[&Admission]| {
            let bounded = found.iter().filter(|found| is_bounded(found)).count();
            format!("{bounded}/{} ({} %)", found.len(), (100 * bounded) / found.len().max(1))
        };
        if of_level(None).is_empty() {
            continue;
        }
        let mut row = vec![name.to_owned(), (of_level(None).len() / levels.len().max(1)).to_string()];
        row.extend(levels.iter().map(|level| share(&of_level(Some(*level)))));
        row.push(share(&of_level(None)));
        table.row(row.join(" | "));
    }
    table
}

/// The table of the result of each source at each level.
fn results(all: &Admissions<'_>, levels: &[OptLevel]) -> Table {
    let mut table = Table::new(format_args!("function | language | {} | bound at -O3", names(levels)));
    let mut sources: Vec<(bool, &str)> = all.keys().map(|(rust, source, _)| (*rust, *source)).collect();
    sources.dedup();
    for (rust, source) in sources {
        let found = |level| all.get(&(rust, source, level));
        let mut row = vec![source.replace('_', " "), if rust { "Rust" } else { "C" }.to_owned()];
        row.extend(levels.iter().map(|level| match found(*level) {
            Some(found) if is_bounded(found) => found.tier.name().to_owned(),
            Some(Admission { reason: Some((short, _)), .. }) => format!("no: {short}"),
            _ => "no".to_owned(),
        }));
        row.push(found(OptLevel::Three).map_or_else(String::new, |found| found.packet_bound.clone()));
        table.row(row.join(" | "));
    }
    table
}

/// The list of the reasons, each with the number of modules.
fn reasons(all: &Admissions<'_>) -> String {
    let mut counts: BTreeMap<&(String, String), usize> = BTreeMap::new();
    for reason in all.values().filter_map(|found| found.reason.as_ref()) {
        *counts.entry(reason).or_default() += 1;
    }
    counts.iter().map(|((short, full), count)| format!("- {short}, {count} times: {full}\n")).collect()
}

/// The modules of the corpus that have a bound for every entry point.
pub fn bounded(corpus: &Corpus) -> Result<Vec<&CorpusModule>, LabError> {
    let mut bounded = Vec::new();
    for module in &corpus.modules {
        if is_bounded(&inspect(&module.module.admit()?)) {
            bounded.push(module);
        }
    }
    Ok(bounded)
}
