//! Upper bounds on the cost of a module, derived from its bytes before it runs. Where there is no bound, the result
//! names the code location and the cause.
//!
//! The crate is pure: bytes in, values out. Its results must be right, because a module whose bounds are within their
//! limits runs without any check.

#![forbid(unsafe_code)]

mod analyse;
mod arith;
mod calls;
pub mod charge;
mod code;
mod conditions;
mod cost;
mod counter_problem;
mod decode;
mod difference;
mod injected;
mod instruction;
mod interpreter;
mod invariant;
mod length;
mod linear;
mod lines;
mod loops;
mod module;
mod range;
mod reach;
mod reason;
mod region;
mod report;
mod state;
mod trip_count;
mod value;

pub use analyse::{Malformed, analyse};
pub use cost::{CostClass, CostTable, class_of};
pub use injected::{InjectedRead, InjectedValue, find_injected};
pub use length::{Length, OverLength};
pub use linear::Linear;
pub use lines::Lines;
pub use module::{Export, Import, ParsedModule, Sections};
pub use reach::reachable_host_calls;
pub use reason::{CounterProblem, UnboundedCause, UnboundedReason};
pub use report::{
    Analysis, CallBound, CodeLocation, EntryBound, HostCall, LoopBound, PathStep, ResourceBound, SourceLine,
    StepKind, TopContributors, TripCountFormula, WorkClass,
};
pub use weir_abi::entry::EntryPoint;

/// The inputs of an analysis besides the module's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// The range of each parameter's value, in the manifest's order.
    pub parameters: Vec<ParamBound>,
    /// For each record stream of the manifest, the most bytes of strings in one record; 0 if all fields of the stream
    /// have a fixed size.
    pub string_bytes: Vec<u32>,
    /// The most captured bytes of a packet.
    pub packet_max: u32,
    /// The most pages of 64 KiB that the module's memory may have.
    pub pages_max: u64,
}

/// The range of a parameter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamBound {
    /// An integer: `param_int` returns a value from `min` to `max`, both included.
    Int {
        /// The smallest possible value.
        min: i64,
        /// The largest possible value.
        max: i64,
    },
    /// A float. Its value is not bounded.
    Float,
    /// A string or list: `param_bytes` returns a length from `min` to `max` bytes, both included.
    Bytes {
        /// The smallest possible length in bytes.
        min: u32,
        /// The largest possible length in bytes.
        max: u32,
    },
}
