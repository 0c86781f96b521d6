//! Records as comma-separated values.

use std::fmt::Write as _;

/// Rows of numbers and words under a head.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Csv {
    text: String,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A number; empty for NaN and infinity.
    Number(f64),
    /// A word without commas, quotes and line ends.
    Word(String),
}

impl From<f64> for Cell {
    fn from(value: f64) -> Self {
        Self::Number(value)
    }
}

impl From<&str> for Cell {
    fn from(value: &str) -> Self {
        Self::Word(value.to_owned())
    }
}

impl Csv {
    /// A table with these column names, each with its unit behind the last underscore.
    pub fn new(head: &[&str]) -> Self {
        Self { text: format!("{}\n", head.join(",")) }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        for (place, cell) in cells.into_iter().enumerate() {
            if place > 0 {
                self.text.push(',');
            }
            match cell {
                Cell::Number(value) if value.is_finite() => _ = write!(self.text, "{}", rounded(value)),
                Cell::Number(_) => {}
                Cell::Word(word) => {
                    self.text.extend(word.chars().filter(|c| !matches!(c, ',' | '"' | '\n' | '\r')));
                }
            }
        }
        self.text.push('\n');
    }

    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Rounds to a millionth: further digits carry no information and change with every run.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_lines_whatever_their_cells_hold() {
        let mut csv = Csv::new(&["time_s", "who", "share_percent"]);
        csv.row([0.5.into(), "a,b\n\"c".into(), 33.333_333_33.into()]);
        csv.row([1.0.into(), "d".into(), f64::NAN.into()]);
        assert_eq!(csv.text(), "time_s,who,share_percent\n0.5,abc,33.333333\n1,d,\n");
    }
}
