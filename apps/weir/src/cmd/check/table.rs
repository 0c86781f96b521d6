//! The bounds of a module's entry points as a table, and the paths that contribute most.

use super::CheckResults;
use super::loop_limit::LoopLimit;
use super::loop_source::{COUNTER, LoopStatement, statement_at, statement_of};
use super::paint::{Paint, TextStyle, plain_line, wrapped};
use super::source::Sources;
use std::io::{self, Write};
use weir_admission::{Comparison, LimitStatus, LimitedResource, escaped};
use weir_bounds::{CodeLocation, EntryBound, Linear, PathStep, StepKind, WorkClass};
use weir_units::Bytes;

/// The packet length, in bytes, for which the share of a step in the fuel bound of its entry point is computed: the usual
/// MTU of Ethernet. Bounds depend on the packet length, so a share needs one.
pub const PACKET_BYTES: u64 = 1500;

/// The smallest ratio of an entry point's bound to its fuel limit for which the hottest path is shown, if the entry
/// point gets no packets. The hottest path of an entry point that gets packets is always shown.
const HOTTEST_RATIO_MIN: f64 = 0.01;

/// The smallest share in the bound of its entry point for which a loop over the limit is shown.
const LOOP_SHARE_MIN: f64 = 0.5;

/// The most loops over the limit that are shown for an entry point.
const EXCESSIVE_LOOPS_MAX: usize = 3;

/// The most columns of a loop statement in a message.
const BOUNDED_COLUMNS_MAX: usize = 240;

/// A cell of a table.
#[derive(Clone, Debug, Default)]
struct Cell {
    text: String,
    style: TextStyle,
}

impl Cell {
    fn new(style: TextStyle, text: impl Into<String>) -> Self {
        Self { text: text.into(), style }
    }
}

/// Prints the bounds of a module, the hottest path of each important entry point, and the locations without a bound.
pub fn print(
    out: &mut impl Write,
    results: &CheckResults<'_>,
    sources: &Sources,
    paint: Paint,
) -> io::Result<()> {
    writeln!(out, "The most that one call can use:")?;
    print_bounds(out, results, paint)?;
    for entry in &results.analysis.entries {
        let is_notable = results.comparisons.iter().any(|comparison| {
            let is_fuel =
                comparison.entry == Some(entry.entry) && comparison.resource == LimitedResource::Fuel;
            is_fuel && comparison.ratio() >= HOTTEST_RATIO_MIN
        });
        if is_notable || entry.entry.packets() > 0 {
            print_hottest(out, entry, paint)?;
        }
    }
    print_excess(out, results, sources, paint)?;
    print_unbounded(out, results, sources, paint)
}

/// The resources other than fuel that have a column, with the headings.
const COLUMNS: [(LimitedResource, &str); 6] = [
    (LimitedResource::Stack, "STACK"),
    (LimitedResource::ShadowStack, "SHADOW STACK"),
    (LimitedResource::GrownPages, "PAGES"),
    (LimitedResource::Records, "RECORDS"),
    (LimitedResource::Patches, "PATCHES"),
    (LimitedResource::SentFrames, "FRAMES"),
];

/// Prints a row for each entry point, and, if a profile is used, a row with its limits.
fn print_bounds(out: &mut impl Write, results: &CheckResults<'_>, paint: Paint) -> io::Result<()> {
    let comparison_of = |entry, resource| {
        results
            .comparisons
            .iter()
            .find(move |comparison| comparison.entry == Some(entry) && comparison.resource == resource)
    };
    // A resource that no entry point uses has no column.
    let is_used = |resource| {
        results
            .comparisons
            .iter()
            .any(|c| c.entry.is_some() && c.resource == resource && c.bound != Linear::ZERO)
    };
    let columns: Vec<_> = COLUMNS.into_iter().filter(|(resource, _)| is_used(*resource)).collect();
    let time = if results.calibration.is_measured() { "TIME" } else { "ESTIMATED TIME" };
    let mut heading =
        ["CALL OF", "DEPENDS ON", "FUEL", time].map(|text| Cell::new(TextStyle::Strong, text)).to_vec();
    heading.extend(columns.iter().map(|(_, text)| Cell::new(TextStyle::Strong, *text)));
    let mut rows = vec![heading];
    let fuels = results.comparisons.iter().filter(|comparison| comparison.resource == LimitedResource::Fuel);
    for (entry, fuel) in fuels.filter_map(|fuel| Some((fuel.entry?, fuel))) {
        let style = style_of(fuel);
        let dependence =
            results.analysis.entry(entry).map_or("-".to_owned(), |found| depends_on(found.class));
        let time = results.calibration.time_bound(fuel.bound).to_string();
        let fuel_bound = if fuel.bound.is_bounded() { fuel.bound.to_string() } else { "-".to_owned() };
        let mut row = vec![
            Cell::new(TextStyle::Plain, entry.name()),
            Cell::new(TextStyle::Plain, dependence),
            Cell::new(style, fuel_bound),
            Cell::new(style, time),
        ];
        let mut limits = ["  limit", "", ""].map(|text| Cell::new(TextStyle::Faint, text)).to_vec();
        limits.push(Cell::new(TextStyle::Faint, results.calibration.time_bound(fuel.limit).to_string()));
        for (resource, _) in &columns {
            let comparison = comparison_of(entry, *resource);
            row.push(
                comparison
                    .map_or(Cell::new(TextStyle::Faint, "-"), |c| Cell::new(style_of(c), amount(c, c.bound))),
            );
            limits
                .push(Cell::new(TextStyle::Faint, comparison.map_or(String::new(), |c| amount(c, c.limit))));
        }
        rows.push(row);
        if results.profile.is_some() {
            rows.push(limits);
        }
    }
    write_cells(out, &rows, paint)?;
    if results.info.entry() == weir_admission::EntryKind::Batch {
        writeln!(out, "A call of weir_batch is for 64 packets.")?;
    }
    print_memory(out, results, paint)?;
    if results.info.stack_pointer.is_none() {
        let advice = "if the module has a shadow stack, link with --export=__stack_pointer, so that weir can restore it after an aborted call";
        writeln!(out, "{}", wrapped("No shadow stack pointer was found: ", 0, advice))?;
    }
    Ok(())
}

