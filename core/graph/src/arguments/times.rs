//! Arguments that are times, rates and amounts of bytes.

use super::number::{DecimalNumber, NumberUnit, parse_unsigned, split_unit};
use super::{ArgumentContext, ArgumentFault, ArgumentValue};
use weir_units::{BitsPerSecond, Bytes, Nanos, Timestamp};

/// Units of time, in seconds.
const SECONDS: &[NumberUnit] = &[
    ("s", 1, 0),
    ("sec", 1, 0),
    ("m", 60, 0),
    ("min", 60, 0),
    ("h", 3600, 0),
    ("hr", 3600, 0),
    ("d", 86_400, 0),
    ("day", 86_400, 0),
];
const SECOND_PREFIXES: &[(char, i32)] = &[('m', -3), ('u', -6), ('n', -9)];

/// Units of rates, in bits per second.
const BIT_RATES: &[NumberUnit] =
    &[("baud", 1, 0), ("bps", 1, 0), ("b/s", 1, 0), ("Bps", 8, 0), ("B/s", 8, 0)];
const RATE_PREFIXES: &[(char, i32)] = &[('k', 3), ('M', 6), ('G', 9)];

/// The bits of a byte, for rates without a unit, which are in bytes per second.
const BITS_PER_BYTE: u64 = 8;
/// Powers of ten from seconds to nanoseconds.
const NANOSECOND_DIGITS: i32 = 9;

fn nanoseconds(text: &str, wanted: &'static str) -> Result<u64, ArgumentFault> {
    let (number, unit) = split_unit(text, SECONDS, SECOND_PREFIXES);
    let number = DecimalNumber::parse(number).filter(|number| !number.is_negative);
    let (factor, exponent) = unit.unwrap_or((1, 0));
    number
        .ok_or(ArgumentFault::Type(wanted))?
        .scaled(factor, exponent + NANOSECOND_DIGITS)
        .ok_or(ArgumentFault::OutOfRange(u64::MAX.into()))
}

/// A time: a decimal number with a unit such as `ms`, `s`, `min` or `h`. Without a unit it is in seconds.
impl ArgumentValue for Nanos {
    fn parse_argument(text: &str, _: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        nanoseconds(text, "time such as 10ms or 1.5s").map(Self)
    }

    fn placeholder() -> Self {
        Self(0)
    }
}

/// A point in time: seconds since 1970, with decimals.
impl ArgumentValue for Timestamp {
    fn parse_argument(text: &str, _: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        nanoseconds(text, "timestamp").map(Self)
    }

    fn placeholder() -> Self {
        Self(0)
    }
}

/// A rate: a decimal number with a unit such as `kbps`, `Mbps` or `MBps`. Without a unit it is in bytes per second.
impl ArgumentValue for BitsPerSecond {
    fn parse_argument(text: &str, _: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        let (number, unit) = split_unit(text, BIT_RATES, RATE_PREFIXES);
        let number = DecimalNumber::parse(number).filter(|number| !number.is_negative);
        let (factor, exponent) = unit.unwrap_or((BITS_PER_BYTE, 0));
        number
            .ok_or(ArgumentFault::Type("bandwidth such as 10Mbps or 100kBps"))?
            .scaled(factor, exponent)
            .map(Self)
            .ok_or(ArgumentFault::OutOfRange(u64::MAX.into()))
    }

    fn placeholder() -> Self {
        Self(0)
    }
}

/// An amount of bytes: an integer, or a decimal number with a unit such as `kB` or `KiB`. Units are not in Click.
impl ArgumentValue for Bytes {
    fn parse_argument(text: &str, _: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        if let Some(value) = parse_unsigned(text) {
            let value = u64::try_from(value).map_err(|_| ArgumentFault::OutOfRange(u64::MAX.into()))?;
            return Ok(Self(value));
        }
        text.parse().map_err(|_| ArgumentFault::Type("number of bytes such as 4096 or 64KiB"))
    }

    fn placeholder() -> Self {
        Self(0)
    }
}
