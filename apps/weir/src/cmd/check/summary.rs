//! The text that `weir check` prints before and after the table of bounds: the module and its parameters, the tier, the
//! verdict, and notes on the times.

use super::CheckResults;
use super::paint::{Paint, TextStyle, wrapped};
use super::table::{describe_step, step_location};
use crate::modules::describe_access;
use std::io::{self, Write};
use weir_admission::{
    Comparison, Excess, ModuleParameter, ModuleRefusal, ParameterType, ParameterValue, TickPeriod, Tier,
    escaped,
};
use weir_units::{Bytes, Escape as _};

/// The indent of the text after a heading.
const INDENT: usize = 6;

/// Prints the text before the table of bounds: the module, its parameters, and its tier with the reason.
pub fn print(out: &mut impl Write, results: &CheckResults<'_>, paint: Paint) -> io::Result<()> {
    let manifest = results.manifest;
    let title = format!("{} {}", manifest.name, manifest.version);
    writeln!(out, "{}: {}", paint.paint(TextStyle::Strong, &title), manifest.summary)?;
    let imports = results.info.imports.join(", ");
    let imports = if imports.is_empty() { "nothing".to_owned() } else { imports };
    let about = format!("{} long; imports {imports}{}", results.size, tick_text(results));
    writeln!(out, "{}", wrapped("", 0, &about))?;
    let set: Vec<String> = results
        .parameters()
        .filter_map(|(parameter, value)| Some((parameter.name.as_str(), value?.to_string())))
        .map(|(name, value)| format!("{name}={}", if value.is_empty() { " (empty)" } else { &value }))
        .collect();
    if !set.is_empty() {
        writeln!(out, "{}", wrapped("Set:  ", INDENT, &set.join(" ")))?;
    }
    if let Some(any) = &results.any_value {
        let text = if any.is_same {
            "The bounds are the same for every allowed value.".to_owned()
        } else {
            format!(
                "These bounds are for the values in `Set:`. With every allowed value: {}",
                any.verdict_text()
            )
        };
        writeln!(out, "{}", wrapped(&" ".repeat(INDENT), INDENT, &text))?;
    }
    let tables: Vec<String> =
        manifest.tables.iter().map(|table| format!("{} ({})", table.name, describe_access(table))).collect();
    if !tables.is_empty() {
        writeln!(out, "{}", wrapped("Tables: ", INDENT, &tables.join(", ")))?;
    }
    let open: Vec<String> = results.open_parameters().map(describe_open_parameter).collect();
    if !open.is_empty() {
        let text = format!("{}; the bounds hold for every allowed value", open.join(", "));
        writeln!(
            out,
            "{}",
            wrapped("Open: ", INDENT, &text).replacen("Open", &paint.paint(TextStyle::Warm, "Open"), 1)
        )?;
    }
    writeln!(out)?;
    print_tier(out, results, paint)?;
    writeln!(out)
}

/// Describes the tick period; empty for a module without ticks.
fn tick_text(results: &CheckResults<'_>) -> String {
    let open_parameter = match results.manifest.tick {
        Some(TickPeriod::Parameter(index)) => results
            .parameters()
            .nth(index)
            .filter(|(_, value)| value.is_none())
            .map(|(parameter, _)| parameter),
        _ => None,
    };
    match (results.tick, open_parameter) {
        (None, _) => String::new(),
        (Some(period), None) => format!("; ticks every {period} of packet time"),
        (Some(period), Some(parameter)) => {
            format!("; ticks every `{}` of packet time, {period} or more", parameter.name)
        }
    }
}

/// Describes a parameter without a value: its name, type and range.
fn describe_open_parameter(parameter: &ModuleParameter) -> String {
    let limits = match (&parameter.min, &parameter.max) {
        (Some(min), Some(max)) => format!(", {min} to {max}"),
        (Some(min), None) => format!(", from {min}"),
        (None, Some(max)) => format!(", up to {max}"),
        (None, None) => match parameter.ty {
            ParameterType::Enum => format!(": {}", parameter.values_as_text()),
            ParameterType::String
            | ParameterType::U64List
            | ParameterType::StringList
            | ParameterType::PrefixList => {
                format!(", up to {}", Bytes(ParameterValue::BYTES_MAX as u64))
            }
            _ => ", without limits".to_owned(),
        },
    };
    format!("{} ({}{limits})", parameter.name, parameter.ty.name())
}

