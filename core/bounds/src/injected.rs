//! Reads of parameters that the loader replaces by their values.
//!
//! A module's parameters do not change while it runs, so where the code says which one it reads, the loader puts the value there. This is the
//! one place that says where: the analysis counts such a read as a constant, and the loader makes it one.

use wasmparser::Operator;
use weir_abi::host::{HostFunction, ResultValue};

/// A read of a parameter that is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injected {
    /// The parameter's index in the manifest. There need not be one.
    pub parameter: u32,
    /// What is read.
    pub what: InjectedValue,
    /// How many instructions directly before the call are replaced too.
    pub before: usize,
}

/// What a replaced read gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedValue {
    /// `param_int`: an i64.
    Int,
    /// `param_float`: an f64.
    Float,
    /// `param_bytes` without room for a byte: the length, an i32.
    Length,
}

/// Whether a call of this host function is replaced. `before` are the instructions directly before the call, the last one last; the last
/// three are enough.
pub fn injected(function: HostFunction, before: &[Operator<'_>]) -> Option<Injected> {
    let parameter = |operator: &Operator<'_>| match operator {
        Operator::I32Const { value } => Some(value.cast_unsigned()),
        _ => None,
    };
    let read = |what| Some(Injected { parameter: parameter(before.last()?)?, what, before: 1 });
    match function.definition().value {
        ResultValue::Any => None,
        ResultValue::Integer => read(InjectedValue::Int),
        ResultValue::Float => read(InjectedValue::Float),
        ResultValue::Length => match before.last_chunk()? {
            [
                index,
                // Where to does not matter without room.
                Operator::I32Const { .. } | Operator::LocalGet { .. } | Operator::GlobalGet { .. },
                Operator::I32Const { value: 0 },
            ] => Some(Injected { parameter: parameter(index)?, what: InjectedValue::Length, before: 3 }),
            _ => None,
        },
    }
}
