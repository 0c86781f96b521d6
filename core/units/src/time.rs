//! Points in time as RFC 3339 text. The texts sort by time, and are exact to the nanosecond.

use crate::Timestamp;

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400;

/// The error for a text that is not a point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a time between 1970 and 2554: write a day, 2026-11-21, or a time of day as well, 2026-11-21T12:30:00Z"
)]
pub struct TimeError;

/// Returns a time as `2026-11-21T12:30:00.000000000Z`, always 30 characters.
pub fn show_time(at: Timestamp) -> String {
    time_text(at).iter().copied().map(char::from).collect()
}

/// Returns a time as the ASCII text of [`show_time`], without an allocation. Each line of a ledger has two times.
pub fn time_text(at: Timestamp) -> [u8; 30] {
    let (seconds, nanos) = (at.0 / SECOND, at.0 % SECOND);
    let (year, month, day) = civil(seconds / DAY);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    let mut text = *b"0000-00-00T00:00:00.000000000Z";
    for (range, number) in [
        (0..4, year),
        (5..7, month),
        (8..10, day),
        (11..13, hour),
        (14..16, minute),
        (17..19, second),
        (20..29, nanos),
    ] {
        let mut rest = number;
        for digit in text[range].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
    }
    text
}

/// Reads a date, or a date and a time in UTC with up to nine decimals of a second. A date stands for its first instant.
///
/// # Errors
/// Fails for any other text, for days that the calendar does not have, and for times that do not fit into a
/// [`Timestamp`].
pub fn parse_time(text: &str) -> Result<Timestamp, TimeError> {
    read(text).ok_or(TimeError)
}

fn read(text: &str) -> Option<Timestamp> {
    let (date, time) = match text.split_once('T') {
        Some((date, time)) => (date, Some(time.strip_suffix('Z')?)),
        None => (text, None),
    };
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let days = days_of(year, month, day)?;
    let (mut seconds, mut nanos) = (days * DAY, 0);
    if let Some(time) = time {
        let (whole, fraction) = time.split_once('.').unwrap_or((time, "0"));
        let [hour, minute, second] = numbers(whole, ':', [2, 2, 2])?;
        if hour > 23 || minute > 59 || second > 59 || fraction.len() > 9 {
            return None;
        }
        seconds += hour * 3_600 + minute * 60 + second;
        nanos = number(&format!("{fraction:0<9}"), 9)?;
    }
    seconds.checked_mul(SECOND)?.checked_add(nanos).map(Timestamp)
}

/// Reads three numbers between separators, each with exactly its number of digits.
fn numbers(text: &str, separator: char, digits: [usize; 3]) -> Option<[u64; 3]> {
    let mut parts = text.split(separator);
    let mut next = |digits| number(parts.next()?, digits);
    let numbers = [next(digits[0])?, next(digits[1])?, next(digits[2])?];
    parts.next().is_none().then_some(numbers)
}

/// Reads a number of exactly `digits` decimal digits.
fn number(text: &str, digits: usize) -> Option<u64> {
    let is_number = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// Returns year, month and day of a day counted from 1970-01-01. The computation uses eras of 400 years, and years and
/// months that begin in March (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// Returns the number of days from 1970-01-01 to a date: the inverse of [`civil`]. `None` if there is no such day since
/// 1970.
fn days_of(year: u64, month: u64, day: u64) -> Option<u64> {
    if year < 1970 || !(1..=12).contains(&month) || day == 0 {
        return None;
    }
    let march_year = year - u64::from(month <= 2);
    let (era, year_of_era) = (march_year / 400, march_year % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = (era * 146_097 + day_of_era).checked_sub(719_468)?;
    (civil(days) == (year, month, day)).then_some(days)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_and_read_again() {
        for (ns, text) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_400 * SECOND, "2000-02-29T00:00:00.000000000Z"),
            (1_795_263_005 * SECOND + 7, "2026-11-21T12:10:05.000000007Z"),
            (u64::MAX, "2554-07-21T23:34:33.709551615Z"),
        ] {
            assert_eq!(show_time(Timestamp(ns)), text);
            assert_eq!(parse_time(text), Ok(Timestamp(ns)));
        }
        assert_eq!(parse_time("2026-11-21"), parse_time("2026-11-21T00:00:00.0Z"));
        assert_eq!(parse_time("1970-01-01T00:00:01.5Z"), Ok(Timestamp(1_500_000_000)));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "2026",
            "2026-13-01",
            "2026-00-01",
            "2026-02-29",
            "2026-04-31",
            "1969-12-31",
            "2026-11-21T",
            "2026-11-21T24:00:00Z",
            "2026-11-21T12:00:00",
            "2026-11-21T12:00Z",
            "2026-11-21T12:00:00.0000000001Z",
            "2026-11-21T12:00:00.+1Z",
            "+026-11-21",
            "2555-01-01",
            "9999-12-31",
            "2026-11-21-",
            "2026-11-2é",
        ] {
            assert_eq!(parse_time(text), Err(TimeError), "{text}");
        }
    }

    #[test]
    fn every_day_has_one_date() {
        for day in 0..213_000 {
            let (year, month, of_month) = civil(day);
            assert_eq!(days_of(year, month, of_month), Some(day));
        }
    }
}
