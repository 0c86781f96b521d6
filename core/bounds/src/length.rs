//! The arguments of instructions and host functions that say how much work is done: numbers of bytes or table elements.

use crate::{Environment, ParamBound};
use wasmparser::Operator;
use weir_abi::host::{HostFunction, LengthArgument, LengthMax, ValueType};

pub use weir_abi::host::OverLength;

/// An argument that gives the number of bytes or table elements that an instruction or host function works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// The type of the argument above the length on the stack; `None` if the length is on top.
    pub above: Option<ValueType>,
    /// The most bytes or elements that are worked on.
    pub units_max: u32,
    /// The effect of a length over `units_max`.
    pub over_length: OverLength,
}

impl Length {
    /// The number of bytes or elements that are worked on for this value of the argument.
    pub const fn units_for(self, argument: u32) -> u32 {
        match self.over_length {
            _ if argument <= self.units_max => argument,
            OverLength::Refuse => 0,
            OverLength::Truncate => self.units_max,
        }
    }

    /// The length argument of a host function; `None` if the function has none. `first` is the call's first argument, if
    /// it is known: for a read of a parameter, the parameter's index.
    pub fn for_host_call(
        function: HostFunction,
        first: Option<u32>,
        environment: &Environment,
    ) -> Option<Self> {
        let definition = function.definition();
        let LengthArgument { index, max, over_length } = definition.length?;
        let units_max = match max {
            LengthMax::Bytes(max) => max,
            LengthMax::ModuleParameter => value_bytes(first, environment),
        };
        let above = definition.parameters.get(index + 1).map(|above| above.ty.value_type());
        Some(Self { above, units_max, over_length })
    }

    /// The length argument of a bulk instruction; `None` for another instruction.
    pub fn for_bulk_instruction(operator: &Operator<'_>, environment: &Environment) -> Option<Self> {
        const PAGE: u64 = 65_536;
        match operator {
            Operator::MemoryCopy { .. } | Operator::MemoryFill { .. } | Operator::MemoryInit { .. } => {
                let units_max = u32::try_from(environment.pages_max.saturating_mul(PAGE)).unwrap_or(u32::MAX);
                Some(Self { above: None, units_max, over_length: OverLength::Refuse })
            }
            Operator::TableCopy { .. } | Operator::TableFill { .. } | Operator::TableInit { .. } => {
                Some(Self { above: None, units_max: TABLE_MAX, over_length: OverLength::Refuse })
            }
            _ => None,
        }
    }
}

/// A number of elements that no table of a module exceeds.
pub(crate) const TABLE_MAX: u32 = 1 << 20;

/// The most bytes of a parameter's value; the maximum over all parameters if the index is unknown.
fn value_bytes(parameter: Option<u32>, environment: &Environment) -> u32 {
    let bytes = |bound: &ParamBound| match bound {
        ParamBound::Bytes { max, .. } => *max,
        ParamBound::Int { .. } | ParamBound::Float => 0,
    };
    match parameter {
        Some(index) => environment.parameters.get(index as usize).map_or(0, bytes),
        None => environment.parameters.iter().map(bytes).max().unwrap_or(0),
    }
}
