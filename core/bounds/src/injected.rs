//! Reads of parameters that the loader replaces by their values.
//!
//! A module's parameters do not change while it runs. So when the module is loaded, a call that reads a parameter with
//! a constant index is replaced by the value. Analysis and loader both ask [`find_injected`] which calls are replaced:
//! the analysis counts them as constants.

use wasmparser::Operator;
use weir_abi::host::{HostFunction, ResultValue};

/// A read of a parameter that the loader replaces by the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InjectedRead {
    /// The parameter's index in the manifest. It may be out of range.
    pub parameter: u32,
    /// The kind of read.
    pub kind: InjectedValue,
    /// The number of instructions directly before the call that are removed together with the call.
    pub removed_before: usize,
}

/// The result of a replaced read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedValue {
    /// `param_int`: an i64.
    Int,
    /// `param_float`: an f64.
    Float,
    /// `param_bytes` with an empty buffer: the length, an i32.
    Length,
}

/// The read of a parameter that a call of this host function makes, if the loader replaces the call; else `None`. `before` holds
/// the instructions directly before the call, in code order; the last three are enough.
pub fn find_injected(function: HostFunction, before: &[Operator<'_>]) -> Option<InjectedRead> {
    let parameter = |operator: &Operator<'_>| match operator {
        Operator::I32Const { value } => Some(value.cast_unsigned()),
        _ => None,
    };
    let read = |kind| Some(InjectedRead { parameter: parameter(before.last()?)?, kind, removed_before: 1 });
    match function.definition().value {
        ResultValue::Any => None,
        ResultValue::Integer => read(InjectedValue::Int),
        ResultValue::Float => read(InjectedValue::Float),
        ResultValue::Length => match before.last_chunk()? {
            [
                index,
                // The address of the buffer does not matter, because the buffer has no bytes.
                Operator::I32Const { .. } | Operator::LocalGet { .. } | Operator::GlobalGet { .. },
                Operator::I32Const { value: 0 },
            ] => Some(InjectedRead {
                parameter: parameter(index)?,
                kind: InjectedValue::Length,
                removed_before: 3,
            }),
            _ => None,
        },
    }
}
