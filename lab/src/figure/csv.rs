//! The rows of an experiment as comma-separated values.

use std::fmt::Write as _;

/// A table as comma-separated values: column names, then rows of numbers and words.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Csv {
    text: String,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A number. NaN and infinity are written as nothing.
    Number(f64),
    /// A word. Commas, quotes and line ends are left out.
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
    pub fn new(columns: &[&str]) -> Self {
        Self { text: format!("{}\n", columns.join(",")) }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        for (column, cell) in cells.into_iter().enumerate() {
            if column > 0 {
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
