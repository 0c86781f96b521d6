//! Tables whose columns have units, and their output as CSV and JSON.

use std::fmt::Write as _;

/// A column of a [`LedgerTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerColumn {
    /// The name that programs read, with its unit: `cpu_s`.
    pub key: &'static str,
    /// The title that people read: `CPU time`.
    pub title: &'static str,
    /// The unit that people read; empty for texts.
    pub unit: &'static str,
}

/// A cell of a [`LedgerTable`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerCell {
    /// No value.
    None,
    /// A text of plain characters.
    Text(String),
    /// A whole number.
    Count(u64),
    /// An exact number with `decimals` digits after the point.
    Decimal {
        /// The value, in units of the last digit.
        scaled: u128,
        /// Digits after the point, at most 9.
        decimals: u8,
    },
}

impl LedgerCell {
    /// Returns true for no value, zero and empty text.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::None => true,
            Self::Text(text) => text.is_empty(),
            Self::Count(count) => *count == 0,
            Self::Decimal { scaled, .. } => *scaled == 0,
        }
    }
}

impl std::fmt::Display for LedgerCell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::Text(text) => f.write_str(text),
            Self::Count(count) => write!(f, "{count}"),
            Self::Decimal { scaled, decimals: 0 } => write!(f, "{scaled}"),
            Self::Decimal { scaled, decimals } => {
                let width = usize::from((*decimals).min(9));
                let unit = 10u128.pow(u32::from((*decimals).min(9)));
                write!(f, "{}.{:0width$}", scaled / unit, scaled % unit)
            }
        }
    }
}

/// Rows of cells under columns. Every row has as many cells as there are columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerTable {
    columns: Vec<LedgerColumn>,
    rows: Vec<Vec<LedgerCell>>,
}

impl LedgerTable {
    /// Makes a table. A row that is too short is filled with empty cells; a row that is too long is cut off.
    pub fn new(columns: Vec<LedgerColumn>, mut rows: Vec<Vec<LedgerCell>>) -> Self {
        rows.iter_mut().for_each(|row| row.resize(columns.len(), LedgerCell::None));
        Self { columns, rows }
    }

    /// Returns the columns.
    pub fn columns(&self) -> &[LedgerColumn] {
        &self.columns
    }

    /// Returns the rows.
    pub fn rows(&self) -> &[Vec<LedgerCell>] {
        &self.rows
    }

    /// Returns the table without columns that are empty in every row, for people. Programs always get all columns.
    #[must_use]
    pub fn without_empty_columns(&self) -> LedgerTable {
        let has_values =
            |index: usize| self.rows.iter().any(|row| row.get(index).is_some_and(|cell| !cell.is_empty()));
        let kept: Vec<bool> = (0..self.columns.len()).map(has_values).collect();
        let keep = |index: usize| kept.get(index).copied().unwrap_or(false);
        let pick = |row: &Vec<LedgerCell>| {
            row.iter().enumerate().filter(|(index, _)| keep(*index)).map(|(_, cell)| cell.clone()).collect()
        };
        LedgerTable {
            columns: self
                .columns
                .iter()
                .enumerate()
                .filter(|(index, _)| keep(*index))
                .map(|(_, c)| *c)
                .collect(),
            rows: self.rows.iter().map(pick).collect(),
        }
    }

    /// Returns CSV with a line of names (RFC 4180, but with `\n`).
    pub fn to_csv(&self) -> String {
        let mut text = self.columns.iter().map(|column| column.key).collect::<Vec<_>>().join(",");
        text.push('\n');
        for row in &self.rows {
            let cells: Vec<String> = row.iter().map(|cell| quoted(cell.to_string())).collect();
            text.push_str(&cells.join(","));
            text.push('\n');
        }
        text
    }

    /// Returns a JSON list with an object for each row, in a line of its own. Numbers have all their digits.
    pub fn to_json(&self) -> String {
        let mut text = String::from("[");
        for (index, row) in self.rows.iter().enumerate() {
            text.push_str(if index == 0 { "\n  {" } else { ",\n  {" });
            for (index, (column, cell)) in self.columns.iter().zip(row).enumerate() {
                let comma = if index == 0 { "" } else { ", " };
                // Writing into a String cannot fail.
                let _ = match cell {
                    LedgerCell::None => write!(text, "{comma}\"{}\": null", column.key),
                    LedgerCell::Text(value) => {
                        write!(text, "{comma}\"{}\": {}", column.key, serde_json::Value::from(value.as_str()))
                    }
                    number => write!(text, "{comma}\"{}\": {number}", column.key),
                };
            }
            text.push('}');
        }
        text.push_str(if self.rows.is_empty() { "]\n" } else { "\n]\n" });
        text
    }
}

/// Returns a cell of CSV, in quotes if its text needs them.
fn quoted(text: String) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_and_json_of_a_table_have_the_same_values() {
        let column = |key| LedgerColumn { key, title: key, unit: "" };
        let decimal = |scaled| LedgerCell::Decimal { scaled, decimals: 9 };
        let table = LedgerTable::new(
            ["a", "b", "c", "d"].map(column).to_vec(),
            vec![
                vec![LedgerCell::Text("x,\"y".into()), decimal(1_000_000_001), LedgerCell::Count(0)],
                vec![
                    LedgerCell::None,
                    decimal(5),
                    LedgerCell::Count(0),
                    LedgerCell::None,
                    LedgerCell::Count(9),
                ],
            ],
        );
        assert_eq!(table.to_csv(), "a,b,c,d\n\"x,\"\"y\",1.000000001,0,\n,0.000000005,0,\n");
        assert_eq!(
            table.to_json(),
            "[\n  {\"a\": \"x,\\\"y\", \"b\": 1.000000001, \"c\": 0, \"d\": null},\n  \
             {\"a\": null, \"b\": 0.000000005, \"c\": 0, \"d\": null}\n]\n"
        );
        let short = table.without_empty_columns();
        assert_eq!(short.columns().iter().map(|column| column.key).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(short.rows()[1], [LedgerCell::None, decimal(5)]);
        assert_eq!(LedgerTable::default().to_json(), "[]\n");
    }
}
