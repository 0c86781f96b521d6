//! Text layout for a terminal: columns, bars and short numbers. The other files of `weir top` build their lines with
//! these functions.

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use weir_node::client::rates::Rate;
use weir_units::escaped;

/// A column of a section of the screen.
#[derive(Clone, Copy, Debug)]
pub struct GridColumn {
    /// The title.
    pub title: &'static str,
    /// The width in terminal columns.
    pub width: usize,
    /// True for words; numbers are right-aligned.
    pub is_left_aligned: bool,
    /// The minimum screen width at which the column is shown.
    pub screen_width_min: usize,
}

/// Returns a column of numbers.
pub const fn number(title: &'static str, width: usize) -> GridColumn {
    GridColumn { title, width, is_left_aligned: false, screen_width_min: 0 }
}

/// Returns a column of words.
pub const fn word(title: &'static str, width: usize) -> GridColumn {
    GridColumn { title, width, is_left_aligned: true, screen_width_min: 0 }
}

/// Returns `column`, shown on screens that are at least `screen_width_min` wide.
pub const fn from_width(screen_width_min: usize, column: GridColumn) -> GridColumn {
    GridColumn { screen_width_min, ..column }
}

/// The text and style of a cell.
pub type Cell = (String, Style);

/// Returns the line of column titles.
pub fn titles(columns: &[GridColumn], width: usize, style: Style) -> Line<'static> {
    line(columns, columns.iter().map(|column| (column.title.to_owned(), style)).collect(), width)
}

/// Returns a line of cells, one for each column. Columns hidden at this width are left out, and long texts are cut.
pub fn line(columns: &[GridColumn], cells: Vec<Cell>, width: usize) -> Line<'static> {
    let mut spans = vec![Span::raw(" ")];
    let mut is_first = true;
    for (column, (text, style)) in
        columns.iter().zip(cells).filter(|(column, _)| column.screen_width_min <= width)
    {
        if !is_first {
            spans.push(Span::raw(" "));
        }
        is_first = false;
        let text = cut(&text, column.width);
        let padding = " ".repeat(column.width.saturating_sub(width_of(&text)));
        let text = if column.is_left_aligned { text + &padding } else { padding + &text };
        spans.push(Span::styled(text, style));
    }
    Line::from(spans)
}

/// Returns the width of a text in terminal columns.
fn width_of(text: &str) -> usize {
    Span::raw(text).width()
}

/// Cuts a text to `width` terminal columns; a cut text ends with `…`.
pub fn cut(text: &str, width: usize) -> String {
    if width_of(text) <= width {
        return text.to_owned();
    }
    let mut short = String::new();
    for c in text.chars() {
        short.push(c);
        if width_of(&short) >= width {
            short.pop();
            break;
        }
    }
    if width > 0 {
        short.push('…');
    }
    short
}

/// Escapes control characters in a text from an untrusted source, such as a module.
pub fn plain(text: &str) -> String {
    escaped(text)
}

/// Returns a bar of `width` terminal columns, filled to a share between 0 and 1.
pub fn bar(share: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = width * 8;
    let filled = parts(share, eighths);
    let mut text = "█".repeat(filled / 8);
    text.push_str(EIGHTHS.get(filled % 8).copied().unwrap_or_default());
    let used_columns = filled.div_ceil(8);
    text.push_str(&"░".repeat(width.saturating_sub(used_columns)));
    text
}

/// Returns the number of parts that a share of `all` parts covers, rounded to nearest. At least 1 for a share above 0.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to a screen's width"
)]
fn parts(share: f64, all: usize) -> usize {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let parts = (share * all as f64).round() as usize;
    if share > 0.0 { parts.max(1).min(all) } else { 0 }
}

/// Formats a share in percent with one decimal; a dash for `None`.
pub fn percent(share: Rate) -> String {
    share.map_or("-".to_owned(), |share| format!("{:.1}", share * 100.0))
}

/// Formats a number in at most five characters: `0`, `7.5`, `999`, `12.3k`, `4.5M`.
pub fn short(number: Rate) -> String {
    let Some(number) = number else { return "-".to_owned() };
    const UNITS: [(f64, &str); 5] = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    // A number that would round to 1000 is shown in the next unit.
    match UNITS.into_iter().find(|(scale, _)| number >= scale * 0.9995) {
        Some((scale, unit)) => scaled(number / scale) + unit,
        None => scaled(number),
    }
}

/// Formats a count in at most five characters, as in [`short`].
#[expect(clippy::cast_precision_loss, reason = "for people to read")]
pub fn count(number: u64) -> String {
    short(Some(number as f64))
}

/// Formats a number of bytes in at most five characters, with units of powers of 1024: `512`, `64M`.
#[expect(clippy::cast_precision_loss, reason = "for people to read")]
pub fn bytes(bytes: u64) -> String {
    const UNITS: [(u64, &str); 5] =
        [(1 << 50, "P"), (1 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    match UNITS.into_iter().find(|(scale, _)| bytes >= *scale) {
        Some((scale, unit)) => scaled(bytes as f64 / scale as f64) + unit,
        None => bytes.to_string(),
    }
}

fn scaled(number: f64) -> String {
    let text = if number < 99.95 { format!("{number:.1}") } else { format!("{number:.0}") };
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_short() {
        for (number, text) in [
            (0.0, "0"),
            (0.04, "0"),
            (7.5, "7.5"),
            (99.96, "100"),
            (999.4, "999"),
            (999.6, "1k"),
            (12_345.0, "12.3k"),
            (999_600.0, "1M"),
            (4_500_000.0, "4.5M"),
            (8e9, "8G"),
            (1e17, "100P"),
        ] {
            assert_eq!(short(Some(number)), text);
        }
        assert_eq!(
            (short(None).as_str(), percent(None).as_str(), percent(Some(0.2)).as_str()),
            ("-", "-", "20.0")
        );
        assert_eq!([0, 1023, 1536, 64 << 20, u64::MAX].map(bytes), ["0", "1023", "1.5K", "64M", "16384P"]);
    }

    #[test]
    fn bars_have_the_requested_width() {
        for (share, text) in [
            (0.0, "░░░░"),
            (0.001, "▏░░░"),
            (0.5, "██░░"),
            (0.6, "██▍░"),
            (1.0, "████"),
            (7.0, "████"),
            (f64::NAN, "░░░░"),
        ] {
            assert_eq!(bar(share, 4), text);
        }
        assert_eq!(bar(1.0, 0), "");
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(
            [cut("abcd", 4), cut("abcde", 4), cut("ab", 0), cut("日本語", 5)],
            ["abcd", "abc…", "", "日本…"]
        );
        let columns = [word("NAME", 6), number("N", 3), from_width(100, number("WIDE", 4))];
        let cells = || ["a long name", "12", "9"].map(|text| (text.to_owned(), Style::new())).to_vec();
        assert_eq!(line(&columns, cells(), 80).to_string(), " a lon…  12");
        assert_eq!(line(&columns, cells(), 100).to_string(), " a lon…  12    9");
    }
}
