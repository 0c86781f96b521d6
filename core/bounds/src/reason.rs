//! The causes of a missing bound, with messages that tell the module's author what to do.

use crate::report::CodeLocation;
use std::fmt;

/// A code location without a bound, and the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnboundedReason {
    /// The location of the loop, the call or the function that has no bound.
    pub place: CodeLocation,
    /// The cause.
    pub cause: UnboundedCause,
}

/// The cause of a missing bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnboundedCause {
    /// No induction variable that ends the loop was recognised.
    NoCounter,
    /// The induction variable may step over its limit, or wrap around before it reaches the limit.
    MayMiss,
    /// The limit of the induction variable can be any number.
    LimitUnknown,
    /// The loop has no exit.
    Endless,
    /// The function with this name calls itself, directly or through other functions.
    Recursion(String),
    /// The trip count times the cost of the loop's body overflows.
    Overflow,
    /// The analysis of the module needs more work or memory than its limits allow: there is too much code, or the code
    /// is nested too deeply.
    TooLarge,
}

impl fmt::Display for UnboundedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.cause)
    }
}

impl fmt::Display for UnboundedCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCounter => f.write_str(
                "no counter was found that ends this loop: count it with WEIR_FOR(MAX, ...) in C or .bounded::<MAX>() in Rust, or let a local variable go up to a limit",
            ),
            Self::MayMiss => f.write_str(
                "the counter can step over its end and wrap around, because the code does not show that it begins below its end: count with WEIR_FOR(MAX, ...) in C or .bounded::<MAX>() in Rust, or cut the limit to a constant just before the loop, as in n < MAX ? n : MAX (compilers turn < into !=, so writing < does not always help)",
            ),
            Self::LimitUnknown => f.write_str(
                "the loop's limit can be any number: cut it to a constant before the loop, as in n < MAX ? n : MAX, or take the limit from a parameter whose largest value is set in the manifest, and read the parameter right at the loop",
            ),
            Self::Endless => f.write_str("this loop has no way out: add one, or remove the loop"),
            Self::Recursion(name) => write!(f, "{name} calls itself: write it as a loop with a counter"),
            Self::Overflow => f.write_str(
                "the loop's trip count times the cost of its body is more than can be counted: make the loop's limit smaller",
            ),
            Self::TooLarge => f.write_str(
                "unbounded: too large: the module has more code on its paths than is analysed; split it, or have less of it inlined",
            ),
        }
    }
}
