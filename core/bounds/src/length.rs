//! Lengths that instructions and host functions are given, and how much of them can be work.

use crate::{Environment, ParamBound};
use wasmparser::Operator;
use weir_abi::host::{HostFunction, LengthArgument, ValueType, WorkMax};

pub use weir_abi::host::Beyond;

/// An argument that says how many bytes, or table elements, are worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// The type of the argument above it on the stack, if there is one.
    pub above: Option<ValueType>,
    /// More than this is never worked on.
    pub most: u32,
    /// What a length beyond that means.
    pub beyond: Beyond,
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

    /// The length argument of a host function, if it has one. `first` is the call's first argument, if known: the index of a parameter.
    pub fn of_host(function: HostFunction, first: Option<u32>, environment: &Environment) -> Option<Self> {
        let definition = function.definition();
        let LengthArgument { parameter, most, beyond } = definition.length?;
        let most = match most {
            WorkMax::Bytes(most) => most,
            WorkMax::Parameter => value_bytes(first, environment),
        };
        let above = definition.parameters.get(parameter + 1).map(|above| above.ty.value_type());
        Some(Self { above, most, beyond })
    }

    /// The length argument of a bulk instruction.
    pub fn of_bulk(operator: &Operator<'_>, environment: &Environment) -> Option<Self> {
        const PAGE: u64 = 65_536;
        match operator {
            Operator::MemoryCopy { .. } | Operator::MemoryFill { .. } | Operator::MemoryInit { .. } => {
                let most = u32::try_from(environment.pages_max.saturating_mul(PAGE)).unwrap_or(u32::MAX);
                Some(Self { above: None, most, beyond: Beyond::Nothing })
            }
            Operator::TableCopy { .. } | Operator::TableFill { .. } | Operator::TableInit { .. } => {
                Some(Self { above: None, most: TABLE_MAX, beyond: Beyond::Nothing })
            }
            _ => None,
        }
    }
}

/// More elements than the tables of a module ever have.
pub(crate) const TABLE_MAX: u32 = 1 << 20;

/// The most bytes of a parameter, or of any.
fn value_bytes(parameter: Option<u32>, environment: &Environment) -> u32 {
    let bytes = |given: &ParamBound| match given {
        ParamBound::Bytes { max, .. } => *max,
        ParamBound::Int { .. } | ParamBound::Float => 0,
    };
    match parameter {
        Some(index) => environment.parameters.get(index as usize).map_or(0, bytes),
        None => environment.parameters.iter().map(bytes).max().unwrap_or(0),
    }
}
