//! What frames the tables: which module it is and how it is set, its tier and why, whether it is admitted, and what its times mean.

use super::Findings;
use super::paint::{Paint, TextStyle, wrapped};
use super::table::{at, what};
use crate::modules::wants;
use std::io::{self, Write};
use weir_admission::{
    Comparison, Excess, ModuleParameter, ModuleRefusal, ParameterType, ParameterValue, TickPeriod, Tier,
    shown,
};
use weir_units::Bytes;

/// Columns before the text of a line that begins with a heading.
const INDENT: usize = 6;

/// Which module it is, how it is set, its tier and why.
pub fn print(out: &mut impl Write, findings: &Findings<'_>, paint: Paint) -> io::Result<()> {
    let manifest = findings.manifest;
    let title = format!("{} {}", manifest.name, manifest.version);
    writeln!(out, "{}: {}", paint.paint(TextStyle::Strong, &title), manifest.summary)?;
    let imports = findings.facts.imports.join(", ");
    let imports = if imports.is_empty() { "nothing".to_owned() } else { imports };
    let about = format!("{} long; asks weir for {imports}{}", findings.size, tick(findings));
    writeln!(out, "{}", wrapped("", 0, &about))?;
    let set: Vec<String> = findings
        .parameters()
        .filter_map(|(parameter, value)| Some(format!("{}={}", parameter.name, value?)))
        .collect();
    if !set.is_empty() {
        writeln!(out, "{}", wrapped("Set:  ", INDENT, &set.join(" ")))?;
    }
    let tables: Vec<String> =
        manifest.tables.iter().map(|table| format!("{} ({})", table.name, wants(table))).collect();
    if !tables.is_empty() {
        writeln!(out, "{}", wrapped("Tables: ", INDENT, &tables.join(", ")))?;
    }
    let open: Vec<String> = findings.open().map(range).collect();
    if !open.is_empty() {
        let all = "the bounds hold for every value that may be given";
        let text = format!("{}; {all}", open.join(", "));
        writeln!(
            out,
            "{}",
            wrapped("Open: ", INDENT, &text).replacen("Open", &paint.paint(TextStyle::Warm, "Open"), 1)
        )?;
    }
    writeln!(out)?;
    tier(out, findings, paint)?;
    writeln!(out)
}

fn tick(findings: &Findings<'_>) -> String {
    let by_open = match findings.manifest.tick {
        Some(TickPeriod::Parameter(index)) => findings
            .parameters()
            .nth(index)
            .filter(|(_, value)| value.is_none())
            .map(|(parameter, _)| parameter),
        _ => None,
    };
    match (findings.tick, by_open) {
        (None, _) => String::new(),
        (Some(period), None) => format!("; ticks every {period} of packet time"),
        (Some(period), Some(parameter)) => {
            format!("; ticks every `{}` of packet time, {period} or more", parameter.name)
        }
    }
}

/// A parameter that was left open, with what it can be.
fn range(parameter: &ModuleParameter) -> String {
    let limits = match (&parameter.min, &parameter.max) {
        (Some(min), Some(max)) => format!(", {min} to {max}"),
        (Some(min), None) => format!(", from {min}"),
        (None, Some(max)) => format!(", up to {max}"),
        (None, None) => match parameter.ty {
            ParameterType::String | ParameterType::U64List | ParameterType::StringList => {
                format!(", up to {}", Bytes(ParameterValue::BYTES_MAX as u64))
            }
            _ => ", without limits".to_owned(),
        },
    };
    format!("{} ({}{limits})", parameter.name, parameter.ty.name())
}

