//! Tables that are Markdown, and readable as they are.

/// A table with a head.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(|cell| (*cell).to_owned()).collect()] }
    }

    /// Appends a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Appends the rows of a table with the same head.
    pub fn extend(&mut self, other: Table) {
        self.rows.extend(other.rows.into_iter().skip(1));
    }
}

/// The cell that says whether a promise was kept.
pub fn yes_or_no(is_kept: bool) -> String {
    if is_kept { "yes" } else { "no" }.to_owned()
}

/// The cell that says whether a promise was kept, or by which part of it the measured value is beyond it.
pub fn kept_by(beyond: f64) -> String {
    if beyond <= 0.0 { yes_or_no(true) } else { format!("no, by {:.0} %", beyond * 100.0) }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let empty = String::new();
        let cell = |row: &Vec<String>, column: usize| row.get(column).unwrap_or(&empty).clone();
        // A column in which no row has anything to say is left out.
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
        let mut table = Table::new(&["module", "none", "ns"]);
        table.row(["a".to_owned(), "–".to_owned(), "1".to_owned()]);
        table.row(["bc".to_owned(), String::new(), "1234".to_owned()]);
        let expected = "| module |   ns |\n|--------|-----:|\n| a      |    1 |\n| bc     | 1234 |\n";
        assert_eq!(table.to_string(), expected);
    }
}
