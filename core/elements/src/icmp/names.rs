//! Names of ICMP errors and their codes.

use weir_graph::arguments::{ArgumentContext, ArgumentFault, ArgumentValue};

pub const UNREACHABLE: u8 = 3;
pub const SOURCE_QUENCH: u8 = 4;
pub const REDIRECT: u8 = 5;
pub const TIME_EXCEEDED: u8 = 11;
pub const PARAMETER_PROBLEM: u8 = 12;

/// The code of [`UNREACHABLE`] for a packet that must not be fragmented.
pub const NEEDS_FRAGMENTS: u8 = 4;
/// The code of [`PARAMETER_PROBLEM`] with the position of a byte.
pub const ERROR_AT_POINTER: u8 = 0;

/// The types of errors with their names, and the names of their codes by number.
const TYPES: &[(u8, &str, &[&str])] = &[
    (
        UNREACHABLE,
        "unreachable",
        &[
            "net",
            "host",
            "protocol",
            "port",
            "needfrag",
            "srcroutefail",
            "netunknown",
            "hostunknown",
            "isolated",
            "netprohibited",
            "hostprohibited",
            "tosnet",
            "toshost",
            "filterprohibited",
            "hostprecedence",
            "precedencecutoff",
        ],
    ),
    (SOURCE_QUENCH, "sourcequench", &[]),
    (REDIRECT, "redirect", &["net", "host", "tosnet", "toshost"]),
    (TIME_EXCEEDED, "timeexceeded", &["transit", "reassembly"]),
    (PARAMETER_PROBLEM, "parameterproblem", &["erroratptr", "missingopt", "length"]),
];

/// Returns true for the type of an error.
pub fn is_error(icmp_type: u8) -> bool {
    TYPES.iter().any(|(number, ..)| *number == icmp_type)
}

/// The type of an error: a number or a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorType(pub u8);

impl ArgumentValue for ErrorType {
    fn parse_argument(text: &str, context: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        if let Some((number, ..)) = TYPES.iter().find(|(_, name, _)| *name == text) {
            return Ok(Self(*number));
        }
        let number =
            u8::parse_argument(text, context).map_err(|_| ArgumentFault::Type("type of an ICMP error"))?;
        if !is_error(number) {
            return Err(ArgumentFault::Other(format!("ICMP type {number} is not an error type")));
        }
        Ok(Self(number))
    }

    fn placeholder() -> Self {
        Self(UNREACHABLE)
    }
}

/// Returns the code of an error by its name; `None` for none of the type.
pub fn code(icmp_type: u8, name: &str) -> Option<u8> {
    let (.., codes) = TYPES.iter().find(|(number, ..)| *number == icmp_type)?;
    u8::try_from(codes.iter().position(|code| *code == name)?).ok()
}