/// The tier and what it means, or why it is refused.
fn tier(out: &mut impl Write, findings: &Findings<'_>, paint: Paint) -> io::Result<()> {
    let (look, name, meaning) = match &findings.verdict {
        Ok(Tier::Proved) => (
            TextStyle::Good,
            Tier::Proved.name(),
            "all its bounds are within its limits, so nothing is checked while it runs",
        ),
        Ok(Tier::Supervised) => (
            TextStyle::Warm,
            Tier::Supervised.name(),
            "it may need more than its limits; what it really uses is looked at while it runs, and it is unloaded where it keeps exceeding",
        ),
        Ok(Tier::Metered) => (
            TextStyle::Warm,
            Tier::Metered.name(),
            "it is charged while it runs, and a call that uses up its allowance is abandoned",
        ),
        Err(_) => (TextStyle::Bad, "refused", "it does not run by this profile"),
    };
    let text = wrapped(&format!("Tier: {name}: "), INDENT, meaning);
    writeln!(out, "{}", text.replacen(name, &paint.paint(look, name), 1))?;
    if let Some(why) = &findings.why {
        writeln!(out, "{}", wrapped("Why:  ", INDENT, why))?;
    }
    match findings.verdict {
        Err(ModuleRefusal::Excess(excess)) => excessive(out, excess)?,
        Err(refusal) => writeln!(out, "{}", wrapped("Why:  ", INDENT, &refusal.to_string()))?,
        Ok(_) => {}
    }
    if let Some(file) = &findings.profile {
        writeln!(out, "By:   the profile {}", shown(file))?;
    }
    Ok(())
}

/// The bound, the limit, where most of it comes from, and what would let the module run: a line for each.
fn excessive(out: &mut impl Write, excess: &Excess) -> io::Result<()> {
    let Comparison { bound, limit, .. } = excess.comparison;
    let amount = |amount| excess.comparison.shown(amount, &excess.calibration);
    writeln!(out, "{}", wrapped("Why:  ", INDENT, &excess.comparison.to_string()))?;
    let mut item = |name: &str, text: &str| {
        let begin = format!("{:INDENT$}{name:<12}", "");
        writeln!(out, "{}", wrapped(&begin, INDENT + 12, text))
    };
    item("bound", &amount(bound))?;
    item("limit", &format!("{}, by {} in the profile", amount(limit), excess.comparison.keys()))?;
    if let Some(step) = excess.contributor() {
        item("most of it", &format!("{} {}", what(step), at(step)))?;
    }
    if let Some(reason) = excess.reason.as_ref().filter(|_| !bound.is_bounded()) {
        item("place", &reason.to_string())?;
    }
    let tiers: Vec<&str> = excess.tiers.iter().map(|tier| tier.name()).collect();
    let advice = format!(
        "the profile's `tiers` are {}; with {} among them it would run",
        tiers.join(" and "),
        excess.needs()
    );
    item("tiers", &advice)
}

/// Of a module that was refused before anything was found about it: why.
pub fn print_refusal(out: &mut impl Write, name: &str, refusal: &str, paint: Paint) -> io::Result<()> {
    writeln!(
        out,
        "{}: {}",
        paint.paint(TextStyle::Strong, &shown(name)),
        paint.paint(TextStyle::Bad, "refused")
    )?;
    writeln!(out, "{}", wrapped("Why:  ", INDENT, refusal))
}

/// What the times mean, and whether the module was admitted.
pub fn print_end(out: &mut impl Write, findings: &Findings<'_>, paint: Paint) -> io::Result<()> {
    let [_, _, max] = findings.calibration.spread();
    let times = if findings.calibration.is_measured() {
        format!(
            "{max} ns for 1000 fuel, the slow end of what `weir calibrate` measured ({})",
            findings.calibration
        )
    } else {
        format!(
            "estimates, {max} ns for 1000 fuel: this node is not calibrated, `weir calibrate` measures it"
        )
    };
    let fuel = "The bound is one on fuel: a call takes longer where the processor has to wait for data";
    writeln!(
        out,
        "\n{}",
        paint.paint(TextStyle::Faint, &wrapped("Times: ", 7, &format!("{times}. {fuel}")))
    )?;
    let end = match (&findings.verdict, findings.compiled) {
        (Err(ModuleRefusal::Excess(excess)), _) => {
            format!("{}: {}", paint.paint(TextStyle::Bad, "Refused"), excess.comparison)
        }
        (Err(_), _) => paint.paint(TextStyle::Bad, "Refused"),
        (Ok(_), Some(compiled)) => {
            format!("{}; compiled in {compiled}", paint.paint(TextStyle::Good, "Admitted"))
        }
        (Ok(_), None) if findings.open().next().is_some() => {
            let rest = "whatever is given for what is open; it is compiled when all is given";
            format!("{}, {rest}", paint.paint(TextStyle::Good, "Admitted"))
        }
        (Ok(_), None) => paint.paint(TextStyle::Bad, "Admitted, but it cannot be compiled"),
    };
    writeln!(out, "{end}")
}
