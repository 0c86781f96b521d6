//! What was found, as tables.

use super::Findings;
use super::paint::{Look, Paint, wrapped};
use std::io::{self, Write};
use weir_bounds::{EntryBound, EntryPoint, Linear, Reason, Step, What};
use weir_session::{Comparison, Resource, Standing, Tier, shown};
use weir_units::Bytes;

/// The packet for which shares are shown: as long as Ethernet has them.
pub const PACKET_BYTES: u64 = 1500;

/// Where an entry point that is not for packets may use so much of its limit, its hottest path is shown too.
const SHARE_MIN: f64 = 0.01;

/// A cell of a table.
#[derive(Clone, Debug, Default)]
struct Cell {
    text: String,
    look: Look,
}

impl Cell {
    fn new(look: Look, text: impl Into<String>) -> Self {
        Self { text: text.into(), look }
    }
}

/// What a module is, its tier and why, its bounds, and where they come from.
pub fn print(out: &mut impl Write, findings: &Findings<'_>, paint: Paint) -> io::Result<()> {
    let manifest = findings.manifest;
    let title = format!("{} {}", manifest.name, manifest.version);
    writeln!(out, "{}: {}", paint.paint(Look::Strong, &title), manifest.summary)?;
    let tick = findings.tick.map_or(String::new(), |period| format!(", tick every {period} of packet time"));
    writeln!(
        out,
        "{}, {} functions; {} of memory at the start, at most {}{tick}",
        findings.size, findings.facts.functions, findings.facts.memory, findings.memory
    )?;
    if !findings.values.is_empty() {
        let set: Vec<String> =
            findings.values.iter().map(|(name, value)| format!("{name}={value}")).collect();
        writeln!(out, "{}", wrapped("Set: ", 5, &set.join(" ")))?;
    }
    writeln!(out)?;
    tier(out, findings, paint)?;
    writeln!(out)?;
    bounds(out, findings, paint)?;
    for entry in &findings.analysis.entries {
        let is_much = findings.comparisons.iter().any(|comparison| {
            let is_fuel = comparison.entry == Some(entry.entry) && comparison.resource == Resource::Fuel;
            is_fuel && comparison.times() >= SHARE_MIN
        });
        if is_much || matches!(entry.entry, EntryPoint::Packet | EntryPoint::Batch) {
            hottest(out, entry, paint)?;
        }
    }
    unbounded(out, findings, paint)
}

/// The tier and what it means.
fn tier(out: &mut impl Write, findings: &Findings<'_>, paint: Paint) -> io::Result<()> {
    let (look, name, meaning) = match &findings.verdict {
        Ok(Tier::Proved) => (
            Look::Good,
            Tier::Proved.name(),
            "all its bounds are within its limits, so nothing is checked while it runs",
        ),
        Ok(Tier::Supervised) => (
            Look::Warm,
            Tier::Supervised.name(),
            "it may need more than its limits; what it really uses is looked at while it runs, and it is unloaded where it keeps exceeding",
        ),
        Ok(Tier::Metered) => (
            Look::Warm,
            Tier::Metered.name(),
            "it is charged while it runs, and a call that uses up its allowance is abandoned",
        ),
        Err(_) => (Look::Bad, "refused", "by this profile it does not run"),
    };
    let text = wrapped(&format!("Tier: {name}: "), 6, meaning);
    writeln!(out, "{}", text.replacen(name, &paint.paint(look, name), 1))?;
    if let Some(why) = &findings.why {
        writeln!(out, "{}", wrapped("Why:  ", 6, why))?;
    }
    if let Some(file) = &findings.profile {
        writeln!(out, "By:   the profile {}", shown(file))?;
    }
    Ok(())
}