/// Names the quantity on which the work of a class depends, for the column DEPENDS ON.
fn depends_on(class: WorkClass) -> String {
    match class {
        WorkClass::Constant => "nothing".to_owned(),
        class => class.to_string(),
    }
}

/// Prints the size of the module's memory at the start, its maximum, and its limits in the manifest and the profile.
fn print_memory(out: &mut impl Write, results: &CheckResults<'_>, paint: Paint) -> io::Result<()> {
    let is_memory = |comparison: &&Comparison| comparison.resource == LimitedResource::Memory;
    let Some(memory) = results.comparisons.iter().find(is_memory) else { return Ok(()) };
    let start = results.info.memory;
    let maximum = amount(memory, memory.bound);
    let used = if memory.bound == Linear::constant(start.0) {
        format!("{start} from the start, and never more")
    } else {
        format!("{start} at the start, at most {maximum} later")
    };
    let allowed = if results.profile.is_some() {
        format!(", the profile {}", amount(memory, memory.limit))
    } else {
        String::new()
    };
    let used = paint.paint(style_of(memory), &used);
    writeln!(out, "Memory: {used}; its manifest allows {}{allowed}", results.manifest.memory)
}

/// Returns the text style for a bound, by its relation to its limit.
fn style_of(comparison: &Comparison) -> TextStyle {
    match comparison.status() {
        LimitStatus::Within => TextStyle::Plain,
        LimitStatus::OverWithinFactor => TextStyle::Warm,
        LimitStatus::OverFactor | LimitStatus::Unbounded => TextStyle::Bad,
    }
}

/// Formats an amount of the resource of `comparison`, in bytes or as a number.
fn amount(comparison: &Comparison, amount: Linear) -> String {
    let is_number = matches!(
        comparison.resource,
        LimitedResource::GrownPages
            | LimitedResource::Records
            | LimitedResource::Patches
            | LimitedResource::SentFrames
    );
    match amount {
        Linear { constant, per_kib: 0 } if amount.is_bounded() && !is_number => Bytes(constant).to_string(),
        amount => amount.to_string(),
    }
}

/// Prints the hottest path of an entry point: the steps that lead to the largest contributor, with their shares in the
/// fuel bound.
fn print_hottest(out: &mut impl Write, found: &EntryBound, paint: Paint) -> io::Result<()> {
    if found.hottest.is_empty() {
        return Ok(());
    }
    let total = found.usage.fuel;
    let heading = format!("Hottest path of {}", found.entry);
    let packet_size = if total.is_bounded() && total.per_kib > 0 {
        format!(", for a packet of {PACKET_BYTES} bytes")
    } else {
        String::new()
    };
    writeln!(out, "\n{}{packet_size}:", paint.paint(TextStyle::Strong, &heading))?;
    for (depth, step) in found.hottest.iter().enumerate() {
        let share = share(step.amount, total);
        let percent = share.map_or("     ".to_owned(), |share| format!("{:3.0} %", share * 100.0));
        let style = if step.amount.is_bounded() { style_of_share(share) } else { TextStyle::Bad };
        let (indent, what) = ("  ".repeat(depth), describe_step(step));
        writeln!(
            out,
            "  {percent}  {indent}{} {}",
            paint.paint(style, &what),
            paint.paint(TextStyle::Faint, &step_location(step))
        )?;
    }
    Ok(())
}

