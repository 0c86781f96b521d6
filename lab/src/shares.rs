//! The share of the corpus that gets a bound, and the reasons why the rest does not.

use crate::corpus::{Corpus, CorpusModule};
use crate::error::LabError;
use crate::table::Table;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use weir_admission::{Admitted, Tier};
use weir_author::{ModuleLanguage, OptLevel};
use weir_bounds::EntryBound;

/// The result of admission for a module of the corpus.
struct Admission {
    tier: Tier,
    /// The bound of the packet function, where it has one.
    packet: String,
    /// The reason for a missing bound, in short and in full.
    reason: Option<(String, String)>,
}

/// The tables: shares by language and level, the result of each source at each level, and the reasons.
pub fn tables(corpus: &Corpus, levels: &[OptLevel]) -> Result<String, LabError> {
    let mut found = BTreeMap::new();
    for sample in &corpus.samples {
        let admitted = sample.module.admit()?;
        found.insert(
            (sample.lang == ModuleLanguage::Rust, sample.shape.as_str(), sample.level),
            inspect(&admitted),
        );
    }
    let mut text = String::new();
    for skipped in &corpus.skipped {
        _ = writeln!(text, "Not built here: {skipped}\n");
    }
    _ = writeln!(text, "{}\n{}", shares(&found, levels), each(&found, levels));
    let reasons = reasons(&found);
    if !reasons.is_empty() {
        _ = writeln!(text, "The reasons for missing bounds, as shown to a module's author:\n\n{reasons}");
    }
    Ok(text)
}

type Admissions<'a> = BTreeMap<(bool, &'a str, OptLevel), Admission>;

fn inspect(admitted: &Admitted) -> Admission {
    let analysis = admitted.analysis();
    let reasons = analysis.entries.iter().flat_map(|entry| &entry.unbounded);
    let reason = reasons.clone().next().map(|reason| {
        // Without the source line: the corpus is compiled without debug information.
        (short(&format!("{:?}", reason.cause)), reason.cause.to_string())
    });
    let packet = analysis.entry(weir_bounds::EntryPoint::Packet).filter(|entry| entry.is_bounded());
    let bound = |entry: &EntryBound| entry.usage.fuel.to_string();
    Admission { tier: admitted.tier(), packet: packet.map_or_else(String::new, bound), reason }
}

/// The name of an enum variant without its fields.
fn short(debug: &str) -> String {
    debug.split(['(', ' ']).next().unwrap_or_default().to_owned()
}

/// Returns true if every entry point has a bound.
fn is_bounded(found: &Admission) -> bool {
    found.reason.is_none() && !found.packet.is_empty()
}

/// The names of levels as table cells.
fn names(levels: &[OptLevel]) -> String {
    levels.iter().map(|level| format!("-O{}", level.name())).collect::<Vec<_>>().join(" | ")
}

fn shares(all: &Admissions<'_>, levels: &[OptLevel]) -> Table {
    let mut table = Table::new(format_args!("language | functions | {} | all", names(levels)));
    for (name, langs) in [("C", &[false][..]), ("Rust", &[true]), ("both", &[false, true])] {
        let of = |level: Option<OptLevel>| -> Vec<&Admission> {
            let wanted = |(rust, _, found): &(bool, &str, OptLevel)| {
                langs.contains(rust) && level.is_none_or(|level| level == *found)
            };
            all.iter().filter(|(key, _)| wanted(key)).map(|(_, found)| found).collect()
        };
        let share = |found: &[&Admission]| {
            let bounded = found.iter().filter(|found| is_bounded(found)).count();
            format!("{bounded}/{} ({} %)", found.len(), (100 * bounded) / found.len().max(1))
        };
        if of(None).is_empty() {
            continue;
        }
        let mut row = vec![name.to_owned(), (of(None).len() / levels.len().max(1)).to_string()];
        row.extend(levels.iter().map(|level| share(&of(Some(*level)))));
        row.push(share(&of(None)));
        table.row(row.join(" | "));
    }
    table
}

fn each(all: &Admissions<'_>, levels: &[OptLevel]) -> Table {
    let mut table = Table::new(format_args!("function | language | {} | bound at -O3", names(levels)));
    let mut shapes: Vec<(bool, &str)> = all.keys().map(|(rust, shape, _)| (*rust, *shape)).collect();
    shapes.dedup();
    for (rust, shape) in shapes {
        let found = |level| all.get(&(rust, shape, level));
        let mut row = vec![shape.replace('_', " "), if rust { "Rust" } else { "C" }.to_owned()];
        row.extend(levels.iter().map(|level| match found(*level) {
            Some(found) if is_bounded(found) => found.tier.name().to_owned(),
            Some(Admission { reason: Some((short, _)), .. }) => format!("no: {short}"),
            _ => "no".to_owned(),
        }));
        row.push(found(OptLevel::Three).map_or_else(String::new, |found| found.packet.clone()));
        table.row(row.join(" | "));
    }
    table
}

/// Each reason, with the number of modules.
fn reasons(all: &Admissions<'_>) -> String {
    let mut counts: BTreeMap<&(String, String), usize> = BTreeMap::new();
    for reason in all.values().filter_map(|found| found.reason.as_ref()) {
        *counts.entry(reason).or_default() += 1;
    }
    counts.iter().map(|((short, full), count)| format!("- {short}, {count} times: {full}\n")).collect()
}

/// The samples of the corpus that are bounded, with their modules.
pub fn bounded(corpus: &Corpus) -> Result<Vec<&CorpusModule>, LabError> {
    let mut bounded = Vec::new();
    for sample in &corpus.samples {
        if is_bounded(&inspect(&sample.module.admit()?)) {
            bounded.push(sample);
        }
    }
    Ok(bounded)
}
