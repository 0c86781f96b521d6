//! Numbers: integers in all bases of Click, and decimal fractions, computed exactly.

/// Returns the value of an unsigned integer: decimal, `0x…`, `0b…`, or octal after a `0`. Underscores may stand between
/// digits. `None` if the text is no such number; `u128::MAX` if the number is larger.
pub fn parse_unsigned(text: &str) -> Option<u128> {
    magnitude(text.strip_prefix('+').unwrap_or(text))
}

/// Returns the magnitude of an integer, and true if a minus stands in front of it.
pub(crate) fn parse_signed(text: &str) -> Option<(u128, bool)> {
    match text.strip_prefix('-') {
        Some(rest) => Some((magnitude(rest)?, true)),
        None => Some((parse_unsigned(text)?, false)),
    }
}

fn magnitude(text: &str) -> Option<u128> {
    let prefixed = |prefixes: [&str; 2]| {
        prefixes.iter().find_map(|prefix| text.strip_prefix(prefix)).filter(|rest| !rest.is_empty())
    };
    let (base, digits) = if let Some(rest) = prefixed(["0x", "0X"]) {
        (16, rest)
    } else if let Some(rest) = prefixed(["0b", "0B"]) {
        (2, rest)
    } else if text.starts_with('0') {
        (8, text)
    } else {
        (10, text)
    };
    let mut value = 0_u128;
    let mut after_digit = false;
    for c in digits.chars() {
        if c == '_' && after_digit {
            after_digit = false;
            continue;
        }
        let digit = c.to_digit(base)?;
        value = value.saturating_mul(u128::from(base)).saturating_add(u128::from(digit));
        after_digit = true;
    }
    after_digit.then_some(value)
}

/// A decimal number: the digits as an integer, times a power of ten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DecimalNumber {
    pub is_negative: bool,
    digits: u128,
    exponent: i32,
}

/// The digits of a decimal number that count. Later ones are cut off.
const DIGITS_MAX: u32 = 30;
/// The largest power of ten, positive or negative, that is computed.
const EXPONENT_MAX: i32 = 60;

impl DecimalNumber {
    /// Parses digits with an optional sign, point and exponent, such as `-1.5e3`.
    pub fn parse(text: &str) -> Option<Self> {
        let (is_negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (number, exponent) = match rest.split_once(['e', 'E']) {
            Some((number, exponent)) => (number, exponent.parse::<i32>().ok()?),
            None => (rest, 0),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if (whole.is_empty() && fraction.is_empty()) || !is_number(whole) || !is_number(fraction) {
            return None;
        }
        let (mut digits, mut count, mut exponent) = (0_u128, 0, exponent);
        for (byte, is_fraction) in
            whole.bytes().map(|byte| (byte, false)).chain(fraction.bytes().map(|byte| (byte, true)))
        {
            if count < DIGITS_MAX {
                digits = digits * 10 + u128::from(byte - b'0');
                count += u32::from(digits > 0);
                exponent = exponent.saturating_sub(i32::from(is_fraction));
            } else {
                exponent = exponent.saturating_add(i32::from(!is_fraction));
            }
        }
        Some(Self { is_negative, digits, exponent })
    }

    /// Returns the magnitude times `factor` times ten to the power of `exponent`, rounded; halves are rounded up. `None`
    /// if it is larger than a `u64`.
    pub fn scaled(self, factor: u64, exponent: i32) -> Option<u64> {
        let exponent = self.exponent.saturating_add(exponent);
        if self.digits == 0 {
            return Some(0);
        }
        let mut value = self.digits.checked_mul(u128::from(factor));
        let mut left = exponent;
        // A product that is too large for 128 bits may still be divided into range.
        let mut reduced = self.digits;
        while value.is_none() && left < 0 {
            reduced /= 10;
            left += 1;
            value = reduced.checked_mul(u128::from(factor));
        }
        let value = value?;
        let scaled = if left >= 0 {
            if left > EXPONENT_MAX {
                return None;
            }
            value.checked_mul(10_u128.checked_pow(left.unsigned_abs())?)?
        } else {
            match 10_u128.checked_pow(left.unsigned_abs()) {
                Some(divisor) => (value + divisor / 2) / divisor,
                None => 0,
            }
        };
        u64::try_from(scaled).ok()
    }
}

/// A unit after a decimal number: its text, its factor and its power of ten.
pub(crate) type NumberUnit = (&'static str, u64, i32);

/// Splits a number with an optional unit. The first unit of the list that the text ends with counts; in front of it can
/// be one of the prefixes, a letter with its power of ten.
pub(crate) fn split_unit<'t>(
    text: &'t str,
    units: &[NumberUnit],
    prefixes: &[(char, i32)],
) -> (&'t str, Option<(u64, i32)>) {
    for (unit, factor, exponent) in units {
        let Some(number) = text.strip_suffix(unit) else { continue };
        for (prefix, power) in prefixes {
            if let Some(number) = number.strip_suffix(*prefix) {
                return (number.trim_end(), Some((*factor, exponent + power)));
            }
        }
        return (number.trim_end(), Some((*factor, *exponent)));
    }
    (text, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_in_all_bases() {
        for (text, expected) in [
            ("0", Some(0)),
            ("+12", Some(12)),
            ("0x1F", Some(31)),
            ("0b101", Some(5)),
            ("017", Some(15)),
            ("1_000", Some(1000)),
            ("08", None),
            ("0x", None),
            ("1__0", None),
            ("1_", None),
            ("", None),
            ("+", None),
            ("-1", None),
            ("12k", None),
        ] {
            assert_eq!(parse_unsigned(text), expected, "{text}");
        }
        assert_eq!(parse_unsigned(&"9".repeat(100)), Some(u128::MAX));
        assert_eq!(parse_signed("-0x10"), Some((16, true)));
    }

    #[test]
    fn decimals_are_scaled_exactly() {
        for (text, factor, exponent, expected) in [
            ("1.5", 1, 3, Some(1500)),
            ("0.0005", 1, 3, Some(1)),
            ("0.00049", 1, 3, Some(0)),
            ("1e3", 1, 0, Some(1000)),
            ("1.25e-2", 1, 4, Some(125)),
            (".5", 60, 0, Some(30)),
            ("18446744073709551615", 1, 0, Some(u64::MAX)),
            ("18446744073709551616", 1, 0, None),
            ("1e2000000000", 1, 0, None),
            ("0e2000000000", 1, 0, Some(0)),
            ("1e-2000000000", 1, 0, Some(0)),
            ("999999999999999999999999999999999e-30", 1_000_000_000_000, 0, Some(1_000_000_000_000_000)),
        ] {
            let value = DecimalNumber::parse(text).unwrap().scaled(factor, exponent);
            assert_eq!(value, expected, "{text}");
        }
        for text in ["", ".", "-", "1.2.3", "1e", "e5", "1 ", "0x1", "inf"] {
            assert_eq!(DecimalNumber::parse(text), None, "{text}");
        }
    }
}