/// Returns the share of a part in the total, for a packet of [`PACKET_BYTES`]; `None` if either is unbounded or the
/// total is 0.
pub fn share(part: Linear, total: Linear) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people to read")]
    let ratio = |part: u64, total: u64| part as f64 / total as f64;
    let is_known = part.is_bounded() && total.is_bounded() && total.at(PACKET_BYTES) > 0;
    is_known.then(|| ratio(part.at(PACKET_BYTES), total.at(PACKET_BYTES)).min(1.0))
}

/// Returns the text style for a share of the cost.
pub fn style_of_share(share: Option<f64>) -> TextStyle {
    match share {
        Some(share) if share >= 0.25 => TextStyle::Warm,
        Some(share) if share < 0.01 => TextStyle::Faint,
        _ => TextStyle::Plain,
    }
}

/// Describes a step of a path.
pub fn describe_step(step: &PathStep) -> String {
    match &step.kind {
        StepKind::Loop(trips) if trips.is_bounded() => format!("loop, at most {trips} times,"),
        StepKind::Loop(_) => "loop without a bound,".to_owned(),
        StepKind::Call(name) => format!("call of {},", escaped(name)),
        StepKind::Host(name) => format!("`{name}`,"),
        StepKind::Bulk => "copy or fill of memory,".to_owned(),
        StepKind::Grow => "`memory.grow`,".to_owned(),
        StepKind::StackFrame => "frame,".to_owned(),
        StepKind::ShadowStackFrame => "shadow stack,".to_owned(),
    }
}

/// Describes the location of a step.
pub fn step_location(step: &PathStep) -> String {
    format!("in {}", step.place)
}

/// Prints each unbounded location once, with the reason and advice. For a loop whose source is there, these are the line of the
/// loop statement, and the statement in a form that has a bound.
fn print_unbounded(
    out: &mut impl Write,
    results: &CheckResults<'_>,
    sources: &Sources,
    paint: Paint,
) -> io::Result<()> {
    let mut seen: Vec<CodeLocation> = Vec::new();
    for reason in results.analysis.entries.iter().flat_map(|entry| &entry.unbounded) {
        let statement = statement_of(reason, sources);
        let mut place = reason.place.clone();
        if let (Some(line), Some(statement)) = (&mut place.line, &statement) {
            line.line = statement.line;
            // The compiler can make several loops of one statement.
            place.offset = 0;
        }
        if seen.contains(&place) {
            continue;
        }
        if seen.is_empty() {
            writeln!(out, "\n{}", paint.paint(TextStyle::Bad, "Without a bound:"))?;
        }
        writeln!(out, "  {}", paint.paint(TextStyle::Strong, &place.to_string()))?;
        writeln!(out, "{}", wrapped("      ", 6, &reason.cause.to_string()))?;
        if let Some(statement) = statement {
            print_statement(out, &statement, &place, paint)?;
        }
        seen.push(place);
    }
    Ok(())
}

/// A loop of an entry point whose bound of fuel is over its limit.
struct ExcessiveLoop<'a> {
    step: &'a PathStep,
    trips: Linear,
    statement: Option<LoopStatement>,
}

impl ExcessiveLoop<'_> {
    /// Returns the place of the loop: the line of its statement, if that is known.
    fn place(&self) -> CodeLocation {
        let mut place = self.step.place.clone();
        if let (Some(line), Some(statement)) = (&mut place.line, &self.statement) {
            line.line = statement.line;
        }
        place
    }
}

/// Returns the loops on the hottest path of an entry point that have most of its cost, those with most iterations first. The one
/// with most iterations is among them whatever it costs.
fn excessive_loops<'a>(found: &'a EntryBound, sources: &Sources) -> Vec<ExcessiveLoop<'a>> {
    let mut loops: Vec<ExcessiveLoop<'_>> = Vec::new();
    for step in &found.hottest {
        let StepKind::Loop(trips) = step.kind else { continue };
        let statement = statement_at(&step.place, sources);
        let excessive = ExcessiveLoop { step, trips, statement };
        if loops.iter().all(|known| known.place() != excessive.place()) {
            loops.push(excessive);
        }
    }
    loops.sort_by_key(|excessive| std::cmp::Reverse(excessive.trips.at(PACKET_BYTES)));
    let is_large = |excessive: &ExcessiveLoop<'_>| {
        share(excessive.step.amount, found.usage.fuel).is_none_or(|share| share >= LOOP_SHARE_MIN)
    };
    let mut is_first = true;
    loops.retain(|excessive| std::mem::take(&mut is_first) || is_large(excessive));
    loops.truncate(EXCESSIVE_LOOPS_MAX);
    loops
}

