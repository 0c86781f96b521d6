//! Formats numbers, durations and dates for people.

use weir_units::Timestamp;

/// Groups digits by thousands with non-breaking spaces: 1234567 becomes "1 234 567".
pub fn grouped(value: u64) -> String {
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

/// Groups digits by thousands with commas: 1234567 becomes "1,234,567".
pub fn with_commas(value: u64) -> String {
    grouped(value).replace('\u{202f}', ",")
}

/// Formats three significant digits with an SI prefix: 0, 950, 1.25k, 20M.
pub fn si(value: f64) -> String {
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
pub fn significant(value: f64) -> String {
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
pub fn duration(ns: f64) -> String {
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

/// Formats a time with a number of decimals of a second, from 0 to 9: "2026-03-01 12:00:00.123456789".
pub fn date(ts: Timestamp, decimals: usize) -> String {
    let mut text = weir_units::time_text(ts);
    text[10] = b' ';
    let end = if decimals == 0 { 19 } else { 20 + decimals.min(9) };
    text.iter().take(end).copied().map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
