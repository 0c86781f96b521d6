//! Points in time in credentials and revocation lists: whole seconds since 1970.

use std::fmt;
use std::str::FromStr;
use weir_units::{TimeError, Timestamp, parse_time, show_time};

const NANOS: u64 = 1_000_000_000;

/// A point in time, in whole seconds since 1970-01-01 00:00 UTC. Its text is such as `2026-11-21T12:30:00Z`; a date such
/// as `2026-11-21` is read as the first second of the day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixSecond(u64);

impl UnixSecond {
    /// The last second that fits into a [`Timestamp`], in 2554.
    pub const MAX: Self = Self(u64::MAX / NANOS);

    /// Returns the second with this number since 1970-01-01 00:00 UTC; `None` above [`UnixSecond::MAX`].
    pub fn new(number: u64) -> Option<Self> {
        (number <= Self::MAX.0).then_some(Self(number))
    }

    /// Returns the number of seconds since 1970-01-01 00:00 UTC.
    pub fn number(self) -> u64 {
        self.0
    }

    /// Returns the second that contains a point in time.
    pub fn containing(at: Timestamp) -> Self {
        Self(at.0 / NANOS)
    }

    /// Returns the beginning of the second.
    pub fn timestamp(self) -> Timestamp {
        // At most `MAX`, so it fits.
        Timestamp(self.0.saturating_mul(NANOS))
    }
}

impl fmt::Display for UnixSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = show_time(self.timestamp());
        write!(f, "{}Z", text.split('.').next().unwrap_or_default())
    }
}

impl FromStr for UnixSecond {
    type Err = TimeError;

    /// Reads a time. Fractions of a second are cut off.
    fn from_str(text: &str) -> Result<Self, TimeError> {
        parse_time(text).map(Self::containing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_written_and_read_again() {
        for (number, text) in [(0, "1970-01-01T00:00:00Z"), (1_795_264_200, "2026-11-21T12:30:00Z")] {
            let second = UnixSecond::new(number).unwrap();
            assert_eq!(second.to_string(), text);
            assert_eq!(text.parse(), Ok(second));
            assert_eq!(UnixSecond::containing(second.timestamp()), second);
        }
        assert_eq!("1970-01-02".parse(), Ok(UnixSecond(86_400)));
        assert_eq!(UnixSecond::MAX.to_string().parse(), Ok(UnixSecond::MAX));
        assert_eq!(UnixSecond::new(UnixSecond::MAX.0 + 1), None);
    }
}