/// Prints the loops that cost most of each entry point whose bound of fuel is over its limit: the most iterations that fit the limit,
/// and the statement in a form that has a smaller bound.
fn print_excess(
    out: &mut impl Write,
    results: &CheckResults<'_>,
    sources: &Sources,
    paint: Paint,
) -> io::Result<()> {
    let mut has_heading = false;
    for comparison in results.comparisons.iter().filter(|comparison| {
        let is_over = !matches!(comparison.status(), LimitStatus::Within | LimitStatus::Unbounded);
        comparison.resource == LimitedResource::Fuel && is_over
    }) {
        let found = comparison.entry.and_then(|entry| results.analysis.entry(entry));
        for excessive in found.map_or(Vec::new(), |found| excessive_loops(found, sources)) {
            if !std::mem::replace(&mut has_heading, true) {
                writeln!(out, "\n{}", paint.paint(TextStyle::Warm, "Over the limit:"))?;
            }
            let place = excessive.place();
            writeln!(out, "  {}", paint.paint(TextStyle::Strong, &place.to_string()))?;
            let fitting = comparison.fitting_trips(excessive.step.amount, excessive.trips);
            print_excessive_loop(out, &excessive, fitting, paint)?;
        }
    }
    Ok(())
}

/// Prints the advice for a loop over the limit.
fn print_excessive_loop(
    out: &mut impl Write,
    excessive: &ExcessiveLoop<'_>,
    fitting: Option<u64>,
    paint: Paint,
) -> io::Result<()> {
    let ExcessiveLoop { trips, statement, .. } = excessive;
    let forms = statement.as_ref().map(|statement| &statement.forms);
    let limit = forms.and_then(|forms| forms.limit.as_ref());
    let Some(fitting) = fitting else {
        let why = format!(
            "the loop can run {trips} times, and not even one iteration fits this limit beside the rest: do less in the loop or around it"
        );
        return writeln!(out, "{}", wrapped("      ", 6, &why));
    };
    // The compiled loop can do several iterations of the source in one, or count the test that ends it.
    let most = limit
        .and_then(LoopLimit::number)
        .filter(|most| trips.per_kib == 0 && trips.constant <= most.saturating_add(1));
    let fitting = most.map_or(fitting, |most| {
        let scaled = u128::from(fitting) * u128::from(most) / u128::from(trips.constant.max(1));
        u64::try_from(scaled).unwrap_or(fitting)
    });
    let limit = limit.filter(|limit| limit.number().is_none_or(|most| fitting < most));
    let fits = format!("at most {fitting} iterations fit this limit");
    if let Some(limit) = limit {
        let why = format!("{fits}: lower {} to {fitting}, or do less in each iteration", limit.text());
        writeln!(out, "{}", wrapped("      ", 6, &why))?;
        let lowered = plain_line(&limit.with(fitting), BOUNDED_COLUMNS_MAX);
        return writeln!(out, "      Write: {}", paint.paint(TextStyle::Strong, &lowered));
    }
    let why = format!(
        "the loop can run {trips} times, as far as the code shows, and {fits}: cut its limit before the loop, or count the loop"
    );
    writeln!(out, "{}", wrapped("      ", 6, &why))?;
    match statement {
        Some(statement) => print_statement(out, statement, &excessive.place(), paint),
        None => Ok(()),
    }
}

/// Prints a statement in the forms that have a bound.
fn print_statement(
    out: &mut impl Write,
    statement: &LoopStatement,
    place: &CodeLocation,
    paint: Paint,
) -> io::Result<()> {
    let bounded = plain_line(&statement.forms.bounded, BOUNDED_COLUMNS_MAX);
    writeln!(out, "      Write: {}", paint.paint(TextStyle::Strong, &bounded))?;
    let is_rust = place.line.as_ref().is_some_and(|line| line.file.ends_with(".rs"));
    let import = if is_rust { " The file needs use weir_guest::BoundedIterator." } else { "" };
    let most = format!("MAX is the most iterations that you expect; one more loses the packet.{import}");
    writeln!(out, "{}", wrapped("      ", 6, &most))?;
    let Some(counted) = &statement.forms.counted else { return Ok(()) };
    let counted = plain_line(counted, BOUNDED_COLUMNS_MAX);
    writeln!(out, "      Or:    {}", paint.paint(TextStyle::Strong, &counted))?;
    let counter = if is_rust { String::new() } else { format!(", with {COUNTER} before it") };
    let ignored = format!(
        "This one ignores the rest{counter}. A detector needs it: with the first form, a sender hides a packet by one more iteration."
    );
    writeln!(out, "{}", wrapped("      ", 6, &ignored))
}

/// Prints columns as wide as their widest cell: the first two aligned left, amounts right.
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
            let text = paint.paint(cell.style, &cell.text);
            line.push_str(if column == 0 { "" } else { "  " });
            line.push_str(&if column < 2 { text + &padding } else { padding + &text });
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
