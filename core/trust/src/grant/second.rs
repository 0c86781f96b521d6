//! Points in time as credentials have them.

use std::fmt;
use std::str::FromStr;
use weir_units::{TimeError, Timestamp, parse_time, show_time};

const NANOS: u64 = 1_000_000_000;

/// A second since 1970-01-01 00:00 UTC, at its beginning. As text `2026-11-21T12:30:00Z`; a day alone, `2026-11-21`, is its first second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Second(u64);

impl Second {
    /// The last one that a [`Timestamp`] can be in, in 2554.
    pub const MAX: Self = Self(u64::MAX / NANOS);

    /// The second of this number; nothing for those after [`Second::MAX`].
    pub fn new(number: u64) -> Option<Self> {
        (number <= Self::MAX.0).then_some(Self(number))
    }

    /// Its number.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The second that a point in time is in.
    pub fn of(at: Timestamp) -> Self {
        Self(at.0 / NANOS)
    }

    /// Its beginning.
    pub fn timestamp(self) -> Timestamp {
        // At most `MAX`, so it fits.
        Timestamp(self.0.saturating_mul(NANOS))
    }
}

impl fmt::Display for Second {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = show_time(self.timestamp());
        write!(f, "{}Z", text.split('.').next().unwrap_or_default())
    }
}

impl FromStr for Second {
    type Err = TimeError;

    /// A part of a second is cut off.
    fn from_str(text: &str) -> Result<Self, TimeError> {
        parse_time(text).map(Self::of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_written_and_read_again() {
        for (number, text) in [(0, "1970-01-01T00:00:00Z"), (1_795_264_200, "2026-11-21T12:30:00Z")] {
            let second = Second::new(number).unwrap();
            assert_eq!(second.to_string(), text);
            assert_eq!(text.parse(), Ok(second));
            assert_eq!(Second::of(second.timestamp()), second);
        }
        assert_eq!("1970-01-02".parse(), Ok(Second(86_400)));
        assert_eq!(Second::MAX.to_string().parse(), Ok(Second::MAX));
        assert_eq!(Second::new(Second::MAX.0 + 1), None);
    }
}
