//! Durations and points in time, in nanoseconds.

use crate::amount::rounded;
use crate::{Amount, ParseError, scaled, split_unit};
use std::fmt;
use std::time::Duration;

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl From<Duration> for Nanos {
    /// Converts a duration. More than 584 years give the maximum.
    fn from(time: Duration) -> Self {
        Self(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Nanos {
    /// One second.
    pub const SECOND: Nanos = Nanos(1_000_000_000);
    /// One millisecond.
    pub const MILLISECOND: Nanos = Nanos(1_000_000);

    /// Returns the duration in seconds.
    #[expect(clippy::cast_precision_loss, reason = "for people to read")]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

/// A point in time: nanoseconds since 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Returns the time since `earlier`; zero if `earlier` is later than this time.
    pub fn since(self, earlier: Timestamp) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl std::str::FromStr for Nanos {
    type Err = ParseError;

    /// Reads "250ns", "10us", "1.5ms", "2s", "5m", "1h". A bare number is refused, because its unit would have to be
    /// guessed.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong = || ParseError { given: text.to_owned(), wanted: "a duration such as 250us, 1.5s or 10m" };
        let (number, unit) = split_unit(text);
        let scale = match unit {
            "ns" => 1,
            "us" | "µs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" | "min" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return Err(wrong()),
        };
        scaled(number, scale).map(Nanos).ok_or_else(wrong)
    }
}

impl fmt::Display for Nanos {
    /// Writes the value in the largest unit in which it is at least 1, with at most three decimals, or as many as the
    /// format's precision states.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scale, unit) = match self.0 {
            0..1_000 => return write!(f, "{} ns", self.0),
            1_000..1_000_000 => (1e3, "us"),
            1_000_000..1_000_000_000 => (1e6, "ms"),
            _ => (1e9, "s"),
        };
        rounded(f, (self.0, scale, unit), 3)
    }
}

impl Amount for Nanos {
    fn exact(self) -> String {
        format!("{} ns", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_exactly() {
        for (text, ns) in [
            ("250ns", 250),
            ("1.5ms", 1_500_000),
            ("0.1s", 100_000_000),
            ("2 s", 2_000_000_000),
            ("1h", 3_600_000_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Nanos(ns)), "{text}");
        }
        for text in [
            "",
            "5",
            "s",
            "1.s5",
            "-1s",
            "1.0000000001s",
            "99999999999999999999s",
            "1d",
            "18446744073709551615h",
        ] {
            assert!(text.parse::<Nanos>().is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_shown_in_the_unit_that_fits() {
        let shown = [0, 999, 1_500, 2_000_000, 61_000_000_000].map(|ns| Nanos(ns).to_string());
        assert_eq!(shown, ["0 ns", "999 ns", "1.5 us", "2 ms", "61 s"]);
    }
}
