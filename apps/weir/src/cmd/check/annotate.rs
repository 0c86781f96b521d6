//! The output of `weir check --annotate`: source lines with the cost of loops and calls. Without sources, the
//! WebAssembly text is annotated.

use super::CheckResults;
use super::paint::{Paint, TextStyle, plain_line, wrapped};
use super::source::Sources;
use super::table::{share, style_of_share};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use weir_admission::escaped;
use weir_bounds::{CodeLocation, Linear};

/// Number of lines shown before and after an annotated line.
const CONTEXT_LINES: usize = 3;
/// The heading of the column with the trip count of a loop or the called function.
const TIMES_HEADING: &str = "TIMES OR CALL";
/// Maximum number of characters shown of a called function's name.
const CALLEE_CHARS_MAX: usize = 24;
/// Maximum number of columns shown of a source line.
const SOURCE_COLUMNS_MAX: usize = 88;
/// Maximum size of a module that is printed as WebAssembly text. The text is many times larger than the module.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// An annotation of a source line: a loop, a call, or another part of the code without a bound.
#[derive(Debug)]
struct Note<'a> {
    place: &'a CodeLocation,
    /// The trip count of a loop, or the called function.
    times_or_callee: String,
    /// The cost of the whole loop or of one call.
    fuel: Linear,
    /// The share of this cost in the cost of a packet.
    share: Option<f64>,
    /// The reason why the annotated code has no bound.
    unbounded_reason: Option<String>,
}

impl Note<'_> {
    fn style(&self) -> TextStyle {
        if self.unbounded_reason.is_some() || !self.fuel.is_bounded() {
            TextStyle::Bad
        } else {
            style_of_share(self.share)
        }
    }
}

/// A line of a source file or of the WebAssembly text, with its line number or byte offset, and its annotations.
struct Line<'a, 'b> {
    number: String,
    text: String,
    notes: Vec<&'b Note<'a>>,
}

/// Prints every annotated line with the lines around it. `bytes` is the module.
pub fn print(
    out: &mut impl Write,
    results: &CheckResults<'_>,
    bytes: &[u8],
    sources: &Sources,
    paint: Paint,
) -> io::Result<()> {
    let notes = notes(results);
    if notes.is_empty() {
        return writeln!(out, "\nNo entry point reaches a loop or a call.");
    }
    let legend = format!(
        "{TIMES_HEADING}: the maximum number of iterations each time a loop is entered; or the called function, \
         in quotes for a host function. FUEL: the maximum cost of the whole loop or of one call{}. Loops and calls are those of the compiled \
         code: the compiler unrolls some loops and inlines some calls.",
        if notes.iter().any(|note| note.fuel.per_kib > 0) { ", by the packet's captured bytes" } else { "" }
    );
    writeln!(out, "\n{}", paint.paint(TextStyle::Faint, &wrapped("", 0, &legend)))?;
    let mut by_file: BTreeMap<&str, Vec<&Note<'_>>> = BTreeMap::new();
    let mut without_source = Vec::new();
    for note in &notes {
        match &note.place.line {
            Some(line) => by_file.entry(line.file.as_str()).or_default().push(note),
            None => without_source.push(note),
        }
    }
    for (file, notes) in by_file {
        let Some(source) = sources.read(file) else {
            without_source.extend(notes);
            continue;
        };
        let change_note =
            if source.is_newer { " (changed after the module was built: lines may have moved)" } else { "" };
        writeln!(
            out,
            "\n{}{}",
            paint.paint(TextStyle::Strong, &escaped(file)),
            paint.paint(TextStyle::Warm, change_note)
        )?;
        let notes_of_line = |number: usize| {
            let is_on_line =
                |note: &&&Note<'_>| note.place.line.as_ref().is_some_and(|line| line.line as usize == number);
            notes.iter().filter(is_on_line).copied().collect()
        };
        let lines: Vec<Line<'_, '_>> = (1..)
            .zip(source.text.lines())
            .map(|(number, text)| Line {
                number: number.to_string(),
                text: text.to_owned(),
                notes: notes_of_line(number),
            })
            .collect();
        print_regions(out, &lines, paint)?;
    }
    without_source.sort_by_key(|note| note.place.offset);
    print_wasm_text(out, bytes, &without_source, paint)
}

