//! Formats numbers and dates, and escapes text for HTML.

use std::fmt::Write;
use weir_units::{Timestamp, is_plain};

/// Escapes untrusted text for use between tags and in quoted attributes. Control characters and characters
/// that change the direction of writing are shown as escapes, as they could make one name look like another.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if is_plain(c) => out.push(c),
            c => out.extend(c.escape_default()),
        }
    }
    out
}

/// Groups digits by thousands with non-breaking spaces: 1234567 becomes "1 234 567".
pub(crate) fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() * 2);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// Formats three significant digits with an SI prefix: 0, 950, 1.25k, 20M.
pub(crate) fn si(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let (scale, prefix) = match value.abs() {
        v if v >= 999.5e12 => return format!("{value:.1e}"),
        v if v >= 999.5e9 => (1e12, "T"),
        v if v >= 999.5e6 => (1e9, "G"),
        v if v >= 999.5e3 => (1e6, "M"),
        v if v >= 999.5 => (1e3, "k"),
        _ => (1.0, ""),
    };
    format!("{}{prefix}", significant(value / scale))
}

/// Formats three significant digits, without trailing zeros.
pub(crate) fn significant(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 || v == 0.0 => 2,
        v if v >= 0.0995 => 3,
        v if v >= 0.001 => 4,
        _ => return format!("{value:.1e}"),
    };
    let text = format!("{value:.decimals$}");
    if decimals == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_owned() }
}

/// Formats nanoseconds in a suitable unit with three significant digits: "1.25 ms".
pub(crate) fn duration(ns: f64) -> String {
    let (scale, unit) = match ns.abs() {
        v if v >= 86_400e9 * 2.0 => (86_400e9, "d"),
        v if v >= 7_200e9 => (3_600e9, "h"),
        v if v >= 180e9 => (60e9, "min"),
        v if v >= 999.5e6 => (1e9, "s"),
        v if v >= 999.5e3 => (1e6, "ms"),
        v if v >= 999.5 => (1e3, "µs"),
        _ => (1.0, "ns"),
    };
    format!("{}\u{202f}{unit}", significant(ns / scale))
}

/// Formats a time in UTC with a number of decimals: "2026-03-01 12:00:00.123456789".
pub(crate) fn date(ts: Timestamp, decimals: usize) -> String {
    let (days, seconds) = (ts.0 / 86_400_000_000_000, ts.0 / 1_000_000_000 % 86_400);
    // Days to a civil date, counting eras of 400 years from 0000-03-01 (Howard Hinnant, "chrono-Compatible Low-Level Date
    // Algorithms"). Days are below 2^18, so nothing here overflows.
    let day = days + 719_468;
    let era_day = day % 146_097;
    let era_year = (era_day - era_day / 1_460 + era_day / 36_524 - era_day / 146_096) / 365;
    let year_day = era_day - (365 * era_year + era_year / 4 - era_year / 100);
    let month = (5 * year_day + 2) / 153;
    let (d, m) = (year_day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let y = day / 146_097 * 400 + era_year + u64::from(m <= 2);
    let mut out =
        format!("{y:04}-{m:02}-{d:02} {:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if decimals > 0 {
        let fraction = format!("{:09}", ts.0 % 1_000_000_000);
        // Writing to a String cannot fail.
        let _ = write!(out, ".{}", fraction.get(..decimals.min(9)).unwrap_or(""));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_escaped() {
        assert_eq!(escape("<b a='\"'>&\u{7}\u{202e}"), r"&lt;b a=&#39;&quot;&#39;&gt;&amp;\u{7}\u{202e}");
    }

    #[test]
    fn numbers_are_short() {
        let shown = [0.0, 0.5, 12.0, 999.6, 1250.0, 20e6, 3.14159e9, f64::NAN].map(si);
        assert_eq!(shown, ["0", "0.5", "12", "1k", "1.25k", "20M", "3.14G", "–"]);
        assert_eq!(
            [1.0, 1_500.0, 23.4e6, 61e9, 240e9].map(duration),
            ["1\u{202f}ns", "1.5\u{202f}µs", "23.4\u{202f}ms", "61\u{202f}s", "4\u{202f}min"]
        );
        assert_eq!([7, 1_234, 1_234_567].map(grouped), ["7", "1\u{202f}234", "1\u{202f}234\u{202f}567"]);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        // From `date -u -d @SECONDS`.
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_709_251_199, "2024-02-29 23:59:59"),
            (4_107_542_400, "2100-03-01 00:00:00"),
            (1_700_000_000, "2023-11-14 22:13:20"),
        ] {
            assert_eq!(date(Timestamp(seconds * 1_000_000_000), 0), text);
        }
        assert_eq!(date(Timestamp(1_700_000_000_123_456_789), 3), "2023-11-14 22:13:20.123");
        assert_eq!(date(Timestamp(u64::MAX), 0), "2554-07-21 23:34:33");
    }
}
