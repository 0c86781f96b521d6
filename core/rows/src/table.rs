//! Rows as a table on a terminal.

use crate::{UtcOffset, heading, is_number, shown};
use unicode_width::UnicodeWidthStr;
use weir_abi::row::FieldType;
use weir_admission::{DeclaredStream, StreamField};
use weir_session::Record;
use weir_units::Escape as _;

/// The least width to which columns of texts are narrowed to fit a line, in columns of the terminal.
const TEXT_WIDTH_MIN: usize = 12;
/// The space between two columns.
const GAP: &str = "  ";

/// A table of one stream, printed while rows arrive.
///
/// The widths of its columns follow the rows that are known when the heading is printed. The value of a later row that is
/// wider moves the rest of its line.
#[derive(Debug)]
pub struct RowTable {
    fields: Vec<StreamField>,
    offset: UtcOffset,
    /// The width of a line, in columns of the terminal; `None` if nothing limits it.
    line_width: Option<usize>,
    /// The width of each printed column. Empty until the heading is printed.
    widths: Vec<usize>,
}

impl RowTable {
    /// Creates a table for a stream.
    pub fn new(stream: &DeclaredStream, offset: UtcOffset, line_width: Option<usize>) -> Self {
        Self { fields: stream.fields.clone(), offset, line_width, widths: Vec::new() }
    }

    /// Returns the texts of a row, escaped.
    pub fn cells(&self, record: &Record<'_>) -> Vec<String> {
        let cell = |field| {
            let text = shown(field, record, self.offset);
            // Most values need no escape.
            if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
                return text;
            }
            text.replace('\u{202f}', " ").escaped().to_string()
        };
        self.fields.iter().map(cell).collect()
    }

    /// Appends the line with the names and units of the fields, wide enough for `rows`.
    pub fn push_heading(&mut self, out: &mut String, rows: &[Vec<String>]) {
        let headings: Vec<String> =
            self.fields.iter().map(|field| heading(field).escaped().to_string()).collect();
        if self.widths.is_empty() {
            self.widths = self.column_widths(&headings, rows);
        }
        self.push_line(out, &headings);
    }

    /// Appends a row. The heading must have been printed.
    pub fn push_row(&self, out: &mut String, cells: &[String]) {
        self.push_line(out, cells);
    }

    /// Returns the number of fields that do not fit on a line, and are not printed.
    pub fn hidden_fields(&self) -> usize {
        self.fields.len() - self.widths.len()
    }

    /// Returns the width of each column that fits.
    fn column_widths(&self, headings: &[String], rows: &[Vec<String>]) -> Vec<usize> {
        let mut widths: Vec<usize> = Vec::new();
        for (index, field) in self.fields.iter().enumerate() {
            let cells = rows.iter().filter_map(|row| row.get(index));
            let widest = cells.chain(headings.get(index)).map(|cell| cell.width()).max().unwrap_or(0);
            widths.push(widest.max(usual_width(field.ty)));
        }
        let Some(line_width) = self.line_width else { return widths };
        let total =
            |widths: &[usize]| widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1);
        // Texts are narrowed first, the widest of them by one column at a time.
        while total(&widths) > line_width {
            let texts = widths.iter_mut().zip(&self.fields).filter(|(width, field)| {
                matches!(field.ty, FieldType::String | FieldType::Bytes) && **width > TEXT_WIDTH_MIN
            });
            match texts.max_by_key(|(width, _)| **width) {
                Some((width, _)) => *width -= 1,
                None => break,
            }
        }
        // The fields at the end are left out.
        while widths.len() > 1 && total(&widths) > line_width {
            widths.pop();
        }
        widths
    }

    fn push_line(&self, out: &mut String, cells: &[String]) {
        let start = out.len();
        for ((cell, field), width) in cells.iter().zip(&self.fields).zip(&self.widths) {
            if out.len() > start {
                out.push_str(GAP);
            }
            let narrowed;
            let mut cell_width = display_width(cell);
            let is_text = matches!(field.ty, FieldType::String | FieldType::Bytes);
            let cell = if cell_width > *width && is_text {
                narrowed = narrow(cell, *width);
                cell_width = display_width(&narrowed);
                &narrowed
            } else {
                cell
            };
            let space = width.saturating_sub(cell_width);
            let (before, after) = if is_number(field.ty) { (space, 0) } else { (0, space) };
            out.extend(std::iter::repeat_n(' ', before));
            out.push_str(cell);
            out.extend(std::iter::repeat_n(' ', after));
        }
        let end = start + out.get(start..).map_or(0, |line| line.trim_end().len());
        out.truncate(end);
        out.push('\n');
    }
}

/// Returns the width of a text in columns of the terminal.
fn display_width(text: &str) -> usize {
    // `width` looks up each character, which takes longer.
    if text.is_ascii() { text.len() } else { text.width() }
}

/// Returns the begin of a text that fits into a width, with an ellipsis.
fn narrow(text: &str, width: usize) -> String {
    let mut begin = String::new();
    for c in text.chars() {
        begin.push(c);
        if begin.width() >= width {
            begin.pop();
            break;
        }
    }
    begin.push('…');
    begin
}

/// Returns the width that values of a type usually need, so that later rows are aligned with the first ones.
const fn usual_width(ty: FieldType) -> usize {
    match ty {
        FieldType::Timestamp => "2026-03-01 12:00:00.123456".len(),
        FieldType::Ip => "255.255.255.255".len(),
        FieldType::Duration => "99.9 min".len(),
        FieldType::U16 => "65535".len(),
        FieldType::F32 | FieldType::F64 => "-0.1234".len(),
        _ => 3,
    }
}
