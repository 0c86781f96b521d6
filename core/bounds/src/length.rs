//! Lengths that instructions and host functions are given, and how much of them can be work.

use crate::{Environment, Given};
use wasmparser::Operator;
use weir_abi::imports::Type;
use weir_abi::limit;

/// An argument that says how many bytes, or table elements, are worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// Types of the arguments above it on the stack, at most one.
    pub above: &'static [Type],
    /// More than this is never worked on.
    pub most: u32,
    /// What a length beyond that means.
    pub beyond: Beyond,
}

/// What a length means that is more than can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beyond {
    /// The call is refused, or traps, before any byte is looked at.
    Nothing,
    /// As much as can be.
    Most,
}

impl Length {
    /// How much is worked on where the argument is this.
    pub const fn of(self, argument: u32) -> u32 {
        match self.beyond {
            _ if argument <= self.most => argument,
            Beyond::Nothing => 0,
            Beyond::Most => self.most,
        }
    }

    /// The length argument of a host function, if it has one. `parameter` is the first argument of `param_bytes`, if known.
    pub fn of_host(name: &str, parameter: Option<u32>, environment: &Environment) -> Option<Self> {
        let length = |above, most, beyond| Some(Self { above, most, beyond });
        match name {
            "emit" | "find" => length(&[], limit::HOST_READ_BYTES, Beyond::Nothing),
            "hash" => length(&[Type::I64], limit::HOST_READ_BYTES, Beyond::Nothing),
            "patch" => length(&[], limit::PATCH_BYTES, Beyond::Nothing),
            "send" => length(&[], limit::FRAME_BYTES, Beyond::Nothing),
            "find_compile" => {
                length(&[Type::I32], limit::PATTERN_BYTES + 4 * limit::PATTERNS, Beyond::Nothing)
            }
            "call" => length(&[Type::I64], limit::MESSAGE_BYTES, Beyond::Nothing),
            "reply" => length(&[], limit::MESSAGE_BYTES, Beyond::Nothing),
            "publish" => length(&[], limit::PUBLISHED_BYTES, Beyond::Nothing),
            "message" => length(&[], limit::MESSAGE_BYTES, Beyond::Most),
            "log" => length(&[], limit::LOG_BYTES, Beyond::Most),
            "param_bytes" => length(&[], value_bytes(parameter, environment), Beyond::Most),
            _ => None,
        }
    }

    /// The length argument of a bulk instruction.
    pub fn of_bulk(operator: &Operator<'_>, environment: &Environment) -> Option<Self> {
        const PAGE: u64 = 65_536;
        match operator {
            Operator::MemoryCopy { .. } | Operator::MemoryFill { .. } | Operator::MemoryInit { .. } => {
                let most = u32::try_from(environment.pages_max.saturating_mul(PAGE)).unwrap_or(u32::MAX);
                Some(Self { above: &[], most, beyond: Beyond::Nothing })
            }
            Operator::TableCopy { .. } | Operator::TableFill { .. } | Operator::TableInit { .. } => {
                Some(Self { above: &[], most: TABLE_MAX, beyond: Beyond::Nothing })
            }
            _ => None,
        }
    }
}

/// More elements than the tables of a module ever have.
pub(crate) const TABLE_MAX: u32 = 1 << 20;

/// The most bytes of a parameter, or of any.
fn value_bytes(parameter: Option<u32>, environment: &Environment) -> u32 {
    let bytes = |given: &Given| match given {
        Given::Bytes { max, .. } => *max,
        Given::Int { .. } | Given::Float => 0,
    };
    match parameter {
        Some(index) => environment.parameters.get(index as usize).map_or(0, bytes),
        None => environment.parameters.iter().map(bytes).max().unwrap_or(0),
    }
}
