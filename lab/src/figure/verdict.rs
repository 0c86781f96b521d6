//! What must be seen, and whether it was.

use crate::table::Table;

/// One thing that an experiment must show.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// What must be so.
    pub what: String,
    /// What was demanded, as a number with its unit.
    pub wanted: String,
    /// What was measured.
    pub measured: String,
    /// Whether it is so.
    pub is_kept: bool,
}

impl Verdict {
    /// A value that must be so much at most. What is no number never is.
    pub fn at_most(what: impl Into<String>, measured: f64, limit: f64, unit: &str) -> Self {
        Self {
            what: what.into(),
            wanted: format!("≤ {}", shown(limit, unit)),
            measured: shown(measured, unit),
            is_kept: measured <= limit,
        }
    }

    /// A value that must be so much at least. What is no number never is.
    pub fn at_least(what: impl Into<String>, measured: f64, limit: f64, unit: &str) -> Self {
        Self {
            what: what.into(),
            wanted: format!("≥ {}", shown(limit, unit)),
            measured: shown(measured, unit),
            is_kept: measured >= limit,
        }
    }
}

/// A number with its unit, and as many digits as say something.
fn shown(value: f64, unit: &str) -> String {
    let digits = if value.abs() >= 100.0 || value.fract() == 0.0 { 0 } else { 2 };
    let space = if unit.is_empty() || unit.starts_with('×') { "" } else { " " };
    format!("{value:.digits$}{space}{unit}")
}

/// As a table.
pub fn table(verdicts: &[Verdict]) -> Table {
    let mut table = Table::new(&["what must be seen", "wanted", "measured", "seen"]);
    for verdict in verdicts {
        let seen = if verdict.is_kept { "yes" } else { "no" };
        table.row([verdict.what.clone(), verdict.wanted.clone(), verdict.measured.clone(), seen.to_owned()]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_part_of_what_is_allowed_and_what_is_no_number_is_not() {
        for (measured, at_most, at_least) in
            [(0.99, true, false), (1.0, true, true), (1.01, false, true), (f64::NAN, false, false)]
        {
            assert_eq!(Verdict::at_most("a", measured, 1.0, "%").is_kept, at_most, "{measured}");
            assert_eq!(Verdict::at_least("a", measured, 1.0, "%").is_kept, at_least, "{measured}");
        }
    }

    #[test]
    fn a_table_says_what_was_demanded() {
        let text = table(&[Verdict::at_most("error", 0.5, 1.0, "points")]).to_string();
        assert!(text.contains("| error") && text.contains("≤ 1 points | 0.50 points |  yes |"), "{text}");
    }
}
