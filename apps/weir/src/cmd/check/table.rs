//! What the entry points of a module use at most, as a table, and what makes up most of it.

use super::Findings;
use super::paint::{Paint, TextStyle, wrapped};
use std::io::{self, Write};
use weir_admission::{Comparison, LimitStatus, LimitedResource, shown};
use weir_bounds::{EntryBound, Linear, PathStep, UnboundedReason, What, WorkClass};
use weir_units::Bytes;

/// The packet for which shares are shown: as long as Ethernet has them.
pub const PACKET_BYTES: u64 = 1500;

/// Where an entry point that is not for packets may use so much of its limit, its hottest path is shown too.
const SHARE_MIN: f64 = 0.01;

/// A cell of a table.
#[derive(Clone, Debug, Default)]
struct Cell {
    text: String,
    look: TextStyle,
}

impl Cell {
    fn new(look: TextStyle, text: impl Into<String>) -> Self {
        Self { text: text.into(), look }
    }
}

/// The bounds of a module, and where they come from.
pub fn print(out: &mut impl Write, findings: &Findings<'_>, paint: Paint) -> io::Result<()> {
    writeln!(out, "The most that one call can use:")?;
    bounds(out, findings, paint)?;
    for entry in &findings.analysis.entries {
        let is_much = findings.comparisons.iter().any(|comparison| {
            let is_fuel =
                comparison.entry == Some(entry.entry) && comparison.resource == LimitedResource::Fuel;
            is_fuel && comparison.times() >= SHARE_MIN
        });
        if is_much || entry.entry.packets() > 0 {
            hottest(out, entry, paint)?;
        }
    }
    unbounded(out, findings, paint)
}

/// The resources that have a column, with its heading.
const COLUMNS: [(LimitedResource, &str); 6] = [
    (LimitedResource::Stack, "STACK"),
    (LimitedResource::ShadowStack, "SHADOW STACK"),
    (LimitedResource::Pages, "PAGES"),
    (LimitedResource::Records, "RECORDS"),
    (LimitedResource::Patches, "PATCHES"),
    (LimitedResource::Frames, "FRAMES"),
];

/// A row for each entry point; where a profile was given, its limits below.
fn bounds(out: &mut impl Write, findings: &Findings<'_>, paint: Paint) -> io::Result<()> {
    let of = |entry, resource| {
        findings
            .comparisons
            .iter()
            .find(move |comparison| comparison.entry == Some(entry) && comparison.resource == resource)
    };
    // What nobody uses has no column.
    let is_used = |resource| {
        findings
            .comparisons
            .iter()
            .any(|c| c.entry.is_some() && c.resource == resource && c.bound != Linear::ZERO)
    };
    let columns: Vec<_> = COLUMNS.into_iter().filter(|(resource, _)| is_used(*resource)).collect();
    let time = if findings.calibration.is_measured() { "TIME" } else { "ESTIMATED TIME" };
    let mut heading =
        ["CALL OF", "DEPENDS ON", "FUEL", time].map(|text| Cell::new(TextStyle::Strong, text)).to_vec();
    heading.extend(columns.iter().map(|(_, text)| Cell::new(TextStyle::Strong, *text)));
    let mut rows = vec![heading];
    let fuels = findings.comparisons.iter().filter(|comparison| comparison.resource == LimitedResource::Fuel);
    for (entry, fuel) in fuels.filter_map(|fuel| Some((fuel.entry?, fuel))) {
        let look = look_of(fuel);
        let class = findings.analysis.entry(entry).map_or("-".to_owned(), |found| depends_on(found.class));
        let time = findings.calibration.shown(fuel.bound).to_string();
        let work = if fuel.bound.is_bounded() { fuel.bound.to_string() } else { "-".to_owned() };
        let mut row = vec![
            Cell::new(TextStyle::Plain, entry.name()),
            Cell::new(TextStyle::Plain, class),
            Cell::new(look, work),
            Cell::new(look, time),
        ];
        let mut limits = ["  limit", "", ""].map(|text| Cell::new(TextStyle::Faint, text)).to_vec();
        limits.push(Cell::new(TextStyle::Faint, findings.calibration.shown(fuel.limit).to_string()));
        for (resource, _) in &columns {
            let comparison = of(entry, *resource);
            row.push(
                comparison
                    .map_or(Cell::new(TextStyle::Faint, "-"), |c| Cell::new(look_of(c), amount(c, c.bound))),
            );
            limits
                .push(Cell::new(TextStyle::Faint, comparison.map_or(String::new(), |c| amount(c, c.limit))));
        }
        rows.push(row);
        if findings.profile.is_some() {
            rows.push(limits);
        }
    }
    write_cells(out, &rows, paint)?;
    if findings.facts.entry() == weir_admission::EntryKind::Batch {
        writeln!(out, "A call of weir_batch is for 64 packets.")?;
    }
    memory(out, findings, paint)?;
    if findings.facts.stack_pointer.is_none() {
        let advice = "if it keeps one, link with --export=__stack_pointer, so that weir can put it back after a lost call";
        writeln!(out, "{}", wrapped("No shadow stack pointer was found: ", 0, advice))?;
    }
    Ok(())
}

/// What the work of a class depends on.
fn depends_on(class: WorkClass) -> String {
    match class {
        WorkClass::Constant => "nothing".to_owned(),
        class => class.to_string(),
    }
}

