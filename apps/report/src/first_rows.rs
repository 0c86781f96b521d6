//! The first rows of a stream as a table.

use crate::table::{HtmlCell, table};
use maud::Markup;
use {
    weir_admission::{DeclaredStream, StreamField},
    weir_session::Record,
};

/// The first rows of a stream, as text.
#[derive(Debug)]
pub(crate) struct FirstRows {
    fields: Vec<StreamField>,
    rows: Vec<Vec<String>>,
    rows_max: usize,
    /// Number of all rows of the stream.
    pub(crate) total: u64,
}

impl FirstRows {
    /// Creates a table that keeps the first `rows_max` rows.
    pub(crate) fn new(stream: &DeclaredStream, rows_max: usize) -> Self {
        Self { fields: stream.fields.clone(), rows: Vec::new(), rows_max, total: 0 }
    }

    /// Counts a row, and keeps it if it is among the first.
    pub(crate) fn record(&mut self, record: &Record<'_>) {
        self.total += 1;
        if self.rows.len() < self.rows_max {
            self.rows.push(
                self.fields.iter().map(|field| weir_rows::shown(field, record, weir_rows::utc)).collect(),
            );
        }
    }

    /// Renders the table, which has `label` as its accessible name.
    pub(crate) fn html(&self, label: &str) -> Markup {
        let head: Vec<HtmlCell> = self
            .fields
            .iter()
            .map(|field| HtmlCell { text: weir_rows::heading(field), right: weir_rows::is_number(field.ty) })
            .collect();
        let rows = self.rows.iter().map(|row| {
            row.iter()
                .zip(&self.fields)
                .map(|(text, field)| HtmlCell { text: text.clone(), right: weir_rows::is_number(field.ty) })
                .collect()
        });
        table(label, &head, rows)
    }

    /// The number of rows shown and of all rows: "50 of 1 234 rows".
    pub(crate) fn row_count(&self) -> String {
        let (shown, total) = (self.rows.len() as u64, self.total);
        match total {
            0 => "no rows".to_owned(),
            1 => "1 row".to_owned(),
            _ if shown < total => {
                format!("{} of {} rows", weir_rows::text::grouped(shown), weir_rows::text::grouped(total))
            }
            _ => format!("{} rows", weir_rows::text::grouped(total)),
        }
    }
}
