//! What share of the corpus gets a bound, and why the rest does not.

use crate::BenchError;
use crate::corpus::{Corpus, Sample};
use crate::table::Table;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use weir_author::{Lang, Level};
use weir_bounds::EntryBound;
use weir_session::{Admitted, Tier};

/// What admission says about a module of the corpus.
struct Found {
    tier: Tier,
    /// The bound of the packet function, where it has one.
    packet: String,
    /// Why there is no bound, in short and in full.
    reason: Option<(String, String)>,
}

/// The tables: shares by language and level, each source at each level, and each reason.
///
/// # Errors
/// Where a module of the corpus is not admitted.
pub fn tables(corpus: &Corpus, levels: &[Level]) -> Result<String, BenchError> {
    let mut found = BTreeMap::new();
    for sample in &corpus.samples {
        let admitted = sample.module.admit()?;
        found.insert((sample.lang == Lang::Rust, sample.shape.as_str(), sample.level), of(&admitted));
    }
    let mut text = String::new();
    for skipped in &corpus.skipped {
        _ = writeln!(text, "Not built here: {skipped}\n");
    }
    _ = writeln!(text, "{}\n{}", shares(&found, levels), each(&found, levels));
    let reasons = reasons(&found);
    if !reasons.is_empty() {
        _ = writeln!(text, "What has no bound, and what its author is told:\n\n{reasons}");
    }
    Ok(text)
}

type All<'a> = BTreeMap<(bool, &'a str, Level), Found>;

fn of(admitted: &Admitted) -> Found {
    let analysis = admitted.analysis();
    let reasons = analysis.entries.iter().flat_map(|entry| &entry.unbounded);
    let reason = reasons.clone().next().map(|reason| {
        // The place is of no use here: the corpus is compiled without lines.
        (short(&format!("{:?}", reason.why)), reason.why.to_string())
    });
    let packet = analysis.entry(weir_bounds::EntryPoint::Packet).filter(|entry| entry.is_bounded());
    let bound = |entry: &EntryBound| entry.usage.fuel.to_string();
    Found { tier: admitted.tier(), packet: packet.map_or_else(String::new, bound), reason }
}

/// The name of a variant without what it holds.
fn short(debug: &str) -> String {
    debug.split(['(', ' ']).next().unwrap_or_default().to_owned()
}

/// Whether a module is called bounded: every entry point is.
fn is_bounded(found: &Found) -> bool {
    found.reason.is_none() && !found.packet.is_empty()
}

fn shares(all: &All<'_>, levels: &[Level]) -> Table {
    let names: Vec<String> = levels.iter().map(|level| format!("-O{}", level.name())).collect();
    let mut head = vec!["language", "functions"];
    head.extend(names.iter().map(String::as_str));
    head.push("all");
    let mut table = Table::new(&head);
    for (name, langs) in [("C", &[false][..]), ("Rust", &[true]), ("both", &[false, true])] {
        let of = |level: Option<Level>| -> Vec<&Found> {
            let wanted = |(rust, _, found): &(bool, &str, Level)| {
                langs.contains(rust) && level.is_none_or(|level| level == *found)
            };
            all.iter().filter(|(key, _)| wanted(key)).map(|(_, found)| found).collect()
        };
        let share = |found: &[&Found]| {
            let bounded = found.iter().filter(|found| is_bounded(found)).count();
            format!("{bounded}/{} ({} %)", found.len(), (100 * bounded) / found.len().max(1))
        };
        if of(None).is_empty() {
            continue;
        }
        let mut row = vec![name.to_owned(), (of(None).len() / levels.len().max(1)).to_string()];
        row.extend(levels.iter().map(|level| share(&of(Some(*level)))));
        row.push(share(&of(None)));
        table.row(row);
    }
    table
}

fn each(all: &All<'_>, levels: &[Level]) -> Table {
    let names: Vec<String> = levels.iter().map(|level| format!("-O{}", level.name())).collect();
    let mut head = vec!["function", "language"];
    head.extend(names.iter().map(String::as_str));
    head.push("bound at -O3");
    let mut table = Table::new(&head);
    let mut shapes: Vec<(bool, &str)> = all.keys().map(|(rust, shape, _)| (*rust, *shape)).collect();
    shapes.dedup();
    for (rust, shape) in shapes {
        let found = |level| all.get(&(rust, shape, level));
        let mut row = vec![shape.replace('_', " "), if rust { "Rust" } else { "C" }.to_owned()];
        row.extend(levels.iter().map(|level| match found(*level) {
            Some(found) if is_bounded(found) => found.tier.name().to_owned(),
            Some(Found { reason: Some((short, _)), .. }) => format!("no: {short}"),
            _ => "no".to_owned(),
        }));
        row.push(found(Level::Three).map_or_else(String::new, |found| found.packet.clone()));
        table.row(row);
    }
    table
}

/// Each reason with how many modules it was given for.
fn reasons(all: &All<'_>) -> String {
    let mut counts: BTreeMap<&(String, String), usize> = BTreeMap::new();
    for reason in all.values().filter_map(|found| found.reason.as_ref()) {
        *counts.entry(reason).or_default() += 1;
    }
    counts.iter().map(|((short, full), count)| format!("- {short}, {count} times: {full}\n")).collect()
}

/// The samples of the corpus that are bounded, with their modules.
///
/// # Errors
/// Where one is not admitted.
pub fn bounded(corpus: &Corpus) -> Result<Vec<&Sample>, BenchError> {
    let mut bounded = Vec::new();
    for sample in &corpus.samples {
        if is_bounded(&of(&sample.module.admit()?)) {
            bounded.push(sample);
        }
    }
    Ok(bounded)
}
