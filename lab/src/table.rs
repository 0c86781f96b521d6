//! Tables in Markdown, with aligned columns, for the output of the benchmark and the experiments.

use std::fmt::Display;

/// A table. The head and each row are given as a text with `|` between the cells.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(head: impl Display) -> Self {
        let mut table = Self::default();
        table.row(head);
        table
    }

    pub fn row(&mut self, cells: impl Display) {
        self.rows.push(cells.to_string().split('|').map(|cell| cell.trim().to_owned()).collect());
    }
}

/// The cell that states whether a promise is kept.
pub fn yes_or_no(is_kept: bool) -> &'static str {
    if is_kept { "yes" } else { "no" }
}

/// The two cells for a promise that a value stays under a limit: the promise, and whether it is kept.
pub fn under(limit: f64, measured: f64) -> String {
    format!("under {limit} | {}", yes_or_no(measured < limit))
}

impl Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cell = |row: &Vec<String>, column: usize| row.get(column).cloned().unwrap_or_default();
        // Columns that are empty in all rows are left out.
        let kept: Vec<usize> = (0..columns)
            .filter(|c| self.rows.iter().skip(1).any(|row| !matches!(cell(row, *c).as_str(), "" | "–")))
            .collect();
        let width =
            |c: usize| self.rows.iter().map(|row| cell(row, c).chars().count()).max().unwrap_or(0).max(3);
        for (i, row) in self.rows.iter().enumerate() {
            for (place, column) in kept.iter().enumerate() {
                let (text, width) = (cell(row, *column), width(*column));
                if place == 0 { write!(f, "| {text:<width$} |")? } else { write!(f, " {text:>width$} |")? }
            }
            writeln!(f)?;
            if i == 0 {
                for (place, column) in kept.iter().enumerate() {
                    let dashes = "-".repeat(width(*column));
                    if place == 0 { write!(f, "|-{dashes}-|")? } else { write!(f, "-{dashes}:|")? }
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_empty_ones_left_out() {
        let mut table = Table::new("module | none | ns");
        table.row("a | – | 1");
        table.row("bc | | 1234");
        let expected = "| module |   ns |\n|--------|-----:|\n| a      |    1 |\n| bc     | 1234 |\n";
        assert_eq!(table.to_string(), expected);
    }
}