/// Returns the annotations of all loops and calls, and of other code without a bound.
fn notes<'a>(results: &'a CheckResults<'_>) -> Vec<Note<'a>> {
    let entries = &results.analysis.entries;
    let per_packet = entries.iter().find(|found| found.entry.packets() > 0);
    let total = per_packet.map_or(Linear::UNBOUNDED, |found| found.usage.fuel);
    let loops = results.analysis.loops.iter().map(|found| Note {
        place: &found.place,
        times_or_callee: if found.trips.is_bounded() {
            format!("{} x", found.trips)
        } else {
            "unbounded".to_owned()
        },
        fuel: found.total,
        share: share(found.total, total),
        unbounded_reason: found.reason.as_ref().map(|reason| reason.cause.to_string()),
    });
    let host_calls = results.analysis.host_calls.iter().map(|found| Note {
        place: &found.place,
        times_or_callee: format!("`{}`", found.name),
        fuel: found.fuel,
        share: share(found.fuel, total),
        unbounded_reason: None,
    });
    let module_calls = results.analysis.calls.iter().map(|found| Note {
        place: &found.place,
        times_or_callee: callee_text(&found.callee),
        fuel: found.fuel,
        share: share(found.fuel, total),
        unbounded_reason: None,
    });
    // Code without a bound that is no loop: a recursive call, or a bulk operation of unknown length.
    let is_at_loop = |place: &CodeLocation| results.analysis.loops.iter().any(|found| found.place == *place);
    let reasons =
        entries.iter().flat_map(|found| &found.unbounded).filter(|reason| !is_at_loop(&reason.place));
    let mut seen = BTreeSet::new();
    let others = reasons.filter(|reason| seen.insert(reason.place.offset)).map(|reason| Note {
        place: &reason.place,
        times_or_callee: "unbounded".to_owned(),
        fuel: Linear::UNBOUNDED,
        share: None,
        unbounded_reason: Some(reason.cause.to_string()),
    });
    loops.chain(module_calls).chain(host_calls).chain(others).collect()
}

/// Returns the name of a called function for printing. The name comes from the module, so it is escaped and shortened.
fn callee_text(name: &str) -> String {
    let name = escaped(name);
    match name.char_indices().nth(CALLEE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", name.get(..end).unwrap_or_default()),
        None => name,
    }
}