/// The resources that have a column, with its heading.
const COLUMNS: [(Resource, &str); 5] = [
    (Resource::Stack, "STACK"),
    (Resource::ShadowStack, "SHADOW STACK"),
    (Resource::Pages, "PAGES"),
    (Resource::Records, "RECORDS"),
    (Resource::Patches, "PATCHES"),
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
    let mut heading =
        ["CALL OF", "GROWS WITH", "FUEL", "TIME"].map(|text| Cell::new(Look::Strong, text)).to_vec();
    heading.extend(columns.iter().map(|(_, text)| Cell::new(Look::Strong, *text)));
    let mut rows = vec![heading];
    let fuels = findings.comparisons.iter().filter(|comparison| comparison.resource == Resource::Fuel);
    for (entry, fuel) in fuels.filter_map(|fuel| Some((fuel.entry?, fuel))) {
        let look = look_of(fuel);
        let class = findings.analysis.entry(entry).map_or("-".to_owned(), |found| found.class.to_string());
        let time = findings.calibration.shown(fuel.bound).to_string();
        let work = if fuel.bound.is_bounded() { fuel.bound.to_string() } else { "-".to_owned() };
        let mut row = vec![
            Cell::new(Look::Plain, entry.name()),
            Cell::new(Look::Plain, class),
            Cell::new(look, work),
            Cell::new(look, time),
        ];
        let mut limits = ["  limit", "", ""].map(|text| Cell::new(Look::Faint, text)).to_vec();
        limits.push(Cell::new(Look::Faint, findings.calibration.shown(fuel.limit).to_string()));
        for (resource, _) in &columns {
            let comparison = of(entry, *resource);
            row.push(
                comparison.map_or(Cell::new(Look::Faint, "-"), |c| Cell::new(look_of(c), amount(c, c.bound))),
            );
            limits.push(Cell::new(Look::Faint, comparison.map_or(String::new(), |c| amount(c, c.limit))));
        }
        rows.push(row);
        if findings.profile.is_some() {
            rows.push(limits);
        }
    }
    write_cells(out, &rows, paint)?;
    if findings.facts.entry == weir_session::Entry::Batch {
        writeln!(out, "A call of weir_batch is for 64 packets.")?;
    }
    let memory = findings.comparisons.iter().find(|comparison| comparison.resource == Resource::Memory);
    if let Some(memory) = memory {
        let used = paint.paint(look_of(memory), &amount(memory, memory.bound));
        let limit = if findings.profile.is_some() {
            format!("; limit {}", amount(memory, memory.limit))
        } else {
            String::new()
        };
        writeln!(out, "Memory: at most {used}{limit}")?;
    }
    if findings.facts.stack_pointer.is_none() {
        let advice = "if it keeps one, link with --export=__stack_pointer, so that weir can put it back after a lost call";
        writeln!(out, "{}", wrapped("No shadow stack pointer was found: ", 0, advice))?;
    }
    Ok(())
}

fn look_of(comparison: &Comparison) -> Look {
    match comparison.standing() {
        Standing::Within => Look::Plain,
        Standing::Over => Look::Warm,
        Standing::Beyond | Standing::Unbounded => Look::Bad,
    }
}

/// Bytes or a number.
fn amount(comparison: &Comparison, amount: Linear) -> String {
    let is_number = matches!(comparison.resource, Resource::Pages | Resource::Records | Resource::Patches);
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
    writeln!(out, "\n{}{of}:", paint.paint(Look::Strong, &heading))?;
    for (depth, step) in found.hottest.iter().enumerate() {
        let share = share(step.fuel, whole);
        let percent = share.map_or("     ".to_owned(), |share| format!("{:3.0} %", share * 100.0));
        let look = if step.fuel.is_bounded() { heat(share) } else { Look::Bad };
        let (indent, what) = ("  ".repeat(depth), what(step));
        writeln!(
            out,
            "  {percent}  {indent}{} {}",
            paint.paint(look, &what),
            paint.paint(Look::Faint, &at(step))
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
pub fn heat(share: Option<f64>) -> Look {
    match share {
        Some(share) if share >= 0.25 => Look::Warm,
        Some(share) if share < 0.01 => Look::Faint,
        _ => Look::Plain,
    }
}

fn what(step: &Step) -> String {
    match &step.what {
        What::Loop(trips) if trips.is_bounded() => format!("loop, at most {trips} times,"),
        What::Loop(_) => "loop without a bound,".to_owned(),
        What::Call(name) => format!("call of {},", shown(name)),
        What::Host(name) => format!("`{name}`,"),
        What::Bulk => "copy or fill of memory,".to_owned(),
    }
}

fn at(step: &Step) -> String {
    format!("in {}", step.place)
}

/// Each place that has no bound, once, and what to do there.
fn unbounded(out: &mut impl Write, findings: &Findings<'_>, paint: Paint) -> io::Result<()> {
    let mut seen: Vec<&Reason> = Vec::new();
    for entry in &findings.analysis.entries {
        for reason in &entry.unbounded {
            if seen.contains(&reason) {
                continue;
            }
            if seen.is_empty() {
                writeln!(out, "\n{}", paint.paint(Look::Bad, "Without a bound:"))?;
            }
            seen.push(reason);
            writeln!(out, "  {}", paint.paint(Look::Strong, &reason.place.to_string()))?;
            writeln!(out, "{}", wrapped("      ", 6, &reason.why.to_string()))?;
        }
    }
    Ok(())
}

/// Whether it was admitted, and by what times were told.
pub fn print_end(out: &mut impl Write, findings: &Findings<'_>, paint: Paint) -> io::Result<()> {
    let calibrate = if findings.calibration.is_measured() { "" } else { " (`weir calibrate` measures it)" };
    writeln!(out, "\nTimes: {}{calibrate}", findings.calibration)?;
    match (&findings.verdict, findings.compiled) {
        (Ok(_), Some(compiled)) => {
            writeln!(out, "{}; compiled in {compiled}", paint.paint(Look::Good, "Admitted"))
        }
        (Ok(_), None) => writeln!(out, "{}", paint.paint(Look::Bad, "Admitted, but it cannot be compiled")),
        (Err(_), _) => writeln!(out, "{}", paint.paint(Look::Bad, "Refused")),
    }
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
