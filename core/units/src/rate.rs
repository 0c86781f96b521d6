//! Data rates.

use crate::amount::{UnitTable, rounded, scale_of, shortest};
use crate::{Amount, ParseError, scaled, split_unit};
use std::fmt;

/// A rate in bits per second. Prefixes are powers of ten, as is usual for links: 1 Mbit/s is 10^6 bit/s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitsPerSecond(pub u64);

const UNITS: &UnitTable =
    &[("Gbit/s", 1_000_000_000), ("Mbit/s", 1_000_000), ("kbit/s", 1_000), ("bit/s", 1)];

impl BitsPerSecond {
    /// Returns the shortest text from which the same rate is read, without white space: `20Mbit/s`.
    pub fn shortest(self) -> String {
        shortest(self.0, UNITS)
    }
}

impl std::str::FromStr for BitsPerSecond {
    type Err = ParseError;

    /// Reads "9600bit/s", "64 kbit/s", "40Mbit/s", "1.5Gbit/s". A bare number is refused, because it might mean bytes.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong = || ParseError {
            given: text.to_owned(),
            wanted: "a rate such as 64kbit/s, 40Mbit/s or 1.5Gbit/s",
        };
        let (number, unit) = split_unit(text);
        let scale = scale_of(UNITS, unit).ok_or_else(wrong)?;
        scaled(number, scale).map(BitsPerSecond).ok_or_else(wrong)
    }
}

impl fmt::Display for BitsPerSecond {
    /// Writes the value in the largest unit in which it is at least 1, with at most three decimals, or as many as the
    /// format's precision states.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scale, unit) = match self.0 {
            0..1_000 => return write!(f, "{} bit/s", self.0),
            1_000..1_000_000 => (1e3, "kbit/s"),
            1_000_000..1_000_000_000 => (1e6, "Mbit/s"),
            _ => (1e9, "Gbit/s"),
        };
        rounded(f, (self.0, scale, unit), 3)
    }
}

impl Amount for BitsPerSecond {
    fn exact(self) -> String {
        format!("{} bit/s", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_exactly() {
        for (text, rate) in [
            ("9600bit/s", 9_600),
            ("64 kbit/s", 64_000),
            ("40Mbit/s", 40_000_000),
            ("1.5Gbit/s", 1_500_000_000),
            ("0bit/s", 0),
        ] {
            assert_eq!(text.parse(), Ok(BitsPerSecond(rate)), "{text}");
            assert_eq!(BitsPerSecond(rate).shortest().parse(), Ok(BitsPerSecond(rate)));
        }
        for text in [
            "",
            "40",
            "40M",
            "40MB/s",
            "40mbit/s",
            "-1bit/s",
            "1.5bit/s",
            "Mbit/s",
            "18446744073709551615kbit/s",
        ] {
            assert!(text.parse::<BitsPerSecond>().is_err(), "{text}");
        }
    }

    #[test]
    fn rates_are_shown_in_the_unit_that_fits() {
        let exact = [0, 1_500, 20_000_000, 1_500_000_000].map(|rate| BitsPerSecond(rate).shortest());
        assert_eq!(exact, ["0bit/s", "1500bit/s", "20Mbit/s", "1500Mbit/s"]);
        let shown = [0, 999, 64_000, 33_333_334, 1_500_000_000].map(|rate| BitsPerSecond(rate).to_string());
        assert_eq!(shown, ["0 bit/s", "999 bit/s", "64 kbit/s", "33.333 Mbit/s", "1.5 Gbit/s"]);
    }
}
