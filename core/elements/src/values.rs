//! Values of handlers, read as arguments are, and values in texts.

use core::net::{Ipv4Addr, Ipv6Addr};
use weir_graph::arguments::{ArgumentContext, ArgumentFault, ArgumentValue, FixedDecimal};
use weir_units::{Nanos, Timestamp};

pub use weir_graph::arguments::read_value as read;

/// Returns a time in seconds, with six decimals if that is exact, else with nine, as Click writes it.
pub fn seconds(time: Timestamp) -> String {
    let (seconds, fraction) = (time.0 / 1_000_000_000, time.0 % 1_000_000_000);
    if fraction.is_multiple_of(1000) {
        return format!("{seconds}.{:06}", fraction / 1000);
    }
    format!("{seconds}.{fraction:09}")
}

/// Returns an IPv6 address as Click writes it: one with an IPv4 address in it ends with that, as in `::192.0.2.1`.
pub fn ipv6(address: Ipv6Addr) -> String {
    match address.octets() {
        octets if octets == [0; 16] => "::".to_owned(),
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d] => format!("::{}", Ipv4Addr::new(a, b, c, d)),
        _ => address.to_string(),
    }
}

/// Returns an interval with its unit, as Click writes it.
pub fn interval(Nanos(nanos): Nanos) -> String {
    match nanos {
        _ if nanos >= Nanos::SECOND.0 => format!("{}s", seconds(Timestamp(nanos))),
        _ if nanos.is_multiple_of(1_000_000) => format!("{}ms", nanos / 1_000_000),
        _ if nanos.is_multiple_of(1000) => format!("{}us", nanos / 1000),
        _ => format!("{nanos}ns"),
    }
}

/// Returns a number with this many bits behind the point as a decimal number: the shortest one that is read as the same.
pub fn binary_fraction(number: u64, bits: u32) -> String {
    let one = 1_u128 << bits;
    let (whole, part) = (number >> bits, u128::from(number) % one);
    if part == 0 {
        return whole.to_string();
    }
    let mut power = 1;
    for digits in 1.. {
        power *= 10;
        let decimal = (part * power + one / 2) / one;
        if (decimal * one + power / 2) / power == part && decimal < power {
            return format!("{whole}.{decimal:0digits$}");
        }
    }
    String::new()
}

/// Returns a bandwidth with its unit, as Click writes it.
pub fn bandwidth(bytes_per_second: u64) -> String {
    let bytes = u128::from(bytes_per_second);
    let (amount, digits, unit) = match bytes_per_second {
        0x2000_0000.. => (bytes, 6, "MBps"),
        125_000_000.. => (bytes * 8, 9, "Gbps"),
        125_000.. => (bytes * 8, 6, "Mbps"),
        _ => (bytes * 8, 3, "kbps"),
    };
    let one = 10_u128.pow(digits);
    let fraction = format!("{:0width$}", amount % one, width = digits as usize);
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{}{point}{fraction}{unit}", amount / one)
}

/// The digits behind the point that a fraction is read with.
const FRACTION_DIGITS: u32 = 15;

/// A decimal number of at least 0, as an integer with `BITS` bits behind the point: 0.5 with 4 bits is 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BinaryFraction<const BITS: u32>(pub u64);

impl<const BITS: u32> BinaryFraction<BITS> {
    /// The number 1.
    pub const ONE: Self = Self(1 << BITS);

    /// Accepts probabilities only.
    ///
    /// # Errors
    ///
    /// Fails for a number above 1.
    pub fn check_probability(&self) -> Result<(), ArgumentFault> {
        if *self <= Self::ONE {
            return Ok(());
        }
        Err(ArgumentFault::Other("a probability has to be between 0 and 1".to_owned()))
    }

    /// Returns 1 less the probability.
    pub fn complement(self) -> Self {
        Self(Self::ONE.0.saturating_sub(self.0))
    }
}