/// Prints the tier and its meaning, or the reason of the refusal.
fn print_tier(out: &mut impl Write, results: &CheckResults<'_>, paint: Paint) -> io::Result<()> {
    let (style, name, meaning) = match &results.verdict {
        Ok(Tier::Proved) => (
            TextStyle::Good,
            Tier::Proved.name(),
            "all bounds of the module are within its limits, so nothing is checked while it runs",
        ),
        Ok(Tier::Supervised) => (
            TextStyle::Warm,
            Tier::Supervised.name(),
            "the module may need more than its limits; weir observes its usage while it runs, and unloads it if it repeatedly exceeds a limit",
        ),
        Ok(Tier::Metered) => (
            TextStyle::Warm,
            Tier::Metered.name(),
            "the module is charged while it runs, and a call that uses up its fuel is aborted",
        ),
        Ok(Tier::Unmetered) => (
            TextStyle::Warm,
            Tier::Unmetered.name(),
            "nothing is checked while the module runs, although its bounds are not proved",
        ),
        Err(_) => (TextStyle::Bad, "refused", "this profile does not admit the module"),
    };
    let text = wrapped(&format!("Tier: {name}: "), INDENT, meaning);
    writeln!(out, "{}", text.replacen(name, &paint.paint(style, name), 1))?;
    if let Some(why) = &results.tier_reason {
        writeln!(out, "{}", wrapped("Why:  ", INDENT, why))?;
    }
    match results.verdict {
        Err(ModuleRefusal::Excess(excess)) => print_excess(out, excess)?,
        Err(refusal) => writeln!(out, "{}", wrapped("Why:  ", INDENT, &refusal.to_string()))?,
        Ok(_) => {}
    }
    if let Some(file) = &results.profile {
        writeln!(out, "By:   the profile {}", escaped(file))?;
    }
    Ok(())
}

/// Prints the exceeded limit, the bound, the largest contributor to the bound, and the tiers that would admit the
/// module.
fn print_excess(out: &mut impl Write, excess: &Excess) -> io::Result<()> {
    let Comparison { bound, limit, .. } = excess.comparison;
    let amount = |amount| excess.comparison.amount_text(amount, &excess.calibration);
    writeln!(out, "{}", wrapped("Why:  ", INDENT, &excess.comparison.to_string()))?;
    let mut item = |name: &str, text: &str| {
        let begin = format!("{:INDENT$}{name:<12}", "");
        writeln!(out, "{}", wrapped(&begin, INDENT + 12, text))
    };
    item("bound", &amount(bound))?;
    item("limit", &format!("{}, by {} in the profile", amount(limit), excess.comparison.profile_keys()))?;
    if let Some(step) = &excess.contributor {
        item("most of it", &format!("{} {}", describe_step(step), step_location(step)))?;
    }
    if let Some(reason) = excess.reason.as_ref().filter(|_| !bound.is_bounded()) {
        item("place", &reason.place.to_string())?;
        item("reason", &reason.cause.to_string())?;
    }
    let tiers: Vec<&str> = excess.tiers.iter().map(|tier| tier.name()).collect();
    let advice = format!(
        "the profile's `tiers` are {}; with {} among them it would run",
        tiers.join(" and "),
        excess.needed_tier()
    );
    item("tiers", &advice)
}

/// Prints the refusal of a module that could not be analysed.
pub fn print_refusal(out: &mut impl Write, name: &str, refusal: &str, paint: Paint) -> io::Result<()> {
    writeln!(
        out,
        "{}: {}",
        paint.paint(TextStyle::Strong, &escaped(name)),
        paint.paint(TextStyle::Bad, "refused")
    )?;
    writeln!(out, "{}", wrapped("Why:  ", INDENT, refusal))
}

/// Prints the text after the table of bounds: the notes on the times, and the verdict.
pub fn print_end(out: &mut impl Write, results: &CheckResults<'_>, paint: Paint) -> io::Result<()> {
    let [_, _, max] = results.calibration.spread();
    let times = if results.calibration.is_measured() {
        format!(
            "{max} ns for 1000 fuel, the slowest rate that `weir calibrate` measured ({})",
            results.calibration
        )
    } else {
        format!(
            "estimates, {max} ns for 1000 fuel: this machine is not calibrated, `weir calibrate` measures it"
        )
    };
    let note = "The bound limits fuel; a call takes more time if the processor waits for memory";
    writeln!(
        out,
        "\n{}",
        paint.paint(TextStyle::Faint, &wrapped("Times: ", 7, &format!("{times}. {note}")))
    )?;
    let end = match (&results.verdict, results.compilation) {
        (Err(ModuleRefusal::Excess(excess)), _) => {
            format!("{}: {}", paint.paint(TextStyle::Bad, "Refused"), excess.comparison)
        }
        (Err(_), _) => paint.paint(TextStyle::Bad, "Refused"),
        (Ok(_), Some(compilation)) => {
            let back_ends = match &compilation.why_not_llvm {
                None => "Cranelift at first, LLVM in longer runs".to_owned(),
                Some(why) => format!("Cranelift alone; for LLVM: {}", why.escaped()),
            };
            writeln!(out, "{}", wrapped("Back end: ", 10, &back_ends))?;
            format!("{}; compiled in {}", paint.paint(TextStyle::Good, "Admitted"), compilation.time)
        }
        (Ok(_), None) if results.open_parameters().next().is_some() => {
            let rest = "for every value of the open parameters; compiled once all parameters have values";
            format!("{}, {rest}", paint.paint(TextStyle::Good, "Admitted"))
        }
        (Ok(_), None) => paint.paint(TextStyle::Bad, "Admitted, but it cannot be compiled"),
    };
    writeln!(out, "{end}")
}