/// Prints the annotated lines with the lines around them; `⋮` stands for omitted lines.
fn print_regions(out: &mut impl Write, lines: &[Line<'_, '_>], paint: Paint) -> io::Result<()> {
    let fuel = |note: &Note<'_>| if note.fuel.is_bounded() { note.fuel.to_string() } else { "-".to_owned() };
    let notes = || lines.iter().flat_map(|line| &line.notes);
    let width =
        |texts: &mut dyn Iterator<Item = usize>, heading: &str| texts.max().unwrap_or(0).max(heading.len());
    let times_width = width(&mut notes().map(|note| note.times_or_callee.chars().count()), TIMES_HEADING);
    let fuel_width = width(&mut notes().map(|note| fuel(note).chars().count()), "FUEL");
    let number_width = width(&mut lines.iter().map(|line| line.number.len()), "");
    let gutter = times_width + fuel_width + number_width + 6;
    let heading = format!("  {:>times_width$}  {:>fuel_width$}", TIMES_HEADING, "FUEL");
    writeln!(out, "{}", paint.paint(TextStyle::Faint, &heading))?;
    let mut last_shown = None;
    for (index, line) in lines.iter().enumerate() {
        let around = index.saturating_sub(CONTEXT_LINES)..(index + CONTEXT_LINES + 1).min(lines.len());
        if lines.get(around).is_none_or(|around| around.iter().all(|line| line.notes.is_empty())) {
            continue;
        }
        if last_shown.is_some_and(|last| last + 1 != index) {
            writeln!(out, "{}{}", " ".repeat(gutter), paint.paint(TextStyle::Faint, "⋮"))?;
        }
        last_shown = Some(index);
        let text = plain_line(&line.text, SOURCE_COLUMNS_MAX);
        let number = format!("{:>number_width$}", line.number);
        let bar = paint.paint(TextStyle::Faint, "│");
        // The compiler can make several loops of one source line, so a line can have several annotations.
        let mut notes = distinct_notes(&line.notes, &fuel).into_iter();
        let first = notes.next();
        let style = first.as_ref().map_or(TextStyle::Plain, |(_, _, style)| *style);
        let (times, cost) = first.map_or((String::new(), String::new()), |(times, cost, _)| (times, cost));
        let cells = format!("  {times:>times_width$}  {cost:>fuel_width$}");
        let row = format!(
            "{}  {} {bar} {text}",
            paint.paint(style, &cells),
            paint.paint(TextStyle::Faint, &number)
        );
        writeln!(out, "{}", row.trim_end())?;
        for (times, cost, style) in notes {
            let cells = format!("  {times:>times_width$}  {cost:>fuel_width$}");
            writeln!(out, "{}  {} {bar}", paint.paint(style, &cells), " ".repeat(number_width))?;
        }
        let mut reasons: Vec<&str> =
            line.notes.iter().filter_map(|note| note.unbounded_reason.as_deref()).collect();
        reasons.dedup();
        for why in reasons {
            let begin = format!("{}╰ ", " ".repeat(gutter));
            writeln!(out, "{}", paint.paint(TextStyle::Bad, &wrapped(&begin, gutter + 2, why)))?;
        }
    }
    Ok(())
}

/// Returns the text, cost and style of each annotation of a line, without duplicates, most expensive first.
fn distinct_notes(
    notes: &[&Note<'_>],
    fuel: &impl Fn(&Note<'_>) -> String,
) -> Vec<(String, String, TextStyle)> {
    let mut sorted = notes.to_vec();
    sorted.sort_by_key(|note| std::cmp::Reverse(note.fuel.at(super::table::PACKET_BYTES)));
    let mut distinct: Vec<(String, String, TextStyle)> =
        sorted.into_iter().map(|note| (note.times_or_callee.clone(), fuel(note), note.style())).collect();
    distinct.dedup();
    distinct
}

/// Prints the module as annotated WebAssembly text, with byte offsets as line numbers. Prints only the annotations if
/// the module is too large or cannot be printed as text.
fn print_wasm_text(out: &mut impl Write, bytes: &[u8], notes: &[&Note<'_>], paint: Paint) -> io::Result<()> {
    if notes.is_empty() {
        return Ok(());
    }
    let heading = "WebAssembly text, by byte offset";
    let advice = " (no source was found: `weir build` stores line numbers in the module, and the source files must be beside the module)";
    writeln!(out, "\n{}{}", paint.paint(TextStyle::Strong, heading), paint.paint(TextStyle::Faint, advice))?;
    let mut storage = String::new();
    let printed = if bytes.len() <= TEXT_BYTES_MAX {
        wasmprinter::Config::new().offsets_and_lines(bytes, &mut storage).ok()
    } else {
        None
    };
    let Some(printed) = printed else {
        for note in notes {
            writeln!(out, "  {}: {}, {} fuel", note.place, note.times_or_callee, note.fuel)?;
        }
        return Ok(());
    };
    let by_offset: BTreeMap<u64, Vec<&Note<'_>>> = notes.iter().fold(BTreeMap::new(), |mut map, note| {
        map.entry(note.place.offset).or_insert_with(Vec::new).push(*note);
        map
    });
    let mut lines: Vec<Line<'_, '_>> = Vec::new();
    for (offset, text) in printed {
        let number = offset.map_or(String::new(), |offset| format!("{offset:#x}"));
        let notes = offset.and_then(|offset| by_offset.get(&offset)).cloned().unwrap_or_default();
        lines.push(Line { number, text: text.to_owned(), notes });
    }
    print_regions(out, &lines, paint)
}
