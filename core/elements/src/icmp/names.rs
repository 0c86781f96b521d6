//! The types of ICMP messages.

use weir_graph::arguments::protocols::icmp_type_number;
use weir_graph::arguments::{ArgumentContext, ArgumentFault, ArgumentValue};

pub const ECHO_REPLY: u8 = 0;
pub const UNREACHABLE: u8 = 3;
pub const SOURCE_QUENCH: u8 = 4;
pub const REDIRECT: u8 = 5;
pub const ECHO: u8 = 8;
pub const TIME_EXCEEDED: u8 = 11;
pub const PARAMETER_PROBLEM: u8 = 12;

/// The code of [`UNREACHABLE`] for a packet that must not be fragmented.
pub const NEEDS_FRAGMENTS: u8 = 4;
/// The code of [`PARAMETER_PROBLEM`] with the position of a byte.
pub const ERROR_AT_POINTER: u8 = 0;

/// The types of errors.
const ERROR_TYPES: [u8; 5] = [UNREACHABLE, SOURCE_QUENCH, REDIRECT, TIME_EXCEEDED, PARAMETER_PROBLEM];

/// Returns true for the type of an error.
pub fn is_error(icmp_type: u8) -> bool {
    ERROR_TYPES.contains(&icmp_type)
}

/// The type of an error: a number or a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorType(pub u8);

impl ArgumentValue for ErrorType {
    fn parse_argument(text: &str, context: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        let number = icmp_type_number(text).map_or_else(|| u8::parse_argument(text, context), Ok);
        let number = number.map_err(|_| ArgumentFault::Type("type of an ICMP error"))?;
        if !is_error(number) {
            return Err(ArgumentFault::Other(format!("ICMP type {number} is not an error type")));
        }
        Ok(Self(number))
    }

    fn placeholder() -> Self {
        Self(UNREACHABLE)
    }
}
