//! Criteria: a measured value against its limit. The benchmark checks its promises with them, and the experiments their
//! results.

use crate::table::{Table, yes_or_no};

/// A promise of the specification, or a result that an experiment must show.
#[derive(Clone, Debug, PartialEq)]
pub struct Criterion {
    pub what: String,
    /// The limit with its unit.
    pub wanted: String,
    /// The measured value with its unit.
    pub measured: String,
    pub is_kept: bool,
    /// The distance of the value from the limit, as a fraction of the limit.
    distance: f64,
}

impl Criterion {
    /// A value that must not exceed a limit. A value that is not a number exceeds it.
    pub fn at_most(what: impl Into<String>, measured: f64, limit: f64, unit: &str) -> Self {
        Self {
            what: what.into(),
            wanted: format!("≤ {}", format_value(limit, unit)),
            measured: format_value(measured, unit),
            is_kept: measured <= limit,
            distance: (measured / limit - 1.0).abs(),
        }
    }

    /// A value that must reach a limit. A value that is not a number does not reach it.
    pub fn at_least(what: impl Into<String>, measured: f64, limit: f64, unit: &str) -> Self {
        Self {
            wanted: format!("≥ {}", format_value(limit, unit)),
            is_kept: measured >= limit,
            ..Self::at_most(what, measured, limit, unit)
        }
    }
}

/// A number with its unit. Integers and numbers from 100 on have no fraction.
fn format_value(value: f64, unit: &str) -> String {
    let digits = if value.abs() >= 100.0 || value.fract() == 0.0 { 0 } else { 2 };
    let space = if unit.is_empty() || unit.starts_with('×') { "" } else { " " };
    format!("{value:.digits$}{space}{unit}")
}

/// The criteria as a table.
pub fn table(criteria: &[Criterion]) -> Table {
    let mut table = Table::new("criterion | wanted | measured | kept");
    for Criterion { what, wanted, measured, is_kept, distance } in criteria {
        let by = if *is_kept || !distance.is_finite() {
            String::new()
        } else {
            format!(", by {:.0} %", distance * 100.0)
        };
        table.row(format_args!("{what} | {wanted} | {measured} | {}{by}", yes_or_no(*is_kept)));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_at_the_limit_keeps_the_criterion_and_nan_breaks_it() {
        for (measured, at_most, at_least) in
            [(0.99, true, false), (1.0, true, true), (1.01, false, true), (f64::NAN, false, false)]
        {
            assert_eq!(Criterion::at_most("a", measured, 1.0, "%").is_kept, at_most, "{measured}");
            assert_eq!(Criterion::at_least("a", measured, 1.0, "%").is_kept, at_least, "{measured}");
        }
    }

    #[test]
    fn a_table_shows_the_limit_and_the_distance_beyond_it() {
        let text = table(&[
            Criterion::at_most("error", 0.5, 1.0, "points"),
            Criterion::at_least("rate", 4.0, 5.0, ""),
            Criterion::at_most("lost", 1.0, 0.0, ""),
        ])
        .to_string();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for row in ["| error | ≤ 1 points | 0.50 points | yes |", "≥ 5 | 4 | no, by 20 % |", "≤ 0 | 1 | no |"]
        {
            assert!(text.contains(row), "{row}: {text}");
        }
    }
}