impl<const BITS: u32> std::fmt::Display for BinaryFraction<BITS> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&binary_fraction(self.0, BITS))
    }
}

impl<const BITS: u32> ArgumentValue for BinaryFraction<BITS> {
    fn parse_argument(text: &str, context: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        let decimal: FixedDecimal<FRACTION_DIGITS> = ArgumentValue::parse_argument(text, context)?;
        let one = 10_u128.pow(FRACTION_DIGITS);
        let scaled = u128::try_from(decimal.0).ok().map(|decimal| ((decimal << BITS) + one / 2) / one);
        let scaled = scaled.and_then(|scaled| u64::try_from(scaled).ok());
        scaled.map(Self).ok_or(ArgumentFault::OutOfRange(0))
    }

    fn placeholder() -> Self {
        Self(0)
    }
}

/// A difference of times in nanoseconds, which can be negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeDifference(pub i128);

impl TimeDifference {
    /// Returns a time that is later by the difference. Times before 1970 are 1970.
    pub fn after(self, time: Timestamp) -> Timestamp {
        let sum = i128::from(time.0).saturating_add(self.0);
        Timestamp(u64::try_from(sum.max(0)).unwrap_or(u64::MAX))
    }
}

impl std::fmt::Display for TimeDifference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let magnitude = u64::try_from(self.0.unsigned_abs()).unwrap_or(u64::MAX);
        write!(f, "{sign}{}", interval(Nanos(magnitude)))
    }
}

impl ArgumentValue for TimeDifference {
    fn parse_argument(text: &str, context: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        let (sign, magnitude) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
        let Nanos(nanos) = Nanos::parse_argument(magnitude, context)?;
        Ok(Self(sign * i128::from(nanos)))
    }

    fn placeholder() -> Self {
        Self(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_short() {
        assert_eq!(binary_fraction(0, 4), "0");
        assert_eq!(binary_fraction(8, 4), "0.5");
        assert_eq!(binary_fraction(1, 10), "0.001");
        assert_eq!(binary_fraction(1023, 10), "0.999");
        assert_eq!(binary_fraction((7 << 4) + 1, 4), "7.06");
    }

    #[test]
    fn fractions_are_read_to_the_nearest_bit() {
        let read = |text| read::<BinaryFraction<16>>(text).map(|it| it.0);
        assert_eq!(read("0.02"), Ok(1311));
        assert_eq!(read("1"), Ok(65_536));
        assert_eq!(read("8000"), Ok(8000 << 16));
        assert!(read("-0.1").is_err() && read("1e30").is_err() && read("").is_err());
        assert_eq!(super::read::<BinaryFraction<28>>("0.3").unwrap().to_string(), "0.3");
        assert!(BinaryFraction::<16>(65_537).check_probability().is_err());
        assert_eq!(BinaryFraction::<16>(65_537).complement().0, 0);
    }

    #[test]
    fn bandwidths_have_the_unit_that_fits() {
        for (bytes, text) in [
            (0, "0kbps"),
            (100, "0.8kbps"),
            (125, "1kbps"),
            (131_072, "1.048576Mbps"),
            (125_000_000, "1Gbps"),
            (0x2000_0000, "536.870912MBps"),
        ] {
            assert_eq!(bandwidth(bytes), text);
            assert_eq!(read::<weir_units::BitsPerSecond>(text).unwrap().0, bytes * 8);
        }
    }

    #[test]
    fn differences_of_times_have_a_sign() {
        let read = |text| read::<TimeDifference>(text).unwrap();
        assert_eq!(read("-1.5s").to_string(), "-1.500000s");
        assert_eq!(read("20ms").to_string(), "20ms");
        assert_eq!(read("-2").after(Timestamp(5_000_000_000)), Timestamp(3_000_000_000));
        assert_eq!(read("-7").after(Timestamp(5_000_000_000)), Timestamp(0));
        assert_eq!(read("7").after(Timestamp(u64::MAX)), Timestamp(u64::MAX));
    }
}
