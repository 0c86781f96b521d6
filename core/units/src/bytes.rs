//! Amounts of memory and data.

use crate::amount::{UnitTable, rounded, scale_of, shortest};
use crate::{Amount, ParseError, scaled, split_unit};
use std::fmt;

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

const UNITS: &UnitTable = &[
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1_000),
    ("B", 1),
];

impl Bytes {
    /// Returns the shortest text from which the same amount is read, without white space: `60MiB`.
    pub fn shortest(self) -> String {
        shortest(self.0, UNITS)
    }
}

impl std::str::FromStr for Bytes {
    type Err = ParseError;

    /// Reads "4096", "64 KiB", "16MiB", "1 GiB", and the powers of ten "kB", "MB", "GB".
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong = || ParseError {
            given: text.to_owned(),
            wanted: "a number of bytes such as 4096, 64 KiB or 16 MiB",
        };
        let (number, unit) = split_unit(text);
        let scale = if unit.is_empty() { 1 } else { scale_of(UNITS, unit).ok_or_else(wrong)? };
        scaled(number, scale).map(Bytes).ok_or_else(wrong)
    }
}

impl fmt::Display for Bytes {
    /// Writes the value in the largest unit in which it is at least 1, with at most one decimal, or as many as the
    /// format's precision states.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scale, unit) = match self.0 {
            0..1_024 => return write!(f, "{} B", self.0),
            1_024..1_048_576 => (1024.0, "KiB"),
            1_048_576..1_073_741_824 => (1_048_576.0, "MiB"),
            _ => (1_073_741_824.0, "GiB"),
        };
        rounded(f, (self.0, scale, unit), 1)
    }
}

impl Amount for Bytes {
    fn exact(self) -> String {
        format!("{} B", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_and_shown() {
        for (text, bytes) in [("4096", 4096), ("64 KiB", 65_536), ("1.5MiB", 1_572_864), ("2 kB", 2000)] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "KiB", "1 TiBs", "-1", "1.0001 KiB"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
        for (bytes, text) in [
            (60 << 20, "60MiB"),
            (1_500_000, "1500kB"),
            (1_000_000_000, "1GB"),
            (1 << 40, "1024GiB"),
            ((60 << 20) + 1, "62914561B"),
            (0, "0B"),
        ] {
            assert_eq!(Bytes(bytes).shortest(), text);
            assert_eq!(text.parse(), Ok(Bytes(bytes)));
        }
        assert_eq!(Bytes(u64::MAX).shortest().parse(), Ok(Bytes(u64::MAX)));
        assert_eq!([17, 65_536, 1_572_864].map(|b| Bytes(b).to_string()), ["17 B", "64 KiB", "1.5 MiB"]);
    }
}
