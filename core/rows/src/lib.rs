//! Rows of record streams as text, for people and for programs.
//!
//! [`RowTable`] prints rows as a table that fits a terminal. [`JsonRows`] prints a JSON object a line, [`CsvRows`] a line of
//! comma-separated values (RFC 4180). Names, texts and bytes of a row come from a module or from packets, which can be
//! hostile. So a printed row is always one line, and never contains a character that controls a terminal.

#![forbid(unsafe_code)]

mod csv;
mod finding;
mod finding_groups;
mod json;
mod table;
pub mod text;
mod value;

pub use csv::CsvRows;
pub use finding::{FindingReader, FindingRow};
pub use finding_groups::{FindingGroup, FindingGroups};
pub use json::{JsonRows, push_escape, push_text as push_json_text};
pub use table::RowTable;
pub use value::{heading, is_number, shown};

use weir_units::{Timestamp, time_text};

/// The offset of local time from UTC at a time, in seconds. Positive offsets are east of Greenwich.
pub type UtcOffset = fn(Timestamp) -> i32;

/// The offset of UTC itself.
pub fn utc(_: Timestamp) -> i32 {
    0
}

/// Moves a time by its offset, so that its text in UTC is the local time.
fn local(ts: Timestamp, offset: i32) -> Timestamp {
    Timestamp(ts.0.saturating_add_signed(i64::from(offset).saturating_mul(1_000_000_000)))
}

/// Formats a time with a number of decimals of a second: `2026-03-01 12:00:00.123`.
pub fn shown_time(ts: Timestamp, offset: UtcOffset, decimals: usize) -> String {
    text::date(local(ts, offset(ts)), decimals)
}

/// Appends a time as RFC 3339 text with nanoseconds: `2026-03-01T12:00:00.123456789Z`, or with an offset such as `+01:00`.
fn push_time(out: &mut Vec<u8>, ts: Timestamp, offset: UtcOffset) {
    let offset = offset(ts);
    let text = time_text(local(ts, offset));
    if offset == 0 {
        out.extend_from_slice(&text);
        return;
    }
    let sign = if offset < 0 { '-' } else { '+' };
    let minutes = offset.unsigned_abs() / 60;
    out.extend_from_slice(text.get(..text.len() - 1).unwrap_or_default());
    out.extend_from_slice(format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60).as_bytes());
}
