//! Arguments that are numbers.

use super::number::{DecimalNumber, parse_signed};
use super::{ArgumentContext, ArgumentFault, ArgumentValue};

/// Implements [`ArgumentValue`] for integer types.
macro_rules! integer_arguments {
    ($($type:ty, $name:literal;)*) => {$(
        impl ArgumentValue for $type {
            fn parse_argument(text: &str, _: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
                integer(text, (Self::MIN.into(), Self::MAX.into()), $name)
                    .map(|value| Self::try_from(value).unwrap_or_default())
            }

            fn placeholder() -> Self {
                0
            }
        }
    )*};
}

integer_arguments! {
    u8, "unsigned integer";
    u16, "unsigned integer";
    u32, "unsigned integer";
    u64, "unsigned integer";
    i8, "integer";
    i16, "integer";
    i32, "integer";
    i64, "integer";
}

/// Parses an integer between two bounds, which are part of the range.
fn integer(text: &str, (min, max): (i128, i128), name: &'static str) -> Result<i128, ArgumentFault> {
    let (magnitude, is_negative) = parse_signed(text).ok_or(ArgumentFault::Type(name))?;
    if is_negative && min == 0 {
        return Err(ArgumentFault::Type(name));
    }
    let magnitude = i128::try_from(magnitude).unwrap_or(i128::MAX);
    let value = if is_negative { -magnitude } else { magnitude };
    if value < min {
        Err(ArgumentFault::OutOfRange(min))
    } else if value > max {
        Err(ArgumentFault::OutOfRange(max))
    } else {
        Ok(value)
    }
}

impl ArgumentValue for f64 {
    fn parse_argument(text: &str, _: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        let fault = || ArgumentFault::Type("real number");
        // The parser of the standard library also accepts words such as `inf`.
        DecimalNumber::parse(text).ok_or_else(fault)?;
        text.parse().ok().filter(|value: &Self| value.is_finite()).ok_or_else(fault)
    }

    fn placeholder() -> Self {
        0.0
    }
}

/// A decimal number with a fixed number of digits after the point, as an integer: 1.25 with three digits is 1250.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FixedDecimal<const DIGITS: u32>(pub i64);

impl<const DIGITS: u32> ArgumentValue for FixedDecimal<DIGITS> {
    fn parse_argument(text: &str, _: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        let number = DecimalNumber::parse(text).ok_or(ArgumentFault::Type("decimal number"))?;
        let exponent = i32::try_from(DIGITS).unwrap_or(i32::MAX);
        let value = number.scaled(1, exponent).and_then(|value| i64::try_from(value).ok());
        let value = value.ok_or_else(|| {
            let whole = i64::MAX / 10_i64.checked_pow(DIGITS).unwrap_or(i64::MAX);
            ArgumentFault::OutOfRange(whole.into())
        })?;
        Ok(Self(if number.is_negative { -value } else { value }))
    }

    fn placeholder() -> Self {
        Self(0)
    }
}