/// Memory at the start and at most, and what it is let have.
fn memory(out: &mut impl Write, findings: &Findings<'_>, paint: Paint) -> io::Result<()> {
    let is_memory = |comparison: &&Comparison| comparison.resource == LimitedResource::Memory;
    let Some(memory) = findings.comparisons.iter().find(is_memory) else { return Ok(()) };
    let start = findings.facts.memory;
    let most = amount(memory, memory.bound);
    let used = if memory.bound == Linear::constant(start.0) {
        format!("{start} from the start, and never more")
    } else {
        format!("{start} at the start, at most {most} later")
    };
    let allowed = if findings.profile.is_some() {
        format!(", the profile {}", amount(memory, memory.limit))
    } else {
        String::new()
    };
    let used = paint.paint(look_of(memory), &used);
    writeln!(out, "Memory: {used}; its manifest allows {}{allowed}", findings.manifest.memory)
}

fn look_of(comparison: &Comparison) -> TextStyle {
    match comparison.standing() {
        LimitStatus::Within => TextStyle::Plain,
        LimitStatus::Over => TextStyle::Warm,
        LimitStatus::Beyond | LimitStatus::Unbounded => TextStyle::Bad,
    }
}

/// Bytes or a number.
fn amount(comparison: &Comparison, amount: Linear) -> String {
    let is_number = matches!(
        comparison.resource,
        LimitedResource::Pages
            | LimitedResource::Records
            | LimitedResource::Patches
            | LimitedResource::Frames
    );
    match amount {
        Linear { constant, per_kib: 0 } if amount.is_bounded() && !is_number => Bytes(constant).to_string(),
        amount => amount.to_string(),
    }
}

/// The way to what contributes most, with the share of the whole.
fn hottest(out: &mut impl Write, found: &EntryBound, paint: Paint) -> io::Result<()> {
    if found.hottest.is_empty() {
        return Ok(());
    }
    let whole = found.usage.fuel;
    let heading = format!("Hottest path of {}", found.entry);
    let of = if whole.is_bounded() && whole.per_kib > 0 {
        format!(", for a packet of {PACKET_BYTES} bytes")
    } else {
        String::new()
    };
    writeln!(out, "\n{}{of}:", paint.paint(TextStyle::Strong, &heading))?;
    for (depth, step) in found.hottest.iter().enumerate() {
        let share = share(step.amount, whole);
        let percent = share.map_or("     ".to_owned(), |share| format!("{:3.0} %", share * 100.0));
        let look = if step.amount.is_bounded() { heat(share) } else { TextStyle::Bad };
        let (indent, what) = ("  ".repeat(depth), what(step));
        writeln!(
            out,
            "  {percent}  {indent}{} {}",
            paint.paint(look, &what),
            paint.paint(TextStyle::Faint, &at(step))
        )?;
    }
    Ok(())
}

/// How much of the whole something is, for a packet of the usual length.
pub fn share(part: Linear, whole: Linear) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people to read")]
    let ratio = |part: u64, whole: u64| part as f64 / whole as f64;
    let is_known = part.is_bounded() && whole.is_bounded() && whole.at(PACKET_BYTES) > 0;
    is_known.then(|| ratio(part.at(PACKET_BYTES), whole.at(PACKET_BYTES)).min(1.0))
}

/// How what has such a share looks.
pub fn heat(share: Option<f64>) -> TextStyle {
    match share {
        Some(share) if share >= 0.25 => TextStyle::Warm,
        Some(share) if share < 0.01 => TextStyle::Faint,
        _ => TextStyle::Plain,
    }
}

/// What a step is, in words.
pub fn what(step: &PathStep) -> String {
    match &step.what {
        What::Loop(trips) if trips.is_bounded() => format!("loop, at most {trips} times,"),
        What::Loop(_) => "loop without a bound,".to_owned(),
        What::Call(name) => format!("call of {},", shown(name)),
        What::Host(name) => format!("`{name}`,"),
        What::Bulk => "copy or fill of memory,".to_owned(),
        What::Grow => "`memory.grow`,".to_owned(),
        What::Frame => "frame,".to_owned(),
        What::Locals => "shadow stack,".to_owned(),
    }
}

/// Where a step is.
pub fn at(step: &PathStep) -> String {
    format!("in {}", step.place)
}

/// Each place that has no bound, once, and what to do there.
fn unbounded(out: &mut impl Write, findings: &Findings<'_>, paint: Paint) -> io::Result<()> {
    let mut seen: Vec<&UnboundedReason> = Vec::new();
    for entry in &findings.analysis.entries {
        for reason in &entry.unbounded {
            if seen.contains(&reason) {
                continue;
            }
            if seen.is_empty() {
                writeln!(out, "\n{}", paint.paint(TextStyle::Bad, "Without a bound:"))?;
            }
            seen.push(reason);
            writeln!(out, "  {}", paint.paint(TextStyle::Strong, &reason.place.to_string()))?;
            writeln!(out, "{}", wrapped("      ", 6, &reason.why.to_string()))?;
        }
    }
    Ok(())
}

/// Columns as wide as their widest cell: the first two to the left, amounts to the right.
fn write_cells(out: &mut impl Write, rows: &[Vec<Cell>], paint: Paint) -> io::Result<()> {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.text.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let padding = " ".repeat(width - cell.text.chars().count());
            let text = paint.paint(cell.look, &cell.text);
            line.push_str(if column == 0 { "" } else { "  " });
            line.push_str(&if column < 2 { text + &padding } else { padding + &text });
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
