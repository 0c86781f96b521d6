//! Upper bounds on what a module costs, found from its bytes before it runs; or the places where there is none, and why.
//!
//! Pure: bytes in, values out. What is proved here is relied upon: a module whose bound is within its limit runs without any check.

#![forbid(unsafe_code)]

mod analyse;
mod arith;
mod calls;
pub mod charge;
mod code;
mod cost;
mod decode;
mod facts;
mod injected;
mod instruction;
mod invariant;
mod length;
mod linear;
mod lines;
mod loops;
mod module;
mod range;
mod reason;
mod region;
mod report;
mod state;
mod trips;
mod value;
mod walk;

pub use analyse::{Malformed, analyse};
pub use cost::{CostClass, CostTable, class_of};
pub use injected::{Injected, InjectedValue, injected};
pub use length::{Beyond, Length};
pub use linear::Linear;
pub use lines::Lines;
pub use module::{Export, Import, ParsedModule, Sections};
pub use reason::{UnboundedReason, Why};
pub use report::{
    Analysis, CallBound, CodeLocation, EntryBound, HostCall, LoopBound, OnEntry, PathStep, ResourceBound,
    SourceLine, TopContributor, What, WorkClass,
};
pub use weir_abi::entry::EntryPoint;

/// What is known about a module beside its bytes, when it is analysed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// What is known about each parameter, in the manifest's order.
    pub parameters: Vec<ParamBound>,
    /// For each stream of the manifest: the most bytes that the strings of one record have; 0 where its fields have a fixed size.
    pub string_bytes: Vec<u32>,
    /// The most captured bytes of a packet.
    pub packet_max: u32,
    /// The most pages of memory that the module may have.
    pub pages_max: u64,
}

/// What is known about a parameter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamBound {
    /// What `param_int` returns lies between these, both included.
    Int {
        /// At least.
        min: i64,
        /// At most.
        max: i64,
    },
    /// A float.
    Float,
    /// What `param_bytes` returns lies between these, both included.
    Bytes {
        /// At least.
        min: u32,
        /// At most.
        max: u32,
    },
}
